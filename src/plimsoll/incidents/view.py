"""Incidents and notices as people and programs read them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from plimsoll.fleet.fold import Fleet
from plimsoll.health.fold import Health
from plimsoll.health.model import PLANNED_REASONS
from plimsoll.incidents.decide import amount_text, numbers_text
from plimsoll.incidents.finders import shortfalls
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Incident, OwnerNotice, Post
from plimsoll.incidents.reasons import Kind
from plimsoll.state.state import State
from plimsoll.times import show_second
from plimsoll.words import counted
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.why.outs import Out, nodes_out

COLUMNS = ("incident", "kind", "opened", "by", "on_call", "clusters", "title", "now", "last_note", "closed")
NOTICE_COLUMNS = ("told", "workload", "team", "owner", "what", "happened", "done", "left")
NOTE_COLUMNS = ("at", "by", "note")
WORKS_NAMED = 2
"""So many planned works, and who does them, are named when it is said whose move it is."""


def listed(state: State, *, is_all: bool, kind: str = "") -> list[Incident]:
    """Incidents that are open, or all, the oldest first."""
    found = sorted(state.of(Incidents).incidents.values(), key=lambda each: (each.opened_at, each.id))
    return [each for each in found if (is_all or each.closed_at is None) and kind in ("", each.kind)]


def document(incident: Incident, now: datetime) -> dict[str, Any]:
    """An incident for programs. What it came to so far, where it is open."""
    numbers = incident.numbers_at(now)
    return {
        "id": incident.id,
        "kind": str(incident.kind),
        "title": incident.title,
        "about": incident.about,
        "opened_at": incident.opened_at,
        "noticed_at": incident.noticed_at or incident.opened_at,
        "opened_by": incident.opened_by,
        "roster": list(incident.roster),
        "clusters": list(incident.clusters),
        "campaign": incident.campaign,
        "holds_campaigns": incident.holds_campaigns,
        "notes": [list(note) for note in incident.notes],
        "course": [list(each) for each in incident.course],
        "amount": incident.amount,
        "unit": incident.unit,
        "is_on": incident.has_trouble,
        "move": incident.move,
        "next_step": incident.next_step if incident.has_trouble else "",
        "numbers": {
            "seconds": numbers.seconds,
            "most": numbers.most,
            "unit": numbers.unit,
            "unit_hours": numbers.unit_hours,
            "teams": list(numbers.teams),
        },
        "closed_at": incident.closed_at,
        "closed_by": incident.closed_by,
    }


def documents(state: State, incidents: Sequence[Incident], now: datetime) -> list[dict[str, Any]]:
    """Incidents for programs, with whose move each is by what is out now."""
    moves = whose_moves(state, incidents, now)
    return [document(each, now) | {"move": moves[each.id]} for each in incidents]


def whose_moves(state: State, incidents: Iterable[Incident], now: datetime) -> dict[str, str]:
    """Whose move each incident is. Of a pool that is short that depends on what is out: it is looked up now, because
    planned work ends and nodes break while the amount stays the same."""
    incidents, short = list(incidents), shortfalls(state)
    named = {pool.stream: pool for pool in short}
    pools = {each.id: named[each.about] for each in incidents if each.has_trouble and each.about in named}
    outs = nodes_out(state, set(pools.values()), now=now)
    moves = {each.id: each.move for each in incidents}
    for name, pool in pools.items():
        guaranteed, healthy = short[pool]
        moves[name] = _move_of_short(state, outs[pool], guaranteed - healthy)
    return moves


def _move_of_short(state: State, outs: Sequence[Out], missing: int) -> str:
    """Where planned work has as many GPUs as are missing, and more than faults have, it is its move: the promise holds
    again when it ends."""
    planned = [out for out in outs if out.is_planned]
    if not planned:
        return Kind.BROKEN_PROMISE.move
    gpus, others = (sum(out.node.gpus for out in outs if out.is_planned is each) for each in (True, False))
    work = f"{len(planned):,} of {counted(len(outs), 'node')} out: {_works(state, planned)}; {_ends(planned)}"
    if gpus >= missing and gpus > others:
        return f"planned work, {work}"
    return f"{Kind.BROKEN_PROMISE.move}; planned work has {work}"


def _works(state: State, planned: Sequence[Out]) -> str:
    """`nic-firmware, tiger batch 1 (of omar@example.org)`: the planned work that has nodes, the most first."""
    holds = state.of(Health).holds
    works = Counter[tuple[str, str]]()
    for out in planned:
        owners = {hold.owner for hold in holds.get(out.node.id, ()) if hold.reason == out.node.reason}
        works[_work(out), ", ".join(sorted(owners))] += 1
    listed = sorted(works, key=lambda each: (-works[each], each))
    words = [f"{name} (of {owner})" if owner else name for name, owner in listed[:WORKS_NAMED]]
    more = [f"{len(listed) - WORKS_NAMED} more"] if len(listed) > WORKS_NAMED else []
    return " and ".join([", ".join(words), *more])


def _work(out: Out) -> str:
    """What is done to a node, without the word that says it was planned."""
    reason = out.node.reason or out.reason
    kind = next((kind for kind in PLANNED_REASONS if reason.casefold().startswith(kind)), "")
    return reason[len(kind) :].strip() or reason


def _ends(planned: Sequence[Out]) -> str:
    """When all that planned work has is back, as far as somebody said so."""
    ends = [out.back for out in planned if out.is_told and out.back is not None]
    if not ends:
        return "nobody said when it ends"
    unsaid = len(planned) - len(ends)
    return f"back by {show_second(max(ends))}" + (f", of {unsaid:,} nobody said when" if unsaid else "")


def row(incident: Incident, now: datetime) -> tuple[object, ...]:
    """An incident as a line of a table."""
    clusters = ", ".join(incident.clusters[:3])
    clusters += f" and {len(incident.clusters) - 3} more" if len(incident.clusters) > 3 else ""
    if incident.closed_at is not None:
        standing = numbers_text(incident.numbers_at(now))
    elif incident.unit:
        words = f"{amount_text(incident.amount, incident.unit)} {incident.kind.measure}"
        standing = words if incident.is_on else "gone"
    else:
        standing = ""
    return (
        incident.id,
        str(incident.kind),
        incident.opened_at,
        incident.opened_by,
        ", ".join(incident.roster),
        clusters or "all",
        incident.title,
        standing,
        incident.notes[-1][2] if incident.notes else "",
        incident.closed_at,
    )


def notices(
    state: State,
    *,
    team: str = "",
    owner: str = "",
    workload: str = "",
    since: datetime | None = None,
    incident: Incident | None = None,
) -> list[OwnerNotice]:
    """What owners were told, the newest first; with an incident, of what happened while it was open where it is."""
    found = [
        each
        for mine in state.of(Incidents).notices.values()
        for each in mine
        if team in ("", each.team)
        and owner in ("", each.owner)
        and workload in ("", each.workload)
        and (since is None or each.told_at >= since)
        and (incident is None or _is_meanwhile(state, each, incident))
    ]
    return sorted(found, key=lambda each: (each.told_at, each.at, each.workload, each.by), reverse=True)


def _is_meanwhile(state: State, notice: OwnerNotice, incident: Incident) -> bool:
    """Whether it happened while an incident was open, in its clusters, and to its team where it is about one's."""
    is_then = incident.opened_at <= notice.at and (incident.closed_at is None or notice.at <= incident.closed_at)
    if not is_then or (incident.about.startswith("team/") and notice.team not in incident.teams):
        return False
    return not incident.clusters or _cluster_of(state, notice) in incident.clusters


