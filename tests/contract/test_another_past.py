"""One suite for both databases: a process that goes on while the ledger is put back to an older copy does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.errors import PlimsollError, Tampered
from plimsoll.ledger import open_ledger
from plimsoll.ledger.verify import verify
from plimsoll.server.changes import Watcher
from plimsoll.state.keeper import Keeper
from tests.support.ledgers import events_of, filled, fold_of, keeper_of, note, raw, write
from tests.support.postgres import PrivatePostgres
from tests.support.waiting import wait_until

READ, KEPT = 5, 2


def put_back(dsn: str, *, then: int) -> None:
    """An older copy, to which others have written since."""
    with raw(dsn) as run:
        run("DELETE FROM events WHERE revision > ?", KEPT)
        ((revision, seal, recorded_at),) = run(
            "SELECT revision, hash, recorded_at FROM events WHERE revision = ?", KEPT
        )
        run("UPDATE ledger_head SET revision = ?, hash = ?, recorded_at = ?", revision, seal, recorded_at)
    with open_ledger(dsn) as ledger:
        for number in range(then):
            write(ledger, f"other-{number}")


class Case(NamedTuple):
    then: int
    does: Callable[[Keeper], object]


def _commit(keeper: Keeper) -> None:
    keeper.commit([note("mine")], actor="tester", read_at=keeper.revision)


def _decide(keeper: Keeper) -> None:
    keeper.decide_and_commit(lambda _state: (None, [note("mine")]), actor="tester")


CASES = {
    "it commits to a shorter one": Case(0, _commit),
    "it commits to one as long": Case(READ - KEPT, _commit),
    "it commits to a longer one": Case(READ - KEPT + 2, _decide),
    "it reads a longer one": Case(READ - KEPT + 2, Keeper.state),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_nothing_is_decided_on_a_past_that_is_no_more(dsn: str, case: Case) -> None:
    filled(dsn, READ).close()
    with keeper_of(dsn) as keeper:
        put_back(dsn, then=case.then)
        for _ in range(2):
            with pytest.raises(Tampered) as caught:
                case.does(keeper)
            assert caught.value.code == "another_past"
    with keeper_of(dsn) as anew:
        _commit(anew)
        assert verify(anew.ledger.store).is_whole
        assert fold_of(events_of(anew.ledger)).dump() == anew.state().dump()
        assert anew.revision == KEPT + case.then + 1, "what was refused is not there"


def test_a_standby_that_takes_over_and_had_not_heard_all_is_noticed_at_once(
    postgres: PrivatePostgres,
) -> None:
    """As long as before, so that its length says nothing: the connection is another."""
    dsn = postgres.new_database()
    filled(dsn, READ).close()
    with keeper_of(dsn) as keeper:
        put_back(dsn, then=READ - KEPT)
        with raw(dsn) as run:
            run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid()")  # fmt: skip
        for _ in range(2):
            with pytest.raises(Tampered):
                keeper.state()


def test_a_connection_that_was_lost_is_no_other_past(postgres: PrivatePostgres) -> None:
    dsn = postgres.new_database()
    filled(dsn, READ).close()
    with keeper_of(dsn) as keeper:
        with raw(dsn) as run:
            run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid()")  # fmt: skip
        assert keeper.state().revision == READ


@pytest.mark.parametrize("then", [0, READ - KEPT + 2])
def test_whoever_watches_says_so_for_good(tmp_path: Path, then: int) -> None:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    filled(dsn, READ).close()

    def codes(watcher: Watcher) -> str:
        trouble: PlimsollError | None = watcher.trouble
        return trouble.code if trouble is not None else ""

    async def main() -> str:
        watcher = Watcher(lambda: open_ledger(dsn).store)
        watcher.start(READ)
        await asyncio.sleep(0.6)
        assert codes(watcher) == ""
        put_back(dsn, then=then)
        await asyncio.to_thread(wait_until, lambda: bool(codes(watcher)), what="it is noticed", seconds_max=10)
        if not then:
            with open_ledger(dsn) as ledger:
                write(ledger, *(f"later-{number}" for number in range(READ)))
        await asyncio.sleep(1)
        found = codes(watcher)
        await asyncio.to_thread(watcher.stop)
        return found

    assert asyncio.run(main()) == "another_past"
