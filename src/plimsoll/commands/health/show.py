"""`plimsoll health show` and `holds`: what works now, and who holds what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.health.app import app
from plimsoll.commands.options import AsOf, Db, Filters, Format, Watch, answer_keeper
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.fleet.view import find_nodes
from plimsoll.health.acts import missing_checks
from plimsoll.health.ahead import nodes_ahead
from plimsoll.health.attention import ENDLESS_AFTER, Attention, breakers_over, days_text, has_no_end
from plimsoll.health.decide import Bench, Memories, count_exits, policy_in_force
from plimsoll.health.facts import Hold
from plimsoll.health.fold import Health
from plimsoll.health.judge import Problem
from plimsoll.health.levels.goals import GOALS, IN_SERVICE_GOAL
from plimsoll.health.model import Mark, from_microseconds
from plimsoll.health.service import feeds_heard, find_targets, load_memories
from plimsoll.health.silence import facts_seen, fallen_silent
from plimsoll.health.view import CLUSTERS_SHOWN, ClusterNow, Present, check_names, hold_rows, look_now
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_time, utc_now
from plimsoll.words import counted

REASONS_SHOWN = 12
TIMELINE_SHOWN = 10
HOLDS_SHOWN = 50
AHEAD_SHOWN = timedelta(days=7)
EMPTY = "the fleet is empty; next: plimsoll demo, or plimsoll fleet import DIR"


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

    Counts nodes of clusters in production. With --as-of it is what was known then; signals of then are not kept.
    """
    words = filters or []

    def answer(keeper: Keeper, state: State) -> Answer:
        now = _moment(state, as_of)
        # What was heard when is known of today only.
        heard = {} if as_of else feeds_heard(keeper.ledger.store)
        if len(words) == 1 and words[0] in state.of(Fleet).nodes:
            memories = {} if as_of else load_memories(keeper.ledger.store, words)
            return _node_answer(state, state.of(Fleet).nodes[words[0]], memories, heard, now)
        if all("=" in word or "<" in word or ">" in word for word in words):
            where = parse_filter(words, now=now)
            nodes = list(find_nodes(state.of(Fleet), where))
            if not nodes:
                check_names(state.of(Fleet), where, now=now)
        else:
            nodes = find_targets(state, words, now=now)
        present = look_now(state, nodes, heard, now=now)
        notes = _ahead_notes(state, nodes, now)
        return _present_answer(state, present, output, notes, is_filtered=bool(words))

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _moment(state: State, as_of: str) -> datetime:
    return parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()


def _present_answer(
    state: State, present: Present, output: Output, ahead: Sequence[str], *, is_filtered: bool
) -> Answer:
    document = {"as_of": state.recorded_at or None, "revision": state.revision, "goals": GOALS, "present": present}
    if output is Output.CSV:
        return Answer(document, [_clusters(present.clusters)])
    if not present.nodes:
        notes = "no such node is in production; next: plimsoll fleet nodes" if is_filtered else EMPTY
        return Answer(document, [], "no nodes", [notes])
    share = present.in_service / present.nodes
    heading = (
        f"{present.in_service:,} of {counted(present.nodes, 'node')} in service ({share:.1%};"
        f" goal {IN_SERVICE_GOAL * 100:g} %),"
        f" {present.healthy_gpus:,} of {present.gpus:,} GPUs;"
        f" out: {present.unplanned:,} unplanned, {present.planned:,} planned"
    )
    columns = ("reason", "kind", "owner", "nodes", "gpus", "clusters", "oldest")
    rows = [(r.reason, r.kind, r.owner, r.nodes, r.gpus, r.clusters, _second(r.oldest)) for r in present.reasons]
    reasons = Table(columns, rows, "out of service, by GPUs", "reasons", REASONS_SHOWN)
    returns = Table(
        ("within_hours", "promised_nodes", "promised_gpus", "expected_nodes", "expected_gpus"),
        [
            (r.within_hours, r.promised_nodes, r.promised_gpus, r.expected_nodes, r.expected_gpus)
            for r in present.returns
        ],
        "coming back (expected: by how long outages have lasted, where nobody promised)",
        "returns",
    )
    feeds = Table(
        ("feed", "nodes", "is_silent", "last_heard"),
        [(feed.feed, feed.nodes, feed.is_silent, _second(feed.heard_at)) for feed in present.feeds],
        "feeds",
        "feeds",
    )
    tables = [_attention(present.attention)] if present.attention else []
    if present.reasons:
        tables += [reasons, returns]
    title = "clusters with the smallest share in service" if len(present.clusters) > 1 else "cluster"
    tables.append(_clusters(present.clusters, title, CLUSTERS_SHOWN))
    tables += [feeds] if present.feeds else []
    return Answer(document, tables, heading, [*ahead, *_present_notes(present)])


