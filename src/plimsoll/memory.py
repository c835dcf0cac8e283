"""How we use the interpreter's memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the cycle collector while very many objects are made that stay: it would walk them again and again.

    (Measured: a fifth of the time of an import.) Nothing made inside may depend on cycles being collected.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def learn_types() -> int:
    """Let msgspec learn all our structs now, before there are threads; how many it learnt.

    It learns a struct when it is first decoded. Two threads that do that at once crash the interpreter (seen with
    msgspec 0.22: one uses what the other has not finished). So whoever starts threads calls this first.
    """
    count, todo = 0, list(msgspec.Struct.__subclasses__())
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if kind.__module__.startswith("plimsoll."):
            with suppress(TypeError, NameError):  # one that holds what can't be decoded is never decoded
                msgspec.json.Decoder(kind)
                count += 1
    return count
