"""How fast we may ask, with a clock of our own: nothing here waits."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import pytest

from plimsoll.connect.pace import CLOSED_SECONDS_DEFAULT, CLOSED_SECONDS_MAX, Pace


class Clock:
    """Time passes when somebody sleeps: to when the sleeper wakes. Each thread remembers what it last read."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.sleeps: list[float] = []
        self._lock = threading.Lock()
        self._mine = threading.local()

    def __call__(self) -> float:
        with self._lock:
            read = self._mine.read = self.now
        time.sleep(0)  # the worst place for another thread to come in between
        return read

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        with self._lock:
            self.sleeps.append(seconds)
            self.now = max(self.now, self._mine.read + seconds)

    def last_read(self) -> float:
        return float(self._mine.read)


def paced(requests_a_minute: int = 200, *, reserve: int = 10) -> tuple[Pace, Clock]:
    clock = Clock()
    return Pace(requests_a_minute, reserve=reserve, clock=clock, sleep=clock.sleep), clock


def take_now(pace: Pace) -> int:
    """How many may go out without a wait."""
    count = 0
    while pace.take(0) is None:
        count += 1
    return count


def rate(remaining: int, reset: int, limit: int | None = None, *, user: str = "") -> dict[str, str]:
    headers = {f"ratelimit-{user}remaining": str(remaining), f"ratelimit-{user}reset": str(reset)}
    return headers if limit is None else {**headers, f"ratelimit-{user}limit": str(limit)}


def test_a_minute_s_worth_goes_out_at_once_and_the_reserve_stays() -> None:
    pace, clock = paced()
    assert take_now(pace) == 190
    clock.now += 20
    assert pace.take(39.9) == 40.0, "the first of them leaves the minute in 40 s"
    assert not clock.sleeps
    assert pace.take(40.0) is None
    assert clock.sleeps == [40.0]
    assert take_now(pace) == 189


def test_a_minute_is_a_minute() -> None:
    pace, clock = paced(11)
    assert pace.take(0) is None
    clock.now += 59.5
    assert pace.take(0) == 0.5
    clock.now += 0.5
    assert pace.take(0) is None


def test_a_limit_that_falls_counts_what_went_out_before() -> None:
    pace, clock = paced(20)
    for _ in range(8):
        assert pace.take(0) is None
        clock.now += 5
    pace.learn({"ratelimit-limit": "13"})
    assert pace.take(0) == 45.0, "of eight, 5 s apart, six must leave so that fewer than three are left"


def test_what_was_not_taken_does_not_count() -> None:
    pace, clock = paced(12)
    assert take_now(pace) == 2
    for _ in range(50):
        assert pace.take(1) == 60.0
    clock.now += 60
    assert take_now(pace) == 2


