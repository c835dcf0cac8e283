"""The habits that all commands share: `--db`, `-o`, `--as-of`, `--watch`, and who is acting."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output
from plimsoll.commands.desk import here
from plimsoll.commands.output import is_terminal, progress, show
from plimsoll.errors import UsageError
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import TIME_FORMS, parse_moment, utc_now

DATABASE_DEFAULT = "sqlite:///plimsoll.db"
WATCH_SECONDS = 3600.0
DIGITS_MAX = 18

Db = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="URL",
        help="sqlite:///PATH or postgresql://…; else PLIMSOLL_DB, else the file plimsoll.db here.",
        show_default=False,
    ),
]
Format = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
AsOf = Annotated[
    str,
    typer.Option(
        "--as-of", metavar="TIME|REVISION", help="Answer for the past, as it was known then.", show_default=False
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Print again whenever something changes, until Ctrl-C.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the log.", show_default=False)]
Filters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FIELD=VALUE",
        help="A filter, such as: cluster=tiger service!=in_service sku=H100,H200 'reason=xid*' 'since<7d'",
    ),
]


def database_url(context: typer.Context, db: str) -> str:
    """The command's `--db`, the one before the command, PLIMSOLL_DB, or the file here: the first that is given."""
    if (desk := here()) is not None:
        return desk.dsn
    return db or (context.find_root().obj or "") or os.environ.get("PLIMSOLL_DB", "") or DATABASE_DEFAULT


def open_database(context: typer.Context, db: str, *, create: bool = False) -> Keeper:
    """The state of the database that is meant; of the desk's where there is one."""
    if (desk := here()) is not None:
        return desk.keeper
    from plimsoll.rooms import open_keeper

    return open_keeper(database_url(context, db), create=create)


def parse_as_of(text: str) -> Any:
    """A revision (digits only) or a moment."""
    if text.isascii() and text.isdigit():
        if len(text) > DIGITS_MAX:
            raise UsageError("bad_time", f"{text[:DIGITS_MAX]}… is neither a revision nor a time", next_step=TIME_FORMS)
        return int(text)
    return parse_moment(text, now=utc_now())


def state_as_of(keeper: Keeper, as_of: str) -> State:
    """The state now, or then."""
    if not as_of:
        return keeper.state()
    state = keeper.as_of(parse_as_of(as_of))
    if (desk := here()) is not None:
        desk.shown_revision = state.revision
    return state


def answer_state(
    context: typer.Context, db: str, as_of: str, output: Output, *, watch: bool, answer: Callable[[State], Answer]
) -> None:
    """The life of a command that reads: open, answer, and with `--watch` answer again after every change."""
    answer_keeper(context, db, as_of, output, watch=watch, answer=lambda _keeper, state: answer(state))


def answer_keeper(
    context: typer.Context,
    db: str,
    as_of: str,
    output: Output,
    *,
    watch: bool,
    answer: Callable[[Keeper, State], Answer],
) -> None:
    """The same for an answer that needs more than the state, such as raw samples."""
    if watch and as_of:
        raise watching_the_past()
    with progress("reading the ledger"):
        keeper = open_database(context, db)
        state = state_as_of(keeper, as_of)
        shown = state.revision
        first = answer(keeper, state)
    if as_of:
        stamp = f"as of {as_of}: revision {state.revision}, recorded at {state.recorded_at}"
        notes = [*first.notes, stamp] if state.revision else [f"as of {as_of}: nothing was recorded yet"]
        first = msgspec.structs.replace(first, notes=notes)
    show(first, output)
    while watch:
        if keeper.ledger.store.wait_for_change(shown, seconds_max=WATCH_SECONDS):
            if is_terminal(sys.stdout):
                typer.echo("\033[2J\033[H", nl=False)
            state = keeper.state()
            shown = state.revision
            show(answer(keeper, state), output)


def parse_span(text: str) -> timedelta | None:
    """A length of time such as `4h` or `7d`; None where it is none."""
    try:
        now = utc_now()
        return now - parse_moment(text, now=now) if text[-1:] in "smhdw" and text[:1].isdigit() else None
    except UsageError:
        return None


def watching_the_past() -> UsageError:
    return UsageError(
        "watch_the_past",
        "the past does not change: --watch and --as-of exclude each other",
        next_step="leave out one of them",
    )


def changing_the_past(what: str) -> UsageError:
    return UsageError(
        "change_the_past",
        f"the past does not change: {what} and --as-of exclude each other",
        next_step="leave out one of them",
    )


def current_actor() -> str:
    """Who is acting: whoever sits at the desk, PLIMSOLL_ACTOR, or the login name."""
    if (desk := here()) is not None:
        return desk.actor
    if actor := os.environ.get("PLIMSOLL_ACTOR"):
        return actor
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def read_text(path: Path, *, noun: str) -> str:
    """A policy file that somebody named."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise UsageError("unreadable", f"{path} is not UTF-8 text", next_step="save it as UTF-8") from None
        why = error.strerror if isinstance(error, OSError) else str(error)
        next_step = f"plimsoll {noun} policy show > FILE   # makes one to begin with"
        raise UsageError("unreadable", f"{str(path)[:200]!r}: {why}", next_step=next_step) from None
