"""Never another index of the work ahead than its list says: announced and withdrawn in any order, tried or done."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import PlimsollError
from plimsoll.health.ahead import announce, ends_ahead, starts_ahead, withdraw, withdraw_over
from plimsoll.health.fold import Health
from plimsoll.health.model import Ahead
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.times import format_time
from tests.support.health import Ward
from tests.support.imports import NOW

NODES = ["n1", "n2", "n3", "n4"]
HOURS_MAX = 40


class Step(NamedTuple):
    """Something that is done at an hour: `announce`, `withdraw` or `sweep`; tried only and undone, or done."""

    what: str
    work: str
    nodes: frozenset[str]
    starts: int
    lasts: int
    hour: int
    is_tried: bool


_steps = st.builds(
    Step,
    st.sampled_from(["announce", "announce", "announce", "withdraw", "sweep"]),
    st.sampled_from(["a", "b", "c", "d"]),
    st.frozensets(st.sampled_from(NODES), max_size=4),
    st.integers(0, HOURS_MAX),
    st.integers(0, 12),
    st.integers(0, 5),
    st.booleans(),
)


def _take(state: State, step: Step, hour: int) -> None:
    now = NOW + timedelta(hours=hour)
    starts = NOW + timedelta(hours=step.starts)
    ahead = Ahead(step.work, "ada", tuple(step.nodes), starts, starts + timedelta(hours=step.lasts), "r")
    with suppress(PlimsollError):
        if step.what == "announce":
            drafts = announce(state, ahead, now=now)[1]
        elif step.what == "withdraw":
            drafts = withdraw(state, step.work, actor="ada")[1]
        else:
            drafts = withdraw_over(state.of(Health), now)[1]
        state.assume(drafts, recorded_at=format_time(now))


def _plainly(health: Health) -> dict[str, list[tuple[int, str]]]:
    """The index, made of the list in the plainest way."""
    found: dict[str, list[tuple[int, str]]] = {}
    for ahead in health.ahead.values():
        for node in ahead.nodes:
            found.setdefault(node, []).append(((ahead.starts - NOW) // timedelta(hours=1), ahead.id))
    return {node: sorted(works) for node, works in found.items()}


def _hours_taken(health: Health, node: str, hour: int) -> set[int]:
    """The hours that work takes from a node, not counting what is over; they are whole, so an hour is taken or not."""
    taken: set[int] = set()
    for ahead in health.ahead.values():
        first, last = ((moment - NOW) // timedelta(hours=1) for moment in (ahead.starts, ahead.ends))
        if node in ahead.nodes and last > hour:
            taken |= set(range(first, last))
    return taken


@given(st.lists(_steps, max_size=14))
def test_never_another_index_than_a_rebuild(steps: list[Step]) -> None:
    with Ward(4, policy="") as ward:
        state, hour = ward.state.fork(), 0
        for step in steps:
            hour += step.hour
            if step.is_tried:
                with state.what_if():
                    _take(state, step, hour)
            else:
                _take(state, step, hour)
            health = state.of(Health)
            index = {
                node: [((each.starts - NOW) // timedelta(hours=1), each.id) for each in works]
                for node, works in health.ahead_of.items()
            }
            assert index == _plainly(health)
            for node in NODES:
                taken = _hours_taken(health, node, hour)
                want_first = min(taken, default=None)
                want_last = want_first
                while want_last is not None and want_last in taken:
                    want_last += 1
                now = NOW + timedelta(hours=hour)
                found = (starts_ahead(health, node, now), ends_ahead(health, node, now))
                assert [each and (each - NOW) // timedelta(hours=1) for each in found] == [want_first, want_last]
        loaded = State(KINDS)
        loaded.load(state.dump())
        read = loaded.of(Health)
        assert (read.ahead, read.ahead_of) == (state.of(Health).ahead, state.of(Health).ahead_of)
