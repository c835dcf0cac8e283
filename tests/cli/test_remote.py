"""The command line at a server: the same words, the same answers, the same exit codes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from plimsoll.cli.remote import ATTEMPTS_MAX, Server
from plimsoll.commands.catalog import command
from plimsoll.server.routes import ROUTES
from tests.support.bad_web import BadWeb, http_answer
from tests.support.command import PLIMSOLL
from tests.support.inside import called
from tests.support.served import TEAM, Served, make_people, serving, small_book


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    dsn = small_book(tmp_path_factory.mktemp("far"))
    with serving(dsn, make_people(dsn)) as server:
        yield server


@pytest.fixture(autouse=True)
def _as_admin(far: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_TOKEN", far.tokens["admin"])


SAME = {
    "a table": "fleet show",
    "a list": "fleet nodes cluster=tiger --limit 3",
    "one thing": "health show t1",
    "all things": "health show",
    "all requests": "quota requests --all",
    "all notices": "quota notices",
    "all modes": "quota mode",
    "all teams": "quota show",
    "everything that is held": "health holds",
    "a hull": "quota show tiger",
    "csv": "quota show -o csv",
    "yaml": "quota policy show -o yaml",
    "json": "workload list -o json",
    "the past": "fleet show --as-of 1",
    "a question": f"why {TEAM}",
    "a question of the fleet": "why --fleet",
    "a text": "workload example",
    "objects": "quota render slurm tiger",
    "the log": "audit log --limit 3 -o json",
    "one request of many": "quota requests",
    "what would be": f"quota request {TEAM} 8 --sku H200 --dry-run",
    "a refusal": "workload show nobody",
    "wrong words": "fleet nodes nonsense",
    "another refusal": f"quota transfer {TEAM} nobody 8 --cluster tiger --sku H200",
}


@pytest.mark.parametrize("case", SAME)
def test_a_server_answers_as_a_database_does(far: Served, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = SAME[case].split()
    monkeypatch.setenv("PLIMSOLL_DB", far.house.settings.dsn)
    here = called(*words)
    there = called(*words, "--server", far.url)
    assert there.code == here.code
    assert _steady(there.out) == _steady(here.out)
    assert _steady(there.err) == _steady(here.err)


BARE = sorted(
    {
        route.words
        for route in ROUTES
        if route.is_read
        and not route.is_long
        and not any(each.is_required for each in command(route.words).parameters.values())
    }
)
"""What is asked without a word more."""
OTHER_AT_A_SERVER = {
    "access whoami": "there it is who holds the token",
    "audit log": "a terminal's table cuts what an answer has whole",
}


@pytest.mark.parametrize("words", BARE)
def test_a_command_without_more_words_is_the_same_at_a_server(
    far: Served, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_DB", far.house.settings.dsn)
    here = called(*words.split())
    there = called(*words.split(), "--server", far.url)
    assert (there.code, _steady(there.err)) == (here.code, _steady(here.err))
    if words not in OTHER_AT_A_SERVER:
        assert _steady(there.out) == _steady(here.out)


def _steady(text: str) -> str:
    """Without what is another at another moment."""
    moments = ('"as_of"', "recorded at", "# as of")
    return "\n".join(line for line in text.splitlines() if not any(each in line for each in moments))


def test_the_server_may_be_named_anywhere_or_in_the_environment(far: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    want = called("fleet", "show", "--server", far.url).out
    assert called("--server", far.url, "fleet", "show").out == want
    assert called("fleet", f"--server={far.url}", "show").out == want
    monkeypatch.setenv("PLIMSOLL_SERVER", far.url)
    assert called("fleet", "show").out == want


def test_a_change_is_made_there_by_whoever_holds_the_token(far: Served, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    parts = "  - {name: a, kind: gang, gpus: 8, tier: mid, rank: 1}"
    file.write_text(f"workload: far-1\nteam: {TEAM}\nwhere: {{sku: H200}}\nparts:\n{parts}\n", encoding="utf-8")
    assert called("workload", "submit", str(file), "--server", far.url).code == 0
    event = json.loads(called("audit", "log", "--subject", "workload/far-1", "-o", "json", "--server", far.url).out)
    assert {each["actor"] for each in event["events"]} == {"admin@example.org"}


def test_files_that_are_made_there_lie_here(far: Served, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert called("fleet", "export", str(folder), "--server", far.url).code == 0
    assert (folder / "nodes.csv").read_text(encoding="utf-8").startswith("node,cluster,island")
    again = called("fleet", "import", str(folder), "--dry-run", "--server", far.url, "-o", "json")
    assert json.loads(again.out)["counts"]["nodes"]["same"] == 16


WRONG = {
    "not a URL": (["--server", "far"], 2, "bad_server"),
    "a password in it": (["--server", "http://a:b@localhost"], 2, "bad_server"),
    "a token that anybody could read": (["--server", "http://plimsoll.example.org"], 2, "bad_server"),
    "nobody there": (["--server", "http://127.0.0.1:9"], 1, "server_unavailable"),
    "a database as well": (["--server", "SERVER", "--db", "sqlite:///x.db"], 2, "bad_usage"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_server_that_is_none_is_told(far: Served, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.cli.remote.RETRY_SECONDS", 0.0)
    more, want_code, want_error = WRONG[case]
    words = [far.url if word == "SERVER" else word for word in more]
    ran = called("fleet", "show", *words, "-o", "json")
    assert (ran.code, json.loads(ran.err)["error"]["code"]) == (want_code, want_error)


def test_nothing_secret_may_go_unencrypted() -> None:
    assert str(Server("http://plimsoll.example.org", "").address) == "http://plimsoll.example.org"
    assert str(Server("http://[::1]:8080", "plim_x").address) == "http://[::1]:8080"


def test_what_is_done_at_a_machine_says_so(far: Served) -> None:
    ran = called("quota", "push", "slurm", "tiger", "--server", far.url, "-o", "json")
    assert (ran.code, json.loads(ran.err)["error"]["code"]) == (1, "only_here")


def test_without_a_token_it_says_how_to_get_one(far: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_TOKEN")
    ran = called("fleet", "show", "--server", far.url)
    assert ran.code == 1
    assert "PLIMSOLL_TOKEN" in ran.err


def test_it_works_from_a_real_terminal(far: Served) -> None:
    ran = subprocess.run([PLIMSOLL, "fleet", "show", "--server", far.url], capture_output=True, text=True, check=True)
    assert "tiger" in ran.stdout or "fleet" in ran.stdout


# What is sent again is the same, and happens once.


def _no(code: str, status: str) -> bytes:
    error = {"error": {"code": code, "message": "not now", "next_step": "", "fields": {"retry_after": 0}}}
    return http_answer(json.dumps(error), status=status, headers="Retry-After: 0\r\n")


UNDER_WAY, BUSY = _no("under_way", "409 Conflict"), _no("busy", "503 Service Unavailable")
DONE = http_answer(
    json.dumps({"document": {}, "tables": [], "heading": "it is done", "notes": [], "text": None, "exit_code": 0})
)
LOST = b""
AGAIN: dict[str, tuple[list[bytes], int, str]] = {
    "it comes at once": ([DONE], 1, ""),
    "the answer is lost, and it is under way still": ([LOST, UNDER_WAY, UNDER_WAY, UNDER_WAY, UNDER_WAY, DONE], 6, ""),
    "too many wait at first": ([BUSY, DONE], 2, ""),
    "too many wait for long": ([BUSY], 3, "busy"),
    "it is under way for ever": ([UNDER_WAY], 0, "under_way"),
    "no for good": ([http_answer(UNDER_WAY.partition(b"\r\n\r\n")[2], status="409 Conflict")], 1, "under_way"),
}
"""What the server answers, the last one for ever; how often it is asked (0: for as long as we wait), and the error."""


@pytest.mark.parametrize("case", AGAIN)
def test_a_change_that_is_sent_again_is_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, want_asked, want_error = AGAIN[case]
    monkeypatch.setattr("plimsoll.cli.remote.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("plimsoll.cli.remote.UNDER_WAY_SECONDS_MAX", 0.5)
    monkeypatch.delenv("PLIMSOLL_TOKEN")
    script = chain(answers, repeat(answers[-1]))
    with BadWeb(lambda talk: talk.say(next(script))) as web:
        ran = called("incident", "open", "smoke", "--server", web.url, "-o", "json")
        keys = [re.findall(rb"idempotency-key: *([^\r]+)", request, re.IGNORECASE) for request in web.requests]
    error = json.loads(ran.err)["error"] if ran.err else {"code": "", "next_step": ""}
    assert (ran.code, error["code"]) == (int(bool(want_error)), want_error)
    assert len(keys) == want_asked or (not want_asked and len(keys) > ATTEMPTS_MAX)
    assert len({key for (key,) in keys}) == 1, "one key for all that was sent"
    assert ("audit log" in error["next_step"]) == (want_error == "under_way")
