"""`plimsoll quota compare|report`: what is printed, and what is said to bad input."""

from __future__ import annotations

import csv
import io
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.times import utc_now
from tests.support.command import PLIMSOLL
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.inside import Said, called

DAYS = 30


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """tiger has 10 nodes, 9 of which work; two teams hold 5 nodes each and run nothing. 30 days of history."""
    now = utc_now()
    since = (now - timedelta(days=3)).isoformat()
    folder = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", phase="planned")],
        nodes=[*nodes(9), row("nodes", node="n10", service="repair", since=since, reason="xid 79")],
        quotas=[row("quotas", gpus="40"), row("quotas", team="vision", gpus="40")],
        history=[
            row("history", time=(now - timedelta(days=DAYS)).isoformat(), service="in_service", reason="checked"),
            row("history", time=since, node="n10"),
        ],
    )
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = Importer(dsn)
    importer.now = now
    importer.bring(folder)
    importer.keeper.close()
    monkeypatch.setenv("PLIMSOLL_DB", dsn)
    return dsn


def compared(*words: object) -> Any:
    said = called("quota", "compare", *words, "-o", "json")
    assert (said.code, said.err) == (0, "")
    return said.json()


def refused(*words: object) -> Said:
    said = called("quota", *words, "-o", "json")
    assert said.out == ""
    return said


@pytest.mark.usefixtures("db")
def test_json_has_every_number() -> None:
    document = compared("--buffers", "0,10,forecast")
    none, tenth, forecast = document["policies"]
    assert (none["policy"], none["clusters_over"], none["over"], none["never_backed"]) == ("fixed:0", 1, 8, 8)
    assert none["haircut"] == {"unscheduled": 8, "idle": 0, "running": 0}
    assert (none["teams_touched"], none["flex_created"], none["reason"]) == (1, 0, None)
    # A forecast can start after 14 of 30 days. In the last 3 of the 16 left one of 10 nodes is out: from the 13th day
    # on, until the decision on the 14th knows of it.
    assert (document["days"], document["judged_days"], none["past"]["pool_hours"]) == (90, 16.0, 16 * 24)
    assert tenth["kept_share"] == 1.0
    assert none["kept_share"] == pytest.approx(1 - 24 / 384, abs=1.5 / 384)
    assert forecast["kept_share"] is not None
    assert {each["policy"] for each in document["teams"]} == {"fixed:0", "fixed:0.1", "forecast"}
    assert {(each["cluster"], each["sku"]) for each in document["clusters"]} == {("tiger", "H200")}
    assert document["today"]["kept_share"] == pytest.approx(1 - 72 / 384, abs=1.5 / 384)


@pytest.mark.usefixtures("db")
def test_tables_and_csv() -> None:
    said = called("quota", "compare", "--buffers", "0,10", "--days", "20")
    assert said.code == 0
    assert "80 GPUs are assigned in 1 pool, 72 work: 8 of what is assigned was never there" in said.out
    assert "replayed over 20 days" in said.out
    by_team = called("quota", "compare", "--buffers", "0,10", "--by", "team").out
    assert "team    assigned  fixed:0  fixed:0.1" in by_team
    rows = list(csv.DictReader(io.StringIO(called("quota", "compare", "--by", "cluster", "-o", "csv").out)))
    assert [each["policy"] for each in rows][:3] == ["fixed:0", "fixed:0.05", "fixed:0.1"]
    assert rows[0]["never_backed"] == "8"
    plain = list(csv.DictReader(io.StringIO(called("quota", "compare", "-o", "csv").out)))
    assert (plain[0]["policy"], plain[0]["cut_unscheduled"]) == ("fixed:0", "8")


BAD = {
    "a buffer of 100": (("--buffers", "100"), "bad_buffers", "100 % is not from 0 up to"),
    "a negative buffer": (("--buffers", "-5"), "bad_buffers", "-5 % is not from 0 up to"),
    "no such policy": (("--buffers", "abc"), "bad_buffers", "neither a file nor a policy's name"),
    "twice": (("--buffers", "5,5"), "bad_buffers", "named twice"),
    "an empty list": (("--buffers", ""), "bad_buffers", "nothing is named"),
    "no days": (("--days", "0"), "bad_days", "--days 0 is not a number of days"),
    "days in words": (("--days", "soon"), "bad_usage", "valid integer"),
}


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_words(case: tuple[tuple[str, ...], str, str]) -> None:
    words, want_code, want = case
    said = refused("compare", *words)
    assert said.code == 2
    assert said.error["code"] == want_code
    assert want in said.error["message"]


