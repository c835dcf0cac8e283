"""One campaign's page: the tick list first, then the calendar, what is out against the limits, and what changed.

Decides which batches are near, what each waits for in a few words, and how the calendar is laid out. Must never ask
what needs more than seeing waves, nor show quota: the provider's engineers read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.campaign_charts import balance_chart, curve_chart

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

NEAR_DAYS = 2
NEAR_LEAST = 4
NEAR_MAX = 24
GATES_ASKED = 5
UNDER_WAY = ("marking", "draining", "working", "validating")
OVER = ("done", "cancelled")
TONES = {"running": "good", "paused": "warn", "cancelling": "warn", "planned": "info"}
STEP_TONES = {"marking": "info", "draining": "info", "working": "warn", "validating": "warn", "returned": "good"}
STEP_MARKS = {"under": "●", "done": "✓", "off": "×"}
CHANGE_MARKS = {"later": "→", "earlier": "←", "added": "+"}


async def campaign(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    name = visit.path["campaign"]
    status = await visit.ask("campaign status", name=name, all_batches=True)
    calendar = await visit.ask("campaign calendar", name=name)
    rows = batch_rows(status, calendar)
    may_operate = visit.may("operate")
    return {
        "name": name,
        "status": status,
        "calendar": calendar,
        "tone": TONES.get(status["phase"], ""),
        "what": ", ".join(f"{each['component']} {each['version']}" for each in calendar["changes"]),
        "rows": rows,
        "near": near(rows, calendar["today"], is_over=status["phase"] in OVER),
        "counts": counts(rows),
        "done_share": status["done"] / status["nodes"] if status["nodes"] else 0.0,
        "out_nodes": sum(row["nodes"] for row in rows if row["step"] in UNDER_WAY),
        "peak": peak(calendar),
        "grid": grid(calendar, rows),
        "curve": curve_chart(calendar),
        "balance": balance_chart(calendar),
        "has_gates": bool(next_batches(calendar)) and not visit.as_of,
        "numbers": list(range(1, calendar["number"])),
        "before": int(visit.query["before"]) if visit.query.get("before", "").isdigit() else calendar["number"] - 1,
        "may_operate": may_operate,
        "may_tick": visit.may("tick_waves") or may_operate,
        "may_see": visit.may("see"),
        "is_over": status["phase"] in OVER,
    }


async def compare(visit: Visit) -> dict[str, object]:
    """Two plan numbers side by side: the page fetches it when it is there itself."""
    name, query = visit.path["campaign"], visit.query
    left, right = (query.get(side, default)[:20] for side, default in (("left", "1"), ("right", "")))
    sides = {"left": f"{name}:{left}", "right": f"{name}:{right}" if right else name}
    found = await visit.ask("campaign compare", **sides)
    return {
        "name": name,
        "left": left,
        "right": right,
        "sides": sides,
        "found": found,
        "moves": [move(each) for each in found["moved"]],
    }


async def gates(visit: Visit) -> dict[str, object]:
    """What the gate says to the next batches now: each answer looks at the whole fleet, so it is a part of its own."""
    name = visit.path["campaign"]
    calendar = await visit.ask("campaign calendar", name=name)
    found = [
        {"start": batch["start"], **(await visit.ask("campaign gate", name=name, batch=batch["batch"]))}
        for batch in next_batches(calendar)
    ]
    return {"name": name, "gates": found, "may_see": visit.may("see")}


def next_batches(calendar: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The next batches that the gate can be asked about; none of a campaign that begins nothing any more."""
    if calendar["phase"] in (*OVER, "cancelling"):
        return []
    ahead = [batch for unit in calendar["units"] for batch in unit["batches"] if batch["step"] == "planned"]
    return sorted(ahead, key=lambda batch: (str(batch["start"]), batch["batch"]))[:GATES_ASKED]


