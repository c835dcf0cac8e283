"""What people and other systems do to nodes: hold them, release them, set their service, tick a check. Pure.

Every act may be on many nodes at once and is one commit: all of it happens, or nothing. A hold ends only by its own
owner, and a release that is older than the hold does not end it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.errors import NotFound, Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.changes import BreakerReset, CheckTicked, SignalsAnswered
from plimsoll.health.decide import Bench, Memories, Moved, Outcome, desk_report, judge_one, policy_in_force
from plimsoll.health.facts import AUTOMATION, HELD_SERVICES, HealthFact, Hold, Owner, check_move
from plimsoll.health.fold import Health
from plimsoll.health.judge import Verdict
from plimsoll.health.model import from_microseconds
from plimsoll.health.moves import Desk
from plimsoll.health.policy import Check, CheckBy
from plimsoll.health.signals import SignalKey
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import show_time

Decision = tuple[Outcome, list[Draft]]


class Acting(NamedTuple):
    """Who acts, when, why, and what is remembered of the signals of the nodes it is about."""

    actor: str
    now: datetime
    reason: str
    memories: Memories


def _bench(state: State, acting: Acting) -> Bench:
    return Bench(state.of(Health), policy_in_force(state), acting.memories, acting.now)


def _collect(desks: Iterable[tuple[Node, Desk]], extra: Sequence[Draft] = ()) -> Decision:
    drafts, moved = list(extra), list[Moved]()
    for node, desk in desks:
        drafts += desk.drafts()
        moved += desk_report(node, desk)
    return Outcome(moved), drafts


def place_hold(state: State, nodes: Sequence[Node], hold: Hold, acting: Acting) -> Decision:
    """Put one hold on these nodes. The same id again changes the hold, if it is one's own."""
    bench = _bench(state, acting)
    desks = []
    for node in nodes:
        if node.service is Service.RETIRED:
            raise Refused("node_retired", f"{node.id} is retired; there is nothing to hold", node=node.id)
        desk = Desk(node, bench.health, acting.now)
        _check_placing(desk, hold)
        desk.place(hold)
        desk.follow(bench.verdict(node), hold=hold.id)
        desks.append((node, desk))
    return _collect(desks)


def _check_placing(desk: Desk, hold: Hold) -> None:
    assert hold.service in HELD_SERVICES, f"no node can be held in {hold.service}"
    if hold.id.startswith(f"{AUTOMATION}:") and hold.owner != AUTOMATION:
        message = f"ids that begin with {AUTOMATION}: are those of our own judgement; {hold.id!r} is {hold.owner}'s"
        raise Refused("hold_id_reserved", message, next_step="choose another --id", hold=hold.id)
    known = desk.hold_of(hold.id)
    if known is not None and known.owner != hold.owner:
        raise Refused(
            "hold_exists",
            f"{desk.node.id} has a hold {hold.id!r} of {known.owner} already: {known.reason}",
            next_step="choose another --id",
            hold=hold.id,
            owner=known.owner,
        )
    leases = (each for each in desk.holds if each.is_exclusive and each.id != hold.id)
    lease = next((each for each in leases if not each.is_expired(desk.now)), None)
    if hold.is_exclusive and lease is not None:
        until = f" until {show_time(lease.expires_at)}" if lease.expires_at else ""
        raise Refused(
            "node_leased",
            f"{lease.owner} works on {desk.node.id}{until} ({lease.id}: {lease.reason}); only one may at a time",
            next_step=f"ask {lease.owner}, or hold the node without --exclusive",
            node=desk.node.id,
            hold=lease.id,
            owner=lease.owner,
        )


def holders(state: State, hold_id: str, names: Iterable[str] | None = None) -> list[Node]:
    """The nodes that a hold is on, of all or of those named."""
    fleet, holds = state.of(Fleet), state.of(Health).holds
    wanted = holds if names is None else names
    return [fleet.nodes[name] for name in sorted(wanted) if any(hold.id == hold_id for hold in holds.get(name, ()))]


