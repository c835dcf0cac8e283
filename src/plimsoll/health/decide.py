"""From what is remembered of signals to moves: which nodes leave service, and what a breaker holds back. Pure.

The facts follow from the set of observations alone; only breakers depend on the order, because what was taken out
already can't be put back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.breakers import Gate, HeldBack
from plimsoll.health.changes import FeedChanged
from plimsoll.health.facts import AUTOMATION, HELD_SERVICES, WITHDRAWN, Hold
from plimsoll.health.fold import Health
from plimsoll.health.judge import Answers, Problem, Verdict, assess, judge, rule_of
from plimsoll.health.levels.outages import STORM_GAP
from plimsoll.health.model import WITHDRAWN_REASON, is_planned, to_microseconds
from plimsoll.health.moves import Desk
from plimsoll.health.policy import Action, Policy, default_policy, parse_policy
from plimsoll.health.signals import Memory, SignalKey
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State

Memories = Mapping[str, Mapping[SignalKey, Memory]]
"""What is remembered of nodes' signals, by node."""

_SERVICE_OF = {
    Action.DRAIN: Service.QUARANTINED,
    Action.QUARANTINE: Service.QUARANTINED,
    Action.REPAIR: Service.REPAIR,
}


class Heard(NamedTuple):
    """A feed has spoken. `covered` are the nodes that it spoke of, where it speaks of all of its nodes at once."""

    feed: str
    at: datetime
    covered: frozenset[str] | None = None


class Moved(msgspec.Struct, frozen=True):
    """A node whose facts changed, in the words of a report."""

    node: str
    cluster: str
    was: str
    service: str
    health: str
    why: str


class Outcome(msgspec.Struct, frozen=True):
    """What a judgement changed."""

    moved: list[Moved] = []
    held_back: list[HeldBack] = []
    tripped: list[str] = []


def policy_in_force(state: State) -> Policy:
    text = state.of(Health).policies.get("policy")
    return default_policy() if text is None else parse_policy(text, source="the policy in force")


def answers_of(node: Node, health: Health) -> Answers:
    """Up to when signals were answered: the node was validated since, their problem was gone, a person let them be."""
    told = health.answered.get(node.id, {})
    if "" not in told and node.service is Service.IN_SERVICE and node.since is not None and node.id not in health.holds:
        return Answers(to_microseconds(node.since), told)  # it never left as far as we know
    return Answers(told.get("", 0), told)


class Bench(NamedTuple):
    """What all judgements of one moment have in common. `heard` feeds speak right now, `silent` ones just fell so."""

    health: Health
    policy: Policy
    memories: Memories
    now: datetime
    heard: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()

    def memories_of(self, node: Node) -> Mapping[SignalKey, Memory]:
        return self.memories.get(node.id, {})

    def verdict(self, node: Node, *, gone: Collection[SignalKey] = ()) -> Verdict:
        """What the signals of a node say, but for problems that are `gone` as of now."""
        feeds = self.health.covers.get(node.id, ())
        silent = [feed for feed in feeds if feed in self.silent or self._is_silent(feed)] if feeds else feeds
        memories = self.memories_of(node)
        is_observed = bool(memories or feeds)
        if gone:
            memories = {key: memory for key, memory in memories.items() if key not in gone}
        answers = answers_of(node, self.health)
        return judge(memories, self.policy, answers=answers, is_observed=is_observed, silent_feeds=silent, now=self.now)

    def _is_silent(self, feed: str) -> bool:
        return feed not in self.heard and self.health.feeds[feed].is_silent


def judge_nodes(
    state: State, memories: Memories, *, now: datetime, heard: Heard | None = None
) -> tuple[Outcome, list[Draft]]:
    """What the signals of these nodes lead to."""
    health, policy = state.of(Health), policy_in_force(state)
    drafts = [] if heard is None else feed_drafts(state, heard)
    bench = Bench(health, policy, memories, now, heard=frozenset([heard.feed] if heard else []))
    names = set(memories)
    if heard is not None and heard.feed in health.feeds and health.feeds[heard.feed].is_silent:
        names |= heard.covered or set()
    outcome, moves = judge_all(state, bench, names)
    return outcome, [*drafts, *moves]


