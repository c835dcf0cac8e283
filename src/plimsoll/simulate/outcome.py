"""What a replay comes to: one document, the same for the same trace, fleet and seed. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase
from plimsoll.health.model import from_microseconds
from plimsoll.memory import no_collection
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.policy import Policy
from plimsoll.simulate.measures import FRAGMENTED, SHORTFALL, WAITING, Waits, waits_by, waits_of
from plimsoll.simulate.model import HOUR_US, Cast, Settings, Trace
from plimsoll.simulate.replay import Replay
from plimsoll.simulate.scene import set_scene
from plimsoll.state.state import State
from plimsoll.times import show_time


class Outcome(msgspec.Struct, frozen=True):
    """The document, and what people want to see of it first."""

    document: dict[str, Any]
    job_events: int


def first_moment(trace: Trace) -> datetime:
    """When the first job is submitted: what was promised before it is promised then."""
    return from_microseconds(trace.jobs[0].at)


def replay(
    state: State,
    trace: Trace,
    settings: Settings,
    *,
    policy: Policy | None = None,
    tell: Callable[[int], None] = lambda _done: None,
) -> Outcome:
    """Replay a trace on a fleet; the state is the replay's own, and is changed."""
    cast = set_scene(state, trace, settings, policy=policy, now=first_moment(trace))
    going = Replay(state, cast, settings, tell=tell)
    fleet = _fleet(state)
    with no_collection():
        going.run()
    return Outcome(_document(trace, settings, cast, going, fleet), going.counts.job_events)


def _fleet(state: State) -> dict[str, int]:
    """The fleet as it was when the replay began."""
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    pools = [pool for pool in fleet.pools if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION]
    islands = [
        count
        for key, count in fleet.islands.items()
        if fleet.clusters[fleet.island_cluster[key.island]].phase is Phase.PRODUCTION
    ]
    return {
        "pools": len(pools),
        "islands": len(islands),
        "nodes": sum(fleet.pools[pool].nodes for pool in pools),
        "gpus": sum(fleet.pools[pool].gpus for pool in pools),
        "healthy": sum(fleet.pools[pool].gpus_in_service for pool in pools),
        "guaranteed": sum(book.guaranteed.values()),
        "largest_island": max(count.gpus_in_service for count in islands),
        "teams": len({key.team for key in book.guaranteed}),
    }


def _document(trace: Trace, settings: Settings, cast: Cast, going: Replay, fleet: dict[str, int]) -> dict[str, Any]:
    meter, gangs, counts = going.meter, going.gangs, going.counts
    span = meter.until - going.begin
    by_size, by_tier = waits_by(going.waits)
    everybody = waits_of([seconds for mine in going.waits.values() for seconds in mine])
    return {
        "trace": {
            "source": trace.source,
            "jobs": len(trace.jobs),
            "from": show_time(from_microseconds(going.begin)),
            "until": show_time(from_microseconds(meter.until)),
            "gpu_hours": _rounded(sum(job.gpus * job.run_us for job in trace.jobs) / HOUR_US),
        },
        "fleet": fleet,
        "settings": _settings(settings),
        "assumed": list(cast.assumed),
        "refused": {
            "jobs": cast.refused.count,
            "gpus_most": cast.refused.gpus_most,
            "gpu_hours": _rounded(cast.refused.gpu_hours),
        },
        "waits": {
            "all": msgspec.structs.asdict(everybody),
            "by_size": _listed("size", by_size),
            "by_tier": _listed("tier", by_tier),
        },
        "utilisation_share": _rounded(meter.held_us / meter.works_us) if meter.works_us else None,
        "largest_block": {
            "mean": _rounded(meter.block_us / span) if span else None,
            "least": meter.block_least,
            "of_possible_share": _rounded(meter.block_share),
            "largest_island": fleet["largest_island"],
        },
        "preemptions": counts.preemptions,
        "interruptions": {
            "total": counts.interruptions,
            "preempted": counts.preemptions,
            "node_lost": counts.losses,
            "repaired": counts.repairs,
            "moved": counts.moves,
        },
        "uptime_share": _rounded(gangs.uptime_share),
        "goodput_share": _rounded(gangs.goodput_share),
        "lost_gpu_hours": _rounded(gangs.lost_gpu_us / HOUR_US),
        "gpu_hours_run": _rounded(gangs.gpu_us / HOUR_US),
        "broken_promises": _broken(going, fleet["teams"]),
        "events": {"jobs": counts.job_events, **msgspec.structs.asdict(counts)},
        "unfinished_jobs": going.unfinished,
        "never_started_jobs": len(cast.planned) - everybody.jobs,
    }


def _settings(settings: Settings) -> dict[str, Any]:
    return {
        "seed": settings.seed,
        "failures_per_1000_node_days": settings.failures,
        "repair_hours": settings.repair_hours,
        "checkpoint_minutes": settings.checkpoint_minutes,
        "restart_minutes": settings.restart_minutes,
        "grace_minutes": settings.grace / timedelta(minutes=1),
    }


def _listed(name: str, waits: dict[str, Waits]) -> list[dict[str, Any]]:
    return [{name: each, **msgspec.structs.asdict(mine)} for each, mine in waits.items()]


def _broken(going: Replay, teams: int) -> dict[str, Any]:
    promises = going.promises
    by_team = promises.team_hours(WAITING, SHORTFALL)
    apart = promises.team_hours(FRAGMENTED)
    broken, whole = sum(by_team.values()), teams * (going.now - going.begin) / HOUR_US
    return {
        "team_hours": _rounded(broken),
        "of_team_hours": _rounded(whole),
        "kept_share": _rounded(1 - broken / whole) if whole else None,
        "waiting_team_hours": _rounded(sum(promises.team_hours(WAITING).values())),
        "shortfall_team_hours": _rounded(sum(promises.team_hours(SHORTFALL).values())),
        "fragmented_team_hours": _rounded(sum(apart.values())),
        "by_team": [{"team": team, "team_hours": _rounded(hours)} for team, hours in by_team.items()],
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 6)
