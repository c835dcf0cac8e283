"""How campaigns' events change the state."""

from __future__ import annotations

import msgspec

from plimsoll.campaigns.changes import (
    BatchBooked,
    BatchLate,
    BatchOpened,
    BatchStepped,
    CampaignCancelled,
    CampaignEnded,
    CampaignPaused,
    CampaignPlanned,
    CampaignPublished,
    CampaignResumed,
    CampaignStarted,
    GangAgreed,
)
from plimsoll.campaigns.model import Batch
from plimsoll.campaigns.run.progress import Phase, Progress, Run, Step
from plimsoll.ledger.model import Event
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table

HISTORY_MAX = 200
"""Plans of a campaign that are remembered with their reason; all are in the ledger."""

replace = msgspec.structs.replace


class _Dump(msgspec.Struct):
    runs: list[Run]
    feeds: list[tuple[str, str]]


class Campaigns(Tables):
    """Every campaign that was ever planned."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.runs: Table[str, Run] = Table(journal)
        self.feeds: Table[str, str] = Table(journal)

    def dump(self) -> bytes:
        runs = [run for _, run in sorted(self.runs.items())]
        return msgspec.msgpack.encode(_Dump(runs, sorted(self.feeds.items())), order="sorted")

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for run in dump.runs:
            self.runs.put(run.name, run)
        for name, feed in dump.feeds:
            self.feeds.put(name, feed)


ROOM = Room("campaigns", version=2, tables=Campaigns)


@ROOM.folds_change(CampaignPlanned)
def _fold_planned(state: State, change: CampaignPlanned, event: Event) -> None:
    """A new plan of a campaign keeps how far its batches are; one that is over begins anew."""
    runs = state.of(Campaigns).runs
    known = runs.get(change.campaign)
    total = change.plan.score.total if change.plan.score else 0.0
    entry = (change.plan.number, event.effective_time, event.actor, event.reason, total)
    fresh = Run(change.campaign, change.file, change.text, change.plan, change.names, impactless=change.impactless)
    if known is None:
        runs.put(change.campaign, replace(fresh, history=(entry,)))
        return
    history = (*known.history, entry)[-HISTORY_MAX:]
    if known.phase.is_over or known.phase is Phase.PLANNED:
        fresh = replace(fresh, published=known.published, posted=known.posted, closed=known.closed)
        runs.put(change.campaign, replace(fresh, history=history, before=known.plan))
        return
    begun = {name: each for name, each in known.progress.items() if each.step is not Step.PLANNED}
    runs.put(
        change.campaign,
        replace(
            fresh,
            history=history,
            before=known.plan,
            published=known.published,
            posted=known.posted,
            phase=known.phase,
            progress=begun,
            started_at=known.started_at,
            started_by=known.started_by,
            incident=known.incident,
            booked=known.booked,
            closed=known.closed,
            why=known.why,
        ),
    )


@ROOM.folds_change(CampaignStarted)
def _fold_started(state: State, change: CampaignStarted, event: Event) -> None:
    runs = state.of(Campaigns).runs
    known = runs[change.campaign]
    started = replace(
        known, phase=Phase.RUNNING, started_at=event.effective_time, started_by=event.actor, incident=change.incident
    )
    runs.put(change.campaign, started)


def _put_phase(state: State, campaign: str, phase: Phase, why: str) -> None:
    runs = state.of(Campaigns).runs
    runs.put(campaign, replace(runs[campaign], phase=phase, why=why))


@ROOM.folds_change(CampaignPaused)
def _fold_paused(state: State, change: CampaignPaused, event: Event) -> None:
    _put_phase(state, change.campaign, Phase.PAUSED, event.reason)


@ROOM.folds_change(CampaignResumed)
def _fold_resumed(state: State, change: CampaignResumed, event: Event) -> None:
    _put_phase(state, change.campaign, Phase.RUNNING, event.reason)


@ROOM.folds_change(CampaignCancelled)
def _fold_cancelled(state: State, change: CampaignCancelled, event: Event) -> None:
    _put_phase(state, change.campaign, Phase.CANCELLING, event.reason)


@ROOM.folds_change(CampaignEnded)
def _fold_ended(state: State, change: CampaignEnded, event: Event) -> None:
    known = state.of(Campaigns).runs[change.campaign]
    is_cancelled = known.phase is Phase.CANCELLING
    _put_phase(state, change.campaign, Phase.CANCELLED if is_cancelled else Phase.DONE, known.why or event.reason)


@ROOM.folds_change(CampaignPublished)
def _fold_published(state: State, change: CampaignPublished, _event: Event) -> None:
    tables = state.of(Campaigns)
    known = tables.runs[change.campaign]
    posted = known.posted if change.posted is None else change.posted
    tables.runs.put(change.campaign, replace(known, published=change.number, posted=posted))
    tables.feeds.put(change.campaign, change.feed)


@ROOM.folds_change(BatchStepped)
def _fold_stepped(state: State, change: BatchStepped, event: Event) -> None:
    runs = state.of(Campaigns).runs
    run, at = runs[change.campaign], event.effective_time
    known = run.progress.get(change.batch)
    if known is None:
        known = Progress(_batch(run, change.batch), Step.PLANNED, at)
    is_out = change.step is Step.MARKING
    now = replace(
        known,
        step=change.step,
        since=at,
        nodes=change.nodes or known.nodes,
        lost=change.lost or known.lost,
        started=at if is_out else known.started,
        ended=at if change.step.is_over and known.started else known.ended,
        attempt=change.attempt or known.attempt,
        detail=event.reason,
        place=change.place,
    )
    closed = {name: batch for name, batch in run.closed.items() if not (is_out and name in now.nodes)}
    closed |= dict.fromkeys(change.closed, change.batch)
    booked = run.booked
    if change.step.is_over:  # its booking went with its marks
        booked = {name: kept for name, kept in booked.items() if name != change.batch}
    progress = {**run.progress, change.batch: now}
    runs.put(run.name, replace(run, progress=progress, booked=booked, closed=closed))


@ROOM.folds_change(BatchOpened)
def _fold_batch_opened(state: State, change: BatchOpened, _event: Event) -> None:
    runs = state.of(Campaigns).runs
    run = runs[change.campaign]
    closed = {name: batch for name, batch in run.closed.items() if name not in change.nodes}
    runs.put(run.name, replace(run, closed=closed))


def _batch(run: Run, name: str) -> Batch:
    return next(batch for batch in run.plan.batches if batch.id == name)


@ROOM.folds_change(BatchBooked)
def _fold_booked(state: State, change: BatchBooked, _event: Event) -> None:
    runs = state.of(Campaigns).runs
    run = runs[change.campaign]
    booked = {name: kept for name, kept in run.booked.items() if name != change.batch}
    if change.start is not None:
        booked[change.batch] = change.start, change.is_done
    runs.put(run.name, replace(run, booked=booked))


@ROOM.folds_change(BatchLate)
def _fold_late(state: State, change: BatchLate, event: Event) -> None:
    runs = state.of(Campaigns).runs
    run = runs[change.campaign]
    late = replace(run.progress[change.batch], late_told=event.effective_time)
    runs.put(run.name, replace(run, progress={**run.progress, change.batch: late}))


@ROOM.folds_change(GangAgreed)
def _fold_agreed(state: State, change: GangAgreed, _event: Event) -> None:
    runs = state.of(Campaigns).runs
    run = runs[change.campaign]
    known = run.progress[change.batch]
    agreed = tuple(sorted({*known.agreed, change.workload}))
    runs.put(run.name, replace(run, progress={**run.progress, change.batch: replace(known, agreed=agreed)}))
