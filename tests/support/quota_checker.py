"""Judges a plan of alignment by the words of the design alone: rows of a fleet folder in, what is wrong with it out.

It shares no code with the decisions and finds most things by trying all that is possible, so pools must be small. Where
more work is known than nodes are in service, what is left of it is taken as told, within what can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, NamedTuple

Row = Mapping[str, str]
Key = tuple[str, str, str]
"""Team, cluster, SKU."""
TIERS = ("critical", "high", "mid", "low")
KINDS = ("unscheduled", "idle", "running")
CHOICES_MAX = 2_000
"""Above so many combinations of gangs it is not tried which of them breaks the fewest."""


class Rows(NamedTuple):
    """A fleet folder."""

    clusters: Sequence[Row]
    nodes: Sequence[Row]
    quotas: Sequence[Row]
    workloads: Sequence[Row]


class Terms(NamedTuple):
    """The policy: `fixed` with its variant, pins and minimum blocks in GPUs."""

    buffer: Fraction
    is_of_healthy: bool = False
    pins: Mapping[Key, int] = {}
    blocks: Mapping[Key, int] = {}


class Work(NamedTuple):
    """A part that runs. It sorts in the order in which a team's parts fill its guarantee."""

    tier: int
    rank: int
    name: str
    gpus: int
    idle: int
    is_gang: bool


class Team(NamedTuple):
    """What a team has in a pool, and what the plan says of it. Counts of nodes are from the top of its quota."""

    name: str
    size: int
    assigned: int
    works: Sequence[Work]
    told: Mapping[str, Any]
    pin: int
    block: int
    is_whole: bool
    """Whether all of its work is known to run."""

    @property
    def guaranteed(self) -> int:
        return int(self.told["guaranteed"])

    @property
    def cut(self) -> int:
        return (self.assigned - self.guaranteed) // self.size

    def has(self) -> tuple[int, int, int]:
        """GPUs of each kind; what is allocated above assigned is flex, and idle is charged to that first."""
        allocated, idle = int(self.told["allocated"]), int(self.told["idle"])
        unscheduled = max(0, self.assigned - allocated)
        above = max(0, allocated - self.assigned)
        idle_inside = max(0, idle - above)
        return unscheduled, idle_inside, self.assigned - unscheduled - idle_inside

    def node_kind(self, place: int) -> int:
        """The worst that the so-many-th node from the top holds: it hurts what is running in it, if only a part."""
        unscheduled, idle, _ = self.has()
        end = (place + 1) * self.size
        return 0 if end <= unscheduled else 1 if end <= unscheduled + idle else 2

    def held(self, guaranteed: int) -> frozenset[str]:
        """The gangs inside a guarantee."""
        return frozenset(work.name for work, gpus in self._filled(guaranteed) if work.is_gang and gpus)

    def inside(self, guaranteed: int) -> int:
        return sum(gpus for _, gpus in self._filled(guaranteed))

    def _filled(self, guaranteed: int) -> Iterator[tuple[Work, int]]:
        left = guaranteed
        for work in sorted(self.works):
            gpus = (work.gpus if work.gpus <= left else 0) if work.is_gang else min(work.gpus, left)
            left -= gpus
            yield work, gpus

    def is_broken(self, guaranteed: int) -> int:
        """How many gangs that the book held the guarantee does not."""
        return len(self.held(self.assigned) - self.held(guaranteed))

    @property
    def gang_floor(self) -> int:
        """The least guarantee, in whole nodes, that leaves every gang whole that was whole."""
        if not self.is_whole:
            return 0
        return next(g for g in range(0, self.assigned + 1, self.size) if not self.is_broken(g))

    @property
    def pin_floor(self) -> int:
        return min(self.pin, self.assigned)

    @property
    def block_floor(self) -> int:
        """A block that the team never had in the book is none."""
        return self.block if self.block <= self.assigned else 0

    @property
    def is_fallen(self) -> bool:
        return self.guaranteed < self.block_floor

    def floor(self, *, with_gangs: bool) -> int:
        """How low the team may go, given whether its block has fallen."""
        floor = max(self.pin_floor, 0 if self.is_fallen else self.block_floor)
        return max(floor, self.gang_floor) if with_gangs and not self.is_fallen else floor


