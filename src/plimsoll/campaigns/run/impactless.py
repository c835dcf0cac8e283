"""Changes that take nothing out of service: done without limits and windows, and recorded all the same.

A service: a command may do them. Without one they count as done when the campaign starts. What a node has is known by
its versions, so nothing is done twice: a unit whose nodes all have them is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plimsoll.campaigns.run.outside import Did, Outside, impactless_errand, lost_nodes
from plimsoll.campaigns.run.progress import Phase, Run
from plimsoll.campaigns.versions.decide import record_update
from plimsoll.connect.errands import Going
from plimsoll.ledger.model import Draft, Event
from plimsoll.state.state import State

Commit = Callable[[Callable[[State, Run], Sequence[Draft]]], list[Event]]


def still_old(state: State, run: Run) -> dict[str, tuple[str, ...]]:
    """By unit, the nodes that change without an outage and are not known to have the new versions."""
    changes = run.campaign.changes
    return {
        unit: names
        for unit, names in sorted(run.impactless.items())
        if record_update(state, names, changes, campaign=run.name)
    }


def record_impactless(state: State, run: Run) -> list[Draft]:
    """What nobody has to do counts as done."""
    names = [name for each in run.impactless.values() for name in each]
    return record_update(state, names, run.campaign.changes, campaign=run.name, reason="without an outage")


def do_impactless(
    state: State, run: Run, outside: Outside, commit: Commit, check_lead: Callable[[], None]
) -> list[Did]:
    """Have a command change what takes nothing out of service, unit by unit, each once.

    `check_lead` is asked before one is begun: it raises where another leads by now.
    """
    words = run.campaign.running.work
    if run.phase is not Phase.RUNNING or not words:
        return []
    did = []
    for unit, names in still_old(state, run).items():
        errand = impactless_errand(run, unit)
        going, result = outside.errands.look(errand)
        if going is Going.NOT_BEGUN:
            environment = {
                "PLIMSOLL_CAMPAIGN": run.name,
                "PLIMSOLL_BATCH": unit,
                "PLIMSOLL_UNIT": unit,
                "PLIMSOLL_OPERATION": f"{run.name}:{unit}:impactless",
                "PLIMSOLL_ATTEMPT": "1",
            }
            check_lead()
            if outside.errands.begin(errand, words, environment=environment, lines=names):
                did.append(Did(unit, "work", f"{words[0]} begun on {len(names)} nodes, without an outage"))
        elif going is Going.LOST:
            did.append(Did(unit, "work", "the command was lost with its machine: look, then record the versions", True))
        elif result is not None:
            lost = lost_nodes(result, names)
            good = [] if lost is None else [name for name in names if name not in lost]
            events = commit(
                lambda now, again, good=good: record_update(  # type: ignore[misc]
                    now, good, again.campaign.changes, campaign=again.name, reason="without an outage"
                )
            )
            failed = len(names) - len(good)
            if events or failed:
                said = f"; {failed} failed: {result.last_words[:100]}" if failed else ""
                did.append(Did(unit, "work", f"done on {len(good)} nodes, without an outage{said}", bool(failed)))
    return did
