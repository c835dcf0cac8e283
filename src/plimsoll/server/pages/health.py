"""The health page: service levels first, then what needs a person with the act beside it, and what is out and why.

Decides what stands where and which act belongs to which need; the numbers are those of `health show` and `health slo`.
Service levels of a period take a second to work out, so they are pages of their own that this one shows parts of.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.format import moment_of
from plimsoll.server.pages.prose import prose

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

PERIODS = (7, 14, 30, 90)
DAYS_DEFAULT = 30
CLUSTERS_SHOWN = 12
REASONS_SHOWN = 12
HOLDS_SHOWN = 40
WORKS_SHOWN = 8
OFFENDERS_SHOWN = 15
NEEDS = {
    "breaker_tripped": ("Breaker tripped", "bad"),
    "feed_silent": ("Silent feed", "bad"),
    "unhealthy_in_service": ("Unhealthy, and in service", "bad"),
    "stuck": ("Out for too long", "warn"),
    "hold_without_end": ("Hold without an end", "warn"),
    "hold_expired": ("Hold expired", "warn"),
    "overdue": ("Overdue", "warn"),
    "lemon": ("Lemons", "warn"),
    "waiting_for_tick": ("Waits for a check", "info"),
}
HELD = ("quarantined", "draining", "maintenance", "repair")
HOLD_DEFAULTS = {"reason": "", "expires_at": None, "is_exclusive": False}
"""What a document leaves out where nobody said it."""
SETTABLE = (*HELD, "validating", "in_service", "retired")


async def health(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    shown, held, works = await asyncio.gather(
        visit.ask("health show"), visit.ask("health holds"), visit.ask("health announced")
    )
    present, goal = shown["present"], shown["goals"]["in_service_share"]
    attention = [with_words(need) for need in present["attention"]]
    holds = hold_groups(held["holds"])
    days = period(visit)
    return {
        "present": present,
        "share": present["in_service"] / present["nodes"] if present["nodes"] else None,
        "goal": goal,
        "attention": attention,
        "breakers": [need for need in attention if need["need"] == "breaker_tripped"],
        "silent": [feed for feed in present["feeds"] if feed["is_silent"]],
        "reasons": present["reasons"][:REASONS_SHOWN],
        "reason_count": len(present["reasons"]),
        "clusters": present["clusters"][:CLUSTERS_SHOWN],
        "clusters_more": present["clusters"][CLUSTERS_SHOWN:],
        "below": sum(row["in_service_share"] < goal for row in present["clusters"]),
        "holds": holds[:HOLDS_SHOWN],
        "hold_count": len(holds),
        "ahead": works["ahead"][:WORKS_SHOWN],
        "ahead_count": len(works["ahead"]),
        "days": days,
        "checks": [need["about"] for need in attention if need["need"] == "waiting_for_tick"],
        "held_services": HELD,
        "settable": SETTABLE,
        "may_operate": visit.may("operate"),
        "prose": prose,
    }


def with_words(need: Mapping[str, Any]) -> dict[str, Any]:
    """A need with its title and tone; one that has no words here yet is told by its code."""
    title, tone = NEEDS.get(need["need"], (need["need"].replace("_", " "), ""))
    return {**need, "title": title, "tone": tone}


def period(visit: Visit) -> int:
    """The days that the URL asks for; one of those that there are tabs for."""
    text = visit.query.get("days", "")
    return int(text) if text in {str(days) for days in PERIODS} else DAYS_DEFAULT


def hold_groups(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line for the nodes that are held alike; the newest first. `is_all`: no other line has a hold of this id."""
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        hold = HOLD_DEFAULTS | row["hold"]
        until = str(hold["expires_at"] or "")
        key = (hold["id"], hold["owner"], hold["service"], until, hold["reason"])
        group = groups.setdefault(key, {**hold, "nodes": []})
        group["nodes"].append(row["node"])
        group["placed_at"] = min(group["placed_at"], hold["placed_at"])
    lines = Counter(key[0] for key in groups)
    for group in groups.values():
        group["is_all"] = lines[group["id"]] == 1
    return sorted(groups.values(), key=lambda hold: str(hold["placed_at"]), reverse=True)


