"""Tells the schedulers of several clusters, one after the other; one that can't be told does not stop the others."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from plimsoll.commands.options import current_actor
from plimsoll.commands.quota.ways import Target, outlet_by_settings
from plimsoll.errors import PlimsollError
from plimsoll.quota.control import modes
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Mode
from plimsoll.quota.outlets.model import Cause
from plimsoll.quota.outlets.push import Result, push
from plimsoll.state.keeper import Keeper
from plimsoll.words import counted


class Told(msgspec.Struct, frozen=True):
    """What became of telling one scheduler: settings that changed, settings that somebody had changed by hand."""

    cluster: str
    outlet: str
    changed: int = 0
    drifted: int = 0
    problem: str = ""


def tell(
    keeper: Keeper, target: Target, clusters: Collection[str], *, is_dry_run: bool, epoch: int | None = None
) -> list[Told]:
    """Tell the clusters in mode `enforce` that have a line in force; of these only, where some are named. `epoch` is
    that of whoever leads, if one tells: who leads no more begins with none."""
    state = keeper.state()
    aligned = {pool.cluster for pool in state.of(QuotaBook).lines}
    meant = [
        cluster
        for cluster, mode in sorted(modes(state).items())
        if mode is Mode.ENFORCE and cluster in aligned and (not clusters or cluster in clusters)
    ]
    return [_tell(keeper, target, cluster, is_dry_run=is_dry_run, epoch=epoch) for cluster in meant]


def _tell(keeper: Keeper, target: Target, cluster: str, *, is_dry_run: bool, epoch: int | None) -> Told:
    keeper.ledger.check_lead(epoch)
    try:
        outlet = outlet_by_settings(target, cluster)
        pushed = push(keeper, outlet, cluster, actor=current_actor(), reason="controller", is_dry_run=is_dry_run)
    except PlimsollError as error:
        return Told(cluster, str(target), problem=error.message)
    drifted = sum(each.step.cause is Cause.DRIFT for each in pushed.outcomes)
    changed = len(pushed.with_result(Result.DONE)) + len(pushed.with_result(Result.WOULD_BE_DONE))
    problem = "" if pushed.is_complete or is_dry_run else _problem(len(pushed.outcomes) - changed, drifted)
    return Told(cluster, str(target), changed, drifted, problem)


def _problem(left: int, drifted: int) -> str:
    if drifted:
        return f"{counted(drifted, 'setting')} changed by hand: plimsoll quota push … --put-back, or --adopt"
    return f"{counted(left, 'setting')} not set"
