"""How good and how quick the forecast is: violations and buffer against hindsight and against the trivial rule, and the
time of all clusters against that of the plainest method on the same data.

LANL's recordings are used where they are (see `failures.py`); the bursty fleets are made up, with seeds on which
nothing was tuned.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.failures import data_folder, write_bursty, write_grid5000, write_lanl
from bench.figures import Figure, Times, alternate
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.health.forecast.backtest import Backtest, recommend
from plimsoll.health.forecast.method import Ask, Method
from plimsoll.health.forecast.methods import METHODS, methods_named
from plimsoll.health.forecast.present import forecast_state
from plimsoll.health.forecast.service import backtest_state, read_folder_state, sheets_needed
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time

ASK = Ask(168, 0.99)
WINDOW = 90 * 24
HINDSIGHT_MOST, TRIVIAL_MOST = 1.15, 0.9
LANL_SEEDS = (1, 2, 3, 4)
BURSTY = {"islands lost for hours": (45.0, 6.0), "islands lost for a day": (90.0, 24.0)}
"""Days between two bursts of an island, and hours that one lasts."""
BURSTY_SEEDS = (501, 502)
FORECAST_SECONDS_MAX = 2.0
BACKTEST_SECONDS_MAX = 60.0
CLUSTERS, WEEKS = 72, 52
RUNS = 3


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as name:
        folder = Path(name)
        return [*_recorded(folder), *_bursty(folder), _forecast_time(), _backtest_time(folder)]


def _state(folder: Path) -> State:
    sheets = sheets_needed(SHEETS)
    with open_keeper("sqlite:///:memory:", create=True) as keeper:
        return read_folder_state(keeper, Source.of_path(folder, sheets), sheets)


def _backtest(state: State, methods: tuple[Method, ...] = METHODS) -> Backtest:
    return backtest_state(state, methods, ASK, window=WINDOW).result


def _quality(name: str, result: Backtest, *, yardstick: str, at_most: float, is_judged: bool = True) -> Figure:
    """The recommended method's violations and its buffer beside a yardstick's."""
    recommended = recommend(result.scores, METHODS, ASK.risk)
    assert recommended is not None
    best, base = result.score(recommended), result.score(yardstick)
    ratio = best.buffer_share / base.buffer_share
    holds = best.violation_rate <= ASK.risk and ratio <= at_most
    return Figure(
        name,
        f"{len({each.cluster for each in result.decisions})} clusters, {result.hours // 168} weeks",
        f"{best.method}: {best.violation_rate:.2%} violated, {best.buffer_share:.2%} held back",
        f"{yardstick} {base.violation_rate:.2%}, {base.buffer_share:.2%}",
        f"{ratio:.2f}x",
        f"at most 1 % and {at_most:g}x",
        holds if is_judged else None,
    )


def _recorded(folder: Path) -> list[Figure]:
    data = data_folder()
    if data is None:
        return []
    figures = []
    for seed in (None, *LANL_SEEDS):
        result = _backtest(_state(write_lanl(data, folder / f"lanl-{seed}", repair_seed=seed)))
        name = "LANL 18-20, own repairs" if seed is None else f"LANL 18-20, repairs of 48 h, seed {seed}"
        figures.append(_quality(name, result, yardstick="hindsight", at_most=HINDSIGHT_MOST))
    result = _backtest(_state(write_grid5000(data, folder / "grid5000")))
    return [*figures, _quality("Grid'5000", result, yardstick="worst", at_most=TRIVIAL_MOST, is_judged=False)]


def _bursty(folder: Path) -> list[Figure]:
    figures = []
    for what, (days, hours) in BURSTY.items():
        for seed in BURSTY_SEEDS:
            path = write_bursty(folder / f"bursty-{seed}-{hours}", seed, burst_days=days, burst_hours=hours)
            result = _backtest(_state(path))
            figures.append(_quality(f"{what}, seed {seed}", result, yardstick="worst", at_most=TRIVIAL_MOST))
    return figures


def _time(name: str, size: str, ours: Times, plain: Times, seconds_max: float) -> Figure:
    return Figure(
        name,
        size,
        str(ours),
        f"trailing only {plain}",
        f"{ours.median / plain.median:.1f}x",
        f"under {seconds_max:g} s",
        ours.median < seconds_max,
    )


def _forecast_time() -> Figure:
    now = parse_time("2026-01-05T00:00:00Z")
    rows = demo_fleet(seed=1, until=now)
    source = Source("demo", "", {sheet: MemorySheet(sheet, cells) for sheet, cells in rows.items()})
    with open_keeper("sqlite:///:memory:", create=True) as keeper:
        import_fleet(keeper, source, SHEETS, actor="bench")
        state = keeper.state()
        ours, plain = alternate(
            RUNS,
            lambda: forecast_state(state, ASK, now=now),
            lambda: forecast_state(state, ASK, now=now, method="trailing"),
        )
        clusters = len({pool.pool.cluster for pool in forecast_state(state, ASK, now=now, method="trailing").pools})
    return _time(
        "forecast of the demo fleet", f"{clusters} clusters, 90 days, choice of methods included", ours, plain,
        FORECAST_SECONDS_MAX,
    )  # fmt: skip


def _backtest_time(folder: Path) -> Figure:
    path = write_bursty(folder / "year", 7, clusters=CLUSTERS, days=7 * WEEKS + 91)
    ours, plain = alternate(
        1, lambda: _backtest(_state(path)), lambda: _backtest(_state(path), methods_named(["trailing"]))
    )
    size = f"{CLUSTERS} clusters, {WEEKS} weeks, reading the folder included"
    return _time("back-test with all methods", size, ours, plain, BACKTEST_SECONDS_MAX)
