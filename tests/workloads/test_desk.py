"""What people ask of workloads: submit twice, cancel what is gone, scale, rank, and keep quota for somebody."""

from __future__ import annotations

from datetime import timedelta

import pytest

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.quota.model import Kind, Tier
from plimsoll.workloads import desk
from tests.support.effort import effort
from tests.support.workload_checker import check_state
from tests.support.yard import NO_GRACE, Yard, elastic, gang, spec

LOW, HIGH, CRITICAL = Tier.LOW, Tier.HIGH, Tier.CRITICAL


def yard_of(nodes: int = 4, **guaranteed: int) -> Yard:
    return Yard({"tiger": {"a": nodes}}, {"tiger": guaranteed or {"x": nodes * 8}})


def test_the_same_twice_is_once() -> None:
    yard = yard_of()
    yard.submit(spec("w", "x", gang(8)))
    before = yard.state.revision
    assert desk.submit(yard.turn(), [spec("w", "x", gang(8))], grace=NO_GRACE) == {"w": desk.Outcome.SAME}
    assert yard.state.revision == before


def test_the_same_name_with_other_content_is_refused_and_says_what_differs() -> None:
    yard = yard_of()
    yard.submit(spec("w", "x", gang(8)))
    with pytest.raises(Refused, match="part train") as caught:
        yard.submit(spec("w", "x", gang(16)))
    assert caught.value.code == "name_taken"
    assert yard.islands("w") == {"a": 8}


def test_two_of_one_name_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        yard_of().submit(spec("w", "x", gang(8)), spec("w", "x", gang(8)))


def test_a_name_that_was_seen_running_is_refused() -> None:
    yard = yard_of()
    yard.observe("seen", "x", "tiger", "a", 8)
    with pytest.raises(Refused, match="nobody submitted"):
        yard.submit(spec("seen", "x", gang(8)))


def test_cancel_of_something_gone_says_what_became_of_it() -> None:
    yard = yard_of()
    yard.submit(spec("w", "x", gang(8)))
    yard.cancel("w")
    with pytest.raises(Refused, match="is over: cancelled") as caught:
        yard.cancel("w")
    assert caught.value.code == "already_over"


def test_cancel_of_something_unknown_names_what_is_near() -> None:
    yard = yard_of()
    yard.submit(spec("posttrain", "x", gang(8)))
    with pytest.raises(NotFound, match="posttrain"):
        yard.cancel("postrain")


def test_cancel_of_observed_work_ends_it() -> None:
    yard = yard_of()
    yard.observe("seen", "x", "tiger", "a", 32, kind=Kind.ELASTIC)
    yard.cancel("seen")
    assert yard.free("tiger", "a") == 32
    assert yard.work.past["seen"].how == "cancelled"


def test_cancel_lets_who_waits_start() -> None:
    yard = yard_of()
    yard.submit(spec("a", "x", gang(32)), spec("b", "x", gang(32)))
    yard.cancel("a")
    assert yard.islands("b") == {"a": 32}


SCALES = {
    "fewer leave at once": ((1, 2), {"a": 16}),
    "more come as there is room": ((1, 9), {"a": 32}),
    "a higher least is waited for whole": ((6, 9), {"a": 24}),
}


@pytest.mark.parametrize("sentence", SCALES)
def test_scale(sentence: str) -> None:
    (least, most), want = SCALES[sentence]
    yard = yard_of()
    yard.submit(spec("e", "x", elastic(1, 3)))
    desk.scale(yard.turn(), "e", "", least=least, most=most, grace=NO_GRACE)
    assert yard.islands("e") == want
    check_state(yard.state)


def test_a_gang_is_not_scaled() -> None:
    yard = yard_of()
    yard.submit(spec("g", "x", gang(8)))
    with pytest.raises(Refused, match="all or nothing"):
        desk.scale(yard.turn(), "g", "", least=1, most=2, grace=NO_GRACE)


