"""How a trace is dealt to a fleet's teams: deterministic, by share, and said in words."""

from __future__ import annotations

import pytest

from plimsoll.errors import Refused
from plimsoll.fleet.model import Service
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import QuotaKey
from plimsoll.simulate.model import Cast, Job, Settings, Trace
from plimsoll.simulate.outcome import first_moment
from plimsoll.simulate.scene import largest_remainder, set_scene
from plimsoll.state.state import State
from tests.support.yard import Yard

HOUR = 3_600_000_000
AT = 1_800_000_000_000_000


def jobs(*groups: str, gpus: int = 8) -> Trace:
    return Trace("trace.csv", [Job(AT + place, HOUR, gpus, group) for place, group in enumerate(groups)])


def cast(state: State, trace: Trace, seed: int = 1) -> Cast:
    return set_scene(state, trace, Settings(seed=seed), policy=None, now=first_moment(trace))


SHARES = {
    "exact": (10, [1.0, 1.0], [5, 5]),
    "the largest rest gets the odd one": (10, [2.0, 1.0], [7, 3]),
    "ties go to who comes first": (1, [1.0, 1.0], [1, 0]),
    "nobody asked for anything": (5, [0.0, 0.0], [0, 0]),
}


@pytest.mark.parametrize(("whole", "weights", "want"), SHARES.values(), ids=SHARES.keys())
def test_shares_are_whole(whole: int, weights: list[float], want: list[int]) -> None:
    assert largest_remainder(whole, weights) == want


def test_a_group_with_a_teams_name_is_that_team_and_others_go_where_there_is_most_quota_for_them() -> None:
    state = Yard({"tiger": {"a": 8}}, {"tiger": {"cod": 8, "eel": 32}}).state
    found = cast(state, jobs("cod", "x", "y"))
    assert [each.spec.team for each in found.planned] == ["cod", "eel", "eel"]
    assert "2 groups of the trace became 1 of the fleet's 2 teams" in found.assumed


def test_pools_that_are_not_aligned_are_aligned_first() -> None:
    state = Yard({"tiger": {"a": 8}}, assigned={"tiger": {"cod": 64}}).state
    found = cast(state, jobs("cod"))
    # The default policy keeps 15 % back: of 8 nodes 6.8, so 6 whole ones are promised.
    assert state.of(QuotaBook).guaranteed == {QuotaKey("cod", "tiger", "H200"): 48}
    assert any("1 pool aligned by fixed:0.15: 48 GPUs are guaranteed" in each for each in found.assumed)


def test_a_trace_without_groups_is_dealt_by_the_seed() -> None:
    trace = jobs(*[""] * 200)
    first, again, other = (cast(Yard({"tiger": {"a": 16}}).state, trace, seed) for seed in (1, 1, 2))
    assert [each.spec for each in first.planned] == [each.spec for each in again.planned]
    assert [each.spec.team for each in first.planned] != [each.spec.team for each in other.planned]
    assert len(first.teams) == 12


def test_a_fleet_in_which_nothing_works_is_refused() -> None:
    yard = Yard({"tiger": {"a": 2}})
    yard.set_service(["tiger-a-1", "tiger-a-2"], Service.REPAIR)
    with pytest.raises(Refused) as error:
        cast(yard.state, jobs("cod"))
    assert error.value.code == "no_capacity"


def test_a_trace_of_which_nothing_fits_is_refused_with_the_largest_island() -> None:
    with pytest.raises(Refused) as error:
        cast(Yard({"tiger": {"a": 2}}).state, jobs("cod", gpus=24))
    assert error.value.code == "nothing_fits"
    assert "the largest has 16 GPUs" in error.value.message
