"""What asks for a person right now. Pure.

Each kind of need has a code that the command line, the API and alerts share, the number of nodes, and what to type.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from plimsoll.fleet.model import Node, Service
from plimsoll.health.acts import missing_checks
from plimsoll.health.decide import Bench, count_exits, policy_in_force
from plimsoll.health.facts import AUTOMATION, HealthFact, Hold
from plimsoll.health.fold import Health, Tripped
from plimsoll.health.levels.goals import MTTR_GOAL_HOURS
from plimsoll.health.levels.outages import OpenOutage, open_outages, read_past
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.health.policy import CheckBy, Policy
from plimsoll.health.silence import fallen_silent
from plimsoll.state.state import State
from plimsoll.times import show_time

NAMES_SHOWN = 5
MTTR_GOAL = timedelta(hours=MTTR_GOAL_HOURS)
ENDLESS_AFTER = timedelta(days=7)
"""A person's hold that is older than this and has no end is worth a question."""


class Need(enum.StrEnum):
    """What asks for a person, the most lasting first. The words are public: add, never rename."""

    BREAKER_TRIPPED = "breaker_tripped"
    FEED_SILENT = "feed_silent"
    UNHEALTHY_IN_SERVICE = "unhealthy_in_service"
    STUCK = "stuck"
    HOLD_WITHOUT_END = "hold_without_end"
    HOLD_EXPIRED = "hold_expired"
    OVERDUE = "overdue"
    LEMON = "lemon"
    WAITING_FOR_TICK = "waiting_for_tick"


class Attention(msgspec.Struct, frozen=True):
    """Something that a person should look at: how many nodes, some of them, and what to type."""

    need: Need
    count: int
    message: str
    nodes: list[str]
    next_step: str
    about: str = ""
    """Which breaker, feed or check, where it is about one."""


def find_attention(
    state: State,
    nodes: Sequence[Node],
    heard: Mapping[str, datetime],
    now: datetime,
    *,
    is_out: Mapping[str, OpenOutage] | None = None,
) -> list[Attention]:
    """All that asks for a person about these nodes. `is_out` are their open outages, where the caller knows them."""
    health, policy = state.of(Health), policy_in_force(state)
    if is_out is None:
        is_out = open_outages(read_past(health, nodes, until=to_microseconds(now)))
    return [
        *_breakers(health, nodes),
        *_silent_feeds(health, nodes, heard, fallen_silent(health, heard, silence=policy.silence, now=now)),
        *_unhealthy(health, nodes),
        *_stuck(health, nodes, is_out, now),
        *_endless(health, nodes, now),
        *_expired(health, nodes, now),
        *_overdue(health, nodes, now),
        *_lemons(health, nodes, policy, now),
        *_waiting(health, nodes, policy, now),
    ]


def _attention(need: Need, names: Sequence[str], message: str, next_step: str, about: str = "") -> Iterator[Attention]:
    """Nothing where no node is affected."""
    if names:
        yield Attention(need, len(names), message, list(names[:NAMES_SHOWN]), next_step, about)


def days_text(span: timedelta) -> str:
    """`1 day`, `30 days`, `0.5 days`."""
    days = span / timedelta(days=1)
    return f"{days:g} day" if days == 1 else f"{days:g} days"


def _when(moment: datetime) -> str:
    return show_time(moment.replace(microsecond=0))


def breakers_over(health: Health, node: Node) -> list[Tripped]:
    """The breakers that keep automation from taking this node out of service."""
    if node.service is not Service.IN_SERVICE:
        return []
    return [tripped for _, tripped in sorted(health.breakers.items()) if node.id in tripped.nodes]


def has_no_end(hold: Hold, now: datetime) -> bool:
    """Whether a person placed a hold long ago and never said until when."""
    return hold.owner != AUTOMATION and hold.expires_at is None and now - hold.placed_at > ENDLESS_AFTER


def _breakers(health: Health, nodes: Sequence[Node]) -> Iterator[Attention]:
    names = {node.id for node in nodes}
    for scope, tripped in sorted(health.breakers.items()):
        held = [name for name in tripped.nodes if name in names]
        message = (
            f"{scope}: automation took {tripped.taken} out, {tripped.limit} at most are allowed;"
            f" it holds back {len(tripped.nodes)} more since {_when(tripped.since)}"
        )
        next_step = f"look at them, then plimsoll health breaker {scope} --go-on|--dismiss --reason WHY"
        yield from _attention(Need.BREAKER_TRIPPED, held, message, next_step, scope)


def _silent_feeds(
    health: Health, nodes: Sequence[Node], heard: Mapping[str, datetime], fallen: Collection[str]
) -> Iterator[Attention]:
    for name, feed in sorted(health.feeds.items()):
        if feed.is_silent or name in fallen:
            covered = [node.id for node in nodes if name in health.covers.get(node.id, ())]
            message = f"feed {name} has said nothing since {_when(heard.get(name, feed.since))}: its nodes are unknown"
            yield from _attention(
                Need.FEED_SILENT, covered, message, "look after the feed; it is heard again by itself", name
            )