def _cluster_of(state: State, notice: OwnerNotice) -> str:
    """Where it happened: where the node is that it was told by; else where the work is, or was to its end."""
    fleet, tables = state.of(Fleet), state.of(Workloads)
    if (node := fleet.nodes.get(notice.by)) is not None:
        return node.cluster
    if notice.by in fleet.clusters:
        return notice.by
    if (workload := tables.workloads.get(notice.workload)) is not None:
        return workload.cluster
    past = tables.past.get(notice.workload)
    return past.cluster if past is not None else ""


def notice_document(notice: OwnerNotice) -> dict[str, Any]:
    return {
        "workload": notice.workload,
        "team": notice.team,
        "owner": notice.owner,
        "at": notice.at,
        "told_at": notice.told_at,
        "what": str(notice.what),
        "by": notice.by,
        "happened": notice.happened,
        "done": notice.done,
        "left": notice.left,
        "gpus": notice.gpus,
    }


def notice_row(notice: OwnerNotice) -> tuple[object, ...]:
    return (
        notice.told_at,
        notice.workload,
        notice.team,
        notice.owner,
        str(notice.what),
        notice.happened,
        notice.done,
        notice.left,
    )


def posts_of(state: State, incident: str) -> Sequence[Post]:
    """What was posted, or is to be, about an incident, the oldest first."""
    found = [post for post in state.of(Incidents).posts.values() if post.subject == incident and not post.is_to_owners]
    return sorted(found, key=lambda post: (post.queued_at, post.id))
