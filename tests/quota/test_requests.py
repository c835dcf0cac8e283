"""Requests: the options they get, in their order and with their numbers, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from plimsoll.errors import Refused, UsageError
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.changes import NodeMoved
from plimsoll.health.facts import Facts
from plimsoll.quota.model import Grant, RequestState
from plimsoll.quota.requests import desk
from plimsoll.quota.requests.desk import Asked
from plimsoll.quota.requests.headroom import expected_returns
from plimsoll.quota.requests.moves import end_grant
from plimsoll.quota.requests.options import Code, answer_request
from plimsoll.state.state import State
from tests.support.fleets import nodes, row
from tests.support.imports import NOW
from tests.support.office import TIGER, Office, floor_of, work

LION = row("clusters", cluster="lion", area="eu")
TWO_CLUSTERS = {
    "clusters": [row("clusters"), LION],
    "rows": [*nodes(10), *nodes(4, prefix="l", cluster="lion", island="lion-a")],
    "line": 80,
}
TWO_ISLANDS = [*nodes(6, prefix="a", island="tiger-a"), *nodes(4, prefix="b", island="tiger-b")]
FULL: dict[str, int] = {"vision": 40, "voice": 40}

OPTIONS: dict[str, tuple[Callable[[], Office], dict[str, Any], list[tuple[str, int, bool]]]] = {
    "there is room under the line": (
        Office,
        {"gpus": 24},
        [("guaranteed_now:tiger", 24, True), ("flex:tiger", 24, True), ("transfer:tiger", 24, True)],
    ),
    "a part of it is there": (
        lambda: Office({"vision": 64}, works=[work("train", "vision", 64)]),
        {"gpus": 24},
        [("guaranteed_now:tiger", 16, False), ("flex:tiger", 16, False), ("refused:tiger", 0, False)],
    ),
    "the lower of the two lines counts": (
        lambda: Office({"vision": 64}, line=72, works=[work("train", "vision", 64)]),
        {"gpus": 16},
        [("flex:tiger", 16, True), ("guaranteed_now:tiger", 8, False), ("refused:tiger", 0, False)],
    ),
    "all is promised, and another team leaves some unscheduled": (
        lambda: Office(FULL, works=[work("a", "vision", 40), work("b", "voice", 24)]),
        {"gpus": 16},
        [("flex:tiger", 16, True), ("transfer:tiger", 16, True)],
    ),
    "all is promised and used": (
        lambda: Office(FULL, works=[work("a", "vision", 40), work("b", "voice", 40)]),
        {"gpus": 16},
        [("refused:tiger", 0, False)],
    ),
    "nothing is guaranteed yet": (
        lambda: Office(is_aligned=False, works=[work("a", "vision", 64)]),
        {"gpus": 16},
        [("flex:tiger", 16, True), ("refused:tiger", 0, False)],
    ),
    "another cluster has no room, and nobody asked for it": (
        lambda: Office(**TWO_CLUSTERS),  # type: ignore[arg-type]
        {"gpus": 24, "area": "eu"},
        [("flex:lion", 24, True), ("refused:lion", 0, False)],
    ),
    "anywhere": (
        lambda: Office(**TWO_CLUSTERS),  # type: ignore[arg-type]
        {"gpus": 24},
        [
            ("guaranteed_now:tiger", 24, True),
            ("flex:lion", 24, True),
            ("flex:tiger", 24, True),
            ("transfer:tiger", 24, True),
        ],
    ),
    "an island is large enough": (
        lambda: Office({"vision": 16}, rows=TWO_ISLANDS),
        {"gpus": 48, "is_one_island": True},
        [("guaranteed_now:tiger", 48, True), ("flex:tiger", 48, True)],
    ),
    "no island is that large": (
        lambda: Office({"vision": 16}, rows=TWO_ISLANDS),
        {"gpus": 56, "is_one_island": True},
        [("guaranteed_now:tiger", 56, False), ("flex:tiger", 56, False), ("refused:tiger", 0, False)],
    ),
}


@pytest.mark.parametrize("sentence", OPTIONS)
def test_options_are_ranked(sentence: str) -> None:
    build, fields, want = OPTIONS[sentence]
    assert build().options("vision", **fields) == want


CAUSES: dict[str, tuple[Callable[[], Office], dict[str, Any], str, str]] = {
    "the line is full": (
        lambda: Office(FULL),
        {"gpus": 8},
        "promised",
        "80 are guaranteed of a line of 80: 0 left",
    ),
    "not aligned": (
        lambda: Office(is_aligned=False),
        {"gpus": 8},
        "not_aligned",
        "nothing is guaranteed yet; 56 are assigned of a line of 80",
    ),
    "the line in force is behind": (
        lambda: Office({"vision": 40}, line=40),
        {"gpus": 8},
        "line_in_force",
        "40 are guaranteed of a line in force of 40; it is 80 now",
    ),
    "nodes are out": (
        lambda: Office(FULL, rows=[*nodes(8), *nodes(2, prefix="x", service="repair", reason="xid 79")], line=80),
        {"gpus": 8},
        "nodes_out",
        "80 are guaranteed; 16 GPUs are out, the line is 64",
    ),
    "nothing works at all": (
        lambda: Office(FULL, rows=nodes(10, service="repair", reason="fire"), line=80),
        {"gpus": 8},
        "nodes_out",
        "80 are guaranteed; 80 GPUs are out, the line is 0",
    ),
    "the pool is smaller than that": (Office, {"gpus": 88}, "pool_too_small", "it has 80 GPUs in all"),
    "no island is that large": (
        lambda: Office({"vision": 16}, rows=TWO_ISLANDS),
        {"gpus": 56, "is_one_island": True},
        "no_island_this_large",
        "not in one island: the largest has 48, you need 56",
    ),
    "a gang stands in the way": (
        lambda: Office(
            {"vision": 16},
            rows=TWO_ISLANDS,
            works=[
                work("train", "vision", 16, kind="gang", island="tiger-a"),
                work("grade", "vision", 16, island="tiger-b"),
            ],
        ),
        {"gpus": 40, "is_one_island": True},
        "island_fragmented",
        "not in one island now: the largest has 32 free of gangs, you need 40",
    ),
    "who was cut comes first": (
        lambda: Office({"vision": 32, "voice": 24}, assigned={"vision": 64, "voice": 24}),
        {"gpus": 8},
        "cut_teams_first",
        "24 lie under the line, and 32 were cut before",
    ),
    "nothing stands in the way": (Office, {"gpus": 8}, "none", "24 can be promised"),
}


ALIGNED = "before the first alignment as if today's guarantees had been in force; work inside guarantees as it is now"
NOT_ALIGNED = (
    "nothing is guaranteed yet: as if what is assigned, up to the line, had been; work inside guarantees as it is now"
)
PASTS: dict[str, tuple[dict[str, Any], str]] = {
    "of one pool": ({"area": "us"}, ALIGNED),
    "of one that is not aligned": ({"area": "eu"}, NOT_ALIGNED),
    "of both, each as it is": ({}, f"lion: {NOT_ALIGNED}. tiger: {ALIGNED}"),
}


@pytest.mark.parametrize("sentence", PASTS)
def test_on_what_the_past_rests_is_said_of_the_pools_it_is_true_for(sentence: str) -> None:
    fields, want = PASTS[sentence]
    assert Office(**TWO_CLUSTERS).ask("vision", 24, **fields).past == want  # type: ignore[arg-type]


@pytest.mark.parametrize("sentence", CAUSES)
def test_every_no_has_a_cause_numbers_and_whose_move_it_is(sentence: str) -> None:
    build, fields, want_cause, want_why = CAUSES[sentence]
    answer = build().ask("vision", **fields)
    [pool] = answer.pools
    assert (str(pool.cause), pool.why) == (want_cause, want_why)
    assert bool(pool.cause.move) == (want_cause != "none")
    for option in answer.options:
        if option.code is Code.REFUSED:
            assert option.why.startswith(f"{want_cause}: tiger: ")
            assert option.move == pool.cause.move


def test_the_tightest_island_is_named_so_that_big_ones_stay_whole() -> None:
    answer = Office({"vision": 16}, rows=TWO_ISLANDS).ask("vision", 32, is_one_island=True)
    assert {option.island for option in answer.options if option.is_whole} == {"tiger-b"}


def test_flex_comes_with_the_share_of_time_it_was_there() -> None:
    history = [
        row("history", time="2026-01-19T00:00:00Z", node="n1", service="repair", reason="xid 79"),
        row("history", time="2026-01-19T12:00:00Z", node="n1", service="in_service", reason=""),
    ]
    answer = Office({"vision": 56}, history=history).ask("vision", 24)
    flex = next(option for option in answer.options if option.code is Code.FLEX)
    # 80 healthy for 24 of 36 hours, 72 for 12; 56 are guaranteed.
    assert (flex.share, flex.spell_hours, flex.share_with_lent) == (0.6667, 24.0, 1.0)
    assert flex.why == "24 free now; at least 24 stood free in 66.7% of the past 36 hours"


def test_givers_are_asked_for_what_is_unscheduled_first_and_keep_pins_and_blocks() -> None:
    """Voice leaves 16 unscheduled, audio 8 and has 16 idle; sonar is pinned, radar has a block, tactile works."""
    office = Office(
        {"vision": 8, "voice": 24, "audio": 32, "sonar": 16, "radar": 16, "tactile": 8},
        rows=13,
        works=[
            work("a", "voice", 8),
            work("b", "audio", 24, idle_gpus="16"),
            work("c", "tactile", 8),
            work("d", "vision", 8),
        ],
        pins=floor_of("sonar", 16),
        blocks=floor_of("radar", 16),
    )
    givers = next(o for o in office.ask("vision", 32).options if o.code is Code.TRANSFER).givers
    assert [(giver.team, giver.unscheduled, giver.idle) for giver in givers] == [("audio", 8, 8), ("voice", 16, 0)]


def test_what_a_gang_holds_idle_is_nobodys_to_give() -> None:
    """Voice trains on 24, of which 8 idle: with 16 the run would not fit its guarantee, and all of it would be flex."""
    office = Office(FULL, works=[work("a", "vision", 40), work("b", "voice", 24, kind="gang", idle_gpus="8")])
    givers = next(o for o in office.ask("vision", 32).options if o.code is Code.TRANSFER).givers
    assert [(giver.team, giver.unscheduled, giver.idle) for giver in givers] == [("voice", 16, 0)]


RETURNS: dict[str, tuple[dict[str, Any], list[tuple[timedelta, bool]], tuple[str, int, bool, datetime], str]] = {
    "a node comes back and is enough": (
        {"gpus": 8},
        [(timedelta(days=2), True), (timedelta(days=5), False)],
        ("guaranteed_from:tiger", 8, True, NOW + timedelta(days=2)),
        "1 node back: 8 can be promised then",
    ),
    "two must come back": (
        {"gpus": 16},
        [(timedelta(days=2), True), (timedelta(days=5), False)],
        ("guaranteed_from:tiger", 16, True, NOW + timedelta(days=5)),
        "2 nodes back, 1 of them by the forecast: 16 can be promised then",
    ),
    "all that come back are not enough": (
        {"gpus": 24},
        [(timedelta(days=2), True), (timedelta(days=5), False)],
        ("guaranteed_from:tiger", 16, False, NOW + timedelta(days=5)),
        "2 nodes back, 1 of them by the forecast: 16 can be promised then",
    ),
    "it is needed later than that": (
        {"gpus": 8, "starts": NOW + timedelta(days=9)},
        [(timedelta(days=2), True)],
        ("guaranteed_from:tiger", 8, True, NOW + timedelta(days=9)),
        "1 node back: 8 can be promised then",
    ),
}


def office_with_two_out(**fields: Any) -> Office:
    """64 of 80 healthy, all of them guaranteed."""
    rows = [*nodes(8), *nodes(2, prefix="x", service="repair", reason="xid 79")]
    return Office({"vision": 64}, rows=rows, line=64, works=[work("train", "vision", 64)], **fields)


@pytest.mark.parametrize("sentence", RETURNS)
def test_a_guarantee_from_the_day_on_which_nodes_return(sentence: str) -> None:
    fields, returns, want, want_why = RETURNS[sentence]
    office = office_with_two_out()
    asked = Asked("vision", "H200", **fields)
    back = {TIGER: [(NOW + span, is_told) for span, is_told in returns]}
    answer, _ = desk.ask(office.state, asked, by="ada", now=NOW, returns=back)
    option = answer.options[0]
    assert (option.key, option.gpus, option.is_whole, option.starts) == want
    assert option.why == want_why


def test_what_comes_after_the_end_of_a_request_is_no_option() -> None:
    asked = Asked("vision", "H200", 8, ends=NOW + timedelta(days=2))
    back = {TIGER: [(NOW + timedelta(days=2), True)]}
    answer, _ = desk.ask(office_with_two_out().state, asked, by="ada", now=NOW, returns=back)
    assert [option.key for option in answer.options] == ["refused:tiger"]


def test_what_was_approved_from_a_day_on_begins_when_the_nodes_are_back() -> None:
    """The line in force is 64 until then; it follows the nodes, and nobody else's guarantee moves."""
    office = office_with_two_out()
    office.ask("vision", 16)
    back = {TIGER: [(NOW + timedelta(days=2), True), (NOW + timedelta(days=5), True)]}
    office.act(lambda state, now: desk.approve(state, "q1", now=now, returns=back))
    assert office.book.requests["q1"].state is RequestState.WAITING
    office.wait(days=5)
    [(_, why)] = office.settle().waiting
    assert why == "0 of 16 can be promised of tiger: line 64"
    for name in ("x1", "x2"):
        node = office.state.of(Fleet).nodes[name]
        office.commit(NodeRecorded(msgspec.structs.replace(node, service=Service.IN_SERVICE)))
    assert [request.id for request in office.settle().begun] == ["q1"]
    assert (office.book.line_of(TIGER), office.guaranteed()) == (80, {"vision": 80})


