"""The search for a plan and the proof of how good it is."""
