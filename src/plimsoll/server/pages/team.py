"""One team: what it can use right now, and why not more; its work, requests, notices, what comes, and what happened.

Asks the commands and lays their answers side by side. The parts that take a moment (flex of the past, what is planned,
the log) are pages of their own, put in when they come into view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.causes import WORDS
from plimsoll.server.pages.waterfall import waterfall

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

WORKS_SHOWN = 12
ELSEWHERE_SHOWN = 8
LOG_SHOWN, LOG_SHOWN_MAX = 100, 1_000
ENDED = ("ended", "cancelled", "done")


async def team(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    name = visit.path["team"]
    usage = await visit.ask("workload usage", team=name)  # refuses a team that does not exist, and names near ones
    why, work, requests, notices, told, promise, quota = await asyncio.gather(
        visit.ask("why", words=[name]),
        visit.ask("workload list", team=name),
        visit.ask("quota requests", team=name),
        visit.ask("quota notices", team=name),
        visit.ask("incident notices", team=name),
        visit.ask("quota promise"),
        visit.ask("quota show"),
    )
    pools = why["pools"] if why["about"] == "team" else []
    kept = next((row for row in promise["teams"] if row["name"] == name), None)
    return {
        "team": name,
        "why": why,
        "pools": pools,
        "sums": sums_of(pools),
        "fall_bars": waterfall(pools),
        "uses": {(use["cluster"], use["sku"]): use for use in usage["pools"]},
        "keeps": usage["holds"],
        "works": by_standing(work["workloads"]),
        "works_shown": WORKS_SHOWN,
        "requests": requests["requests"],
        "notices": notices["notices"],
        "told": told,
        "kept": kept,
        "kept_days": promise["days"],
        "skus": skus_of(pools, quota["clusters"]),
        "clusters": sorted({pool["cluster"] for pool in quota["clusters"]}),
        "may_use": visit.may("use", name) or visit.may("decide_quota", name),
        "may_decide": visit.may("decide_quota", name),
        **WORDS,
        "words_of": WORDS,
    }


def sums_of(pools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers at the top, over all pools."""
    names = ("assigned", "guaranteed", "startable", "free", "allocated", "flex_used")
    found: dict[str, Any] = {name: sum(pool[name] for pool in pools) for name in names}
    best = max(pools, key=lambda pool: pool["largest_block"], default=None)
    found["places"] = sum(1 for pool in pools if pool["startable"])
    found["block"] = best["largest_block"] if best else 0
    found["block_island"] = best["largest_block_island"] if best else ""
    found["short"] = [pool for pool in pools if pool["shortfall"]]
    return found


def by_standing(works: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """What waits first, then what runs, each the largest first."""
    largest = sorted(works, key=lambda work: (-max(work["wanted"], work["gpus"]), work["workload"]))
    running = [work for work in largest if work["standing"] == "running"]
    return {"waiting": [work for work in largest if work["standing"] != "running"], "running": running}


def skus_of(pools: Sequence[Mapping[str, Any]], all_pools: Sequence[Mapping[str, Any]]) -> list[str]:
    """The SKUs one can ask for, those the team has most of first."""
    own: dict[str, int] = {}
    for pool in pools:
        own[pool["sku"]] = own.get(pool["sku"], 0) + pool["assigned"]
    others = sorted({pool["sku"] for pool in all_pools} - set(own))
    return [*sorted(own, key=lambda sku: (-own[sku], sku)), *others]


async def flex(visit: Visit) -> dict[str, object]:
    """Flex that the team has and could have, and how reliable it has been."""
    name = visit.path["team"]
    await visit.ask("workload usage", team=name)
    found = await visit.ask("quota flex", team=name)
    rows = [row for pool in found["pools"] if (row := flex_row(pool, name)) is not None]
    own = [row for row in rows if row["is_own"]]
    others = sorted((row for row in rows if not row["is_own"]), key=lambda row: (-row["available"], row["cluster"]))
    return {
        "team": name,
        "own": sorted(own, key=lambda row: (-row["held"], row["cluster"])),
        "others": [row for row in others if row["available"]][:ELSEWHERE_SHOWN],
        "others_count": len(others),
        "held": sum(row["held"] for row in rows),
        "available": sum(row["available"] for row in own),
        "days": found["days"],
        "notes": list(dict.fromkeys(pool["past"]["says"] for pool in found["pools"])),
        **WORDS,
        "words_of": WORDS,
    }


def flex_row(pool: Mapping[str, Any], team: str) -> dict[str, Any] | None:
    """A pool's flex as one team sees it."""
    mine = next((row for row in pool["teams"] if row["team"] == team), None)
    if mine is None:
        return None
    past = pool["past"]
    shares = past["standing_in_share_of_hours"]
    return {
        "cluster": pool["cluster"],
        "sku": pool["sku"],
        "is_own": bool(mine["guaranteed"] or mine["held"] or mine["inside"]),
        "is_aligned": pool["is_aligned"],
        "held": mine["held"],
        "available": mine["available"],
        "standing": pool["standing"],
        "in_99": shares.get("99%"),
        "in_90": shares.get("90%"),
        "in_50": shares.get("50%"),
        "spell_hours": past["standing"]["spell_hours_median"],
    }


async def coming(visit: Visit) -> dict[str, object]:
    """Planned work on the clusters where the team holds something: announced, and planned by campaigns."""
    name = visit.path["team"]
    usage, why, listed = await asyncio.gather(
        visit.ask("workload usage", team=name), visit.ask("why", words=[name]), visit.ask("campaign list")
    )
    clusters = {pool["cluster"] for pool in usage["pools"]}
    rows = []
    for campaign in listed:
        if campaign["phase"] not in ENDED:
            status = await visit.ask("campaign status", name=campaign["campaign"])
            rows += batch_rows(status, clusters)
    told = {(row["cluster"], row["start"]) for row in rows}  # a campaign announces its batches: each is told once
    return {
        "team": name,
        "planned": [each for each in why.get("planned", []) if (each["cluster"], each["starts"]) not in told],
        "batches": sorted(rows, key=lambda row: (row["start"], row["cluster"])),
        "clusters": len(clusters),
        **WORDS,
        "words_of": WORDS,
    }


def batch_rows(status: Mapping[str, Any], clusters: set[str]) -> list[dict[str, Any]]:
    """A campaign's batches on these clusters that are not over."""
    found = []
    for batch in status["batches"]:
        # A batch is named by its unit (`tiger`, or `tiger/value` for a part of a cluster) and its number.
        cluster = batch.get("cluster") or batch["batch"].rpartition("#")[0].partition("/")[0]
        if cluster in clusters and batch["ended"] is None and batch["step"] != "returned":
            row = {key: batch[key] for key in ("batch", "nodes", "start", "end", "step")}
            found.append(row | {"cluster": cluster, "campaign": status["campaign"], "phase": status["phase"]})
    return found


async def history(visit: Visit) -> dict[str, object]:
    """Every change of what the team holds, newest first."""
    name = visit.path["team"]
    text = visit.query.get("limit", "")
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 5 else LOG_SHOWN
    found = await visit.ask("quota changes", team=name, limit=min(max(limit, 1), LOG_SHOWN_MAX))
    return {"team": name, "changes": found["changes"], "limit": limit, **WORDS, "words_of": WORDS}