def release_hold(
    state: State, hold_id: str, acting: Acting, *, names: Sequence[str] | None = None, at: datetime, is_forced: bool
) -> Decision:
    """End a hold on the nodes it is on. Others' holds stay; a node without any begins to validate.

    Who ends a hold of our own judgement answers the signals that it was for.
    """
    bench = _bench(state, acting)
    nodes = holders(state, hold_id, names)
    if not nodes:
        where = "" if names is None else " on these nodes"
        message = f"there is no hold {hold_id!r}{where}"
        raise NotFound("no_such_hold", message, next_step="plimsoll health holds", hold=hold_id)
    desks, extra = [], list[Draft]()
    for node in nodes:
        desk = Desk(node, bench.health, acting.now)
        hold = desk.hold_of(hold_id)
        assert hold is not None
        _check_release(node, hold, acting, at=at, is_forced=is_forced)
        desk.end(hold, cause="released" if hold.owner == acting.actor else "released by another", reason=acting.reason)
        if hold.signal:
            # Else the next judgement would place it again.
            extra.append(Draft(SignalsAnswered(node.id, acting.now, hold.signal), acting.reason))
        desk.follow(bench.verdict(node, gone=[SignalKey.read(hold.signal)] if hold.signal else ()), hold=hold_id)
        desks.append((node, desk))
    return _collect(desks, extra)


def _check_release(node: Node, hold: Hold, acting: Acting, *, at: datetime, is_forced: bool) -> None:
    if hold.placed_at > at:
        raise Refused(
            "newer_hold",
            f"the hold {hold.id!r} on {node.id} was placed at {show_time(hold.placed_at)}, after this release"
            f" ({show_time(at)}); an older release does not end it",
            next_step="plimsoll health holds",
            hold=hold.id,
            node=node.id,
        )
    if hold.owner != acting.actor and not is_forced:
        raise Refused(
            "not_your_hold",
            f"the hold {hold.id!r} on {node.id} is {hold.owner}'s: {hold.reason}",
            next_step=f"ask {hold.owner}, or plimsoll health release {hold.id!r} --force --reason WHY",
            hold=hold.id,
            owner=hold.owner,
        )


class Setting(NamedTuple):
    """What a person wants a node's service to be."""

    service: Service
    owner: Owner | None = None
    expected_return: datetime | None = None
    expires_at: datetime | None = None
    scope: str = ""


def own_hold_id(actor: str) -> str:
    """The one hold that a person has on a node by setting its service."""
    return f"set:{actor}"


def set_service(state: State, nodes: Sequence[Node], setting: Setting, acting: Acting) -> Decision:
    """Move nodes as a person says, along the legal moves. Out of service means one's own hold; back means ending it."""
    bench = _bench(state, acting)
    desks, extra = [], list[Draft]()
    for node in nodes:
        desk = Desk(node, bench.health, acting.now)
        if setting.service is not node.service:
            check_move(node.id, node.service, setting.service)
        if setting.service in HELD_SERVICES:
            _hold_for(desk, setting, acting)
            desk.follow(bench.verdict(node), hold=own_hold_id(acting.actor))
        elif setting.service is Service.VALIDATING:
            extra += _let_validate(desk, acting)
        elif setting.service is Service.IN_SERVICE and node.service is not Service.IN_SERVICE:
            _check_not_held(desk, desk.holds)
            _check_validated(desk, bench)
            _check_not_unhealthy(desk, verdict := bench.verdict(node))
            desk.enter_service(verdict, source=acting.actor)
        elif setting.service in (Service.RETIRED, Service.JOINING) and setting.service is not node.service:
            _end_holds(desk, acting, cause=str(setting.service))
            desk.move(setting.service, why=acting.reason, source=acting.actor)
        desks.append((node, desk))
    return _collect(desks, extra)


def _hold_for(desk: Desk, setting: Setting, acting: Acting) -> None:
    hold = Hold(
        id=own_hold_id(acting.actor),
        owner=acting.actor,
        service=setting.service,
        reason=acting.reason,
        placed_at=acting.now,
        expires_at=setting.expires_at,
        scope=setting.scope,
        expected_return=setting.expected_return,
        whose_move=setting.owner or Owner.OURS,
    )
    desk.place(hold)


def _let_validate(desk: Desk, acting: Acting) -> list[Draft]:
    """End what it is held for, and answer its signals."""
    _end_holds(desk, acting, cause="released")
    if desk.node.service is not Service.VALIDATING:
        desk.move(Service.VALIDATING, why=desk.facts.why, source=acting.actor, reason=acting.reason)
    return [Draft(SignalsAnswered(desk.node.id, acting.now), acting.reason)]


