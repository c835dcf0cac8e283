"""The state: the fold of the events, in memory.

Each capability registers a `Room`: its tables, and how its changes alter them. The state knows no capability. It can
be tried and undone (`what_if`), copied (`fork`), saved and loaded; the same events give the same state everywhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Generic, TypeVar, cast

import msgspec

from plimsoll.errors import Tampered, Unavailable
from plimsoll.ledger.ledger import another_past
from plimsoll.ledger.model import Change, Draft, Event
from plimsoll.state.table import Journal, Orders, Table
from plimsoll.times import format_time

T = TypeVar("T", bound="Tables")
C = TypeVar("C", bound=Change)

Fold = Callable[["State", Any, Event], None]
RunFold = Callable[["State", list[Any], list[Event]], None]


class Tables:
    """The tables of one room. A subclass makes its `Table`s in `__init__` with the journal it is given."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def dump(self) -> bytes:
        """Everything that the events left here, in an order that depends only on the content."""
        raise NotImplementedError

    def load(self, body: bytes) -> None:
        """The opposite of `dump`, into empty tables."""
        raise NotImplementedError

    def fork(self, journal: Journal) -> Tables:
        """A copy that lives its own life: values are frozen, so only the tables are copied."""
        twin = type(self)(journal)
        for name, value in vars(self).items():
            if isinstance(value, Table | Orders):
                setattr(twin, name, value.copy_for(journal))
        return twin


class Room(Generic[T]):
    """What a capability brings into the state. `version` goes up when a fold or a dump means something else."""

    def __init__(self, name: str, *, version: int, tables: type[T]) -> None:
        self.name = name
        self.version = version
        self.tables = tables
        self.folds: dict[type[Change], Fold] = {}
        self.run_folds: dict[type[Change], RunFold] = {}

    def folds_run(self, change: type[C]) -> Callable[[Callable[[State, list[C], list[Event]], None]], RunFold]:
        """Register a quicker way for many changes of one kind in a row. It must do what folding each of them does."""

        def register(fold: Callable[[State, list[C], list[Event]], None]) -> RunFold:
            self.run_folds[change] = fold
            return fold

        return register

    def folds_change(self, change: type[C]) -> Callable[[Callable[[State, C, Event], None]], Fold]:
        """Register how one kind of change alters the tables."""

        def register(fold: Callable[[State, C, Event], None]) -> Fold:
            assert change not in self.folds, f"{self.name} folds {change.kind} twice"
            self.folds[change] = fold
            return fold

        return register


class Kinds:
    """Every kind of event the rooms know: how to read it and who folds it, in the order of the rooms."""

    def __init__(self, rooms: Sequence[Room[Any]]) -> None:
        self.rooms = tuple(rooms)
        self.fold_version = " ".join(f"{room.name}.{room.version}" for room in rooms)
        self.folds: dict[str, tuple[Fold, ...]] = {}
        self.run_folds: dict[str, RunFold] = {}
        self.changes: dict[str, type[Change]] = {}
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        for room in rooms:
            for change, fold in room.folds.items():
                self.folds[change.kind] = (*self.folds.get(change.kind, ()), fold)
                self.changes[change.kind] = change
                self._decoders[change.kind] = msgspec.json.Decoder(change)
            self.run_folds |= {change.kind: fold for change, fold in room.run_folds.items()}
        for kind in self.run_folds:
            assert len(self.folds[kind]) == 1, f"{kind} is folded by several rooms, so not in runs"

    def read(self, event: Event) -> Change:
        """The typed change of a stored event."""
        try:
            return cast(Change, self._decoders[event.kind].decode(event.payload))
        except KeyError:
            raise Unavailable(
                "unknown_kind",
                f"revision {event.revision} is of kind {event.kind!r}, which this version does not know",
                next_step="upgrade plimsoll: a newer one wrote this ledger",
                kind=event.kind,
            ) from None
        except msgspec.DecodeError as error:
            raise Unavailable(
                "unreadable_event",
                f"revision {event.revision} ({event.kind}) can't be read: {error}",
                next_step="plimsoll audit verify",
                revision=event.revision,
            ) from None


