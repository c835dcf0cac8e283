"""What a step prints, as what it comes to: a table of outputs, wrong lines named, and nothing that ever raises."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import msgspec
import pytest

from plimsoll.connect import step_output
from plimsoll.connect.step_output import Blocked, Failure, NodeSaid, Progress, Said, read_output
from plimsoll.connect.terraform import ChangeSummary
from tests.support.effort import effort


def said_by(*messages: dict[str, Any] | str, is_ended: bool = False) -> Said:
    lines = [message if isinstance(message, str) else json.dumps(message) for message in messages]
    return read_output("".join(f"{line}\n" for line in lines), is_ended=is_ended)


def progress(done: Any = 3, of: Any = 12, **rest: Any) -> dict[str, Any]:
    return {"type": "progress", "done": done, "of": of, **rest}


def node(name: Any = "lynx-0001", **rest: Any) -> dict[str, Any]:
    return {"type": "node", "node": name, **rest}


BLOCKED = {"type": "blocked", "message": "sign the order", "asks": "capacity"}
FAILED = {"type": "failed", "reason": "OutOfQuota", "message": "0 of 4,608 cores left", "retry": "later"}
RESULT = {"type": "result", "message": "48 machines came"}
VERSION = {"@level": "info", "@message": "Terraform 1.11.4", "type": "version", "terraform": "1.11.4", "ui": "1.2"}
SUMMARY = {
    "@level": "info",
    "@message": "Plan: 2 to add, 0 to change, 0 to destroy.",
    "type": "change_summary",
    "changes": {"add": 2, "change": 0, "remove": 0, "operation": "plan"},
}

CASES: dict[str, tuple[list[dict[str, Any] | str], Said]] = {
    "nothing": ([], Said()),
    "blank lines are nothing": (["", "  ", "\t"], Said()),
    "how far it is, and the later word wins": (
        [progress(1, 12, message="dns"), progress(3, 12, message="dns\x1b[0m\tready")],
        Said(progress=Progress(3, 12, "dns ready")),
    ),
    "how far it is, of nobody knows how much": (
        [{"type": "progress", "done": 7}],
        Said(progress=Progress(7, None, "")),
    ),
    "machines that are there, in the order in which they came": (
        [node("b", island="i1"), node("a", island="i2", labels={"set": "lynx-1"})],
        Said(nodes=(NodeSaid("b", "i1"), NodeSaid("a", "i2", labels={"set": "lynx-1"}))),
    ),
    "machines that were checked": (
        [node("a", ok=True), node("b", ok=False, detail="XID 79\n")],
        Said(nodes=(NodeSaid("a", is_ok=True), NodeSaid("b", is_ok=False, detail="XID 79"))),
    ),
    "a machine twice: the last word wins in what it tells": (
        [
            node("a", island="i1", labels={"x": "1"}, ok=False, detail="slow"),
            node("b"),
            node("a", island="i2", labels={"y": "2"}),
        ],
        Said(nodes=(NodeSaid("a", "i2", False, "slow", {"y": "2"}), NodeSaid("b"))),
    ),
    "a machine that is checked again: why it failed before is no news": (
        [node("a", island="i1", ok=False, detail="slow"), node("a", ok=True)],
        Said(nodes=(NodeSaid("a", "i1", True, ""),)),
    ),
    "it waits for a person": (
        [progress(), BLOCKED],
        Said(Progress(3, 12, ""), (), Blocked("sign the order", "capacity")),
    ),
    "it waited, and goes on": ([BLOCKED, progress()], Said(Progress(3, 12, ""))),
    "it waited, and a machine came": ([BLOCKED, node("a")], Said(nodes=(NodeSaid("a"),))),
    "it failed and may be tried again": (
        [FAILED],
        Said(failure=Failure("OutOfQuota", "0 of 4,608 cores left", may_retry=True)),
    ),
    "it failed for good": (
        [{**FAILED, "retry": "never"}],
        Said(failure=Failure("OutOfQuota", "0 of 4,608 cores left", may_retry=False)),
    ),
    "it failed and does not say whether to try again": (
        [{"type": "failed", "reason": "NoCapacity"}],
        Said(failure=Failure("NoCapacity", "", may_retry=True)),
    ),
    "it failed, tried by itself and went well": ([FAILED, RESULT], Said(result="48 machines came")),
    "it was too early to be glad": (
        [{**RESULT, "outputs": {"a": 1}}, FAILED],
        Said(failure=Failure("OutOfQuota", "0 of 4,608 cores left", may_retry=True)),
    ),
    "a result with outputs of every kind": (
        [{**RESULT, "outputs": {"text": "a\nb", "count": 48, "share": 0.5, "is_new": True, "none": None}}],
        Said(
            result="48 machines came",
            outputs={"text": "a b", "count": "48", "share": "0.5", "is_new": "true", "none": "null"},
        ),
    ),
    "other lines are log": (
        [
            "+ az login",
            '{"level":"info","msg":"hi"}',
            '{"type":"metric"}',
            '{"type":7}',
            "[1]",
            "{half",
            "\x1b[1mbold\r",
        ],
        Said(
            log=("+ az login", '{"level":"info","msg":"hi"}', '{"type":"metric"}', '{"type":7}', "[1]", "{half", "bold")
        ),
    ),
    "lines that end as on Windows, and a mark of the byte order": (
        ["\ufeff" + json.dumps(progress()) + "\r", json.dumps(node("a")) + "\r"],
        Said(Progress(3, 12, ""), (NodeSaid("a"),)),
    ),
    "signs that end a line elsewhere do not end a message": (
        [json.dumps({**RESULT, "message": "a\u2028b\x85c"}, ensure_ascii=False)],
        Said(result="a b c"),
    ),
    "keys that are not known are passed over": ([progress(later=1)], Said(Progress(3, 12, ""))),
}


@pytest.mark.parametrize("case", CASES)
def test_what_it_prints_is_read(case: str) -> None:
    messages, want = CASES[case]
    assert said_by(*messages) == want


def test_terraform_between_our_own_lines_is_handed_on_and_is_log_by_its_message() -> None:
    said = said_by("+ terraform apply", BLOCKED, VERSION, SUMMARY, progress())
    assert said.terraform is not None
    assert said.terraform.summary == ChangeSummary(2, 0, 0, 0, "plan")
    assert said.log == ("+ terraform apply", "Terraform 1.11.4", "Plan: 2 to add, 0 to change, 0 to destroy.")
    assert (said.progress, said.blocked, said.problems) == (Progress(3, 12, ""), None, ())


def test_terraform_of_another_version_is_a_problem() -> None:
    said = said_by({**VERSION, "ui": "2.0"}, SUMMARY)
    assert said.problems == (
        "terraform 1.11.4 speaks version 2.0 of the machine-readable interface, and only 1.x is understood",
    )


WRONG: dict[str, tuple[dict[str, Any] | str, str]] = {
    "a count that is a text": (progress("3"), "progress: Expected `int`, got `str` - at `$.done`"),
    "a count that is missing": ({"type": "progress"}, "progress: Object missing required field `done`"),
    "a count below nothing": (progress(-1), "progress: Expected `int` >= 0 - at `$.done`"),
    "a count beyond reason": (progress(1, 10**30), "progress: Expected `int` <= 1000000000 - at `$.of`"),
    "more done than there is": (progress(13, 12), "progress: Expected `done` <= `of`, got 13 of 12"),
    "a count that is a truth": (progress(True), "progress: Expected `int`, got `bool` - at `$.done`"),
    "a node without a name": ({"type": "node"}, "node: Object missing required field `node`"),
    "a node that is none": (node("a b"), "node: Expected `str` matching regex"),
    "a node with a line behind it": (node("a\n"), "node: Expected `str` matching regex"),
    "a node that is a path": (node("../a"), "node: Expected `str` matching regex"),
    "an island that is none": (node("a", island=""), "node: Expected `str` matching regex"),
    "a check that is neither": (node("a", ok="yes"), "node: Expected `bool | null`, got `str` - at `$.ok`"),
    "labels that are a list": (node("a", labels=["x"]), "node: Expected `object | null`, got `array` - at `$.labels`"),
    "a label that is a number": (node("a", labels={"x": 1}), "node: Expected `str`, got `int` - at `$.labels[...]`"),
    "too many labels": (
        node("a", labels={str(number): "" for number in range(33)}),
        "node: Expected `object` of length <= 32 - at `$.labels`",
    ),
    "blocked by nothing": (
        {"type": "blocked", "message": ""},
        "blocked: Expected `str` of length >= 1 - at `$.message`",
    ),
    "a reason that is a sentence": ({**FAILED, "reason": "out of quota"}, "failed: Expected `str` matching regex"),
    "a retry that is not known": ({**FAILED, "retry": "soon"}, "failed: Expected `later` or `never` - at `$.retry`"),
    "a result without words": ({"type": "result"}, "result: Object missing required field `message`"),
    "outputs that nest": ({**RESULT, "outputs": {"a": {}}}, "result: Expected `bool | int | float | str | null`, got"),
    "half a message": ('{"type": "node", "node": "a"', "expected one whole JSON object: Input data was truncated"),
    "two messages on a line": (json.dumps(node("a")) * 2, "expected one whole JSON object: JSON is malformed"),
    "half a message of terraform": ('{"@level":"info","outputs":{"key":"hunter2', "expected one whole JSON object: "),
    "a number that is none": (
        '{"type":"progress","done":1e999}',
        "expected one whole JSON object: Number out of range",
    ),
    "a message that nests too deep": ('{"type":"node","a":' * 9_999, "expected one whole JSON object: nested too deep"),
    "a line beyond reason": (
        '{"a":"' + "x" * (1 << 20) + '"}',
        "expected at most 1,048,576 characters, found 1,048,584",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_line_that_is_wrong_is_named_and_nothing_of_it_is_used(case: str) -> None:
    message, want = WRONG[case]
    said = said_by("first", message, progress(2, 2))
    assert len(said.problems) == 1
    assert said.problems[0].startswith(f"line 2: {want}")
    assert len(said.problems[0]) < 300
    assert "hunter2" not in said.problems[0]
    assert msgspec.structs.replace(said, problems=()) == Said(Progress(2, 2, ""), log=("first",))


def test_half_a_last_line_counts_only_when_the_command_has_ended() -> None:
    whole = json.dumps(progress(1, 2)) + "\n"
    for cut in range(len(whole)):
        assert read_output(whole + whole[:cut]) == Said(Progress(1, 2, ""))
    assert read_output(whole + json.dumps(RESULT)).result == ""
    assert read_output(whole + json.dumps(RESULT), is_ended=True).result == "48 machines came"
    assert read_output(whole + '{"type":"no', is_ended=True).log == ('{"type":"no',)
    assert read_output(whole, is_ended=True) == read_output(whole)


def test_the_log_keeps_the_last_lines_and_bounds_them() -> None:
    said = said_by(*(f"line {number}" for number in range(500)), "x" * 5_000)
    assert len(said.log) == 200
    assert (said.log[0], said.log[-2]) == ("line 301", "line 499")
    assert said.log[-1] == "x" * 399 + "…"


def test_problems_are_counted_beyond_those_that_are_named() -> None:
    said = said_by(*(progress(-1) for _ in range(1_000)))
    assert len(said.problems) == 21
    assert said.problems[-1] == "980 more lines were wrong"


def test_machines_beyond_the_most_are_a_problem_and_known_ones_still_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_output, "NODES_MAX", 2)
    said = said_by(node("a"), node("b"), node("c"), node("b", ok=True))
    assert said.nodes == (NodeSaid("a"), NodeSaid("b", is_ok=True))
    assert said.problems == ("line 3: node: Expected at most 2 nodes",)


def test_texts_are_bounded() -> None:
    long = "x" * 9_000
    said = said_by(
        node("a", detail=long), progress(message=long), {**FAILED, "message": long}, {**BLOCKED, "asks": long}
    )
    assert said.progress is not None
    assert said.failure is not None
    assert said.blocked is not None
    texts = (said.nodes[0].detail, said.progress.message, said.failure.message, said.blocked.asks)
    assert {len(text) for text in texts} == {1_000}
    result = said_by({**RESULT, "message": long, "outputs": {"a": long}})
    assert (len(result.result), len(result.outputs["a"])) == (1_000, 1_000)


def test_many_machines_are_read_quickly() -> None:
    lines = [node(f"lynx-{number:05d}", island="lynx-i1", labels={"set": "lynx-1"}) for number in range(20_000)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with effort() as took:
        said = read_output(text)
    assert (len(said.nodes), said.problems) == (20_000, ())
    assert took.seconds < 1.0, f"{took.seconds:.2f} s"


def test_garbage_never_raises() -> None:
    seed = 20261116
    chance = random.Random(seed)
    whole = [json.dumps(each) for each in (progress(), node("a", labels={"x": "y"}), BLOCKED, FAILED, RESULT, SUMMARY)]
    signs = string.printable + '\x00\x1b\x85\u2028\ud800\udfff\ufeff{}[]":,0123456789eE-+'
    for _ in range(3_000):
        line = list(chance.choice(whole))
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(line))
            line[place : place + chance.randrange(3)] = chance.choices(signs, k=chance.randrange(3))
            line = line or [" "]
        said = read_output("".join(line) + "\n", is_ended=True)
        assert all(text.isprintable() for text in (*said.log, *said.problems)), (seed, line)
    read_output(chance.randbytes(1 << 20).decode(errors="replace"), is_ended=True)
    read_output(chance.randbytes(1 << 16).decode(errors="surrogateescape"), is_ended=True)


DEEP = {
    "lists": "[" * 100_000,
    "objects": '{"a":' * 100_000,
    "an object in outputs": '{"type":"result","message":"x","outputs":' + "[" * 50_000 + "]" * 50_000 + "}",
    "a number of many digits": '{"type":"result","message":"x","outputs":{"a":' + "9" * 100_000 + "}}",
    "a number of as many digits as may be": '{"type":"result","message":"x","outputs":{"a":' + "9" * 4_300 + "}}",
    "a fraction of many digits": '{"type":"result","message":"x","outputs":{"a":0.' + "9" * 100_000 + "}}",
}


@pytest.mark.parametrize("case", DEEP)
def test_deep_and_huge_never_raises(case: str) -> None:
    said = read_output(DEEP[case] + "\n" + json.dumps(progress()) + "\n")
    assert said.progress == Progress(3, 12, "")
