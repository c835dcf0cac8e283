"""Whatever a valid fleet is: it is never changed by the way it is written down, and its counts are never wrong."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.fleet.decide import BadImport
from plimsoll.fleet.fold import Fleet
from plimsoll.health.fold import Health
from plimsoll.quota.fold import QuotaBook
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import Workloads
from tests.support.imports import NOW, Importer, contents
from tests.support.random_fleets import Sheets, fleets, write_sheets

COUNTED = [
    (Fleet, ("pools", "islands", "island_cluster", "island_nodes")),
    (QuotaBook, ("assigned",)),
    (Workloads, ("held",)),
    (Health, ("timelines",)),
]


def imported(place: Path, sheets: Sheets) -> Importer:
    importer = Importer()
    importer.bring(write_sheets(place, sheets))
    return importer


@given(sheets=fleets())
def test_an_export_never_loses_or_changes_anything(sheets: Sheets) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        first = imported(place / "in", sheets)
        exported = first.export(place / "out")
        head = first.head
        first.now = NOW + timedelta(days=1)
        assert not first.bring(exported).is_change
        assert not first.bring(place / "in").is_change
        assert first.head == head

        second = Importer()
        second.now = NOW + timedelta(days=2)
        second.bring(exported)
        assert contents(second.export(place / "again")) == contents(exported)


@given(sheets=fleets())
@settings(max_examples=settings().max_examples // 4)
def test_a_workbook_never_loses_or_changes_anything(sheets: Sheets) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        first = imported(place / "in", sheets)
        book = first.export(place / "out.xlsx")
        assert not first.bring(book).is_change
        second = Importer()
        second.bring(book)
        assert second.sheets() == first.sheets()


@given(sheets=fleets(), seed=st.integers(0, 2**32))
def test_the_order_of_rows_never_matters(sheets: Sheets, seed: int) -> None:
    rng = random.Random(seed)
    jumbled = {name: rng.sample(rows, len(rows)) for name, rows in sheets.items()}
    with tempfile.TemporaryDirectory() as name:
        first = imported(Path(name) / "first", sheets)
        assert imported(Path(name) / "second", jumbled).sheets() == first.sheets()
        assert not first.bring(Path(name) / "second").is_change


@given(before=fleets(), after=fleets(), is_partial=st.booleans())
@settings(max_examples=settings().max_examples // 2)
def test_counts_are_never_other_than_a_recount(before: Sheets, after: Sheets, is_partial: bool) -> None:
    """One fleet after another, unlike: most of the first is retired, islands and pools move and shrink."""
    with tempfile.TemporaryDirectory() as name:
        importer = imported(Path(name) / "before", before)
        recount(importer, before)
        without_work = {sheet: rows for sheet, rows in after.items() if sheet not in ("quotas", "workloads")}
        folder = write_sheets(Path(name) / "after", without_work)
        # A part of another fleet may not fit into this one, nor its nodes the quotas that stay; then nothing is kept.
        is_kept = False
        with suppress(BadImport):
            importer.bring(folder, is_removal_allowed=True, is_partial=is_partial)
            is_kept = True
        recount(importer, before if is_partial or not is_kept else after)
        exported = importer.export(Path(name) / "out")
        assert not importer.bring(exported).is_change
        heir = Importer()
        heir.bring(exported)
        assert heir.sheets() == importer.sheets()


def recount(importer: Importer, sheets: Sheets) -> None:
    """Count again from the nouns alone, and compare with what is kept up to date, and with a snapshot of it."""
    fleet, work = importer.of(Fleet), importer.of(Workloads)
    installed: Counter[tuple[str, str]] = Counter()
    pools: Counter[tuple[str, str]] = Counter()
    healthy: Counter[tuple[str, str]] = Counter()
    for node in fleet.nodes.values():
        if node.service != "retired":
            installed[node.island, node.sku] += node.gpus
            pools[node.cluster, node.sku] += node.gpus
            healthy[node.cluster, node.sku] += node.gpus * (node.service == "in_service")
    assert {key: count.gpus for key, count in fleet.pools.items()} == dict(pools)
    assert {key: count.gpus_in_service for key, count in fleet.pools.items()} == dict(healthy)
    assert {key: count.gpus for key, count in fleet.islands.items()} == dict(installed)

    held: Counter[tuple[str, str]] = Counter()
    for workload in work.workloads.values():
        for part in workload.parts:
            assert part.gpus > 0
            assert 0 <= part.idle_gpus <= part.gpus
            assert part.kind != "gang" or len(part.blocks) == 1
            for block in part.blocks:
                held[block.island, part.sku] += block.gpus
    assert dict(work.held) == dict(held)
    assert all(gpus <= installed[key] for key, gpus in held.items()), "an island holds more than is installed"

    assigned: Counter[tuple[str, str]] = Counter()
    for quota in importer.of(QuotaBook).quotas.values():
        assigned[quota.cluster, quota.sku] += quota.gpus
    assert {key: gpus for key, gpus in importer.of(QuotaBook).assigned.items() if gpus} == dict(assigned)

    present = {row["node"] for row in sheets["nodes"]}
    assert present <= fleet.nodes.keys()
    loaded = State(importer.keeper.kinds)
    loaded.load(importer.state.dump())
    for tables, names in COUNTED:
        for name in names:
            kept, read = getattr(importer.of(tables), name), getattr(loaded.of(tables), name)
            assert {key: value for key, value in kept.items() if value} == dict(read), name
