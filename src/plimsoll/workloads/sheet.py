"""`workloads.csv`: what runs now. Rows with one name are the parts of one workload; an elastic part may take several
rows, one for each island. No GPU is given twice: an island carries at most what is installed in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import IslandKey
from plimsoll.fleet.sheet import (
    Column,
    ExportRows,
    ImportContext,
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
    whole_number,
)
from plimsoll.ledger.model import Draft
from plimsoll.quota.model import Kind, Tier
from plimsoll.state.state import State
from plimsoll.words import counted
from plimsoll.workloads.changes import WorkloadGone, WorkloadObserved
from plimsoll.workloads.decide import assume_blocks, shed
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Block, Part, Workload
from plimsoll.workloads.shape import part_name

GPUS_MAX = 10_000_000
RANK_MAX = 1_000_000


class _Line(NamedTuple):
    """A good row; the island is empty where the file does not say it."""

    number: int
    workload: str
    team: str
    cluster: str
    island: str
    sku: str
    gpus: int
    kind: Kind
    tier: Tier
    rank: int
    idle_gpus: int
    labels: dict[str, str]

    @property
    def part(self) -> tuple[Kind, Tier, int, str]:
        """What tells the parts of one workload apart."""
        return self.kind, self.tier, self.rank, self.sku


class WorkloadsSheet(Sheet):
    """What runs now, as observed."""

    name = "workloads"

    def columns(self, context: ImportContext) -> tuple[Column, ...]:
        return (
            Column("workload", parse_plain_name),
            Column("team", parse_name, is_cached=True),
            Column("cluster", parse_plain_name, is_cached=True),
            Column("island", parse_text, is_cached=True),
            Column("sku", parse_name, is_cached=True),
            Column("gpus", whole_number(least=1, most=GPUS_MAX), is_cached=True),
            Column("kind", one_of(Kind), is_cached=True),
            Column("tier", one_of(Tier), is_cached=True),
            Column("rank", whole_number(least=1, most=RANK_MAX), is_cached=True),
            Column("idle_gpus", whole_number(least=0, most=GPUS_MAX), is_cached=True),
        )

    def plan(self, raw: RawSheet, state: State, context: ImportContext, problems: Problems) -> SheetPlan:
        running, ours = _observed(state)
        read = [row for row in self.read(raw, context, problems) if not row.is_bad]
        rows = [row for row in read if row.values[0] not in ours]
        named = {row.values[0] for row in rows}
        staying = {name: workload for name, workload in running.items() if name not in named and context.is_partial}
        plan, staying = _shed(staying, state, context)
        staying |= ours
        if len(rows) < len(read):
            names = {row.values[0] for row in read} & ours.keys()
            plan.warnings.append(f"{counted(len(names), 'workload')} of the file were submitted here: passed over")
        floor = _Floor(raw, state, context, problems, staying)
        lines: dict[str, list[_Line]] = {}
        for row in rows:
            if (line := floor.accept(row)) is not None:
                lines.setdefault(line.workload, []).append(line)
        for workload in floor.workloads(lines):
            before = running.get(workload.id)
            if before is not None and as_seen(before) == as_seen(workload):
                plan.tally[What.SAME] += 1
            elif before is None:
                plan.add(What.ADDED, workload.id, Draft(WorkloadObserved(workload)))
            else:
                plan.add(What.CHANGED, workload.id, Draft(WorkloadObserved(workload)), _was(before, workload))
        if not context.is_partial:
            for key in running:
                if key not in lines:
                    plan.add(What.REMOVED, key, Draft(WorkloadGone(key), f"not in {context.source}"))
        return plan

    def keep(self, state: State, context: ImportContext, problems: Problems) -> SheetPlan | None:
        """Work whose island shrank under it can't all be running any more, whether or not the file says so."""
        plan, _ = _shed(_observed(state)[0], state, context)
        return plan if plan.drafts else None

    def export(self, state: State) -> ExportRows:
        rows: list[tuple[list[str], Mapping[str, str]]] = []
        for _, workload in sorted(state.of(Workloads).workloads.items()):
            for part in workload.parts:
                blocks = (Block("", part.gpus, part.idle_gpus),) if part.is_assumed else part.blocks
                for block in blocks:
                    cells = [workload.id, workload.team, workload.cluster, block.island, part.sku, str(block.gpus)]
                    cells += [part.kind, part.tier, str(part.rank), str(block.idle_gpus)]
                    rows.append((cells, part.labels))
        return rows


def as_seen(workload: Workload) -> tuple[object, ...]:
    """What a file can say of a workload: not on which nodes it is, nor how it came there."""
    parts = [
        (part.kind, part.tier, part.rank, part.sku, part.is_assumed, sorted(part.labels.items()),
         sorted((block.island, block.gpus, block.idle_gpus) for block in part.blocks))
        for part in workload.parts
    ]  # fmt: skip
    return workload.team, workload.cluster, sorted(parts)


