"""Builders of what is published: the defaults are valid, so that a test says only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import icalendar

from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.model import Batch, Campaign, Limit, LimitKind, Mode, NoFly, Plan, Score, Status
from plimsoll.campaigns.publish.calendar import advance, feeds
from plimsoll.campaigns.publish.model import Cap, FeedState, Holder, Published
from plimsoll.campaigns.units import Lot, Unit
from plimsoll.fleet.model import Area, Cluster, Phase, Purpose
from plimsoll.fleet.selector import Scope

MONDAY = datetime(2026, 1, 5, 11, tzinfo=UTC)
NOW = datetime(2026, 1, 4, 9, 30, 15, tzinfo=UTC)
FILE = """\
campaign: {name}
changes: [{{component: nic, version: "28.43"}}]
start: 2026-01-05
deadline: 2026-01-22
window: {{hours: [11, 20], tz: {tz}}}
work: [{{mode: whole, hours: 4}}]
roster: [ada, bo]
"""


def campaign(name: str = "nic-firmware", *, tz: str = "UTC") -> Campaign:
    return parse_campaign(FILE.format(name=name, tz=tz), source="test.yaml")


def unit(
    name: str = "tiger",
    *,
    nodes: int = 4,
    batches: int = 1,
    cluster: str = "",
    area: str = "us",
    stays: int = 0,
    stay_days: int = 2,
    sku: str = "H200",
    no_fly: tuple[NoFly, ...] = (),
) -> Unit:
    """A unit whose batches have so many nodes each, called `tiger-1-001` and so on."""
    home = cluster or name.partition("/")[0]
    found = Cluster(home, f"{area}-north", Area(area), f"{area}-1", "acme", Purpose.RESEARCH, Phase.PRODUCTION)
    names = tuple(tuple(f"{name}-{part}-{number:03}" for number in range(nodes)) for part in range(1, batches + 1))
    return Unit(
        name=name,
        cluster=found,
        values=(("area", area), ("cluster", home)),
        mode=Mode.WHOLE if batches == 1 else Mode.ROLLING,
        minutes=240,
        batches=names,
        lots=tuple((Lot(sku, 8, nodes),) for _ in range(batches)),
        stays=(stays,) * batches,
        stay_minutes=stay_days * 24 * 60,
        weight=1.0,
        group=None,
        is_canary=False,
        no_fly=no_fly,
    )


def batch(
    name: str = "tiger", *, day: int = 0, hour: int = 0, hours: int = 4, number: int = 1, nodes: int = 4
) -> Batch:
    """So many days and hours after Monday 5 January 2026, 11:00 UTC."""
    start = MONDAY + timedelta(days=day, hours=hour)
    return Batch(name, Mode.WHOLE, number, nodes, start, start + timedelta(hours=hours))


def plan(batches: Iterable[Batch], *, number: int = 1, name: str = "nic-firmware") -> Plan:
    score = Score(total=1000.0, exposure=900.0, imbalance=0.005, peak=8.0)
    return Plan(name, number, Status.FEASIBLE, score, 980.0, tuple(batches), Score(1200.0, 1100.0, 0.1, 9.0))


def cap(most: float, **terms: Any) -> Cap:
    limit = Limit(LimitKind.OUT_AT_ONCE, at_most=most, **terms)
    return Cap(limit, most)


def scope(**terms: str) -> Scope:
    return Scope(tuple((key, (value,)) for key, value in terms.items()))


def publish(
    batches: Iterable[Batch],
    *,
    units: Iterable[Unit] | None = None,
    number: int = 1,
    previous: Plan | None = None,
    tz: str = "UTC",
    name: str = "nic-firmware",
    teams: Mapping[str, tuple[str, ...]] | None = None,
    at: datetime = NOW,
    **more: Any,
) -> Published:
    """A plan with its units; `teams` are the teams that hold quota in a cluster, by its name."""
    listed = tuple(batches)
    if units is None:
        counts = {each.unit: 0 for each in listed}
        for each in listed:
            counts[each.unit] = max(counts[each.unit], each.number)
        units = [unit(each, batches=count) for each, count in counts.items()]
    holders = tuple(Holder(team, cluster, "H200", 16) for cluster, names in (teams or {}).items() for team in names)
    return Published(
        campaign=campaign(name, tz=tz),
        plan=plan(listed, number=number, name=name),
        units=tuple(units),
        generated_at=at,
        previous=previous,
        holders=holders,
        **more,
    )


def read(body: bytes) -> list[Any]:
    """The events of a feed, as a calendar client reads them."""
    calendar = icalendar.Calendar.from_ical(body)
    assert isinstance(calendar, icalendar.Calendar)
    assert not calendar.errors
    events = list(calendar.walk("VEVENT"))
    assert all(not event.errors for event in events)
    return events


def feed_of(published: Published, state: FeedState, name: str = "campaign.ics") -> dict[str, Any]:
    """The events of a feed by UID."""
    return {str(event["UID"]): event for event in read(feeds(published, state)[name])}


def tell(*plans: Published) -> FeedState:
    """The state after these were published one after the other."""
    state = FeedState()
    for published in plans:
        state = advance(state, published)
    return state
