"""What every outlet shares: a scheduler's settings as names and values, and what to do about each that differs. Pure.

Three values decide about a setting: what we want, what the scheduler has, and what we set there last. A value that is
neither what we want nor what we set was changed by hand: that is drift, and is shown before it is put back. What a push
that was cut short had begun to set counts as set by us, too: nobody else is blamed for it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from plimsoll.quota.model import PoolPromise

Settings = Mapping[str, str]
"""What an outlet manages, such as `account/vision GrpTRES gres/gpu` -> `256`. Names sort as they are to be set."""

Tries = Mapping[str, str | None]
"""What a push that was cut short had begun to set; None had begun to take away."""


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


class Limit(msgspec.Struct, frozen=True):
    """How many GPUs of a SKU a setting lets a team count on; no team means flex."""

    sku: str
    team: str
    gpus: int


class Outlet(Protocol):
    """A scheduler that can be told. `read` returns only settings that are, or could be, ours.

    `write` does one step and returns when the scheduler has confirmed it; doing a step twice is the same as once. A
    step whose cause is drift overwrites what others set: it is asked for only by `--put-back`. All raise `Unavailable`
    with what happened where the scheduler can't be asked, and `write` raises `FieldTaken` where somebody else holds it.
    """

    name: str

    def wanted(self, promises: Sequence[PoolPromise]) -> Settings: ...

    def read(self) -> Settings: ...

    def write(self, step: Step) -> None: ...

    def limit(self, name: str, value: str) -> Limit | None:
        """The guarantee (or flex) that a setting with this value means; None for one that is no such limit."""
        ...


@runtime_checkable
class NamesOwner(Protocol):
    """An outlet whose scheduler knows who set something, after `read`."""

    def owner(self, name: str) -> str: ...


@runtime_checkable
class WritesTogether(Protocol):
    """An outlet that is told everything at once: the steps are done together or not at all."""

    def write_together(self, steps: Sequence[Step]) -> None: ...


def compare(wanted: Settings, found: Settings, last: Settings, tried: Tries | None = None) -> list[Step]:
    """What to do so that the scheduler has what is wanted, in the order of the names."""
    steps = []
    for name in sorted({*wanted, *found}):
        want, have = wanted.get(name), found.get(name)
        if want != have and (cause := _cause(name, want, have, last, tried or {})) is not None:
            steps.append(Step(name, have, want, cause))
    return steps


def _cause(name: str, want: str | None, have: str | None, last: Settings, tried: Tries) -> Cause | None:
    is_ours = have == last.get(name) or (name in tried and have == tried[name])
    if have is None:
        return Cause.MISSING if is_ours else Cause.DRIFT
    if want is None:
        if is_ours:
            return Cause.LEFT_OVER
        return Cause.DRIFT if name in last else None  # else it never was ours
    return Cause.BEHIND if is_ours else Cause.DRIFT


def in_order(steps: Sequence[Step], limit: Callable[[str, str], Limit | None]) -> list[Step]:
    """First what lowers a limit, then the others by name, last what is taken away, in reverse.

    Were a limit raised first, then until the other is lowered (or for ever, if the push is cut) more would be promised
    than there is.
    """

    def gpus(name: str, value: str | None) -> int | None:
        found = None if value is None else limit(name, value)
        return None if found is None else found.gpus

    def is_lower(step: Step) -> bool:
        before = gpus(step.name, step.found)
        return before is not None and (gpus(step.name, step.wanted) or 0) < before

    lower = [step for step in steps if is_lower(step)]
    others = [step for step in steps if not is_lower(step) and step.wanted is not None]
    gone = [step for step in steps if not is_lower(step) and step.wanted is None]
    return [*lower, *others, *reversed(gone)]
