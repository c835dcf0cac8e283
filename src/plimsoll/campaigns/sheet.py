"""`versions.csv`: which version of which component is on which node, as somebody saw it.

Nodes that changed in the same way are one event. A version that is left empty says that the component is not there.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.campaigns.fold_versions import Versions
from plimsoll.campaigns.versions import COMPONENTS_MAX
from plimsoll.campaigns.versions_decide import record_versions
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.sheet import (
    Column,
    Difference,
    ExportRows,
    ImportContext,
    Problem,
    Problems,
    RawSheet,
    Sheet,
    SheetPlan,
    What,
    parse_name,
    parse_plain_name,
    unique,
)
from plimsoll.state.state import State
from plimsoll.words import counted

_COLUMNS = ("node", "component", "version")


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
        changes: dict[str, dict[str, str]] = {}
        for node, here in told.items():
            before = dict(versions.combination_of(node))
            if not context.is_partial:
                here = dict.fromkeys(before, "") | here
            if found := _changed(plan, node, before, here):
                changes[node] = found
        if not context.is_partial:
            for node in versions.nodes.keys() - told.keys():
                before = dict(versions.combination_of(node))
                changes[node] = _changed(plan, node, before, dict.fromkeys(before, ""))
        known = ((name, nodes[name].cluster) for name in sorted(changes) if name in nodes)
        plan.drafts += record_versions((name, cluster, changes[name]) for name, cluster in known)
        return plan

    def _read(
        self, raw: RawSheet, state: State, context: ImportContext, problems: Problems
    ) -> dict[str, dict[str, str]]:
        """By node, the versions that the rows name."""
        nodes = state.of(Fleet).nodes
        ids: dict[tuple[str, str], int] = {}
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
            if not unique(ids, (name, component), row, raw, "component", problems):
                continue
            here[component] = version
            if len(here) > COMPONENTS_MAX:
                expected = f"at most {COMPONENTS_MAX} components on a node"
                problems.add(Problem(raw.source, row.number, "component", component, expected))
        return told

    def export(self, state: State) -> ExportRows:
        return [
            ([node, component, version], {})
            for node, held in sorted(state.of(Versions).nodes.items())
            for component, version in held.combination
        ]


def _changed(plan: SheetPlan, node: str, before: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """What differs on a node, counted row by row; new rows are only counted, as there may be a hundred thousand."""
    found = {}
    for component, version in here.items():
        was = before.get(component, "")
        if was == version:
            plan.tally[What.SAME] += 1
            continue
        found[component] = version
        if not was:
            plan.tally[What.ADDED] += 1
        else:
            what = What.CHANGED if version else What.REMOVED
            plan.differences.append(Difference(what, f"{node} {component}", {"version": was}))
    return found
