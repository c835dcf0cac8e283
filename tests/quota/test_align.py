"""The alignment, worked out by hand: who gives what, in which order, and what comes before the order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from plimsoll.quota.align import Stake, Unpinned, align, haircut_of, idle_inside
from plimsoll.quota.model import Claim, Haircut, Kind, Tier

NODE = 8


def part(kind: Kind, nodes: float, *, idle: float = 0, tier: str = "high", rank: int = 1, work: str = "w") -> Claim:
    return Claim(work, "island", kind, Tier(tier), rank, int(nodes * NODE), int(idle * NODE))


def gang(nodes: float, **fields: object) -> Claim:
    return part(Kind.GANG, nodes, **fields)  # type: ignore[arg-type]


def elastic(nodes: float, **fields: object) -> Claim:
    return part(Kind.ELASTIC, nodes, **fields)  # type: ignore[arg-type]


def stake(team: str, assigned: float, *claims: Claim, pin: int = 0, block: int = 0) -> Stake:
    """In nodes. Claims come in the order of service."""
    assert sorted(claims, key=lambda claim: claim.order) == [*claims]
    return Stake(team, int(assigned * NODE), claims, pin * NODE, block * NODE)


class Case(NamedTuple):
    """Stakes and a line; what each team is guaranteed, and what it loses as (unscheduled, idle, running): in nodes."""

    stakes: Sequence[Stake]
    line: int
    want: dict[str, int]
    want_cut: dict[str, tuple[float, float, float]]
    want_broken: int = 0
    want_dropped: tuple[str, ...] = ()


ORDER = {
    "what fits stays": Case([stake("a", 6, elastic(2)), stake("b", 4)], 10, {"a": 6, "b": 4}, {}),
    "what fits stays, and the line leaves room": Case([stake("a", 6)], 9, {"a": 6}, {}),
    "one node over is taken where nothing runs": Case(
        [stake("a", 6, elastic(5)), stake("b", 4, elastic(4))], 9, {"a": 5, "b": 4}, {"a": (1, 0, 0)}
    ),
    "unscheduled goes in proportion": Case(
        [stake("a", 10), stake("b", 5)], 9, {"a": 6, "b": 3}, {"a": (4, 0, 0), "b": (2, 0, 0)}
    ),
    "in proportion to what is unscheduled, not to what is assigned": Case(
        [stake("a", 100, elastic(98)), stake("b", 10, elastic(6))],
        107,
        {"a": 99, "b": 8},
        {"a": (1, 0, 0), "b": (2, 0, 0)},
    ),
    "shares of 1.5, 0.9 and 0.6: the largest remainders get the rest": Case(
        [stake("a", 5), stake("b", 3), stake("c", 2)],
        7,
        {"a": 4, "b": 2, "c": 1},
        {"a": (1, 0, 0), "b": (1, 0, 0), "c": (1, 0, 0)},
    ),
    "a tie of remainders goes to the larger assigned, not to the first name": Case(
        [stake("a", 2), stake("b", 3, elastic(1))], 4, {"a": 2, "b": 2}, {"b": (1, 0, 0)}
    ),
    "a tie of both goes to the first name": Case([stake("b", 2), stake("a", 2)], 3, {"a": 1, "b": 2}, {"a": (1, 0, 0)}),
    "unscheduled, then idle, then running, over all teams": Case(
        [stake("a", 4), stake("b", 4, elastic(4, idle=4)), stake("c", 4, elastic(4))],
        3,
        {"a": 0, "b": 0, "c": 3},
        {"a": (4, 0, 0), "b": (0, 4, 0), "c": (0, 0, 1)},
    ),
    "running goes in proportion as well: 2.32, 1.16 and 0.52 of 4": Case(
        [stake("a", 180, elastic(180)), stake("b", 90, elastic(90)), stake("c", 40, elastic(40))],
        306,
        {"a": 178, "b": 89, "c": 39},
        {"a": (0, 0, 2), "b": (0, 0, 1), "c": (0, 0, 1)},
    ),
    "idle above the quota is flex and does not count": Case(
        [stake("a", 4, elastic(6, idle=2)), stake("b", 4, elastic(4, idle=1))],
        7,
        {"a": 4, "b": 3},
        {"b": (0, 1, 0)},
    ),
    "idle beyond what is above the quota does count": Case(
        # a holds 4 and uses 6, of which 3 are idle: 2 of those lie above. Then 3 : 4 run, and the last node is b's.
        [stake("a", 4, elastic(6, idle=3)), stake("b", 4, elastic(4))],
        6,
        {"a": 3, "b": 3},
        {"a": (0, 1, 0), "b": (0, 0, 1)},
    ),
    "a team that holds nothing loses nothing, whatever it uses": Case(
        [stake("a", 0, elastic(5)), stake("b", 4)], 3, {"a": 0, "b": 3}, {"b": (1, 0, 0)}
    ),
    "under a line of nothing nothing is guaranteed": Case(
        [stake("a", 2, gang(1)), stake("b", 1)], 0, {"a": 0, "b": 0}, {"a": (1, 0, 1), "b": (1, 0, 0)}, want_broken=1
    ),
}

PART_NODES = {
    "half a node that is unscheduled is no node": Case(
        [stake("a", 2, elastic(1.5)), stake("b", 2, elastic(2, idle=1))], 3, {"a": 2, "b": 1}, {"b": (0, 1, 0)}
    ),
    "half a node unscheduled and half a node idle are one node of idle": Case(
        [stake("a", 2, elastic(1.5, idle=0.5)), stake("b", 2, elastic(2))], 3, {"a": 1, "b": 2}, {"a": (0.5, 0.5, 0)}
    ),
    "a node that is half idle is no node of idle": Case(
        # Of running work a has 1.5 nodes and b 3: the one that goes is b's.
        [stake("a", 2, elastic(2, idle=0.5)), stake("b", 3, elastic(3))],
        4,
        {"a": 2, "b": 2},
        {"b": (0, 0, 1)},
    ),
    "the last resort is a node that is partly in use": Case(
        [stake("a", 2, elastic(1.5)), stake("b", 2, gang(2))], 3, {"a": 1, "b": 2}, {"a": (0.5, 0, 0.5)}
    ),
    "shares count GPUs: 1.5 nodes to 2 of 2, and the remainder decides": Case(
        [stake("a", 2, elastic(0.5)), stake("b", 2)], 2, {"a": 1, "b": 1}, {"a": (1, 0, 0), "b": (1, 0, 0)}
    ),
    "quota that is no whole nodes leaves whole nodes guaranteed": Case(
        [stake("a", 2.5), stake("b", 2.5)], 4, {"a": 2, "b": 2}, {"a": (0.5, 0, 0), "b": (0.5, 0, 0)}
    ),
}

GANGS = {
    "a gang is kept by cutting another team's elastic work": Case(
        [stake("a", 4, gang(4)), stake("b", 4, elastic(4))], 6, {"a": 4, "b": 2}, {"b": (0, 0, 2)}
    ),
    "in proportion to all that runs, as far as no gang breaks": Case(
        # Both run 10, so 4 would be 2 and 2; b can give just the 2 beside its gang.
        [stake("a", 10, elastic(10)), stake("b", 10, gang(8), elastic(2, rank=2))],
        16,
        {"a": 8, "b": 8},
        {"a": (0, 0, 2), "b": (0, 0, 2)},
    ),
    "what a team can't give without breaking a gang is given by the others": Case(
        [stake("a", 10, elastic(10)), stake("b", 10, gang(9), elastic(1, rank=2))],
        16,
        {"a": 7, "b": 9},
        {"a": (0, 0, 3), "b": (0, 0, 1)},
    ),
    "a gang comes before the order of kinds: an idle one stays, running work beside it is cut": Case(
        [stake("a", 4, gang(4, idle=4)), stake("b", 4, elastic(4))], 6, {"a": 4, "b": 2}, {"b": (0, 0, 2)}
    ),
    "elastic work that comes before a gang is under it": Case(
        [
            stake("a", 4, elastic(2, tier="critical"), gang(2, tier="low")),
            stake("b", 4, elastic(4, tier="critical")),
        ],
        6,
        {"a": 4, "b": 2},
        {"b": (0, 0, 2)},
    ),
    "a gang that lies above the quota is flex and not kept": Case(
        [stake("a", 4, gang(6)), stake("b", 4, elastic(4))], 6, {"a": 3, "b": 3}, {"a": (0, 0, 1), "b": (0, 0, 1)}
    ),
    "half a node of a gang keeps the whole node": Case(
        [stake("a", 4, gang(2.5), elastic(1.5, rank=2)), stake("b", 2, gang(2))],
        5,
        {"a": 3, "b": 2},
        {"a": (0, 0, 1)},
    ),
    "where one must break, the smaller that is enough does": Case(
        [stake("a", 4, gang(4)), stake("b", 2, gang(2))], 5, {"a": 4, "b": 1}, {"b": (0, 0, 1)}, want_broken=1
    ),
    "one that is enough breaks rather than two smaller ones": Case(
        [stake("a", 4, gang(4)), stake("b", 2, gang(2)), stake("c", 2, gang(2))],
        5,
        {"a": 1, "b": 2, "c": 2},
        {"a": (0, 0, 3)},
        want_broken=1,
    ),
    "an idle gang breaks before one that runs": Case(
        [stake("a", 2, gang(2)), stake("b", 4, gang(4, idle=4))],
        5,
        {"a": 2, "b": 3},
        {"b": (0, 1, 0)},
        want_broken=1,
    ),
    "one first gang given up can keep the small ones after it": Case(
        [stake("a", 1, gang(1)), stake("b", 4, gang(3, work="u"), gang(1, work="v"))],
        3,
        {"a": 1, "b": 2},
        {"b": (0, 0, 2)},
        want_broken=1,
    ),
}

FLOORS = {
    "a pin is kept though nothing runs on it": Case(
        [stake("a", 4, pin=4), stake("b", 4, elastic(4))], 6, {"a": 4, "b": 2}, {"b": (0, 0, 2)}
    ),
    "a pin limits what a team gives, not its share": Case(
        # Both have 10 unscheduled, so 8 would be 4 and 4; a can give 2.
        [stake("a", 10, pin=8), stake("b", 10)],
        12,
        {"a": 8, "b": 4},
        {"a": (2, 0, 0), "b": (6, 0, 0)},
    ),
    "a pin above what is assigned pins what is assigned": Case(
        [stake("a", 2, pin=5), stake("b", 2)], 3, {"a": 2, "b": 1}, {"b": (1, 0, 0)}
    ),
    "a pin breaks another team's gang": Case(
        [stake("a", 4, pin=4), stake("b", 4, gang(4))], 6, {"a": 4, "b": 2}, {"b": (0, 0, 2)}, want_broken=1
    ),
    "a block is kept by cutting others": Case(
        [stake("a", 4, block=4), stake("b", 4, elastic(4))], 6, {"a": 4, "b": 2}, {"b": (0, 0, 2)}
    ),
    "a block comes before another team's gang": Case(
        [stake("a", 4, block=4), stake("b", 4, gang(4))], 6, {"a": 4, "b": 2}, {"b": (0, 0, 2)}, want_broken=1
    ),
    "what lies above a block can go": Case(
        [stake("a", 6, block=4), stake("b", 2, pin=2)], 6, {"a": 4, "b": 2}, {"a": (2, 0, 0)}
    ),
    "a block that can't stay whole falls whole, below the line": Case(
        [stake("a", 4, block=4), stake("b", 4, pin=4)],
        6,
        {"a": 0, "b": 4},
        {"a": (4, 0, 0)},
        want_dropped=("a",),
    ),
    "when a block falls others need not give": Case(
        [stake("a", 4, block=4), stake("b", 4, pin=3), stake("c", 2, pin=2)],
        6,
        {"a": 0, "b": 4, "c": 2},
        {"a": (4, 0, 0)},
        want_dropped=("a",),
    ),
    "the smaller block that is enough falls": Case(
        [stake("a", 4, block=4), stake("b", 2, block=2), stake("c", 2, pin=2)],
        7,
        {"a": 4, "b": 0, "c": 2},
        {"b": (2, 0, 0)},
        want_dropped=("b",),
    ),
    "a larger block on which nothing runs falls before a smaller one that runs": Case(
        [stake("a", 4, block=4), stake("b", 2, gang(2), block=2), stake("c", 2, pin=2)],
        7,
        {"a": 0, "b": 2, "c": 2},
        {"a": (4, 0, 0)},
        want_dropped=("a",),
    ),
    "the block of a pinned team falls to the pin, and does not refuse the plan": Case(
        [stake("a", 6, pin=2, block=6), stake("b", 2, pin=2)],
        6,
        {"a": 2, "b": 2},
        {"a": (4, 0, 0)},
        want_dropped=("a",),
    ),
    "a block larger than what is assigned was never whole": Case(
        [stake("a", 4, block=5), stake("b", 4)], 6, {"a": 3, "b": 3}, {"a": (1, 0, 0), "b": (1, 0, 0)}
    ),
}


@pytest.mark.parametrize("sentence", [*ORDER, *PART_NODES, *GANGS, *FLOORS])
def test_alignment(sentence: str) -> None:
    case = (ORDER | PART_NODES | GANGS | FLOORS)[sentence]
    found = align(case.stakes, case.line * NODE, NODE)
    assert found.guaranteed == {team: nodes * NODE for team, nodes in case.want.items()}
    cuts = {team: (cut.unscheduled / NODE, cut.idle / NODE, cut.running / NODE) for team, cut in found.haircuts.items()}
    assert cuts == case.want_cut
    assert (found.broken_gangs, found.dropped_blocks) == (case.want_broken, case.want_dropped)


@pytest.mark.parametrize("sentence", [*ORDER, *GANGS, *FLOORS])
def test_the_order_of_the_teams_does_not_matter(sentence: str) -> None:
    case = (ORDER | GANGS | FLOORS)[sentence]
    forward, backward = (align(stakes, case.line * NODE, NODE) for stakes in (case.stakes, [*reversed(case.stakes)]))
    assert forward == backward


UNPINNED = {
    "one pin is above the line": ([stake("a", 4, pin=4)], 3, 4),
    "pins together are above the line": ([stake("a", 4, pin=2), stake("b", 4, pin=2), stake("c", 9)], 3, 4),
    "a pin counts as far as it is assigned": ([stake("a", 2, pin=9), stake("b", 2, pin=2)], 3, 4),
    "blocks do not count, they fall": ([stake("a", 4, pin=4, block=4), stake("b", 4, block=4)], 3, 4),
    "a pin under a line of nothing": ([stake("a", 1, pin=1)], 0, 1),
}


@pytest.mark.parametrize("sentence", UNPINNED)
def test_pins_above_the_line_refuse(sentence: str) -> None:
    stakes, line, want_pinned = UNPINNED[sentence]
    with pytest.raises(Unpinned) as caught:
        align(stakes, line * NODE, NODE)
    assert (caught.value.pinned, caught.value.line) == (want_pinned * NODE, line * NODE)


def test_pins_above_a_line_under_which_everything_fits_refuse_nothing() -> None:
    assert align([stake("a", 3, pin=9)], 3 * NODE, NODE).guaranteed == {"a": 24}


STAGES = {
    "nobody loses anything": ([stake("a", 2)], 2, 1),
    "only unscheduled": ([stake("a", 2)], 1, 2),
    "idle as well": ([stake("a", 2, elastic(1, idle=1))], 0, 3),
    "running as well": ([stake("a", 2, elastic(1))], 0, 4),
    "the worst of all teams": ([stake("a", 2), stake("b", 2, elastic(2, idle=2))], 1, 3),
}


@pytest.mark.parametrize("sentence", STAGES)
def test_stage(sentence: str) -> None:
    stakes, line, want = STAGES[sentence]
    assert align(stakes, line * NODE, NODE).stage == want


IDLE_INSIDE = {
    "all of it inside the quota": (stake("a", 4, elastic(4, idle=3)), 24),
    "all of it above the quota": (stake("a", 4, elastic(6, idle=2)), 0),
    "partly above the quota": (stake("a", 4, elastic(6, idle=3)), 8),
    "more is idle than is assigned": (stake("a", 1, elastic(2, idle=1.5)), 4),
    "everything is idle": (stake("a", 1, elastic(2, idle=2)), 8),
    "nothing is assigned": (stake("a", 0, elastic(2, idle=2)), 0),
}


@pytest.mark.parametrize("sentence", IDLE_INSIDE)
def test_idle_is_charged_to_flex_first(sentence: str) -> None:
    one, want = IDLE_INSIDE[sentence]
    assert idle_inside(one) == want


HAIRCUTS = {
    "nothing is taken": (32, None),
    "more is guaranteed than assigned": (40, None),
    "only what nothing runs on": (24, Haircut(8, 0, 0)),
    "a part of what is idle": (20, Haircut(8, 4, 0)),
    "all that is idle, and running": (8, Haircut(8, 8, 8)),
    "everything": (0, Haircut(8, 8, 16)),
}


@pytest.mark.parametrize("sentence", HAIRCUTS)
def test_haircut(sentence: str) -> None:
    guaranteed, want = HAIRCUTS[sentence]
    assert haircut_of(stake("a", 4, elastic(3, idle=1)), guaranteed) == want
