"""`plimsoll health slo` and `plimsoll health outages` as their users type them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import yaml

from plimsoll.rooms import open_keeper
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.inside import Said, called, plimsoll

Row = dict[str, str]
JANUARY = ("--from", "2026-01-01", "--to", "2026-01-11")


def told(time: str, service: str, reason: str = "", node: str = "t1") -> Row:
    return row("history", time=f"{time}:00Z", service=service, reason=reason, node=node)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four nodes of tiger with a story each, one of lion, one of a cluster that is not in production."""
    folder = write_fleet(
        tmp_path_factory.mktemp("folder") / "fleet",
        clusters=[
            row("clusters"),
            row("clusters", cluster="lion pride", area="eu"),
            row("clusters", cluster="cub", phase="provisioned"),
        ],
        nodes=[
            *nodes(3, prefix="t"),
            row("nodes", node="t4", service="repair", reason="fan", since="2026-01-09T00:00:00Z"),
            row("nodes", node="l1", cluster="lion pride", island="lion-a", sku="GB200", gpus="4"),
            row("nodes", node="c1", cluster="cub", island="cub-a"),
        ],
        history=[
            told("2025-12-11T00:00", "repair", "fan", "l1"),
            told("2025-12-11T12:00", "in_service", "", "l1"),
            told("2026-01-02T00:00", "quarantined", "xid 79"),
            told("2026-01-02T04:00", "repair", "xid 79"),
            told("2026-01-03T00:00", "in_service"),
            told("2026-01-05T00:00", "maintenance", "planned: driver", "t2"),
            told("2026-01-05T06:00", "repair", "xid 48", "t2"),
            told("2026-01-05T12:00", "in_service", "", "t2"),
            told("2026-01-06T00:00", "retired", "", "t3"),
        ],
    )
    dsn = f"sqlite:///{tmp_path_factory.mktemp('book')}/plimsoll.db"
    Importer(dsn).bring(folder)
    return dsn


def slo(book: str, *words: str) -> Said:
    return called("health", "slo", "--db", book, *JANUARY, *words)


def outages(book: str, *words: str) -> Said:
    return called("health", "outages", "--db", book, *JANUARY, *words)


def test_slo_as_json_has_every_ingredient(book: str) -> None:
    document = slo(book, "-o", "json").json()
    assert list(document) == [
        *("as_of", "revision", "from", "to", "days", "by", "goals", "storm_gap_minutes", "history_from", "total"),
        *("group_count", "groups", "reasons", "offenders", "trend", "not_in_production", "contradicted"),
    ]
    assert (document["from"], document["to"], document["days"]) == ("2026-01-01T00:00:00Z", "2026-01-11T00:00:00Z", 10)
    assert document["goals"] == {"in_service_share": 0.95, "mttr_hours": 48}
    # t1, t2, t4 and l1 for 240 hours, t3 for 120 until it was retired. t1 is out for 24, t2 for 6 + 6, t4 for 48.
    total = document["total"]
    assert (total["nodes"], total["node_hours"]) == (5, 4 * 240 + 120)
    assert (total["node_hours_out_planned"], total["node_hours_out_unplanned"]) == (6, 24 + 6 + 48)
    assert total["in_service_share"] == round(996 / 1080, 6)
    assert total["net_of_planned_share"] == round(996 / 1074, 6)
    assert (total["interruptions_planned"], total["interruptions_unplanned"]) == (1, 2)
    assert total["unplanned_per_1000_node_days"] == round(2000 / 45, 6)
    assert (total["mttr_hours"], total["repairs"]["count"], total["planned_work"]["count"]) == (24, 1, 1)
    assert (total["open_unplanned"], total["open_unplanned_oldest_hours"]) == (1, 48)
    assert total["gpu_hours_lost_unplanned"] == 78 * 8
    assert [group["name"] for group in document["groups"]] == ["tiger", "lion pride"]
    assert [(r["reason"], r["is_planned"], r["gpu_hours"]) for r in document["reasons"]] == [
        ("fan", False, 384),
        ("xid 79", False, 192),
        ("planned: driver", True, 48),
        ("xid 48", False, 48),
    ]
    assert document["offenders"]["by_gpu_hours"][0]["node"] == "t4"
    assert document["not_in_production"] == {"cub": 1}
    # The ten days before: nobody was out but l1, and that is long ago.
    assert document["trend"]["before"]["in_service_share"] == 1


