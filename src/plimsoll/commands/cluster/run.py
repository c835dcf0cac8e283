"""`plimsoll cluster run`: the controller that brings clusters into production, and out of it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.cluster.app import app
from plimsoll.commands.errands import ErrandFolder, beside, errand_folder
from plimsoll.commands.health.act import seconds_between
from plimsoll.commands.options import Db, Format, database_url, open_database
from plimsoll.commands.output import show
from plimsoll.errors import Fenced, PlimsollError, Refused, Stale, Unavailable
from plimsoll.ledger.store import Leadership
from plimsoll.lifecycle.desk import find_life
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Going, Move, Work
from plimsoll.lifecycle.outside import Outside
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.reasons import Reason, known_reason
from plimsoll.lifecycle.service import ROLE, Did, run_pass
from plimsoll.lifecycle.view import in_board_order, row_of, sentence
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import show_second
from plimsoll.words import counted

STANDBY_SECONDS = 2.0
TOLD_MAX = 5
WAIT_SECONDS = 1.0


@app.command("run")
def run_command(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[CLUSTER]...", help="Only these; else all.")] = None,
    every: Annotated[
        str, typer.Option("--every", metavar="SPAN", help="Go on, such as every 30s, until Ctrl-C.", show_default=False)
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Go on until nothing goes by itself any more; then say whose move it is.")
    ] = False,
    errands: ErrandFolder = None,
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Bring every cluster as far as it can go now: promise quota, begin steps, see how they are, let it in.

    It can be stopped and killed at any moment: the next one goes on where it was. One at a time acts on a database;
    with --every others stand by, and one of them takes over.
    """
    keeper = open_database(context, db)
    seconds = seconds_between(every) if every else WAIT_SECONDS if wait else None
    for name in names or ():
        find_life(keeper.state(), name)
    dsn = database_url(context, db)
    from plimsoll.lifecycle.providers.settings import outside_of

    outside = outside_of(os.environ, errands=errand_folder(errands, dsn), folder=beside(dsn))
    while True:
        lead = _lead(keeper, may_wait=bool(every))
        try:
            _run(keeper, outside, lead, names or (), seconds, output, is_waiting=wait)
            return
        except Fenced as error:  # another leads: stand by again
            if not every:
                raise
            typer.echo(f"{error.message}; standing by", err=True)
        finally:
            lead.resign()


def _lead(keeper: Keeper, *, may_wait: bool) -> Leadership:
    """Take the lead, or wait for it."""
    is_told = False
    while True:
        lead = keeper.ledger.store.lead(f"cluster run {os.getpid()}", ROLE)
        if lead is not None:
            return lead
        epoch, leader = keeper.ledger.store.leader(ROLE)
        if not may_wait:
            raise Refused(
                "another_runs",
                f"{leader} (epoch {epoch}) makes clusters on this database",
                next_step="let it do its work, or stand by: plimsoll cluster run --every 30s",
            )
        if not is_told:
            typer.echo(f"{leader} makes clusters on this database; standing by", err=True)
            is_told = True
        time.sleep(STANDBY_SECONDS)


def _run(
    keeper: Keeper,
    outside: Outside,
    lead: Leadership,
    names: Sequence[str],
    seconds: float | None,
    output: Output,
    *,
    is_waiting: bool,
) -> None:
    while True:
        try:
            did = run_pass(keeper, outside, lead=lead, only=names)
        except Fenced:
            raise
        except PlimsollError as error:
            if seconds is None or not isinstance(error, Unavailable | Stale):
                raise
            did = [Did("", error.message, is_failed=True)]  # the next pass may find it otherwise
        is_over = seconds is None or (is_waiting and is_settled(keeper.state(), names))
        if did or is_over:
            _tell(keeper, did, names, output, is_over=is_over)
        if is_over or seconds is None:
            return
        time.sleep(seconds)


def is_settled(state: State, names: Sequence[str]) -> bool:
    """Whether nothing goes by itself any more: everything is in production, gone, or somebody else's move."""
    for name, life in state.of(Lives).lives.items():
        if life.gone_at is not None or (names and name not in names):
            continue
        row = row_of(life)
        if row.move in (Move.CONTROLLER, Move.NOBODY) and (row.message or not life.conditions):
            return False
        if any(_goes_on(work) for work in life.works.values()):
            return False
    return True


def _goes_on(work: Work) -> bool:
    """Whether something goes on outside without waiting for anybody."""
    move = known_reason(work.reason).move
    if work.going is Going.RETRYING:
        return move is Move.CONTROLLER or work.reason == Reason.OVERDUE.code
    return work.going in (Going.INTENDED, Going.RUNNING) and move is not Move.PERSON


def _tell(keeper: Keeper, did: Sequence[Did], names: Sequence[str], output: Output, *, is_over: bool) -> None:
    """What a pass did, line by line as in a log; at the end also what everything waits for."""
    state, now = keeper.state(), keeper.ledger.clock()
    if output is not Output.TABLE:
        document = {"did": [{"cluster": each.cluster, "what": each.what, "failed": each.is_failed} for each in did]}
        rows = [(each.cluster, each.what, each.is_failed) for each in did]
        show(Answer(document, [Table(("cluster", "what", "failed"), rows)]), output)
        return
    for each in did:
        typer.echo(f"{show_second(now)}  {each.cluster or '-'}: {'failed: ' if each.is_failed else ''}{each.what}")
    if is_over:
        show(_summary(state, names, now), output)


def _summary(state: State, names: Sequence[str], now: datetime) -> Answer:
    lives = [life for name, life in state.of(Lives).lives.items() if not names or name in names]
    lives = [life for life in in_board_order(lives) if life.gone_at is None]
    if not lives:
        return Answer({}, [], "no cluster is being made", ["next: plimsoll cluster add --help"])
    waiting = [life for life in lives if row_of(life).message]
    counts = Counter(phase_of(life) for life in lives)
    heading = ", ".join(f"{count:,} {phase}" for phase, count in counts.items())
    notes = [sentence(life, now) for life in waiting[:TOLD_MAX]]
    if len(waiting) > TOLD_MAX:
        notes.append(f"… {len(waiting) - TOLD_MAX:,} more wait: plimsoll cluster list")
    return Answer({}, [], f"{counted(len(lives), 'cluster')}: {heading}", notes)
