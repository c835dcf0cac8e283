"""`plimsoll quota changes`: every change of what a team holds, and why."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, Format, open_database, state_as_of
from plimsoll.commands.output import show
from plimsoll.commands.quota.app import app
from plimsoll.ledger.model import Event, EventFilter
from plimsoll.quota.history.log import Happened, team_lines
from plimsoll.quota.names import check_team

EVENTS_READ_MAX = 50_000
"""So many events of quota are looked through, the newest."""
LINES_SHOWN = 50
_COLUMNS = ("at", "cluster", "sku", "what", "by", "why")


@app.command("changes")
def changes_command(
    context: typer.Context,
    team: Annotated[str, typer.Argument(metavar="TEAM", help="Whose quota.")],
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="The newest so many, 0 for all.", show_default="50 in a table, else all"),
    ] = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """Every change of what a team holds, and why: assigned, guaranteed, moved, asked for, told. Newest first."""
    keeper = open_database(context, db)
    state = state_as_of(keeper, as_of)
    name = check_team(state, team)
    found = keeper.ledger.store.last_events(EVENTS_READ_MAX, until=state.revision, where=EventFilter(kind="quota.*"))
    lines = team_lines(name, [_happened(event) for event in found])
    most = (LINES_SHOWN if output is Output.TABLE else 0) if limit is None else limit
    shown = lines[:most] if most else lines
    rows = [(each.at, each.cluster, each.sku, each.says, each.actor, each.reason) for each in shown]
    notes = [f"the newest {len(shown):,} of {len(lines):,}; --limit for more"] if len(lines) > len(shown) else []
    if len(found) == EVENTS_READ_MAX:
        notes.append(f"looked through the newest {EVENTS_READ_MAX:,} events of quota: plimsoll audit log has the rest")
    document: dict[str, Any] = {"revision": state.revision, "team": name, "changes": shown, "count": len(lines)}
    show(Answer(document, [Table(_COLUMNS, rows)], notes=notes), output)


def _happened(event: Event) -> Happened:
    payload = msgspec.json.decode(event.payload)
    return Happened(event.revision, event.recorded_at, event.actor, event.kind, event.reason, payload)
