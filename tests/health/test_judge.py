"""What signals lead to: debounce, duration, flapping, thresholds; and that what is good again is not mended by that."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.health.changes import HoldEnded, NodeMoved
from plimsoll.health.policy import COUNT_MAX
from plimsoll.health.service import put_policy_in_force
from plimsoll.health.signals import RUN_POINTS_KEPT, RUNS_KEPT, Signal, SignalKey, SignalKind
from tests.support.fleets import row
from tests.support.health import Ward, breakers, minutes, policy_with, signal
from tests.support.imports import NOW


def _check(ago: float, *, is_ok: bool = False, name: str = "nccl") -> Signal:
    return signal(kind="check", name=name, ago=ago, is_ok=is_ok)


def _beat(ago: float, *, is_ok: bool = False) -> Signal:
    return signal(kind="heartbeat", name="", ago=ago, is_ok=is_ok)


def _heat(ago: float, value: float) -> Signal:
    return signal(kind="thermal", name="gpu", ago=ago, value=value)


class Case(NamedTuple):
    """Signals, all told at once, and the health and service that they lead to."""

    signals: list[Signal]
    want: tuple[str, str]


FINE, BROKEN, MILD = ("healthy", "in_service"), ("unhealthy", "quarantined"), ("degraded", "in_service")

CASES = {
    "an XID of the list takes the node out": Case([signal()], BROKEN),
    "an XID that is not listed does nothing": Case([signal(name="99")], FINE),
    "a mild XID degrades": Case([signal(name="13")], MILD),
    "a mild XID of yesterday is forgotten": Case([signal(name="13", ago=24 * 60)], FINE),
    "a mild XID of almost a day ago is not": Case([signal(name="13", ago=24 * 60 - 1)], MILD),
    "one failed check is not enough": Case([_check(5)], FINE),
    "two failed checks within the time are": Case([_check(35), _check(5)], BROKEN),
    "two failed checks too far apart are not": Case([_check(36), _check(5)], FINE),
    "the same failure told twice is one": Case([_check(5), _check(5)], FINE),
    "two checks that differ fail once each": Case([_check(5, name="nccl"), _check(4, name="disk")], FINE),
    "two failures count though it passed since": Case([_check(35), _check(5), _check(1, is_ok=True)], BROKEN),
    "a lost heartbeat that lasts": Case([_beat(5)], BROKEN),
    "a lost heartbeat that has not lasted yet": Case([_beat(4.9)], FINE),
    "a heartbeat that came back in time": Case([_beat(20), _beat(15.1, is_ok=True)], FINE),
    "a heartbeat that came back too late": Case([_beat(20), _beat(15, is_ok=True)], BROKEN),
    "a heartbeat that came back and went again": Case([_beat(9), _beat(6, is_ok=True), _beat(4)], FINE),
    "a problem that comes and goes is flapping": Case(
        [_check(100), _check(90, is_ok=True), _check(60), _check(50, is_ok=True), _check(10)], BROKEN
    ),
    "a problem that comes and goes rarely is not": Case(
        [_check(200), _check(190, is_ok=True), _check(100), _check(50, is_ok=True), _check(10)], FINE
    ),
    "flapping counts from the end of a stretch": Case(
        [_check(200), _check(129), _check(120, is_ok=True), _check(60), _check(50, is_ok=True), _check(10)], BROKEN
    ),
    "a mild check is degraded while it fails": Case([_check(300, name="mild-fan")], MILD),
    "a mild check that passes again is forgotten": Case(
        [_check(300, name="mild-fan"), _check(2, name="mild-fan", is_ok=True)], FINE
    ),
    "hot enough to be degraded": Case([_heat(3, 92)], MILD),
    "hot twice": Case([_heat(9, 101), _heat(1, 100)], BROKEN),
    "hot twice but not within the time": Case([_heat(15, 101), _heat(1, 100)], MILD),
    "hot and cool again": Case([_heat(3, 92), _heat(1, 89.9)], FINE),
    "a bad reading without a value is beyond every line": Case(
        [signal(kind="thermal", name="gpu", ago=ago) for ago in (5, 1)], BROKEN
    ),
    "the provider takes it": Case([signal(kind="provider", name="reboot")], ("unhealthy", "repair")),
    "an XID that drains": Case([signal(name="48")], ("unhealthy", "draining")),
    "the worst of several": Case([signal(), signal(name="13"), signal(name="64")], ("unhealthy", "repair")),
}


@pytest.mark.parametrize("sentence", CASES)
def test_what_signals_lead_to(sentence: str) -> None:
    with Ward(2) as ward:
        ward.observe(*CASES[sentence].signals)
        assert ward.look()[:2] == CASES[sentence].want
        assert ward.look("n2")[:2] == FINE, "the other node has nothing to do with it"


@pytest.mark.parametrize("sentence", CASES)
def test_and_one_by_one_backwards_to_the_same(sentence: str) -> None:
    with Ward(1, is_ticking=True) as ward:
        for each in reversed(CASES[sentence].signals):
            ward.observe(each)
        assert ward.look()[:2] == CASES[sentence].want


def test_a_heartbeat_lost_for_long_is_not_mended_by_the_next_one() -> None:
    """A bug it had: one lost heartbeat and the good one after it put the node back into service, unvalidated."""
    with Ward(1) as ward:
        ward.observe(_beat(5))
        assert ward.service() == "quarantined"
        ward.wait(15)
        ward.observe(_beat(-15, is_ok=True))
        assert ward.service() == "quarantined"
        ward.wait(10)
        ward.sweep()
        assert ward.service() == "validating"


def test_a_hold_placed_on_half_the_truth_is_withdrawn() -> None:
    with Ward(1, is_ticking=True) as ward:
        ward.observe(_beat(30))
        assert ward.look()[1:] == ("quarantined", "ours", {"plimsoll:heartbeat"})
        ward.observe(_beat(26, is_ok=True))
        assert ward.look() == ("healthy", "in_service", "ours", frozenset())
        assert ward.moves() == [
            ("in_service", "quarantined"), ("quarantined", "validating"), ("validating", "in_service")
        ]  # fmt: skip
        event, ended = ward.events(HoldEnded)[0]
        assert (ended.cause, event.reason) == ("withdrawn", "heartbeat had ended: a good signal came late")
        assert ward.events(NodeMoved)[-1][1].is_withdrawal


def test_coming_back_by_a_withdrawal_answers_nothing() -> None:
    with Ward(1, is_ticking=True) as ward:
        ward.observe(_beat(30))
        ward.observe(_beat(26, is_ok=True))
        ward.observe(signal(ago=28))
        assert ward.service() == "quarantined", "what happened while it was out by mistake still counts"


def test_a_withdrawal_leaves_other_holds() -> None:
    with Ward(1, is_ticking=True) as ward:
        ward.observe(_beat(30))
        ward.hold(hold_id="work")
        ward.observe(_beat(26, is_ok=True))
        assert ward.look()[1:] == ("maintenance", "ours", {"work"})
        ward.release("work")
        assert ward.service() == "validating", "somebody worked on it: it is validated"


def test_entering_service_answers_what_came_before() -> None:
    with Ward(1) as ward:
        ward.observe(signal(ago=10))
        ward.bring_back()
        assert ward.service() == "in_service"
        ward.observe(signal(ago=5), _check(3), _check(2), _check(1, is_ok=True))
        ward.sweep()
        assert ward.look() == ("healthy", "in_service", "ours", frozenset())
        ward.observe(signal(ago=-11.5))
        assert ward.service() == "quarantined", "what comes after counts"


def test_what_was_answered_stays_answered_when_the_node_leaves_again() -> None:
    """A bug it had: once out, a node's signals from before its last return asked for holds again."""
    with Ward(1) as ward:
        ward.observe(_check(35), _check(10), _check(1, is_ok=True))
        ward.bring_back()
        ward.observe(signal(ago=-12))
        ward.wait(1)
        ward.sweep()
        assert ward.look()[1:] == ("quarantined", "ours", {"plimsoll:xid 79"})


