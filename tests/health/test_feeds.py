"""Feeds: what Kubernetes says, which source a feed is, and its clock. Slurm and Prometheus: see tests/real."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from plimsoll.connect.kubernetes import parse_nodes
from plimsoll.errors import Refused
from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.health.feeds import Fed, observe_kubernetes
from plimsoll.health.service import feeds_heard
from tests.support.health import Ward, minutes, signal
from tests.support.imports import NOW
from tests.support.kubernetes import kubernetes_list, kubernetes_node


class Watched(Ward):
    def look_at(self, *nodes: dict[str, Any], feed: str = "kubernetes", **options: Any) -> Fed:
        listed = parse_nodes(kubernetes_list(*nodes), source="test")
        return observe_kubernetes(self.keeper, listed, feed=feed, actor="feeder", **options)


@pytest.fixture
def ward() -> Iterator[Watched]:
    with Watched(3, policy=DEFAULT_POLICY) as it:
        yield it  # type: ignore[misc]


def all_well(*, but: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The list of the three nodes, one of them perhaps another."""
    changed = but or {}
    return [kubernetes_node(name, **(changed if name == "n1" else {})) for name in ("n1", "n2", "n3")]


def test_a_node_that_has_not_been_ready_for_long_is_out_at_the_first_look(ward: Watched) -> None:
    fed = ward.look_at(*all_well(but={"ready": "Unknown", "since": NOW - minutes(25)}))
    (moved,) = fed.observed.outcome.moved
    assert (moved.node, moved.service, moved.why) == (
        "n1", "quarantined", "scheduler not-ready: NodeStatusUnknown",
    )  # fmt: skip
    # It was due 10 minutes after it began.
    assert ward.holds()["plimsoll:scheduler not-ready"].placed_at == NOW - minutes(15)


def test_a_node_that_has_just_stopped_being_ready_is_given_time(ward: Watched) -> None:
    ward.look_at(*all_well(but={"ready": "False", "since": NOW - minutes(2)}))
    assert ward.look()[:2] == ("healthy", "in_service")
    ward.wait(3)
    ward.look_at(*all_well())
    ward.wait(30)
    ward.look_at(*all_well())
    assert ward.look()[:2] == ("healthy", "in_service")


def test_a_condition_of_the_problem_detector_counts_when_it_stays(ward: Watched) -> None:
    broken = all_well(but={"conditions": {"KernelDeadlock": "True"}})
    ward.look_at(*broken)
    assert ward.service() == "in_service"
    ward.wait(1)
    ward.look_at(*broken)
    assert (ward.service(), ward.facts().why) == ("quarantined", "check KernelDeadlock: KernelDeadlockIsSo")
    assert {ward.service(name) for name in ("n2", "n3")} == {"in_service"}


def test_that_nobody_knows_a_condition_is_no_good_news(ward: Watched) -> None:
    # The node controller says Unknown of all conditions of a kubelet that is gone.
    for status in ("True", "Unknown", "True"):
        ward.look_at(*all_well(but={"conditions": {"DiskPressure": status}}))
        ward.wait(1)
    assert ward.service() == "quarantined"
    ward.wait(60)
    ward.look_at(*all_well(but={"conditions": {"DiskPressure": "Unknown"}}))
    ward.wait(60)
    ward.look_at(*all_well(but={"conditions": {"DiskPressure": "Unknown"}}))
    ward.sweep()
    assert ward.service() == "quarantined"


def test_a_cordon_is_a_hold_and_an_uncordon_its_release(ward: Watched) -> None:
    ward.look_at(*all_well(but={"is_cordoned": True}))
    hold = ward.holds()["kubernetes"]
    assert (ward.service(), hold.owner, hold.reason) == ("draining", "kubernetes", "cordoned in Kubernetes")
    head = ward.keeper.ledger.head()
    ward.wait(5)
    ward.look_at(*all_well(but={"is_cordoned": True}))
    assert (ward.keeper.ledger.head(), ward.holds()["kubernetes"].placed_at) == (head, NOW)
    ward.look_at(*all_well())
    assert (ward.service(), ward.holds()) == ("validating", {})
    ward.wait(11)
    ward.look_at(*all_well())
    ward.sweep()
    assert ward.service() == "in_service"


def test_an_older_list_does_not_end_a_newer_cordon(ward: Watched) -> None:
    ward.look_at(*all_well(but={"is_cordoned": True}))
    ward.look_at(*all_well(), at=NOW - minutes(10))
    assert ward.holds().keys() == {"kubernetes"}


def test_a_cordon_does_not_end_with_a_hold_of_ours(ward: Watched) -> None:
    ward.look_at(*all_well(but={"is_cordoned": True}))
    ward.observe(signal("n1"))
    ward.release("plimsoll:xid 79", is_forced=True)
    assert ward.holds().keys() == {"kubernetes"}
    assert ward.service() != "in_service"


def test_names_that_the_fleet_does_not_know_are_told(ward: Watched) -> None:
    fed = ward.look_at(*all_well(), kubernetes_node("login-1"))
    assert fed.notes == ["1 name is no node of the fleet: login-1"]
    many = [kubernetes_node(f"x{number}") for number in range(5)]
    assert ward.look_at(*all_well(), *many).notes == ["5 names are no nodes of the fleet: x0, x1, x2, …"]
    with pytest.raises(Refused) as caught:
        ward.look_at(kubernetes_node("login-1"), feed="other")
    assert caught.value.code == "feed_empty"


def test_a_second_source_under_the_same_name_is_refused(ward: Watched) -> None:
    # Else each would take the other's nodes for lost, and have them quarantined.
    ward.look_at(kubernetes_node("n1"), kubernetes_node("n2"))
    head = ward.keeper.ledger.head()
    with pytest.raises(Refused) as caught:
        ward.look_at(kubernetes_node("n3"))
    assert caught.value.code == "feed_differs"
    assert caught.value.message == "feed kubernetes speaks of 2 nodes, and this answer of 1 others and none of them"
    assert caught.value.next_step == "give each source a name of its own: --feed NAME"
    assert ward.keeper.ledger.head() == head
    ward.look_at(kubernetes_node("n3"), feed="second")
    assert ward.health.covers == {"n1": ("kubernetes",), "n2": ("kubernetes",), "n3": ("second",)}


def test_a_node_that_a_list_does_not_name_any_more_has_lost_its_heartbeat(ward: Watched) -> None:
    ward.look_at(*all_well())
    ward.wait(1)
    ward.look_at(*all_well()[1:])
    ward.wait(6)
    ward.look_at(*all_well()[1:])
    assert (ward.service(), ward.facts().why) == ("quarantined", "heartbeat kubernetes: not seen any more")


def test_a_feed_with_a_clock_ahead_of_ours_still_falls_silent(ward: Watched) -> None:
    ward.see(swept=["n1", "n2", "n3"], at=NOW + timedelta(days=1))
    assert feeds_heard(ward.keeper.ledger.store) == {"sweeper": NOW}
    ward.wait(16)
    assert ward.sweep().silent == ["sweeper"]
