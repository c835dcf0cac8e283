"""One suite for both databases: raw samples and marks of how far something was read, shared by several processes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from plimsoll.ledger import Ledger, open_ledger
from plimsoll.ledger.store import CURSORS_PER_STATEMENT
from tests.support.children import Child
from tests.support.health import Ward, add_to_cursors, observe_one_by_one, signal
from tests.support.imports import NOW
from tests.support.ledgers import write

WRITERS = 3
ROUNDS = 40


def _put(ledger: Ledger, values: Mapping[tuple[str, str], str | None]) -> None:
    ledger.store.update_cursors([], lambda _: values)


def test_what_was_put_is_found_by_its_scope(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        _put(ledger, {("a", "x"): "1", ("a", "y"): "Größe ✓", ("b", "x"): "", ("a/b", ""): "'; --"})
        assert ledger.store.cursors(["a"]) == {("a", "x"): "1", ("a", "y"): "Größe ✓"}
        assert ledger.store.cursors(["b", "a/b", "none"]) == {("b", "x"): "", ("a/b", ""): "'; --"}
        assert ledger.store.cursors([]) == {}
        assert ledger.store.cursor_scopes() == ["a", "a/b", "b"]
    with open_ledger(dsn) as ledger:
        assert ledger.store.cursors(["a"])["a", "x"] == "1", "and later too"


def test_none_drops_one(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        _put(ledger, {("a", "x"): "1", ("a", "y"): "2"})
        _put(ledger, {("a", "x"): None, ("a", "never"): None})
        assert ledger.store.cursors(["a"]) == {("a", "y"): "2"}


def test_the_change_sees_what_is_there_and_only_what_it_asked_for(dsn: str) -> None:
    seen: list[Any] = []

    def look(found: dict[tuple[str, str], str]) -> dict[tuple[str, str], str | None]:
        seen.append(found)
        return {("a", "x"): "3"}

    with open_ledger(dsn, create=True) as ledger:
        _put(ledger, {("a", "x"): "1", ("b", "x"): "2"})
        ledger.store.update_cursors(["a"], look)
        assert seen == [{("a", "x"): "1"}]
        assert ledger.store.cursors(["a", "b"]) == {("a", "x"): "3", ("b", "x"): "2"}


def test_more_than_fit_into_one_statement(dsn: str) -> None:
    count = 2 * CURSORS_PER_STATEMENT + 1
    want: dict[tuple[str, str], str] = {(f"s{number}", f"n{number}"): str(number) for number in range(count)}
    with open_ledger(dsn, create=True) as ledger:
        _put(ledger, want)
        assert ledger.store.cursors([scope for scope, _ in want]) == want
        _put(ledger, dict.fromkeys(want))
        assert ledger.store.cursor_scopes() == []


def test_a_change_that_fails_leaves_everything(dsn: str) -> None:
    def fail(_found: object) -> dict[tuple[str, str], str | None]:
        raise ZeroDivisionError

    with open_ledger(dsn, create=True) as ledger:
        _put(ledger, {("a", "x"): "1"})
        with pytest.raises(ZeroDivisionError):
            ledger.store.update_cursors(["a"], fail)
        assert ledger.store.cursors(["a"]) == {("a", "x"): "1"}
        write(ledger, "still usable")
        assert ledger.head().revision == 1, "samples are no events"


def test_processes_that_race_never_lose_a_sample(dsn: str) -> None:
    open_ledger(dsn, create=True).close()
    with ExitStack() as stack:
        writers = [stack.enter_context(Child(add_to_cursors, dsn, f"w{n}", ROUNDS)) for n in range(WRITERS)]
        assert {child.hear() for child in writers} == {"ready"}
        for child in writers:
            child.finish()
    with open_ledger(dsn) as ledger:
        found = ledger.store.cursors(["count", "lines"])
        assert found["count", "all"] == str(WRITERS * ROUNDS)
        lines = found["lines", "all"].split()
        assert {name: lines.count(name) for name in set(lines)} == {f"w{n}": ROUNDS for n in range(WRITERS)}


def test_feeds_that_race_never_lose_a_signal(dsn: str) -> None:
    """Two processes tell half of the failures of a check each: none of them sees two, together there are."""
    names = [f"n{number}" for number in range(1, 5)]
    with Ward(4, dsn=dsn):
        pass
    halves = [[signal(name, "check", "nccl", ago=ago) for name in names] for ago in (20, 10)]
    with ExitStack() as stack:
        feeds = [stack.enter_context(Child(observe_one_by_one, dsn, half, NOW)) for half in halves]
        for child in feeds:
            child.finish()
    with Ward(dsn=dsn) as ward:
        ward.sweep()
        assert {name: ward.look(name)[1:] for name in names} == {
            name: ("quarantined", "ours", {"plimsoll:check nccl"}) for name in names
        }
