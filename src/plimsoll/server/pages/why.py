"""The search box on every page: one name, or terms of something not submitted yet; the answer of `plimsoll why`.

Decides only what was meant: terms (`gpus=352 sku=H200 island`), a name, or a cluster's.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from plimsoll.errors import PlimsollError
from plimsoll.server.pages.causes import WORDS
from plimsoll.server.pages.waterfall import waterfall

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

ASKED_CHARS_MAX = 300
FLEET = "fleet"
PAGES = {
    "workload": "/workloads/{name}",
    "stopped": "/workloads/{name}",
    "team": "/teams/{name}",
    "node": "/nodes/{name}",
}
NOT_FOUND = 404
IN_A_TERMINAL = ": -o json has them all"
"""Where a terminal has the rest; here it is on the team's page."""


async def why(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    asked = visit.query.get("q", "").strip()[:ASKED_CHARS_MAX]
    context: dict[str, object] = {
        "asked": asked,
        "answer": None,
        "error": None,
        "near": [],
        "cluster": "",
        **WORDS,
        "words_of": WORDS,
    }
    if not asked:
        return context | {"examples": await examples(visit)}
    words = asked.split()
    try:
        if is_terms(words):
            return context | await told(visit, is_if=True, words=words)
        if words == [FLEET]:
            return context | await told(visit, is_fleet=True)
        return context | await told(visit, words=[asked])
    except PlimsollError as error:
        if error.status != NOT_FOUND and not is_terms(words):
            raise
        clusters = [row["cluster"] for row in (await visit.ask("fleet clusters"))["clusters"]]
        if asked in clusters:
            return context | await told(visit, is_fleet=True, words=[asked]) | {"cluster": asked}
        near = error.fields.get("near")
        names = [*get_close_matches(asked, clusters, n=3), *(near if isinstance(near, list) else [])]
        said = {"message": error.message, "next_step": error.next_step, "code": error.code}
        return context | {
            "error": said,
            "near": list(dict.fromkeys(map(str, names))),
            "examples": await examples(visit),
        }


def is_terms(words: Sequence[str]) -> bool:
    """Whether it says what is wanted, and not whom it is about."""
    return any("=" in word for word in words)


async def told(visit: Visit, **values: object) -> dict[str, object]:
    """The answer, with the tables behind it."""
    whole = await visit.ask_whole("why", **values)
    answer: dict[str, Any] = msgspec.to_builtins(whole.document)
    name = str(answer.get({"team": "team", "node": "node"}.get(answer["about"], "workload"), ""))
    return {
        "answer": answer,
        "name": name,
        "page_href": PAGES.get(answer["about"], ""),
        "fall_bars": waterfall(answer["pools"]) if answer["about"] == "team" else [],
        "tables": [
            {"title": table.title, "columns": list(table.columns), "rows": [list(row) for row in table.rows]}
            for table in whole.tables
        ],
        "notes": [note.removesuffix(IN_A_TERMINAL) for note in whole.notes],
        "csv_href": visit.api_url("why", values, format="csv"),
    }


async def examples(visit: Visit) -> list[tuple[str, str]]:
    """What can be asked, with names that exist: the visitor's own where there are some."""
    quota = await visit.ask("quota show")
    waiting = (await visit.ask("workload list", waiting=True))["workloads"]
    teams = [*visit.principal.teams, *sorted({row["team"] for row in quota["teams"]})]
    skus = sorted({pool["sku"] for pool in quota["clusters"]})
    found = [(work["workload"], "a workload that waits") for work in waiting[:1]]
    if teams:
        found.append((teams[0], "a team: why can’t it use all of its quota?"))
    if skus:
        found.append((f"gpus=352 sku={skus[-1]} island", "something not submitted yet"))
    if quota["clusters"]:
        found.append((quota["clusters"][0]["cluster"], "a cluster: what was promised and not usable"))
    return [*found, (FLEET, "the whole fleet: GPU-hours promised and not usable, and what each fix gives back")]
