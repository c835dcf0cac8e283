"""What an interruption tells: which nodes, which reason, or who came first; and what became of the work. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from plimsoll.fleet.model import Service
from plimsoll.health.levels.outages import HOUR
from plimsoll.health.model import Mark, from_microseconds, is_planned
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Because, Interruption, Workload
from plimsoll.workloads.reasons import Reason
from plimsoll.workloads.refusal import refusal_for
from plimsoll.workloads.repair import NODES_TOLD
from plimsoll.workloads.turn import Turn

GOES_ON = "goes on with "
"""How a repair tells what the gang goes on with, after the nodes that it lost."""

_MORE = re.compile(r" and (\d+) more$")
_SERVICES = {service.value: service for service in Service}


class Became(enum.StrEnum):
    """What became of work that was interrupted. The words are public: add, never rename."""

    REPAIRED = "repaired"
    """It went on at once, in its island, with another node."""
    MOVED = "moved"
    """It started again at once, elsewhere."""
    RESTARTED = "restarted"
    """It stood still for a while, and started again."""
    STARTING = "starting"
    """Room was called back for it; it starts when that is free."""
    BLOCKED = "blocked"
    """It waits."""
    SHRUNK = "shrunk"
    """An elastic part: it ran on with fewer replicas."""
    ENDED = "ended"
    """It was ended before it could start again."""


class NodeLoss(msgspec.Struct, frozen=True):
    """A node that an interruption tells of: what it went to, and why."""

    node: str
    service: str
    reason: str
    is_planned: bool


class Outcome(msgspec.Struct, frozen=True):
    """What became of a part after an interruption. `how` says it in words; `down_hours` is None while it lasts."""

    became: Became
    how: str
    down_hours: float | None


class Told(NamedTuple):
    """The nodes that a repair told of, and how many there were beyond these."""

    nodes: list[NodeLoss]
    more: int


def nodes_told(detail: str) -> Told:
    """`n1 quarantined: xid 79; n2 repair; n3 repair and 2 more; goes on with …`, as the repair of gangs writes it."""
    lost = detail.partition(f"; {GOES_ON}")[0]
    found = _MORE.search(lost)
    if found is not None and len(named := _node_losses(lost[: found.start()])) == NODES_TOLD:
        return Told(named, int(found[1]))
    return Told(_node_losses(lost), 0)


def nodes_lost(told: Interruption) -> Told:
    """The nodes that an interruption tells of, the one that was told first first; none where other work came first."""
    if told.because in (Because.PREEMPTED, Because.STARTED, Because.GROWN, Because.SCALED):
        return Told([], 0)
    nodes, more = nodes_told(told.detail)
    if told.by and not any(loss.node == told.by for loss in nodes):
        nodes.insert(0, NodeLoss(told.by, "", "", told.because is Because.PLANNED_WORK))
    return Told(nodes, more)


def _node_losses(text: str) -> list[NodeLoss]:
    found = (_node_loss(item) for item in text.split("; "))
    return [loss for loss in found if loss is not None]


def _node_loss(item: str) -> NodeLoss | None:
    """`n1 quarantined: xid 79`."""
    head, _, reason = item.partition(": ")
    words = head.split(" ")
    service = _SERVICES.get(words[1]) if len(words) > 1 else None
    if service is None:
        return None
    return NodeLoss(words[0], service.value, reason, is_planned(Mark(service, reason)))


def outcome_of(state: State, name: str, stops: Sequence[Interruption], place: int, *, now: datetime) -> Outcome:
    """What became of the part that was interrupted by `stops[place]`."""
    work, told = state.of(Workloads), stops[place]
    if told.because is Because.REPAIRED:
        return Outcome(Became.REPAIRED, went_on_text(told) or "it went on at once", 0.0)
    running, past = work.workloads.get(name), work.past.get(name)
    is_last = all(each.part != told.part for each in stops[place + 1 :])
    account = past.accounts.get(told.part) if past is not None else work.accounts.get((name, told.part))
    if not is_last or (account is not None and not account.stopped):
        if told.gpus and not told.down_us and not is_gang(work, name, told.part):
            return Outcome(Became.SHRUNK, f"it ran on with {told.gpus:,} GPUs fewer", 0.0)
        return _went_on(told, running if is_last else None)
    if past is not None:
        ended = _when(past.ended)
        return Outcome(Became.ENDED, f"it never ran again: {past.how} at {ended}", _hours(past.ended - told.at))
    booking = work.bookings.get(name)
    if booking is not None:
        due = booking.due.replace(microsecond=0)
        return Outcome(Became.STARTING, f"room is being freed for it, until {_text(due)} at the latest", None)
    reason = reason_now(state, name, now=now)
    where = f" in {reason.island or reason.cluster}" if reason.cluster else ""
    missing = f", {reason.missing:,} of {reason.gpus:,} GPUs are missing{where}" if reason.missing else ""
    return Outcome(Became.BLOCKED, f"it waits: {reason.cause}{missing}", None)


def went_on_text(told: Interruption) -> str:
    """With what a gang went on after a repair; empty where that was not told."""
    how = told.detail.rpartition(GOES_ON)[2] if GOES_ON in told.detail else ""
    return f"it went on {'' if how.startswith('in ') else 'with '}{how}" if how else ""


def is_gang(work: Workloads, name: str, part: str) -> bool:
    """Whether a part of work is a gang, as far as anybody knows."""
    asked, past = work.asked.get(name), work.past.get(name)
    spec = asked.spec if asked is not None else past.spec if past is not None else None
    return spec is None or any(each.name == part and each.is_gang for each in spec.parts)


def reason_now(state: State, name: str, *, now: datetime) -> Reason:
    """Why work waits. It is asked anew, as what was recorded is only news when the cause or the island changes."""
    return refusal_for(Turn(state, now), state.of(Workloads).asked[name]).reason


def _went_on(told: Interruption, running: Workload | None) -> Outcome:
    part = running.running(told.part) if running is not None else None
    where = f" in {part.blocks[0].island}" if part is not None and part.blocks else ""
    if told.down_us:
        hours = _hours(told.down_us)
        return Outcome(Became.RESTARTED, f"it started again{where} after {hours_text(hours)}", hours)
    return Outcome(Became.MOVED, f"it started again at once{where or ' elsewhere'}", 0.0)


def _hours(time: int) -> float:
    return round(time / HOUR, 6)


def _when(moment: int) -> str:
    return _text(from_microseconds(moment).replace(microsecond=0))


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def hours_text(hours: float) -> str:
    """`12 minutes`, `3.5 hours`, `4.2 days`: as exact as anybody asks for."""
    if hours < 1:
        minutes = round(hours * 60)
        return "1 minute" if minutes == 1 else f"{minutes} minutes"
    if hours < 48:
        return "1 hour" if round(hours, 1) == 1 else f"{hours:.1f}".removesuffix(".0") + " hours"
    return f"{hours / 24:.1f}".removesuffix(".0") + " days"
