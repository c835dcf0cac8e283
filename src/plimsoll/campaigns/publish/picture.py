"""A plan as a picture, as Vega-Lite specs: nodes out against the cap, and the calendar by cluster and day. Pure.

Times are drawn as the clocks of the window show them: the numbers given to Vega are wall time taken for UTC, so that
the zone of whoever draws plays no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from plimsoll.campaigns.model import Mode
from plimsoll.campaigns.publish.changes import Changes, counts_text
from plimsoll.campaigns.publish.curve import Curve, area_progress, cap_steps, days_of
from plimsoll.campaigns.publish.grid import Grid, Row
from plimsoll.campaigns.publish.model import Published
from plimsoll.campaigns.publish.text import day_text, moment_text, number_text, proof_text
from plimsoll.charts import BLUE, GREEN, INK, ORANGE, RED
from plimsoll.words import counted

VIOLET = "#9a6ae0"
AREA_COLOURS = {"us": BLUE, "eu": ORANGE, "uk": GREEN, "other": VIOLET}
WIDTH, CURVE_HEIGHT = 1080, 230
ROW_HEIGHT_MOST, ROW_HEIGHT_LEAST, CALENDAR_HEIGHT_MOST = 14.0, 3.0, 2_400.0
LABEL_ROW_HEIGHT_LEAST = 8.0
SIGN_WIDTH = 5.2
DAY_LABELS_MOST = 40
DARK_INK, PAPER, SHADE = "#39434e", "#ffffff", "#eef0f3"
PAPER_THEME: dict[str, Any] = {
    "background": PAPER,
    "padding": 24,
    "axis": {"labelColor": DARK_INK, "titleColor": DARK_INK, "gridColor": "#9aa4b0"},
    "legend": {"labelColor": DARK_INK, "titleColor": DARK_INK, "labelFontSize": 12, "symbolType": "square"},
    "title": {"color": "#151b22", "subtitleColor": DARK_INK, "fontSize": 20, "subtitleFontSize": 13, "offset": 18},
    "text": {"color": DARK_INK},
}
"""A picture that goes into a chat or a document is seen on its own ground, so it brings one."""
Spec = dict[str, Any]
_DAY = timedelta(days=1)


def picture(published: Published, curve: Curve, grid: Grid, found: Changes) -> Spec:
    """The whole plan on one sheet."""
    return {
        "title": {"text": f"{published.name}: plan {published.number}", "subtitle": _subtitle(published, found)},
        "vconcat": [curve_picture(published, curve, is_on_paper=True), calendar_picture(grid)],
        "spacing": 26,
        "resolve": {"scale": {"color": "independent"}},
        "config": PAPER_THEME,
    }


def _subtitle(published: Published, found: Changes) -> list[str]:
    nodes = sum(batch.nodes for batch in published.batches)
    clusters = {published.cluster_of(batch.unit) for batch in published.batches}
    lines = [f"{counted(nodes, 'node')} in {counted(len(clusters), 'cluster')}; {proof_text(published.plan)}"]
    if published.batches:
        first, last = published.batches[0], max(published.batches, key=lambda batch: batch.end)
        days = f"{day_text(published.day(first))} to {day_text(published.day(last))} {published.day(last).year}"
        lines[0] = f"{days} ({published.campaign.window.tz}): {lines[0]}"
    if found.before is not None:
        lines.append(f"since plan {found.before}: {counts_text(found)}")
    if any(batch.mode is Mode.ROLLING for batch in published.batches):
        lines.append("a bar is a batch with its nodes, in its hours of the day; a pale one is a share of a cluster")
    return lines


def _wall(published: Published, moment: datetime) -> int:
    """Wall time in milliseconds."""
    return int(published.local(moment).replace(tzinfo=UTC).timestamp() * 1000)


def _midnight(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp() * 1000)


def curve_picture(published: Published, curve: Curve, *, is_on_paper: bool = False) -> Spec:
    """Nodes out at each moment, by area, under the cap."""
    days = days_of(published)
    x = _days_axis(days, WIDTH, labels_most=24)
    y = {"field": "nodes", "type": "quantitative", "title": "nodes out"}
    layers: list[Spec] = [
        {
            "data": {"values": _areas(published, curve, days)},
            "mark": {"type": "area", "interpolate": "step-after", "opacity": 1},
            "encoding": {"x": x, "y": {**y, "stack": "zero"}, "color": _colour(curve), "order": {"field": "order"}},
        }
    ]
    caps = [
        {"at": _midnight(first), "until": _midnight(last + _DAY), "nodes": most, "label": f"at most {most:,.0f}"}
        for first, last, most in cap_steps(published, days[0], days[-1])
    ]
    if caps:
        layers += [
            {
                "data": {"values": caps},
                "mark": {"type": "rule", "color": RED, "strokeWidth": 1.6, "strokeDash": [6, 3]},
                "encoding": {"x": x, "x2": {"field": "until"}, "y": y},
            },
            {
                "data": {"values": caps},
                "mark": {"type": "text", "align": "left", "dx": 4, "dy": -7, "color": RED, "fontSize": 12},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
        ]
    if (peak := curve.peak) is not None:
        words = f"peak: {peak.total:,} nodes, {moment_text(published, peak.at)}"
        label = [{"at": _wall(published, peak.at), "nodes": peak.total, "label": words}]
        ink = DARK_INK if is_on_paper else INK
        layers += [
            {
                "data": {"values": label},
                "mark": {"type": "point", "color": ink, "filled": True, "size": 42, "opacity": 1},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": label},
                "mark": {"type": "text", "align": "right", "color": ink, "fontWeight": "bold", "fontSize": 12},
                "encoding": {"x": {"value": WIDTH}, "y": {"value": -10}, "text": {"field": "label"}},
            },
        ]
    return {"width": WIDTH, "height": CURVE_HEIGHT, "layer": layers}


def _days_axis(days: Sequence[date], width: float, *, labels_most: int) -> Spec:
    """Whole days, each named in its middle."""
    step = 1 + (len(days) - 1) // labels_most
    axis = {
        "grid": False,
        "format": "%a %-d",
        "values": [_midnight(day) for day in days[::step]],
        "labelOffset": width / len(days) / 2,
        "labelOverlap": False,
        "labelFlush": False,
    }
    scale = {"type": "utc", "domain": [_midnight(days[0]), _midnight(days[-1] + _DAY)]}
    return {"field": "at", "type": "temporal", "scale": scale, "title": None, "axis": axis}


def _colour(curve: Curve) -> Spec:
    areas = curve.areas or tuple(AREA_COLOURS)
    scale = {"domain": list(areas), "range": [AREA_COLOURS[area] for area in areas]}
    return {"field": "area", "type": "nominal", "scale": scale, "legend": {"orient": "top", "title": None}}


def _areas(published: Published, curve: Curve, days: list[date]) -> list[Spec]:
    rows = []
    end = _midnight(days[-1] + _DAY)
    moments = [(_midnight(days[0]), (0,) * len(curve.areas))]
    moments += [(at, point.out) for point in curve.points if (at := _wall(published, point.at)) < end]
    moments.append((end, moments[-1][1]))
    for at, out in moments:
        for order, (area, nodes) in enumerate(zip(curve.areas, out, strict=True)):
            rows.append({"at": at, "area": area, "nodes": nodes, "order": order})
    return rows


def progress_picture(published: Published, curve: Curve, *, width: int = 520, height: int = 200) -> Spec:
    """The share of each area's nodes that have had their turn, day by day."""
    days = days_of(published)
    rows = []
    for area, shares in area_progress(published, curve.areas).items():
        rows.append({"at": _midnight(days[0]), "area": area, "share": 0.0})
        for day, share in zip(days, shares, strict=True):
            rows.append({"at": _midnight(day + _DAY), "area": area, "share": share})
    return {
        "width": width,
        "height": height,
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 2.2},
        "encoding": {
            "x": _days_axis(days, width, labels_most=9),
            "y": {
                "field": "share", "type": "quantitative", "title": "share of the area's nodes begun",
                "axis": {"format": "%", "tickCount": 5}, "scale": {"domain": [0, 1]},
            },
            "color": _colour(curve),
        },
    }  # fmt: skip


