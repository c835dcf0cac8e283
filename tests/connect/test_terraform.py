"""The machine-readable interface of terraform and OpenTofu: how far it is and what failed, from lines in its form."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from plimsoll.connect.terraform import (
    ERRORS_MAX,
    ChangeSummary,
    Diagnostic,
    TerraformSaid,
    one_line,
    plain,
    read_lines,
)

SET = 'azurerm_orchestrated_virtual_machine_scale_set.set["lynx-1"]'


def line(kind: str, message: str = "", *, level: str = "info", **rest: Any) -> str:
    """A message as terraform 1.11 prints it."""
    head = {"@level": level, "@message": message or kind, "@module": "terraform.ui"}
    return json.dumps({**head, "@timestamp": "2026-11-16T15:51:17.439644Z", "type": kind, **rest})


def version(ui: Any = "1.2", **program: str) -> str:
    return line("version", ui=ui, **(program or {"terraform": "1.11.4"}))


def resource(address: str) -> dict[str, Any]:
    kind, _, name = address.partition(".")
    return {
        "addr": address,
        "module": "",
        "resource": address,
        "implied_provider": kind.partition("_")[0],
        "resource_type": kind,
        "resource_name": name,
        "resource_key": None,
    }


def planned(address: str, action: str = "create") -> str:
    change = {"resource": resource(address), "action": action}
    return line("planned_change", f"{address}: Plan to {action}", change=change)


def hook(kind: str, address: str, action: str = "create", **rest: Any) -> str:
    return line(kind, f"{address}: {kind}", hook={"resource": resource(address), "action": action, **rest})


def summary(add: int = 0, change: int = 0, remove: int = 0, operation: str = "plan", **rest: int) -> str:
    changes = {"add": add, "change": change, "remove": remove, "operation": operation, **rest}
    return line("change_summary", f"{operation} complete", changes=changes)


def diagnostic(severity: str, text: str, **rest: Any) -> str:
    level = "error" if severity == "error" else "warn"
    found = {"severity": severity, "summary": text, "detail": "", **rest}
    return line("diagnostic", f"Error: {text}", level=level, diagnostic=found)


QUOTA = diagnostic(
    "error",
    "creating Scale Set: OperationNotAllowed",
    detail="Operation could not be completed as it results in exceeding approved quota.\nCurrent limit: 0",
    address=SET,
    range={
        "filename": "sets.tf",
        "start": {"line": 12, "column": 52, "byte": 310},
        "end": {"line": 12, "column": 53, "byte": 311},
    },
    snippet={"context": None, "code": "x", "values": [{"traversal": "var.password", "statement": 'is "hunter2"'}]},
)
WANT_QUOTA = Diagnostic(
    "error",
    "creating Scale Set: OperationNotAllowed",
    "Operation could not be completed as it results in exceeding approved quota. Current limit: 0",
    SET,
    "sets.tf:12",
)
BEGUN = [version(), planned("a.x"), planned("a.y"), planned(SET), summary(3)]
PLANNED = ChangeSummary(3, 0, 0, 0, "plan")

CASES: dict[str, tuple[list[str], TerraformSaid, str]] = {
    "nothing yet": ([], TerraformSaid(), "nothing planned yet"),
    "only its version": (
        [version()],
        TerraformSaid("1.2", "terraform", "1.11.4"),
        "nothing planned yet",
    ),
    "OpenTofu says its own name": (
        [version("1.1", tofu="1.8.0"), summary(1, 2, 3)],
        TerraformSaid("1.1", "tofu", "1.8.0", of=6, summary=ChangeSummary(1, 2, 3, 0, "plan")),
        "to be done: 1 added, 2 changed, 3 destroyed",
    ),
    "planned, and none begun": (
        BEGUN,
        TerraformSaid("1.2", "terraform", "1.11.4", of=3, summary=PLANNED),
        "to be done: 3 added, 0 changed, 0 destroyed",
    ),
    "one done and two under way": (
        [
            *BEGUN,
            hook("apply_start", "a.x"),
            hook("apply_start", "a.y"),
            hook("apply_complete", "a.x", id_key="id", id_value="7", elapsed_seconds=2),
            hook("apply_start", SET),
            hook("apply_progress", "a.y", elapsed_seconds=10),
        ],
        TerraformSaid("1.2", "terraform", "1.11.4", 1, 3, ("a.y", SET), summary=PLANNED),
        f"1 of 3 applied; under way: a.y, {SET}",
    ),
    "all done": (
        [
            *BEGUN,
            *(hook(kind, name) for name in ("a.x", "a.y", SET) for kind in ("apply_start", "apply_complete")),
            summary(3, operation="apply"),
            line("outputs", "Outputs: 1", outputs={"key": {"sensitive": True, "type": "string", "value": "hunter2"}}),
        ],
        TerraformSaid("1.2", "terraform", "1.11.4", 3, 3, summary=ChangeSummary(3, 0, 0, 0, "apply")),
        "done: 3 added, 0 changed, 0 destroyed",
    ),
    "one failed, and the program does not sum up": (
        [
            *BEGUN,
            hook("apply_start", "a.x"),
            hook("apply_complete", "a.x"),
            hook("apply_start", SET),
            hook("apply_errored", SET, elapsed_seconds=9),
            diagnostic("warning", "Deprecated"),
            QUOTA,
        ],
        TerraformSaid(
            "1.2",
            "terraform",
            "1.11.4",
            1,
            3,
            errored=(SET,),
            errors=(WANT_QUOTA,),
            errors_count=1,
            warnings_count=1,
            summary=PLANNED,
        ),
        f"error: creating Scale Set: OperationNotAllowed ({SET}, sets.tf:12); 1 of 3 applied",
    ),
    "one failed and it was not yet said why": (
        [version(), hook("apply_start", "a.x"), hook("apply_errored", "a.x")],
        TerraformSaid("1.2", "terraform", "1.11.4", errored=("a.x",)),
        "failed: a.x; 0 applied",
    ),
    "the configuration is wrong": (
        [
            version(),
            diagnostic("error", "Unsupported argument", range={"filename": "main.tf", "start": {"line": 3}}),
            diagnostic("error", "Missing required argument"),
            diagnostic("error", "Missing required argument"),
        ],
        TerraformSaid(
            "1.2",
            "terraform",
            "1.11.4",
            errors=(
                Diagnostic("error", "Unsupported argument", place="main.tf:3"),
                Diagnostic("error", "Missing required argument"),
                Diagnostic("error", "Missing required argument"),
            ),
            errors_count=3,
        ),
        "error: Unsupported argument (main.tf:3); 2 more errors",
    ),
    "one is replaced: destroyed and created": (
        [
            version(),
            planned("a.x", "replace"),
            summary(1, 0, 1),
            hook("apply_start", "a.x", "delete"),
            hook("apply_complete", "a.x", "delete"),
            hook("apply_start", "a.x"),
        ],
        TerraformSaid("1.2", "terraform", "1.11.4", 1, 2, ("a.x",), summary=ChangeSummary(1, 0, 1, 0, "plan")),
        "1 of 2 applied; under way: a.x",
    ),
    "reading data is not counted, as it is not planned": (
        [version(), planned("data.a.x", "read"), summary(1), hook("apply_complete", "data.a.x", "read")],
        TerraformSaid("1.2", "terraform", "1.11.4", 0, 1, summary=ChangeSummary(1, 0, 0, 0, "plan")),
        "to be done: 1 added, 0 changed, 0 destroyed",
    ),
    "the plan is still being printed": (
        [version(), planned("a.x", "replace"), planned("a.y", "update"), planned("a.z", "move")],
        TerraformSaid("1.2", "terraform", "1.11.4", 0, 3),
        "nothing planned yet",
    ),
    "a saved plan is applied: how much it is, is not said": (
        [version(), hook("apply_complete", "a.x"), hook("apply_start", "a.y")],
        TerraformSaid("1.2", "terraform", "1.11.4", 1, None, ("a.y",)),
        "1 applied; under way: a.y",
    ),
    "planned in one run and applied in the next": (
        [version(), summary(2), version(), hook("apply_start", "a.x"), hook("apply_complete", "a.x")],
        TerraformSaid("1.2", "terraform", "1.11.4", 1, 2, summary=ChangeSummary(2, 0, 0, 0, "plan")),
        "1 of 2 applied",
    ),
    "another try begins anew": (
        [
            version(),
            summary(2),
            hook("apply_errored", "a.x"),
            QUOTA,
            version(),
            summary(1),
            hook("apply_complete", "a.x"),
            summary(1, operation="apply", **{"import": 4}),
            version(),
        ],
        TerraformSaid("1.2", "terraform", "1.11.4"),
        "nothing planned yet",
    ),
    "an import": (
        [version(), summary(1, operation="apply", **{"import": 4})],
        TerraformSaid("1.2", "terraform", "1.11.4", 0, 1, summary=ChangeSummary(1, 0, 0, 4, "apply")),
        "done: 1 added, 0 changed, 0 destroyed, 4 imported",
    ),
    "destroyed": (
        [version(), hook("apply_complete", "a.x", "delete"), summary(remove=1, operation="destroy")],
        TerraformSaid("1.2", "terraform", "1.11.4", 1, 1, summary=ChangeSummary(0, 0, 1, 0, "destroy")),
        "destroyed: 1",
    ),
    "a later minor version with types and keys that are not known": (
        [version("1.9"), line("action_start", hook={}), summary(1, action_invocation=2), line("refresh_start")],
        TerraformSaid("1.9", "terraform", "1.11.4", 0, 1, summary=ChangeSummary(1, 0, 0, 0, "plan")),
        "to be done: 1 added, 0 changed, 0 destroyed",
    ),
    "counts that are none": (
        [line("change_summary", changes={"add": -1, "change": True, "remove": "2", "operation": "plan"})],
        TerraformSaid(of=0, summary=ChangeSummary(0, 0, 0, 0, "plan")),
        "to be done: 0 added, 0 changed, 0 destroyed",
    ),
    "an error whose words are elsewhere": (
        [line("diagnostic", "Error: no credentials", level="error")],
        TerraformSaid(errors=(Diagnostic("unknown", "Error: no credentials"),), errors_count=1),
        "error: Error: no credentials",
    ),
    "an error without a form": (
        [version(), json.dumps({"@level": "error", "@message": "Too many command line arguments"})],
        TerraformSaid(
            "1.2",
            "terraform",
            "1.11.4",
            errors=(Diagnostic("error", "Too many command line arguments"),),
            errors_count=1,
        ),
        "error: Too many command line arguments",
    ),
    "the end of an output, without its version": (
        [hook("apply_complete", "a.x"), "{half", "no message", "[]", '{"type":"apply_complete"}'],
        TerraformSaid(applied=1),
        "1 applied",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_says_is_read(case: str) -> None:
    lines, want, want_text = CASES[case]
    said = read_lines(lines)
    assert said == want
    assert one_line(said) == want_text


REFUSED: dict[str, tuple[str, str]] = {
    "another major version": (version("2.0"), "terraform 1.11.4 speaks version 2.0 of"),
    "one that begins alike": (version("10.0", tofu="3.0.0"), "tofu 3.0.0 speaks version 10.0 of"),
    "one before the first": (version("0.1.0", terraform="0.15.4"), "terraform 0.15.4 speaks version 0.1.0 of"),
    "none": (line("version", terraform="1.11.4"), "terraform 1.11.4 speaks version (none) of"),
    "no text": (version(1.2), "terraform 1.11.4 speaks version (none) of"),
    "no version": (version("1.x"), "terraform 1.11.4 speaks version 1.x of"),
    "of nobody": (version("3.1", waypoint="9"), "the program speaks version 3.1 of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_interface_that_is_not_known_is_refused_and_not_guessed_at(case: str) -> None:
    first, want = REFUSED[case]
    said = read_lines([first, summary(3), hook("apply_complete", "a.x"), QUOTA])
    assert said.refusal.startswith(want)
    assert "only 1.x is understood" in said.refusal
    assert one_line(said) == said.refusal
    assert (said.applied, said.of, said.errors, said.summary) == (0, None, (), None)


def test_it_is_understood_again_when_the_next_run_speaks_a_known_version() -> None:
    said = read_lines([version("2.0"), version("1.0"), hook("apply_complete", "a.x")])
    assert (said.refusal, said.applied) == ("", 1)


def test_no_value_of_an_output_a_variable_or_the_state_is_kept() -> None:
    lines = [
        *CASES["all done"][0],
        QUOTA,
        line("log", "Emergency state dump", state={"resources": [{"password": "hunter2"}]}),
    ]
    assert any("hunter2" in text for text in lines)
    assert b"hunter2" not in msgspec.json.encode(read_lines(lines))


ODD: dict[str, list[str]] = {
    "parts that are missing": [
        line(kind) for kind in ("planned_change", "change_summary", "diagnostic", "apply_start")
    ],
    "parts of another shape": [
        line("planned_change", change=[1]),
        line("change_summary", changes="many"),
        line("diagnostic", diagnostic=None),
        line("apply_complete", hook={"resource": {"addr": 7}}),
        line("apply_start", hook={"resource": "a.x"}),
    ],
    "a type that is no text": [json.dumps({"@level": "info", "@message": "x", "type": ["version"]})],
    "an action that is no text": [line("apply_complete", hook={"resource": resource("a.x"), "action": {}})],
    "deep": ["[" * 100_000, '{"@level":' * 100_000],
    "huge numbers": ['{"@level":"info","@message":"x","type":"change_summary","changes":{"add":' + "9" * 4000 + "}}"],
    "no text": ["\x00\xff\ud800", "{\ud800}"],
}


@pytest.mark.parametrize("case", ODD)
def test_whatever_is_printed_never_raises(case: str) -> None:
    said = read_lines([version(), *ODD[case]])
    assert (said.applied, said.running, said.of) == (0, (), None)
    one_line(said)


def test_counts_and_lengths_are_bounded() -> None:
    long = "a" * 5_000
    lines = [diagnostic("error", long, detail=long, address=long) for _ in range(ERRORS_MAX + 10)]
    said = read_lines([version(), *lines, *(hook("apply_start", f"a.x[{number}]") for number in range(2_000))])
    assert (len(said.errors), said.errors_count) == (50, 60)
    assert {(len(one.summary), len(one.detail), len(one.address)) for one in said.errors} == {(500, 4_000, 500)}
    assert len(said.running) == 1_000
    assert one_line(said).endswith("59 more errors; 0 applied; under way: a.x[0], a.x[1], a.x[2] and 997 more")


PLAIN = {
    "colours go": ("\x1b[1m\x1b[31mError:\x1b[0m no", 50, "Error: no"),
    "signs that control go": ("a\tb\x07\x9bc\u202e d\n", 50, "a b  c  d"),
    "long is cut": ("abcdef", 4, "abc…"),
    "as long as it may be stays": ("abcd", 4, "abcd"),
}


@pytest.mark.parametrize("case", PLAIN)
def test_a_text_can_not_control_a_terminal(case: str) -> None:
    text, chars_max, want = PLAIN[case]
    assert plain(text, chars_max) == want
