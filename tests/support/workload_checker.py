"""Judges who runs where by the words of the design alone: counts all of it again, and says in a sentence what is wrong.

It shares no code with the decisions: what lies inside a guarantee, what is free and who waits is worked out here anew
from the tables, in the plainest way. `Step` watches one act: it looks at every change when it is made, with the state
as it was just before, so that a victim is judged by what it was at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import IslandKey, PoolKey, Service
from plimsoll.ledger.model import Draft
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Kind, QuotaKey
from plimsoll.state.state import State
from plimsoll.state.table import Orders, Table
from plimsoll.times import format_time
from plimsoll.workloads.changes import WorkloadPlaced
from plimsoll.workloads.fold_tables import Workloads, floor_of
from plimsoll.workloads.model import Because, Part, PartSpec, RunsAs, Spec, Workload

TIERS = ("critical", "high", "mid", "low")
UP = Service.IN_SERVICE
LOSSES = (Because.NODE_LOST, Because.PLANNED_WORK)


class Broken(AssertionError):
    """A rule does not hold; the message is the sentence that says which."""


def need(is_so: bool, sentence: str) -> None:
    if not is_so:
        raise Broken(sentence)


# What a state must be, whatever happened.


def check_state(state: State) -> None:
    """Rules 1 and 2, and that nothing waits without a word (rule 4)."""
    _check_line(state)
    _check_gpus_once(state)
    for name, workload in state.of(Workloads).workloads.items():
        _check_shape(state, name, workload)
    _check_reasons(state)
    check_floor(state)


def _check_line(state: State) -> None:
    book = state.of(QuotaBook)
    promised: Counter[PoolKey] = Counter()
    for key, gpus in book.guaranteed.items():
        need(gpus > 0, f"{key} is guaranteed {gpus}")
        promised[key.pool] += gpus
    for pool, gpus in promised.items():
        line = book.lines[pool].gpus if pool in book.lines else 0
        need(gpus <= line, f"{pool}: {gpus} are guaranteed over a line in force of {line}")


def _check_gpus_once(state: State) -> None:
    fleet, work = state.of(Fleet), state.of(Workloads)
    on_node: Counter[str] = Counter()
    in_island: Counter[IslandKey] = Counter()
    for workload in work.workloads.values():
        for part in workload.parts:
            for block in part.blocks:
                in_island[IslandKey(block.island, part.sku)] += block.gpus
                for node, gpus in block.nodes:
                    need(gpus > 0, f"{workload.id}/{part.name} holds {gpus} GPUs of {node}")
                    on_node[node] += gpus
    for name, gpus in on_node.items():
        need(gpus <= fleet.nodes[name].gpus, f"{name} has {fleet.nodes[name].gpus} GPUs and {gpus} of them are held")
    installed: Counter[IslandKey] = Counter()
    for each in fleet.nodes.values():
        installed[IslandKey(each.island, each.sku)] += each.gpus
    for key, gpus in in_island.items():
        need(gpus <= installed[key], f"{key} has {installed[key]} GPUs and {gpus} of them are held")
    held = {key: gpus for key, gpus in in_island.items() if gpus}
    need(dict(work.held) == held, f"held by island is {dict(work.held)} and counts up to {held}")


def _check_shape(state: State, name: str, workload: Workload) -> None:
    """A gang is whole and in one island, replicas are whole, and all of it is in one cluster."""
    fleet, asked = state.of(Fleet), state.of(Workloads).asked.get(name)
    clusters = {node.island: node.cluster for node in fleet.nodes.values()}
    need(bool(workload.parts), f"{name} runs without parts")
    for part in workload.parts:
        what = f"{name}/{part.name}{' (spare)' if part.is_spare else ''}"
        need(bool(part.blocks), f"{what} runs without GPUs")
        islands = [block.island for block in part.blocks]
        need(len(set(islands)) == len(islands), f"{what} has two blocks in one island: {islands}")
        for block in part.blocks:
            need(clusters[block.island] == workload.cluster, f"{what} is in {block.island}, elsewhere")
            if asked is not None and not asked.is_observed and block.nodes:
                total = sum(gpus for _, gpus in block.nodes)
                need(total == block.gpus, f"{what} holds {block.gpus} GPUs, on nodes {total}")
            for node, _ in block.nodes:
                there = fleet.nodes[node]
                need((there.island, there.sku) == (block.island, part.sku), f"{what}: {node} is not in {block.island}")
        if part.kind is Kind.GANG:
            need(len(islands) == 1, f"gang {what} spans {islands}")
        if asked is None:
            continue
        spec = asked.spec.part(part.name)
        if part.is_spare:
            need(spec.is_gang, f"{what} is the spare of something elastic")
            gang = workload.running(part.name)
            need(gang is not None, f"{what} is the spare of a gang that does not run")
        elif spec.is_gang:
            need(part.gpus == spec.gpus, f"gang {what} has {part.gpus} of {spec.gpus} GPUs")
        else:
            _check_replicas(what, spec, part)


def _check_replicas(what: str, spec: PartSpec, part: Part) -> None:
    for block in part.blocks:
        need(block.gpus % spec.gpus == 0, f"{what}: {block.gpus} GPUs are no whole replicas of {spec.gpus}")
    count = part.gpus // spec.gpus
    need(count <= spec.most, f"{what} has {count} replicas of at most {spec.most}")


def _check_reasons(state: State) -> None:
    """Who does not have the least it needs is booked for, or waits with a cause and a number."""
    work = state.of(Workloads)
    for name, asked in work.asked.items():
        short = [part.name for part in asked.spec.parts if _is_short(part, work.workloads.get(name))]
        if name in work.bookings:
            need(name not in work.queued, f"{name} is booked for and stands in the queue as well")
            continue
        need(bool(short) == (name in work.queued), f"{name} is short of {short}, and queued: {name in work.queued}")
        if not short:
            need(name not in work.waits, f"{name} has all it needs and waits: {work.waits.get(name)}")
            continue
        first = work.queue.of(work.queued[name][0])[0][-1]
        wait = work.waits.get(name) or work.waits.get(first)
        need(wait is not None, f"{name} waits for {short} without a reason")
        assert wait is not None
        need(wait.reason.gpus > 0, f"{name} waits for {wait.reason.gpus} GPUs")
        need(work.wait_of(name) == wait, f"{name}: the reason told is {work.wait_of(name)}")


def _is_short(part: PartSpec, workload: Workload | None) -> bool:
    if workload is None:
        return True
    has = sum(each.gpus for each in workload.parts if each.name == part.name and not each.is_spare)
    return has < (part.gpus if part.is_gang else part.gpus * part.least)


def check_settled(state: State) -> None:
    """After a round: nothing that we place is still on a node that died."""
    fleet, work = state.of(Fleet), state.of(Workloads)
    for name, part, node, _ in _on_nodes(work):
        if name in work.asked:
            service = fleet.nodes[node].service
            need(service in (UP, Service.DRAINING), f"{name}/{part.name} still runs on {node}, which is {service}")


def _on_nodes(work: Workloads) -> Iterator[tuple[str, Part, str, int]]:
    for name, workload in work.workloads.items():
        for part in workload.parts:
            for block in part.blocks:
                for node, gpus in block.nodes:
                    yield name, part, node, gpus


# What lies inside guarantees, worked out anew.


def inside_guarantee(state: State, key: QuotaKey) -> dict[tuple[str, str, bool], int]:
    """By work, part and whether it is a spare: the GPUs inside the team's guarantee (rule 3)."""
    work = state.of(Workloads)
    left = state.of(QuotaBook).guaranteed.get(key, 0)
    rows = []
    for name, workload in work.workloads.items():
        if (workload.team, workload.cluster) != (key.team, key.cluster):
            continue
        asked = work.asked.get(name)
        submitted = asked.submitted if asked is not None else workload.submitted
        for part in workload.parts:
            is_flex = asked is not None and asked.spec.runs_as is RunsAs.FLEX
            if part.sku == key.sku and not is_flex:
                order = TIERS.index(part.tier), part.rank, submitted, name, part.is_spare, part.name
                rows.append((order, name, part))
    rows.sort(key=lambda row: row[0])
    first, kept = _drawn(state, key, rows)
    left -= min(left, kept)
    rows.sort(key=lambda row: ((row[1], row[2].name, row[2].is_spare) not in first, row[0]))
    found = {}
    for _, name, part in rows:
        unit = _unit(state, name, part)
        taken = part.gpus if part.gpus <= left else 0 if part.kind is Kind.GANG else left // unit * unit
        found[name, part.name, part.is_spare] = taken
        left -= taken
    return found


