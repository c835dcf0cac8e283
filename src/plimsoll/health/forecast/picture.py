"""A forecast as a picture: Vega-Lite specs, in GPUs. Pure."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np

from plimsoll.charts import BLUE, GREY, INK, ORANGE, PALE
from plimsoll.health.forecast.counts import quantile
from plimsoll.health.forecast.live import Forecast, PoolForecast
from plimsoll.times import show_time

PAST_POINTS_MAX = 720
PAST_HORIZONS = 5
"""The past is drawn so many times as long as the time ahead, so that both can be read."""
WIDTH, HEIGHT, ROW_HEIGHT = 760, 300, 16
Spec = dict[str, Any]


def pool_picture(forecast: Forecast, pool: PoolForecast) -> Spec:
    """One pool: how many GPUs were healthy, what is expected, and what can be promised."""
    gpus, horizon = pool.gpus_per_node, forecast.ask.horizon
    end = forecast.start + timedelta(hours=horizon)
    days = f"{horizon / 24:g} days"
    promised = {"time": show_time(forecast.start), "until": show_time(end), "gpus": pool.promised * gpus}
    total = {"gpus": pool.total * gpus, "label": f"{pool.total * gpus:,} installed"}
    label = {
        "time": show_time(forecast.start),
        "gpus": pool.promised * gpus,
        "label": f"{pool.promised * gpus:,} promised",
    }
    x = {"field": "time", "type": "temporal", "title": None, "axis": {"grid": False, "format": "%b %d"}}
    y = {"field": "gpus", "type": "quantitative", "title": "healthy GPUs", "scale": {"zero": False, "nice": True}}
    band = {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "x": x}
    layers: list[Spec] = [
        {
            "data": {"values": [total]},
            "mark": {"type": "rule", "color": GREY, "strokeDash": [2, 3]},
            "encoding": {"y": y},
        },
        {
            "data": {"values": [total]},
            "mark": {"type": "text", "align": "left", "dx": 4, "dy": -7, "color": INK},
            "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "label"}},
        },
        {
            "data": {"values": _past(forecast, pool)},
            "mark": {"type": "line", "interpolate": "step-after", "color": BLUE, "strokeWidth": 1.4},
            "encoding": {"x": x, "y": y},
        },
        {"data": {"values": _ahead(forecast, pool)}, "mark": {"type": "area", "color": PALE, "opacity": 1},
         "encoding": band},
        {
            "data": {"values": _ahead(forecast, pool)},
            "mark": {"type": "line", "color": "white", "strokeDash": [4, 3], "strokeWidth": 1.4},
            "encoding": {"x": x, "y": y},
        },
        {
            "data": {"values": [promised]},
            "mark": {"type": "rule", "color": ORANGE, "strokeWidth": 3},
            "encoding": {"x": x, "x2": {"field": "until"}, "y": y},
        },
        {
            "data": {"values": [label]},
            "mark": {"type": "text", "align": "right", "dx": -6, "color": ORANGE, "fontWeight": "bold"},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
        {
            "data": {"values": [{"time": show_time(forecast.start)}]},
            "mark": {"type": "rule", "color": GREY},
            "encoding": {"x": x},
        },
    ]  # fmt: skip
    title = f"{pool.pool.cluster} {pool.pool.sku}: {pool.promised * gpus:,} GPUs for {days} at {forecast.ask.target:g}"
    subtitle = (
        f"line: lowest of each hour; band: 98 cases in 100; promise by {pool.method};"
        f" {pool.total - pool.healthy} of {pool.total} nodes are out now"
    )
    return {"width": WIDTH, "height": HEIGHT, "title": {"text": title, "subtitle": subtitle}, "layer": layers}


def _past(forecast: Forecast, pool: PoolForecast) -> list[Spec]:
    """The window, each point the lowest of some hours."""
    past = pool.past[-PAST_HORIZONS * forecast.ask.horizon :]
    step = max(1, -(-len(past) // PAST_POINTS_MAX))
    first = forecast.start - timedelta(hours=len(past))
    points = [
        (first + timedelta(hours=place), int(past[place : place + step].min())) for place in range(0, len(past), step)
    ]
    points.append((forecast.start, pool.healthy))
    return [{"time": show_time(moment), "gpus": nodes * pool.gpus_per_node} for moment, nodes in points]


def _ahead(forecast: Forecast, pool: PoolForecast) -> list[Spec]:
    """What is expected: the middle, and all but one case in a hundred on either side."""
    now = pool.healthy * pool.gpus_per_node
    points = [{"time": show_time(forecast.start), "low": now, "gpus": now, "high": now}]
    for hour, chances in zip(pool.expected.middle, pool.expected.cumulated_by_part, strict=True):
        low, middle, high = (
            max(0, pool.total - quantile(chances, level)) * pool.gpus_per_node for level in (0.99, 0.5, 0.01)
        )
        moment = show_time(forecast.start + timedelta(hours=float(np.round(hour))))
        points.append({"time": moment, "low": low, "gpus": middle, "high": high})
    end = show_time(forecast.start + timedelta(hours=forecast.ask.horizon))
    return [*points, {**points[-1], "time": end}]


def fleet_picture(forecast: Forecast) -> Spec:
    """All pools: installed, healthy and promised, as shares of what is installed, the thinnest first."""
    pools = sorted(forecast.pools, key=lambda each: each.promised / each.total)
    low = min(pool.promised / pool.total for pool in pools)
    first = max(0.0, math.floor(low * 10 - 1) / 10)
    rows = [
        {
            "pool": f"{pool.pool.cluster} {pool.pool.sku}",
            "first": first,
            "installed": 1.0,
            "healthy": pool.healthy / pool.total,
            "promised": pool.promised / pool.total,
            "gpus": f"{pool.promised * pool.gpus_per_node:,}",
        }
        for pool in pools
    ]
    y = {"field": "pool", "type": "nominal", "sort": None, "title": None}
    x = {
        "type": "quantitative",
        "scale": {"domain": [first, 1.0]},
        "title": "share of the installed GPUs",
        "axis": {"format": "%"},
    }
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "color": color, "height": 9},
            "encoding": {"y": y, "x": {**x, "field": "first"}, "x2": {"field": field}},
        }
        for field, color in (("installed", GREY), ("healthy", BLUE))
    ]
    layers += [
        {
            "mark": {"type": "tick", "color": ORANGE, "thickness": 3, "height": 13, "opacity": 1},
            "encoding": {"y": y, "x": {**x, "field": "promised"}},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 10, "color": INK},
            "encoding": {"y": y, "x": {**x, "field": "installed"}, "text": {"field": "gpus"}},
        },
    ]
    promised = sum(pool.promised * pool.gpus_per_node for pool in forecast.pools)
    title = f"{promised:,} GPUs can be promised for {forecast.ask.horizon / 24:g} days at {forecast.ask.target:g}"
    subtitle = "orange: promised (the number is in GPUs); blue: healthy now; grey: installed"
    return {
        "width": WIDTH - 200,
        "height": ROW_HEIGHT * max(1, len(rows)),
        "title": {"text": title, "subtitle": subtitle},
        "data": {"values": rows},
        "layer": layers,
    }


def picture(forecast: Forecast) -> Spec:
    """One pool in full, several side by side in bars, a cluster's few pools one above the other."""
    if len({pool.pool.cluster for pool in forecast.pools}) > 1:
        return fleet_picture(forecast)
    return {"vconcat": [pool_picture(forecast, pool) for pool in forecast.pools]}
