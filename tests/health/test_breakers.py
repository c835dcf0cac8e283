"""The circuit breakers: never more automated exits than the limit within the window; then a person decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.fleet.model import Service
from plimsoll.health.changes import BreakerTripped, NodeMoved
from plimsoll.health.facts import AUTOMATION
from plimsoll.health.policy import Breaker
from tests.support.fleets import nodes, row
from tests.support.health import Ward, breakers, minutes, signal
from tests.support.imports import NOW

SIX = [f"n{number}" for number in range(1, 7)]
TWO_CLUSTERS = [row("nodes", node=name, cluster=name[0], island=f"{name[0]}-a") for name in ("a1", "a2", "b1", "b2")]


def _all_broken(ward: Ward, *, ago: float = 0) -> None:
    """Six nodes break one after the other, n6 first."""
    ward.observe(*[signal(name, ago=ago + number) for number, name in enumerate(SIX, 1)])


@pytest.mark.parametrize(
    ("share", "at_least", "count", "want"),
    [(0.1, 4, 100, 10), (0.1, 4, 30, 4), (0.1, 0, 19, 1), (0, 0, 1000, 0), (1, 0, 7, 7)],
)
def test_how_many_may_leave(share: float, at_least: int, count: int, want: int) -> None:
    assert Breaker(share, at_least, minutes(60)).limit(count) == want


def test_automation_stops_at_the_limit_and_names_what_it_held_back() -> None:
    with Ward(6, policy=breakers(cluster=2)) as ward:
        _all_broken(ward)
        out = [name for name in SIX if ward.service(name) != "in_service"]
        assert out == ["n5", "n6"], "those whose trouble began first"
        assert {ward.look(name).health for name in SIX} == {"unhealthy"}
        tripped = ward.health.breakers["cluster/tiger"]
        assert (tripped.limit, tripped.taken, tripped.nodes) == (2, 2, ("n1", "n2", "n3", "n4"))


def test_what_is_held_back_is_in_the_answer() -> None:
    with Ward(6, policy=breakers(cluster=5)) as ward:
        ward.observe(*[signal(name) for name in SIX[:5]])
        observed = ward.observe(signal("n6", detail="GPU 3"))
        assert [(each.node, each.scope, each.action) for each in observed.outcome.held_back] == [
            ("n6", "cluster/tiger", "quarantine")
        ]
        assert observed.outcome.held_back[0].why == "xid 79: GPU 3"
        assert observed.outcome.tripped == ["cluster/tiger"]


def test_a_tripped_breaker_waits_for_a_person_however_long() -> None:
    with Ward(6, policy=breakers(cluster=2)) as ward:
        _all_broken(ward)
        ward.wait(24 * 60)
        ward.sweep()
        assert sum(ward.service(name) == "in_service" for name in SIX) == 4
        assert len(ward.events(BreakerTripped)) == 1, "said once"


def test_the_window_passes() -> None:
    with Ward(6, policy=breakers(cluster=1)) as ward:
        ward.observe(signal("n1"))
        ward.wait(61)
        ward.observe(signal("n2", ago=-60))
        assert ward.service("n2") == "quarantined"
        assert not ward.health.breakers


def test_a_person_lets_automation_go_on() -> None:
    with Ward(6, policy=breakers(cluster=2)) as ward:
        _all_broken(ward)
        ward.reset("cluster/tiger")
        assert {ward.service(name) for name in SIX} == {"quarantined"}
        assert not ward.health.breakers
        ward.sweep()
        assert not ward.health.breakers, "what a person has allowed does not trip it again"


def test_a_person_lets_the_nodes_be() -> None:
    with Ward(6, policy=breakers(cluster=2)) as ward:
        _all_broken(ward)
        ward.reset("cluster/tiger", is_dismissed=True)
        assert [ward.look(name)[:2] for name in SIX[:4]] == [("healthy", "in_service")] * 4
        assert {ward.facts(name).why for name in SIX[:4]} == {""}
        assert [ward.service(name) for name in SIX[4:]] == ["quarantined"] * 2, "who is out stays out"
        ward.wait(10)
        ward.observe(signal("n1", ago=-10))
        assert ward.service("n1") == "quarantined", "a new signal counts"


def test_a_node_retired_while_it_was_held_back_is_left_alone() -> None:
    with Ward(6, policy=breakers(cluster=2)) as ward:
        _all_broken(ward)
        ward.set("retired", "n1")
        ward.reset("cluster/tiger")
        assert ward.look("n1")[1:] == ("retired", "ours", frozenset())
        assert ward.service("n2") == "quarantined"


def test_clusters_have_a_breaker_each_and_the_fleet_one_over_all() -> None:
    with Ward(TWO_CLUSTERS, policy=breakers(cluster=1, fleet=3)) as ward:
        ward.observe(*[signal(name, ago=ago) for ago, name in enumerate(["b2", "b1", "a2", "a1"], 1)])
        assert [ward.service(name) for name in ("a1", "a2", "b1", "b2")] == [
            "quarantined", "in_service", "quarantined", "in_service"
        ]  # fmt: skip
        assert set(ward.health.breakers) == {"cluster/a", "cluster/b"}
    with Ward(TWO_CLUSTERS, policy=breakers(cluster=9, fleet=3)) as ward:
        ward.observe(*[signal(name, ago=ago) for ago, name in enumerate(["b2", "b1", "a2", "a1"], 1)])
        assert ward.service("b2") == "in_service"
        assert {scope: tripped.nodes for scope, tripped in ward.health.breakers.items()} == {"fleet": ("b2",)}


def test_a_cluster_that_is_called_fleet_is_not_taken_for_it() -> None:
    rows = [row("nodes", node=name, cluster="fleet", island="x") for name in ("n1", "n2")]
    with Ward(rows, policy=breakers(cluster=1)) as ward:
        ward.observe(signal("n1", ago=2), signal("n2", ago=1))
        assert set(ward.health.breakers) == {"cluster/fleet"}


def test_what_people_take_out_does_not_count() -> None:
    with Ward(6, policy=breakers(cluster=1)) as ward:
        ward.set("maintenance", *SIX[:4])
        ward.observe(signal("n5"))
        assert ward.service("n5") == "quarantined"
        ward.observe(signal("n1"))
        assert ward.look("n1")[1:] == ("maintenance", "ours", {"set:ada", "plimsoll:xid 79"}), "it is out already"


def test_a_limit_of_zero_lets_nobody_out() -> None:
    with Ward(2, policy=breakers(cluster=0)) as ward:
        ward.observe(signal("n1"))
        assert ward.look("n1")[:2] == ("unhealthy", "in_service")
        assert ward.health.breakers["cluster/tiger"].nodes == ("n1",)


_steps = st.lists(
    st.tuples(st.sampled_from(["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"]), st.sampled_from([0, 5, 20, 40])),
    min_size=1,
    max_size=25,
)


@given(_steps, st.integers(0, 3), st.integers(0, 5))
def test_never_more_exits_than_the_limit_within_the_window(
    steps: list[tuple[str, int]], cluster_limit: int, fleet_limit: int
) -> None:
    """Counted from the ledger: automated moves out of service, in every window of an hour, for cluster and fleet."""
    rows = [row["node"] for row in nodes(4, prefix="a")] + [row["node"] for row in nodes(4, prefix="b")]
    fleet = [row("nodes", node=name, cluster=name[0], island=f"{name[0]}-a") for name in rows]
    with Ward(fleet, policy=breakers(cluster=cluster_limit, fleet=fleet_limit), is_ticking=True) as ward:
        for name, passed in steps:
            ward.wait(passed)
            if ward.service(name) == "quarantined":
                ward.bring_back(name)
            ward.observe(signal(name, ago=-(ward.now - NOW) / minutes(1)))
        exits = [
            (event.recorded_time, change.node[0])
            for event, change in ward.events(NodeMoved)
            if change.was.get("service") == Service.IN_SERVICE and change.hold.startswith(AUTOMATION)
        ]
        for start, _ in exits:
            window = [cluster for at, cluster in exits if start <= at < start + minutes(60)]
            assert len(window) <= fleet_limit
            assert max(window.count("a"), window.count("b")) <= cluster_limit
        named = {name for tripped in ward.health.breakers.values() for name in tripped.nodes}
        for name in rows:
            if ward.look(name)[:2] == ("unhealthy", "in_service"):
                assert name in named, "what is held back is named"
