"""Tables that remember how to go back. A value is frozen and is replaced, never changed, so that undo is exact."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Generic, NoReturn, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
Item = TypeVar("Item", bound=tuple[Any, ...])

_ABSENT: Any = object()


class Undoable(Protocol):
    """What a journal can put back."""

    def put_back(self, key: Any, before: Any) -> None:
        """Undo one entry."""


class Journal:
    """What to put back. It is written only while somebody may want to go back."""

    __slots__ = ("entries", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self.entries: list[tuple[Undoable, Any, Any]] = []

    def undo_to(self, length: int) -> None:
        """Put back everything after the first `length` entries, newest first."""
        while len(self.entries) > length:
            table, key, before = self.entries.pop()
            table.put_back(key, before)


class Table(dict[K, V]):
    """A mapping that only folds change, by `put` and `drop`; to everybody else it is to be read.

    Its order means nothing: an undone `drop` comes back at the end. Decisions sort where order matters.
    """

    __slots__ = ("_journal",)

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def put(self, key: K, value: V) -> None:
        if self._journal.is_open:
            self._journal.entries.append((self, key, self.get(key, _ABSENT)))
        dict.__setitem__(self, key, value)

    def drop(self, key: K) -> None:
        if self._journal.is_open:
            self._journal.entries.append((self, key, self[key]))
        dict.__delitem__(self, key)

    def put_back(self, key: K, before: V) -> None:
        if before is _ABSENT:
            dict.__delitem__(self, key)
        else:
            dict.__setitem__(self, key, before)

    def copy_for(self, journal: Journal) -> Table[K, V]:
        """The same content, for a state of its own."""
        twin: Table[K, V] = Table(journal)
        dict.update(twin, self)
        return twin

    def _read_only(self, *_arguments: object, **_keywords: object) -> NoReturn:
        raise TypeError("a table changes only in a fold, by put and drop")

    __setitem__ = __delitem__ = __ior__ = _read_only
    update = clear = pop = popitem = setdefault = _read_only


class Orders(Generic[K, Item]):
    """Sorted lists by key, for what must be found by its order among many: the tightest room, the first in a queue."""

    __slots__ = ("_journal", "_lists")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lists: dict[K, list[Item]] = {}

    def of(self, key: K) -> Sequence[Item]:
        """The items of a key in their order, to be read."""
        return self._lists.get(key, ())

    def listed(self) -> list[K]:
        """The keys that have items; their order means nothing."""
        return list(self._lists)

    def add(self, key: K, item: Item) -> None:
        if self._journal.is_open:
            self._journal.entries.append((self, key, (item, True)))
        self._add(key, item)

    def remove(self, key: K, item: Item) -> None:
        if self._journal.is_open:
            self._journal.entries.append((self, key, (item, False)))
        self._remove(key, item)

    def put_back(self, key: K, before: tuple[Item, bool]) -> None:
        item, was_added = before
        if was_added:
            self._remove(key, item)
        else:
            self._add(key, item)

    def _add(self, key: K, item: Item) -> None:
        items = self._lists.get(key)
        if items is None:
            self._lists[key] = [item]
        else:
            insort(items, item)

    def _remove(self, key: K, item: Item) -> None:
        items = self._lists[key]
        place = bisect_left(items, item)
        assert items[place] == item, f"{item} is not among the {len(items)} of {key}"
        del items[place]
        if not items:
            del self._lists[key]

    def copy_for(self, journal: Journal) -> Orders[K, Item]:
        """The same content, for a state of its own."""
        twin: Orders[K, Item] = Orders(journal)
        twin._lists = {key: items.copy() for key, items in self._lists.items()}
        return twin
