"""An independent look at campaigns that run: everything is counted again from the nodes, and every batch that begins is
judged at the moment it does, by the state of that moment. Shares no code with the gate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from plimsoll.campaigns.changes import BatchStepped
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Batch, Limit
from plimsoll.campaigns.run.progress import Run
from plimsoll.campaigns.run.stages import Act, todo
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.fleet.selector import Scope
from plimsoll.health.changes import HoldEnded, NodeMoved
from plimsoll.health.fold import Health
from plimsoll.incidents.fold import Incidents
from plimsoll.ledger.model import Event
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import floor_of

RUNNER = "runner"
"""Who carries campaigns out."""
A100E = {"H200": 3.2, "GB200": 8.0}
LATE = timedelta(minutes=10)
UNDER_WAY = ("marking", "draining", "working", "validating")
HELD_IN = ("draining", "quarantined", "maintenance", "repair", "retired")


def in_scope(scope: Scope, node: Node) -> bool:
    """The machine's files ask for clusters and SKUs only."""
    values = {"cluster": node.cluster, "sku": node.sku}
    return all(values[key] in wanted for key, wanted in scope.terms)


def under_way(state: State) -> list[tuple[Run, str, tuple[str, ...]]]:
    """Every batch that is under way: its campaign, its id, its nodes."""
    return [
        (run, name, each.nodes)
        for run in state.of(Campaigns).runs.values()
        for name, each in run.progress.items()
        if str(each.step) in UNDER_WAY
    ]


def out_for_campaigns(state: State) -> set[str]:
    """Nodes that are not there for anybody because of a campaign: held, validating, or not come back."""
    taken = {name for _, _, names in under_way(state) for name in names}
    holds = state.of(Health).holds
    found = set()
    for node in state.of(Fleet).nodes.values():
        is_held = any(hold.owner.startswith("campaign:") for hold in holds.get(node.id, ()))
        is_away = node.id in taken and node.service is not Service.IN_SERVICE
        if (is_held or is_away) and node.service is not Service.RETIRED:
            found.add(node.id)
    return found


def size_of(limit: Limit, nodes: Iterable[Node]) -> float:
    found = [node for node in nodes if in_scope(limit.scope, node)]
    if str(limit.unit) == "nodes":
        return len(found)
    return sum(node.gpus * (A100E[node.sku] if str(limit.unit) == "a100e" else 1) for node in found)


class Judge:
    """Follows the ledger event by event; what it knows is the fold of the events and nothing else."""

    def __init__(self) -> None:
        self.state = State(KINDS)
        self.begun = 0

    def follow(self, events: Iterable[Event]) -> None:
        for event in events:
            change = KINDS.read(event)
            if isinstance(change, BatchStepped) and str(change.step) == "marking":
                self._judge_begin(change, event.effective_time)
                self.begun += 1
            elif isinstance(change, HoldEnded) and event.actor == RUNNER:
                assert change.owner.startswith("campaign:"), f"a campaign ended {change.owner}'s hold on {change.node}"
            elif isinstance(change, NodeMoved) and str(change.service) == "in_service":
                left = self.state.of(Health).holds.get(change.node, ())
                assert not left, f"{change.node} is back in service with {left}"
            self.state.apply(event)

    def _judge_begin(self, change: BatchStepped, now: datetime) -> None:
        run = self.state.of(Campaigns).runs[change.campaign]
        batch = next(each for each in run.plan.batches if each.id == change.batch)
        nodes = self.state.of(Fleet).nodes
        mine = [nodes[name] for name in change.nodes]
        assert str(run.phase) == "running"
        assert set(change.nodes) == set(run.names[batch.id]), "all of the batch, and nothing else"
        assert all(node.service is not Service.RETIRED for node in mine)
        others = {name for _, _, names in under_way(self.state) for name in names}
        assert not others & set(change.nodes), "two batches on one node"
        for name in change.nodes:
            leases = [hold for hold in self.state.of(Health).holds.get(name, ()) if hold.is_exclusive]
            assert all(hold.expires_at is not None and hold.expires_at <= now for hold in leases), "somebody is at it"
        self._judge_time(run, batch, now)
        self._judge_order(run, batch, now)
        for limit in run.campaign.limits:
            self._judge_limit(limit, run, batch, mine, now)
        for incident in self.state.of(Incidents).incidents.values():
            if incident.closed_at is None and not incident.campaign:
                assert incident.clusters, "an incident everywhere"
                assert batch.unit not in incident.clusters, "an incident here"

    def _judge_time(self, run: Run, batch: Batch, now: datetime) -> None:
        campaign = run.campaign
        assert batch.start <= now, "before its time"
        assert now.date() == batch.start.date(), "on another day"
        assert now.hour * 60 + now.minute >= campaign.window.opens, "before the window"
        closes = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(minutes=campaign.window.closes)
        assert now + (batch.end - batch.start) <= closes + LATE, "past the window"
        for zone in campaign.no_fly:
            is_here = all(batch.unit in wanted for key, wanted in zone.scope.terms if key == "cluster")
            assert not (is_here and zone.from_day <= now.date() <= zone.to_day), "in a no-fly zone"

    def _ends(self, run: Run, units: Collection[str]) -> list[datetime | None]:
        found = [run.progress.get(each.id) for each in run.plan.batches if each.unit in units]
        return [None if each is None else each.ended for each in found]

    def _judge_order(self, run: Run, batch: Batch, now: datetime) -> None:
        campaign = run.campaign
        canaries = campaign.canary.clusters if campaign.canary else ()
        if campaign.canary and batch.unit not in canaries:
            soak = timedelta(minutes=campaign.canary.soak_minutes)
            for ended in self._ends(run, canaries):
                assert ended is not None, "before the canary has ended"
                assert ended + soak <= now, "before the canary has soaked"
        places = [dict(group.scope.terms).get("cluster", ()) for group in campaign.order]
        place = next((number for number, names in enumerate(places) if batch.unit in names), None)
        if place is not None and campaign.order[place].is_strict:
            earlier = {name for names in places[:place] for name in names}
            assert None not in self._ends(run, earlier), "before an earlier group has ended"

    def _judge_limit(self, limit: Limit, run: Run, batch: Batch, mine: list[Node], now: datetime) -> None:
        nodes, kind = self.state.of(Fleet).nodes, str(limit.kind)
        most = limit.at_most
        if most is None or not size_of(limit, mine):
            return
        begun = [each for each in run.progress.values() if each.started and each.started.date() == now.date()]
        if kind == "out_at_once":
            names = out_for_campaigns(self.state) | {node.id for node in mine}
            if str(limit.counts) == "all":
                names |= {each.id for each in nodes.values() if str(each.service) not in ("in_service", "retired")}
            found = size_of(limit, [nodes[name] for name in names])
        elif kind == "out_per_day":
            taken = [name for each in begun for name in each.nodes if nodes[name].service is not Service.RETIRED]
            found = size_of(limit, [*(nodes[name] for name in taken), *mine])
        elif kind == "crews":
            at_work = {
                run.progress[name].batch.unit for each, name, _ in under_way(self.state) if each.name == run.name
            }
            found = float(len(at_work | {batch.unit}))
        else:
            firsts = {each.batch.unit for each in begun if each.batch.number == 1}
            found = float(len(firsts | {batch.unit})) if batch.number == 1 else 0.0
        assert found <= most * (1 + 1e-9), f"{kind}: {found:g} over {most:g}"


