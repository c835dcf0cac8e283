"""The answers about nodes, stops and the fleet in plain sentences. Pure.

The first sentence says what is so; then why, since when, until when, whose move it is, and what that means for work.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from plimsoll.fleet.model import Phase, Service
from plimsoll.words import counted
from plimsoll.workloads.reasons import Move
from plimsoll.workloads.why.fleet import Fix, FixBy, FleetWhy, LostTo
from plimsoll.workloads.why.node import Back, Hurt, NodeWhy, Running, WaitsFor
from plimsoll.workloads.why.outs import LEFT_DAYS_MAX
from plimsoll.workloads.why.stop_text import WORDS, first_text, lost_text, when
from plimsoll.workloads.why.stopped import (
    NEAR,
    Blame,
    NearNode,
    Standing,
    Stop,
    StoppedBy,
    StoppedWhy,
    is_near_end,
)
from plimsoll.workloads.why.stops import Became, hours_text

NAMED_MAX = 5
_NEAR_TEXT = f"{NEAR // timedelta(minutes=1)} minutes"

CAUSES = {
    LostTo.OVER_PROMISE: "promised beyond what is installed, or beyond the line",
    LostTo.FAULTS: "on nodes that were out by a fault",
    LostTo.PLANNED_WORK: "on nodes that were out for planned work",
    LostTo.FRAGMENTATION: "free, but not in one island where a gang with a right to them waited",
    LostTo.IDLE: "under running work that did nothing with them",
}

_MOVES = {
    Move.OWNER: "its owner's",
    Move.TEAM: "its team's",
    Move.RPM: "the RPM's",
    Move.HARDWARE: "the hardware engineers'",
    Move.PLANNED_WORK: "of whoever does the planned work",
    Move.SCHEDULER: "the scheduler's",
    Move.WAIT: "nobody's: it starts again when there is room",
}


# A node.


def node_text(why: NodeWhy, *, now: datetime) -> list[str]:
    """What is so with a node, for whoever misses it."""
    what = f"{why.node} ({why.gpus} {why.sku}, island {why.island}, cluster {why.cluster})"
    lines = [f"{what} is {_service(why)}{_since(why, now)}{_reason(why)}."]
    if why.phase is not Phase.PRODUCTION:
        lines.append(f"Its cluster is in phase {why.phase}: nothing is promised of it.")
    lines.append(f"Health {why.health}, service {why.service}, owner {why.owner}{_source(why)}.")
    for hold in why.holds:
        signal = f", for the signal {hold.signal}" if hold.signal else ""
        until = f" until {when(hold.until)}" if hold.until is not None else ", without an end"
        lines.append(f"Held by {hold.owner} ({hold.hold}) since {when(hold.since)}{until}{signal}: {hold.reason}.")
    lines += [f"A breaker ({scope}) keeps automation from taking it out." for scope in why.held_back]
    if why.back is not None:
        lines.append(_back(why.back, is_planned=bool(why.is_planned), now=now))
    if why.move is not None:
        lines.append(f"Whose move it is: {why.whose} ({why.move}).")
    if why.is_lemon:
        lines.append(f"It is a lemon: {why.exits} unplanned exits in {why.exits_days:g} days.")
    lines.append(_runs(why))
    lines += [_hurt(each) for each in why.hurt]
    for work in why.ahead:
        lines.append(
            f"Planned work ahead: {work.work} by {work.owner}, {when(work.starts)} to {when(work.ends)}: {work.reason}."
        )
    lines += [_waits(each, why) for each in why.waits[:NAMED_MAX]]
    if len(why.waits) > NAMED_MAX:
        lines.append(f"{counted(len(why.waits) - NAMED_MAX, 'more workload')} wait for its island.")
    return lines


def _service(why: NodeWhy) -> str:
    if why.service is Service.IN_SERVICE:
        return "in service"
    if why.service is Service.RETIRED:
        return "retired: it left for good"
    if why.service is Service.JOINING:
        return "not in service yet (joining)"
    kind = "for planned work" if why.is_planned else "by a fault"
    return f"out of service {kind} ({why.service})"


def _since(why: NodeWhy, now: datetime) -> str:
    since = why.out_since or why.since
    if since is None:
        return ", nobody said since when" if why.is_planned is not None else ""
    return f" since {when(since)} ({hours_text((now - since) / timedelta(hours=1))})"


def _reason(why: NodeWhy) -> str:
    if why.reason:
        return f": {why.reason}"
    return "; nobody said why" if why.is_planned is not None else ""


def _source(why: NodeWhy) -> str:
    return f" (told by {why.source})" if why.source else ""


def _back(back: Back, *, is_planned: bool, now: datetime) -> str:
    late = f" It was expected back at {when(back.overdue_since)}, and is overdue." if back.overdue_since else ""
    if back.is_late:
        return f"Nobody said when it is back; not within {LEFT_DAYS_MAX} days, by repair history.{late}"
    if back.at is None:
        return f"Nobody said when it is back, and there is no repair history to go by.{late}"
    left = hours_text(max(0.0, (back.at - now) / timedelta(hours=1)))
    if back.is_told:
        return f"Expected back at {when(back.at)} (in {left}), says {back.by}."
    kind = "such planned work is done" if is_planned else "such faults are repaired"
    return f"Nobody said when it is back; half of {kind} by {when(back.at)} (in {left}).{late}"


def _runs(why: NodeWhy) -> str:
    may = "may run" if why.service in (Service.IN_SERVICE, Service.DRAINING) else "may have run"
    unplaced = (
        f" {why.unplaced_gpus:,} GPUs of its island are held by work whose nodes nobody told: some {may} here."
        if why.unplaced_gpus
        else ""
    )
    if not why.runs:
        return f"Nothing is known to run on it.{unplaced}"
    used, inside = sum(each.gpus for each in why.runs), sum(each.inside for each in why.runs)
    named = ", ".join(_running(each) for each in why.runs[:NAMED_MAX])
    more = f" and {len(why.runs) - NAMED_MAX} more" if len(why.runs) > NAMED_MAX else ""
    return f"{used} of its {why.gpus} GPUs are used, {inside} of them inside guarantees: {named}{more}.{unplaced}"


def _running(each: Running) -> str:
    what = "spare of " if each.is_spare else ""
    right = "guaranteed" if each.inside == each.gpus else ("flex" if not each.inside else f"{each.inside} guaranteed")
    return f"{what}{each.workload}/{each.part} of {each.team} ({each.gpus} GPUs, {right})"


def _hurt(each: Hurt) -> str:
    return f"It interrupted {each.workload}/{each.part} of {each.team} at {when(each.at)}: {each.outcome.how}."


def _waits(each: WaitsFor, why: NodeWhy) -> str:
    right = "inside its guarantee" if each.is_guaranteed else "as flex"
    missing = f", {each.missing:,} missing" if each.missing else ""
    enough = " This node back would be enough." if each.is_enough else ""
    behind = f" {counted(each.behind, 'more workload')} like it behind it." if each.behind else ""
    return (
        f"{each.workload} of {each.team} waits for {each.gpus:,} GPUs in {why.island} {right}{missing}"
        f" ({each.cause}).{enough}{behind}"
    )


# Work that stopped.


def stopped_text(why: StoppedWhy, *, now: datetime) -> list[str]:
    """Why work stopped, and what that cost."""
    lines = [_first(why, now)]
    last = why.stops[0] if why.stops else None
    if last is not None and (
        why.because not in (StoppedBy.CANCELLED, StoppedBy.NO_INFRASTRUCTURE_CAUSE) or _is_near_end(why)
    ):
        lines += [f"{_cause(last)}.", f"What became of it: {last.outcome.how}."]
    if why.because is StoppedBy.NOT_RECORDED:
        lines.append("An elastic part has no replica left; what took the last one was not recorded.")
    if why.standing is Standing.ENDED and why.uptime.gpu_hours:
        lines += _near(why)
    if why.because is StoppedBy.NO_INFRASTRUCTURE_CAUSE:
        lines.append("The move is its owner's: look at its own logs first.")
    elif why.because not in (StoppedBy.NEVER_STARTED, StoppedBy.NOT_STOPPED):
        lines.append(f"The move is {_MOVES[why.move]} ({why.move}).")
    if why.waits_for is not None:
        lines.append(f"What would help: plimsoll why {why.workload}.")
    earlier = len(why.stops) - 1
    if earlier > 0:
        lines.append(f"{counted(earlier, 'earlier interruption')} below.")
    return [*lines, *_cost(why)]


def _first(why: StoppedWhy, now: datetime) -> str:
    name = f"{why.workload} of {why.team}"
    at = f" at {when(why.stopped_at)}" if why.stopped_at is not None else ""
    if why.because is StoppedBy.NEVER_STARTED:
        return f"{name} has not stopped: it never started."
    if why.because is StoppedBy.NOT_STOPPED:
        return f"{name} has not stopped: it runs, and nothing interrupted it."
    if why.standing is Standing.ENDED:
        return _first_ended(why, name, at)
    if why.standing is Standing.WAITING and why.stopped_at is not None:
        ago = hours_text((now - why.stopped_at) / timedelta(hours=1))
        return f"{name} stopped{at}, {ago} ago, and waits: {_words(why.because)}."
    return f"{name} runs. It was interrupted last{at}: {_words(why.because)}."


def _first_ended(why: StoppedWhy, name: str, at: str) -> str:
    by = f" by {why.ended_by}" if why.ended_by else ""
    said = f" ({why.ended_reason})" if why.ended_reason else ""
    if why.because is StoppedBy.CANCELLED:
        who = "" if why.ended_by else "; who did it is in the ledger: plimsoll audit log"
        return f"{name} was cancelled{by}{at}{said}{who}."
    if why.because is StoppedBy.NO_INFRASTRUCTURE_CAUSE:
        return f"{name} ended{at} ({why.how}{by}){said}: no infrastructure cause found."
    if why.because is StoppedBy.NODE_LOST and _is_near_end(why):
        return f"{name} ended{at} ({why.how}{by}){said}, perhaps because a node was lost shortly before."
    return f"{name} stopped{at}: {_words(why.because)}. It is over: {why.how}{by}{said}."


def _words(because: StoppedBy) -> str:
    return WORDS.get(because, str(because))


def _cause(stop: Stop) -> str:
    if stop.nodes:
        return f"At {when(stop.at)} {stop.part} lost {lost_text(stop.nodes, stop.nodes_more)}"
    if stop.preemptor:
        blame = Blame(stop.because, [], stop.preemptor, stop.preemptor_team, stop.right)
        return f"At {when(stop.at)} {stop.part} made room for {first_text(blame)}"
    return f"At {when(stop.at)} {stop.part} was interrupted: {_words(stop.because)}"


def _is_near_end(why: StoppedWhy) -> bool:
    """Whether it was interrupted shortly before its end, and had gone on."""
    if not why.stops or why.stopped_at is None or why.standing is not Standing.ENDED:
        return False
    went_on = why.stops[0].outcome.became is not Became.ENDED
    return went_on and is_near_end(why.stops[0], why.stopped_at)


def _near(why: StoppedWhy) -> list[str]:
    if not why.near and _is_near_end(why):
        return [f"Of the nodes that it ran on in the end none left service within {_NEAR_TEXT} of it."]
    if not why.near:
        return [f"No node that it may have run on left service within {_NEAR_TEXT} of its end."]
    named = "; ".join(_near_node(each) for each in why.near[:NAMED_MAX])
    more = f" and {len(why.near) - NAMED_MAX} more" if len(why.near) > NAMED_MAX else ""
    if why.near[0].is_certain:
        return [f"Of its nodes these left service within {_NEAR_TEXT} of its end: {named}{more}."]
    return [
        f"Which nodes it ran on was not recorded; of its pool these left service within {_NEAR_TEXT} of its end:"
        f" {named}{more}."
    ]


def _near_node(each: NearNode) -> str:
    side = "after" if each.minutes > 0 else "before"
    reason = f", {each.reason}" if each.reason else ""
    return f"{each.node} {abs(each.minutes):g} minutes {side} ({each.service}{reason})"


def _cost(why: StoppedWhy) -> list[str]:
    """What it lost, so far as it ran at all."""
    told = why.uptime
    if told.uptime is None or told.goodput is None:
        return []
    minutes = why.checkpoint_minutes
    checkpoints = f"one every {minutes:g} minutes" if minutes else "it takes none, so all since each start"
    return [
        f"Since its first start: up {told.uptime:.1%} of {hours_text(told.hours)} (goodput {told.goodput:.1%}),"
        f" {counted(told.interruptions, 'interruption')}, down {hours_text(told.down_hours)},"
        f" {hours_text(told.lost_hours)} of work lost since checkpoints ({checkpoints}),"
        f" {told.lost_gpu_hours:,.0f} GPU-hours for nothing."
    ]


# The fleet.


def fleet_text(why: FleetWhy) -> list[str]:
    """What was promised and not usable, the largest cause first."""
    fleet = why.fleet
    period = f"From {when(why.begin)} to {when(why.end)}"
    if fleet.usable_share is None:
        return [f"{period} nothing was promised to anybody."]
    lines = [
        f"{period}: {fleet.unusable:,.0f} of {fleet.promised:,.0f} promised GPU-hours were not usable"
        f" ({1 - fleet.usable_share:.1%})."
    ]
    causes = sorted(fleet.by_cause.items(), key=lambda each: -each[1])
    lines += [
        f"  {cause}: {hours:,.0f} GPU-hours, {why.gpus[cause]:,} GPUs on average: {CAUSES[cause]}."
        for cause, hours in causes
        if hours
    ]
    lines += [_fix(fix) for fix in why.fixes]
    return lines


def _fix(fix: Fix) -> str:
    does = "takes back promises of" if fix.fix is FixBy.ALIGN_QUOTAS else "gives back"
    return (
        f"{fix.what[0].upper()}{fix.what[1:]}: {does} {fix.gpu_hours:,.0f} GPU-hours, {fix.gpus:,} GPUs on average"
        f" ({fix.move}: {fix.next_step})."
    )
