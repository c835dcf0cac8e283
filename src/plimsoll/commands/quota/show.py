"""`plimsoll quota show`: the hull of each cluster, and what each team holds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, Watch, answer_state, open_database, state_as_of
from plimsoll.commands.output import progress
from plimsoll.commands.pictures import PictureOutput, check_place, put
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.words import (
    Clusters,
    PolicyWord,
    Skus,
    draw,
    line_warnings,
    moment_of,
    plan_document,
    policy_meant,
    team_sums,
    words_again,
)
from plimsoll.errors import NotFound, UsageError
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.control import modes
from plimsoll.quota.fill import Loss
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Hull, TeamHull, hull_now, look, pool_keys
from plimsoll.quota.lines import LineNow, lines_now
from plimsoll.quota.model import Mode
from plimsoll.quota.plan import NO_LINE, summarise
from plimsoll.quota.policy import day_of
from plimsoll.quota.service import pools_of
from plimsoll.state.state import State
from plimsoll.words import counted, near
from plimsoll.workloads.losses import lost_already, out_of_service

POOLS_DRAWN_MAX = 4
POOLS_PICTURED_MAX = 12
LOSSES_SHOWN = 20
TEAMS_SHOWN = 10
_FIELD = {"inside_guarantee": "inside"}


@app.command("show")
def show_command(
    context: typer.Context,
    clusters: Clusters = None,
    team: Annotated[
        str, typer.Option("--team", metavar="TEAM", help="One team, across clusters.", show_default=False)
    ] = "",
    sku: Skus = None,
    policy: PolicyWord = "",
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="Where -o png or -o svg goes.", show_default="stdout"),
    ] = None,
    db: Db = "",
    output: Annotated[PictureOutput, typer.Option("-o", "--output", help="How to print.")] = PictureOutput.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """The hull of each cluster: installed, healthy, line, assigned, guaranteed, allocated, idle, flex, over."""
    check_place(output, file, noun="hull")
    if output.is_picture:
        with progress("drawing"):
            state = state_as_of(open_database(context, db), as_of)
            body = _draw(_seen(state, clusters or [], sku or [], team, policy, as_of).hulls, output)
        put(body, file, next_step=f"--file hull.{output}")
        return

    def answer(state: State) -> Answer:
        return _answer(state, clusters or [], sku or [], team, policy, as_of)

    answer_state(context, db, as_of, Output(output.value), watch=watch, answer=answer)


class _Seen(msgspec.Struct, frozen=True):
    """The pools that were asked for, as they are."""

    now: datetime
    policy: str
    hulls: list[Hull]
    lines: dict[PoolKey, LineNow]
    losses: list[tuple[PoolKey, Loss]]


def _draw(hulls: Sequence[Hull], output: PictureOutput) -> bytes:
    from plimsoll.charts import render
    from plimsoll.quota.picture import picture

    if len(hulls) > POOLS_PICTURED_MAX:
        raise UsageError(
            "too_many_hulls",
            f"a picture holds at most {POOLS_PICTURED_MAX} pools, and these are {len(hulls)}",
            next_step="name clusters: plimsoll quota show tiger -o png --file hull.png",
        )
    return render(picture(hulls), "svg" if output is PictureOutput.SVG else "png")


def _seen(state: State, clusters: Sequence[str], skus: Sequence[str], team: str, word: str, as_of: str) -> _Seen:
    now, policy = moment_of(state, as_of), policy_meant(state, word)
    keys = pools_of(state, clusters, skus)
    if team:
        asked = pool_keys(state) if keys is None else keys
        keys = [key for key in asked if team in state.of(QuotaBook).pool_teams.get(key, ())]
        if not keys:
            raise _no_such_team(state, team)
    keys = pool_keys(state) if keys is None else keys
    lines = lines_now(state, policy, now=now, pools=keys)
    pools = look(state, keys, policy, day_of(now))
    hulls = [hull_now(pool, line=lines.get(pool.key, NO_LINE).gpus) for pool in pools]
    if team:
        hulls = [msgspec.structs.replace(h, teams=[each for each in h.teams if each.team == team]) for h in hulls]
    losses = [(pool.key, loss) for pool in pools for loss in pool.losses if team in ("", loss.team)]
    return _Seen(now, policy.name, hulls, lines, losses)


def _answer(state: State, clusters: Sequence[str], skus: Sequence[str], team: str, word: str, as_of: str) -> Answer:
    seen = _seen(state, clusters, skus, team, word, as_of)
    hulls, lines, losses, mode = seen.hulls, seen.lines, seen.losses, modes(state)
    document = _document(hulls, losses, as_of=seen.now, policy=seen.policy)
    for row, hull in zip(document["clusters"], hulls, strict=True):
        line = lines.get(hull.key, NO_LINE)
        row |= {"idle": hull.idle, "shortfall": hull.shortfall, "line_policy": line.policy, "line_why": line.why}
        row["is_aligned"] = hull.key in state.of(QuotaBook).lines
        row["mode"] = mode.get(hull.cluster, Mode.OBSERVE)
    heading = _shortfall(hulls)
    if team:
        heading = "\n".join(line for line in (heading, _team_heading(team, hulls)) if line)
        return Answer(document, [_team_table(hulls)], heading, _notes(state, hulls, losses, clusters, team))
    tables = [_pool_table(hulls, mode)]
    if clusters and len(hulls) <= POOLS_DRAWN_MAX:
        heading = "\n\n".join(part for part in (heading, *map(draw, hulls)) if part)
        tables = [_teams(hulls), *tables]
    if losses:
        rows = [(*key, loss.team, loss.work, loss.gpus, loss.is_flex) for key, loss in losses[:LOSSES_SHOWN]]
        names = ("cluster", "sku", "team", "work", "lost", "flex")
        tables.append(Table(names, rows, "lost, as fewer GPUs are in service", "lost"))
    if not clusters:
        tables.append(_holders(hulls))
    elif len(hulls) > POOLS_DRAWN_MAX:
        tables.append(msgspec.structs.replace(_teams(hulls), shown=0))
    return Answer(document, tables, heading, [*_notes(state, hulls, losses, clusters, team), *line_warnings(lines)])


def _document(hulls: Sequence[Hull], losses: Sequence[tuple[PoolKey, Loss]], **more: Any) -> dict[str, Any]:
    lost = [{"cluster": key.cluster, "sku": key.sku, **msgspec.to_builtins(loss)} for key, loss in losses]
    document = plan_document(hulls, summarise(hulls), losses=lost, **more)
    for row, team in zip(document["teams"], (team for hull in hulls for team in hull.teams), strict=True):
        row["flex_used"] = team.flex_used
    return document


def _pool_table(hulls: Sequence[Hull], mode: Any) -> Table:
    columns = (
        "cluster", "sku", "total", "healthy", "line", "in_force", "assigned", "guaranteed", "allocated", "idle",
        "flex_standing", "flex_lent", "flex_used", "over", "shortfall", "mode",
    )  # fmt: skip
    rows = [
        (
            hull.cluster, hull.sku, hull.total, hull.healthy, hull.line, hull.line_in_force, hull.assigned,
            hull.guaranteed, hull.allocated, hull.idle, hull.flex_standing, hull.flex_lent, hull.flex_used, hull.over,
            hull.shortfall, str(mode.get(hull.cluster, Mode.OBSERVE)),
        )
        for hull in sorted(hulls, key=lambda hull: (-hull.shortfall, -hull.over, hull.key))
    ]  # fmt: skip
    return Table(columns, rows, name="pools")


def _holders(hulls: Sequence[Hull]) -> Table:
    """What each team holds, over all pools."""
    columns: dict[str, Callable[[TeamHull], int]] = {
        name: operator.attrgetter(name) for name in ("assigned", "guaranteed", "allocated", "idle", "flex_used")
    }
    rows = team_sums([team for hull in hulls for team in hull.teams], columns, by="assigned")
    return Table(("team", "clusters", *columns), rows, "who holds it (GPUs)", "teams", TEAMS_SHOWN)


def _team_table(hulls: Sequence[Hull]) -> Table:
    columns = (
        "cluster", "sku", "assigned", "guaranteed", "allocated", "idle", "inside_guarantee", "flex_used",
        "pool_standing_flex", "pool_shortfall",
    )  # fmt: skip
    rows = [
        (
            hull.cluster, hull.sku, team.assigned, team.guaranteed, team.allocated, team.idle, team.inside,
            team.flex_used, hull.flex_standing, hull.shortfall,
        )
        for hull in hulls
        for team in hull.teams
    ]  # fmt: skip
    return Table(columns, rows, name="pools")


def _teams(hulls: Sequence[Hull]) -> Table:
    columns = ("team", "cluster", "sku", "assigned", "guaranteed", "allocated", "idle", "inside_guarantee", "flex_used")
    rows = [[getattr(team, _FIELD.get(name, name)) for name in columns] for hull in hulls for team in hull.teams]
    return Table(columns, rows, "teams", "quotas")


def _team_heading(team: str, hulls: Sequence[Hull]) -> str:
    teams = [each for hull in hulls for each in hull.teams]
    return (
        f"{team} holds {sum(each.assigned for each in teams):,} GPUs on paper in {counted(len(teams), 'pool')};"
        f" {sum(each.guaranteed for each in teams):,} are guaranteed, {sum(each.allocated for each in teams):,} in use"
    )


def _shortfall(hulls: Sequence[Hull]) -> str:
    """A promise that is broken now is the first thing that is said. Of a team's hulls the pool's numbers are meant."""
    short = [hull for hull in hulls if hull.shortfall]
    if not short:
        return ""
    worst, gpus = max(short, key=lambda hull: hull.shortfall), sum(hull.shortfall for hull in short)
    place = f"{worst.cluster} {worst.sku}: {worst.guaranteed:,} are guaranteed and {worst.healthy:,} work"
    if len(short) == 1:
        return f"SHORTFALL: {place}, {gpus:,} GPUs short"
    return f"SHORTFALL: in {len(short):,} pools less works than is guaranteed, by {gpus:,} GPUs; most in {place}"


def _notes(
    state: State, hulls: Sequence[Hull], losses: Sequence[tuple[PoolKey, Loss]], clusters: Sequence[str], team: str
) -> list[str]:
    if not hulls:
        return [nothing_of(clusters)]
    notes = []
    below = [hull for hull in hulls if hull.line < hull.guaranteed and not hull.shortfall]
    if below:
        gpus = sum(hull.guaranteed - hull.line for hull in below)
        notes.append(
            f"warning: in {counted(len(below), 'pool')} the line now is below what is guaranteed, by {gpus:,} GPUs"
        )
    if losses:
        lost, goes = _gone(state, losses, team)
        if lost:
            notes.append(f"{lost:,} GPUs of running work were lost with their machines")
        if goes:
            notes.append(f"{goes:,} GPUs of running work are lost when the nodes that drain go: until then it runs on")
    summary = summarise(hulls)
    if summary.over:
        whose = "GPUs of quota, of all teams in these pools," if team else "GPUs of quota"
        notes.append(
            f"{summary.over:,} {whose} are over the line in {counted(summary.clusters_over, 'cluster')}"
            + (f"; no working machine stands behind {summary.never_backed:,} of them" if summary.never_backed else "")
        )
    book = state.of(QuotaBook)
    if not any(hull.key in book.lines for hull in hulls):
        notes.append("nothing is guaranteed yet; next: plimsoll quota plan")
    elif below or any(hull.shortfall for hull in hulls):
        notes.append("next: plimsoll quota control --dry-run   # what the controller would do")
    return notes


def _gone(state: State, losses: Sequence[tuple[PoolKey, Loss]], team: str) -> tuple[int, int]:
    """Of the GPUs that are lost those that are gone, and those that still run on nodes that drain."""
    lost = {pool: 0 for pool, _ in losses}
    for pool, loss in losses:
        lost[pool] += loss.gpus
    gone = 0
    for pool, out in out_of_service(state, lost).items():
        already = sum(loss.gpus for loss in lost_already(state, pool, out) if team in ("", loss.team))
        gone += min(lost[pool], already)
    return gone, sum(lost.values()) - gone


def nothing_of(clusters: Sequence[str]) -> str:
    """What is said where there is no pool to speak of."""
    if clusters:
        where = ", ".join(clusters)
        return (
            f"nothing of {where} is in production, and nobody holds quota there; next: plimsoll fleet show --by cluster"
        )
    return "nothing is installed and nobody holds quota; next: plimsoll demo, or plimsoll fleet import DIR"


def _no_such_team(state: State, team: str) -> NotFound:
    book = state.of(QuotaBook)
    teams = sorted({each for teams in book.pool_teams.values() for each in teams})
    if team in teams:
        elsewhere = sum(team in found for found in book.pool_teams.values())
        return NotFound(
            "no_such_team",
            f"{team} holds and uses nothing here, but in {counted(elsewhere, 'other pool')}",
            next_step=f"plimsoll quota show --team {words_again(team)}",
            team=team,
        )
    return NotFound(
        "no_such_team",
        f"no team {team[:100]!r} holds or uses anything here{near(team, teams)}",
        next_step="plimsoll quota show",
        team=team[:100],
    )
