"""How `plimsoll why` shows a node, work that stopped, and the fleet."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec

from plimsoll.answers import Answer, Table
from plimsoll.state.state import State
from plimsoll.workloads.why.fleet import FleetWhy, LostTo, explain_fleet
from plimsoll.workloads.why.node import NodeWhy, explain_node
from plimsoll.workloads.why.past_text import fleet_text, node_text, stopped_text
from plimsoll.workloads.why.stopped import StoppedWhy, explain_stopped

CLUSTERS_SHOWN = 15


def answer_node(state: State, name: str, now: datetime) -> Answer:
    """Why a node is as it is, and what that means for work."""
    why = explain_node(state, name, now=now)
    says = node_text(why, now=now)
    tables = [_touched(why)]
    notes = [f"next: plimsoll health show {why.node}   its signals and its timeline"]
    return Answer(_document(state, "node", why, says), [each for each in tables if each.rows], "\n".join(says), notes)


def _touched(why: NodeWhy) -> Table:
    """Everybody whom the node concerns."""
    rows: list[tuple[Any, ...]] = [
        ("runs", each.workload, each.team, each.part, each.gpus, each.inside, "spare" if each.is_spare else "")
        for each in why.runs
    ]
    rows += (
        (each.outcome.became.value, each.workload, each.team, each.part, None, None, _second(each.at))
        for each in why.hurt
    )
    rows += (
        ("waits", each.workload, each.team, "", each.gpus, None, f"{each.cause}, {each.missing:,} missing")
        for each in why.waits
    )
    return Table(("what", "workload", "team", "part", "gpus", "guaranteed", "detail"), rows, "whom it concerns")


def answer_stopped(state: State, name: str, now: datetime) -> Answer:
    """Why work stopped."""
    why = explain_stopped(state, name, now=now)
    says = stopped_text(why, now=now)
    table = _stops(why)
    return Answer(_document(state, "stopped", why, says), [table] if table.rows else [], "\n".join(says))


def _stops(why: StoppedWhy) -> Table:
    rows = [
        (
            _second(stop.at),
            stop.part,
            stop.because.value,
            ", ".join(loss.node for loss in stop.nodes) or stop.preemptor,
            "; ".join(loss.reason for loss in stop.nodes if loss.reason) or (str(stop.right) if stop.right else ""),
            stop.outcome.became.value,
            stop.outcome.down_hours,
        )
        for stop in why.stops
    ]
    columns = ("at", "part", "because", "by", "reason", "became", "down_hours")
    return Table(columns, rows, "interruptions, the newest first")


def answer_fleet(
    state: State,
    since: datetime,
    until: datetime,
    now: datetime,
    *,
    clusters: Collection[str] = (),
    shown: int = CLUSTERS_SHOWN,
) -> Answer:
    """GPU-hours promised but unusable, by cause, and what each fix would give back. `shown` 0: all clusters."""
    why = explain_fleet(state, since=since, until=until, now=now, clusters=clusters)
    says = fleet_text(why)
    tables = [_clusters(why, shown or len(why.clusters)), _fixes(why)]
    notes = [f"{each.text} ({each.code})" for each in why.assumptions]
    notes.append("each fix is counted by itself: several together give back at most their sum")
    document = _document(state, "fleet", why, says)
    return Answer(document, [each for each in tables if each.rows], "\n".join(says), notes)


def _clusters(why: FleetWhy, shown: int) -> Table:
    rows = [
        (each.name, each.promised, each.unusable, *(each.by_cause[cause] for cause in LostTo), each.usable_share)
        for each in why.clusters[:shown]
    ]
    more = f", the worst {shown} of {len(why.clusters)}" if len(why.clusters) > shown else ""
    columns = ("cluster", "promised", "unusable", *(cause.value for cause in LostTo), "usable_share")
    return Table(columns, rows, f"GPU-hours by cluster{more}")


def _fixes(why: FleetWhy) -> Table:
    rows = [(fix.fix.value, fix.gpu_hours, fix.gpus, fix.move.value, fix.next_step) for fix in why.fixes]
    return Table(("fix", "gpu_hours", "gpus", "whose_move", "next"), rows, "what each fix would give back")


def _document(state: State, about: str, why: NodeWhy | StoppedWhy | FleetWhy, says: list[str]) -> dict[str, Any]:
    stamp = {"as_of": state.recorded_at or None, "revision": state.revision, "about": about}
    return {**stamp, **msgspec.to_builtins(why), "says": [line.strip() for line in says]}


def _second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
