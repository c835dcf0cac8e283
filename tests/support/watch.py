"""A watch over a state in memory: troubles that a test makes up, passes at moments it names, and what came of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from plimsoll.incidents.courier import Courier
from plimsoll.incidents.decide import decide
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Did, Incident, Trouble
from plimsoll.incidents.reasons import Kind
from plimsoll.ledger.model import Draft
from plimsoll.rooms import KINDS, open_keeper
from plimsoll.state.state import State
from plimsoll.times import format_time
from tests.support.writers import Tell

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


def trouble(
    about: str = "pool/tiger/H200",
    amount: int = 8,
    *,
    since: datetime = START,
    kind: Kind = Kind.BROKEN_PROMISE,
    teams: tuple[str, ...] = ("a",),
) -> Trouble:
    return Trouble(kind, about, f"{about} is in trouble", since, amount, "gpus", "so it is", ("tiger",), teams)


class Watch:
    """Passes at minutes after START, over troubles told as `{about: amount}`."""

    def __init__(self) -> None:
        self.state = State(KINDS)
        self.drafts: list[Draft] = []

    def at(self, minute: float) -> datetime:
        return START + timedelta(minutes=minute)

    def look(self, minute: float, amounts: Mapping[str, int], **fields: object) -> list[Did]:
        """One pass. All that is found began when it was first looked at, unless `fields` say otherwise."""
        now = self.at(minute)
        fields.setdefault("since", now)
        found = [trouble(about, amount, **fields) for about, amount in amounts.items()]  # type: ignore[arg-type]
        did, drafts = decide(self.state, found, now)
        self.state.assume(drafts, recorded_at=format_time(now))
        self.drafts += drafts
        again, more = decide(self.state, found, now)
        assert (again, more) == ([], []), "a second look at the same moment changes nothing"
        return did

    @property
    def tables(self) -> Incidents:
        return self.state.of(Incidents)

    @property
    def incidents(self) -> list[Incident]:
        return sorted(self.tables.incidents.values(), key=lambda each: (each.opened_at, each.id))

    def open_about(self, about: str) -> list[Incident]:
        return [each for each in self.incidents if each.about == about and each.closed_at is None]


class LastWords:
    """A chat that writes down what it hears; whoever posts is gone then, unless `is_deadly` is not set."""

    where = "https://chat.example"

    def __init__(self, path: str, *, is_deadly: bool = True) -> None:
        self._path, self._is_deadly = path, is_deadly

    def post(self, message: Mapping[str, object]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{message['text']}\n")
        if self._is_deadly:
            os.kill(os.getpid(), signal.SIGKILL)


def post_and_die(tell: Tell, dsn: str, path: str) -> None:
    """Post what waits, to a chat at which this process dies."""
    with open_keeper(dsn, clock=lambda: START) as keeper:
        tell("ready")
        Courier(keeper, LastWords(path)).deliver()
