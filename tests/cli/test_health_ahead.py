"""`plimsoll health announce|announced|withdraw`: planned work ahead, as people type it and see it."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.times import parse_time, utc_now
from tests.support.fleets import nodes, row, write_fleet
from tests.support.health import Ward
from tests.support.imports import Importer
from tests.support.inside import Said, called

WIDTH_MAX = 140
TOMORROW = ("--from", "24h", "--until", "48h")
CLOCK_SLACK = timedelta(minutes=2)


@pytest.fixture(autouse=True)
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two clusters: tiger with t1 to t4 and a retired t5, lion with l1 and l2."""
    folder = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", colo="colo-2")],
        nodes=[
            *nodes(4, prefix="t"),
            row("nodes", node="t5", service="retired"),
            *nodes(2, prefix="l", cluster="lion", island="lion-a"),
        ],
    )
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(folder)
    importer.keeper.close()
    monkeypatch.setenv("PLIMSOLL_DB", dsn)
    return dsn


def health(*words: object) -> Said:
    return called("health", *words)


def done(*words: object) -> Any:
    """A command that must be done; its document."""
    said = health(*words, "-o", "json")
    assert (said.code, said.err) == (0, "")
    return said.json()


def announced() -> dict[str, list[str]]:
    return {work["id"]: work["nodes"] for work in done("announced")["ahead"]}


def head() -> str:
    return called("audit", "head").out


def test_a_cluster_is_announced_listed_shown_and_withdrawn() -> None:
    said = health("announce", "cluster=tiger", *TOMORROW, "--id", "driver", "--reason", "planned: driver 580")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("4 nodes announced as 'driver', from 20")
    (work,) = done("announced")["ahead"]
    assert {key: work[key] for key in ("id", "owner", "nodes", "reason")} == {
        "id": "driver",
        "owner": "tester",
        "nodes": ["t1", "t2", "t3", "t4"],
        "reason": "planned: driver 580",
    }
    assert abs(parse_time(work["starts"]) - utc_now() - timedelta(hours=24)) < CLOCK_SLACK
    assert parse_time(work["ends"]) - parse_time(work["starts"]) == timedelta(hours=24)
    line = health("announced").out.splitlines()[1]
    assert line.split()[:4] == ["driver", "tester", "4", "tiger"]
    assert line.endswith("planned: driver 580")
    assert "work is announced for 4 nodes within 7 days, the first from 20" in health("show").out
    assert "(driver of tester); next: plimsoll health announced" in health("show", "t1").out
    assert "work" not in health("show", "cluster=lion").out
    assert "work ahead" not in health("show", "l1").out
    assert done("show")["present"]["in_service"] == 6, "nothing moves"

    off = health("withdraw", "driver", "--reason", "not ready")
    assert off.out.startswith("'driver' withdrawn: 4 nodes, from 20")
    assert announced() == {}
    events = called("audit", "log", "--subject", "work/driver", "-o", "json").json()["events"]
    assert sorted((event["kind"], event["reason"]) for event in events) == [
        ("work.announced", "planned: driver 580"),
        ("work.withdrawn", "not ready"),
    ]


def test_the_same_again_is_no_event_and_no_error() -> None:
    words = ("announce", "t1", "--from", "2990-01-01", "--until", "2990-01-02", "--reason", "x")
    first = done(*words)
    before = head()
    again = done(*words)
    assert (first["is_new"], again["is_new"]) == (True, False)
    assert first["ahead"] == again["ahead"]
    assert head() == before
    assert "1 node announced already as 'work-" in health(*words).out


def test_work_in_some_weeks_is_listed_and_not_mentioned_among_the_next_days() -> None:
    health("announce", "t1", "--from", "8d", "--until", "9d", "--id", "late", "--reason", "x")
    assert announced() == {"late": ["t1"]}
    assert "announced" not in health("show").out
    assert "work ahead from" in health("show", "t1").out


def test_a_filter_shows_the_work_on_such_nodes_and_the_past_what_was_known_then() -> None:
    before = head().partition(":")[0]
    health("announce", "cluster=lion", "t1", *TOMORROW, "--id", "both", "--reason", "x")
    health("announce", "t2", "--from", "1h", "--until", "2h", "--id", "first", "--reason", "x")
    assert list(announced()) == ["first", "both"]
    assert [work["id"] for work in done("announced", "cluster=lion")["ahead"]] == ["both"]
    assert done("announced", "--as-of", before)["ahead"] == []
    assert health("announced").out.splitlines()[-1] == "2 announcements for 4 nodes"


