"""What one outage of one node looks like: the services it goes through, how long each lasts, and why.

Times are whole seconds since the epoch. An outage starts with the node leaving service and ends with it back
`in_service`, always through `validating`, except a stuck one, which has not ended.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

REPAIR_HOURS_MEAN = 40.0
REPAIR_SIGMA = 1.0
REPAIR_SECONDS_MAX = 24 * DAY
VALIDATION_FAILS = 0.10
NO_RETURN_AFTER_WORK = 0.02
UNTRIAGED = 0.25

# Weights follow what large fleets report: mostly GPU and memory faults, then the network, few whole-node losses.
FAULTS = {
    "xid 79": 18,
    "xid 48": 10,
    "xid 74": 10,
    "ecc uncorrectable": 18,
    "nvlink down": 8,
    "ib link flapping": 14,
    "thermal throttle": 8,
    "lost heartbeat": 14,
}
# A node with a soft fault still runs its work, so it is drained first; the others stop at once.
SOFT_FAULTS = {"thermal throttle", "ib link flapping", "ecc uncorrectable"}
DRAINED_WHEN_SOFT = 0.6
POWER = "power event"
NETWORK = "ib link flapping"
HOST_MAINTENANCE = "provider: host maintenance"
PLANNED_REASONS = ("planned: nic-firmware", "planned: driver")


class Transition(NamedTuple):
    """A node's service, as observed from this moment on."""

    at: int
    service: str
    reason: str


Outage = list[Transition]


class _Path:
    """An outage being written down: each step names its service and how long it lasts."""

    def __init__(self, at: int, reason: str) -> None:
        self.at = at
        self.reason = reason
        self.steps: Outage = []

    def step(self, service: str, seconds: float) -> None:
        self.steps.append(Transition(self.at, service, self.reason))
        self.at += max(1, round(seconds))

    def back(self) -> Outage:
        self.steps.append(Transition(self.at, "in_service", ""))
        return self.steps


def fault_reason(rng: random.Random) -> str:
    """Why a node fails on its own."""
    return rng.choices(list(FAULTS), weights=list(FAULTS.values()))[0]


def fault(rng: random.Random, at: int, *, reason: str, repair_seconds_max: int = REPAIR_SECONDS_MAX) -> Outage:
    """A node fails, is repaired and returns; a repair that did not help is found by validation and done again."""
    path = _Path(at, reason)
    if reason in SOFT_FAULTS and rng.random() < DRAINED_WHEN_SOFT:
        path.step("draining", rng.uniform(1, 16) * HOUR)
    else:
        path.step("quarantined", rng.uniform(0.1, 4) * HOUR)
    _repair(rng, path, repair_seconds_max)
    if rng.random() < VALIDATION_FAILS:
        path.step("quarantined", rng.uniform(0.1, 2) * HOUR)
        _repair(rng, path, repair_seconds_max)
    return path.back()


def burst_outage(rng: random.Random, at: int, *, reason: str, hours: float, is_damaged: bool) -> Outage:
    """A node lost with many others: it only waits for power or network, unless the event broke something."""
    path = _Path(at, reason)
    path.step("quarantined", hours * rng.uniform(0.9, 1.2) * HOUR)
    if is_damaged:
        _repair(rng, path, REPAIR_SECONDS_MAX)
    else:
        path.step("validating", rng.uniform(0.3, 1.5) * HOUR)
    return path.back()


def host_maintenance(rng: random.Random, at: int) -> Outage:
    """The provider takes a host for an hour or some, with notice."""
    path = _Path(at, HOST_MAINTENANCE)
    path.step("draining", rng.uniform(2, 20) * HOUR)
    path.step("maintenance", rng.uniform(2, 8) * HOUR)
    path.step("validating", rng.uniform(0.3, 2) * HOUR)
    return path.back()


def planned_outage(rng: random.Random, at: int, *, hours: float, reason: str) -> Outage:
    """Planned work that starts at `at`: drained just before, validated after; a few nodes don't survive it."""
    drain_seconds = rng.randint(10 * MINUTE, HOUR)
    path = _Path(at - drain_seconds, reason)
    path.step("draining", drain_seconds)
    path.step("maintenance", hours * HOUR)
    path.step("validating", rng.uniform(0.2, 1) * HOUR)
    if rng.random() < NO_RETURN_AFTER_WORK:
        path.step("quarantined", rng.uniform(0.1, 2) * HOUR)
        _repair(rng, path, REPAIR_SECONDS_MAX)
    return path.back()


def stuck_outage(rng: random.Random, at: int) -> Outage:
    """A node that failed and has not come back: it waits for parts, or nobody has looked at it yet."""
    path = _Path(at, fault_reason(rng))
    path.step("quarantined", rng.uniform(1, 24) * HOUR)
    if rng.random() >= UNTRIAGED:
        path.step("repair", 0)
    return path.steps


def _repair(rng: random.Random, path: _Path, seconds_max: int) -> None:
    """Repair and validate. Repair times are lognormal: most take a day, some take weeks."""
    mu = math.log(REPAIR_HOURS_MEAN * HOUR) - REPAIR_SIGMA**2 / 2
    path.step("repair", min(rng.lognormvariate(mu, REPAIR_SIGMA), seconds_max))
    path.step("validating", rng.uniform(1, 6) * HOUR)
