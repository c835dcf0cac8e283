"""`plimsoll quota promise`: could every team use all it was guaranteed?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, Format, Watch, answer_state
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.words import moment_of
from plimsoll.quota.history.promise import Kept, PromiseKept, Spell, promise_kept
from plimsoll.quota.names import check_cluster, check_team
from plimsoll.state.state import State
from plimsoll.workloads.waited import fragmented_gpu_hours, waited_breaches

LEVELS_SHOWN = 15
SPELLS_SHOWN = 20
REASONS_SHOWN = 3


@app.command("promise")
def promise_command(
    context: typer.Context,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How many days back.")] = 30,
    team: Annotated[str, typer.Option("--team", metavar="TEAM", help="Only this team.", show_default=False)] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Only this cluster.", show_default=False)
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Promise kept: the share of team-hours in which a team could use all it was guaranteed, and every broken spell."""

    def answer(state: State) -> Answer:
        if team:
            check_team(state, team)
        if cluster:
            check_cluster(state, cluster)
        found = promise_kept(
            state,
            days=days,
            now=moment_of(state, as_of),
            teams=[team] if team else (),
            clusters=[cluster] if cluster else (),
            breaches=waited_breaches(state, now=moment_of(state, as_of)),
        )
        fragmented = fragmented_gpu_hours(state, days=days, now=moment_of(state, as_of))
        return _answer(found, days=days, revision=state.revision, fragmented=fragmented)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def _answer(found: PromiseKept, *, days: int, revision: int, fragmented: float) -> Answer:
    level = found.fleet
    if level.kept_share is None:
        heading = f"no team-hour of the past {days} days counts: nothing was guaranteed through a whole hour"
    else:
        heading = (
            f"promise kept in {level.kept_share:.3%} of {level.team_hours:,} team-hours of the past {days} days;"
            f" {level.broken_hours:,} were broken, {found.missing_gpu_hours:,.0f} of"
            f" {found.guaranteed_gpu_hours:,.0f} GPU-hours were not there"
        )
    tables = [
        _levels("cluster", found.clusters),
        _levels("team", found.teams),
        _levels("policy", found.policies),
        _spells(found.spells),
    ]
    document: dict[str, Any] = {"revision": revision, "days": days, "fragmented_gpu_hours": round(fragmented, 2)}
    document |= msgspec.to_builtins(found)
    for row, spell in zip(document["spells"], found.spells, strict=True):
        row["move"] = spell.move
    return Answer(document, [table for table in tables if table.rows], heading, _notes(found, fragmented))


def _levels(name: str, levels: Sequence[Kept]) -> Table:
    rows = [(each.name, each.team_hours, each.broken_hours, each.kept_share) for each in levels[:LEVELS_SHOWN]]
    more = f", the worst {LEVELS_SHOWN} of {len(levels)}" if len(levels) > LEVELS_SHOWN else ""
    return Table((name, "team_hours", "broken_hours", "kept_share"), rows, f"by {name}{more}")


def _spells(spells: Sequence[Spell]) -> Table:
    columns = ("cluster", "sku", "from", "until", "hours", "missing", "guaranteed", "healthy", "cause", "out", "teams")
    rows: list[tuple[Any, ...]] = [
        (
            spell.cluster,
            spell.sku,
            spell.begin.replace(microsecond=0),
            "goes on" if spell.is_open else spell.end.replace(microsecond=0),
            spell.hours,
            spell.missing,
            spell.guaranteed,
            spell.healthy,
            str(spell.cause),
            _reasons(spell),
            ", ".join(spell.teams),
        )
        for spell in reversed(spells[-SPELLS_SHOWN:])
    ]
    more = f", the last {SPELLS_SHOWN} of {len(spells)}" if len(spells) > SPELLS_SHOWN else ""
    return Table(columns, rows, f"broken{more}")


def _reasons(spell: Spell) -> str:
    words = [
        f"{loss.nodes} {loss.reason or ('planned work' if loss.is_planned else 'without a reason')}"
        for loss in spell.reasons[:REASONS_SHOWN]
    ]
    more = sum(loss.nodes for loss in spell.reasons[REASONS_SHOWN:])
    return ", ".join([*words, f"{more} others"] if more else words)


def _notes(found: PromiseKept, fragmented: float) -> list[str]:
    notes = []
    if fragmented:
        notes.append(f"apart from that, work waited {fragmented:,.1f} GPU-hours because no one island had it all")
    if found.not_aligned:
        notes.append(f"{found.not_aligned} pools are not aligned: nothing of them is guaranteed; plimsoll quota plan")
    if any(spell.is_open for spell in found.spells):
        notes.append("a promise is broken now: plimsoll quota show")
    moves = sorted({spell.move for spell in found.spells})
    notes += [f"whose move: {move}" for move in moves]
    return notes
