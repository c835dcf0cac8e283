"""The command line at a server: the same words, the same answers, the same exit codes."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from plimsoll.cli import remote
from plimsoll.cli.remote import ATTEMPTS_MAX, Server
from plimsoll.commands.catalog import command
from plimsoll.quota.policy import DEFAULT_TEXT
from plimsoll.server.routes import ROUTES
from tests.support.bad_web import BadWeb, http_answer
from tests.support.command import PLIMSOLL
from tests.support.inside import called
from tests.support.served import TEAM, Served, make_people, serving, small_book

WORK = f"""\
workload: far-2
team: {TEAM}
where: {{sku: H200}}
parts:
  - {{name: a, kind: gang, gpus: 8, tier: mid, rank: 1}}
"""


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
    "a report": "quota report --days 30",
    "a report as a page": "quota report --days 30 -o html",
    "what a plan comes to": "quota plan",
    "every team of a plan, for a file": "quota plan -o csv",
    "what an application would come to, for a file": "quota apply --without-notice --reason x --dry-run -o csv",
    "clusters that a filter means, for a file": "health show cluster=tiger -o csv",
    "a no, for a file": "access check viewer@example.org operate -o csv",
    "policies side by side, for a file": "quota compare --days 30 -o csv",
    "service levels, for a file": "health slo --limit 1 -o csv",
    "all of the log": "audit log --limit 0",
    "nobody watches the past": "fleet show --watch --as-of 1",
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
OTHER_AT_A_SERVER = {"access whoami": "there it is who holds the token"}


@pytest.mark.parametrize("output", ["table", "csv"])
@pytest.mark.parametrize("words", BARE)
def test_a_command_without_more_words_is_the_same_at_a_server(
    far: Served, words: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_DB", far.house.settings.dsn)
    here = called(*words.split(), "-o", output)
    there = called(*words.split(), "-o", output, "--server", far.url)
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
    made = called("fleet", "export", str(folder), "--server", far.url)
    assert (folder / "nodes.csv").read_text(encoding="utf-8").startswith("node,cluster,island")
    assert made == called("fleet", "export", str(folder), "--db", far.house.settings.dsn)
    again = called("fleet", "import", str(folder), "--dry-run", "--server", far.url, "-o", "json")
    assert json.loads(again.out)["counts"]["nodes"]["same"] == 16


FORMULA = "=1+1"


def test_a_file_has_no_apostrophe_that_a_sheet_over_http_would_have(
    far: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_DB", far.house.settings.dsn)
    assert called("incident", "open", FORMULA, "--server", far.url).code == 0
    there = called("incident", "list", "-o", "csv", "--server", far.url).out
    assert there == called("incident", "list", "-o", "csv").out
    assert FORMULA in there
    assert f"'{FORMULA}" not in there
    assert f"'{FORMULA}" in far.api(f"/incidents?format=csv&at_least={far.house.api.head}").body.decode()


def test_a_report_lies_where_it_is_asked_for(far: Served, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    said = called("quota", "report", "--days", "30", "-o", "html", "--out", file, "--server", far.url)
    assert said.out.startswith(f"{file}: written")
    assert "<html" in file.read_text(encoding="utf-8")
    picture = called("quota", "report", "-o", "png", "--out", file, "--server", far.url)
    assert (picture.code, "pictures are made at a database" in picture.err) == (1, True)


# Files.

CAMPAIGN = """\
campaign: nic
changes: [{component: nic, version: "2"}]
scope: {cluster: lion}
start: 2099-01-01
deadline: 2099-01-09
window: {hours: [0, 24], tz: Etc/UTC}
work: [{mode: whole, hours: 4}]
"""
TEXTS = {
    "workload submit": "run.yaml",
    "quota policy check": "policy.yaml",
    "quota plan --policy": "policy.yaml",
    "health policy check": "policy.yaml",
    "cluster recipe check": "recipe.yaml",
    "campaign versions import": "versions.csv",
    "campaign plan": "nic.yaml",
    "fleet import": "nodes.csv",
}
"""Commands that send what a file says, and what it may be called."""


@pytest.mark.parametrize("words", TEXTS)
def test_a_file_that_is_no_text_is_refused_before_it_is_sent(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLIMSOLL_TOKEN")
    file = tmp_path / TEXTS[words]
    file.write_bytes(b"team: a\nowner: \xe9\n")
    place = tmp_path if words == "fleet import" else file
    with BadWeb(lambda talk: talk.say(DONE)) as web:
        said = called(*words.split(), place, "--server", web.url, "-o", "json")
        assert web.requests == []
    assert (said.error["code"], f"{file}, line 2: not UTF-8 text" in said.error["message"]) == ("unreadable", True)
    assert called(*words.split(), place, "--db", f"sqlite:///{tmp_path}/none.db").code != 0, "nor is it at a database"


MISTAKES = {
    "a workload": ("workload submit bad.yaml", "bad.yaml, line 2"),
    "the second of two": ("workload submit good.yaml bad.yaml", "bad.yaml, line 2"),
    "a policy": ("quota policy check bad.yaml", "bad.yaml, line 2"),
    "a policy instead of a word": ("quota plan --policy bad.yaml", "bad.yaml, line 2"),
    "a campaign": ("campaign plan bad.yaml", "bad.yaml, line 2"),
    "the plan of a campaign": ("campaign check nic.yaml bad.yaml", "bad.yaml"),
    "a sheet": ("cluster import bad.csv", "bad.csv row 1"),
    "versions": ("campaign versions import bad.csv", "bad.csv row 1"),
    "no file": ("workload submit none.yaml", "none.yaml"),
    "no folder": ("fleet import none", "there is no none"),
    "neither a folder nor a workbook": ("fleet import bad.yaml", "bad.yaml is not a folder"),
    "a folder without a file": ("fleet import empty", "empty"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_wrong_with_a_file_is_told_by_its_own_name(
    far: Served, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, want = MISTAKES[case]
    monkeypatch.chdir(tmp_path)
    for name, text in (("bad.yaml", "a: 1\n]["), ("bad.csv", "a\n"), ("good.yaml", WORK), ("nic.yaml", CAMPAIGN)):
        Path(name).write_text(text, encoding="utf-8")
    Path("empty").mkdir()
    said = called(*words.split(), "--server", far.url)
    assert said.code in (1, 2)
    assert want in said.err
    if "line 2" in want:
        assert said.err == called(*words.split(), "--db", far.house.settings.dsn).err


BY_A_POLICY = (
    "policy check ours.yaml",
    "plan --policy ours.yaml",
    "plan --policy ours.yaml -o csv",
    "show --policy ours.yaml",
    "rollout --policy ours.yaml",
    "notices --policy ours.yaml",
    "pilot tiger --policy ours.yaml",
    "report --days 30 --policy ours.yaml",
    "apply --policy ours.yaml --without-notice --dry-run",
    "apply --policy ours.yaml --without-notice --dry-run --reason x",
)


@pytest.mark.parametrize("words", BY_A_POLICY)
def test_a_policy_in_a_file_is_taken_and_called_by_its_name(
    far: Served, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLIMSOLL_DB", far.house.settings.dsn)
    Path("ours.yaml").write_text(DEFAULT_TEXT.replace("0.15", "0.2"), encoding="utf-8")
    here, there = called("quota", *words.split()), called("quota", *words.split(), "--server", far.url)
    assert (there.code, _steady(there.out), there.err) == (here.code, _steady(here.out), here.err)
    assert "neither a file" not in here.err


def test_a_plan_of_a_file_is_compared_at_a_database(far: Served, tmp_path: Path) -> None:
    file = tmp_path / "nic.yaml"
    file.write_text(CAMPAIGN, encoding="utf-8")
    said = called("campaign", "compare", file, "nic", "--server", far.url)
    assert said.code == 1
    assert "a server compares recorded plans, and no files" in said.err


def test_a_plan_is_published_as_at_a_database(far: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLIMSOLL_DB", far.house.settings.dsn)
    Path("nic.yaml").write_text(CAMPAIGN, encoding="utf-8")
    assert called("campaign", "plan", "nic.yaml", "--server", far.url).code == 0
    words = ("campaign", "publish", "nic", "out/there", "-o", "json")
    tried = called(*words, "--dry-run", "--server", far.url)
    assert tried.json() == called(*words, "--dry-run").json()
    assert not Path("out").exists()
    names = [Path(name) for name in tried.json()["files"]]
    done = called(*words, "--server", far.url)
    assert done.json() == {**tried.json(), "dry_run": False}
    assert sorted(path for path in Path("out/there").iterdir()) == sorted(names)
    assert Path("out/there/campaign.ics").read_bytes().startswith(b"BEGIN:VCALENDAR")
    assert f"open {Path('out/there')}/" in called(*words[:4], "--server", far.url).out


def test_a_workbook_is_taken_as_at_a_database(far: Served, tmp_path: Path) -> None:
    book = tmp_path / "book.xlsx"
    assert called("fleet", "export", book, "--db", far.house.settings.dsn).code == 0
    back = called("fleet", "import", book, "--dry-run", "--server", far.url, "-o", "json")
    assert back.json()["counts"]["nodes"]["same"] == 16
    refused = called("fleet", "export", tmp_path / "other.xlsx", "--server", far.url)
    assert (refused.code, "a workbook is written at a database" in refused.err) == (1, True)
    book.write_bytes(base64.b64decode("UEsDBA=="))
    assert "book.xlsx is not a whole XLSX workbook" in called("fleet", "import", book, "--server", far.url).err


# The log.


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server gives so much of its log at once that three events make a page."""
    lines = [msgspec.structs.replace(each, most={"limit": 3.0}) if each.is_log else each for each in ROUTES]
    monkeypatch.setattr(remote, "ROUTES", lines)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("words", ["--limit 0", "--limit 7", "--limit 3", "--limit 0 --after 4", "--kind fleet.*"])
