"""Makes a trace up: gangs as large as islands among small jobs and elastic work, by dice that are seeded.

Small jobs are many and short, island-scale gangs are few and hold most of the GPU time: what makes fragments and what
suffers from them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.quota.model import Kind, Tier
from plimsoll.times import show_time

JOBS_MAX = 5_000_000
DAYS_MAX = 3_660
GANGS_DEFAULT = (128, 256, 352, 512)
HEADER = ("time", "duration", "gpus", "team", "tier", "rank", "kind", "min_gpus")
TEAMS = ("anchovy", "bream", "cod", "dory", "eel", "flounder", "gurnard", "herring", "ide", "ling", "mackerel", "perch")
NIGHT_SHARE = 0.4
"""Submits at the quietest hour against the busiest."""


class Mix(NamedTuple):
    """A sort of job: how many there are of it, how large, how long (median, spread of the logarithm), how important."""

    share: float
    sizes: Sequence[int]
    hours: float
    sigma: float
    tiers: Sequence[Tier]
    kind: Kind = Kind.GANG


class Wanted(msgspec.Struct, frozen=True):
    """What trace to make. `busy_gpus`: durations are scaled so that so many GPUs would be busy on average; 0: not."""

    jobs: int
    days: float
    seed: int = 1
    gangs: Sequence[int] = GANGS_DEFAULT
    gang_share: float = 0.03
    busy_gpus: int = 0


def make_trace(wanted: Wanted, *, begin: datetime) -> Iterator[tuple[object, ...]]:
    """The rows of a trace by their submit, header first."""
    dice = random.Random(f"trace {wanted.seed}")  # noqa: S311
    mixes = _mixes(wanted)
    weights = [mix.share for mix in mixes]
    team_weights = [1 / (place + 1) for place in range(len(TEAMS))]
    teams = list(TEAMS)
    dice.shuffle(teams)
    rows = []
    for at in _arrivals(dice, wanted):
        mix = dice.choices(mixes, weights)[0]
        gpus = dice.choice(mix.sizes)
        seconds = min(wanted.days * 86_400, mix.hours * 3600 * math.exp(dice.gauss(0, mix.sigma)))
        team = dice.choices(teams, team_weights)[0]
        least = max(1, gpus // dice.choice((2, 4, 8))) if mix.kind is Kind.ELASTIC else 0
        rows.append((at, max(1.0, seconds), gpus, team, dice.choice(mix.tiers), dice.randint(1, 3), mix.kind, least))
    scale = 1.0
    if wanted.busy_gpus:
        scale = wanted.busy_gpus * wanted.days * 86_400 / sum(row[1] * row[2] for row in rows)
    yield HEADER
    for at, seconds, gpus, team, tier, rank, kind, least in rows:
        moment = begin + timedelta(seconds=round(at))
        yield (
            show_time(moment), max(1, round(seconds * scale)), gpus, team, tier.value, rank, kind.value, least or "",
        )  # fmt: skip


def _mixes(wanted: Wanted) -> list[Mix]:
    """Island-scale gangs get their share; the others share the rest as they are seen in the field."""
    rest = 1 - wanted.gang_share
    high, low = (Tier.CRITICAL, Tier.HIGH, Tier.HIGH, Tier.MID), (Tier.MID, Tier.LOW, Tier.LOW)
    return [
        Mix(wanted.gang_share, wanted.gangs, 10.0, 1.0, high),
        Mix(0.72 * rest, (1, 1, 1, 2, 4, 8), 0.4, 1.8, tuple(Tier)),
        Mix(0.16 * rest, (8, 16, 16, 32, 64), 2.5, 1.3, tuple(Tier)),
        Mix(0.12 * rest, (16, 32, 64, 128), 6.0, 1.0, low, Kind.ELASTIC),
    ]


def _arrivals(dice: random.Random, wanted: Wanted) -> list[float]:
    """Submits in seconds from the beginning: more by day than by night."""
    found: list[float] = []
    while len(found) < wanted.jobs:  # at least two of five tries are taken
        at = dice.random() * wanted.days * 86_400
        rhythm = 0.5 - 0.5 * math.cos(2 * math.pi * (at / 86_400))
        if dice.random() < NIGHT_SHARE + (1 - NIGHT_SHARE) * rhythm:
            found.append(at)
    return sorted(found)
