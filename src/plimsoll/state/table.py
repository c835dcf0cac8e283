"""Tables that remember how to go back. A value is frozen and is replaced, never changed, so that undo is exact."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Any = object()


class Journal:
    """What to put back. It is written only while somebody may want to go back."""

    __slots__ = ("entries", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self.entries: list[tuple[Table[Any, Any], Any, Any]] = []

    def undo_to(self, length: int) -> None:
        """Put back everything after the first `length` entries, newest first."""
        while len(self.entries) > length:
            table, key, before = self.entries.pop()
            if before is _ABSENT:
                dict.__delitem__(table, key)
            else:
                dict.__setitem__(table, key, before)


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

    def copy_for(self, journal: Journal) -> Table[K, V]:
        """The same content, for a state of its own."""
        twin: Table[K, V] = Table(journal)
        dict.update(twin, self)
        return twin

    def _read_only(self, *_arguments: object, **_keywords: object) -> NoReturn:
        raise TypeError("a table changes only in a fold, by put and drop")

    __setitem__ = __delitem__ = __ior__ = _read_only
    update = clear = pop = popitem = setdefault = _read_only
