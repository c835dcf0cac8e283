"""Good folders: what is in them is in the state, and comes out again as it went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Count, IslandKey, Node, Phase, PoolKey, Purpose, Service
from plimsoll.quota.fold import QuotaBook
from plimsoll.times import parse_time
from plimsoll.workloads.fold_tables import Workloads
from tests.support.fleets import HEADERS, nodes, row, write_csv, write_fleet
from tests.support.imports import NOW, Importer, contents, full_fleet, patch, write_skus


def test_a_folder_becomes_nouns_as_they_are_written(tmp_path: Path) -> None:
    importer = Importer()
    plan = importer.bring(
        full_fleet(
            tmp_path,
            clusters=[row("clusters", serves="api")],
            nodes=[
                row("nodes", since="2026-01-02T03:04:05Z"),
                row("nodes", node="n2", service="repair", reason="xid 79"),
                row("nodes", node="n3", service="retired", gpus="4"),
            ],
            workloads=[row("workloads", idle_gpus="2", owner="ann")],
        )
    )
    fleet = importer.of(Fleet)
    assert fleet.clusters == {
        "tiger": Cluster(
            "tiger", "us-north", Area.US, "colo-1", "acme", Purpose.RESEARCH, Phase.PRODUCTION, {"serves": "api"}
        )
    }
    assert importer.node("n1") == Node(
        "n1", "tiger", "tiger-a", "H200", 8, Service.IN_SERVICE, parse_time("2026-01-02T03:04:05Z")
    )
    assert importer.node("n2") == Node("n2", "tiger", "tiger-a", "H200", 8, Service.REPAIR, None, "xid 79")
    # Two nodes of eight GPUs, one of them in service; a retired node counts nowhere, not even its other GPU number.
    assert dict(fleet.pools) == {PoolKey("tiger", "H200"): Count(2, 16, 1, 8)}
    assert dict(fleet.islands) == {IslandKey("tiger-a", "H200"): Count(2, 16, 1, 8)}
    assert dict(importer.of(QuotaBook).assigned) == {PoolKey("tiger", "H200"): 16}
    assert dict(importer.of(Workloads).held) == {IslandKey("tiger-a", "H200"): 8}
    assert plan.counts()["nodes"] == {"added": 3, "changed": 0, "removed": 0, "same": 0}
    # One event that says where they came from, and one for each row.
    assert importer.head.revision == 1 + 1 + 3 + 1 + 1 + 1


def test_extra_columns_of_every_sheet_are_kept_and_exported_again(tmp_path: Path) -> None:
    folder = full_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters", serves="api"), row("clusters", cluster="lion")],
        nodes=[row("nodes", rack="r 1"), row("nodes", node="n2", rack="r2", serial="=1+1")],
        quotas=[row("quotas", ticket="Q-1")],
        workloads=[row("workloads", owner="ann")],
        history=[row("history", ticket="T-1", seen_by="ü")],
    )
    write_skus(folder, [{"sku": "H200", "a100e": "3.25", "memory": "141 GB"}], "memory")
    importer = Importer()
    importer.bring(folder)
    exported = {
        name: [dict(zip(rows[0], cells, strict=True)) for cells in rows[1:]] for name, rows in importer.sheets().items()
    }
    assert [each["serves"] for each in exported["clusters"]] == ["", "api"]
    assert [(each["rack"], each["serial"]) for each in exported["nodes"]] == [("r 1", ""), ("r2", "=1+1")]
    assert [each["ticket"] for each in exported["quotas"]] == ["Q-1"]
    assert [each["owner"] for each in exported["workloads"]] == ["ann"]
    assert [(each["ticket"], each["seen_by"]) for each in exported["history"]] == [("T-1", "ü")]
    assert exported["skus"] == [{"sku": "H200", "a100e": "3.25", "memory": "141 GB"}]


def test_the_extra_columns_of_the_last_transition_are_kept_although_the_node_told_of_it_first(tmp_path: Path) -> None:
    out = {"service": "repair", "reason": "xid 79"}
    importer = Importer()
    importer.bring(
        write_fleet(
            tmp_path,
            nodes=[row("nodes", since="2026-01-05T11:00:00Z", **out)],
            history=[row("history", time="2026-01-05T11:00:00Z", ticket="T-1", **out)],
        )
    )
    assert importer.sheets()["history"] == [
        ["time", "node", "service", "reason", "ticket"],
        ["2026-01-05T11:00:00Z", "n1", "repair", "xid 79", "T-1"],
    ]


def test_an_export_is_written_as_files_that_another_tool_can_read(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(
        full_fleet(tmp_path / "in", nodes=[row("nodes", reason='the "big" fan, again', since="2026-01-05 11:00+01:00")])
    )
    written = contents(importer.export(tmp_path / "out"))
    assert written["nodes.csv"] == (
        "node,cluster,island,sku,gpus,service,since,reason\n"
        'n1,tiger,tiger-a,H200,8,in_service,2026-01-05T10:00:00Z,"the ""big"" fan, again"\n'
    )
    assert sorted(written) == ["clusters.csv", "history.csv", "nodes.csv", "quotas.csv", "workloads.csv"]
    assert (tmp_path / "out" / "nodes.csv").stat().st_mode & 0o777 == 0o644


FORMS: dict[str, tuple[str, str]] = {
    "a byte order mark": ("", "\ufeff"),
    "line ends of Windows": ("\r\n", ""),
    "line ends of an old Macintosh": ("\r", ""),
    "a byte order mark and line ends of Windows": ("\r\n", "\ufeff"),
}


@pytest.mark.parametrize("sentence", FORMS)
def test_the_form_of_a_file_makes_no_difference(sentence: str, tmp_path: Path) -> None:
    line_end, mark = FORMS[sentence]
    importer = Importer()
    plain = full_fleet(tmp_path / "plain")
    importer.bring(plain)
    other = full_fleet(tmp_path / "other")
    for file in other.iterdir():
        text = mark + file.read_text(encoding="utf-8").replace("\n", line_end or "\n")
        file.write_bytes(text.encode())
    assert not importer.bring(other).is_change


def test_spaces_around_names_cells_and_columns_are_nothing(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(full_fleet(tmp_path / "plain", nodes=[row("nodes", rack="r1"), row("nodes", node="n2")]))
    spaced = full_fleet(tmp_path / "spaced")
    header = [*HEADERS["nodes"], "rack"]
    rows = [row("nodes", rack="r1"), row("nodes", node="n2", rack="  ")]
    write_csv(
        spaced / "nodes.csv",
        [f" {name}\u00a0" for name in header],
        [{f" {name}\u00a0": f"  {cell}\t" for name, cell in each.items()} for each in rows],
    )
    assert not importer.bring(spaced).is_change


def test_empty_lines_and_the_order_of_columns_are_nothing(tmp_path: Path) -> None:
    importer = Importer()
    folder = full_fleet(tmp_path, nodes=nodes(2))
    importer.bring(folder)
    write_csv(folder / "nodes.csv", HEADERS["nodes"][::-1], nodes(2))
    patch(folder / "nodes.csv", "n1\n", "n1\n\n\n")
    assert not importer.bring(folder).is_change


NAMES = {
    "a name of another alphabet": "тигр-01",
    "a name with a space, a comma and a quote": 'rack 7, "left"',
    "a name of pictures": "🐯-1",
    "a name that a spreadsheet would compute": "=HYPERLINK(0)",
    "a name that looks like a number": "0012",
    "a name of 200 characters": "x" * 200,
}


@pytest.mark.parametrize("sentence", NAMES)
def test_names_stay_as_they_are(sentence: str, tmp_path: Path) -> None:
    name = NAMES[sentence]
    importer = Importer()
    folder = full_fleet(
        tmp_path / "in",
        clusters=[row("clusters", cluster=name, region=name, colo=name)],
        nodes=[row("nodes", node=name, cluster=name, island=name, sku=name, reason=name)],
        quotas=[row("quotas", team=name, cluster=name, sku=name)],
        workloads=[row("workloads", workload=name, team=name, cluster=name, island=name, sku=name)],
        history=[row("history", node=name, reason=name)],
    )
    importer.bring(folder)
    assert importer.node(name).reason == name
    assert contents(importer.export(tmp_path / "out")) == contents(folder)


GPU_NUMBERS = {"8": 8, "8.0": 8, "08": 8, " 8 ": 8, "1024": 1024}


@pytest.mark.parametrize("text", GPU_NUMBERS)
def test_whole_numbers_may_look_as_spreadsheets_write_them(text: str, tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=[row("nodes", gpus=text)]))
    assert importer.node("n1").gpus == GPU_NUMBERS[text]


TIMES = {
    "2026-01-05": "2026-01-05T00:00:00Z",
    "2026-01-05T11:00": "2026-01-05T11:00:00Z",
    "2026-01-05 11:00:00.25": "2026-01-05T11:00:00.250000Z",
    "2026-01-05T11:00:00+05:30": "2026-01-05T05:30:00Z",
    "2026-01-20T12:04:59Z": "2026-01-20T12:04:59Z",
}
"""The last one is ahead of our clock by less than clocks may disagree."""


@pytest.mark.parametrize("text", TIMES)
def test_times_are_read_in_their_zone_and_written_in_utc(text: str, tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=[row("nodes", since=text)]))
    assert importer.sheets()["nodes"][1][6] == TIMES[text]


ISLANDS = {
    "a name that both clusters use": ("a", "a", {"tiger/a", "lion/a"}),
    "a name that an export has made longer already": ("tiger/a", "lion/a", {"tiger/a", "lion/a"}),
}


@pytest.mark.parametrize("sentence", ISLANDS)
def test_local_islands_are_told_apart_by_their_cluster(sentence: str, tmp_path: Path) -> None:
    first, second, want = ISLANDS[sentence]
    importer = Importer()
    folder = write_fleet(
        tmp_path / "in",
        clusters=[row("clusters"), row("clusters", cluster="lion")],
        nodes=[row("nodes", island=first), row("nodes", node="n2", cluster="lion", island=second)],
        workloads=[row("workloads", island=first)],
    )
    importer.bring(folder, has_local_islands=True)
    assert set(importer.of(Fleet).island_cluster) == want
    assert dict(importer.of(Workloads).held) == {IslandKey("tiger/a", "H200"): 8}
    exported = importer.export(tmp_path / "out")
    assert not importer.bring(exported).is_change
    assert not importer.bring(exported, has_local_islands=True).is_change


def test_a_sku_without_a_weight_is_accepted_with_a_warning_until_it_has_one(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path, nodes=[row("nodes", sku="B300")])
    importer = Importer()
    assert importer.bring(folder).warnings == ["no A100e weight is known for SKU B300: add it to skus.csv (sku,a100e)"]
    write_skus(folder, [{"sku": "B300", "a100e": "14.5"}])
    assert importer.bring(folder).warnings == []
    assert importer.of(Fleet).a100e("B300") == 14.5


WEIGHTS: dict[str, tuple[str, float, str, dict[str, str | None]]] = {
    "a weight that differs from the default": ("4", 4.0, "changed", {"a100e": "3.2"}),
    "a weight that is the default, but said": ("3.2", 3.2, "added", {}),
    "a weight of many digits": ("3.14159265358979", 3.14159265358979, "changed", {"a100e": "3.2"}),
}


@pytest.mark.parametrize("sentence", WEIGHTS)
def test_a_weight_is_set_by_its_file(sentence: str, tmp_path: Path) -> None:
    text, want_weight, want_what, want_was = WEIGHTS[sentence]
    folder = write_skus(write_fleet(tmp_path), [{"sku": "H100", "a100e": text}])
    importer = Importer()
    assert importer.differences(folder)["skus", "H100"] == (want_what, want_was)
    assert importer.of(Fleet).a100e("H100") == want_weight
    assert importer.sheets()["skus"] == [["sku", "a100e"], ["H100", text]]
    assert not importer.bring(folder).is_change


def test_weights_that_are_left_out_later_stay(tmp_path: Path) -> None:
    folder = write_skus(write_fleet(tmp_path), [{"sku": "H100", "a100e": "4"}, {"sku": "X", "a100e": "1"}])
    importer = Importer()
    importer.bring(folder)
    assert not importer.bring(write_skus(folder, [{"sku": "X", "a100e": "1"}])).is_change
    assert importer.of(Fleet).a100e("H100") == 4.0


ONLY_HEADERS: dict[str, tuple[str, Any]] = {
    "no quota": ("quotas", 0),
    "no workload": ("workloads", 0),
    "no history": ("history", 0),
}


@pytest.mark.parametrize("sentence", ONLY_HEADERS)
def test_a_file_with_only_its_header_says_that_there_is_none(sentence: str, tmp_path: Path) -> None:
    sheet, want_added = ONLY_HEADERS[sentence]
    plan = Importer().bring(full_fleet(tmp_path, **{sheet: []}))
    assert plan.counts()[sheet]["added"] == want_added
    assert plan.counts()["nodes"]["added"] == 4


def test_a_fleet_of_no_nodes_and_no_clusters_is_one(tmp_path: Path) -> None:
    importer = Importer()
    assert not importer.bring(write_fleet(tmp_path, clusters=[], nodes=[])).is_change
    assert importer.head.revision == 0


def test_the_log_says_who_brought_what_and_why(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "july"), reason="the yearly count")
    first = importer.keeper.ledger.store.event_at(1)
    assert first is not None
    assert (first.kind, first.subject, first.actor, first.reason) == (
        "fleet.imported",
        "fleet",
        "tester",
        "the yearly count",
    )
    assert first.recorded_time == NOW


def test_a_folder_whose_name_is_not_text_is_imported_under_one_that_is(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "a\nb\udcff")
    assert Importer().bring(folder).source == "a?b?"


def test_an_export_leaves_no_older_file_that_would_be_taken_for_a_part_of_it(tmp_path: Path) -> None:
    folder = full_fleet(tmp_path / "fleet")
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "bare"))
    importer.export(folder)
    assert contents(folder)["quotas.csv"] == "team,cluster,sku,gpus\n"
    assert not importer.bring(folder).is_change
