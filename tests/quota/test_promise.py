"""Promise kept: which team-hours count, which are broken, and why. Numbers are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.quota.history.promise import Breach, Broken, PromiseKept, promise_kept
from tests.support.imports import NOW
from tests.support.office import Office

FOUR = ("n1", "n2", "n3", "n4")
"""32 of the 80 GPUs: without them 48 are healthy, and 56 are guaranteed from 12:00 on."""
EVENING = datetime(2026, 1, 20, 22, 0, tzinfo=UTC)


def at(text: str) -> datetime:
    """A time of the day of the tests."""
    return datetime.fromisoformat(f"2026-01-20T{text}:00+00:00")


def kept(office: Office, *, days: int = 1, now: datetime = EVENING, **options: object) -> PromiseKept:
    return promise_kept(office.state, days=days, now=now, **options)  # type: ignore[arg-type]


def out(office: Office, begin: str, end: str = "", names: Sequence[str] = FOUR, **fields: str) -> None:
    office.tell(fields.get("service", "repair"), *names, at=at(begin), reason=fields.get("reason", "xid 79: GPU 3"))
    if end:
        office.tell("in_service", *names, at=at(end), reason="")


class Want(NamedTuple):
    team_hours: int
    broken_hours: int
    spells: list[tuple[str, str, int, int, str]]
    """From, until, hours, missing, cause."""


def nothing_breaks(office: Office) -> None:
    out(office, "14:30", "16:15", FOUR[:3])


def four_nodes(office: Office) -> None:
    out(office, "14:30", "16:15")


def promise_lowered(office: Office) -> None:
    four_nodes(office)
    office.now = at("15:00")
    office.align({"vision": 32, "voice": 16}, line=48)


def promise_raised_after_the_return(office: Office) -> None:
    office.align({"vision": 32, "voice": 16}, line=48)
    out(office, "12:10", "13:20")
    office.now = at("13:30")
    office.align({"vision": 32, "voice": 24}, line=56)


def before_the_alignment(office: Office) -> None:
    out(office, "11:00", "12:00")


def planned(office: Office) -> None:
    out(office, "14:00", "15:00", reason="planned: firmware", service="maintenance")


def faults_and_planned(office: Office) -> None:
    out(office, "14:00", "15:00", FOUR[:2])
    out(office, "14:00", "15:00", FOUR[2:], reason="planned: firmware", service="maintenance")


def faults_alone_are_enough(office: Office) -> None:
    out(office, "14:00", "15:00")
    out(office, "14:00", "15:00", ["n5"], reason="planned: firmware", service="maintenance")


def retired(office: Office) -> None:
    office.tell("retired", *FOUR, at=at("21:00"), reason="sold")


def one_spell(office: Office) -> None:
    out(office, "14:05", "14:10")
    out(office, "15:50", "15:55")


def two_spells(office: Office) -> None:
    out(office, "14:05", "14:10")
    out(office, "16:05", "16:10")


def goes_on(office: Office) -> None:
    out(office, "21:30")


def deeper(office: Office) -> None:
    out(office, "14:00", "16:00")
    out(office, "15:00", "15:30", ["n5", "n6"])


def a_team_that_comes_later(office: Office) -> None:
    out(office, "12:30", "13:00")
    office.now = at("20:00")
    office.align({"vision": 32, "voice": 24, "audio": 8}, line=80)


CASES: dict[str, tuple[Callable[[Office], None], Want]] = {
    "all that was promised was there": (nothing_breaks, Want(20, 0, [])),
    "four nodes are out over three hours": (
        four_nodes,
        Want(20, 6, [("14:30", "16:15", 3, 8, "unplanned")]),
    ),
    "the promise was lowered in time": (promise_lowered, Want(20, 2, [("14:30", "15:00", 1, 8, "unplanned")])),
    "it was raised in the hour of the return, after it": (promise_raised_after_the_return, Want(20, 0, [])),
    "nothing was promised before the first alignment": (before_the_alignment, Want(20, 0, [])),
    "planned work": (planned, Want(20, 2, [("14:00", "15:00", 1, 8, "planned_work")])),
    "planned work on top of faults that alone would not matter": (
        faults_and_planned,
        Want(20, 2, [("14:00", "15:00", 1, 8, "planned_work")]),
    ),
    "faults that alone are enough": (faults_alone_are_enough, Want(20, 2, [("14:00", "15:00", 1, 16, "unplanned")])),
    "nodes left for good": (retired, Want(20, 2, [("21:00", "22:00", 1, 8, "retired")])),
    "hours that follow each other are one spell": (one_spell, Want(20, 4, [("14:05", "15:55", 2, 8, "unplanned")])),
    "a whole hour between them makes two": (
        two_spells,
        Want(20, 4, [("14:05", "14:10", 1, 8, "unplanned"), ("16:05", "16:10", 1, 8, "unplanned")]),
    ),
    "it goes on": (goes_on, Want(20, 2, [("21:30", "22:00", 1, 8, "unplanned")])),
    "the worst moment is told": (deeper, Want(20, 4, [("14:00", "16:00", 2, 24, "unplanned")])),
    "a team is hurt only while it is promised something": (
        a_team_that_comes_later,
        Want(22, 2, [("12:30", "13:00", 1, 8, "unplanned")]),
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_promise_kept(sentence: str) -> None:
    happen, want = CASES[sentence]
    office = Office()
    happen(office)
    found = kept(office)
    assert (found.fleet.team_hours, found.fleet.broken_hours) == (want.team_hours, want.broken_hours)
    assert [
        (f"{spell.begin:%H:%M}", f"{spell.end:%H:%M}", spell.hours, spell.missing, str(spell.cause))
        for spell in found.spells
    ] == want.spells


def test_a_spell_names_its_nodes_reasons_teams_and_whose_move_it_is() -> None:
    office = Office()
    four_nodes(office)
    found = kept(office)
    [spell] = found.spells
    assert (spell.guaranteed, spell.healthy, spell.worst_at, spell.is_open) == (56, 48, at("14:30"), False)
    assert (list(spell.nodes), list(spell.teams)) == (list(FOUR), ["vision", "voice"])
    [loss] = spell.reasons
    assert (loss.reason, loss.is_planned, loss.nodes, loss.gpus) == ("xid 79", False, 4, 32)
    assert spell.move.startswith("hardware")
    assert (found.guaranteed_gpu_hours, found.missing_gpu_hours) == (560.0, 14.0)
    assert found.fleet.kept_share == 0.7


def test_the_level_is_told_by_team_cluster_and_policy() -> None:
    office = Office()
    four_nodes(office)
    office.now = at("18:00")
    office.align({"vision": 32}, line=80, policy="fixed:0.15")
    found = kept(office)
    assert [(each.name, each.team_hours, each.broken_hours) for each in found.teams] == [
        ("voice", 6, 3),
        ("vision", 10, 3),
    ]
    assert [(each.name, each.team_hours, each.broken_hours) for each in found.clusters] == [("tiger", 16, 6)]
    assert [(each.name, each.team_hours, each.broken_hours) for each in found.policies] == [
        ("fixed:0", 12, 6),
        ("fixed:0.15", 4, 0),
    ]


def test_one_team_and_one_cluster_can_be_asked_for() -> None:
    office = Office()
    four_nodes(office)
    assert kept(office, teams=["vision"]).fleet.team_hours == 10
    assert kept(office, clusters=["lion"]).fleet.kept_share is None
    assert kept(office, teams=["audio"]).spells == []


def test_a_renamed_team_keeps_its_past() -> None:
    office = Office()
    four_nodes(office)
    office.now = at("18:00")
    office.rename("vision", "sight")
    assert [(each.name, each.broken_hours) for each in kept(office).teams] == [("sight", 3), ("voice", 3)]


def test_only_whole_hours_of_the_period_count() -> None:
    office = Office()
    four_nodes(office)
    assert kept(office, now=at("14:59")).fleet.broken_hours == 0
    assert kept(office, now=at("15:00")).fleet.broken_hours == 2
    late = EVENING + timedelta(days=1)
    assert kept(office, now=late).fleet.team_hours == 48
    assert kept(office, now=late).fleet.broken_hours == 0


def test_nothing_was_aligned() -> None:
    found = kept(Office(is_aligned=False))
    assert (found.fleet.team_hours, found.fleet.kept_share, found.not_aligned) == (0, None, 1)


def test_somebody_else_can_tell_that_a_promise_broke() -> None:
    """What waits although it fits its guarantee is the scheduler's to find: it breaks the hours of that team alone."""
    office = Office()
    breach = Breach("tiger", "H200", ["vision"], at("13:30"), at("14:30"), 16, Broken.WAITED)
    found = kept(office, breaches=[breach])
    assert [(each.name, each.broken_hours) for each in found.teams] == [("vision", 2), ("voice", 0)]
    [spell] = found.spells
    assert (spell.hours, spell.cause, list(spell.teams)) == (2, Broken.WAITED, ["vision"])


