"""Work that may run only inside its team's guarantee, and has no place in it: what of the right is missing. Pure.

Room does not matter to it: whatever is free, it starts only when more is guaranteed to its team, or less of that used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import QuotaKey
from plimsoll.workloads.model import Asked, RunsAs
from plimsoll.workloads.reasons import Cause, Move
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.why.model import Position
from plimsoll.workloads.why.near import Closest

WHOSE = {Move.TEAM: "the team's own move", Move.RPM: "the RPM's move"}


class Short(NamedTuple):
    """GPUs of a guarantee that work lacks, why, and what to type."""

    cause: Cause
    missing: int
    says: str
    command: str


def short_of_right(
    turn: Turn, asked: Asked, closes: Sequence[Closest], position: Position | None, cause: Cause
) -> Short | None:
    """What is missing of the right; None where the work does not insist on one, or has it. `cause`: of the refusal."""
    if asked.spec.runs_as is not RunsAs.GUARANTEED or not closes or any(close.is_guaranteed for close in closes):
        return None
    team, pools = asked.spec.team, [close.pool for close in closes]
    if position is not None:
        missing = max(1, position.gpus - position.left)
        command = _request(team, missing, position)
        if cause is Cause.TEAM_HELD and position.kept:
            command = f"plimsoll workload release {position.kept[0].name}"
        return Short(cause, missing, position_text(team, position), command)
    needs = sum(part.gpus_least for part in missing_parts(asked.spec, turn.work.workloads.get(asked.spec.name)))
    held = [pool for pool in pools if QuotaKey(team, *pool) in turn.book.quotas]
    pool = (held or pools)[0]
    where = f"{pool.sku} of {pool.cluster}"
    if not any(each in turn.book.lines for each in held or pools):
        says = f"no alignment was applied to {where}, so that nothing of it is guaranteed to anybody"
        return Short(Cause.NOT_ALIGNED, needs, says, f"plimsoll quota plan {pool.cluster}")
    says = f"nothing of {where} is guaranteed to {team}"
    return Short(Cause.NO_GUARANTEE, needs, says, _request(team, needs, pool))


def _request(team: str, gpus: int, where: PoolKey | Position) -> str:
    return f"plimsoll quota request {team} {gpus} --sku {where.sku} --cluster {where.cluster}"


def position_text(team: str, position: Position) -> str:
    """What is left of a guarantee for work that does not fit into it."""
    before = position.before_gpus
    kept = sum(each.gpus for each in position.kept)
    named = ", ".join(f"{each.name} {each.gpus:,}" for each in position.before[:3])
    taken = f", {before:,} are used by work that comes before it ({named})" if before else ""
    holds = f", {kept:,} are kept for others ({', '.join(each.name for each in position.kept)})" if kept else ""
    return (
        f"{team} is guaranteed {position.guaranteed:,} {position.sku} in {position.cluster}{taken}{holds}:"
        f" {position.left:,} are left for it and it needs {position.gpus:,}"
    )
