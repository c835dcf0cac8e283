"""A pool whose guarantees are steered: a clock that tests move, nodes and work in one line, and what the book says."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, PoolKey, Purpose, Service
from plimsoll.ledger.model import Change, Draft, Event
from plimsoll.quota.apply import Applied
from plimsoll.quota.changes import QuotaAssigned
from plimsoll.quota.control import Step
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Hull, hull_now, look
from plimsoll.quota.lines import lines_now
from plimsoll.quota.model import Answer, Kind, Mode, Notice, Quota, Tier
from plimsoll.quota.plan import NO_LINE, Plan, Trim, make_plan, policy_in_force
from plimsoll.quota.policy import day_of, parse_word
from plimsoll.quota.service import answer_notices, apply_plan, put_policy_in_force, run_controller, set_mode
from plimsoll.rooms import open_keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time
from plimsoll.workloads.changes import WorkloadGone, WorkloadObserved
from plimsoll.workloads.model import Block, Part, Workload
from tests.support.imports import IN_MEMORY, NOW

TIGER = PoolKey("tiger", "H200")
SIZE = 8
DAY = timedelta(days=1)
WEEK = 7 * DAY

FIXED = """\
policy: test
lines:
  - {{scope: {{}}, by: fixed, buffer: {buffer}, of: {of}}}
