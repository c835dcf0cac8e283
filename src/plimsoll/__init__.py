"""Plimsoll: the load line for a GPU fleet. Promise only what the healthy nodes can carry."""

__version__ = "0.1.0"
