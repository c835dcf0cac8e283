"""Signals on their way in, on both databases: what is taken, what is rejected, and what a crash in between leaves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import plimsoll.health.service
from plimsoll.errors import Unavailable
from plimsoll.health.sweep import sweep
from plimsoll.ledger.verify import verify
from plimsoll.rooms import KINDS
from plimsoll.state.keeper import Keeper, verify_snapshots
from tests.support.fleets import row
from tests.support.health import Ward, breakers, minutes, signal
from tests.support.imports import NOW
from tests.support.ledgers import events_of, fold_of


def test_signals_are_taken_judged_and_remembered(dsn: str) -> None:
    with Ward(3, dsn=dsn) as ward:
        observed = ward.observe(signal("n1"), signal("n2", "check", "nccl"), signal("n3", name="99"))
        assert (observed.taken, observed.ignored, observed.rejections) == (2, 1, [])
        assert [(each.node, each.was, each.service) for each in observed.outcome.moved] == [
            ("n1", "in_service", "quarantined")
        ]
        assert observed.revision == ward.keeper.ledger.head().revision
    with Ward(dsn=dsn) as again:
        again.wait(5)
        again.observe(signal("n2", "check", "nccl", ago=-5))
        assert again.service("n2") == "quarantined", "the first failure is remembered by the database"


def test_the_same_signals_again_are_no_news(dsn: str) -> None:
    with Ward(2, dsn=dsn) as ward:
        signals = [signal("n1"), signal("n2", name="13")]
        ward.observe(*signals)
        head, samples = ward.keeper.ledger.head(), ward.keeper.ledger.store.cursors(["signal/n1", "signal/n2"])
        ward.observe(*signals)
        assert ward.keeper.ledger.head() == head
        assert ward.keeper.ledger.store.cursors(["signal/n1", "signal/n2"]) == samples


def test_samples_are_not_events(dsn: str) -> None:
    with Ward(1, dsn=dsn) as ward:
        ward.see(swept=["n1"])
        head = ward.keeper.ledger.head()
        for _ in range(10):
            ward.wait(1)
            ward.see(signal("n1", "thermal", "gpu", ago=-1, value=60), swept=["n1"])
        assert ward.keeper.ledger.head() == head
        assert ward.keeper.ledger.store.cursor_scopes() == ["feed"], "what stays good is not even a sample"


REJECTED: dict[str, tuple[Any, str, str]] = {
    "an unknown node": (signal("n9"), "unknown_node", "there is no node 'n9'"),
    "a retired node": (signal("old"), "node_retired", "old is retired"),
    "a signal from the future": (
        signal("n1", ago=-6), "signal_from_future", "n1: 2026-01-20T12:06:00Z is 360 s ahead of our clock"
    ),
    "a signal from long ago": (
        signal("n1", ago=30 * 24 * 60 + 1), "signal_too_old",
        "n1: 2025-12-21T11:59:00Z is 30 days ago; signals are taken for 30 days",
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REJECTED)
def test_what_can_not_be_judged_is_rejected_and_the_rest_is_taken(sentence: str) -> None:
    bad, want_code, want_message = REJECTED[sentence]
    with Ward([row("nodes", node="n1"), row("nodes", node="old", service="retired")]) as ward:
        observed = ward.observe(bad, bad, signal("n1", name="13"))
        assert [(each.code, each.count) for each in observed.rejections] == [(want_code, 2)]
        assert observed.rejections[0].message.startswith(want_message)
        assert (observed.taken, ward.look("n1").health) == (1, "degraded")


def test_the_edges_of_time_are_taken() -> None:
    with Ward(2) as ward:
        observed = ward.observe(signal("n1", ago=-5), signal("n2", ago=30 * 24 * 60))
        assert observed.rejections == []
        assert [ward.service(name) for name in ("n1", "n2")] == ["quarantined", "quarantined"]


def test_a_flood_of_signals_for_one_node_is_one_problem() -> None:
    with Ward(1) as ward:
        flood = [signal(kind="check", name="nccl", ago=number / 1000) for number in range(50_000)]
        ward.observe(*flood)
        ward.observe(*flood[::7])
        assert ward.look()[1:] == ("quarantined", "ours", {"plimsoll:check nccl"})
        kept = ward.keeper.ledger.store.cursors(["signal/n1"])
        assert sum(map(len, kept.values())) < 1000, "little is remembered of it"


def test_a_sweep_that_names_strangers_is_taken_for_those_that_we_know(dsn: str) -> None:
    """A bug it had: the second sweep of a feed that sees a node which is in no import failed."""
    rows = [row("nodes", node="n1"), row("nodes", node="old", service="retired")]
    with Ward(rows, dsn=dsn) as ward:
        for _ in range(3):
            ward.wait(1)
            ward.see(swept=["n1", "stranger", "old"])
        assert dict(ward.health.covers) == {"n1": ("sweeper",)}
        revision = ward.keeper.ledger.head().revision
        ward.see(swept=["n1", "stranger", "old"])
        assert ward.keeper.ledger.head().revision == revision, "and it is not told again and again"


class Crash(Exception):
    """The process ends here."""


def _crash(*_arguments: object, **_keywords: object) -> None:
    raise Crash


MAKING_UP: dict[str, Callable[[Ward], object]] = {
    "the same signal is sent again": lambda ward: ward.observe(signal()),
    "another signal of the node comes": lambda ward: ward.observe(signal(name="13")),
    "time passes": lambda ward: ward.sweep(),
}


@pytest.mark.parametrize("sentence", MAKING_UP)
def test_a_crash_between_samples_and_judgement_is_made_up_for(
    sentence: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ward(1, dsn=dsn) as ward:
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "decide_and_commit", _crash)
            with pytest.raises(Crash):
                ward.observe(signal())
        assert ward.service() == "in_service"
    with Ward(dsn=dsn) as ward:
        MAKING_UP[sentence](ward)
        assert ward.look()[1:] == ("quarantined", "ours", {"plimsoll:xid 79"})
        assert ward.node().since == NOW - minutes(1)


def test_a_crash_before_samples_are_stored_leaves_nothing(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ward(1, dsn=dsn) as ward:
        head = ward.keeper.ledger.head()
        monkeypatch.setattr(plimsoll.health.service, "merge_into", _crash)
        with pytest.raises(Crash):
            ward.observe(signal())
        assert ward.keeper.ledger.store.cursor_scopes() == []
        assert ward.keeper.ledger.head() == head


def test_a_database_that_fails_while_committing_says_so_and_nothing_is_half_done(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ward(2, dsn=dsn) as ward:
        head = ward.keeper.ledger.head()

        def fail(*_arguments: object) -> None:
            raise Unavailable("disk_full", "no room")

        with monkeypatch.context() as patch:
            patch.setattr(ward.keeper.ledger.store, "insert_events", fail)
            with pytest.raises(Unavailable):
                ward.observe(signal("n1"), signal("n2"))
        assert ward.keeper.ledger.head() == head
        ward.observe(signal("n1"), signal("n2"))
        assert [ward.service(name) for name in ("n1", "n2")] == ["quarantined", "quarantined"]


def test_another_process_moves_a_node_meanwhile(dsn: str) -> None:
    """What was decided on an old state is decided again: the node is not moved from where it no longer is."""
    with Ward(2, dsn=dsn) as ward, Ward(dsn=dsn) as other:
        other.set("maintenance", "n1")
        ward.observe(signal("n1"))
        assert ward.look("n1")[1:] == ("maintenance", "ours", {"set:ada", "plimsoll:xid 79"})
        assert other.look("n1") == ward.look("n1")


def test_two_processes_together_take_out_no_more_than_a_breaker_allows(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ward(3, dsn=dsn, policy=breakers(cluster=1)) as ward, Ward(dsn=dsn) as other:
        ward.observe(signal("n3", name="13"))
        commit = ward.keeper.commit

        def commit_late(*arguments: Any, **keywords: Any) -> Any:
            """The other process takes a node out after we have decided, and before we commit."""
            monkeypatch.undo()
            other.observe(signal("n2"))
            return commit(*arguments, **keywords)

        monkeypatch.setattr(ward.keeper, "commit", commit_late)
        ward.observe(signal("n1"))
        assert [ward.service(name) for name in ("n1", "n2", "n3")] == ["in_service", "quarantined", "in_service"]
        assert ward.health.breakers["cluster/tiger"].nodes == ("n1",)


def test_a_feed_that_speaks_again_is_judged_on_all_that_is_remembered(dsn: str) -> None:
    with Ward(2, dsn=dsn) as ward:
        ward.see(signal("n2", name="13"), swept=["n1", "n2"])
        ward.wait(16)
        ward.sweep()
        assert [ward.look(name).health for name in ("n1", "n2")] == ["unknown", "degraded"]
        ward.observe(signal("n1", "check", "nccl", ago=-16), feed="sweeper")
        assert [ward.look(name).health for name in ("n1", "n2")] == ["healthy", "degraded"]


def test_a_feed_that_sees_no_node_any_more_falls_silent() -> None:
    with Ward(2) as ward:
        ward.see(swept=["n1", "n2"])
        for _ in range(5):
            ward.wait(4)
            ward.see(swept=[])
        ward.sweep()
        assert [ward.look(name).health for name in ("n1", "n2")] == ["unknown", "unknown"]


def test_a_health_history_is_the_fold_of_its_events(dsn: str) -> None:
    with Ward(4, dsn=dsn) as ward:
        ward.see(signal("n1"), signal("n2", "check", "nccl"), swept=["n1", "n2", "n3"])
        ward.keeper.snapshot()
        ward.hold("n3", expires_at=NOW + minutes(5))
        ward.wait(20)
        ward.sweep()
        ward.keeper.snapshot()
        ward.see(swept=["n1", "n2", "n3"])
        ward.bring_back("n1")
        ward.keeper.snapshot()
        state = ward.state
        assert fold_of(events_of(ward.keeper.ledger), KINDS).dump() == state.dump()
        assert list(verify_snapshots(ward.keeper.ledger, KINDS)) == []
        assert verify(ward.keeper.ledger.store).is_whole
    with Ward(dsn=dsn) as again:
        assert again.state.dump() == state.dump()


def test_what_if_and_fork_leave_no_trace_in_health() -> None:
    with Ward(4) as ward:
        ward.see(signal("n1"), swept=["n1", "n2"])
        ward.hold("n3", expires_at=NOW + minutes(5))
        before, later = ward.state.dump(), NOW + timedelta(days=1)
        with ward.state.what_if() as state:
            swept, drafts = sweep(state, {}, {"sweeper": NOW}, now=later)
            assert (swept.silent, len(swept.expired)) == (["sweeper"], 1)
            state.assume(drafts, recorded_at="2026-01-21T12:00:00.000000Z")
            assert state.dump() != before
            tried = state.dump()
        assert ward.state.dump() == before
        twin = ward.state.fork()
        twin.assume(sweep(twin, {}, {"sweeper": NOW}, now=later)[1], recorded_at="2026-01-21T12:00:00.000000Z")
        assert twin.dump() == tried
        assert ward.state.dump() == before
