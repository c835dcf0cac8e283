"""`plimsoll quota control|mode|policy|rollout|notices|agree|object` as their users have them, and wrong words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import Refused, Unavailable
from plimsoll.quota.service import run_controller
from plimsoll.rooms import open_keeper
from plimsoll.times import utc_now
from tests.support.harbour import SIZE, Harbour, Work
from tests.support.inside import Said, called, plimsoll

DAYS_AHEAD = str(utc_now().date() + timedelta(days=3))


@pytest.fixture(scope="session")
def harbour_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 nodes in tiger, line = healthy; a 60 and b 40 of them are guaranteed since January, and 50 of a's run.

    Then 20 nodes broke: 10 of a and 10 of b have to go, and nobody has acted yet.
    """
    path = tmp_path_factory.mktemp("harbour") / "plimsoll.db"
    with Harbour(100, {"a": 60, "b": 40}, (Work("a", 50),), dsn=f"sqlite:///{path}") as harbour:
        harbour.apply()
        harbour.work_only(80)
    return path


class Book:
    """A copy of the harbour's database, and commands on it."""

    def __init__(self, db: str) -> None:
        self.db = db

    def run(self, *words: str | Path, want_code: int = 0) -> Said:
        said = called("--db", self.db, "quota", *words)
        assert said.code == want_code, f"{words}\n{said.out}{said.err}"
        return said

    def json(self, *words: str | Path) -> Any:
        return self.run(*words, "-o", "json").json()

    def revision(self) -> int:
        with open_keeper(self.db) as keeper:
            return keeper.state().revision


@pytest.fixture
def book(harbour_file: Path, tmp_path: Path) -> Book:
    shutil.copy(harbour_file, tmp_path / "book.db")
    return Book(f"sqlite:///{tmp_path}/book.db")


# control and mode


def test_the_controller_looks_everywhere_and_acts_where_it_may(book: Book) -> None:
    head = book.revision()
    (pool,) = book.json("control")["pools"]
    assert (pool["mode"], pool["verdict"], pool["done"]) == ("observe", "cut", False)
    assert (pool["guaranteed"], pool["guaranteed_after"], pool["shortfall"]) == (800, 640, 160)
    assert book.revision() == head
    out = book.run("control").out
    assert "in 1 pool the controller may not act; next: plimsoll quota mode tiger enforce" in out

    book.run("mode", "tiger", "enforce", "--reason", "pilot")
    head = book.revision()
    assert book.json("control", "--dry-run")["dry_run"] is True
    assert book.revision() == head
    done = book.json("control")
    assert (done["events"], done["pools"][0]["done"]) == (1, True)
    assert book.json("show")["summary"]["guaranteed"] == 80 * SIZE
    assert book.run("control", "--all").out.endswith("nothing was changed\n")


def test_what_the_controller_says_to_people(book: Book) -> None:
    book.run("mode", "tiger", "enforce")
    out = book.run("control", "tiger").out
    assert out.startswith("1 pool: 1 to change, 1 shown\n")
    assert "the line fell to 640 GPUs: 160 GPUs are taken back" in out
    assert out.endswith("1 event written\n")


def test_a_shortfall_is_the_first_thing_that_show_says(book: Book) -> None:
    out = book.run("show").out
    assert out.startswith("SHORTFALL: tiger H200: 800 are guaranteed and 640 work, 160 GPUs short\n\n")
    assert "next: plimsoll quota control --dry-run" in out


def test_modes_are_set_once_and_listed(book: Book) -> None:
    assert "1 cluster in mode observe" in book.run("mode").out
    would = book.json("mode", "tiger", "propose", "--dry-run")
    assert (would["modes"], would["dry_run"]) == ([{"cluster": "tiger", "mode": "propose"}], True)
    assert book.run("mode", "tiger", "propose", "--dry-run").out.startswith("tiger would be in mode propose\n")
    assert book.json("mode")["modes"][0]["mode"] == "observe"
    book.run("mode", "tiger", "propose")
    head = book.revision()
    book.run("mode", "tiger", "propose")
    assert book.revision() == head
    assert book.json("mode") == {"modes": [{"cluster": "tiger", "mode": "propose"}]}


