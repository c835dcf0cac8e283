"""`plimsoll cluster list`: every cluster that is being made, what it waits for, and whose move it is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.cluster.app import app
from plimsoll.commands.options import AsOf, Db, Format, Watch, answer_state
from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.estimate import estimate
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Move, Severity
from plimsoll.lifecycle.view import Row, in_board_order, row_of
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_time, utc_now
from plimsoll.words import counted, rough_span

WORDS_MAX = 64
COLUMNS = ("cluster", "phase", "for", "sku", "nodes", "whose_move", "waits_for", "why")
NEXT_SHOWN = 3
NOTHING = "next: plimsoll cluster add --help, or plimsoll cluster import FILE"
DOCUMENT_COLUMNS = (
    *("cluster", "phase", "since", "sku", "nodes", "waits_for", "reason", "message"),
    *("severity", "move", "next_step", "paused", "region", "subscription", "owner", "wanted", "checked_in", "leaving"),
    *("expected", "expected_late"),
)


@app.command("list")
def list_command(
    context: typer.Context,
    phase: Annotated[
        Phase | None, typer.Option("--phase", help="Only those in this phase.", show_default=False)
    ] = None,
    move: Annotated[
        Move | None, typer.Option("--move", help="Only those where it is this one's move.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are retired.")] = False,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Every cluster that is or was made here: its phase, for how long, what it waits for, and whose move it is."""

    def answer(state: State) -> Answer:
        lives = state.of(Lives)
        known = [row_of(life) for life in in_board_order(lives.lives.values())]
        rows = [row for row in known if every or phase is Phase.RETIRED or row.phase is not Phase.RETIRED]
        rows = [row for row in rows if phase in (None, row.phase) and move in (None, row.move)]
        now = parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()
        documents = [_document(row, lives, now) for row in rows]
        # For people what is long comes last; a program gets all of it.
        table = (
            Table(DOCUMENT_COLUMNS, [tuple(each.values()) for each in documents])
            if output is Output.CSV
            else Table(COLUMNS, [_line(row, now) for row in rows])
        )
        needing = [row for row in rows if row.move is Move.PERSON]
        notes = [f"next: {row.next_step}" for row in needing[:NEXT_SHOWN] if row.next_step]
        if len(needing) > NEXT_SHOWN:
            notes.append(f"… {len(needing) - NEXT_SHOWN:,} more wait for a person: plimsoll cluster list --move person")
        if not rows:
            notes = [f"none of {counted(len(known), 'cluster')} is meant by this" if known else NOTHING]
        return Answer({"clusters": documents}, [table], _heading(rows), notes)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def _line(row: Row, now: datetime) -> tuple[object, ...]:
    return (
        row.cluster,
        f"{row.phase} (paused)" if row.is_paused else str(row.phase),
        rough_span(now - row.since),
        row.sku,
        row.nodes,
        str(row.move),
        row.waits_for or "-",
        _cut(row.message) or "-",
    )


def _heading(rows: list[Row]) -> str:
    stopped = sum(row.severity is Severity.ERROR for row in rows)
    people = sum(row.move is Move.PERSON for row in rows)
    under_way = [row for row in rows if row.phase not in (Phase.PRODUCTION, Phase.RETIRED)]
    text = f"{counted(len(under_way), 'cluster')} being made"
    text += f", {done:,} in production" if (done := sum(row.phase is Phase.PRODUCTION for row in rows)) else ""
    text += f", {people:,} waiting for a person" if people else ""
    return text + (f", {stopped:,} stopped" if stopped else "")


def _cut(text: str) -> str:
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 1]}…"


def _document(row: Row, lives: Lives, now: datetime) -> dict[str, object]:
    life = lives.lives[row.cluster]
    about = None
    if row.phase not in (Phase.PRODUCTION, Phase.RETIRED) and life.leaving is None:
        about = estimate(life, lives.recipe_of(life), lives.took, now)
    is_known = about is not None and not about.unknown
    return {
        "cluster": row.cluster,
        "phase": str(row.phase),
        "since": show_time(row.since),
        "sku": row.sku,
        "nodes": row.nodes,
        "waits_for": row.waits_for,
        "reason": row.reason,
        "message": row.message,
        "severity": str(row.severity),
        "move": str(row.move),
        "next_step": row.next_step,
        "paused": row.is_paused,
        "region": life.spec.region,
        "subscription": life.spec.subscription,
        "owner": life.spec.owner,
        "wanted": show_time(life.spec.wanted) or None,
        "checked_in": life.checked_in is not None,
        "leaving": life.leaving is not None,
        "expected": show_time(about.usual) if about is not None and is_known else None,
        "expected_late": show_time(about.late) if about is not None and is_known else None,
    }
