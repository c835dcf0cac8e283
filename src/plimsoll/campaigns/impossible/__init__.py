"""Why there is no plan, and what would help."""
