"""What is to be done about each batch now, and how each step changes nodes. Pure.

`todo` looks at how things are, so that a pass that was missed, or cut short, is made up for by the next one. A step
that reaches outside is recorded before it is tried.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.campaigns.changes import BatchLate, BatchStepped, CampaignEnded
from plimsoll.campaigns.model import Batch
from plimsoll.campaigns.run.ahead import BEGUN
from plimsoll.campaigns.run.census import Census
from plimsoll.campaigns.run.gate import Gatekeeper, No
from plimsoll.campaigns.run.progress import Phase, Progress, Run, Step, hold_id, lost_hold_id, work_id
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.acts import Acting, place_hold
from plimsoll.health.changes import WorkWithdrawn
from plimsoll.health.decide import Bench, policy_in_force
from plimsoll.health.facts import AUTOMATION, WITHDRAWN, Hold, Owner
from plimsoll.health.fold import Health
from plimsoll.health.moves import Desk
from plimsoll.incidents.changes import IncidentClosed
from plimsoll.incidents.fold import Incidents
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import floor_of

ATTEMPTS_MAX = 3
"""How often work that failed as a whole is tried before a person is asked."""
RETRY_MINUTES = 5


class Act(enum.StrEnum):
    """What a batch needs next."""

    BEGIN = "begin"
    MARK = "mark"
    HAND_OVER = "hand over"
    WORK = "work"
    VALIDATE = "validate"
    RETURN = "return"
    RESTORE = "restore"
    TELL_LATE = "tell late"
    WAIT = "wait"


class Todo(NamedTuple):
    """What is to be done about a batch, or what it waits for and until when that is expected."""

    batch: Batch
    act: Act
    waits_for: str = ""
    until: datetime | None = None
    reasons: tuple[No, ...] = ()
    says: str = ""
    """What it waits for without what to type, where `waits_for` ends with a command: a page has a button for that."""


def todo(state: State, run: Run, now: datetime, census: Census | None = None) -> list[Todo]:
    """For each batch that is not over what is to be done now, in the order of their start."""
    gate: Gatekeeper | None = None
    found = []
    planned = {batch.id: batch for batch in run.plan.batches}
    dropped = [each.batch for each in run.batches_under_way() if each.batch.id not in planned]
    for batch in sorted([*planned.values(), *dropped], key=lambda each: (each.start, each.id)):
        known = run.progress.get(batch.id)
        if known is None or known.step is Step.PLANNED:
            if run.phase in (Phase.CANCELLING, Phase.CANCELLED):
                continue
            gate = gate or Gatekeeper(state, run, now, census)
            nos = tuple(gate.ask(batch))
            if nos:
                found.append(Todo(batch, Act.WAIT, nos[0].text, nos[0].until, nos))
            else:
                found.append(Todo(batch, Act.BEGIN))
        elif known.step.is_under_way:
            found.append(_under_way(state, run, known, now))
    return found


def _under_way(state: State, run: Run, known: Progress, now: datetime) -> Todo:
    batch, running = known.batch, run.campaign.running
    late = late_from(run, known)
    if run.phase is Phase.CANCELLING and known.step in UNTOUCHED:
        return Todo(batch, Act.RESTORE)
    if now >= late and known.late_told is None:
        return Todo(batch, Act.TELL_LATE)
    if known.step is Step.MARKING:
        return Todo(batch, Act.MARK)
    if known.step is Step.DRAINING:
        busy = busy_nodes(state, known)
        assert known.started is not None, "a batch that drains has begun"
        ends = known.started + timedelta(minutes=running.grace_minutes)
        if not busy or now >= ends:
            return Todo(batch, Act.HAND_OVER)
        text = f"work on {len(busy)} of {len(known.nodes)} nodes to end or move away ({', '.join(busy[:3])})"
        return Todo(batch, Act.WAIT, text, ends)
    if known.step is Step.WORKING:
        return _working(run, known, now)
    waiting = still_out(state, known)
    if running.validate and waiting:
        return Todo(batch, Act.VALIDATE)
    if not waiting or now >= late:
        return Todo(batch, Act.RETURN)
    tick = f"plimsoll campaign tick {run.name} '{batch.id}' --validated"
    says = f"validation of {len(waiting)} of {len(known.nodes)} nodes, such as {waiting[0]}: its checks"
    return Todo(batch, Act.WAIT, f"{says}, or {tick}", late, says=says)


def _working(run: Run, known: Progress, now: datetime) -> Todo:
    batch, running = known.batch, run.campaign.running
    tick = f"plimsoll campaign tick {run.name} '{batch.id}'"
    if not running.work:
        says = f"{running.confirms} to say that it is done"
        return Todo(batch, Act.WAIT, f"{says}: {tick}", _end_of(known), says=says)
    if known.attempt > ATTEMPTS_MAX:
        says = f"a person, after {ATTEMPTS_MAX} attempts ({known.detail})"
        return Todo(batch, Act.WAIT, f"{says}: when it is done, {tick}", says=says)
    again = known.since + timedelta(minutes=RETRY_MINUTES)
    if known.attempt > 1 and not known.place and now < again:
        return Todo(batch, Act.WAIT, f"attempt {known.attempt} ({known.detail})", again)
    return Todo(batch, Act.WORK)


def late_from(run: Run, known: Progress) -> datetime:
    """From when on a batch is late: then it is told, and nodes that still validate did not come back."""
    return _end_of(known) + timedelta(minutes=run.campaign.running.late_minutes)


def _end_of(known: Progress) -> datetime:
    """When a batch should have ended, by when it really began."""
    span = known.batch.end - known.batch.start
    return known.batch.end if known.started is None else known.started + span


def busy_nodes(state: State, known: Progress) -> list[str]:
    """The nodes of a batch on which something runs that has not agreed to stop."""
    floor = floor_of(state)
    agreed = set(known.agreed)
    return [name for name in known.nodes if any(workload not in agreed for workload, _ in floor.parts_on.get(name, ()))]


def still_out(state: State, known: Progress) -> list[str]:
    """The nodes of a batch that validate still. One that was out for another reason before is not waited for."""
    nodes, lost = state.of(Fleet).nodes, set(known.lost)
    return [
        name for name in known.nodes if name not in lost and name in nodes and nodes[name].service is Service.VALIDATING
    ]


def failed_checks(state: State, known: Progress) -> list[str]:
    """The nodes of a batch that failed their validation."""
    holds, begun = state.of(Health).holds, known.started or known.since
    prefix = f"{AUTOMATION}:validation "
    return [
        name
        for name in known.nodes
        if any(hold.id.startswith(prefix) and hold.placed_at >= begun for hold in holds.get(name, ()))
    ]


# How each step changes nodes.


UNTOUCHED = (Step.MARKING, Step.DRAINING)
"""Steps in which nobody has worked on a batch yet."""


def _alive(state: State, names: Collection[str]) -> list[Node]:
    nodes = state.of(Fleet).nodes
    return [nodes[name] for name in sorted(names) if name in nodes and nodes[name].service is not Service.RETIRED]


def _hold(run: Run, batch: Batch, acting: Acting, **changes: object) -> Hold:
    reason = f"planned: {run.name}, {batch.unit} batch {batch.number}"
    hold = Hold(
        id=hold_id(run.name, batch.id),
        owner=run.owner,
        service=Service.MAINTENANCE,
        reason=reason,
        placed_at=acting.now,
        scope=batch.unit,
        expected_return=acting.now + (batch.end - batch.start),
    )
    return msgspec.structs.replace(hold, **changes)


def begin(state: State, run: Run, batch: Batch, acting: Acting) -> list[Draft]:
    """Take a batch: its nodes drain from now on, and nothing new is put on them."""
    nodes = _alive(state, run.names[batch.id])
    ends = acting.now + timedelta(minutes=run.campaign.running.grace_minutes)
    hold = _hold(run, batch, acting, drains_until=ends)
    _, drafts = place_hold(state, nodes, hold, acting)
    stepped = Draft(BatchStepped(run.name, batch.id, Step.MARKING, nodes=tuple(node.id for node in nodes)))
    work = work_id(run.name, batch.id)
    gone = [Draft(WorkWithdrawn(work, BEGUN))] if work in state.of(Health).ahead else []
    return [stepped, *gone, *drafts]


def hand_over(state: State, run: Run, known: Progress, acting: Acting) -> list[Draft]:
    """The nodes are empty, or their grace has passed: whoever does the work has them alone from now on."""
    assert known.started is not None, "a batch that drains has begun"
    is_theirs = not run.campaign.running.work
    hold = _hold(
        run,
        known.batch,
        acting,
        is_exclusive=True,
        placed_at=known.started,
        expected_return=_end_of(known),
        whose_move=Owner.PROVIDER if is_theirs and run.campaign.running.confirms == "provider" else Owner.OURS,
    )
    nodes = [node for node in _alive(state, known.nodes) if _is_held(state, node, hold.id)]
    _, drafts = place_hold(state, nodes, hold, acting)
    return [Draft(BatchStepped(run.name, known.batch.id, Step.WORKING, attempt=1)), *drafts]


def _is_held(state: State, node: Node, hold: str) -> bool:
    return any(each.id == hold for each in state.of(Health).holds.get(node.id, ()))


def finish_work(
    state: State, run: Run, known: Progress, lost: Sequence[str], acting: Acting, detail: str
) -> list[Draft]:
    """The work is done: what was updated begins to validate, what failed is held as not returned."""
    failed = sorted({*known.lost, *lost} & set(known.nodes))
    good = set(known.nodes) - set(failed)
    drafts = _change_holds(state, run, known, good=good, failed=failed, acting=acting)
    stepped = BatchStepped(run.name, known.batch.id, Step.VALIDATING, lost=tuple(failed))
    return [Draft(stepped, detail), *drafts]


def _change_holds(
    state: State, run: Run, known: Progress, *, good: Collection[str], failed: Collection[str], acting: Acting
) -> list[Draft]:
    """End the batch's hold on the good nodes; put that of nodes that did not return on the others in its place."""
    health = state.of(Health)
    bench = Bench(health, policy_in_force(state), acting.memories, acting.now)
    own = hold_id(run.name, known.batch.id)
    drafts = _let_go_of_retired(state, {*good, *failed}, own, acting)
    for node in _alive(state, {*good, *failed}):
        desk = Desk(node, health, acting.now)
        hold = desk.hold_of(own)
        if node.id in failed and desk.hold_of(lost_hold_id(run.name)) is None:
            desk.place(
                Hold(
                    id=lost_hold_id(run.name),
                    owner=run.owner,
                    service=Service.REPAIR,
                    reason=f"did not return from {run.name}, batch {known.batch.id}",
                    placed_at=acting.now,
                    scope=known.batch.unit,
                    whose_move=Owner.PROVIDER,
                )
            )
        if hold is not None:
            desk.end(hold, cause="released", reason=acting.reason)
        if desk.drafts():
            desk.follow(bench.verdict(node), hold=own)
            drafts += desk.drafts()
    return drafts


