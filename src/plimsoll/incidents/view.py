"""Incidents and notices as people and programs read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from plimsoll.incidents.decide import amount_text, numbers_text
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Incident, OwnerNotice, Post
from plimsoll.state.state import State

COLUMNS = ("incident", "kind", "opened", "by", "on_call", "clusters", "title", "now", "last_note", "closed")
NOTICE_COLUMNS = ("told", "workload", "team", "owner", "what", "happened", "done", "left")
NOTE_COLUMNS = ("at", "by", "note")


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
        "is_on": incident.is_on if incident.kind.is_automatic else incident.closed_at is None,
        "move": incident.kind.move,
        "next_step": incident.next_step,
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
    state: State, *, team: str = "", owner: str = "", workload: str = "", since: datetime | None = None
) -> list[OwnerNotice]:
    """What owners were told, the newest first."""
    found = [
        each
        for mine in state.of(Incidents).notices.values()
        for each in mine
        if team in ("", each.team)
        and owner in ("", each.owner)
        and workload in ("", each.workload)
        and (since is None or each.told_at >= since)
    ]
    return sorted(found, key=lambda each: (each.told_at, each.at, each.workload, each.by), reverse=True)


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
