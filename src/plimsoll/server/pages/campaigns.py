"""The campaigns page: every campaign with how far it is and what comes next, over one calendar; and making one.

Decides what is next and how full a day looks. Must never ask what needs more than seeing waves: the provider comes
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from plimsoll.errors import Refused

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

DAYS_MAX = 62
SHOWN_MAX = 12
"""So many campaigns have a row in the calendar; those that are over come last."""
LEVELS = 4
BACK = timedelta(days=7)
OVER = ("done", "cancelled")
TONES = {"running": "good", "paused": "warn", "cancelling": "warn", "planned": "info"}


async def campaigns(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    listed = await visit.ask("campaign list")
    rows: list[dict[str, Any]] = []
    for each in sorted(listed, key=lambda row: (row["phase"] in OVER, str(row["first"] or ""))):
        calendar = await visit.ask("campaign calendar", name=each["campaign"]) if len(rows) < SHOWN_MAX else None
        rows.append(campaign_row(each, calendar))
    may_make = visit.may("operate")
    return {
        "rows": rows,
        "running": [row for row in rows if row["phase"] not in OVER],
        "grid": month(rows),
        "may_make": may_make,
        "example": await _example(visit) if may_make else "",
        "is_partner": not visit.may("see"),
    }


async def _example(visit: Visit) -> str:
    """A file to begin with; none where there are no nodes to plan for."""
    try:
        return await visit.ask_text("campaign example")
    except Refused:
        return ""


def campaign_row(listed: Mapping[str, Any], calendar: Mapping[str, Any] | None) -> dict[str, Any]:
    """A campaign with its next batch and its days."""
    batches = [batch for unit in (calendar or {}).get("units", ()) for batch in unit["batches"]]
    ahead = sorted((batch["start"], batch["batch"]) for batch in batches if batch["step"] == "planned")
    out = [batch for batch in batches if batch["step"] not in ("planned", "returned", "cancelled")]
    return {
        **listed,
        "share": listed["done"] / listed["nodes"] if listed["nodes"] else 0.0,
        "tone": TONES.get(listed["phase"], ""),
        "next": None if listed["phase"] in OVER or not ahead else {"start": ahead[0][0], "batch": ahead[0][1]},
        "out": len(out),
        "out_nodes": sum(batch["nodes"] for batch in out),
        "calendar": calendar,
        "what": ", ".join(f"{each['component']} {each['version']}" for each in (calendar or {}).get("changes", ())),
    }


def month(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All campaigns on one calendar: nodes that go out, a row a campaign and a column a day."""
    shown = [row for row in rows if row["calendar"] is not None and row["calendar"]["days"]]
    counts: dict[str, dict[str, int]] = {
        row["campaign"]: {each["day"]: each["nodes"] for each in row["calendar"]["days"] if each["nodes"]}
        for row in shown
    }
    busy = sorted({day for by_day in counts.values() for day in by_day})
    if not busy:
        return {"days": [], "rows": [], "total": [], "today": ""}
    today = shown[0]["calendar"]["today"]
    # What is long past is left out, unless nothing else is there.
    first = max(date.fromisoformat(busy[0]), min(date.fromisoformat(today) - BACK, date.fromisoformat(busy[-1])))
    span = min(DAYS_MAX, (date.fromisoformat(busy[-1]) - first).days + 1)
    days = [str(first + timedelta(days=number)) for number in range(span)]
    most = max(max(by_day.values(), default=0) for by_day in counts.values())
    return {
        "days": days,
        "labels": [f"{date.fromisoformat(day).day} {date.fromisoformat(day):%b}" for day in days],
        "rows": [
            {
                "campaign": row["campaign"],
                "cells": [_heat(counts[row["campaign"]].get(day, 0), most) for day in days],
            }
            for row in shown
        ],
        "total": [sum(by_day.get(day, 0) for by_day in counts.values()) for day in days],
        "today": today,
        "before": sum(1 for day in busy if day < days[0]),
    }


def _heat(nodes: int, most: int) -> tuple[int, int]:
    """Nodes, and how full the cell is, from 0 to 4."""
    return nodes, 0 if not nodes else 1 + min(LEVELS - 1, (nodes * LEVELS - 1) // max(1, most))