class Pool(NamedTuple):
    """A pool as the rows have it, and as the plan tells it."""

    size: int
    total: int
    healthy: int
    working: int
    line: int
    teams: Sequence[Team]
    told: Mapping[str, Any]

    @property
    def assigned(self) -> int:
        return sum(team.assigned for team in self.teams)

    @property
    def guaranteed(self) -> int:
        return sum(team.guaranteed for team in self.teams)


def refused_pools(rows: Rows, terms: Terms) -> set[tuple[str, str]]:
    """The pools whose pins alone are above the line: with one of them the plan is refused."""
    found = set()
    for cluster, sku in _keys(rows):
        _, _, _, line = _capacity(rows, terms, cluster, sku)
        quotas = {row["team"]: int(row["gpus"]) for row in _of(rows.quotas, cluster, sku)}
        pinned = sum(min(gpus, terms.pins.get((team, cluster, sku), 0)) for team, gpus in quotas.items())
        if sum(quotas.values()) > line and pinned > line:
            found.add((cluster, sku))
    return found


def check_plan(rows: Rows, terms: Terms, result: Mapping[str, Any]) -> list[str]:
    """What is wrong with a plan; nothing where it is right."""
    told = {(row["cluster"], row["sku"]): row for row in result["clusters"]}
    wrong = [] if sorted(told) == _keys(rows) else [f"pools {sorted(told)}, not {_keys(rows)}"]
    for key in told:
        pool = _pool(rows, terms, result, *key)
        for check in (_numbers, _team_numbers, _flex, _line, _floors, _gangs, _kinds, _shares):
            wrong += [f"{' '.join(key)}: {what}" for what in check(pool)]
    return wrong


def _keys(rows: Rows) -> list[tuple[str, str]]:
    """Pools in production, and those that somebody holds or uses something of."""
    production = {row["cluster"] for row in rows.clusters if row["phase"] == "production"}
    keys = {
        (row["cluster"], row["sku"])
        for row in rows.nodes
        if row["cluster"] in production and row["service"] != "retired"
    }
    keys |= {(row["cluster"], row["sku"]) for row in rows.quotas if int(row["gpus"])}
    return sorted(keys | {(row["cluster"], row["sku"]) for row in rows.workloads})


def _of(rows: Sequence[Mapping[str, Any]], cluster: str, sku: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["cluster"] == cluster and row["sku"] == sku]


def _capacity(rows: Rows, terms: Terms, cluster: str, sku: str) -> tuple[int, int, int, int]:
    """GPUs of a node, nodes in production, those in service, and the line in GPUs."""
    is_production = any(row["cluster"] == cluster and row["phase"] == "production" for row in rows.clusters)
    nodes = [row for row in _of(rows.nodes, cluster, sku) if row["service"] != "retired"]
    size = int(nodes[0]["gpus"]) if nodes else 1
    total = len(nodes) if is_production else 0
    healthy = sum(row["service"] == "in_service" for row in nodes) if is_production else 0
    base = healthy if terms.is_of_healthy else total
    line = max(nodes for nodes in range(healthy + 1) if nodes <= (1 - terms.buffer) * base)
    return size, total, healthy, line * size


def _pool(rows: Rows, terms: Terms, result: Mapping[str, Any], cluster: str, sku: str) -> Pool:
    size, total, healthy, line = _capacity(rows, terms, cluster, sku)
    nodes = _of(rows.nodes, cluster, sku)
    working = sum(int(row["gpus"]) for row in nodes if row["service"] == "in_service")
    works: dict[str, list[Work]] = {}
    for row in _of(rows.workloads, cluster, sku):
        order = TIERS.index(row["tier"]), int(row["rank"]), row["workload"]
        work = Work(*order, int(row["gpus"]), int(row["idle_gpus"]), row["kind"] == "gang")
        works.setdefault(row["team"], []).append(work)
    assigned = {row["team"]: int(row["gpus"]) for row in _of(rows.quotas, cluster, sku)}
    is_whole = sum(work.gpus for each in works.values() for work in each) <= working
    teams = [
        Team(
            row["team"],
            size,
            assigned.get(row["team"], 0),
            works.get(row["team"], ()),
            row,
            terms.pins.get((row["team"], cluster, sku), 0),
            terms.blocks.get((row["team"], cluster, sku), 0),
            is_whole,
        )
        for row in _of(result["teams"], cluster, sku)
    ]
    told = _of(result["clusters"], cluster, sku)[0]
    parties = sorted({team for team, gpus in assigned.items() if gpus} | {*works})
    assert sorted(team.name for team in teams) == parties, f"{cluster} {sku}: the teams are {parties}"
    return Pool(size, total * size, healthy * size, working, line, teams, told)