def _observed(state: State) -> tuple[dict[str, Workload], dict[str, Workload]]:
    """What runs because it was seen running, and what runs because it was submitted: that is not the import's."""
    tables = state.of(Workloads)
    observed, ours = dict[str, Workload](), dict[str, Workload]()
    for name, workload in tables.workloads.items():
        asked = tables.asked.get(name)
        (observed if asked is None or asked.is_observed else ours)[name] = workload
    return observed, ours


def _shed(staying: dict[str, Workload], state: State, context: ImportContext) -> tuple[SheetPlan, dict[str, Workload]]:
    """The plan that takes work from islands that shrank, and what stays."""
    plan = SheetPlan(WorkloadsSheet.name)
    if not context.is_capacity_known:
        return plan, staying
    installed = {key: count.gpus for key, count in state.of(Fleet).islands.items()}
    for name, left in sorted(shed(staying, installed).items()):
        before = staying.pop(name)
        reason = f"more than its islands have after {context.source}"
        if left is None:
            plan.add(What.REMOVED, name, Draft(WorkloadGone(name), reason))
        else:
            staying[name] = left
            plan.add(What.CHANGED, name, Draft(WorkloadObserved(left), reason), _was(before, left))
        gpus = sum(part.gpus for part in before.parts) - sum(part.gpus for part in (left.parts if left else ()))
        plan.warnings.append(f"workload {name} held {gpus:,} GPUs that are no longer installed: they were taken off it")
    return plan, staying


def _was(before: Workload, after: Workload) -> dict[str, str | None]:
    """What changed, as it was."""
    was = changed_fields(before, after)
    if "parts" in was:
        was["parts"] = "; ".join(map(_part_text, before.parts))
    return was


def _part_text(part: Part) -> str:
    islands = "assumed" if part.is_assumed else "+".join(block.island for block in part.blocks)
    labels = "".join(f" {name}={text}" for name, text in sorted(part.labels.items()))
    return f"{part.kind} {part.tier} {part.rank}: {part.gpus} {part.sku} in {islands}, {part.idle_gpus} idle{labels}"


