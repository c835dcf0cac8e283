"""Slips of a tired person: a file with the wrong name, an emptied quota book, a cluster that was taken out."""

from __future__ import annotations

from pathlib import Path

from plimsoll.fleet.service import Source
from plimsoll.quota.fold import QuotaBook
from plimsoll.rooms import SHEETS
from tests.support.command import plimsoll
from tests.support.fleets import QUOTAS, nodes, row, write_csv, write_fleet
from tests.support.imports import Importer


def test_a_file_with_a_slip_in_its_name_is_named(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path)
    write_csv(folder / "quota.csv", QUOTAS, [row("quotas")])
    (folder / "contacts.csv").write_text("a\n", encoding="utf-8")
    warnings = Source.of_path(folder, SHEETS).warnings
    assert warnings == ["contacts.csv was not read", "quota.csv was not read; did you mean quotas.csv?"]


def test_most_quotas_are_never_struck_out_by_accident(tmp_path: Path) -> None:
    importer = Importer()
    quotas = [row("quotas", team=f"team-{number}", gpus="8") for number in range(24)]
    importer.bring(write_fleet(tmp_path, nodes=nodes(40), quotas=quotas))
    write_csv(tmp_path / "quotas.csv", QUOTAS, [])
    error = importer.refused(tmp_path)
    assert error.code == "mass_removal"
    assert "strike out 24 of 24 quotas" in error.message
    importer.bring(tmp_path, is_removal_allowed=True)
    assert not importer.of(QuotaBook).quotas


def test_quota_and_work_of_a_cluster_that_was_taken_out_are_named(tmp_path: Path) -> None:
    importer = Importer()
    clusters = [row("clusters"), row("clusters", cluster="gone")]
    there = [*nodes(4), *nodes(2, prefix="g", cluster="gone", island="gone-a")]
    quotas = [row("quotas"), row("quotas", cluster="gone", gpus="8")]
    work = [row("workloads", cluster="gone", island="gone-a")]
    importer.bring(write_fleet(tmp_path, clusters=clusters, nodes=there, quotas=quotas, workloads=work))
    write_fleet(tmp_path, clusters=clusters[:1], nodes=there[:4], quotas=quotas, workloads=work)
    found = [(each["source"], each["row"], each["column"], each["value"]) for each in importer.problems(tmp_path)]
    assert found == [("quotas.csv", 3, "cluster", "gone"), ("workloads.csv", 2, "cluster", "gone")]


def test_a_refused_first_import_leaves_no_database(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", nodes=[row("nodes", sku="")])
    ran = plimsoll("fleet", "import", folder, db=f"sqlite:///{tmp_path}/new.db")
    assert ran.code == 1
    assert "nodes.csv row 2 column sku" in ran.err
    assert not (tmp_path / "new.db").exists()
