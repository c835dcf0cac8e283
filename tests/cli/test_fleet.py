"""`plimsoll fleet` as its users type it: import, export, show, nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.children import Child
from tests.support.disks import public_folder, small_disk
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer, contents
from tests.support.inside import Said, call_as_nobody, called
from tests.support.parts import missing_part

GROUP = {
    "name": "us",
    "clusters": 1,
    "islands": 1,
    "nodes": 4,
    "nodes_in_service": 2,
    "total": 32,
    "healthy": 16,
    "healthy_share": 0.5,
    "total_a100e": 102.4,
    "healthy_a100e": 51.2,
    "not_in_production": 0,
}


def test_show_counts_by_area_and_sku(book: str) -> None:
    document = called("fleet", "show", "--db", book, "-o", "json").json()
    assert list(document) == ["as_of", "revision", "totals", "groups", "clusters_without_nodes"]
    assert document["as_of"] == "2026-01-20T18:00:00.000000Z"
    assert document["groups"]["area"][1] == GROUP
    assert document["groups"]["sku"][1] == GROUP | {"name": "H200"}
    assert document["totals"] == GROUP | {
        "name": "fleet",
        "clusters": 2,
        "islands": 2,
        "nodes": 6,
        "nodes_in_service": 4,
        "not_in_production": 8,
    }


def test_show_says_in_one_line_what_there_is(book: str) -> None:
    lines = called("fleet", "show", "--db", book).out.splitlines()
    assert lines[0] == "2 clusters, 2 islands, 6 nodes; 32 GPUs in production, 16 healthy (50.0%); 102 A100e"
    assert " ".join(lines[2].split()) == (
        "area clusters islands nodes nodes in service total healthy healthy share"
        " total a100e healthy a100e not in production"
    )
    assert lines[-1] == "next: plimsoll fleet show --by cluster, plimsoll fleet nodes service!=in_service"


def test_show_by_one_thing_and_a_filter(book: str) -> None:
    document = called("fleet", "show", "cluster=tiger", "--by", "island", "--db", book, "-o", "json").json()
    assert document["groups"] == {"island": [GROUP | {"name": "tiger-a"}]}
    said = called("fleet", "show", "--by", "service", "--db", book, "-o", "csv")
    assert [line.split(",")[:4] for line in said.out.splitlines()] == [
        ["service", "clusters", "islands", "nodes"],
        ["draining", "1", "1", "1"],
        ["in_service", "2", "2", "4"],
        ["repair", "1", "1", "1"],
    ]


def test_show_names_clusters_without_nodes_and_skus_without_a_weight(tmp_path: Path) -> None:
    write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="owl", phase="planned")],
        nodes=[row("nodes", sku="B300")],
    )
    assert called("fleet", "import", "fleet").code == 0
    notes = called("fleet", "show").out.splitlines()[-3:]
    assert notes[:2] == [
        "without nodes yet: owl",
        "no A100e weight is known for B300, so they count 0: import a skus.csv (sku,a100e)",
    ]
    assert called("fleet", "show", "-o", "json").json()["clusters_without_nodes"] == ["owl"]


def test_an_empty_fleet_says_what_to_do(tmp_path: Path) -> None:
    Importer(f"sqlite:///{tmp_path}/plimsoll.db").keeper.close()
    assert called("fleet", "show").out.splitlines()[-1] == (
        "the fleet is empty; next: plimsoll demo, or plimsoll fleet import DIR"
    )


def test_nodes_lists_each_with_its_labels(book: str) -> None:
    document = called("fleet", "nodes", "node=t1,t4", "--db", book, "-o", "json").json()
    assert document["count"] == 2
    assert document["nodes"][0]["labels"] == {"rack": "r1"}
    assert document["nodes"][1] == {
        "node": "t4",
        "cluster": "tiger",
        "island": "tiger-a",
        "sku": "H200",
        "gpus": 8,
        "service": "repair",
        "since": "2026-01-05T11:00:00Z",
        "reason": "xid 79, again",
        "labels": {},
    }


def test_nodes_as_csv_are_the_rows_of_nodes_csv(book: str, tmp_path: Path) -> None:
    assert called("fleet", "nodes", "--db", book, "-o", "csv").out == _nodes_of_export(book, tmp_path)


def _nodes_of_export(book: str, tmp_path: Path) -> str:
    assert called("fleet", "export", "out", "--db", book).code == 0
    return contents(tmp_path / "out")["nodes.csv"]


def test_nodes_are_bounded_in_a_table_and_say_so(tmp_path: Path) -> None:
    Importer(f"sqlite:///{tmp_path}/plimsoll.db").bring(write_fleet(tmp_path / "fleet", nodes=nodes(60)))
    table = called("fleet", "nodes").out.splitlines()
    assert len(table) == 1 + 50 + 2
    assert table[-1] == "50 of 60 nodes; --limit 0 for all, or a narrower filter"
    assert len(called("fleet", "nodes", "--limit", "0").out.splitlines()) == 1 + 60 + 2
    limited = called("fleet", "nodes", "-o", "json", "--limit", "3").json()
    assert (limited["count"], len(limited["nodes"])) == (60, 3)
    assert len(called("fleet", "nodes", "-o", "csv").out.splitlines()) == 61


def test_import_shows_counts_first_and_then_what_changed(fleet_folder: Path, tmp_path: Path) -> None:
    said = called("fleet", "import", fleet_folder)
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "fleet: changed 11 rows"
    assert [line.split() for line in lines[2:8]] == [
        ["sheet", "added", "changed", "removed", "same"],
        ["clusters", "2", "0", "0", "0"],
        ["nodes", "6", "0", "0", "0"],
        ["quotas", "1", "0", "0", "0"],
        ["workloads", "1", "0", "0", "0"],
        ["history", "1", "0", "0", "0"],
    ]
    assert lines[-1] == "revision 12; next: plimsoll fleet show"
    assert called("fleet", "import", fleet_folder).out.splitlines()[0] == "fleet: nothing to change"

    write_fleet(tmp_path / "part", clusters=[], nodes=[row("nodes", node="t1", gpus="8", service="draining")])
    said = called("fleet", "import", "part", "--partial", "--reason", "t1 makes noise")
    assert "nodes  changed  t1   service in_service, labels.rack r1" in said.out
    assert called("audit", "log", "--limit", "1", "-o", "json").json()["events"][0]["reason"] == "t1 makes noise"


def test_import_as_json_says_everything(fleet_folder: Path, tmp_path: Path) -> None:
    document = called("fleet", "import", fleet_folder, "-o", "json").json()
    assert list(document) == ["source", "digest", "dry_run", "revision", "counts", "differences", "warnings"]
    assert (document["source"], document["dry_run"], document["revision"]) == ("fleet", False, 12)
    assert document["differences"][0] == {"sheet": "clusters", "what": "added", "key": "tiger", "was": {}}
    write_fleet(tmp_path / "part", clusters=[], nodes=[row("nodes", node="t2", rack="r1", reason="noise")])
    document = called("fleet", "import", "part", "--partial", "-o", "json").json()
    assert document["differences"] == [{"sheet": "nodes", "what": "changed", "key": "t2", "was": {"reason": ""}}]


def test_a_dry_run_makes_no_database_and_changes_none(fleet_folder: Path, tmp_path: Path) -> None:
    said = called("fleet", "import", fleet_folder, "--dry-run")
    assert said.out.splitlines()[0] == "fleet: would change 11 rows"
    assert said.out.splitlines()[-1] == "dry run: nothing was kept"
    assert list(tmp_path.iterdir()) == []
    called("fleet", "import", fleet_folder)
    head = called("audit", "head").out
    write_fleet(tmp_path / "part", clusters=[], nodes=[row("nodes", node="t9")])
    assert (
        called("fleet", "import", "part", "--partial", "--dry-run", "-o", "json").json()["counts"]["nodes"]["added"]
        == 1
    )
    assert called("audit", "head").out == head


def test_a_bad_folder_is_refused_with_every_bad_cell(fleet_folder: Path, tmp_path: Path) -> None:
    called("fleet", "import", fleet_folder)
    head = called("audit", "head").out
    write_fleet(tmp_path / "bad", nodes=[row("nodes", gpus="x"), row("nodes", node="n2", service="down")])
    said = called("fleet", "import", "bad")
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines() == [
        "plimsoll: bad has 2 problems; nothing was imported",
        "  nodes.csv row 2 column gpus: 'x', expected a whole number from 1 to 1024",
        "  nodes.csv row 3 column service: 'down', expected one of in_service, draining, quarantined, maintenance,"
        " repair, validating, joining, retired",
        "  next: correct the rows and import again",
    ]
    error = called("fleet", "import", "bad", "-o", "json").error
    assert (error["code"], error["fields"]["problem_count"]) == ("bad_import", 2)
    assert called("audit", "head").out == head


OPTIONS = {
    "--local-islands": ("an island in two clusters", ["--local-islands"]),
    "--allow-removals": ("most of the fleet gone", ["--allow-removals"]),
    "--partial": ("most of the fleet not there", ["--partial"]),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_what_is_refused_by_default_names_the_option_that_allows_it(option: str, tmp_path: Path) -> None:
    both = [row("clusters"), row("clusters", cluster="lion")]
    Importer(f"sqlite:///{tmp_path}/plimsoll.db").bring(write_fleet(tmp_path / "1", clusters=both, nodes=nodes(40)))
    rows = nodes(2) if option != "--local-islands" else [*nodes(39), row("nodes", node="n40", cluster="lion")]
    write_fleet(tmp_path / "2", clusters=both, nodes=rows)
    refused = called("fleet", "import", "2")
    assert refused.code == 1
    assert option in refused.err
    assert called("fleet", "import", "2", *OPTIONS[option][1]).code == 0


def test_export_writes_a_folder_or_a_workbook_of_any_revision(book: str, tmp_path: Path) -> None:
    said = called("fleet", "export", "now", "--db", book, "-o", "json")
    assert said.json() == {
        "path": "now",
        "revision": 14,
        "rows": {"clusters": 2, "nodes": 6, "quotas": 1, "workloads": 1, "history": 3},
    }
    assert called("fleet", "export", "then", "--db", book, "--as-of", "12").code == 0
    assert "t1,tiger,tiger-a,H200,8,draining" in contents(tmp_path / "now")["nodes.csv"]
    assert "t1,tiger,tiger-a,H200,8,in_service" in contents(tmp_path / "then")["nodes.csv"]
    assert called("fleet", "export", "now.xlsx", "--db", book).out.splitlines()[0] == "now.xlsx: written"
    assert called("fleet", "import", "now.xlsx", "--db", book).out.splitlines()[0] == "now.xlsx: nothing to change"


NOT_WRITABLE = {
    "the place is a file": ("file", "file is a file, not a folder; nothing was written"),
    "the place is in no folder": ("file/out", "file/out could not be written: Not a directory"),
    "the workbook's folder is missing": ("gone/x.xlsx", "gone/x.xlsx could not be written: No such file or directory"),
    "the system has no such place": ("/proc/out", "/proc/out could not be written: No such file or directory"),
}


@pytest.mark.parametrize("sentence", NOT_WRITABLE)
def test_an_export_that_can_not_be_written_says_why(sentence: str, book: str, tmp_path: Path) -> None:
    place, want = NOT_WRITABLE[sentence]
    (tmp_path / "file").write_text("mine")
    said = called("fleet", "export", place, "--db", book)
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[0] == f"plimsoll: {want}"
    assert said.err.splitlines()[1].startswith("  next: ")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_export_onto_a_full_disk_leaves_the_old_files_whole(book: str) -> None:
    with small_disk(1) as disk:
        if disk is None:
            missing_part("the right to mount a small disk")
        place = disk.folder / "out"
        assert called("fleet", "export", place, "--db", book).code == 0
        before = contents(place)
        _fill(disk.folder / "ballast")
        said = called("fleet", "export", place, "--db", book)
        assert said.err.splitlines()[0] == f"plimsoll: {place} could not be written: No space left on device"
        assert said.code == 1
        assert contents(place) == before


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(10_000):
            try:
                file.write(b"x" * 4096)
            except OSError:
                return


def test_a_database_that_may_only_be_read_answers_and_refuses_changes(fleet_folder: Path) -> None:
    with public_folder() as folder:
        dsn = f"sqlite:///{folder}/x.db"
        importer = Importer(dsn)
        importer.bring(fleet_folder)
        changed = write_fleet(folder / "part", clusters=[], nodes=[row("nodes", node="t9")])
        importer.keeper.close()
        (folder / "x.db").chmod(0o444)
        folder.chmod(0o555)
        with Child(call_as_nobody, "fleet", "nodes", "--db", dsn, "-o", "json") as child:
            assert Said(*child.hear()).json()["count"] == 6
        with Child(call_as_nobody, "fleet", "import", changed, "--partial", "--db", dsn) as child:
            said = Said(*child.hear())
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith(f"plimsoll: {folder}/x.db can't be written")
        assert "  next: " in said.err
        with Child(call_as_nobody, "fleet", "import", changed, "--partial", "--dry-run", "--db", dsn) as child:
            assert Said(*child.hear()).code == 0
