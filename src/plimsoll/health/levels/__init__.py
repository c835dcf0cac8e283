"""Service levels: how well the fleet did over a period, from the outages that the timelines tell. All of it is pure."""
