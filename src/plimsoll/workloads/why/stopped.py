"""Why work stopped: the node and its signal, the workload that came first and by which right, the planned work, the
person; or no cause of ours that anybody could find. Pure.

Stops of gangs and losses of elastic parts are remembered one by one; those of elastic parts only since they are.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey, Service
from plimsoll.health.fold import Health
from plimsoll.health.levels.outages import MINUTE
from plimsoll.health.model import Mark, from_microseconds, is_planned, to_microseconds
from plimsoll.quota.fill import fill
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import QuotaKey
from plimsoll.state.state import State
from plimsoll.workloads.account import Uptime, uptime_of
from plimsoll.workloads.desk import unknown_workload
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Account, Because, Interruption, Past, Right, Spec
from plimsoll.workloads.reasons import Cause, Move
from plimsoll.workloads.shape import adopt, missing_parts
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.why.stops import NodeLoss, Outcome, nodes_lost, outcome_of, reason_now

NEAR = timedelta(minutes=15)
"""A node that goes out of service so soon before or after work ends may be why it ended: faults are noticed late."""
NEAR_MAX = 20
CANCELLED = "cancelled"


class StoppedBy(enum.StrEnum):
    """Why work stopped, the code for machines. The words are public: add, never rename."""

    NODE_LOST = "node_lost"
    PLANNED_WORK = "planned_work"
    PREEMPTED = "preempted"
    MOVED = "moved"
    """It was made to start again elsewhere, so that something else could have its place."""
    CANCELLED = "cancelled"
    NO_INFRASTRUCTURE_CAUSE = "no_infrastructure_cause"
    """It ended, and nothing of the fleet or of other work was near."""
    NOT_RECORDED = "not_recorded"
    """An elastic part has no replica left; what took the last one was not remembered."""
    NEVER_STARTED = "never_started"
    NOT_STOPPED = "not_stopped"

    @property
    def move(self) -> Move:
        return _MOVES[self]


_MOVES = {
    StoppedBy.NODE_LOST: Move.HARDWARE,
    StoppedBy.PLANNED_WORK: Move.PLANNED_WORK,
    StoppedBy.PREEMPTED: Move.WAIT,
    StoppedBy.MOVED: Move.SCHEDULER,
    StoppedBy.CANCELLED: Move.OWNER,
    StoppedBy.NO_INFRASTRUCTURE_CAUSE: Move.OWNER,
    StoppedBy.NOT_RECORDED: Move.SCHEDULER,
    StoppedBy.NEVER_STARTED: Move.WAIT,
    StoppedBy.NOT_STOPPED: Move.WAIT,
}


class Standing(enum.StrEnum):
    """Where the work stands now."""

    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"


class Stop(msgspec.Struct, frozen=True):
    """One interruption: the nodes it was lost to, or the workload that came first; and what became of it."""

    part: str
    at: datetime
    because: StoppedBy
    nodes: Sequence[NodeLoss]
    preemptor: str
    preemptor_team: str
    right: Right | None
    outcome: Outcome
    gpus: int = 0
    """What the part gave up; an elastic one runs on with the rest."""
    nodes_more: int = 0
    """So many nodes were lost with those that are named."""


class Blame(NamedTuple):
    """What an interruption was lost to: nodes, and how many beside those named; or the work that came first and by
    which right.
    """

    because: StoppedBy
    nodes: list[NodeLoss]
    preemptor: str
    preemptor_team: str
    right: Right | None
    nodes_more: int = 0


class NearNode(msgspec.Struct, frozen=True):
    """A node that left service near the end of the work: so many minutes after it, before it where negative.

    `is_certain`: the work ran on it; else it is of its pool, and where the work ran is not known.
    """

    node: str
    at: datetime
    minutes: float
    service: Service
    reason: str
    is_planned: bool
    is_certain: bool


class Ending(msgspec.Struct, frozen=True):
    """What is known of how work ended: the nodes it ran on then, who ended it, and with which words."""

    nodes: Collection[str] = ()
    by: str = ""
    reason: str = ""


class StoppedWhy(msgspec.Struct, frozen=True):
    """The answer. `stops` are the newest first; `near` only where the work is over."""

    workload: str
    team: str
    owner: str
    standing: Standing
    because: StoppedBy
    move: Move
    stopped_at: datetime | None
    how: str
    """`finished`, `cancelled`, or what else was said; empty where it is not over."""
    ended_by: str
    ended_reason: str
    waits_for: Cause | None
    stops: Sequence[Stop]
    near: Sequence[NearNode]
    uptime: Uptime
    checkpoint_minutes: float


def explain_stopped(state: State, name: str, *, now: datetime, ending: Ending | None = None) -> StoppedWhy:
    """Why a workload stopped, last and before. `ending` is for those who know more of its end than the state does."""
    work = state.of(Workloads)
    past = work.past.get(name)
    if past is not None and name not in work.asked:
        return _of_past(state, name, past, ending or ending_of(past), now)
    running, asked = work.workloads.get(name), work.asked.get(name)
    if asked is None and running is not None:
        # Observed work that nobody touched was never stopped by us, as far as anybody knows.
        asked = adopt(running, 1)
    if asked is None:
        raise unknown_workload(Turn(state, now), name)
    stops = _stops(state, name, asked.spec, work.interruptions.get(name, ()), now)
    accounts = {part.name: work.accounts.get((name, part.name), Account()) for part in asked.spec.parts}
    is_waiting = bool(missing_parts(asked.spec, running))
    because, at = _last(stops, accounts, is_waiting=is_waiting)
    return StoppedWhy(
        workload=name,
        team=asked.spec.team,
        owner=asked.spec.owner,
        standing=Standing.WAITING if is_waiting else Standing.RUNNING,
        because=because,
        move=because.move,
        stopped_at=at,
        how="",
        ended_by="",
        ended_reason="",
        waits_for=reason_now(state, name, now=now).cause if name in work.queued else None,
        stops=stops,
        near=(),
        uptime=_uptime(asked.spec, accounts, to_microseconds(now)),
        checkpoint_minutes=asked.spec.checkpoint_minutes,
    )


def _last(
    stops: Sequence[Stop], accounts: Mapping[str, Account], *, is_waiting: bool
) -> tuple[StoppedBy, datetime | None]:
    """Why it does not run, or did not for a while, and since when that was."""
    if is_waiting and (found := _standing_still(stops, accounts)) is not None:
        return found
    if is_waiting and not any(account.first_started for account in accounts.values()):
        return StoppedBy.NEVER_STARTED, None
    return (stops[0].because, stops[0].at) if stops else (StoppedBy.NOT_STOPPED, None)


def _standing_still(stops: Sequence[Stop], accounts: Mapping[str, Account]) -> tuple[StoppedBy, datetime] | None:
    """Why a part stands still and since when; a gang before elastic parts, as of those it is not known."""
    for stop in stops:
        if accounts[stop.part].stopped == to_microseconds(stop.at):
            return stop.because, stop.at
    stopped = max((account.stopped for account in accounts.values()), default=0)
    return (StoppedBy.NOT_RECORDED, from_microseconds(stopped)) if stopped else None


def ending_of(past: Past) -> Ending:
    """What the state remembers of an end beside the time and the word for it."""
    return Ending(past.nodes, past.by, past.reason)


def _of_past(state: State, name: str, past: Past, ending: Ending, now: datetime) -> StoppedWhy:
    stops = _stops(state, name, past.spec, past.interruptions, now)
    near = _near(state, past, ending.nodes)
    because, stopped_at = _why_over(past, stops, near)
    return StoppedWhy(
        workload=name,
        team=past.spec.team,
        owner=past.spec.owner,
        standing=Standing.ENDED,
        because=because,
        move=because.move,
        stopped_at=stopped_at,
        how=past.how,
        ended_by=ending.by,
        ended_reason=ending.reason,
        waits_for=None,
        stops=stops,
        near=near,
        uptime=_uptime(past.spec, past.accounts, past.ended),
        checkpoint_minutes=past.spec.checkpoint_minutes,
    )


def _why_over(past: Past, stops: Sequence[Stop], near: Sequence[NearNode]) -> tuple[StoppedBy, datetime]:
    """What stood still when it ended had stopped before; else what happened to its nodes near its end tells."""
    ended = from_microseconds(past.ended)
    if not any(account.first_started for account in past.accounts.values()):
        return (StoppedBy.CANCELLED if past.how == CANCELLED else StoppedBy.NEVER_STARTED), ended
    if (found := _standing_still(stops, past.accounts)) is not None:
        return found
    if past.how == CANCELLED:
        return StoppedBy.CANCELLED, ended
    if stops and stops[0].because is StoppedBy.NODE_LOST and is_near_end(stops[0], ended):
        return StoppedBy.NODE_LOST, ended  # it went on, but a fault may have left its mark
    certain = [node for node in near if node.is_certain]
    if certain:
        planned = all(node.is_planned for node in certain)
        return (StoppedBy.PLANNED_WORK if planned else StoppedBy.NODE_LOST), ended
    return StoppedBy.NO_INFRASTRUCTURE_CAUSE, ended


def is_near_end(stop: Stop, ended: datetime) -> bool:
    """Whether an interruption was so near the end that they may have to do with each other."""
    return ended - stop.at <= NEAR


def _uptime(spec: Spec, accounts: Mapping[str, Account], now: int) -> Uptime:
    return uptime_of(((spec.part(name), account) for name, account in accounts.items()), now=now)


def _stops(state: State, name: str, spec: Spec, told: Sequence[Interruption], now: datetime) -> list[Stop]:
    return [_stop(state, name, spec.team, told, place, now) for place in reversed(range(len(told)))]


def _stop(state: State, name: str, team: str, stops: Sequence[Interruption], place: int, now: datetime) -> Stop:
    told = stops[place]
    blame = blame_of(state, told, team)
    return Stop(
        part=told.part,
        at=from_microseconds(told.at),
        because=blame.because,
        nodes=blame.nodes,
        preemptor=blame.preemptor,
        preemptor_team=blame.preemptor_team,
        right=blame.right,
        outcome=outcome_of(state, name, stops, place, now=now),
        gpus=told.gpus,
        nodes_more=blame.nodes_more,
    )


def blame_of(state: State, told: Interruption, team: str) -> Blame:
    """What an interruption of a team's work was lost to."""
    nodes, more = nodes_lost(told)
    is_by_work = told.because is Because.PREEMPTED or (told.because is Because.MOVED and not nodes)
    theirs = _team_of(state, told.by) if is_by_work else ""
    right = _right(state, told, team, theirs) if is_by_work else None
    return Blame(_because(told, nodes), nodes, told.by if is_by_work else "", theirs, right, more)


