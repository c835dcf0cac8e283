"""`plimsoll campaign run` as a process of its own whose clock runs elsewhere, and that is killed at a given change.

A campaign takes days and Slurm's clock is the real one: the ledger's is shifted, and what is said to Slurm is shifted
back. Changes are what is committed to the ledger and what is changed in Slurm; one of them ends the process by SIGKILL,
before or after it was made.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from plimsoll import rooms
from plimsoll.campaigns.marks.model import Acted, AtDeadline, Cleared, Drained, Looked, Marker
from plimsoll.campaigns.marks.settings import marker_for
from plimsoll.commands.campaign import markers
from plimsoll.connect.commands import Ran
from plimsoll.connect.slurm import Slurm
from plimsoll.fleet.fold import Fleet
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from tests.support.writers import Tell


def real_now() -> datetime:
    return datetime.now(UTC)


class Shifted:
    """A marker to which a campaign's times are said in Slurm's time."""

    def __init__(self, marker: Marker, shift: timedelta) -> None:
        self._marker, self._shift = marker, shift

    @property
    def where(self) -> str:
        return self._marker.where

    def book(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime) -> Acted:
        return self._marker.book(batch, nodes, starts=starts - self._shift, ends=ends - self._shift)

    def mark(self, batch: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, reason: str) -> Acted:
        starts, ends = starts - self._shift, ends - self._shift
        return self._marker.mark(batch, nodes, starts=starts, ends=ends, reason=reason)

    def unmark(self, batch: str, nodes: Collection[str]) -> Acted:
        return self._marker.unmark(batch, nodes)

    def look(self, batch: str, nodes: Collection[str]) -> Looked:
        return self._marker.look(batch, nodes)

    def drained(self, nodes: Collection[str]) -> Drained:
        return self._marker.drained(nodes)

    def clear(self, nodes: Collection[str]) -> Cleared:
        return self._marker.clear(nodes)


class Fate:
    """Counts changes, and ends the process at one of them."""

    def __init__(self, kill_at: int, *, is_late: bool) -> None:
        self._left, self._is_late = kill_at, is_late

    def before(self) -> None:
        if self._left == 1 and not self._is_late:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(self) -> None:
        self._left -= 1
        if self._left == 0 and self._is_late:
            os.kill(os.getpid(), signal.SIGKILL)


def run_shifted(
    _tell: Tell, environment: Mapping[str, str], offset: timedelta, kill_at: int, when: str, *words: str
) -> None:
    """`plimsoll WORDS` in this process, killed `before` or `after` its `kill_at`-th change; 0 kills never."""
    os.environ.clear()
    os.environ.update(environment)
    fate = Fate(kill_at, is_late=when == "after")
    open_keeper, run, commit = rooms.open_keeper, Slurm._run, Keeper.commit

    def shifted_keeper(dsn: str, *, create: bool = False) -> Keeper:
        return open_keeper(dsn, create=create, clock=lambda: real_now() + offset)

    def marker_of(state: State, campaign: str, cluster: str, at_deadline: AtDeadline) -> Marker:
        found = state.of(Fleet).clusters[cluster]
        return Shifted(marker_for(campaign, found, os.environ, clock=real_now, at_deadline=at_deadline), offset)

    def mortal_run(slurm: Slurm, *arguments: str, program: str = "scontrol") -> Ran:
        is_change = "show" not in arguments and program != "squeue"
        if is_change:
            fate.before()
        ran = run(slurm, *arguments, program=program)
        if is_change:
            fate.after()
        return ran

    def mortal_commit(keeper: Keeper, drafts: Sequence[Any], **options: Any) -> Any:
        if drafts:
            fate.before()
        events = commit(keeper, drafts, **options)
        if drafts:
            fate.after()
        return events

    rooms.open_keeper = shifted_keeper  # type: ignore[assignment]
    markers.marker_of = marker_of
    Slurm._run = mortal_run  # type: ignore[method-assign,assignment]
    Keeper.commit = mortal_commit  # type: ignore[method-assign,assignment]
    from plimsoll.cli.main import main

    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        main([*words])
    except SystemExit as ended:
        if ended.code:
            raise