def test_repeats_are_counted_anew_after_entering_service() -> None:
    """A bug it had: a failure from before counted as long as no good one came, and then it was too late to know."""
    row = {**_imported(), "service": "in_service", "reason": "", "since": "2026-01-20T10:00:00Z"}
    for order in ([119, 121, 0], [121, 119, 0], [0, 119, 121]):
        with Ward([row], is_ticking=True) as ward:
            for ago in order:
                ward.observe(_check(ago, is_ok=ago == 0))
            assert ward.look()[:2] == FINE, order


def test_what_is_still_wrong_on_entering_service_takes_it_out_again() -> None:
    with Ward(1) as ward:
        ward.observe(_beat(20))
        ward.set("validating")
        ward.wait(30)
        ward.tick()
        assert ward.service() == "validating", "ticked, but the heartbeat is not there"
        ward.sweep()
        assert ward.service() == "quarantined"


def test_a_good_signal_does_not_mend_what_was_taken_out() -> None:
    with Ward(1) as ward:
        ward.observe(_check(35), _check(10))
        ward.observe(_check(1, is_ok=True))
        assert ward.look()[:2] == BROKEN


def test_a_problem_that_grows_worse_strengthens_its_hold() -> None:
    rules = policy_with("check, do: quarantine", "check, do: repair")
    with Ward(1, policy=rules) as ward:
        ward.observe(_check(100), _check(90, is_ok=True), _check(69), _check(50, is_ok=True), _check(10))
        assert ward.service() == "quarantined", "flapping"
        ward.observe(_check(8))
        assert ward.service() == "repair", "failed twice within the time"
        assert list(ward.holds()) == ["plimsoll:check nccl"]


