"""Never other facts because of the order: the same observations in any order and batching, once or twice, say the same.

All of it is told at one moment. The exceptions are those that `plimsoll.health.signals` names (more repeats in a row
or more stretches than are kept), breakers, and a drain that a withdrawn quarantine cut short: what ran there is gone.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.health.signals import Signal
from tests.support.fleets import row
from tests.support.health import FactsNow, Ward, minutes, policy_with, signal
from tests.support.imports import NOW

ROWS = [
    row("nodes", node="n1"),
    row("nodes", node="n2", since="2026-01-20T10:00:00Z"),
    row("nodes", node="n3", service="quarantined", reason="xid 79", since="2026-01-20T10:00:00Z"),
    row("nodes", node="n4", service="repair", reason="fan"),
    row("nodes", node="n5", service="validating"),
]

PROBLEMS = [("xid", "79"), ("xid", "13"), ("xid", "64"), ("provider", "reboot"), ("ecc", "double-bit")]
COMING_AND_GOING = [("check", "mild-fan"), ("check", "nccl"), ("thermal", "gpu")]
MUST_LAST = [("heartbeat", ""), ("scheduler", "down")]
DRAINING = ("xid", "48")
NODES = ["n1", "n2", "n3", "n4", "n5"]

_ago = st.sampled_from([1, 4, 7, 10, 20, 35, 60, 90, 119, 121, 125, 150, 200, 235])
"""Some within the times of the rules and some not; n2 and n3 are where they are since 120 minutes ago."""


@st.composite
def _stories(draw: st.DrawFn, problems: list[tuple[str, str]]) -> list[Signal]:
    """What one or two problems of one node, and perhaps one of another, say again and again: bad and good."""
    node, other = draw(st.permutations(NODES))[:2]
    story = []
    for name, kind in draw(
        st.lists(st.tuples(st.sampled_from([node, node, other]), st.sampled_from(problems)), min_size=1, max_size=3)
    ):
        for ago, is_ok in draw(st.lists(st.tuples(_ago, st.booleans()), min_size=1, max_size=7)):
            value = {True: 70.0, False: draw(st.sampled_from([92.0, 101.0]))}[is_ok] if kind[0] == "thermal" else None
            story.append(signal(name, *kind, ago=ago, is_ok=is_ok and value is None, value=value))
    return story


@st.composite
def _tellings(draw: st.DrawFn, problems: list[tuple[str, str]]) -> list[list[list[Signal]]]:
    """The same story in three ways: at once, one by one in any order, in batches with some of it told again."""
    story = draw(_stories(problems))
    told = draw(st.permutations([*story, *draw(st.lists(st.sampled_from(story), max_size=4))]))
    cuts = sorted(draw(st.lists(st.integers(0, len(told)), max_size=5)))
    batches = [told[start:end] for start, end in zip([0, *cuts], [*cuts, len(told)], strict=True)]
    return [[story], [[each] for each in draw(st.permutations(story))], batches]


def _facts(batches: list[list[Signal]], *, policy: str, is_swept: bool) -> dict[str, FactsNow]:
    with Ward(ROWS, policy=policy, is_ticking=True) as ward:
        for batch in batches:
            ward.observe(*batch)
        if is_swept:
            ward.sweep()
        return ward.look_at_all()


LEMONS_ARE_QUICK = policy_with("lemon: {exits: 3", "lemon: {exits: 2")
MILD_RULE = policy_with("do: quarantine, after: {count: 2, within: 30m}", "do: drain, after: {count: 2, within: 30m}")
STRONG_RULE = policy_with(
    "do: quarantine, after: {count: 2, within: 30m}", "do: repair, after: {count: 2, within: 30m}"
)
MANY = settings(max_examples=2 * settings().max_examples)


def _assert_the_same(tellings: list[list[list[Signal]]], policies: list[str], *, is_swept: bool) -> None:
    for policy in policies:
        at_once, *others = (_facts(telling, policy=policy, is_swept=is_swept) for telling in tellings)
        assert others == [at_once] * len(others)


@MANY
@given(_tellings([*PROBLEMS, *COMING_AND_GOING, *MUST_LAST * 2]), st.booleans())
def test_never_other_facts_because_of_the_order(tellings: list[list[list[Signal]]], is_swept: bool) -> None:
    _assert_the_same(tellings, [LEMONS_ARE_QUICK], is_swept=is_swept)


@MANY
@given(_tellings(COMING_AND_GOING), st.booleans())
def test_never_other_facts_of_what_comes_and_goes(tellings: list[list[list[Signal]]], is_swept: bool) -> None:
    _assert_the_same(tellings, [STRONG_RULE, MILD_RULE], is_swept=is_swept)


@MANY
@given(_tellings(MUST_LAST), st.booleans())
def test_never_other_facts_of_what_must_last(tellings: list[list[list[Signal]]], is_swept: bool) -> None:
    _assert_the_same(tellings, [LEMONS_ARE_QUICK], is_swept=is_swept)


@given(_tellings([*PROBLEMS, *COMING_AND_GOING, DRAINING, DRAINING]), st.booleans())
def test_never_another_drain_because_of_the_order(tellings: list[list[list[Signal]]], is_swept: bool) -> None:
    _assert_the_same(tellings, [MILD_RULE], is_swept=is_swept)


_looks = st.lists(
    st.tuples(st.sets(st.sampled_from(["n1", "n2"])), st.sampled_from([0, 3, 6, 9, 12])), min_size=2, max_size=3
)


@given(_looks, st.randoms(use_true_random=False))
def test_never_other_facts_because_sweeps_come_late(looks: list[tuple[set[str], int]], rng: Random) -> None:
    """Each sweep of a feed says of n1 and n2 whether their check fails. Two sweeps may change places; one that comes
    after two newer ones is taken to be over only at the newest: what was good in between is not remembered."""
    ordered = [(broken, 60 - gap - 13 * number) for number, (broken, gap) in enumerate(looks)]
    late = list(ordered)
    place = rng.randrange(len(late) - 1)
    late[place], late[place + 1] = late[place + 1], late[place]
    assert _swept_facts(late) == _swept_facts(ordered)


def _swept_facts(looks: list[tuple[set[str], int]]) -> dict[str, FactsNow]:
    with Ward(3, policy=policy_with("within: 30m", "within: 14m"), is_ticking=True) as ward:
        for broken, ago in looks:
            told = [signal(name, "check", "nccl", ago=ago, is_ok=name not in broken) for name in ("n1", "n2")]
            lost = [signal("n3", "heartbeat", "x", ago=ago, is_ok="n1" in broken)]
            ward.see(*told, *lost, swept=["n1", "n2", "n3"], at=NOW - minutes(ago))
        return ward.look_at_all()
