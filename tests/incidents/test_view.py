"""What incidents say: whose move it is by what is out, who answered what, and what owners were told meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import msgspec
import pytest

from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.changes import BreakerReset, BreakerTripped, HoldPlaced
from plimsoll.health.facts import Hold
from plimsoll.incidents.changes import IncidentOpened, OwnerTold
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Incident
from plimsoll.incidents.reasons import Kind, What
from plimsoll.incidents.service import run_pass
from plimsoll.incidents.view import documents, notices
from plimsoll.ledger.model import Draft
from plimsoll.rooms import FINDERS
from tests.support.harbour import Harbour, Work

HOUR = timedelta(hours=1)
FAULTS = "hardware: repair; RPM: lower what is promised"
WORK = "planned: nic-firmware, tiger batch 1"


def take_out(harbour: Harbour, numbers: range, reason: str, *, until: timedelta | None = None, owner: str = "") -> None:
    """Nodes leave service for a reason; somebody holds them, where it is said who."""
    for number in numbers:
        node = harbour.state.of(Fleet).nodes[f"n{number:03}"]
        service = Service.MAINTENANCE if reason.startswith("planned:") else Service.REPAIR
        out = msgspec.structs.replace(node, service=service, since=harbour.now, reason=reason)
        harbour.commit(NodeRecorded(out, was={"service": "in_service", "reason": "", "since": ""}))
        if owner:
            expected = harbour.now + until if until is not None else None
            hold = Hold("work", owner, service, reason, harbour.now, expected_return=expected)
            harbour.commit(HoldPlaced(node.id, hold))


def shown(harbour: Harbour, kind: Kind = Kind.BROKEN_PROMISE) -> dict[str, object]:
    found = [each for each in harbour.state.of(Incidents).incidents.values() if each.kind is kind]
    (only,) = documents(harbour.state, found, harbour.now)
    return only


class Case(NamedTuple):
    """Nodes that are out of a pool of 10, of which 8 are guaranteed."""

    faults: int
    planned: int
    want: str
    until: timedelta | None = None
    owner: str = ""


MOVES = {
    "only faults are out": Case(4, 0, FAULTS),
    "planned work has as many as are missing: nothing is to be repaired": Case(
        2, 3, "planned work, 3 of 5 nodes out: nic-firmware, tiger batch 1; nobody said when it ends"
    ),
    "whose planned work, and when it ends, where that is known": Case(
        2,
        3,
        "planned work, 3 of 5 nodes out: nic-firmware, tiger batch 1 (of omar); back by 2026-01-20T16:00:00Z",
        until=4 * HOUR,
        owner="omar",
    ),
    "planned work has as many as are missing, and faults have more": Case(
        2, 1, f"{FAULTS}; planned work has 1 of 3 nodes out: nic-firmware, tiger batch 1; nobody said when it ends"
    ),
    "planned work that ends leaves it short": Case(
        4, 1, f"{FAULTS}; planned work has 1 of 5 nodes out: nic-firmware, tiger batch 1; nobody said when it ends"
    ),
}


@pytest.mark.parametrize("case", MOVES.values(), ids=MOVES.keys())
def test_whose_move_a_short_pool_is(case: Case) -> None:
    with Harbour(10, {"a": 8}) as harbour:
        harbour.apply()
        take_out(harbour, range(case.faults), "xid 79")
        take_out(harbour, range(case.faults, case.faults + case.planned), WORK, until=case.until, owner=case.owner)
        run_pass(harbour.keeper, FINDERS, harbour.now, "x")
        assert shown(harbour)["move"] == case.want


def test_it_is_nobodys_move_while_the_trouble_is_gone() -> None:
    with Harbour(10, {"a": 10}) as harbour:
        harbour.apply()
        harbour.work_only(8)
        run_pass(harbour.keeper, FINDERS, harbour.now, "x")
        assert (shown(harbour)["move"], shown(harbour)["next_step"]) == (FAULTS, "plimsoll quota show tiger")
        harbour.wait(HOUR)
        harbour.work_only(10)
        run_pass(harbour.keeper, FINDERS, harbour.now, "x")
        assert (shown(harbour)["closed_at"], shown(harbour)["move"], shown(harbour)["next_step"]) == (None, "", "")


ANSWERS = {
    "automation is to go on": (False, "go on, and take out what was held back: the switch is dead"),
    "what it held back is dismissed": (True, "let what was held back be: the switch is dead"),
}


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS.keys())
def test_a_persons_answer_to_a_breaker_is_in_the_timeline(case: tuple[bool, str]) -> None:
    is_dismissed, want = case
    with Harbour(4) as harbour:
        harbour.commit(BreakerTripped("cluster/tiger", 1, 3600.0, 1, ["n001", "n002"]))
        run_pass(harbour.keeper, FINDERS, harbour.now, "plimsoll")
        harbour.wait(HOUR)
        answer = Draft(BreakerReset("cluster/tiger", is_dismissed), "the switch is dead")
        harbour.keeper.commit([answer], actor="omar", read_at=None)
        run_pass(harbour.keeper, FINDERS, harbour.now, "plimsoll")
        incident = shown(harbour, Kind.BREAKER)
        said = [(by, text) for _, by, text in incident["notes"]]  # type: ignore[attr-defined]
        assert said[1:] == [("omar", want), ("plimsoll", "gone; closes in 5 min if it stays so")]
        assert incident["move"] == ""


def test_an_answer_to_a_breaker_that_nobody_has_seen_yet_is_no_line_of_another_incident() -> None:
    with Harbour(4) as harbour:
        harbour.commit(BreakerTripped("cluster/lion", 1, 3600.0, 1, ["n001"]))
        run_pass(harbour.keeper, FINDERS, harbour.now, "plimsoll")
        harbour.commit(BreakerTripped("cluster/tiger", 1, 3600.0, 1, ["n002"]), BreakerReset("cluster/tiger"))
        assert len(shown(harbour, Kind.BREAKER)["notes"]) == 1  # type: ignore[arg-type]


TOLD = {
    "a node of its cluster": ("n001", "new-run", "a", 0.0, True),
    "a node of another cluster": ("l1", "new-run", "a", 0.0, False),
    "another team's, there as well": ("n001", "new-run", "b", 0.0, True),
    "before it opened": ("n001", "new-run", "a", -1.0, False),
    "the cluster itself": ("tiger", "new-run", "a", 0.0, True),
    "no node, but the work is there": ("defrag", "run-a", "a", 0.0, True),
    "nobody knows where": ("defrag", "new-run", "a", 0.0, False),
}
"""By what, about which work, of which team, how many hours after it opened, and whether it is told meanwhile."""


@pytest.mark.parametrize("case", TOLD.values(), ids=TOLD.keys())
def test_what_owners_were_told_of_where_an_incident_is(case: tuple[str, str, str, float, bool]) -> None:
    by, work, team, hours, want = case
    with two_clusters() as harbour:
        harbour.commit(IncidentOpened("i", "smoke", clusters=("tiger",)))
        notice = OwnerTold(work, team, "", harbour.now + hours * HOUR, What.NODE_LOST, by, "lost", "done", "left")
        harbour.commit(notice)
        incident = harbour.state.of(Incidents).incidents["i"]
        assert bool(notices(harbour.state, incident=incident)) is want
        anywhere: Incident = msgspec.structs.replace(incident, clusters=())
        assert bool(notices(harbour.state, incident=anywhere)) is (hours >= 0), "about no cluster is about all"
        of_a = msgspec.structs.replace(incident, about="team/a/tiger/H200", teams=("a",))
        assert bool(notices(harbour.state, incident=of_a)) is (want and team == "a")
        over = msgspec.structs.replace(incident, closed_at=harbour.now - timedelta(minutes=1))
        assert not notices(harbour.state, incident=over)


def two_clusters() -> Harbour:
    """Work of team a runs in tiger; lion has a node."""
    harbour = Harbour(4, {"a": 2}, [Work("a", 2)])
    fleet = harbour.state.of(Fleet)
    lion = msgspec.structs.replace(fleet.clusters["tiger"], id="lion")
    node = msgspec.structs.replace(fleet.nodes["n000"], id="l1", cluster="lion", island="lion-a")
    harbour.commit(ClusterRecorded(lion), NodeRecorded(node))
    return harbour
