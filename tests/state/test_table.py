"""Tables change only in a fold, by put and drop; to everybody else they are to be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.state.table import Journal, Table


def _table() -> Table[str, int]:
    table: Table[str, int] = Table(Journal())
    table.put("a", 1)
    table.put("b", 2)
    return table


FORBIDDEN: dict[str, Callable[[Any], object]] = {
    "assigning a key": lambda table: table.__setitem__("c", 3),
    "deleting a key": lambda table: table.__delitem__("a"),
    "update": lambda table: table.update({"c": 3}),
    "update in place": lambda table: table.__ior__({"c": 3}),
    "clear": lambda table: table.clear(),
    "pop": lambda table: table.pop("a"),
    "popitem": lambda table: table.popitem(),
    "setdefault": lambda table: table.setdefault("c", 3),
}


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_table_can_not_be_changed_past_the_journal(change: Callable[[Any], object]) -> None:
    table = _table()
    with pytest.raises(TypeError, match="only in a fold"):
        change(table)
    assert table == {"a": 1, "b": 2}


def test_a_table_reads_as_a_mapping() -> None:
    table = _table()
    assert (table["a"], table.get("c"), "b" in table, len(table), sorted(table)) == (1, None, True, 2, ["a", "b"])
    table.drop("a")
    assert dict(table) == {"b": 2}


def test_what_is_not_there_can_not_be_dropped() -> None:
    journal = Journal()
    table: Table[str, int] = Table(journal)
    journal.is_open = True
    with pytest.raises(KeyError):
        table.drop("a")
    assert journal.entries == []


def test_nothing_is_noted_while_nobody_may_want_to_go_back() -> None:
    journal = Journal()
    table: Table[str, int] = Table(journal)
    table.put("a", 1)
    assert journal.entries == []