def judge_all(
    state: State, bench: Bench, names: Iterable[str], *, prepare: Callable[[Desk], Collection[SignalKey]] | None = None
) -> tuple[Outcome, list[Draft]]:
    """Judge nodes, those whose trouble began first before the others: a breaker holds back the rest.

    `prepare` may end holds before the judgement, and names the problems that are gone for good.
    """
    nodes = state.of(Fleet).nodes
    present = (nodes[name] for name in names if name in nodes)
    cases = [_Case(node, bench.verdict(node)) for node in present]
    gate, now = Gate(state, bench.policy, bench.now), to_microseconds(bench.now)
    drafts: list[Draft] = []
    moved: list[Moved] = []
    for node, verdict in sorted(cases, key=lambda case: case.order(now)):
        desk = Desk(node, bench.health, bench.now)
        gone = prepare(desk) if prepare is not None else ()
        if node.service is not Service.RETIRED:
            judge_one(desk, bench.verdict(node, gone=gone) if gone else verdict, bench, gate)
        drafts += desk.drafts()
        moved += desk_report(node, desk)
    drafts += gate.drafts()
    return Outcome(moved, gate.held_back, gate.tripped), drafts


class _Case(NamedTuple):
    node: Node
    verdict: Verdict

    def order(self, now: int) -> tuple[int, str]:
        due = (problem.due for problem in self.verdict.problems if problem.due is not None)
        return min(due, default=now), self.node.id


def desk_report(node: Node, desk: Desk) -> list[Moved]:
    """What became of a node, where its facts changed."""
    if not desk.has_moved:
        return []
    return [Moved(node.id, node.cluster, node.service, desk.node.service, desk.facts.health, desk.facts.why)]


def judge_one(desk: Desk, verdict: Verdict, bench: Bench, gate: Gate | None) -> None:
    """Holds as the signals ask for them, and the facts that follow. Without a gate nothing is held back."""
    node, policy = desk.node, bench.policy
    withdrawn = _withdraw(desk, bench)
    problems = [each for each in verdict.problems if each.due is not None and each.action.takes_out]
    at, signal, cause = None, "", ""
    is_leaving = node.service is Service.IN_SERVICE and not desk.holds
    new: list[Hold] = []
    if problems and (gate is None or not is_leaving or gate.lets_out(node, problems[0])):
        exits = count_exits(node, bench.health, desk.now - policy.lemon.within) + is_leaving
        wanted = [_automated_hold(desk, problem, policy, exits) for problem in problems]
        new = [hold for hold in wanted if _is_stronger(hold, desk.hold_of(hold.id))]
    if new:
        at, signal, cause = new[0].placed_at, new[0].signal, new[0].id
        for hold in new:
            desk.place(hold)
    elif withdrawn:
        desk.go_back(verdict, why=withdrawn, source=AUTOMATION)
    desk.follow(verdict, at=at, signal=signal, hold=cause)


def _is_stronger(hold: Hold, known: Hold | None) -> bool:
    """Whether a hold asks for more than the one of its id that is there: a problem that grew worse, never milder."""
    return known is None or _strength(hold) > _strength(known)


def _strength(hold: Hold) -> tuple[int, bool]:
    return HELD_SERVICES.index(hold.service), hold.drains_until is None


def _withdraw(desk: Desk, bench: Bench) -> str:
    """End automated holds that would never have been placed had we known then what we know now; says why.

    A problem that must last turns out not to have, or one that seemed to go on since before the node came into service
    turns out to have ended: a good signal of a moment before the hold came late. One that comes in time settles it.
    """
    if not desk.holds:
        return ""
    memories, answers = bench.memories_of(desk.node), answers_of(desk.node, bench.health)
    why = ""
    for hold in desk.holds:
        key = SignalKey.read(hold.signal) if hold.signal else None
        memory = memories.get(key) if key else None
        if key is None or memory is None or not key.kind.is_lasting or rule_of(bench.policy, key) is None:
            continue
        problem = assess(key, memory, bench.policy, answers=answers, now=desk.now)
        if (problem is None or problem.trigger is None) and memory.ended_by(to_microseconds(hold.placed_at)):
            why = f"{key} had ended: a good signal came late"
            desk.end(hold, cause=WITHDRAWN, reason=why)
    return why


