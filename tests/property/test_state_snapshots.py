"""Never far from a snapshot, and never many of them, however the ledger grew."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.state.keeper import snapshots_to_keep

DENSITY = 4


def _grown(strides: list[int]) -> list[int]:
    """The snapshots left when one is taken after each stride, and the old ones are thinned out each time."""
    kept: list[int] = []
    for revision in itertools.accumulate(strides):
        kept = sorted(snapshots_to_keep([*kept, revision]))
        assert kept[-1] == revision, "the newest is never thrown away"
    return kept


def _replayed(kept: list[int], moment: int) -> int:
    """How many events must be read again to answer for a revision."""
    return moment - max((revision for revision in kept if revision <= moment), default=0)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=300))
def test_never_far_from_a_snapshot(strides: list[int]) -> None:
    kept, now = _grown(strides), sum(strides)
    for moment in range(now + 1):
        assert _replayed(kept, moment) <= max(50, (now - moment) / DENSITY)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=300))
def test_never_many_snapshots(strides: list[int]) -> None:
    """At most two for each time that the distance grows by a quarter: their number is that of its logarithm."""
    kept, now = _grown(strides), sum(strides)
    bound, distance = 2, 1.0
    while distance < now:
        distance *= 1 + 1 / DENSITY
        bound += 2
    assert len(kept) <= bound
    assert len(kept) <= len(strides)


def test_a_long_life_leaves_few_and_the_gaps_grow_with_distance() -> None:
    kept = _grown([20_000] * 2_500)
    gaps = [newer - older for older, newer in itertools.pairwise(kept)]
    assert len(kept) <= 50
    assert gaps == sorted(gaps, reverse=True)
    assert (gaps[-1], gaps[0]) == (20_000, max(gaps))
    assert gaps[0] > 2_000_000


def test_of_nothing_nothing_is_kept() -> None:
    assert snapshots_to_keep([]) == set()
    assert snapshots_to_keep([7]) == {7}