pins: [{pins}]
blocks: []
stability: {{dead_band: {dead_band}, change_every: 7d, notice: 3d, grow_after: 1d}}
"""


def policy_text(
    *, buffer: str = "0", of: str = "total", dead_band: str = "0.02", pins: Mapping[str, int] | None = None
) -> str:
    """A policy file with one rule for all; pins are in nodes of the pool."""
    listed = ", ".join(
        f"{{team: {team}, cluster: tiger, sku: H200, gpus: {nodes * SIZE}, why: launch}}"
        for team, nodes in (pins or {}).items()
    )
    return FIXED.format(buffer=buffer, of=of, dead_band=dead_band, pins=listed)


class Work(NamedTuple):
    """Running work, in nodes."""

    team: str
    nodes: int
    idle: int = 0
    kind: Kind = Kind.ELASTIC
    name: str = ""
    rank: int = 1

    @property
    def id(self) -> str:
        return self.name or f"run-{self.team}"


class Harbour:
    """One pool of `nodes` nodes; guarantees and quotas are told in nodes. Its clock shows `now`, moved by `wait`."""

    def __init__(
        self,
        nodes: int = 100,
        quotas: Mapping[str, int] | None = None,
        work: Sequence[Work] = (),
        *,
        policy: str = "",
        dsn: str = IN_MEMORY,
    ) -> None:
        self.now, self.dsn = NOW, dsn
        self.keeper = open_keeper(dsn, create=True, clock=lambda: self.now)
        if self.keeper.state().revision:
            return
        cluster = Cluster(TIGER.cluster, "r", Area.US, "c", "p", Purpose.RESEARCH, Phase.PRODUCTION)
        self.commit(ClusterRecorded(cluster))
        self.commit(*(NodeRecorded(self._node(number)) for number in range(nodes)))
        self.assign(**(quotas or {}))
        self.run(*work)
        self.rule(policy or policy_text())

    def _node(self, number: int, service: Service = Service.IN_SERVICE, since: datetime | None = None) -> Node:
        return Node(f"n{number:03}", TIGER.cluster, "tiger-a", TIGER.sku, SIZE, service, since)

    def __enter__(self) -> Harbour:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.keeper.close()

    # What happens.

    def commit(self, *changes: Change) -> list[Event]:
        return self.keeper.commit([Draft(change) for change in changes], actor="tester", read_at=None)

    def wait(self, span: timedelta) -> None:
        self.now += span

    def catch_up(self) -> None:
        """Set the clock to where whoever wrote before had it."""
        self.now = parse_time(self.keeper.ledger.head().recorded_at)

    def assign(self, **quotas: int) -> None:
        """The book, in nodes."""
        self.commit(*(QuotaAssigned(Quota(team, *TIGER, nodes * SIZE)) for team, nodes in quotas.items()))

    def run(self, *work: Work) -> None:
        """This runs now; work of no nodes is gone."""
        for each in work:
            if not each.nodes:
                self.commit(WorkloadGone(each.id))
                continue
            block = Block("tiger-a", each.nodes * SIZE, each.idle * SIZE)
            part = Part(each.kind, Tier.HIGH, each.rank, TIGER.sku, (block,))
            self.commit(WorkloadObserved(Workload(each.id, each.team, TIGER.cluster, (part,))))

    def work_only(self, healthy: int, *, since: datetime | None = None, out: Service = Service.REPAIR) -> None:
        """So many nodes are in service from now on; those that change do so now, or at `since`."""
        changes = []
        for place, node in enumerate(self._nodes()):
            is_in = place < healthy
            service = Service.IN_SERVICE if is_in else out
            if is_in is not (node.service is Service.IN_SERVICE):
                changes.append(NodeRecorded(self._node(int(node.id[1:]), service, since or self.now)))
        self.commit(*changes)

    def _nodes(self) -> list[Node]:
        return sorted(self.state.of(Fleet).nodes.values(), key=lambda node: node.id)

    def rule(self, policy: str) -> None:
        """Put a policy in force."""
        put_policy_in_force(self.keeper, policy, source="test", actor="rpm", reason="")

    def mode(self, mode: Mode = Mode.ENFORCE) -> None:
        set_mode(self.keeper, TIGER.cluster, mode, actor="rpm", reason="")

    def plan(self, state: State | None = None, *, word: str = "", trim: Trim = Trim.NOTHING) -> Plan:
        meant = state or self.state
        return make_plan(meant, parse_word(word) if word else policy_in_force(meant), now=self.now, trim=trim)

    def apply(
        self, *, word: str = "", trim: Trim = Trim.NOTHING, actor: str = "rpm", **options: Any
    ) -> tuple[Applied, list[Event]]:
        return apply_plan(
            self.keeper, lambda state: self.plan(state, word=word, trim=trim), actor=actor, reason="why", **options
        )

    def control(self, clusters: Collection[str] = ()) -> Step:
        """A round; returns what it found about the pool."""
        steps, _ = run_controller(self.keeper, actor="controller", clusters=clusters)
        return steps[0]

    def agree(self, team: str, answer: Answer = Answer.AGREED) -> None:
        answer_notices(self.keeper, team, answer, comment="because", actor=team)

    # What is known.

    @property
    def state(self) -> State:
        return self.keeper.state()

    @property
    def book(self) -> QuotaBook:
        return self.state.of(QuotaBook)

    @property
    def guaranteed(self) -> dict[str, int]:
        """In nodes."""
        return {team: gpus // SIZE for team, gpus in self.book.guaranteed_in(TIGER).items()}

    @property
    def line_in_force(self) -> int:
        return self.book.line_of(TIGER) // SIZE

    def notice(self, team: str) -> Notice | None:
        return self.book.notices.get("/".join((team, *TIGER)))

    @property
    def told(self) -> dict[str, int]:
        """To how many nodes each team that has an open notice will fall."""
        return {notice.team: notice.guaranteed // SIZE for notice in self.book.notices.values()}

    def hull(self) -> Hull:
        policy = policy_in_force(self.state)
        lines = lines_now(self.state, policy, now=self.now, pools=[TIGER])
        return hull_now(look(self.state, [TIGER], policy, day_of(self.now))[0], line=lines.get(TIGER, NO_LINE).gpus)

    def kinds(self, after: int) -> list[str]:
        """What was written since a revision."""
        return [event.kind for event in self.keeper.ledger.store.events(after=after)]


# What child processes do.


def steer_for_ever(tell: Callable[[Any], None], dsn: str, seed: int) -> None:
    """Health moves, people apply and trim, the controller makes its rounds; tells every acknowledged revision."""
    chance = random.Random(seed)
    with Harbour(dsn=dsn) as harbour:
        harbour.catch_up()
        tell("ready")
        while True:
            harbour.wait(chance.choice([DAY, 4 * DAY, 8 * DAY]))
            harbour.work_only(chance.randint(0, 12))
            harbour.assign(a=chance.randint(0, 9), b=chance.randint(0, 9))
            harbour.run(Work("a", chance.randint(1, 6)))
            harbour.control()
            tell(harbour.state.revision)
            for team in sorted(harbour.told):
                harbour.agree(team)
            harbour.apply(word="fixed:0.1", trim=chance.choice(list(Trim)), needs_notice=chance.random() < 0.5)
            tell(harbour.state.revision)