class _Floor:
    """What the islands can still take while the rows are put on them."""

    def __init__(
        self,
        raw: RawSheet,
        state: State,
        context: ImportContext,
        problems: Problems,
        staying: Mapping[str, Workload],
    ) -> None:
        self._raw, self._context, self._problems = raw, context, problems
        self._fleet = state.of(Fleet)
        self._first: dict[str, _Line] = {}
        self._seen: dict[tuple[object, ...], int] = {}
        self._running = state.of(Workloads)
        self._held: dict[IslandKey, int] = {}
        for workload in staying.values():
            for part in workload.parts:
                for block in part.blocks:
                    key = IslandKey(block.island, part.sku)
                    self._held[key] = self._held.get(key, 0) + block.gpus

    def accept(self, row: Row) -> _Line | None:
        """The row as a line, its named island charged for it; None, and a problem, where it can't be."""
        line = _Line._make((row.number, *row.fields))
        if line.island:
            line = line._replace(island=self._context.island(line.cluster, line.island))
        problem = self._own_problem(line) or self._kinship_problem(line) or self._place_problem(line)
        if problem is not None:
            column, value, expected = problem
            self._problems.add(Problem(self._raw.source, line.number, column, value, expected))
            return None
        if line.island:
            key = IslandKey(line.island, line.sku)
            self._held[key] = self._held.get(key, 0) + line.gpus
        return line

    def _own_problem(self, line: _Line) -> tuple[str, str, str] | None:
        if line.idle_gpus > line.gpus:
            return "idle_gpus", str(line.idle_gpus), f"at most the {line.gpus} GPUs of the row"
        if line.kind is Kind.GANG and not line.island:
            return "island", "", "the island of the gang (only elastic work may leave it empty)"
        return None

    def _kinship_problem(self, line: _Line) -> tuple[str, str, str] | None:
        """Rows of one workload: one team, one cluster, and no part or place twice."""
        first = self._first.setdefault(line.workload, line)
        if line.team != first.team:
            return "team", line.team, f"{first.team} as in row {first.number}: it is the same workload"
        if line.cluster != first.cluster:
            return "cluster", line.cluster, f"{first.cluster} as in row {first.number}: it is the same workload"
        key: tuple[object, ...] = (line.workload, *line.part)
        if line.kind is Kind.ELASTIC:
            key = (*key, line.island)
        row = self._seen.setdefault(key, line.number)
        if row != line.number:
            wanted = "another rank" if line.kind is Kind.GANG else "another rank or island"
            return (
                "workload",
                line.workload,
                f"each part once: row {row} has this one already; {wanted} for another part",
            )
        return None

    def _place_problem(self, line: _Line) -> tuple[str, str, str] | None:
        is_known = self._context.is_partial and line.cluster in self._fleet.clusters
        if not is_known and not self._context.may_name("clusters", line.cluster):
            return "cluster", line.cluster, "a cluster of the clusters sheet"
        if not line.island or not self._context.is_capacity_known:
            return None
        key = IslandKey(line.island, line.sku)
        if self._fleet.island_cluster.get(line.island) != line.cluster:
            return "island", line.island, f"an island of cluster {line.cluster}"
        count = self._fleet.islands.get(key)
        if count is None:
            return "sku", line.sku, f"a SKU that island {line.island} has nodes of"
        left = count.gpus - self._held.get(key, 0)
        if line.gpus > left:
            expected = f"at most {left} GPUs: island {line.island} has {count.gpus} of {line.sku}"
            return "gpus", str(line.gpus), f"{expected}, {count.gpus - left} are taken by other work"
        return None

    def workloads(self, lines: Mapping[str, list[_Line]]) -> list[Workload]:
        """The workloads, after every named island is charged; work without an island takes what is left.

        The order of the rows does not matter, and work that was placed before stays where it is while it fits.
        """
        groups = {name: sorted(group, key=_line_order) for name, group in sorted(lines.items())}
        unplaced = [line for group in groups.values() for line in group if not line.island]
        placed: dict[int, tuple[Block, ...]] = {}
        if self._context.is_capacity_known:
            for line in unplaced:
                if blocks := self._where_it_was(line):
                    placed[line.number] = self._charge(line, blocks)
            for line in unplaced:
                if line.number not in placed:
                    placed[line.number] = self._charge(line, self._assumed(line))
        return [
            Workload(name, group[0].team, group[0].cluster, _parts(group, placed)) for name, group in groups.items()
        ]

    def _charge(self, line: _Line, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        for block in blocks:
            key = IslandKey(block.island, line.sku)
            self._held[key] = self._held.get(key, 0) + block.gpus
        return blocks

    def _left(self, key: IslandKey, installed: int) -> int:
        return installed - self._held.get(key, 0)

    def _where_it_was(self, line: _Line) -> tuple[Block, ...] | None:
        before = self._running.workloads.get(line.workload)
        if before is None or before.cluster != line.cluster:
            return None
        for part in before.parts:
            is_same = (part.kind, part.tier, part.rank, part.sku) == line.part and part.is_assumed
            if is_same and (part.gpus, part.idle_gpus) == (line.gpus, line.idle_gpus):
                keys = [(IslandKey(block.island, line.sku), block.gpus) for block in part.blocks]
                counts = self._fleet.islands
                fits = all(key in counts and gpus <= self._left(key, counts[key].gpus) for key, gpus in keys)
                return part.blocks if fits else None
        return None

    def _assumed(self, line: _Line) -> tuple[Block, ...]:
        """Where the file names no island: healthy GPUs first, then whatever is installed."""
        islands = [
            (key, count)
            for key, count in self._fleet.islands.items()
            if key.sku == line.sku and self._fleet.island_cluster.get(key.island) == line.cluster
        ]
        healthy = {key.island: self._left(key, count.gpus_in_service) for key, count in islands}
        installed = {key.island: self._left(key, count.gpus) for key, count in islands}
        for free in (healthy, installed):
            if (blocks := assume_blocks(line.gpus, line.idle_gpus, free)) is not None:
                return blocks
        left = sum(max(0, gpus) for gpus in installed.values())
        expected = f"at most {left} GPUs: what cluster {line.cluster} has left of {line.sku}"
        self._problems.add(Problem(self._raw.source, line.number, "gpus", str(line.gpus), expected))
        return ()


def _line_order(line: _Line) -> tuple[object, ...]:
    return list(Tier).index(line.tier), line.rank, line.kind, line.sku, sorted(line.labels.items()), line.island


def _parts(group: list[_Line], placed: Mapping[int, tuple[Block, ...]]) -> tuple[Part, ...]:
    """The parts of one workload; rows of an elastic part in several islands are one part, if their labels agree."""
    parts: dict[tuple[object, ...], Part] = {}
    for line in group:
        blocks = (Block(line.island, line.gpus, line.idle_gpus),) if line.island else placed.get(line.number, ())
        key = (*line.part, bool(line.island), tuple(sorted(line.labels.items())))
        if key in parts:
            blocks = parts[key].blocks + blocks
        name = parts[key].name if key in parts else part_name(line.kind, len(parts))
        parts[key] = Part(line.kind, line.tier, line.rank, line.sku, blocks, not line.island, line.labels, name)
    return tuple(parts.values())
