"""One node: its facts, who holds it and until when, who runs there, and what happened to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plimsoll.server.pages.causes import WORDS
from plimsoll.server.pages.health import HOLD_DEFAULTS

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

TONES = {
    "in_service": "good",
    "validating": "info",
    "joining": "info",
    "draining": "warn",
    "maintenance": "warn",
    "retired": "",
}
"""Of service states; any other is bad."""
HEALTH_TONES = {"healthy": "good", "degraded": "warn", "unhealthy": "bad", "unknown": "warn"}


async def node(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    name = visit.path["node"]
    shown = await visit.ask("health show", filters=[name])
    why, log = await asyncio.gather(
        visit.ask("why", words=[name]), visit.ask("audit log", subject=f"node/{name}", limit=30)
    )
    return {
        "shown": shown,
        "holds": [HOLD_DEFAULTS | hold for hold in shown["holds"]],
        "why": why if why["about"] == "node" else None,
        "log": list(reversed(log["events"])),
        "service_tone": TONES.get(shown["service"], "bad"),
        "health_tone": HEALTH_TONES.get(shown["facts"]["health"], ""),
        "tones": TONES,
        "may_operate": visit.may("operate"),
        **WORDS,
        "words_of": WORDS,
    }
