"""Flex: how much there is, how often there was, whose it could be, and who gives it back first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.quota.flex import FlexPast, PoolFlex, TeamFlex, fair_shares, flex_now, flex_past
from plimsoll.quota.history.past import last_hours, pool_pasts
from plimsoll.quota.hull import look
from plimsoll.quota.lines import lines_now
from plimsoll.quota.plan import policy_in_force
from plimsoll.quota.policy import day_of
from plimsoll.state.state import State
from tests.support.fleets import nodes, row
from tests.support.imports import NOW
from tests.support.office import TIGER, Office, work

FAIR = {
    "the lowest flex for its guarantee goes first": (24, {"a": 24, "b": 24}, {"a": 16, "b": 32}, {"a": 8, "b": 16}),
    "a team without a guarantee comes last": (24, {"a": 16, "z": 24}, {"a": 8}, {"a": 16, "z": 8}),
    "who wants little leaves the rest": (32, {"a": 8, "b": 32}, {"a": 8, "b": 8}, {"a": 8, "b": 24}),
    "less than a node is dealt as it is": (12, {"a": 12}, {"a": 8}, {"a": 12}),
    "nothing is dealt where nothing is": (0, {"a": 8}, {"a": 8}, {"a": 0}),
    "nobody wants it": (16, {"a": 0}, {"a": 8}, {"a": 0}),
    "equal teams share evenly, ties by name": (24, {"a": 24, "b": 24}, {"a": 8, "b": 8}, {"a": 16, "b": 8}),
}


@pytest.mark.parametrize("sentence", FAIR)
def test_flex_is_dealt_by_what_teams_hold_for_their_guarantee(sentence: str) -> None:
    capacity, wanted, weights, want = FAIR[sentence]
    assert fair_shares(capacity, wanted, weights, step=8) == want


@given(
    capacity=st.integers(0, 400),
    wanted=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 200)),
    weights=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100)),
    step=st.sampled_from([1, 4, 8]),
)
def test_nobody_gets_a_node_while_a_team_with_less_for_its_guarantee_wants_one(
    capacity: int, wanted: dict[str, int], weights: dict[str, int], step: int
) -> None:
    shares = fair_shares(capacity, wanted, weights, step=step)
    assert sum(shares.values()) == min(capacity, sum(wanted.values()))
    assert all(0 <= shares[team] <= wanted[team] for team in wanted)
    for poor in wanted:
        for rich in wanted:
            poor_weight, rich_weight = weights.get(poor, 0), weights.get(rich, 0)
            if shares[poor] == wanted[poor] or not shares[rich] or poor == rich or not poor_weight:
                continue
            assert rich_weight, "without a guarantee one comes last"
            assert (shares[rich] - step) * poor_weight <= shares[poor] * rich_weight


def flex_of(office: Office, *teams: str) -> PoolFlex:
    [flex] = flex_now(office.state, [TIGER], policy_in_force(office.state), now=office.now, teams=teams)
    return flex


def available(flex: PoolFlex) -> dict[str, tuple[int, int]]:
    return {team.team: (team.free, team.won_back) for team in flex.teams}


def test_standing_lent_used_and_free_add_up() -> None:
    """80 healthy, 56 guaranteed; vision runs 16 of its 32, voice 32 on its 24."""
    works = [work("train", "vision", 16, kind="gang"), work("serve", "voice", 32)]
    flex = flex_of(Office(works=works), "zeta")
    assert (flex.guaranteed, flex.inside, flex.standing, flex.lent, flex.used, flex.free) == (56, 40, 24, 16, 8, 32)
    # Vision fills its own 16 first: of the other 24, voice holds 8. Zeta is guaranteed nothing and gets what is free.
    assert available(flex) == {"vision": (16, 0), "voice": (32, 0), "zeta": (32, 0)}
    voice = next(team for team in flex.teams if team.team == "voice")
    assert voice == TeamFlex("voice", 24, 24, 8, round(8 / 24, 4), 32, 0)


def test_fair_share_wins_back_what_others_hold_beyond_theirs() -> None:
    """Voice holds 32 of the flex, 8 GPUs are free; vision would fill its own guarantee with 16 and then go first."""
    works = [work("train", "vision", 16, kind="gang"), work("serve", "voice", 56)]
    flex = flex_of(Office(works=works), "zeta")
    assert (flex.used, flex.free) == (32, 8)
    assert available(flex) == {"vision": (0, 16), "voice": (8, 0), "zeta": (8, 0)}


def test_before_the_first_alignment_only_what_is_free_can_be_had() -> None:
    works = [work("train", "vision", 16), work("serve", "voice", 56)]
    flex = flex_of(Office(works=works, is_aligned=False))
    assert (flex.is_aligned, flex.guaranteed, flex.standing, flex.used, flex.free) == (False, 0, 80, 72, 8)
    assert available(flex) == {"vision": (8, 0), "voice": (8, 0)}


def test_health_that_collapses_leaves_no_flex_and_no_negative_numbers() -> None:
    rows = nodes(10, service="repair", since="2026-01-20T11:00:00Z", reason="fire")
    flex = flex_of(Office(rows=rows, line=80, works=[work("serve", "voice", 56)]))
    assert (flex.healthy, flex.standing, flex.lent, flex.used, flex.free) == (0, 0, 0, 0, 0)
    assert available(flex) == {"vision": (0, 0), "voice": (0, 0)}


TWELVE_HOURS_OUT = [
    row("history", time="2026-01-19T00:00:00Z", node="n1", service="repair", reason="xid 79"),
    row("history", time="2026-01-19T12:00:00Z", node="n1", service="in_service", reason=""),
]


def past_of(state: State, *, days: int = 2) -> FlexPast:
    policy = policy_in_force(state)
    [pool] = look(state, [TIGER], policy, day_of(NOW))
    hours = last_hours(state, days=days, now=NOW)
    past = pool_pasts(state, [TIGER], until=NOW)[TIGER]
    return flex_past(state, pool, past, lines_now(state, policy, now=NOW)[TIGER], hours)


AVAILABLE = {
    "a node less than stands now, all the time": (16, 1.0, 1, 36.0),
    "all that stands now, since the node is back": (24, 0.6667, 1, 24.0),
    "more than ever stood": (32, 0.0, 0, None),
}


@pytest.mark.parametrize("sentence", AVAILABLE)
def test_how_often_and_for_how_long_flex_was_there(sentence: str) -> None:
    """What is known begins 36 hours ago: for 12 of them a node was out, so 16 of the 24 stood."""
    gpus, want_share, want_spells, want_median = AVAILABLE[sentence]
    past = past_of(Office(history=TWELVE_HOURS_OUT).state)
    found = past.standing_of(gpus)
    assert (found.hours, found.share, found.spells, found.spell_hours_median) == (
        36,
        want_share,
        want_spells,
        want_median,
    )


def test_lent_flex_of_the_past_counts_with_todays_use() -> None:
    works = [work("train", "vision", 16, kind="gang"), work("serve", "voice", 32)]
    past = past_of(Office(history=TWELVE_HOURS_OUT, works=works).state)
    assert past.with_lent_of(40).share == 0.6667
    assert past.with_lent_of(32).share == 1.0
    assert (past.level(0.99, 8), past.level(0.5, 8)) == (16, 24)
    assert "today's guarantees" in past.says


def test_without_a_past_nobody_says_how_often() -> None:
    past = past_of(Office().state)
    assert (past.standing_of(8).share, past.standing_of(8).hours) == (None, 0)
    assert past.level(0.99, 8) is None


def busy_office() -> Office:
    """80 healthy, 64 guaranteed, 8 free. Voice holds 24 flex for 24 guaranteed, audio 16 for 8."""
    return Office(
        {"vision": 32, "voice": 24, "audio": 8},
        works=[
            work("serve", "voice", 48),
            work("train", "audio", 8, kind="gang", tier="critical"),
            work("tune", "audio", 8, kind="gang"),
            work("grade", "audio", 8, tier="high"),
        ],
    )


CALLED = {
    "what is free is enough": (8, 8, [], 0),
    "the team with the most flex for its guarantee gives first, elastic before gangs": (
        16,
        8,
        [("audio", "grade", 8)],
        0,
    ),
    "then whoever holds most": (32, 8, [("audio", "grade", 8), ("voice", "serve", 16)], 0),
}


@pytest.mark.parametrize("sentence", CALLED)
def test_a_guarantee_calls_back_what_is_lent(sentence: str) -> None:
    gpus, want_free, want_victims, want_short = CALLED[sentence]
    office = busy_office()
    called = office.call_back(gpus=gpus)
    assert (called.free, called.short) == (want_free, want_short)
    assert [(each.team, each.work, each.gpus) for each in called.victims] == want_victims
    assert called.due == NOW + timedelta(minutes=15)
    assert len(office.book.callbacks.get(TIGER, ())) == bool(want_victims)


def test_what_runs_as_flex_is_told_in_the_order_in_which_it_goes() -> None:
    """Audio's grader first (2.0), then voice, which holds more than audio for the same ratio, down to audio's gang."""
    works = [(each.team, each.work, each.gpus) for each in flex_of(busy_office()).works]
    assert works == [("audio", "grade", 8), ("voice", "serve", 24), ("audio", "tune", 8)]


def test_a_gang_gives_back_whole() -> None:
    """28 are free, so 4 are missing; the only flex is a gang of 32."""
    office = Office({"vision": 32, "voice": 24}, works=[work("big", "voice", 32, kind="gang"), work("x", "voice", 20)])
    # Voice: the gang of 32 does not fit 24 and is flex whole; 20 elastic are inside. Free: 80 - 52 = 28.
    called = office.call_back(gpus=32)
    assert (called.free, called.called, called.short) == (28, 32, 0)
    assert [(each.work, each.gpus) for each in called.victims] == [("big", 32)]


def test_the_same_flex_is_not_called_back_twice() -> None:
    office = busy_office()
    assert [each.work for each in office.call_back(gpus=16).victims] == ["grade"]
    second = office.call_back(gpus=16)
    assert second.free == 0
    assert [(each.team, each.work, each.gpus) for each in second.victims] == [("voice", "serve", 16)]
    assert "has 0 of them unused and 32 of it called back already" in office.refused(lambda o: o.call_back()).message


def test_a_callback_that_is_due_is_forgotten() -> None:
    office = busy_office()
    office.call_back(gpus=32)
    office.wait(minutes=15)
    assert [each.work for each in office.call_back(gpus=16).victims] == ["grade"]
    assert len(office.book.callbacks[TIGER]) == 1


def test_what_is_not_healthy_can_not_be_called_back() -> None:
    """Four nodes are out: 48 healthy for 56 guaranteed, 24 of which voice uses."""
    rows = [*nodes(6), *nodes(4, prefix="x", service="repair", since="2026-01-20T11:00:00Z", reason="xid 79")]
    called = Office(rows=rows, line=80, works=[work("serve", "voice", 24)]).call_back(gpus=32)
    assert (called.free, called.called, called.short, called.victims) == (24, 0, 8, [])


REFUSED: dict[str, tuple[Callable[[], Office], str, int, str]] = {
    "more than it is guaranteed and does not use": (Office, "vision", 40, "over_guarantee"),
    "nothing was aligned": (lambda: Office(is_aligned=False), "vision", 8, "not_aligned"),
    "a team without a guarantee": (lambda: Office({"vision": 32}), "voice", 8, "over_guarantee"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_can_not_be_called_back(sentence: str) -> None:
    build, team, gpus, want_code = REFUSED[sentence]
    assert build().refused(lambda office: office.call_back(team, gpus)).code == want_code
