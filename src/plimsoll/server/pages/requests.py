"""One request for quota: what was asked; while it is open the options with their numbers, and the buttons of those who
may answer; then what was answered, by whom, when, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.causes import WORDS

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

GIVEN = ("approved", "waiting")
"""The states of a request that was given something."""


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
        "answers": [row | {"way": way_of(row["option"])} for row in found["answers"]],
        "given": given_to(asked),
        "is_open": asked["state"] == "open",
        "may_decide": visit.may("decide_quota", asked["team"]),
        "may_withdraw": visit.may("use", asked["team"]) or visit.may("decide_quota", asked["team"]),
        **WORDS,
    }


def given_to(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """What of a request was approved, in words; None where it was given nothing, or does not get it any more."""
    approved = asked["approved"]
    if approved is None or asked["state"] not in GIVEN:
        return None
    givers = ", ".join(f"{gpus:,} from {team}" for team, gpus in approved.get("givers", ()))
    is_flex = approved["option"].partition(":")[0] == "flex"
    return {**approved, "way": way_of(approved["option"]), "givers": givers, "is_flex": is_flex}


def way_of(option: str) -> str:
    """The key of an option as people say it: `transfer:eagle` is `transfer in eagle`."""
    code, _, cluster = option.partition(":")
    return code.replace("_", " ") + (f" in {cluster}" if cluster else "")
