"""What commands that change something answer with: tried first, then done; by noun, in an order that makes sense."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from plimsoll.access.model import Permission, Role
from plimsoll.campaigns.versions.model import Result
from plimsoll.commands.campaign.versions import By as VersionsBy
from plimsoll.commands.cluster import run as cluster_run
from plimsoll.fleet.demo.names import PLANNED, PROVISIONING
from plimsoll.fleet.model import Area
from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.health.facts import Owner
from plimsoll.health.signals import SignalKind
from plimsoll.lifecycle.machines import STANDARD
from plimsoll.lifecycle.model import Move
from plimsoll.quota.model import Mode, Tier
from plimsoll.quota.policy import DEFAULT_TEXT
from plimsoll.times import utc_now
from tests.server.shapes.voyage import Voyage
from tests.support.fleets import nodes, row, write_fleet
from tests.support.kubernetes import kubernetes_list, kubernetes_node


def test_fleet_and_audit(voyage: Voyage) -> None:
    folder = write_fleet(Path("other"), nodes=nodes(2, prefix="x"), history=[row("history", node="x1")])
    assert voyage.refused("fleet import", path=folder).code == "mass_removal"
    voyage.ask("fleet export", path=Path("out"))
    voyage.twice("fleet import", path=folder, partial=True)
    assert voyage.ask("audit head")["revision"] == voyage.keeper.state().revision
    assert voyage.ask("audit verify")["whole"] is True
    for words in ("fleet show", "fleet nodes", "fleet clusters", "fleet map", "audit log"):
        voyage.ask(words)
    voyage.has_tried_all("fleet")
    voyage.has_tried_all("audit")


def test_health(voyage: Voyage) -> None:
    ask, twice = voyage.ask, voyage.twice
    node = ask("fleet nodes", filters=["service=in_service", "cluster=lemur"])["nodes"][0]["node"]
    assert ask("health show", filters=[node])["holds"] == []
    twice("health signal", node=node, kind=SignalKind.XID, name="79")
    assert ask("health show", filters=[node])["problems"]
    Path("signals").write_text('{"node": "nobody", "kind": "xid", "name": "79"}\n')
    twice("health observe signals", path="signals")
    Path("nodes.json").write_text(kubernetes_list(kubernetes_node(node)))
    twice("health observe kubernetes", path="nodes.json")
    twice("health hold", targets=["cluster=tapir"], hold_id="cables", reason="cables", until="4h", exclusive=True)
    assert ask("health holds", filters=["cluster=tapir"])["holds"][0]["hold"]["id"] == "cables"
    twice("health release", hold_id="cables")
    validating = ask("fleet nodes", filters=["cluster=tapir", "service=validating"])["nodes"][0]["node"]
    assert ask("health show", filters=[validating])["waits_for"]
    twice("health tick", check="accepted", targets=[validating])
    twice("health set", words=[validating, "repair"], reason="a fan", expected="2d", owner=Owner.PROVIDER)
    twice("health announce", targets=["cluster=lemur"], starts="3d", ends="4d", reason="cooling", work_id="cooling")
    twice("health withdraw", work_id="cooling")
    twice("health sweep")
    found = ask("fleet nodes", filters=["service=in_service", "cluster=lemur"])["nodes"]
    Path("signals").write_text(
        "".join(f'{{"node": "{each["node"]}", "kind": "xid", "name": "79"}}\n' for each in found)
    )
    outcome = ask("health observe signals", path="signals")["observed"]["outcome"]
    assert outcome["held_back"]
    ask("health show", filters=[outcome["held_back"][0]["node"]])
    assert ask("health show")["present"]["attention"]
    twice("health breaker", scope=outcome["tripped"][0], dismiss=True, reason="a storm")
    Path("health.yaml").write_text(DEFAULT_POLICY)
    ask("health policy check", path=Path("health.yaml"))
    twice("health policy apply", path=Path("health.yaml"))
    ask("health forecast")
    ask("health forecast", cluster="lemur", horizon="2d")
    ask("fleet export", path=Path("out"))
    ask("health backtest", path=Path("out"), window="30d", method=["worst"])
    for words in ("health slo", "health outages", "health announced", "health policy show"):
        ask(words)
    voyage.has_tried_all("health")


def test_quota(voyage: Voyage) -> None:
    ask, twice = voyage.ask, voyage.twice
    plan = ask("quota plan")
    cut = next(each for each in plan["teams"] if each["haircut"]["running"])
    twice("quota rollout", announce=True, start=str((utc_now() + timedelta(days=30)).date()))
    assert ask("quota notices", team=cut["team"])["notices"][0]["text"]
    twice("quota agree", team=cut["team"])
    twice("quota object", team=cut["team"], reason="a deadline")
    assert ask("quota apply", dry_run=True)["held"]
    twice("quota apply", without_notice=True, reason="the demo")
    ask("quota compare", buffers="0,15,tiered", days=30)
    ask("quota pilot", cluster="lemur")
    ask("quota mode")
    twice("quota mode", cluster="lemur", mode=Mode.ENFORCE)
    twice("quota control", show_all=True)
    found = max(ask("quota show")["teams"], key=lambda each: each["guaranteed"] - each["allocated"])
    team, pool = found["team"], {"cluster": found["cluster"], "sku": found["sku"]}
    ask("quota flex", cluster=pool["cluster"], team=team, gpus="8")
    ask("quota show", team=team)
    twice("quota callback", team=team, gpus="4", **pool, reason="a deadline")
    ask("quota flex", cluster=pool["cluster"])
    ask("quota promise", days=7, cluster=pool["cluster"])
    Path("quota.yaml").write_text(DEFAULT_TEXT)
    ask("quota policy check", path=Path("quota.yaml"))
    twice("quota policy apply", path=Path("quota.yaml"))
    wanted = {"team": team, "gpus": "8", "sku": pool["sku"]}
    twice("quota request", **wanted, one_island=True, lasts="14d", reason="a run")
    for answer in ("quota approve", "quota deny", "quota withdraw"):
        made = ask("quota request", **wanted, reason=f"for {answer}")["request"]["id"]
        assert ask("quota requests", request_id=made)["options"]
        more = {"option": "1"} if answer == "quota approve" else {"reason": "no"}
        twice(answer, request_id=made, **more)
        ask("quota requests", request_id=made)
    ask("quota requests", is_all=True)
    given = twice("quota transfer", giver=team, taker="plankton", gpus="8", **pool, lasts="7d", new_team=True)
    assert ask("quota grants")["grants"]
    twice("quota end-grant", grant_id=given["grant"])
    twice("quota settle")
    twice("quota rename", old=team, new="kelp")
    ask("quota policy show")
    ask("quota history", clusters=["lemur"])
    assert ask("quota changes", team="kelp")["changes"]
    voyage.has_tried_all("quota")


WORK = """\
workload: {name}
team: {team}
where: {{cluster: barnacle, sku: H200}}
parts:
  - {{name: train, kind: gang, gpus: {gpus}, tier: high, rank: 1}}
  - {{name: graders, kind: elastic, replicas: {{min: 1, max: 3, gpus: 8}}, tier: mid, rank: 2}}