MINUTES = st.integers(1, 9 * 60)


@given(
    outages=st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3", "n4", "n5"]), MINUTES, MINUTES), max_size=6),
    changes=st.lists(st.tuples(MINUTES, st.integers(0, 4), st.integers(0, 4)), max_size=3),
)
def test_a_walk_over_all_minutes_finds_the_same(
    outages: list[tuple[str, int, int]], changes: list[tuple[int, int, int]]
) -> None:
    """Five nodes of eight; every minute from 12:00 on is looked at by plain loops."""
    office = Office({"vision": 16, "voice": 16}, rows=5, line=40)
    down: dict[str, set[int]] = {}
    for node, first, second in outages:
        begin, end = min(first, second), max(first, second)
        if begin == end or down.get(node, set()) & set(range(begin - 1, end + 1)):
            continue
        down.setdefault(node, set()).update(range(begin, end))
        office.tell("repair", node, at=NOW + timedelta(minutes=begin))
        office.tell("in_service", node, at=NOW + timedelta(minutes=end), reason="")
    promised = {0: {"vision": 16, "voice": 16}}
    for minute, vision, voice in sorted(changes):
        office.now = NOW + timedelta(minutes=minute)
        wanted = {"vision": 8 * vision, "voice": 8 * voice}
        promised[minute] = {team: gpus for team, gpus in wanted.items() if gpus}
        office.align(promised[minute], line=80)
    counted, broken = set(), set()
    for minute in range(10 * 60):
        teams = promised[max(each for each in promised if each <= minute)]
        healthy = 40 - 8 * sum(minute in minutes for minutes in down.values())
        for team in teams:
            counted.add((team, minute // 60))
            if healthy < sum(teams.values()):
                broken.add((team, minute // 60))
    level = kept(office).fleet
    assert (level.team_hours, level.broken_hours) == (len(counted), len(broken))