def _unit(state: State, name: str, part: Part) -> int:
    asked = state.of(Workloads).asked.get(name)
    return 1 if asked is None or part.is_spare else asked.spec.part(part.name).gpus


def _drawn(
    state: State, key: QuotaKey, rows: Sequence[tuple[Any, str, Part]]
) -> tuple[set[tuple[str, str, bool]], int]:
    """The parts that draw on what the team keeps, and what it still keeps for those who do not use it."""
    work, kept = state.of(Workloads), 0
    first: set[tuple[str, str, bool]] = set()
    holds = [hold for _, hold in sorted(work.holds.items()) if hold.key == key]
    for hold in holds:
        left = hold.gpus
        for _, name, part in rows:
            asked = work.asked.get(name)
            who = name, part.name, part.is_spare
            is_theirs = hold.keeper == name or (asked is not None and hold.keeper == asked.spec.owner)
            if left > 0 and is_theirs and who not in first:
                first.add(who)
                left -= part.gpus
        kept += max(0, left)
    return first, kept


# One act, change by change.


class Step:
    """Watches what an act does to a state: give it the state before, then every draft in its order."""

    def __init__(self, before: State) -> None:
        self._state = before.fork()
        floor_of(self._state)
        self._moved: dict[tuple[str, str], int] = {}

    def follow(self, drafts: Iterable[Draft], now: datetime) -> None:
        for draft in drafts:
            if isinstance(draft.change, WorkloadPlaced):
                self._judge(draft.change, now)
            else:
                self._state.assume((draft,), recorded_at=format_time(now))
        for (name, part), gpus in self._moved.items():
            if name not in self._state.of(Workloads).asked:
                continue  # it ended in the same act
            workload = self._state.of(Workloads).workloads.get(name)
            has = _gpus(workload, part)
            need(has >= gpus, f"{name}/{part} had {gpus} GPUs, was moved for another, and has {has}")

    def _judge(self, change: WorkloadPlaced, now: datetime) -> None:
        state, name = self._state, change.workload
        work = state.of(Workloads)
        before, asked = work.workloads.get(name), work.asked.get(name)
        inside = inside_guarantee(state, QuotaKey(before.team, before.cluster, change.sku)) if before else {}
        by_before = work.asked.get(change.by)
        nodes_before = _nodes_of(before)
        state.assume((Draft(change),), recorded_at=format_time(now))
        after = work.workloads.get(name)
        self._judge_nodes(name, nodes_before, _nodes_of(after))
        if before is not None and change.because is Because.PREEMPTED:
            assert by_before is not None, f"{name} was preempted by {change.by}, which nobody submitted"
            self._judge_victim(change, before, after, inside, by_before.spec)
        for placed in change.parts:
            had, has = _gpus(before, placed.part), _gpus(after, placed.part)
            if change.because is Because.MOVED and before is not None and has < had:
                self._moved.setdefault((name, placed.part), had)
            spec = (asked or work.asked[name]).spec.part(placed.part)
            self._judge_least(change, spec, had, has, safe=inside.get((name, placed.part, False), 0))

    def _judge_nodes(self, name: str, before: Counter[str], after: Counter[str]) -> None:
        for node, gpus in after.items():
            service = self._state.of(Fleet).nodes[node].service
            need(service is UP or gpus <= before[node], f"{name} was put on {node}, which is {service}")

    def _judge_victim(
        self,
        change: WorkloadPlaced,
        before: Workload,
        after: Workload | None,
        inside: Mapping[tuple[str, str, bool], int],
        by: Spec,
    ) -> None:
        if by.team == before.team:
            return
        for part in before.parts:
            if part.is_spare and not _gpus(after, part.name):
                continue  # the spares of a gang that stops go with it
            has = sum(
                each.gpus
                for each in (after.parts if after is not None else ())
                if (each.name, each.is_spare) == (part.name, part.is_spare)
            )
            safe = inside.get((before.id, part.name, part.is_spare), 0)
            need(
                has >= min(safe, part.gpus),
                f"{before.id}/{part.name} of {before.team} holds {part.gpus} GPUs, {safe} of them inside its guarantee,"
                f" and was cut to {has} for {change.by} of {by.team}",
            )

    def _judge_least(self, change: WorkloadPlaced, spec: PartSpec, had: int, has: int, *, safe: int) -> None:
        """Whoever can't have its least stops, unless a guarantee holds a part of it: that is nobody's to take."""
        what = f"{change.workload}/{spec.name}"
        if spec.is_gang or change.because in (*LOSSES, Because.MOVED, Because.SCALED):
            return
        need(
            has == 0 or has >= spec.gpus * spec.least or has > had or 0 < safe <= has,
            f"{what} was {change.because} from {had} to {has} GPUs, and needs {spec.gpus * spec.least}",
        )