def test_slo_for_people_names_goals_reasons_and_next_steps(book: str) -> None:
    said = slo(book)
    assert said.code == 0, said.err
    for text in (
        "nodes in service 92.22% (goal 95%: missed), MTTR 24.0 h (goal 2 days: met)",
        "5 nodes, 2026-01-01T00:00Z to 2026-01-11T00:00Z (10.0 days)",
        "worse by 7.78 points",
        "not in MTTR: 1 unplanned outage is open, the oldest for 48.0 h; 0 of them for longer than 2 days",
        "not counted: 1 node of clusters not in production (cub)",
        "next: plimsoll health outages --unplanned cluster=tiger --from 2026-01-01 --to 2026-01-11",
    ):
        assert text in said.out


def test_mttr_is_not_simply_met_while_outages_are_open_for_longer(book: str) -> None:
    words = ("--from", "2026-01-01", "--to", "2026-01-12")
    said = called("health", "slo", "--db", book, *words)
    # t1 took 24 hours; t4 is out since January 9, which is 72 hours.
    assert "MTTR 24.0 h (goal 2 days: met by those that ended, 1 open for longer)" in said.out
    assert "2 days: met " in said.out
    assert "2 days: met\n" not in said.out
    total = called("health", "slo", "--db", book, *words, "-o", "json").json()["total"]
    assert (total["mttr_goal_is_met"], total["open_unplanned_over_goal"]) == (True, 1)
    none = called("health", "slo", "--db", book, "node=t4", *words)
    assert "no unplanned outage ended (goal 2 days, 1 open for longer)" in none.out


def test_the_trend_says_which_days_it_leaves_out(book: str) -> None:
    said = slo(book)
    assert "trend; left out: 2026-01-01 to 2026-01-03 (-o json goes back to 2026-01-01)" in said.out.splitlines()
    whole = called("health", "slo", "--db", book, "--from", "2026-01-04", "--to", "2026-01-11")
    assert "trend" in whole.out.splitlines()
    years = called("health", "slo", "--db", book, "--from", "2024-01-11", "--to", "2026-01-11")
    # 8 weeks are shown, 53 are in JSON.
    assert "trend; left out: 2024-01-11 to 2025-11-16 (-o json goes back to 2025-01-05)" in years.out.splitlines()


def test_one_of_something_is_said_as_one(book: str) -> None:
    day = called("health", "slo", "--db", book, "--from", "2026-01-02", "--to", "2026-01-03")
    assert day.out.splitlines()[1].endswith("(1 day)")
    found = outages(book, "node=t1").out
    assert "1 outage began (1 unplanned), 1 unplanned one ended," in found
    assert "1 outage with hours in the period" in found