def _differ(told: Mapping[str, Any], want: Mapping[str, object]) -> Iterator[str]:
    for name, value in want.items():
        if told[name] != value:
            yield f"{name} is {told[name]}, not {value}"


def _numbers(pool: Pool) -> Iterator[str]:
    assigned = pool.assigned
    never_backed, over = max(0, assigned - pool.healthy), max(0, assigned - pool.line)
    want = {
        "total": pool.total,
        "healthy": pool.healthy,
        "line": pool.line,
        "line_in_force": pool.line,
        "assigned": assigned,
        "guaranteed": pool.guaranteed,
        "allocated": sum(team.told["allocated"] for team in pool.teams),
        "over": over,
        "never_backed": never_backed,
        "to_flex": over - never_backed,
        "unallocated": max(0, pool.healthy - assigned),
        "stage": max([1, *(team.told["stage"] for team in pool.teams)]),
    }
    yield from _differ(pool.told, want)
    if not 0 <= pool.told["to_flex"] <= max(0, pool.healthy - pool.line):
        yield f"to_flex is {pool.told['to_flex']}: more than is healthy and above the line"
    if pool.told["allocated"] > pool.working:
        yield f"{pool.told['allocated']} are allocated and {pool.working} work"


def _team_numbers(pool: Pool) -> Iterator[str]:
    for team in pool.teams:
        told, haircut = team.told, team.told["haircut"]
        running, idle = sum(work.gpus for work in team.works), sum(work.idle for work in team.works)
        unscheduled, idle_inside, _ = team.has()
        cut = team.assigned - team.guaranteed
        stage = 4 if haircut["running"] else 3 if haircut["idle"] else 2 if haircut["unscheduled"] else 1
        yield from (f"{team.name}: {what}" for what in _differ(told, {"assigned": team.assigned, "stage": stage}))
        if team.is_whole and (told["allocated"], told["idle"]) != (running, idle):
            yield f"{team.name}: allocated {told['allocated']}, idle {told['idle']}, not {running} and {idle}"
        if not (0 <= told["idle"] <= told["allocated"] <= running and told["idle"] <= idle):
            yield f"{team.name}: {told['allocated']} allocated, {told['idle']} idle of {running} and {idle}"
        if cut < 0 or sum(haircut.values()) != cut or min(haircut.values()) < 0:
            yield f"{team.name}: the haircut {haircut} is not {cut}"
        if cut % pool.size:
            yield f"{team.name}: {cut} is no whole nodes"
        if haircut["unscheduled"] != min(cut, unscheduled) or haircut["idle"] > idle_inside:
            yield f"{team.name}: the haircut {haircut} with {unscheduled} unscheduled and {idle_inside} idle"
        if haircut["running"] and haircut["idle"] < idle_inside:
            yield f"{team.name}: running is cut before its idle"


def _flex(pool: Pool) -> Iterator[str]:
    standing = max(0, pool.healthy - pool.guaranteed)
    yield from _differ(pool.told, {"flex_standing": standing})
    if not all(team.is_whole for team in pool.teams):
        return
    inside = sum(team.inside(team.guaranteed) for team in pool.teams)
    lent = min(pool.guaranteed - inside, max(0, pool.healthy - inside - standing))
    used = sum(work.gpus for team in pool.teams for work in team.works) - inside
    yield from _differ(pool.told, {"flex_lent": lent, "flex_used": used})


def _line(pool: Pool) -> Iterator[str]:
    """Never over the line; nobody changes if it fits; only a block that fell may leave it below the line."""
    if pool.guaranteed > pool.line:
        yield f"{pool.guaranteed} are guaranteed above the line of {pool.line}"
    if pool.assigned <= pool.line:
        yield from (f"{team.name} is cut, and all fits" for team in pool.teams if team.guaranteed != team.assigned)
    elif pool.guaranteed < pool.line and not any(team.is_fallen for team in pool.teams):
        yield f"{pool.guaranteed} are guaranteed, below the line of {pool.line}"


