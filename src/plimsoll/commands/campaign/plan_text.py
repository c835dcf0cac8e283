"""A plan for people: what it comes to, day by day, and what there is to say when none exists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo

from plimsoll.answers import Output, Table
from plimsoll.campaigns.model import Batch, Campaign, Plan, Status
from plimsoll.campaigns.planning import Planned
from plimsoll.words import counted

CLUSTERS_NAMED = 4
MOVES_SHOWN = 20


def batches_text(count: int) -> str:
    return f"{count:,} batch" if count == 1 else f"{count:,} batches"


def status_line(campaign: Campaign, planned: Planned) -> str:
    """The number first: what the plan comes to, and how good it is proved to be."""
    plan = planned.plan
    if plan.score is None:
        if plan.status is Status.INFEASIBLE:
            return f"{campaign.name}: no plan exists"
        return f"{campaign.name}: no plan was found in {planned.seconds:.0f} s, and none was proved impossible"
    if not plan.batches:
        return f"{campaign.name}: nothing goes out of service"
    nodes = sum(batch.nodes for batch in plan.batches)
    days = _days(campaign, plan.batches)
    gap = plan.gap if planned.proof is None else planned.proof.gap
    proof = f", proved within {gap:.2%} of the best" if gap is not None else ""
    if plan.status is Status.OPTIMAL:
        proof = ", proved best"
    return (
        f"{campaign.name}, plan {plan.number}: {counted(nodes, 'node')} in {batches_text(len(plan.batches))} on"
        f" {counted(len(days), 'day')}, {min(days)} to {max(days)}; at most {plan.score.peak:,.0f} nodes out{proof}"
    )


def _days(campaign: Campaign, batches: Sequence[Batch]) -> dict[date, list[Batch]]:
    zone = ZoneInfo(campaign.window.tz)
    found: dict[date, list[Batch]] = {}
    for batch in sorted(batches, key=lambda each: (each.start, each.unit)):
        found.setdefault(batch.start.astimezone(zone).date(), []).append(batch)
    return found


def plan_tables(campaign: Campaign, planned: Planned, output: Output) -> list[Table]:
    """Day by day for people; every batch for CSV; what collides and what would help where there is no plan."""
    plan = planned.plan
    if plan.score is None:
        return _impossible_tables(planned)
    if output is Output.CSV:
        return [batch_table(plan)]
    rows = []
    for day, batches in sorted(_days(campaign, plan.batches).items()):
        units = list(dict.fromkeys(batch.unit for batch in batches))
        more = f" and {len(units) - CLUSTERS_NAMED} more" if len(units) > CLUSTERS_NAMED else ""
        named = ", ".join(units[:CLUSTERS_NAMED]) + more
        rows.append((day, len(batches), sum(batch.nodes for batch in batches), _peak(batches), named))
    tables = [Table(("day", "batches", "nodes", "most_out", "clusters"), rows)]
    return [*tables, *([_moves(planned)] if planned.moved else [])]


def batch_table(plan: Plan) -> Table:
    rows = [(b.unit, str(b.mode), b.number, b.nodes, b.start, b.end) for b in plan.batches]
    return Table(("cluster", "mode", "batch", "nodes", "start", "end"), rows)


def _peak(batches: Sequence[Batch]) -> int:
    """The most nodes that are out for work at once among these."""
    steps = sorted([(each.start, 1, each.nodes) for each in batches] + [(each.end, 0, -each.nodes) for each in batches])
    now = most = 0
    for _, _, change in steps:
        now += change
        most = max(most, now)
    return most


def _moves(planned: Planned) -> Table:
    starts = {batch.id: batch.start for batch in planned.plan.batches}
    rows = [(name, starts[name], planned.why.get(name.partition("#")[0], "")) for name in planned.moved[:MOVES_SHOWN]]
    return Table(("batch", "now_at", "why"), rows, f"{batches_text(len(planned.moved))} moved")


def _impossible_tables(planned: Planned) -> list[Table]:
    explained = planned.explained
    if explained is None:
        return []
    tables = []
    if explained.arithmetic:
        tables.append(Table(("what",), [(line.text,) for line in explained.arithmetic], "By simple sums"))
    if explained.conflict:
        rows = [(each.limit, each.text) for each in explained.conflict]
        tables.append(Table(("limit", "what"), rows, "These collide, and would not without any one of them"))
    if explained.relaxations:
        relaxed = [(each.limit, each.text, each.possible) for each in explained.relaxations]
        tables.append(Table(("limit", "change", "makes_it_possible"), relaxed, "What would help, each by itself"))
    return tables


def _bound_text(planned: Planned) -> str:
    if planned.plan.bound is not None:
        return f"; no plan can be below {planned.plan.bound:,.0f}"
    proof = planned.proof
    if proof is None or proof.bound is None:
        return ""
    return f"; with what moves weigh {proof.total:,.0f}, and no plan can be below {proof.bound:,.0f} of that"


def plan_notes(campaign: Campaign, planned: Planned, *, is_dry_run: bool, now: datetime | None = None) -> list[str]:
    """What else there is to say; `now` where it is a plan that has not started."""
    plan = planned.plan
    notes = [f"note: {note}" for note in planned.roll.notes]
    if planned.roll.impactless:
        nodes = sum(len(names) for names in planned.roll.impactless.values())
        notes.append(f"{counted(nodes, 'node')} in {len(planned.roll.impactless)} clusters change without an outage")
    if plan.score is None:
        if plan.status is Status.UNKNOWN:
            notes.append("next: give it more time with --seconds")
        if planned.help_text:
            notes.append(planned.help_text)
        return notes
    score, greedy = plan.score, plan.greedy
    parts = f"exposure {score.exposure:,.0f}, imbalance {score.imbalance:.3f}, peak {score.peak:,.0f}"
    notes.append(f"total {score.total:,.0f} = {parts}, weighted{_bound_text(planned)}")
    if greedy is not None and plan.bound is not None:
        gap = (greedy.total - plan.bound) / max(1.0, greedy.total)
        notes.append(f"first fit in the order of the file comes to {greedy.total:,.0f}, a gap of {gap:.1%}")
    elif plan.batches and greedy is None and not planned.why and plan.number == 1:
        notes.append("first fit in the order of the file finds no plan at all")
    past = [batch for batch in plan.batches if now is not None and batch.start < now]
    if past:
        notes.append(
            f"{batches_text(len(past))} of {len(plan.batches)} would begin before now: a plan to look at, not to start;"
            " next: a later start in the file"
        )
    elif not is_dry_run:
        start = "" if now is None else f", then plimsoll campaign start {campaign.name}"
        notes.append(f"next: plimsoll campaign publish {campaign.name} DIR{start}")
    if is_dry_run:
        notes.append("dry run: nothing was recorded")
    return notes