@pytest.mark.parametrize("threads", [1, 24])
def test_never_more_than_the_limit_in_any_minute(threads: int) -> None:
    """A window may begin anywhere: between a request and the 40th after it there is a whole minute."""
    pace, clock = paced(50)
    gone: list[float] = []
    lock = threading.Lock()

    def work() -> None:
        for _ in range(360 // threads):
            assert pace.take(10_000) is None
            with lock:
                gone.append(clock.last_read())

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(30)
    gone.sort()
    assert len(gone) == 360
    assert all(later - earlier >= 60 for earlier, later in zip(gone, gone[40:], strict=False))
    assert gone[-1] - gone[0] < 9 * 60, "and it is not slower than it has to be"


def test_people_use_the_organisation_s_minute_too() -> None:
    pace, clock = paced()
    pace.learn(rate(remaining=13, reset=30))
    assert take_now(pace) == 3
    assert pace.take(5) == 30.0
    clock.now += 30
    assert take_now(pace) == 187, "a new window: only our own minute counts, and it has three"


class Case(NamedTuple):
    answers: list[tuple[float, dict[str, str]]]
    """After how many seconds which headers came."""
    want: int


LEARNT = {
    "an answer without headers": Case([(0, {})], 190),
    "headers that are no numbers": Case(
        [(0, {"ratelimit-remaining": "many", "ratelimit-reset": "-1", "ratelimit-limit": "٣"})], 190
    ),
    "answers that overtake each other": Case([(0, rate(20, 40)), (0, rate(25, 40))], 10),
    "whole seconds are rounded": Case([(0, rate(20, 40)), (1, rate(25, 40))], 10),
    "a new window has more": Case([(0, rate(20, 4)), (5, rate(150, 60))], 140),
    "a late answer of the window before": Case([(0, rate(20, 1)), (1.5, rate(150, 60)), (0, rate(15, 1))], 140),
    "the reserve is used up": Case([(0, rate(9, 40))], 0),
    "the service allows less": Case([(0, rate(60, 60, 60))], 50),
    "the service allows more than we want": Case([(0, rate(900, 60, 1_000))], 190),
    "the service allows less than the reserve": Case([(0, {"ratelimit-limit": "5"})], 1),
    "the token's user has a limit of its own": Case([(0, rate(50, 60, 50, user="user-") | rate(199, 60, 200))], 50),
    "the user's minute is nearly used": Case([(0, rate(7, 60, 50, user="user-") | rate(100, 60, 200))], 7),
}


@pytest.mark.parametrize("case", LEARNT.values(), ids=LEARNT.keys())
def test_what_the_answers_say(case: Case) -> None:
    pace, clock = paced()
    for seconds, headers in case.answers:
        clock.now += seconds
        pace.learn(headers)
    assert take_now(pace) == case.want


CLOSED: dict[str, tuple[dict[str, str], float]] = {
    "it says when": ({"retry-after": "17"} | rate(0, 40), 40.0),
    "it says only when": ({"retry-after": "17"}, 17.0),
    "the user's minute is used, the organisation's is not": (rate(0, 12, user="user-") | rate(90, 50), 12.0),
    "the organisation's minute is used": (rate(0, 42), 42.0),
    "a date is not understood": ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"} | rate(0, 21), 21.0),
    "it says nothing": ({}, CLOSED_SECONDS_DEFAULT),
    "it exaggerates": ({"retry-after": "999999999"}, CLOSED_SECONDS_MAX),
}


@pytest.mark.parametrize(("headers", "want"), CLOSED.values(), ids=CLOSED.keys())
def test_a_refusal_closes_for_everybody(headers: dict[str, str], want: float) -> None:
    pace, clock = paced()
    pace.refused(headers)
    assert pace.take(1) == want
    assert pace.report().wait_seconds == want
    assert pace.take(want) is None
    assert clock.sleeps == [want]


def test_a_later_refusal_never_opens_earlier() -> None:
    pace, _ = paced()
    pace.refused({"retry-after": "50"})
    pace.refused({"retry-after": "3"})
    assert pace.take(0) == 50.0


def test_one_that_sleeps_sees_a_refusal_that_came_meanwhile() -> None:
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.sleeps) == 1:
            pace.refused({"retry-after": "25"})

    pace = Pace(11, reserve=10, clock=clock, sleep=sleep)
    assert pace.take(0) is None
    assert pace.take(70) == 25.0, "60 s are slept, and 25 more are over the bound"
    assert clock.sleeps == [60.0]


def test_a_clock_that_stands_still_does_not_hang_it() -> None:
    pace = Pace(11, reserve=10, clock=lambda: 5.0, sleep=lambda _seconds: None)
    assert pace.take(100) is None
    assert pace.take(100) == 60.0


def test_where_it_stands() -> None:
    pace, clock = paced(12)
    assert pace.take(0) is None
    report = pace.report()
    assert (report.used, report.allowed, report.wait_seconds) == (1, 2, 0.0)
    clock.now += 61
    assert pace.report().used == 0