def _floors(pool: Pool) -> Iterator[str]:
    """Pins hold; a block stays whole or falls to the pin, and only if there is no room for it."""
    for team in pool.teams:
        if team.guaranteed < team.pin_floor:
            yield f"{team.name}: {team.guaranteed} is below the pin of {team.pin}"
        if team.is_fallen and team.guaranteed != team.pin_floor:
            yield f"{team.name}: {team.guaranteed} of a block of {team.block}"
        if team.is_fallen:
            others = sum(other.floor(with_gangs=False) for other in pool.teams if other is not team)
            if others + max(team.block_floor, team.pin_floor) <= pool.line:
                yield f"{team.name}: the block of {team.block} fell, and there was room for it"


def _gangs(pool: Pool) -> Iterator[str]:
    """No gang breaks while another choice exists, and no more of them than must, with the blocks that stand."""
    teams = [team for team in pool.teams if team.is_whole and not team.is_fallen]
    broken = {team.name: count for team in teams if (count := team.is_broken(team.guaranteed))}
    if not broken:
        return
    fixed = sum(team.guaranteed for team in pool.teams if team.is_fallen)
    if fixed + sum(team.floor(with_gangs=True) for team in teams) <= pool.line:
        yield f"gangs of {broken} are broken, and another choice exists"
    choices = [range(team.floor(with_gangs=False), team.assigned + 1, pool.size) for team in teams]
    if prod(map(len, choices)) <= CHOICES_MAX:
        counts = [{level: team.is_broken(level) for level in each} for team, each in zip(teams, choices, strict=True)]
        fewest = min(
            sum(count[level] for count, level in zip(counts, levels, strict=True))
            for levels in product(*choices)
            if fixed + sum(levels) <= pool.line
        )
        if sum(broken.values()) > fewest:
            yield f"{broken} gangs are broken; {fewest} would do"


def _kinds(pool: Pool) -> Iterator[str]:
    """Nobody loses a node of a worse kind while another has a whole node of a better one to give."""
    standing = [team for team in pool.teams if not team.is_fallen]
    if not all(team.is_whole for team in pool.teams):
        return
    # A gang comes before the order of kinds: who lost one may have spared others, of whatever kind.
    whole = [team for team in standing if team.cut and not team.is_broken(team.guaranteed)]
    worst = max((team.node_kind(team.cut - 1) for team in whole), default=0)
    for team in standing:
        if team.guaranteed - pool.size >= team.floor(with_gangs=True) and team.node_kind(team.cut) < worst:
            yield f"{KINDS[worst]} is cut, and {team.name} has {KINDS[team.node_kind(team.cut)]} left"


def _shares(pool: Pool) -> Iterator[str]:
    """What each gives of a kind is in proportion to what it has of it, as far as it has room."""
    teams = [team for team in pool.teams if not team.is_fallen]
    if not all(team.is_whole for team in pool.teams) or any(team.is_broken(team.guaranteed) for team in teams):
        return
    for kind, name in enumerate(KINDS):
        given, room = {}, {}
        for team in teams:
            most = (team.assigned - team.floor(with_gangs=True)) // pool.size
            mine = [place for place in range(team.assigned // pool.size) if team.node_kind(place) == kind]
            given[team.name] = len([place for place in mine if place < team.cut and place < most])
            room[team.name] = len([place for place in mine if place < most])
        has = {team.name: (team.has()[kind], team.assigned) for team in teams}
        want = hamilton(sum(given.values()), has, room)
        if given != want:
            yield f"of {name} {given} is given, not {want}"


def hamilton(seats: int, has: Mapping[str, tuple[int, int]], room: Mapping[str, int]) -> dict[str, int]:
    """Largest remainder: seats in proportion to what each has (beside: assigned, for ties), none above its room."""
    sharing = sorted((name for name in has if room[name]), key=lambda name: Fraction(room[name], has[name][0] or 1))
    result = dict.fromkeys(has, 0)
    while sharing:
        first, total = sharing[0], sum(has[name][0] for name in sharing)
        if total and Fraction(seats * has[first][0], total) < room[first]:
            break
        result[first] = min(room[first], seats)
        seats -= result[first]
        sharing = sharing[1:]
    total = sum(has[name][0] for name in sharing)
    exact = {name: Fraction(seats * has[name][0], total) for name in sharing}
    for name, share in exact.items():
        result[name] = int(share)
    rest = seats - sum(int(share) for share in exact.values())
    order = sorted(exact, key=lambda name: (-(exact[name] - int(exact[name])), -has[name][1], name))
    for name in order[:rest]:
        result[name] += 1
    return result
