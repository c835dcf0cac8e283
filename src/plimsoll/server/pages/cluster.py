"""A cluster's page: hull, islands and nodes, past and what is expected, teams, and what is lost to what.

Decides only what stands where. The forecast takes a second to work out, so it is a page of its own, of which the
cluster's page shows a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from plimsoll.errors import NotFound, PlimsollError, Refused
from plimsoll.server.pages.format import moment_of
from plimsoll.server.pages.hull import add_up
from plimsoll.server.pages.incidents import told_calmly
from plimsoll.server.pages.lifecycle import condition_rows

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

PAST_DAYS = 35
DOWN_SHOWN = 12
WORKS_SHOWN = 8


async def cluster(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    name = visit.path["cluster"]
    quota = await visit.ask("quota show", clusters=[name])
    found = (await visit.ask("fleet clusters", filters=[f'cluster="{name}"', "phase!="]))["clusters"]
    if not found:
        raise NotFound("no_such_cluster", f"there is no cluster {name[:100]!r}", next_step="GET /", cluster=name[:100])
    pools, filters = quota["clusters"], [f'cluster="{name}"']
    is_here = bool(found[0]["nodes"])
    health = (await visit.ask("health show", filters=filters))["present"] if pools and is_here else None
    ahead = (await visit.ask("health announced", filters=filters))["ahead"] if is_here else []
    incidents = await visit.ask("incident list")
    promise = await visit.ask("quota promise", cluster=name) if pools else None
    return {
        "name": name,
        "place": found[0],
        "pools": pools,
        "whole": add_up(pools) if pools else None,
        "teams": team_rows(quota["teams"]),
        "losses": quota["losses"],
        "health": health,
        "ahead": ahead[:WORKS_SHOWN],
        "ahead_count": len(ahead),
        "incidents": told_calmly([each for each in incidents if name in each["clusters"]]),
        "kept": promise["fleet"] if promise else None,
        "life": await _life(visit, name),
        "is_aligned": any(pool["line_in_force"] or pool["guaranteed"] for pool in pools),
        "map_url": visit.api_url("fleet map", {"filters": filters}),
    }


async def _life(visit: Visit, name: str) -> Any:
    """How it was made, where it was made here; a cluster that was only imported has no such story."""
    try:
        life = await visit.ask("cluster show", name=name)
    except (NotFound, Refused):
        return None
    return {**life, "conditions": condition_rows(life["conditions"])}


def team_rows(teams: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Teams with what of their quota is in use, the largest first."""
    rows: list[dict[str, Any]] = []
    for team in teams:
        held = team["guaranteed"] or team["assigned"]
        rows.append({**team, "used_share": team["allocated"] / held if held else None})
    return sorted(rows, key=lambda row: (-row["assigned"], row["team"], row["sku"]))


async def forecast(visit: Visit) -> dict[str, object]:
    """The past of the healthy count, and what is expected of the next week."""
    name = visit.path["cluster"]
    history = await visit.ask("quota history", clusters=[name], days=PAST_DAYS)
    quota = await visit.ask("quota show", clusters=[name])
    lines = {pool["sku"]: pool for pool in quota["clusters"]}
    found, refusal = None, None
    try:
        found = await visit.ask("health forecast", cluster=name)
    except PlimsollError as error:
        if not lines:
            raise
        refusal = {"message": error.message, "next_step": error.next_step}
    ahead = {pool["sku"]: pool for pool in found["pools"]} if found else {}
    charts = [
        {
            "sku": pool["sku"],
            "spec": course_spec(pool, history, lines[pool["sku"]], ahead.get(pool["sku"])),
            "says": _says(pool, ahead.get(pool["sku"]), found),
            "pool": pool,
            "ahead": ahead.get(pool["sku"]),
            "down": sorted(ahead[pool["sku"]]["down"], key=lambda each: str(each["expected_back"]))[:DOWN_SHOWN]
            if pool["sku"] in ahead
            else [],
        }
        for pool in history["pools"]
        if pool["sku"] in lines
    ]
    return {"name": name, "charts": charts, "found": found, "refusal": refusal, "days": PAST_DAYS}


def _says(pool: Mapping[str, Any], ahead: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> str:
    """The picture in a sentence."""
    text = (
        f"{pool['healthy']:,} of {pool['total']:,} {pool['sku']} GPUs are healthy now;"
        f" the fewest in {PAST_DAYS} days were {pool['healthy_fewest']:,}"
    )
    if ahead is None or found is None:
        return f"{text}."
    return f"{text}. {ahead['promised']:,} can be relied on for the next {found['horizon_hours'] // 24} days."


def course_spec(
    pool: Mapping[str, Any], history: Mapping[str, Any], hull: Mapping[str, Any], ahead: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Vega-Lite: healthy GPUs as a step line, what is expected as a band, the line now, and what was guaranteed."""
    begins, step = moment_of(history["from"]), timedelta(hours=history["step_hours"])
    assert begins is not None
    past = [{"time": (begins + place * step).isoformat(), "gpus": gpus} for place, gpus in enumerate(pool["points"])]
    past.append({"time": history["to"], "gpus": pool["healthy"]})
    band = ahead["ahead"] if ahead else []
    low = min([hull["line"], pool["healthy_fewest"], *(point["low"] for point in band)])
    x = {"field": "time", "type": "temporal", "title": None, "axis": {"format": "%-d %b", "tickCount": 7}}
    domain = {"domain": [max(0, low - (pool["total"] - low) // 6), pool["total"]], "nice": False}
    y = {"field": "gpus", "type": "quantitative", "title": None, "axis": {"format": ",d"}, "scale": domain}
    tip = [{"field": "time", "type": "temporal", "title": "at", "format": "%-d %b %H:%M"}]
    tip.append({"field": "gpus", "type": "quantitative", "title": "healthy", "format": ",d"})
    layers: list[dict[str, Any]] = []
    if band:
        edge = {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "x": x}
        layers.append(
            {"data": {"values": band}, "mark": {"type": "area", "color": "@band", "opacity": 0.55}, "encoding": edge}
        )
        layers.append(
            {
                "data": {"values": band},
                "encoding": {"x": x, "y": y},
                "mark": {"type": "line", "color": "@accent", "strokeDash": [4, 3]},
            }
        )
    layers.append({"data": {"values": past}, "encoding": {"x": x, "y": y, "tooltip": tip},
                   "mark": {"type": "line", "interpolate": "step-after", "color": "@guaranteed"}})  # fmt: skip
    layers += _rule(hull["line"], f"the line {hull['line']:,}", "@ink", y, dash=[])
    layers += _rule(pool["total"], f"installed {pool['total']:,}", "@muted", y, dash=[2, 3])
    promised = [
        {"time": max(str(each["since"]), str(history["from"])), "gpus": each["guaranteed"]} for each in pool["promised"]
    ]
    if promised:
        promised.append({"time": history["to"], "gpus": promised[-1]["gpus"]})
        layers.append(
            {
                "data": {"values": promised},
                "encoding": {"x": x, "y": y},
                "mark": {"type": "line", "interpolate": "step-after", "color": "@over", "strokeDash": [6, 2]},
            }
        )
    return {"layer": layers}


def _rule(gpus: int, label: str, colour: str, y: Mapping[str, Any], *, dash: list[int]) -> list[dict[str, Any]]:
    data = {"values": [{"gpus": gpus, "label": label}]}
    return [
        {"data": data, "mark": {"type": "rule", "color": colour, "strokeDash": dash}, "encoding": {"y": y}},
        {
            "data": data,
            "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 6, "dy": -2, "color": colour},
            "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "label"}},
        },
    ]
