"""A rehearsed step speaks as a real one does: the real command, read by what reads real steps."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from plimsoll.connect.errands import Errands, Going
from plimsoll.connect.rehearsal import STEPS, main, read_scene
from plimsoll.connect.step_output import Failure, NodeSaid, Progress, Said, read_output
from plimsoll.connect.terraform import ChangeSummary, one_line
from tests.support.waiting import wait_until

SETS = (
    {"set": "lynx-1", "island": "lynx-i1", "nodes": 3, "prefix": "lynx", "first": 1},
    {"set": "lynx-2", "island": "lynx-i2", "nodes": 2, "prefix": "lynx", "first": 1001},
)
WORDS = (sys.executable, "-m", "plimsoll.connect.rehearsal")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a step is told, and a rehearsal that takes no time."""
    (tmp_path / "sets").write_text("".join(f"{json.dumps(one)}\n" for one in SETS))
    (tmp_path / "nodes").write_text("".join(f"lynx-{number:04d}\n" for number in range(1, 101)))
    return {
        "PLIMSOLL_CLUSTER": "lynx",
        "PLIMSOLL_OPERATION": "create/lynx/1",
        "PLIMSOLL_SETS_FILE": str(tmp_path / "sets"),
        "PLIMSOLL_NODES_FILE": str(tmp_path / "nodes"),
        "PLIMSOLL_REHEARSAL": "seconds=0",
        "PLIMSOLL_REHEARSAL_LOG": str(tmp_path / "log"),
    }