def _let_go_of_retired(state: State, names: Collection[str], hold_name: str, acting: Acting) -> list[Draft]:
    """End the batch's hold on nodes that were retired under it: they go nowhere, and nothing of ours stays on them."""
    nodes, drafts = state.of(Fleet).nodes, list[Draft]()
    for name in sorted(names):
        if name in nodes and nodes[name].service is Service.RETIRED:
            desk = Desk(nodes[name], state.of(Health), acting.now)
            if (hold := desk.hold_of(hold_name)) is not None:
                desk.end(hold, cause="retired", reason=acting.reason)
                drafts += desk.drafts()
    return drafts


def fail_validation(state: State, run: Run, known: Progress, lost: Collection[str], acting: Acting) -> list[Draft]:
    """Somebody says of nodes that validate that they do not come back: they are held, as if the work had failed."""
    failed = sorted({*known.lost, *lost})
    stepped = BatchStepped(run.name, known.batch.id, Step.VALIDATING, lost=tuple(failed), place=known.place)
    return [Draft(stepped, acting.reason), *_change_holds(state, run, known, good=(), failed=failed, acting=acting)]


def give_back(
    state: State, run: Run, known: Progress, acting: Acting, *, opened: Collection[str] | None = None
) -> list[Draft]:
    """The end of a batch: what is not back by now did not return, is held, and is charged to the cap.

    `opened` are the nodes that are open in their scheduler again; None where all are.
    """
    closed = () if opened is None else tuple(name for name in known.nodes if name not in opened)
    missing = [*still_out(state, known), *failed_checks(state, known)]
    lost = tuple(sorted({*known.lost, *missing}))
    drafts = _change_holds(state, run, known, good=(), failed=missing, acting=acting)
    back = len(known.nodes) - len(lost)
    reason = f"{back} of {len(known.nodes)} nodes are back" + (f", {len(lost)} did not return" if lost else "")
    stepped = BatchStepped(run.name, known.batch.id, Step.RETURNED, lost=lost, closed=closed)
    return [Draft(stepped, reason), *drafts]


