"""Every team: what it holds, how far that is promised and kept, and what hurts most; the visitor's own teams first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.causes import WORDS, cause
from plimsoll.words import counted

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

SORTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "team": lambda row: row["team"],
    "assigned": lambda row: row["assigned"],
    "guaranteed": lambda row: row["guaranteed"],
    "allocated": lambda row: row["allocated"],
    "flex": lambda row: row["flex_used"],
    "kept": lambda row: 2.0 if row["kept_share"] is None else row["kept_share"],
    "hurt": lambda row: row["hurt"],
}
SORT_DEFAULT = "-hurt"
SUMS = ("assigned", "guaranteed", "allocated", "idle", "flex_used")


async def teams(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    quota, waiting, promise = await asyncio.gather(
        visit.ask("quota show"), visit.ask("workload list", waiting=True), visit.ask("quota promise")
    )
    kept = {row["name"]: row["kept_share"] for row in promise["teams"]}
    rows = team_rows(quota, waiting["workloads"], kept)
    find = visit.query.get("find", "")[:100].casefold()
    rows = [row for row in rows if find in row["team"].casefold()]
    sort = visit.query.get("sort", SORT_DEFAULT)
    by = SORTS.get(sort.removeprefix("-"), SORTS[SORT_DEFAULT.removeprefix("-")])
    rows.sort(key=lambda row: row["team"])
    rows.sort(key=by, reverse=sort.startswith("-"))
    mine = set(visit.principal.teams)
    return {
        "mine": [row for row in rows if row["team"] in mine],
        "others": [row for row in rows if row["team"] not in mine],
        "totals": {name: sum(row[name] for row in rows) for name in SUMS} | {"teams": len(rows)},
        "short": [row for row in rows if row["short"]],
        "waiting": len(waiting["workloads"]),
        "starting": sum(work["standing"] == "starting" for work in waiting["workloads"]),
        "is_aligned": any(pool["line_in_force"] or pool["guaranteed"] for pool in quota["clusters"]),
        "kept": promise["fleet"]["kept_share"],
        "kept_days": promise["days"],
        "sort": sort,
        "find": find,
        **WORDS,
    }


def team_rows(
    quota: Mapping[str, Any], waiting: Sequence[Mapping[str, Any]], kept: Mapping[str, float | None]
) -> list[dict[str, Any]]:
    """One row a team, its pools added up."""
    pools = {(pool["cluster"], pool["sku"]): pool for pool in quota["clusters"]}
    rows: dict[str, dict[str, Any]] = {}
    for part in quota["teams"]:
        row = rows.setdefault(part["team"], _empty(part["team"], kept))
        pool = pools[part["cluster"], part["sku"]]
        for name in SUMS:
            row[name] += part[name]
        row["pools"] += 1
        if part["guaranteed"] and pool["shortfall"]:
            row["short"] += pool["shortfall"]
            row["short_pools"].append(f"{pool['cluster']} {pool['sku']}")
        if not pool["line_in_force"] and not pool["guaranteed"]:
            row["not_aligned"] += part["assigned"]
    for work in waiting:
        row = rows.setdefault(work["team"], _empty(work["team"], kept))
        row["waits"].append(work)
    for row in rows.values():
        row["hurts"], row["tone"], row["hurt"] = hurts(row)
    return list(rows.values())


def _empty(team: str, kept: Mapping[str, float | None]) -> dict[str, Any]:
    numbers = dict.fromkeys((*SUMS, "pools", "short", "not_aligned"), 0)
    return {"team": team, "kept_share": kept.get(team), "short_pools": [], "waits": [], **numbers}


def hurts(row: Mapping[str, Any]) -> tuple[str, str, tuple[int, int]]:
    """What hurts a team most, its tone, and a number to sort by: a broken promise, work that waits, no promise."""
    if row["short"]:
        where = row["short_pools"][0] if len(row["short_pools"]) == 1 else counted(len(row["short_pools"]), "pool")
        return f"{where}: {row['short']:,} short of what is guaranteed there", "bad", (3, row["short"])
    waits = [work for work in row["waits"] if work["standing"] in ("waiting", "partly")]
    if waits:
        first = max(waits, key=lambda work: work["wanted"])
        why = f": {cause(first['waits']['code'])}" if first["waits"] else ""
        gpus = sum(work["wanted"] - work["gpus"] for work in waits)
        return f"{counted(len(waits), 'workload')} waiting for {gpus:,} GPUs{why}", "warn", (2, gpus)
    gap = row["assigned"] - row["guaranteed"]
    if gap > 0:
        if row["not_aligned"] >= gap:
            return f"{gap:,} not guaranteed: not aligned yet", "", (1, gap)
        return f"{gap:,} of what is assigned are not guaranteed", "", (1, gap)
    return "", "", (0, 0)