def test_returns_come_from_those_who_have_the_nodes_or_from_the_forecast() -> None:
    """A month of history; n1 is told to be back in two days, of n2 nobody said anything."""
    history = [
        row("history", time=f"2026-01-{day:02}T{hour:02}:00:00Z", node=node, service=service, reason="xid 79")
        for day in range(1, 17)
        for node, hour, service in (("n3", 1, "repair"), ("n3", 9, "in_service"))
    ] + [row("history", time="2026-01-19T12:00:00Z", node=node, service="repair") for node in ("n1", "n2")]
    rows = [
        row("nodes", node=f"n{number}", **({"service": "repair", "reason": "xid 79"} if number < 3 else {}))
        for number in range(1, 11)
    ]
    office = Office({"vision": 64}, rows=rows, line=64, history=history)
    told = Facts(expected_return=NOW + timedelta(days=2))
    office.commit(NodeMoved("n1", Service.REPAIR, told))
    [first, second] = sorted(expected_returns(office.state, [TIGER], now=NOW)[TIGER], key=lambda each: not each[1])
    assert first == (NOW + timedelta(days=2), True)
    assert (second[0] > NOW, second[1]) == (True, False)
    answer, _ = desk.ask(office.state, Asked("vision", "H200", 16), by="ada", now=NOW)
    assert answer.options[0].key == "guaranteed_from:tiger"


