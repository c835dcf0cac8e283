"""The fleet's page: totals first, then every cluster as a hull, and what changed this week.

Decides how clusters are put together, filtered and sorted; the numbers are those of `quota show`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.hull import add_up
from plimsoll.server.pages.incidents import told_calmly

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

SORTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "worst": lambda row: (row["shortfall"], row["over"], row["total"]),
    "cluster": lambda row: row["cluster"],
    "total": lambda row: row["total"],
    "healthy": lambda row: row["healthy_share"],
    "line": lambda row: row["line"],
    "assigned": lambda row: row["assigned"],
    "guaranteed": lambda row: row["guaranteed"],
    "allocated": lambda row: row["allocated"],
    "idle": lambda row: row["idle"],
    "flex": lambda row: row["flex_standing"] + row["flex_lent"],
    "over": lambda row: row["over"],
    "short": lambda row: row["shortfall"],
}
SORT_DEFAULT = "-worst"
FIND_MAX = 100


async def fleet(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    quota = await visit.ask("quota show")
    places = {row["cluster"]: row for row in (await visit.ask("fleet clusters"))["clusters"]}
    promise = await visit.ask("quota promise")
    incidents = await visit.ask("incident list")
    wanted = {key: visit.query.get(key, "") for key in ("area", "sku", "purpose", "find", "over")}
    wanted["find"] = wanted["find"][:FIND_MAX]
    pools = [pool for pool in quota["clusters"] if not wanted["sku"] or pool["sku"] == wanted["sku"]]
    rows = [row for row in cluster_rows(pools, places) if _is_wanted(row, wanted)]
    sort = visit.query.get("sort", SORT_DEFAULT)
    return {
        "totals": add_up(quota["clusters"]),
        "shown": add_up(rows),
        "rows": sorted_rows(rows, sort),
        "sort": sort,
        "wanted": wanted,
        "is_filtered": any(wanted.values()),
        "choices": _choices(quota["clusters"], places),
        "cluster_count": len({pool["cluster"] for pool in quota["clusters"]}),
        "clusters_over": quota["summary"]["clusters_over"],
        "clusters_short": len({pool["cluster"] for pool in quota["clusters"] if pool["shortfall"]}),
        "is_aligned": any(pool["line_in_force"] or pool["guaranteed"] for pool in quota["clusters"]),
        "policy": quota["policy"],
        "kept": promise["fleet"],
        "kept_days": promise["days"],
        "incidents": told_calmly(incidents),
        "coming": [row for row in places.values() if row["phase"] not in ("production", "retired")],
    }


def cluster_rows(pools: Sequence[Mapping[str, Any]], places: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a cluster: its pools added up, and where it is."""
    by_cluster: dict[str, list[Mapping[str, Any]]] = {}
    for pool in pools:
        by_cluster.setdefault(pool["cluster"], []).append(pool)
    found = []
    for cluster, mine in by_cluster.items():
        place = places.get(cluster, {})
        row = add_up(mine, cluster=cluster, skus=[pool["sku"] for pool in mine])
        row |= {key: place.get(key, "") for key in ("area", "region", "colo", "purpose", "phase")}
        row["healthy_share"] = row["healthy"] / row["total"] if row["total"] else 0.0
        found.append(row)
    return found


def sorted_rows(rows: Sequence[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    """By the URL's word; `-` in front turns it round. Equal ones stand by name. An unknown word is the default."""
    name = sort.removeprefix("-")
    if name not in SORTS:
        sort, name = SORT_DEFAULT, SORT_DEFAULT.removeprefix("-")
    by_name = sorted(rows, key=SORTS["cluster"])
    return sorted(by_name, key=SORTS[name], reverse=sort.startswith("-"))


def _is_wanted(row: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    if any(wanted[key] and row[key] != wanted[key] for key in ("area", "purpose")):
        return False
    if wanted["over"] and not (row["over"] or row["shortfall"]):
        return False
    text = wanted["find"].casefold()
    return not text or any(text in str(row[key]).casefold() for key in ("cluster", "region", "colo", "skus"))


def _choices(pools: Sequence[Mapping[str, Any]], places: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    inside = [places[pool["cluster"]] for pool in pools if pool["cluster"] in places]
    return {
        "area": sorted({place["area"] for place in inside}),
        "sku": sorted({pool["sku"] for pool in pools}),
        "purpose": sorted({place["purpose"] for place in inside}),
    }