class State:
    """All rooms' tables at one revision."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.revision = 0
        self.recorded_at = ""
        self.hash = ""
        """The chain's hash at that revision; "" where nobody said it."""
        self._journal = Journal()
        self._tables: dict[type[Tables], Tables] = {room.tables: room.tables(self._journal) for room in kinds.rooms}

    def of(self, tables: type[T]) -> T:
        """One room's tables, to be read."""
        return cast(T, self._tables[tables])

    def apply(self, event: Event) -> None:
        """Advance by one stored event; events come in order, each once."""
        if event.revision != self.revision + 1:
            raise Tampered(
                "revision_missing",
                f"revision {event.revision} follows revision {self.revision}: the ledger has lost what was between",
                next_step="plimsoll audit verify",
                revision=event.revision,
                before=self.revision,
            )
        if self.hash and event.prev_hash != self.hash:
            raise another_past(self.revision)
        change = self.kinds.read(event)
        self._fold(change, event)

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def apply_committed(self, drafts: Sequence[Draft], events: Sequence[Event]) -> None:
        """Advance by events whose changes are still at hand: the same as `apply`, without reading them back."""
        assert events[0].revision == self.revision + 1, f"revision {events[0].revision} after {self.revision}"
        for kind, pairs in groupby(zip(drafts, events, strict=True), key=_kind):
            if (run_fold := self.kinds.run_folds.get(kind)) is not None:
                run = list(pairs)
                run_fold(self, [draft.change for draft, _ in run], [event for _, event in run])
                continue
            for draft, event in pairs:
                for fold in self.kinds.folds[kind]:
                    fold(self, draft.change, event)
        self.revision, self.recorded_at, self.hash = events[-1].revision, events[-1].recorded_at, events[-1].hash

    def assume(self, drafts: Iterable[Draft], *, recorded_at: str) -> None:
        """Advance by changes that nobody committed. Only inside `what_if` or on a fork."""
        folds = self.kinds.folds
        for change, reason, effective_at in drafts:
            self.revision += 1
            effective = recorded_at if effective_at is None else format_time(effective_at)
            kind, subject = change.kind, change.subject
            event = Event(self.revision, recorded_at, effective, "what-if", kind, subject, reason, "", "", "")
            for fold in folds[kind]:
                fold(self, change, event)
        self.recorded_at = recorded_at

    def _fold(self, change: Change, event: Event) -> None:
        for fold in self.kinds.folds[change.kind]:
            fold(self, change, event)
        self.revision, self.recorded_at, self.hash = event.revision, event.recorded_at, event.hash

    @contextmanager
    def what_if(self) -> Iterator[State]:
        """Change this state and have it put back at the end. Nests."""
        journal, was_open = self._journal, self._journal.is_open
        mark, revision, recorded_at = len(journal.entries), self.revision, self.recorded_at
        journal.is_open = True
        try:
            yield self
        finally:
            journal.undo_to(mark)
            journal.is_open = was_open
            self.revision, self.recorded_at = revision, recorded_at

    def fork(self) -> State:
        """A state of its own, equal to this one now."""
        twin = State(self.kinds)
        twin.revision, twin.recorded_at, twin.hash = self.revision, self.recorded_at, self.hash
        for kind, tables in self._tables.items():
            twin._tables[kind] = tables.fork(twin._journal)
        return twin

    def dump(self) -> bytes:
        """Everything, for a snapshot."""
        bodies = {room.name: self._tables[room.tables].dump() for room in self.kinds.rooms}
        return zlib.compress(msgspec.msgpack.encode((self.revision, self.recorded_at, bodies)), level=1)

    def load(self, body: bytes) -> None:
        """The opposite of `dump`, into an empty state."""
        assert self.revision == 0, "only an empty state can be loaded"
        revision, recorded_at, bodies = _SNAPSHOT.decode(zlib.decompress(body))
        for room in self.kinds.rooms:
            self._tables[room.tables].load(bodies[room.name])
        self.revision, self.recorded_at = revision, recorded_at


def _kind(pair: tuple[Draft, Event]) -> str:
    return pair[1].kind


_SNAPSHOT: msgspec.msgpack.Decoder[tuple[int, str, Mapping[str, bytes]]] = msgspec.msgpack.Decoder(
    tuple[int, str, dict[str, bytes]]
)
