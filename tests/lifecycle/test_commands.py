"""Steps that are commands of this machine, really run: what they print is what is seen, and nothing begins twice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.connect.errands import Errands
from plimsoll.fleet.model import Area, Purpose
from plimsoll.lifecycle.model import ConditionType, Life, Said, Spec
from plimsoll.lifecycle.outside import Found, Look, Order, set_wishes
from plimsoll.lifecycle.providers.commands import Commands
from plimsoll.lifecycle.recipe import Command, Recipe, Step
from plimsoll.times import parse_time
from tests.support.waiting import wait_until

SPEC = Spec("lynx", "eastus", Area.US, "", "", Purpose.RESEARCH, "sub-a", "H200", 4, 2, labels={"rack": "r 7"})
LIFE = Life(SPEC, "lynx-x", 1, Said("ann", parse_time("2026-01-05T12:00:00Z")))


def order(
    *words: str,
    sets: ConditionType = ConditionType.INFRASTRUCTURE_APPLIED,
    env: dict[str, str] | None = None,
    place: str = "",
    within: float = 60.0,
) -> Order:
    step = Step("boot", sets, run=Command(words, env or {}), within_seconds=within)
    return Order(LIFE, Recipe("r", 1, "", (step,)), step, "lynx-x-boot-1", 1, place, "", set_wishes(LIFE))


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(Errands(tmp_path / "errands"))


def done(commands: Commands, order: Order) -> Look:
    """Begun, and looked at until it has ended."""
    assert commands.look([order])[order.key] == Look(Found.ABSENT)
    commands.begin(order)
    seen: list[Look] = []

    def has_ended() -> bool:
        look = commands.look([order])[order.key]
        assert isinstance(look, Look)
        seen.append(look)
        return look.found not in (Found.RUNNING, Found.BLOCKED)

    wait_until(has_ended, what="the command has ended")
    return seen[-1]


class Case(NamedTuple):
    """A shell line, and what is seen at its end."""

    line: str
    want: Found
    want_reason: str = ""
    want_detail: str = ""
    want_retry: bool = True


CASES = {
    "it says nothing": Case("true", Found.DONE),
    "it says what it did": Case("""echo '{"type":"result","message":"all up"}'""", Found.DONE, want_detail="all up"),
    "plain text is only a log": Case("echo hello", Found.DONE),
    "it fails and says why": Case("echo oh dear >&2; exit 3", Found.FAILED, "StepFailed", "exit code 3: oh dear"),
    "it fails and says nothing": Case("exit 4", Found.FAILED, "StepFailed", "exit code 4: it said nothing"),
    "it is killed": Case("kill -9 $$", Found.FAILED, "StepFailed", "it was ended by signal 9"),
    "there is no such command": Case("exec /no/such/thing", Found.FAILED, "StepFailed", "exit code 127: "),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_how_a_command_ends_is_how_the_step_is(case: Case, commands: Commands) -> None:
    look = done(commands, order("sh", "-c", case.line))
    assert (look.found, look.reason, look.may_retry) == (case.want, case.want_reason, case.want_retry)
    assert look.detail.startswith(case.want_detail)


def test_it_is_told_the_cluster_in_words_and_in_its_environment(commands: Commands, tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = "$1|$PLIMSOLL_CLUSTER|$PLIMSOLL_NODES|$PLIMSOLL_OPERATION|$RACK"
    line = f'echo "{told}" > {out}; cat "$PLIMSOLL_SETS_FILE" >> {out}'
    done(commands, order("sh", "-c", line, "sh", "{sku} in {region}; $(false)", env={"RACK": "{labels.rack}"}))
    first, *sets = out.read_text(encoding="utf-8").splitlines()
    assert first == "H200 in eastus; $(false)|lynx|4|lynx-x-boot-1|r 7"
    assert sets == [
        '{"set":"lynx-1","island":"lynx-i1","nodes":2,"prefix":"lynx","first":1}',
        '{"set":"lynx-2","island":"lynx-i2","nodes":2,"prefix":"lynx","first":3}',
    ]


def test_what_was_begun_is_not_begun_again(commands: Commands, tmp_path: Path) -> None:
    count = tmp_path / "count"
    begun = order("sh", "-c", f"echo x >> {count}")
    done(commands, begun)
    commands.begin(begun)
    Commands(Errands(tmp_path / "errands")).begin(begun)
    assert count.read_text(encoding="utf-8") == "x\n"


def test_another_machine_is_not_taken_for_absent(commands: Commands) -> None:
    elsewhere = order("true", place="another machine")
    assert commands.look([elsewhere])[elsewhere.key] == Look(Found.ELSEWHERE)


def test_machines_that_came_are_counted_by_their_set(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_REHEARSAL", "seconds=0.01 filled=0.5")
    words = (sys.executable, "-m", "plimsoll.connect.rehearsal", "fill")
    look = done(commands, order(*words, sets=ConditionType.SCALE_SETS_READY))
    assert look.sets is not None
    assert [(each.name, each.there) for each in look.sets] == [("lynx-1", 1), ("lynx-2", 1)]
    assert len(look.nodes) == 2
