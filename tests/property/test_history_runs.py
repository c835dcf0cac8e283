"""A past folded in one run is the past folded one transition at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.fleet.model import Service
from plimsoll.health.changes import NodeHistory
from plimsoll.health.fold import Health
from plimsoll.ledger.chain import seal
from plimsoll.ledger.model import EMPTY_HEAD, Draft
from plimsoll.rooms import KINDS
from plimsoll.state.state import State

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)

told = st.builds(
    lambda node, service, reason, labels, minute: Draft(
        NodeHistory(node, service, reason, labels), "", BEGIN + timedelta(minutes=minute)
    ),
    st.sampled_from(["n1", "n2", "n3"]),
    st.sampled_from(Service),
    st.sampled_from(["", "xid 79"]),
    st.sampled_from([{}, {"ticket": "7"}]),
    st.integers(0, 12),
)


@given(st.lists(told, min_size=1, max_size=30), st.integers(0, 30))
def test_never_another_past_in_a_run_than_one_by_one(drafts: list[Draft], cut: int) -> None:
    events = seal(drafts, head=EMPTY_HEAD, actor="a", reason="", recorded_at="2026-02-01T00:00:00.000000Z")
    one_by_one, in_runs = State(KINDS), State(KINDS)
    one_by_one.apply_all(events)
    for part in (slice(0, cut), slice(cut, None)):
        if events[part]:
            in_runs.apply_committed(drafts[part], events[part])
    assert in_runs.dump() == one_by_one.dump()
    assert in_runs.of(Health).timelines == one_by_one.of(Health).timelines
