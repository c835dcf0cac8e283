"""A plan told to the rest of the house: each batch that has not begun is planned work ahead of its nodes. Pure.

So the forecast of the load line, placement and `why` know of it without knowing campaigns. What is announced is always
what the plan in force says, neither more nor less: from when it is published, or else started.
"""

from __future__ import annotations

from datetime import datetime

from plimsoll.campaigns.run.progress import Phase, Run, Step, work_id
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.changes import WorkAnnounced, WorkWithdrawn
from plimsoll.health.fold import Health
from plimsoll.health.model import Ahead
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State

REPLACED = "another plan"
BEGUN = "begun"


def wanted_ahead(state: State, run: Run, now: datetime) -> dict[str, Ahead]:
    """What should be announced of a campaign now, by id."""
    is_told = run.phase is Phase.PLANNED and run.published == run.plan.number
    if run.phase not in (Phase.RUNNING, Phase.PAUSED) and not is_told:
        return {}
    nodes = state.of(Fleet).nodes
    found = {}
    for batch in run.plan.batches:
        if batch.end <= now or run.step_of(batch.id) is not Step.PLANNED:
            continue
        names = tuple(
            sorted(
                name
                for name in run.names.get(batch.id, ())
                if name in nodes and nodes[name].service is not Service.RETIRED
            )
        )
        if names:
            work = work_id(run.name, batch.id)
            reason = f"planned: {run.name}, plan {run.plan.number}, {batch.unit} batch {batch.number}"
            found[work] = Ahead(work, run.owner, names, batch.start, batch.end, reason)
    return found


def align_ahead(state: State, run: Run, now: datetime) -> list[Draft]:
    """Announce what is planned and not announced, and withdraw what is announced and not planned any more."""
    known = {name: ahead for name, ahead in state.of(Health).ahead.items() if ahead.owner == run.owner}
    wanted = wanted_ahead(state, run, now)
    drafts = []
    for name, ahead in sorted(known.items()):
        if wanted.get(name) != ahead:
            has_begun = name not in wanted and ahead.starts <= now
            drafts.append(Draft(WorkWithdrawn(name, BEGUN if has_begun else REPLACED)))
    for name, ahead in sorted(wanted.items()):
        if known.get(name) != ahead:
            drafts.append(Draft(WorkAnnounced(ahead), ahead.reason))
    return drafts
