"""A node's timeline: every transition once, in the order of time, however and in whatever order it was told."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.fleet.model import Node, Service
from plimsoll.health.decide import count_exits
from plimsoll.health.fold import Health
from plimsoll.health.model import EMPTY_TIMELINE, Mark, from_microseconds, to_microseconds
from plimsoll.state.table import Journal
from tests.support.fleets import Rows, nodes, row, write_fleet
from tests.support.imports import NOW, Importer

Entry = tuple[str, str, str]


def told(time: str, service: str, reason: str = "", node: str = "n1") -> dict[str, str]:
    return row("history", time=time, service=service, reason=reason, node=node)


def timeline(importer: Importer, node: str = "n1") -> list[Entry]:
    """When (day and hour of January), what, why."""
    health = importer.of(Health)
    if node not in health.timelines:
        return []
    return [
        (f"{from_microseconds(moment):%dT%H}", str(health.marks[number].service), health.marks[number].reason)
        for moment, number in health.timelines[node].entries()
    ]


STORY = [
    told("2026-01-05T11:00:00Z", "quarantined", "xid 79"),
    told("2026-01-05T12:00:00Z", "repair", "xid 79"),
    told("2026-01-07T09:00:00Z", "validating"),
    told("2026-01-07T10:00:00Z", "in_service"),
]
WANT_STORY = [
    ("05T11", "quarantined", "xid 79"),
    ("05T12", "repair", "xid 79"),
    ("07T09", "validating", ""),
    ("07T10", "in_service", ""),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_history_told_in_any_order_is_one_story(order: tuple[int, ...], tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path, history=[STORY[place] for place in order]))
    assert timeline(importer) == WANT_STORY


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_history_told_in_several_imports_is_one_story(order: tuple[int, ...], tmp_path: Path) -> None:
    importer = Importer()
    for place in order:
        importer.bring(write_fleet(tmp_path, history=[STORY[place]]))
    assert timeline(importer) == WANT_STORY


def test_rows_that_are_known_are_not_doubled(tmp_path: Path) -> None:
    importer = Importer()
    plan = importer.bring(write_fleet(tmp_path, history=[*STORY, STORY[1], STORY[3]]))
    assert plan.counts()["history"] == {"added": 4, "changed": 0, "removed": 0, "same": 2}
    more = told("2026-01-08T10:00:00Z", "draining")
    plan = importer.bring(write_fleet(tmp_path, history=[*STORY, more]))
    assert plan.counts()["history"] == {"added": 1, "changed": 0, "removed": 0, "same": 4}
    assert timeline(importer) == [*WANT_STORY, ("08T10", "draining", "")]


def test_extra_columns_that_come_later_are_added_to_the_row_they_belong_to(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path, history=STORY))
    plan = importer.bring(write_fleet(tmp_path, history=[STORY[0] | {"ticket": "T-1"}]))
    assert plan.counts()["history"] == {"added": 0, "changed": 1, "removed": 0, "same": 0}
    assert timeline(importer) == WANT_STORY
    assert [cells[4] for cells in importer.sheets()["history"][1:]] == ["T-1", "", "", ""]
    assert not importer.bring(write_fleet(tmp_path, history=STORY)).is_change


AT_ONCE = ["in_service", "validating", "repair", "quarantined"]


@pytest.mark.parametrize("order", list(itertools.permutations(AT_ONCE)), ids="-".join)
def test_transitions_of_one_instant_are_a_way_back_into_service(order: tuple[str, ...], tmp_path: Path) -> None:
    importer = Importer()
    for service in order[:2]:
        importer.bring(write_fleet(tmp_path, history=[told("2026-01-05T11:00:00Z", service)]))
    importer.bring(write_fleet(tmp_path, history=[told("2026-01-05T11:00:00Z", service) for service in order[2:]]))
    assert [service for _, service, _ in timeline(importer)] == ["quarantined", "repair", "validating", "in_service"]


class Case(NamedTuple):
    """Nodes and history of two imports, the second six hours after the first, and the story that they make."""

    first: dict[str, str]
    second: dict[str, str]
    want: list[Entry]
    history: Rows = ()


OUT = {"service": "repair", "reason": "xid 79"}
DAY_19 = "2026-01-19T08:00:00Z"
CASES = {
    "a node is in service all the time": Case({}, {"reason": "fine"}, []),
    "a node in service is in service since another day": Case({"since": DAY_19}, {"since": "2026-01-20T08:00:00Z"}, []),
    "a node arrives out of service": Case(
        OUT | {"since": DAY_19}, OUT | {"since": DAY_19}, [("19T08", "repair", "xid 79")]
    ),
    "a node arrives out of service, nobody knows since when": Case(OUT, OUT, [("20T12", "repair", "xid 79")]),
    "a node goes out of service": Case({}, OUT | {"since": DAY_19}, [("19T08", "repair", "xid 79")]),
    "a node goes out of service, nobody knows when": Case({}, OUT, [("20T18", "repair", "xid 79")]),
    "a node comes back": Case(
        OUT | {"since": DAY_19},
        {"since": "2026-01-20T15:00:00Z"},
        [("19T08", "repair", "xid 79"), ("20T15", "in_service", "")],
    ),
    "a node comes back, nobody knows when": Case(
        OUT | {"since": DAY_19}, {}, [("19T08", "repair", "xid 79"), ("20T18", "in_service", "")]
    ),
    "a node was back and is out again": Case(
        OUT | {"since": DAY_19},
        OUT | {"since": "2026-01-20T15:00:00Z"},
        [("19T08", "repair", "xid 79"), ("20T15", "repair", "xid 79")],
    ),
    "another reason is found": Case(
        OUT | {"since": DAY_19},
        {"service": "repair", "reason": "fan", "since": DAY_19},
        [("19T08", "repair", "fan"), ("19T08", "repair", "xid 79")],
    ),
    "history has told it already": Case(
        OUT | {"since": DAY_19},
        OUT | {"since": DAY_19},
        [("19T08", "repair", "xid 79")],
        [told(DAY_19, "repair", "xid 79")],
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_a_change_of_service_is_a_transition(sentence: str, tmp_path: Path) -> None:
    first, second, want, history = CASES[sentence]
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=[row("nodes", **first)], history=history))
    importer.now = NOW + timedelta(hours=6)
    importer.bring(write_fleet(tmp_path, nodes=[row("nodes", **second)], history=history))
    assert timeline(importer) == want


@pytest.mark.parametrize("sentence", CASES)
def test_a_story_is_the_same_in_a_database_that_only_got_the_export(sentence: str, tmp_path: Path) -> None:
    first, second, want, history = CASES[sentence]
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=[row("nodes", **first)], history=history))
    importer.now = NOW + timedelta(hours=6)
    importer.bring(write_fleet(tmp_path, nodes=[row("nodes", **second)], history=history))
    exported = importer.export(tmp_path / "out")
    assert not importer.bring(exported).is_change
    heir = Importer()
    heir.now = NOW + timedelta(days=3)
    heir.bring(exported)
    assert heir.sheets() == importer.sheets()
    told_by_export = [entry for entry in timeline(heir) if entry[0] != "23T12"]
    assert told_by_export == want


def test_what_was_only_noticed_is_not_told_as_a_second_beginning(tmp_path: Path) -> None:
    importer = Importer()
    history = [told("2026-01-05T11:00:00Z", "repair", "xid 79")]
    importer.bring(write_fleet(tmp_path, nodes=[row("nodes", **OUT)], history=history))
    assert importer.sheets()["history"][1:] == [["2026-01-05T11:00:00Z", "n1", "repair", "xid 79"]]


def test_many_nodes_told_in_a_jumble_have_the_timelines_of_the_sorted_file(tmp_path: Path) -> None:
    rng = random.Random(seed := 7)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    services = ["draining", "repair", "validating", "in_service", "quarantined"]
    rows = [
        told(
            (start + timedelta(hours=rng.randrange(200))).isoformat(),
            rng.choice(services),
            rng.choice(["", "xid 79", "fan"]),
            f"n{rng.randrange(1, 21)}",
        )
        for _ in range(600)
    ]
    jumbled, ordered = Importer(), Importer()
    jumbled.bring(write_fleet(tmp_path / "jumbled", nodes=nodes(20), history=rows))
    ordered.bring(
        write_fleet(tmp_path / "sorted", nodes=nodes(20), history=sorted(rows, key=lambda each: each["time"]))
    )
    assert jumbled.of(Health).timelines.keys() == ordered.of(Health).timelines.keys(), f"seed {seed}"
    for name in jumbled.of(Health).timelines:
        story = timeline(jumbled, name)
        assert story == timeline(ordered, name), f"seed {seed}"
        mine = {(each["time"], each["service"], each["reason"]) for each in rows if each["node"] == name}
        assert len(story) == len(mine), f"seed {seed}"


MOMENTS = [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), NOW]


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_moment_is_a_number_and_back(moment: datetime) -> None:
    assert from_microseconds(to_microseconds(moment)) == moment


def test_moments_count_from_1970() -> None:
    assert to_microseconds(datetime(1970, 1, 2, 0, 0, 0, 1, tzinfo=UTC)) == 86_400_000_001
    assert to_microseconds(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -1_000_000


MARKS = [Mark(Service.IN_SERVICE), Mark(Service.IN_SERVICE, "withdrawn: mistaken"), Mark(Service.VALIDATING)]
MARKS += [Mark(Service.QUARANTINED, "xid 79"), Mark(Service.MAINTENANCE, "planned: firmware"), Mark(Service.RETIRED)]


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, len(MARKS) - 1)), max_size=16), st.integers(1, 4))
def test_a_lemon_has_so_many_transitions_at_least(steps: list[tuple[int, int]], times: int) -> None:
    """What spares most nodes a closer look never spares a lemon it."""
    health, since = Health(Journal()), NOW - timedelta(hours=600)
    for hours, (_, number) in zip(itertools.accumulate(step for step, _ in steps), steps, strict=True):
        health.add("n1", to_microseconds(NOW - timedelta(hours=1200 - hours)), MARKS[number])
    known = health.timelines.get("n1", EMPTY_TIMELINE)
    if count_exits(Node("n1", "tiger", "tiger-a", "H200", 8, Service.IN_SERVICE), health, since) >= times:
        assert known.has_since(to_microseconds(since), 2 * times - 2)
    moments = [moment for moment, _ in known.entries() if moment >= to_microseconds(since)]
    for count in range(len(steps) + 2):
        assert known.has_since(to_microseconds(since), count) == (len(moments) >= count)