def restore(state: State, run: Run, known: Progress, acting: Acting) -> list[Draft]:
    """Give a batch back on which nobody has worked: its nodes are what they were, as if it had never begun."""
    health = state.of(Health)
    bench = Bench(health, policy_in_force(state), acting.memories, acting.now)
    own = hold_id(run.name, known.batch.id)
    drafts = [Draft(BatchStepped(run.name, known.batch.id, Step.CANCELLED), acting.reason)]
    drafts += _let_go_of_retired(state, known.nodes, own, acting)
    for node in _alive(state, known.nodes):
        desk = Desk(node, health, acting.now)
        hold = desk.hold_of(own)
        if hold is None:
            continue
        desk.end(hold, cause=WITHDRAWN, reason=acting.reason)
        verdict = bench.verdict(node)
        if not desk.holds:
            desk.go_back(verdict, why=f"{run.name} was cancelled", source=acting.actor)
        desk.follow(verdict, hold=own)
        drafts += desk.drafts()
    return drafts


def tell_late(run: Run, known: Progress) -> list[Draft]:
    told = run.campaign.roster or (run.campaign.running.confirms,)
    reason = f"{known.batch.id} should have ended at {_end_of(known).isoformat()}; it is {known.step}"
    return [Draft(BatchLate(run.name, known.batch.id, told), reason)]


def is_all_over(run: Run) -> bool:
    """Whether nothing of a campaign is left to do."""
    if run.phase not in (Phase.RUNNING, Phase.CANCELLING):
        return False
    if any(each.step.is_under_way for each in run.progress.values()):
        return False
    if run.booked:  # time is still kept free in some scheduler
        return False
    if run.phase is Phase.CANCELLING:
        return True
    return all(run.step_of(batch.id).is_over for batch in run.plan.batches)


def end_campaign(state: State, run: Run) -> list[Draft]:
    """The last batch is over."""
    drafts = [Draft(CampaignEnded(run.name))]
    incident = state.of(Incidents).incidents.get(run.incident)
    if incident is not None and incident.closed_at is None:
        drafts.append(Draft(IncidentClosed(incident.id), f"{run.name} is over"))
    return drafts