# What holds after every step.


def check_nodes(state: State) -> None:
    """A held node is out; a batch's hold stands only while the batch is under way; no node is in two batches."""
    fleet, holds = state.of(Fleet), state.of(Health).holds
    going = {f"campaign:{run.name}:{name}": set(names) for run, name, names in under_way(state)}
    for name, mine in holds.items():
        assert str(fleet.nodes[name].service) in HELD_IN, f"{name} is {fleet.nodes[name].service} with {mine}"
        for hold in mine:
            if hold.owner.startswith("campaign:") and not hold.id.endswith(":not-returned"):
                assert name in going.get(hold.id, ()), f"{hold.id} is left on {name}"
    taken = Counter(name for _, _, names in under_way(state) for name in names)
    assert not [name for name, count in taken.items() if count > 1]


def check_todo(state: State, now: datetime) -> None:
    """Every batch that is not over has something to do, or a word on what it waits for."""
    floor_of(state)
    for run in state.of(Campaigns).runs.values():
        items = {item.batch.id: item for item in todo(state, run, now)}
        mine = {name for each, name, _ in under_way(state) if each.name == run.name}
        if str(run.phase) not in ("cancelling", "cancelled"):
            mine |= {batch.id for batch in run.plan.batches if not run.step_of(batch.id).is_over}
        assert set(items) == mine
        for item in items.values():
            assert item.act is not Act.WAIT or item.waits_for, item


def check_announced(state: State, run: Run, now: datetime) -> None:
    """What is announced is what the plan in force says, neither more nor less."""
    nodes = state.of(Fleet).nodes
    found = {
        (ahead.id, ahead.starts, ahead.ends): set(ahead.nodes)
        for ahead in state.of(Health).ahead.values()
        if ahead.owner == f"campaign:{run.name}"
    }
    wanted = {}
    for batch in run.plan.batches if str(run.phase) in ("running", "paused") else ():
        alive = {name for name in run.names[batch.id] if nodes[name].service is not Service.RETIRED}
        if batch.id not in run.progress and batch.end > now and alive:
            wanted[f"{run.name}:{batch.id}", batch.start, batch.end] = alive
    assert found == wanted


def check_over(state: State, run: Run) -> None:
    """A campaign that is over has left nothing but holds on what did not come back."""
    if not run.phase.is_over:
        return
    left = [
        hold.id for mine in state.of(Health).holds.values() for hold in mine if hold.owner == f"campaign:{run.name}"
    ]
    assert set(left) <= {f"campaign:{run.name}:not-returned"}
    incident = state.of(Incidents).incidents.get(run.incident)
    assert incident is None or incident.closed_at is not None
