"""The checks of the validation that a machine answers: commands, with an end, without a shell, not too many at once."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.errors import Fenced, Unavailable
from plimsoll.health import checks
from plimsoll.health.checks import AT_ONCE, Answered, run_checks
from plimsoll.health.service import put_policy_in_force
from plimsoll.ledger.store import Leadership
from tests.support.health import POLICY, Ward


def policy_of(*validation: str) -> str:
    """The tests' policy with these checks."""
    listed = "\n".join(f"  - {check}" for check in validation)
    return POLICY.partition("validation:\n")[0] + f"validation:\n{listed}\n"


def command(*words: str, timeout: str = "10s", name: str = "diag") -> str:
    return f"{{check: {name}, run: {list(words)!r}, timeout: {timeout}}}"


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def validating(policy: str, count: int = 1) -> Ward:
    ward = Ward(count, policy=policy)
    names = [f"n{number}" for number in range(1, count + 1)]
    ward.set("quarantined", *names)
    ward.set("validating", *names)
    return ward


def answers(ward: Ward) -> list[Answered]:
    return run_checks(ward.keeper, actor="sweeper", prometheus=None)


class Case(NamedTuple):
    """A command, what it comes to, and where that leaves the node."""

    check: str
    want: bool | None
    want_detail: str
    want_service: str


