"""Everything of which something can go wrong goes wrong at one server, and whoever looks finds an incident for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.health.service import observe
from plimsoll.incidents.service import run_pass
from plimsoll.rooms import FINDERS
from plimsoll.times import utc_now
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.served import OTHER, TEAM, Served, make_people, serving

HOUR = timedelta(hours=1)
"""Longer than a feed may be silent, and than work may wait for what its team is guaranteed: 15 minutes each."""
CAMPAIGN = """\
campaign: nic
changes: [{component: nic, version: "2"}]
scope: {cluster: puma}
start: 2099-01-01
deadline: 2099-01-09
window: {hours: [0, 24], tz: Etc/UTC}
work: [{mode: whole, hours: 4}]
limits: [{kind: out_at_once, at_most: 2, counts: all}]
"""
LATE = f"""\
workload: late
team: {TEAM}
where: {{cluster: lion, sku: H200}}
parts: [{{name: train, kind: gang, gpus: 16, tier: high, rank: 1}}]
"""
STORM = [json.dumps({"node": f"t{number}", "kind": "xid", "name": "79"}) for number in range(1, 9)]

WANT: dict[str, tuple[str, str, int, str]] = {
    # by what it is about: its kind, how much of what, and a part of what is said of it
    "pool/tiger/H200": ("broken_promise", "gpus", 32, "80 guaranteed, 48 healthy; 4 nodes out"),
    "team/posttraining/lion/H200": ("broken_promise", "gpus", 16, "late beyond the grace of 15 min"),
    "breaker/cluster/tiger": ("breaker", "nodes", 4, "4 nodes were taken out, at most 4 may be"),
    "feed/rack-watch": ("silent_feed", "nodes", 2, "the health of 2 nodes is unknown"),
    "campaign/nic/limits[0]": ("cap", "nodes", 3, "5 nodes out at once, at most 2 may be"),
}


@pytest.fixture
def stricken(tmp_path: Path) -> Iterator[Served]:
    """Tiger: 80 GPUs are promised and 80 there, then a storm makes 8 of its 10 nodes bad; the breaker lets automation
    take 4 of them. Lion: 24 of 32 are promised; one of its nodes is in repair, and no island has 16 left for a gang.
    Puma: a campaign of which at most 2 nodes may be out; its feed says nothing any more.
    """
    fleet = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters", cluster=name) for name in ("tiger", "lion", "puma")],
        nodes=[
            *nodes(10, prefix="t"),
            *nodes(2, prefix="a", cluster="lion", island="lion-a"),
            *nodes(2, prefix="b", cluster="lion", island="lion-b"),
            *nodes(2, prefix="p", cluster="puma", island="puma-a"),
        ],
        quotas=[
            row("quotas", team=TEAM, gpus="80"),
            row("quotas", team=TEAM, cluster="lion", gpus="16"),
            row("quotas", team=OTHER, cluster="lion", gpus="8"),
        ],
        workloads=[row("workloads", workload="steady", team=OTHER, cluster="lion", island="lion-b", gpus="8")],
    )
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(fleet)
    importer.keeper.close()
    with serving(dsn, make_people(dsn)) as served:

        def do(path: str, **values: Any) -> None:
            reply = served.post(path, values)
            assert reply.status == 200, (path, reply)

        do("/quota/apply", policy="fixed:0", reason="a test", without_notice=True)
        do("/campaigns/plan", file=CAMPAIGN, seconds=1)
        do("/campaigns/nic/start")
        with served.house.open_keeper() as keeper:
            observe(keeper, (), feed="rack-watch", actor="rack-watch", swept=["p1", "p2"])
            assert run_pass(keeper, FINDERS, utc_now(), "finder") == [], "nothing is wrong yet"
        do("/health/set", words=["a1", "repair"], reason="a fan")
        assert served.post("/signals?feed=storm", "\n".join(STORM).encode()).status == 200
        do("/workloads", files=[LATE])
        yield served


def test_each_thing_that_goes_wrong_is_found(stricken: Served) -> None:
    with stricken.house.open_keeper() as keeper:
        did = run_pass(keeper, FINDERS, utc_now() + HOUR, "finder")
        again = run_pass(keeper, FINDERS, utc_now() + HOUR, "finder")
        head = keeper.state().revision
    assert [each.what for each in did] == ["opened"] * len(WANT)
    assert again == []
    listed = stricken.api(f"/incidents?at_least={head}", who="viewer").document
    found = {each["about"]: each for each in listed if each["kind"] != "person"}
    assert set(found) == set(WANT)
    for about, (kind, unit, amount, says) in WANT.items():
        each = found[about]
        assert (each["kind"], each["unit"], each["amount"]) == (kind, unit, amount), about
        assert says in json.dumps(stricken.api(f"/incidents/{each['id']}").document), about
