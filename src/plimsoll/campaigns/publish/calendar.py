"""A plan as iCalendar feeds: one of the campaign, one of each team, one of each cluster. Pure.

`advance` decides what subscribers are told anew: the SEQUENCE of an event goes up when its time or its nodes changed,
and only then; what vanished from the plan stays in the feed as cancelled, so that no calendar keeps showing it. Asked
twice with the same plan it gives the same answer. Who was told of an event once stays told: a team that has given its
quota back still sees the work end as it began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from plimsoll.campaigns.model import Batch, Mode, Plan, Status
from plimsoll.campaigns.publish.changes import BatchChange, ChangeKind, what_changed
from plimsoll.campaigns.publish.ics import document, is_utc, text_line, time_line, utc_line, zone_lines
from plimsoll.campaigns.publish.model import FeedEvent, FeedState, Published, digest, feed_file, slug
from plimsoll.words import counted

CAMPAIGN_FILE = "campaign.ics"
PRODUCT = "-//Plimsoll//Campaigns//EN"
ORGANIZER = "ORGANIZER;CN=Plimsoll:mailto:plimsoll@plimsoll.invalid"
"""RFC 5546 wants one in what is published; nobody reads mail there, so nobody can send an answer by mistake."""
REFRESH = "PT1H"
TEAMS_SHOWN_MAX = 20
_Which = Callable[[FeedEvent], bool]


def uid_of(campaign: str, batch: Batch) -> str:
    """The same batch has the same one in every plan."""
    return f"{slug(campaign)}:{slug(batch.unit)}:{batch.number}@plimsoll"


def advance(state: FeedState, published: Published) -> FeedState:
    """What calendars know after this plan was told."""
    events = dict(state.events)
    planned = {uid_of(published.name, batch): batch for batch in published.batches}
    for uid, batch in planned.items():
        events[uid] = _told(state.events.get(uid), batch, published)
    for uid, known in state.events.items():
        if uid not in planned and not known.is_cancelled:
            events[uid] = msgspec.structs.replace(
                known,
                sequence=known.sequence + 1,
                is_cancelled=True,
                plan=published.number,
                modified_at=_whole(published.generated_at),
            )
    return FeedState(dict(sorted(events.items())))


def _told(known: FeedEvent | None, batch: Batch, published: Published) -> FeedEvent:
    unit = published.unit_by_name.get(batch.unit)
    teams = set(published.teams_of(batch.unit)) | set(known.teams if known else ())
    names = published.nodes_of(batch)
    event = FeedEvent(
        unit=batch.unit,
        cluster=published.cluster_of(batch.unit),
        number=batch.number,
        start=_whole(batch.start),
        end=_whole(batch.end),
        nodes=batch.nodes,
        scope=digest(names) if names else "",
        plan=published.number,
        modified_at=_whole(published.generated_at),
        teams=tuple(sorted(teams)),
        place=", ".join([unit.cluster.id, unit.cluster.colo, unit.cluster.region]) if unit else batch.unit,
    )
    if known is None:
        return event
    is_moved = _essence(event) != _essence(known) or known.is_cancelled
    event = msgspec.structs.replace(event, sequence=known.sequence + is_moved)
    unmodified = msgspec.structs.replace(event, modified_at=known.modified_at)
    return unmodified if unmodified == known else event


def _essence(event: FeedEvent) -> tuple[object, ...]:
    """What a subscriber has to be told of when it changes."""
    return (event.start, event.end, event.nodes, event.scope)


def _whole(moment: datetime) -> datetime:
    """Calendars know whole seconds."""
    return moment.astimezone(UTC).replace(microsecond=0)


def told_plan(state: FeedState, campaign: str) -> Plan | None:
    """The plan that subscribers know: what is new is new against it, also where numbers in between were never told."""
    events = [event for event in state.events.values() if not event.is_cancelled]
    if not state.events:
        return None
    parts = Counter(event.unit for event in events)
    batches = (
        Batch(
            event.unit,
            Mode.WHOLE if parts[event.unit] == 1 else Mode.ROLLING,
            event.number,
            event.nodes,
            event.start,
            event.end,
        )
        for event in events
    )
    listed = sorted(batches, key=lambda batch: (batch.start, batch.unit, batch.number))
    number = max(event.plan for event in state.events.values())
    return Plan(campaign, number, Status.UNKNOWN, None, None, tuple(listed))


def feeds(published: Published, state: FeedState, *, names_teams: bool = True) -> dict[str, bytes]:
    """Every feed by the name of its file. `state` is what `advance` gave for this plan."""
    teams = sorted({team for event in state.events.values() for team in event.teams})
    clusters = sorted({event.cluster for event in state.events.values()})
    written = _write(published, state, names_teams=names_teams)
    found = {CAMPAIGN_FILE: _feed(published, written, f"{published.name}: planned work", lambda _: True)}
    for team in teams:
        name = f"{published.name}: planned work that hits {team}"
        found[feed_file("team", team)] = _feed(published, written, name, _is_of_team(team))
    for cluster in clusters:
        name = f"{published.name}: planned work on {cluster}"
        found[feed_file("cluster", cluster)] = _feed(published, written, name, _is_of_cluster(cluster))
    return found


def _is_of_team(team: str) -> _Which:
    return lambda event: team in event.teams


def _is_of_cluster(cluster: str) -> _Which:
    return lambda event: event.cluster == cluster


def _write(published: Published, state: FeedState, *, names_teams: bool) -> list[tuple[FeedEvent, bytes]]:
    """Every event in the order of time, written once for all feeds that it is in."""
    found = what_changed(published)
    changed = {change.id: change for change in found.changes}
    batches = {batch.id: batch for batch in published.batches}
    written = []
    for uid, event in sorted(state.events.items(), key=lambda pair: (pair[1].start, pair[1].unit, pair[1].number)):
        name = f"{event.unit}#{event.number}"
        about = _description(published, event, batches.get(name), changed.get(name), names_teams=names_teams)
        written.append((event, document(_event_lines(published, uid, event, about))))
    return written


def _feed(published: Published, written: Sequence[tuple[FeedEvent, bytes]], title: str, is_in: _Which) -> bytes:
    listed = [(event, body) for event, body in written if is_in(event)]
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        f"PRODID:{PRODUCT}",
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        text_line("X-WR-CALNAME", title),
        text_line("NAME", title),
        text_line("X-WR-CALDESC", f"Plan {published.number}. {_what(published)}"),
        f"X-WR-TIMEZONE:{published.campaign.window.tz}",
        f"REFRESH-INTERVAL;VALUE=DURATION:{REFRESH}",
        f"X-PUBLISHED-TTL:{REFRESH}",
    ]
    if listed and not is_utc(published.campaign.window.tz):
        first, last = min(event.start for event, _ in listed), max(event.end for event, _ in listed)
        lines += zone_lines(published.campaign.window.tz, first=first, last=last)
    return b"".join([document(lines), *(body for _, body in listed), document(["END:VCALENDAR"])])


def _event_lines(published: Published, uid: str, event: FeedEvent, about: Sequence[str]) -> Sequence[str]:
    zone = published.campaign.window.tz
    lines = [
        "BEGIN:VEVENT",
        text_line("UID", uid),
        utc_line("DTSTAMP", published.generated_at),
        utc_line("LAST-MODIFIED", event.modified_at),
        f"SEQUENCE:{event.sequence}",
        time_line("DTSTART", event.start, zone),
        time_line("DTEND", event.end, zone),
        text_line("SUMMARY", _summary(published, event)),
        text_line("DESCRIPTION", "\n".join(about)),
        text_line("LOCATION", event.place),
        f"CATEGORIES:{','.join(['planned work', published.name])}",
        ORGANIZER,
        f"STATUS:{'CANCELLED' if event.is_cancelled else 'CONFIRMED'}",
        "TRANSP:TRANSPARENT",
    ]
    if published.url:
        lines.append(f"URL:{published.url}")
    return [*lines, "END:VEVENT"]


def _summary(published: Published, event: FeedEvent) -> str:
    parts = published.batch_counts.get(event.unit, 1)
    batch = f", batch {event.number} of {parts}" if parts > 1 and event.number <= parts else ""
    words = f"{event.unit}: {counted(event.nodes, 'node')} out for {published.name}{batch} (plan {event.plan})"
    return f"Cancelled: {words}" if event.is_cancelled else words


def _what(published: Published) -> str:
    listed = ", ".join(f"{change.component} {change.version}" for change in published.campaign.changes)
    return f"Planned work: {listed}."


def _description(
    published: Published, event: FeedEvent, batch: Batch | None, change: BatchChange | None, *, names_teams: bool
) -> list[str]:
    lines = [f"Plan {event.plan} of campaign {published.name}. {_what(published)}"]
    if event.is_cancelled:
        return [*lines, f"Cancelled: plan {event.plan} does not have it any more."]
    if batch is not None:
        lots = ", ".join(f"{lot.nodes:,} x {lot.sku}" for lot in published.lots_of(batch))
        how = "The whole of it at once" if batch.mode is Mode.WHOLE else "A share of its nodes each day"
        lines.append(f"{counted(batch.nodes, 'node')}{f' ({lots})' if lots else ''}. {how}.")
        if stays := published.stays_of(batch):
            lines.append(f"About {counted(stays, 'node')} may not come back at once and will be in repair.")
    if change is not None and (words := _change_text(published, change)):
        lines.append(words)
    if names_teams and (teams := published.teams_of(event.unit)):
        more = f" and {len(teams) - TEAMS_SHOWN_MAX} more" if len(teams) > TEAMS_SHOWN_MAX else ""
        lines.append(f"Teams with quota there: {', '.join(teams[:TEAMS_SHOWN_MAX])}{more}.")
    if published.campaign.roster:
        lines.append(f"Standing by: {', '.join(published.campaign.roster)}.")
    return lines


def _change_text(published: Published, change: BatchChange) -> str:
    assert published.previous is not None, "what changed has a plan before it"
    number = published.previous.number
    if change.kind is ChangeKind.ADDED:
        return f"Not in plan {number}."
    if change.before is None or change.after is None:
        return ""
    was = published.local(change.before.start)
    if change.after.start != change.before.start or change.after.end != change.before.end:
        until = published.local(change.before.end)
        return f"In plan {number} it was {was:%a} {was.day} {was:%b} {was:%H:%M}-{until:%H:%M} ({was.tzname()})."
    return f"In plan {number} it had {counted(change.before.nodes, 'node')}."
