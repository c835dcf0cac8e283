"""Kills on PostgreSQL: of clients, and of the server with all its processes at once, as by a power cut."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.crash.kills import (
    assert_commits_are_whole,
    assert_imports_are_whole,
    assert_nothing_lost,
    assert_state_is_the_fold,
    read_acknowledged,
    write_fleets,
)
from tests.support.chance import new_chance
from tests.support.children import Child
from tests.support.ledgers import raw, wait_until_alone
from tests.support.postgres import PrivatePostgres, private_postgres
from tests.support.power import cut_power
from tests.support.waiting import wait_until
from tests.support.writers import append_for_ever, import_for_ever

CLIENT_KILLS = 16
SERVER_KILLS = 8
WRITERS = 3
SOAK_SERVER_KILLS = 300
MAKING_SECONDS, WRITING_SECONDS = 0.05, 0.2


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePostgres]:
    """A server of its own, because it does not survive."""
    with private_postgres() as server:
        yield server


def test_a_killed_writer_loses_nothing_that_was_acknowledged(server: PrivatePostgres, tmp_path: Path) -> None:
    chance = new_chance()
    pairs: list[tuple[int, str]] = []
    dsn = ""
    for number in range(CLIENT_KILLS):
        if number % 8 == 0:
            dsn, acknowledged = server.new_database(), tmp_path / f"acknowledged-{number}"
        with Child(append_for_ever, dsn, acknowledged, number) as child:
            child.hear()
            time.sleep(chance.uniform(0, chance.choice([MAKING_SECONDS, WRITING_SECONDS])))
            child.kill()
        pairs = read_acknowledged(acknowledged)
        wait_until_alone(dsn)
        events = assert_nothing_lost(dsn, pairs)
        assert_commits_are_whole(events)
        assert_state_is_the_fold(dsn, events)
    assert pairs


def test_a_killed_import_is_whole_or_absent(server: PrivatePostgres, tmp_path: Path) -> None:
    chance, dsn, acknowledged = new_chance(), server.new_database(), tmp_path / "acknowledged"
    folders, wants = write_fleets(tmp_path)
    for _ in range(CLIENT_KILLS // 2):
        with Child(import_for_ever, dsn, acknowledged, folders) as child:
            child.hear()
            time.sleep(chance.uniform(0, WRITING_SECONDS))
            child.kill()
        wait_until_alone(dsn)
        assert_nothing_lost(dsn, read_acknowledged(acknowledged))
        assert_imports_are_whole(dsn, wants)
    with Child(import_for_ever, dsn, acknowledged, folders) as child:  # and one that lives gets through
        child.hear()
        wait_until(lambda: bool(read_acknowledged(acknowledged)), what="an import is acknowledged")
        child.kill()
    wait_until_alone(dsn)
    assert_nothing_lost(dsn, read_acknowledged(acknowledged))
    assert_imports_are_whole(dsn, wants)


def _have_grown(files: list[Path], before: list[int]) -> bool:
    return all(len(read_acknowledged(path)) > count for path, count in zip(files, before, strict=True))


def _cut_power_under_writers(server: PrivatePostgres, folder: Path, cuts: int, chance: Random) -> None:
    """Writers go on through every power cut; each commit that they try again is there once, and none is missing.

    The database says that a commit need not wait for the disk: the ledger must not believe it.
    """
    dsn = server.new_database()
    with raw(dsn) as run:
        run(f"ALTER DATABASE {dsn.rsplit('/', 1)[1]} SET synchronous_commit = off")
    files = [folder / f"acknowledged-{number}" for number in range(WRITERS)]
    with ExitStack() as stack:
        writers = [stack.enter_context(Child(append_for_ever, dsn, path, n)) for n, path in enumerate(files)]
        for writer in writers:
            writer.hear()
        for _ in range(cuts):
            time.sleep(chance.uniform(0, WRITING_SECONDS))
            cut_power(server)
            before = [len(read_acknowledged(path)) for path in files]
            server.start()
            wait_until(partial(_have_grown, files, before), what="every writer got through again")
        for writer in writers:
            writer.kill()
    wait_until_alone(dsn)
    events = assert_nothing_lost(dsn, [pair for path in files for pair in read_acknowledged(path)])
    assert_commits_are_whole(events)
    assert_state_is_the_fold(dsn, events)


def test_a_killed_server_loses_nothing_that_was_acknowledged(server: PrivatePostgres, tmp_path: Path) -> None:
    _cut_power_under_writers(server, tmp_path, SERVER_KILLS, new_chance())


@pytest.mark.soak
def test_hundreds_of_power_cuts(server: PrivatePostgres, tmp_path: Path) -> None:
    chance = new_chance()
    for number in range(SOAK_SERVER_KILLS // SERVER_KILLS):
        folder = tmp_path / f"round-{number}"
        folder.mkdir()
        _cut_power_under_writers(server, folder, SERVER_KILLS, chance)