def test_flapping_may_lead_to_nothing() -> None:
    with Ward(1, policy=policy_with("2h, do: quarantine", "2h, do: nothing")) as ward:
        ward.observe(*CASES["a problem that comes and goes is flapping"].signals)
        assert ward.look()[:2] == FINE


def test_repeats_are_seen_however_many_came_before() -> None:
    """A bug it had: of many failures far apart only the first ones were kept, and the two in a row were not seen."""
    with Ward(1) as ward:
        ward.observe(*[_check(60 * number) for number in range(2, 3 * RUN_POINTS_KEPT)])
        assert ward.look()[:2] == FINE
        ward.observe(_check(20))
        ward.observe(_check(5))
        assert ward.look()[:2] == BROKEN


def test_enough_is_kept_to_see_the_most_that_a_policy_may_ask_for() -> None:
    with Ward(1, policy=policy_with("times: 3, within: 2h", f"times: {COUNT_MAX}, within: 1d")) as ward:
        for number in range(COUNT_MAX, 0, -1):
            assert ward.look()[:2] == FINE
            ward.observe(_check(60 * number), _check(60 * number - 10, is_ok=True))
        assert ward.look()[:2] == BROKEN
    assert RUNS_KEPT >= 2 * COUNT_MAX - 1


def test_signals_of_a_clock_ahead_of_ours_happened_now() -> None:
    with Ward(1) as ward:
        ward.observe(signal(ago=-4))
        assert ward.node().since == NOW
        ward.set("validating")
        assert ward.holds() == {}


LEMON = policy_with("lemon: {exits: 3", "lemon: {exits: 2")


def test_a_node_that_keeps_coming_back_broken_is_a_lemon() -> None:
    with Ward(1, policy=LEMON) as ward:
        ward.observe(signal())
        assert ward.service() == "quarantined"
        ward.bring_back()
        ward.wait(5)
        ward.observe(signal(ago=-15))
        assert ward.service() == "repair"
        assert ward.facts().why == "xid 79; lemon: exit 2 in 30 days"
        assert ward.holds()["plimsoll:xid 79"].reason == "xid 79; lemon: exit 2 in 30 days"


def test_planned_exits_and_old_ones_make_no_lemon() -> None:
    with Ward(1, policy=LEMON) as ward:
        ward.set("maintenance")
        ward.release("set:ada")
        ward.wait(11)
        ward.tick()
        ward.observe(signal(ago=-11.5))
        assert ward.service() == "quarantined", "maintenance is no fault"
        ward.bring_back()
        ward.wait(31 * 24 * 60)
        ward.observe(Signal("n1", SignalKind.XID, ward.now, "79"))
        assert ward.service() == "quarantined", "the other exit is over a month ago"


def test_being_out_for_planned_work_does_not_make_an_old_exit_count() -> None:
    with Ward(1, policy=LEMON.replace("within: 30d", "within: 1h")) as ward:
        ward.observe(signal())
        ward.bring_back()
        ward.wait(90)
        ward.set("maintenance")
        ward.observe(Signal("n1", SignalKind.XID, ward.now, "79"))
        assert ward.look()[1:] == ("maintenance", "ours", {"set:ada", "plimsoll:xid 79"})
        assert str(ward.holds()["plimsoll:xid 79"].service) == "quarantined"


def test_an_exit_by_mistake_makes_no_lemon() -> None:
    with Ward(1, policy=LEMON, is_ticking=True) as ward:
        ward.observe(_beat(30))
        ward.observe(_beat(26, is_ok=True))
        ward.observe(signal())
        assert ward.service() == "quarantined"


