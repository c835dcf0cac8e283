"""Campaigns with effects: records what people say, and has batches carried out step by step; decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.run.carry import Pass, finished
from plimsoll.campaigns.run.desk import check_lost, find_batch, find_run, progress_of
from plimsoll.campaigns.run.outside import Did, Outside
from plimsoll.campaigns.run.progress import Phase, Progress, Step, owner_of
from plimsoll.campaigns.run.stages import (
    fail_validation,
    still_out,
)
from plimsoll.errors import Fenced, PlimsollError, Refused
from plimsoll.health.acts import Acting, pass_checks
from plimsoll.health.service import load_memories
from plimsoll.ledger.model import Draft, Event
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

D = TypeVar("D")


def say(
    keeper: Keeper,
    decide: Callable[[State, datetime], tuple[D, Sequence[Draft]]],
    *,
    actor: str,
    reason: str = "",
    is_dry_run: bool = False,
) -> tuple[D, list[Event]]:
    """Record what somebody said."""
    return keeper.say(decide, actor=actor, reason=reason, reads=("campaign/*", "incident/*"), is_dry_run=is_dry_run)


def run_pass(keeper: Keeper, name: str, *, actor: str, outside: Outside, epoch: int | None = None) -> list[Did]:
    """Bring every batch of a campaign as far as it can go now."""
    return Pass(keeper, name, actor=actor, outside=outside, epoch=epoch).go()


def run_passes(
    keeper: Keeper, names: Sequence[str], *, actor: str, outside: Outside, epoch: int | None = None
) -> tuple[list[tuple[str, Did]], list[PlimsollError]]:
    """One pass over each of these campaigns; one that fails does not hold the others up. Raises `Fenced`."""
    did: list[tuple[str, Did]] = []
    troubles: list[PlimsollError] = []
    for name in names:
        try:
            did += [(name, each) for each in run_pass(keeper, name, actor=actor, outside=outside, epoch=epoch)]
        except Fenced:
            raise
        except PlimsollError as error:
            did.append((name, Did("", "pass", error.message, is_failed=True)))  # the next one may find it otherwise
            troubles.append(error)
    return did, troubles


def running_campaigns(state: State) -> list[str]:
    """Campaigns with something to do. One that is over is looked after until what did not come back is open again."""
    phases = (Phase.RUNNING, Phase.PAUSED, Phase.CANCELLING)
    return sorted(name for name, run in state.of(Campaigns).runs.items() if run.phase in phases or run.closed)


def tick(
    keeper: Keeper,
    name: str,
    batch_name: str,
    *,
    actor: str,
    lost: Sequence[str] = (),
    is_validated: bool = False,
    reason: str = "",
    is_dry_run: bool = False,
) -> tuple[Progress, list[Event]]:
    """Somebody says that the work on a batch is done; `lost` are the nodes that did not come back from it."""
    names = {node for each in find_run(keeper.state(), name).progress.values() for node in each.nodes}
    memories = load_memories(keeper.ledger.store, names)

    def decide(state: State, now: datetime) -> tuple[Progress, list[Draft]]:
        run = find_run(state, name)
        known = progress_of(run, find_batch(run, batch_name))
        check_lost(run, known, lost)
        acting = Acting(owner_of(name), now, reason or f"{actor} says that it is done", memories)
        if known.step is Step.VALIDATING and (is_validated or lost):
            failed = fail_validation(state, run, known, lost, acting) if lost else []
            good = set(still_out(state, known)) - set(lost) if is_validated else set()
            return known, [*failed, *pass_checks(state, good, acting)]
        if known.step is not Step.WORKING:
            is_next = known.step is Step.VALIDATING
            validated = f"plimsoll campaign tick {name} '{known.batch.id}' --validated"
            raise Refused(
                "not_handed_over",
                f"{known.batch.id} is {known.step}; it is done when it was handed over and worked on",
                next_step=validated if is_next else f"plimsoll campaign status {name}",
                batch=known.batch.id,
            )
        if known.place:
            raise Refused(
                "command_runs",
                f"the command of {known.batch.id} works on its {len(known.nodes)} nodes (attempt {known.attempt}, on"
                f" {known.place}); when it has ended nobody has to say so",
                next_step=f"plimsoll campaign status {name} --batch '{known.batch.id}'",
                batch=known.batch.id,
            )
        drafts = finished(state, run, known, lost, acting, acting.reason)
        if is_validated:
            with state.what_if():
                state.assume(drafts, recorded_at=state.recorded_at)
                good = set(known.nodes) - {*known.lost, *lost}
                drafts = [*drafts, *pass_checks(state, good, acting)]
        return known, drafts

    reads = (f"campaign/{name}",)
    return keeper.say(decide, actor=actor, reason=reason or "done", reads=reads, is_dry_run=is_dry_run)
