"""Import and export of the fleet: the places with effects. What is decided is in `decide.py` and the sheets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plimsoll.fleet.decide import ImportPlan, plan_import
from plimsoll.fleet.folder import folder_digest, is_workbook, read_folder, unread_files, write_folder
from plimsoll.fleet.model import Phase
from plimsoll.fleet.sheet import ImportContext, RawSheet, Sheet, WatchedSheet
from plimsoll.fleet.workbook import write_workbook
from plimsoll.ledger.model import Draft
from plimsoll.memory import no_collection
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State


class Source:
    """Where an import comes from: its name, its hash, its sheets, and what is odd about it."""

    def __init__(self, name: str, digest: str, raws: Mapping[str, RawSheet], warnings: Sequence[str] = ()) -> None:
        self.name, self.digest, self.raws, self.warnings = name, digest, raws, list(warnings)

    @classmethod
    def of_path(cls, path: Path, sheets: Sequence[Sheet]) -> Source:
        names = [sheet.name for sheet in sheets]
        raws = read_folder(path, names)
        # The name goes into the log, which holds printable text only; a file system allows more.
        name = "".join(letter if letter.isprintable() else "?" for letter in path.resolve().name)
        return cls(name, folder_digest(path, names), raws, unread_files(path, names))

    def watched(self, tell: Callable[[str, int], None]) -> Source:
        """The same, saying how far the reading of each sheet is."""
        raws = {name: WatchedSheet(raw, tell) for name, raw in self.raws.items()}
        return Source(self.name, self.digest, raws, self.warnings)


def import_fleet(
    keeper: Keeper,
    source: Source,
    sheets: Sequence[Sheet],
    *,
    actor: str,
    reason: str = "",
    is_partial: bool = False,
    has_local_islands: bool = False,
    is_removal_allowed: bool = False,
    is_dry_run: bool = False,
    phases: Callable[[State], Mapping[str, Phase]] = lambda _state: {},
) -> tuple[ImportPlan, int]:
    """Make the ledger say what the files say; all of it in one commit. Returns the plan and the revision it made.

    `phases` gives the clusters whose phase is not for a file to say.
    """

    def decide(state: State) -> tuple[ImportPlan, Sequence[Draft]]:
        context = ImportContext(
            now=keeper.ledger.clock(),
            source=source.name,
            is_partial=is_partial,
            has_local_islands=has_local_islands,
            phases=phases(state),
        )
        plan = plan_import(
            state,
            source.raws,
            sheets,
            context,
            digest=source.digest,
            is_removal_allowed=is_removal_allowed,
            is_dry_run=is_dry_run,
        )
        return plan, plan.drafts()

    if is_dry_run:
        plan, _ = decide(keeper.state())
        return plan, keeper.state().revision
    with no_collection():
        plan, events = keeper.decide_and_commit(decide, actor=actor, reason=reason or f"import of {source.name}")
    return plan, events[-1].revision if events else keeper.state().revision


def export_sheets(state: State, sheets: Sequence[Sheet], context: ImportContext) -> dict[str, list[list[str]]]:
    """The state as rows, header first; labels become columns. An optional sheet with nothing in it is left out."""
    exported = {}
    for sheet in sheets:
        rows = sheet.export(state)
        if not rows and not sheet.is_required:
            continue
        columns = [column.name for column in sheet.columns(context)]
        label_names = sorted({name for _, labels in rows for name in labels})
        exported[sheet.name] = [
            [*columns, *label_names],
            *([*cells, *(labels.get(name, "") for name in label_names)] for cells, labels in rows),
        ]
    return exported


def export_fleet(state: State, path: Path, sheets: Sequence[Sheet], context: ImportContext) -> dict[str, int]:
    """Write a fleet folder, or a workbook where the path ends in .xlsx. Returns the rows per sheet."""
    exported = export_sheets(state, sheets, context)
    if is_workbook(path):
        write_workbook(path, exported)
    else:
        for sheet in sheets:
            # An older file that stayed there would be taken for a part of this export.
            if sheet.name not in exported and (path / f"{sheet.name}.csv").is_file():
                exported[sheet.name] = [[column.name for column in sheet.columns(context)]]
        write_folder(path, exported)
    return {name: len(rows) - 1 for name, rows in exported.items()}