@pytest.mark.usefixtures("db")
def test_an_unknown_cluster_is_named() -> None:
    said = refused("compare", "--cluster", "tigr")
    assert (said.code, said.error["code"]) == (1, "no_such_cluster")
    assert "tiger" in said.error["message"] + said.error["next_step"]


def test_an_empty_database_has_nothing_to_compare(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/empty.db"
    Importer(dsn).keeper.close()
    said = called("--db", dsn, "quota", "compare")
    assert said.code == 0
    assert "there is no pool to compare policies on" in said.out
    report = called("--db", dsn, "quota", "report", "-o", "html")
    assert (report.code, report.out) == (1, "")
    assert "there are 0 pools to report on" in report.err


def test_no_history_is_said_in_the_row(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/young.db"
    importer = Importer(dsn)
    importer.bring(write_fleet(tmp_path / "young", quotas=[row("quotas", gpus="40")]))
    importer.keeper.close()
    said = called("--db", dsn, "quota", "compare", "--buffers", "0,forecast")
    assert said.code == 0
    assert "fixed:0: 0 hours of history are too few to judge anything by" in said.out
    assert "fixed:0.05, fixed:0.1: 0 hours" in called("--db", dsn, "quota", "compare", "--buffers", "5,10").out
    assert "forecast: the history runs over 0.0 days" in said.out


@pytest.mark.usefixtures("db")
def test_a_report_in_every_form(tmp_path: Path) -> None:
    words = ("quota", "report", "--policy", "fixed:0", "--buffers", "0,10")
    markdown = called(*words)
    assert markdown.code == 0
    assert markdown.out.startswith("# All 8 GPUs that the correction takes were never there\n")
    html = called(*words, "-o", "html").out
    assert html.startswith("<!doctype html>")
    assert "<svg" in html
    picture = tmp_path / "report.png"
    said = called(*words, "-o", "png", "--out", picture)
    assert said.out.startswith(f"{picture}: written, ")
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("db")
def test_a_report_on_the_policy_in_force_or_on_a_file(tmp_path: Path) -> None:
    assert "policy fixed:0.15" in called("quota", "report", "--buffers", "0,15").out
    file = tmp_path / "lines.yaml"
    file.write_text("policy: half\nlines:\n  - {scope: {}, by: fixed, buffer: 0.5}\n", encoding="utf-8")
    said = called("quota", "report", "--policy", file, "--buffers", "0")
    assert "policy half" in said.out
    assert "50 % buffer" in said.out


@pytest.mark.usefixtures("db")
def test_a_history_that_stopped_is_warned_of() -> None:
    # The last that was told is n10 going out, three days ago.
    assert compared("--buffers", "0")["quiet_days"] == pytest.approx(3.0, abs=0.01)
    want = "warning: nothing was told of any node in the last 3.0 days, which count as if nothing had happened"
    assert want in called("quota", "compare", "--buffers", "0").out


@pytest.mark.usefixtures("db")
def test_a_cluster_that_is_not_in_production_has_nothing_to_compare() -> None:
    said = called("quota", "compare", "--cluster", "lion")
    assert (said.code, "there is no pool to compare policies on" in said.out) == (0, True)


@pytest.mark.usefixtures("db")
def test_a_report_that_can_not_be_written(tmp_path: Path) -> None:
    said = called("quota", "report", "--buffers", "0", "--out", tmp_path / "nowhere" / "report.md")
    assert said.code == 2
    assert "can't be written: No such file or directory" in said.err


def test_a_picture_goes_to_a_pipe_as_it_is(db: str) -> None:
    ran = subprocess.run(
        [PLIMSOLL, "--db", db, "quota", "report", "--buffers", "0", "-o", "png"], capture_output=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.startswith(b"\x89PNG")
