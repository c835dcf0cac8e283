"""The same decisions on a virtual clock: replay of a trace, and traces that are made up."""
