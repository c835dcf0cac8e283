"""One suite for both databases: several processes look for trouble at once, and it has one incident and one notice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from plimsoll.incidents.changes import IncidentOpened, OwnerTold
from plimsoll.incidents.desk import open_incident
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Look, Trouble
from plimsoll.incidents.service import run_pass, say
from plimsoll.ledger.model import EventFilter
from plimsoll.rooms import FINDERS, open_keeper
from tests.support.harbour import Harbour, Work

LOOKERS = 3
ROUNDS = 4


def test_many_look_at_once_and_each_trouble_is_told_once(dsn: str) -> None:
    with Harbour(10, {"a": 10}, [Work("a", 10)], dsn=dsn) as harbour, ExitStack() as stack:
        harbour.apply()
        keepers = [stack.enter_context(open_keeper(dsn, clock=lambda: harbour.now)) for _ in range(LOOKERS)]
        for healthy in range(9, 9 - ROUNDS, -1):
            harbour.work_only(healthy)
            with ThreadPoolExecutor(LOOKERS) as pool:
                list(pool.map(lambda keeper: run_pass(keeper, FINDERS, harbour.now, "x"), keepers))
        store = harbour.keeper.ledger.store
        assert len(list(store.events(where=EventFilter(kind=IncidentOpened.kind)))) == 1
        assert len(list(store.events(where=EventFilter(kind=OwnerTold.kind)))) == ROUNDS
        (incident,) = harbour.state.of(Incidents).incidents.values()
        assert [amount for _, amount in incident.course] == [8, 16, 24, 32]


def test_who_decided_from_what_is_no_longer_so_looks_again(dsn: str) -> None:
    with Harbour(10, {"a": 10}, dsn=dsn) as harbour, open_keeper(dsn, clock=lambda: harbour.now) as other:
        harbour.apply()
        harbour.work_only(8)
        looks: list[int] = []

        def meanwhile(_look: Look) -> list[Trouble]:
            """While one decides, a person opens an incident, and another pass opens the one that is due."""
            if not looks:
                drafts = open_incident(other.state(), "fire", "fire", clusters=(), roster=())
                say(other, lambda _state, _now: (None, drafts), actor="alice")
                run_pass(other, FINDERS, harbour.now, "other")
            looks.append(1)
            return []

        assert run_pass(harbour.keeper, (*FINDERS, meanwhile), harbour.now, "x") == []
        assert len(looks) == 2
        assert sorted(harbour.state.of(Incidents).incidents) == ["fire", "incident-2"]
