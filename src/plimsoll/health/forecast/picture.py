"""A forecast as a picture: Vega-Lite specs, in GPUs. Pure."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np

from plimsoll.charts import BLUE, GREY, INK, ORANGE, PALE
from plimsoll.health.forecast.counts import quantile
from plimsoll.health.forecast.live import Forecast, PoolForecast
from plimsoll.health.forecast.method import planned_most
from plimsoll.times import show_time

PAST_POINTS_MAX = 720
PAST_HORIZONS = 5
"""The past is drawn so many times as long as the time ahead, so that both can be read."""
WIDTH, HEIGHT, ROW_HEIGHT = 760, 300, 16
BAND_RISKS, BAND_TAIL_MOST = 5.0, 0.25
"""Beyond either edge of the band lie so many times the risk of the promise. It is wider than the promise's own: that is
an average over the horizon, and a guard may take twice the risk, so a narrow band would seem to contradict it."""
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
            "data": {"values": past_points(forecast, pool)},
            "mark": {"type": "line", "interpolate": "step-after", "color": BLUE, "strokeWidth": 1.4},
            "encoding": {"x": x, "y": y},
        },
        {"data": {"values": ahead_points(forecast, pool)}, "mark": {"type": "area", "color": PALE, "opacity": 1},
         "encoding": band},
        {
            "data": {"values": ahead_points(forecast, pool)},
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
    subtitle = [
        f"line: lowest of each hour; band: {1 - 2 * band_tail(forecast):.0%} of cases, dashed: the middle one;"
        f" promise by {pool.method}; {pool.total - pool.healthy} of {pool.total} nodes are out now",
        *_planned_note(forecast, pool),
        *_below_note(forecast, pool),
    ]
    return {"width": WIDTH, "height": HEIGHT, "title": {"text": title, "subtitle": subtitle}, "layer": layers}


def band_tail(forecast: Forecast) -> float:
    """The chance beyond either edge of the band."""
    return min(BAND_RISKS * forecast.ask.risk, BAND_TAIL_MOST)


def _planned_note(forecast: Forecast, pool: PoolForecast) -> list[str]:
    if not pool.planned:
        return []
    nodes = planned_most(pool.planned, forecast.ask.horizon)
    last = forecast.start + timedelta(hours=max(taking.end for taking in pool.planned))
    return [f"planned work is in it: {nodes} {'node' if nodes == 1 else 'nodes'}, until {last:%b %d} at the latest"]


def _below_note(forecast: Forecast, pool: PoolForecast) -> list[str]:
    """Known work of a few hours may be within the risk: then the band says what the promise leaves out."""
    low = min(point["low"] for point in ahead_points(forecast, pool))
    if low >= pool.promised * pool.gpus_per_node:
        return []
    return [f"where the band is below the promise lie the {forecast.ask.risk:.2%} of hours in which it may be broken"]


def past_points(forecast: Forecast, pool: PoolForecast) -> list[Spec]:
    """The window, each point the lowest of some hours, in GPUs."""
    past = pool.past[-PAST_HORIZONS * forecast.ask.horizon :]
    step = max(1, -(-len(past) // PAST_POINTS_MAX))
    first = forecast.history_end - timedelta(hours=len(past))
    points = [
        (first + timedelta(hours=place), int(past[place : place + step].min())) for place in range(0, len(past), step)
    ]
    # Since the history ended nothing was told, so all is as it was.
    points += [(forecast.history_end, pool.healthy), (forecast.start, pool.healthy)]
    return [{"time": show_time(moment), "gpus": nodes * pool.gpus_per_node} for moment, nodes in points]


def ahead_points(forecast: Forecast, pool: PoolForecast) -> list[Spec]:
    """What is expected, in GPUs: the middle, and all but the rare cases on either side."""
    tail = band_tail(forecast)
    now = pool.healthy * pool.gpus_per_node
    points = [{"time": show_time(forecast.start), "low": now, "gpus": now, "high": now}]
    for hour, chances in zip(pool.expected.middle, pool.expected.cumulated_by_part, strict=True):
        low, middle, high = (
            max(0, pool.total - quantile(chances, level)) * pool.gpus_per_node for level in (1 - tail, 0.5, tail)
        )
        moment = show_time(forecast.start + timedelta(hours=float(np.round(hour))))
        points.append({"time": moment, "low": low, "gpus": middle, "high": high})
    end = show_time(forecast.start + timedelta(hours=forecast.ask.horizon))
    return [*points, {**points[-1], "time": end}]


def fleet_picture(forecast: Forecast) -> Spec:
    """All pools: installed, healthy and promised, as shares of what is installed, the thinnest first."""
    pools = sorted(forecast.pools, key=lambda each: each.promised / each.total)
    low = min(pool.promised / pool.total for pool in pools)
    first = max(0.0, math.floor(low * 20 - 0.2) / 20)
    rows = [
        {
            "pool": f"{pool.pool.cluster} {pool.pool.sku}",
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
    # Shares are far from 0, so they are dots: a bar that does not begin at 0 would mislead by its length.
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "color": GREY, "strokeWidth": 1},
            "encoding": {"y": y, "x": {**x, "field": "promised"}, "x2": {"field": "installed"}},
        },
        {
            "mark": {"type": "circle", "color": BLUE, "size": 55, "opacity": 1},
            "encoding": {"y": y, "x": {**x, "field": "healthy"}},
        },
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
    subtitle = "orange: promised (the number is in GPUs); blue: healthy now; the line ends at what is installed"
    return {
        "width": WIDTH - 200,
        "height": ROW_HEIGHT * max(1, len(rows)),
        "title": {"text": title, "subtitle": subtitle},
        "data": {"values": rows},
        "layer": layers,
    }


def picture(forecast: Forecast) -> Spec:
    """One pool in full, several clusters as rows of dots, a cluster's few pools one above the other."""
    if len({pool.pool.cluster for pool in forecast.pools}) > 1:
        return fleet_picture(forecast)
    return {"vconcat": [pool_picture(forecast, pool) for pool in forecast.pools]}