class Played:
    """A step that was played in this process."""

    def __init__(self, step: str, environment: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
        self.code = main([step], environment)
        self.out, self.err = capsys.readouterr()
        self.said = read_output(self.out, is_ended=True)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_goes_well_and_says_so(
    step: str, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    played = Played(step, environment, capsys)
    assert (played.code, played.err, played.said.problems, played.said.failure) == (0, "", (), None)
    assert played.said.result
    assert played.said.outputs["cluster"] == "lynx"
    assert Path(environment["PLIMSOLL_REHEARSAL_LOG"]).read_text() == f"create/lynx/1 {step} begin\n"


@pytest.mark.parametrize("step", STEPS)
def test_every_step_can_be_told_to_fail(
    step: str, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    environment["PLIMSOLL_REHEARSAL"] = f"seconds=0 fail={step}:NoCapacity:never"
    played = Played(step, environment, capsys)
    want = Failure("NoCapacity", "the region has no more machines of this size today (rehearsed)", may_retry=False)
    assert (played.code, played.said.failure, played.said.result, played.said.problems) == (1, want, "", ())


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_told_nothing_does_little_and_ends(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    for wish in ("seconds=0", f"seconds=0 fail={step}:Credentials"):
        assert Played(step, {"PLIMSOLL_REHEARSAL": wish}, capsys).code == ("fail" in wish)


def test_fill_says_the_machines_of_the_sets(environment: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    one, two = {"set": "lynx-1"}, {"set": "lynx-2"}
    assert Played("fill", environment, capsys).said == Said(
        progress=Progress(5, 5, "lynx-2: 2 of 2 machines"),
        nodes=(
            NodeSaid("lynx-0001", "lynx-i1", labels=one),
            NodeSaid("lynx-0002", "lynx-i1", labels=one),
            NodeSaid("lynx-0003", "lynx-i1", labels=one),
            NodeSaid("lynx-1001", "lynx-i2", labels=two),
            NodeSaid("lynx-1002", "lynx-i2", labels=two),
        ),
        result="5 of 5 machines came",
        outputs={"cluster": "lynx", "nodes": "5"},
    )


def test_some_machines_do_not_come(environment: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    environment["PLIMSOLL_REHEARSAL"] = "seconds=0 filled=0.5"
    said = Played("fill", environment, capsys).said
    assert [node.node for node in said.nodes] == ["lynx-0001", "lynx-0002", "lynx-1001"]
    assert said.result == "3 of 5 machines came"


def test_some_machines_do_not_pass_and_always_the_same(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    environment["PLIMSOLL_REHEARSAL"] = "seconds=0 share=0.97"
    first, again = (Played("burn-in", environment, capsys) for _ in range(2))
    assert first.out == again.out
    bad = [node for node in first.said.nodes if node.is_ok is False]
    assert (len(first.said.nodes), len(bad)) == (100, 3)
    assert all(node.detail for node in bad)
    assert first.said.result == "97 of 100 machines passed"
    environment["PLIMSOLL_CLUSTER"] = "tiger"
    assert [node for node in Played("burn-in", environment, capsys).said.nodes if node.is_ok is False] != bad


def test_bootstrap_and_destroy_speak_as_terraform_does(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = Played("bootstrap", environment, capsys).said.terraform
    destroy = Played("destroy", environment, capsys).said.terraform
    assert bootstrap is not None
    assert destroy is not None
    # Four of the cluster, two islands, two sets.
    assert (bootstrap.applied, bootstrap.of, bootstrap.running) == (8, 8, ())
    assert bootstrap.summary == ChangeSummary(8, 0, 0, 0, "apply")
    assert (destroy.applied, destroy.of, destroy.summary) == (8, 8, ChangeSummary(0, 0, 8, 0, "destroy"))


def test_terraform_that_fails_names_the_resource(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    environment["PLIMSOLL_REHEARSAL"] = "seconds=0 fail=bootstrap:OutOfQuota"
    said = Played("bootstrap", environment, capsys).said
    address = 'azurerm_orchestrated_virtual_machine_scale_set.set["lynx-2"]'
    assert said.terraform is not None
    assert (said.terraform.errored, said.terraform.running) == ((address,), ())
    assert one_line(said.terraform) == f"error: OutOfQuota ({address}, main.tf:12); 7 of 8 applied"
    assert said.failure is not None
    assert said.failure.may_retry


WISHES: dict[str, tuple[str, str, dict[str, object]]] = {
    "nothing is wished": ("fill", "", {"reason": "", "is_blocked": False, "share": 1.0, "filled": 1.0}),
    "another step fails": ("fill", "fail=services:Credentials", {"reason": ""}),
    "one of several": ("fill", "fail=services:A,fill:B", {"reason": "B", "may_retry": True}),
    "for good": ("fill", "fail=fill:B:never", {"reason": "B", "may_retry": False}),
    "only in another cluster": ("fill", "tiger.fail=fill:A", {"reason": ""}),
    "only in this cluster": ("fill", "lynx.fail=fill:A", {"reason": "A"}),
    "what names the cluster comes first": ("fill", "lynx.fail=fill:A fail=fill:B", {"reason": "A"}),
    "and may take away what holds for all": ("fill", "fail=fill:B lynx.fail=", {"reason": ""}),
    "a cluster with a dot": ("fill", "lynx.eu.share=0.5", {"share": 1.0}),
    "as JSON": (
        "burn-in",
        '{"share": 0.5, "lynx.blocked": "burn-in", "until": "/no such file"}',
        {"share": 0.5, "is_blocked": True, "until": "/no such file"},
    ),
}


@pytest.mark.parametrize("case", WISHES)
def test_how_it_shall_go_is_read(case: str) -> None:
    step, text, want = WISHES[case]
    scene = read_scene(step, {"PLIMSOLL_CLUSTER": "lynx", "PLIMSOLL_REHEARSAL": text})
    assert {key: getattr(scene, key) for key in want} == want


def test_how_long_it_takes_depends_on_the_names_alone() -> None:
    def seconds(cluster: str, step: str, wish: str = "") -> float:
        return read_scene(step, {"PLIMSOLL_CLUSTER": cluster, "PLIMSOLL_REHEARSAL": wish}).seconds

    drawn = [seconds(f"c{number}", step) for number in range(10) for step in STEPS]
    assert 1.5 <= min(drawn) < 1.7
    assert 2.3 < max(drawn) <= 2.5
    assert seconds("lynx", "fill") == seconds("lynx", "fill") != seconds("lynx", "drain")
    assert seconds("lynx", "fill", "seconds=4") == 2 * seconds("lynx", "fill")


WRONG: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no step": ([], {}, "expected the name of one step; name one of checkin"),
    "a step that is misspelt": (["chekin"], {}, "no step is called 'chekin'; did you mean checkin?"),
    "a wish that is no pair": (["fill"], {"PLIMSOLL_REHEARSAL": "fast"}, "'fast' is not key=value"),
    "a wish that is misspelt": (["fill"], {"PLIMSOLL_REHEARSAL": "second=1"}, "did you mean seconds?"),
    "a number that is none": (["fill"], {"PLIMSOLL_REHEARSAL": "share=x"}, "share=x: expected a number from 0 to 1"),
    "a number that is too large": (["fill"], {"PLIMSOLL_REHEARSAL": "share=97"}, "expected a number from 0 to 1"),
    "a time that is none": (["fill"], {"PLIMSOLL_REHEARSAL": "seconds=nan"}, "expected a number from 0 to 3600"),
    "a failure without a reason": (["fill"], {"PLIMSOLL_REHEARSAL": "fail=fill"}, "expected STEP:REASON"),
    "a failure of no step": (["fill"], {"PLIMSOLL_REHEARSAL": "fail=fil:A"}, "expected STEP:REASON"),
    "JSON that is none": (["fill"], {"PLIMSOLL_REHEARSAL": "{seconds"}, "it is no JSON object"),
    "a file that is not there": (["fill"], {"PLIMSOLL_SETS_FILE": "/no/file"}, "/no/file can't be read: No such file"),
    "a file that is no text": (["fill"], {"PLIMSOLL_SETS_FILE": sys.executable}, "can't be read: it is no text"),
    "a set that is none": (
        ["fill"],
        {"PLIMSOLL_SETS_FILE": __file__},
        "PLIMSOLL_SETS_FILE: Expected `object`, got `str`",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_played(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, told, want = WRONG[case]
    assert main(arguments, {**told, "PLIMSOLL_REHEARSAL_LOG": str(tmp_path / "log")}) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert want in err
    assert not (tmp_path / "log").exists()


def test_a_blocked_step_waits_for_its_file_and_what_should_fail_does_not_any_more(
    environment: dict[str, str], tmp_path: Path
) -> None:
    go, errands = tmp_path / "go", Errands(tmp_path / "errands")
    wish = f"seconds=0 blocked=checkin fail=checkin:Credentials until={go}"
    told = {**environment, "PLIMSOLL_REHEARSAL": wish, "PYTHONUNBUFFERED": ""}  # it flushes by itself
    assert errands.begin("e", (*WORDS, "checkin"), environment=told, lines=[])
    wait_until(lambda: read_output(errands.peek("e")).blocked is not None, what="it is blocked")
    said = read_output(errands.peek("e"))
    assert said.blocked is not None
    assert said.blocked.asks == "the person who checks clusters in"
    assert errands.look("e") == (Going.RUNNING, None)
    go.touch()
    wait_until(lambda: errands.look("e")[0] is Going.ENDED, what="it goes on")
    said = read_output(errands.peek("e"), is_ended=True)
    assert (said.blocked, said.failure, said.result) == (None, None, "checkin done")


def test_a_blocked_step_without_a_file_goes_on_by_itself(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    environment["PLIMSOLL_REHEARSAL"] = "seconds=0.1 blocked=services"
    begun = time.monotonic()
    played = Played("services", environment, capsys)
    assert 0.15 <= time.monotonic() - begun < 2
    assert played.out.startswith('{"type":"blocked"')
    assert (played.code, played.said.blocked) == (0, None)


def test_the_command_runs_as_an_errand_and_its_progress_is_seen_growing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    errands = Errands(tmp_path / "errands")
    told = {**environment, "PLIMSOLL_REHEARSAL": "seconds=0.6"}
    del told["PLIMSOLL_SETS_FILE"]
    sets = json.dumps({"set": "s", "island": "i", "nodes": 400, "prefix": "puma", "first": 1})
    assert errands.begin("e", (*WORDS, "fill"), environment=told, lines=[], files={"sets": sets})
    seen = set()
    while errands.look("e")[0] is Going.RUNNING:
        seen.add(len(read_output(errands.peek("e")).nodes))
        time.sleep(0.01)
    going, result = errands.look("e")
    assert going is Going.ENDED
    assert result is not None
    assert (result.code, result.last_words) == (0, "")
    assert result.out == errands.peek("e")
    assert len(read_output(result.out, is_ended=True).nodes) == 400
    assert seen - {0, 400}, "it was seen on its way"
    assert (tmp_path / "log").read_text() == "create/lynx/1 fill begin\n"


def test_steps_that_begin_at_the_same_moment_are_all_in_the_log(environment: dict[str, str], tmp_path: Path) -> None:
    steps = ("checkin", "services", "drain")
    running = [
        subprocess.Popen((*WORDS, step), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for step in steps
    ]
    for process in running:
        assert process.communicate(timeout=30)[1] == b""
        assert process.returncode == 0
    want = {f"create/lynx/1 {step} begin" for step in steps}
    assert set((tmp_path / "log").read_text().splitlines()) == want
