"""The sheet of planned clusters, without files: what goes out comes in again, and what a row can't change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plimsoll.fleet.decide import BadImport
from plimsoll.fleet.sheet import MemorySheet, SheetPlan
from plimsoll.lifecycle.changes import ClusterLeaving, ClusterPlanned, ClusterRespecified
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Said
from plimsoll.lifecycle.sheet import COLUMNS, PlannedSheet, parse_wanted, plan_rows, uid_of
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.times import parse_time

NOON = parse_time("2026-01-05T12:00:00Z")
ANN = Said("ann", NOON)
HEADER = [*COLUMNS, "rack"]
LYNX = [
    "lynx",
    "eastus",
    "us",
    "b1",
    "azure",
    "research",
    "sub-a",
    "H200",
    "8",
    "2",
    "standard",
    "ann",
    "2027-01-01",
    "r7",
]
MOTH = ["moth", "eastus", "eu", "", "", "applied", "sub-b", "H100", "4", "", "", "", "", ""]


@pytest.fixture
def keeper() -> Keeper:
    return open_keeper("sqlite:///:memory:", create=True, clock=lambda: NOON)


def bring(keeper: Keeper, *rows: Sequence[str], header: Sequence[str] = HEADER, is_whole: bool = False) -> SheetPlan:
    raw = MemorySheet("s.csv", [header, *rows])
    found, drafts = plan_rows(keeper.state(), raw, said=ANN, seed="x", is_whole=is_whole)
    if drafts:
        keeper.commit(drafts, actor="ann", read_at=None)
    return found


def test_what_is_exported_is_the_same_when_it_is_imported_again(keeper: Keeper) -> None:
    bring(keeper, LYNX, MOTH)
    sheet = PlannedSheet(HEADER, said=ANN, seed="x", is_whole=False)
    out = [[*cells, labels.get("rack", "")] for cells, labels in sheet.export(keeper.state())]
    assert out[0] == [*LYNX[:12], "2027-01-01T00:00:00Z", "r7"]
    assert out[1] == [*MOTH[:9], "1", "standard", "", "", ""]
    before = keeper.state().revision
    assert bring(keeper, *out).counts() == {"added": 0, "changed": 0, "removed": 0, "same": 2}
    assert keeper.state().revision == before


def test_each_row_becomes_its_events(keeper: Keeper) -> None:
    found = bring(keeper, LYNX)
    assert sum(isinstance(draft.change, ClusterPlanned) for draft in found.drafts) == 1
    found = bring(keeper, [*LYNX[:8], "9", *LYNX[9:]])
    assert sum(isinstance(draft.change, ClusterRespecified) for draft in found.drafts) == 1
    assert [dict(each.was) for each in found.differences] == [{"nodes": "8"}]
    assert keeper.state().of(Lives).lives["lynx"].generation == 2
    found = bring(keeper, MOTH, is_whole=True)
    assert [type(draft.change) for draft in found.drafts if draft.change.subject == "cluster/lynx"] == [ClusterLeaving]


def test_all_that_is_wrong_is_told_at_once(keeper: Keeper) -> None:
    with pytest.raises(BadImport) as caught:
        bring(keeper, ["Lynx", *LYNX[1:]], [*MOTH[:8], "-1", *MOTH[9:]], MOTH, MOTH)
    assert caught.value.fields["problem_count"] == 4
    assert keeper.state().revision == 0


def test_a_cluster_of_the_same_name_has_another_identity() -> None:
    assert uid_of("lynx", "a") != uid_of("lynx", "b")
    assert uid_of("lynx", "a").startswith("lynx-")


DAYS = {"": None, "2026-03-01": "2026-03-01T00:00:00Z", "2026-03-01T05:00+01:00": "2026-03-01T04:00:00Z"}


@pytest.mark.parametrize("text", DAYS)
def test_a_day_is_read(text: str) -> None:
    want = DAYS[text]
    assert parse_wanted(text) == (None if want is None else parse_time(want))


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "0001-01-01T00:00+14:00", "12/31/2026"])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a day such as 2026-03-01, or nothing"):
        parse_wanted(text)
