"""`plimsoll cluster list`: every cluster that is being made, what it waits for, and whose move it is."""

from __future__ import annotations

from typing import Annotated

import typer

from plimsoll.cli.cluster.app import app
from plimsoll.cli.options import AsOf, Db, Format, Watch, answer_state
from plimsoll.cli.output import Answer, Output, Table
from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Move, Severity
from plimsoll.lifecycle.view import Row, in_board_order, row_of
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_time, utc_now
from plimsoll.words import counted, rough_span

WORDS_MAX = 100


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
        lives = in_board_order(state.of(Lives).lives.values())
        rows = [row_of(life) for life in lives]
        rows = [row for row in rows if every or phase is Phase.RETIRED or row.phase is not Phase.RETIRED]
        rows = [row for row in rows if phase in (None, row.phase) and move in (None, row.move)]
        now = parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()
        table = Table(
            ("cluster", "phase", "for", "sku", "nodes", "waits_for", "why", "whose_move", "severity"),
            [
                (
                    row.cluster,
                    f"{row.phase} (paused)" if row.is_paused else str(row.phase),
                    rough_span(now - row.since),
                    row.sku,
                    row.nodes,
                    row.waits_for or "-",
                    _cut(f"{row.reason}: {row.message}" if row.reason else row.message) or "-",
                    str(row.move),
                    str(row.severity),
                )
                for row in rows
            ],
        )
        needing = [row for row in rows if row.move is Move.PERSON]
        notes = [f"next: {row.next_step}" for row in needing[:3] if row.next_step]
        if not rows:
            notes = ["next: plimsoll cluster add --help, or plimsoll cluster import FILE"]
        return Answer({"clusters": [_document(row) for row in rows]}, [table], _heading(rows), notes)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def _heading(rows: list[Row]) -> str:
    stopped = sum(row.severity is Severity.ERROR for row in rows)
    people = sum(row.move is Move.PERSON for row in rows)
    under_way = [row for row in rows if row.phase not in (Phase.PRODUCTION, Phase.RETIRED)]
    text = f"{counted(len(under_way), 'cluster')} being made"
    text += f", {people} waiting for a person" if people else ""
    return text + (f", {stopped} stopped" if stopped else "")


def _cut(text: str) -> str:
    return text if len(text) <= WORDS_MAX else f"{text[: WORDS_MAX - 1]}…"


def _document(row: Row) -> dict[str, object]:
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
    }