def test_without_history_only_what_was_told_counts() -> None:
    office = office_with_two_out()
    assert expected_returns(office.state, [TIGER], now=NOW) == {TIGER: []}
    office.commit(NodeMoved("x1", Service.REPAIR, Facts(expected_return=NOW + timedelta(days=2))))
    assert expected_returns(office.state, [TIGER], now=NOW) == {TIGER: [(NOW + timedelta(days=2), True)]}


def test_who_was_cut_gets_what_returns_before_a_new_request() -> None:
    rows = [*nodes(8), *nodes(2, prefix="x", service="repair", reason="xid 79")]
    office = Office({"vision": 64}, assigned={"vision": 72}, rows=rows, line=64, works=[work("train", "vision", 64)])
    asked = Asked("vision", "H200", 16)
    back = {TIGER: [(NOW + timedelta(days=2), True), (NOW + timedelta(days=5), True)]}
    answer, _ = desk.ask(office.state, asked, by="ada", now=NOW, returns=back)
    assert [(option.key, option.gpus) for option in answer.options] == [
        ("guaranteed_from:tiger", 8),
        ("refused:tiger", 0),
    ]


def test_a_guarantee_from_the_day_on_which_a_temporary_grant_ends() -> None:
    office = Office({"vision": 56}, works=[work("a", "vision", 56), work("b", "voice", 24)])
    office.ask("voice", 24, ends=NOW + timedelta(days=7), is_new_team=True)
    office.approve("q1")
    assert office.guaranteed() == {"vision": 56, "voice": 24}
    option = office.ask("vision", 16).options[0]
    assert (option.key, option.gpus, option.starts) == ("guaranteed_from:tiger", 16, NOW + timedelta(days=7))
    assert option.why == "temporary grants of 24 GPUs over: 24 can be promised then"


