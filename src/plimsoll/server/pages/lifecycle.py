"""Clusters being born: the board by phase, quota that is owed, how long steps take; and one cluster's whole way.

Decides in which column a cluster stands and how its conditions and steps are laid out. The truth is in the conditions,
which `cluster list` and `cluster show` give; nothing here judges them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from plimsoll.errors import NotFound
from plimsoll.server.pages.format import moment_of
from plimsoll.times import utc_now
from plimsoll.words import rough_span

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

LATE_DAYS = 30
"""For how long a cluster that went into production still stands on the board."""
TIMELINE = 40
COLUMNS = (
    ("planned", "Planned", "until there is quota for it"),
    ("provisioning", "Provisioning", "check-in, bootstrap, machines"),
    ("provisioned", "Provisioned", "being validated"),
    ("production", "Production", f"of the last {LATE_DAYS} days"),
    ("leaving", "On the way out", "its work ends, then its machines go"),
)
TONES = {"error": "bad", "warning": "warn", "info": ""}
STATUS_TONES = {"True": "good", "False": "warn", "Unknown": "info"}
GOING_TONES = {"done": "good", "running": "info", "intended": "info", "blocked": "warn", "retrying": "warn",
               "stuck": "bad"}  # fmt: skip
MOVES = {
    "nobody": "nothing to do",
    "controller": "goes on by itself",
    "person": "a person’s move",
    "provider": "the provider’s move",
    "other cluster": "another cluster comes first",
}
AREAS = ("us", "eu", "uk", "other")


async def lifecycle(visit: Visit) -> dict[str, object]:
    """The board."""
    found, owed, times, recipes = await asyncio.gather(
        visit.ask("cluster list"),
        visit.ask("cluster quota"),
        visit.ask("cluster times"),
        visit.ask("cluster recipe list"),
    )
    now = _moment(visit)
    clusters = [{**row, "tone": TONES[row["severity"]], "whose": MOVES[row["move"]]} for row in found["clusters"]]
    columns = board(clusters, now)
    making = [row for row in clusters if row["phase"] != "production" or row["leaving"]]
    return {
        "columns": columns,
        "cluster_count": len(clusters),
        "making": making,
        "for_people": [row for row in making if row["move"] == "person"],
        "stopped": [row for row in making if row["severity"] == "error"],
        "quota": quota_rows(owed["quota"]),
        "owed_total": sum(row["owed"] for row in owed["quota"]),
        "times": time_rows(times["steps"]),
        "recipes": [row["recipe"] for row in recipes["recipes"] if row["newest"]],
        "areas": AREAS,
        "may_operate": visit.may("operate"),
    }


def board(clusters: Sequence[Mapping[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """The columns with their cards, in the order that the list has: who needs somebody comes first."""
    since = now - timedelta(days=LATE_DAYS)
    cards: dict[str, list[Mapping[str, Any]]] = {key: [] for key, _, _ in COLUMNS}
    older = 0
    for row in clusters:
        at = moment_of(row["since"])
        if row["leaving"]:
            cards["leaving"].append(row)
        elif row["phase"] == "production" and at is not None and at < since:
            older += 1
        elif row["phase"] in cards:
            cards[row["phase"]].append(row)
    return [
        {"key": key, "title": title, "note": note, "cards": cards[key], "older": older if key == "production" else 0}
        for key, title, note in COLUMNS
        if cards[key] or key != "leaving"
    ]


def quota_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is owed first; each with how its limit is filled, as shares for the bar."""
    found = []
    for row in rows:
        whole = max(row["limit"], row["used"] + row["promised"] + row["wanted"], 1)
        found.append({**row, "free": row["limit"] - row["used"] - row["promised"],
                      "bars": _bars([("used", row["used"]), ("promised", row["promised"]), ("wanted", row["wanted"])],
                                    whole),
                      "limit_share": row["limit"] / whole})  # fmt: skip
    return sorted(found, key=lambda row: (-row["owed"], row["subscription"], row["region"], row["family"]))


