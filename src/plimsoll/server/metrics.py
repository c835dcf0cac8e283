"""Numbers for Prometheus, in its text form: the hulls, the promise, the feeds, the queue, and how the server does.

Names are public: added, never renamed. A label is never a person, a workload or anything else without a bound.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Tally:
    """How requests went, by route: counted, and how long they took."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.seconds: dict[str, list[float]] = {}

    def add(self, route: str, status: int, seconds: float) -> None:
        key = (route, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        row = self.seconds.get(route)
        if row is None:
            row = self.seconds[route] = [0.0] * (len(BUCKETS) + 2)
        row[bisect.bisect_left(BUCKETS, seconds)] += 1
        row[-1] += seconds


class Text:
    """Writes the text form."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def metric(
        self, name: str, kind: str, says: str, samples: Iterable[tuple[Mapping[str, object], float | None]]
    ) -> None:
        """One metric with its samples; those without a number are left out."""
        self._lines += [f"# HELP plimsoll_{name} {says}", f"# TYPE plimsoll_{name} {kind}"]
        self._lines += [_line(name, labels, value) for labels, value in samples if value is not None]

    def histogram(self, name: str, says: str, rows: Mapping[str, list[float]]) -> None:
        self._lines += [f"# HELP plimsoll_{name} {says}", f"# TYPE plimsoll_{name} histogram"]
        for route, row in sorted(rows.items()):
            total = 0.0
            for bound, count in zip([*BUCKETS, float("inf")], row[:-1], strict=True):
                total += count
                shown = "+Inf" if bound == float("inf") else f"{bound:g}"
                self._lines.append(_line(f"{name}_bucket", {"route": route, "le": shown}, total))
            self._lines.append(_line(f"{name}_sum", {"route": route}, row[-1]))
            self._lines.append(_line(f"{name}_count", {"route": route}, total))

    def body(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


def _line(name: str, labels: Mapping[str, object], value: float) -> str:
    shown = ",".join(f'{key}="{_escape(str(label))}"' for key, label in labels.items())
    return f"plimsoll_{name}{'{' + shown + '}' if shown else ''} {value:.10g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


HULL = {
    "total": "GPUs installed in production.",
    "healthy": "GPUs on nodes that are in service now.",
    "line": "The load line now: the most that may be promised.",
    "line_in_force": "The line of the last applied alignment.",
    "assigned": "What the quota book says that teams hold.",
    "guaranteed": "What teams are really promised.",
    "allocated": "GPUs under running work.",
    "idle": "GPUs that are allocated and do nothing.",
    "flex_standing": "Healthy GPUs that are promised to nobody.",
    "flex_lent": "Guaranteed GPUs that their owner does not use.",
    "flex_used": "GPUs under work beyond its team's guarantee.",
    "over": "Assigned above the line now.",
    "shortfall": "Guaranteed above healthy: a promise that is broken now.",
}


def hull_metrics(text: Text, quota: Mapping[str, Any]) -> None:
    """The hull of each pool."""
    for field, says in HULL.items():
        samples = [({"cluster": row["cluster"], "sku": row["sku"]}, row[field]) for row in quota["clusters"]]
        text.metric(f"{field}_gpus", "gauge", says, samples)


def fleet_metrics(text: Text, facts: Mapping[str, Any]) -> None:
    """Nodes by service, feeds, the queue, the promise: what the specials gathered."""
    text.metric(
        "nodes",
        "gauge",
        "Nodes of clusters in production, by service.",
        [({"service": service}, count) for service, count in sorted(facts["by_service"].items())],
    )
    text.metric(
        "feed_age_seconds",
        "gauge",
        "How long ago a feed was last heard.",
        [({"feed": feed}, age) for feed, age in sorted(facts["feed_ages"].items())],
    )
    text.metric(
        "feed_silent",
        "gauge",
        "Whether a feed has said nothing for longer than the policy allows.",
        [({"feed": feed}, float(is_silent)) for feed, is_silent in sorted(facts["feeds_silent"].items())],
    )
    text.metric(
        "queue_workloads",
        "gauge",
        "Workloads that wait, by the first reason.",
        [({"reason": reason}, count) for reason, count in sorted(facts["queue"].items())],
    )
    text.metric(
        "promise_kept_share",
        "gauge",
        "Share of team-hours of the last days in which a team could use all that it was guaranteed.",
        [({}, facts["promise_kept"])],
    )
    text.metric(
        "team_promise_kept_share",
        "gauge",
        "The same for each team: of its own hours, those in which it could use all that it was guaranteed.",
        [({"team": team}, share) for team, share in sorted(facts["promise_kept_by_team"].items())],
    )
    text.metric("incidents_open", "gauge", "Incidents that are open.", [({}, facts["incidents"])])
