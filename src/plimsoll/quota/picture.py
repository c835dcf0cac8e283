"""The picture everybody should know, as a Vega-Lite spec: a pool as a hull under its load line. Pure.

Three bars to one scale: the machines, what was promised of them, and what runs. The line stands across all of them, and
what is promised beyond it is red.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plimsoll.charts import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED
from plimsoll.quota.hull import Hull

WIDTH, ROW_HEIGHT = 560, 30
ROWS = ("machines", "promised", "running")
SAFE, FLEX, UNUSED = "under the line, guaranteed", "flex", "out of service, idle"
PENDING, TO_FLEX, NEVER = "not guaranteed yet", "over: goes to flex", "over: never there"
COLOURS = {SAFE: BLUE, FLEX: GREEN, UNUSED: GREY, PENDING: PALE, TO_FLEX: ORANGE, NEVER: RED}
NUMBER_SHARE = 0.07
"""A part at least this long has room for its number."""
Spec = dict[str, Any]


def picture(hulls: Sequence[Hull]) -> Spec:
    """One hull below the other."""
    return {"vconcat": [_hull(hull, has_legend=place == 0) for place, hull in enumerate(hulls)], "spacing": 24}


def parts(hull: Hull) -> list[tuple[str, str, int]]:
    """Bar, part and GPUs, each bar from the left."""
    idle = min(hull.idle, hull.allocated)
    inside = hull.allocated - hull.flex_used
    within = min(hull.assigned, hull.line)
    guaranteed = min(hull.guaranteed, within)
    return [
        ("machines", SAFE, hull.line),
        ("machines", FLEX, hull.healthy - hull.line),
        ("machines", UNUSED, hull.total - hull.healthy),
        ("promised", SAFE, guaranteed),
        ("promised", PENDING, within - guaranteed),
        ("promised", TO_FLEX, hull.to_flex),
        ("promised", NEVER, hull.never_backed),
        ("running", SAFE, max(0, inside - max(0, idle - hull.flex_used))),
        ("running", FLEX, max(0, hull.flex_used - idle)),
        ("running", UNUSED, idle),
    ]


def _hull(hull: Hull, *, has_legend: bool) -> Spec:
    found = [(bar, part, gpus) for bar, part, gpus in parts(hull) if gpus > 0]
    most = max(hull.total, hull.assigned, hull.allocated, 1)
    rows, numbers, ends = [], [], dict.fromkeys(ROWS, 0)
    for place, (bar, part, gpus) in enumerate(found):
        rows.append({"bar": bar, "part": part, "gpus": gpus, "place": place})
        if gpus >= NUMBER_SHARE * most:
            numbers.append({"bar": bar, "gpus": ends[bar] + gpus / 2, "label": f"{gpus:,}"})
        ends[bar] += gpus
    x = {"field": "gpus", "type": "quantitative", "axis": None, "scale": {"domain": [0, most], "nice": False}}
    labels = {"ticks": False, "domain": False, "labelPadding": 8, "labelFontSize": 12, "minExtent": 80}
    y = {"field": "bar", "type": "nominal", "sort": list(ROWS), "title": None, "axis": labels}
    legend = {"orient": "top", "symbolType": "square", "title": None, "columns": 3} if has_legend else None
    colour = {
        "field": "part", "type": "nominal", "legend": legend,
        "scale": {"domain": list(COLOURS), "range": list(COLOURS.values())},
    }  # fmt: skip
    line = [{"gpus": hull.line, "label": f"the line: {hull.line:,}", "bar": ROWS[0]}]
    return {
        "title": {"text": f"{hull.cluster} {hull.sku}", "subtitle": _subtitle(hull), "offset": 8},
        "width": WIDTH,
        "height": {"step": ROW_HEIGHT},
        "layer": [
            {
                "data": {"values": rows},
                "mark": {"type": "bar", "height": ROW_HEIGHT - 8},
                "encoding": {
                    "x": {**x, "stack": "zero"}, "y": y, "color": colour,
                    "order": {"field": "place", "type": "quantitative"},
                },
            },
            {
                "data": {"values": numbers},
                "mark": {"type": "text", "color": "white", "fontWeight": "bold"},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
            {
                "data": {"values": line},
                "mark": {"type": "rule", "color": INK, "strokeWidth": 2},
                "encoding": {"x": x},
            },
            {
                "data": {"values": line},
                "mark": {"type": "text", "align": "right", "dx": -6, "dy": -ROW_HEIGHT / 2 - 3, "color": INK},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
        ],
    }  # fmt: skip


def _subtitle(hull: Hull) -> str:
    text = f"{hull.total:,} GPUs installed, {hull.healthy:,} healthy, {hull.assigned:,} assigned"
    if hull.shortfall:
        return f"{text}: {hull.shortfall:,} guaranteed GPUs do not work now"
    if hull.over:
        return f"{text}: {hull.over:,} over the line, {hull.never_backed:,} of them never there"
    return f"{text}; {hull.flex_standing:,} standing flex"
