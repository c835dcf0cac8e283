"""Planned work ahead: announced, withdrawn, over; and what it says of a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.health.ahead import (
    Stretch,
    announce,
    ends_ahead,
    make_work_id,
    nodes_ahead,
    starts_ahead,
    stretches,
    withdraw,
)
from plimsoll.health.changes import WorkAnnounced, WorkWithdrawn
from plimsoll.health.fold import Health
from plimsoll.health.model import Ahead
from plimsoll.health.service import announce_work, withdraw_work
from plimsoll.ledger import open_ledger
from plimsoll.rooms import KINDS
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import format_time
from tests.support.effort import effort
from tests.support.fleets import row
from tests.support.health import Ward, minutes
from tests.support.imports import NOW


def at(hours: float) -> datetime:
    return NOW + timedelta(hours=hours)


def work(work_id: str = "w1", *nodes: str, starts: float = 24, ends: float = 48, **fields: Any) -> Ahead:
    """Work of ada on n1 tomorrow, all day, where not said otherwise; times are hours from the tests' first moment."""
    given = {"owner": "ada", "reason": "planned: driver"} | fields
    return Ahead(id=work_id, nodes=nodes or ("n1",), starts=at(starts), ends=at(ends), **given)


def put(ward: Ward, *works: Ahead) -> None:
    for each in works:
        announce_work(ward.keeper, each, actor=each.owner)


def take_back(ward: Ward, work_id: str = "w1", *, actor: str = "ada", is_forced: bool = False) -> Ahead:
    return withdraw_work(ward.keeper, work_id, actor=actor, reason="it is off", is_forced=is_forced)[0]


class Reading(NamedTuple):
    """Works on n1 as hours from NOW, the hour of asking, and the first stretch."""

    works: Sequence[tuple[float, float]]
    now: float
    want_starts: float | None
    want_ends: float | None


READINGS = {
    "nothing is announced": Reading([], 0, None, None),
    "one work": Reading([(24, 48)], 0, 24, 48),
    "what starts first, in whatever order it was announced": Reading([(72, 80), (24, 48)], 0, 24, 48),
    "two that overlap are one stretch": Reading([(24, 48), (40, 60)], 0, 24, 60),
    "a long one around a short one ends with the long one": Reading([(24, 90), (30, 40)], 0, 24, 90),
    "one that follows at once goes on": Reading([(24, 48), (48, 50)], 0, 24, 50),
    "an hour in between is a break": Reading([(24, 48), (49, 50)], 0, 24, 48),
    "work that is late still is ahead": Reading([(24, 48)], 30, 24, 48),
    "a minute before its end": Reading([(24, 48)], 47.98, 24, 48),
    "at its end it is over": Reading([(24, 48)], 48, None, None),
    "the next one when the first is over": Reading([(24, 48), (72, 80)], 50, 72, 80),
    "one that is over makes no stretch longer": Reading([(24, 48), (40, 60)], 50, 40, 60),
}


@pytest.mark.parametrize("sentence", READINGS)
def test_when_work_ahead_starts_and_ends(sentence: str) -> None:
    case = READINGS[sentence]
    with Ward(2) as ward:
        put(ward, *(work(f"w{n}", starts=starts, ends=ends) for n, (starts, ends) in enumerate(case.works)))
        now = at(case.now)
        want = [None if hour is None else at(hour) for hour in (case.want_starts, case.want_ends)]
        assert [starts_ahead(ward.health, "n1", now), ends_ahead(ward.health, "n1", now)] == want
        for other in ("n2", "nobody"):
            assert starts_ahead(ward.health, other, now) is None
            assert ends_ahead(ward.health, other, now) is None


def test_stretches_with_breaks_between_them() -> None:
    works = [work("a", starts=1, ends=3), work("b", starts=2, ends=5), work("c", starts=7, ends=8)]
    assert stretches(works, at(0)) == [Stretch(at(1), at(5)), Stretch(at(7), at(8))]
    assert stretches(works, at(6)) == [Stretch(at(7), at(8))]


def test_which_nodes_have_work_within_some_days() -> None:
    with Ward(4) as ward:
        assert nodes_ahead(ward.health, ["n1"], now=at(0), until=at(1000)) == {}
        soon, late, over = work("soon", "n1", "n2"), work("late", "n2", "n3", starts=90, ends=99), work("over", ends=25)
        put(ward, soon, late, over)
        found = nodes_ahead(ward.health, ["n1", "n2", "n3", "n4"], now=at(25), until=at(90))
        assert found == {"n1": soon, "n2": soon}


class Case(NamedTuple):
    """What is announced where `w1` of ada is, and what is said to it."""

    ahead: Ahead
    want_code: str
    want_message: str


