"""Why work does not run, did not go on, or can never be: the long answers."""