def _because(told: Interruption, nodes: Sequence[NodeLoss]) -> StoppedBy:
    if told.because is Because.REPAIRED:
        planned = bool(nodes) and all(loss.is_planned for loss in nodes)
        return StoppedBy.PLANNED_WORK if planned else StoppedBy.NODE_LOST
    return StoppedBy(told.because.value)


def _team_of(state: State, name: str) -> str:
    work = state.of(Workloads)
    if (asked := work.asked.get(name)) is not None:
        return asked.spec.team
    if (past := work.past.get(name)) is not None:
        return past.spec.team
    running = work.workloads.get(name)
    return running.team if running is not None else ""


def _right(state: State, told: Interruption, team: str, theirs: str) -> Right:
    """What was noted then; else what the two are to each other now."""
    if told.detail in list(Right):
        return Right(told.detail)
    if not theirs:
        return Right.UNKNOWN
    if theirs == team:
        return Right.TEAM_ORDER
    work, book = state.of(Workloads), state.of(QuotaBook)
    if (running := work.workloads.get(told.by)) is None:
        wait = work.waits.get(told.by)
        return Right.GUARANTEE if wait is not None and wait.is_guaranteed else Right.UNKNOWN
    for sku in {part.sku for part in running.parts}:
        key = QuotaKey(theirs, running.cluster, sku)
        claims = book.claims.get(key, ())
        taken = fill(claims, book.guaranteed.get(key, 0))
        if any(gpus for claim, gpus in zip(claims, taken, strict=True) if claim.work == told.by):
            return Right.GUARANTEE
    return Right.FAIR_SHARE