async def levels(visit: Visit) -> dict[str, object]:
    """Service levels of a period against their goals, and how they moved."""
    days = period(visit)
    slo, kept, uptime = await asyncio.gather(
        visit.ask("health slo", begin=f"{days}d"),
        visit.ask("quota promise", days=days),
        visit.ask("workload uptime"),
    )
    series = slo["trend"]["series"]
    return {
        "days": days,
        "periods": PERIODS,
        "slo": slo,
        "total": slo["total"],
        "before": slo["trend"]["before"],
        "kept": kept,
        "uptime": uptime,
        "series": series,
        "share_spec": share_spec(series, slo["goals"]["in_service_share"]),
        "interruptions_spec": interruptions_spec(series),
        "says": _says(slo),
    }


def _says(slo: Mapping[str, Any]) -> str:
    """The picture in a sentence."""
    shares = [point["in_service_share"] for point in slo["trend"]["series"] if point["in_service_share"] is not None]
    if not shares:
        return "No node was in production in this time."
    return (
        f"Between {min(shares):.1%} and {max(shares):.1%} of the nodes were in service;"
        f" the goal is {slo['goals']['in_service_share']:.0%}."
    )


def share_spec(series: Sequence[Mapping[str, Any]], goal: float) -> dict[str, Any]:
    """Vega-Lite: the share of nodes in service as steps, and the goal."""
    values = [
        {"from": point["from"], "share": point["in_service_share"]}
        for point in series
        if point["in_service_share"] is not None
    ]
    if values:
        values.append({"from": series[-1]["to"], "share": values[-1]["share"]})
    low = min([goal, *(value["share"] for value in values)])
    x = {"field": "from", "type": "temporal", "title": None, "axis": {"format": "%-d %b", "tickCount": 6}}
    scale = {"domain": [max(0.0, low - (1.0 - low) / 3), 1.0], "nice": False}
    y = {"field": "share", "type": "quantitative", "title": None, "scale": scale, "axis": {"format": ".1%"}}
    tip = [
        {"field": "from", "type": "temporal", "title": "from", "format": "%-d %b"},
        {"field": "share", "type": "quantitative", "title": "in service", "format": ".2%"},
    ]
    rule = {"values": [{"share": goal, "label": f"goal {goal:.0%}"}]}
    return {
        "layer": [
            {"data": rule, "mark": {"type": "rule", "color": "@ink", "strokeDash": [4, 3]}, "encoding": {"y": y}},
            {
                "data": rule,
                "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 4, "dy": -2, "color": "@ink"},
                "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "label"}},
            },
            {
                "data": {"values": values},
                "mark": {"type": "line", "interpolate": "step-after", "color": "@guaranteed", "strokeWidth": 2},
                "encoding": {"x": x, "y": y, "tooltip": tip},
            },
        ]
    }


def interruptions_spec(series: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Vega-Lite: interruptions a day, planned and unplanned as two lines: one must not hide the other."""
    values = []
    for point in series:
        begin, end = moment_of(point["from"]), moment_of(point["to"])
        assert begin is not None
        assert end is not None
        days = (end - begin) / timedelta(days=1)
        for kind in ("unplanned", "planned"):
            count = point[f"interruptions_{kind}"]
            values.append({"from": point["from"], "kind": kind, "a_day": round(count / days, 2) if days else 0.0})
    return {
        "data": {"values": values},
        "mark": {"type": "bar"},
        "encoding": {
            "x": {"field": "from", "type": "ordinal", "timeUnit": "yearmonthdate", "title": None,
                  "axis": {"format": "%-d %b", "labelOverlap": True, "labelAngle": 0}},
            "xOffset": {"field": "kind"},
            "y": {"field": "a_day", "type": "quantitative", "title": None},
            "color": {"field": "kind", "type": "nominal", "title": None,
                      "scale": {"domain": ["unplanned", "planned"], "range": ["@over", "@assigned"]},
                      "legend": {"orient": "top"}},
            "tooltip": [{"field": "kind"},
                        {"field": "a_day", "type": "quantitative", "title": "a day", "format": ".1f"}],
        },
    }  # fmt: skip


async def lemons(visit: Visit) -> dict[str, object]:
    """Nodes that keep coming back broken, and what the time was lost to."""
    days = period(visit)
    slo = await visit.ask("health slo", begin=f"{days}d")
    offenders = slo["offenders"]
    most = [each for each in offenders["by_interruptions"] if each["interruptions"] > 0]
    return {
        "days": days,
        "lemons": offenders["lemons"],
        "rule": {"exits": offenders["lemon_exits"], "days": offenders["lemon_days"]},
        "offenders": most[:OFFENDERS_SHOWN],
        "losses": slo["reasons"],
        "lost_planned": slo["total"]["gpu_hours_lost_planned"],
        "lost_unplanned": slo["total"]["gpu_hours_lost_unplanned"],
    }
