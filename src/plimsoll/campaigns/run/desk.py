"""What people say to a campaign: start, pause, resume, cancel, it is done, I agree, they are back. Pure.

Each answer is what has to be recorded, or a refusal that says what is so and what to type instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from plimsoll.campaigns.changes import (
    CampaignCancelled,
    CampaignPaused,
    CampaignPlanned,
    CampaignResumed,
    CampaignStarted,
    GangAgreed,
)
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Batch, Campaign, Plan
from plimsoll.campaigns.run.ahead import align_ahead
from plimsoll.campaigns.run.impactless import record_impactless
from plimsoll.campaigns.run.progress import Phase, Progress, Run, Step, lost_hold_id, owner_of
from plimsoll.campaigns.units import Roll
from plimsoll.campaigns.versions.decide import record_update
from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.acts import Acting, release_hold
from plimsoll.health.fold import Health
from plimsoll.incidents.changes import IncidentOpened
from plimsoll.incidents.decide import free_id
from plimsoll.incidents.fold import Incidents
from plimsoll.ledger.model import Change, Draft
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted, near
from plimsoll.workloads.fold_tables import floor_of


def find_run(state: State, name: str) -> Run:
    runs = state.of(Campaigns).runs
    run = runs.get(name)
    if run is None:
        raise NotFound(
            "no_such_campaign",
            f"there is no campaign {name[:100]!r} among {len(runs)}{near(name, runs)}",
            next_step="plimsoll campaign plan FILE" if not runs else "plimsoll campaign list",
            campaign=name[:100],
        )
    return run


def find_batch(run: Run, name: str) -> Batch:
    """A batch by its id, or by its cluster where that has only one."""
    known = {batch.id: batch for batch in run.plan.batches}
    known |= {each.batch.id: each.batch for each in run.batches_under_way()}  # also what a newer plan dropped
    mine = [batch for batch in known.values() if name in (batch.id, batch.unit)]
    if len(mine) == 1:
        return mine[0]
    if mine:
        current = [batch for batch in mine if run.step_of(batch.id).is_under_way]
        if len(current) == 1:
            return current[0]
        raise UsageError(
            "which_batch",
            f"{name} has {counted(len(mine), 'batch')}: {mine[0].id} to {mine[-1].id}",
            next_step=f"name one, such as '{mine[0].id}'",
        )
    raise NotFound(
        "no_such_batch",
        f"{run.name} has no batch {name[:100]!r}{near(name, known)}",
        next_step=f"plimsoll campaign status {run.name}",
        batch=name[:100],
    )


def record_plan(state: State, campaign: Campaign, text: str, plan: Plan, roll: Roll) -> list[Draft]:
    """A plan for a campaign that does not run yet. The same again changes nothing."""
    run = state.of(Campaigns).runs.get(campaign.name)
    if run is not None and not run.phase.is_over and run.phase is not Phase.PLANNED:
        raise Refused(
            "campaign_runs",
            f"{run.name} is {run.phase} with plan {run.plan.number} since {show_time(run.started_at)}",
            next_step=f"plimsoll campaign replan {run.name} --file FILE",
            campaign=run.name,
        )
    names = names_by_batch(plan.batches, roll)
    is_same = run is not None and (run.campaign, run.names, run.plan.batches) == (campaign, names, plan.batches)
    if run is not None and run.phase is Phase.PLANNED and is_same:
        return []
    return [Draft(CampaignPlanned(campaign.name, campaign, text, plan, names, dict(roll.impactless)))]


def names_by_batch(batches: Sequence[Batch], roll: Roll) -> dict[str, tuple[str, ...]]:
    """The nodes of each batch."""
    units = {unit.name: unit for unit in roll.units}
    return {batch.id: units[batch.unit].batches[batch.number - 1] for batch in batches}


def next_number(state: State, name: str) -> int:
    """The number that the next plan of a campaign has."""
    run = state.of(Campaigns).runs.get(name)
    return 1 if run is None else run.plan.number + 1


def start(state: State, name: str, *, now: datetime, number: int | None = None) -> list[Draft]:
    """Let a campaign run: its batches are announced, and an incident is opened where nodes go out of service."""
    run = find_run(state, name)
    _refuse_unless_startable(run, now, number)
    incident = ""
    drafts: list[Draft] = []
    if run.plan.batches:
        incident = free_id(f"{name}-{run.plan.number}", state.of(Incidents).incidents)
        nodes = counted(sum(batch.nodes for batch in run.plan.batches), "node")
        title = f"{name}: {nodes} go out of service, plan {run.plan.number}"
        clusters = tuple(sorted({batch.unit.partition("/")[0] for batch in run.plan.batches}))
        opened = IncidentOpened(incident, title, run.campaign.roster, clusters, name)
        drafts.append(Draft(opened, f"{name} starts"))
    running = msgspec.structs.replace(run, phase=Phase.RUNNING)
    if not run.campaign.running.work:
        drafts += record_impactless(state, run)
    return [Draft(CampaignStarted(name, run.plan.number, incident)), *drafts, *align_ahead(state, running, now)]


def _refuse_unless_startable(run: Run, now: datetime, number: int | None) -> None:
    status = f"plimsoll campaign status {run.name}"
    if number is not None and number != run.plan.number:
        message = f"plan {number} was asked for, and plan {run.plan.number} is the newest of {run.name}"
        raise Refused("newer_plan", message, next_step=f"look at it: {status}", campaign=run.name)
    if run.phase is not Phase.PLANNED:
        by = f" (by {run.started_by} at {show_time(run.started_at)})" if run.started_at else ""
        code = "campaign_over" if run.phase.is_over else "campaign_started"
        raise Refused(code, f"{run.name} is {run.phase}{by}", next_step=status, campaign=run.name)
    past = [batch for batch in run.plan.batches if batch.start < now]
    if past:
        first = min(past, key=lambda batch: batch.start)
        raise Refused(
            "plan_in_the_past",
            f"{len(past)} of {len(run.plan.batches)} batches were to begin before now; the first is {first.id} at"
            f" {show_time(first.start)}",
            next_step="change start and deadline in the file, and plan it anew: plimsoll campaign plan FILE",
            campaign=run.name,
        )


def fleet_changes(state: State, run: Run, roll: Roll) -> tuple[list[str], list[str]]:
    """What changed since a plan was made: nodes of batches not begun that are gone, and nodes in scope without one."""
    nodes = state.of(Fleet).nodes
    ahead = [batch.id for batch in run.plan.batches if run.step_of(batch.id) is Step.PLANNED]
    planned = {name for names in run.names.values() for name in names}
    in_scope = {name for unit in roll.units for batch in unit.batches for name in batch}
    gone = [
        name
        for batch in ahead
        for name in run.names.get(batch, ())
        if name not in nodes or nodes[name].service is Service.RETIRED
    ]
    done = {name for each in run.progress.values() for name in each.nodes}
    return sorted(gone), sorted(in_scope - planned - done)


_MOVES: dict[str, tuple[tuple[Phase, ...], type[Change]]] = {
    "pause": ((Phase.RUNNING,), CampaignPaused),
    "resume": ((Phase.PAUSED,), CampaignResumed),
    "cancel": ((Phase.PLANNED, Phase.RUNNING, Phase.PAUSED), CampaignCancelled),
}


def move(state: State, name: str, verb: str) -> list[Draft]:
    """Pause, resume, or cancel a campaign."""
    run = find_run(state, name)
    phases, change = _MOVES[verb]
    if run.phase not in phases:
        raise Refused(
            f"cannot_{verb}",
            f"{name} is {run.phase}; one can {verb} what is {' or '.join(phases)}",
            next_step=f"plimsoll campaign status {name}",
            campaign=name,
        )
    return [Draft(change(name))]


def progress_of(run: Run, batch: Batch) -> Progress:
    known = run.progress.get(batch.id)
    if known is None or not known.step.is_under_way:
        state = Step.PLANNED if known is None else known.step
        raise Refused(
            "not_under_way",
            f"{batch.id} of {run.name} is {state}: nothing is under way",
            next_step=f"plimsoll campaign status {run.name}",
            batch=batch.id,
        )
    return known


def check_lost(run: Run, known: Progress, lost: Collection[str]) -> None:
    strange = sorted(set(lost) - set(known.nodes))
    if strange:
        raise UsageError(
            "not_in_batch",
            f"{strange[0]!r} is not one of the {len(known.nodes)} nodes of {known.batch.id}",
            next_step=f"plimsoll campaign status {run.name} --batch '{known.batch.id}'",
            node=strange[0],
        )


def agree(state: State, name: str, workload: str) -> tuple[list[str], list[Draft]]:
    """The owner of a gang lets it be stopped now. Which batches that helps, and what is recorded."""
    run = find_run(state, name)
    floor = floor_of(state)
    batches = []
    for known in run.batches_under_way():
        if known.step not in (Step.MARKING, Step.DRAINING) or workload in known.agreed:
            continue
        if any(who == workload for node in known.nodes for who, _ in floor.parts_on.get(node, ())):
            batches.append(known.batch.id)
    if not batches:
        raise Refused(
            "nothing_to_agree",
            f"no batch of {name} waits for {workload!r}",
            next_step=f"plimsoll campaign status {name}",
            workload=workload,
        )
    return batches, [Draft(GangAgreed(name, batch, workload)) for batch in batches]


def returned(state: State, name: str, nodes: Sequence[str], acting: Acting, *, is_updated: bool = False) -> list[Draft]:
    """Nodes that did not come back from a campaign are repaired: they begin to validate, and the cap has room again.

    `is_updated`: they have the campaign's versions as well.
    """
    run = find_run(state, name)
    own = lost_hold_id(name)
    out = {node for node, holds in state.of(Health).holds.items() if any(hold.id == own for hold in holds)}
    wanted = list(nodes) or sorted(out)
    strange = [node for node in wanted if node not in out]
    if strange or not wanted:
        what = f"{strange[0]!r} is not among them" if strange else "there is nothing to bring back"
        raise Refused(
            "not_lost",
            f"{counted(len(out), 'node')} did not return from {run.name}; {what}",
            next_step=f"plimsoll campaign status {name}",
            campaign=name,
        )
    mine = acting._replace(actor=owner_of(name))
    _, drafts = release_hold(state, own, mine, names=wanted, at=acting.now, is_forced=False)
    if is_updated:
        drafts += record_update(state, wanted, run.campaign.changes, campaign=name, reason=acting.reason)
    return drafts
