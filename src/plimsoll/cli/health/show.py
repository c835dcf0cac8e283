"""`plimsoll health show` and `holds`: what works now, and who holds what."""

from __future__ import annotations

from datetime import datetime

import typer

from plimsoll.cli.health.app import app
from plimsoll.cli.options import AsOf, Db, Filters, Format, Watch, answer_keeper
from plimsoll.cli.output import Answer, Output, Table
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.fleet.view import find_nodes
from plimsoll.health.acts import missing_checks
from plimsoll.health.decide import Bench, Memories, count_exits, policy_in_force
from plimsoll.health.fold import Health
from plimsoll.health.judge import describe
from plimsoll.health.model import from_microseconds
from plimsoll.health.service import feeds_heard, find_targets, load_memories
from plimsoll.health.view import CLUSTERS_SHOWN, Present, hold_rows, look_now
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_time, utc_now

REASONS_SHOWN = 12
TIMELINE_SHOWN = 10
HOLDS_SHOWN = 50


@app.command("show")
def show_command(
    context: typer.Context,
    filters: Filters = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """What works now: what needs a person, what is out and why, what comes back when. With a node's name, all of it.

    Nodes of clusters in production. Before the past: --as-of shows what was known then (not the signals of then).
    """
    words = filters or []

    def answer(keeper: Keeper, state: State) -> Answer:
        now = _moment(state, as_of)
        heard = feeds_heard(keeper.ledger.store)
        if len(words) == 1 and words[0] in state.of(Fleet).nodes:
            memories = load_memories(keeper.ledger.store, words)
            return _node_answer(state, state.of(Fleet).nodes[words[0]], memories, now)
        if any(word.isidentifier() or ("-" in word and "=" not in word) for word in words):
            find_targets(state, words, now=now)  # a name that is no node's: say so
        nodes = list(find_nodes(state.of(Fleet), parse_filter(words, now=now)))
        present = look_now(state, nodes, heard, now=now)
        return _present_answer(state, present, is_filtered=bool(words))

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _moment(state: State, as_of: str) -> datetime:
    return parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()


def _present_answer(state: State, present: Present, *, is_filtered: bool) -> Answer:
    document = {"as_of": state.recorded_at or None, "revision": state.revision, "present": present}
    if not present.nodes:
        notes = ["no node in production matches" if is_filtered else "the fleet is empty; next: plimsoll demo"]
        return Answer(document, [], "no nodes", notes)
    share = present.in_service / present.nodes
    heading = (
        f"{present.in_service:,} of {present.nodes:,} nodes are in service ({share:.1%}; goal 95 %),"
        f" {present.healthy_gpus:,} of {present.gpus:,} GPUs;"
        f" out: {present.unplanned:,} unplanned, {present.planned:,} planned"
    )
    attention = Table(
        ("needs_a_person", "nodes", "what", "such_as", "next"),
        [(a.need, a.count, a.message, ", ".join(a.nodes[:2]), a.next_step) for a in present.attention],
    )
    columns = ("reason", "kind", "owner", "nodes", "gpus", "clusters", "oldest")
    rows = [(r.reason, r.kind, r.owner, r.nodes, r.gpus, r.clusters, r.oldest) for r in present.reasons]
    reasons = Table(columns, rows[:REASONS_SHOWN], "out of service, by GPUs")
    returns = Table(
        ("within_hours", "promised_nodes", "promised_gpus", "expected_nodes", "expected_gpus"),
        [
            (r.within_hours, r.promised_nodes, r.promised_gpus, r.expected_nodes, r.expected_gpus)
            for r in present.returns
        ],
        "coming back (expected: by how long outages have lasted, where nobody promised)",
    )
    names = ("cluster", "nodes", "in_service", "in_service_share", "unplanned", "planned", "degraded", "unknown")
    clusters = Table(
        names,
        [tuple(getattr(c, name) for name in names) for c in present.clusters[:CLUSTERS_SHOWN]],
        "clusters with the smallest share in service",
    )
    feeds = Table(
        ("feed", "nodes", "is_silent", "last_heard"),
        [(feed.feed, feed.nodes, feed.is_silent, feed.heard_at) for feed in present.feeds],
        "feeds",
    )
    tables = [*([attention] if present.attention else []), reasons, returns, clusters]
    tables += [feeds] if present.feeds else []
    return Answer(document, tables, heading, _present_notes(present))


def _present_notes(present: Present) -> list[str]:
    counts = ", ".join(f"{count:,} {word}" for word, count in present.by_health.items())
    notes = [f"health: {counts}"]
    if len(present.reasons) > REASONS_SHOWN:
        notes.append(f"… {len(present.reasons) - REASONS_SHOWN} more reasons: -o json lists them all")
    if present.uncovered:
        notes.append(
            f"{present.uncovered:,} nodes have no feed: what is known of them comes from the import."
            " next: plimsoll health observe --help"
        )
    notes.append("next: plimsoll health show NODE, plimsoll health slo, plimsoll health forecast")
    return notes


def _node_answer(state: State, node: Node, memories: Memories, now: datetime) -> Answer:
    """Everything about one node."""
    health, policy = state.of(Health), policy_in_force(state)
    facts, bench = health.facts_of(node), Bench(health, policy, memories, now)
    verdict = bench.verdict(node)
    holds = health.holds.get(node.id, ())
    waits = [(check.name, what) for check, what in missing_checks(node, bench)] if _is_validating(node) else []
    timeline = health.timelines.get(node.id)
    entries = list(timeline.entries())[-TIMELINE_SHOWN:] if timeline else []
    past = [(from_microseconds(moment), health.marks[number]) for moment, number in reversed(entries)]
    exits = count_exits(node, health, now - policy.lemon.within)
    lemon = (
        f", a lemon: {exits} unplanned exits in {policy.lemon.within.days} days" if exits >= policy.lemon.times else ""
    )
    heading = f"{node.id}: {facts.health}, {node.service}, {facts.owner}{lemon}" + (
        f" ({facts.why})" if facts.why else ""
    )
    tables = [
        Table(
            ("hold", "owner", "service", "since", "expires", "exclusive", "reason"),
            [(h.id, h.owner, h.service, h.placed_at, h.expires_at, h.is_exclusive, h.reason) for h in holds],
            "holds",
        ),
        Table(("problem",), [(describe(problem),) for problem in verdict.problems], "problems"),
        Table(("time", "service", "reason"), [(at, mark.service, mark.reason) for at, mark in past], "timeline"),
    ]
    if waits:
        tables.insert(1, Table(("check", "waits_for"), waits, "before it returns"))
    document = {
        "as_of": state.recorded_at or None,
        "revision": state.revision,
        "node": node.id,
        "cluster": node.cluster,
        "island": node.island,
        "sku": node.sku,
        "service": node.service,
        "since": node.since,
        "facts": facts,
        "feeds": health.covers.get(node.id, ()),
        "holds": holds,
        "waits_for": [{"check": check, "what": what} for check, what in waits],
        "problems": [
            {"signal": str(p.key), "action": p.action, "why": p.why, "active": p.is_active} for p in verdict.problems
        ],
        "exits": exits,
        "timeline": [{"time": at, "service": mark.service, "reason": mark.reason} for at, mark in past],
    }
    notes = [f"in {node.cluster}, island {node.island}, {node.gpus} x {node.sku}"]
    if facts.expected_return:
        notes.append(f"expected back at {show_time(facts.expected_return)}")
    notes.append(f"next: plimsoll audit log --subject node/{node.id}")
    return Answer(document, tables, heading, notes)


def _is_validating(node: Node) -> bool:
    return node.service is Service.VALIDATING


@app.command("holds")
def holds_command(
    context: typer.Context,
    filters: Filters = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """List the holds that keep nodes out of service: whose, since when, until when, why."""

    def answer(_keeper: Keeper, state: State) -> Answer:
        now = _moment(state, as_of)
        rows = hold_rows(state, find_nodes(state.of(Fleet), parse_filter(filters or [], now=now)))
        shown = rows[:HOLDS_SHOWN] if output is Output.TABLE else rows
        table = Table(
            ("hold", "node", "owner", "service", "since", "expires", "exclusive", "scope", "reason"),
            [
                (h.id, n.id, h.owner, h.service, h.placed_at, h.expires_at, h.is_exclusive, h.scope, h.reason)
                for n, h in shown
            ],
        )
        document = {
            "as_of": state.recorded_at or None,
            "revision": state.revision,
            "holds": [{"node": node.id, "hold": hold} for node, hold in rows],
        }
        expired = sum(hold.is_expired(now) for _, hold in rows)
        notes = [f"{len(rows):,} holds on {len({node.id for node, _ in rows}):,} nodes"]
        if len(shown) < len(rows):
            notes = [f"{len(shown):,} of {notes[0]}; -o json or csv lists them all, or a narrower filter"]
        if expired:
            notes.append(f"{expired:,} have expired; next: plimsoll health sweep")
        return Answer(document, [table], notes=notes)

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)
