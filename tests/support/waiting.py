"""Waiting for something outside to happen, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def wait_until(is_so: Callable[[], bool], *, what: str, seconds_max: float = 30.0) -> None:
    """Wait for something to become true; fail the test when it does not."""
    deadline = time.monotonic() + seconds_max
    while not is_so():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds_max} s")
        time.sleep(0.01)