def test_lemons_are_those_of_the_policy_in_force(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/lemons.db"
    days = ("02", "04")
    history = [
        told(f"2026-01-{day}T{hour}:00", service)
        for day in days
        for hour, service in (("00", "repair"), ("01", "in_service"))
    ]
    Importer(dsn).bring(write_fleet(tmp_path / "fleet", nodes=nodes(1, prefix="t"), history=history))
    assert slo(dsn, "-o", "json").json()["offenders"]["lemons"] == []
    text = called("health", "policy", "show", "--db", dsn).out
    assert "lemon: {exits: 4, within: 30d" in text
    (tmp_path / "p.yaml").write_text(text.replace("lemon: {exits: 4, within: 30d", "lemon: {exits: 2, within: 8d"))
    assert called("health", "policy", "apply", str(tmp_path / "p.yaml"), "--db", dsn).code == 0
    offenders = slo(dsn, "-o", "json").json()["offenders"]
    assert (offenders["lemons"], offenders["lemon_exits"], offenders["lemon_days"]) == ([], 2, 8)
    said = called("health", "slo", "--db", dsn, "--from", "2026-01-01", "--to", "2026-01-10")
    assert "lemons (2 unplanned interruptions in 8 days): 1 node" in said.out


def test_next_steps_can_be_typed(book: str) -> None:
    said = slo(book, 'cluster="lion pride"')
    assert """'cluster="lion pride"'""" in said.out
    step = next(line for line in said.out.splitlines() if line.startswith("next: "))
    ran = plimsoll("health", "outages", "--unplanned", 'cluster="lion pride"', *JANUARY, db=book)
    assert ran.code == 0, step


def test_slo_as_csv_has_a_row_per_group_with_plain_columns(book: str) -> None:
    rows = list(csv.DictReader(io.StringIO(slo(book, "--by", "sku", "-o", "csv").out)))
    assert [(row["name"], row["repairs_count"], row["repairs_p90_hours"]) for row in rows] == [
        ("H200", "1", "24.0"),
        ("GB200", "0", ""),
    ]
    assert yaml.safe_load(slo(book, "-o", "yaml").out) == slo(book, "-o", "json").json()


@pytest.mark.parametrize("by", ["node", "cluster", "area", "sku", "fleet"])
def test_slo_by_anything_adds_up_to_the_total(by: str, book: str) -> None:
    document = slo(book, "--by", by, "-o", "json").json()
    assert sum(group["node_hours"] for group in document["groups"]) == document["total"]["node_hours"]
    assert slo(book, "--by", by).code == 0


def test_limit_shows_the_worst_groups_only(book: str) -> None:
    said = slo(book, "--by", "node", "--limit", "1")
    assert "1 of 5 nodes: --limit 0 for all" in said.out
    document = slo(book, "--by", "node", "--limit", "2", "-o", "json").json()
    assert ([group["name"] for group in document["groups"]], document["group_count"]) == (["t4", "t1"], 5)


def test_outages_are_the_rows_behind_the_numbers(book: str) -> None:
    document = outages(book, "-o", "json").json()
    total = slo(book, "-o", "json").json()["total"]
    for name, value in document["totals"].items():
        if name in total:
            assert value == total[name], name
    found = [(o["node"], o["hours"], o["is_planned"], o["ended"], o["reasons"]) for o in document["outages"]]
    assert found == [
        ("t4", 48, False, None, ["fan"]),
        ("t2", 12, True, "2026-01-05T12:00:00Z", ["planned: driver", "xid 48"]),
        ("t1", 24, False, "2026-01-03T00:00:00Z", ["xid 79"]),
    ]
    assert document["outages"][1]["stretches"][0] == {
        "service": "maintenance",
        "reason": "planned: driver",
        "is_planned": True,
        "from": "2026-01-05T00:00:00Z",
        "to": "2026-01-05T06:00:00Z",
    }


def test_outages_for_people_say_how_to_see_the_events(book: str) -> None:
    said = outages(book)
    assert "3 outages began (2 unplanned), 1 unplanned one ended," in said.out
    assert "1 is open at its end;" in said.out
    assert "next: plimsoll audit log --subject node/t4" in said.out
    assert "both" in said.out, "planned work that turned into a repair"


def test_outages_of_one_kind(book: str) -> None:
    assert [o["node"] for o in outages(book, "--planned", "-o", "json").json()["outages"]] == ["t2"]
    assert [o["node"] for o in outages(book, "--unplanned", "-o", "json").json()["outages"]] == ["t4", "t1"]
    lines = list(csv.DictReader(io.StringIO(outages(book, "node=t2", "-o", "csv").out)))
    assert [(line["hours_planned"], line["reasons"]) for line in lines] == [("6.0", "planned: driver; xid 48")]
    said = outages(book, "--limit", "1")
    assert "1 of 3 outages; --limit 0 for all" in said.out


def test_filters_choose_nodes_as_they_are_now(book: str) -> None:
    said = slo(book, "service=repair")
    assert "1 node, " in said.out
    assert "service, since and reason choose nodes by what they are now" in said.out
    assert slo(book, "area=eu", "-o", "json").json()["total"]["nodes"] == 1
    assert slo(book, "node=t3", "-o", "json").json()["total"]["node_hours"] == 120, "retired nodes counted until then"


BAD = {
    "a period without length": (("--from", "2026-01-05", "--to", "2026-01-05"), "bad_period"),
    "a period backwards": (("--from", "2026-01-05", "--to", "2026-01-01"), "bad_period"),
    "a period in the future": (("--from", "2090-01-01", "--to", "2090-01-05"), "bad_period"),
    "an end in the future": (("--to", "2090-01-05"), "bad_period"),
    "no time": (("--from", "yesterdayish"), "bad_time"),
    "no group": (("--by", "planet"), "bad_usage"),
    "an unknown field": (("colour=red",), "unknown_field"),
    "the past, watched": (("--watch", "--as-of", "1"), "watch_the_past"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_words_are_refused(sentence: str, book: str) -> None:
    words, want_code = BAD[sentence]
    said = called("health", "slo", "--db", book, *words, "-o", "json")
    assert (said.code, said.error["code"]) == (2, want_code)
    assert said.error["next_step"]


def test_the_calendar_has_an_end_on_both_sides(book: str) -> None:
    first = called("health", "slo", "--db", book, "--to", "0001-01-05", "-o", "json").json()
    assert (first["from"], first["days"]) == ("0001-01-01T00:00:00Z", 4)
    ages = called("health", "slo", "--db", book, "--from", "0001-01-01", "--to", "2026-01-11", "-o", "json").json()
    assert ages["total"]["open_unplanned"] == 1
    ahead = called("health", "slo", "--db", book, "--as-of", "2090-01-01", "-o", "json")
    assert ahead.code == 0, ahead.err
    assert ahead.json()["to"] < "2090"


def test_a_database_without_a_fleet(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/empty.db"
    open_keeper(dsn, create=True).close()
    said = called("health", "slo", "--db", dsn)
    assert said.code == 0, said.err
    assert "no node counted" in said.out
    assert "the fleet is empty; next: plimsoll demo" in said.out
    document = called("health", "slo", "--db", dsn, "-o", "json").json()
    assert (document["total"]["in_service_share"], document["groups"]) == (None, [])
    assert called("health", "outages", "--db", dsn, "-o", "json").json()["outages"] == []
    assert called("health", "slo", "--db", dsn, "--by", "node", "-o", "csv").code == 0


def test_a_filter_that_nothing_passes(book: str) -> None:
    said = slo(book, "node=nobody")
    assert "no node in production passes the filter" in said.out
    assert outages(book, "node=nobody").code == 0


def test_a_period_before_the_history_is_answered_with_a_warning(book: str) -> None:
    said = called("health", "slo", "--db", book, "--from", "2025-11-01", "--to", "2025-11-08")
    assert "nodes in service 100.00% (goal 95%: met), no unplanned outage ended" in said.out
    assert "warning: history is known from 2025-12-11T00:00:00Z" in said.out
    assert "no trend against the period before" in said.out


def test_one_node_without_any_history(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/one.db"
    Importer(dsn).bring(write_fleet(tmp_path / "one", nodes=nodes(1)))
    said = called("health", "slo", "--db", dsn, *JANUARY)
    assert "nodes in service 100.00%" in said.out
    assert "warning: no history is known" in said.out


def test_as_of_a_revision_nothing_later_is_known(book: str, tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/later.db"
    importer = Importer(dsn)
    importer.bring(
        write_fleet(tmp_path / "first", nodes=nodes(1, prefix="t"), history=[told("2026-01-02T00:00", "repair")])
    )
    revision = importer.head.revision
    back = told("2026-01-03T00:00", "in_service")
    importer.bring(write_fleet(tmp_path / "second", nodes=nodes(1, prefix="t"), history=[back]))
    now = called("health", "slo", "--db", dsn, *JANUARY, "-o", "json").json()["total"]
    then = called("health", "slo", "--db", dsn, *JANUARY, "--as-of", str(revision), "-o", "json").json()["total"]
    assert (now["open_unplanned"], now["mttr_hours"]) == (0, 24)
    assert (then["open_unplanned"], then["mttr_hours"]) == (1, None)
    ends = called("health", "slo", "--db", dsn, "--as-of", str(revision), "-o", "json").json()["to"]
    assert ends == "2026-01-20T12:00:00Z", "the period ends when that was recorded"


def test_nobody_said_when(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/assumed.db"
    Importer(dsn).bring(write_fleet(tmp_path / "assumed", nodes=[row("nodes", service="repair", reason="fan")]))
    words = ("--from", "2026-01-20", "--to", "2026-01-21")
    said = called("health", "outages", "--db", dsn, *words)
    assert "2026-01-20T12:00:00Z~" in said.out
    assert "~ nobody said when" in said.out
    assert called("health", "outages", "--db", dsn, *words, "-o", "json").json()["outages"][0]["is_assumed"] is True


def test_tables_fit_a_terminal(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/demo.db"
    assert called("demo", "--until", "2026-01-20", "--db", dsn).code == 0
    for words in (("slo",), ("slo", "--by", "node"), ("slo", "--by", "sku"), ("outages",)):
        said = called("health", *words, "--db", dsn, "--to", "2026-01-20")
        wide = [line for line in said.out.splitlines() if len(line) > 120]
        assert not wide, wide[:3]
        assert said.code == 0
