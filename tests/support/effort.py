"""How much work something is, whatever else the machine is doing and whatever other tests have left in memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Effort:
    """What was measured; known once the block is over."""

    seconds = 0.0


@contextmanager
def effort() -> Iterator[Effort]:
    """The processor time of this thread, without collections of garbage: they cost by what others have made."""
    measured, was_enabled = Effort(), gc.isenabled()
    gc.disable()
    begun = time.thread_time()
    try:
        yield measured
    finally:
        measured.seconds = time.thread_time() - begun
        if was_enabled:
            gc.enable()
