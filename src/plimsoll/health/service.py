"""Health with effects: takes signals in, sweeps, carries out what people say; decides nothing itself.

Raw samples go into the table of cursors first, then what they lead to is committed: if that is cut short, the next
judgement of the node makes up for it, because it looks at everything remembered and not only at what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from plimsoll.errors import NotFound, Refused
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.fleet.view import find_nodes
from plimsoll.health.acts import Acting, Decision
from plimsoll.health.ahead import Announced, announce, withdraw
from plimsoll.health.changes import PolicyApplied
from plimsoll.health.decide import Heard, Memories, Outcome, apply_policy, judge_nodes, policy_in_force
from plimsoll.health.fold import Health
from plimsoll.health.intake import Gathered, Rejection, gather, merge_into, near_nodes, sift, with_later_sweep
from plimsoll.health.model import Ahead, to_microseconds
from plimsoll.health.policy import Policy
from plimsoll.health.signals import SCOPE_PREFIX, Memory, Signal, SignalKey, SignalKind, scope_of
from plimsoll.health.sweep import Swept, sweep
from plimsoll.ledger.model import Draft, Event
from plimsoll.ledger.store import Store
from plimsoll.memory import no_collection
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import format_time, parse_time

FEED_SCOPE = "feed"

_decode_memory = msgspec.json.Decoder(Memory).decode


class Observed(msgspec.Struct, frozen=True):
    """What became of some signals."""

    feed: str
    taken: int
    ignored: int
    rejections: list[Rejection]
    outcome: Outcome
    revision: int


def memories_from(found: Mapping[tuple[str, str], str]) -> dict[str, dict[SignalKey, Memory]]:
    """Stored samples as memories, by node."""
    memories: dict[str, dict[SignalKey, Memory]] = {}
    for (scope, name), value in found.items():
        memories.setdefault(scope.removeprefix(SCOPE_PREFIX), {})[SignalKey.read(name)] = _decode_memory(value)
    return memories


def load_memories(store: Store, names: Collection[str] | None = None) -> Memories:
    """What is remembered of the signals of these nodes, or of all."""
    if names is None:
        return memories_from(store.cursors([each for each in store.cursor_scopes() if each.startswith(SCOPE_PREFIX)]))
    return memories_from(store.cursors([scope_of(name) for name in names]))


def feeds_heard(store: Store) -> dict[str, datetime]:
    """When each feed last spoke."""
    return {name: parse_time(value) for (_, name), value in store.cursors([FEED_SCOPE]).items()}


def observe(
    keeper: Keeper,
    signals: Iterable[Signal],
    *,
    feed: str,
    actor: str,
    swept: Collection[str] | None = None,
    at: datetime | None = None,
    is_dry_run: bool = False,
) -> Observed:
    """Take signals in, judge the nodes that they are about, and commit what follows.

    `swept`: the feed has just looked at all of these nodes, so one that it knew and does not see any more has lost its
    heartbeat. A feed whose clock is ahead of ours was heard now: else it could not fall silent for as long.
    """
    now = keeper.ledger.clock()
    state = keeper.state()
    policy = policy_in_force(state)
    if swept is not None and not swept:
        # A feed that looks at its nodes and sees none is not heard: after a while it counts as silent.
        return Observed(feed, 0, 0, [], Outcome(), state.revision)
    heard = Heard(feed, min(at or now, now), None if swept is None else frozenset(swept))
    with no_collection():
        sifted = sift([*signals, *_lost(state, heard)], state.of(Fleet), now)
        if sifted.rejections and not sifted.signals and swept is None:
            # Nothing that it said can be taken: nothing changes.
            return Observed(feed, 0, 0, sifted.rejections, Outcome(), state.revision)
        fresh, ignored = gather(sifted.signals, policy, source=feed)
        memories = _remember(keeper.ledger.store, fresh, heard, now, is_dry_run=is_dry_run)

        def decide(current: State) -> tuple[Outcome, list[Draft]]:
            return judge_nodes(current, memories, now=now, heard=heard)

        events: list[Event] = []
        if is_dry_run:
            outcome, _ = decide(state)
        else:
            outcome, events = keeper.decide_and_commit(decide, actor=actor, reason=f"signals from {feed}")
    taken = len(sifted.signals) - ignored
    return Observed(feed, taken, ignored, sifted.rejections, outcome, _revision(keeper, events))


def _revision(keeper: Keeper, events: Sequence[Event]) -> int:
    return events[-1].revision if events else keeper.state().revision


def _lost(state: State, heard: Heard) -> list[Signal]:
    """Nodes that a sweep covered before and does not see now."""
    if not heard.covered:
        return []
    health, nodes = state.of(Health), state.of(Fleet).nodes
    missing = (node for node, feeds in health.covers.items() if heard.feed in feeds and node not in heard.covered)
    return [
        Signal(node, SignalKind.HEARTBEAT, heard.at, heard.feed, detail="not seen any more")
        for node in sorted(missing)
        if node in nodes and nodes[node].service is not Service.RETIRED
    ]


def _remember(store: Store, fresh: Gathered, heard: Heard, now: datetime, *, is_dry_run: bool) -> Memories:
    """Merge new samples into those stored, and return all that is known of the nodes they are about."""
    memories: dict[str, dict[SignalKey, Memory]] = {}
    is_sweep = heard.covered is not None
    seen_key = SignalKey(SignalKind.HEARTBEAT, heard.feed)
    seen = Memory((to_microseconds(heard.at) << 1 | 1,))

    def change(found: dict[tuple[str, str], str]) -> dict[tuple[str, str], str | None]:
        memories.clear()
        last = found.get((FEED_SCOPE, heard.feed), "")
        stored = memories_from({place: value for place, value in found.items() if place[0] != FEED_SCOPE})
        written: dict[tuple[str, str], str | None] = {}
        for node in {*stored, *fresh}:
            known, new = stored.get(node, {}), dict(fresh.get(node, {}))
            if is_sweep and seen_key in known and heard.covered is not None and node in heard.covered:
                new[seen_key] = seen
            if is_sweep and last > format_time(heard.at):
                new = with_later_sweep(new, known, parse_time(last))
            changed = merge_into(known, new, is_sweep=is_sweep, now=now)
            if known or changed:
                memories[node] = known | changed
            for key, memory in changed.items():
                text = msgspec.json.encode(memory).decode() if memory.points else None
                written[scope_of(node), str(key)] = text
        if format_time(heard.at) > last:
            written[FEED_SCOPE, heard.feed] = format_time(heard.at)
        return written

    scopes = [FEED_SCOPE, *map(scope_of, {*fresh, *(heard.covered or ())})]
    if is_dry_run:
        change(store.cursors(scopes))
    else:
        store.update_cursors(scopes, change)
    return memories


def sweep_now(keeper: Keeper, *, actor: str, is_dry_run: bool = False, epoch: int | None = None) -> Swept:
    """Let time do its work once."""
    store, now = keeper.ledger.store, keeper.ledger.clock()
    memories, heard = load_memories(store), feeds_heard(store)

    def decide(state: State) -> tuple[Swept, list[Draft]]:
        return sweep(state, memories, heard, now=now)

    if is_dry_run:
        return decide(keeper.state())[0]
    return keeper.decide_and_commit(decide, actor=actor, reason="sweep", epoch=epoch)[0]


def act(
    keeper: Keeper,
    decide: Callable[[State, Acting], Decision],
    *,
    actor: str,
    reason: str,
    names: Collection[str],
    is_dry_run: bool = False,
    epoch: int | None = None,
) -> tuple[Outcome, int]:
    """Carry out what somebody says about these nodes; all of it or nothing."""
    memories = load_memories(keeper.ledger.store, names)
    acting = Acting(actor, keeper.ledger.clock(), reason, memories)
    if is_dry_run:
        return decide(keeper.state(), acting)[0], keeper.state().revision
    outcome, events = keeper.decide_and_commit(
        lambda state: decide(state, acting), actor=actor, reason=reason, epoch=epoch
    )
    return outcome, _revision(keeper, events)


def announce_work(keeper: Keeper, ahead: Ahead, *, actor: str, is_dry_run: bool = False) -> tuple[Announced, int]:
    """Announce planned work."""
    now = keeper.ledger.clock()
    if is_dry_run:
        return announce(keeper.state(), ahead, now=now)[0], keeper.state().revision
    announced, events = keeper.decide_and_commit(lambda state: announce(state, ahead, now=now), actor=actor)
    return announced, _revision(keeper, events)


def withdraw_work(
    keeper: Keeper, work: str, *, actor: str, reason: str, is_forced: bool = False, is_dry_run: bool = False
) -> tuple[Ahead, int]:
    """Take announced work back."""

    def decide(state: State) -> tuple[Ahead, list[Draft]]:
        return withdraw(state, work, actor=actor, reason=reason, is_forced=is_forced)

    if is_dry_run:
        return decide(keeper.state())[0], keeper.state().revision
    ahead, events = keeper.decide_and_commit(decide, actor=actor, reason=reason)
    return ahead, _revision(keeper, events)


def put_policy_in_force(
    keeper: Keeper, text: str, *, source: str, actor: str, reason: str, is_dry_run: bool = False
) -> tuple[Policy, int]:
    """Another policy from now on."""

    def decide(state: State) -> tuple[Policy, list[Draft]]:
        policy = apply_policy(state, text, source=source)
        return policy, [Draft(PolicyApplied(policy.name, text))]

    if is_dry_run:
        return decide(keeper.state())[0], keeper.state().revision
    policy, events = keeper.decide_and_commit(decide, actor=actor, reason=reason or f"policy {source}")
    return policy, events[-1].revision


def find_targets(state: State, words: Sequence[str], *, now: datetime) -> list[Node]:
    """The nodes that words name: ids, and filters such as `cluster=tiger island=tiger-b`."""
    fleet = state.of(Fleet)
    ids = [word for word in words if "=" not in word and "<" not in word and ">" not in word]
    for name in ids:
        if name not in fleet.nodes:
            near = [f"cluster={name}"] if name in fleet.clusters else near_nodes(name, fleet)
            raise NotFound(
                "unknown_node",
                f"there is no node {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                next_step="plimsoll fleet nodes",
                node=name,
            )
    filters = [word for word in words if word not in ids]
    found = list(find_nodes(fleet, parse_filter(filters, now=now))) if filters else []
    if filters and not found:
        raise Refused(
            "no_nodes",
            f"no node matches {' '.join(filters)}",
            next_step=f"plimsoll fleet nodes {' '.join(filters)}",
        )
    names = {*ids, *(node.id for node in found)}
    return [fleet.nodes[name] for name in sorted(names)]
