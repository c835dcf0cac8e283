"""Never two open incidents for one trouble, never one open without trouble for longer than it takes to be sure, never
numbers that are not those of the trouble. A little book of our own, minute by minute, says what must be.
"""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.incidents.decide import CLOSE_AFTER, REOPEN_WITHIN
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Incident
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from tests.support.watch import Watch

ABOUTS = ("pool/tiger/H200", "breaker/fleet", "feed/slurm")
CLOSE_MINUTES, REOPEN_MINUTES = (span.total_seconds() / 60 for span in (CLOSE_AFTER, REOPEN_WITHIN))
STEPS = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 4, 5, 6, 20, 31, 90)), st.fixed_dictionaries(dict.fromkeys(ABOUTS, st.integers(0, 3)))
    ),
    min_size=1,
    max_size=25,
)
Amounts = dict[str, int]


def episodes(passes: list[tuple[int, Amounts]], about: str) -> list[list[tuple[int, int]]]:
    """What was seen of a trouble, cut where it was gone for longer than its incident is kept for it."""
    found: list[list[tuple[int, int]]] = []
    last_seen_gone: int | None = None
    for minute, amounts in passes:
        amount = amounts[about]
        if amount and (not found or (last_seen_gone is not None and minute - last_seen_gone > REOPEN_MINUTES)):
            # An incident that is still open is never left for another: somebody must have looked to close it.
            is_open = bool(found) and not _was_closed(passes, about, last_seen_gone, minute)
            if not is_open:
                found.append([])
        if found:
            found[-1].append((minute, amount))
        if amount:
            last_seen_gone = None
        elif found and last_seen_gone is None:
            last_seen_gone = minute
    return found


def _was_closed(passes: list[tuple[int, Amounts]], about: str, gone: int | None, until: int) -> bool:
    assert gone is not None
    return any(gone + CLOSE_MINUTES <= minute < until for minute, _ in passes)


def check_numbers(incident: Incident, seen: list[tuple[int, int]], now: int, watch: Watch) -> None:
    on, gpu_minutes, most = 0, 0, 0
    for (minute, amount), (after, _) in zip(seen, [*seen[1:], (now, 0)], strict=True):
        on += (after - minute) * bool(amount)
        gpu_minutes += (after - minute) * amount
        most = max(most, amount)
    numbers = incident.numbers_at(watch.at(now))
    assert numbers.seconds == on * 60
    assert numbers.most == most
    assert abs(Fraction(numbers.unit_hours) - Fraction(gpu_minutes, 60)) <= Fraction(1, 1000)


@settings(max_examples=150)
@given(STEPS)
def test_incidents_are_what_the_troubles_were(steps: list[tuple[int, Amounts]]) -> None:
    watch, minute = Watch(), 0
    passes: list[tuple[int, Amounts]] = []
    for span, amounts in steps:
        minute += span
        passes.append((minute, amounts))
        watch.look(minute, {about: amount for about, amount in amounts.items() if amount})
        for about in ABOUTS:
            mine = watch.open_about(about)
            assert len(mine) <= 1, "two are open for one trouble"
            assert bool(amounts[about]) <= bool(mine), "trouble that nobody told"
            if mine and not amounts[about]:
                gone = max(at for at, seen in passes if seen[about] and at <= minute)
                first_quiet = next(at for at, _ in passes if at > gone)
                assert minute - first_quiet < CLOSE_MINUTES, "open without trouble"
    for about in ABOUTS:
        mine = [each for each in watch.incidents if each.about == about]
        wanted = episodes(passes, about)
        assert len(mine) == len(wanted)
        for incident, seen in zip(mine, wanted, strict=True):
            check_numbers(incident, seen, minute, watch)
    loaded = State(KINDS)
    loaded.load(watch.state.dump())
    assert loaded.of(Incidents).dump() == watch.tables.dump()
