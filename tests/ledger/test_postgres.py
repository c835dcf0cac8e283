"""Faults of a PostgreSQL server and of the way to it: each is a clear error, and what was acknowledged is kept."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from plimsoll.errors import PlimsollError, Unavailable, UsageError
from plimsoll.ledger import Ledger, open_ledger, open_store
from plimsoll.ledger.model import Event
from plimsoll.ledger.verify import verify
from tests.support.children import Child
from tests.support.disks import small_disk
from tests.support.ledgers import events_of, filled, note, raw, wait_until_alone, write
from tests.support.parts import missing_part
from tests.support.postgres import PrivatePostgres, free_port, private_postgres
from tests.support.power import cut_power
from tests.support.proxy import Fault, Proxy
from tests.support.waiting import wait_until
from tests.support.writers import hang_in_commit, lead


@pytest.fixture
def pg_dsn(postgres: PrivatePostgres) -> str:
    return postgres.new_database()


@pytest.fixture
def own_server() -> Iterator[PrivatePostgres]:
    """A server that a test may break, or fill."""
    with private_postgres() as server:
        yield server


def _shown(error: PlimsollError) -> str:
    """Everything of an error that a person or a log may get to see, the errors behind it too."""
    texts = [error.message, error.next_step, repr(error.fields), repr(error.args)]
    behind = error.__cause__ or error.__context__
    while behind is not None:
        texts.append(repr(behind))
        behind = behind.__cause__ or behind.__context__
    return "\n".join(texts)


def _with_password(dsn: str, password: str) -> str:
    return dsn.replace("plimsoll@", f"plimsoll:{password}@")


UNREACHABLE = {
    "nobody listens": "postgresql://plimsoll:hush-hush@127.0.0.1:{free}/x",
    "no such database": "postgresql://plimsoll:hush-hush@127.0.0.1:{port}/no_such_database",
    "no such user": "postgresql://stranger:hush-hush@127.0.0.1:{port}/postgres",
    "no such host": "postgresql://plimsoll:hush-hush@no-such-host.invalid:{port}/postgres",
    "a question mark in the password": "postgresql://plimsoll:hush?hush@127.0.0.1:{free}/x",
    "the password as a parameter": "postgresql://127.0.0.1:{free}/x?user=plimsoll&password=hush-hush",
}


@pytest.mark.parametrize("url", UNREACHABLE.values(), ids=UNREACHABLE.keys())
def test_a_server_that_can_not_be_reached_is_named_without_the_password(postgres: PrivatePostgres, url: str) -> None:
    with pytest.raises(Unavailable) as refused:
        open_store(url.format(port=postgres.port, free=free_port()), create=True)
    assert refused.value.code == "database_unreachable"
    assert "postgresql://" in refused.value.message
    assert "hush" not in _shown(refused.value)


UNREADABLE = {
    "a slash in the password": "postgresql://plimsoll:hush/hush@127.0.0.1/x",
    "an at sign in the password": "postgresql://plimsoll:hush@hush@127.0.0.1/x",
    "a percent sign in the password": "postgresql://plimsoll:hush%hush@127.0.0.1/x",
    "a hash sign and a slash in the password": "postgres://plimsoll:#hush/hush@127.0.0.1:5432/x",
    "a port that is no number": "postgresql://plimsoll:hush@127.0.0.1:many/x",
    "a parameter that nobody knows": "postgresql://plimsoll:hush@127.0.0.1/x?hush=1",
}


@pytest.mark.parametrize("url", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_url_that_can_not_be_read_shows_nothing_of_itself(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        open_store(url, create=True)
    assert refused.value.code == "bad_database_url"
    assert "hush" not in refused.value.message + refused.value.next_step + repr(refused.value.fields)


def test_a_password_with_odd_characters_can_be_escaped(pg_dsn: str) -> None:
    with open_ledger(_with_password(pg_dsn, "hush%2Fhush%40%3A%3F%23%25"), create=True) as ledger:
        write(ledger, "a")
        assert "hush" not in ledger.store.dsn
        assert ledger.store.dsn == pg_dsn


# A connection is lost.


def _end_connections(dsn: str) -> None:
    with raw(dsn) as run:
        others = run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert others
    wait_until_alone(dsn)


def test_a_connection_lost_while_idle_is_made_anew_unnoticed(pg_dsn: str) -> None:
    with filled(pg_dsn, 2) as ledger:
        _end_connections(pg_dsn)
        assert ledger.head().revision == 2
        _end_connections(pg_dsn)
        write(ledger, "a")
        assert verify(ledger.store).events == 3


def test_a_connection_lost_in_the_middle_of_a_commit_keeps_nothing_and_the_next_commit_works(pg_dsn: str) -> None:
    def begin_and_lose_the_connection() -> None:
        with ledger.store.transaction():
            ledger.store.run("DELETE FROM events")
            _end_connections(pg_dsn)
            ledger.store.run("UPDATE ledger_head SET revision = 0")

    with filled(pg_dsn, 2) as ledger:
        with pytest.raises(Unavailable) as refused:
            begin_and_lose_the_connection()
        assert refused.value.code == "connection_lost"
        write(ledger, "a")
        assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, 3)


def test_a_follower_goes_on_after_its_connection_was_lost(pg_dsn: str) -> None:
    with filled(pg_dsn, 1) as ledger, open_ledger(pg_dsn) as other:
        following = other.follow(0, seconds_max=30)
        assert next(following).revision == 1
        _end_connections(pg_dsn)
        write(ledger, "a")
        assert next(following).revision == 2


def test_a_server_that_goes_away_for_a_while_is_unavailable_until_it_is_back(own_server: PrivatePostgres) -> None:
    with filled(own_server.new_database(), 2) as ledger:
        cut_power(own_server)
        for _ in range(2):
            with pytest.raises(Unavailable) as refused:
                write(ledger, "a")
            assert refused.value.code in ("connection_lost", "database_unreachable")
            with pytest.raises(Unavailable):
                ledger.head()
        own_server.start()
        write(ledger, "a")
        assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, 3)


# The connection breaks exactly at COMMIT, so that the client can't know.


@pytest.fixture(params=[1, 30], ids=["one event", "thirty events"])
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def _commit_through(proxy: Proxy, dsn: str, size: int) -> list[Event]:
    direct = psycopg.conninfo.conninfo_to_dict(dsn)
    with open_ledger(dsn.replace(f":{direct['port']}/", f":{proxy.port}/")) as ledger:
        return write(ledger, *["b"] * size)


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.LATE], ids=lambda fault: str(fault.value))
def test_a_commit_that_got_through_unanswered_is_acknowledged(
    postgres: PrivatePostgres, pg_dsn: str, fault: Fault, size: int
) -> None:
    """Late: the server still holds the transaction open when the client asks what became of it."""
    with filled(pg_dsn, 2) as ledger:
        with Proxy(postgres.port, fault, late_seconds=0.7) as proxy:
            committed = _commit_through(proxy, pg_dsn, size)
            assert list(ledger.store.events(after=2)) == committed
        assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, 2 + size)


def test_a_commit_that_did_not_get_through_is_said_not_to_be_kept(
    postgres: PrivatePostgres, pg_dsn: str, size: int
) -> None:
    with filled(pg_dsn, 2) as ledger, Proxy(postgres.port, Fault.LOST) as proxy:
        with pytest.raises(Unavailable) as refused:
            _commit_through(proxy, pg_dsn, size)
        assert (refused.value.code, refused.value.next_step) == ("not_committed", "try again")
        assert ledger.head().revision == 2
        assert len(_commit_through(proxy, pg_dsn, size)) == size
        assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, 2 + size)


def test_a_commit_that_did_not_get_through_is_not_taken_for_one_that_came_since(
    postgres: PrivatePostgres, pg_dsn: str
) -> None:
    """Another writer's event has the revision that ours would have had."""
    with filled(pg_dsn, 2) as ledger, Proxy(postgres.port, Fault.LATE, late_seconds=60) as proxy:
        with ThreadPoolExecutor(1) as pool:
            doomed = pool.submit(_commit_through, proxy, pg_dsn, 1)
            _wait_for_open_transaction(pg_dsn)
            _end_idle_transactions(pg_dsn)
            write(ledger, "a")
            with pytest.raises(Unavailable) as refused:
                doomed.result(30)
        assert refused.value.code == "not_committed"
        assert [event.subject for event in events_of(ledger)][2:] == ["page/a"]


