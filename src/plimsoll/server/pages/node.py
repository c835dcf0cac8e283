"""One node: its facts, who holds it and until when, who runs there, what happened to it, and what can be done to it.

Decides which acts make sense for a node as it is, and what is left to say of one that only has to stay quiet.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.causes import WORDS
from plimsoll.server.pages.format import moment_of
from plimsoll.server.pages.health import HELD, HOLD_DEFAULTS, SETTABLE
from plimsoll.times import utc_now

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
_QUIET = re.compile(r"quiet for (\d+) more minutes")
"""What a check waits for that no person and no command answers, as `health show` says it."""
WAY_BACK = {"validating": (*HELD, "joining"), "in_service": ("validating",)}
"""From where a node gets to a service on its way back."""
QUIET_STEP = timedelta(minutes=5)
NOT_OF_QUIET = ("Nobody said when it is back", "Whose move it is:")
"""How sentences of `why` begin that are about repairs: of a node that only waits for quiet they would be wrong."""


async def node(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    name = visit.path["node"]
    shown = await visit.ask("health show", filters=[name])
    why, log = await asyncio.gather(
        visit.ask("why", words=[name]), visit.ask("audit log", subject=f"node/{name}", limit=30)
    )
    now = (moment_of(visit.stamp.recorded_at) if visit.as_of else None) or utc_now()
    until = quiet_until(shown["waits_for"], now)
    return {
        "shown": shown,
        "holds": [HOLD_DEFAULTS | hold for hold in shown["holds"]],
        "why": why if why["about"] == "node" else None,
        "says": [line for line in why.get("says", ()) if until is None or not line.startswith(NOT_OF_QUIET)],
        "quiet_until": until,
        "checks": [each["check"] for each in shown["waits_for"] if not _QUIET.fullmatch(each["what"])],
        "held_services": HELD,
        "settable": settable(shown["service"]),
        "log": list(reversed(log["events"])),
        "service_tone": TONES.get(shown["service"], "bad"),
        "health_tone": HEALTH_TONES.get(shown["facts"]["health"], ""),
        "tones": TONES,
        "may_operate": visit.may("operate"),
        **WORDS,
        "words_of": WORDS,
    }


def quiet_until(waits_for: Sequence[Mapping[str, Any]], now: datetime) -> datetime | None:
    """Until about when a node waits that waits for nothing but quiet; None where it waits for somebody.

    Answers are some seconds old and speak of whole minutes: rounded up, so that the page says the same all the time.
    """
    found = [_QUIET.fullmatch(each["what"]) for each in waits_for]
    minutes = [int(match[1]) for match in found if match is not None]
    if not minutes or len(minutes) < len(found):
        return None
    until = now + timedelta(minutes=max(minutes))
    begin = until.replace(hour=0, minute=0, second=0, microsecond=0)
    return begin + -((begin - until) // QUIET_STEP) * QUIET_STEP


def settable(service: str) -> list[str]:
    """Where a node may be sent from its service: out of it at any time, and back in one way only."""
    return [each for each in SETTABLE if each != service and service in WAY_BACK.get(each, (service,))]