def test_another_rank_of_running_work_is_felt_at_once() -> None:
    """b waits behind a; as critical it takes a's place inside the guarantee."""
    yard = yard_of()
    yard.submit(spec("a", "x", gang(32)))
    yard.submit(spec("b", "x", gang(32, tier=LOW)))
    assert yard.islands("b") == {}
    desk.rank(yard.turn(), "b", "", tier=CRITICAL, rank_now=None, grace=NO_GRACE)
    assert (yard.islands("a"), yard.islands("b")) == ({}, {"a": 32})
    assert yard.cause("a") == "over_guarantee"


def test_a_rank_that_another_part_has_is_refused() -> None:
    yard = yard_of()
    yard.submit(spec("w", "x", gang(8, rank=1), elastic(1, 1, rank=2)))
    with pytest.raises(Refused, match="rank 1 already"):
        desk.rank(yard.turn(), "w", "graders", tier=None, rank_now=1, grace=NO_GRACE)


def hold(yard: Yard, gpus: int, keeper: str, *, hours: float = 24, team: str = "x") -> str:
    until = yard.now + timedelta(hours=hours)
    fields = {"team": team, "cluster": "tiger", "sku": "H200", "gpus": gpus, "keeper": keeper, "until": until}
    return desk.hold_quota(yard.turn(), by="lead", reason="paper", **fields).id  # type: ignore[arg-type]


def test_what_a_team_keeps_for_a_person_is_not_a_teammates() -> None:
    """x is guaranteed 32 of 32 and keeps 16 for ada: bob's 24 are beyond what is left, and wait where y is guaranteed
    nothing to take; ada's 16 start.
    """
    yard = yard_of(4, x=24, y=8)
    hold(yard, 16, "ada")
    yard.submit(spec("own", "y", gang(8)))
    yard.submit(spec("bobs", "x", gang(16), owner="bob"))
    yard.submit(spec("adas", "x", gang(16), owner="ada"))
    # bob's ran as flex until ada came: with 24 GPUs beside y's there is no room for both.
    assert (yard.islands("adas"), yard.islands("bobs")) == ({"a": 16}, {})
    assert yard.cause("bobs") == "team_held" or yard.cause("bobs") == "over_guarantee"
    check_state(yard.state)


def test_a_hold_is_over_at_its_date() -> None:
    yard = yard_of(4, x=16, y=16)
    hold(yard, 16, "ada", hours=1)
    yard.submit(spec("flex", "y", gang(16)), spec("more", "y", gang(16)))
    yard.submit(spec("bobs", "x", gang(16), owner="bob"))
    assert yard.islands("bobs") == {}
    yard.wait(hours=1)
    assert yard.islands("bobs") == {"a": 16}
    assert not yard.work.holds


def test_no_more_is_kept_than_is_guaranteed() -> None:
    yard = yard_of(4, x=16, y=16)
    hold(yard, 8, "ada")
    with pytest.raises(Refused, match="keeps 8") as caught:
        hold(yard, 16, "bob")
    assert caught.value.code == "over_guarantee"


def test_many_submits_at_once_cost_no_more_each() -> None:
    """Into a pool that is full, and into one that is empty: four times as many take about four times as long."""

    def seconds(count: int, *, is_full: bool) -> float:
        yard = Yard({"tiger": {f"i{n}": 64 for n in range(20)}}, {"tiger": {"x": 10_240}})
        if is_full:
            yard.submit(*(spec(f"f{n}", "x", gang(512, tier=CRITICAL)) for n in range(20)))
        specs = [spec(f"w{n}", "x", gang(1)) for n in range(count)]
        with effort() as took:
            yard.submit(*specs)
        assert len(yard.work.workloads) == (20 if is_full else count)
        assert all(yard.work.wait_of(each.name) is not None for each in specs) or not is_full
        return took.seconds

    for is_full in (False, True):
        few, many = seconds(2_000, is_full=is_full), seconds(8_000, is_full=is_full)
        assert many < 4 * few * 2.5 + 0.5, f"2,000 in {few:.2f} s, 8,000 in {many:.2f} s, {is_full=}"
