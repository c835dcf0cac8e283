"""`plimsoll quota request|approve|deny|transfer|grants|rename|flex|callback|promise` as their users have them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from plimsoll.quota.changes import PoolAligned
from tests.support.fleets import nodes, row
from tests.support.inside import Said, called
from tests.support.office import Office, work

TIGER = ("--cluster", "tiger", "--sku", "H200")


@pytest.fixture(scope="session")
def office_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 H200 in tiger, vision 32 and voice 24 guaranteed, 8 of voice's in use; lion has no guarantee yet."""
    path = tmp_path_factory.mktemp("office") / "plimsoll.db"
    clusters = [row("clusters"), row("clusters", cluster="lion", phase="retired")]
    rows = [*nodes(10), *nodes(2, prefix="l", cluster="lion", island="lion-a")]
    history = [
        row("history", time="2026-01-19T00:00:00Z", node="n1", service="repair", reason="xid 79"),
        row("history", time="2026-01-19T12:00:00Z", node="n1", service="in_service", reason=""),
    ]
    with Office(
        clusters=clusters,
        rows=rows,
        line=80,
        works=[work("serve", "voice", 8), work("train", "voice", 56)],
        history=history,
        dsn=f"sqlite:///{path}",
    ) as office:
        office.commit(PoolAligned("tiger", "H200", 80, "fixed:0", {"vision": 32, "voice": 24}))
    return path


class Book:
    """A copy of the office's database, and commands on it."""

    def __init__(self, path: Path) -> None:
        self.db = f"sqlite:///{path}"

    def run(self, *words: str, want_code: int = 0) -> Said:
        said = called("--db", self.db, "quota", *words)
        assert said.code == want_code, f"{words}\n{said.out}{said.err}"
        return said

    def json(self, *words: str) -> Any:
        return self.run(*words, "-o", "json").json()

    def error(self, verb: str, *words: str, want_code: int = 1) -> dict[str, Any]:
        said = called("--db", self.db, "quota", verb, "-o", "json", *words)
        assert (said.code, said.out) == (want_code, ""), f"{words}\n{said.out}{said.err}"
        assert said.error["next_step"]
        return said.error

    def revision(self) -> int:
        found: int = called("--db", self.db, "audit", "head", "-o", "json").json()["revision"]
        return found


@pytest.fixture
def book(office_file: Path, tmp_path: Path) -> Book:
    shutil.copy(office_file, tmp_path / "plimsoll.db")
    return Book(tmp_path / "plimsoll.db")


def test_a_request_from_the_question_to_the_end(book: Book) -> None:
    asked = book.json("request", "vision", "16", "--sku", "H200", "--one-island", "--for", "14d", "--reason", "launch")
    assert asked["request"]["id"] == "q1"
    assert (asked["request"]["state"], asked["request"]["is_one_island"], asked["request"]["by"]) == (
        "open",
        True,
        "tester",
    )
    first = asked["options"][0]
    assert (first["number"], first["code"], first["gpus"], first["is_whole"], first["island"]) == (
        1,
        "guaranteed_now",
        16,
        True,
        "tiger-a",
    )
    assert {"key", "why", "share", "givers", "starts"} <= first.keys()
    assert asked["pools"][0]["headroom"] == 24
    assert [each["id"] for each in book.json("requests")["requests"]] == ["q1"]
    assert book.json("requests", "q1")["options"][0]["key"] == "guaranteed_now:tiger"
    dry = book.json("approve", "q1", "--dry-run")
    assert (dry["dry_run"], dry["state"]) == (True, "approved")
    done = book.json("approve", "q1", "--option", "guaranteed_now:tiger")
    assert (done["state"], done["option"]["gpus"]) == ("approved", 16)
    [grant] = book.json("grants")["grants"]
    assert (grant["team"], grant["gpus"], grant["giver"]) == ("vision", 16, "")
    assert book.json("requests")["requests"] == []
    assert [each["state"] for each in book.json("requests", "--all")["requests"]] == ["approved"]
    ended = book.json("end-grant", grant["id"])
    assert [each["id"] for each in ended["due"]["ended"]] == [grant["id"]]


def test_a_person_reads_options_numbers_and_the_next_step(book: Book) -> None:
    ran = book.run("request", "vision", "32", "--sku", "H200")
    assert ran.out.startswith("q1: vision asks for 32 H200, anywhere\n")
    assert "the line is 80, 56 are guaranteed: 24 left" in ran.out
    assert "why not all of it guaranteed now" in ran.out
    assert "plimsoll quota deny q1 --reason WHY" in ran.out


def test_a_dry_run_asks_for_nothing(book: Book) -> None:
    before = book.revision()
    book.run("request", "vision", "16", "--sku", "H200", "--dry-run")
    book.run("transfer", "vision", "voice", "8", *TIGER, "--dry-run")
    book.run("callback", "vision", "32", *TIGER, "--dry-run")
    book.run("rename", "vision", "sight", "--dry-run")
    book.run("settle", "--dry-run")
    assert book.revision() == before


