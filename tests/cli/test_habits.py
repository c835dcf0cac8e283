"""The habits of every command: how it prints, which database it means, where errors go, what it exits with."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import plimsoll
from tests.support.fleets import write_fleet
from tests.support.imports import Importer
from tests.support.inside import called

READING = {
    "fleet show": ["fleet", "show"],
    "fleet nodes": ["fleet", "nodes"],
    "audit log": ["audit", "log"],
    "audit head": ["audit", "head"],
    "audit verify": ["audit", "verify"],
}


@pytest.mark.parametrize("command", READING)
def test_every_reading_command_prints_all_forms_of_one_answer(command: str, book: str) -> None:
    words = [*READING[command], "--db", book]
    document = called(*words, "-o", "json").json()
    assert isinstance(document, dict)
    assert yaml.safe_load(called(*words, "--output", "yaml").out) == document
    table = called(*words)
    assert table.out.strip()
    assert "\x1b" not in table.out
    for said in (table, called(*words, "-o", "json")):
        assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize("command", [command for command in READING if command != "audit verify"])
def test_csv_has_a_header_and_rows_of_one_width(command: str, book: str) -> None:
    rows = list(csv.reader(io.StringIO(called(*READING[command], "--db", book, "-o", "csv").out)))
    assert len(rows) > 1
    assert {len(cells) for cells in rows} == {len(rows[0])}
    assert all(name.replace("_", "").isalnum() for name in rows[0])


@pytest.mark.parametrize("place", ["before", "after", "environment", "default"])
def test_the_database_is_named_in_four_ways(place: str, tmp_path: Path) -> None:
    path = tmp_path / ("plimsoll.db" if place == "default" else "other.db")
    Importer(f"sqlite:///{path}").bring(write_fleet(tmp_path / "fleet"))
    url = f"sqlite:///{path}"
    words = {
        "before": ["--db", url, "audit", "head"],
        "after": ["audit", "head", "--db", url],
        "environment": ["audit", "head"],
        "default": ["audit", "head"],
    }[place]
    ran = plimsoll(*words, cwd=tmp_path, **({"PLIMSOLL_DB": url} if place == "environment" else {}))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("6:")


def test_the_nearest_name_of_a_database_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for count, name in enumerate(("first", "second", "third"), 1):
        folder = write_fleet(tmp_path / name, nodes=[])
        importer = Importer(f"sqlite:///{tmp_path}/{name}.db")
        for _ in range(count):
            importer.bring(folder, is_removal_allowed=True)
            write_fleet(tmp_path / name, clusters=[], nodes=[])
    monkeypatch.setenv("PLIMSOLL_DB", "third.db")
    assert called("audit", "head").out.startswith("4:")
    assert called("--db", "second.db", "audit", "head").out.startswith("4:")
    assert called("--db", "second.db", "audit", "head", "--db", "first.db").out.startswith("2:")


WRONG_USAGE = {
    "no command at all": ([], "a command is missing"),
    "a noun without its verb": (["fleet"], "a command is missing"),
    "a command that is none": (["flet"], "there is no command 'flet'; did you mean 'fleet'?"),
    "a verb that is none": (["fleet", "nods"], "No such command 'nods'"),
    "an option that is none": (["fleet", "nodes", "--frob"], "No such option: --frob"),
    "a form that is none": (["fleet", "nodes", "-o", "xml"], "'xml' is not one of 'table', 'json', 'csv', 'yaml'"),
    "an argument that is missing": (["fleet", "import"], "Missing argument 'DIR|FILE.xlsx'"),
    "a number that is none": (["audit", "log", "--limit", "few"], "valid integer"),
    "a number below its least": (["fleet", "nodes", "--limit", "-1"], "--limit"),
    "a filter that is none": (["fleet", "nodes", "tiger"], "'tiger' is not a filter term"),
    "a field that is none": (["fleet", "nodes", "isle=a"], "did you mean 'island'?"),
    "a time that is none": (["fleet", "show", "--as-of", "soon"], "'soon' is not a time"),
    "a revision of too many digits": (["fleet", "show", "--as-of", "9" * 30], "is neither a revision nor a time"),
    "a head that is none": (["audit", "verify", "--head", "12:abc"], "'12:abc' is not a published head"),
    "watching the past": (["fleet", "show", "--watch", "--as-of", "1"], "--watch and --as-of exclude each other"),
    "following the past": (["audit", "log", "--watch", "--as-of", "1"], "--watch and --as-of exclude each other"),
    "a database that is none": (["audit", "head", "--db", "mysql://x/y"], "names no database that Plimsoll knows"),
    "counting by what is none": (["fleet", "show", "--by", "rack"], "'rack' is not one of 'area'"),
}


@pytest.mark.parametrize("sentence", WRONG_USAGE)
def test_wrong_words_exit_with_2_and_say_what_is_wrong(
    sentence: str, book: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, want = WRONG_USAGE[sentence]
    monkeypatch.setenv("PLIMSOLL_DB", book)
    said = called(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("plimsoll: ")
    assert want in said.err
    assert "next: " in said.err or "Usage: plimsoll" in said.err
    as_json = called(*words, "-o", "json") if "-o" not in words else called(*words[:-1], "json", "--frob")
    if words[:2] in (["fleet", "nodes"], ["audit", "log"]):
        assert as_json.code == 2
        assert set(as_json.error) == {"code", "message", "next_step", "fields"}


NOT_POSSIBLE = {
    "a database that is not there": (["fleet", "show", "--db", "gone.db"], "no_database", "gone.db"),
    "a folder that is not there": (["fleet", "import", "gone"], "no_such_folder", "gone"),
    "a revision that is not there": (["fleet", "show", "--as-of", "999"], "no_such_revision", "ends at revision 14"),
    "a log of a revision that is not there": (
        ["audit", "log", "--as-of", "999"],
        "no_such_revision",
        "no revision 999",
    ),
    "a database that is a folder": (["fleet", "show", "--db", "."], "not_a_file", "is a directory"),
    "a database that is something else": (["fleet", "show", "--db", "fleet.txt"], "not_a_database", "fleet.txt"),
    "a new database in no folder": (["demo", "--db", "no/such/x.db"], "no_directory", "no/such"),
}


@pytest.mark.parametrize("sentence", NOT_POSSIBLE)
def test_what_is_not_possible_exits_with_1_and_says_why(
    sentence: str, book: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, want_code, want = NOT_POSSIBLE[sentence]
    (tmp_path / "fleet.txt").write_text("not a database, though long enough to be looked at as if it were one\n" * 20)
    monkeypatch.setenv("PLIMSOLL_DB", book)
    before = sorted(tmp_path.rglob("*"))
    said = called(*words)
    assert (said.code, said.out) == (1, "")
    assert want in said.err.splitlines()[0]
    assert said.err.splitlines()[-1].startswith("  next: ")
    error = called(*words, "-o", "json").error
    assert error["code"] == want_code
    assert error["next_step"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("form", [["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"]], ids=" ".join)
def test_an_error_is_json_where_json_was_asked_for(form: list[str]) -> None:
    said = called("fleet", "show", *form)
    assert said.code == 1
    assert said.error["code"] == "no_database"
    assert said.error["fields"] == {"path": "plimsoll.db"}


def test_the_past_is_asked_for_by_revision_and_by_time(book: str) -> None:
    def service_of_t1(*words: str) -> tuple[str, int]:
        document = called("fleet", "nodes", "node=t1", "--db", book, "-o", "json", *words).json()
        return document["nodes"][0]["service"], document["revision"]

    assert service_of_t1() == ("draining", 14)
    assert service_of_t1("--as-of", "12") == ("in_service", 12)
    assert service_of_t1("--as-of", "2026-01-20T12:00Z") == ("in_service", 12)
    assert service_of_t1("--as-of", "2026-01-20T18:00Z") == ("draining", 14)
    assert called("fleet", "nodes", "--db", book, "--as-of", "2020-01-01", "-o", "json").json() == {
        "as_of": None,
        "revision": 0,
        "count": 0,
        "nodes": [],
    }


STAMPS = {
    "12": "as of 12: revision 12, recorded at 2026-01-20T12:00:00.000000Z",
    "2020-01-01": "as of 2020-01-01: nothing was recorded yet",
}


@pytest.mark.parametrize("as_of", STAMPS)
def test_a_table_of_the_past_says_which(as_of: str, book: str) -> None:
    assert called("fleet", "show", "--db", book, "--as-of", as_of).out.splitlines()[-1] == STAMPS[as_of]


def test_a_process_keeps_its_streams_apart(book: str, tmp_path: Path) -> None:
    good = plimsoll("fleet", "nodes", "-o", "json", db=book)
    assert (good.code, good.err) == (0, "")
    assert good.json()["count"] == 6
    refused = plimsoll("fleet", "import", tmp_path / "gone", db=book)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == f"plimsoll: there is no {tmp_path}/gone\n  next: give a fleet folder or an .xlsx workbook\n"
    wrong = plimsoll("fleet", "nodes", "--frob", db=book)
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.endswith("  next: plimsoll fleet nodes --help\n")


def test_letters_of_all_alphabets_are_printed_wherever_that_is_possible(tmp_path: Path) -> None:
    importer = Importer(f"sqlite:///{tmp_path}/x.db")
    folder = write_fleet(tmp_path / "fleet")
    text = (folder / "nodes.csv").read_text(encoding="utf-8").replace("in_service,,\n", "in_service,,шум\n", 1)
    (folder / "nodes.csv").write_text(text, encoding="utf-8")
    importer.bring(folder)
    words = ["fleet", "nodes", "reason=шум", "--db", "x.db"]
    document: Any = json.loads(called(*words, "-o", "json").out)
    assert document["nodes"][0]["reason"] == "шум"
    assert "reason: шум" in called(*words, "-o", "yaml").out
    poor = plimsoll("fleet", "nodes", "--db", "x.db", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    assert (poor.code, poor.err) == (0, "")
    assert "\\u0448\\u0443\\u043c" in poor.out


def test_a_database_that_is_typed_counts_more_than_a_server_of_the_environment(
    book: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = called("fleet", "show", "--db", book)
    monkeypatch.setenv("PLIMSOLL_SERVER", "http://127.0.0.1:9")
    assert called("fleet", "show", "--db", book) == want
    both = called("fleet", "show", "--db", book, "--server", "http://127.0.0.1:9")
    assert (both.code, "--server and --db exclude each other" in both.err) == (2, True)