def test_a_drain_ends_when_the_scheduler_says_so() -> None:
    with Ward(1) as ward:
        ward.observe(signal(name="48"))
        assert ward.service() == "draining"
        ward.drained()
        assert ward.service() == "quarantined"
        head = ward.keeper.ledger.head()
        ward.drained()
        assert ward.keeper.ledger.head() == head, "said twice it is nothing new"


def test_a_drain_ends_by_itself() -> None:
    with Ward(1) as ward:
        ward.observe(signal(name="48"))
        ward.wait(24 * 60 - 1)
        ward.sweep()
        assert ward.service() == "draining"
        ward.wait(1)
        ward.sweep()
        assert ward.service() == "quarantined"


def test_a_worse_signal_cuts_a_drain_short() -> None:
    with Ward(1) as ward:
        ward.observe(signal(name="48"))
        ward.observe(signal(name="79"))
        assert ward.look()[1:] == ("quarantined", "ours", {"plimsoll:xid 48", "plimsoll:xid 79"})


def test_a_weak_signal_does_not_better_what_an_import_said() -> None:
    """A bug it had: the second judgement moved a node from repair to the weaker quarantine."""
    with Ward([{**_imported(), "service": "repair", "reason": "fan"}]) as ward:
        ward.observe(signal())
        assert ward.service() == "repair"
        ward.observe(signal(ago=0.5))
        ward.sweep()
        assert ward.service() == "repair"


def _imported() -> dict[str, str]:
    return {"node": "n1", "cluster": "tiger", "island": "a", "sku": "H200", "gpus": "8", "since": ""}


def test_an_import_that_moves_a_node_makes_us_presume_anew() -> None:
    with Ward([{**_imported(), "service": "in_service", "reason": ""}]) as ward:
        ward.set("maintenance")
        ward.release("set:ada")
        ward.wait(11)
        ward.tick()
        assert ward.look()[:3] == ("healthy", "in_service", "ours")
        ward.wait(1)
        ward.bring([{**_imported(), "service": "repair", "reason": "fan"}])
        assert ward.look()[:3] == ("unhealthy", "repair", "provider")


KEYS = ["", "79", "a b", " a", "a ", "  ", "a>=5", ">=1.5", "x>=y"]


@pytest.mark.parametrize("name", KEYS, ids=repr)
def test_a_problems_name_is_read_as_it_was_written(name: str) -> None:
    key = SignalKey(SignalKind.CHECK, name)
    assert SignalKey.read(str(key)) == key


@pytest.mark.parametrize("name", KEYS, ids=repr)
def test_repeats_are_counted_whatever_the_name(name: str) -> None:
    with Ward(1) as ward:
        ward.observe(_check(20, name=name))
        assert ward.look()[:2] == FINE
        ward.observe(_check(10, name=name))
        assert ward.look()[:2] == BROKEN


def test_two_thresholds_that_are_nearly_the_same_are_two() -> None:
    lines = policy_with(
        "  - {signal: thermal, at_least: 90, do: degrade}\n",
        "  - {signal: thermal, at_least: 1234567, do: degrade}\n  - {signal: thermal, at_least: 1234568, do: repair}\n",
    )
    with Ward(1, policy=lines) as ward:
        ward.observe(_heat(1, 1234567))
        assert ward.look()[:2] == MILD
        ward.observe(_heat(0, 1234568))
        assert ward.look()[1] == "repair"


def test_a_silent_feed_makes_unknown_and_never_healthy() -> None:
    with Ward(3) as ward:
        ward.see(signal("n2", name="13"), swept=["n1", "n2"])
        assert [ward.look(name).health for name in ("n1", "n2", "n3")] == ["healthy", "degraded", "healthy"]
        ward.wait(15)
        assert ward.sweep().silent == [], "not yet"
        ward.wait(1)
        assert ward.sweep().silent == ["sweeper"]
        assert [ward.look(name).health for name in ("n1", "n2", "n3")] == ["unknown", "degraded", "healthy"]
        assert ward.service("n1") == "in_service"
        assert ward.sweep().silent == [], "said once"
        ward.see(swept=["n1", "n2"])
        assert [ward.look(name).health for name in ("n1", "n2")] == ["healthy", "degraded"], "judged again"


