"""How the nodes of a batch are marked in their scheduler, so that nobody scales onto them; the words for it. Pure.

A marker is one scheduler of one cluster. Every act may be repeated: after a crash the same call is made again and
finishes what was begun. Must never take away what somebody else said about a node: a drain or cordon of an operator
is there before and after us.

`book` is said ahead of time (a reservation that steers backfill around the batch), `mark` when the batch is due (no new
work from now on), `clear` asks the work that still runs there to go, `unmark` takes back what `book` and `mark` did and
nothing else. A hold on the nodes has to stand in the ledger before `mark`, and to have ended before `unmark`:
`health observe slurm --push` drains and resumes by the ledger, and would undo a mark that the ledger does not know.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from plimsoll.errors import UsageError
from plimsoll.fleet.model import Service
from plimsoll.health.outside import OURS

SCHEDULER_LABEL = "scheduler"
"""The column of clusters.csv that says which scheduler a cluster has."""
REASON_CHARS_MAX = 200
"""Slurm takes a little more than 250 for a reason, and health cuts its own at 240."""

_ROUND_BRACKETS = str.maketrans("[]", "()")
"""In square ones Slurm says who drained a node and when."""


class Scheduler(enum.StrEnum):
    """What hands out the nodes of a cluster."""

    NONE = "none"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


class AtDeadline(enum.StrEnum):
    """What becomes of Slurm jobs that still run when the grace has passed."""

    WAIT = "wait"
    REQUEUE = "requeue"
    CANCEL = "cancel"


class Extent(enum.StrEnum):
    """How far a batch is marked."""

    MARKED = "marked"
    PARTLY = "partly"
    NOT_MARKED = "not_marked"


class Acted(msgspec.Struct, frozen=True):
    """What became of nodes: `done` are as asked, `missing` the scheduler does not know, `left` somebody else keeps out
    of service, with their reason: after a mark they get no work all the same, after an unmark they still get none."""

    done: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    left: Mapping[str, str] = {}


class Looked(msgspec.Struct, frozen=True):
    """What the scheduler says: `open` could get new work that runs into the batch, `missing` it does not know."""

    extent: Extent
    open: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Drained(msgspec.Struct, frozen=True):
    """Which nodes are empty of work, and what still runs on the others: jobs, or pods."""

    empty: tuple[str, ...] = ()
    busy: Mapping[str, tuple[str, ...]] = {}


class Cleared(msgspec.Struct, frozen=True):
    """What was asked to go, and what may not go now and why: a later call asks again."""

    asked: tuple[str, ...] = ()
    waiting: Mapping[str, str] = {}


class Marker(Protocol):
    """The scheduler of one cluster, for one campaign."""

    @property
    def where(self) -> str:
        """The scheduler in words."""
        ...

    def book(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime) -> Acted:
        """Keep work from being planned into the batch's time. Also moves what was booked for it before."""
        ...

    def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
        """Book, and keep new work off from now on. What runs there goes on."""
        ...

    def unmark(self, batch: str, nodes: Collection[str]) -> Acted:
        """Take back what was done for this batch on these nodes; a booking goes as a whole."""
        ...

    def look(self, batch: str, nodes: Collection[str]) -> Looked:
        """Whether the batch is marked."""
        ...

    def drained(self, nodes: Collection[str]) -> Drained:
        """Which nodes are empty."""
        ...

    def clear(self, nodes: Collection[str]) -> Cleared:
        """Ask what still runs there to go."""
        ...


class NoMarks:
    """For clusters without a scheduler that we steer: everything is done, because there is nothing to do."""

    where = "no scheduler"

    def book(self, _batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime) -> Acted:
        assert starts < ends
        return Acted(tuple(nodes))

    def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
        assert reason
        return self.book(batch, nodes, starts=starts, ends=ends)

    def unmark(self, _batch: str, nodes: Collection[str]) -> Acted:
        return Acted(tuple(nodes))

    def look(self, _batch: str, _nodes: Collection[str]) -> Looked:
        return Looked(Extent.MARKED)

    def drained(self, nodes: Collection[str]) -> Drained:
        return Drained(tuple(nodes))

    def clear(self, _nodes: Collection[str]) -> Cleared:
        return Cleared()


def read_scheduler(text: str, *, source: str) -> Scheduler:
    """A scheduler by its name. `source` says where the name stands."""
    try:
        return Scheduler(text.strip().lower() or Scheduler.NONE)
    except ValueError:
        names = ", ".join(Scheduler)
        raise UsageError(
            "unknown_scheduler",
            f"{source} says {text[:60]!r}, and the schedulers are {names}",
            next_step=f"write one of {names}",
            source=source,
        ) from None


def hold_reason(campaign: str, batch: str) -> str:
    """Why a node of a batch is held in the ledger (`stages` says so), and what a drain says of its batch as well: so
    the drain is the same whether a mark or health's own steering wrote it, and is known as this batch's by it."""
    unit, _, number = batch.rpartition("#")
    return f"planned: {campaign}, {unit} batch {number}"


def _words(text: str) -> str:
    """In signs that Slurm gives back unchanged."""
    words = "".join(sign if sign.isprintable() else " " for sign in text).translate(_ROUND_BRACKETS)
    if len(words) <= REASON_CHARS_MAX:
        return words
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{words[:REASON_CHARS_MAX]} {digest}"


def drain_reason(campaign: str, batch: str) -> str:
    """What a drain of ours says in Slurm. The same at every call, so that asking again changes nothing."""
    return f"{OURS}{Service.MAINTENANCE}, {_words(hold_reason(campaign, batch))}"


def is_of_batch(reason: str, campaign: str, batch: str) -> bool:
    """Whether the reason of a drain is this batch's: ours, for whatever service, and nothing else behind."""
    return reason.startswith(OURS) and reason[len(OURS) :].partition(", ")[2] == _words(hold_reason(campaign, batch))
