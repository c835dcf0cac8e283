"""Randomness that can be had again: the seed is printed, and `PLIMSOLL_SEED` sets it."""

from __future__ import annotations

import os
import random


def new_chance() -> random.Random:
    """A source of chance. pytest shows what was printed when the test fails."""
    seed = int(os.environ.get("PLIMSOLL_SEED") or random.SystemRandom().randrange(10**9))
    print(f"PLIMSOLL_SEED={seed}")  # noqa: T201
    return random.Random(seed)
