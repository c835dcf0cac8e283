"""A yard: a small fleet in memory whose work is placed by the real decisions, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, IslandKey, Node, Phase, PoolKey, Purpose, Service
from plimsoll.fleet.selector import Scope
from plimsoll.ledger.model import Change, Draft
from plimsoll.quota.changes import PoolAligned, QuotaAssigned
from plimsoll.quota.model import Kind, Quota, Tier
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.times import format_time
from plimsoll.workloads import desk
from plimsoll.workloads.changes import WorkloadObserved
from plimsoll.workloads.fold_tables import Workloads, floor_of
from plimsoll.workloads.model import Block, Part, PartSpec, RunsAs, Spec, Workload
from plimsoll.workloads.queue import run_round
from plimsoll.workloads.turn import Turn

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
NO_GRACE = timedelta(0)


def gang(gpus: int, name: str = "train", *, tier: Tier = Tier.HIGH, rank: int = 1, spare_nodes: int = 0) -> PartSpec:
    return PartSpec(name, Kind.GANG, tier, rank, gpus, spare_nodes=spare_nodes)


def elastic(
    least: int, most: int, gpus: int = 8, name: str = "graders", *, tier: Tier = Tier.HIGH, rank: int = 2
) -> PartSpec:
    return PartSpec(name, Kind.ELASTIC, tier, rank, gpus, least=least, most=most)


def spec(
    name: str,
    team: str,
    *parts: PartSpec,
    cluster: str = "",
    sku: str = "H200",
    owner: str = "",
    hours: float = 0.0,
    runs_as: RunsAs = RunsAs.ANY,
    checkpoint_minutes: float = 0.0,
    restart_minutes: float = 0.0,
) -> Spec:
    terms = [("sku", (sku,)), *([("cluster", (cluster,))] if cluster else [])]
    return Spec(
        name,
        team,
        Scope(tuple(terms)),
        parts or (gang(8),),
        owner=owner,
        hours=float(hours),
        runs_as=runs_as,
        checkpoint_minutes=float(checkpoint_minutes),
        restart_minutes=float(restart_minutes),
    )


class Yard:
    """Clusters of islands of 8-GPU nodes: `{"tiger": {"a": 4, "b": 2}}` has 6 nodes named `tiger-a-1` and so on.

    `guaranteed` are GPUs by cluster and team, assigned and aligned; without any the pool is not aligned.
    """

    def __init__(
        self,
        islands: Mapping[str, Mapping[str, int]],
        guaranteed: Mapping[str, Mapping[str, int]] | None = None,
        *,
        sku: str = "H200",
        gpus: int = 8,
        grace: timedelta = NO_GRACE,
        assigned: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self.state, self.now, self.grace, self.sku = State(KINDS), START, grace, sku
        changes: list[Change] = []
        for cluster, mine in islands.items():
            changes.append(
                ClusterRecorded(
                    Cluster(cluster, f"{cluster}-region", Area.US, "colo", "cloud", Purpose.RESEARCH, Phase.PRODUCTION),
                    {},
                )
            )
            changes += (
                NodeRecorded(
                    Node(f"{cluster}-{island}-{number}", cluster, f"{cluster}-{island}", sku, gpus, Service.IN_SERVICE),
                    {},
                )
                for island, count in mine.items()
                for number in range(1, count + 1)
            )
        for cluster, teams in (assigned or guaranteed or {}).items():
            changes += (QuotaAssigned(Quota(team, cluster, sku, held)) for team, held in teams.items())
        for cluster, teams in (guaranteed or {}).items():
            changes.append(PoolAligned(cluster, sku, sum(teams.values()), "fixed:0", dict(teams)))
        self.setup = tuple(changes)
        self.do(*changes)

    # What happens.

    def do(self, *changes: Change) -> None:
        self.state.assume([Draft(change) for change in changes], recorded_at=format_time(self.now))

    def wait(self, **span: float) -> None:
        """Time goes by, and does its work."""
        self.now += timedelta(**span)
        self.round()

    def turn(self) -> Turn:
        return Turn(self.state, self.now)

    def round(self) -> None:
        run_round(self.turn(), grace=self.grace)

    def submit(self, *specs: Spec) -> None:
        desk.submit(self.turn(), specs, grace=self.grace)

    def cancel(self, name: str) -> None:
        desk.cancel(self.turn(), name, how="cancelled", grace=self.grace)

    def observe(
        self,
        name: str,
        team: str,
        cluster: str,
        island: str,
        gpus: int,
        *,
        kind: Kind = Kind.GANG,
        tier: Tier = Tier.MID,
    ) -> None:
        part = Part(kind, tier, 1, self.sku, (Block(f"{cluster}-{island}", gpus),))
        self.do(WorkloadObserved(Workload(name, team, cluster, (part,))))

    def set_service(self, nodes: Iterable[str], service: Service, reason: str = "") -> None:
        """Nodes go out of service or come back; what that does to work is decided by the next round."""
        for name in nodes:
            node = self.state.of(Fleet).nodes[name]
            now = msgspec.structs.replace(node, service=service, since=self.now, reason=reason)
            self.do(NodeRecorded(now, {"service": node.service}))

    def lose(self, *nodes: str, reason: str = "xid 79") -> None:
        self.set_service(nodes, Service.QUARANTINED, reason)
        self.round()

    def bring_back(self, *nodes: str) -> None:
        self.set_service(nodes, Service.IN_SERVICE)
        self.round()

    # What is so.

    @property
    def work(self) -> Workloads:
        return self.state.of(Workloads)

    def islands(self, name: str, part: str = "") -> dict[str, int]:
        """GPUs that a workload holds by island, without spares; of one part, where named."""
        workload = self.work.workloads.get(name)
        found: dict[str, int] = {}
        for each in workload.parts if workload is not None else ():
            if not each.is_spare and part in ("", each.name):
                for block in each.blocks:
                    short = block.island.partition("-")[2]
                    found[short] = found.get(short, 0) + block.gpus
        return found

    def nodes(self, name: str, part: str = "") -> set[str]:
        workload = self.work.workloads.get(name)
        parts: Sequence[Part] = workload.parts if workload is not None else ()
        return {node for each in parts if part in ("", each.name) for block in each.blocks for node, _ in block.nodes}

    def cause(self, name: str) -> str:
        """The code of why a workload waits; empty where it does not."""
        wait = self.work.wait_of(name)
        return wait.reason.cause.value if wait is not None else ""

    def free(self, cluster: str, island: str) -> int:
        return floor_of(self.state).free[IslandKey(f"{cluster}-{island}", self.sku)]

    def pool(self, cluster: str) -> PoolKey:
        return PoolKey(cluster, self.sku)
