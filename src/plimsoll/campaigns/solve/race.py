"""The search for a plan and the proof that it is good, side by side in two processes, against the clock.

The parent only listens: it keeps the best plan and the best bound, tells of progress, and ends both workers when the
gap is closed, the time is up, somebody says stop, or it is interrupted itself; none is left behind. The plan depends on
the seed and the time asked for, not on how fast the bound was: the search always does its share of the work.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from plimsoll.campaigns.model import Status
from plimsoll.campaigns.solve.mail import Task, Told, receive, send
from plimsoll.campaigns.solve.problem import Ints, PlanProblem, Totals, alone, is_valid, safe, starts_of, totals

SHARE_OF_SEARCH = 0.5
"""How much of the time the search is given, reckoned in work."""
SMALL_COLUMNS, SMALL_ENTRIES, SMALL_NODES, SMALL_SECONDS = 2_500, 60_000, 400, 3.0
"""Problems that are tried in this process first."""
OPTIMAL_GAP = 2e-6
TICK_SECONDS = 0.1
ENDING_SECONDS = 2.0


class Progress(NamedTuple):
    """How far a search is. `best` and `bound` are None while there is none."""

    best: float | None
    bound: float | None
    gap: float | None
    seconds: float


class Solved(NamedTuple):
    """The answer. `columns` is the plan as the problem knows it, `starts` as people do: minutes by unit and batch.

    `totals` hold the costs of moves; `reason` says why there is no plan, where that is plain.
    """

    status: Status
    columns: Ints | None
    starts: dict[str, tuple[int, ...]] | None
    totals: Totals | None
    bound: float | None
    gap: float | None
    seconds: float
    reason: str = ""


def solve(
    problem: PlanProblem,
    *,
    start: Ints | None = None,
    seed: int = 0,
    seconds: float = 60.0,
    gap_target: float = 0.01,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    is_alone: bool = False,
    is_near: bool = False,
) -> Solved:
    """The best plan that so many seconds find, with a bound.

    `start`: a plan to begin with, such as the greedy one. It ends before its time when the search has done its work and
    the gap is at most `gap_target`, or when nothing better is left. `is_alone`: without other processes.
    `is_near`: `start` is nearly what is wanted, as when little has changed: it is only reworked.
    """
    table = _Table(problem, seconds, on_progress or _nobody, should_stop or _never)
    if problem.impossible:
        return table.answer(is_impossible=True, reason=problem.impossible)
    if not problem.blocks:
        start = np.zeros(0, dtype=np.int64)
        table.bound = 0.0
    else:
        table.bound = safe(alone(problem))  # plain at once, so that no plan leaves without a bound
    if start is not None:
        table.take(Told(plan=start))
    try:
        is_small = problem.columns <= SMALL_COLUMNS and len(problem.rows.row) <= SMALL_ENTRIES
        if table.is_over():
            return table.answer()
        if (is_small or is_alone) and _solve_here(problem, table, seed, is_alone=is_alone, is_near=is_near):
            return table.answer()
        if not is_alone and not table.is_over():
            try:
                _race(problem, table, seed, gap_target, is_near=is_near)
            except OSError:  # no more processes: slower, but not nothing
                _solve_here(problem, table, seed, is_alone=True, is_near=is_near)
    except KeyboardInterrupt:
        table.is_cut = True
    return table.answer()


def _nobody(progress: Progress) -> None:
    pass


def _never() -> bool:
    return False


class _Table:
    """What is known so far."""

    def __init__(
        self,
        problem: PlanProblem,
        seconds: float,
        on_progress: Callable[[Progress], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self.problem, self.seconds, self.on_progress, self.should_stop = problem, seconds, on_progress, should_stop
        self.began = time.monotonic()
        self.best: Ints | None = None
        self.total = np.inf
        self.bound = -np.inf
        self.is_impossible = False
        self.is_cut = False

    @property
    def passed(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.passed)

    @property
    def gap(self) -> float:
        if not np.isfinite(self.total) or not np.isfinite(self.bound):
            return np.inf
        return max(0.0, (self.total - self.bound) / max(1.0, self.total))

    def is_over(self) -> bool:
        return self.is_cut or self.is_impossible or self.left <= 0.0 or self.should_stop() or self.gap <= OPTIMAL_GAP

    def take(self, told: Told) -> bool:
        """Note what was told; whether the plan is better."""
        has_news, is_better = told.is_impossible, False
        if told.plan is not None and is_valid(self.problem, told.plan):
            total = totals(self.problem, told.plan).total
            if total < self.total:
                self.best, self.total, is_better = told.plan, total, True
        if told.bound is not None and told.bound > self.bound:
            self.bound, has_news = told.bound, True
        self.is_impossible |= told.is_impossible and self.best is None
        if has_news or is_better:
            self.on_progress(self.progress())
        return is_better

    def progress(self) -> Progress:
        best = self.total if self.best is not None else None
        bound = min(self.bound, self.total) if np.isfinite(self.bound) else None
        return Progress(best, bound, self.gap if best is not None and bound is not None else None, self.passed)

    def answer(self, *, is_impossible: bool = False, reason: str = "") -> Solved:
        if is_impossible or self.is_impossible:
            return Solved(Status.INFEASIBLE, None, None, None, None, None, self.passed, reason)
        if self.best is None:
            bound = self.bound if np.isfinite(self.bound) else None
            return Solved(Status.UNKNOWN, None, None, None, bound, None, self.passed)
        is_optimal = self.gap <= OPTIMAL_GAP
        bound = self.total if is_optimal else self.bound if np.isfinite(self.bound) else None
        return Solved(
            status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
            columns=self.best,
            starts=starts_of(self.problem, self.best),
            totals=totals(self.problem, self.best),
            bound=bound,
            gap=0.0 if is_optimal else self.gap if bound is not None else None,
            seconds=self.passed,
        )


def _solve_here(problem: PlanProblem, table: _Table, seed: int, *, is_alone: bool, is_near: bool) -> bool:
    """Try in this process; whether that settled it. Alone it also searches, for as long as there is time."""
    from plimsoll.campaigns.solve.bound import branch, prove
    from plimsoll.campaigns.solve.cuts import Strength
    from plimsoll.campaigns.solve.engine import Effort
    from plimsoll.campaigns.solve.improve import improve

    if is_alone:
        improve(
            problem,
            table.best,
            seed=seed,
            work=SHARE_OF_SEARCH * table.seconds,
            on_plan=lambda columns: _ignore(table.take(Told(plan=columns))),
            should_stop=table.is_over,
            is_near=is_near,
        )
        proof = prove(
            problem,
            on_bound=lambda bound: _ignore(table.take(Told(bound=bound))),
            known=lambda: table.best,
            should_stop=table.is_over,
            seed=seed,
            seconds=max(TICK_SECONDS, table.left),
        )
    else:
        effort = Effort(nodes=SMALL_NODES, seconds=min(SMALL_SECONDS, table.seconds), seed=seed)
        proof = branch(
            problem,
            Strength(-np.inf, ()),
            on_bound=lambda bound: _ignore(table.take(Told(bound=bound))),
            known=table.best,
            effort=effort,
        )
    table.take(Told(plan=proof.best, is_impossible=proof.is_impossible))
    return table.is_impossible or table.gap <= OPTIMAL_GAP


def _ignore(_: bool) -> None:
    pass


def _race(problem: PlanProblem, table: _Table, seed: int, gap_target: float, *, is_near: bool) -> None:
    """Two workers until it is over."""
    inbox: queue.Queue[tuple[int, Told]] = queue.Queue()
    workers: list[_Worker] = []
    work = SHARE_OF_SEARCH * table.seconds
    try:
        for number, is_proof in enumerate((False, True)):
            workers.append(_Worker(number, Task(is_proof, problem, table.best, seed, work, is_near), inbox))
        running = {0, 1}
        while running and not table.is_over():
            try:
                number, told = inbox.get(timeout=min(TICK_SECONDS, table.left + 0.001))
            except queue.Empty:
                continue
            if told.has_ended:
                running.discard(number)
            elif table.take(told) and number == 0:
                workers[1].tell(table.best)
            if 0 not in running and table.gap <= gap_target:
                break
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process, and a thread that reads what it tells."""

    def __init__(self, number: int, task: Task, inbox: queue.Queue[tuple[int, Told]]) -> None:
        home = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
        # One thread each: two solvers whose arithmetic wants all processors are slower than one.
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.number, self.inbox = number, inbox
        self.process = subprocess.Popen(
            [sys.executable, "-m", "plimsoll.campaigns.solve.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal is for the parent
            env={**os.environ, **single, "PYTHONPATH": path},
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self._send(task)

    def tell(self, plan: Ints | None) -> None:
        self._send(plan)

    def _send(self, message: object) -> None:
        assert self.process.stdin is not None, "made with a pipe"
        with contextlib.suppress(OSError):  # it has ended, which the listener says
            send(self.process.stdin, message)

    def _listen(self) -> None:
        assert self.process.stdout is not None, "made with a pipe"
        try:
            while True:
                self.inbox.put_nowait((self.number, receive(self.process.stdout)))
        except (EOFError, OSError, ValueError):
            self.inbox.put_nowait((self.number, Told(has_ended=True)))

    def end(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait(timeout=ENDING_SECONDS)