def test_a_quarantined_node_whose_feed_returns_is_not_healthy_for_that() -> None:
    with Ward([{**_imported(), "service": "quarantined", "reason": "xid 79"}]) as ward:
        ward.see(swept=["n1"])
        ward.wait(16)
        ward.sweep()
        assert ward.look().health == "unknown"
        ward.see(swept=["n1"])
        assert ward.look().health == "unhealthy", "that nobody complains does not mend it"


def test_a_node_that_a_sweep_misses_has_lost_its_heartbeat() -> None:
    with Ward(3) as ward:
        ward.see(swept=["n1", "n2", "n3"])
        for _ in range(6):
            ward.wait(1)
            ward.see(swept=["n1", "n3"])
        assert ward.look("n2")[1:] == ("quarantined", "ours", {"plimsoll:heartbeat sweeper"})
        assert ward.facts("n2").why == "heartbeat sweeper: not seen any more"
        assert ward.service("n1") == "in_service"


def test_a_node_that_a_sweep_misses_once_is_none_the_worse() -> None:
    with Ward(2) as ward:
        for seen in (["n1", "n2"], ["n1"], ["n1", "n2"]):
            ward.wait(4)
            ward.see(swept=seen)
        ward.wait(10)
        ward.sweep()
        assert ward.look("n2")[:2] == FINE


@pytest.mark.parametrize("policy", ["", breakers(cluster=4)], ids=["the default policy", "the test's"])
def test_a_dry_run_says_the_same_and_does_nothing(policy: str) -> None:
    with Ward(2, policy=policy) as ward:
        head = ward.keeper.ledger.head()
        tried = ward.observe(signal(), is_dry_run=True)
        assert ward.keeper.ledger.head() == head
        assert ward.keeper.ledger.store.cursor_scopes() == []
        done = ward.observe(signal())
        assert tried.outcome == done.outcome
        assert [each.node for each in done.outcome.moved] == ["n1"]


def test_a_policy_that_changes_judges_what_is_remembered() -> None:
    with Ward(1) as ward:
        ward.observe(_check(50), _check(10))
        assert ward.look()[:2] == FINE
        text = policy_with("after: {count: 2, within: 30m}", "after: {count: 2, within: 1h}")
        put_policy_in_force(ward.keeper, text, source="new", actor="ada", reason="stricter")
        ward.sweep()
        assert ward.look()[:2] == BROKEN
        assert ward.node().since == NOW - minutes(10)
        assert ward.holds()["plimsoll:check nccl"].expected_return is None
        assert ward.now - NOW == timedelta(0)


def test_a_hold_that_takes_over_from_a_withdrawn_one_knows_what_the_node_was() -> None:
    """Found by the order of signals: the node was taken for one that had been out before."""
    with Ward(1) as ward:
        ward.observe(signal(kind="scheduler", name="down", ago=10))
        assert set(ward.holds()) == {"plimsoll:scheduler down"}
        lost, back = signal(kind="heartbeat", name="", ago=20), signal(kind="heartbeat", name="", ago=10, is_ok=True)
        ward.observe(lost, back, signal(kind="scheduler", name="down", ago=1, is_ok=True))
        assert set(ward.holds()) == {"plimsoll:heartbeat"}
        ward.sweep()
        assert ward.service() == "validating"


def test_an_error_storm_is_one_exit_of_a_lemon() -> None:
    """Out and back three times, five minutes in service in between: the node was not repaired."""
    with Ward([row("nodes", since="2026-01-20T09:00:00Z")], policy=LEMON) as ward:
        for start in (60, 50, 40):
            ward.tell("n1", "quarantined", ago=start)
            ward.tell("n1", "in_service", ago=start - 5)
        ward.observe(signal(ago=1))
        assert ward.service() == "repair", "the second exit: the storm, and this one"
        assert "lemon: exit 2" in ward.facts().why


def test_a_fault_under_planned_work_is_a_fault() -> None:
    with Ward(1) as ward:
        ward.hold(hold_id="swap", service="quarantined", reason="planned: swap")
        assert ward.node().reason == "planned: swap"
        ward.observe(signal(ago=0))
        assert (ward.service(), ward.node().reason) == ("quarantined", "xid 79")
        ward.wait(5)
        ward.release("swap")
        assert (ward.facts().why, ward.node().reason) == ("xid 79", "xid 79")


def test_validation_belongs_to_what_it_ends() -> None:
    with Ward(1) as ward:
        ward.hold(reason="planned: firmware")
        ward.release()
        assert (ward.service(), ward.node().reason) == ("validating", "planned: firmware")
