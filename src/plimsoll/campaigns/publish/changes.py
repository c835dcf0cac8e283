"""What is different between two numbers of a plan, as data. Pure.

A batch is the same one in both plans when its unit and its number within the unit are the same.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from plimsoll.campaigns.model import Batch, Plan
from plimsoll.campaigns.publish.model import Published
from plimsoll.campaigns.publish.text import batches_text
from plimsoll.words import span_text


class ChangeKind(enum.StrEnum):
    """What happened to a batch. One that moved may have another size as well."""

    CANCELLED = "cancelled"
    LATER = "later"
    EARLIER = "earlier"
    RETIMED = "retimed"
    """It starts when it did, and ends at another time."""
    RESIZED = "resized"
    ADDED = "added"


class BatchChange(msgspec.Struct, frozen=True):
    """A batch in the plan before and in this one.

    `by` is how much later it starts by the clocks of the window, negative where earlier: from 11:00 to 11:00 the day
    after is a day, also in the night in which the clocks change.
    """

    kind: ChangeKind
    unit: str
    number: int
    before: Batch | None = None
    after: Batch | None = None
    by: timedelta = timedelta(0)

    @property
    def id(self) -> str:
        return f"{self.unit}#{self.number}"

    @property
    def nodes_more(self) -> int:
        """How many nodes more it has; negative where fewer."""
        return (self.after.nodes if self.after else 0) - (self.before.nodes if self.before else 0)


class Changes(msgspec.Struct, frozen=True):
    """All that is different, as it happens. `before` is None where there was no plan before this one."""

    before: int | None
    after: int
    changes: tuple[BatchChange, ...]
    same: int

    def of(self, kind: ChangeKind) -> list[BatchChange]:
        return [change for change in self.changes if change.kind is kind]


class UnitChange(msgspec.Struct, frozen=True):
    """All batches of a unit to which the same happened."""

    kind: ChangeKind
    unit: str
    batches: tuple[BatchChange, ...]

    @property
    def by(self) -> timedelta:
        return self.batches[0].by

    @property
    def nodes(self) -> int:
        return sum(each.nodes for change in self.batches if (each := change.after or change.before))


def changes(previous: Plan | None, current: Plan, *, called_off: Iterable[str] = (), zone: tzinfo = UTC) -> Changes:
    """What is different in the current plan. `called_off`: ids of batches in it that will not happen; `zone`: that of
    the window."""
    gone = set(called_off)
    after = {batch.id: batch for batch in current.batches if batch.id not in gone}
    if previous is None:
        return Changes(None, current.number, (), len(after))
    before = {batch.id: batch for batch in previous.batches}
    found = [
        change
        for name in {**before, **after}
        if (change := _change(before.get(name), after.get(name), zone)) is not None
    ]
    found.sort(key=lambda change: _when(change))
    same = len(set(before) & set(after)) - sum(1 for each in found if each.before and each.after)
    return Changes(previous.number, current.number, tuple(found), same)


def what_changed(published: Published) -> Changes:
    """What is different in a plan that is published."""
    return changes(published.previous, published.plan, called_off=published.called_off, zone=published.zone)


def _change(before: Batch | None, after: Batch | None, zone: tzinfo) -> BatchChange | None:
    batch = after or before
    assert batch is not None, "it is in one of the plans"
    if (kind := _kind(before, after)) is None:
        return None
    by = _wall(after.start, zone) - _wall(before.start, zone) if before and after else timedelta(0)
    return BatchChange(kind, batch.unit, batch.number, before, after, by)


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def _kind(before: Batch | None, after: Batch | None) -> ChangeKind | None:
    if before is None:
        return ChangeKind.ADDED
    if after is None:
        return ChangeKind.CANCELLED
    if after.start != before.start:
        return ChangeKind.LATER if after.start > before.start else ChangeKind.EARLIER
    if after.end != before.end:
        return ChangeKind.RETIMED
    return ChangeKind.RESIZED if after.nodes != before.nodes else None


def _when(change: BatchChange) -> tuple[object, ...]:
    batch = change.after or change.before
    assert batch is not None, "it is in one of the plans"
    return (batch.start, batch.unit, batch.number)


def by_unit(found: Sequence[BatchChange]) -> list[UnitChange]:
    """The same taken together: batches of one unit that move by the same time. In the order of the first of each."""
    groups: dict[tuple[str, ChangeKind, timedelta], list[BatchChange]] = {}
    for change in found:
        groups.setdefault((change.unit, change.kind, change.by), []).append(change)
    return [UnitChange(kind, unit, tuple(each)) for (unit, kind, _), each in groups.items()]


def counts_text(found: Changes) -> str:
    """`2 later, 1 cancelled`: units and not batches, because that is how people count."""
    units: dict[ChangeKind, set[str]] = {kind: set() for kind in ChangeKind}
    for change in found.changes:
        units[change.kind].add(change.unit)
    return ", ".join(f"{len(names)} {kind}" for kind, names in units.items() if names) or "nothing"


def move_text(change: UnitChange) -> str:
    """What happened, without the name: `2 days later`, `cancelled`, `resized by -3 nodes`."""
    parts = len(change.batches)
    batches = f" ({batches_text(parts)})" if parts > 1 else ""
    if change.kind in (ChangeKind.LATER, ChangeKind.EARLIER):
        return f"{span_text(abs(change.by))} {change.kind}{batches}"
    if change.kind is ChangeKind.RETIMED:
        first = change.batches[0]
        assert first.before is not None, "it was there before"
        assert first.after is not None, "and still is"
        longer = first.after.end - first.before.end
        return f"ends {span_text(abs(longer))} {'later' if longer > timedelta(0) else 'earlier'}{batches}"
    if change.kind is ChangeKind.RESIZED:
        return f"{sum(each.nodes_more for each in change.batches):+,} nodes{batches}"
    return f"{change.kind}{batches}"
