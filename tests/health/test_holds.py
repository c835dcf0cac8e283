"""Rule 9: holds stack, each has an owner, an id and an expiry; a node returns when its last one ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from plimsoll.errors import PlimsollError
from plimsoll.health.changes import HoldEnded, SignalsAnswered
from tests.support.fleets import row
from tests.support.health import Ward, breakers, minutes, signal
from tests.support.imports import NOW


def test_a_node_returns_when_its_last_hold_ends() -> None:
    with Ward(1) as ward:
        ward.hold(hold_id="disk", actor="ada")
        ward.hold(hold_id="cable", actor="bob", service="repair")
        ward.hold(hold_id="look", actor="cy", service="quarantined")
        assert ward.look()[1:] == ("repair", "ours", {"disk", "cable", "look"})
        ward.release("cable", actor="bob")
        assert ward.service() == "maintenance", "the strongest of those that are left"
        ward.release("disk", actor="ada")
        assert ward.service() == "quarantined"
        ward.release("look", actor="cy")
        assert ward.look()[1:] == ("validating", "ours", frozenset())


BROKEN = [row("nodes"), row("nodes", node="n2", service="repair", reason="fan", since="2026-01-10T08:00:00Z")]


def test_a_node_that_was_out_before_a_hold_is_out_again_after_it() -> None:
    """A whole cluster is quarantined and released: what was broken before does not begin to validate."""
    with Ward(BROKEN) as ward:
        before = ward.look("n2"), ward.facts("n2").why
        ward.hold("n1", "n2", service="quarantined")
        assert ward.look("n2")[:3] == ("unhealthy", "repair", "provider"), "it waits for whom it waited for"
        ward.release()
        assert ward.service("n1") == "validating"
        assert (ward.look("n2"), ward.facts("n2").why) == before


def test_a_node_that_was_out_before_two_holds_is_out_again_after_both() -> None:
    with Ward(BROKEN) as ward:
        ward.hold("n2", service="quarantined")
        ward.observe(signal("n2", "ecc", ""))
        ward.release()
        assert ward.look("n2")[1:] == ("repair", "provider", {"plimsoll:ecc"})
        ward.release("plimsoll:ecc", is_forced=True)
        assert ward.look("n2") == ("unhealthy", "repair", "provider", frozenset())


def test_the_same_id_on_many_nodes_may_end_on_some() -> None:
    with Ward(3) as ward:
        ward.hold("n1", "n2", "n3")
        ward.release("h1", names=["n2"])
        assert [ward.service(name) for name in ("n1", "n2", "n3")] == ["maintenance", "validating", "maintenance"]


def test_a_hold_may_be_extended_by_its_owner() -> None:
    with Ward(1) as ward:
        ward.hold(expires_at=NOW + minutes(10))
        ward.hold(expires_at=NOW + minutes(60))
        ward.wait(30)
        assert ward.sweep().expired == []
        assert len(ward.holds()) == 1


def test_an_expired_hold_is_reported_and_ends() -> None:
    with Ward(2) as ward:
        ward.hold("n1", expires_at=NOW + minutes(10))
        ward.hold("n2", hold_id="other")
        ward.wait(9)
        assert ward.sweep().expired == []
        ward.wait(1)
        swept = ward.sweep()
        assert [(node, hold.id, hold.owner) for node, hold in swept.expired] == [("n1", "h1", "ada")]
        event, ended = ward.events(HoldEnded)[0]
        assert (ended.hold, ended.owner, ended.cause) == ("h1", "ada", "expired")
        assert event.reason == "ada's hold expired at 2026-01-20T12:10:00Z: work of ada"
        assert [ward.service(name) for name in ("n1", "n2")] == ["validating", "maintenance"]
        assert ward.sweep().expired == [], "reported once"


def test_an_expired_lease_does_not_stop_the_next_one() -> None:
    with Ward(1) as ward:
        ward.hold(hold_id="disk", is_exclusive=True, expires_at=NOW + minutes(10))
        ward.wait(11)
        ward.hold(hold_id="cable", actor="bob", is_exclusive=True)
        assert set(ward.holds()) == {"disk", "cable"}


def test_work_beside_somebody_who_works_there_may_wait_but_not_work() -> None:
    with Ward(1) as ward:
        ward.hold(hold_id="disk", is_exclusive=True)
        ward.hold(hold_id="cable", actor="bob")
        ward.hold(hold_id="disk", is_exclusive=True, service="repair")
        assert ward.look()[1:] == ("repair", "ours", {"disk", "cable"})


def test_an_import_does_not_end_a_hold() -> None:
    with Ward(1) as ward:
        ward.hold()
        ward.wait(1)
        ward.bring([row("nodes", node="n1", service="in_service")])
        assert ward.service() == "in_service", "it was observed"
        ward.sweep()
        assert ward.look()[1:] == ("maintenance", "ours", {"h1"}), "and the hold takes it out again"


def test_an_import_does_not_end_an_automated_hold() -> None:
    with Ward(1, policy=breakers(cluster=1)) as ward:
        ward.observe(signal())
        ward.wait(1)
        ward.bring([row("nodes", node="n1", service="in_service")])
        ward.observe(signal(kind="check", name="nccl"))
        assert ward.look()[1:] == ("quarantined", "ours", {"plimsoll:xid 79"})


def test_retired_nodes_keep_no_hold_of_ours() -> None:
    with Ward(1) as ward:
        ward.observe(signal())
        ward.set("retired")
        assert ward.look()[1:] == ("retired", "ours", frozenset())
        assert ward.events(HoldEnded)[0][1].cause == "retired"
        ward.set("joining")
        ward.set("validating")
        assert ward.service() == "validating"


class Case(NamedTuple):
    """What is tried on a node that `ada` holds exclusively as `h1` since 12:10, and the refusal."""

    act: Callable[[Ward], object]
    want_code: str
    want_message: str


REFUSED = {
    "to end another's hold": Case(lambda ward: ward.release(actor="bob"), "not_your_hold", "is ada's: work of ada"),
    "to end a hold with a release from before it": Case(
        lambda ward: ward.release(at=NOW), "newer_hold", "placed at 2026-01-20T12:10:00Z, after this release"
    ),
    "to end it by force with a release from before it": Case(
        lambda ward: ward.release(at=NOW, actor="bob", is_forced=True), "newer_hold", "an older release"
    ),
    "to end a hold that is not there": Case(lambda ward: ward.release("h9"), "no_such_hold", "there is no hold 'h9'"),
    "to take another's id": Case(lambda ward: ward.hold(actor="bob"), "hold_exists", "of ada already: work of ada"),
    "to take one of our own judgement's ids": Case(
        lambda ward: ward.hold(hold_id="plimsoll:xid 79"), "hold_id_reserved", "'plimsoll:xid 79' is ada's"
    ),
    "to work there at the same time": Case(
        lambda ward: ward.hold(hold_id="h2", actor="bob", is_exclusive=True), "node_leased", "ada works on n1"
    ),
    "to validate what another holds": Case(
        lambda ward: ward.set("validating", actor="bob"), "node_held", "n1 is held by ada (h1: work of ada)"
    ),
    "to retire what another holds": Case(lambda ward: ward.set("retired", actor="bob"), "node_held", "held by ada"),
    "to tick a node that is not validating": Case(
        lambda ward: ward.tick(), "not_validating", "n1 is maintenance; checks count while a node is validating"
    ),
    "to tick a check that is not there": Case(
        lambda ward: ward.tick("burn"), "no_such_check", "no check 'burn'; it has quiet, accepted"
    ),
    "to go into service at once": Case(lambda ward: ward.set("in_service"), "illegal_move", "legal moves: quarantined"),
    "to reset a breaker that has not tripped": Case(
        lambda ward: ward.reset("cluster/tiger"), "no_such_breaker", "tripped: none"
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_it_is_refused(sentence: str) -> None:
    act, want_code, want_message = REFUSED[sentence]
    with Ward(1) as ward:
        ward.wait(10)
        ward.hold(is_exclusive=True)
        head = ward.keeper.ledger.head()
        ward.wait(10)
        with pytest.raises(PlimsollError) as caught:
            act(ward)
        assert caught.value.code == want_code
        assert want_message in caught.value.message
        assert caught.value.next_step
        assert ward.keeper.ledger.head() == head, "nothing was done"


def test_a_hold_ended_by_force_says_so() -> None:
    with Ward(1) as ward:
        ward.hold()
        ward.release(actor="bob", is_forced=True)
        event, ended = ward.events(HoldEnded)[0]
        assert (event.actor, ended.owner, ended.cause) == ("bob", "ada", "released by another")


def test_who_ends_an_automated_hold_answers_its_signal() -> None:
    """A bug it had: the next sweep placed the hold again that a person had just ended."""
    with Ward(1) as ward:
        ward.observe(signal())
        ward.release("plimsoll:xid 79", is_forced=True)
        assert ward.events(SignalsAnswered)[0][1].signal == "xid 79"
        ward.sweep()
        assert ward.look()[1:] == ("validating", "ours", frozenset())


def test_a_validating_node_with_a_hold_does_not_enter_service() -> None:
    """A bug it had: an import that says `validating` let a tick bring a held node into service."""
    with Ward(1) as ward:
        ward.hold()
        ward.wait(1)
        ward.bring([row("nodes", node="n1", service="validating")])
        ward.wait(20)
        ward.tick()
        assert ward.service() == "validating"
        with pytest.raises(PlimsollError, match="is held by ada"):
            ward.set("in_service")
        ward.sweep()
        assert ward.service() == "maintenance"


def test_setting_a_service_is_one_hold_of_ones_own() -> None:
    with Ward(1) as ward:
        ward.set("maintenance", reason="bios")
        ward.set("repair", reason="board")
        ward.set("quarantined", actor="bob")
        assert {hold.id: (hold.owner, str(hold.service)) for hold in ward.holds().values()} == {
            "set:ada": ("ada", "repair"),
            "set:bob": ("bob", "quarantined"),
        }
        ward.release("set:ada")
        assert ward.service() == "quarantined"