def _near(state: State, past: Past, nodes: Collection[str]) -> list[NearNode]:
    """The nodes that left service near the end: those it ran on, or where that is not known those of its pool."""
    fleet = state.of(Fleet)
    names: Collection[str] = nodes
    if not nodes:
        pool = PoolKey(past.cluster, past.sku)
        names = [node.id for node in fleet.nodes.values() if PoolKey(node.cluster, node.sku) == pool]
    found = [near for name in names for near in _exits(state, name, past.ended, is_certain=bool(nodes))]
    return sorted(found, key=lambda each: (abs(each.minutes), each.node))[:NEAR_MAX]


def _exits(state: State, node: str, ended: int, *, is_certain: bool) -> Iterator[NearNode]:
    """When a node left service near a moment, by its timeline."""
    health = state.of(Health)
    timeline = health.timelines.get(node)
    if timeline is None:
        return
    margin, moments, numbers = NEAR // timedelta(microseconds=1), timeline.moments(), timeline.mark_numbers()
    for place in range(bisect_left(moments, ended - margin), bisect_right(moments, ended + margin)):
        mark: Mark = health.marks[numbers[place]]
        before = health.marks[numbers[place - 1]].service if place else Service.IN_SERVICE
        if mark.service is Service.IN_SERVICE or before not in (Service.IN_SERVICE, Service.DRAINING):
            continue
        minutes = round((moments[place] - ended) / MINUTE, 1)
        at = from_microseconds(moments[place])
        yield NearNode(node, at, minutes, mark.service, mark.reason, is_planned(mark), is_certain)
