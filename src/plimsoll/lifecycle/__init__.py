"""Clusters being born: conditions, steps, validation; and how they leave."""
