"""The independent checker of plans; shares no code with what makes them."""
