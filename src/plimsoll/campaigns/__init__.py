"""Planned work over many clusters: plan it, prove the plan, say why none exists, publish, run and replan it."""
