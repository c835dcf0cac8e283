"""`versions.csv`: which version of which component is on which node, as somebody saw it.

Nodes that changed in the same way are one event. A version that is left empty says that the component is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from plimsoll.campaigns.versions.decide import record_versions
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.campaigns.versions.model import COMPONENTS_MAX, Combination
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.sheet import (
    PROBLEMS_LISTED_MAX,
    Column,
    Difference,
    ExportRows,
    ImportContext,
    Problem,
    Problems,
    RawSheet,
    Row,
    Sheet,
    SheetPlan,
    What,
    parse_name,
    parse_plain_name,
)
from plimsoll.state.state import State
from plimsoll.words import counted

_COLUMNS = ("node", "component", "version")
_NOTHING: dict[str, str] = {}


def parse_component(text: str) -> str:
    """A name that can be written as COMPONENT=VERSION."""
    if "=" in parse_name(text):
        raise ValueError("a name without '='")
    return text


def _parse_version(text: str) -> str:
    return parse_name(text) if text else ""


class VersionsSheet(Sheet):
    """The versions on nodes, as observed."""

    name = "versions"

    def columns(self, context: ImportContext) -> tuple[Column, ...]:
        return (
            Column("node", parse_plain_name),
            Column("component", parse_component, is_cached=True),
            Column("version", _parse_version, is_cached=True),
        )

    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan:
        plan = SheetPlan(self.name)
        versions, nodes = state.of(Versions), state.of(Fleet).nodes
        told = self._read(raw, state, context, problems)
        retired = [name for name in told if (node := nodes.get(name)) and node.service is Service.RETIRED]
        for name in retired:
            del told[name]
        if retired:
            plan.warnings.append(f"{counted(len(retired), 'node')} of {raw.source} are retired: passed over")
        if extra := [name for name in raw.header if name and name not in _COLUMNS]:
            plan.warnings.append(f"{raw.source}: {', '.join(extra[:5])} not kept; its columns are {','.join(_COLUMNS)}")
        told_all = told if context.is_partial else dict.fromkeys(versions.nodes, _NOTHING) | told
        found: list[tuple[str, str, Mapping[str, str]]] = []
        compared: dict[tuple[Combination, tuple[tuple[str, str], ...]], _Compared] = {}
        for name, here in told_all.items():
            key = versions.combination_of(name), tuple(here.items())
            result = compared.get(key)
            if result is None:
                result = compared[key] = _compare(*key, is_partial=context.is_partial)
            result.nodes += 1
            if result.changes and name in nodes:  # one that is not there is a bad row of another sheet
                found.append((name, nodes[name].cluster, result.changes))
                plan.differences += [Difference(what, f"{name} {part}", was) for what, part, was in result.differences]
        plan.tally[What.SAME] = sum(result.nodes * result.same for result in compared.values())
        plan.tally[What.ADDED] = sum(result.nodes * result.added for result in compared.values())
        plan.drafts += record_versions(found)
        return plan

    def _read(
        self, raw: RawSheet, state: State, context: ImportContext, problems: Problems
    ) -> dict[str, dict[str, str]]:
        """By node, the versions that the rows name."""
        nodes = state.of(Fleet).nodes
        told: dict[str, dict[str, str]] = {}
        for row in self.read(raw, context, problems):
            if row.is_bad:
                continue
            name, component, version = row.values
            here = told.get(name)
            if here is None:
                if name not in nodes and not context.may_name("nodes", name):
                    expected = "a node of the nodes sheet" if context.seen else "a node that the fleet has"
                    problems.add(Problem(raw.source, row.number, "node", name, expected))
                    continue
                here = told[name] = {}
            if component in here:
                self._twice(raw, context, row, problems)
                continue
            here[component] = version
            if len(here) > COMPONENTS_MAX:
                expected = f"at most {COMPONENTS_MAX} components on a node"
                problems.add(Problem(raw.source, row.number, "component", component, expected))
        return told

    def _twice(self, raw: RawSheet, context: ImportContext, row: Row, problems: Problems) -> None:
        """A row that says again what another one says. Which one is looked up for those that are listed: it is rare,
        and so no row need be remembered."""
        expected = "each only once"
        if problems.count < PROBLEMS_LISTED_MAX:
            rows = self.read(raw, context, Problems())
            first = next(each.number for each in rows if each.values[:2] == row.values[:2])
            expected += f"; row {first} has it already"
        problems.add(Problem(raw.source, row.number, "component", " ".join(row.values[:2]), expected))

    def export(self, state: State) -> ExportRows:
        return [
            ([node, component, version], {})
            for node, installed in sorted(state.of(Versions).nodes.items())
            for component, version in installed.combination
        ]


class _Compared(msgspec.Struct):
    """What differs between what is known of a node and what its rows say; thousands of nodes share one of these."""

    changes: dict[str, str]
    differences: list[tuple[What, str, dict[str, str | None]]]
    added: int
    same: int
    nodes: int = 0


def _compare(before: Combination, here: Iterable[tuple[str, str]], *, is_partial: bool) -> _Compared:
    """New rows are only counted, as there may be a hundred thousand; those that change or go are told one by one."""
    was, told = dict(before), dict(here)
    if not is_partial:
        told = dict.fromkeys(was, "") | told
    changes = {component: version for component, version in told.items() if was.get(component, "") != version}
    differences: list[tuple[What, str, dict[str, str | None]]] = [
        (What.CHANGED if version else What.REMOVED, component, {"version": was[component]})
        for component, version in changes.items()
        if component in was
    ]
    return _Compared(changes, differences, len(changes) - len(differences), len(told) - len(changes))
