"""Component versions on nodes, and the combinations that they make."""
