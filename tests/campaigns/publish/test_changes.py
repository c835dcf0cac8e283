"""What is different between two numbers of a plan."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.campaigns.model import Batch
from plimsoll.campaigns.publish.changes import ChangeKind, by_unit, changes, counts_text, move_text, what_changed
from tests.campaigns.publish.plans import batch, plan, publish


class Case(NamedTuple):
    before: Batch | None
    after: Batch | None
    want: ChangeKind | None
    want_by: timedelta = timedelta(0)
    want_text: str = ""
    want_more: int = 0


CASES = {
    "a batch that is as it was": Case(batch(), batch(), None),
    "a batch that moves two days": Case(
        batch(), batch(day=2), ChangeKind.LATER, timedelta(days=2), want_text="2 days later"
    ),
    "a batch that moves three hours forward": Case(
        batch(hour=3), batch(), ChangeKind.EARLIER, timedelta(hours=-3), want_text="3 hours earlier"
    ),
    "a batch that takes longer": Case(
        batch(hours=4), batch(hours=6), ChangeKind.RETIMED, want_text="ends 2 hours later"
    ),
    "a batch that takes less long": Case(
        batch(hours=4), batch(hours=3), ChangeKind.RETIMED, want_text="ends 1 hour earlier"
    ),
    "a batch with fewer nodes": Case(
        batch(nodes=10), batch(nodes=7), ChangeKind.RESIZED, want_text="-3 nodes", want_more=-3
    ),
    "a batch that moves and grows has moved": Case(
        batch(), batch(day=1, nodes=6), ChangeKind.LATER, timedelta(days=1), want_text="1 day later", want_more=2
    ),
    "a batch that nobody had planned": Case(None, batch(), ChangeKind.ADDED, want_text="added", want_more=4),
    "a batch that is planned no more": Case(batch(), None, ChangeKind.CANCELLED, want_text="cancelled", want_more=-4),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_happened_to_a_batch(case: Case) -> None:
    other = batch("lion", day=4)
    before = plan([other, *([case.before] if case.before else [])])
    after = plan([other, *([case.after] if case.after else [])], number=2)
    found = changes(before, after)
    assert (found.before, found.after) == (1, 2)
    if case.want is None:
        assert (found.changes, found.same) == ((), 2)
        return
    (change,) = found.changes
    assert (change.kind, change.by, change.nodes_more) == (case.want, case.want_by, case.want_more)
    assert (change.before, change.after, found.same) == (case.before, case.after, 1)
    assert move_text(by_unit(found.changes)[0]) == case.want_text


def test_a_first_plan_changes_nothing() -> None:
    found = changes(None, plan([batch()]))
    assert (found.before, found.changes, found.same) == (None, (), 1)


def test_what_is_called_off_is_cancelled() -> None:
    before = plan([batch(), batch("lion")])
    found = changes(before, plan([batch(), batch("lion")], number=2), called_off=["lion#1"])
    assert [(change.kind, change.id) for change in found.changes] == [(ChangeKind.CANCELLED, "lion#1")]


def test_batches_of_a_unit_that_move_alike_are_one_change() -> None:
    before = plan([batch(day=day, number=day + 1) for day in range(3)])
    after = plan([batch(day=day + 2, number=day + 1) for day in range(3)] + [batch("lion")], number=2)
    found = changes(before, after)
    units = by_unit(found.changes)
    assert [(each.unit, move_text(each), each.nodes) for each in units] == [
        ("lion", "added", 4),
        ("tiger", "2 days later (3 batches)", 12),
    ]
    assert counts_text(found) == "1 later, 1 added"


def test_a_day_is_a_day_when_the_clocks_change() -> None:
    """From 11:00 on Friday to 11:00 on Monday in Stockholm are 71 hours in that night, and three days."""
    friday, monday = batch(day=81, hour=-1), batch(day=84, hour=-2)
    moved = publish([monday], number=2, previous=plan([friday]), tz="Europe/Stockholm")
    assert (moved.local(friday.start).hour, moved.local(monday.start).hour) == (11, 11)
    assert monday.start - friday.start == timedelta(hours=71)
    (change,) = by_unit(what_changed(moved).changes)
    assert (change.by, move_text(change)) == (timedelta(days=3), "3 days later")
