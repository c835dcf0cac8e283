"""Never over the line, never a worse cut than the design allows: over random fleets, and over the lives they lead.

The plans are judged by `tests/support/quota_checker.py`, which knows the design and none of our code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.errors import Refused
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, PoolKey, Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.ledger.model import Change, Draft
from plimsoll.quota.changes import GrantEnded, QuotaAssigned, QuotaGranted, QuotaTransferred, TeamRenamed
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import QuotaKey
from plimsoll.quota.plan import Plan, Trim, make_plan
from plimsoll.quota.policy import Floor, LineBy, Policy, Rule
from plimsoll.rooms import SHEETS
from plimsoll.state.state import State
from plimsoll.workloads.changes import WorkloadGone
from plimsoll.workloads.fold_tables import Workloads
from tests.support.fleets import HEADERS, row
from tests.support.imports import NOW, Importer
from tests.support.quota_checker import Rows, Terms, check_plan, refused_pools

SOAK_FLEETS = 10_000
SOAK_LIVES = 3_000
TEAMS = ("ada", "bob", "cyd", "dee")
SERVICES = ("in_service",) * 9 + ("repair", "repair", "draining", "retired")
BUFFERS = ("0", "0.05", "0.1", "0.15", "0.34", "0.5", "0.85")

Draw = Callable[[st.SearchStrategy[Any]], Any]
Cells = dict[str, str]


@st.composite
def fleets(draw: Draw) -> Rows:
    """One or two clusters of one or two small pools; more is held, and more runs, than there is."""
    clusters, nodes, quotas, workloads = list[Cells](), list[Cells](), list[Cells](), list[Cells]()
    for cluster in ("tiger", "lynx")[: draw(st.integers(1, 2))]:
        phase = draw(st.sampled_from(["production"] * 6 + ["provisioned", "retired"]))
        clusters.append(row("clusters", cluster=cluster, phase=phase))
        for sku in ("H100", "GB200")[: draw(st.sampled_from([1, 1, 2]))]:
            pool = {"cluster": cluster, "sku": sku}
            size = draw(st.sampled_from([1, 4, 8]))
            mine = draw(node_rows(pool, size))
            nodes += mine
            if mine:
                works = draw(work_rows(pool, size, mine))
                workloads += works
                quotas += draw(quota_rows(pool, size, works))
    return Rows(clusters, nodes, quotas, workloads)


@st.composite
def quota_rows(draw: Draw, pool: Cells, size: int, works: list[Cells]) -> list[Cells]:
    """Near to what each team uses, so that cuts go deep, or anything."""
    used = Counter[str]()
    for work in works:
        used[work["team"]] += int(work["gpus"])
    rows = []
    for team, more in zip(TEAMS, draw(st.lists(st.integers(-1, 8), min_size=2, max_size=len(TEAMS))), strict=False):
        held = max(0, -(-used[team] // size) + more) if more < 3 else more - 3
        rows.append(row("quotas", team=team, gpus=str(held * size), **pool))
    return rows


@st.composite
def node_rows(draw: Draw, pool: Cells, size: int) -> list[Cells]:
    services = draw(st.lists(st.sampled_from(SERVICES), min_size=draw(st.sampled_from([0, 5])), max_size=10))
    if services and draw(st.integers(0, 19)) == 0:
        services = [draw(st.sampled_from(["repair", "retired"]))] * len(services)
    return [
        row(
            "nodes",
            node=f"{pool['cluster']}-{pool['sku']}-{number}",
            island=f"{pool['cluster']}-{number % 2}",
            gpus=str(size),
            service=service,
            **pool,
        )
        for number, service in enumerate(services)
    ]


@st.composite
def work_rows(draw: Draw, pool: Cells, size: int, nodes: list[Cells]) -> list[Cells]:
    """Work that fits what is installed, now and then on dead nodes too: whole nodes of it or parts of one."""
    used = ("in_service",) if draw(st.integers(0, 3)) else {*SERVICES} - {"retired"}
    free: dict[str, int] = {}
    for node in nodes:
        if node["service"] in used:
            free[node["island"]] = free.get(node["island"], 0) + size
    rows = []
    for number, (team, nodes_asked, less, idle, kind) in enumerate(draw(_works)):
        islands = [island for island in sorted(free) if free[island]]
        if not islands:
            break
        island = islands[number % len(islands)]
        gpus = max(1, min(free[island], nodes_asked * size - less % size))
        free[island] -= gpus
        tier, rank = ("critical", "high", "high", "low")[idle % 4], 1 + less % 3
        rows.append(
            row(
                "workloads",
                workload=f"{pool['cluster']}-{pool['sku']}-{number}",
                team=team,
                island=island,
                gpus=str(gpus),
                kind=kind,
                tier=tier,
                rank=str(rank),
                idle_gpus=str(min(gpus, max(0, idle - 3) * size // 2)),
                **pool,
            )
        )
    return rows


_works = st.lists(
    st.tuples(
        st.sampled_from((*TEAMS[:2], *TEAMS, "eve")),
        st.integers(1, 3),
        st.sampled_from([0, 0, 0, 0, 1, 3, 5]),
        st.integers(0, 9),
        st.sampled_from(["gang", "elastic"]),
    ),
    min_size=2,
    max_size=8,
)


@st.composite
def terms_for(draw: Draw, rows: Rows) -> Terms:
    """A policy; often nobody is pinned, so that the pins of one team do not refuse every plan."""
    floors: list[dict[tuple[str, str, str], int]] = [{}, {}]
    sizes = {(node["cluster"], node["sku"]): int(node["gpus"]) for node in rows.nodes}
    for place in range(2):
        if rows.quotas and draw(st.booleans()):
            quota = draw(st.sampled_from(rows.quotas))
            size = sizes[quota["cluster"], quota["sku"]]
            key = quota["team"], quota["cluster"], quota["sku"]
            floors[place][key] = size * draw(st.integers(1, 1 + int(quota["gpus"]) // size))
            others = [each for each in rows.quotas if each is not quota]
            if place and others and draw(st.booleans()):
                other = draw(st.sampled_from(others))
                floors[place][other["team"], other["cluster"], other["sku"]] = 2 * sizes[other["cluster"], other["sku"]]
    return Terms(Fraction(draw(st.sampled_from(BUFFERS))), draw(st.integers(0, 3)) == 0, *floors)


fleets_and_terms = fleets().flatmap(lambda rows: st.tuples(st.just(rows), terms_for(rows)))


def policy_of(terms: Terms) -> Policy:
    rule = Rule(LineBy.FIXED, buffer=terms.buffer, is_of_healthy=terms.is_of_healthy)
    pins, blocks = (
        tuple(Floor(QuotaKey(*key), gpus, "test") for key, gpus in floors.items())
        for floors in (terms.pins, terms.blocks)
    )
    return Policy("test", (rule,), pins, blocks)


def source_of(rows: Rows) -> Source:
    sheets = {}
    for name, cells in rows._asdict().items():
        extra = {column for each in cells for column in each} - {*HEADERS[name]}
        header = [*HEADERS[name], *sorted(extra)]
        sheets[name] = MemorySheet(name, [header, *([each.get(column, "") for column in header] for each in cells)])
    return Source("test", "", sheets)


def imported(rows: Rows) -> Importer:
    importer = Importer()
    import_fleet(importer.keeper, source_of(rows), SHEETS, actor="tester")
    return importer


def document(plan: Plan) -> dict[str, Any]:
    """As `quota plan -o json` has it."""
    built = msgspec.to_builtins(plan.hulls)
    return {"clusters": built, "teams": [team for hull in built for team in hull["teams"]]}


def _judge(rows: Rows, terms: Terms) -> None:
    state = imported(rows).state
    if pinned := refused_pools(rows, terms):
        with pytest.raises(Refused) as caught:
            make_plan(state, policy_of(terms), now=NOW)
        pools = cast(list[dict[str, str]], caught.value.fields["pools"])
        assert {(each["cluster"], each["sku"]) for each in pools} == pinned
        assert caught.value.code == "pins_above_line"
        return
    plan = make_plan(state, policy_of(terms), now=NOW)
    assert check_plan(rows, terms, document(plan)) == []


@given(fleets_and_terms)
@settings(max_examples=5 * settings().max_examples)
def test_never_a_plan_against_the_design(case: tuple[Rows, Terms]) -> None:
    _judge(*case)


@pytest.mark.soak
@given(fleets_and_terms)
@settings(max_examples=SOAK_FLEETS)
def test_never_a_plan_against_the_design_in_ten_thousand_fleets(case: tuple[Rows, Terms]) -> None:
    _judge(*case)


class Life:
    """A fleet to which things happen. A second state follows event by event, so that every state on the way is seen."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.importer = imported(rows)
        self.twin = State(self.importer.keeper.kinds)
        self.renamed = 0
        self.look()

    @property
    def book(self) -> QuotaBook:
        return self.importer.of(QuotaBook)

    def commit(self, changes: list[Change]) -> None:
        """As an event each; but first only tried, which must leave no trace."""
        state, drafts = self.importer.state, [Draft(change) for change in changes]
        before, indexes = state.dump(), _indexes(state)
        with state.what_if() as tried:
            tried.assume(drafts, recorded_at=state.recorded_at)
        assert (state.dump(), _indexes(state)) == (before, indexes), "what was only tried has left a trace"
        if drafts:
            self.importer.keeper.commit(drafts, actor="tester", read_at=None)
        self.look()

    def look(self) -> None:
        """Follow the ledger: never over the line, in no state, and never a guarantee that the book does not know."""
        for event in self.importer.keeper.ledger.store.events(after=self.twin.revision):
            self.twin.apply(event)
            book = self.twin.of(QuotaBook)
            promised: Counter[PoolKey] = Counter()
            for key, gpus in book.guaranteed.items():
                promised[key.pool] += gpus
                assert 0 < gpus <= book.assigned_to(key), f"{key} is guaranteed {gpus} of {book.assigned_to(key)}"
            for pool, gpus in promised.items():
                assert gpus <= book.line_of(pool), f"{gpus} above the line of {pool}, after {event.kind}"
        assert self.twin.dump() == self.importer.state.dump()
        loaded = State(self.twin.kinds)
        loaded.load(self.twin.dump())
        assert loaded.dump() == self.twin.dump()
        assert _indexes(loaded) == _indexes(self.twin)

    # What happens. `dice` are numbers that choose.

    def plan(self, *dice: int) -> None:
        """Plan and apply; what was applied is not planned again."""
        policy = policy_of(Terms(Fraction(BUFFERS[dice[0] % len(BUFFERS)])))
        trim = list(Trim)[dice[1] % 5 % 3]
        plan = make_plan(self.importer.state, policy, now=NOW, trim=trim)
        labels = {key: quota.labels for key, quota in self.book.quotas.items()}
        self.commit([draft.change for each in plan.pools for draft in each.drafts("test")])
        for each in plan.pools:
            assert self.book.guaranteed_in(each.key) == {t: g for t, g in each.alignment.guaranteed.items() if g}
            assert self.book.line_of(each.key) == each.line.gpus
            assert each.hull.assigned == self.book.assigned.get(each.key, 0)
        assert all(quota.labels == labels[key] for key, quota in self.book.quotas.items())
        if trim is Trim.NOTHING or not plan.losses:
            again = make_plan(self.importer.state, policy, now=NOW)
            assert [each.key for each in again.pools if each.is_change] == []

    def health(self, *dice: int) -> None:
        """Some nodes, or all of them, fail or come back."""
        service = (Service.REPAIR, Service.IN_SERVICE, Service.RETIRED)[dice[0] % 5 % 3]
        nodes = [node for _, node in sorted(self.importer.of(Fleet).nodes.items()) if node.service != service]
        chosen = nodes if dice[1] % 4 == 0 else nodes[:: 1 + dice[1] % 5]
        if service is Service.RETIRED:
            held = self.importer.of(Workloads).held
            chosen = [node for node in chosen if not held]
        self.commit([NodeRecorded(msgspec.structs.replace(node, service=service)) for node in chosen])

    def phase(self, *dice: int) -> None:
        clusters = [cluster for _, cluster in sorted(self.importer.of(Fleet).clusters.items())]
        cluster = clusters[dice[0] % len(clusters)]
        phase = (Phase.PRODUCTION, Phase.PRODUCTION, Phase.RETIRED)[dice[1] % 3]
        self.commit([ClusterRecorded(msgspec.structs.replace(cluster, phase=phase))])

    def bring(self, *dice: int) -> None:
        """The folder is imported again, with other quotas: less, more, or none for some."""
        quotas = []
        for number, cells in enumerate(self.rows.quotas):
            size = next(int(n["gpus"]) for n in self.rows.nodes if (n["cluster"], n["sku"]) == _pool_of(cells))
            factor = (0, 1, 1, 2, 4)[dice[number % 3] % 5]
            quotas.append({**cells, "gpus": str(int(cells["gpus"]) // size * factor // 2 * size), "ticket": "Q-1"})
        rows = self.rows._replace(quotas=[cells for cells in quotas if cells["team"] != TEAMS[dice[0] % 7 % 4]])
        import_fleet(self.importer.keeper, source_of(rows), SHEETS, actor="tester", is_removal_allowed=True)
        self.look()

    def transfer(self, *dice: int) -> None:
        """At most what the giver has guaranteed; nothing is lost on the way."""
        givers = sorted(self.book.guaranteed.items())
        if givers:
            key, gpus = givers[dice[0] % len(givers)]
            taker = [team for team in TEAMS if team != key.team][dice[1] % 3]
            before = self.book.assigned[key.pool], sum(self.book.guaranteed_in(key.pool).values())
            moved = 1 + dice[2] % gpus
            self.commit([QuotaTransferred(key.cluster, key.sku, key.team, taker, moved)])
            assert (self.book.assigned[key.pool], sum(self.book.guaranteed_in(key.pool).values())) == before

    def grant(self, *dice: int) -> None:
        """What the line leaves, for a while."""
        pools = sorted(self.book.lines)
        if pools:
            pool, team = pools[dice[0] % len(pools)], TEAMS[dice[1] % 4]
            free = self.book.line_of(pool) - sum(self.book.guaranteed_in(pool).values())
            if free:
                gpus, before = 1 + dice[2] % free, self.book.guaranteed_in(pool)
                self.commit([QuotaGranted(*pool, team, gpus)])
                if dice[2] % 2:
                    self.commit([GrantEnded(*pool, "g", team, gpus)])
                    assert self.book.guaranteed_in(pool) == before, "a grant that is over leaves what was"

    def strike(self, *dice: int) -> None:
        quotas = sorted(self.book.quotas.items())
        if quotas:
            _, quota = quotas[dice[0] % len(quotas)]
            self.commit([QuotaAssigned(msgspec.structs.replace(quota, gpus=dice[1] % (quota.gpus + 1)))])

    def rename(self, *dice: int) -> None:
        """Everything stays with the team, and with nobody else."""
        teams = self.book.teams()
        if teams:
            self.renamed += 1
            old, new = teams[dice[0] % len(teams)], f"team {self.renamed}"
            before, lines = dict(self.book.guaranteed), dict(self.book.lines)
            self.commit([TeamRenamed(old, new)])
            want = {key._replace(team=new) if key.team == old else key: gpus for key, gpus in before.items()}
            assert (dict(self.book.guaranteed), dict(self.book.lines)) == (want, lines)
            assert old not in {key.team for key in (*self.book.quotas, *self.book.claims)}

    def stop(self, *dice: int) -> None:
        running = sorted(self.importer.of(Workloads).workloads)
        self.commit([WorkloadGone(name) for name in running[:: 1 + dice[0] % 3]])


STEPS = ("plan", "plan", "plan", "health", "health", "phase", "bring", "transfer", "grant", "strike", "rename", "stop")
steps = st.lists(st.tuples(st.sampled_from(STEPS), *[st.integers(0, 59)] * 3), max_size=8)


def _pool_of(cells: Mapping[str, str]) -> tuple[str, str]:
    return cells["cluster"], cells["sku"]


def _indexes(state: State) -> tuple[object, ...]:
    """What is derived and not saved; an entry of nothing is as good as none."""
    book = state.of(QuotaBook)
    return (
        {pool: gpus for pool, gpus in book.assigned.items() if gpus},
        {pool: teams for pool, teams in book.pool_teams.items() if teams},
    )


def _live(rows: Rows, happenings: list[tuple[str, int, int, int]]) -> None:
    life = Life(rows)
    for what, *dice in [("plan", 3, 0, 0), *happenings]:
        getattr(life, what)(*dice)


@given(fleets(), steps)
def test_never_above_the_line_whatever_happens(rows: Rows, happenings: list[tuple[str, int, int, int]]) -> None:
    _live(rows, happenings)


@pytest.mark.soak
@given(fleets(), steps)
@settings(max_examples=SOAK_LIVES)
def test_never_above_the_line_in_long_lives(rows: Rows, happenings: list[tuple[str, int, int, int]]) -> None:
    _live(rows, happenings)
