"""Small fleets and campaign files in a few words, and every plan that they allow, each judged by the checker.

`first_plan` is a plan that passes, `best_plan` one that none beats; both go through all starts of all units: they are
for a handful of units. They know nothing of the solver, and are what it is held against.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import yaml

from plimsoll.campaigns.check.due import Due, ask
from plimsoll.campaigns.check.found import Code, Problem
from plimsoll.campaigns.check.plan import check_plan
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.model import Batch, Campaign, LimitKind, Mode, Score
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.state.table import Journal

TRIES_MAX = 200_000 if os.environ.get("PLIMSOLL_SOAK") else 3_000
"""Questions to the checker after which a search gives up: the case is not small. Few cases come to more, and those take
minutes each.
"""

LIMIT_CODES = frozenset(Code(kind.value) for kind in LimitKind)
"""What can be wrong with a plan as a whole though every unit is right by itself."""

FILE: dict[str, Any] = {
    "campaign": "fix",
    "changes": [{"component": "nic", "version": "2", "impact": "disruptive"}],
    "scope": {},
    "start": "2026-01-05",  # a Monday
    "deadline": "2026-01-07",
    "window": {"hours": [10, 16], "tz": "UTC"},
    "slot_minutes": 120,
    "work": [{"scope": {}, "mode": "whole", "hours": 2}],
}


class TooMany(Exception):
    """The search was not small."""


class Found(NamedTuple):
    """A plan and what the checker says of its objective."""

    batches: tuple[Batch, ...]
    score: Score


def file_text(**changes: Any) -> str:
    """A valid file with these keys changed; None leaves one out."""
    found = {key: value for key, value in (FILE | changes).items() if value is not None}
    return yaml.safe_dump(found, sort_keys=False)


def campaign_of(**changes: Any) -> Campaign:
    return parse_campaign(file_text(**changes), source="file.yaml")


class Ship(NamedTuple):
    """A cluster in a few words: how many nodes of each SKU, and what is not as usual."""

    nodes: Mapping[str, int]
    area: str = "us"
    purpose: str = "research"
    colo: str = ""
    phase: str = "production"
    labels: Mapping[str, str] = {}
    node_labels: Sequence[Mapping[str, str]] = ()
    """The labels of its first nodes, in order."""
    retired: int = 0
    """How many more nodes it has that are retired."""
    gpus: int = 8


def fleet_of(**ships: Ship | int) -> Fleet:
    """A fleet of clusters by name; a bare number is so many nodes of H100."""
    fleet = Fleet(Journal())
    for name, given in ships.items():
        ship = given if isinstance(given, Ship) else Ship({"H100": given})
        fleet.clusters.put(
            name,
            Cluster(
                id=name,
                region=f"{ship.area}-1",
                area=Area(ship.area),
                colo=ship.colo or f"{name}-colo",
                provider="acme",
                purpose=Purpose(ship.purpose),
                phase=Phase(ship.phase),
                labels=dict(ship.labels),
            ),
        )
        skus = [sku for sku, count in ship.nodes.items() for _ in range(count)]
        retired = [next(iter(ship.nodes), "H100")] * ship.retired
        for number, sku in enumerate([*skus, *retired]):
            service = Service.IN_SERVICE if number < len(skus) else Service.RETIRED
            labels = dict(ship.node_labels[number]) if number < len(ship.node_labels) else {}
            node = Node(f"{name}-{number:03}", name, f"{name}-i1", sku, ship.gpus, service, labels=labels)
            fleet.put_node(node)
    return fleet


def at(text: str, tz: str = "UTC") -> datetime:
    """`05 10:30` is a moment of January 2026; a full date works as well."""
    if len(text) == len("05 10:30"):
        text = f"2026-01-{text}"
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz))


def batch(
    unit: str, start: str, *, nodes: int, hours: float = 2, number: int = 1, mode: str = "whole", tz: str = "UTC"
) -> Batch:
    begins = at(start, tz)
    ends = (begins.astimezone(UTC) + timedelta(hours=hours)).astimezone(begins.tzinfo)
    return Batch(unit, Mode(mode), number, nodes, begins, ends)


def problems_of(
    campaign: Campaign, fleet: Fleet, batches: Sequence[Batch], *, but: Collection[Code] = ()
) -> list[Problem]:
    """What is wrong with a plan that need not be whole yet; what does not matter is left out."""
    found = check_plan(campaign, fleet, batches).problems
    return [each for each in found if each.code is not Code.UNIT_MISSING and each.code not in but]


def starts_of(campaign: Campaign, fleet: Fleet, due: Due, *, but: Collection[Code] = ()) -> list[tuple[Batch, ...]]:
    """Every way to do one unit that is not wrong by itself, earliest first."""
    return list(_ways(campaign, fleet, due, but=but))


def _ways(
    campaign: Campaign, fleet: Fleet, due: Due, *, but: Collection[Code] = (), on_try: Callable[[], None] = lambda: None
) -> Iterator[tuple[Batch, ...]]:
    window, zone = campaign.window, ZoneInfo(campaign.window.tz)
    days = [campaign.start + timedelta(days=number) for number in range((campaign.deadline - campaign.start).days + 1)]
    zones = [campaign.no_fly[place] for place in due.no_fly]
    permitted = [
        day
        for day in days
        if day.weekday() in window.days and not any(each.from_day <= day <= each.to_day for each in zones)
    ]
    for first in range(len(permitted) - len(due.batches) + 1):
        for minutes in range(window.opens, window.closes, campaign.slot_minutes):
            clock = timedelta(minutes=minutes)
            batches = []
            for number, lots in enumerate(due.batches):
                local = datetime.combine(permitted[first + number], datetime.min.time()) + clock
                start = local.replace(tzinfo=zone)
                assert due.work is not None
                end = (start.astimezone(UTC) + timedelta(minutes=due.work.minutes)).astimezone(zone)
                nodes = sum(count for _, count in lots)
                batches.append(
                    Batch(due.name, due.mode, number + 1, nodes, start.astimezone(UTC).astimezone(zone), end)
                )
            on_try()
            if not problems_of(campaign, fleet, batches, but=but):
                yield tuple(batches)


def plans(campaign: Campaign, fleet: Fleet) -> Iterator[Found]:
    """Every plan that passes. Whatever is wrong with a part of a plan stays wrong, so such parts are left at once."""
    units = list(ask(campaign, fleet).due.values())
    tries = 0

    def on_try() -> None:
        nonlocal tries
        tries += 1
        if tries > TRIES_MAX:
            raise TooMany(f"{len(units)} units")

    ways = [list(_ways(campaign, fleet, due, on_try=on_try)) for due in units]
    order = sorted(range(len(units)), key=lambda place: (not units[place].is_canary, len(ways[place])))

    def go_on(depth: int, chosen: tuple[Batch, ...]) -> Iterator[tuple[Batch, ...]]:
        if depth == len(order):
            yield chosen
            return
        for way in ways[order[depth]]:
            on_try()
            if not problems_of(campaign, fleet, [*chosen, *way]):
                yield from go_on(depth + 1, (*chosen, *way))

    if all(ways):
        for batches in go_on(0, ()):
            checked = check_plan(campaign, fleet, batches)
            assert checked.is_valid
            yield Found(tuple(sorted(batches, key=lambda each: (each.start, each.unit, each.number))), checked.score)


def first_plan(campaign: Campaign, fleet: Fleet) -> Found | None:
    """A plan that passes; None where there is none."""
    return next(plans(campaign, fleet), None)


def best_plan(campaign: Campaign, fleet: Fleet) -> Found | None:
    """A plan with the lowest total of all; None where there is none."""
    return min(plans(campaign, fleet), key=lambda found: found.score.total, default=None)
