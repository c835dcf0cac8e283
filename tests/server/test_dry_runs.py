"""What the API changes it can try: every writing route takes `dry_run`, or says why not; and a try leaves no trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.lifecycle.machines import STANDARD
from plimsoll.quota.policy import DEFAULT_TEXT
from plimsoll.server.call import Operation
from plimsoll.server.openapi import document
from plimsoll.server.routes import API, ROUTES
from plimsoll.server.specials import SPECIAL_PERMISSIONS
from tests.support.served import OTHER, TEAM, Served, make_people, serving, small_book

DESCRIBED = document([Operation(route) for route in ROUTES])
WRITING = [Operation(route) for route in ROUTES if not route.is_read]
TRIED = {each.route.path: each for each in WRITING if "dry_run" in each.takes}
SHAPE_OF = {
    path: DESCRIBED["paths"][f"{API}{path}"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    for path in TRIED
}
"""What each is said to answer."""

WITHOUT: dict[str, set[str]] = {
    "looks over what is sent, and changes nothing": {
        "/health/backtest",
        "/health/policy/check",
        "/quota/policy/check",
        "/campaigns/check",
        "/recipes/check",
    },
    "a feed, many a second: one signal can be tried at /health/signal": {"/signals"},
}
"""What changes something and can't be tried, and why."""

