"""Rule 3, with hand-worked answers: whose work gives way to whose, and that nobody gains by shouting `critical`.

In all scenes nodes have 8 GPUs; island `a` of tiger has 4 nodes (32 GPUs) unless it says otherwise.
"""

from __future__ import annotations

import pytest

from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import PoolAligned, QuotaTransferred
from plimsoll.quota.model import Kind, Tier
from plimsoll.times import format_time
from plimsoll.workloads.model import RunsAs
from tests.support.scenes import Act, Scene, bring_back, cancel, judge, later, lose, play, submit
from tests.support.workload_checker import check_state
from tests.support.yard import Yard, elastic, gang, spec

LOW, MID, HIGH, CRITICAL = Tier.LOW, Tier.MID, Tier.HIGH, Tier.CRITICAL
FOUR = {"tiger": {"a": 4}}
EVEN = {"tiger": {"x": 16, "y": 16}}


def change(*changes: object) -> Act:
    def act(yard: Yard) -> None:
        yard.state.assume([Draft(each) for each in changes], recorded_at=format_time(yard.now))  # type: ignore[arg-type]
        yard.round()

    return act


def fill_up(team: str, count: int, *, tier: Tier = HIGH, runs_as: RunsAs = RunsAs.ANY) -> Act:
    """So many gangs of one node: `x1`, `x2` and so on."""
    return submit(*(spec(f"{team}{n}", team, gang(8, tier=tier), runs_as=runs_as) for n in range(1, count + 1)))


