"""What tests share: real parts, builders, the command line as a process."""
