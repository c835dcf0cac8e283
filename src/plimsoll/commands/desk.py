"""At whose desk a command is done: the open database, who acts, and where the answer goes.

A command asks for these in three words (`open_database`, `current_actor`, `show`). In a terminal they come from the
options and the login name; over HTTP they come from the desk that the server sets here before it calls the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from plimsoll.access.model import Binding, Principal
from plimsoll.answers import Answer
from plimsoll.state.keeper import Keeper

Mapped = Mapping[str, Sequence[Binding]]
_NOTHING_MAPPED: Mapped = {}


def _is_asked_nothing(_what: str) -> None:
    """In a terminal nobody is asked: whoever opens the database file has it anyway."""


class Desk:
    """One command at a time: what it may use, and what it has said."""

    def __init__(
        self,
        keeper: Keeper,
        actor: str,
        dsn: str = "",
        *,
        principal: Principal | None = None,
        mapping: Mapped = _NOTHING_MAPPED,
        check_team: Callable[[str], None] = _is_asked_nothing,
        check_program: Callable[[str], None] = _is_asked_nothing,
        output: str = "json",
    ) -> None:
        self.keeper, self.actor, self.dsn = keeper, actor, dsn
        self.principal = principal
        """Who was let in, with what they may do; None for nobody, and at a desk of our own."""
        self.mapping = mapping
        """Which roles the settings give to groups."""
        self.check_team = check_team
        """Raises where whoever acts may not do this for a team."""
        self.check_program = check_program
        """Raises where whoever acts may not have our machine run a program."""
        self.output = output
        """As which `-o` it is asked for: some tables are others in a file than for people."""
        self.shown_revision = 0
        """Which past the answer is about; 0 where it is about now."""
        self.answer: Answer | None = None
        self.text: str | None = None
        self.picture: bytes | None = None


_HERE: ContextVar[Desk | None] = ContextVar("desk", default=None)


def here() -> Desk | None:
    """The desk that somebody has set; None in a terminal."""
    return _HERE.get()


def check_teams(teams: Iterable[str]) -> None:
    """May this be done for each of the teams? For what only the command itself can tell: what its files say, whose
    quota a choice takes. Called before anything is committed.
    """
    if (desk := here()) is not None:
        for team in dict.fromkeys(teams):
            desk.check_team(team)


def check_programs(programs: Iterable[Sequence[str]]) -> None:
    """May whoever acts have the machine of the controllers run these? A program there may do whatever they may, and so
    whoever names one can make themselves anything. Called before anything is committed, or searched for a minute.
    """
    if (desk := here()) is not None:
        for program in programs:
            if program:
                desk.check_program(program[0])


@contextmanager
def at(desk: Desk) -> Iterator[Desk]:
    """Whatever is called inside is done at this desk."""
    token = _HERE.set(desk)
    try:
        yield desk
    finally:
        _HERE.reset(token)
