"""The cheapest things to do so that work starts, each tried on a what-if with the real placement. Pure.

Nobody hurt comes before replicas moved, those before the team's own work stopped, that before other teams' flex, and
waiting comes last. Single acts are tried first; only where none is enough, two or three of them together, within
TRIES_MAX. Nothing is ever offered that did not let the work start on the what-if.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.fleet.selector import SKU_KEY, Scope
from plimsoll.health.fold import Health
from plimsoll.ledger.model import Change
from plimsoll.quota.policy import Policy
from plimsoll.state.state import State
from plimsoll.workloads.act import take_up
from plimsoll.workloads.changes import WorkloadEnded, WorkloadSubmitted
from plimsoll.workloads.model import Asked, PartSpec, RunsAs, Spec, Victim
from plimsoll.workloads.offers import best_offer, node_gpus
from plimsoll.workloads.queue import run_round
from plimsoll.workloads.rooms import barred_among
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.why.fixes import Fix, fixes_for
from plimsoll.workloads.why.model import Act, Action, ActionKind, Harm
from plimsoll.workloads.why.near import Closest, position_in
from plimsoll.workloads.why.outs import Out
from plimsoll.workloads.why.space import only
from plimsoll.workloads.why.waits import Done

TARGETS = 2
"""Pools in which something is tried: those where the work comes closest, and where its guarantee does."""
TOGETHER_MAX = 3
TRIES_MAX = 40
"""Acts that are carried out on a what-if in one search for a combination."""
SIZES_TRIED = 4
ACTIONS_SHOWN = 6
QUEUE_SHAPES_MAX = 8
GROWERS_MAX = 100
"""Where more shapes wait or more parts would grow, it is not tried out who comes first; it is said that it was not."""


class Found(NamedTuple):
    """Actions, the cheapest first; how many acts were tried, and whether the search ended at its bound."""

    actions: tuple[Action, ...]
    tries: int
    is_cut: bool


class _Start(NamedTuple):
    starts: datetime
    pool: PoolKey
    runs_as: str
    victims: tuple[Victim, ...]


class _Plan(NamedTuple):
    """An action with what must be done again to try it with everybody else who waits."""

    action: Action
    fixes: tuple[Fix, ...]
    spec: Spec | None = None


def find_actions(
    state: State,
    name: str,
    closes: Sequence[Closest],
    outs: dict[PoolKey, list[Out]],
    *,
    now: datetime,
    grace: timedelta,
    policy: Policy,
    is_submitted: bool = True,
) -> Found:
    """What can be done for a workload that waits. The state is left as it was. `is_submitted`: else nobody knows it,
    and no command may name it.
    """
    search = _Search(state, name, now=now, grace=grace, is_submitted=is_submitted)
    plans = list(search.instead(closes))
    can_start = any(act.kind is ActionKind.NOTHING for plan in plans for act in plan.action.acts)
    targets = [] if can_start else _targets(Turn(state, now), name, closes)
    lists = []
    for close in targets:
        asked = state_asked(state, name, now)
        mine = outs.get(close.pool, ())
        lists.append(list(fixes_for(Turn(state, now), asked, close, mine, policy, is_submitted=is_submitted)))
    helped = [plan for fixes in lists for plan in search.together(fixes, 1)]
    for count in range(2, TOGETHER_MAX + 1):
        if helped:
            break
        lists = [[fix for fix in fixes if not fix.is_alone] for fixes in lists]
        helped = [plan for fixes in lists for plan in search.together(fixes, count)]
    plans = sorted([*plans, *helped], key=lambda plan: plan.action.cost)
    waits = [plan for plan in plans if plan.action.harm is Harm.WAITING]
    others = [plan for plan in plans if plan.action.harm is not Harm.WAITING]
    shown = _first_true(search, others, ACTIONS_SHOWN - bool(waits))
    shown += _first_true(search, waits, ACTIONS_SHOWN - len(shown))
    return Found(tuple(shown), search.tries, search.is_cut)


def _first_true(search: _Search, plans: Sequence[_Plan], most: int) -> list[Action]:
    """The cheapest that hold with everybody else who waits; when it can start by itself is never crowded out."""
    found: list[Action] = []
    for plan in plans:
        if len(found) == most:
            break
        if plan.action.acts not in [each.acts for each in found] and (action := search.with_queue(plan)) is not None:
            found.append(action)
    return found


def state_asked(state: State, name: str, now: datetime) -> Asked:
    return Turn(state, now).work.asked[name]


def _targets(turn: Turn, name: str, closes: Sequence[Closest]) -> list[Closest]:
    """Where it comes closest, and where least of its guarantee is missing."""
    found = list(closes[:TARGETS])
    asked = turn.work.asked[name]
    mine = set(turn.book.guaranteed_pools.get(asked.spec.team, ()))
    rights = [
        (position.missing, close.missing, place, close)
        for place, close in enumerate(closes)
        if close.pool in mine and (position := position_in(turn, asked, close.pool)) is not None
    ]
    if rights:
        best = min(rights, key=lambda each: each[:3])[-1]
        if best not in found:
            found.append(best)
    return found


class _Search:
    """Tries acts on what-ifs of one state."""

    def __init__(self, state: State, name: str, *, now: datetime, grace: timedelta, is_submitted: bool) -> None:
        self._state, self._name, self._now, self._grace = state, name, now, grace
        self._is_submitted = is_submitted
        self.tries, self.is_cut = 0, False

    def _asked(self) -> Asked:
        return state_asked(self._state, self._name, self._now)

    # Fixes, alone and together.

    def together(self, fixes: Sequence[Fix], count: int) -> Iterator[_Plan]:
        """Every combination of so many acts that lets the work start, in the order of the fixes."""
        yield from self._with((), (), fixes, count)

    def _with(
        self, chosen: tuple[Fix, ...], done: tuple[Done, ...], fixes: Sequence[Fix], count: int
    ) -> Iterator[_Plan]:
        for place, fix in enumerate(fixes):
            if len(fixes) - place < count:
                return
            if self.tries >= TRIES_MAX:
                self.is_cut = True
                return
            at = max([self._now, *(each.at for each in done if each.at is not None)])
            found: list[_Plan] = []
            with self._state.what_if():
                turn = Turn(self._state, at)
                self.tries += 1
                result = fix.do(turn, turn.work.asked[self._name])
                if result is None:
                    continue
                both, used = (*done, result), (*chosen, fix)
                if count > 1:
                    found = list(self._with(used, both, fixes[place + 1 :], count - 1))
                elif (start := self._start(max(at, result.at or at), only(fix.pool))) is not None:
                    found = [_Plan(self._action(both, start), used)]
            yield from found

    def _start(self, at: datetime, where: Scope | None = None, *, wins_back: bool = True) -> _Start | None:
        """Whether the real placement starts the work on the what-if as it is, and what that costs others. `where`: only
        there, which is quicker; what starts in one of its places starts.
        """
        turn = Turn(self._state, at)
        asked, running = turn.work.asked[self._name], turn.work.workloads.get(self._name)
        if where is not None:
            asked = msgspec.structs.replace(asked, spec=msgspec.structs.replace(asked.spec, where=where))
        parts = missing_parts(asked.spec, running)
        cluster, sku = (running.cluster, running.parts[0].sku) if running is not None else ("", "")
        offer = best_offer(turn, asked, parts, cluster=cluster, sku=sku, wins_back=wins_back)
        if offer is None:
            return None
        with self._state.what_if():
            take_up(Turn(self._state, at), asked, offer, grace=timedelta(0))
            assert not missing_parts(asked.spec, turn.work.workloads.get(self._name)), f"{self._name} did not start"
        starts = at + self._grace if offer.victims else at
        return _Start(starts, offer.pool, "guaranteed" if offer.is_guaranteed else "flex", offer.victims)

    def _action(self, done: Sequence[Done], start: _Start, *, own: int = 0) -> Action:
        team = self._asked().spec.team
        own += sum(each.own for each in done) + sum(v.gpus for v in start.victims if v.team == team)
        others = sum(victim.gpus for victim in start.victims if victim.team != team)
        moved = sum(each.moved for each in done)
        waits = any(each.at is not None for each in done)
        harm = Harm.WAITING if waits else Harm.OTHERS_FLEX if others else Harm.OWN_WORK if own else (
            Harm.MOVED if moved else Harm.NOBODY
        )  # fmt: skip
        acts = tuple(each.act for each in done)
        is_estimate = any(each.is_estimate for each in done)
        return Action(
            acts, harm, moved, own, others, start.starts, is_estimate, *start.pool, start.runs_as, True, False
        )  # fmt: skip

    # Something else instead.

    def instead(self, closes: Sequence[Closest]) -> Iterator[_Plan]:
        """Elsewhere, as flex, smaller or shorter: what would start now in its place."""
        asked = self._asked()
        if (start := self._start(self._now)) is not None:
            says = "nothing stands in the way: the next round starts it"
            act = Act(ActionKind.NOTHING, says, "plimsoll workload run")
            yield _Plan(self._action([Done(act)], start), ())
            return
        if self._name in Turn(self._state, self._now).work.workloads:
            return  # some of it runs: it can't go elsewhere, and its size is settled
        for kind, spec, says in (*_elsewhere(asked.spec), *self._shorter(asked)):
            if (plan := self._try_spec(kind, spec, says)) is not None:
                yield plan
        for spec, says, given_up, pool in self._smaller(asked, closes):
            if (plan := self._try_spec(ActionKind.SMALLER, spec, says, given_up, only(pool))) is not None:
                yield plan
                return

    def _try_spec(
        self, kind: ActionKind, spec: Spec, says: str, given_up: int = 0, where: Scope | None = None
    ) -> _Plan | None:
        asked = self._asked().spec
        with self._state.what_if():
            self.tries += 1
            turn = Turn(self._state, self._now)
            turn.do(WorkloadEnded(spec.name, "cancelled"))
            turn.do(WorkloadSubmitted(spec))
            start = self._start(self._now, where, wins_back=kind is ActionKind.SMALLER)
            if start is None:
                return None
            place = f"in {start.pool.cluster} on {start.pool.sku}, as {start.runs_as}"
            command = f"plimsoll workload submit FILE   # with {_difference(kind, spec, asked, start.pool)}"
            if self._is_submitted:
                command = f"plimsoll workload cancel {spec.name}; {command}"
            else:  # its part has a name only because a workload must
                command = command.removesuffix(f" for {spec.parts[0].name}")
            act = Act(kind, f"{says}: it would start {place}", command)
            return _Plan(self._action([Done(act)], start, own=given_up), (), spec)

    def _shorter(self, asked: Asked) -> Iterator[tuple[ActionKind, Spec, str]]:
        health, spec = self._state.of(Health), asked.spec
        until = self._now + timedelta(hours=spec.hours)
        if not spec.hours or not barred_among(health, until, self._now):
            return
        begins = min(work.starts for work in health.ahead.values() if work.ends > self._now and work.starts < until)
        hours = int((begins - self._now) / timedelta(hours=1) * 10) / 10
        if hours >= 0.1:
            says = f"say that it needs {hours:g} hours, and end it before planned work begins"
            yield ActionKind.SHORTER, msgspec.structs.replace(spec, hours=hours), says

    def _smaller(self, asked: Asked, closes: Sequence[Closest]) -> Iterator[tuple[Spec, str, int, PoolKey]]:
        """Sizes that might fit, the largest first."""
        turn = Turn(self._state, self._now)
        sizes: dict[int, tuple[PartSpec, PoolKey]] = {}
        for close in closes:
            unit = node_gpus(turn, close.pool) if close.part.is_gang else close.part.gpus
            levels = [close.free, close.free + close.callable]
            if (position := position_in(turn, asked, close.pool)) is not None and position.left:
                levels.append(min(position.left, turn.fleet.pools[close.pool].gpus_in_service))
            for level in levels:
                size = min(level, close.gpus - 1)
                size = size // unit * unit if size >= unit else size if close.part.is_gang else 0
                if size > 0:
                    sizes.setdefault(size, (close.part, close.pool))
        for size in sorted(sizes, reverse=True)[:SIZES_TRIED]:
            part, pool = sizes[size]
            fields = {"gpus": size} if part.is_gang else {"least": size // part.gpus}
            parts = tuple(
                msgspec.structs.replace(each, **fields) if each.name == part.name else each for each in asked.spec.parts
            )
            given_up = (part.gpus if part.is_gang else part.gpus_least) - size
            there = f" in {part.name}" if self._is_submitted else ""
            says = f"ask for {size:,} GPUs{there}, {given_up:,} fewer"
            yield msgspec.structs.replace(asked.spec, parts=parts), says, given_up, pool

    # Who else waits.

    def with_queue(self, plan: _Plan) -> Action | None:
        """The action, carried out as a person would, with all that a round does: repairs, and everybody who waits or
        grows. None where somebody else comes first.
        """
        work = Turn(self._state, self._now).work
        if len(work.queue.listed()) > QUEUE_SHAPES_MAX or len(work.growers) > GROWERS_MAX:
            return plan.action
        with self._state.what_if():
            has_started = self._carried_out(plan)
        return msgspec.structs.replace(plan.action, queue_checked=True) if has_started else None

    def _carried_out(self, plan: _Plan) -> bool:
        """Whether the work has started after every act and the rounds that follow, when flex had its time to leave."""
        at = self._now
        if plan.spec is not None:
            self._round(at, WorkloadEnded(self._name, "cancelled"))
            self._round(at, WorkloadSubmitted(plan.spec))
        for fix in plan.fixes:
            turn = Turn(self._state, at)
            if self._has_started(turn):
                return True
            done = fix.do(turn, turn.work.asked[self._name])
            if done is None:
                return False
            at = max(at, done.at or at)
            self._round(at)
        self._round(at)
        booking = Turn(self._state, at).work.bookings.get(self._name)
        if booking is not None:  # what else is booked may begin first, and leave too little of the guarantee
            self._round(max(at, booking.due))
        turn = Turn(self._state, at)
        return self._name not in turn.work.bookings and self._has_started(turn)

    def _round(self, at: datetime, *changes: Change) -> None:
        turn = Turn(self._state, at)
        for change in changes:
            turn.do(change)
        run_round(turn, grace=self._grace)

    def _has_started(self, turn: Turn) -> bool:
        asked, running = turn.work.asked[self._name], turn.work.workloads.get(self._name)
        return self._name in turn.work.bookings or not missing_parts(asked.spec, running)


def _elsewhere(spec: Spec) -> Iterator[tuple[ActionKind, Spec, str]]:
    """Without one of the terms that say where it may run; and as flex, where it insists on a guarantee."""
    for term in spec.where.terms:
        rest = tuple(each for each in spec.where.terms if each != term)
        kind = ActionKind.OTHER_SKU if term[0] == SKU_KEY else ActionKind.ELSEWHERE
        says = f"let it run elsewhere than in {term[0]} {'|'.join(term[1])}"
        if kind is ActionKind.OTHER_SKU:
            says = f"take another SKU than {'|'.join(term[1])}"
        yield kind, msgspec.structs.replace(spec, where=Scope(rest)), says
    if spec.runs_as is RunsAs.GUARANTEED:
        yield ActionKind.AS_FLEX, msgspec.structs.replace(spec, runs_as=RunsAs.ANY), "let it run as flex"


def _difference(kind: ActionKind, spec: Spec, asked: Spec, pool: PoolKey) -> str:
    """What to change in the file, in its own words."""
    if kind in (ActionKind.ELSEWHERE, ActionKind.OTHER_SKU):
        return f"where: {{cluster: {pool.cluster}, sku: {pool.sku}}}"
    if kind is ActionKind.SHORTER:
        return f"hours: {spec.hours:g}"
    if kind is ActionKind.AS_FLEX:
        return "as: any"
    return ", ".join(
        f"gpus: {part.gpus} for {part.name}" if part.is_gang else f"min: {part.least} for {part.name}"
        for part, old in zip(spec.parts, asked.parts, strict=True)
        if part != old
    )
