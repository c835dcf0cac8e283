"""The three facts, the moves that are legal, and that each is an event with who, why, from what and until when."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.errors import Refused
from plimsoll.fleet.model import Node, Service
from plimsoll.health.changes import BreakerTripped, CheckTicked, FeedChanged, HoldEnded, HoldPlaced, NodeMoved
from plimsoll.health.facts import AUTOMATION, LEGAL_MOVES, Hold, Owner, check_move, held_service, presumed_facts
from tests.support.fleets import row
from tests.support.health import Ward, breakers, minutes, signal
from tests.support.imports import NOW

WANT_LEGAL = {
    "in_service": "draining quarantined maintenance repair retired",
    "draining": "quarantined maintenance repair validating retired",
    "quarantined": "maintenance repair validating retired",
    "maintenance": "quarantined repair validating retired",
    "repair": "quarantined maintenance validating retired",
    "validating": "in_service quarantined maintenance repair retired",
    "joining": "validating quarantined maintenance repair retired",
    "retired": "joining",
}


def test_the_table_of_legal_moves() -> None:
    assert {str(was): " ".join(legal) for was, legal in LEGAL_MOVES.items()} == WANT_LEGAL


def test_never_into_service_but_from_validating() -> None:
    assert [was for was, legal in WANT_LEGAL.items() if "in_service" in legal.split()] == ["validating"]


@pytest.mark.parametrize("service", Service)
@pytest.mark.parametrize("was", Service)
def test_an_illegal_move_says_which_ones_are_legal(was: Service, service: Service) -> None:
    legal = WANT_LEGAL[was].split()
    if service in legal:
        check_move("n1", was, service)
        return
    with pytest.raises(Refused) as caught:
        check_move("n1", was, service)
    assert caught.value.code == "illegal_move"
    assert caught.value.fields["legal"] == legal
    assert all(each in caught.value.message for each in legal)
    assert caught.value.next_step.split()[4] in legal, "the next command is one that works"


def test_a_person_is_told_the_way_into_service() -> None:
    with Ward(1) as ward:
        ward.set("repair")
        with pytest.raises(Refused) as caught:
            ward.set("in_service")
        assert caught.value.next_step == "plimsoll health set n1 validating --reason WHY"
        assert ward.service() == "repair"


class Presumed(NamedTuple):
    """What an import says of a node, and what we take for its health and owner."""

    service: str
    reason: str
    want: tuple[str, str]


PRESUMED = {
    "in service it is taken for healthy": Presumed("in_service", "", ("healthy", "ours")),
    "quarantined means faulty, and ours to look at": Presumed("quarantined", "xid 79", ("unhealthy", "ours")),
    "in repair it is the provider's": Presumed("repair", "fan", ("unhealthy", "provider")),
    "maintenance says nothing of its health": Presumed("maintenance", "planned: os", ("unknown", "ours")),
    "the provider's own maintenance": Presumed("maintenance", "provider: move", ("unknown", "provider")),
    "nobody knows of a node that validates": Presumed("validating", "", ("unknown", "ours")),
}


@pytest.mark.parametrize("sentence", PRESUMED)
def test_what_is_presumed_of_a_node_that_nobody_observes(sentence: str) -> None:
    service, reason, want = PRESUMED[sentence]
    facts = presumed_facts(Node("n1", "tiger", "tiger-a", "H200", 8, Service(service), None, reason))
    assert (facts.health, facts.owner) == want
    assert (facts.why, facts.source) == (reason, "import")


def test_health_service_and_owner_are_separate() -> None:
    with Ward(3, policy=breakers(cluster=1)) as ward:
        ward.see(swept=["n1", "n2", "n3"])
        ward.set("maintenance", "n1")
        assert ward.look("n1")[:3] == ("healthy", "maintenance", "ours")
        ward.observe(signal("n2", ago=2), signal("n3", ago=1))
        assert ward.look("n2")[:3] == ("unhealthy", "quarantined", "ours")
        assert ward.look("n3")[:3] == ("unhealthy", "in_service", "ours"), "a breaker held it back; its health shows"
        ward.set("repair", "n2", owner=Owner.PROVIDER)
        assert ward.look("n2")[:3] == ("unhealthy", "repair", "provider")


def _hold(service: str, **fields: timedelta) -> Hold:
    drains = NOW + fields["drains_for"] if fields else None
    return Hold(service, "ada", Service(service), "", NOW, drains_until=drains)


HELD = {
    "one hold says what it is for": ([_hold("maintenance")], "in_service", "maintenance"),
    "the strongest of several": ([_hold("repair"), _hold("quarantined")], "in_service", "repair"),
    "a hold that drains first": ([_hold("quarantined", drains_for=minutes(5))], "in_service", "draining"),
    "a drain that is over": ([_hold("quarantined", drains_for=minutes(0))], "draining", "quarantined"),
    "what was taken out can't drain any more": ([_hold("draining")], "repair", "quarantined"),
    "a drain beside a repair": ([_hold("quarantined", drains_for=minutes(5)), _hold("repair")], "draining", "repair"),
}


@pytest.mark.parametrize("sentence", HELD)
def test_what_holds_make_of_a_node(sentence: str) -> None:
    holds, was, want = HELD[sentence]
    assert held_service(holds, Service(was), NOW) == want


def test_every_move_says_who_why_from_what_and_until_when() -> None:
    with Ward(1) as ward:
        ward.observe(signal(kind="provider", name="reboot", detail="GPU 3"), feed="dcgm")
        event, moved = ward.events(NodeMoved)[0]
        assert (event.actor, event.subject) == ("feeder", "node/n1")
        assert event.reason == "provider reboot: GPU 3"
        assert event.effective_time == NOW - minutes(1), "it broke when the signal says, not when we heard of it"
        assert moved.was == {"health": "healthy", "service": "in_service", "owner": "ours", "expected_return": ""}
        assert (moved.service, moved.facts.health, moved.facts.owner) == ("repair", "unhealthy", "provider")
        assert moved.facts.expected_return == NOW - minutes(1) + timedelta(days=2)
        assert (moved.facts.source, moved.signal, moved.hold) == ("dcgm", "provider reboot", "plimsoll:provider reboot")
        _, placed = ward.events(HoldPlaced)[0]
        assert (placed.hold.owner, placed.hold.service) == (AUTOMATION, "repair")
        ward.bring_back()
        event, ended = ward.events(HoldEnded)[0]
        assert (event.actor, event.reason) == ("ada", "because")
        assert (ended.hold, ended.owner, ended.cause) == ("plimsoll:provider reboot", AUTOMATION, "released")
        event, ticked = ward.events(CheckTicked)[0]
        assert (event.actor, event.reason, ticked.check, ticked.is_passed) == ("ada", "burn-in", "accepted", True)
        last = ward.events(NodeMoved)[-1][1]
        assert (last.service, last.facts.source, last.facts.expected_return) == ("in_service", "ada", None)
        assert ward.look() == ("healthy", "in_service", "ours", frozenset())


def test_feeds_and_breakers_say_why_too() -> None:
    with Ward(3, policy=breakers(cluster=1)) as ward:
        ward.see(signal("n1", ago=2), signal("n2", ago=1), swept=["n1", "n2", "n3"], feed="dcgm")
        event, feed = ward.events(FeedChanged)[0]
        assert (event.reason, event.subject, feed.joined) == ("first heard", "feed/dcgm", ["n1", "n2", "n3"])
        event, tripped = ward.events(BreakerTripped)[0]
        assert event.reason == "1 nodes were taken out within 1 h, at most 1 are allowed; 1 are held back"
        assert (tripped.scope, tripped.limit, tripped.taken, tripped.nodes) == ("cluster/tiger", 1, 1, ["n2"])
        assert tripped.window_seconds == 3600
        ward.wait(16)
        ward.sweep()
        event, feed = ward.events(FeedChanged)[-1]
        assert (event.reason, feed.is_silent) == (f"nothing heard since {NOW:%Y-%m-%dT%H:%M:%SZ}", True)
        assert event.effective_time == NOW + minutes(15)


def test_a_whole_island_is_one_act_and_is_released_as_one() -> None:
    rows = [row("nodes", node=f"n{number}", island=f"tiger-{'ab'[number % 2]}") for number in range(6)]
    with Ward(rows) as ward:
        island = ["n0", "n2", "n4"]
        before = ward.keeper.ledger.head().revision
        ward.hold(*island, hold_id="rewire", scope="island=tiger-a")
        events = list(ward.keeper.ledger.store.events(after=before))
        assert len({event.recorded_at for event in events}) == 1
        assert {name: ward.service(name) for name in ("n0", "n1", "n2", "n3", "n4", "n5")} == {
            "n0": "maintenance", "n1": "in_service", "n2": "maintenance",
            "n3": "in_service", "n4": "maintenance", "n5": "in_service",
        }  # fmt: skip
        assert {hold.scope for name in island for hold in ward.holds(name).values()} == {"island=tiger-a"}
        ward.release("rewire")
        assert {ward.service(name) for name in island} == {"validating"}


def test_an_act_on_many_nodes_is_all_or_nothing() -> None:
    rows = [row("nodes", node="n1"), row("nodes", node="n2", service="retired")]
    with Ward(rows) as ward:
        head = ward.keeper.ledger.head()
        with pytest.raises(Refused) as caught:
            ward.hold("n1", "n2")
        assert caught.value.code == "node_retired"
        with pytest.raises(Refused, match="n2 is retired and can't go to repair"):
            ward.set("repair", "n1", "n2")
        assert ward.keeper.ledger.head() == head
