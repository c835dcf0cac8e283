"""`plimsoll quota flex|callback`: what is there beyond guarantees, how sure it is, and calling it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, DryRun, Format, Reason, answer_state, current_actor, open_database
from plimsoll.commands.output import show
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.request import revision_of, whole_number
from plimsoll.commands.quota.request_text import due_document, due_notes
from plimsoll.commands.quota.transfer import Cluster, Sku
from plimsoll.commands.quota.words import moment_of
from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Draft
from plimsoll.quota.flex import Availability, CalledBack, FlexPast, PoolFlex, call_back, flex_now, flex_past
from plimsoll.quota.history.past import last_hours, pool_pasts
from plimsoll.quota.hull import look, pool_keys
from plimsoll.quota.lines import lines_now
from plimsoll.quota.names import check_cluster, check_pool, check_team, check_whole_nodes
from plimsoll.quota.plan import NO_LINE, policy_in_force
from plimsoll.quota.policy import day_of
from plimsoll.quota.requests.clerk import carry_out
from plimsoll.quota.requests.desk import Due
from plimsoll.state.state import State
from plimsoll.times import show_time

LEVELS = (0.99, 0.9, 0.5)
"""In these shares of the past hours at least so many GPUs were there."""
WORKS_SHOWN = 20

Days = Annotated[int, typer.Option("--days", min=1, max=3650, help="How far back to look.")]


@app.command("flex")
def flex_command(
    context: typer.Context,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Only this one, with its teams.")] = "",
    sku: Annotated[str, typer.Option("--sku", metavar="SKU", help="Only this SKU.", show_default=False)] = "",
    team: Annotated[
        str, typer.Option("--team", metavar="TEAM", help="What this team has, and could have.", show_default=False)
    ] = "",
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus",
            metavar="GPUS",
            help="How often so many were there; else as many as stand now.",
            show_default=False,
        ),
    ] = "",
    days: Days = 90,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """Flex of each pool: standing, lent, used and by whom; how often and for how long it was there in the past."""
    wanted = whole_number(gpus) if gpus else None

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        if cluster:
            check_cluster(state, cluster)
        if team:
            check_team(state, team)
        keys = [key for key in pool_keys(state) if cluster in ("", key.cluster) and sku in ("", key.sku)]
        pools, pasts = _look(state, keys, team, days=days, now=now)
        shows_teams = bool(cluster or team)
        return _flex_answer(pools, pasts, wanted, team, days=days, revision=state.revision, shows_teams=shows_teams)

    answer_state(context, db, as_of, output, watch=False, answer=answer)


def _look(
    state: State, keys: Sequence[PoolKey], team: str, *, days: int, now: datetime
) -> tuple[list[tuple[PoolFlex, int]], Mapping[PoolKey, FlexPast]]:
    policy = policy_in_force(state)
    flexes = {each.key: each for each in flex_now(state, keys, policy, now=now, teams=[team] if team else ())}
    hours, healthy = last_hours(state, days=days, now=now), pool_pasts(state, keys, until=now)
    lines = lines_now(state, policy, now=now, pools=keys)
    looked = look(state, keys, policy, day_of(now))
    pasts = {
        pool.key: flex_past(state, pool, healthy[pool.key], lines.get(pool.key, NO_LINE), hours) for pool in looked
    }
    return [(flexes[pool.key], pool.size) for pool in looked], pasts


def _flex_answer(
    pools: Sequence[tuple[PoolFlex, int]],
    pasts: Mapping[PoolKey, FlexPast],
    wanted: int | None,
    team: str,
    *,
    days: int,
    revision: int,
    shows_teams: bool,
) -> Answer:
    rows, documents, team_rows, own_rows = [], [], [], []
    for flex, size in pools:
        past = pasts[flex.key]
        asked = flex.standing if wanted is None else wanted
        standing, with_lent = past.standing_of(asked), past.with_lent_of(asked)
        levels = {f"{share:.0%}": past.level(share, size) for share in LEVELS}
        rows.append(
            (flex.cluster, flex.sku, flex.healthy, flex.guaranteed, flex.standing, flex.lent, flex.used, flex.free,
             *levels.values(), asked, *((standing.share, standing.spell_hours_median) if asked else (None, None)))
        )  # fmt: skip
        documents.append(_document(flex, past, standing, with_lent, levels))
        team_rows += [
            (flex.cluster, flex.sku, each.team, each.guaranteed, each.inside, each.held, each.held_per_guaranteed,
             each.free, each.won_back, each.available)
            for each in flex.teams
            if team in ("", each.team)
        ]  # fmt: skip
        own_rows += [
            (flex.cluster, flex.sku, each.held, each.available, flex.standing, *levels.values(),
             past.standing_of(flex.standing).spell_hours_median if flex.standing else None)
            for each in flex.teams
            if team == each.team
        ]  # fmt: skip
    columns = (
        "cluster", "sku", "healthy", "guaranteed", "standing", "lent", "used", "free",
        *(f"in_{share:.0%}_of_hours" for share in LEVELS), "at_least", "hours_share", "median_spell_hours",
    )  # fmt: skip
    tables = [Table(columns, rows, name="pools")]
    if shows_teams:
        names = (
            "cluster", "sku", "team", "guaranteed", "inside", "flex_held", "flex_share", "free_for_it",
            "won_back", "available",
        )  # fmt: skip
        tables.append(Table(names, team_rows, "who has it, and who could have more (weight: guaranteed)", "teams"))
        works = [
            (number, flex.cluster, flex.sku, each.team, each.work, each.gpus)
            for flex, _ in pools
            for number, each in enumerate(flex.works, start=1)
            if team in ("", each.team)
        ]
        more = f", the first {WORKS_SHOWN} of {len(works)}" if len(works) > WORKS_SHOWN else ""
        title = f"what runs as flex, in the order in which it would be called back{more}"
        tables.append(Table(("turn", "cluster", "sku", "team", "work", "gpus"), works, title, "works", WORKS_SHOWN))
    if team:
        seen = (
            "cluster", "sku", "in_use", "available", "standing", *(f"in_{share:.0%}_of_hours" for share in LEVELS),
            "median_spell_hours",
        )  # fmt: skip
        tables.append(Table(seen, own_rows, f"flex as {team} sees it", "team", shown=0))
    document = {"revision": revision, "days": days, "pools": documents}
    return Answer(document, tables, "", _flex_notes(pools, pasts, days, shows_teams=shows_teams))


def _document(
    flex: PoolFlex, past: FlexPast, standing: Availability, with_lent: Availability, levels: Mapping[str, int | None]
) -> dict[str, Any]:
    fields = msgspec.to_builtins(flex)
    for row, each in zip(fields["teams"], flex.teams, strict=True):
        row["available"] = each.available
    hours = past.hours
    told = {
        "from": show_time(hours.starts),
        "to": show_time(hours.ends),
        "hours": hours.count,
        "standing_in_share_of_hours": levels,
        "standing": msgspec.to_builtins(standing),
        "with_lent": msgspec.to_builtins(with_lent),
        "says": past.says,
    }
    return {**fields, "past": told}


def _flex_notes(
    pools: Sequence[tuple[PoolFlex, int]], pasts: Mapping[PoolKey, FlexPast], days: int, *, shows_teams: bool
) -> list[str]:
    notes = []
    hours = max((past.hours.count for past in pasts.values()), default=0)
    if not hours:
        notes.append("nobody told what happened before now: how often flex was there is not known")
    else:
        short = f" of {days} asked for" if hours < days * 24 else ""
        notes.append(f"the past: {hours / 24:.0f} days{short}, the fewest healthy of each hour")
        notes += sorted({past.says for past in pasts.values()})
    unaligned = sum(not flex.is_aligned for flex, _ in pools)
    if unaligned:
        notes.append(f"{unaligned} of {len(pools)} pools are not aligned: nothing is guaranteed, all work runs as flex")
    for flex, _ in pools:
        notes += [
            f"{each.gpus:,} {flex.sku} of {flex.cluster} are called back for {each.team} until {show_time(each.due)}"
            for each in flex.callbacks
        ]
    if not shows_teams:
        notes.append("next: plimsoll quota flex CLUSTER, or --team TEAM")
    return notes


@app.command("callback")
def callback_command(
    context: typer.Context,
    team: Annotated[str, typer.Argument(metavar="TEAM", help="Whose guarantee wants it.")],
    gpus: Annotated[str, typer.Argument(metavar="GPUS", help="How many GPUs, in whole nodes.")],
    cluster: Cluster,
    sku: Sku,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Call back what is lent to others: which flex work gives how much back, and until when."""
    count = whole_number(gpus)
    keeper = open_database(context, db)

    def decide(state: State, now: datetime) -> tuple[CalledBack, list[Draft]]:
        key, pool = check_pool(state, cluster, sku)
        check_team(state, team)
        check_whole_nodes(count, pool.gpus_per_node, f"{cluster} {sku}")
        return call_back(state, key, team, count, policy_in_force(state), now=now)

    outcome, due, events = carry_out(
        keeper,
        decide,
        actor=current_actor(),
        reason=reason,
        teams=[team],
        reads=[PoolKey(cluster, sku).stream],
        is_dry_run=dry_run,
    )
    show(_called_back(outcome, due, revision_of(keeper, events), is_dry_run=dry_run), output)


def _called_back(outcome: CalledBack, due: Due, revision: int, *, is_dry_run: bool) -> Answer:
    would = "would be" if is_dry_run else "are"
    when = show_time(outcome.due.replace(microsecond=0))
    what = f"{outcome.gpus:,} {outcome.sku} of {outcome.cluster} for {outcome.team}"
    heading = f"{what}: {outcome.free:,} {would} free"
    heading += f", {outcome.called:,} {would} called back until {when}" if outcome.called else ", none has to come back"
    notes = due_notes(due, is_dry_run=is_dry_run)
    if outcome.short:
        notes.append(
            f"{outcome.short:,} are not there: less works than is guaranteed; plimsoll quota show {outcome.cluster}"
        )
    if not outcome.victims and not outcome.short:
        notes.append("nobody has to give anything back: start the work")
    table = Table(("team", "work", "gpus"), [msgspec.structs.astuple(each) for each in outcome.victims])
    document = {
        "dry_run": is_dry_run,
        "revision": revision,
        **msgspec.to_builtins(outcome),
        "due_settled": due_document(due),
    }
    return Answer(document, [table] if outcome.victims else [], heading, notes)