def test_the_answer_is_the_same_every_time() -> None:
    office = Office(**TWO_CLUSTERS)  # type: ignore[arg-type]
    request = office.ask("vision", 24).request
    first, second = (answer_request(office.state, request, now=NOW) for _ in range(2))
    assert msgspec.json.encode(first) == msgspec.json.encode(second)


# What becomes of a request.


def test_an_approval_grants_it() -> None:
    office = Office()
    office.ask("vision", 16)
    answered = office.approve("q1")
    assert (answered.state, answered.answer) == (RequestState.APPROVED, "guaranteed_now:tiger")
    assert office.holding("vision") == (48, 48)
    assert office.book.requests["q1"].state is RequestState.APPROVED
    assert not office.book.grants


def test_a_grant_with_an_end_goes_back_to_flex() -> None:
    office = Office()
    office.ask("vision", 16, ends=NOW + timedelta(days=14))
    office.approve("q1")
    [grant] = office.book.grants.values()
    assert grant == Grant(grant.id, "vision", "tiger", "H200", 16, NOW + timedelta(days=14))
    office.wait(days=14)
    office.settle()
    assert office.holding("vision") == (32, 32)


def test_a_transfer_is_approved_only_when_it_is_named() -> None:
    office = Office(FULL, works=[work("a", "vision", 40), work("b", "voice", 24)])
    office.ask("vision", 16, ends=NOW + timedelta(days=7))
    error = office.refused(lambda o: o.approve("q1"))
    assert (error.code, "only another team's quota" in error.message) == ("nothing_to_approve", True)
    office.approve("q1", "transfer:tiger")
    assert office.guaranteed() == {"vision": 56, "voice": 24}
    office.wait(days=7)
    office.settle()
    assert office.guaranteed() == FULL


