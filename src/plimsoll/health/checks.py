"""Runs the checks of the validation that a machine can answer: commands and Prometheus queries. Effects only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from plimsoll.connect.commands import End, run_command
from plimsoll.connect.prometheus import Prometheus
from plimsoll.errors import NotFound, PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.acts import Acting, Decision, missing_checks, tick_check
from plimsoll.health.decide import Bench, Outcome, policy_in_force
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
    """A check that was run. `is_passed` is None where it could not be asked: that is not the node's fault."""

    node: str
    check: str
    is_passed: bool | None
    detail: str


def run_checks(
    keeper: Keeper, *, actor: str, prometheus: Prometheus | None, epoch: int | None = None
) -> list[Answered]:
    """Run what validating nodes wait for, several at once, and tick what came out. Who leads no more (`epoch`) begins
    none: another may be running the same on the node."""
    state, now = keeper.state(), keeper.ledger.clock()
    nodes = [node for node in state.of(Fleet).nodes.values() if node.service is Service.VALIDATING]
    memories = load_memories(keeper.ledger.store, [node.id for node in nodes])
    bench = Bench(state.of(Health), policy_in_force(state), memories, now)
    ours = [
        (node, [check for check, _ in missing_checks(node, bench) if _is_ours(check, prometheus)]) for node in nodes
    ]
    todo = [(node, checks) for node, checks in ours if checks][:NODES_PER_SWEEP]
    pairs = [(node, check) for node, checks in todo for check in checks]

    def run(pair: tuple[Node, Check]) -> Answered:
        keeper.ledger.check_lead(epoch)
        return _run(*pair, prometheus)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(run, pairs))
    for (node, _), answer in zip(pairs, answers, strict=True):
        if answer.is_passed is not None:
            _tick(keeper, node, answer, is_passed=answer.is_passed, actor=actor, epoch=epoch)
    return answers


def _is_ours(check: Check, prometheus: Prometheus | None) -> bool:
    return check.by is CheckBy.COMMAND or (check.by is CheckBy.PROMETHEUS and prometheus is not None)


def _run(node: Node, check: Check, prometheus: Prometheus | None) -> Answered:
    if check.by is CheckBy.COMMAND:
        return _run_command(node, check)
    assert prometheus is not None
    return _ask(node, check, prometheus)


def _run_command(node: Node, check: Check) -> Answered:
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
    if ran.end is End.NOT_FOUND:
        return Answered(node.id, check.name, None, f"no answer: {_one_line(ran.last_words)}")
    why = f"took over {check.timeout} and was killed" if ran.end is End.TOO_SLOW else "printed too much"
    return Answered(node.id, check.name, False, f"{words[0]} {why}")


def _ask(node: Node, check: Check, prometheus: Prometheus) -> Answered:
    """The answer to a query; none where a part of it is missing or no number: the next sweep asks again."""
    try:
        vector = prometheus.query(check.query.replace("{node}", node.id))
    except PlimsollError as error:
        return Answered(node.id, check.name, None, f"no answer: {_one_line(error.message)}")
    if not vector.samples or vector.nan_count or vector.warnings:
        why = vector.warnings[0] if vector.warnings else "not a number" if vector.nan_count else "no samples"
        return Answered(node.id, check.name, None, f"no answer: {_one_line(why)}")
    value = min(sample.value for sample in vector.samples)
    return Answered(node.id, check.name, value >= check.at_least, f"{value:g}, at least {check.at_least:g} is needed")


def _one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:DETAIL_MAX]


def _tick(keeper: Keeper, node: Node, answer: Answered, *, is_passed: bool, actor: str, epoch: int | None) -> None:
    """Answer the check, unless the node has left the validation that it was run for."""

    def decide(state: State, acting: Acting) -> Decision:
        current = state.of(Fleet).nodes[node.id]
        if (current.service, current.since) != (node.service, node.since):
            return Outcome(), []
        return tick_check(state, [current], answer.check, acting, is_passed=is_passed, detail=answer.detail)

    with suppress(NotFound):  # another policy, without the check, came into force meanwhile
        act(keeper, decide, actor=actor, reason=f"check {answer.check}", names=[node.id], epoch=epoch)