def test_a_transfer_and_its_way_back(book: Book) -> None:
    moved = book.json("transfer", "vision", "voice", "16", *TIGER, "--for", "2w", "--reason", "evals")
    assert (moved["giver"]["guaranteed"], moved["taker"]["guaranteed"]) == (16, 40)
    assert moved["grant"]
    assert moved["until"]
    ran = book.run("grants")
    assert "goes back to" in ran.out
    assert "vision" in ran.out
    assert book.json("settle")["due"] == {"ended": [], "begun": [], "expired": [], "waiting": []}


def test_flex_is_shown_with_its_past_and_its_weights(book: Book) -> None:
    [pool] = book.json("flex", "tiger", "--gpus", "24")["pools"]
    # Voice runs 64 on 24 guaranteed: 40 as flex. 16 are free, and vision's own 32 come first.
    assert (pool["standing"], pool["lent"], pool["used"], pool["free"]) == (24, 32, 40, 16)
    assert {team["team"]: (team["guaranteed"], team["held"], team["available"]) for team in pool["teams"]} == {
        "vision": (32, 0, 16),
        "voice": (24, 40, 16),
    }
    assert pool["past"]["standing"]["gpus"] == 24
    ran = book.run("flex", "tiger", "--team", "vision")
    assert "who has it, and who could have more (weight: guaranteed)" in ran.out
    assert "voice" not in ran.out.split("who has it")[1].split("\n\n")[0]
    assert "plimsoll quota flex CLUSTER" in book.run("flex").out


def test_calling_back_names_who_gives(book: Book) -> None:
    called = book.json("callback", "vision", "32", *TIGER)
    assert (called["free"], called["called"], called["short"]) == (16, 16, 0)
    assert called["victims"] == [{"team": "voice", "work": "train", "gpus": 16}]
    assert "are called back for vision until" in book.run("flex", "tiger").out


def test_a_team_with_another_name(book: Book) -> None:
    assert (
        "vision is now sight: 32 GPUs assigned and 32 guaranteed in 1 pools"
        in book.run("rename", "vision", "sight").out
    )
    assert book.error("transfer", "vision", "voice", "8", *TIGER)["code"] == "no_such_team"


def test_promise_kept(book: Book) -> None:
    found = book.json("promise", "--days", "7")
    assert found["fleet"]["broken_hours"] == 0
    assert {"from", "to", "teams", "clusters", "policies", "spells", "guaranteed_gpu_hours"} <= found.keys()
    assert book.run("promise", "--team", "vision").code == 0


