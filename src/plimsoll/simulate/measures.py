"""What a replay measures while it goes: waiting, use, blocks kept whole, losses, and promises. It decides nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from plimsoll.quota.model import Tier
from plimsoll.simulate.model import HOUR_US, SIZE_CLASSES, SIZE_LARGEST, size_class

WAITING, FRAGMENTED, SHORTFALL = "waiting", "fragmented", "shortfall"
"""How a promise is broken: the room was not there, it was there in pieces, or fewer GPUs work than are guaranteed."""


class Waits(msgspec.Struct, frozen=True):
    """How long jobs waited for their first start, in seconds."""

    jobs: int
    mean: float
    median: float
    p99: float
    most: float


class Counts(msgspec.Struct):
    """What happened. Job events are submits, ends, and every change of what a job holds."""

    submits: int = 0
    starts: int = 0
    ends: int = 0
    preemptions: int = 0
    """Gangs that were stopped, and elastic work that was, so that something with a better right could start."""
    shrinks: int = 0
    grows: int = 0
    repairs: int = 0
    losses: int = 0
    moves: int = 0
    bookings: int = 0
    node_failures: int = 0
    node_returns: int = 0

    @property
    def job_events(self) -> int:
        return (
            self.submits + self.starts + self.ends + self.preemptions + self.shrinks + self.grows
            + self.repairs + self.losses + self.moves
        )  # fmt: skip

    @property
    def interruptions(self) -> int:
        return self.preemptions + self.repairs + self.losses + self.moves


class Meter:
    """Amounts over time: what is held, what works, the largest block that is free, and the largest that could be."""

    __slots__ = (
        "block", "block_least", "block_us", "held", "held_us", "is_open", "island", "last", "possible_us", "until",
        "works", "works_us",
    )  # fmt: skip

    def __init__(self, begin: int, until: int, *, works: int, block: int, island: int) -> None:
        """`until`: the last submit; what comes after it is the emptying of the fleet and tells nothing. `island`: the
        GPUs of the largest one.
        """
        self.last, self.until = begin, until
        self.held, self.works, self.block, self.block_least = 0, works, block, block
        self.island = island
        self.held_us = self.works_us = self.block_us = self.possible_us = 0
        self.is_open = True

    def advance(self, now: int) -> None:
        """Time goes by, with everything as it was."""
        if now > self.until:
            if not self.is_open:
                return
            now, self.is_open = self.until, False
        span = now - self.last
        if span > 0:
            block, free = self.block, self.works - self.held
            self.held_us += self.held * span
            self.works_us += self.works * span
            self.block_us += block * span
            self.possible_us += (free if free < self.island else self.island) * span
            if block < self.block_least:
                self.block_least = block
            self.last = now

    @property
    def block_share(self) -> float | None:
        """The largest free block as a share of the largest that so many free GPUs could make, over time."""
        return self.block_us / self.possible_us if self.possible_us > 0 else None


class Promises:
    """When teams could not use what they are guaranteed, in team-hours: waits beyond the time of grace by their kind,
    and shortfall of whole pools.
    """

    def __init__(self, grace_us: int) -> None:
        self._grace_us = grace_us
        self._waits: dict[str, tuple[int, str, str]] = {}
        self._broken: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._short: dict[tuple[str, str], int] = {}

    def waits(self, job: str, team: str, now: int, what: str) -> None:
        """A job waits for what it has a right to; `what` is empty where it has none."""
        before = self._waits.get(job)
        if before is not None and before[2] != what:
            self.runs(job, now)
        if what and job not in self._waits:
            self._waits[job] = now, team, what

    def runs(self, job: str, now: int) -> None:
        """A job runs, is over, or has no right any more."""
        if (before := self._waits.pop(job, None)) is not None:
            since, team, what = before
            if now - since > self._grace_us:
                self._broken.setdefault((team, what), []).append((since + self._grace_us, now))

    def shortfall(self, pool: str, teams: Iterable[str], now: int, *, is_short: bool) -> None:
        """Fewer GPUs of a pool work than are guaranteed in it, or no longer so."""
        for team in teams:
            since = self._short.get((pool, team))
            if is_short and since is None:
                self._short[pool, team] = now
            elif not is_short and since is not None:
                del self._short[pool, team]
                self._broken.setdefault((team, SHORTFALL), []).append((since, now))

    def close(self, now: int) -> None:
        """The replay is over: what is open counts until now."""
        for job in list(self._waits):
            self.runs(job, now)
        for pool, team in list(self._short):
            self.shortfall(pool, (team,), now, is_short=False)

    def team_hours(self, *kinds: str) -> dict[str, float]:
        """Broken team-hours by team; moments that two of its jobs share, or two kinds, count once."""
        spans: dict[str, list[tuple[int, int]]] = {}
        for (team, what), mine in self._broken.items():
            if what in kinds:
                spans.setdefault(team, []).extend(mine)
        return {team: _union(spans[team]) / HOUR_US for team in sorted(spans)}


def _union(spans: Sequence[tuple[int, int]]) -> int:
    total, end = 0, 0
    for begin, until in sorted(spans):
        if until > end:
            total += until - max(begin, end)
            end = until
    return total


class Gangs:
    """What gangs made of their time, in microseconds, as accounts do it."""

    __slots__ = ("down_us", "gpu_us", "lost_gpu_us", "lost_us", "restart_us", "run_us")

    def __init__(self) -> None:
        self.run_us = self.down_us = self.lost_us = self.restart_us = self.gpu_us = self.lost_gpu_us = 0

    @property
    def uptime_share(self) -> float | None:
        total = self.run_us + self.down_us
        return self.run_us / total if total else None

    @property
    def goodput_share(self) -> float | None:
        total = self.run_us + self.down_us
        return max(0, self.run_us - self.lost_us - self.restart_us) / total if total else None


def waits_of(seconds: Sequence[float]) -> Waits:
    """Mean, median, the wait that 99 % of the jobs do not exceed, and the longest."""
    ordered = sorted(seconds)
    if not ordered:
        return Waits(0, 0.0, 0.0, 0.0, 0.0)
    return Waits(
        len(ordered),
        round(math.fsum(ordered) / len(ordered), 3),
        round(_quantile(ordered, 0.5), 3),
        round(_quantile(ordered, 0.99), 3),
        round(ordered[-1], 3),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def waits_by(waits: Mapping[tuple[int, Tier], Sequence[float]]) -> tuple[dict[str, Waits], dict[str, Waits]]:
    """Waits by class of size and by tier, of lists by size in GPUs and tier; in the order of the classes."""
    sizes: dict[str, list[float]] = {name: [] for name in (*(name for _, name in SIZE_CLASSES), SIZE_LARGEST)}
    tiers: dict[str, list[float]] = {tier.value: [] for tier in Tier}
    for (gpus, tier), seconds in waits.items():
        sizes[size_class(gpus)] += seconds
        tiers[tier.value] += seconds
    return (
        {name: waits_of(seconds) for name, seconds in sizes.items() if seconds},
        {name: waits_of(seconds) for name, seconds in tiers.items() if seconds},
    )
