"""What time alone brings about: problems settle, nodes are validated and return; a sweep that was missed is made up."""

from __future__ import annotations

import pytest

from plimsoll.errors import Refused
from plimsoll.health.changes import HoldEnded
from plimsoll.health.signals import Signal
from tests.support.fleets import row
from tests.support.health import Ward, policy_with, signal

BY_ITSELF = policy_with("  - {check: accepted, by: manual}\n", "")


def _check(ago: float, *, is_ok: bool = False) -> Signal:
    return signal(kind="check", name="nccl", ago=ago, is_ok=is_ok)


def test_a_problem_that_is_gone_settles_and_the_node_is_validated() -> None:
    with Ward(1, policy=BY_ITSELF) as ward:
        ward.observe(_check(20), _check(10))
        ward.observe(_check(0, is_ok=True))
        ward.wait(9)
        ward.sweep()
        assert ward.service() == "quarantined"
        ward.wait(1)
        ward.sweep()
        assert ward.service() == "validating"
        event, ended = ward.events(HoldEnded)[0]
        assert (ended.cause, event.reason) == ("settled", "check nccl is gone")
        ward.wait(9)
        ward.sweep()
        assert ward.service() == "validating", "quiet for nine minutes"
        ward.wait(1)
        ward.sweep()
        assert ward.look() == ("healthy", "in_service", "ours", frozenset())


def test_an_xid_settles_by_a_person_only() -> None:
    with Ward(1, policy=BY_ITSELF) as ward:
        ward.observe(signal())
        ward.wait(29 * 24 * 60)
        ward.sweep()
        assert ward.service() == "quarantined"
        ward.set("validating")
        ward.wait(10)
        ward.sweep()
        assert ward.service() == "in_service"


def test_what_fails_again_before_it_settled_does_not_settle() -> None:
    with Ward(1, policy=BY_ITSELF) as ward:
        ward.observe(_check(20), _check(10), _check(5, is_ok=True), _check(1))
        ward.wait(30)
        ward.sweep()
        assert ward.service() == "quarantined"


def test_a_bad_signal_during_validation_puts_the_node_back() -> None:
    with Ward(1, policy=BY_ITSELF) as ward:
        ward.set("quarantined")
        ward.release("set:ada")
        ward.wait(5)
        ward.observe(signal(ago=-5))
        assert ward.look()[:2] == ("unhealthy", "quarantined")


def test_a_mild_signal_keeps_a_node_waiting_until_it_is_quiet() -> None:
    with Ward(1, policy=BY_ITSELF) as ward:
        ward.set("maintenance")
        ward.release("set:ada")
        ward.wait(5)
        ward.observe(signal(name="13", ago=-5))
        ward.wait(9)
        ward.sweep()
        assert ward.service() == "validating"
        ward.wait(1)
        ward.sweep()
        assert ward.look()[:2] == ("degraded", "in_service")


def test_both_checks_must_pass_in_whatever_order() -> None:
    with Ward(2) as ward:
        ward.set("maintenance", "n1", "n2")
        ward.release("set:ada")
        ward.tick("accepted", "n1")
        assert ward.service("n1") == "validating", "accepted, and not quiet for long enough yet"
        ward.wait(10)
        ward.tick("accepted", "n2")
        assert ward.service("n2") == "in_service"
        ward.sweep()
        assert ward.service("n1") == "in_service"


def test_who_wants_it_in_service_too_early_is_told_what_is_missing() -> None:
    with Ward(1) as ward:
        ward.set("maintenance")
        ward.release("set:ada")
        ward.wait(4)
        with pytest.raises(Refused) as caught:
            ward.set("in_service")
        assert caught.value.code == "not_validated"
        assert "2 of 2 checks (quiet: quiet for 6 more minutes; accepted: not answered yet)" in caught.value.message
        ward.wait(6)
        ward.tick("quiet")
        ward.tick("accepted")
        assert ward.service() == "in_service"


def test_what_is_still_broken_is_not_set_in_service() -> None:
    with Ward(1, policy=BY_ITSELF) as ward:
        ward.observe(signal(kind="heartbeat", name="", ago=20))
        ward.set("validating")
        ward.wait(10)
        with pytest.raises(Refused) as caught:
            ward.set("in_service")
        assert (caught.value.code, caught.value.fields["why"]) == ("still_unhealthy", "heartbeat")


def test_a_failed_check_puts_the_node_back_and_stays_until_a_person_says() -> None:
    with Ward(1) as ward:
        ward.set("maintenance")
        ward.release("set:ada")
        ward.tick(is_passed=False)
        assert ward.look() == ("unhealthy", "quarantined", "ours", {"plimsoll:validation accepted"})
        assert ward.facts().why == "validation: accepted failed, burn-in"
        ward.wait(60)
        ward.sweep()
        assert ward.service() == "quarantined"
        ward.bring_back()
        assert ward.look() == ("healthy", "in_service", "ours", frozenset())


def test_an_answer_of_an_earlier_validation_does_not_count() -> None:
    with Ward(1) as ward:
        ward.set("maintenance")
        ward.release("set:ada")
        ward.tick()
        ward.set("maintenance")
        ward.release("set:ada")
        ward.wait(30)
        ward.sweep()
        assert ward.service() == "validating"


def test_nobody_returns_while_nobody_watches() -> None:
    with Ward(1, policy=BY_ITSELF) as ward:
        ward.see(swept=["n1"])
        ward.set("maintenance")
        ward.release("set:ada")
        ward.wait(16)
        ward.sweep()
        assert ward.look()[:2] == ("unknown", "validating")
        ward.see(swept=["n1"])
        ward.sweep()
        assert ward.look()[:2] == ("healthy", "in_service")


def test_an_imported_node_that_validates_returns_too() -> None:
    with Ward([row("nodes", node="n1", service="validating", since="2026-01-20T11:00:00Z")], policy=BY_ITSELF) as ward:
        ward.sweep()
        assert ward.moves() == [("validating", "in_service")]


def test_a_sweep_with_nothing_to_do_writes_nothing() -> None:
    with Ward(3) as ward:
        ward.see(signal("n1", name="13"), signal("n2"), swept=["n1", "n2", "n3"])
        ward.sweep()
        head = ward.keeper.ledger.head()
        ward.wait(1)
        ward.sweep()
        assert ward.keeper.ledger.head() == head


def test_who_speaks_of_single_nodes_now_and_then_does_not_fall_silent() -> None:
    with Ward(1) as ward:
        ward.observe(signal(kind="check", name="mild-fan"), feed="cli")
        ward.wait(60)
        assert ward.sweep().silent == []
        assert ward.look().health == "degraded"


def test_only_a_check_that_waits_for_a_person_is_ticked_by_one() -> None:
    with Ward(1) as ward:
        ward.set("quarantined")
        ward.set("validating")
        with pytest.raises(Refused) as caught:
            ward.tick("quiet", may_pass=False)
        assert caught.value.code == "not_for_a_person"
        assert "--force --reason WHY" in caught.value.next_step
        ward.tick("accepted", may_pass=False)
        ward.tick("quiet", may_pass=True)
        assert ward.service() == "in_service"
