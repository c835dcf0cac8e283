"""What can be asked and done: one module or package per noun, once for the command line and for HTTP."""
