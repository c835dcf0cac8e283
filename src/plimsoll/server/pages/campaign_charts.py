"""The pictures of a campaign's page, as Vega-Lite: nodes out against the cap, and how even the areas are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

COLOURS = {"us": "@guaranteed", "eu": "@flex", "uk": "@assigned", "other": "@out"}


def curve_chart(calendar: Mapping[str, Any]) -> dict[str, Any] | None:
    """Nodes out over time, by area, under the lowest limit on all nodes. None where nothing goes out."""
    areas, points = calendar["curve"]["areas"], calendar["curve"]["points"]
    if not points:
        return None
    values = [
        {"at": point["at"], "area": area, "nodes": point["out"][place]}
        for point in points
        for place, area in enumerate(areas)
    ]
    caps = []
    for step in calendar["lowest_cap"]:
        ends = str(date.fromisoformat(step["until"]) + timedelta(days=1))
        caps += [
            {"at": step["from"] + "T00:00:00Z", "cap": step["at_most"]},
            {"at": ends + "T00:00:00Z", "cap": step["at_most"]},
        ]
    x = {"field": "at", "type": "temporal", "scale": {"type": "utc"}, "axis": {"title": None, "format": "%-d %b"}}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": values},
            "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.85},
            "encoding": {
                "x": x,
                "y": {"field": "nodes", "type": "quantitative", "stack": True, "title": "nodes out"},
                "color": _colours(areas),
                "tooltip": [
                    {"field": "at", "type": "temporal", "format": "%-d %b %H:%M", "title": "from (UTC)"},
                    {"field": "area"},
                    {"field": "nodes", "format": ","},
                ],
            },
        }
    ]
    if caps:
        layers.append(
            {
                "data": {"values": caps},
                "mark": {"type": "line", "color": "@bad", "strokeDash": [5, 3]},
                "encoding": {
                    "x": x,
                    "y": {"field": "cap", "type": "quantitative"},
                    "tooltip": [{"field": "cap", "format": ",", "title": "limit"}],
                },
            }
        )
    if points[0]["at"][:10] <= calendar["today"] <= points[-1]["at"][:10]:
        layers.append(
            {
                "data": {"values": [{"at": calendar["today"] + "T00:00:00Z"}]},
                "mark": {"type": "rule", "color": "@accent", "strokeWidth": 1.5},
                "encoding": {"x": x},
            }
        )
    return {"layer": layers}


def balance_chart(calendar: Mapping[str, Any]) -> dict[str, Any] | None:
    """The share of each area's nodes that goes out on each day. None where nothing goes out."""
    totals = {each["area"]: each["nodes"] for each in calendar["areas"]}
    values = [
        {"day": each["day"], "area": area, "share": nodes / totals[area], "nodes": nodes}
        for each in calendar["days"]
        for area, nodes in each["areas"].items()
        if totals.get(area)
    ]
    if not values:
        return None
    return {
        "data": {"values": values},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {
                "field": "day",
                "type": "ordinal",
                "timeUnit": "utcyearmonthdate",
                "axis": {"title": None, "format": "%-d %b", "labelAngle": 0, "labelOverlap": True},
            },
            "xOffset": {"field": "area", "sort": list(totals)},
            "y": {"field": "share", "type": "quantitative", "title": "of the area’s nodes", "axis": {"format": ".0%"}},
            "color": _colours(list(totals)),
            "tooltip": [
                {
                    "field": "day",
                    "type": "temporal",
                    "timeUnit": "utcyearmonthdate",
                    "format": "%a %-d %b",
                    "title": "day",
                },
                {"field": "area"},
                {"field": "share", "format": ".1%"},
                {"field": "nodes", "format": ","},
            ],
        },
    }


def _colours(areas: list[str]) -> dict[str, Any]:
    return {
        "field": "area",
        "type": "nominal",
        "scale": {"domain": areas, "range": [COLOURS.get(area, "@muted") for area in areas]},
    }