"""


def test_workload_and_why(voyage: Voyage) -> None:
    ask, twice = voyage.ask, voyage.twice
    twice("quota apply", without_notice=True, reason="the demo")
    team = max(ask("quota show", clusters=["barnacle"])["teams"], key=lambda each: each["guaranteed"])["team"]
    for name, gpus in (("small", 8), ("late", 16), ("large", 400), ("huge", 880)):
        Path(f"{name}.yaml").write_text(WORK.format(name=name, team=team, gpus=gpus))
        twice("workload submit", files=[f"{name}.yaml"])
    assert ask("workload list", team=team)["workloads"]
    assert {each["standing"] for each in ask("workload list")["workloads"]} >= {"running", "waiting"}
    for name in ("small", "large", "huge"):
        ask("workload show", name=name)
        assert ask("why", words=[name])["about"] == "workload"
    twice("workload scale", name="small", part="graders", least=1, most=2)
    twice("workload rank", name="small", part="train", tier=Tier.CRITICAL)
    ask("workload usage", team=team)
    held = twice("workload hold", team=team, gpus="8", cluster="barnacle", sku="H200", keeper_name="anne", until="3d")
    twice("workload release", hold=held["hold"]["id"])
    twice("workload run")
    busy = next(each for each in ask("workload show", name="small")["parts"] if each["nodes"])["nodes"][0]
    assert ask("why", words=[busy])["runs"]
    ask("health set", words=[busy, "quarantined"], reason="smoke")
    assert ask("why", words=[busy])["about"] == "node"
    ask("workload run")
    ask("workload show", name="small")
    twice("workload cancel", name="late")
    twice("workload finish", name="small", failed=True)
    assert ask("workload show", name="small")["standing"] == "over"
    assert ask("why", words=["small"])["about"] == "stopped"
    assert ask("why", words=[team])["about"] == "team"
    assert ask("why", words=["gpus=64", "sku=H200", "island"], is_if=True)["about"] == "if"
    ask("why", words=["gpus=8", "sku=H200", f"team={team}"], is_if=True)
    ask("why", is_fleet=True, begin="7d")
    ask("workload defrag", size="64", sku="H200", cluster="barnacle")
    twice("workload defrag", size="64", sku="H200", cluster="barnacle", apply=True)
    for words in ("workload holds", "workload uptime"):
        ask(words)
    voyage.has_tried_all("workload")
    voyage.has_tried_all("why")


def test_cluster(voyage: Voyage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_run, "WAIT_SECONDS", 0.05)
    monkeypatch.setenv("PLIMSOLL_REHEARSAL", "seconds=0.01 fail=bootstrap:Broken:never")
    ask, twice = voyage.ask, voyage.twice
    new = {"region": "eastus", "subscription": "sub-a", "sku": "H200", "nodes": 8, "area": Area.US}
    twice("cluster add", name="lynx", **new)
    twice("cluster edit", name="lynx", nodes=16)
    Path("quota.csv").write_text("subscription,region,family,limit,used\nsub-a,eastus,standardNDISRH200V5Family,1,0\n")
    ask("cluster run", names=["lynx"])
    for name in ("lynx", PLANNED, PROVISIONING):
        ask("cluster show", name=name)
        ask("cluster log", name=name)
        ask("cluster quota", name=name)
    ask("cluster list", move=Move.PERSON)
    for verb in ("pause", "resume", "checkin"):
        twice(f"cluster {verb}", name="lynx")
    Path("quota.csv").write_text(
        "subscription,region,family,limit,used\nsub-a,eastus,standardNDISRH200V5Family,9000,0\n"
    )
    ask("cluster run", names=["lynx"], wait=True)
    assert "stuck" in {each["is"] for each in ask("cluster show", name="lynx")["steps"]}
    ask("cluster log", name="lynx")
    twice("cluster retry", name="lynx")
    twice("cluster waive", name="lynx", step="bootstrap", reason="done by hand")
    Path("recipe.yaml").write_text(STANDARD.replace("version: 1", "version: 2"))
    ask("cluster recipe check", path=Path("recipe.yaml"))
    twice("cluster recipe apply", path=Path("recipe.yaml"))
    twice("cluster migrate", name="lynx")
    ask("cluster recipe list")
    for count in (8, 16):
        Path("clusters.csv").write_text(
            "cluster,region,area,colo,provider,purpose,subscription,sku,nodes\n"
            f"bear,eastus,us,colo-1,cloud-one,research,sub-a,H200,{count}\n"
        )
        assert twice("cluster import", path=Path("clusters.csv"))["changes"]
    twice("cluster retire", name="lynx", reason="not needed")
    ask("cluster show", name="lynx")
    ask("cluster times")
    voyage.has_tried_all("cluster")


FILE = """\
campaign: nic
changes: [{{component: nic, version: "2"}}]
scope: {{}}
start: {start}
deadline: {deadline}
window: {{hours: [0, 24], tz: Europe/Berlin}}
work: [{{mode: whole, hours: 4}}]
limits: [{{kind: out_at_once, at_most: {cap}}}]
objective: {{exposure: 1, peak: 0}}
no_fly: [{{from: {start}, to: {start}, scope: {{cluster: lion}}, why: a launch}}]
run: {{grace_minutes: 600}}
roster: [bob]
"""


def _write_campaign(name: str, cap: int) -> Path:
    first = (utc_now() + timedelta(days=2)).date()  # an hour before midnight here it is tomorrow in Berlin already
    Path(name).write_text(FILE.format(start=first, deadline=first + timedelta(days=4), cap=cap))
    return Path(name)


def test_campaign(small: Voyage) -> None:
    ask, twice = small.ask, small.twice
    work = WORK.format(name="run-1", team="cod", gpus=48).replace("barnacle", "tiger")
    Path("work.yaml").write_text(work)
    ask("quota apply", without_notice=True, policy="fixed:0", reason="a test")
    ask("workload submit", files=["work.yaml"])
    file, tight = _write_campaign("nic.yaml", cap=8), _write_campaign("tight.yaml", cap=7)
    assert ask("campaign plan", file=tight, dry_run=True)["relaxations"]
    plan = twice("campaign plan", file=file, seconds=1.0)
    Path("plan.json").write_bytes(msgspec.json.encode(plan))
    assert ask("campaign check", file=file, plan_file=Path("plan.json"))["valid"] is True
    ask("campaign combinations", file=file, plan=Path("plan.json"))
    assert ask("campaign check", file=tight, plan_file=Path("plan.json"))["problems"]
    twice("campaign replan", name="nic", file=_write_campaign("nic.yaml", cap=9), seconds=1.0)
    assert ask("campaign compare", left="nic:1", right="nic:2")["left"]["score"]
    ask("campaign calendar", name="nic")
    twice("campaign publish", name="nic", folder=Path("told"))
    twice("campaign start", name="nic")
    assert ask("campaign gate", name="nic", batch="tiger")["reasons"]
    twice("campaign pause", name="nic", reason="lunch")
    twice("campaign resume", name="nic")
    small.clock[0] = datetime.fromisoformat(plan["batches"][0]["start"]) + timedelta(minutes=1)
    ask("campaign blocked")
    for _ in range(2):
        ask("campaign run", name="nic")
    would = ask("campaign cancel", name="nic", dry_run=True)
    assert (would["phase"], would["under_way"]) == ("cancelled", []), "nobody has worked on what drains"
    (batch,) = twice("campaign agree", name="nic", workload="run-1")["batches"]
    ask("campaign run", name="nic")
    would = ask("campaign cancel", name="nic", dry_run=True)
    assert (would["phase"], would["under_way"]) == ("cancelling", [batch]), "what is handed over is brought to its end"
    ask("campaign status", name="nic")
    assert ask("campaign status", name="nic", batch="tiger")["nodes"]
    twice("campaign tick", name="nic", batch="tiger", lost=["t1"], validated=True)
    twice("campaign returned", name="nic", updated=True)
    ask("campaign status", name="nic", all_batches=True)
    ask("campaign calendar", name="nic")
    twice("campaign cancel", name="nic", reason="wrong fix")
    ask("campaign list")
    opened = twice("campaign incident open", title="fire", cluster=["lion"], roster=["bob"])["incident"]
    twice("campaign incident note", name=opened, note="smoke")
    assert ask("campaign incident list")
    twice("campaign incident close", name=opened)
    assert ask("campaign incident list", show_all=True)
    Path("versions.csv").write_text("node,component,version\nt1,nic,1\nt2,nic,2\nt2,driver,7\n")
    twice("campaign versions import", path=Path("versions.csv"))
    Path("versions.csv").write_text("node,component,version\nt1,nic,3\nt2,nic,2\nt2,driver,7\n")
    assert ask("campaign versions import", path=Path("versions.csv"))["differences"]
    for by in VersionsBy:
        ask("campaign versions show", by=by)
    twice("campaign tested", pairs=["nic=2", "driver=7"], result=Result.PASSED, where="tiger")
    twice("campaign versions relevant", components=["nic", "driver"])
    twice("campaign want", pairs=["nic=3"], scope=["area=us"])
    assert ask("campaign behind")["behind"]
    assert ask("campaign combinations")["combinations"]
    small.has_tried_all("campaign")


def test_incident(small: Voyage) -> None:
    ask, twice = small.ask, small.twice
    ask("quota apply", without_notice=True, policy="fixed:0", reason="a test")
    ask("health set", words=["cluster=tiger", "repair"], reason="water")
    assert ask("incident run")["did"]
    opened = twice("incident open", title="water", cluster=["tiger"])["incident"]
    twice("incident note", name=opened, note="wet")
    for each in ask("incident list"):
        ask("incident show", name=each["id"])
    twice("incident close", name=opened)
    ask("incident list", show_all=True)
    ask("incident notices")
    small.has_tried_all("incident")


def test_access(small: Voyage) -> None:
    ask, twice = small.ask, small.twice
    ask("access whoami")
    twice("access grant", who="anne", role=Role.ADMIN)
    twice("access grant", who="bob", role=Role.RPM, team="cod")
    ask("access list")
    for who in ("anne", "bob", "carl"):
        ask("access check", who=who, permission=Permission.DECIDE_QUOTA, team="cod")
    made = twice("access token issue", owner="bob", scope=[Permission.SEE], team="cod")
    ask("access token list")
    ask("access link", who="bob")
    twice("access session end", who="bob")
    twice("access token revoke", token=made["id"])
    twice("access revoke", who="bob", role=Role.RPM, team="cod")
    small.has_tried_all("access")


def test_simulate(small: Voyage) -> None:
    Path("trace.csv").write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2026-01-05 11:00:00,3600,8,28800,a\n")
    small.ask("simulate replay", trace=Path("trace.csv"), fleet=Path("fleet"))
    small.has_tried_all("simulate")