def test_the_controller_goes_on_when_the_database_is_gone_for_a_while(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--every` is for a service: a round that can't be made is told, and the next one comes."""
    faults = iter([Unavailable("locked", "the database is locked")])

    def faulty(*arguments: Any, **options: Any) -> Any:
        for fault in faults:
            raise fault
        return run_controller(*arguments, **options)

    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise Refused("enough", "enough rounds")

    monkeypatch.setattr("plimsoll.commands.quota.control.run_controller", faulty)
    monkeypatch.setattr("plimsoll.commands.quota.control.time.sleep", sleep)
    said = book.run("control", "--every", "5m", want_code=1)
    assert said.err == "plimsoll: the database is locked; the next round is in 5m\nplimsoll: enough rounds\n"
    assert said.out.startswith("1 pool: 1 to change")
    assert slept == [300.0, 300.0]


# policy


def test_the_policy_in_force_is_a_file_to_copy_check_and_apply(book: Book, tmp_path: Path) -> None:
    file = tmp_path / "lines.yaml"
    file.write_text(book.run("policy", "show").out)
    assert "good, checked with the fleet" in book.run("policy", "check", file).out
    head = book.revision()
    assert book.run("policy", "apply", file, "--dry-run").out.startswith("test would be in force")
    assert book.revision() == head
    assert book.run("policy", "apply", file, "--reason", "as agreed").out.startswith("test is in force")
    assert book.json("policy", "show")["is_default"] is False
    assert book.revision() == head + 1


def test_a_policy_can_be_checked_without_a_database(tmp_path: Path) -> None:
    shown = plimsoll("quota", "policy", "show", cwd=tmp_path)
    (tmp_path / "lines.yaml").write_text(shown.out)
    checked = plimsoll("quota", "policy", "check", "lines.yaml", cwd=tmp_path)
    assert (checked.code, "without a fleet: names were not checked" in checked.out) == (0, True)
    assert list(tmp_path.glob("*.db")) == []


# the roll-out


def test_a_roll_out_has_four_stages_with_their_days(book: Book) -> None:
    head = book.revision()
    stages = book.json("rollout", "--policy", "fixed:0.3", "--start", DAYS_AHEAD, "--every", "2d")["stages"]
    assert [stage["stage"] for stage in stages] == [1, 2, 3, 4]
    assert stages[0]["day"] == DAYS_AHEAD
    # 100 assigned, a line of 70: 10 of a and 20 of b, all of it unscheduled.
    assert stages[1]["haircut"] == {"unscheduled": 30 * SIZE, "idle": 0, "running": 0}
    assert (stages[1]["clusters"], stages[1]["teams"]) == (["tiger"], ["a", "b"])
    assert book.revision() == head
    assert "next: plimsoll quota rollout --policy fixed:0.3 --start" in book.run("rollout", "--policy", "fixed:0.3").out


def test_announce_read_agree_object(book: Book) -> None:
    words = ("rollout", "--policy", "fixed:0.55", "--start", DAYS_AHEAD, "--announce")
    assert "2 notices would be open\ndry run: nothing was kept" in book.run(*words, "--dry-run").out
    assert book.json("notices") == {"notices": []}
    assert "2 notices are open; next: plimsoll quota notices" in book.run(*words).out
    head = book.revision()
    book.run(*words)
    assert book.revision() == head, "nobody is told twice"

    out = book.run("notices").out
    assert out.startswith("2 open notices\n")
    text = book.run("notices", "a", "--policy", "fixed:0.55").out
    assert text.startswith("To a: your quota of H200 in tiger changes on ")
    assert "\nWhat changes: today you are guaranteed 480 GPUs. From then on " in text
    assert "This needs your agreement." in text

    would = book.json("object", "a", "--reason", "we launch", "--dry-run")
    assert [(each["team"], each["answer"]) for each in would["notices"]] == [("a", "objected")]
    assert "answer" not in book.json("notices", "a")["notices"][0]
    assert book.run("object", "a", "--reason", "we launch").out.startswith("a objected to 1 notice\n")
    assert "Your answer: objected, by tester: we launch" in book.run("notices", "a").out
    assert book.run("agree", "a", "--cluster", "tiger", "--sku", "H200").out.startswith("a agreed to 1 notice\n")
    notices = {each["team"]: each for each in book.json("notices")["notices"]}
    assert (notices["a"]["answer"], notices["b"].get("answer", "none")) == ("agreed", "none")
    assert notices["a"]["text"].startswith("To a: ")


def test_no_notices(book: Book) -> None:
    assert "no notice is open; next: plimsoll quota rollout" in book.run("notices").out
    assert "no notice is open for nobody; next:" in book.run("notices", "nobody").out
    assert book.json("notices") == {"notices": []}


# Wrong words.


def _file(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


WRONG: dict[str, tuple[tuple[Any, ...], int, str, str]] = {
    "a policy that is no policy": (
        ("plan", "--policy", "fixd:0.1"),
        2,
        "bad_policy",
        "neither a file nor a policy's name",
    ),
    "a buffer in percent": (("plan", "--policy", "fixed:15"), 2, "bad_policy", "for 15 % write 0.15"),
    "a buffer of everything": (("plan", "--policy", "fixed:1"), 2, "bad_policy", "not including, 1"),
    "a policy that is a folder": (("plan", "--policy", "."), 2, "bad_policy", "neither a file"),
    "a policy with a name too long for a file": (("plan", "--policy", "x" * 9000), 2, "bad_policy", "neither a file"),
    "a policy file that is not there": (("plan", "--policy", "no.yaml"), 2, "unreadable", "No such file"),
    "a policy file that is a folder": (("policy", "check", "."), 2, "unreadable", "Is a directory"),
    "a policy file that is not YAML": (
        ("policy", "apply", _file("a.yaml", b"a: [")),
        2,
        "bad_document",
        "line 1: not YAML",
    ),
    "a policy file that is not UTF-8": (
        ("policy", "check", _file("a.yaml", b"policy: \xff")),
        2,
        "unreadable",
        "is not UTF-8 text",
    ),
    "a policy file with a field nobody knows": (
        ("policy", "check", _file("a.yaml", b"policy: p\nlines: [{scope: {}, by: fixed}]\nlinse: []\n")),
        2,
        "bad_document",
        "linse",
    ),
    "stage 0": (("plan", "--stage", "0"), 2, "bad_usage", "--stage"),
    "a negative stage": (("apply", "--stage", "-1"), 2, "bad_usage", "--stage"),
    "a revision that is not there yet": (
        ("apply", "--planned-at", "99999"),
        2,
        "no_such_revision",
        "there is no revision",
    ),
    "a negative revision": (("apply", "--planned-at", "-1"), 2, "no_such_revision", "there is no revision -1"),
    "running capacity at once without a reason": (("apply", "--without-notice"), 2, "reason_missing", "needs a reason"),
    "a start that is no date": (("rollout", "--start", "monday"), 2, "bad_date", "'monday' is not a date"),
    "a start that is past": (("rollout", "--start", "2020-01-01"), 2, "bad_date", "is past; today is"),
    "a start at the end of the calendar": (("rollout", "--start", "9999-12-30"), 2, "bad_date", "days ahead"),
    "stages half a day apart": (("rollout", "--every", "12h"), 2, "bad_span", "is no number of days"),
    "stages ages apart": (("rollout", "--every", "99999d"), 2, "bad_date", "at most 366 days apart"),
    "rounds without end": (("control", "--every", "0s"), 2, "bad_span", "no length of time"),
    "a round in a cluster that is not there": (("control", "tigre"), 1, "no_such_cluster", "did you mean tiger?"),
    "a mode that is none": (("mode", "tiger", "force"), 2, "bad_usage", "'observe', 'propose', 'enforce'"),
    "a mode of a cluster that is not there": (("mode", "lion", "enforce"), 1, "no_such_cluster", "no cluster 'lion'"),
    "a team without notices agrees": (("agree", "a"), 1, "no_such_notice", "no notice is open for 'a'"),
    "an objection without a reason": (("object", "a"), 2, "reason_missing", "an objection needs a reason"),
    "a moment that is none": (("show", "--as-of", "yesteryear"), 2, "bad_time", "is not a time"),
    "a revision ahead": (("show", "--as-of", "99999"), 1, "no_such_revision", "there is no revision 99999"),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_wrong_words(sentence: str, book: Book, tmp_path: Path) -> None:
    words, want_code, want_error, want_text = WRONG[sentence]
    typed = [word(tmp_path) if callable(word) else word for word in words]
    head = book.revision()
    said = book.run(*typed, want_code=want_code)
    assert said.out == ""
    assert want_text in said.err
    assert "\n  next: " in said.err
    as_json = book.run(*typed, "-o", "json", want_code=want_code)
    assert as_json.out == ""
    assert as_json.error["code"] == want_error
    assert want_text in as_json.error["message"]
    assert as_json.error["next_step"]
    assert book.revision() == head


COMMANDS = [
    ("show",), ("plan",), ("apply",), ("control",), ("mode",), ("rollout",), ("notices",), ("agree", "a"),
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_without_a_database_nothing_is_made_up(words: tuple[str, ...], tmp_path: Path) -> None:
    said = called("quota", *words, "--db", f"sqlite:///{tmp_path}/none.db", "-o", "json")
    assert (said.code, said.out, said.error["code"]) == (1, "", "no_database")
    assert not (tmp_path / "none.db").exists()
