"""Incidents, as who is on call asks: what is wrong, who is hurt, planned work or a fault, and what changed before.

Decides the words of a kind, whether an incident is planned work or a fault by what is out where, and which of the
changes of a day are told. The numbers are those of `incident list` and `health show`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.changes import KINDS, told
from plimsoll.server.pages.prose import prose

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

WORDS = {
    "person": ("opened by a person", ""),
    "broken_promise": ("broken promise", "bad"),
    "breaker": ("breaker tripped", "bad"),
    "silent_feed": ("silent feed", "warn"),
    "cap": ("over the cap", "bad"),
}
MEASURES = {"broken_promise": "short", "breaker": "held back", "silent_feed": "not seen", "cap": "over the cap"}
UNITS = {"gpus": "GPUs", "nodes": "nodes", "a100e": "A100e"}
FAULT, PLANNED, BOTH = ("a fault", "bad"), ("planned work", "info"), ("planned work and faults", "warn")
CLOSED_SHOWN = 30
NOTICES_SHOWN = 20
DAY = "24h"
EVENTS_ASKED = 100
ACTS_SHOWN = 12
MOVERS_SHOWN = 6


async def incidents(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    found, notices = await asyncio.gather(visit.ask("incident list", show_all=True), visit.ask("incident notices"))
    is_open = [each for each in found if each["closed_at"] is None]
    out = await _out(visit) if is_open else {}
    shown = [incident_row(each, out) for each in is_open]
    closed = sorted((each for each in found if each["closed_at"]), key=lambda each: str(each["closed_at"]))
    return {
        "open": sorted(shown, key=lambda each: (not each["is_on"], each["tone"] != "bad", each["opened_at"])),
        "hurt": sorted({team for each in shown for team in each["numbers"]["teams"]}),
        "closed": [incident_row(each, {}) for each in reversed(closed)][:CLOSED_SHOWN],
        "closed_count": len(closed),
        "notices": notices[:NOTICES_SHOWN],
        "notice_count": len(notices),
        "may_operate": visit.may("operate"),
        "prose": prose,
    }


async def _out(visit: Visit) -> dict[str, Mapping[str, Any]]:
    """What is out in each cluster, planned and unplanned apart. Of the whole fleet: that answer is one for all who ask,
    and a campaign may be about every cluster."""
    present = (await visit.ask("health show"))["present"]
    return {row["cluster"]: row for row in present["clusters"]}


def incident_row(incident: Mapping[str, Any], out: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An incident with its words, and whether it is planned work or a fault."""
    words, tone = ("a campaign’s own", "info") if is_planned(incident) else words_of(incident["kind"])
    numbers, unit = incident["numbers"], UNITS.get(incident["unit"], incident["unit"])
    here = [out[name] for name in incident["clusters"] if name in out]
    planned, unplanned = (sum(row[kind] for row in here) for kind in ("planned", "unplanned"))
    return {
        **incident,
        "words": words,
        "tone": tone,
        "unit_words": unit,
        "measure": MEASURES.get(incident["kind"], ""),
        "hours": numbers["seconds"] / 3600,
        "verdict": verdict(incident["kind"], incident["campaign"], planned, unplanned),
        "planned": planned if here else None,
        "unplanned": unplanned if here else None,
        "href": _href(incident["about"]),
    }


def words_of(kind: str) -> tuple[str, str]:
    """A kind in words, and its tone; one that has none here yet is told by its code."""
    return WORDS.get(kind, (kind.replace("_", " "), ""))


def is_planned(incident: Mapping[str, Any]) -> bool:
    """Whether it is the one that a campaign has opened for its own work: nothing is wrong."""
    return incident["kind"] == "person" and bool(incident["campaign"])


