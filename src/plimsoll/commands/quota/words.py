"""What the commands of `quota` share: which policy is meant, which moment, and how numbers are laid out."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Table
from plimsoll.commands.desk import here
from plimsoll.commands.options import read_text
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.hull import Hull, TeamHull
from plimsoll.quota.lines import LineNow
from plimsoll.quota.plan import Summary, policy_in_force
from plimsoll.quota.policy import POLICY_FORMS, Policy, check_policy, parse_word
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_time, utc_now

PolicyWord = Annotated[
    str,
    typer.Option(
        "--policy", metavar="FILE|WORD", help=f"Instead of the one in force: {POLICY_FORMS}.", show_default=False
    ),
]
Clusters = Annotated[list[str] | None, typer.Argument(metavar="CLUSTER", help="Only these clusters.")]
Skus = Annotated[list[str] | None, typer.Option("--sku", metavar="SKU", help="Only this SKU.", show_default=False)]

POOL_FIELDS = (
    "cluster", "sku", "total", "healthy", "line", "line_in_force", "assigned", "guaranteed", "allocated", "over",
    "never_backed", "to_flex", "unallocated", "flex_standing", "flex_lent", "flex_used", "stage",
)  # fmt: skip
"""What `quota plan -o json` promises of a pool."""
TEAM_FIELDS = ("team", "cluster", "sku", "assigned", "guaranteed", "allocated", "idle", "haircut", "stage")
BAR_WIDTH = 60


def policy_meant(state: State, word: str) -> Policy:
    """The policy in force, a word such as `fixed:0.15`, or a file."""
    if not word:
        return policy_in_force(state)
    if here() is not None:  # whoever is elsewhere sends the text: files of this machine are not theirs to name
        return check_policy(word, state.of(Fleet), source="the policy") if "\n" in word else parse_word(word)
    if word.endswith((".yaml", ".yml")) or os.path.isfile(word):
        return check_policy(read_text(Path(word), noun="quota"), state.of(Fleet), source=word)
    return parse_word(word)


def words_again(*words: str) -> str:
    """Words that can be typed again as they are."""
    return " ".join(shlex.quote(word) for word in words if word)


def moment_of(state: State, as_of: str) -> datetime:
    """Now, or when the state of the past was recorded."""
    return parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()


def whole_seconds(moment: datetime) -> datetime:
    """A moment as people read it."""
    return moment.replace(microsecond=0)


def pool_row(hull: Hull) -> dict[str, Any]:
    return {field: getattr(hull, field) for field in POOL_FIELDS}


def team_row(team: TeamHull) -> dict[str, Any]:
    row = {field: getattr(team, field) for field in TEAM_FIELDS}
    return row | {"haircut": msgspec.to_builtins(team.haircut)}


def plan_document(
    hulls: Sequence[Hull], summary: Summary, *, as_of: datetime, policy: str, **more: object
) -> dict[str, Any]:
    """The JSON that others rely on."""
    return {
        "as_of": show_time(as_of),
        "policy": policy,
        "clusters": [pool_row(hull) for hull in hulls],
        "teams": [team_row(team) for hull in hulls for team in hull.teams],
        "summary": msgspec.to_builtins(summary),
        **more,
    }


def line_warnings(lines: Mapping[PoolKey, LineNow]) -> list[str]:
    """What a reader must know about how lines were found, each said once, with the pool it concerns first."""
    told: dict[str, list[PoolKey]] = {}
    for key, line in sorted(lines.items()):
        if line.warning:
            told.setdefault(line.warning, []).append(key)
    return [
        f"warning: {' '.join(keys[0])}{f' and {len(keys) - 1} more' if len(keys) > 1 else ''}: {warning}"
        for warning, keys in told.items()
    ]


def team_sums(
    teams: Sequence[TeamHull], columns: Mapping[str, Callable[[TeamHull], int]], *, by: str
) -> list[tuple[object, ...]]:
    """One row a team: in how many clusters, and the sums over its pools; the largest by a column first."""
    sums: dict[str, list[int]] = {}
    places: dict[str, set[str]] = {}
    for each in teams:
        found = sums.setdefault(each.team, [0] * len(columns))
        for place, count in enumerate(columns.values()):
            found[place] += count(each)
        places.setdefault(each.team, set()).add(each.cluster)
    first = list(columns).index(by)
    order = sorted(sums, key=lambda team: (-sums[team][first], team))
    return [(team, len(places[team]), *sums[team]) for team in order]


def team_table(teams: Sequence[TeamHull], title: str = "", shown: int | None = None) -> Table:
    columns = (
        "team", "cluster", "sku", "assigned", "guaranteed", "allocated", "idle", "cut_unscheduled", "cut_idle",
        "cut_running", "stage",
    )  # fmt: skip
    rows = [
        (
            team.team, team.cluster, team.sku, team.assigned, team.guaranteed, team.allocated, team.idle,
            team.haircut.unscheduled, team.haircut.idle, team.haircut.running, team.stage,
        )
        for team in teams
    ]  # fmt: skip
    return Table(columns, rows, title, "quotas", shown)


def draw(hull: Hull) -> str:
    """A pool as a hull, in text: each bar is to the scale of what is installed or promised."""
    scale = max(hull.total, hull.assigned, hull.allocated, 1)
    full, above = ("█", "▒") if _can_print("█▒") else ("#", "!")

    def bar(label: str, gpus: int, limit: int, note: str = "") -> str:
        inside, over = min(gpus, limit), max(0, gpus - limit)
        cells = round(inside / scale * BAR_WIDTH)
        drawn = full * cells + above * (round(gpus / scale * BAR_WIDTH) - cells if over else 0)
        return f"  {label:<14}{drawn:<{BAR_WIDTH}} {gpus:>7,}{note}"

    def over_note(gpus: int, limit: int, what: str) -> str:
        return f"  {gpus - limit:,} over {what}" if gpus > limit else ""

    rows = [
        bar("installed", hull.total, hull.total),
        bar("healthy", hull.healthy, hull.healthy),
        bar("line now", hull.line, hull.line),
        bar("line in force", hull.line_in_force, hull.line, over_note(hull.line_in_force, hull.line, "the line now")),
        bar("assigned", hull.assigned, hull.line, over_note(hull.assigned, hull.line, "the line")),
        bar("guaranteed", hull.guaranteed, hull.healthy, over_note(hull.guaranteed, hull.healthy, "what is healthy")),
        bar("allocated", hull.allocated, hull.allocated, f"  {hull.idle:,} idle, {hull.flex_used:,} as flex"),
        bar("flex standing", hull.flex_standing, hull.flex_standing),
        bar("flex lent", hull.flex_lent, hull.flex_lent),
    ]
    return "\n".join([f"{hull.cluster} {hull.sku}", *rows])


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
