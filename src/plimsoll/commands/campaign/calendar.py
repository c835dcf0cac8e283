"""`plimsoll campaign calendar`: a plan by cluster and day, and how much is out at each moment, as data for a page.

Decides nothing: the numbers are those of `campaigns/publish`. Must never name teams or quota: the provider reads it.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.model import Plan
from plimsoll.campaigns.publish.changes import what_changed
from plimsoll.campaigns.publish.curve import (
    CapUse,
    Curve,
    cap_on,
    cap_steps,
    cap_uses,
    day_counts,
    out_curve,
)
from plimsoll.campaigns.publish.grid import Cell, Row, make_grid
from plimsoll.campaigns.publish.model import Published
from plimsoll.campaigns.publish.text import batches_text, limit_text, proof_text
from plimsoll.campaigns.run.desk import find_run
from plimsoll.campaigns.run.progress import Run
from plimsoll.campaigns.units import Roll, make_units
from plimsoll.commands.campaign.app import app
from plimsoll.commands.campaign.compare import older_plan
from plimsoll.commands.campaign.publish import published_plan
from plimsoll.commands.campaign.run import Name
from plimsoll.commands.options import AsOf, Db, Format, answer_keeper
from plimsoll.errors import PlimsollError, Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time
from plimsoll.words import counted

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@app.command("calendar")
def calendar_command(
    context: typer.Context, name: Name, db: Db = "", output: Format = Output.TABLE, as_of: AsOf = ""
) -> None:
    """A plan by cluster and day: hours, nodes, what is shut, what moved, and nodes out against the limits."""

    def answer(keeper: Keeper, state: State) -> Answer:
        run = find_run(state, name)
        now = parse_time(state.recorded_at) if as_of and state.recorded_at else keeper.ledger.clock()
        try:
            roll = make_units(run.campaign, state.of(Fleet))
        except PlimsollError:  # the fleet does not fit the file any more: the plan is still shown, the gate says why
            roll = Roll((), {}, ())
        return _answer(run, published_plan(state, run, _plan_before(keeper, run), now=now, roll=roll))

    answer_keeper(context, db, as_of, output, watch=False, answer=answer)


def _plan_before(keeper: Keeper, run: Run) -> Plan | None:
    """The plan with the number before, where there was one."""
    if run.plan.number <= 1:
        return None
    try:
        return older_plan(keeper, run.name, str(run.plan.number - 1))[1]
    except Refused:  # plans are numbered through, but a number may have been refused
        return None


def _answer(run: Run, published: Published) -> Answer:
    curve, found = out_curve(published), what_changed(published)
    grid = make_grid(published, found)
    days = _days(published, curve)
    document = {
        **_head(run, published),
        "days": days,
        "units": [_unit(run, published, row) for row in grid.rows],
        "areas": _areas(published, curve),
        "curve": {
            "areas": list(curve.areas),
            "points": [{"at": each.at, "out": list(each.out), "work": each.work} for each in curve.points],
        },
        "caps": [_cap(use) for use in cap_uses(published)],
        "lowest_cap": [
            {"from": first, "until": last, "at_most": most}
            for first, last, most in cap_steps(published, grid.days[0], grid.days[-1])
        ],
        "since": found.before,
        "changed": len(found.changes),
        "same": found.same,
    }
    columns = ("day", "clusters", "batches", "nodes", "most_out", "cap")
    rows = [(each["day"], each["units"], each["batches"], each["nodes"], each["peak"], each["cap"]) for each in days]
    heading = (
        f"{run.name}, plan {run.plan.number}: {batches_text(len(published.batches))} of"
        f" {counted(len(grid.rows), 'cluster')}, {published.campaign.window.tz}"
    )
    return Answer(document, [Table(columns, rows, "Nodes going out, by day")], heading, [])


def _head(run: Run, published: Published) -> dict[str, Any]:
    campaign, plan, window = run.campaign, run.plan, run.campaign.window
    score = plan.score
    return {
        "campaign": run.name,
        "number": plan.number,
        "published": run.published or None,
        "phase": str(run.phase),
        "today": published.local(published.generated_at).date(),
        "start": campaign.start,
        "deadline": campaign.deadline,
        "window": {
            "opens": _clock(window.opens),
            "closes": _clock(window.closes),
            "tz": window.tz,
            "days": [WEEKDAYS[day] for day in window.days],
        },
        "changes": [{"component": each.component, "version": each.version} for each in campaign.changes],
        "roster": list(campaign.roster),
        "confirms": campaign.running.confirms,
        "has_command": bool(campaign.running.work),
        "proof": {
            "status": str(plan.status),
            "text": proof_text(plan),
            "total": score.total if score else None,
            "exposure": score.exposure if score else None,
            "imbalance": score.imbalance if score else None,
            "peak": score.peak if score else None,
            "bound": plan.bound,
            "gap": plan.gap,
            "greedy": plan.greedy.total if plan.greedy else None,
        },
    }


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _days(published: Published, curve: Curve) -> list[dict[str, Any]]:
    by_area: dict[date, dict[str, int]] = defaultdict(lambda: dict.fromkeys(curve.areas, 0))
    for batch in published.batches:
        by_area[published.day(batch)][published.area_of(batch.unit)] += batch.nodes
    return [
        {
            "day": each.day,
            "is_open": each.is_open,
            "units": each.units,
            "batches": each.batches,
            "nodes": each.nodes,
            "peak": each.peak,
            "cap": cap_on(published, each.day),
            "areas": by_area[each.day],
        }
        for each in day_counts(published, curve)
    ]


def _areas(published: Published, curve: Curve) -> list[dict[str, Any]]:
    found = []
    for place, area in enumerate(curve.areas):
        batches = [batch for batch in published.batches if published.area_of(batch.unit) == area]
        days = [published.day(batch) for batch in batches]
        found.append(
            {
                "area": area,
                "clusters": len({published.cluster_of(batch.unit) for batch in batches}),
                "nodes": sum(batch.nodes for batch in batches),
                "most_out": max(point.out[place] for point in curve.points),
                "first_day": min(days),
                "last_day": max(days),
            }
        )
    return found


def _unit(run: Run, published: Published, row: Row) -> dict[str, Any]:
    cells = [_cell(run, published, day, cell) for day, listed in sorted(row.cells.items()) for cell in listed]
    return {
        "unit": row.unit,
        "cluster": row.cluster,
        "area": row.area,
        "purpose": row.purpose,
        "nodes": row.nodes,
        "is_canary": row.is_canary,
        "batches": cells,
        "was": [
            {"day": day, "batch": each.id, "start": each.before.start, "nodes": each.before.nodes}
            for day, listed in sorted(row.ghosts.items())
            for each in listed
            if each.before is not None
        ],
        "shut": [{"day": day, "why": why} for day, why in sorted(row.closed.items())],
    }


def _cell(run: Run, published: Published, day: date, cell: Cell) -> dict[str, Any]:
    batch = cell.batch
    return {
        "batch": batch.id,
        "number": batch.number,
        "of": published.batch_counts.get(batch.unit, 1),
        "mode": str(batch.mode),
        "nodes": batch.nodes,
        "day": day,
        "start": batch.start,
        "end": batch.end,
        "start_local": published.local(batch.start).isoformat(),
        "end_local": published.local(batch.end).isoformat(),
        "left": round(cell.left, 4),
        "right": round(cell.right, 4),
        "step": str(run.step_of(batch.id)),
        "change": None if cell.change is None else str(cell.change.kind),
    }


def _cap(use: CapUse) -> dict[str, Any]:
    return {
        "limit": limit_text(use.cap.limit),
        "unit": str(use.cap.limit.unit),
        "at_most": use.cap.most,
        "most": use.most,
        "share": round(use.share, 6),
        "at": use.at,
    }
