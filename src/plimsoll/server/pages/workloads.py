"""What runs and what waits, all of it: filtered, sorted, a page at a time; and the form that submits more."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.causes import WORDS

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

ROWS_A_PAGE = 100
FIND_MAX = 100
STANDINGS = ("waiting", "starting", "partly", "running")
SORTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "standing": lambda work: STANDINGS.index(work["standing"]) if work["standing"] in STANDINGS else len(STANDINGS),
    "workload": lambda work: work["workload"],
    "team": lambda work: work["team"],
    "owner": lambda work: work["owner"],
    "gpus": lambda work: work["gpus"],
    "wanted": lambda work: work["wanted"],
    "as": lambda work: work["as"],
    "cluster": lambda work: (work["cluster"], work["sku"]),
    "submitted": lambda work: work["submitted"] or "",
}
SORT_DEFAULT = "standing"
STEM_MAX = 80
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_ADDRESS = re.compile(r"[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+")
_OWNER = re.compile(r"^owner: \S+ +", re.MULTILINE)
EXACT = ("team", "standing", "cluster", "sku", "as", "owner")


async def workloads(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    found = (await visit.ask("workload list"))["workloads"]
    wanted = {key: visit.query.get(key, "")[:FIND_MAX] for key in (*EXACT, "find")}
    rows = [work for work in found if is_wanted(work, wanted)]
    sort = visit.query.get("sort", SORT_DEFAULT)
    rows = sorted_rows(rows, sort)
    pages = max(1, -(-len(rows) // ROWS_A_PAGE))
    page = min(_number(visit.query.get("page", "")), pages)
    return {
        "rows": rows[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE],
        "count": len(rows),
        "page_number": page,
        "pages": pages,
        "first": (page - 1) * ROWS_A_PAGE + 1,
        "counts": {standing: sum(work["standing"] == standing for work in rows) for standing in STANDINGS},
        "gpus": sum(work["gpus"] for work in rows),
        "flex": sum(part["flex"] for work in rows for part in work["parts"]),
        "missing": sum(max(0, work["wanted"] - work["gpus"]) for work in rows if work["standing"] != "running"),
        "wanted": wanted,
        "is_filtered": any(wanted.values()),
        "choices": {key: sorted({work[key] for work in found if work[key]}) for key in ("team", "cluster", "sku")},
        "standings": STANDINGS,
        "filters": [f"{key}={value}" for key, value in wanted.items() if key in EXACT and value],
        "sort": sort,
        "example": await example(visit, found) if visit.query.get("submit") and not visit.as_of else "",
        "may_use": visit.may("use") or any(visit.may("use", team) for team in visit.principal.teams),
        **WORDS,
    }


def is_wanted(work: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Whether the filters let it through."""
    if any(wanted[key] and work[key] != wanted[key] for key in EXACT):
        return False
    find = wanted["find"].casefold()
    return not find or find in work["workload"].casefold() or find in work["owner"].casefold()


def sorted_rows(rows: Sequence[Mapping[str, Any]], sort: str) -> list[Mapping[str, Any]]:
    """By the URL's word; `-` in front turns it round. Equal ones stand by size, then name."""
    by = SORTS.get(sort.removeprefix("-"), SORTS[SORT_DEFAULT])
    steady = sorted(rows, key=lambda work: (-work["wanted"], work["workload"]))
    return sorted(steady, key=by, reverse=sort.startswith("-"))


def _number(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1


async def example(visit: Visit, works: Sequence[Mapping[str, Any]]) -> str:
    """A file to begin with: of the chosen team or the visitor's own, owned by the visitor, by a name that is free."""
    teams = [team for team in (visit.query.get("team", "")[:FIND_MAX], *visit.principal.teams) if team.isprintable()]
    team = next(filter(None, teams), "")
    name = free_name(team, {work["workload"] for work in works})
    return owned_by(visit.principal.name, await visit.ask_text("workload example", name=name, team=team))


def free_name(team: str, taken: AbstractSet[str]) -> str:
    """The first `TEAM-1`, `TEAM-2`, … that no workload has, of the signs that a workload's name may have."""
    stem = _NOT_IN_A_NAME.sub("-", team).strip("-._")[:STEM_MAX] or "run"
    return next(name for number in range(1, len(taken) + 2) if (name := f"{stem}-{number}") not in taken)


def owned_by(name: str, text: str) -> str:
    """The file with this owner. Any other name than an address may mean something else to YAML, and is quoted."""
    owner = name if _ADDRESS.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    return _OWNER.sub(lambda found: f"owner: {owner}".ljust(len(found[0]) - 1) + " ", text, count=1)
