"""One page on a correction, for who decides it and for who loses quota."""
