"""The nouns of a replay: a job of a trace, what becomes of it, and how the replay is set up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from plimsoll.fleet.selector import Scope
from plimsoll.quota.model import Kind, Tier
from plimsoll.workloads.model import Spec

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

SIZE_CLASSES = ((1, "1"), (8, "2-8"), (64, "9-64"), (512, "65-512"))
"""Upper bound in GPUs and name; what is larger is the last class."""
SIZE_LARGEST = "513+"


class Job(msgspec.Struct, frozen=True, gc=False):
    """A row of a trace. `at` is its submit, `run_us` how long it runs with all its GPUs; both in microseconds."""

    at: int
    run_us: int
    gpus: int
    group: str = ""
    tier: Tier | None = None
    rank: int = 1
    kind: Kind = Kind.GANG
    gpus_min: int = 0
    """Of an elastic job: what it can do with at the least; 0 where nobody said."""
    is_spread: bool = False
    """It may lie in several islands, all or nothing."""
    hours: float = 0.0


class Trace(msgspec.Struct, frozen=True):
    """Jobs by their submit, and what was odd about the file."""

    source: str
    jobs: Sequence[Job]
    notes: Sequence[str] = ()

    @property
    def has_groups(self) -> bool:
        return any(job.group for job in self.jobs)


class Settings(msgspec.Struct, frozen=True):
    """How a replay goes. `failures` come per 1,000 node-days, and a repair takes `repair_hours` on average."""

    seed: int = 1
    failures: float = 0.0
    repair_hours: float = 0.0
    checkpoint_minutes: float = 30.0
    restart_minutes: float = 10.0
    grace: timedelta = timedelta(minutes=15)


class Planned(NamedTuple):
    """A job as it will be submitted."""

    at: int
    run_us: int
    gpus: int
    spec: Spec


class Refusals(msgspec.Struct):
    """Jobs that the fleet could never carry: they are counted, and left out."""

    count: int = 0
    gpus_most: int = 0
    gpu_hours: float = 0.0


class Cast(msgspec.Struct, frozen=True):
    """Who submits what, when, to which part of the fleet; and what had to be assumed for that."""

    planned: Sequence[Planned]
    teams: Sequence[str]
    refused: Refusals
    assumed: Sequence[str]


class Where(NamedTuple):
    """A part of the fleet that jobs may run in, and the GPUs that work in its largest island and pool."""

    scope: Scope
    sku: str
    gpus: int
    largest: int
    largest_pool: int


def size_class(gpus: int) -> str:
    """The name of the class that a job of this size is counted in."""
    return next((name for most, name in SIZE_CLASSES if gpus <= most), SIZE_LARGEST)