def _gpus(workload: Workload | None, part: str) -> int:
    parts = workload.parts if workload is not None else ()
    return sum(each.gpus for each in parts if each.name == part and not each.is_spare)


def _nodes_of(workload: Workload | None) -> Counter[str]:
    found: Counter[str] = Counter()
    for part in workload.parts if workload is not None else ():
        for block in part.blocks:
            found.update(dict.fromkeys((node for node, _ in block.nodes), 0))
            for node, gpus in block.nodes:
                found[node] += gpus
    return found


# What is derived.


def check_floor(state: State) -> None:
    """The floor's numbers, against a recount."""
    fleet, work, floor = state.of(Fleet), state.of(Workloads), floor_of(state)
    used: Counter[str] = Counter()
    free: Counter[IslandKey] = Counter()
    parts_on: dict[str, Counter[tuple[str, str]]] = {}
    for name, part, node, gpus in _on_nodes(work):
        used[node] += gpus
        parts_on.setdefault(node, Counter())[name, part.name] += 1
    nodes: dict[IslandKey, list[tuple[int, str]]] = {}
    for each in fleet.nodes.values():
        key = IslandKey(each.island, each.sku)
        free[key] += 0
        if each.service is UP:
            left = each.gpus - used[each.id]
            free[key] += left
            if left > 0:
                nodes.setdefault(key, []).append((left, each.id))
    for workload in work.workloads.values():
        for part in workload.parts:
            for block in part.blocks:
                unknown = block.gpus - sum(gpus for _, gpus in block.nodes)
                free[IslandKey(block.island, part.sku)] -= unknown
    for booking in work.bookings.values():
        kept: Counter[str] = Counter()
        for place in booking.places:
            kept[place.island] += place.gpus
        for victim in booking.victims:
            kept[victim.island] -= victim.gpus
        for island, gpus in kept.items():
            free[IslandKey(island, booking.sku)] -= max(0, gpus)
    _same("free", dict(floor.free), dict(free))
    _same("used", dict(floor.used), {node: gpus for node, gpus in used.items() if gpus})
    _same("short", dict(floor.short), {key: -gpus for key, gpus in free.items() if gpus < 0})
    _same("parts on nodes", {node: Counter(parts) for node, parts in floor.parts_on.items()}, parts_on)
    for key in {*free, *nodes}:
        _same(f"nodes of {key}", list(floor.nodes.of(key)), sorted(nodes.get(key, [])))
    by_pool: dict[PoolKey, list[tuple[int, str]]] = {}
    clusters = {node.island: node.cluster for node in fleet.nodes.values()}
    for key, gpus in free.items():
        by_pool.setdefault(PoolKey(clusters[key.island], key.sku), []).append((gpus, key.island))
    for pool, islands in by_pool.items():
        _same(f"islands of {pool}", list(floor.by_pool.of(pool)), sorted(islands))
    for table, services in ((floor.lost, None), (floor.drains, Service.DRAINING)):
        want: dict[tuple[str, str], set[str]] = {}
        for name, part, node, _ in _on_nodes(work):
            service = fleet.nodes[node].service
            is_so = service is services if services else service not in (UP, Service.DRAINING)
            if is_so:
                want.setdefault((name, part.name), set()).add(node)
        _same("nodes that died or drain", {who: set(mine) for who, mine in table.items()}, want)