def _wait_for_open_transaction(dsn: str) -> None:
    with raw(dsn) as run:
        count = (
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
        )
        wait_until(lambda: run(count) == [(1,)], what="the transaction waits for its COMMIT")


def _end_idle_transactions(dsn: str) -> None:
    with raw(dsn) as run:
        run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE state = 'idle in transaction' AND datname = current_database()"
        )


# The server's settings are not ours.


def test_a_server_that_is_read_only_can_be_read_and_not_written(pg_dsn: str) -> None:
    filled(pg_dsn, 2).close()
    with open_ledger(f"{pg_dsn}?options=-c%20default_transaction_read_only%3Don") as ledger:
        with pytest.raises(Unavailable) as refused:
            write(ledger, "a")
        assert refused.value.code == "database_read_only"
        assert verify(ledger.store).events == 2


def test_a_user_without_the_right_to_write_can_read(postgres: PrivatePostgres, pg_dsn: str) -> None:
    filled(pg_dsn, 2).close()
    with raw(pg_dsn) as run:
        run(f"CREATE ROLE reader_{os.getpid()} LOGIN")
        run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_{os.getpid()}")
    with open_ledger(pg_dsn.replace("plimsoll@", f"reader_{os.getpid()}@")) as ledger:
        with pytest.raises(Unavailable) as refused:
            write(ledger, "a")
        assert refused.value.code == "database_read_only"
        with pytest.raises(Unavailable):
            ledger.store.lead("reader")
        assert verify(ledger.store).events == 2
    with raw(pg_dsn) as run:
        run(f"DROP OWNED BY reader_{os.getpid()}")
        run(f"DROP ROLE reader_{os.getpid()}")


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_writers_do_not_disturb_each_other_whatever_isolation_is_the_default(pg_dsn: str, isolation: str) -> None:
    filled(pg_dsn, 1).close()
    with raw(pg_dsn) as run:
        run(f"ALTER DATABASE {pg_dsn.rsplit('/', 1)[1]} SET default_transaction_isolation = '{isolation}'")

    def write_many(name: str) -> None:
        with open_ledger(pg_dsn) as mine:
            for _ in range(30):
                write(mine, name)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write_many, "abc"))
    with open_ledger(pg_dsn) as ledger:
        assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, 91)


