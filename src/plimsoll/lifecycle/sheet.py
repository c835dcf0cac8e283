"""The rows of the sheet in which clusters are planned, and what an import of them would change. Pure.

One row is one cluster. A second import is a diff: new rows are planned, changed ones respecified, and a row that asks
for what can't be changed any more is refused with its column. A column that the sheet does not have says nothing.
What is missing from the sheet is only told, unless the import says that the sheet is all there is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from plimsoll.errors import NotFound, Refused
from plimsoll.fleet.decide import BadImport
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Phase, Purpose
from plimsoll.fleet.sheet import (
    Column,
    ExportRows,
    ImportContext,
    Parser,
    Problem,
    Problems,
    RawSheet,
    Row,
    Sheet,
    SheetPlan,
    What,
    changed_fields,
    one_of,
    parse_name,
    parse_plain_name,
    parse_text,
    unique,
    whole_number,
)
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle.changes import ClusterLeaving
from plimsoll.lifecycle.desk import FREE_FIELDS, find_recipe, plan, respecify
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import NODES_MAX, Life, Said, Spec
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.spec_check import spec_problems
from plimsoll.lifecycle.view import phase_words
from plimsoll.state.state import State
from plimsoll.times import format_time, parse_time, show_time
from plimsoll.words import counted

NAME = "planned"
"""The sheet of a workbook."""
RECIPE_DEFAULT = "standard"


def parse_wanted(text: str) -> datetime | None:
    """A day, or a moment; nothing where it does not matter."""
    if not text:
        return None
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        raise ValueError("a day such as 2026-03-01, or nothing") from None


def _count(text: str) -> int:
    return 1 if not text else int(whole_number(least=1, most=NODES_MAX)(text))


def _recipe(text: str) -> str:
    return text or RECIPE_DEFAULT


COLUMNS: dict[str, Parser] = {
    "cluster": parse_plain_name,
    "region": parse_name,
    "area": one_of(Area),
    "colo": parse_text,
    "provider": parse_text,
    "purpose": one_of(Purpose),
    "subscription": parse_name,
    "sku": parse_name,
    "nodes": whole_number(least=1, most=NODES_MAX),
    "islands": _count,
    "recipe": _recipe,
    "owner": parse_text,
    "wanted": parse_wanted,
}
"""What a row says, in the order of a spec's fields. All but the last four must be there; others become labels."""
OPTIONAL = ("islands", "recipe", "owner", "wanted")
_EMPTY = {"islands": 1, "recipe": RECIPE_DEFAULT, "owner": "", "wanted": None}


class NamedSheet:
    """A sheet whose columns may be written with large letters, as people write them: `Cluster`, `SKU`."""

    def __init__(self, raw: RawSheet) -> None:
        self._raw, self.source = raw, raw.source
        self.header = [name.lower() if name.lower() in COLUMNS else name for name in raw.header]

    def rows(self, problems: Problems) -> Iterator[tuple[int, Sequence[str]]]:
        return self._raw.rows(problems)