ERRORS: dict[str, tuple[tuple[str, ...], int, str, str]] = {
    "a team with a slip": (("request", "visoin", "8", "--sku", "H200"), 1, "no_such_team", "did you mean vision?"),
    "a SKU with a slip": (("request", "vision", "8", "--sku", "h200"), 1, "no_such_sku", "did you mean H200?"),
    "a fraction of a node": (("request", "vision", "12", "--sku", "H200"), 2, "not_whole_nodes", "12 GPUs"),
    "a fraction of a GPU": (("request", "vision", "1.5", "--sku", "H200"), 2, "bad_gpus", "'1.5'"),
    "a comma that may be a point": (("request", "vision", "1,6", "--sku", "H200"), 2, "bad_gpus", "'1,6'"),
    "a number in two pieces": (("transfer", "vision", "voice", "1 6", *TIGER), 2, "bad_gpus", "'1 6'"),
    "digits of another script": (("request", "vision", "١٦", "--sku", "H200"), 2, "bad_gpus", "'١٦'"),
    "nothing": (("request", "vision", "0", "--sku", "H200"), 2, "bad_gpus", "0 GPUs"),
    "less than nothing": (("request", "vision", "--sku", "H200", "--", "-8"), 2, "bad_gpus", "-8 GPUs"),
    "a retired cluster": (
        ("request", "vision", "8", "--sku", "H200", "--cluster", "lion"), 1, "not_in_production", "lion is retired",
    ),
    "cluster and area at once": (
        ("request", "vision", "8", "--sku", "H200", "--cluster", "tiger", "--area", "us"), 2, "bad_usage", "exclude",
    ),
    "a day that has passed": (
        ("request", "vision", "8", "--sku", "H200", "--from", "2020-01-01"), 2, "bad_time", "has passed",
    ),
    "no day at all": (("request", "vision", "8", "--sku", "H200", "--from", "soon"), 2, "bad_time", "'soon'"),
    "no length of time": (("request", "vision", "8", "--sku", "H200", "--for", "long"), 2, "bad_span", "'long'"),
    "no time at all": (("transfer", "vision", "voice", "8", *TIGER, "--for", "0d"), 2, "bad_span", "'0d'"),
    "an answer to nothing": (("approve", "q9"), 1, "no_such_request", "'q9' among 0"),
    "the giver has less": (("transfer", "vision", "voice", "40", *TIGER), 1, "over_guarantee", "guaranteed 32 GPUs"),
    "to itself": (("transfer", "vision", "vision", "8", *TIGER), 2, "same_team", "itself"),
    "a grant that is not there": (("end-grant", "tiger/H200/1"), 1, "no_such_grant", "among 0"),
    "a callback beyond the guarantee": (("callback", "vision", "40", *TIGER), 1, "over_guarantee", "call 40 back"),
    "an unknown cluster's flex": (("flex", "tigre"), 1, "no_such_cluster", "did you mean tiger?"),
    "an unknown team's promise": (("promise", "--team", "nobody"), 1, "no_such_team", "nobody"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", ERRORS)
def test_errors_say_what_the_number_and_the_next_step(sentence: str, office_file: Path) -> None:
    words, want_code, want_error, want_words = ERRORS[sentence]
    error = Book(office_file).error(*words, want_code=want_code)
    assert (error["code"], want_words in error["message"]) == (want_error, True), error


def test_approved_twice_and_denied_without_a_reason(book: Book) -> None:
    book.run("request", "vision", "16", "--sku", "H200")
    assert book.error("deny", "q1", want_code=2)["code"] == "reason_missing"
    book.run("approve", "q1")
    assert book.error("approve", "q1")["code"] == "already_answered"
    book.run("request", "voice", "8", "--sku", "H200")
    ran = book.run("deny", "q2", "--reason", "the launch comes first")
    assert "q2 denied" in ran.out
    assert "the launch comes first" in book.run("requests", "q2").out
    book.run("request", "voice", "8", "--sku", "H200")
    assert "q3 withdrawn" in book.run("withdraw", "q3").out


CLOSED: dict[str, tuple[tuple[str, ...], tuple[str, ...], list[str], str]] = {
    "denied": (("vision",), ("deny", "--reason", "no room"), ["denied", "", "no room"], "nothing was given"),
    "withdrawn without a word": (("vision",), ("withdraw",), ["withdrawn", "", ""], "nothing was given"),
    "approved without a word": (
        ("vision",), ("approve",), ["approved", "guaranteed_now:tiger", ""],
        "approved: 16 H200 of tiger, guaranteed from 20",
    ),
    "approved with a word": (
        ("voice",), ("approve", "--option", "transfer:tiger", "--reason", "vision agrees"),
        ["approved", "transfer:tiger", "vision agrees"], ", 16 from vision",
    ),
    "flex is no guarantee": (
        ("vision",), ("approve", "--option", "flex:tiger"), ["approved", "flex:tiger", ""],
        "approved: 16 H200 of tiger, as flex: nothing is guaranteed by it, and it may be called back",
    ),
    "what begins later is reserved": (
        ("vision", "--from", "3d"), ("approve", "--reason", "for Monday"),
        ["waiting", "guaranteed_now:tiger", "for Monday"],
        "approved: 16 H200 of tiger, reserved, and handed over on 20",
    ),
}  # fmt: skip
"""Who asks and from when on, the answer, what is told of it, and what came of it."""


@pytest.mark.parametrize("sentence", CLOSED)
def test_an_answered_request_says_what_was_answered_by_whom_and_what_came_of_it(sentence: str, book: Book) -> None:
    (team, *begins), (verb, *more), want, want_end = CLOSED[sentence]
    book.run("request", team, "16", "--sku", "H200", *begins)
    assert book.json("requests", "q1")["answers"] == []
    before = book.revision()
    book.run(verb, "q1", *more)
    found = book.json("requests", "q1")
    [said] = found["answers"]
    assert [said["state"], said["option"], said["why"]] == want
    assert said["by"] == "tester"
    assert said["at"] >= found["request"]["asked_at"]
    assert (found["options"], found["pools"]) == ([], [])
    assert want_end in book.run("requests", "q1").out.splitlines()[-1]
    assert book.json("requests", "q1", "--as-of", str(before))["answers"] == [], "it was open then"


def test_a_reservation_that_is_denied_has_two_answers_and_gives_nothing(book: Book) -> None:
    book.run("request", "vision", "16", "--sku", "H200", "--from", "3d")
    book.run("approve", "q1")
    book.run("deny", "q1", "--reason", "the launch comes first")
    assert [each["state"] for each in book.json("requests", "q1")["answers"]] == ["waiting", "denied"]
    assert book.run("requests", "q1").out.endswith("\n\nnothing was given\n")


def test_what_is_only_tried_is_not_told_as_done(book: Book) -> None:
    grant = book.json("transfer", "vision", "voice", "16", *TIGER, "--for", "2w")["grant"]
    tried = book.run("end-grant", grant, "--dry-run").out
    assert tried.startswith("would be settled: 1 grant to end, 0 requests to begin, 0 to expire\n")
    assert f"16 H200 of tiger would go back from voice to vision: grant {grant} would end" in tried
    done = book.run("end-grant", grant).out
    assert done.startswith("settled: 1 grant ended, 0 requests begun, 0 expired\n")
    assert f"16 H200 of tiger went back from voice to vision: grant {grant} ended" in done
