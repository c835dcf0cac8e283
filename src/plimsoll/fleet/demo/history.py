"""What happened to each node in the window, and so what its service is now.

Outages of all kinds are drawn independently; where two would overlap on a node the earlier one is kept, as a node that
is out already can't leave service again. In the end nodes that wait for parts are added, or the last outages taken
back, until as many nodes are out as the layout wants. No time is later than the end of the window.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping

from plimsoll.fleet.demo.events import Schedule
from plimsoll.fleet.demo.layout import Cluster
from plimsoll.fleet.demo.outages import (
    DAY,
    HOUR,
    MINUTE,
    Outage,
    Transition,
    burst_outage,
    fault,
    fault_reason,
    host_maintenance,
    planned_outage,
    stuck_outage,
)

WINDOW_DAYS = 90
FAULTS_PER_NODE_DAY = 0.0036
HOST_MAINTENANCE_PER_NODE_DAY = 0.0013
LEMON_SHARE = 0.005
LEMON_FAULTS = (7, 15)
LEMON_SAME_REASON = 0.7
BURST_SECONDS_MAX = 5 * MINUTE
BURST_DAMAGED = 0.08
GAP_SECONDS_MIN = 30 * MINUTE
STUCK_SINCE_START = 0.7
JOINING_REASON = "new node"

Outages = dict[str, list[Outage]]
History = dict[str, list[Transition]]


def draw_history(seed: int, cluster: Cluster, schedule: Schedule, *, start: int, until: int) -> History:
    """The transitions of each node that has any, in the order of time."""
    rng = random.Random(f"{seed}/history/{cluster.name}")
    if cluster.phase != "production":
        return _joining(rng, cluster, until=until)
    outages: Outages = defaultdict(list)
    lemons = _add_lemons(rng, cluster, outages, start=start, until=until)
    _add_faults(rng, cluster, outages, lemons, start=start, until=until)
    _add_host_maintenance(rng, cluster, outages, start=start, until=until)
    _add_events(rng, cluster, outages, schedule)
    history = {node: _weave(node_outages, until=until) for node, node_outages in outages.items()}
    _settle(rng, cluster, history, start=start, until=until)
    return {node: transitions for node, transitions in history.items() if transitions}


def in_service_nodes(cluster: Cluster, history: Mapping[str, list[Transition]]) -> set[str]:
    """The nodes in service at the end of the window."""
    return {node for node in cluster.nodes if node not in history or _is_in_service(history[node])}


def _add_lemons(rng: random.Random, cluster: Cluster, outages: Outages, *, start: int, until: int) -> set[str]:
    """Nodes that come back broken again and again, mostly for the same reason."""
    nodes = cluster.nodes
    lemons = set(rng.sample(nodes, _about(rng, len(nodes) * LEMON_SHARE)))
    for node in sorted(lemons):
        count = rng.randint(*LEMON_FAULTS)
        spacing = (until - start) // count
        usual_reason = fault_reason(rng)
        for turn in range(count):
            at = start + turn * spacing + rng.randrange(spacing // 2)
            reason = usual_reason if rng.random() < LEMON_SAME_REASON else fault_reason(rng)
            outages[node].append(fault(rng, at, reason=reason, repair_seconds_max=spacing // 6))
    return lemons


def _add_faults(
    rng: random.Random, cluster: Cluster, outages: Outages, lemons: set[str], *, start: int, until: int
) -> None:
    """Ordinary faults, at the rate of this cluster."""
    nodes = [node for node in cluster.nodes if node not in lemons]
    rate = FAULTS_PER_NODE_DAY * cluster.fault_factor
    for _ in range(_about(rng, len(nodes) * WINDOW_DAYS * rate)):
        outages[rng.choice(nodes)].append(fault(rng, rng.randint(start, until), reason=fault_reason(rng)))


def _add_host_maintenance(rng: random.Random, cluster: Cluster, outages: Outages, *, start: int, until: int) -> None:
    """Single hosts that the provider takes."""
    nodes = cluster.nodes
    for _ in range(_about(rng, len(nodes) * WINDOW_DAYS * HOST_MAINTENANCE_PER_NODE_DAY)):
        outages[rng.choice(nodes)].append(host_maintenance(rng, rng.randint(start, until)))


def _add_events(rng: random.Random, cluster: Cluster, outages: Outages, schedule: Schedule) -> None:
    """What the fleet's schedule holds for this cluster."""
    for burst in schedule.bursts.get(cluster.name, ()):
        for node in burst.nodes:
            at = burst.at + rng.randrange(BURST_SECONDS_MAX)
            is_damaged = rng.random() < BURST_DAMAGED
            outages[node].append(burst_outage(rng, at, reason=burst.reason, hours=burst.hours, is_damaged=is_damaged))
    for batch in schedule.batches.get(cluster.name, ()):
        for node in batch.nodes:
            outages[node].append(planned_outage(rng, batch.at, hours=batch.hours, reason=batch.reason))


def _weave(outages: list[Outage], *, until: int) -> list[Transition]:
    """One line of transitions out of a node's outages, cut off at the end of the window."""
    line: list[Transition] = []
    for outage in sorted(outages):
        if not line or outage[0].at >= line[-1].at + GAP_SECONDS_MIN:
            line += outage
    return [transition for transition in line if transition.at <= until]


def _settle(rng: random.Random, cluster: Cluster, history: History, *, start: int, until: int) -> None:
    """Change the last days of some nodes so that exactly `out_node_count` are out at the end.

    Most of the stuck nodes are out since the start: the window opens with what was broken before it, so that the
    healthy count neither starts too high nor falls all the time.
    """
    in_service = in_service_nodes(cluster, history)
    out = [node for node in cluster.nodes if node not in in_service]
    under_work = [node for node in out if history[node][-1].reason.startswith("planned:")]
    missing = cluster.out_node_count + len(under_work) - len(out)
    if missing < 0:
        faulty = [node for node in out if node not in set(under_work)]
        for node in rng.sample(faulty, -missing):
            _take_back_last_outage(history[node])
        return
    latest = until - HOUR
    candidates = [n for n in cluster.nodes if n in in_service and (not history.get(n) or history[n][-1].at < latest)]
    for node in rng.sample(candidates, missing):
        line = history.setdefault(node, [])
        if rng.random() < STUCK_SINCE_START:
            line.clear()
            at = start
        else:
            at = rng.randint(line[-1].at + GAP_SECONDS_MIN if line else start, until)
        line += [transition for transition in stuck_outage(rng, at) if transition.at <= until]


def _take_back_last_outage(line: list[Transition]) -> None:
    """Forget the transitions since the node was last in service."""
    while line and not _is_in_service(line):
        line.pop()


def _joining(rng: random.Random, cluster: Cluster, *, until: int) -> History:
    """Nodes of a cluster being created: they join, and some are being validated already."""
    history: History = {}
    for node in cluster.nodes:
        joined_at = until - rng.randint(2 * DAY, 6 * DAY)
        history[node] = [Transition(joined_at, "joining", JOINING_REASON)]
        if rng.random() < 0.4:
            validating_at = joined_at + rng.randint(2 * HOUR, 2 * DAY)
            history[node].append(Transition(validating_at, "validating", JOINING_REASON))
    return history


def _is_in_service(line: list[Transition]) -> bool:
    return not line or line[-1].service == "in_service"


def _about(rng: random.Random, expected: float) -> int:
    """A whole number that is `expected` on average."""
    return int(expected + rng.random())
