"""What schedulers say and are told, as tables: pure, so without a scheduler. The real ones are in tests/real."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.connect.kubernetes import KubernetesNode, Taint
from plimsoll.connect.slurm_nodes import SlurmNode
from plimsoll.fleet.model import Service
from plimsoll.health.acts import Acting
from plimsoll.health.outside import (
    OUR_TAINT,
    REASON_MAX,
    Act,
    follow_holds,
    our_reason,
    resumed_of_late,
    seen_in_kubernetes,
    seen_in_slurm,
    steers_for,
)
from tests.support.health import Ward, minutes
from tests.support.imports import NOW

AN_HOUR_AGO = NOW - timedelta(hours=1)
OURS = "plimsoll: quarantined, because"


def slurm_node(states: str = "IDLE", *, name: str = "n1", reason: str = "", by: str = "bob") -> SlurmNode:
    """A node that has nothing to do; a reason was given an hour ago."""
    return SlurmNode(
        name=name,
        address="127.0.0.1",
        states=frozenset(states.split("+")),
        reason=reason,
        reason_by=by if reason else "",
        reason_at=AN_HOUR_AGO if reason else None,
        gpus=8,
        partitions=("all",),
    )


class Seeing(NamedTuple):
    """What Slurm says, and the signals and hold that it comes to: name and whether it is good; service and owner."""

    node: SlurmNode
    want_signals: dict[str, bool]
    want_hold: tuple[str, str, str] | None = None
    is_resumed: bool = False


GOOD = {"down": True, "not-ready": True}
SEEN = {
    "nothing to say": Seeing(slurm_node(), GOOD),
    "work runs": Seeing(slurm_node("ALLOCATED"), GOOD),
    "an operator drained it": Seeing(slurm_node("IDLE+DRAIN", reason="fan"), GOOD, ("quarantined", "slurm:bob", "fan")),
    "an operator drains it, work still runs": Seeing(
        slurm_node("MIXED+DRAIN", reason="fan"), GOOD, ("draining", "slurm:bob", "fan")
    ),
    "an operator drained it and said nothing": Seeing(
        slurm_node("IDLE+DRAIN"), GOOD, ("quarantined", "slurm:unknown", "drained in Slurm, no reason given")
    ),
    "we drained it": Seeing(slurm_node("IDLE+DRAIN", reason=OURS), GOOD),
    "it is down": Seeing(slurm_node("DOWN+NOT_RESPONDING", reason="Not responding"), {"down": False}),
    "it is down, and an operator drained it": Seeing(
        slurm_node("DOWN+DRAIN", reason="fan"), {"down": False}, ("quarantined", "slurm:bob", "fan")
    ),
    "it does not respond": Seeing(slurm_node("IDLE+NOT_RESPONDING"), {"down": True, "not-ready": False}),
    "it was resumed of late and does not respond yet": Seeing(
        slurm_node("IDLE+NOT_RESPONDING"), {"down": True}, is_resumed=True
    ),
    "it was resumed of late and is down": Seeing(slurm_node("DOWN"), {"down": False}, is_resumed=True),
    "it is in a maintenance reservation": Seeing(
        slurm_node("IDLE+MAINTENANCE"), GOOD, ("maintenance", "slurm:unknown", "maintenance in Slurm, no reason given")
    ),
    "it is in a maintenance reservation, and we drained it": Seeing(
        slurm_node("IDLE+MAINTENANCE+DRAIN", reason=OURS, by="plimsoll"),
        GOOD,
        ("maintenance", "slurm:unknown", "maintenance in Slurm, no reason given"),
    ),
    "it is in the maintenance reservation of our own batch": Seeing(
        slurm_node(
            "IDLE+MAINTENANCE+DRAIN", reason="plimsoll: maintenance, planned: nic, tiger batch 1", by="plimsoll"
        ),
        GOOD,
    ),
}


CORDONS = {
    "an operator's cordon is a hold": ((), {"n1"}),
    "a cordon beside somebody's taint is a hold": ((Taint("gpu", "", "NoSchedule"),), {"n1"}),
    "our own batch's cordon is not: its hold is in the ledger": ((Taint(OUR_TAINT, "nic", "NoSchedule"),), set()),
}


@pytest.mark.parametrize("sentence", CORDONS)
def test_whose_cordon_it_is(sentence: str) -> None:
    taints, want_held = CORDONS[sentence]
    node = KubernetesNode("n1", {}, True, None, "", {}, True, taints, 8, 8)
    assert set(seen_in_kubernetes([node], feed="k8s", at=NOW).holds) == want_held


def test_an_operators_cordon_is_not_over_because_our_batch_came_on_top() -> None:
    ward = Ward(1)

    def observe(is_cordoned: bool, *taints: Taint) -> list[str]:
        node = KubernetesNode("n1", {}, True, None, "", {}, is_cordoned, taints, 8, 8)
        seen = seen_in_kubernetes([node], feed="k8s", at=ward.now)
        acting = Acting("k8s", ward.now, "seen", {})
        _, drafts = follow_holds(ward.state, seen, acting, feed="k8s", at=ward.now)
        ward.keeper.commit(drafts, actor="k8s", reason="seen", read_at=None)
        return [hold.owner for hold in ward.holds().values()]

    assert observe(True) == ["kubernetes"]
    assert observe(True, Taint(OUR_TAINT, "nic", "NoSchedule")) == ["kubernetes"]
    assert observe(False) == []


@pytest.mark.parametrize("sentence", SEEN)
def test_what_slurm_says(sentence: str) -> None:
    case = SEEN[sentence]
    seen = seen_in_slurm([case.node], feed="slurm", at=NOW, resumed={"n1"} if case.is_resumed else set())
    assert {each.name: each.is_ok for each in seen.signals} == case.want_signals
    hold = seen.holds.get("n1")
    assert (hold and (str(hold.service), hold.owner, hold.reason)) == case.want_hold
    if hold is not None:
        assert hold.placed_at == (AN_HOUR_AGO if case.want_hold and case.want_hold[1] == "slurm:bob" else NOW)


class Steering(NamedTuple):
    """What a node is here and there, and what is to be done there."""

    service: str
    there: SlurmNode
    want: tuple[Act, str] | None


STEERED = {
    "in service, nothing there": Steering("in_service", slurm_node(), None),
    "in service, our drain there": Steering("in_service", slurm_node("IDLE+DRAIN", reason=OURS), (Act.RESUME, OURS)),
    "in service, an operator's drain there": Steering("in_service", slurm_node("IDLE+DRAIN", reason="fan"), None),
    "in service, down there": Steering("in_service", slurm_node("DOWN", reason="Not responding"), None),
    "out, nothing there": Steering("quarantined", slurm_node(), (Act.DRAIN, OURS)),
    "out, work there": Steering("quarantined", slurm_node("ALLOCATED"), (Act.DRAIN, OURS)),
    "out, our drain there": Steering("quarantined", slurm_node("IDLE+DRAIN", reason=OURS), None),
    "out, an older drain of ours there": Steering(
        "quarantined", slurm_node("IDLE+DRAIN", reason="plimsoll: draining, xid 79"), (Act.DRAIN, OURS)
    ),
    "out, an operator's drain there": Steering("quarantined", slurm_node("IDLE+DRAIN", reason="fan"), None),
    "out, down there": Steering("quarantined", slurm_node("DOWN", reason="Not responding"), None),
    "out, down and drained by us there": Steering("repair", slurm_node("DOWN+DRAIN", reason=OURS), None),
    "retired, our drain there": Steering("retired", slurm_node("IDLE+DRAIN", reason=OURS), None),
}


@pytest.mark.parametrize("sentence", STEERED)
def test_what_slurm_is_told(sentence: str) -> None:
    case = STEERED[sentence]
    with Ward(1) as ward:
        if case.service != "in_service":
            ward.set(case.service)
        found = steers_for(ward.state, {"n1": case.there, "x9": slurm_node(name="x9")})
    assert [(each.node, each.act, each.reason) for each in found] == ([("n1", *case.want)] if case.want else [])


REASONS = {
    "xid 79": "plimsoll: repair, xid 79",
    "": "plimsoll: repair",
    "see [bob@2026-01-05T11:00:00]": "plimsoll: repair, see (bob@2026-01-05T11:00:00)",
    "two\nlines": "plimsoll: repair, two lines",
    "x" * 500: f"plimsoll: repair, {'x' * 500}"[:REASON_MAX],
}


@pytest.mark.parametrize(("reason", "want"), REASONS.items())
def test_our_reason_is_one_that_slurm_gives_back(reason: str, want: str) -> None:
    with Ward(1) as ward:
        node = ward.node()
    fields = {name: getattr(node, name) for name in node.__struct_fields__}
    changed = type(node)(**fields | {"service": Service.REPAIR, "reason": reason})
    assert our_reason(changed) == want


def test_a_node_that_died_under_our_drain_says_what_brings_it_back() -> None:
    # Measured on Slurm 22.05 with ReturnToService=1: it stays DOWN, and UNDRAIN leaves it so.
    alive = seen_in_slurm([slurm_node("DOWN+DRAIN", reason=OURS)], feed="slurm", at=NOW).signals[0]
    dead = seen_in_slurm([slurm_node("DOWN+DRAIN+NOT_RESPONDING", reason=OURS)], feed="slurm", at=NOW).signals[0]
    assert (alive.is_ok, dead.is_ok) == (False, False)
    assert alive.detail == "it responds again, and waits for: scontrol update nodename=n1 state=resume"
    assert dead.detail == f"DOWN+DRAIN+NOT_RESPONDING, {OURS}"


def test_a_drain_of_a_clock_ahead_of_ours_was_placed_now() -> None:
    seen = seen_in_slurm([slurm_node("IDLE+DRAIN", reason="fan")], feed="slurm", at=AN_HOUR_AGO - minutes(2))
    assert seen.holds["n1"].placed_at == AN_HOUR_AGO - minutes(2)


def test_who_was_resumed_of_late() -> None:
    with Ward(4) as ward:
        ward.hold("n1", hold_id="slurm")  # ends there right now
        ward.hold("n2", hold_id="other")
        assert resumed_of_late(ward.state, feed="slurm", at=NOW + minutes(1)) == {"n1", "n2"}
        assert resumed_of_late(ward.state, feed="slurm", at=NOW + minutes(6)) == {"n1"}