def _attention(needs: Sequence[Attention]) -> Table:
    """Two lines each, so that what to type stands on a terminal unbroken."""
    rows: list[tuple[str, str, str]] = []
    for need in needs:
        names = ", ".join(need.nodes[:2]) + (", …" if need.count > 2 else "")
        rows.append((need.need, f"{need.count:>5,}", f"{need.message}: {names}"))
        rows.append(("", "", f"next: {need.next_step}"))
    return Table(("needs_a_person", "nodes", "what"), rows, name="needs")


def _clusters(clusters: Sequence[ClusterNow], title: str = "", shown: int | None = None) -> Table:
    names = ("cluster", "nodes", "in_service", "in_service_share", "unplanned", "planned", "degraded", "unknown")
    rows = [tuple(getattr(cluster, name) for name in names) for cluster in clusters]
    return Table(names, rows, title, "clusters", shown)


def _second(moment: datetime | None) -> datetime | None:
    """A moment as people read it; machines get all of it."""
    return moment and moment.replace(microsecond=0)


def _present_notes(present: Present) -> list[str]:
    counts = ", ".join(f"{count:,} {word}" for word, count in present.by_health.items())
    notes = [f"health: {counts}"]
    if len(present.reasons) > REASONS_SHOWN:
        notes.append(f"… {counted(len(present.reasons) - REASONS_SHOWN, 'more reason')}: -o json lists them all")
    if present.uncovered:
        notes.append(
            f"{counted(present.uncovered, 'node')} without a feed: known from imports, signals and people only."
            " next: plimsoll health observe --help"
        )
    notes.append("next: plimsoll health show NODE, plimsoll health slo, plimsoll health forecast")
    return notes


def _ahead_notes(state: State, nodes: Sequence[Node], now: datetime) -> list[str]:
    """What is announced for the next days, in a line."""
    found = nodes_ahead(state.of(Health), (node.id for node in nodes), now=now, until=now + AHEAD_SHOWN)
    if not found:
        return []
    first = min(found.values(), key=lambda work: work.order)
    return [
        f"work is announced for {counted(len(found), 'node')} within {days_text(AHEAD_SHOWN)}, the first from"
        f" {show_time(_second(first.starts))} ({first.id}); next: plimsoll health announced"
    ]


def _node_tables(
    holds: Sequence[Hold],
    problems: Sequence[Problem],
    past: Sequence[tuple[datetime, Mark]],
    waits: Sequence[tuple[str, str]],
) -> list[Table]:
    tables = [
        Table(
            ("hold", "owner", "service", "since", "until", "reason"),
            [(h.id, h.owner, h.service, _second(h.placed_at), _second(h.expires_at), _why(h)) for h in holds],
            "holds",
            "holds",
        ),
        Table(
            ("problem", "since", "gone", "leads_to"),
            [(p.why, _second(p.since), _second(p.cleared_at), p.action) for p in problems],
            "problems",
            "problems",
        ),
        Table(
            ("time", "service", "reason"),
            [(_second(at), mark.service, mark.reason) for at, mark in past],
            "timeline",
            "timeline",
        ),
    ]
    if waits:
        tables.insert(1, Table(("check", "waits_for"), waits, "before it returns", "checks"))
    return tables


