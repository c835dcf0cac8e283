"""Versions with effects: brings a file of them in, records what people say of them; decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from plimsoll.campaigns.versions.sheet import VersionsSheet
from plimsoll.errors import NotFound
from plimsoll.fleet.decide import BadImport
from plimsoll.fleet.folder import CsvSheet
from plimsoll.fleet.sheet import ImportContext, Problems, RawSheet, SheetPlan
from plimsoll.ledger.model import Draft
from plimsoll.memory import no_collection
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

D = TypeVar("D")

_SHEET = VersionsSheet()


def open_versions(path: Path) -> CsvSheet:
    """A file of versions, its header read."""
    if not path.exists():
        raise NotFound(
            "no_such_file",
            f"there is no {path}",
            next_step="give a CSV file with the columns node,component,version",
        )
    return CsvSheet(path)


def import_versions(
    keeper: Keeper, raw: RawSheet, *, actor: str, reason: str = "", is_dry_run: bool = False
) -> tuple[SheetPlan, int]:
    """Make the ledger say what a file says of its nodes and components, and leave all others alone; all of it or
    nothing. The same again commits nothing. Returns what differs, and the revision."""

    def decide(state: State) -> tuple[SheetPlan, Sequence[Draft]]:
        problems = Problems()
        context = ImportContext(now=keeper.ledger.clock(), source=raw.source, is_partial=True)
        plan = _SHEET.plan(raw, state, context, problems)
        if problems.count:
            raise BadImport(raw.source, problems)
        return plan, plan.drafts

    with no_collection():
        return _record(keeper, decide, actor=actor, reason=reason or f"import of {raw.source}", is_dry_run=is_dry_run)


def record(
    keeper: Keeper,
    decide: Callable[[State], Sequence[Draft]],
    *,
    actor: str,
    reason: str = "",
    is_dry_run: bool = False,
) -> tuple[bool, int]:
    """Commit what was said, if it is new. Returns whether it is, and the revision."""

    def decided(state: State) -> tuple[bool, Sequence[Draft]]:
        drafts = decide(state)
        return bool(drafts), drafts

    return _record(keeper, decided, actor=actor, reason=reason, is_dry_run=is_dry_run)


def _record(
    keeper: Keeper,
    decide: Callable[[State], tuple[D, Sequence[Draft]]],
    *,
    actor: str,
    reason: str,
    is_dry_run: bool,
) -> tuple[D, int]:
    if is_dry_run:
        state = keeper.state()
        return decide(state)[0], state.revision
    decision, events = keeper.decide_and_commit(decide, actor=actor, reason=reason)
    return decision, events[-1].revision if events else keeper.state().revision
