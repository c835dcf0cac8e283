"""Take a limit that somebody set in a scheduler by hand into the book, where that is legal. Pure.

Less is always legal: the team holds that much from now on, assigned and guaranteed alike. More only as far as the line
in force carries it. Must never let the sum of guarantees rise above the line, nor promise a part of a node.
"""

from __future__ import annotations

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.ledger.model import Change
from plimsoll.quota.changes import PoolAligned, QuotaAssigned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Quota, QuotaKey
from plimsoll.quota.outlets.model import Limit
from plimsoll.state.state import State


class Adoption(msgspec.Struct, frozen=True):
    """What becomes of a limit that was found: the changes, or why there are none. Numbers are GPUs."""

    key: QuotaKey
    was: int
    found: int
    changes: tuple[Change, ...] = ()
    problem: str = ""


def adopt(state: State, cluster: str, limit: Limit, *, outlet: str) -> Adoption:
    """Make the book say what the scheduler says."""
    book, key = state.of(QuotaBook), QuotaKey(limit.team, cluster, limit.sku)
    was = book.guaranteed.get(key, 0)
    adoption = Adoption(key, was, limit.gpus)
    if problem := _problem(state, key, limit.gpus):
        return msgspec.structs.replace(adoption, problem=problem)
    cause = f"adopted from {outlet}"
    quota = book.quotas.get(key) or Quota(*key, 0)
    assigned = QuotaAssigned(
        msgspec.structs.replace(quota, gpus=limit.gpus), was={"gpus": str(quota.gpus) if quota.gpus else None}
    )
    if limit.gpus <= was:
        return msgspec.structs.replace(adoption, changes=(assigned,))  # the guarantee falls with it
    line = book.lines[key.pool]
    guaranteed = {**book.guaranteed_in(key.pool), key.team: limit.gpus}
    aligned = PoolAligned(key.cluster, key.sku, line.gpus, line.policy, guaranteed, was={key.team: was}, cause=cause)
    changes = (assigned, aligned) if limit.gpus > quota.gpus else (aligned,)
    return msgspec.structs.replace(adoption, changes=changes)


def _problem(state: State, key: QuotaKey, gpus: int) -> str:
    """Why a number can't be taken; empty where it can."""
    book, count = state.of(QuotaBook), state.of(Fleet).pools.get(key.pool)
    if not key.team:
        return "flex is not promised to anybody: it follows from the guarantees"
    if count is None or key.pool not in book.lines:
        return f"{key.cluster} has no line in force for {key.sku}"
    if gpus % count.gpus_per_node:
        return f"{gpus} GPUs are not whole nodes of {count.gpus_per_node}"
    others = sum(book.guaranteed_in(key.pool).values()) - book.guaranteed.get(key, 0)
    room = book.line_of(key.pool) - others
    if gpus > book.guaranteed.get(key, 0) and gpus > room:
        return (
            f"{gpus} GPUs do not fit under the line in force: it is {book.line_of(key.pool)}, others are guaranteed"
            f" {others}, so that {max(0, room)} are left"
        )
    return ""
