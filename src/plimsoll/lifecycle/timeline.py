"""What happened to a cluster, event by event, in words. Pure."""

from __future__ import annotations

from datetime import datetime

from plimsoll.fleet.changes import ClusterRecorded
from plimsoll.ledger.model import Change
from plimsoll.lifecycle import changes
from plimsoll.lifecycle.reasons import Reason
from plimsoll.words import counted

QUIET = frozenset(
    reason.code
    for reason in (
        Reason.STARTING,
        Reason.RUNNING,
        Reason.FILLING,
        Reason.WAITING,
        Reason.WAITING_FOR_STEP,
        Reason.WAITING_FOR_QUOTA,
        Reason.NOT_NEEDED,
    )
)
"""Reasons that only say what the events of the steps say too."""


def happened(change: Change, at: datetime) -> str:
    """One event in words; empty where it says nothing that another one does not. `at` is when it was."""
    if isinstance(change, changes.ConditionsChanged):
        # A condition that was only looked at again, for a new spec or with new numbers, is no news.
        news = [each for each in change.conditions if each.changed >= at and each.reason not in QUIET]
        return ", ".join(f"{each.type} is {each.status} ({each.reason})" for each in news)
    if isinstance(change, changes.StepIntended):
        return f"{change.step} is to begin, attempt {change.attempt}"
    if isinstance(change, changes.StepSeen):
        return f"{change.step} is {change.going}" + (f": {change.detail}" if change.detail else "")
    if isinstance(change, changes.SetsSeen):
        return ", ".join(f"{each.name} has {each.there} of {each.wanted} machines" for each in change.sets)
    if isinstance(change, ClusterRecorded):
        return f"{change.was['phase']} -> {change.cluster.phase}" if "phase" in change.was else ""
    if isinstance(change, changes.QuotaClaimed):
        cores = max(change.cores.values(), default=0)
        return f"{cores:,} cores of quota are promised to it" if cores else "it needs no quota"
    if isinstance(change, changes.ClusterRespecified):
        return "changed: " + ", ".join(f"{field} was {before or 'nothing'}" for field, before in change.was.items())
    if isinstance(change, changes.ClusterPlanned):
        return f"planned: {counted(change.spec.nodes, 'node')} of {change.spec.sku} in {change.spec.region}"
    if isinstance(change, changes.RecipeMigrated):
        return f"goes on with recipe {change.recipe} version {change.version} (was {change.was})"
    if isinstance(change, changes.StepRetried | changes.StepWaived):
        verb = "tried again" if isinstance(change, changes.StepRetried) else "taken for done"
        return f"{change.step} is {verb}"
    return _WORDS.get(type(change), "")


_WORDS: dict[type[Change], str] = {
    changes.QuotaReleased: "the quota that was promised to it is not there any more",
    changes.ClusterCheckedIn: "checked in",
    changes.ClusterPaused: "paused",
    changes.ClusterResumed: "goes on",
    changes.ClusterAvailable: "let into production",
    changes.ClusterLeaving: "is to be retired",
    changes.ClusterGone: "retired",
}
