"""The calendar on the page of a plan: clusters downwards, days across, and what moved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from html import escape

from plimsoll.campaigns.model import Batch, Mode
from plimsoll.campaigns.publish.changes import ChangeKind, UnitChange, move_text
from plimsoll.campaigns.publish.curve import DayCount
from plimsoll.campaigns.publish.grid import Cell, Grid, Row
from plimsoll.campaigns.publish.markup import scroll, section
from plimsoll.campaigns.publish.model import Published, feed_file
from plimsoll.campaigns.publish.text import hour_text, when_text
from plimsoll.words import counted

CELLS_MAX = 40_000
"""A calendar with more shows only the days on which something happens."""
ARROWS = {ChangeKind.LATER: "→", ChangeKind.EARLIER: "←", ChangeKind.ADDED: "+"}


def calendar_section(published: Published, grid: Grid, counts: Sequence[DayCount]) -> str:
    if not grid.rows:
        return ""
    days = list(grid.days)
    if len(days) * len(grid.rows) > CELLS_MAX:
        days = [day for day in days if any(day in row.cells or day in row.ghosts for row in grid.rows)]
    today = published.local(published.generated_at).date()
    head = "".join(_day_head(day, is_first=place == 0, is_today=day == today) for place, day in enumerate(days))
    rows = []
    for area, listed in grid.areas():
        nodes = sum(row.nodes for row in listed)
        words = f"<b>{escape(area)}</b> · {counted(len(listed), 'cluster')}, {counted(nodes, 'node')}"
        dot = f'<span class="dot {escape(area)}"></span>'
        rows.append(f'<tr class="group"><th colspan="{len(days) + 1}"><span class="in">{dot}{words}</span></th></tr>')
        rows += [_row(published, grid, row, days) for row in listed]
    by_day = {count.day: count for count in counts}
    foot = "".join(_foot(by_day.get(day)) for day in days)
    top = f'<thead><tr><th class="u">cluster</th>{head}</tr></thead>'
    end = f'<tfoot><tr><th class="u" scope="row">nodes going out</th>{foot}</tr></tfoot>'
    table = f'<table class="cal" style="--days:{len(days)}">{top}<tbody>{"".join(rows)}</tbody>{end}</table>'
    words = "Start and nodes of each batch; the line under them is its part of the day's window. Times are in "
    note = f'<p class="soft small">{words}{escape(published.campaign.window.tz)}. A name leads to its calendar.</p>'
    return section("calendar", "Calendar", note, _legend(grid), scroll(table, label="calendar by cluster and day"))


def _day_head(day: date, *, is_first: bool, is_today: bool) -> str:
    month = f" {day:%b}" if is_first or day.day == 1 else ""
    return f'<th scope="col"{" class=today" if is_today else ""}>{day:%a}<b>{day.day}{month}</b></th>'


def _legend(grid: Grid) -> str:
    cells = [cell for row in grid.rows for listed in row.cells.values() for cell in listed]
    keys = [f'<span><i class="key {escape(area)}"></i>{escape(area)}</span>' for area, _ in grid.areas()]
    if any(cell.batch.mode is Mode.ROLLING for cell in cells):
        keys.append('<span><i class="key pale"></i>a share of the cluster each day</span>')
    if any(row.closed for row in grid.rows) or len(grid.open_days) < len(grid.days):
        keys.append('<span><i class="key shut"></i>may not be touched</span>')
    if any(cell.change for cell in cells):
        keys.append('<span><i class="key moved"></i>changed</span>')
    if any(row.ghosts for row in grid.rows):
        keys.append('<span><i class="key was"></i>was here in the plan before</span>')
    return f'<div class="legend">{"".join(keys)}</div>'


def _foot(count: DayCount | None) -> str:
    if count is None or not count.nodes:
        return "<td>–</td>"
    return f'<td title="{count.peak:,} at once at most"><b>{count.nodes:,}</b></td>'


def _row(published: Published, grid: Grid, row: Row, days: Sequence[date]) -> str:
    feed = feed_file("cluster", row.cluster)
    mark = " ◆" if row.is_canary else ""
    title = f"{row.unit}: {row.purpose}{', goes first' if row.is_canary else ''}"
    head = (
        f'<th class="u" scope="row" title="{escape(title)}"><small>{row.nodes:,}</small>'
        f'<a href="{feed}">{escape(row.unit)}</a>{mark}</th>'
    )
    cells = []
    for day in days:
        inner = "".join(_cell(published, row, cell) for cell in row.cells.get(day, ()))
        inner += "".join(_ghost(published, change.before) for change in row.ghosts.get(day, ()) if change.before)
        if day not in grid.open_days or day in row.closed:
            why = row.closed.get(day, "outside the window")
            cells.append(f'<td class="shut" title="{escape(why)}">{inner}</td>')
        else:
            cells.append(f"<td>{inner}</td>")
    return f"<tr>{head}{''.join(cells)}</tr>"


def _cell(published: Published, row: Row, cell: Cell) -> str:
    batch = cell.batch
    kinds = ["b", row.area, str(batch.mode)]
    words = [when_text(published, batch), counted(batch.nodes, "node")]
    if (parts := published.batch_counts.get(batch.unit, 1)) > 1:
        words.append(f"batch {batch.number} of {parts}")
    mark = ""
    if cell.change is not None:
        kinds.append("moved")
        words.append(move_text(UnitChange(cell.change.kind, row.unit, (cell.change,))))
        mark = ARROWS.get(cell.change.kind, "±")
    if cell.is_done:
        kinds.append("done")
        mark = "✓"
    bar = f'<u style="left:{cell.left:.0%};width:{cell.right - cell.left:.0%}"></u>'
    return (
        f'<div class="{escape(" ".join(kinds))}" title="{escape("; ".join(words))}">'
        f"<i>{mark}{hour_text(published.local(batch.start))}</i><b>{batch.nodes:,}</b>{bar}</div>"
    )


def _ghost(published: Published, batch: Batch) -> str:
    words = f"plan before: {when_text(published, batch)}, {counted(batch.nodes, 'node')}"
    return f'<div class="was" title="{escape(words)}">{hour_text(published.local(batch.start))}</div>'