def _same(what: str, found: Any, want: Any) -> None:
    if found != want:
        if isinstance(found, dict):
            keys = [key for key in {*found, *want} if found.get(key) != want.get(key)]
            found, want = ({key: each.get(key) for key in keys} for each in (found, want))
        raise Broken(f"{what}: the tables say {found}, and it counts up to {want}")


def check_rebuild(state: State) -> None:
    """What is derived is what a state that was saved and loaded derives."""
    twin = State(state.kinds)
    twin.load(state.dump())
    for kind in (Workloads, QuotaBook):
        mine, theirs = (_contents(each.of(kind)) for each in (state, twin))
        for name in mine.keys() | theirs.keys():
            if name == "assigned":
                continue
            _same(f"{kind.__name__}.{name}", mine.get(name), theirs.get(name))
    need(state.dump() == twin.dump(), "a state that was saved and loaded is saved as something else")
    check_floor(twin)


_ANY_ORDER = ("work_claims",)


def _contents(tables: object) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(tables).items():
        if isinstance(value, Table):
            items = {key: each for key, each in value.items() if each != ()}
            if name in _ANY_ORDER:
                items = {key: sorted(each, key=repr) for key, each in items.items()}
            found[name] = items
        elif isinstance(value, Orders):
            found[name] = {key: list(value.of(key)) for key in value.listed()}
    return found


def picture(state: State) -> dict[str, Any]:
    """All that a state holds, the floor too, to be compared with what it holds later."""
    found: dict[str, Any] = {"revision": state.revision, "recorded_at": state.recorded_at}
    for room in state.kinds.rooms:
        for name, value in _raw(state.of(room.tables)).items():
            found[f"{room.name}.{name}"] = value
    for name, value in _raw(floor_of(state)).items():
        found[f"floor.{name}"] = value
    return found


def _raw(tables: object) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(tables).items():
        if isinstance(value, Table):
            found[name] = dict(value)
        elif isinstance(value, Orders):
            found[name] = {key: list(value.of(key)) for key in value.listed()}
    return found


def check_same_picture(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for name in before.keys() | after.keys():
        _same(f"{name}, after it was undone", after.get(name), before.get(name))