def test_flex_can_be_the_answer_and_moves_no_quota() -> None:
    office = Office()
    office.ask("vision", 16)
    assert office.approve("q1", "flex:tiger").answer == "flex:tiger"
    assert office.guaranteed() == {"vision": 32, "voice": 24}


def test_an_option_is_named_by_its_number() -> None:
    office = Office()
    office.ask("vision", 16)
    assert office.approve("q1", "2").answer == "flex:tiger"


MONDAY = datetime(2026, 1, 26, tzinfo=UTC)


def test_what_begins_later_is_reserved_and_comes_by_itself() -> None:
    """24 can be promised; from Monday on 16 of them are vision's, and until then nobody else is promised those."""
    office = Office()
    office.ask("vision", 16, starts=MONDAY, ends=MONDAY + timedelta(days=14))
    assert office.approve("q1").state is RequestState.WAITING
    assert office.guaranteed()["vision"] == 32
    assert office.options("voice", 16)[:1] != [("guaranteed_now:tiger", 16, True)]
    assert ("guaranteed_now:tiger", 8, False) in office.options("voice", 16)
    assert office.settle().begun == []
    office.now = MONDAY
    assert [request.id for request in office.settle().begun] == ["q1"]
    assert office.guaranteed() == {"vision": 48, "voice": 24}
    office.wait(days=14)
    office.settle()
    assert office.guaranteed() == {"vision": 32, "voice": 24}