def time_rows(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How long each step takes, in words, and as shares of the longest for the bars."""
    longest = max((step["longest"] or 0.0 for step in steps), default=0.0) or 1.0
    return [
        {
            **step,
            "usually": _span(step["median"]),
            "nine_of_ten": _span(step["late"]),
            "at_most": _span(step["longest"]),
            "median_share": (step["median"] or 0.0) / longest,
            "late_share": (step["late"] or 0.0) / longest,
        }
        for step in steps
    ]


def _bars(parts: Sequence[tuple[str, int]], whole: int) -> list[dict[str, Any]]:
    begin, bars = 0, []
    for name, count in parts:
        bars.append({"name": name, "x": 100 * begin / whole, "width": 100 * count / whole})
        begin += count
    return bars


async def one(visit: Visit) -> dict[str, object]:
    """One cluster: why it is where it is, what is true of it, and each step."""
    name = visit.path["cluster"]
    try:
        shown = await visit.ask("cluster show", name=name, timeline=TIMELINE)
    except NotFound as error:
        # One that was imported has no life here, and one that nobody knows has none anywhere.
        known = (await visit.ask("fleet clusters", filters=["phase!="]))["clusters"]
        place = next((row for row in known if row["cluster"] == name), None)
        if place is None:
            raise error
        return {"name": name, "shown": None, "place": place, "may_operate": visit.may("operate")}
    times, recipes = await asyncio.gather(
        visit.ask("cluster times", recipe=shown["recipe"]["name"]), visit.ask("cluster recipe list")
    )
    usual = {step["step"]: _span(step["median"]) for step in times["steps"]}
    steps = [
        {**step, "tone": GOING_TONES.get(step["is"], ""), "usual": usual.get(step["step"], ""), "took": _took(step)}
        for step in shown["steps"]
    ]
    conditions = condition_rows(shown["conditions"])
    return {
        "name": name,
        "shown": shown,
        "spec": shown["spec"],
        "conditions": conditions,
        "holding": sum(each["status"] == "True" for each in conditions),
        "steps": steps,
        "steps_done": sum(step["is"] == "done" for step in steps),
        "failed": [step for step in steps if step["is"] in ("stuck", "retrying", "blocked")],
        "timeline": list(reversed(shown["timeline"])),
        "may_operate": visit.may("operate"),
        "areas": AREAS,
        "recipes": [row["recipe"] for row in recipes["recipes"] if row["newest"]],
    }


def condition_rows(conditions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Conditions with their tone, and whose move it is in words."""
    return [
        {**each, "tone": _tone(each), "whose": "" if each["move"] == "nobody" else MOVES[each["move"]]}
        for each in conditions
    ]


def _tone(condition: Mapping[str, Any]) -> str:
    if condition["status"] == "False" and condition["severity"] == "error":
        return "bad"
    if condition["status"] == "False" and condition["severity"] == "info":
        return ""
    return STATUS_TONES[condition["status"]]


def _took(step: Mapping[str, Any]) -> str:
    """How long a step took that is done."""
    begun, ended = moment_of(step.get("begun")), moment_of(step.get("ended"))
    return rough_span(ended - begun) if begun and ended and step["is"] == "done" else ""


def _span(seconds: float | None) -> str:
    return "" if seconds is None else rough_span(timedelta(seconds=seconds))


async def log(visit: Visit) -> dict[str, object]:
    """What a step printed; a part of the cluster's page that is fetched when somebody opens it."""
    name, step = visit.path["cluster"], visit.path["step"]
    return {"name": name, "step": step, "said": await visit.ask("cluster log", name=name, step=step)}


def _moment(visit: Visit) -> datetime:
    """Now; of the past, its own moment."""
    return (moment_of(visit.stamp.recorded_at) if visit.as_of else None) or utc_now()