def batch_rows(status: Mapping[str, Any], calendar: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every batch with its hours, how far it is and what it waits for, in the order of their start."""
    cells = {cell["batch"]: (unit, cell) for unit in calendar["units"] for cell in unit["batches"]}
    zone = calendar["window"]["tz"]
    rows = []
    for each in status["batches"]:
        unit, cell = cells.get(each["batch"], ({}, {}))
        rows.append(
            {
                **each,
                "cluster": unit.get("cluster") or each["batch"].rpartition("#")[0].partition("/")[0],
                "unit": unit.get("unit") or each["batch"].rpartition("#")[0],
                "area": unit.get("area", ""),
                "part": f"{cell['number']} of {cell['of']}" if cell and cell["of"] > 1 else "",
                "mode": cell.get("mode", ""),
                "day": cell.get("day", ""),
                "hours": hours_text(each["start"], each["end"], "UTC"),
                "local": "" if zone == "UTC" or not cell else hours_text(cell["start_local"], cell["end_local"], zone),
                "waits": "" if list(each["codes"]) == ["not_due"] else each["waits"],
                "tone": STEP_TONES.get(each["step"], ""),
                "can_tick": each["step"] in ("working", "validating"),
            }
        )
    return sorted(rows, key=lambda row: (str(row["start"]), row["batch"]))


def hours_text(start: str, end: str, zone: str) -> str:
    """`11:00–15:00 UTC`."""
    begins, ends = datetime.fromisoformat(start), datetime.fromisoformat(end)
    later = f" (+{(ends.date() - begins.date()).days} d)" if ends.date() > begins.date() else ""
    return f"{begins:%H:%M}–{ends:%H:%M}{later} {zone}"


def near(rows: Sequence[dict[str, Any]], today: str, *, is_over: bool) -> list[dict[str, Any]]:
    """What the tick list shows: what is under way, then what comes on the next days, and never fewer than a few."""
    found = [row for row in rows if row["step"] in UNDER_WAY]
    if is_over:
        return found
    last = str(date.fromisoformat(today) + timedelta(days=NEAR_DAYS))
    ahead = [row for row in rows if row["step"] == "planned"]
    soon = [row for row in ahead if row["day"] <= last]
    return [*found, *(soon if len(soon) >= NEAR_LEAST else ahead[:NEAR_LEAST])][:NEAR_MAX]


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many batches are where."""
    steps = [row["step"] for row in rows]
    return {
        "planned": steps.count("planned"),
        "under_way": sum(step in UNDER_WAY for step in steps),
        "returned": steps.count("returned"),
        "cancelled": steps.count("cancelled"),
    }


def peak(calendar: Mapping[str, Any]) -> dict[str, Any]:
    """The most nodes out at once by the plan, when, and the limit on that day."""
    most = max(calendar["days"], key=lambda each: each["peak"], default=None)
    return (
        {"nodes": most["peak"], "day": most["day"], "cap": most["cap"]}
        if most
        else {"nodes": 0, "day": "", "cap": None}
    )


def grid(calendar: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The calendar: days across, clusters by area downwards; each cell has what happens there, or why nothing may."""
    steps = {row["batch"]: row for row in rows}
    today, zone = calendar["today"], calendar["window"]["tz"]
    days = [
        {**each, "weekday": f"{date.fromisoformat(each['day']):%a}", "number": date.fromisoformat(each["day"]).day,
         "month": f"{date.fromisoformat(each['day']):%b}" if not place or each["day"].endswith("-01") else "",
         "is_today": each["day"] == today}
        for place, each in enumerate(calendar["days"])
    ]  # fmt: skip
    areas: dict[str, list[dict[str, Any]]] = {}
    for unit in calendar["units"]:
        cells: dict[str, dict[str, Any]] = {day["day"]: {"batches": [], "was": [], "shut": ""} for day in days}
        for batch in unit["batches"]:
            if batch["day"] in cells:
                row = steps.get(batch["batch"])
                cells[batch["day"]]["batches"].append(_cell(batch, row["step"] if row else batch["step"], zone))
        for was in unit["was"]:
            if was["day"] in cells:
                cells[was["day"]]["was"].append(was)
        for shut in unit["shut"]:
            if shut["day"] in cells:
                cells[shut["day"]]["shut"] = shut["why"]
        for day in days:
            if not day["is_open"]:
                cells[day["day"]]["shut"] = "outside the window"
        areas.setdefault(unit["area"], []).append({**unit, "cells": list(cells.values())})
    return {"days": days, "areas": areas}


def _cell(batch: Mapping[str, Any], step: str, zone: str) -> dict[str, Any]:
    kind = "under" if step in UNDER_WAY else "done" if step == "returned" else "off" if step == "cancelled" else "ahead"
    begins = datetime.fromisoformat(batch["start_local"])
    part = f", batch {batch['number']} of {batch['of']}" if batch["of"] > 1 else ""
    says = f"{hours_text(batch['start_local'], batch['end_local'], zone)}, {batch['nodes']:,} nodes{part}, {step}"
    changed = batch["change"] or ""
    moved = f", {changed} than in the plan before" if changed in ("later", "earlier") else ""
    return {
        **batch,
        "kind": kind,
        "hour": f"{begins:%H:%M}" if begins.minute else f"{begins.hour}h",
        "x": f"{100 * batch['left']:.4g}%",
        "width": f"{100 * max(0.04, batch['right'] - batch['left']):.4g}%",
        "mark": STEP_MARKS.get(kind) or CHANGE_MARKS.get(changed, ""),
        "says": says + moved,
    }


def move(moved: Mapping[str, Any]) -> dict[str, Any]:
    """A batch that is not the same in both plans."""
    left, right = moved["left"], moved["right"]
    by = None
    if left and right:
        by = (datetime.fromisoformat(right["start"]) - datetime.fromisoformat(left["start"])) / timedelta(hours=1)
    what = (
        "new"
        if not left
        else "no longer"
        if not right
        else "later"
        if by and by > 0
        else "earlier"
        if by
        else "other size"
    )
    return {
        "batch": f"{moved['unit']}#{moved['number']}",
        "left": left and left["start"],
        "right": right and right["start"],
        "nodes": (right or left)["nodes"],
        "what": what,
        "hours": by,
    }
