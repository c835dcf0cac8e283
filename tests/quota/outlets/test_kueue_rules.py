"""Rule 3 as Kueue would play it with our objects: guarantees are usable and untouchable, flex goes to the neediest."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.kueue import KueueStyle, objects
from tests.support.kueue_model import KueueModel, Work

TEAMS = "abcd"
PRIORITIES = (1000, 2000, 3000, 4000)


@st.composite
def pools(draw: st.DrawFn) -> PoolPromise:
    guaranteed = {team: 8 * draw(st.integers(0, 6)) for team in TEAMS}
    healthy = sum(guaranteed.values()) + 8 * draw(st.integers(0, 6))
    return PoolPromise(PoolKey("tiger", "H200"), 8, healthy, healthy, guaranteed)


def model(promise: PoolPromise) -> KueueModel:
    return KueueModel(objects([promise], KueueStyle()), "h200")


Ask = tuple[str, int, int]
ASKS = st.lists(
    st.tuples(st.sampled_from(TEAMS), st.integers(1, 6).map(lambda nodes: 8 * nodes), st.sampled_from(PRIORITIES)),
    max_size=30,
)


def inside(kueue: KueueModel, queue: str) -> set[Work]:
    """A team's work that fills its guarantee, by tier, then age, up to the first that does not fit.

    The book lets a smaller one of a lower tier fill the rest behind a gang that does not fit; Kueue does not.
    """
    left, found = kueue.queues[queue].nominal, set()
    mine = [work for work in kueue.running if work.queue == queue]
    for work in sorted(mine, key=lambda each: (-each.priority, each.number)):
        left -= work.gpus
        if left < 0:
            break
        found.add(work)
    return found


@given(promise=pools(), asks=ASKS)
def test_no_teams_work_inside_its_guarantee_is_stopped_for_another_team(promise: PoolPromise, asks: list[Ask]) -> None:
    kueue = model(promise)
    for number, (team, gpus, priority) in enumerate(asks):
        queue = f"{team}.h200"
        safe = {work for other in kueue.queues if other != queue for work in inside(kueue, other)}
        stopped = kueue.submit(Work(queue, gpus, priority, number))
        assert not safe & set(stopped or ())
        assert sum(work.gpus for work in kueue.running) <= promise.healthy


@given(promise=pools(), asks=ASKS, team=st.sampled_from(TEAMS), priority=st.sampled_from(PRIORITIES))
def test_a_team_can_always_use_all_it_is_guaranteed(
    promise: PoolPromise, asks: list[Ask], team: str, priority: int
) -> None:
    """Whatever runs, and however low its own tier: one node at a time, up to the guarantee, calls back what others
    borrow."""
    kueue = model(promise)
    for number, (other, gpus, other_priority) in enumerate(asks):
        if other != team:
            kueue.submit(Work(f"{other}.h200", gpus, other_priority, number))
    for number in range(promise.guaranteed[team] // 8):
        assert kueue.submit(Work(f"{team}.h200", 8, priority, 1000 + number)) is not None
    assert kueue.used(f"{team}.h200") == promise.guaranteed[team]


@given(promise=pools(), asks=ASKS)
def test_a_tier_never_wins_flex_from_another_team(promise: PoolPromise, asks: list[Ask]) -> None:
    """The same work with all tiers alike stops the same teams' flex: between teams tier does not count."""
    for number, (team, gpus, priority) in enumerate(asks[-1:]):
        outcomes = []
        for tier in (priority, PRIORITIES[0], PRIORITIES[-1]):
            kueue = model(promise)
            for age, (other, other_gpus, _) in enumerate(asks[:-1]):
                kueue.submit(Work(f"{other}.h200", other_gpus, 2000, age))
            mine = [work for work in kueue.running if work.queue == f"{team}.h200"]
            if mine:
                return  # then its own work is in play, where tiers do count
            outcomes.append(kueue.submit(Work(f"{team}.h200", gpus, tier, 1000 + number)))
        assert outcomes[0] == outcomes[1] == outcomes[2]


def test_flex_goes_to_the_team_with_the_least_flex_for_its_guarantee() -> None:
    promise = PoolPromise(PoolKey("tiger", "H200"), 8, 96, 96, {"a": 32, "b": 16, "c": 0, "d": 0})
    kueue = model(promise)  # 48 are guaranteed, 48 are standing flex
    for number in range(6):
        assert kueue.submit(Work("c.h200", 8, 4000, number)) == []  # takes all flex, with the highest tier
    for queue, gpus in (("a.h200", 32), ("b.h200", 16)):
        assert kueue.submit(Work(queue, gpus, 1000, 10)) == []  # their guarantees are free
    stopped = kueue.submit(Work("b.h200", 8, 1000, 11))  # flex: 8/16 against 48/0
    assert [work.queue for work in stopped or []] == ["c.h200"]
    shares = {name: Fraction(kueue.borrowed(f"{name}.h200"), max(1, promise.guaranteed[name])) for name in "ab"}
    assert shares == {"a": 0, "b": Fraction(1, 2)}


def test_lent_quota_comes_back_to_its_owner_in_full() -> None:
    promise = PoolPromise(PoolKey("tiger", "H200"), 8, 64, 64, {"a": 32, "b": 32, "c": 0, "d": 0})
    kueue = model(promise)
    assert kueue.submit(Work("b.h200", 32, 4000, 0)) == []
    assert kueue.submit(Work("b.h200", 32, 4000, 1)) == []  # all that is lent by a
    stopped = kueue.submit(Work("a.h200", 32, 1000, 2))
    assert [(work.queue, work.number) for work in stopped or []] == [("b.h200", 1)]
    assert kueue.used("a.h200") == kueue.used("b.h200") == 32