def test_what_was_reserved_waits_when_the_line_has_fallen() -> None:
    office = Office()
    office.ask("vision", 24, starts=MONDAY)
    office.approve("q1")
    office.align({"vision": 32, "voice": 24}, line=64)
    office.now = MONDAY
    due = office.settle()
    assert due.begun == []
    assert [(request.id, why) for request, why in due.waiting] == [("q1", "8 of 24 can be promised of tiger: line 64")]
    office.align({"vision": 32, "voice": 24}, line=80)
    office.settle()
    assert office.guaranteed()["vision"] == 56


def test_a_transfer_that_begins_later_waits_for_its_day_and_its_giver() -> None:
    """Voice is to give 16 of its 40 on Monday. It gives 32 away before; when it has enough again, it gives."""
    office = Office(FULL, works=[work("a", "vision", 40), work("b", "voice", 24)])
    office.ask("vision", 16, starts=MONDAY, ends=MONDAY + timedelta(days=14))
    assert office.approve("q1", "transfer:tiger").state is RequestState.WAITING
    assert office.guaranteed() == FULL
    loan = office.transfer("voice", "audio", 32, days=30, is_new_taker=True)
    office.now = MONDAY
    [(request, why)] = office.settle().waiting
    assert (request.id, why) == ("q1", "voice is guaranteed 8 GPUs of tiger H200 and can't give 16")
    office.act(lambda state, _now: end_grant(state, loan.grant))
    office.settle()
    assert office.guaranteed() == {"vision": 56, "voice": 24}
    office.wait(days=14)
    office.settle()
    assert office.guaranteed() == FULL


def test_room_that_a_broken_block_leaves_can_be_granted() -> None:
    """Of 80, voice is pinned to 40 and vision needs 48 whole or not at all: it got nothing, 40 lie under the line."""
    office = Office(
        {"voice": 40},
        assigned={"vision": 48, "voice": 40},
        pins=floor_of("voice", 40),
        blocks=floor_of("vision", 48),
    )
    assert office.options("voice", 40)[0] == ("guaranteed_now:tiger", 40, True)


def test_a_reservation_whose_time_is_over_expires() -> None:
    office = Office()
    office.ask("vision", 24, starts=MONDAY, ends=MONDAY + timedelta(days=1))
    office.approve("q1")
    office.align({"vision": 32, "voice": 24}, line=56)
    office.now = MONDAY + timedelta(days=1)
    assert [request.id for request in office.settle().expired] == ["q1"]
    assert "there was no room before" in office.book.requests["q1"].answer


def test_a_request_that_nobody_answers_expires() -> None:
    office = Office()
    office.ask("vision", 16)
    office.wait(days=14)
    assert [request.id for request in office.settle().expired] == ["q1"]
    error = office.refused(lambda o: o.approve("q1"))
    assert (error.code, error.fields["state"]) == ("already_answered", "expired")


def test_a_denial_says_why() -> None:
    office = Office()
    office.ask("vision", 16)
    office.deny("q1", "the launch comes first")
    assert office.book.requests["q1"].answer == "the launch comes first"
    assert office.guaranteed()["vision"] == 32


def test_a_withdrawn_reservation_is_free_again() -> None:
    office = Office()
    office.ask("vision", 24, starts=MONDAY)
    office.approve("q1")
    office.act(lambda state, _now: desk.withdraw(state, "q1"))
    assert ("guaranteed_now:tiger", 24, True) in office.options("voice", 24)


