"""Rule 7: the state is the fold of the events, never anything else; and any past moment can be asked for."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.fleet.service import Source, import_fleet
from plimsoll.ledger import open_ledger
from plimsoll.ledger.model import Draft
from plimsoll.ledger.verify import verify
from plimsoll.rooms import KINDS as ALL_KINDS
from plimsoll.rooms import SHEETS
from plimsoll.state.keeper import Keeper, verify_snapshots
from plimsoll.state.state import Kinds, State
from tests.support.fleets import row, write_fleet
from tests.support.ledgers import KINDS, MONDAY, Notes, events_of, fold_of, note, tear, ticking

_drafts = st.builds(note, st.sampled_from("abc"), st.text(max_size=5)) | st.builds(tear, st.sampled_from("abc"))
_acts = st.lists(
    st.lists(_drafts, min_size=1, max_size=4) | st.sampled_from(["snapshot", "open again"]), min_size=1, max_size=12
)
Act = list[Draft] | str


def _plain_pages(drafts: list[Draft]) -> dict[str, tuple[str, ...]]:
    """What stands on the pages, worked out without tables, journals and folds."""
    pages: dict[str, list[str]] = {}
    for draft in drafts:
        page = draft.change.subject.removeprefix("page/")
        if draft.change.kind == "page.torn":
            pages.pop(page, None)
        else:
            pages.setdefault(page, []).append(getattr(draft.change, "text"))  # noqa: B009
    return {page: tuple(lines) for page, lines in pages.items()}


def _assert_every_past_is_the_fold(keeper: Keeper, kinds: Kinds) -> None:
    """By revision: from the nearest snapshot and from nothing, the answer is the same."""
    events = events_of(keeper.ledger)
    anew = State(kinds)
    assert keeper.as_of(0).dump() == anew.dump()
    for event in events:
        anew.apply(event)
        assert keeper.as_of(event.revision).dump() == anew.dump()
    assert keeper.state().dump() == anew.dump()
    assert list(verify_snapshots(keeper.ledger, kinds)) == []
    assert verify(keeper.ledger.store).is_whole


@given(_acts)
def test_never_a_state_that_the_events_do_not_make(acts: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as folder, open_ledger(f"{folder}/x.db", create=True, clock=ticking()) as ledger:
        keeper = Keeper(ledger, KINDS)
        done: list[Draft] = []
        commits: list[int] = [0]
        for act in acts:
            if isinstance(act, list):
                keeper.commit(act, actor="tester", read_at=None)
                done += act
                commits.append(len(done))
            elif act == "snapshot":
                keeper.snapshot()
            else:
                keeper = Keeper(ledger, KINDS)
            assert keeper.state().of(Notes).pages == _plain_pages(done)
        assert [(event.kind, event.subject) for event in events_of(ledger)] == [
            (draft.change.kind, draft.change.subject) for draft in done
        ]
        _assert_every_past_is_the_fold(keeper, KINDS)
        for number, count in enumerate(commits):
            then = keeper.as_of(MONDAY + timedelta(hours=number - 0.5))
            assert (then.revision, then.of(Notes).pages) == (count, _plain_pages(done[:count]))


_services = st.sampled_from(["in_service", "repair", "maintenance", "quarantined", "retired"])
_since = st.sampled_from(["", "2026-01-04T10:00:00Z", "2026-01-03T08:30:00.000250Z", "2026-01-02T00:00:00+05:30"])


@st.composite
def _fleets(draw: st.DrawFn) -> dict[str, list[dict[str, str]]]:
    """A small fleet of one cluster; nodes come, go, break and move from one folder to the next."""
    names = draw(st.lists(st.sampled_from([f"n{number}" for number in range(1, 7)]), min_size=1, unique=True))
    nodes = [
        row(
            "nodes",
            node=name,
            service=draw(_services),
            since=draw(_since),
            reason=draw(st.sampled_from(["", "xid 79", "Größe"])),
            island=draw(st.sampled_from(["tiger-a", "tiger-b"])),
            rack=draw(st.sampled_from(["", "r1"])),
        )
        for name in names
    ]
    teams = draw(st.lists(st.sampled_from(["evals", "training"]), unique=True))
    quotas = [row("quotas", team=team, gpus=str(8 * draw(st.integers(0, 3)))) for team in teams]
    history = [
        row("history", node=name, time=draw(_since.filter(bool)), service=draw(_services))
        for name in draw(st.lists(st.sampled_from(names), max_size=4, unique=True))
    ]
    return {"clusters": [row("clusters")], "nodes": nodes, "quotas": quotas, "history": history}


@given(st.lists(_fleets(), min_size=1, max_size=3), st.integers(0, 2))
def test_never_a_fleet_that_the_events_do_not_make(fleets: list[dict[str, Any]], snapshot_after: int) -> None:
    with tempfile.TemporaryDirectory() as folder, open_ledger(f"{folder}/x.db", create=True) as ledger:
        keeper = Keeper(ledger, ALL_KINDS)
        for number, fleet in enumerate(fleets):
            path = write_fleet(Path(folder) / f"fleet-{number}", **fleet)
            import_fleet(keeper, Source.of_path(path, SHEETS), SHEETS, actor="tester", is_removal_allowed=True)
            if number == snapshot_after:
                keeper.snapshot()
        assert keeper.state().dump() == fold_of(events_of(ledger), ALL_KINDS).dump()
        _assert_every_past_is_the_fold(keeper, ALL_KINDS)
        _assert_every_past_is_the_fold(Keeper(ledger, ALL_KINDS), ALL_KINDS)
