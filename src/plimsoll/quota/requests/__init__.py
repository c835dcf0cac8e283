"""Asking for more: what can be offered, from where, and what is done about it."""