def _node_answer(state: State, node: Node, memories: Memories, heard: Mapping[str, datetime], now: datetime) -> Answer:
    """Everything about one node."""
    health, policy = state.of(Health), policy_in_force(state)
    silent = fallen_silent(health, heard, silence=policy.silence, now=now)
    facts, bench = facts_seen(health, node, silent), Bench(health, policy, memories, now, silent=frozenset(silent))
    tripped = breakers_over(health, node)
    verdict = bench.verdict(node)
    holds = health.holds.get(node.id, ())
    waits = [(check.name, what) for check, what in missing_checks(node, bench)] if _is_validating(node) else []
    timeline = health.timelines.get(node.id)
    entries = list(timeline.entries())[-TIMELINE_SHOWN:] if timeline else []
    past = [(from_microseconds(moment), health.marks[number]) for moment, number in reversed(entries)]
    exits = count_exits(node, health, now - policy.lemon.within)
    is_lemon = exits >= policy.lemon.times
    lemon = f", a lemon: {exits} unplanned exits in {days_text(policy.lemon.within)}" if is_lemon else ""
    heading = f"{node.id}: {facts.health}, {node.service}, {facts.owner}{lemon}" + (
        f" ({facts.why})" if facts.why else ""
    )
    tables = _node_tables(holds, verdict.problems, past, waits)
    document = {
        "as_of": state.recorded_at or None,
        "revision": state.revision,
        "node": node.id,
        "cluster": node.cluster,
        "island": node.island,
        "sku": node.sku,
        "service": node.service,
        "since": node.since,
        "facts": {name: getattr(facts, name) for name in facts.__struct_fields__},
        "feeds": health.covers.get(node.id, ()),
        "holds": holds,
        "waits_for": [{"check": check, "what": what} for check, what in waits],
        "problems": [
            {"signal": str(p.key), "action": p.action, "why": p.why, "is_active": p.is_active} for p in verdict.problems
        ],
        "held_back_by": [{"scope": each.scope, "since": each.since} for each in tripped],
        "exits": exits,
        "timeline": [{"time": at, "service": mark.service, "reason": mark.reason} for at, mark in past],
    }
    notes = [f"in {node.cluster}, island {node.island}, {node.gpus} x {node.sku}"]
    if facts.expected_return:
        notes.append(f"expected back at {show_time(_second(facts.expected_return))}")
    works = [work for work in health.ahead_of.get(node.id, ()) if not work.is_over(now)]
    if works:
        more = f", and {len(works) - 1} more" if len(works) > 1 else ""
        times = f"from {show_time(_second(works[0].starts))} until {show_time(_second(works[0].ends))}"
        notes.append(f"work ahead {times} ({works[0].id} of {works[0].owner}){more}; next: plimsoll health announced")
    for each in tripped:
        since = show_time(_second(each.since))
        notes.append(f"still in service: the breaker {each.scope} holds automation back since {since}")
        notes.append(f"next: plimsoll health breaker {each.scope} --go-on | --dismiss --reason WHY")
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
        acts = _acts(rows)
        table = _every_hold(rows) if output is Output.CSV else acts
        document = {
            "as_of": state.recorded_at or None,
            "revision": state.revision,
            "holds": [{"node": node.id, "hold": hold} for node, hold in rows],
        }
        expired = sum(hold.is_expired(now) for _, hold in rows)
        notes = [f"{counted(len(rows), 'hold')} on {counted(len({node.id for node, _ in rows}), 'node')}"]
        if len(acts.rows) > HOLDS_SHOWN:
            table = Table(acts.columns, acts.rows[:HOLDS_SHOWN]) if output is Output.TABLE else table
            notes[0] += f"; the first {HOLDS_SHOWN} lines, -o json or csv lists all"
        if expired:
            notes.append(f"{expired:,} of them expired; next: plimsoll health sweep")
        if endless := sum(has_no_end(hold, now) for _, hold in rows):
            notes.append(
                f"{endless:,} of them placed by people over {ENDLESS_AFTER.days} days ago, without an end;"
                " next: plimsoll health release HOLD, or hold again with --until"
            )
        return Answer(document, [table], notes=notes)

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _acts(rows: Sequence[tuple[Node, Hold]]) -> Table:
    """For people: one line an act, however many nodes it is on."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for node, hold in rows:
        key = (hold.id, hold.owner, hold.service, hold.scope, _second(hold.placed_at), _second(hold.expires_at))
        groups.setdefault((*key, _why(hold)), []).append(node.id)
    lines = []
    for (hold_id, owner, service, scope, since, until, why), names in groups.items():
        where = names[0] if len(names) == 1 else scope or f"{names[0]}, …"
        lines.append((hold_id, owner, service, len(names), where, since, until, why))
    return Table(("hold", "owner", "service", "nodes", "where", "since", "until", "reason"), lines)


def _why(hold: Hold) -> str:
    return f"{hold.reason} (exclusive)" if hold.is_exclusive else hold.reason


def _every_hold(rows: Sequence[tuple[Node, Hold]]) -> Table:
    """For machines: one line a node and hold."""
    return Table(
        ("hold", "node", "owner", "service", "since", "expires", "exclusive", "scope", "reason"),
        [
            (h.id, n.id, h.owner, h.service, h.placed_at, h.expires_at, h.is_exclusive, h.scope, h.reason)
            for n, h in rows
        ],
    )