def _end_holds(desk: Desk, acting: Acting, *, cause: str) -> None:
    """End what we and this person hold the node for. Somebody else's hold is theirs to end."""
    _check_not_held(desk, [hold for hold in desk.holds if hold.owner not in (acting.actor, AUTOMATION)])
    for hold in desk.holds:
        desk.end(hold, cause=cause, reason=acting.reason)


def _check_not_held(desk: Desk, holds: Sequence[Hold]) -> None:
    if holds:
        named = "; ".join(f"{hold.owner} ({hold.id}: {hold.reason})" for hold in holds)
        raise Refused(
            "node_held",
            f"{desk.node.id} is held by {named}",
            next_step=f"plimsoll health release {holds[0].id!r}, by {holds[0].owner}",
            node=desk.node.id,
            holds=[hold.id for hold in holds],
        )


def missing_checks(node: Node, bench: Bench) -> list[tuple[Check, str]]:
    """The checks that a validating node has not passed yet, and what each waits for."""
    since = node.since or bench.now
    ticks = {tick.check: tick for tick in bench.health.ticks.get(node.id, ())}
    missing = []
    for check in bench.policy.validation:
        tick = ticks.get(check.name)
        if tick is not None and tick.at >= since:
            if not tick.is_passed:
                missing.append((check, f"failed at {show_time(tick.at)}: {tick.detail}"))
            continue
        if check.by is not CheckBy.QUIET:
            missing.append((check, "not answered yet"))
            continue
        latest = max((memory.latest_bad for memory in bench.memories_of(node).values()), default=0)
        left = max(since, from_microseconds(latest)) + check.quiet_for - bench.now
        if left > timedelta(0):
            missing.append((check, f"quiet for {left / timedelta(minutes=1):.0f} more minutes"))
    return missing


def _check_validated(desk: Desk, bench: Bench) -> None:
    missing = missing_checks(desk.node, bench)
    if missing:
        named = "; ".join(f"{check.name}: {what}" for check, what in missing)
        manual = next((check.name for check, _ in missing if check.by is CheckBy.MANUAL), "")
        raise Refused(
            "not_validated",
            f"{desk.node.id} has not passed {len(missing)} of {len(bench.policy.validation)} checks ({named})",
            next_step=f"plimsoll health tick {manual} {desk.node.id}" if manual else "wait, and plimsoll health sweep",
            node=desk.node.id,
            checks=[check.name for check, _ in missing],
        )


def _check_not_unhealthy(desk: Desk, verdict: Verdict) -> None:
    if verdict.health is HealthFact.UNHEALTHY:
        raise Refused(
            "still_unhealthy",
            f"{desk.node.id} would be taken out again at once: {verdict.why}",
            next_step=f"plimsoll health show {desk.node.id}; a good signal ends it (plimsoll health signal … --ok)",
            node=desk.node.id,
            why=verdict.why,
        )


def tick_check(
    state: State,
    nodes: Sequence[Node],
    check_name: str,
    acting: Acting,
    *,
    is_passed: bool,
    detail: str = "",
    may_pass: bool = True,
) -> Decision:
    """Answer a check for nodes that validate. The last answer that was missing lets a node in; a failed one out.

    `may_pass`: it was measured, or a person insists. Without it only a check that waits for a person can be passed.
    """
    bench = _bench(state, acting)
    _check_tick(bench, check_name, is_passed=is_passed, may_pass=may_pass)
    desks, extra = [], list[Draft]()
    for node in nodes:
        if node.service is not Service.VALIDATING:
            raise Refused(
                "not_validating",
                f"{node.id} is {node.service}; checks count while a node is validating",
                next_step=f"plimsoll health set {node.id} validating",
                node=node.id,
            )
        extra.append(Draft(CheckTicked(node.id, check_name, is_passed, detail), acting.reason))
        desk = Desk(node, bench.health, acting.now)
        if not is_passed:
            _fail_validation(desk, check_name, acting, detail)
            desk.follow(bench.verdict(node))
        elif not desk.holds and all(check.name == check_name for check, _ in missing_checks(node, bench)):
            verdict = bench.verdict(node)
            if verdict.lets_in:
                desk.enter_service(verdict, source=acting.actor)
        desks.append((node, desk))
    return _collect(desks, extra)


