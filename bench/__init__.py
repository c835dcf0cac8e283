"""What is fast, measured against something in the same run: `make bench`, or `python -m bench NAME...`."""
