"""A figure: a measured value beside its baseline, the ratio of the two, and the limit the ratio or value must keep."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One line of the report. `holds` is None where the figure is only told."""

    name: str
    size: str
    measured: str
    baseline: str
    ratio: str
    limit: str
    holds: bool | None


class Times(msgspec.Struct, frozen=True):
    """Several runs of one thing, in seconds."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    def __str__(self) -> str:
        spread = (max(self.runs) - min(self.runs)) / 2
        return f"{_time(self.median)} ±{_time(spread)} ({len(self.runs)} runs)"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternate(count: int, *works: Callable[[], object]) -> list[Times]:
    """Time several things in turns, so that a slow moment of the machine hits all of them."""
    runs: list[list[float]] = [[] for _ in works]
    for _ in range(count):
        for work, times in zip(works, runs, strict=True):
            times.append(timed(work))
    return [Times(tuple(times)) for times in runs]


def compare(name: str, size: str, ours: Times, baseline: Times, *, at_most: float) -> Figure:
    """Ours takes at most so many times the baseline's time."""
    ratio = ours.median / baseline.median
    return Figure(name, size, str(ours), str(baseline), f"{ratio:.2f}x", f"at most {at_most:g}x", ratio <= at_most)


def run_child(code: str, *arguments: str) -> tuple[float, str]:
    """Run Python code in a fresh interpreter: its time and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    return time.perf_counter() - began, done.stdout


def show(figures: list[Figure]) -> bool:
    """Print; False when one does not hold."""
    for figure in figures:
        mark = {True: "holds", False: "MISSED", None: ""}[figure.holds]
        print(f"{figure.name} [{figure.size}]")
        print(
            f"    {figure.measured}  |  baseline {figure.baseline}  |  {figure.ratio}  |  {figure.limit}  {mark}",
            flush=True,
        )
    return all(figure.holds is not False for figure in figures)