def _check_tick(bench: Bench, check_name: str, *, is_passed: bool, may_pass: bool) -> None:
    known = {check.name: check for check in bench.policy.validation}
    check = known.get(check_name)
    if check is None:
        raise NotFound(
            "no_such_check",
            f"the policy has no check {check_name!r}; it has {', '.join(known)}",
            next_step=f"plimsoll health tick {list(known)[-1]} NODE",
        )
    if is_passed and not may_pass and check.by is not CheckBy.MANUAL:
        answerer = "time" if check.by is CheckBy.QUIET else f"its {check.by}"
        raise Refused(
            "not_for_a_person",
            f"{check_name!r} is answered by {answerer}, not by a person",
            next_step=f"wait for it, or plimsoll health tick {check_name} NODE --force --reason WHY",
            check=check_name,
        )


def _fail_validation(desk: Desk, check_name: str, acting: Acting, detail: str) -> None:
    reason = f"validation: {check_name} failed" + (f", {detail}" if detail else "")
    desk.place(Hold(f"{AUTOMATION}:validation {check_name}", AUTOMATION, Service.QUARANTINED, reason, acting.now))


def pass_checks(state: State, names: Iterable[str], acting: Acting) -> list[Draft]:
    """Somebody's own validation stands for every check of the policy that a node has not passed yet. One that its
    signals keep out stays out."""
    bench = _bench(state, acting)
    drafts: list[Draft] = []
    for node in _validating(state, names):
        if bench.health.holds.get(node.id):
            continue
        missing = missing_checks(node, bench)
        drafts += [Draft(CheckTicked(node.id, check.name, True, acting.reason)) for check, _ in missing]
        verdict = bench.verdict(node)
        if verdict.lets_in:
            desk = Desk(node, bench.health, acting.now)
            desk.enter_service(verdict, source=acting.actor)
            drafts += desk.drafts()
    return drafts


def fail_checks(state: State, details: Mapping[str, str], check_name: str, acting: Acting) -> list[Draft]:
    """Somebody's own validation found nodes wanting: each is held, with what was found, until a person looks."""
    bench = _bench(state, acting)
    drafts: list[Draft] = []
    for node in _validating(state, details):
        desk = Desk(node, bench.health, acting.now)
        _fail_validation(desk, check_name, acting, details[node.id])
        desk.follow(bench.verdict(node))
        drafts += desk.drafts()
    return drafts


def _validating(state: State, names: Iterable[str]) -> list[Node]:
    nodes = state.of(Fleet).nodes
    found = (nodes[name] for name in sorted(names) if name in nodes)
    return [node for node in found if node.service is Service.VALIDATING]


def mark_drained(state: State, names: Sequence[str], acting: Acting) -> Decision:
    """The scheduler says that these nodes are empty: their draining is over."""
    bench = _bench(state, acting)
    fleet, desks = state.of(Fleet), []
    for name in names:
        node = fleet.nodes[name]
        desk = Desk(node, bench.health, acting.now)
        for hold in desk.holds:
            if hold.drains_until is not None and hold.drains_until > acting.now:
                desk.place(msgspec.structs.replace(hold, drains_until=None))
        if desk.drafts():
            desk.follow(bench.verdict(node))
            desks.append((node, desk))
    return _collect(desks)


def reset_breaker(state: State, scope: str, acting: Acting, *, is_dismissed: bool) -> Decision:
    """Let automation go on: do what was held back, or let it be."""
    bench = _bench(state, acting)
    health, fleet = bench.health, state.of(Fleet)
    tripped = health.breakers.get(scope)
    if tripped is None:
        names = ", ".join(sorted(health.breakers)) or "none"
        message = f"no breaker has tripped for {scope!r}; tripped: {names}"
        raise NotFound("no_such_breaker", message, next_step="plimsoll health show", scope=scope)
    desks, extra = [], list[Draft]()
    for name in tripped.nodes:
        node = fleet.nodes[name]
        if node.service is Service.RETIRED:
            continue
        desk = Desk(node, health, acting.now)
        if is_dismissed:
            extra.append(Draft(SignalsAnswered(name, acting.now)))
            desk.follow(bench.verdict(node, gone=bench.memories_of(node)))
        else:
            judge_one(desk, bench.verdict(node), bench, None)
        desks.append((node, desk))
    outcome, drafts = _collect(desks, extra)
    # Last, so that what a person has just allowed does not trip it again.
    return outcome, [*drafts, Draft(BreakerReset(scope, is_dismissed), acting.reason)]