def calendar_picture(grid: Grid) -> Spec:
    """Units downwards, days across; inside a day the hours of the window."""
    height = min(ROW_HEIGHT_MOST, max(ROW_HEIGHT_LEAST, CALENDAR_HEIGHT_MOST / max(1, len(grid.rows))))
    places = {day: number for number, day in enumerate(grid.days)}
    column = WIDTH / len(grid.days)
    x = {"type": "quantitative", "axis": None, "scale": {"domain": [0, len(grid.days)], "nice": False, "zero": False}}
    has_labels = height >= LABEL_ROW_HEIGHT_LEAST
    labels = {
        "domain": False, "ticks": False, "labelFontSize": min(11.0, height - 2), "labelPadding": 8,
        "labelOverlap": False, "labels": has_labels, "labelLimit": 160,
    }  # fmt: skip
    y = {"field": "unit", "type": "nominal", "sort": [row.unit for row in grid.rows], "title": None, "axis": labels}
    bars = [bar for row in grid.rows for bar in _bars(row, places, column)]
    step = 1 + len(grid.days) // DAY_LABELS_MOST
    heads = [
        {
            "x": number + 0.5,
            "weekday": f"{day:%a}",
            "day": f"{day.day}" if number and day.day > 1 else f"{day.day} {day:%b}",
        }
        for number, day in enumerate(grid.days)
        if number % step == 0
    ]
    shades = [
        {"x": place, "x2": place + 1, "unit": row.unit}
        for row in grid.rows
        for day, place in places.items()
        if day not in grid.open_days or day in row.closed
    ]
    colours = {"domain": list(AREA_COLOURS), "range": list(AREA_COLOURS.values())}
    colour = {"field": "area", "type": "nominal", "legend": None, "scale": colours}
    edges = [{"x": number} for number in range(len(grid.days) + 1)]
    across = {"x": {**x, "field": "x"}, "x2": {"field": "x2"}}
    layers: list[Spec] = [
        {"data": {"values": shades}, "mark": {"type": "rect", "color": SHADE}, "encoding": {**across, "y": y}},
        {
            "data": {"values": edges},
            "mark": {"type": "rule", "color": "#d5dae0", "strokeWidth": 0.7},
            "encoding": {"x": {**x, "field": "x"}},
        },
        {
            "data": {"values": bars},
            "mark": {"type": "bar", "height": {"band": 0.82}, "cornerRadius": 1.5},
            "encoding": {
                **across, "y": y, "color": colour,
                "opacity": {"field": "opacity", "type": "quantitative", "scale": None},
            },
        },
        {
            "data": {"values": [bar for bar in bars if bar["label"]] if has_labels else []},
            "mark": {"type": "text", "color": "white", "fontSize": min(9.0, height - 4), "fontWeight": "bold"},
            "encoding": {"x": {**x, "field": "middle"}, "y": y, "text": {"field": "label"}},
        },
        *(
            {
                "data": {"values": heads},
                "mark": {"type": "text", "color": DARK_INK, "fontSize": size, "fontWeight": weight},
                "encoding": {"x": {**x, "field": "x"}, "y": {"value": above}, "text": {"field": field}},
            }
            for field, above, size, weight in (("weekday", -26, 10, "normal"), ("day", -12, 12, "bold"))
        ),
    ]  # fmt: skip
    return {"width": WIDTH, "height": {"step": height}, "layer": layers}


def _bars(row: Row, places: dict[date, int], column: float) -> list[Spec]:
    bars = []
    for day, cells in row.cells.items():
        for cell in cells:
            left, right = places[day] + 0.04 + 0.92 * cell.left, places[day] + 0.04 + 0.92 * cell.right
            label = number_text(cell.batch.nodes)
            has_room = (right - left) * column >= SIGN_WIDTH * (len(label) + 1)
            bars.append(
                {
                    "unit": row.unit,
                    "area": row.area,
                    "x": left,
                    "x2": right,
                    "middle": (left + right) / 2,
                    "label": label if has_room else "",
                    "opacity": 0.72 if cell.batch.mode is Mode.ROLLING else 1.0,
                }
            )
    return bars
