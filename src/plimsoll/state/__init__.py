"""The fold: each capability registers how its events change the state; fork, undo, as-of."""
