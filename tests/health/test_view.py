"""What works now, counted by hand on small fleets: what needs a person, what is out and why, what comes back when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.acts import place_hold
from plimsoll.health.attention import Need, find_attention
from plimsoll.health.facts import Hold
from plimsoll.health.service import feeds_heard
from plimsoll.health.view import Present, hold_rows, look_now
from tests.support.fleets import nodes, row, write_fleet
from tests.support.health import Ward, breakers, minutes, policy_with, signal
from tests.support.imports import NOW, Importer


def present(ward: Ward, *names: str) -> Present:
    fleet = ward.state.of(Fleet).nodes
    chosen = [fleet[name] for name in names or sorted(fleet)]
    return look_now(ward.state, chosen, feeds_heard(ward.keeper.ledger.store), now=ward.now)


def needs(ward: Ward) -> dict[Need, tuple[int, str, str]]:
    """What asks for a person: on how many nodes, in which words, and what to type."""
    fleet = ward.state.of(Fleet).nodes
    found = find_attention(ward.state, list(fleet.values()), feeds_heard(ward.keeper.ledger.store), ward.now)
    return {each.need: (each.count, each.message, each.next_step) for each in found}


def test_everything_is_counted_once() -> None:
    rows = [
        *nodes(4),
        row("nodes", node="r1", service="repair", since="2026-01-19T12:00:00Z", reason="xid 79"),
        row("nodes", node="r2", service="repair", since="2026-01-18T12:00:00Z", reason="xid 79"),
        row("nodes", node="m1", service="maintenance", since="2026-01-20T10:00:00Z", reason="planned: firmware"),
        row("nodes", node="gone", service="retired"),
        row("nodes", node="b1", cluster="lion", island="lion-a", sku="GB200", gpus="4"),
    ]
    with Ward(rows) as ward:
        ward.observe(signal("n1", name="79"), signal("n2", name="13"))
        now = present(ward)
    assert (now.nodes, now.in_service) == (8, 4)
    assert (now.gpus, now.healthy_gpus) == (7 * 8 + 4, 3 * 8 + 4)
    assert now.by_service == {"in_service": 4, "quarantined": 1, "maintenance": 1, "repair": 2}
    assert now.by_health == {"healthy": 3, "degraded": 1, "unhealthy": 3, "unknown": 1}
    assert now.by_owner == {"ours": 2, "provider": 2}
    assert (now.planned, now.unplanned, now.uncovered) == (1, 3, 8)
    assert [(each.reason, each.kind, each.owner, each.nodes, each.gpus) for each in now.reasons] == [
        ("xid 79", "unplanned", "provider", 2, 16),
        ("planned: firmware", "planned", "ours", 1, 8),
        ("xid 79", "unplanned", "ours", 1, 8),
    ]
    assert now.reasons[0].oldest == NOW - timedelta(days=2)
    assert [
        (each.cluster, each.nodes, each.in_service, each.in_service_share, each.degraded) for each in now.clusters
    ] == [
        ("tiger", 7, 3, 0.4286, 1),
        ("lion", 1, 1, 1.0, 0),
    ]
    assert [feed.feed for feed in now.feeds] == ["feed"]


def test_only_what_is_asked_for_is_counted() -> None:
    with Ward(4) as ward:
        ward.set("repair", "n1")
        assert (present(ward, "n2", "n3").nodes, present(ward, "n2", "n3").reasons) == (2, [])


def test_clusters_that_are_not_in_production_count_nowhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path_factory.mktemp("f"), clusters=[row("clusters", phase="provisioned")]))
    now = look_now(importer.state, list(importer.of(Fleet).nodes.values()), {}, now=NOW)
    assert (now.nodes, now.gpus, now.clusters) == (0, 0, [])


def test_what_was_promised_is_told_apart_from_what_is_expected() -> None:
    with Ward(4) as ward:
        ward.set("repair", "n1", expected_return=NOW + timedelta(hours=3))
        ward.set("repair", "n2", expected_return=NOW + timedelta(hours=30))
        ward.set("repair", "n3")
        returns = {each.within_hours: each for each in present(ward).returns}
    assert {hours: each.promised_nodes for hours, each in returns.items()} == {4: 1, 24: 1, 72: 2, 168: 2}
    assert {hours: each.promised_gpus for hours, each in returns.items()} == {4: 8, 24: 8, 72: 16, 168: 16}
    assert all(0 <= each.expected_nodes <= 1 for each in returns.values())


def test_a_breaker_that_tripped_says_what_to_type() -> None:
    with Ward(4, policy=breakers(cluster=1)) as ward:
        ward.observe(*(signal(name) for name in ("n1", "n2", "n3")))
        found = needs(ward)
        count, message, next_step = found[Need.BREAKER_TRIPPED]
        assert count == 2
        assert message == (
            "cluster/tiger: automation took 1 out, 1 at most are allowed;"
            " it holds back 2 more since 2026-01-20T12:00:00Z"
        )
        assert next_step == ("look at them, then plimsoll health breaker cluster/tiger --go-on|--dismiss --reason WHY")
        assert Need.UNHEALTHY_IN_SERVICE not in found, "one advice for a node, not two"
        ward.reset("cluster/tiger")
        assert needs(ward).keys().isdisjoint({Need.BREAKER_TRIPPED, Need.UNHEALTHY_IN_SERVICE})


def test_a_feed_that_is_silent_says_since_when() -> None:
    with Ward(4) as ward:
        ward.see(swept=["n1", "n2"])
        ward.wait(16)
        ward.sweep()
        assert needs(ward)[Need.FEED_SILENT][:2] == (
            2,
            "feed sweeper has said nothing since 2026-01-20T12:00:00Z: its nodes are unknown",
        )
        (feed,) = present(ward).feeds
        assert (feed.feed, feed.nodes, feed.is_silent, feed.heard_at) == ("sweeper", 2, True, NOW)


def test_silence_shows_also_where_nobody_sweeps() -> None:
    with Ward(4) as ward:
        ward.see(swept=["n1", "n2"])
        ward.observe(signal("n3"), feed="now and then")
        ward.wait(15)
        on_time = present(ward)
        assert (on_time.by_health, [feed.is_silent for feed in on_time.feeds]) == (
            {"healthy": 3, "unhealthy": 1},
            [False, False],
        )
        assert needs(ward) == {}
        ward.wait(1)
        late = present(ward)
        assert late.by_health == {"healthy": 1, "unhealthy": 1, "unknown": 2}
        assert [(each.cluster, each.in_service, each.unknown) for each in late.clusters] == [("tiger", 3, 2)]
        assert {feed.feed: feed.is_silent for feed in late.feeds} == {"now and then": False, "sweeper": True}
        assert needs(ward)[Need.FEED_SILENT][:2] == (
            2,
            "feed sweeper has said nothing since 2026-01-20T12:00:00Z: its nodes are unknown",
        )
        ward.sweep()
        assert present(ward).by_health == late.by_health, "a sweep finds the same"
        ward.see(swept=["n1", "n2"])
        assert present(ward).by_health == on_time.by_health


def test_silence_does_not_mend_what_is_known_to_be_wrong() -> None:
    with Ward(4) as ward:
        ward.see(signal("n1"), signal("n2", name="13"), swept=["n1", "n2"])
        before = present(ward).by_health
        ward.wait(16)
        assert before == present(ward).by_health == {"healthy": 2, "degraded": 1, "unhealthy": 1}


def test_without_times_of_today_nothing_is_said_of_silence() -> None:
    with Ward(4) as ward:
        ward.see(swept=["n1", "n2"])
        ward.wait(1000)
        then = look_now(ward.state, list(ward.state.of(Fleet).nodes.values()), {}, now=ward.now)
        assert (then.by_health, then.attention) == ({"healthy": 4}, [])


def test_validation_is_part_of_what_it_ends() -> None:
    with Ward(4) as ward:
        ward.act(
            lambda state, acting: place_hold(
                state,
                [state.of(Fleet).nodes["n1"]],
                Hold("fw", "ada", Service.MAINTENANCE, "planned: fw", ward.now),
                acting,
            ),
            ["n1"],
            reason="planned: fw",
        )
        ward.set("repair", "n2", reason="fan: broken")
        ward.wait(60)
        ward.release("fw")
        ward.set("validating", "n2", reason="planned: looks good")
        now = present(ward)
    assert now.by_service == {"in_service": 2, "validating": 2}
    assert (now.planned, now.unplanned) == (1, 1)
    assert [(each.reason, each.kind) for each in now.reasons] == [("fan", "unplanned"), ("planned: fw", "planned")]
    assert [(each.planned, each.unplanned) for each in now.clusters] == [(1, 1)]


def test_what_is_out_for_too_long_without_a_promise_is_stuck() -> None:
    hour = 60
    with Ward(6) as ward:
        ward.set("repair", "n1", reason="fan")
        ward.set("repair", "n2", reason="fan", expected_return=NOW + timedelta(days=9))
        ward.set("maintenance", "n3", reason="planned: fw")
        ward.wait(1)
        ward.set("quarantined", "n4", reason="xid 79")
        ward.wait(48 * hour - 1)
        assert Need.STUCK not in needs(ward), "48 hours are the goal"
        ward.wait(1)
        assert needs(ward)[Need.STUCK] == (
            1,
            "out unplanned over 2 days (oldest: 2026-01-20), nobody said until when",
            "plimsoll health outages --unplanned; ask whoever has them when they are back",
        )
        ward.set("validating", "n1")
        ward.wait(1)
        assert needs(ward)[Need.STUCK][0] == 2, "validating is no return"
        ward.tick("accepted", "n1")
        ward.wait(11)
        ward.sweep()
        assert (ward.service("n1"), needs(ward)[Need.STUCK][0]) == ("in_service", 1)


def test_a_hold_without_an_end_is_not_forgotten() -> None:
    with Ward(4) as ward:
        ward.hold("n1", "n2", hold_id="old")
        ward.hold("n2", hold_id="older", actor="bob", placed_at=NOW - minutes(5))
        ward.hold("n3", hold_id="ends", expires_at=NOW + timedelta(days=90))
        ward.observe(signal("n4"))
        ward.wait(7 * 24 * 60)
        assert needs(ward)[Need.HOLD_WITHOUT_END][0] == 1, "only bob's is older than seven days"
        ward.wait(1)
        assert needs(ward)[Need.HOLD_WITHOUT_END][:2] == (
            2,
            "held over 7 days without an end (oldest: bob, 2026-01-20)",
        )
        ward.release("old")
        ward.release("older", actor="bob")
        assert Need.HOLD_WITHOUT_END not in needs(ward), "automation's holds end by themselves"


def test_what_is_late_is_named_until_it_is_done() -> None:
    with Ward(4) as ward:
        ward.hold("n1", "n2", expires_at=NOW + minutes(5))
        ward.set("repair", "n3", expected_return=NOW + minutes(5))
        assert needs(ward) == {}
        ward.wait(6)
        found = needs(ward)
        assert found[Need.HOLD_EXPIRED] == (2, "held by ada, until a time that has passed", "plimsoll health sweep")
        assert found[Need.OVERDUE][:2] == (1, "expected back by now, and still out")
        ward.sweep()
        assert Need.HOLD_EXPIRED not in needs(ward)


def test_a_node_that_waits_for_a_person_is_named() -> None:
    with Ward(4) as ward:
        ward.set("quarantined", "n1")
        ward.set("validating", "n1")
        assert needs(ward)[Need.WAITING_FOR_TICK] == (
            1, "validating; a person has to answer the check 'accepted'", "plimsoll health tick accepted NODE",
        )  # fmt: skip
        ward.tick("accepted", "n1")
        assert Need.WAITING_FOR_TICK not in needs(ward)


def test_a_lemon_is_named() -> None:
    with Ward(4, policy=policy_with("exits: 3", "exits: 2")) as ward:
        for _ in range(2):
            ward.observe(signal("n1", ago=(NOW - ward.now) / minutes(1)))
            ward.bring_back("n1")
            ward.wait(11)
        count, message, _ = needs(ward)[Need.LEMON]
        assert (count, message) == (1, "lemons: out of service unplanned 2 times or more in 30 days")


def test_holds_are_listed_the_oldest_first() -> None:
    with Ward(4) as ward:
        ward.hold("n3", hold_id="late")
        ward.hold("n1", "n2", hold_id="early", placed_at=NOW - minutes(5))
        rows = hold_rows(ward.state, list(ward.state.of(Fleet).nodes.values()))
        assert [(node.id, hold.id) for node, hold in rows] == [("n1", "early"), ("n2", "early"), ("n3", "late")]
