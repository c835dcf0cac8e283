"""The figures on recorded failures. The recordings are not part of the repository: without them these tests skip."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.failures import Outage as Recorded
from bench.failures import data_folder, merged, write_bursty, write_lanl

from plimsoll.fleet.service import Source
from plimsoll.health.forecast.backtest import Score, recommend
from plimsoll.health.forecast.method import Ask
from plimsoll.health.forecast.methods import METHODS
from plimsoll.health.forecast.service import FolderBacktest, backtest_state, read_folder_state, sheets_needed
from plimsoll.rooms import SHEETS, open_keeper

WEEK, WINDOW = 168, 90 * 24


def _backtest(folder: Path) -> FolderBacktest:
    sheets = sheets_needed(SHEETS)
    with open_keeper("sqlite:///:memory:", create=True) as keeper:
        state = read_folder_state(keeper, Source.of_path(folder, sheets), sheets)
        return backtest_state(state, METHODS, Ask(WEEK, 0.99), window=WINDOW)


def _best(found: FolderBacktest) -> Score:
    name = recommend(found.result.scores, METHODS, 0.01)
    assert name is not None
    return found.result.score(name)


def _data() -> Path:
    folder = data_folder()
    if folder is None:
        pytest.skip("the recorded failures are not here: PLIMSOLL_DATA names the folder that holds failures/")
    return folder


@pytest.mark.parametrize("seed", [None, 1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (3, 4))])
def test_lanl_keeps_99_with_little_more_than_hindsight(seed: int | None, tmp_path: Path) -> None:
    found = _backtest(write_lanl(_data(), tmp_path / "lanl", repair_seed=seed))
    assert len(found.result.decisions) == (len(METHODS) + 1) * 3 * ((found.span.hour_count - WINDOW) // WEEK)
    best = _best(found)
    assert best.violation_rate <= 0.01
    assert best.buffer_share <= 1.15 * found.result.score("hindsight").buffer_share


def test_a_bursty_fleet_keeps_99_with_less_than_the_worst_of_the_window(tmp_path: Path) -> None:
    found = _backtest(write_bursty(tmp_path / "bursty", 31, clusters=8, days=400))
    best = _best(found)
    assert best.violation_rate <= 0.01
    assert best.buffer_share <= 0.9 * found.result.score("worst").buffer_share


def test_outages_that_overlap_are_one() -> None:
    assert merged([Recorded(5, 6), Recorded(1, 3), Recorded(2, 4), Recorded(4, 4.5)]) == [
        Recorded(1, 4.5),
        Recorded(5, 6),
    ]