@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_more_of_the_log_than_a_page_is_put_together(
    far: Served, words: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_DB", far.house.settings.dsn)
    here = called("audit", "log", *words.split(), "-o", output)
    there = called("audit", "log", *words.split(), "-o", output, "--server", far.url)
    assert (there.code, there.out, there.err) == (0, here.out, here.err)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("output", ["json", "csv", "table"])
def test_a_log_that_is_watched_has_every_event_once(far: Served, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five come between two looks, and a page has three; then none; then one."""
    came = iter((5, 0, 1))

    def sleep(_seconds: float) -> None:
        count = next(came, None)
        if count is None:
            raise SystemExit(0)
        for _ in range(count):
            made = far.post("/incidents", {"title": "smoke"})
            assert made.status == 200
            seen.append(int(made.headers["plimsoll-revision"]))

    seen: list[int] = []
    monkeypatch.setattr("plimsoll.cli.remote.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    watched = called("audit", "log", "--watch", "--limit", "2", "--kind", "incident.*", "-o", output,
                     "--server", far.url)  # fmt: skip
    lines = watched.out.splitlines()
    if output == "json":
        found = [json.loads(line)["revision"] for line in lines]
    else:
        found = [int(re.split(r"[, ]", line)[0]) for line in lines if not line.startswith("revision,")]
    assert found[-6:] == seen
    assert len(set(found)) == len(found) <= 8


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
KEPT_NOWHERE = http_answer(json.dumps({"answer": "was told once, and is kept nowhere"}))
AGAIN: dict[str, tuple[list[bytes], int, str]] = {
    "it comes at once": ([DONE], 1, ""),
    "the answer is lost, and it is under way still": ([LOST, UNDER_WAY, UNDER_WAY, UNDER_WAY, UNDER_WAY, DONE], 6, ""),
    "too many wait at first": ([BUSY, DONE], 2, ""),
    "too many wait for long": ([BUSY], 3, "busy"),
    "it is under way for ever": ([UNDER_WAY], 0, "under_way"),
    "it was done, and its answer is kept nowhere": ([LOST, KEPT_NOWHERE], 2, "answer_lost"),
    "something else answers": ([http_answer("<html>")], 1, "not_plimsoll"),
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
    assert ("audit log" in error["next_step"]) == (want_error in ("under_way", "answer_lost"))
