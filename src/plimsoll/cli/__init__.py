"""The `plimsoll` command, one module per noun."""
