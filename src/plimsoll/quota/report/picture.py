"""The picture of a correction, as a Vega-Lite spec: the fleet as a hull, and below it what each policy takes. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from plimsoll.charts import BLUE, GREEN, INK, RED
from plimsoll.quota.plan import Summary
from plimsoll.quota.report.story import Bar, Story, show_kept

WIDTH, HULL_HEIGHT, ROW_HEIGHT = 480, 34, 26
COLUMN_WIDTH, LABEL_WIDTH = 92, 110
"""Wide enough for the widest of common fonts: a page is drawn with those of whoever reads it."""
TITLE_LETTERS, SUBTITLE_LETTERS = 88, 128
INSIDE_SHARE = 0.07
"""A part of the hull that is at least this long has room for its number."""
PARTS = ("guaranteed", "flex", "never there")
COLOURS = {"domain": list(PARTS), "range": [BLUE, GREEN, RED]}
Spec = dict[str, Any]


def picture(story: Story, *, is_titled: bool = True) -> Spec:
    """The whole of it; a page has its own title."""
    parts = [_hull(story.summary)] if story.summary is not None and story.summary.pools else []
    parts.append(_policies(story.bars))
    spec: Spec = {"vconcat": parts, "spacing": 26, "config": {"axis": {"labelFontSize": 12}}}
    if is_titled:
        subtitle = [story.stamp, *textwrap.wrap(story.lead, SUBTITLE_LETTERS)]
        spec["title"] = {
            "text": textwrap.wrap(story.headline, TITLE_LETTERS), "subtitle": subtitle, "fontSize": 17,
            "subtitlePadding": 8, "offset": 20,
        }  # fmt: skip
        spec["padding"] = 16
    return spec


def _colour(*, has_legend: bool) -> Spec:
    legend = {"orient": "top", "symbolType": "square", "title": None, "columnPadding": 28} if has_legend else None
    return {"field": "part", "type": "nominal", "scale": COLOURS, "legend": legend}


def _hull(summary: Summary) -> Spec:
    """What is there, and what was promised beyond it. The bar begins at 0: its length is the truth."""
    amounts = (summary.guaranteed, summary.flex_standing, summary.never_backed)
    rows = [
        {"part": part, "gpus": gpus, "place": place, "row": "the fleet"}
        for place, (part, gpus) in enumerate(zip(PARTS, amounts, strict=True))
    ]
    end = sum(amounts)
    starts = (0, amounts[0])
    inside = [
        {"gpus": start + gpus / 2, "label": f"{gpus:,} {part}" if part == PARTS[0] else f"{gpus:,}", "row": "the fleet"}
        for start, gpus, part in zip(starts, amounts, PARTS, strict=False)
        if gpus >= INSIDE_SHARE * end
    ]
    works = {"gpus": summary.healthy, "label": f"{summary.healthy:,} work", "row": "the fleet"}
    x = {"field": "gpus", "type": "quantitative", "axis": None, "scale": {"domain": [0, max(end, 1)], "nice": False}}
    y = {"field": "row", "type": "nominal", "title": None, "axis": _labels()}
    layers: list[Spec] = [
        {
            "data": {"values": rows},
            "mark": {"type": "bar", "height": HULL_HEIGHT - 8},
            "encoding": {
                "x": {**x, "stack": "zero"}, "y": y, "color": _colour(has_legend=True),
                "order": {"field": "place", "type": "quantitative"},
            },
        },
        {
            "data": {"values": inside},
            "mark": {"type": "text", "color": "white", "fontWeight": "bold"},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
        {
            "data": {"values": [works]},
            "mark": {"type": "rule", "color": INK, "strokeWidth": 2},
            "encoding": {"x": x},
        },
        {
            "data": {"values": [works]},
            "mark": {"type": "text", "align": "right", "dx": -6, "dy": HULL_HEIGHT / 2 + 7, "color": INK},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
        {
            "data": {"values": [works | {"label": f"{summary.never_backed:,} were never there"}]},
            "mark": {
                "type": "text", "align": "left", "dx": 6, "dy": HULL_HEIGHT / 2 + 7, "color": RED, "fontWeight": "bold"
            },
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
    ]  # fmt: skip
    if not summary.never_backed:
        layers.pop()
    return {"width": WIDTH, "height": HULL_HEIGHT, "layer": layers}


def _labels() -> Spec:
    return {
        "ticks": False, "domain": False, "labelPadding": 8, "labelLimit": LABEL_WIDTH, "minExtent": LABEL_WIDTH,
        "labelFontSize": 12,
    }  # fmt: skip


def _policies(bars: Sequence[Bar]) -> Spec:
    """What each policy takes: never there, and to flex; beside it what that costs and how well it holds."""
    most = max((bar.over or 0 for bar in bars), default=0)
    names = [bar.label for bar in bars]
    chosen = " || ".join(f"datum.value === {json.dumps(bar.label)}" for bar in bars if bar.is_chosen) or "false"
    weight = {"condition": {"test": chosen, "value": "bold"}, "value": "normal"}
    rows = [
        {"policy": name, "part": part, "gpus": gpus, "place": place}
        for name, bar in zip(names, bars, strict=True)
        for place, (part, gpus) in enumerate(((PARTS[2], bar.never_backed), (PARTS[1], bar.to_flex)))
    ]
    axis = _labels() | {"labelFontWeight": weight}
    y = {"field": "policy", "type": "nominal", "sort": names, "title": None, "axis": axis}
    # The longest bar ends before the plot does, so that its number has room.
    x = {
        "field": "gpus", "type": "quantitative", "axis": None, "scale": {"domain": [0, max(most, 1) * 1.18],
        "nice": False},
    }  # fmt: skip
    layers: list[Spec] = [
        {
            "data": {"values": rows},
            "mark": {"type": "bar", "height": ROW_HEIGHT - 9},
            "encoding": {
                "x": {**x, "stack": "zero"}, "y": y, "color": _colour(has_legend=False),
                "order": {"field": "place", "type": "quantitative"},
            },
        },
        {
            "data": {
                "values": [
                    {"policy": name, "gpus": bar.over or 0, "label": "no plan" if bar.over is None else f"{bar.over:,}"}
                    for name, bar in zip(names, bars, strict=True)
                ]
            },
            "mark": {"type": "text", "align": "left", "dx": 5, "color": INK},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
    ]  # fmt: skip
    columns: tuple[tuple[str, Callable[[Bar], str]], ...] = (
        ("running cut", lambda bar: "-" if bar.over is None else f"{bar.running:,}"),
        ("teams", lambda bar: "-" if bar.over is None else f"{bar.teams:,}"),
        ("promise kept", lambda bar: show_kept(bar.kept_share)),
    )
    for number, (heading, text) in enumerate(columns):
        right = WIDTH + (number + 1) * COLUMN_WIDTH
        values = [{"policy": name, "label": text(bar)} for name, bar in zip(names, bars, strict=True)]
        is_last = number == len(columns) - 1
        layers += [_column(values, y, right, is_bold=is_last), _heading(heading, right)]
    layers.append(_heading("GPUs over the line", 0, align="left"))
    return {"width": WIDTH, "height": ROW_HEIGHT * max(1, len(bars)), "layer": layers}


def _column(values: Sequence[Spec], y: Spec, right: int, *, is_bold: bool) -> Spec:
    return {
        "data": {"values": list(values)},
        "mark": {"type": "text", "align": "right", "color": INK, "fontWeight": "bold" if is_bold else "normal"},
        "encoding": {"x": {"value": right}, "y": y, "text": {"field": "label"}},
    }


def _heading(text: str, x: int, *, align: str = "right") -> Spec:
    return {
        "data": {"values": [{"label": text}]},
        "mark": {"type": "text", "align": align, "color": INK, "fontSize": 11},
        "encoding": {"x": {"value": x}, "y": {"value": -9}, "text": {"field": "label"}},
    }
