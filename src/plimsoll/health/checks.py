"""Runs the checks of the validation that a machine can answer: commands and Prometheus queries. Effects only."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from plimsoll.connect.commands import End, run_command
from plimsoll.connect.prometheus import Prometheus
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.acts import Acting, Decision, missing_checks, tick_check
from plimsoll.health.decide import Bench, policy_in_force
from plimsoll.health.fold import Health
from plimsoll.health.policy import Check, CheckBy
from plimsoll.health.service import act, load_memories
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

AT_ONCE = 16
NODES_PER_SWEEP = 256
"""So many nodes are checked in one go; the others wait for the next sweep."""
OUTPUT_BYTES_MAX = 1 << 20
DETAIL_MAX = 180


class Answered(NamedTuple):
    """A check that was run."""

    node: str
    check: str
    is_passed: bool
    detail: str


def run_checks(keeper: Keeper, *, actor: str, prometheus: Prometheus | None) -> list[Answered]:
    """Run what validating nodes wait for, several at once, and tick what came out."""
    state, now = keeper.state(), keeper.ledger.clock()
    nodes = [node for node in state.of(Fleet).nodes.values() if node.service is Service.VALIDATING][:NODES_PER_SWEEP]
    memories = load_memories(keeper.ledger.store, [node.id for node in nodes])
    bench = Bench(state.of(Health), policy_in_force(state), memories, now)
    todo = [(node, check) for node in nodes for check, _ in missing_checks(node, bench) if _is_ours(check, prometheus)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = [each for each in pool.map(lambda pair: _run(pair[0], pair[1], prometheus), todo) if each is not None]
    for answer in answers:
        _tick(keeper, answer, actor)
    return answers


def _is_ours(check: Check, prometheus: Prometheus | None) -> bool:
    return check.by is CheckBy.COMMAND or (check.by is CheckBy.PROMETHEUS and prometheus is not None)


def _run(node: Node, check: Check, prometheus: Prometheus | None) -> Answered | None:
    """The answer to one check; None where there is none yet."""
    if check.by is CheckBy.COMMAND:
        words = [word.replace("{node}", node.id) for word in check.run]
        ran = run_command(
            words,
            environment={"PLIMSOLL_NODE": node.id},
            timeout_seconds=check.timeout.total_seconds(),
            out_bytes_max=OUTPUT_BYTES_MAX,
        )
        if ran.end is End.EXITED:
            said = (ran.last_words or ran.out.decode(errors="replace")) if ran.code else ""
            detail = f"exit code {ran.code}" + (f": {_one_line(said)}" if said else "")
            return Answered(node.id, check.name, ran.code == 0, detail)
        why = {End.NOT_FOUND: "can't be started", End.TOO_SLOW: f"took over {check.timeout}"}
        return Answered(node.id, check.name, False, f"{words[0]} {why.get(ran.end, 'printed too much')}")
    assert prometheus is not None
    try:
        vector = prometheus.query(check.query.replace("{node}", node.id))
    except PlimsollError:
        return None  # it could not be asked; the next sweep tries again
    value = min((sample.value for sample in vector.samples), default=math.nan)
    if math.isnan(value):
        return None
    return Answered(node.id, check.name, value >= check.at_least, f"{value:g}, at least {check.at_least:g} is needed")


def _one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:DETAIL_MAX]


def _tick(keeper: Keeper, answer: Answered, actor: str) -> None:
    def decide(state: State, acting: Acting) -> Decision:
        node = state.of(Fleet).nodes[answer.node]
        return tick_check(state, [node], answer.check, acting, is_passed=answer.is_passed, detail=answer.detail)

    try:
        act(keeper, decide, actor=actor, reason=f"check {answer.check}", names=[answer.node])
    except PlimsollError:
        return  # it is validating no more: another has moved it meanwhile
