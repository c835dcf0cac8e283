"""`plimsoll cluster quota|times`: what the provider still owes, and how long steps take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.cluster.app import app
from plimsoll.commands.options import AsOf, Db, Format, Watch, answer_keeper
from plimsoll.lifecycle.claims import Owed, QuotaRead, quota_owed
from plimsoll.lifecycle.desk import find_life
from plimsoll.lifecycle.estimate import step_time
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import QuotaKey
from plimsoll.lifecycle.outside import UsageRead
from plimsoll.lifecycle.service import last_usages
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_second, show_time, utc_now
from plimsoll.words import counted, rough_span

WAITING_SHOWN = 5


@app.command("quota")
def quota_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="[CLUSTER]", help="Only what this one needs.")] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """The quota that the provider still owes, per subscription, region and VM family, with the clusters it blocks.

    Limits and use are those that the controller read last; promises are those of the moment that is asked for.
    """

    def answer(keeper: Keeper, state: State) -> Answer:
        lives = state.of(Lives)
        usages = last_usages(keeper)
        read = QuotaRead({key: usage for key, (usage, _) in usages.items()})
        recipes = {each.name: lives.recipe_of(each) for each in lives.lives.values()}
        now = parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()
        owed = quota_owed(lives.lives.values(), recipes, read, now)
        if name:
            spec = find_life(state, name).spec
            owed = [each for each in owed if each.key == QuotaKey(spec.subscription, spec.region, each.key.family)]
        rows = [
            (
                each.key.subscription,
                each.key.region,
                each.key.family,
                each.limit,
                each.used,
                each.promised,
                each.wanted,
                each.missing,
                _some(each.clusters, output),
            )
            for each in owed
        ]
        columns = ("subscription", "region", "family", "limit", "used", "promised", "wanted", "owed", "waiting")
        missing = [each for each in owed if each.missing]
        heading = f"{counted(len(missing), 'quota')} too small" if missing else "no quota is owed"
        read_at = max((at for _, at in usages.values()), default=None)
        notes = [f"in cores; limits and use as read at {show_second(read_at)}"] if read_at else []
        if not usages:
            notes = ["nobody has looked yet: plimsoll cluster run"]
        return Answer(
            {"as_of": show_time(now), "quota": [_document(each, usages) for each in owed]},
            [Table(columns, rows)],
            heading,
            notes,
        )

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _some(names: Sequence[str], output: Output) -> str:
    more = len(names) - WAITING_SHOWN
    if output is Output.CSV or more <= 0:
        return ", ".join(names)
    return f"{', '.join(names[:WAITING_SHOWN])} and {more:,} more"


def _document(owed: Owed, usages: Mapping[QuotaKey, tuple[UsageRead, datetime]]) -> dict[str, object]:
    return {
        "subscription": owed.key.subscription,
        "region": owed.key.region,
        "family": owed.key.family,
        "limit": owed.limit,
        "used": owed.used,
        "promised": owed.promised,
        "wanted": owed.wanted,
        "owed": owed.missing,
        "waiting": list(owed.clusters),
        "promised_to": dict(owed.promised_to),
        "read_at": show_time(usages[owed.key][1]) if owed.key in usages else None,
    }


def _span(seconds: float | None, output: Output) -> object:
    if seconds is None or output is Output.CSV:
        return seconds
    return rough_span(timedelta(seconds=seconds))


@app.command("times")
def times_command(
    context: typer.Context,
    recipe: Annotated[str, typer.Option("--recipe", help="Only this one.", show_default=False)] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """How long each step took for the clusters before: the median, what nine of ten needed at most, the longest.

    For programs (-o json, csv, yaml) in seconds.
    """

    def answer(_keeper: Keeper, state: State) -> Answer:
        took = state.of(Lives).took
        times = [step_time(*key, took[key]) for key in sorted(took) if recipe in ("", key[0])]
        rows = [
            (
                each.recipe,
                each.step,
                each.clusters,
                *(_span(value, output) for value in (each.median, each.late, each.longest)),
                each.attempts,
            )
            for each in times
        ]
        columns = ("recipe", "step", "clusters", "median", "nine_of_ten", "longest", "attempts")
        heading = "" if rows else "no step was ever done" + (f" with recipe {recipe[:40]!r}" if recipe else "")
        return Answer({"steps": times}, [Table(columns, rows)], heading)

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)
