"""How workloads are told, in tables, sentences and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from plimsoll.answers import Table
from plimsoll.health.model import from_microseconds
from plimsoll.times import show_time
from plimsoll.words import counted
from plimsoll.workloads.account import Uptime
from plimsoll.workloads.changes import WorkloadWaits
from plimsoll.workloads.model import Booking, Victim
from plimsoll.workloads.reasons import Cause
from plimsoll.workloads.view import Standing, WorkView

ISLANDS_TOLD = 4
VICTIMS_TOLD = 6
_SENTENCES = {
    Cause.NO_SUCH_ROOM: "no cluster in production matches where it may run any more",
    Cause.NO_GUARANTEE: "the team is guaranteed nothing there, and no island has so much free flex",
    Cause.OVER_GUARANTEE: "it is beyond the team's guarantee, and no island has so much free flex",
    Cause.TEAM_HELD: "the team keeps that part of its quota for somebody else, and no island has so much free flex",
    Cause.OVER_PROMISED: "fewer GPUs work than were promised",
    Cause.NODES_UNHEALTHY: "nodes of the island are out of service",
    Cause.PLANNED_WORK: "planned work has nodes of the island",
    Cause.PLANNED_AHEAD: "planned work begins on nodes of the island before it would end",
    Cause.ISLAND_FRAGMENTED: "enough is free, but not in one island",
    Cause.FLEX_TAKEN: "no island has so much free flex",
    Cause.RESERVED: "the room is kept for a gang that waits longer",
    Cause.LENT_DRAINING: "flex that was called back has not left yet",
    Cause.PREEMPTED: "it gave way to work with a better right",
    Cause.NODE_LOST: "it lost a node",
}


_ONLY_GUARANTEED = {
    Cause.NO_GUARANTEE: "it asks for nothing but its guarantee, and the team is guaranteed nothing there",
    Cause.OVER_GUARANTEE: "it asks for nothing but its guarantee, and the team's work before it leaves too little",
    Cause.TEAM_HELD: "it asks for nothing but its guarantee, and the team keeps that for somebody else",
}


def where_text(view: WorkView) -> str:
    """`tiger: a 352, b 16`."""
    islands: dict[str, int] = {}
    for part in view.parts:
        for island, gpus in part.islands.items():
            islands[island] = islands.get(island, 0) + gpus
    told = [f"{island} {gpus:,}" for island, gpus in sorted(islands.items(), key=lambda each: (-each[1], each[0]))]
    more = f" and {len(told) - ISLANDS_TOLD} more" if len(told) > ISLANDS_TOLD else ""
    return f"{view.cluster}: {', '.join(told[:ISLANDS_TOLD])}{more}" if told else view.cluster or "-"


def standing_line(view: WorkView) -> str:
    """What became of a workload, in one sentence."""
    name = view.workload
    if view.standing is Standing.RUNNING:
        spares = f" and {view.spare_gpus:,} spare" if view.spare_gpus else ""
        gpus = f"{view.gpus - view.spare_gpus:,} of {view.wanted:,} GPUs{spares}"
        return f"{name} runs as {view.runs_as} on {gpus} ({where_text(view)})"
    if view.standing is Standing.STARTING and view.booking is not None:
        return f"{name} {booking_text(view.booking, view.team)}"
    what = (
        f"{name} runs in part ({where_text(view)}) and waits" if view.standing is Standing.PARTLY else f"{name} waits"
    )
    return f"{what}: {wait_text(view.waits)}" if view.waits is not None else what


def booking_text(booking: Booking, team: str) -> str:
    gpus = sum(place.gpus for place in booking.places)
    due = show_time(booking.due.replace(microsecond=0))
    return f"gets {gpus:,} GPUs of {booking.cluster} by {due}, when these have left: {victims_text(booking, team)}"


def victims_text(booking: Booking, team: str) -> str:
    """Whose work leaves, how much of it, and whether it stops; the team's own is not flex of others."""
    works: dict[str, list[Victim]] = {}
    for victim in booking.victims:
        works.setdefault(victim.workload, []).append(victim)
    told = []
    for name, mine in sorted(works.items(), key=lambda each: (-sum(victim.gpus for victim in each[1]), each[0])):
        whose = "the team's own" if mine[0].team == team else f"flex of {mine[0].team}"
        how = "stops" if any(victim.stops for victim in mine) else "shrinks"
        told.append(f"{name} {sum(victim.gpus for victim in mine):,} ({whose}, {how})")
    more = f" and {len(told) - VICTIMS_TOLD} more" if len(told) > VICTIMS_TOLD else ""
    return ", ".join(told[:VICTIMS_TOLD]) + more


