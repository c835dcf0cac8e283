"""`plimsoll health outages`: the rows that service levels are added up from, so that every number can be traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.health.app import app
from plimsoll.commands.health.levels import NO_NODE, From, To, moment_of, selection_notes, stamp
from plimsoll.commands.health.levels_text import kind_of, minute_text
from plimsoll.commands.options import AsOf, Db, Filters, Format, Watch, answer_state
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.health.fold import Health
from plimsoll.health.levels.losses import Outage, list_outages
from plimsoll.health.levels.outages import Period
from plimsoll.health.levels.slo import Scope, choose_nodes, parse_period, past_of
from plimsoll.state.state import State
from plimsoll.times import show_time, utc_now
from plimsoll.words import counted

OUTAGES_SHOWN = 50


@app.command("outages")
def outages_command(
    context: typer.Context,
    filters: Filters = None,
    begin: From = "",
    end: To = "",
    planned: Annotated[
        bool | None, typer.Option("--planned/--unplanned", help="Only these.", show_default="both")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="At most so many, 0 for all.", show_default="50 in a table, else all"),
    ] = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """List the outages behind the service levels of a period, newest first, as far as known at its end.

    Added up they are the numbers of `plimsoll health slo` for the same nodes and period.
    """
    where = parse_filter(filters or [], now=utc_now())
    most = limit if limit is not None else OUTAGES_SHOWN if output is Output.TABLE else 0

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        period, scope = parse_period(begin, end, now=now), choose_nodes(state.of(Fleet), where, now=now)
        past = past_of(state.of(Health), scope, period)
        found = list(list_outages(past, period, is_planned=planned))
        shown = found[:most] if most else found
        totals = _outage_totals(found)
        document = stamp(state, period) | {"count": len(found), "totals": totals, "outages": shown}
        if output is Output.CSV:
            return Answer(document, [Table(_OUTAGE_COLUMNS, [_csv_row(outage) for outage in shown])])
        columns = ("node", "cluster", "began", "ended", "hours", "gpu_hours", "kind", "reasons")
        table = Table(columns, [_outage_row(outage) for outage in shown])
        return Answer(document, [table], _outages_heading(totals, period), _outage_notes(found, shown, scope))

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


_OUTAGE_COLUMNS = [name for name in Outage.__struct_fields__ if name != "stretches"]


def _csv_row(outage: Outage) -> list[object]:
    return ["; ".join(outage.reasons) if name == "reasons" else getattr(outage, name) for name in _OUTAGE_COLUMNS]


def _outage_row(outage: Outage) -> tuple[object, ...]:
    began = show_time(outage.began) + ("~" if outage.is_assumed else "")
    ended = "open" if outage.ended is None else show_time(outage.ended)
    if outage.ended_by == "retired":
        ended = "retired"
    kind = kind_of(outage.is_planned)
    if outage.hours_planned and outage.hours_unplanned:
        kind = "both"
    reasons = ", ".join(reason or "(none given)" for reason in outage.reasons)
    return outage.node, outage.cluster, began, ended, outage.hours, round(outage.gpu_hours, 1), kind, reasons


def _outage_totals(found: Sequence[Outage]) -> dict[str, Any]:
    """What the rows add up to: the numbers of `health slo` for the same nodes and period."""
    repaired = [o for o in found if not o.is_planned and o.ended_in_period and o.ended_by == "in_service"]
    return {
        "node_hours_out_planned": round(sum(outage.hours_planned for outage in found), 6),
        "node_hours_out_unplanned": round(sum(outage.hours_unplanned for outage in found), 6),
        "gpu_hours_lost": round(sum(outage.gpu_hours for outage in found), 6),
        "interruptions_planned": sum(outage.is_planned and outage.began_in_period for outage in found),
        "interruptions_unplanned": sum(not outage.is_planned and outage.began_in_period for outage in found),
        "repair_count": len(repaired),
        "mttr_hours": round(sum(o.length_hours for o in repaired) / len(repaired), 6) if repaired else None,
        "open": sum(outage.ended is None for outage in found),
    }


def _outages_heading(totals: dict[str, Any], period: Period) -> str:
    begun = totals["interruptions_planned"] + totals["interruptions_unplanned"]
    ended, still_open = totals["repair_count"], totals["open"]
    ones, are = "one" if ended == 1 else "ones", "is" if still_open == 1 else "are"
    return (
        f"{minute_text(period.begin)} to {minute_text(period.end)}: {counted(begun, 'outage')} began"
        f" ({totals['interruptions_unplanned']:,} unplanned), {ended:,} unplanned {ones} ended,\n"
        f"{still_open:,} {are} open at its end; {totals['gpu_hours_lost']:,.0f} GPU-hours lost"
    )


def _outage_notes(found: Sequence[Outage], shown: Sequence[Outage], scope: Scope) -> list[str]:
    notes = [f"{counted(len(found), 'outage')} with hours in the period"]
    if len(shown) < len(found):
        notes = [f"{len(shown):,} of {counted(len(found), 'outage')}; --limit 0 for all, or a narrower filter"]
    if any(outage.is_assumed for outage in shown):
        notes.append("~ nobody said when: the moment is the one at which it was noticed")
    notes += selection_notes(scope)
    if not scope.nodes:
        return [*notes, NO_NODE]
    node = shown[0].node if shown else "NODE"
    return [*notes, f"next: plimsoll audit log --subject node/{node}    the events behind an outage"]