class PlannedSheet(Sheet):
    """The sheet, with the columns that this file has."""

    name = NAME
    is_required = True

    def __init__(self, header: Sequence[str], *, said: Said, seed: str, is_whole: bool) -> None:
        self._header, self._said, self._seed, self._is_whole = tuple(header), said, seed, is_whole

    def columns(self, context: ImportContext) -> tuple[Column, ...]:
        return tuple(
            Column(name, parse) for name, parse in COLUMNS.items() if name not in OPTIONAL or name in self._header
        )

    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan:
        found = SheetPlan(self.name)
        ids: dict[str, int] = {}
        recorded_at = format_time(context.now)
        with state.what_if():
            for row in self.read(raw, context, problems):
                if not unique(ids, str(row.values[0]), row, raw, "cluster", problems) or row.is_bad:
                    continue
                spec = self._spec(row, context, state.of(Lives).lives.get(str(row.values[0])))
                before = len(found.drafts)
                self._take(spec, row, raw, state, found, problems)
                state.assume(found.drafts[before:], recorded_at=recorded_at)
            missing = [life for name, life in sorted(state.of(Lives).lives.items()) if name not in ids]
        if self._is_whole and not ids:
            problems.add(
                Problem(raw.source, 0, "", "", "expected rows; with --whole none means that nothing is planned")
            )
        self._missing(missing, {pool.cluster for pool in state.of(Fleet).pools}, raw, found)
        return found

    def _spec(self, row: Row, context: ImportContext, life: Life | None) -> Spec:
        named = dict(zip((column.name for column in self.columns(context)), row.values, strict=True))
        known = {} if life is None else {name: getattr(life.spec, name) for name in OPTIONAL}
        values: dict[str, Any] = {**_EMPTY, **known, **named}
        fields = {"name" if name == "cluster" else name: values[name] for name in COLUMNS}
        kept = {} if life is None else {k: v for k, v in life.spec.labels.items() if k not in self._header}
        return Spec(**fields, labels=kept | row.labels)

    def _take(self, spec: Spec, row: Row, raw: RawSheet, state: State, found: SheetPlan, problems: Problems) -> None:
        def bad(column: str, value: object, expected: str) -> None:
            problems.add(Problem(raw.source, row.number, column, str(value), expected))

        life = state.of(Lives).lives.get(spec.name)
        try:
            recipe, _ = find_recipe(state, spec.recipe)
        except NotFound as error:
            bad("recipe", spec.recipe, f"a recipe that there is: {error.message}")
            return
        wrong = spec_problems(spec, recipe)
        for field, expected in wrong:
            value = spec.name if field == "cluster" else getattr(spec, field, spec.labels.get(field, ""))
            bad(field, value, expected)
        if wrong:
            return
        if life is None:
            self._add(spec, state, found, bad)
            return
        was = changed_fields(life.spec, spec)
        fixed = [field for field in was if field.partition(".")[0] not in FREE_FIELDS]
        if fixed and life.has_begun:
            for field in fixed:
                expected = (
                    f"{getattr(life.spec, field)}: {life.name} is {phase_words(phase_of(life))}, and made with it"
                )
                bad(field, getattr(spec, field), expected)
            return
        try:
            _, drafts = respecify(state, life, spec)
        except Refused as error:
            bad("cluster", spec.name, error.message)
            return
        if not drafts:
            found.tally[What.SAME] += 1
            if phase_of(life) is Phase.RETIRED or life.leaving is not None:
                found.warnings.append(f"{spec.name} (row {row.number}) is retired, or on its way out: it stays so")
            return
        _extend(found, What.CHANGED, spec.name, drafts, was)

    def _add(self, spec: Spec, state: State, found: SheetPlan, bad: Any) -> None:
        try:
            drafts = plan(state, spec, uid_of(spec.name, self._seed), self._said)
        except Refused as error:
            bad("cluster", spec.name, f"a name that is free: {error.message}")
            return
        _extend(found, What.ADDED, spec.name, drafts, {})

    def _missing(self, missing: Sequence[Life], with_nodes: Collection[str], raw: RawSheet, found: SheetPlan) -> None:
        there = [life for life in missing if life.gone_at is None and life.leaving is None]
        begun = [life for life in there if life.has_begun or life.name in with_nodes]
        planned = [life for life in there if life not in begun]
        if self._is_whole:
            for life in planned:
                draft = Draft(ClusterLeaving(life.name), f"not in {raw.source}")
                found.add(What.REMOVED, life.name, draft, {"phase": str(phase_of(life))})
            if begun:
                found.warnings.append(
                    f"{counted(len(begun), 'cluster')} not in {raw.source} were begun, or have nodes, and stay:"
                    f" {begun[0].name} (plimsoll cluster retire {begun[0].name})"
                )
        elif planned:
            found.warnings.append(
                f"{counted(len(planned), 'planned cluster')} not in {raw.source}, and stay: {planned[0].name}"
                " (--whole if the sheet is all that is planned)"
            )

    def export(self, state: State) -> ExportRows:
        return [
            (_cells(life.spec), life.spec.labels)
            for _, life in sorted(state.of(Lives).lives.items())
            if life.gone_at is None
        ]


def _cells(spec: Spec) -> list[str]:
    cells = []
    for name in COLUMNS:
        value = spec.name if name == "cluster" else getattr(spec, name)
        cells.append(show_time(value) if isinstance(value, datetime) else "" if value is None else str(value))
    return cells


def _extend(found: SheetPlan, what: What, key: str, drafts: Sequence[Draft], was: dict[str, str | None]) -> None:
    found.drafts += drafts[:-1]
    found.add(what, key, drafts[-1], was)


def uid_of(name: str, seed: str) -> str:
    """What tells a cluster from every other one, also from one of the same name that was made before."""
    return f"{name}-{hashlib.sha256(f'{seed}/{name}'.encode()).hexdigest()[:8]}"


def plan_rows(
    state: State, raw: RawSheet, *, said: Said, seed: str, is_whole: bool
) -> tuple[SheetPlan, Sequence[Draft]]:
    """What an import of the sheet would change; refused with all that is wrong, and then nothing is changed."""
    problems, raw = Problems(), NamedSheet(raw)
    sheet = PlannedSheet(raw.header, said=said, seed=seed, is_whole=is_whole)
    found = sheet.plan(raw, state, ImportContext(said.at, raw.source), problems)
    if problems.count:
        raise BadImport(raw.source, problems)
    return found, found.drafts
