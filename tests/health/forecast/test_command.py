"""`plimsoll health forecast` and `backtest` as their users have them."""

from __future__ import annotations

import csv
import io
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from plimsoll.health.forecast.methods import METHODS
from plimsoll.times import parse_time, show_time
from tests.support.command import PLIMSOLL
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer
from tests.support.inside import called, plimsoll
from tests.support.terminal import terminal_environment

START = datetime(2025, 9, 1, tzinfo=UTC)
DAYS = 60
SCORE_FIELDS = {
    "method", "violation_rate", "buffer_share", "worst_cluster", "shortfall_mean", "hindsight_buffer_share",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters and one that is not in production; each day a node is out, and every ten days three of them."""
    history = []
    for day in range(DAYS):
        names = ["t1", "t2", "t3"] if day % 10 == 9 else [f"t{day % 8 + 1}"]
        for name in [*names, f"l{day % 3 + 1}"]:
            begin = START + timedelta(days=day, hours=3)
            history.append(row("history", time=show_time(begin), node=name, service="repair"))
            back = show_time(begin + timedelta(hours=9))
            history.append(row("history", time=back, node=name, service="in_service", reason=""))
    return write_fleet(
        tmp_path_factory.mktemp("folder") / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion"), row("clusters", cluster="cub", phase="planned")],
        nodes=[*nodes(20, prefix="t"), *nodes(6, prefix="l", cluster="lion", island="lion-a")],
        history=history,
    )


@pytest.fixture(scope="module")
def book(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    dsn = f"sqlite:///{tmp_path_factory.mktemp('book')}/plimsoll.db"
    Importer(dsn).bring(folder)
    return dsn


def test_backtest_prints_what_is_documented(folder: Path) -> None:
    ran = plimsoll("health", "backtest", folder, "--window", "20d", "--horizon", "5d", "-o", "json")
    assert ran.code == 0, ran.err
    document = ran.json()
    names = [method.name for method in METHODS]
    assert [score["method"] for score in document["methods"]] == names
    assert all(set(score) >= SCORE_FIELDS for score in [*document["methods"], document["hindsight"]])
    assert {each["method"] for each in document["decisions"]} == set(names)
    assert document["recommended"] in names
    assert document["recommended_for_each"] in {method.name for method in METHODS if method.promises_each}
    assert document["skipped"] == ["cub"]
    decisions = document["decisions"]
    assert set(decisions[0]) >= {"cluster", "method", "at", "until", "total", "promised"}
    mine = [each for each in decisions if (each["method"], each["cluster"]) == ("worst", "tiger")]
    first = START + timedelta(hours=3)
    # From 3 o'clock of the first day to noon of the last: 59 days and 9 hours hold a window of 20 and 7 horizons.
    assert [parse_time(each["at"]) for each in mine] == [first + timedelta(days=20 + 5 * k) for k in range(7)]
    assert {each["total"] for each in mine} == {20}
    assert {each["promised"] for each in mine} == {17}


def test_the_figures_follow_from_the_decisions(folder: Path) -> None:
    """Recompute them from the files and the decisions alone."""
    document = plimsoll("health", "backtest", folder, "--window", "20d", "-o", "json").json()
    out: dict[str, list[tuple[datetime, datetime]]] = {}
    with (folder / "history.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            spans = out.setdefault(line["node"], [])
            moment = parse_time(line["time"])
            if line["service"] == "repair":
                spans.append((moment, moment))
            else:
                spans[-1] = (spans[-1][0], moment)
    for score in document["methods"]:
        violated = hours = 0
        shares = []
        for each in (each for each in document["decisions"] if each["method"] == score["method"]):
            moment, until = parse_time(each["at"]), parse_time(each["until"])
            shares.append((each["total"] - each["promised"]) / each["total"])
            while moment < until:
                # All outages begin and end on the hour here, so an hour is as it opens.
                down = sum(
                    begin <= moment < end
                    for node, spans in out.items()
                    if node[0] == each["cluster"][0]
                    for begin, end in spans
                )
                violated += each["total"] - down < each["promised"]
                hours += 1
                moment += timedelta(hours=1)
        assert score["violation_rate"] == pytest.approx(violated / hours)
        assert score["buffer_share"] == pytest.approx(sum(shares) / len(shares))


def test_decisions_before_a_moment_are_the_same_on_a_history_cut_there(folder: Path, tmp_path: Path) -> None:
    cut_at = START + timedelta(days=41, hours=5)
    lines = (folder / "history.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    shorter = tmp_path / "cut"
    shorter.mkdir()
    for name in ("clusters.csv", "nodes.csv"):
        (shorter / name).write_bytes((folder / name).read_bytes())
    kept = [line for line in lines[1:] if parse_time(line.split(",")[0]) <= cut_at]
    (shorter / "history.csv").write_text("".join([lines[0], *kept]), encoding="utf-8")
    found = [
        plimsoll("health", "backtest", path, "--window", "20d", "-o", "json").json()["decisions"]
        for path in (folder, shorter)
    ]
    full, cut = (
        {(each["cluster"], each["method"], each["at"]): each["promised"] for each in decisions
         if parse_time(each["at"]) < cut_at}
        for decisions in found
    )  # fmt: skip
    assert cut
    assert cut == {key: full[key] for key in cut}


def test_a_node_that_is_retired_now_was_there_before(folder: Path, tmp_path: Path) -> None:
    """What nodes.csv says of now must not reach back: decisions are the same whatever became of a node."""
    found = []
    for name, service in (("there", "in_service"), ("left", "retired")):
        other = tmp_path / name
        other.mkdir()
        for file in folder.iterdir():
            (other / file.name).write_bytes(file.read_bytes())
        text = (other / "nodes.csv").read_text(encoding="utf-8").splitlines(keepends=True)
        text = [line.replace("in_service", service) if line.startswith("t19,") else line for line in text]
        (other / "nodes.csv").write_text("".join(text), encoding="utf-8")
        assert ("retired" in "".join(text)) == (service == "retired")
        found.append(plimsoll("health", "backtest", other, "--window", "20d", "-o", "json").json()["decisions"])
    assert found[0] == found[1]


def test_a_folder_without_history_is_refused(tmp_path: Path) -> None:
    """`since` of two nodes half a year apart is no past to judge by."""
    out = [row("nodes", node=f"n{n}", service="repair", since=show_time(START + timedelta(days=n))) for n in (10, 210)]
    empty = write_fleet(tmp_path / "empty", nodes=[*nodes(2), *out], history=[])
    absent = write_fleet(tmp_path / "absent", nodes=[*nodes(2), *out])
    (absent / "history.csv").unlink(missing_ok=True)
    for path in (empty, absent):
        said = called("health", "backtest", path, "-o", "json")
        assert (said.code, said.error["code"]) == (1, "no_history")
        assert "0 transitions, and `since` of 2 of 4 nodes" in said.error["message"]
        assert "history.csv" in said.error["next_step"]


def test_one_is_one(tmp_path: Path) -> None:
    history = [
        row("history", time=show_time(START + timedelta(days=days)), node="n1", service=service)
        for days, service in ((0, "repair"), (1, "in_service"), (29, "repair"))
    ]
    path = write_fleet(tmp_path / "fleet", nodes=nodes(5), history=history)
    ran = plimsoll("health", "backtest", path, "--window", "20d")
    assert "1 decision in 1 cluster over 29 days" in ran.out


def test_backtest_for_people_and_as_csv(folder: Path) -> None:
    ran = plimsoll("health", "backtest", folder, "--window", "20d", "--method", "worst", "--method", "arrivals")
    assert ran.out.startswith("fleet: ")
    assert "hindsight knows the future" in ran.out
    assert "left out, not in production or without nodes: cub" in ran.out
    assert "trailing" not in ran.out
    lines = list(
        csv.DictReader(io.StringIO(plimsoll("health", "backtest", folder, "--window", "20d", "-o", "csv").out))
    )
    assert len(lines) == len(METHODS) + 1
    assert 0 <= float(lines[0]["violation_rate"]) <= 1


BAD_BACKTESTS = {
    "a window longer than the history": (
        ["--window", "90d"],
        1,
        "history_too_short",
        "59.4 days, and a window of 90 days",
    ),
    "a horizon of nothing": (["--horizon", "0d"], 2, "bad_span", "0 hours"),
    "a window of nothing": (["--window", "0h"], 2, "bad_span", "0 hours"),
    "a span that is none": (["--horizon", "a week"], 2, "bad_span", "'a week'"),
    "minutes": (["--horizon", "90m"], 2, "bad_span", "whole hours"),
    "a target beyond certainty": (["--target", "1.5"], 2, "bad_target", "1.5"),
    "a target of which nothing is left": (["--target", "1e-140"], 2, "bad_target", "1e-140"),
    "a method that does not exist": (["--method", "guard"], 2, "bad_method", "did you mean guarded?"),
    "the oracle": (["--method", "hindsight"], 2, "bad_method", "'hindsight'"),
}


@pytest.mark.parametrize("case", BAD_BACKTESTS)
def test_backtest_refuses(case: str, folder: Path) -> None:
    words, want_code, want_error, want_text = BAD_BACKTESTS[case]
    said = called("health", "backtest", folder, *words, "-o", "json")
    assert said.code == want_code
    assert said.error["code"] == want_error
    assert want_text in said.error["message"]
    assert said.error["next_step"]


def test_a_bad_folder_is_told_as_an_import_tells_it(tmp_path: Path) -> None:
    assert called("health", "backtest", tmp_path / "nowhere", "-o", "json").error["next_step"]
    bad = write_fleet(tmp_path / "fleet", history=[row("history", node="n99")])
    said = called("health", "backtest", bad, "-o", "json")
    assert said.error["code"] == "bad_import"
    assert "history.csv row 2" in said.error["message"]


def test_forecast_prints_what_is_documented(book: str) -> None:
    document = plimsoll("health", "forecast", "--horizon", "5d", "-o", "json", db=book).json()
    now = parse_time(document["from"])
    assert abs(datetime.now(UTC) - now) < timedelta(minutes=5), "the history ended long ago; the promise is for now"
    assert parse_time(document["until"]) == now + timedelta(days=5)
    assert document["history_until"] == "2025-10-30T12:00:00Z"
    assert (document["history_days"], document["history_is_short"]) == (59.375, True)
    lion, tiger = document["pools"]
    assert (lion["cluster"], tiger["cluster"], tiger["total"], tiger["healthy"]) == ("lion", "tiger", 160, 160)
    assert tiger["promised"] == tiger["total"] - tiger["buffer"]
    assert tiger["promised"] % 8 == 0
    by_arrivals = plimsoll("health", "forecast", "--method", "arrivals", "-o", "json", db=book).json()["pools"][1]
    assert {"failures_per_1000_node_days", "weekly_dispersion", "repair_hours_median", "out_now"} <= set(
        by_arrivals["why"]
    )
    assert "floor_nodes" not in by_arrivals["why"]
    assert tiger["common_cause"]["burst_count"] == 6
    assert tiger["common_cause"]["domain"] == "island"
    assert document["totals"]["promised"] == lion["promised"] + tiger["promised"]


def test_forecast_for_people_says_the_number_why_and_what_next(book: str) -> None:
    ran = plimsoll("health", "forecast", "--cluster", "tiger", "--method", "pooled", db=book)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("tiger: ")
    for text in ("GPUs can be promised for 7 days at 0.99", "per 1,000 node-days", "bursts", "planned work", "next: "):
        assert text in ran.out
    assert "the history is short, 59 days" in ran.out


def test_forecast_says_when_the_history_ended_and_for_whom_a_target_holds(book: str) -> None:
    ran = plimsoll("health", "forecast", "--cluster", "tiger", "--method", "thrifty", db=book)
    assert "warning: nothing was told since 2025-10-30T12:00:00Z" in ran.out
    assert "warning: with thrifty the target holds for the fleet as a whole, not for each pool" in ran.out
    ran = plimsoll("health", "forecast", "--cluster", "tiger", "--method", "worst", db=book)
    assert "warning: with" not in ran.out
    assert "asks for      3 nodes (" in ran.out
    assert "per 1,000 node-days" not in ran.out, "a number that this method did not use"


def test_a_hold_with_an_end_is_in_the_promise_and_in_the_words(folder: Path, tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    Importer(dsn).bring(folder)
    before = plimsoll("health", "forecast", "--method", "pooled", "-o", "json", db=dsn).json()["pools"][1]
    words = ("--id", "rebuild", "--service", "maintenance", "--until", "30d", "--reason", "planned: rebuild")
    assert plimsoll("health", "hold", "t1", "t2", "t3", "t4", *words, db=dsn).code == 0
    ran = plimsoll("health", "forecast", "--cluster", "tiger", "--method", "pooled", db=dsn)
    assert "4 of them over the whole horizon; put in as known" in ran.out
    after = plimsoll("health", "forecast", "--method", "pooled", "-o", "json", db=dsn).json()["pools"][1]
    assert [down["is_told"] for down in after["down"]] == [True] * 4
    # The silence from the end of the history until the hold thins the rates out, so some margin may go.
    assert after["promised"] <= min(before["promised"] + 8, 160 - 4 * 8)


def test_forecast_of_the_past_looks_ahead_from_there(book: str) -> None:
    revision = plimsoll("health", "forecast", "-o", "json", db=book).json()["revision"]
    asked = {"2026-01-25T06:00:00Z": "2026-01-25T06:00:00Z", str(revision): show_time(NOW)}
    for as_of, want_from in asked.items():
        document = plimsoll("health", "forecast", "--as-of", as_of, "-o", "json", db=book).json()
        assert document["from"] == want_from, "the moment, or when the revision was recorded"


def test_forecast_of_the_past(book: str) -> None:
    said = called("health", "forecast", "--as-of", "0", "--db", book, "-o", "json")
    assert said.error["code"] == "nothing_to_forecast"


def test_forecast_draws(book: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [PLIMSOLL, "health", "forecast", "--cluster", "tiger", "-o", "png", "--db", book],
        capture_output=True,
        check=True,
    )
    assert ran.stdout.startswith(b"\x89PNG\r\n")
    file = tmp_path / "fleet.svg"
    assert plimsoll("health", "forecast", "-o", "svg", "--file", file, db=book).code == 0
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert "tiger H200" in text


def test_no_picture_on_a_terminal(book: str) -> None:
    ours, theirs = pty.openpty()
    ran = subprocess.run(
        [PLIMSOLL, "health", "forecast", "-o", "png", "--db", book],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=terminal_environment(),
        check=False,
    )
    for descriptor in (ours, theirs):
        os.close(descriptor)
    assert ran.returncode == 2
    assert b"a terminal can't show PNG" in ran.stderr
    assert b"--file forecast.png" in ran.stderr


BAD_FORECASTS = {
    "an unknown cluster": (["--cluster", "tigre"], 1, "no_such_cluster", "did you mean tiger?"),
    "a horizon longer than half the history": (["--horizon", "60d"], 1, "history_too_short", "take 120 days"),
    "no probability": (["--target", "0"], 2, "bad_target", "--target 0"),
    "a method that does not exist": (["--method", "arrival"], 2, "bad_method", "did you mean arrivals?"),
    "a file for a table": (["--file", "x.png"], 2, "bad_usage", "--file is for pictures"),
}


@pytest.mark.parametrize("case", BAD_FORECASTS)
def test_forecast_refuses(case: str, book: str) -> None:
    words, want_code, want_error, want_text = BAD_FORECASTS[case]
    said = called("health", "forecast", *words, "--db", book, "-o", "json")
    assert (said.code, said.error["code"]) == (want_code, want_error)
    assert want_text in said.error["message"]
    assert said.error["next_step"]
