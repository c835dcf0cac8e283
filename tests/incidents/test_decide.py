"""Troubles become incidents: when one opens, what is noted, when it closes, and what it came to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.errors import PlimsollError
from plimsoll.incidents.changes import IncidentClosed, IncidentNoted, IncidentOpened
from plimsoll.incidents.desk import close_incident, find_incident, next_incident_id, note_incident, open_incident
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Numbers
from plimsoll.incidents.reasons import Kind
from plimsoll.ledger.model import Draft, Event
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.times import format_time
from tests.support.watch import START, Watch

POOL = "pool/tiger/H200"


class Case(NamedTuple):
    """Amounts by minute, and what each pass did."""

    passes: list[tuple[float, int]]
    want_did: list[str]
    want_numbers: tuple[float, int, float] | None = None
    """Minutes of trouble, the most, GPU-hours."""


CASES = {
    "no trouble opens nothing": Case([(0, 0), (10, 0)], ["", ""]),
    "trouble opens at once, and the same trouble is not noted again": Case([(0, 8), (1, 8)], ["opened", ""]),
    "another number is noted": Case([(0, 8), (30, 16), (31, 16)], ["opened", "noted", ""]),
    "it closes only when it was gone for a while": Case(
        [(0, 8), (60, 0), (64, 0), (65, 0), (90, 0)], ["opened", "noted", "", "closed", ""], (60, 8, 8.0)
    ),
    "half of the time twice as much is one and a half": Case(
        [(0, 8), (60, 16), (120, 0), (130, 0)], ["opened", "noted", "noted", "closed"], (120, 16, 24.0)
    ),
    "it comes back before it is closed: the quiet time does not count": Case(
        [(0, 8), (30, 0), (33, 8), (63, 0), (70, 0)], ["opened", "noted", "noted", "noted", "closed"], (60, 8, 8.0)
    ),
    "it comes back soon after it was closed: a note on the same incident": Case(
        [(0, 8), (30, 0), (35, 0), (60, 8), (90, 0), (95, 0)],
        ["opened", "noted", "closed", "noted", "noted", "closed"],
        (60, 8, 8.0),
    ),
    "it comes back much later: another incident": Case(
        [(0, 8), (30, 0), (35, 0), (61, 8)], ["opened", "noted", "closed", "opened"]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_course_of_a_trouble(case: Case) -> None:
    watch = Watch()
    did = [
        ", ".join(each.what for each in watch.look(minute, {POOL: amount} if amount else {}))
        for minute, amount in case.passes
    ]
    assert did == case.want_did
    if case.want_numbers is not None:
        (incident,) = watch.incidents
        minutes, most, gpu_hours = case.want_numbers
        assert incident.numbers == Numbers(minutes * 60, most, "gpus", gpu_hours, ("a",))
        assert incident.closed_at is not None


def test_two_troubles_have_an_incident_each_and_everybody_who_was_hurt_is_named() -> None:
    watch = Watch()
    watch.look(0, {POOL: 8, "feed/x": 3})
    watch.look(5, {POOL: 8}, teams=("b", "c"))
    assert [each.about for each in watch.incidents] == ["feed/x", POOL]
    assert watch.open_about(POOL)[0].teams == ("a", "b", "c")
    watch.look(10, {POOL: 8}, teams=("b",))
    assert not watch.open_about("feed/x")
    assert watch.open_about(POOL)[0].teams == ("a", "b", "c"), "who was hurt stays hurt"


def test_a_trouble_that_counts_nothing_comes_and_goes_too() -> None:
    watch = Watch()
    did = [[each.what for each in watch.look(minute, amounts)] for minute, amounts in ((0, {POOL: 0}), (1, {}))]
    assert did == [["opened"], ["noted"]]
    (back,) = watch.look(2, {POOL: 0})
    assert back.text.startswith("back: 0 GPUs short")
    assert watch.open_about(POOL)[0].is_on


def test_it_counts_from_when_the_trouble_began_not_from_when_somebody_looked() -> None:
    watch = Watch()
    watch.look(60, {POOL: 8}, since=START)
    (incident,) = watch.incidents
    assert (incident.opened_at, incident.noticed_at) == (START, watch.at(60))
    assert incident.numbers_at(watch.at(60)).unit_hours == 8.0
    watch.look(61, {})
    watch.look(66, {})
    watch.look(120, {POOL: 8}, since=START)
    assert watch.incidents[-1].opened_at == watch.at(66), "what the one before it had counted is not counted again"


def test_what_was_found_by_looking_holds_no_campaign_back_and_closes_by_itself_only() -> None:
    watch = Watch()
    watch.look(0, {POOL: 8})
    (incident,) = watch.incidents
    assert not incident.holds_campaigns
    assert not watch.tables.holding
    with pytest.raises(PlimsollError) as caught:
        close_incident(watch.state, incident.id, now=watch.at(1))
    assert caught.value.code == "trouble_lasts"
    watch.look(2, {})
    (draft,) = close_incident(watch.state, incident.id, now=watch.at(3))
    assert draft.change == IncidentClosed(incident.id, Numbers(120.0, 8, "gpus", round(8 * 2 / 60, 3), ("a",)))


def test_people_open_note_and_close_their_own() -> None:
    state = State(KINDS)

    def say(*drafts: Draft, minute: int = 0) -> None:
        state.assume(drafts, recorded_at=format_time(START + timedelta(minutes=minute)))

    say(*open_incident(state, next_incident_id(state), "fire", clusters=(), roster=("bob",)))
    say(*note_incident(state, "incident-1", "smoke too"), minute=1)
    incident = find_incident(state, "incident-1")
    assert (incident.kind, incident.holds_campaigns, incident.roster) == (Kind.PERSON, True, ("bob",))
    assert incident.notes == ((START + timedelta(minutes=1), "what-if", "smoke too"),)
    say(*close_incident(state, "incident-1", now=START), minute=30)
    assert not find_incident(state, "incident-1").holds_campaigns
    refusals: dict[str, Callable[[], list[Draft]]] = {
        "incident_closed": lambda: close_incident(state, "incident-1", now=START),
        "no_such_incident": lambda: note_incident(state, "incident-9", "x"),
        "bad_incident": lambda: note_incident(state, "incident-1", " "),
        "incident_exists": lambda: open_incident(state, "incident-1", "x", clusters=(), roster=()),
    }
    for code, act in refusals.items():
        with pytest.raises(PlimsollError) as caught:
            act()
        assert caught.value.code == code


OLD = {
    "incident.opened": '{"incident":"i","title":"fire","roster":["bob"],"clusters":["tiger"],"campaign":"nic"}',
    "incident.noted": '{"incident":"i","note":"smoke"}',
    "incident.closed": '{"incident":"i"}',
}


def test_events_of_an_older_ledger_still_fold() -> None:
    state = State(KINDS)
    at = format_time(START)
    for revision, (kind, payload) in enumerate(OLD.items(), start=1):
        state.apply(Event(revision, at, at, "alice", kind, "incident/i", "", payload, "", ""))
    incident = state.of(Incidents).incidents["i"]
    assert (incident.title, incident.campaign, incident.clusters) == ("fire", "nic", ("tiger",))
    assert incident.notes == ((START, "alice", "smoke"),)
    assert incident.closed_at == START
    assert not state.of(Incidents).posts.get("i-1"), "the start of a campaign is told by its own post"


def test_a_snapshot_brings_all_of_it_back_and_an_id_is_never_given_twice() -> None:
    watch = Watch()
    watch.look(0, {POOL: 8, "feed/x": 3})
    watch.look(10, {POOL: 9})
    watch.look(20, {POOL: 9})
    loaded = State(KINDS)
    loaded.load(watch.state.dump())
    assert loaded.dump() == watch.state.dump()
    for name in ("newest", "open_found", "holding", "waiting", "counts"):
        assert getattr(loaded.of(Incidents), name) == getattr(watch.tables, name), name
    assert next_incident_id(loaded) == "incident-3"
    changes = [draft.change for draft in watch.drafts]
    assert {type(change) for change in changes} == {IncidentOpened, IncidentNoted, IncidentClosed}
