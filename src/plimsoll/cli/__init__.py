"""The front door in a terminal: the `plimsoll` command."""
