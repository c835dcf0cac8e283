"""What the lifecycle asks of the outside, whoever answers: how an operation is, begin one, how much quota there is.

A provider's `look` changes nothing. `begin` is called only for an operation whose intent is in the ledger; it may find
that the operation was begun before, and then says how it is. What it can't do it raises as `ProviderTrouble`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import PlimsollError, Unavailable
from plimsoll.lifecycle.model import Life, QuotaKey
from plimsoll.lifecycle.recipe import Recipe, Step

StepKey = tuple[str, str]
"""A cluster and a step."""


class Found(enum.StrEnum):
    """How an operation is outside."""

    ABSENT = "absent"
    """It was never begun there."""
    RUNNING = "running"
    BLOCKED = "blocked"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Somebody stopped it."""
    LOST = "lost"
    """It was begun, and is no more, without a result."""
    ELSEWHERE = "elsewhere"
    """It was begun from another machine, and can't be seen from this one."""


class NodeFound(msgspec.Struct, frozen=True):
    """A machine that an operation named: that it is there, or how a check of it ended."""

    node: str
    island: str = ""
    is_ok: bool | None = None
    detail: str = ""
    labels: dict[str, str] = {}


class SetFound(msgspec.Struct, frozen=True):
    """How many machines of a scale set are there."""

    name: str
    there: int
    detail: str = ""


class Look(msgspec.Struct, frozen=True):
    """What was seen of one operation."""

    found: Found
    reason: str = ""
    detail: str = ""
    handle: str = ""
    log: str = ""
    may_retry: bool = True
    sets: tuple[SetFound, ...] | None = None
    nodes: tuple[NodeFound, ...] = ()


class SetWish(msgspec.Struct, frozen=True):
    """A scale set as it is wanted: one for each island."""

    name: str
    island: str
    nodes: int
    first: int
    """The number of its first node; numbers run through all sets of a cluster."""


class Order(NamedTuple):
    """One step of one cluster, to be begun or looked at."""

    life: Life
    recipe: Recipe
    step: Step
    operation: str
    attempt: int
    place: str
    handle: str
    sets: tuple[SetWish, ...]
    nodes: tuple[str, ...] = ()
    is_done: bool = False

    @property
    def key(self) -> StepKey:
        return self.life.name, self.step.name


Looks = dict[StepKey, Look | ProviderTrouble]


class Provider(Protocol):
    """Who carries out one kind of step."""

    settle_seconds: float
    """How long after a call whose answer is not known it may still take effect."""

    @property
    def place(self) -> str:
        """Where operations are begun that cannot be seen from anywhere else; empty where they can."""

    def look(self, orders: Sequence[Order]) -> Looks:
        """How each operation is; a trouble where nobody can tell."""

    def begin(self, order: Order) -> Look:
        """Begin an operation, unless it was begun before."""


class UsageRead(msgspec.Struct, frozen=True):
    """What a provider says of one family: how many cores there may be, and how many are in use."""

    key: QuotaKey
    limit: int
    used: int


class QuotaReader(Protocol):
    """Who says how much quota there is."""

    def usages(self, recipe: Recipe, subscription: str, region: str) -> Sequence[UsageRead]:
        """All families of a region."""


class Outside(NamedTuple):
    """Everything outside, by kind of step."""

    providers: Mapping[str, Provider]
    quota: QuotaReader


def as_trouble(error: Exception) -> ProviderTrouble:
    """Anything that went wrong as a trouble: what can't be had now may be later; what is wrong is for a person to put
    right. Of what nobody has foreseen nobody knows how far it came."""
    if isinstance(error, ProviderTrouble):
        return error
    if not isinstance(error, PlimsollError):
        message = f"unexpected {type(error).__name__}: {str(error)[:200]}"
        return ProviderTrouble("unexpected", message, kind=TroubleKind.UNREACHABLE, may_have_happened=True)
    kind = TroubleKind.UNREACHABLE if isinstance(error, Unavailable) else TroubleKind.REFUSED
    return ProviderTrouble(error.code, error.message, kind=kind, next_step=error.next_step)


def set_wishes(life: Life) -> tuple[SetWish, ...]:
    """The scale sets of a cluster: its nodes dealt evenly over its islands, larger ones first."""
    spec = life.spec
    size, rest = divmod(spec.nodes, spec.islands)
    wishes, first = [], 1
    for number in range(1, spec.islands + 1):
        nodes = size + (number <= rest)
        wishes.append(SetWish(f"{spec.name}-{number}", f"{spec.name}-i{number}", nodes, first))
        first += nodes
    return tuple(wishes)
