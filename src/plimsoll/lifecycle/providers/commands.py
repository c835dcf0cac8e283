"""Steps that are commands of this machine. A command outlives us, and is found again by the name of its operation.

Decides nothing: what a command prints is taken for what it says. Must never begin an operation twice; one that was
begun from another machine is not seen here, and is not taken for absent.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from plimsoll.connect.errands import Errands, Going, Result
from plimsoll.connect.step_output import Said, read_output
from plimsoll.connect.terraform import one_line
from plimsoll.lifecycle.model import ConditionType
from plimsoll.lifecycle.nodes import counts_by_set
from plimsoll.lifecycle.outside import Found, Look, Looks, NodeFound, Order, SetFound
from plimsoll.lifecycle.reasons import Reason
from plimsoll.lifecycle.template import filled, spec_values

LOG_LINES = 40
TOO_SLOW = "too_slow"
OUT_BYTES_MAX = 64 << 20
"""A terraform apply that waits for hours repeats itself every few seconds."""


class Commands:
    """Local commands, in one folder of errands."""

    settle_seconds = 0.0  # the folder says at once whether it was begun

    def __init__(self, errands: Errands) -> None:
        self._errands = errands
        self._place = ""

    @property
    def place(self) -> str:
        if not self._place:
            self._place = self._errands.where
        return self._place

    def look(self, orders: Sequence[Order]) -> Looks:
        return {order.key: self._look(order) for order in orders}

    def begin(self, order: Order) -> Look:
        command = order.step.run
        assert command is not None, f"{order.step.name} is no command"
        values = spec_values(
            order.life.spec,
            step=order.step.name,
            operation=order.operation,
            attempt=str(order.attempt),
            python=sys.executable,
        )
        sets = "".join(f"{line}\n" for line in map(_set_line, order.sets, [order.life.name] * len(order.sets)))
        self._errands.begin(
            order.operation,
            [filled(word, values) for word in command.words],
            environment={
                **{f"PLIMSOLL_{name.upper()}": value for name, value in values.items() if name.isidentifier()},
                **{name: filled(value, values) for name, value in command.env.items()},
            },
            lines=order.nodes,
            files={"sets": sets},
            seconds_max=order.step.within_seconds,
            out_bytes_max=OUT_BYTES_MAX,
        )
        return self._look(order)

    def _look(self, order: Order) -> Look:
        if order.place and order.place != self.place:
            return Look(Found.ELSEWHERE)
        going, result = self._errands.look(order.operation)
        if going is Going.NOT_BEGUN:
            return Look(Found.ABSENT)
        said = read_output(self._errands.peek(order.operation, OUT_BYTES_MAX), is_ended=going is not Going.RUNNING)
        found, reason, detail, may_retry = _found(going, result, said)
        is_filling = order.step.sets is ConditionType.SCALE_SETS_READY
        nodes = tuple(
            NodeFound(each.node, each.island, each.is_ok, each.detail, dict(each.labels)) for each in said.nodes
        )
        sets = None
        if is_filling and (nodes or found is Found.DONE):
            counts = counts_by_set(order.life, nodes)
            sets = tuple(SetFound(name, count) for name, count in counts.items())
        log = "\n".join((*said.problems[:3], *said.log[-LOG_LINES:]))
        if result is not None and result.last_words:
            log = f"{log}\n{result.last_words}"
        return Look(found, reason, detail, log=log, may_retry=may_retry, sets=sets, nodes=nodes)


def _set_line(wish: msgspec.Struct, prefix: str) -> str:
    told = msgspec.structs.asdict(wish)
    line = {"set": told["name"], "island": told["island"], "nodes": told["nodes"], "prefix": prefix}
    return msgspec.json.encode({**line, "first": told["first"]}).decode()


def _found(going: Going, result: Result | None, said: Said) -> tuple[Found, str, str, bool]:
    """How it is, why, in a sentence, and whether trying again may help."""
    if going is Going.LOST:
        return Found.LOST, Reason.COMMAND_LOST.code, "", True
    if going is Going.RUNNING:
        if said.blocked is not None:
            asks = f"{said.blocked.asks}: " if said.blocked.asks else ""
            return Found.BLOCKED, Reason.BLOCKED_OUTSIDE.code, f"{asks}{said.blocked.message}", True
        return Found.RUNNING, "", _how_far(said), True
    assert result is not None, "what has ended left a result"
    if result.code == 0 and said.failure is None and not (said.terraform and said.terraform.refusal):
        return Found.DONE, "", said.result or _how_far(said), True
    if said.failure is not None:
        return Found.FAILED, said.failure.reason, said.failure.message, said.failure.may_retry
    if said.terraform is not None and (told := one_line(said.terraform)):
        return Found.FAILED, Reason.STEP_FAILED.code, told, not said.terraform.refusal
    if result.code < 0 and result.last_words.startswith(TOO_SLOW):
        return Found.FAILED, Reason.OVERDUE.code, "it took longer than it may, and was ended", True
    if result.code < 0:
        return (
            Found.FAILED,
            Reason.STEP_FAILED.code,
            result.last_words or f"it was ended by signal {-result.code}",
            True,
        )
    words = result.last_words or (said.log[-1] if said.log else "it said nothing")
    return Found.FAILED, Reason.STEP_FAILED.code, f"exit code {result.code}: {words}", True


def _how_far(said: Said) -> str:
    if said.progress is not None:
        of = f" of {said.progress.of:,}" if said.progress.of else ""
        done = f"{said.progress.done:,}{of}"
        return f"{said.progress.message}, {done}" if said.progress.message else done
    return one_line(said.terraform) if said.terraform is not None else ""