@pytest.mark.parametrize(("setting", "want"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")])
def test_a_commit_is_on_disk_before_it_is_acknowledged_whatever_is_the_default(
    pg_dsn: str, setting: str, want: str
) -> None:
    with raw(pg_dsn) as run:
        run(f"ALTER DATABASE {pg_dsn.rsplit('/', 1)[1]} SET synchronous_commit = '{setting}'")
    with open_ledger(pg_dsn, create=True) as ledger:
        assert ledger.store.run("SHOW synchronous_commit") == [(want,)]


# Processes that hang or vanish hold locks.


def test_a_writer_that_hangs_in_its_commit_does_not_keep_the_others_out_for_ever(pg_dsn: str) -> None:
    with filled(pg_dsn, 1) as ledger, Child(hang_in_commit, pg_dsn, 1) as child:
        assert child.hear() == "locked"
        os.kill(child.pid, signal.SIGSTOP)
        rescue = threading.Timer(10, os.kill, (child.pid, signal.SIGKILL))
        rescue.start()
        started = time.monotonic()
        write(ledger, "a")
        seconds = time.monotonic() - started
        rescue.cancel()
        assert 0.2 < seconds < 9, "it waited for the other one, but not for ever"
        assert verify(ledger.store).events == 2


def test_a_leader_whose_connection_is_ended_has_lost_the_lead_and_another_gets_it(pg_dsn: str) -> None:
    with open_ledger(pg_dsn, create=True) as one, open_ledger(pg_dsn) as two:
        leadership = one.store.lead("one")
        assert leadership is not None
        _end_connections(pg_dsn)
        assert not leadership.is_held()
        successor = two.store.lead("two")
        assert successor is not None
        assert (successor.epoch, successor.is_held()) == (2, True)
        leadership.resign()
        successor.resign()


def test_a_leader_that_is_stopped_and_cut_off_is_fenced_when_it_comes_back(pg_dsn: str) -> None:
    with open_ledger(pg_dsn, create=True) as ledger, Child(lead, pg_dsn, "sleeper") as child:
        epoch = child.hear()
        os.kill(child.pid, signal.SIGSTOP)
        assert ledger.store.lead("two") is None
        _end_connections(pg_dsn)
        successor = ledger.store.lead("two")
        assert successor is not None
        assert successor.epoch == epoch + 1
        with pytest.raises(PlimsollError) as refused:
            ledger.commit([note()], actor="sleeper", read_at=None, epoch=epoch)
        assert refused.value.code == "fenced"
        successor.resign()


@pytest.fixture
def small_tablespace(own_server: PrivatePostgres) -> Iterator[tuple[str, Path]]:
    """A database on a disk of 24 MB; its own empty tables take about a third of it."""
    with small_disk(megabytes=24) as disk:
        if disk is None:
            missing_part("the right to mount a small disk")
        os.chown(disk.folder, (own_server.folder / "data").stat().st_uid, -1)
        with raw(own_server.dsn("postgres")) as run:
            run(f"CREATE TABLESPACE small LOCATION '{disk.folder}'")
            run("CREATE DATABASE on_small_disk TABLESPACE small")
        yield own_server.dsn("on_small_disk"), disk.folder
        own_server.kill()


def _fill(ledger: Ledger) -> None:
    for _ in range(100):
        ledger.commit([note("a", os.urandom(150_000).hex())], actor="tester", read_at=None)


def test_a_full_disk_of_the_server_keeps_nothing_of_the_commit_and_goes_on(small_tablespace: tuple[str, Path]) -> None:
    dsn, folder = small_tablespace
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * 2_000_000)
    with open_ledger(dsn, create=True) as ledger:
        with pytest.raises(Unavailable) as refused:
            _fill(ledger)
        assert refused.value.code == "disk_full"
        revision = ledger.head().revision
        ballast.unlink()
        write(ledger, "a")
        assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, revision + 1)


class ChangedMyMind(Exception):
    pass


def test_threads_that_share_a_store_never_see_its_connection_in_the_middle_of_a_transaction(pg_dsn: str) -> None:
    with filled(pg_dsn, 1) as ledger, ThreadPoolExecutor(1) as pool:
        readings = []

        def delete_and_think_again() -> None:
            with ledger.store.transaction():
                ledger.store.run("DELETE FROM events")
                readings.append(pool.submit(ledger.store.event_count))
                time.sleep(0.05)
                raise ChangedMyMind

        with pytest.raises(ChangedMyMind):
            delete_and_think_again()
        assert readings[0].result(10) == 1
