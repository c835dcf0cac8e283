"""Never a GPU twice, never a torn gang, never a guarantee broken for another team, never a wait without a word.

One random machine does what people, hardware, planned work and time do to two small clusters, in any order. After every
step an independent checker counts everything again, and every change of the step is judged at the moment it was made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import IslandKey, Service
from plimsoll.health.ahead import announce, withdraw
from plimsoll.health.fold import Health
from plimsoll.health.model import Ahead
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import PoolAligned, QuotaTransferred
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Kind, QuotaKey, Tier
from plimsoll.times import format_time
from plimsoll.workloads import desk
from plimsoll.workloads.changes import WorkloadGone, WorkloadPlaced
from plimsoll.workloads.fold_tables import floor_of
from plimsoll.workloads.model import PartSpec, RunsAs, Spec
from plimsoll.workloads.queue import run_round, settle_due
from plimsoll.workloads.turn import Turn
from tests.support.workload_checker import (
    Step,
    check_rebuild,
    check_same_picture,
    check_settled,
    check_state,
    picture,
)
from tests.support.yard import Yard, elastic, gang, spec

ISLANDS = {"tiger": {"a": 4, "b": 2, "c": 1}, "lion": {"a": 3}}
GUARANTEED = {"tiger": {"x": 16, "y": 16}, "lion": {"x": 8}}
ASSIGNED = {"tiger": {"x": 24, "y": 24, "z": 8}, "lion": {"x": 24}}
NODES = [
    f"{cluster}-{island}-{number}"
    for cluster, mine in ISLANDS.items()
    for island, count in mine.items()
    for number in range(1, count + 1)
]
TEAMS = ["x", "y", "z"]
OUT = [Service.QUARANTINED, Service.REPAIR, Service.MAINTENANCE, Service.DRAINING, Service.VALIDATING, Service.RETIRED]

_teams = st.sampled_from(TEAMS)
_clusters = st.sampled_from(list(ISLANDS))
_tiers = st.sampled_from(list(Tier))
_nodes = st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True)
_picks = st.integers(0, 30)
_hours = st.sampled_from([0.0, 0.0, 1.0, 4.0, 24.0])
_where = st.sampled_from(["", "", "tiger", "lion"])


@st.composite
def _parts(draw: st.DrawFn) -> tuple[PartSpec, ...]:
    """One to three parts."""
    found = []
    for number in range(draw(st.integers(1, 3))):
        tier, rank = draw(_tiers), number + draw(st.integers(1, 2)) * 10
        if draw(st.booleans()):
            size = draw(st.sampled_from([8, 8, 8, 16, 16, 24, 32]))
            spares = draw(st.sampled_from([0, 0, 1, 2]))
            found.append(gang(size, f"g{number}", tier=tier, rank=rank, spare_nodes=spares))
        else:
            least, more = draw(st.integers(0, 2)), draw(st.integers(0, 4))
            found.append(elastic(least, max(1, least + more), 8, f"e{number}", tier=tier, rank=rank))
    return tuple(found)


class Yards(RuleBasedStateMachine):
    """Ten nodes in four islands of two clusters, three teams, and a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.yard = Yard(ISLANDS, GUARANTEED, assigned=ASSIGNED)
        self.count, self.unit = 0, 8
        self.is_settled = True

    @initialize(minutes=st.sampled_from([0, 0, 10]), unit=st.sampled_from([8, 8, 1]))
    def _start(self, minutes: int, unit: int) -> None:
        """With or without time of grace; replicas have a whole node each, or a GPU each."""
        self.yard.grace = timedelta(minutes=minutes)
        self.unit = unit
        floor_of(self.yard.state)

    # How it is done: as the service does, tried in a what-if and then committed.

    def _act(self, decide: Callable[[Turn], object] | None = None) -> None:
        state, now = self.yard.state, self.yard.now
        floor_of(state)
        step, before = Step(state), picture(state)
        drafts: list[Draft] = []
        with state.what_if():
            turn = self.yard.turn()
            try:
                if decide is None:
                    run_round(turn, grace=self.yard.grace)
                else:
                    settle_due(turn, grace=self.yard.grace)
                settled = list(turn.drafts)
                if decide is not None:
                    decide(turn)
                drafts = turn.drafts
            except PlimsollError:
                drafts = settled
        check_same_picture(before, picture(state))
        state.assume(drafts, recorded_at=format_time(now))
        step.follow(drafts, now)
        self.is_settled = True

    def _outside(self, *drafts: Draft) -> None:
        self.yard.state.assume(drafts, recorded_at=format_time(self.yard.now))
        self.is_settled = False

    def _tick(self) -> None:
        """Submit times differ."""
        self.yard.now += timedelta(seconds=1)

    # People.

    @rule(
        team=_teams,
        parts=_parts(),
        cluster=_where,
        hours=_hours,
        runs_as=st.sampled_from([RunsAs.ANY, RunsAs.ANY, RunsAs.GUARANTEED, RunsAs.FLEX]),
        owner=st.sampled_from(["", "ada"]),
    )
    def submit(
        self, team: str, parts: tuple[PartSpec, ...], cluster: str, hours: float, runs_as: RunsAs, owner: str
    ) -> None:
        self._tick()
        self.count += 1
        parts = tuple(part if part.is_gang else msgspec.structs.replace(part, gpus=self.unit) for part in parts)
        asked = spec(f"w{self.count}", team, *parts, cluster=cluster, hours=hours, runs_as=runs_as, owner=owner)
        self._act(lambda turn: desk.submit(turn, [asked], grace=self.yard.grace))

    @rule(team=_teams, size=st.sampled_from([8, 16]), count=st.integers(2, 6), tier=_tiers)
    def submit_many(self, team: str, size: int, count: int, tier: Tier) -> None:
        self._tick()
        specs: list[Spec] = []
        for _ in range(count):
            self.count += 1
            specs.append(spec(f"w{self.count}", team, gang(size, tier=tier)))
        self._act(lambda turn: desk.submit(turn, specs, grace=self.yard.grace))

    def _name(self, pick: int) -> str:
        names = sorted({*self.yard.work.asked, *self.yard.work.workloads})
        return names[pick % len(names)] if names else "none"

    @rule(pick=_picks, how=st.sampled_from(["cancelled", "finished"]))
    def end(self, pick: int, how: str) -> None:
        name = self._name(pick)
        self._act(lambda turn: desk.cancel(turn, name, how=how, grace=self.yard.grace))

    @rule(pick=_picks, part=st.integers(0, 2), least=st.integers(0, 3), most=st.integers(1, 6))
    def scale(self, pick: int, part: int, least: int, most: int) -> None:
        name = self._name(pick)
        self._act(lambda turn: desk.scale(turn, name, f"e{part}", least=least, most=most, grace=self.yard.grace))

    @rule(pick=_picks, part=st.sampled_from(["g0", "e0", "e1", "train"]), tier=_tiers, number=st.integers(1, 40))
    def rank(self, pick: int, part: str, tier: Tier, number: int) -> None:
        name = self._name(pick)
        self._act(lambda turn: desk.rank(turn, name, part, tier=tier, rank_now=number, grace=self.yard.grace))

    @rule(
        team=_teams,
        cluster=_clusters,
        gpus=st.sampled_from([8, 16]),
        keeper=st.sampled_from(["ada", "w1", "w3"]),
        hours=st.integers(1, 10),
    )
    def hold_quota(self, team: str, cluster: str, gpus: int, keeper: str, hours: int) -> None:
        self.count += 1
        self._act(
            lambda turn: desk.hold_quota(
                turn,
                team=team,
                cluster=cluster,
                sku="H200",
                gpus=gpus,
                keeper=keeper,
                until=turn.now + timedelta(hours=hours),
                by="ada",
                reason="mine",
            )
        )

    @rule(pick=_picks)
    def release_quota(self, pick: int) -> None:
        ids = sorted(self.yard.work.holds)
        name = ids[pick % len(ids)] if ids else "none"
        self._act(lambda turn: desk.release_quota(turn, name, grace=self.yard.grace))

    # Quota.

    @rule(cluster=_clusters, giver=_teams, taker=_teams, gpus=st.sampled_from([8, 16]), is_settled=st.booleans())
    def transfer(self, cluster: str, giver: str, taker: str, gpus: int, is_settled: bool) -> None:
        has = self.yard.state.of(QuotaBook).guaranteed.get(QuotaKey(giver, cluster, "H200"), 0)
        if giver != taker and has >= gpus:
            self._outside(Draft(QuotaTransferred(cluster, "H200", giver=giver, taker=taker, gpus=gpus)))
            if is_settled:
                self.round()

    @rule(cluster=_clusters, shares=st.tuples(*[st.integers(0, 3)] * 3), is_settled=st.booleans())
    def align(self, cluster: str, shares: tuple[int, ...], is_settled: bool) -> None:
        line = sum(ISLANDS[cluster].values()) * 8
        promised = {team: share * 8 for team, share in zip(TEAMS, shares, strict=True) if share}
        if sum(promised.values()) <= line:
            self._outside(Draft(PoolAligned(cluster, "H200", line, "fixed:0", promised)))
            if is_settled:
                self.round()

    # Hardware and planned work.

    @rule(nodes=_nodes, service=st.sampled_from(OUT), is_settled=st.booleans())
    def go_out(self, nodes: list[str], service: Service, is_settled: bool) -> None:
        self.yard.set_service(nodes, service, "xid 79")
        self.is_settled = False
        if is_settled:
            self.round()

    @rule(where=st.sampled_from([("tiger", "a"), ("tiger", "b"), ("lion", "a")]))
    def lose_an_island(self, where: tuple[str, str]) -> None:
        cluster, island = where
        numbers = range(1, ISLANDS[cluster][island] + 1)
        self.yard.set_service([f"{cluster}-{island}-{number}" for number in numbers], Service.REPAIR, "power")
        self.is_settled = False
        self.round()

    @rule(nodes=_nodes, is_settled=st.booleans())
    def come_back(self, nodes: list[str], is_settled: bool) -> None:
        self.yard.set_service(nodes, Service.IN_SERVICE)
        self.is_settled = False
        if is_settled:
            self.round()

    @rule(is_settled=st.booleans())
    def all_come_back(self, is_settled: bool) -> None:
        self.yard.set_service(NODES, Service.IN_SERVICE)
        self.is_settled = False
        if is_settled:
            self.round()

    @rule(nodes=_nodes, begins=st.integers(-1, 6), lasts=st.integers(2, 6))
    def announce(self, nodes: list[str], begins: int, lasts: int) -> None:
        self.count += 1
        starts = self.yard.now + timedelta(hours=begins)
        work = Ahead(f"work{self.count}", "ada", tuple(nodes), starts, starts + timedelta(hours=lasts), "firmware")
        _, drafts = announce(self.yard.state, work, now=self.yard.now)
        self._outside(*drafts)

    @rule(pick=_picks)
    def withdraw(self, pick: int) -> None:
        ids = sorted(self.yard.state.of(Health).ahead)
        if ids:
            _, drafts = withdraw(self.yard.state, ids[pick % len(ids)], actor="ada")
            self._outside(*drafts)

    @rule(
        team=_teams,
        where=st.sampled_from([("tiger", "a"), ("tiger", "b"), ("lion", "a")]),
        gpus=st.sampled_from([8, 16, 24]),
        is_gang=st.booleans(),
    )
    def observe(self, team: str, where: tuple[str, str], gpus: int, is_gang: bool) -> None:
        """Work that nobody submitted is seen where there is room; nobody knows on which nodes."""
        key = IslandKey("-".join(where), "H200")
        if floor_of(self.yard.state).free[key] >= gpus:
            self.count += 1
            kind = Kind.GANG if is_gang else Kind.ELASTIC
            self.yard.observe(f"o{self.count}", team, *where, gpus, kind=kind)
            self.is_settled = False

    @rule(pick=_picks)
    def gone(self, pick: int) -> None:
        names = sorted(self.yard.work.workloads)
        if names:
            self._outside(Draft(WorkloadGone(names[pick % len(names)])))

    # Time.

    @rule(minutes=st.sampled_from([1, 5, 10, 60, 300]))
    def wait(self, minutes: int) -> None:
        self.yard.now += timedelta(minutes=minutes)
        self.round()

    @rule()
    def round(self) -> None:
        self._act()

    @rule()
    def round_again(self) -> None:
        """A round has nothing left for a second one to start or stop."""
        self.round()
        with self.yard.state.what_if():
            turn = self.yard.turn()
            run_round(turn, grace=self.yard.grace)
            placed = [draft.change for draft in turn.drafts if isinstance(draft.change, WorkloadPlaced)]
        assert not placed, f"a second round at the same moment still moves work: {placed}"

    # What always holds.

    @invariant()
    def never_what_the_rules_forbid(self) -> None:
        check_state(self.yard.state)
        if self.is_settled:
            check_settled(self.yard.state)

    @invariant()
    def never_another_state_after_it_was_saved(self) -> None:
        check_rebuild(self.yard.state)

    @invariant()
    def never_a_node_that_is_not_ours(self) -> None:
        assert set(self.yard.state.of(Fleet).nodes) == set(NODES)


TestYards = Yards.TestCase
TestYards.settings = settings(
    max_examples=2_000 if os.environ.get("PLIMSOLL_SOAK") else 40, stateful_step_count=25, report_multiple_bugs=False
)