def hold_id(key: SignalKey) -> str:
    """The id of the hold that answers a problem: one hold a problem, however often it repeats."""
    return f"{AUTOMATION}:{key}"


def _automated_hold(desk: Desk, problem: Problem, policy: Policy, exits: int) -> Hold:
    action, why, now = problem.action, problem.why, desk.now
    if exits >= policy.lemon.times and policy.lemon.action.severity >= action.severity:
        action = policy.lemon.action
        why = f"{why}; lemon: exit {exits} in {policy.lemon.within.days} days"
    assert problem.trigger is not None
    expected = None if problem.rule.returns_in is None else problem.trigger + problem.rule.returns_in
    known = desk.hold_of(hold_id(problem.key))
    return Hold(
        id=hold_id(problem.key),
        owner=AUTOMATION,
        service=_SERVICE_OF[action],
        reason=why,
        placed_at=desk.moment_of(problem.trigger) if known is None else known.placed_at,
        signal=str(problem.key),
        drains_until=now + policy.drain_at_most if action is Action.DRAIN else None,
        expected_return=expected,
        whose_move=problem.rule.owner,
    )


def count_exits(node: Node, health: Health, since: datetime) -> int:
    """How often a node left service unplanned since a moment; that it is out now counts, whenever it left.

    An error storm is one exit: a node that is back for less than the gap was not repaired.
    """
    timeline = health.timelines.get(node.id)
    if timeline is None:
        return 0
    count, was, oldest = 0, Service.IN_SERVICE, to_microseconds(since)
    left_at: int | None = None
    last: tuple[int, int] | None = None  # when the exit before began and ended
    for moment, number in timeline.entries():
        mark = health.marks[number]
        if mark.service is Service.IN_SERVICE:
            if left_at is not None and not mark.reason.startswith(WITHDRAWN_REASON):
                count += left_at >= oldest
                last = left_at, moment
            left_at = None
        elif was is Service.IN_SERVICE and mark.service is not Service.RETIRED and not is_planned(mark):
            left_at = moment
            if last is not None and moment - last[1] < STORM_GAP:
                left_at = last[0]  # it goes on: what was counted as over was not
                count -= left_at >= oldest
        was = mark.service
    return count + (left_at is not None)


def feed_drafts(state: State, heard: Heard) -> list[Draft]:
    """A feed that is new, back, or covers other nodes than before. One that a node is missing from still covers it."""
    health, nodes = state.of(Health), state.of(Fleet).nodes
    present = {name for name in heard.covered or () if name in nodes and nodes[name].service is not Service.RETIRED}
    known = health.feeds.get(heard.feed)
    joined: list[str] = []
    left: list[str] = []
    if heard.covered is not None:
        before = {node for node, feeds in health.covers.items() if heard.feed in feeds}
        joined = sorted(present - before)
        left = sorted(node for node in before if nodes[node].service is Service.RETIRED)
    if known is not None and not known.is_silent and not joined and not left:
        return []
    reason = f"covers {len(joined)} nodes more" if joined else f"{len(left)} nodes were retired"
    if known is None or known.is_silent:
        reason = "first heard" if known is None else "heard again"
    return [Draft(FeedChanged(heard.feed, False, heard.at, joined, left), reason)]


def apply_policy(state: State, text: str, *, source: str) -> Policy:
    """A policy to be put in force; refused where it is the one in force already."""
    policy = parse_policy(text, source=source)
    if state.of(Health).policies.get("policy") == text:
        raise Refused("policy_unchanged", f"{source} is in force already", next_step="plimsoll health policy show")
    return policy
