"""For each operation of the API a request that is all right, about things that there are: `test_openapi` asks it, and
turns one part of it after the other into something odd.

The book is that of `test_dry_runs`, which has something of almost everything that a route names; what it lacks is made
here. What a good request would end is only tried, so that it is there for the others.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

from hypothesis import strategies as st

from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.lifecycle.machines import STANDARD
from plimsoll.quota.policy import DEFAULT_TEXT
from plimsoll.server.routes import API, ROUTES
from tests.server.test_dry_runs import CAMPAIGN, CLUSTER, FOLDER, SENT
from tests.support.served import TEAM, Reply, Served

NAMED = {
    "node": "t1",
    "cluster": "tiger",
    "team": TEAM,
    "scheduler": "slurm",
    "request_id": "{request}",
    "batch": "lion#1",
    "workload": "run-3",
}
"""What is called how in a path, where it is not `name`."""
CALLED = {"workloads": "run-3", "campaigns": "bios", "clusters": "moth", "recipes": "standard", "incidents": "smoke"}
"""What `name` is, by how a path begins."""
CELLS = {
    "cluster": "cow", "region": "eastus", "area": "us", "colo": "colo-1", "provider": "one", "purpose": "research",
    "subscription": "sub-a", "sku": "H200", "nodes": "8",
}  # fmt: skip
STORMY = {
    "clusters.csv": FOLDER["clusters.csv"].replace("elk", "wren"),
    "nodes.csv": "node,cluster,island,sku,gpus,service,since,reason\n"
    + "".join(f"w{number},wren,wren-a,H200,8,in_service,2026-01-01,\n" for number in range(1, 7)),
}
"""A cluster that has its breaker tripped, beside all others."""

PLAN = "PLAN"
"""Stands for a plan as JSON, which a server makes."""


def _history(node: str) -> str:
    """Two months, in which one node was away and came back."""
    now = datetime.now(UTC)
    times = [f"{now - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" for days in (60, 50)]
    return f"time,node,service,reason\n{times[0]},{node},repair,a fan\n{times[1]},{node},in_service,\n"


QUERIES: dict[str, dict[str, str]] = {
    "/why": {"words": "run-3"},
    "/defrag": {"for": "8", "sku": "H200"},
    "/campaigns/compare": {"left": "nic", "right": "bios"},
    "/access/check": {"who": "anne@example.org", "permission": "see"},
    "/health/forecast": {"horizon": "1d"},
}
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "/health/backtest": ("", {"files": {**FOLDER, "history.csv": _history("e1")}, "horizon": "1d", "window": "7d"}),
    "/health/policy/check": ("", {"file": DEFAULT_POLICY}),
    "/health/tick": ("", {"check": "accepted", "targets": ["w1"]}),
    "/health/breaker": ("", {"scope": "cluster/wren", "dismiss": True, "reason": "a storm"}),
    "/quota/policy/check": ("", {"file": DEFAULT_TEXT}),
    "/quota/notices/{team}/agree": (f"/quota/notices/{TEAM}/agree", {}),
    "/quota/notices/{team}/object": (f"/quota/notices/{TEAM}/object", {"reason": "a deadline"}),
    "/campaigns/check": ("", {"file": CAMPAIGN, "plan_file": PLAN}),
    "/campaigns/{name}/tick/{batch}": ("/campaigns/bios/tick/lion%231", {}),
    "/campaigns/{name}/agree/{workload}": ("/campaigns/bios/agree/run-3", {}),
    "/campaigns/{name}/returned": ("/campaigns/bios/returned", {"nodes": ["l1"]}),
    "/clusters/import": (
        "",
        {"file": base64.b64encode(f"{','.join(CELLS)}\n{','.join(CELLS.values())}\n".encode()).decode()},
    ),
    "/clusters/{name}/retry": ("/clusters/lynx/retry", {}),
    "/clusters/{name}/waive": ("/clusters/lynx/waive", {"step": "burn-in", "reason": "a test"}),
    "/recipes/check": ("", {"file": STANDARD}),
}
"""As `SENT` of `test_dry_runs`: what it has not."""
ENDS = re.compile(
    r"/(release|withdraw|approve|deny|end|rename|cancel|finish|close|revoke|retire|migrate|start|pause|resume|breaker|import)$"
)
"""What is no more as it was afterwards."""


class Good(NamedTuple):
    """A request that is all right; names in its path are quoted."""

    path: dict[str, str] = {}
    query: dict[str, Any] = {}
    body: Any = None
    is_only_tried: bool = False


def make_more(served: Served) -> dict[str, str]:
    """What the book of `test_dry_runs` lacks, and what it is called."""

    def do(path: str, sent: Any) -> Reply:
        reply = served.post(path, sent)
        assert reply.status == 200, (path, reply)
        return reply

    do("/fleet/import", {"files": {**STORMY, "history.csv": _history("w6")}, "partial": True})
    storm = [json.dumps({"node": f"w{number}", "kind": "xid", "name": "79"}) for number in range(1, 6)]
    do("/signals", "\n".join(storm).encode())
    do("/health/set", {"words": ["w1", "validating"], "reason": "looks good"})
    do("/quota/rollout", {"policy": "fixed:0.6", "announce": True})
    do("/clusters", {**CLUSTER, "name": "moth", "recipe": "azure"})
    return {PLAN: do("/campaigns/plan", {"file": CAMPAIGN, "seconds": 1, "dry_run": True}).body.decode()}


def good_requests(names: Mapping[str, str]) -> dict[str, Good]:
    """By operation, as the description calls it."""
    found = {f"POST {API}/signals": Good(body='{"node": "t5", "kind": "xid", "name": "79"}')}
    for route in ROUTES:
        label = f"{route.method} {API}{route.path}"
        if route.is_read:
            first = route.path.split("/")[1]
            path = {
                name: quote({**NAMED, "name": CALLED.get(first, "")}[name].format(**names), safe="")
                for name in re.findall(r"\{(\w+)\}", route.path)
            }
            found[label] = Good(path, QUERIES.get(route.path, {}))
            continue
        asked, sent = {**SENT, **MORE}[route.path]
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.path)
        match = re.fullmatch(pattern, (asked or route.path).format(**names))
        assert match is not None, route.path
        sent = {key: names[PLAN] if value == PLAN else value for key, value in sent.items()}
        found[label] = Good(match.groupdict(), {}, sent, is_only_tried=bool(ENDS.search(route.path)))
    return found


HOWS = ["all right", "one part is odd", "one part is odd", "as it comes"]


@st.composite
def asked(draw: st.DrawFn, operation: Any, good: Good | None) -> Any:
    """What is all right; or that with one part of what the description lets come; or what comes, whole."""
    how = draw(st.sampled_from(HOWS)) if good is not None else ""
    if good is None or how == "as it comes":
        return draw(operation.as_strategy())
    parts = {"path_parameters": dict(good.path), "query": dict(good.query), "headers": {}}
    if isinstance(good.body, dict):
        parts["body"] = dict(good.body)
    more = {"body": good.body, "media_type": "text/plain"} if isinstance(good.body, str) else {}
    if how == "one part is odd":
        came = draw(operation.as_strategy())
        names = [(where, name) for where in parts for name in _part(came, where)]
        if names:
            where, name = draw(st.sampled_from(names))
            parts[where][name] = _part(came, where)[name]
        elif more:
            more["body"] = came.body
    if good.is_only_tried:
        parts["body"]["dry_run"] = True
    return operation.Case(**parts, **more)


def _part(case: Any, where: str) -> Mapping[str, Any]:
    found = getattr(case, where)
    return found if isinstance(found, Mapping) else {}