def told_calmly(incidents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Open incidents as pages of the fleet tell them: faults first and in red, planned work after them in blue."""
    found = [
        {**each, "tone": "info", "title": f"Planned work: {each['title']}"} if is_planned(each)
        else {**each, "tone": "bad"}
        for each in incidents
        if each["closed_at"] is None
    ]  # fmt: skip
    return sorted(found, key=lambda each: each["tone"] != "bad")


def verdict(kind: str, campaign: str, planned: int, unplanned: int) -> tuple[str, str] | None:
    """Planned work, a fault, or both: by its kind where that says so, else by what is out in its clusters.

    What a person has opened may be about anything: it is not judged.
    """
    if kind == "cap" or campaign:
        return PLANNED
    if kind in ("breaker", "silent_feed"):
        return FAULT
    if kind == "person" or not (planned or unplanned):
        return None
    if not planned:
        return FAULT
    return BOTH if unplanned else PLANNED


def _href(about: str) -> str:
    """Where what is wrong can be seen."""
    kind, _, rest = about.partition("/")
    if kind == "pool" and rest:
        return "/clusters/" + rest.partition("/")[0]
    return {"breaker": "/health#attention", "feed": "/health#feeds"}.get(kind, "")


async def incident(visit: Visit) -> dict[str, object]:
    """One incident: its timeline, what it came to, and what owners were told meanwhile. What is out now says nothing
    about one that is over."""
    shown = await visit.ask("incident show", name=visit.path["incident"])
    notices = await visit.ask("incident notices", incident=shown["id"])
    row = incident_row(shown, {} if shown["closed_at"] else await _out(visit))
    return {
        "shown": row,
        "notes": list(reversed(shown["notes"])),
        "posts": shown["posts"],
        "notices": notices[:NOTICES_SHOWN],
        "notice_count": len(notices),
        "has_chat": visit.settings["has_chat"],
        "spec": course_spec(row, visit.stamp.recorded_at) if len(shown["course"]) > 1 else None,
        "may_operate": visit.may("operate"),
        "prose": prose,
    }


def course_spec(row: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Vega-Lite: the amount over time, as steps."""
    values = [{"at": at, "amount": amount} for at, amount in row["course"]]
    end = str(row["closed_at"] or now)
    if values and end > str(values[-1]["at"]):
        values.append({"at": end, "amount": values[-1]["amount"]})
    tip = [
        {"field": "at", "type": "temporal", "title": "from", "format": "%-d %b %H:%M:%S"},
        {"field": "amount", "type": "quantitative", "title": row["unit_words"]},
    ]
    return {
        "data": {"values": values},
        "mark": {"type": "area", "interpolate": "step-after", "line": {"color": "@over"}, "color": "@over",
                 "opacity": 0.25},
        "encoding": {
            "x": {"field": "at", "type": "temporal", "title": None, "axis": {"tickCount": 6}},
            "y": {"field": "amount", "type": "quantitative", "title": f"{row['unit_words']} {row['measure']}"},
            "tooltip": tip,
        },
    }  # fmt: skip


async def day(visit: Visit) -> dict[str, object]:
    """What changed in the last 24 hours: what was lost to faults and to planned work, and what people did."""
    asked = (visit.ask("audit log", kind=kind, since=DAY, limit=EVENTS_ASKED) for kind in KINDS)
    slo, campaigns, *logs = await asyncio.gather(visit.ask("health slo", begin=DAY), visit.ask("campaign list"), *asked)
    acts = [act for kind, log in zip(KINDS, logs, strict=True) for act in told(kind, log["events"])]
    acts = once(sorted(acts, key=lambda act: str(act["at"]), reverse=True))
    return {
        "total": slo["total"],
        "lost": movers(slo["groups"], "interruptions_unplanned"),
        "worked_on": movers(slo["groups"], "interruptions_planned"),
        "back": slo["total"]["repairs"]["count"] + slo["total"]["planned_work"]["count"],
        "reasons": [each for each in slo["reasons"] if not each["is_planned"]][:3],
        "campaigns": [each for each in campaigns if each["phase"] in ("running", "paused", "cancelling")],
        "acts": acts[:ACTS_SHOWN],
        "act_count": len(acts),
    }


def once(acts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What names nothing and is said again and again, as of a breaker that trips further, is one line: its newest."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for act in acts:
        key = (act["revision"],) if act["where"] else (act["words"], act["actor"])
        if key in found:
            found[key]["times"] += 1
        else:
            found[key] = {**act, "times": 1}
    return list(found.values())


def movers(groups: Sequence[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """The clusters with the most interruptions of a kind."""
    return sorted((each for each in groups if each[key]), key=lambda each: (-each[key], each["name"]))[:MOVERS_SHOWN]
