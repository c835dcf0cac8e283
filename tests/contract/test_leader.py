"""One suite for both databases: exactly one leads, and another takes over when it dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from plimsoll.errors import Fenced, Tampered
from plimsoll.ledger import open_ledger, open_store
from plimsoll.ledger.store import Leadership, Store
from tests.support.children import Child
from tests.support.ledgers import note, raw, wait_until_alone, write
from tests.support.writers import lead

TAKE_OVER_SECONDS_MAX = 10.0


def _wait_for_the_lead(store: Store, name: str) -> Leadership:
    deadline = time.monotonic() + TAKE_OVER_SECONDS_MAX
    while time.monotonic() < deadline:
        if leadership := store.lead(name):
            return leadership
        time.sleep(0.02)
    pytest.fail(f"nobody could take over in {TAKE_OVER_SECONDS_MAX} s")


def test_one_of_two_leads_until_it_resigns(dsn: str) -> None:
    with open_ledger(dsn, create=True) as one, open_ledger(dsn) as two:
        first = one.store.lead("one")
        assert first is not None
        assert (first.epoch, first.is_held()) == (1, True)
        assert two.store.lead("two") is None
        assert one.store.lead("one again") is None
        assert two.store.leader() == (1, "one")
        first.resign()
        assert not first.is_held()
        second = two.store.lead("two")
        assert second is not None
        assert (second.epoch, second.is_held()) == (2, True)
        assert one.store.leader() == (2, "two")
        second.resign()
        second.resign()


def test_two_ledgers_have_two_leaders(dsn: str, new_dsn: Callable[[], str]) -> None:
    with open_ledger(dsn, create=True) as one, open_ledger(new_dsn(), create=True) as two:
        leaders = [one.store.lead("one"), two.store.lead("two")]
        assert [leader.epoch for leader in leaders if leader] == [1, 1]
        for leader in leaders:
            assert leader is not None
            leader.resign()


def test_the_lead_of_a_killed_process_passes_on_and_its_commits_are_refused(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger, Child(lead, dsn, "child") as child:
        epoch = child.hear()
        assert epoch == 1
        assert ledger.store.lead("parent") is None
        ledger.commit([note()], actor="child", read_at=None, epoch=epoch)
        child.kill()
        leadership = _wait_for_the_lead(ledger.store, "parent")
        assert (leadership.epoch, ledger.store.leader()) == (2, (2, "parent"))
        with pytest.raises(Fenced):
            ledger.commit([note()], actor="child, back from a long pause", read_at=None, epoch=epoch)
        ledger.commit([note()], actor="parent", read_at=None, epoch=leadership.epoch)
        assert ledger.head().revision == 2
        leadership.resign()


def test_of_many_processes_that_want_the_lead_at_once_one_gets_it_again_and_again(dsn: str) -> None:
    open_ledger(dsn, create=True).close()
    for want_epoch in (1, 2, 3):
        with ExitStack() as stack:
            children = [stack.enter_context(Child(lead, dsn, f"child-{number}")) for number in range(4)]
            epochs = [child.hear() for child in children]
            assert sorted(epochs, key=str) == sorted([want_epoch, None, None, None], key=str)
        wait_until_alone(dsn)


def test_a_lead_that_could_not_begin_is_free_again(dsn: str) -> None:
    """The lock was taken, then the epoch could not be written: the lock must not stay behind."""
    open_ledger(dsn, create=True).close()
    one, two = open_store(dsn), open_store(dsn)
    with raw(dsn) as run:
        (head,) = run("SELECT * FROM ledger_head")
        run("DELETE FROM ledger_head")
        with pytest.raises(Tampered) as refused:
            one.lead("one")
        assert refused.value.code == "no_head"
        run("INSERT INTO ledger_head VALUES (?, ?, ?, ?, ?, ?)", *head)
    leadership = two.lead("two")
    assert leadership is not None
    assert leadership.epoch == 1
    leadership.resign()
    one.close()
    two.close()


def test_leading_does_not_stand_in_the_way_of_others(dsn: str) -> None:
    with open_ledger(dsn, create=True) as leader, open_ledger(dsn) as other:
        leadership = leader.store.lead("leader")
        assert leadership is not None
        write(other, "a")
        leader.commit([note()], actor="leader", read_at=None, epoch=leadership.epoch)
        assert other.head().revision == 2
        leadership.resign()
