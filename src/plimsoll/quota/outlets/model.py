"""What every outlet shares: a scheduler's settings as names and values, and what to do about each that differs. Pure.

Three values decide about a setting: what we want, what the scheduler has, and what we set there last. A value that is
neither what we want nor what we set was changed by hand: that is drift, and is shown before it is put back.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from plimsoll.quota.model import PoolPromise

Settings = Mapping[str, str]
"""What an outlet manages, such as `account/vision GrpTRES gres/gpu` -> `256`. Names sort as they are to be set."""


class Cause(enum.StrEnum):
    """Why a setting is not what it should be."""

    MISSING = "missing"
    """The scheduler does not have it yet."""
    BEHIND = "behind"
    """It has what we set last; the promise has moved since."""
    DRIFT = "drift"
    """Somebody changed it by hand."""
    LEFT_OVER = "left_over"
    """It is ours, and nothing is promised there any more."""


class Step(msgspec.Struct, frozen=True):
    """One setting to change. `wanted` None takes it away, `found` None means that it is not there."""

    name: str
    found: str | None
    wanted: str | None
    cause: Cause


class Outlet(Protocol):
    """A scheduler that can be told. `read` returns only settings that are, or could be, ours.

    `write` does one step and returns when the scheduler has confirmed it; doing a step twice is the same as once. Both
    raise `Unavailable` with what happened where the scheduler can't be asked.
    """

    name: str

    def wanted(self, promises: Sequence[PoolPromise]) -> Settings: ...

    def read(self) -> Settings: ...

    def write(self, step: Step) -> None: ...


def compare(wanted: Settings, found: Settings, last: Settings) -> list[Step]:
    """What to do so that the scheduler has what is wanted, in the order in which to do it."""
    steps = []
    for name in sorted({*wanted, *found}):
        want, have, set_last = wanted.get(name), found.get(name), last.get(name)
        if want == have:
            continue
        if have is None:
            cause = Cause.MISSING if set_last is None else Cause.DRIFT
        elif set_last is not None and have != set_last:
            cause = Cause.DRIFT
        elif want is None:
            if set_last is None:
                continue  # not ours
            cause = Cause.LEFT_OVER
        else:
            cause = Cause.BEHIND if set_last is not None else Cause.DRIFT
        steps.append(Step(name, have, want, cause))
    return steps
