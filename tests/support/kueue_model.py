"""What Kueue does with queues: admission by quota, borrowing, and whom it stops. One flavor, GPUs only.

Written from Kueue's own rules (v0.19, fair sharing on), not from ours: a queue may use its nominal quota and what the
cohort has left, which is the cohort's own quota and what queues lend and do not use. To fit, work may stop lower
priorities of its own queue, and work of other queues only while these are above their nominal quota: any of it where
the queue asks within its nominal quota (`reclaimWithinCohort: Any`), else only as long as its weighted share stays
below theirs. Within a queue the lowest priority and then the newest goes first.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple


class Work(NamedTuple):
    """Something that was admitted or asks to be: `number` is its age, the largest is newest."""

    queue: str
    gpus: int
    priority: int
    number: int


class Queue(NamedTuple):
    nominal: int
    lending: int
    weight: int
    preemption: dict[str, Any]


class KueueModel:
    """One cohort, as the objects say."""

    def __init__(self, objects: list[dict[str, Any]], flavor: str) -> None:
        self.queues: dict[str, Queue] = {}
        self.own = 0
        self.running: list[Work] = []
        for content in objects:
            if content["kind"] == "Cohort" and content["metadata"]["name"] == flavor:
                self.own = int(_resource(content)["nominalQuota"])
            elif content["kind"] == "ClusterQueue" and content["spec"]["cohortName"] == flavor:
                resource, spec = _resource(content), content["spec"]
                self.queues[content["metadata"]["name"]] = Queue(
                    int(resource["nominalQuota"]),
                    int(resource.get("lendingLimit", resource["nominalQuota"])),
                    int(spec["fairSharing"]["weight"]),
                    spec["preemption"],
                )

    def used(self, queue: str) -> int:
        return sum(work.gpus for work in self.running if work.queue == queue)

    def borrowed(self, queue: str) -> int:
        return max(0, self.used(queue) - self.queues[queue].nominal)

    def left_for(self, queue: str) -> int:
        """What a queue can still get without stopping anybody."""
        lendable = self.own + sum(each.lending for each in self.queues.values())
        from_cohort = sum(max(0, self.used(name) - (each.nominal - each.lending)) for name, each in self.queues.items())
        mine = self.queues[queue]
        kept_back = max(0, (mine.nominal - mine.lending) - self.used(queue))
        return kept_back + lendable - from_cohort

    def submit(self, work: Work) -> list[Work] | None:
        """Admit it and return what was stopped for it; None where it has to wait, and then nothing was stopped."""
        before = list(self.running)
        stopped: list[Work] = []
        while self.left_for(work.queue) < work.gpus:
            victim = self._victim(work)
            if victim is None:
                self.running = before
                return None
            self.running.remove(victim)
            stopped.append(victim)
        self.running.append(work)
        return stopped

    def _victim(self, work: Work) -> Work | None:
        mine = self.queues[work.queue]
        found = []
        if mine.preemption["withinClusterQueue"] == "LowerPriority":
            found += [each for each in self.running if each.queue == work.queue and each.priority < work.priority]
        if mine.preemption["reclaimWithinCohort"] == "Any":
            found += [each for each in self.running if each.queue != work.queue and self._may_reclaim(work, each.queue)]
        key = lambda each: (each.queue == work.queue, each.priority, -each.number)  # noqa: E731
        return min(found, key=key, default=None)

    def _may_reclaim(self, work: Work, other: str) -> bool:
        if not self.borrowed(other):
            return False
        if self.used(work.queue) + work.gpus <= self.queues[work.queue].nominal:
            return True
        wanted = max(0, self.used(work.queue) + work.gpus - self.queues[work.queue].nominal)
        return _share(wanted, self.queues[work.queue]) < _share(self.borrowed(other), self.queues[other])


def _share(borrowed: int, queue: Queue) -> tuple[int, Fraction]:
    """Weight 0 is a share without end as soon as something is borrowed."""
    if not queue.weight:
        return (1 if borrowed else 0), Fraction(borrowed)
    return 0, Fraction(borrowed, queue.weight)


def _resource(content: dict[str, Any]) -> dict[str, Any]:
    (resource,) = content["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    found: dict[str, Any] = resource
    return found