CASES = {
    "it exits with 0": Case(command("true"), True, "exit code 0", "in_service"),
    "it exits with 1": Case(command("false"), False, "exit code 1", "quarantined"),
    "it says why": Case(
        command("sh", "-c", "echo noise; echo fell off the bus >&2; exit 3"),
        False, "exit code 3: fell off the bus", "quarantined",
    ),
    "it says why on the wrong stream": Case(
        command("sh", "-c", "echo 'gpu 3'; exit 4"), False, "exit code 4: gpu 3", "quarantined"
    ),
    "it passes, whatever it says": Case(command("sh", "-c", "echo warning >&2"), True, "exit code 0", "in_service"),
    "it is killed by a signal": Case(command("sh", "-c", "kill -9 $$"), False, "exit code -9", "quarantined"),
    "it hangs": Case(
        command("sleep", "60", timeout="1s"), False, "sleep took over 0:00:01 and was killed", "quarantined"
    ),
    "it never stops talking": Case(command("yes"), False, "yes printed too much", "quarantined"),
    "there is no such command: that is not the node's fault": Case(
        command("no-such-command"), None, "no answer: no-such-command: No such file or directory", "validating"
    ),
    "the node stands in its words, and no shell reads them": Case(
        command("test", "{node}; exit 1", "=", "n1; exit 1"), True, "exit code 0", "in_service"
    ),
    "the node stands in its environment": Case(
        command("sh", "-c", '[ "$PLIMSOLL_NODE" = n1 ]'), True, "exit code 0", "in_service"
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", CASES)
def test_a_command_answers_a_check(sentence: str) -> None:
    case = CASES[sentence]
    with validating(policy_of(case.check)) as ward:
        assert answers(ward) == [Answered("n1", "diag", case.want, case.want_detail)]
        assert ward.service() == case.want_service
        if case.want is False:
            assert ward.facts().why == f"validation: diag failed, {case.want_detail}"


def test_a_command_that_hangs_leaves_nothing_running(tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    forever = f"sh -c 'while :; do date +%N > {beat}; sleep 0.05; done' & wait"
    with validating(policy_of(command("sh", "-c", forever, timeout="1s"))) as ward:
        began = time.monotonic()
        answers(ward)
        assert time.monotonic() - began < 5
    last = beat.read_text()
    time.sleep(0.3)
    assert beat.read_text() == last


def test_no_more_run_at_once_than_are_allowed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; place = sys.argv[1]; mine = os.path.join(place, str(os.getpid()));"
        "open(mine, 'w').close(); time.sleep(0.05); print(len(os.listdir(place)), file=sys.stderr);"
        "most = len(os.listdir(place)); os.remove(mine); sys.exit(most)"
    )
    with validating(policy_of(command(*python(code), str(tmp_path))), 3 * AT_ONCE) as ward:
        most = [int(each.detail.removeprefix("exit code ").partition(":")[0]) for each in answers(ward)]
    assert len(most) == 3 * AT_ONCE
    assert 1 < max(most) <= AT_ONCE


def test_all_checks_must_pass_and_each_is_run_once(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    note = command("sh", "-c", f"echo x >> {marks}", name="first")
    with validating(policy_of(note, "{check: accepted, by: manual}")) as ward:
        answers(ward)
        assert ward.service() == "validating"
        assert answers(ward) == []
        assert marks.read_text() == "x\n"
        ward.tick("accepted")
        assert ward.service() == "in_service"


def test_one_that_fails_ends_the_validation_for_the_others() -> None:
    with validating(policy_of(command("false"), command("true", name="second"))) as ward:
        assert [each.is_passed for each in answers(ward)] == [False, True]
        assert (ward.service(), set(ward.holds())) == ("quarantined", {"plimsoll:validation diag"})


def test_nodes_that_wait_for_a_person_do_not_keep_others_from_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "NODES_PER_SWEEP", 2)
    with validating(policy_of(command("true"), "{check: accepted, by: manual}"), 5) as ward:
        assert [[each.node for each in answers(ward)] for _ in range(4)] == [["n1", "n2"], ["n3", "n4"], ["n5"], []]


def test_an_answer_does_not_count_for_another_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    with validating(policy_of(command("true"))) as ward:
        run = checks._run

        def slow(*arguments: object) -> Answered:
            """While the command runs, the node is taken out and validates again."""
            ward.wait(1)
            ward.set("quarantined")
            ward.set("validating")
            return run(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(checks, "_run", slow)
        assert [each.is_passed for each in answers(ward)] == [True]
        assert ward.service() == "validating"


def test_a_policy_that_forgot_the_check_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with validating(policy_of(command("true"))) as ward:
        run = checks._run

        def slow(*arguments: object) -> Answered:
            put_policy_in_force(ward.keeper, POLICY, source="test", actor="ada", reason="")
            return run(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(checks, "_run", slow)
        answers(ward)
        assert ward.service() == "validating"


def test_a_database_that_can_not_be_written_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise Unavailable("disk_full", "the disk is full")

    with validating(policy_of(command("true"))) as ward:
        monkeypatch.setattr(checks, "act", fail)
        with pytest.raises(Unavailable):
            answers(ward)


def led(ward: Ward, name: str) -> Leadership:
    lead = ward.keeper.ledger.store.lead(name, "checks")
    assert lead is not None
    return lead


def test_who_leads_no_more_runs_no_check(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with validating(policy_of(command("sh", "-c", f"echo x >> {marks}"))) as ward:
        old = led(ward, "old")
        old.resign()
        new = led(ward, "new")
        with pytest.raises(Fenced):
            run_checks(ward.keeper, actor="sweeper", prometheus=None, epoch=old.epoch)
        assert (marks.exists(), ward.service()) == (False, "validating")
        assert len(run_checks(ward.keeper, actor="sweeper", prometheus=None, epoch=new.epoch)) == 1
        assert (marks.read_text(), ward.service()) == ("x\n", "in_service")


def test_what_was_run_by_who_leads_no_more_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with validating(policy_of(command("false"))) as ward:
        old, run = led(ward, "old"), checks._run

        def slow(*arguments: object) -> Answered:
            """While the command runs, another takes the lead."""
            old.resign()
            led(ward, "new")
            return run(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(checks, "_run", slow)
        with pytest.raises(Fenced):
            run_checks(ward.keeper, actor="sweeper", prometheus=None, epoch=old.epoch)
        assert ward.service() == "validating"
