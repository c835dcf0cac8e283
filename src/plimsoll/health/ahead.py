"""Planned work ahead: announced, withdrawn, and what it means for a node. Pure.

An announcement moves nothing. When its time comes, whoever does the work places the hold that begins it; an entry whose
end has passed counts as over, and the next sweep drops it. So nothing here may take a node out of service.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.health.changes import WorkAnnounced, WorkWithdrawn
from plimsoll.health.fold import Health
from plimsoll.health.intake import near_nodes
from plimsoll.health.model import Ahead
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted, near

WORK_ID_MAX = 100
WITHDRAWN, WITHDRAWN_BY_ANOTHER, OVER = "withdrawn", "withdrawn by another", "over"
"""Why work is ahead no more."""


class Stretch(NamedTuple):
    """A time in which a node is out for announced work without a break."""

    starts: datetime
    ends: datetime


class Announced(NamedTuple):
    """What became of an announcement. `is_new`: it was not known, word for word, before."""

    ahead: Ahead
    is_new: bool


def stretches(works: Sequence[Ahead], now: datetime) -> list[Stretch]:
    """When a node is out for these works, given in the order of their start; what is over by now left out.

    Works that overlap or follow each other at once are one stretch.
    """
    found: list[Stretch] = []
    for work in works:
        if work.is_over(now):
            continue
        if found and work.starts <= found[-1].ends:
            found[-1] = Stretch(found[-1].starts, max(found[-1].ends, work.ends))
        else:
            found.append(Stretch(work.starts, work.ends))
    return found


def starts_ahead(health: Health, node: str, now: datetime) -> datetime | None:
    """The earliest start of work ahead on a node that has not ended yet; it may have passed, if the work is late."""
    for work in health.ahead_of.get(node, ()):
        if work.ends > now:  # not `is_over`: placement asks this for thousands of nodes
            return work.starts
    return None


def ends_ahead(health: Health, node: str, now: datetime) -> datetime | None:
    """When a node is free again: after the work that `starts_ahead` tells of, and what follows it without a break."""
    works = health.ahead_of.get(node)
    found = stretches(works, now) if works else None
    return found[0].ends if found else None


def nodes_ahead(health: Health, names: Iterable[str], *, now: datetime, until: datetime) -> dict[str, Ahead]:
    """Of these nodes the ones with work that starts before a moment and is not over, each with its first such work."""
    if not health.ahead_of:
        return {}
    found = {}
    for name in names:
        first = next((work for work in health.ahead_of.get(name, ()) if not work.is_over(now)), None)
        if first is not None and first.starts < until:
            found[name] = first
    return found


def make_work_id(owner: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> str:
    """An id for work that nobody named. It follows from the content: who announces the same twice announces it once."""
    content = msgspec.json.encode((owner, sorted(nodes), starts, ends, reason))
    return f"work-{hashlib.sha256(content).hexdigest()[:8]}"


def announce(state: State, ahead: Ahead, *, now: datetime) -> tuple[Announced, list[Draft]]:
    """Announce work. The same again changes nothing; another under its id is refused, unless the old one is over."""
    ahead = msgspec.structs.replace(ahead, nodes=tuple(sorted(set(ahead.nodes))))
    known = state.of(Health).ahead.get(ahead.id)
    if known == ahead:
        return Announced(known, is_new=False), []
    _check_work(state.of(Fleet), ahead, now)
    drafts = [Draft(WorkAnnounced(ahead), ahead.reason)]
    if known is not None and known.is_over(now):
        drafts = [_withdrawal_of_over(known), *drafts]
    elif known is not None:
        raise Refused(
            "work_exists",
            f"{ahead.id!r} is announced already, by {known.owner}: {counted(len(known.nodes), 'node')} from"
            f" {show_time(known.starts)} until {show_time(known.ends)}: {known.reason}",
            next_step=f"choose another --id, or plimsoll health withdraw {known.id!r} first",
            work=known.id,
            owner=known.owner,
        )
    return Announced(ahead, is_new=True), drafts


def _check_work(fleet: Fleet, ahead: Ahead, now: datetime) -> None:
    if not (ahead.id.strip() and len(ahead.id) <= WORK_ID_MAX and ahead.id.isprintable()):
        message = f"{ahead.id[:WORK_ID_MAX]!r} can't name work: an id has 1 to {WORK_ID_MAX} printable characters"
        raise UsageError("bad_usage", message, next_step="--id switch-firmware")
    if ahead.ends <= ahead.starts:
        raise UsageError(
            "bad_period",
            f"the work would end at {show_time(ahead.ends)}, which is not after its start at {show_time(ahead.starts)}",
            next_step="give an --until that is later than --from",
        )
    if ahead.is_over(now):
        raise UsageError(
            "bad_period",
            f"the work would have ended at {show_time(ahead.ends)}, and it is {show_time(now)}: nothing of it is ahead",
            next_step="give an --until in the future",
        )
    if not ahead.nodes:
        raise Refused("no_nodes", f"{ahead.id!r} would be work on 0 nodes", next_step="plimsoll fleet nodes")
    unknown = [name for name in ahead.nodes if name not in fleet.nodes]
    if unknown:
        meant = near_nodes(unknown[0], fleet)
        others = f", nor {counted(len(unknown) - 1, 'other')} of the {len(ahead.nodes):,}" if len(unknown) > 1 else ""
        raise NotFound(
            "unknown_node",
            f"there is no node {unknown[0]!r}{others}" + (f"; did you mean {meant[0]!r}?" if meant else ""),
            next_step="plimsoll fleet nodes",
            node=unknown[0],
            count=len(unknown),
        )


def withdraw(
    state: State, work: str, *, actor: str, reason: str = "", is_forced: bool = False
) -> tuple[Ahead, list[Draft]]:
    """Take announced work back; one's own, as with holds, unless somebody insists."""
    known = state.of(Health).ahead
    ahead = known.get(work)
    if ahead is None:
        raise NotFound(
            "no_such_work",
            f"no work {work[:WORK_ID_MAX]!r} is announced among {len(known)}{near(work, known)}",
            next_step="plimsoll health announced",
            work=work[:WORK_ID_MAX],
        )
    if ahead.owner != actor and not is_forced:
        raise Refused(
            "not_your_work",
            f"{ahead.owner} announced {work!r}: {ahead.reason}",
            next_step=f"ask {ahead.owner}, or plimsoll health withdraw {work!r} --force --reason WHY",
            work=work,
            owner=ahead.owner,
        )
    cause = WITHDRAWN if ahead.owner == actor else WITHDRAWN_BY_ANOTHER
    return ahead, [Draft(WorkWithdrawn(work, cause), reason)]


def withdraw_over(health: Health, now: datetime) -> tuple[list[Ahead], list[Draft]]:
    """Drop the work whose end has passed."""
    over = sorted((ahead for ahead in health.ahead.values() if ahead.is_over(now)), key=lambda ahead: ahead.order)
    return over, [_withdrawal_of_over(ahead) for ahead in over]


def _withdrawal_of_over(ahead: Ahead) -> Draft:
    reason = f"{ahead.owner}'s work was to end at {show_time(ahead.ends)}: {ahead.reason}"
    return Draft(WorkWithdrawn(ahead.id, OVER), reason, ahead.ends)
