"""The noun `cluster`; its commands are in the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, TypeVar

import typer

from plimsoll.commands.options import current_actor, open_database
from plimsoll.errors import NotFound
from plimsoll.ledger.model import Draft, Event
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

D = TypeVar("D")

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Clusters being made: plan, check in, watch, retry, retire.",
)
Name = Annotated[str, typer.Argument(metavar="CLUSTER", help="Its name.")]
StepName = Annotated[str, typer.Argument(metavar="[STEP]", help="The step; else the one that failed.")]


def say_first(
    context: typer.Context,
    db: str,
    decide: Callable[[State, datetime], tuple[D, Sequence[Draft]]],
    reason: str,
    dry: bool,
) -> tuple[Keeper, D, list[Event]]:
    """Record what may be the first thing that a database is told. What is refused leaves no empty one behind."""
    from plimsoll.lifecycle.service import say
    from plimsoll.rooms import open_keeper

    actor = current_actor()
    try:
        keeper = open_database(context, db)
    except NotFound as error:
        if error.code != "no_database":
            raise
        keeper = open_keeper("sqlite:///:memory:", create=True)
        told, events = say(keeper, decide, actor=actor, is_dry_run=True)
        if dry:
            return keeper, told, events
        keeper = open_database(context, db, create=True)
    told, events = say(keeper, decide, actor=actor, reason=reason, is_dry_run=dry)
    return keeper, told, events