POOL = {"cluster": "tiger", "sku": "H200"}
CAMPAIGN = """\
campaign: nic
changes: [{component: nic, version: "2"}]
scope: {cluster: lion}
start: 2099-01-01
deadline: 2099-01-09
window: {hours: [0, 24], tz: Etc/UTC}
work: [{mode: whole, hours: 4}]
"""
WORK = f"""\
workload: run-2
team: {TEAM}
where: {{sku: H200}}
parts:
  - {{name: a, kind: elastic, replicas: {{min: 1, max: 2, gpus: 8}}, tier: mid, rank: 1}}
"""
CLUSTER = {"region": "eastus", "subscription": "sub-a", "sku": "H200", "nodes": 8, "area": "us"}
FOLDER = {
    "clusters.csv": "cluster,region,area,colo,provider,purpose,phase\nelk,eastus,us,colo-1,one,research,production\n",
    "nodes.csv": "node,cluster,island,sku,gpus,service,since,reason\ne1,elk,elk-a,H200,8,in_service,2026-01-01,\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    dsn = small_book(tmp_path_factory.mktemp("dry"))
    with serving(dsn, make_people(dsn)) as served:
        yield served


@pytest.fixture(scope="module")
def names(site: Served) -> dict[str, str]:
    """Something of everything that a route names, and what it is called."""

    def do(path: str, **values: Any) -> Any:
        reply = site.post(path, values)
        assert reply.status == 200, (path, reply)
        return reply.document

    do("/quota/apply", policy="fixed:0", without_notice=True, clusters=["lion"], reason="a test")
    do("/quota/apply", policy="fixed:0", without_notice=True, clusters=["tiger"], reason="a test")
    do("/workloads", files=[WORK.replace("run-2", "run-3")])
    do("/incidents", title="smoke", id="smoke")
    do("/holds", targets=["t9"], id="cables", reason="cables", until="4h")
    do("/health/announced", targets=["t8"], id="dust", reason="dust", until="4d", **{"from": "3d"})
    do("/campaigns/plan", file=CAMPAIGN, seconds=1)
    do("/campaigns/plan", file=CAMPAIGN.replace("nic", "bios"), seconds=1)
    do("/campaigns/bios/start")
    do("/campaigns/plan", file=CAMPAIGN.replace("nic", "fan"), seconds=1)
    do("/campaigns/fan/start")
    do("/campaigns/fan/pause")
    do("/clusters", name="lynx", **CLUSTER)
    do("/clusters", name="puma", **CLUSTER)
    do("/clusters/puma/pause")
    do("/recipes", file=STANDARD.replace("version: 1", "version: 2"))
    do("/access/grant", who="anne@example.org", role="viewer")
    until = {"for": "anne", "until": "2099-01-01"}
    request = do("/requests", team=TEAM, gpus="8", sku="H200", reason="a run")["request"]["id"]
    grant = do("/transfers", giver=OTHER, taker=TEAM, gpus="8", **POOL, **{"for": "7d"}, reason="lent")["grant"]
    kept = do("/workload-holds", team=TEAM, gpus="8", **POOL, **until)["hold"]["id"]
    token = do("/access/tokens", owner="anne@example.org", scope=["see"])["id"]
    return {"request": request, "grant": quote(grant, safe=""), "kept": kept, "token": token}


SENT: dict[str, tuple[str, dict[str, Any]]] = {
    "/fleet/import": ("", {"files": FOLDER, "partial": True}),
    "/health/signal": ("", {"node": "t1", "kind": "xid", "name": "79"}),
    "/health/sweep": ("", {}),
    "/health/set": ("", {"words": ["t1", "repair"], "reason": "a fan"}),
    "/holds": ("", {"targets": ["t1"], "id": "pipes", "reason": "cables", "until": "4h"}),
    "/holds/{hold_id}/release": ("/holds/cables/release", {}),
    "/health/announced": ("", {"targets": ["t1"], "from": "3d", "until": "4d", "reason": "dust"}),
    "/health/announced/{work_id}/withdraw": ("/health/announced/dust/withdraw", {}),
    "/health/policy": ("", {"file": DEFAULT_POLICY}),
    "/quota/apply": ("", {"policy": "fixed:0.1", "without_notice": True, "reason": "a test"}),
    "/quota/rollout": ("", {"policy": "fixed:0.6", "announce": True}),
    "/quota/modes/{cluster}": ("/quota/modes/tiger", {"mode": "enforce"}),
    "/quota/control": ("", {}),
    "/quota/callback": ("", {"team": TEAM, "gpus": "8", **POOL}),
    "/requests": ("", {"team": TEAM, "gpus": "8", "sku": "H200"}),
    "/requests/{request_id}/approve": ("/requests/{request}/approve", {"option": "1"}),
    "/requests/{request_id}/deny": ("/requests/{request}/deny", {"reason": "no"}),
    "/requests/{request_id}/withdraw": ("/requests/{request}/withdraw", {}),
    "/transfers": ("", {"giver": OTHER, "taker": TEAM, "gpus": "8", **POOL}),
    "/grants/{grant_id}/end": ("/grants/{grant}/end", {}),
    "/quota/settle": ("", {}),
    "/teams/{old}/rename": (f"/teams/{OTHER}/rename", {"new": "kelp"}),
    "/quota/policy": ("", {"file": DEFAULT_TEXT}),
    "/workloads": ("", {"files": [WORK]}),
    "/workloads/{name}/scale": ("/workloads/run-3/scale", {"part": "a", "max": 3}),
    "/workloads/{name}/rank": ("/workloads/run-3/rank", {"part": "a", "tier": "high"}),
    "/workloads/{name}/cancel": ("/workloads/run-3/cancel", {}),
    "/workloads/{name}/finish": ("/workloads/run-3/finish", {}),
    "/workload-holds": ("", {"team": TEAM, "gpus": "8", **POOL, "for": "bob", "until": "2099-01-01"}),
    "/workload-holds/{hold}/release": ("/workload-holds/{kept}/release", {}),
    "/defrag": ("", {"for": "8", "sku": "H200", "apply": True}),
    "/workloads/run": ("", {}),
    "/campaigns/plan": ("", {"file": CAMPAIGN.replace("nic", "cpu"), "seconds": 1}),
    "/campaigns/tested": ("", {"pairs": ["nic=2"], "result": "passed", "where": "lion"}),
    "/campaigns/want": ("", {"pairs": ["nic=3"], "scope": ["area=us"]}),
    "/campaigns/versions": ("", {"file": "node,component,version\nt1,nic,1\n"}),
    "/campaigns/versions/relevant": ("", {"components": ["nic"]}),
    "/campaigns/{name}/publish": ("/campaigns/nic/publish", {}),
    "/campaigns/{name}/start": ("/campaigns/nic/start", {}),
    "/campaigns/{name}/pause": ("/campaigns/bios/pause", {}),
    "/campaigns/{name}/resume": ("/campaigns/fan/resume", {}),
    "/campaigns/{name}/replan": ("/campaigns/bios/replan", {"seconds": 1}),
    "/campaigns/{name}/cancel": ("/campaigns/bios/cancel", {}),
    "/clusters": ("", {"name": "wolf", **CLUSTER}),
    "/clusters/{name}/edit": ("/clusters/lynx/edit", {"nodes": 16}),
    "/clusters/{name}/checkin": ("/clusters/lynx/checkin", {}),
    "/clusters/{name}/pause": ("/clusters/lynx/pause", {}),
    "/clusters/{name}/resume": ("/clusters/puma/resume", {}),
    "/clusters/{name}/retire": ("/clusters/lynx/retire", {"reason": "not needed"}),
    "/clusters/{name}/migrate": ("/clusters/lynx/migrate", {}),
    "/recipes": ("", {"file": STANDARD.replace("version: 1", "version: 3")}),
    "/incidents": ("", {"title": "more smoke"}),
    "/incidents/{name}/note": ("/incidents/smoke/note", {"note": "it is hot"}),
    "/incidents/{name}/close": ("/incidents/smoke/close", {}),
    "/access/grant": ("", {"who": "bob@example.org", "role": "viewer"}),
    "/access/revoke": ("", {"who": "anne@example.org", "role": "viewer"}),
    "/access/sessions/end": ("", {"who": "anne@example.org"}),
    "/access/tokens": ("", {"owner": "anne@example.org"}),
    "/access/tokens/{token}/revoke": ("/access/tokens/{token}/revoke", {}),
}
"""Where a route's own path is not what is asked, what is; and what is sent."""
AT_A_DESK = {
    "/health/tick",
    "/health/breaker",
    "/quota/notices/{team}/agree",
    "/quota/notices/{team}/object",
    "/campaigns/{name}/tick/{batch}",
    "/campaigns/{name}/agree/{workload}",
    "/campaigns/{name}/returned",
    "/clusters/import",
    "/clusters/{name}/retry",
    "/clusters/{name}/waive",
}
"""What needs more of a history than is made here: `shapes/test_voyages.py` tries and does it."""


def test_what_changes_something_can_be_tried_or_says_why_not() -> None:
    special = {path.removeprefix("/api/v1") for method, path in SPECIAL_PERMISSIONS if method != "GET"}
    writing = {each.route.path for each in WRITING} | special
    without = {path for paths in WITHOUT.values() for path in paths}
    assert writing - set(TRIED) == without
    assert set(TRIED) == set(SENT) | AT_A_DESK
    assert set(SENT) & AT_A_DESK == set()


@pytest.mark.parametrize("path", SENT)
def test_what_is_tried_leaves_no_trace(site: Served, names: dict[str, str], path: str) -> None:
    asked, sent = SENT[path]
    with closing(sqlite3.connect(site.house.settings.dsn.removeprefix("sqlite:///"))) as beside:
        before = beside.execute("SELECT max(revision) FROM events").fetchone()
        mark = beside.execute("PRAGMA data_version").fetchone()
        reply = site.post((asked or path).format(**names), {**sent, "dry_run": True})
        assert reply.status == 200, reply
        assert beside.execute("PRAGMA data_version").fetchone() == mark, "something was written"
        assert beside.execute("SELECT max(revision) FROM events").fetchone() == before
    assert reply.document["dry_run"] is True
    shape = {**SHAPE_OF[path], "components": DESCRIBED["components"]}
    assert [error.message for error in Draft202012Validator(shape).iter_errors(reply.document)] == []
    assert site.house.api.head == before[0]