SCENES = {
    "a guarantee calls back another team's flex, whatever the tiers": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(32, tier=CRITICAL))), submit(spec("own", "y", gang(8, tier=LOW)))),
        {"own": {"a": 8}},
        {"flex": "over_guarantee"},
    ),
    "never inside another's guarantee: critical work waits while low work runs": Scene(
        FOUR,
        {"tiger": {"x": 24, "y": 8}},
        (fill_up("x", 3, tier=LOW), fill_up("y", 1), submit(spec("loud", "y", gang(8, tier=CRITICAL)))),
        # The new one takes its own team's guarantee, and the team's other gang becomes flex that nobody has room for.
        {"x1": {"a": 8}, "x2": {"a": 8}, "x3": {"a": 8}, "loud": {"a": 8}},
        {"y1": "over_guarantee"},
    ),
    "the own team's lower tier gives way to its higher": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (fill_up("x", 4, tier=LOW), submit(spec("first", "x", gang(16, tier=HIGH)))),
        # The last two of the team's own order go: x3 and x4.
        {"x1": {"a": 8}, "x2": {"a": 8}, "first": {"a": 16}},
        {"x3": "over_guarantee", "x4": "over_guarantee"},
    ),
    "inside a tier the later rank gives way": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (
            submit(spec("a", "x", gang(16, rank=5)), spec("b", "x", gang(16, rank=3))),
            submit(spec("c", "x", gang(16, rank=4))),
        ),
        {"b": {"a": 16}, "c": {"a": 16}},
        {"a": "over_guarantee"},
    ),
    "inside a tier and rank whoever came later waits": Scene(
        FOUR,
        {"tiger": {"x": 32}},
        (submit(spec("a", "x", gang(32))), submit(spec("b", "x", gang(8)))),
        {"a": {"a": 32}},
        {"b": "over_guarantee"},
    ),
    "flex does not stop its own team's work inside the guarantee, whatever the tiers": Scene(
        FOUR,
        {"tiger": {"x": 16}},
        # All 32 are beyond the guarantee: were low stopped for it, low would call it back, and so on for ever.
        (submit(spec("low", "x", gang(8, tier=LOW))), submit(spec("crit", "x", gang(32, tier=CRITICAL)))),
        {"low": {"a": 8}},
        {"crit": "over_guarantee"},
    ),
    "the flex of elastic work is called back though the rest is less than it needs, and that stays": Scene(
        FOUR,
        EVEN,
        (submit(spec("e", "x", elastic(4, 4))), submit(spec("own", "y", gang(16)))),
        {"e": {"a": 16}, "own": {"a": 16}},
        {"e": "over_guarantee"},
    ),
    "a team without a guarantee has its own lower tier give way too": Scene(
        FOUR,
        {"tiger": {"y": 8}},
        (fill_up("z", 4, tier=LOW), submit(spec("first", "z", gang(8, tier=HIGH)))),
        {"z1": {"a": 8}, "z2": {"a": 8}, "z3": {"a": 8}, "first": {"a": 8}},
        {"z4": "no_guarantee"},
    ),
    "flex goes to the team with the lowest flex for its guarantee": Scene(
        FOUR,
        {"tiger": {"x": 16, "y": 8}},
        # x holds 16 of flex for 16 (1.0); with one gang y would hold 8 for 8 (1.0): that is not less, so it waits.
        (fill_up("x", 4), submit(spec("yf", "y", gang(8), runs_as=RunsAs.FLEX))),
        {"x1": {"a": 8}, "x2": {"a": 8}, "x3": {"a": 8}, "x4": {"a": 8}},
        {"yf": "flex_taken"},
    ),
    "and takes it from the one with more": Scene(
        FOUR,
        {"tiger": {"x": 8, "y": 16}},
        # x holds 24 of flex for 8 (3.0); with one gang y holds 8 for 16 (0.5).
        (fill_up("x", 4), submit(spec("yf", "y", gang(8, tier=LOW), runs_as=RunsAs.FLEX))),
        {"x1": {"a": 8}, "x2": {"a": 8}, "x3": {"a": 8}, "yf": {"a": 8}},
        {"x4": "over_guarantee"},
    ),
    "a team without a guarantee takes no flex from anybody": Scene(
        FOUR,
        {"tiger": {"x": 8}},
        (fill_up("x", 4), submit(spec("z1", "z", gang(8, tier=CRITICAL)))),
        {"x1": {"a": 8}, "x2": {"a": 8}, "x3": {"a": 8}, "x4": {"a": 8}},
        {"z1": "no_guarantee"},
    ),
    "of two teams that wait for flex the one with the lower share starts, though the other shouts": Scene(
        FOUR,
        {"tiger": {"x": 8, "y": 16}},
        (
            submit(spec("block", "z", gang(32))),
            submit(spec("xf", "x", gang(16, tier=CRITICAL), runs_as=RunsAs.FLEX)),
            submit(spec("yf", "y", gang(24, tier=LOW), runs_as=RunsAs.FLEX)),
            # Both may win from z, which is guaranteed nothing. x would hold 16 for 8, y 24 for 16. x came first and
            # took 16 of the 32; y then took the place of x, as 1.5 is less than 2.
            later(minutes=1),
        ),
        {"yf": {"a": 24}},
        {"block": "no_guarantee", "xf": "flex_taken"},
    ),
    "two teams wait for what they are guaranteed: who came first starts, though the other shouts": Scene(
        FOUR,
        EVEN,
        (
            lose("tiger-a-1", "tiger-a-2", "tiger-a-3", "tiger-a-4"),
            submit(spec("quiet", "x", gang(8, tier=LOW))),
            submit(spec("loud", "y", gang(8, tier=CRITICAL))),
            bring_back("tiger-a-1"),
        ),
        {"quiet": {"a": 8}},
        {"loud": "nodes_unhealthy"},
    ),
    "nobody gains by marking everything critical: the same runs if x shouts": Scene(
        FOUR,
        EVEN,
        (fill_up("x", 3, tier=CRITICAL), fill_up("y", 3, tier=LOW)),
        # Each has 16 guaranteed: two gangs each. The third of x ran as flex and was called back; the third of y waits.
        {"x1": {"a": 8}, "x2": {"a": 8}, "y1": {"a": 8}, "y2": {"a": 8}},
        {"x3": "over_guarantee", "y3": "over_guarantee"},
    ),
    "and the same runs if y shouts": Scene(
        FOUR,
        EVEN,
        (fill_up("x", 3, tier=LOW), fill_up("y", 3, tier=CRITICAL)),
        {"x1": {"a": 8}, "x2": {"a": 8}, "y1": {"a": 8}, "y2": {"a": 8}},
        {"x3": "over_guarantee", "y3": "over_guarantee"},
    ),
    "a gang counts whole: one GPU beyond the guarantee makes all of it flex": Scene(
        FOUR,
        EVEN,
        (submit(spec("big", "x", gang(24))), submit(spec("small", "y", gang(16)))),
        # Of the 24 only 16 would fit the guarantee, so that none is inside; y's 16 call all of it back.
        {"small": {"a": 16}},
        {"big": "over_guarantee"},
    ),
    "an elastic part counts by replica: only those beyond the guarantee leave": Scene(
        FOUR,
        EVEN,
        (submit(spec("big", "x", elastic(1, 4))), submit(spec("small", "y", gang(16)))),
        {"big": {"a": 16}, "small": {"a": 16}},
    ),
    "work that asked to be flex is flex even inside the guarantee": Scene(
        FOUR,
        EVEN,
        (fill_up("x", 2, runs_as=RunsAs.FLEX), fill_up("y", 2), submit(spec("x9", "x", gang(16)))),
        {"x9": {"a": 16}, "y1": {"a": 8}, "y2": {"a": 8}},
        {"x1": "flex_taken", "x2": "flex_taken"},
    ),
    "work that wants only guaranteed does not start as flex in an empty island": Scene(
        FOUR,
        EVEN,
        (submit(spec("only", "x", gang(24), runs_as=RunsAs.GUARANTEED)),),
        {},
        {"only": "over_guarantee"},
    ),
    "a guarantee that was raised makes flex safe": Scene(
        FOUR,
        EVEN,
        (
            submit(spec("big", "x", gang(24))),
            change(PoolAligned("tiger", "H200", 32, "fixed:0", {"x": 24, "y": 8})),
            submit(spec("own", "y", gang(8))),
            submit(spec("more", "y", gang(8, tier=CRITICAL))),
        ),
        {"big": {"a": 24}, "more": {"a": 8}},
        {"own": "over_guarantee"},
    ),
    "a transfer makes the giver's work flex at once, and the taker can call it back": Scene(
        FOUR,
        EVEN,
        (
            fill_up("x", 2),
            fill_up("y", 2),
            change(QuotaTransferred("tiger", "H200", giver="x", taker="y", gpus=8)),
            submit(spec("y3", "y", gang(8))),
        ),
        {"x1": {"a": 8}, "y1": {"a": 8}, "y2": {"a": 8}, "y3": {"a": 8}},
        {"x2": "over_guarantee"},
    ),
    "observed flex is called back as well": Scene(
        FOUR,
        EVEN,
        (
            lambda yard: yard.observe("seen", "x", "tiger", "a", 32, kind=Kind.ELASTIC),
            submit(spec("own", "y", gang(16))),
        ),
        {"seen": {"a": 16}, "own": {"a": 16}},
    ),
    "what was called back starts again when its time comes": Scene(
        FOUR,
        EVEN,
        (submit(spec("flex", "x", gang(32))), submit(spec("own", "y", gang(8))), cancel("own")),
        {"flex": {"a": 32}},
    ),
}


