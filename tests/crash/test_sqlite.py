"""`kill -9` at random moments of append and import on SQLite: nothing acknowledged is lost, nothing is half applied."""

from __future__ import annotations

import os
import shutil
import time
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
from tests.support.writers import append_for_ever, import_for_ever

APPEND_KILLS = 40
IMPORT_KILLS = 20
SOAK_KILLS = int(os.environ.get("PLIMSOLL_SOAK_KILLS") or 10_000)
KILLS_PER_DATABASE = 5
"""Then a new one, so that many are killed while they make the database, and checking stays quick."""
MAKING_SECONDS, WRITING_SECONDS = 0.02, 0.12


def _kill_at_random(child: Child, chance: Random) -> None:
    """Half of the moments lie in the first instants, in which the database is made or opened."""
    child.hear()
    time.sleep(chance.uniform(0, chance.choice([MAKING_SECONDS, WRITING_SECONDS])))
    child.kill()


def _kill_appenders(folder: Path, kills: int, chance: Random) -> int:
    """Returns how many events were acknowledged in all."""
    total = 0
    for number in range(kills):
        home = folder / f"append-{number // KILLS_PER_DATABASE}"
        home.mkdir(exist_ok=True)
        dsn, acknowledged = f"sqlite:///{home}/x.db", home / "acknowledged"
        with Child(append_for_ever, dsn, acknowledged, number) as child:
            _kill_at_random(child, chance)
        pairs = read_acknowledged(acknowledged)
        events = assert_nothing_lost(dsn, pairs)
        assert_commits_are_whole(events)
        assert_state_is_the_fold(dsn, events)
        if number % KILLS_PER_DATABASE == KILLS_PER_DATABASE - 1:
            total += len(pairs)
    return total


def _kill_importers(folder: Path, kills: int, chance: Random) -> int:
    folders, wants = write_fleets(folder)
    total = 0
    for number in range(kills):
        home = folder / f"import-{number // KILLS_PER_DATABASE}"
        home.mkdir(exist_ok=True)
        dsn, acknowledged = f"sqlite:///{home}/x.db", home / "acknowledged"
        with Child(import_for_ever, dsn, acknowledged, folders) as child:
            _kill_at_random(child, chance)
        pairs = read_acknowledged(acknowledged)
        assert_nothing_lost(dsn, pairs)
        assert_imports_are_whole(dsn, wants)
        if number % KILLS_PER_DATABASE == KILLS_PER_DATABASE - 1:
            total += len(pairs)
    return total


def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    assert _kill_appenders(tmp_path, APPEND_KILLS, new_chance()) > 0


def test_a_killed_import_is_whole_or_absent(tmp_path: Path) -> None:
    assert _kill_importers(tmp_path, IMPORT_KILLS, new_chance()) > 0


@pytest.mark.soak
def test_ten_thousand_kills(tmp_path: Path) -> None:
    chance = new_chance()
    for _ in range(0, SOAK_KILLS, APPEND_KILLS + IMPORT_KILLS):
        folder = tmp_path / "round"
        folder.mkdir()
        _kill_appenders(folder, APPEND_KILLS, chance)
        _kill_importers(folder, IMPORT_KILLS, chance)
        shutil.rmtree(folder)
