"""The nouns of publishing: what is told, and what calendars were told before. Frozen.

Whatever is made of `Published` carries the plan's number, and is the same for the same `Published`: nothing here knows
what time it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from functools import cached_property
from zoneinfo import ZoneInfo

import msgspec

from plimsoll.campaigns.model import Batch, Campaign, Limit, Plan
from plimsoll.campaigns.units import Lot, Unit

SLUG_CHARS_MAX = 80


class Holder(msgspec.Struct, frozen=True):
    """A team that is hit when a cluster goes out: it holds quota there, `gpus` of it."""

    team: str
    cluster: str
    sku: str
    gpus: int


class Cap(msgspec.Struct, frozen=True):
    """A limit on what is out at once, and what it comes to on this fleet, in its unit."""

    limit: Limit
    most: float


class FeedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as calendars know it. `scope` stands for the names of its nodes, `plan` is the number that it carried
    when it was last told, `teams` is everybody who was ever told of it."""

    unit: str
    cluster: str
    number: int
    start: datetime
    end: datetime
    nodes: int
    scope: str
    plan: int
    modified_at: datetime
    sequence: int = 0
    is_cancelled: bool = False
    teams: tuple[str, ...] = ()
    place: str = ""


class FeedState(msgspec.Struct, frozen=True):
    """What calendars were told, by UID. The ledger keeps it, so that the next feed can be numbered after this one."""

    events: dict[str, FeedEvent] = {}

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self, order="sorted")


def read_feed_state(body: bytes) -> FeedState:
    """What `encode` gave; nothing stands for nothing told yet."""
    return msgspec.msgpack.decode(body, type=FeedState) if body else FeedState()


class Published(msgspec.Struct, frozen=True, dict=True):
    """A plan, and what has to be known of the fleet to tell it.

    `names`: the nodes of each batch by its id, as the ledger recorded them with the plan; where it has none they are
    the unit's. `done` are ids of batches that are over, `called_off` of those that the plan has and that will not
    happen. `impactless`: nodes by unit on which nothing is taken out of service. `url` is where the page will be.
    """

    campaign: Campaign
    plan: Plan
    units: tuple[Unit, ...]
    generated_at: datetime
    previous: Plan | None = None
    names: Mapping[str, tuple[str, ...]] = {}
    holders: tuple[Holder, ...] = ()
    caps: tuple[Cap, ...] = ()
    a100e: Mapping[str, float] = {}
    impactless: Mapping[str, tuple[str, ...]] = {}
    done: frozenset[str] = frozenset()
    called_off: frozenset[str] = frozenset()
    url: str = ""

    @property
    def name(self) -> str:
        return self.campaign.name

    @property
    def number(self) -> int:
        return self.plan.number

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """What will happen or has happened, as it happens."""
        kept = (batch for batch in self.plan.batches if batch.id not in self.called_off)
        return tuple(sorted(kept, key=lambda batch: (batch.start, batch.unit, batch.number)))

    @cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.campaign.window.tz)

    @cached_property
    def unit_by_name(self) -> dict[str, Unit]:
        return {unit.name: unit for unit in self.units}

    @cached_property
    def batch_counts(self) -> dict[str, int]:
        """How many batches each unit has."""
        counts: dict[str, int] = {}
        for batch in self.plan.batches:
            counts[batch.unit] = max(counts.get(batch.unit, 0), batch.number)
        return counts

    @cached_property
    def _teams(self) -> dict[tuple[str, str], tuple[str, ...]]:
        found: dict[tuple[str, str], set[str]] = {}
        for holder in self.holders:
            found.setdefault((holder.cluster, holder.sku), set()).add(holder.team)
        return {key: tuple(sorted(teams)) for key, teams in found.items()}

    def local(self, moment: datetime) -> datetime:
        """A moment as the clocks of the window show it."""
        return moment.astimezone(self.zone)

    def day(self, batch: Batch) -> date:
        """The local day on which a batch starts."""
        return self.local(batch.start).date()

    def nodes_of(self, batch: Batch) -> tuple[str, ...]:
        """The names of a batch's nodes; none where neither the ledger nor the fleet knows them any more."""
        if (known := self.names.get(batch.id)) is not None:
            return known
        unit = self.unit_by_name.get(batch.unit)
        return unit.batches[batch.number - 1] if unit and batch.number <= len(unit.batches) else ()

    def lots_of(self, batch: Batch) -> tuple[Lot, ...]:
        unit = self.unit_by_name.get(batch.unit)
        return unit.lots[batch.number - 1] if unit and batch.number <= len(unit.lots) else ()

    def stays_of(self, batch: Batch) -> int:
        """How many of its nodes are expected not to come back."""
        unit = self.unit_by_name.get(batch.unit)
        return unit.stays[batch.number - 1] if unit and batch.number <= len(unit.stays) else 0

    def cluster_of(self, unit: str) -> str:
        """The cluster of a unit; of one that is gone, what its name begins with."""
        known = self.unit_by_name.get(unit)
        return known.cluster.id if known else unit.partition("/")[0]

    def area_of(self, unit: str) -> str:
        known = self.unit_by_name.get(unit)
        return str(known.cluster.area) if known else "other"

    def teams_of(self, unit: str) -> tuple[str, ...]:
        """Who holds quota on what a unit takes out."""
        known = self.unit_by_name.get(unit)
        if known is None:
            return ()
        return tuple(sorted({team for sku in known.skus for team in self._teams.get((known.cluster.id, sku), ())}))


def slug(name: str) -> str:
    """A name as a part of a file's name or a UID: other names give other slugs. `~2F` stands for a slash."""
    kept = "".join(
        sign
        if sign.isascii() and (sign.isalnum() or sign in "._-")
        else "".join(f"~{byte:02X}" for byte in _bytes(sign))
        for sign in name
    )
    if len(kept) <= SLUG_CHARS_MAX:
        return kept
    return f"{kept[: SLUG_CHARS_MAX - 17]}~{digest([name])}"


def _bytes(sign: str) -> bytes:
    return sign.encode("utf-8", "surrogatepass")


def digest(names: Iterable[str]) -> str:
    """What stands for a set of names."""
    return hashlib.sha256("\n".join(sorted(names)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def feed_file(kind: str, name: str) -> str:
    """`team-evals.ics`, `cluster-tiger.ics`."""
    return f"{kind}-{slug(name)}.ics"
