"""Fixtures of the server's tests: one small server for all that only read, or that change what is theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.served import Served, make_people, serving, small_book


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a small fleet. Tests use names of their own for what they change."""
    dsn = small_book(tmp_path_factory.mktemp("served"))
    with serving(dsn, make_people(dsn)) as server:
        yield server
