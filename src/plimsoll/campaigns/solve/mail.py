"""What workers and the process that started them say to each other: pickled messages with their length before them."""

from __future__ import annotations

import pickle
import struct
from typing import IO, Any, NamedTuple

from plimsoll.campaigns.solve.problem import Ints, PlanProblem

_LENGTH = struct.Struct("!Q")


class Task(NamedTuple):
    """What to do: look for plans from a first one, or prove bounds. `is_near`: the first is
    good already, and only reworked."""

    is_proof: bool
    problem: PlanProblem
    start: Ints | None
    seed: int
    work: float
    is_near: bool


class Told(NamedTuple):
    """What a worker tells: a plan with its total, a bound, or that it has ended."""

    plan: Ints | None = None
    bound: float | None = None
    is_impossible: bool = False
    has_ended: bool = False


def send(stream: IO[bytes], message: Any) -> None:
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message. Raises EOFError when there is none any more."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)  # noqa: S301 (from the process that started this one)
