"""What took something from work, in a sentence: the nodes that went, or who came first and by which right. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from plimsoll.health.model import from_microseconds
from plimsoll.state.state import State
from plimsoll.words import counted
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Asked, Because, Interruption, Right
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.why.stopped import Blame, StoppedBy, blame_of
from plimsoll.workloads.why.stops import NodeLoss, is_gang, went_on_text

NAMED_MAX = 5
INTERRUPTIONS_SHOWN = 5
RIGHTS = {
    Right.GUARANTEE: "it lies inside its team's guarantee, and a guarantee calls flex back",
    Right.FAIR_SHARE: "both were flex, and its team held less flex for its guarantee",
    Right.TEAM_ORDER: "it is the same team's and comes first by tier, rank or submit time",
    Right.UNKNOWN: "by which right was not recorded",
}
WORDS = {
    StoppedBy.NODE_LOST: "a node was lost",
    StoppedBy.PLANNED_WORK: "planned work took a node",
    StoppedBy.PREEMPTED: "other work came first",
    StoppedBy.MOVED: "it had to make room",
    StoppedBy.CANCELLED: "it was cancelled",
    StoppedBy.NO_INFRASTRUCTURE_CAUSE: "no infrastructure cause found",
    StoppedBy.NOT_RECORDED: "its last replica went",
}


def when(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def lost_text(nodes: Sequence[NodeLoss], more: int) -> str:
    """`1 node: n1 (quarantined, xid 79)`; `more` were lost beside those."""
    shown = nodes[:NAMED_MAX]
    rest = len(nodes) + more - len(shown)
    named = "; ".join(_loss(loss) for loss in shown) + (f" and {rest:,} more" if rest else "")
    return f"{counted(len(nodes) + more, 'node')}: {named}"


def _loss(loss: NodeLoss) -> str:
    reason = f", {loss.reason}" if loss.reason else ""
    return f"{loss.node} ({loss.service}{reason})" if loss.service else loss.node


def first_text(blame: Blame) -> str:
    """Who came first, whose it is, and by which right."""
    team = f" of {blame.preemptor_team}" if blame.preemptor_team else ""
    right = f" ({RIGHTS[blame.right]})" if blame.right is not None else ""
    return f"{blame.preemptor}{team}{right}"


def last_stop(state: State, asked: Asked) -> str | None:
    """What stopped the part that waits: when, by whom, by which right; None where nothing did."""
    work, name = state.of(Workloads), asked.spec.name
    waiting = {part.name: part for part in missing_parts(asked.spec, work.workloads.get(name))}
    for told in reversed(work.interruptions.get(name, ())):
        account = work.accounts.get((name, told.part))
        part = waiting.get(told.part)
        if part is None or account is None or (part.is_gang and account.stopped != told.at):
            continue
        blame, at = blame_of(state, told, asked.spec.team), when(from_microseconds(told.at))
        what = "stopped" if account.stopped == told.at else f"shrunk by {told.gpus:,} GPUs"
        if blame.nodes:
            return f"{told.part} was {what} at {at}: it lost {lost_text(blame.nodes, blame.nodes_more)}"
        by = f" by {first_text(blame)}" if blame.preemptor else f": {WORDS[blame.because]}"
        return f"{told.part} was {what} at {at}{by}"
    return None


def interruption_lines(state: State, name: str, team: str) -> Iterator[str]:
    """The last interruptions, the newest first."""
    for told in reversed(state.of(Workloads).interruptions.get(name, ())[-INTERRUPTIONS_SHOWN:]):
        is_elastic = told.gpus and not is_gang(state.of(Workloads), name, told.part)
        shrunk = f"shrunk by {told.gpus:,} GPUs, " if is_elastic else ""
        yield f"{when(from_microseconds(told.at))} {told.part}: {shrunk}{_happened(state, told, team)}"


def _happened(state: State, told: Interruption, team: str) -> str:
    blame = blame_of(state, told, team)
    if blame.nodes:
        on = went_on_text(told) if told.because is Because.REPAIRED else ""
        return f"lost {lost_text(blame.nodes, blame.nodes_more)}" + (f"; {on}" if on else "")
    if blame.preemptor:
        return f"made room for {first_text(blame)}"
    return WORDS[blame.because]
