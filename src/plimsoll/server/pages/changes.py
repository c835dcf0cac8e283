"""What changed in the last days: where health moved, and what people and controllers did.

Health is told by when it happened, acts by when they were recorded. Decides what is worth a line; what is left out is
in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plimsoll.words import counted

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

DAYS_DEFAULT, DAYS_MAX = 7, 90
MOVERS_SHOWN = 5
EVENTS_ASKED = 200
KINDS = {
    "quota.aligned": ("correction applied", "pool"),
    "quota.transferred": ("transfer of quota", "pool"),
    "quota.granted": ("grant of quota", "pool"),
    "quota.policy_applied": ("new policy for the line", ""),
    "quota.mode_set": ("controller's mode changed", "cluster"),
    "cluster.planned": ("cluster planned", "cluster"),
    "cluster.available": ("cluster went into production", "cluster"),
    "cluster.leaving": ("cluster on its way out", "cluster"),
    "campaign.started": ("campaign started", "campaign"),
    "campaign.ended": ("campaign ended", "campaign"),
    "breaker.tripped": ("breaker tripped", ""),
    "incident.opened": ("incident opened", "incident"),
    "fleet.imported": ("fleet imported", ""),
}
"""What is worth a line: its words, and what its subject names."""


async def changes(visit: Visit) -> dict[str, object]:
    """What the page shows; the fleet's page has it as a part."""
    text = visit.query.get("days", "")
    days = min(int(text), DAYS_MAX) if text.isascii() and text.isdigit() and 0 < len(text) < 4 else DAYS_DEFAULT
    history = await visit.ask("quota history", days=max(days, 1))
    acts = []
    for kind in KINDS:
        found = await visit.ask("audit log", kind=kind, since=f"{max(days, 1)}d", limit=EVENTS_ASKED)
        acts += told(kind, found["events"])
    pools = history["pools"]
    return {
        "days": days,
        "history": history,
        "change": sum(pool["healthy"] - pool["healthy_then"] for pool in pools),
        "healthy": sum(pool["healthy"] for pool in pools),
        "fell": movers(pools, -1)[:MOVERS_SHOWN],
        "rose": movers(pools, +1)[:MOVERS_SHOWN],
        "moved": [*movers(pools, -1), *reversed(movers(pools, +1))],
        "acts": sorted(acts, key=lambda act: str(act["at"]), reverse=True),
    }


def movers(pools: Sequence[Mapping[str, Any]], sign: int) -> list[dict[str, Any]]:
    """The pools whose healthy count moved most, one way."""
    moved = [{**pool, "change": pool["healthy"] - pool["healthy_then"]} for pool in pools]
    mine = [pool for pool in moved if pool["change"] * sign > 0]
    return sorted(mine, key=lambda pool: (-pool["change"] * sign, pool["cluster"], pool["sku"]))


def told(kind: str, events: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """Events as lines: those that one person did at one moment are one line."""
    words, about = KINDS[kind]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for event in events:
        groups.setdefault((event["recorded_at"], event["actor"]), []).append(event)
    lines: list[dict[str, object]] = []
    for (at, actor), group in groups.items():
        names = list(dict.fromkeys(_name(event["subject"]) for event in group))
        where = ", ".join(names[:3]) if about and len(names) <= 3 else ""
        if about and len(names) > 3:
            where = f"{names[0]} and {counted(len(names) - 1, 'other')}"
        first = group[0]
        lines.append(
            {
                "at": at,
                "actor": actor,
                "words": words,
                "where": where,
                "reason": first["reason"],
                "href": _href(about, names) if len(names) == 1 else "",
                "revision": first["revision"],
            }
        )
    return lines


def _name(subject: str) -> str:
    """`pool/tiger/H200` as people say it: `tiger H200`."""
    return subject.partition("/")[2].replace("/", " ")


def _href(about: str, names: Sequence[str]) -> str:
    pages = {"pool": "/clusters/", "cluster": "/clusters/", "campaign": "/campaigns/", "incident": "/incidents/"}
    return pages[about] + names[0].split(" ")[0] if about in pages and names[0] else ""