REFUSED = {
    "an unknown node": Case(work("w2", "n11"), "unknown_node", "there is no node 'n11'; did you mean 'n1'?"),
    "several unknown nodes": Case(
        work("w2", "n1", "x8", "x9"), "unknown_node", "there is no node 'x8', nor 1 other of the 3"
    ),
    "no node": Case(msgspec.structs.replace(work("w2"), nodes=()), "no_nodes", "'w2' would be work on 0 nodes"),
    "an end before the start": Case(
        work("w2", ends=23), "bad_period", "end at 2026-01-21T11:00:00Z, which is not after its start"
    ),
    "an end at the start": Case(work("w2", ends=24), "bad_period", "not after its start at 2026-01-21T12:00:00Z"),
    "an end in the past": Case(
        work("w2", starts=-9, ends=-1), "bad_period", "ended at 2026-01-20T11:00:00Z, and it is 2026-01-20T12:00:00Z"
    ),
    "an end now": Case(work("w2", starts=-9, ends=0), "bad_period", "nothing of it is ahead"),
    "the id of other nodes": Case(work("w1", "n2"), "work_exists", "'w1' is announced already, by ada: 1 node from"),
    "the id of another time": Case(work("w1", ends=49), "work_exists", "until 2026-01-22T12:00:00Z: planned: driver"),
    "the id of another owner": Case(work("w1", owner="bob"), "work_exists", "by ada"),
    "the id of another reason": Case(work("w1", reason="x"), "work_exists", "planned: driver"),
    "no id": Case(work(" "), "bad_usage", "can't name work"),
    "an id that is too long": Case(work("w" * 101), "bad_usage", "1 to 100 printable characters"),
    "an id that can't be printed": Case(work("w\n1"), "bad_usage", "can't name work"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_an_announcement_is_refused(sentence: str) -> None:
    case = REFUSED[sentence]
    with Ward(3) as ward:
        put(ward, work())
        head = ward.keeper.ledger.head()
        with pytest.raises(PlimsollError) as caught:
            put(ward, case.ahead)
        assert caught.value.code == case.want_code
        assert case.want_message in caught.value.message
        assert caught.value.next_step
        assert ward.keeper.ledger.head() == head, "nothing was done"


NOT_WITHDRAWN: dict[str, tuple[Callable[[Ward], object], str, str]] = {
    "work that nobody announced": (
        lambda ward: take_back(ward, "driver"), "no_such_work",
        "no work 'driver' is announced among 1; did you mean drivers?",
    ),
    "a name that is near nothing": (lambda ward: take_back(ward, "x"), "no_such_work", "announced among 1"),
    "another's": (lambda ward: take_back(ward, "drivers", actor="bob"), "not_your_work", "ada announced 'drivers'"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", NOT_WITHDRAWN)
def test_it_is_not_withdrawn(sentence: str) -> None:
    act, want_code, want_message = NOT_WITHDRAWN[sentence]
    with Ward(1) as ward:
        put(ward, work("drivers"))
        with pytest.raises(PlimsollError) as caught:
            act(ward)
        assert caught.value.code == want_code
        assert want_message in caught.value.message
        assert caught.value.next_step
        assert list(ward.health.ahead) == ["drivers"]


def test_the_same_again_is_no_event_whatever_the_order_of_its_nodes() -> None:
    with Ward(3) as ward:
        first, _ = announce_work(ward.keeper, work("w1", "n2", "n1"), actor="ada")
        head = ward.keeper.ledger.head()
        again, revision = announce_work(ward.keeper, work("w1", "n1", "n2", "n1"), actor="ada")
        assert (first.is_new, again.is_new, revision) == (True, False, head.revision)
        assert again.ahead.nodes == ("n1", "n2")
        assert ward.keeper.ledger.head() == head


def test_nothing_moves_when_the_time_comes() -> None:
    with Ward(1) as ward:
        put(ward, work())
        for hours in (0, 25, 22.9):
            ward.wait(60 * hours)
            ward.sweep()
            assert ward.look() == ("healthy", "in_service", "ours", frozenset())
        assert list(ward.health.ahead) == ["w1"]


def test_a_sweep_drops_what_is_over_once() -> None:
    with Ward(3) as ward:
        put(ward, work("w1", "n1", "n2"), work("w2", "n2", "n3", ends=60))
        ward.wait(60 * 48)
        assert [each.id for each in ward.sweep().over] == ["w1"]
        ((event, change),) = ward.events(WorkWithdrawn)
        assert (change.work, change.cause, event.subject) == ("w1", "over", "work/w1")
        assert event.effective_time == at(48)
        assert event.reason == "ada's work was to end at 2026-01-22T12:00:00Z: planned: driver"
        assert {name: [each.id for each in works] for name, works in ward.health.ahead_of.items()} == {
            "n2": ["w2"],
            "n3": ["w2"],
        }
        head = ward.keeper.ledger.head()
        assert ward.sweep().over == []
        assert ward.keeper.ledger.head() == head


def test_the_id_of_what_is_over_is_free_also_before_a_sweep() -> None:
    with Ward(2) as ward:
        put(ward, work())
        ward.wait(60 * 48)
        put(ward, later := work("w1", "n2", starts=72, ends=73))
        assert ward.health.ahead == {"w1": later}
        assert ward.health.ahead_of == {"n2": (later,)}
        assert [change.cause for _, change in ward.events(WorkWithdrawn)] == ["over"]


def test_who_withdraws_is_told_in_the_log() -> None:
    with Ward(1) as ward:
        put(ward, work("w1"), work("w2"))
        assert take_back(ward).id == "w1"
        take_back(ward, "w2", actor="bob", is_forced=True)
        told = [(event.actor, event.reason, change.work, change.cause) for event, change in ward.events(WorkWithdrawn)]
        assert told == [("ada", "it is off", "w1", "withdrawn"), ("bob", "it is off", "w2", "withdrawn by another")]
        assert (ward.health.ahead, ward.health.ahead_of) == ({}, {})
        put(ward, work("w1", "n1", ends=30))
        assert [event.subject for event, _ in ward.events(WorkAnnounced)] == ["work/w1", "work/w2", "work/w1"]


def test_work_on_a_node_that_retires_does_no_harm() -> None:
    with Ward(2) as ward:
        put(ward, work("w1", "n1", "n2"))
        ward.set("retired", "n1")
        assert starts_ahead(ward.health, "n2", NOW) == at(24)
        assert not announce_work(ward.keeper, work("w1", "n1", "n2"), actor="ada")[0].is_new
        ward.wait(60 * 49)
        assert [each.id for each in ward.sweep().over] == ["w1"]
        assert ward.health.ahead_of == {}


def test_a_snapshot_brings_it_back() -> None:
    with Ward(3) as ward:
        put(ward, work("w2", "n1", "n2", starts=30), work("w1", "n1", "n3"), work("w0", "n1", starts=1, ends=2))
        take_back(ward, "w0")
        loaded = State(KINDS)
        loaded.load(ward.state.dump())
        read = loaded.of(Health)
        assert (read.ahead, read.ahead_of) == (ward.health.ahead, ward.health.ahead_of)
        assert [each.id for each in read.ahead_of["n1"]] == ["w1", "w2"]


def test_what_was_only_tried_is_undone() -> None:
    with Ward(2) as ward:
        put(ward, work("w1", "n1", "n2"))
        before = ward.state.dump(), dict(ward.health.ahead_of)
        with ward.state.what_if() as tried:
            drafts = [
                *announce(tried, work("w2", "n2", starts=1), now=NOW)[1], *withdraw(tried, "w1", actor="ada")[1]
            ]  # fmt: skip
            tried.assume(drafts, recorded_at=format_time(NOW))
            assert list(tried.of(Health).ahead_of) == ["n2"]
        assert (ward.state.dump(), dict(ward.health.ahead_of)) == before


def test_two_processes_that_use_one_id_do_not_overwrite_each_other(tmp_path: Any) -> None:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    with Ward(2, dsn=dsn) as ward, Keeper(open_ledger(dsn, clock=lambda: NOW), KINDS) as other:
        put(ward, work("w1", "n1"))
        with pytest.raises(PlimsollError) as caught:
            announce_work(other, work("w1", "n2"), actor="ada")
        assert caught.value.code == "work_exists"


def test_an_id_that_nobody_gave_follows_from_the_content() -> None:
    def made(*nodes: str, ends: float = 2, reason: str = "r") -> str:
        return make_work_id("ada", nodes, starts=at(1), ends=at(ends), reason=reason)

    assert made("n1", "n2") == made("n2", "n1")
    assert len({made("n1", "n2"), made("n1"), made("n1", ends=3), made("n1", reason="s")}) == 4
    assert made("n1").startswith("work-")
    assert len(made("n1")) == len("work-") + 8


def test_a_whole_fleet_at_once_is_quick() -> None:
    """Linear: four times as many nodes do not take sixteen times as long."""
    seconds = []
    for count in (4_000, 16_000):
        with Ward([row("nodes", node=f"n{n}") for n in range(count)], policy="") as ward:
            names = tuple(ward.state.of(Fleet).nodes)
            with effort() as took:
                put(ward, work("all", *names), work("again", *names, starts=100, ends=101))
                take_back(ward, "all")
            seconds.append(took.seconds)
            assert all(len(works) == 1 for works in ward.health.ahead_of.values())
            assert len(ward.health.ahead_of) == count
    assert seconds[1] < 12 * seconds[0] + 0.2, seconds


def test_a_sweep_that_came_late_by_a_minute_drops_it_as_of_its_end() -> None:
    with Ward(1) as ward:
        put(ward, work(ends=25))
        ward.now = at(25) - minutes(1)
        assert ward.sweep().over == []
        ward.now = at(25) + minutes(1)
        assert [each.ends for each in ward.sweep().over] == [at(25)]
