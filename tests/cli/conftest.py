"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.command import PLIMSOLL
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.terminal import on_terminal

REVISION_BEFORE = 12


@pytest.fixture(scope="session")
def fleet_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters: tiger with four H200 nodes, lion with two GB200, not yet in production."""
    return write_fleet(
        tmp_path_factory.mktemp("folder") / "fleet",
        clusters=[row("clusters", serves="api"), row("clusters", cluster="lion", area="eu", phase="provisioned")],
        nodes=[
            *nodes(3, prefix="t", rack="r1"),
            row("nodes", node="t4", service="repair", since="2026-01-05T11:00:00Z", reason="xid 79, again"),
            *nodes(2, prefix="l", cluster="lion", island="lion-a", sku="GB200", gpus="4"),
        ],
        quotas=[row("quotas", gpus="24")],
        workloads=[row("workloads", gpus="16")],
        history=[row("history", time="2026-01-04T11:00:00Z", node="t4", service="quarantined")],
    )


@pytest.fixture(scope="session")
def book(fleet_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database that got the fleet, and then learnt that t1 drains. Tests only read it."""
    dsn = f"sqlite:///{tmp_path_factory.mktemp('book')}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(fleet_folder)
    assert importer.head.revision == REVISION_BEFORE
    importer.now = importer.now.replace(hour=18)
    t1 = row("nodes", node="t1", service="draining", rack="r1")
    later = write_fleet(tmp_path_factory.mktemp("later"), clusters=[], nodes=[t1])
    importer.bring(later, is_partial=True, reason="t1 makes noise")
    importer.keeper.close()  # now, so that all of it is in the one file: tests copy it
    return dsn


class Demo(NamedTuple):
    """A database with the demo fleet, and what a terminal showed on stderr while it was loaded."""

    dsn: str
    shown: str


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo fleet, loaded as a user would. Tests only read it."""
    dsn = f"sqlite:///{tmp_path_factory.mktemp('demo')}/plimsoll.db"
    return Demo(dsn, on_terminal([PLIMSOLL, "demo", "--until", "2026-01-05", "--db", dsn], stream="stderr"))


@pytest.fixture(scope="session")
def demo_book(demo: Demo) -> str:
    """Its URL."""
    return demo.dsn


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is in a folder of its own and acts as `tester`, with no other settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLIMSOLL_ACTOR", "tester")
    monkeypatch.delenv("PLIMSOLL_DB", raising=False)