def _unhealthy(health: Health, nodes: Sequence[Node]) -> Iterator[Attention]:
    """But for those that a breaker holds back: what to do with them is asked there.

    A node in service is sick only where something was observed.
    """
    held_back = {name for tripped in health.breakers.values() for name in tripped.nodes}
    sick = [
        node.id
        for node in nodes
        if (known := health.facts.get(node.id)) is not None
        and known.health is HealthFact.UNHEALTHY
        and node.service is Service.IN_SERVICE
        and node.id not in held_back
    ]
    next_step = "plimsoll health show NODE; plimsoll health set NODE quarantined --reason WHY"
    yield from _attention(Need.UNHEALTHY_IN_SERVICE, sick, "unhealthy, and still in service", next_step)


def _stuck(
    health: Health, nodes: Sequence[Node], is_out: Mapping[str, OpenOutage], now: datetime
) -> Iterator[Attention]:
    """Out for longer than the goal for MTTR, and nobody said when they are expected back."""
    latest = to_microseconds(now - MTTR_GOAL)
    stuck = [
        (outage.began, node.id)
        for node in nodes
        if (outage := is_out.get(node.id)) is not None
        and not outage.is_planned
        and outage.began < latest
        and node.service not in (Service.IN_SERVICE, Service.RETIRED)
        and health.facts_of(node).expected_return is None
    ]
    if not stuck:
        return
    stuck.sort()
    oldest = from_microseconds(stuck[0][0])
    message = f"out unplanned over {MTTR_GOAL.days} days (oldest: {oldest:%Y-%m-%d}), nobody said until when"
    next_step = "plimsoll health outages --unplanned; ask whoever has them when they are back"
    yield from _attention(Need.STUCK, [name for _, name in stuck], message, next_step)


def _endless(health: Health, nodes: Sequence[Node], now: datetime) -> Iterator[Attention]:
    endless = [(hold, node.id) for node in nodes for hold in health.holds.get(node.id, ()) if has_no_end(hold, now)]
    if not endless:
        return
    endless.sort(key=lambda each: (each[0].placed_at, each[1]))
    oldest, names = endless[0][0], list(dict.fromkeys(name for _, name in endless))
    message = (
        f"held over {ENDLESS_AFTER.days} days without an end (oldest: {oldest.owner}, {oldest.placed_at:%Y-%m-%d})"
    )
    next_step = "plimsoll health holds; ask whoever holds them: release HOLD, or hold again with --until"
    yield from _attention(Need.HOLD_WITHOUT_END, names, message, next_step)


def _expired(health: Health, nodes: Sequence[Node], now: datetime) -> Iterator[Attention]:
    expired = [(node.id, hold) for node in nodes for hold in health.holds.get(node.id, ()) if hold.is_expired(now)]
    owners = ", ".join(sorted({hold.owner for _, hold in expired}))
    names = list(dict.fromkeys(name for name, _ in expired))
    yield from _attention(
        Need.HOLD_EXPIRED, names, f"held by {owners}, until a time that has passed", "plimsoll health sweep"
    )


def _overdue(health: Health, nodes: Sequence[Node], now: datetime) -> Iterator[Attention]:
    """Nobody expects a node back of which nothing was said."""
    overdue = [
        node.id
        for node in nodes
        if (known := health.facts.get(node.id)) is not None
        and (back := known.expected_return) is not None
        and back < now
    ]
    next_step = "ask whoever has them: plimsoll health show NODE"
    yield from _attention(Need.OVERDUE, overdue, "expected back by now, and still out", next_step)


def _lemons(health: Health, nodes: Sequence[Node], policy: Policy, now: datetime) -> Iterator[Attention]:
    since, lemon = now - policy.lemon.within, policy.lemon
    oldest, few = to_microseconds(since), 2 * lemon.times - 2
    exits = {
        node.id: count_exits(node, health, since)
        for node in nodes
        # Each exit but the one that lasts is two transitions since then: who has fewer needs no closer look.
        if (known := health.timelines.get(node.id)) is not None and known.has_since(oldest, few)
    }
    lemons = sorted((name for name, count in exits.items() if count >= lemon.times), key=lambda name: -exits[name])
    message = f"lemons: out of service unplanned {lemon.times} times or more in {days_text(lemon.within)}"
    yield from _attention(Need.LEMON, lemons, message, "plimsoll health slo --by node")


def _waiting(health: Health, nodes: Sequence[Node], policy: Policy, now: datetime) -> Iterator[Attention]:
    bench = Bench(health, policy, {}, now)
    for check in policy.validation:
        if check.by is not CheckBy.MANUAL:
            continue
        waiting = [
            node.id
            for node in nodes
            if node.service is Service.VALIDATING and any(each is check for each, _ in missing_checks(node, bench))
        ]
        message = f"validating; a person has to answer the check {check.name!r}"
        next_step = f"plimsoll health tick {check.name} NODE"
        yield from _attention(Need.WAITING_FOR_TICK, waiting, message, next_step, check.name)
