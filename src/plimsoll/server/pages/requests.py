"""One request for quota: what was asked, the options with their numbers, and the buttons of those who may answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll.server.pages.causes import WORDS

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit


async def request(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    found = await visit.ask("quota requests", request_id=visit.path["request_id"])
    asked = found["request"]
    options = [option for option in found["options"] if option["number"] is not None]
    return {
        "asked": asked,
        "options": options,
        "refused": [option for option in found["options"] if option["number"] is None],
        "best": options[0] if options else None,
        "whole": sum(1 for option in options if option["is_whole"]),
        "pools": found["pools"],
        "past": found["past"],
        "is_open": asked["state"] == "open",
        "may_decide": visit.may("decide_quota", asked["team"]),
        "may_withdraw": visit.may("use", asked["team"]) or visit.may("decide_quota", asked["team"]),
        **WORDS,
    }