@pytest.mark.parametrize("sentence", SCENES)
def test_rule_three(sentence: str) -> None:
    judge(SCENES[sentence])


def growers(*, x: Tier, y: Tier) -> Yard:
    """Two teams with elastic work of one replica that could have ten, and six nodes that come free."""
    scene = Scene(
        {"tiger": {"a": 8}},
        {"tiger": {"x": 8, "y": 16}},
        (
            submit(spec("block", "z", gang(48))),
            submit(spec("ex", "x", elastic(1, 10, tier=x))),
            submit(spec("ey", "y", elastic(1, 10, tier=y))),
            cancel("block"),
        ),
        {},
    )
    return play(scene)


@pytest.mark.parametrize("tiers", [(CRITICAL, LOW), (LOW, CRITICAL)])
def test_what_is_free_is_shared_by_guarantee_and_not_by_tier(tiers: tuple[Tier, Tier]) -> None:
    """8 nodes: x has 1 inside its 8, y 2 inside its 16. Of the other 5 nodes y gets two for each of x: the shares are
    0, 1, 2 for x and 0, 0.5, 1, 1.5 for y; dealt one by one from the lowest, x (asked first) y y x y.
    """
    yard = growers(x=tiers[0], y=tiers[1])
    assert (yard.islands("ex"), yard.islands("ey")) == ({"a": 24}, {"a": 40})


def test_own_flex_called_back_stays_away_round_after_round() -> None:
    yard = Yard(FOUR, {"tiger": {"x": 16}})
    yard.submit(spec("crit", "x", gang(32, tier=CRITICAL)))
    yard.submit(spec("low", "x", gang(8, tier=LOW)))
    for _ in range(3):
        yard.wait(minutes=1)
    assert yard.islands("low") == {"a": 8}
    [told] = yard.work.interruptions["crit"]
    assert (told.by, told.detail) == ("low", "guarantee")
    assert "low" not in yard.work.interruptions


def test_a_guarantee_calls_flex_back_from_an_island_where_more_is_held_than_works() -> None:
    yard = Yard(FOUR, {"tiger": {"x": 16}})
    yard.observe("seen", "z", "tiger", "a", 32)
    yard.lose("tiger-a-1")
    assert yard.free("tiger", "a") == -8
    yard.submit(spec("own", "x", gang(16)))
    assert yard.islands("own") == {"a": 16}
    assert yard.islands("seen") == {}
    assert yard.free("tiger", "a") == 8


def test_observed_work_that_grows_again_keeps_what_nobody_knows_the_nodes_of() -> None:
    yard = Yard(FOUR, {"tiger": {"y": 32}})
    yard.observe("seen", "z", "tiger", "a", 24, kind=Kind.ELASTIC)
    yard.submit(spec("own", "y", gang(16)))
    assert yard.islands("seen") == {"a": 16}
    yard.cancel("own")
    assert yard.islands("seen") == {"a": 24}
    assert yard.free("tiger", "a") == 8
    check_state(yard.state)
