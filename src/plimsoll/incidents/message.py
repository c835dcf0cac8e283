"""What is posted to a chat about an incident or about notices: the numbers, whose move it is, where to look. Pure.

The form is that of a Slack-compatible webhook: blocks, and a text for where blocks are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from plimsoll.incidents.decide import amount_text, numbers_text
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Incident, OwnerNotice, Post
from plimsoll.incidents.view import whose_moves
from plimsoll.state.state import State
from plimsoll.times import show_second
from plimsoll.words import counted

HEADER_CHARS_MAX, SECTION_CHARS_MAX, TEXT_CHARS_MAX = 150, 3_000, 3_000
"""What Slack takes in one block; longer ones refuse the whole message."""
NOTICES_SHOWN_MAX = 10
CLUSTERS_SHOWN_MAX = 5
Message = dict[str, Any]


def message_of(state: State, post: Post, *, url: str, now: datetime) -> Message | None:
    """The message of a post; None where what it is about is forgotten. `url` is where our pages are, if anywhere."""
    tables = state.of(Incidents)
    if post.is_to_owners:
        notices = [each for mine in tables.notices.values() for each in mine if each.post == post.id]
        return _notices_message(notices, url) if notices else None
    incident = tables.incidents.get(post.subject)
    if incident is None:
        return None
    move = whose_moves(state, [incident], now)[incident.id]
    return incident_message(incident, post.what, move=move, url=url, now=now)


def incident_message(incident: Incident, what: str, *, move: str, url: str, now: datetime) -> Message:
    """An incident that opened, is back, or closed. `move` is whose it is; nobody's where its trouble is gone by now."""
    words = {"opened": "Open", "back": "Back", "closed": "Closed"}[what]
    lines = []
    if what == "closed":
        lines.append(f"It came to: {numbers_text(incident.numbers_at(now))}")
    elif incident.unit:
        detail = incident.notes[-1][2] if incident.notes else amount_text(incident.amount, incident.unit)
        lines.append(detail)
    lines.append(f"Since {show_second(incident.opened_at)}, {_where(incident)}")
    if incident.teams and what != "closed":
        lines.append(f"Teams hurt: {_some(incident.teams)}")
    if what != "closed":
        whose = f"Whose move: {move}" if move else ""
        on_call = f"on call: {', '.join(incident.roster)}" if incident.roster else ""
        lines += ["; ".join(filter(None, (whose, on_call)))] if whose or on_call else []
    if what != "closed" and incident.has_trouble and incident.next_step:
        lines.append(f"Next: {incident.next_step}")
    link = f"{url.rstrip('/')}/incidents/{incident.id}" if url else ""
    return _message(f"{words}: {incident.title}", lines, f"{incident.id} ({incident.kind})", link)


def _where(incident: Incident) -> str:
    return f"about {_some(incident.clusters)}" if incident.clusters else "about the whole fleet"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - CLUSTERS_SHOWN_MAX} more" if len(names) > CLUSTERS_SHOWN_MAX else ""
    return f"{', '.join(names[:CLUSTERS_SHOWN_MAX])}{more}"


def _notices_message(notices: Sequence[OwnerNotice], url: str) -> Message:
    listed = sorted(notices, key=lambda each: (each.owner or each.team, each.workload, each.at))
    lines = [
        f"{each.owner or f'team {each.team}'}: {each.workload}: {each.happened}; {each.done}; left to do: {each.left}"
        for each in listed[:NOTICES_SHOWN_MAX]
    ]
    if len(listed) > NOTICES_SHOWN_MAX:
        lines.append(f"and {len(listed) - NOTICES_SHOWN_MAX} more: plimsoll incident notices")
    owners = len({(each.owner, each.team) for each in listed})
    heading = f"Running work was hit: {counted(len(listed), 'notice')} for {counted(owners, 'owner')}"
    return _message(heading, lines, "plimsoll incident notices", f"{url.rstrip('/')}/incidents" if url else "")


def _message(heading: str, lines: Sequence[str], footer: str, link: str) -> Message:
    blocks: list[Message] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(heading, HEADER_CHARS_MAX)}},
        _block("\n".join(_escaped(line) for line in lines)),
        {"type": "context", "elements": [{"type": "mrkdwn", "text": _cut(_escaped(footer), SECTION_CHARS_MAX)}]},
    ]
    if link:
        blocks.append(_block(f"<{_escaped(link)}|Look at it>"))
    return {"text": _cut(_escaped("\n".join([heading, *lines])), TEXT_CHARS_MAX), "blocks": blocks}


def _block(text: str) -> Message:
    return {"type": "section", "text": {"type": "mrkdwn", "text": _cut(text, SECTION_CHARS_MAX)}}


def _escaped(text: str) -> str:
    """Three signs have a meaning for Slack whatever stands around them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
