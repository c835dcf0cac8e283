"""`plimsoll quota history`: what was healthy and what was promised, over the last days."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, Format, Watch, answer_state
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.words import Clusters, Skus, moment_of
from plimsoll.quota.history.course import Course, course
from plimsoll.quota.hull import pool_keys
from plimsoll.quota.service import pools_of
from plimsoll.state.state import State

POOLS_SHOWN = 20
_COLUMNS = ("cluster", "sku", "total", "healthy", "then", "change", "fewest", "guaranteed")


@app.command("history")
def history_command(
    context: typer.Context,
    clusters: Clusters = None,
    sku: Skus = None,
    days: Annotated[int, typer.Option("--days", min=1, max=365, help="How many days back.")] = 7,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """How many GPUs of each pool were healthy over the last days, and what was promised of them.

    Each point of -o json is the fewest at any instant of its hours: no dip is lost.
    """

    def answer(state: State) -> Answer:
        keys = pools_of(state, clusters or [], sku or [])
        found = course(state, pool_keys(state) if keys is None else keys, days=days, now=moment_of(state, as_of))
        return _answer(found, state, output, days=days)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def _answer(found: Course, state: State, output: Output, *, days: int) -> Answer:
    document = {
        "as_of": state.recorded_at or None,
        "revision": state.revision,
        "from": found.begins,
        "to": found.ends,
        "step_hours": found.step_hours,
        "pools": found.pools,
    }
    if not found.pools:
        heading = f"nobody told what happened in the last {days} days"
        return Answer(document, [Table(_COLUMNS, [])], heading, ["next: plimsoll fleet import DIR, with a history.csv"])
    if output is Output.CSV:
        step = timedelta(hours=found.step_hours)
        rows = [
            (pool.cluster, pool.sku, found.begins + place * step, gpus)
            for pool in found.pools
            for place, gpus in enumerate(pool.points)
        ]
        return Answer(document, [Table(("cluster", "sku", "time", "healthy_fewest"), rows)])
    moved = sorted(found.pools, key=lambda pool: (pool.healthy - pool.healthy_then, pool.cluster, pool.sku))
    table = [
        (
            pool.cluster, pool.sku, pool.total, pool.healthy, pool.healthy_then, pool.healthy - pool.healthy_then,
            pool.healthy_fewest, pool.promised[-1].guaranteed if pool.promised else 0,
        )
        for pool in moved[:POOLS_SHOWN]
    ]  # fmt: skip
    now, then = sum(pool.healthy for pool in found.pools), sum(pool.healthy_then for pool in found.pools)
    heading = f"{now:,} GPUs healthy, {now - then:+,} in {days} days"
    notes = ["next: plimsoll quota history CLUSTER -o csv, plimsoll health outages"]
    if len(moved) > len(table):
        notes.insert(0, f"the {len(table)} pools that lost most, of {len(moved):,}; -o json lists all")
    return Answer(document, [Table(_COLUMNS, table)], heading, notes)
