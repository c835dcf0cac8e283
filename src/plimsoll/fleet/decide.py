"""What an import would change: pure, sheet by sheet, each on the state that the sheets before it would leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from plimsoll.errors import Refused
from plimsoll.fleet.changes import FleetImported
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.sheet import ImportContext, Problem, Problems, RawSheet, Sheet, SheetPlan, What
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.times import format_time

REMOVED_SHARE_MAX = 0.5
"""An import that retires a larger share of the nodes is probably a folder of one cluster taken for the fleet."""
REMOVED_ROWS_MIN = 20


class ImportPlan(msgspec.Struct, frozen=True):
    """What an import would change, and the drafts that do it."""

    source: str
    digest: str
    sheets: list[SheetPlan]

    def counts(self) -> dict[str, dict[str, int]]:
        return {sheet.name: sheet.counts() for sheet in self.sheets}

    @property
    def warnings(self) -> list[str]:
        return [warning for sheet in self.sheets for warning in sheet.warnings]

    @property
    def is_change(self) -> bool:
        return any(sheet.drafts for sheet in self.sheets)

    def drafts(self) -> list[Draft]:
        """Everything in one commit; the first event says what the others belong to. Empty when nothing changes."""
        if not self.is_change:
            return []
        counts = self.counts()
        first = Draft(FleetImported(self.source, self.digest, counts))
        return [first, *(draft for sheet in self.sheets for draft in sheet.drafts)]


class BadImport(Refused):
    """Rows that can't be taken. Nothing of the import was kept."""

    def __init__(self, source: str, problems: Problems) -> None:
        lines = [f"  {problem}" for problem in problems.listed]
        if problems.count > len(lines):
            lines.append(f"  … and {problems.count - len(lines):,} more")
        noun = "problem" if problems.count == 1 else "problems"
        super().__init__(
            "bad_import",
            f"{source} has {problems.count:,} {noun}; nothing was imported\n" + "\n".join(lines),
            next_step="correct the rows and import again",
            problem_count=problems.count,
            problems=[msgspec.structs.asdict(problem) for problem in problems.listed],
        )


def plan_import(
    state: State,
    raws: Mapping[str, RawSheet],
    sheets: Sequence[Sheet],
    context: ImportContext,
    *,
    digest: str,
    is_removal_allowed: bool,
    is_dry_run: bool = False,
) -> ImportPlan:
    """The plan, or `BadImport` with all that is wrong. The state is left as it was."""
    problems = Problems()
    plans: list[SheetPlan] = []
    recorded_at = format_time(context.now)
    ahead = state.fork()
    for sheet in sheets:
        raw = raws.get(sheet.name)
        if raw is None and sheet.is_required:
            problems.add(_missing(sheet, context))
        plan = sheet.plan(raw, ahead, context, problems) if raw is not None else sheet.keep(ahead, context, problems)
        if plan is None:
            continue
        plans.append(plan)
        if sheet is not sheets[-1]:
            ahead.assume(plan.drafts, recorded_at=recorded_at)
    if problems.count:
        raise BadImport(context.source, problems)
    refusal = None if is_removal_allowed else _mass_removal(state, plans)
    if refusal is not None and not is_dry_run:
        raise refusal
    if refusal is not None:
        plans[-1].warnings.append(f"without --dry-run: {refusal.message}; next: {refusal.next_step}")
    return ImportPlan(context.source, digest, plans)


def _missing(sheet: Sheet, context: ImportContext) -> Problem:
    """What refers to the sheet can't be judged then: the one problem is that it is not there."""
    context.unread.add(sheet.name)
    context.is_capacity_known = False
    expected = f"{sheet.name}.csv (in a workbook: the sheet {sheet.name}) is missing; a fleet needs it"
    return Problem(context.source, 0, "", "", expected)


def _mass_removal(state: State, plans: Sequence[SheetPlan]) -> Refused | None:
    """The refusal of an import that takes most nodes or most quotas away; work comes and goes as it likes."""
    for plan in plans:
        counts = plan.counts()
        removed = counts[What.REMOVED]
        present = removed + counts[What.CHANGED] + counts[What.SAME]
        if plan.name == "nodes":
            present = sum(node.service is not Service.RETIRED for node in state.of(Fleet).nodes.values())
        elif plan.name != "quotas":
            continue
        if removed >= REMOVED_ROWS_MIN and removed > REMOVED_SHARE_MAX * present:
            verb = "retire" if plan.name == "nodes" else "strike out"
            return Refused(
                "mass_removal",
                f"this import would {verb} {removed:,} of {present:,} {plan.name}; nothing was imported",
                next_step="--partial if the files hold only a part of the fleet, --allow-removals if they are gone",
                removed=removed,
                present=present,
            )
    return None
