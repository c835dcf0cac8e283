"""One workload: where it runs, why it waits or what threatens it, what happened to it, and the buttons for its team."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.causes import WORDS

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

TIERS = ("critical", "high", "mid", "low")


async def workload(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    name = visit.path["workload"]
    shown = await visit.ask("workload show", name=name)
    why, told = await asyncio.gather(visit.ask("why", words=[name]), visit.ask("incident notices", workload=name))
    team = shown["team"]
    is_over = shown["standing"] == "over"
    return {
        "shown": shown,
        "why": why,
        "told": told,
        "is_over": is_over,
        "parts": shown.get("parts", []),
        "elastic": [part for part in shown.get("parts", []) if part["kind"] == "elastic"],
        "node_count": sum(len(part["nodes"]) for part in shown.get("parts", [])),
        "replicas": {part["part"]: replicas(part) for part in shown.get("parts", [])},
        "interruptions": list(reversed(shown.get("interruptions", []))),
        "may_use": visit.may("use", team) and not is_over,
        "may_end": (visit.may("use", team) or visit.may("operate")) and not is_over,
        "tiers": TIERS,
        **WORDS,
        "words_of": WORDS,
    }


def replicas(part: Mapping[str, Any]) -> str:
    """An elastic part's size in words."""
    return f"{part['least']:,} to {part['wanted']:,} GPUs" if part["kind"] == "elastic" else f"{part['wanted']:,} GPUs"
