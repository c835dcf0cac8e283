"""Builders for versions on nodes: a state without a database, courses without a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from plimsoll.campaigns.model import Campaign, Impact, ImpactRule, Mode, NoFly, VersionChange, Window, Work
from plimsoll.campaigns.versions.changes import VersionsRecorded
from plimsoll.campaigns.versions.courses import Bite, Course, Update
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.campaigns.versions.model import Combination, make_combination
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.fleet.selector import Scope
from plimsoll.ledger.model import Change, Draft
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.times import format_time

MONDAY = datetime(2026, 1, 5, 0, 0, tzinfo=UTC)
FIRST_DAY = MONDAY.date()


def at(day: int = 0, hour: int = 0) -> datetime:
    """So many days and hours after that Monday."""
    return MONDAY + timedelta(days=day, hours=hour)


def cluster(name: str, **fields: object) -> Cluster:
    base = Cluster(name, "us-north", Area.US, "colo-1", "acme", Purpose.RESEARCH, Phase.PRODUCTION)
    return Cluster(**{field: fields.get(field, getattr(base, field)) for field in base.__struct_fields__})  # type: ignore[arg-type]


def node(name: str, where: str, *, sku: str = "H200", service: Service = Service.IN_SERVICE, **labels: str) -> Node:
    return Node(name, where, f"{where}-a", sku, 8, service, labels=labels)


class Yard:
    """A state whose changes nobody commits. `sizes`: nodes by cluster, named `tiger-1`, `tiger-2`, …"""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.state = State(KINDS)
        self.fleet, self.versions = self.state.of(Fleet), self.state.of(Versions)
        for name, count in sizes.items():
            self.do(ClusterRecorded(cluster(name)))
            self.do(*(NodeRecorded(node(f"{name}-{number}", name)) for number in range(1, count + 1)))

    def do(self, *changes: Change, when: datetime = MONDAY) -> None:
        self.take([Draft(change) for change in changes], when=when)

    def take(self, drafts: Iterable[Draft], *, when: datetime = MONDAY) -> None:
        self.state.assume(drafts, recorded_at=format_time(when))

    def put(self, where: str, names: Iterable[str], when: datetime = MONDAY, /, **versions: str) -> None:
        """These nodes have these versions; `nic_firmware` stands for nic-firmware."""
        found = {component.replace("_", "-"): version for component, version in versions.items()}
        self.do(VersionsRecorded(where, found, list(names)), when=when)

    def put_all(self, where: str, when: datetime = MONDAY, /, **versions: str) -> None:
        self.put(where, [each.id for each in self.fleet.nodes.values() if each.cluster == where], when, **versions)


def pairs(**versions: str) -> Combination:
    return make_combination({component.replace("_", "-"): version for component, version in versions.items()})


def campaign(name: str = "nic", *zones: NoFly, **versions: str) -> Campaign:
    rules = (ImpactRule(Scope(), Impact.DISRUPTIVE),)
    changes = tuple(VersionChange(component, version, rules) for component, version in pairs(**versions))
    return Campaign(
        name=name,
        changes=changes,
        scope=Scope(),
        start=FIRST_DAY,
        deadline=FIRST_DAY + timedelta(days=13),
        window=Window(11 * 60, 20 * 60, "UTC", tuple(range(7))),
        slot_minutes=60,
        work=(Work(Scope(), Mode.WHOLE, 240),),
        no_fly=zones,
    )


def course(
    what: Campaign,
    updates: Iterable[Update],
    *,
    since: datetime = MONDAY,
    held: Mapping[str, tuple[Bite, ...]] | None = None,
    is_over: bool = False,
) -> Course:
    return Course(what, since, tuple(sorted(updates, key=lambda update: update.ends)), held or {}, is_over)


def update(unit: str, names: Iterable[str], starts: datetime, *, hours: int = 4, **fields: object) -> Update:
    return Update(unit, f"{unit}#1", tuple(names), starts, starts + timedelta(hours=hours))._replace(**fields)  # type: ignore[arg-type]