def test_the_forms() -> None:
    keys = {"id", "owner", "nodes", "starts", "ends", "reason"}
    made = done("announce", "t1", "t2", *TOMORROW, "--id", "w", "--reason", "x")
    assert made.keys() == {"dry_run", "revision", "is_new", "ahead"}
    assert made["ahead"].keys() == keys
    listed = done("announced")
    assert listed.keys() == {"as_of", "revision", "ahead"}
    assert yaml.safe_load(health("announced", "-o", "yaml").out).keys() == listed.keys()
    columns = ["work", "node", "owner", "starts", "ends", "reason"]
    rows = list(csv.reader(io.StringIO(health("announced", "-o", "csv").out)))
    assert (rows[0], [cells[:3] for cells in rows[1:]]) == (columns, [["w", "t1", "tester"], ["w", "t2", "tester"]])
    tables = [health("announced").out, health("show").out, health("show", "t1").out]
    assert [line for text in tables for line in text.splitlines() if len(line) > WIDTH_MAX] == []
    gone = done("withdraw", "w", "--dry-run")
    assert gone.keys() == {"dry_run", "revision", "ahead"}
    rows = list(csv.reader(io.StringIO(health("withdraw", "w", "-o", "csv").out)))
    assert (rows[0], len(rows)) == (columns, 3)
    rows = list(csv.reader(io.StringIO(health("announced", "-o", "csv").out)))
    assert rows == [columns]


DRY = {
    "announce": ["announce", "cluster=tiger", *TOMORROW, "--reason", "x"],
    "withdraw": ["withdraw", "mine"],
    "sweep": ["sweep"],
}


@pytest.mark.parametrize("command", DRY)
def test_a_dry_run_changes_nothing(command: str) -> None:
    health("announce", "l1", *TOMORROW, "--id", "mine", "--reason", "x")
    before = head()
    said = health(*DRY[command], "--dry-run")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "dry run: nothing was kept"
    assert done(*DRY[command], "--dry-run")["dry_run"] is True
    assert head() == before


def test_what_is_over_is_said_and_swept(db: str) -> None:
    health("announce", "t1", "--from", "now", "--until", "1h", "--id", "short", "--reason", "x")
    with Ward(dsn=db) as later:
        later.now = utc_now() + timedelta(hours=2)
        assert [work.id for work in later.sweep().over] == ["short"]
    assert announced() == {}
    assert done("sweep")["over"] == []


WRONG: dict[str, tuple[list[str], int, str, str]] = {
    "a node that is none": (["announce", "t11", *TOMORROW, "--reason", "x"], 1, "unknown_node", "did you mean 't1'?"),
    "a filter that nothing matches": (
        ["announce", "cluster=x", *TOMORROW, "--reason", "x"], 1, "no_nodes", "no node matches cluster=x",
    ),
    "a node that left": (["announce", "t5", *TOMORROW, "--reason", "x"], 1, "no_nodes", "on 0 nodes"),
    "no start": (["announce", "t1", "--until", "2d", "--reason", "x"], 2, "bad_usage", "--from"),
    "no end": (["announce", "t1", "--from", "2d", "--reason", "x"], 2, "bad_usage", "--until"),
    "no reason": (["announce", "t1", *TOMORROW], 2, "reason_missing", "say why"),
    "a time that is none": (
        ["announce", "t1", "--from", "soon", "--until", "2d", "--reason", "x"], 2, "bad_time", "'soon' is not a time",
    ),
    "an end beyond the calendar": (
        ["announce", "t1", "--from", "1d", "--until", "9999999w", "--reason", "x"], 2, "bad_time", "is not a time",
    ),
    "an end before the start": (
        ["announce", "t1", "--from", "2d", "--until", "1d", "--reason", "x"], 2, "bad_period", "not after its start",
    ),
    "an end in the past": (
        ["announce", "t1", "--from", "2020-01-01", "--until", "2020-01-02", "--reason", "x"], 2, "bad_period",
        "nothing of it is ahead",
    ),
    "the id of other work": (
        ["announce", "t1", *TOMORROW, "--id", "theirs", "--reason", "x"], 1, "work_exists", "announced already, by ada",
    ),
    "an id that is none": (
        ["announce", "t1", *TOMORROW, "--id", " ", "--reason", "x"], 2, "bad_usage", "can't name work",
    ),
    "work that nobody announced": (["withdraw", "their"], 1, "no_such_work", "did you mean theirs?"),
    "work of another": (["withdraw", "theirs"], 1, "not_your_work", "ada announced 'theirs': hers"),
    "force without a reason": (["withdraw", "theirs", "--force"], 2, "reason_missing", "say why"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_wrong_is_said_with_what_to_type(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, want_code, want_error, want = WRONG[sentence]
    monkeypatch.setenv("PLIMSOLL_ACTOR", "ada")
    health("announce", "l1", *TOMORROW, "--id", "theirs", "--reason", "hers")
    monkeypatch.setenv("PLIMSOLL_ACTOR", "tester")
    before = head()
    said = health(*words)
    assert (said.code, said.out) == (want_code, "")
    assert want in said.err
    assert "\n  next: " in said.err
    assert health(*words, "-o", "json").error["code"] == want_error
    assert head() == before


def test_another_may_insist() -> None:
    health("announce", "l1", *TOMORROW, "--id", "w", "--reason", "x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIMSOLL_ACTOR", "bob")
        assert health("withdraw", "w", "--force", "--reason", "ada is away").code == 0
    assert announced() == {}