def ask_and(act: Callable[[Office], Any]) -> Callable[[], tuple[Office, Callable[[Office], Any]]]:
    def build() -> tuple[Office, Callable[[Office], Any]]:
        office = Office()
        office.ask("vision", 16)
        return office, act

    return build


def approved_and(act: Callable[[Office], Any]) -> Callable[[], tuple[Office, Callable[[Office], Any]]]:
    def build() -> tuple[Office, Callable[[Office], Any]]:
        office = Office()
        office.ask("vision", 16)
        office.approve("q1")
        return office, act

    return build


BAD: dict[str, tuple[Callable[[], tuple[Office, Callable[[Office], Any]]], str]] = {
    "for nothing": (ask_and(lambda o: o.ask("vision", 0)), "bad_gpus"),
    "for less than nothing": (ask_and(lambda o: o.ask("vision", -8)), "bad_gpus"),
    "for a part of a node": (ask_and(lambda o: o.ask("vision", 12)), "not_whole_nodes"),
    "by nobody we know": (ask_and(lambda o: o.ask("visoin", 8)), "no_such_team"),
    "of a SKU nobody has": (ask_and(lambda o: o.ask("vision", 8, sku="H20")), "no_such_sku"),
    "in a cluster that is not there": (ask_and(lambda o: o.ask("vision", 8, cluster="tigre")), "no_such_cluster"),
    "in an area that is not there": (ask_and(lambda o: o.ask("vision", 8, area="mars")), "no_such_area"),
    "in an area without it": (ask_and(lambda o: o.ask("vision", 8, area="uk")), "no_such_sku"),
    "with an end before its start": (
        ask_and(lambda o: o.ask("vision", 8, starts=MONDAY, ends=MONDAY - timedelta(days=1))),
        "bad_time",
    ),
    "with an end that has passed": (ask_and(lambda o: o.ask("vision", 8, ends=NOW)), "bad_time"),
    "approved twice": (approved_and(lambda o: o.approve("q1")), "already_answered"),
    "denied after it was approved": (approved_and(lambda o: o.deny("q1")), "already_answered"),
    "denied without a reason": (ask_and(lambda o: o.deny("q1", " ")), "reason_missing"),
    "approved, and there is no such request": (ask_and(lambda o: o.approve("q2")), "no_such_request"),
    "approved by an option it does not have": (ask_and(lambda o: o.approve("q1", "9")), "no_such_option"),
    "approved by option 0": (ask_and(lambda o: o.approve("q1", "0")), "no_such_option"),
    "approved by a word": (ask_and(lambda o: o.approve("q1", "best")), "no_such_option"),
}


WRONG_WORDS = ("bad_gpus", "not_whole_nodes", "bad_time", "reason_missing", "no_such_area")


@pytest.mark.parametrize("sentence", BAD)
def test_what_is_refused_changes_nothing(sentence: str) -> None:
    build, want_code = BAD[sentence]
    office, act = build()
    error = office.refused(act)
    assert error.code == want_code
    assert isinstance(error, UsageError) == (want_code in WRONG_WORDS)


BEGINS: dict[str, datetime | None] = {"grant": None, "reserve": MONDAY}


@pytest.mark.parametrize("what", BEGINS)
def test_two_approvals_of_the_last_room_give_it_once(what: str, sqlite_dsn: str) -> None:
    """Both looked when 24 were free. The second looks again, and 24 can't be promised any more."""
    office = Office(dsn=sqlite_dsn)
    office.ask("vision", 24, starts=BEGINS[what])
    office.ask("voice", 24, starts=BEGINS[what])
    seen: list[object] = []

    def decide(state: State, now: datetime) -> Any:
        found = desk.approve(state, "q2", now=now, returns={})
        if not seen:
            office.beside(*desk.approve(state, "q1", now=now, returns={})[1])
        seen.append(state)
        return found

    with pytest.raises(Refused, match="can't be guaranteed"):
        office.act(decide)
    assert len(seen) == 1
    assert office.book.requests["q2"].state is RequestState.OPEN
    assert office.guaranteed() == {"vision": 32 if BEGINS[what] else 56, "voice": 24}