def wait_text(wait: WorkloadWaits) -> str:
    reason = wait.reason
    if not reason.island and reason.cause in _ONLY_GUARANTEED:
        short = f"{reason.missing:,} of {reason.gpus:,} GPUs are missing"
        return f"{_ONLY_GUARANTEED[reason.cause]}; {short} ({reason.cause}, whose move: {reason.cause.move})"
    where = f" in {reason.island} of {reason.cluster}" if reason.island else ""
    missing = f"; {reason.missing:,} of {reason.gpus:,} GPUs are missing{where}" if reason.missing else ""
    kept = ""
    if wait.holds_island:
        starts = f", by {show_time(wait.starts.replace(microsecond=0))} as far as is known" if wait.starts else ""
        kept = f"; {reason.island} is kept for it{starts}"
    return f"{_SENTENCES[reason.cause]}{missing}{kept} ({reason.cause}, whose move: {reason.cause.move})"


def view_document(view: WorkView, *, is_full: bool = False) -> dict[str, Any]:
    """A workload for machines."""
    parts = []
    for part in view.parts:
        fields = msgspec.structs.asdict(part)
        fields["islands"] = dict(sorted(part.islands.items()))
        fields["as"] = part.runs_as
        if not is_full:
            del fields["nodes"], fields["spare_nodes"]
        parts.append(fields)
    wait = view.waits
    document: dict[str, Any] = {
        "workload": view.workload,
        "team": view.team,
        "owner": view.owner,
        "standing": view.standing,
        "as": view.runs_as,
        "cluster": view.cluster,
        "sku": view.sku,
        "gpus": view.gpus,
        "wanted": view.wanted,
        "submitted": view.submitted,
        "is_observed": view.is_observed,
        "waits": None if wait is None else wait_document(wait),
        "starts_by": view.booking.due if view.booking is not None else None,
        "victims": [] if view.booking is None else [victim._asdict() for victim in view.booking.victims],
        "leaves_for": list(view.leaves_for),
        "parts": parts,
    }
    if is_full:
        document["uptime"] = uptime_document(view.uptime)
        document["interruptions"] = [
            {
                "part": each.part,
                "at": from_microseconds(each.at),
                "because": each.because,
                "by": each.by,
                "detail": each.detail,
                "gpus": each.gpus,
                "down_hours": round(each.down_us / 3.6e9, 4),
            }
            for each in view.interruptions
        ]
    return document


def wait_document(wait: WorkloadWaits) -> dict[str, Any]:
    reason = wait.reason
    return {
        "code": reason.cause,
        "move": reason.cause.move,
        "needs": reason.gpus,
        "missing": reason.missing,
        "cluster": reason.cluster,
        "sku": reason.sku,
        "island": reason.island,
        "keeps_island": wait.holds_island,
        "starts": wait.starts,
        "text": wait_text(wait),
    }


def uptime_document(uptime: Uptime) -> dict[str, Any]:
    return {
        "uptime_share": _rounded(uptime.uptime),
        "goodput_share": _rounded(uptime.goodput),
        "hours": round(uptime.hours, 4),
        "running_hours": round(uptime.running_hours, 4),
        "down_hours": round(uptime.down_hours, 4),
        "lost_hours": round(uptime.lost_hours, 4),
        "restart_hours": round(uptime.restart_hours, 4),
        "gpu_hours": round(uptime.gpu_hours, 4),
        "lost_gpu_hours": round(uptime.lost_gpu_hours, 4),
        "interruptions": uptime.interruptions,
        "interruptions_per_day": _rounded(uptime.interruptions_per_day),
        "by_cause": dict(sorted(uptime.by_cause.items())),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def parts_table(views: Sequence[WorkView]) -> Table:
    """Each part with where and as what it runs."""
    columns = ("workload", "part", "kind", "tier", "rank", "runs_as", "gpus", "spare_gpus", "wanted", "islands")
    rows = [
        (view.workload, part.part, part.kind, part.tier, part.rank, part.runs_as, part.gpus, part.spare_gpus,
         part.wanted, ", ".join(f"{island} {gpus:,}" for island, gpus in sorted(part.islands.items())) or "-")
        for view in views
        for part in view.parts
    ]  # fmt: skip
    return Table(columns, rows)


def next_notes(views: Sequence[WorkView]) -> list[str]:
    """What to type next."""
    waiting = [view.workload for view in views if view.standing in (Standing.WAITING, Standing.PARTLY)]
    if waiting:
        return [f"next: plimsoll why {waiting[0]}"]
    return []


def moment_text(moment: datetime | None) -> str:
    return show_time(moment.replace(microsecond=0)) if moment is not None else "-"


def workloads_text(count: int) -> str:
    return counted(count, "workload")
