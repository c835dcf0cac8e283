"""When a node came into its service: what its row says, unless that is a leftover of the service before."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.health.fold import Health
from plimsoll.health.model import from_microseconds
from plimsoll.times import show_time
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer

LATER = NOW + timedelta(days=1)
JAN_1, JAN_10, JAN_15 = "2026-01-01T00:00:00Z", "2026-01-10T00:00:00Z", "2026-01-15T00:00:00Z"
THEN = show_time(LATER)


class Case(NamedTuple):
    """What the node's row said at first and then, and the timeline that is wanted."""

    first: tuple[str, str]
    second: tuple[str, str]
    want: list[tuple[str, str]]
    want_warning: bool = False


CASES = {
    "it says when": Case(("in_service", JAN_1), ("repair", JAN_10), [(JAN_10, "repair")]),
    "it does not say when": Case(("in_service", JAN_1), ("repair", ""), [(THEN, "repair")]),
    "it broke, and since was left as it was": Case(
        ("in_service", JAN_1), ("repair", JAN_1), [(THEN, "repair")], want_warning=True
    ),
    "it came back, and since was left as it was": Case(
        ("repair", JAN_10), ("in_service", JAN_10), [(JAN_10, "repair"), (THEN, "in_service")], want_warning=True
    ),
    "an older file was brought again": Case(
        ("repair", JAN_10), ("in_service", JAN_1), [(JAN_10, "repair"), (THEN, "in_service")], want_warning=True
    ),
    "only its since was corrected": Case(
        ("repair", JAN_10), ("repair", JAN_15), [(JAN_10, "repair"), (JAN_15, "repair")]
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_never_a_past_that_nobody_told(sentence: str, tmp_path: Path) -> None:
    case = CASES[sentence]
    importer = Importer()
    importer.bring(_folder(tmp_path / "first", case.first))
    importer.now = LATER
    plan = importer.bring(_folder(tmp_path / "second", case.second))
    assert _timeline(importer, "n1") == case.want
    assert any("since" in warning for warning in plan.warnings) is case.want_warning
    assert _timeline(importer, "n1")[-1][1] == importer.node("n1").service
    again = importer.bring(tmp_path / "second")
    assert not again.is_change


def test_a_label_never_adds_a_transition(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(_folder(tmp_path / "first", ("in_service", JAN_1)))
    importer.now = LATER
    importer.bring(_folder(tmp_path / "second", ("repair", JAN_1)))
    labelled = [row("nodes", node="n1", service="repair", since=JAN_1, rack="r7"), *nodes(3, prefix="other")]
    importer.bring(write_fleet(tmp_path / "third", nodes=labelled))
    assert _timeline(importer, "n1") == [(THEN, "repair")]


def _folder(path: Path, facts: tuple[str, str]) -> Path:
    service, since = facts
    return write_fleet(path, nodes=[row("nodes", node="n1", service=service, since=since), *nodes(3, prefix="other")])


def _timeline(importer: Importer, node: str) -> list[tuple[str, str]]:
    health = importer.of(Health)
    return [
        (show_time(from_microseconds(moment)), str(health.marks[number].service))
        for moment, number in health.timelines[node].entries()
    ]
