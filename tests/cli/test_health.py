"""`plimsoll health`: what people do to nodes and see of them, and what they are told when it is wrong."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from plimsoll.answers import Answer, Output
from plimsoll.commands.options import answer_keeper
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.acts import Acting, Decision, place_hold
from plimsoll.health.facts import Hold
from plimsoll.health.service import act, observe, put_policy_in_force
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import utc_now
from tests.support.command import PLIMSOLL
from tests.support.fleets import nodes, row, write_fleet
from tests.support.health import POLICY, Ward
from tests.support.imports import Importer
from tests.support.inside import Said, called
from tests.support.terminal import terminal_environment
from tests.support.waiting import wait_until

WIDTH_MAX = 140


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two clusters in two colos: tiger with islands a (t1 to t4) and b (u1, u2), lion with l1 and l2."""
    folder = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", colo="colo-2")],
        nodes=[
            *nodes(4, prefix="t"),
            *nodes(2, prefix="u", island="tiger-b"),
            *nodes(2, prefix="l", cluster="lion", island="lion-a"),
        ],
    )
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(folder)
    importer.keeper.close()
    monkeypatch.setenv("PLIMSOLL_DB", dsn)
    return dsn


def health(*words: object) -> Said:
    return called("health", *words)


def done(*words: object) -> Any:
    """A command that must be done; its document."""
    said = health(*words, "-o", "json")
    assert (said.code, said.err) == (0, "")
    return said.json()


def head() -> str:
    return called("audit", "head").out


def services() -> dict[str, str]:
    document = called("fleet", "nodes", "-o", "json").json()
    return {node["node"]: node["service"] for node in document["nodes"]}


def audit(subject: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = called("audit", "log", "--subject", subject, "-o", "json").json()["events"]
    return found


@pytest.mark.usefixtures("db")
class TestTheForms:
    SHAPES = {
        ("show",): {"as_of", "revision", "goals", "present"},
        ("show", "t1"): {
            "as_of", "revision", "node", "cluster", "island", "sku", "service", "since", "facts", "feeds", "holds",
            "waits_for", "problems", "held_back_by", "exits", "timeline",
        },
        ("holds",): {"as_of", "revision", "holds"},
        ("policy", "show"): {"policy", "is_default", "xid_profile", "text"},
        ("sweep",): {"dry_run", "revision", "outcome", "silent", "expired", "checks", "over"},
        ("set", "t2", "repair", "--reason", "x"): {"dry_run", "revision", "count", "outcome"},
        ("hold", "t2", "--id", "h", "--reason", "x"): {"dry_run", "revision", "count", "outcome"},
        ("signal", "t2", "xid", "79"): {"dry_run", "observed", "notes", "steered"},
    }  # fmt: skip
    PRESENT = {
        "nodes", "gpus", "in_service", "healthy_gpus", "by_service", "by_health", "by_owner", "planned", "unplanned",
        "uncovered", "attention", "reasons", "clusters", "returns", "feeds",
    }  # fmt: skip

    @pytest.mark.parametrize("words", SHAPES, ids=" ".join)
    def test_json_has_the_same_keys_always_and_yaml_is_the_same(self, words: tuple[str, ...]) -> None:
        is_change = "--reason" in words or words[0] == "signal"
        more = ["--dry-run"] if is_change else []
        document = done(*words, *more)
        assert document.keys() == self.SHAPES[words]
        as_yaml = yaml.safe_load(health(*words, *more, "-o", "yaml").out)
        assert as_yaml.keys() == document.keys()

    def test_the_present_has_the_same_keys_always(self) -> None:
        assert done("show")["present"].keys() == self.PRESENT
        health("set", "cluster=tiger", "repair", "--reason", "x")
        assert done("show")["present"].keys() == self.PRESENT
        assert done("show", "service=joining")["present"].keys() == self.PRESENT

    CSV = {
        ("show",): "cluster,nodes,in_service,in_service_share,unplanned,planned,degraded,unknown",
        ("show", "service=joining"): "cluster,nodes,in_service,in_service_share,unplanned,planned,degraded,unknown",
        ("holds",): "hold,node,owner,service,since,expires,exclusive,scope,reason",
        ("sweep",): "node,was,service,health,why",
        ("set", "t2", "repair", "--reason", "x"): "node,was,service,health,why",
        ("signal", "t2", "xid", "31"): "node,was,service,health,why",
        ("policy", "show"): "signal,name,at_least,count,within,lasting,do,owner",
    }

    @pytest.mark.parametrize("words", CSV, ids=" ".join)
    @pytest.mark.parametrize("is_troubled", [False, True])
    def test_csv_has_the_same_columns_whatever_there_is_to_say(self, words: tuple[str, ...], is_troubled: bool) -> None:
        if is_troubled:
            health("set", "t1", "repair", "--reason", "x", "--expected", "1s")
            health("signal", "t1", "xid", "79")
        rows = list(csv.reader(io.StringIO(health(*words, "-o", "csv").out)))
        assert ",".join(rows[0]) == self.CSV[words]
        assert {len(cells) for cells in rows} == {len(rows[0])}

    def test_a_table_fits_on_a_terminal(self) -> None:
        health("set", "cluster=tiger", "quarantined", "--reason", "cooling fails", "--until", "4h", "--expected", "1s")
        health("hold", "l1", "--id", "rack-12-recabling", "--reason", "new cables for rack 12", "--until", "2d")
        health("signal", "l2", "check", "nccl-all-reduce", "--detail", "bandwidth is 120 of 350")
        health("signal", "l2", "check", "nccl-all-reduce", "--detail", "bandwidth is 120 of 350", "--at", "1m")
        health("set", "t1", "validating")
        for words in (["show"], ["show", "t1"], ["show", "l2"], ["sweep"], ["holds"]):
            lines = health(*words).out.splitlines()
            # A hold's reason stands last and is as long as somebody made it.
            shown = [line[: lines[0].find("reason")] if words == ["holds"] else line for line in lines]
            assert [line for line in shown if len(line) > WIDTH_MAX] == []
            assert not re.search(r":\d\d\.\d+Z", "\n".join(lines)), "a person needs no microseconds"


DRY = {
    "set": ["set", "cluster=tiger", "quarantined", "--reason", "x"],
    "hold": ["hold", "t1", "--id", "h", "--reason", "x"],
    "release": ["release", "set:tester"],
    "tick": ["tick", "accepted", "l1"],
    "signal": ["signal", "t1", "xid", "79"],
    "sweep": ["sweep"],
}


@pytest.mark.parametrize("command", DRY)
def test_a_dry_run_shows_what_would_be_and_changes_nothing(command: str, db: str) -> None:
    health("set", "l1", "quarantined", "--reason", "x")
    health("set", "l2", "quarantined", "--reason", "x", "--until", "1s")
    health("set", "l1", "validating")
    before = head(), services()
    said = health(*DRY[command], "--dry-run")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "dry run: nothing was kept"
    assert (head(), services()) == before
    assert done(*DRY[command], "--dry-run")["dry_run"] is True
    assert (head(), services()) == before


SCOPES = {
    "cluster=tiger": ["t1", "t2", "t3", "t4", "u1", "u2"],
    "island=tiger-b": ["u1", "u2"],
    "colo=colo-2": ["l1", "l2"],
}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_whole_cluster_island_or_colo_goes_out_and_comes_back_as_one_act(scope: str, db: str) -> None:
    meant = SCOPES[scope]
    before = int(head().partition(":")[0])
    said = health("set", scope, "quarantined", "--reason", "cooling fails")
    assert said.out.splitlines()[0] == f"{len(meant)} nodes set to quarantined"
    assert [name for name, service in services().items() if service == "quarantined"] == sorted(meant)

    # Who and why is seen on the node, among the holds, and in the log.
    shown = health("show", meant[0]).out
    assert shown.splitlines()[0] == f"{meant[0]}: healthy, quarantined, ours (cooling fails)"
    assert "tester" in shown
    line = next(line for line in health("holds").out.splitlines() if line.startswith("set:tester"))
    assert line.split()[:5] == ["set:tester", "tester", "quarantined", str(len(meant)), scope]
    assert line.endswith("cooling fails")
    assert {hold["hold"]["scope"] for hold in done("holds")["holds"]} == {scope}
    events = audit(f"node/{meant[0]}")
    assert {(event["actor"], event["reason"]) for event in events if event["revision"] > before} == {
        ("tester", "cooling fails")
    }

    assert health("release", "set:tester").out.splitlines()[0] == f"{len(meant)} nodes released from 'set:tester'"
    assert {services()[name] for name in meant} == {"validating"}
    assert done("holds")["holds"] == []


def test_the_way_back_is_through_validation(db: str) -> None:
    policy = health("policy", "show").out.replace("for: 10m", "for: 0s")
    Path("policy.yaml").write_text(policy)
    assert health("policy", "apply", "policy.yaml", "--reason", "quick").code == 0
    health("set", "t1", "repair", "--reason", "fan", "--owner", "provider", "--expected", "2d")
    facts = done("show", "t1")["facts"]
    assert (facts["owner"], facts["why"]) == ("provider", "fan")
    assert health("set", "t1", "validating").code == 0
    shown = health("show", "t1").out
    assert "accepted  not answered yet" in shown
    refused = health("set", "t1", "in_service")
    assert refused.code == 1
    assert "t1 has not passed 1 of 2 checks (accepted: not answered yet)" in refused.err
    assert "next: plimsoll health tick accepted t1" in refused.err
    ticked = health("tick", "accepted", "t1", "--reason", "burn-in was fine")
    assert ticked.out.splitlines()[0] == "1 node checked: accepted passed"
    assert services()["t1"] == "in_service"


def test_a_check_that_failed_puts_the_node_out_again(db: str) -> None:
    health("set", "t1", "repair", "--reason", "fan")
    health("set", "t1", "validating")
    assert health("tick", "accepted", "t1", "--failed", "--reason", "still hot").code == 0
    assert health("show", "t1").out.splitlines()[0].endswith("(validation: accepted failed, still hot)")
    assert services()["t1"] == "quarantined"


def test_holds_stack_and_only_ones_own_is_ended(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    health("hold", "t1", "t2", "--id", "cabling", "--reason", "new cables", "--until", "4h")
    monkeypatch.setenv("PLIMSOLL_ACTOR", "ada")
    health("hold", "t1", "--id", "firmware", "--service", "maintenance", "--reason", "new firmware", "--exclusive")
    assert services()["t1"] == "maintenance"
    assert health("holds").out.splitlines()[-1] == "3 holds on 2 nodes"
    refused = health("release", "cabling")
    assert (refused.code, refused.out) == (1, "")
    assert "the hold 'cabling' on t1 is tester's: new cables" in refused.err
    assert "--force --reason WHY" in refused.err
    assert health("release", "cabling", "--force").code == 2  # without saying why
    assert health("release", "firmware").code == 0
    assert services()["t1"] == "quarantined"
    assert health("release", "cabling", "t2", "--force", "--reason", "they left").code == 0
    assert (services()["t1"], services()["t2"]) == ("quarantined", "validating")


WRONG: dict[str, tuple[list[str], int, str, str]] = {
    "a node that is none": (["set", "t11", "repair", "--reason", "x"], 1, "unknown_node", "did you mean 't1'?"),
    "a cluster for a node": (["show", "tiger"], 1, "unknown_node", "did you mean 'cluster=tiger'?"),
    "a signal for no node": (["signal", "t11", "xid", "79"], 1, "unknown_node", "there is no node 't11'"),
    "a filter that nothing matches": (["set", "cluster=x", "repair", "--reason", "x"], 1, "no_nodes", "cluster=x"),
    "a filter that is none": (["show", "isle=a"], 2, "unknown_field", "did you mean 'island'?"),
    "an XID that is none": (["signal", "t1", "xid", "seven"], 2, "bad_signal", "found 'seven'"),
    "a kind that is none": (["signal", "t1", "xld", "79"], 2, "bad_usage", "xld"),
    "a signal of tomorrow": (["signal", "t1", "xid", "79", "--at", "2999-01-01"], 1, "signal_from_future", "ahead"),
    "a signal of long ago": (["signal", "t1", "xid", "79", "--at", "90d"], 1, "signal_too_old", "is 90 days ago"),
    "a move that is none": (
        ["set", "t1", "validating"], 1, "illegal_move",
        "legal moves: draining, quarantined, maintenance, repair, retired",
    ),
    "a way around validation": (["set", "l2", "in_service"], 1, "illegal_move", "legal moves: maintenance"),
    "a service that is none": (
        ["set", "t1", "quarantine", "--reason", "x"], 2, "bad_usage",
        "'quarantine' is no service; did you mean 'quarantined'?",
    ),
    "two services": (["set", "t1", "repair", "retired", "--reason", "x"], 2, "bad_usage", "not to 2: repair, retired"),
    "no nodes": (["set", "repair", "--reason", "x"], 2, "bad_usage", "say which nodes"),
    "an end of no hold": (["set", "l2", "validating", "--until", "4h"], 2, "bad_usage", "--until: only nodes"),
    "no reason": (["set", "t1", "repair"], 2, "reason_missing", "say why"),
    "a reason of nothing": (["hold", "t1", "--id", "h", "--reason", " "], 2, "reason_missing", "say why"),
    "no hold's name": (["hold", "t1", "--reason", "x"], 2, "bad_usage", "--id"),
    "a name of our own": (["hold", "t1", "--id", "plimsoll:x", "--reason", "x"], 2, "bad_usage", "can't name a hold"),
    "a hold in service": (
        ["hold", "t1", "--id", "h", "--service", "in_service", "--reason", "x"], 2, "bad_usage", "no hold keeps",
    ),
    "a hold that is none": (["release", "nothing"], 1, "no_such_hold", "there is no hold 'nothing'"),
    "a hold of another": (["release", "theirs"], 1, "not_your_hold", "is ada's: work of ada"),
    "the name of another's hold": (["hold", "l1", "--id", "theirs", "--reason", "x"], 1, "hold_exists", "ada already"),
    "a node that another works on": (
        ["hold", "l1", "--id", "h", "--exclusive", "--reason", "x"], 1, "node_leased", "ada works on l1",
    ),
    "a span that is none": (["hold", "t1", "--id", "h", "--reason", "x", "--until", "4x"], 2, "bad_time", "'4x'"),
    "a time that has passed": (
        ["hold", "t1", "--id", "h", "--reason", "x", "--until", "2020-01-01"], 2, "bad_time", "not in the future",
    ),
    "a span of nothing": (["hold", "t1", "--id", "h", "--reason", "x", "--until", "0s"], 2, "bad_time", "'0s'"),
    "a wait that is none": (["sweep", "--every", "often"], 2, "bad_usage", "--every 'often' is not a span of 1s to 1d"),
    "a check that is none": (["tick", "acepted", "l1"], 1, "no_such_check", "it has quiet, accepted"),
    "a check of a node in service": (["tick", "accepted", "t1"], 1, "not_validating", "t1 is in_service"),
    "a breaker that has not tripped": (
        ["breaker", "cluster/tiger", "--go-on", "--reason", "x"], 1, "no_such_breaker", "tripped: none",
    ),
    "a breaker and no answer": (["breaker", "fleet", "--reason", "x"], 2, "bad_usage", "held back"),
    "a breaker and no reason": (["breaker", "fleet", "--go-on"], 2, "reason_missing", "say why"),
    "the past and --watch": (["show", "--watch", "--as-of", "1"], 2, "watch_the_past", "exclude each other"),
    "a server that is none": (["sweep", "--prometheus", "here"], 2, "prometheus_bad_url", "not the URL"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", WRONG)
def test_what_is_wrong_is_said_with_what_to_type_and_changes_nothing(
    sentence: str, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, want_code, want_error, want = WRONG[sentence]
    monkeypatch.setenv("PLIMSOLL_ACTOR", "ada")
    health("hold", "l1", "l2", "--id", "theirs", "--exclusive", "--reason", "work of ada")
    monkeypatch.setenv("PLIMSOLL_ACTOR", "tester")
    before = head()
    said = health(*words)
    assert (said.code, said.out) == (want_code, "")
    assert want in said.err
    assert "\n  next: " in said.err
    error = health(*words, "-o", "json").error
    assert error["code"] == want_error
    assert head() == before


def test_a_hold_that_was_placed_later_is_not_ended(db: str) -> None:
    with Ward(dsn=db) as later:
        later.now = utc_now() + timedelta(minutes=10)
        later.hold("t1", hold_id="h", actor="tester")
    before = head()
    said = health("release", "h")
    assert (said.code, said.out) == (1, "")
    assert "after this release" in said.err
    assert health("release", "h", "-o", "json").error["code"] == "newer_hold"
    assert head() == before


def test_the_whole_demo_fits_on_a_terminal(demo_book: str) -> None:
    shown = health("show", "--db", demo_book).out.splitlines()
    assert [line for line in shown if len(line) > WIDTH_MAX] == []
    assert shown[3].startswith("stuck ")
    assert any(line.startswith("waiting_for_tick ") for line in shown)


def test_a_breaker_is_answered_by_a_person(db: str) -> None:
    for name in ("t1", "t2", "t3", "t4", "u1", "u2"):
        said = health("signal", name, "xid", "79")
    assert "1 node held back: cluster/tiger tripped." in said.out
    assert "plimsoll health breaker cluster/tiger --go-on|--dismiss --reason WHY" in said.out
    assert services() == {
        "l1": "in_service", "l2": "in_service", "t1": "quarantined", "t2": "quarantined", "t3": "quarantined",
        "t4": "quarantined", "u1": "in_service", "u2": "in_service",
    }  # fmt: skip
    shown = health("show").out
    assert "cluster/tiger: automation took 4 out, 4 at most are allowed; it holds back 2 more" in shown
    answered = health("breaker", "cluster/tiger", "--go-on", "--reason", "the rack is down")
    assert answered.out.splitlines()[0] == "2 nodes taken out that the breaker had held back"
    assert (services()["u1"], services()["u2"]) == ("quarantined", "quarantined")
    assert "breaker_tripped" not in health("show").out


def test_a_breaker_may_be_dismissed(db: str) -> None:
    for name in ("t1", "t2", "t3", "t4", "u1"):
        health("signal", name, "xid", "79")
    assert health("breaker", "cluster/tiger", "--dismiss", "--reason", "a bad driver").out.startswith("1 node let be")
    done("sweep")
    assert services()["u1"] == "in_service"
    assert "needs a person" not in health("show").out


def test_a_hold_that_expires_is_ended_by_a_sweep(db: str) -> None:
    health("hold", "t1", "--id", "short", "--reason", "a moment", "--until", "1s")
    wait_until(lambda: "1 of them expired" in health("holds").out, what="it expires")
    assert "hold_expired" in health("show").out
    document = done("sweep")
    assert [(each["node"], each["hold"]["id"]) for each in document["expired"]] == [("t1", "short")]
    assert services()["t1"] == "validating"


def _hold_of(keeper: Keeper, name: str, *, days: int) -> None:
    """A hold of ada without an end, placed so many days ago."""
    hold = Hold(f"h-{name}", "ada", Service.MAINTENANCE, "planned: cables", utc_now() - timedelta(days=days))

    def place(state: State, acting: Acting) -> Decision:
        return place_hold(state, [state.of(Fleet).nodes[name]], hold, acting)

    act(keeper, place, actor="ada", reason=hold.reason, names=[name])


def test_a_hold_that_has_no_end_is_mentioned_after_a_week(db: str) -> None:
    with open_keeper(db) as keeper:
        _hold_of(keeper, "t1", days=8)
        _hold_of(keeper, "t2", days=6)
    said = health("holds").out
    assert "1 of them placed by people over 7 days ago, without an end; next: plimsoll health release HOLD" in said
    (need,) = [each for each in done("show")["present"]["attention"] if each["need"] == "hold_without_end"]
    assert (need["count"], need["nodes"]) == (1, ["t1"])


def test_a_sweep_runs_the_checks_and_says_what_gave_no_answer(db: str) -> None:
    text = health("policy", "show").out
    accepted = "  - {check: accepted, by: manual}"
    checks = ["{check: diag, run: [test, '{node}', '=', t1]}", "{check: gone, run: [no-such-command]}"]
    Path("p.yaml").write_text(text.replace(accepted, "\n".join(f"  - {check}" for check in checks)))
    assert health("policy", "apply", "p.yaml").code == 0
    health("set", "t1", "t2", "repair", "--reason", "fan")
    health("set", "t1", "t2", "validating")
    document = done("sweep")
    assert {(each["node"], each["check"], each["is_passed"]) for each in document["checks"]} == {
        ("t1", "diag", True), ("t1", "gone", None), ("t2", "diag", False), ("t2", "gone", None),
    }  # fmt: skip
    assert (services()["t1"], services()["t2"]) == ("validating", "quarantined")
    assert "no answer: no-such-command: No such file or directory" in health("sweep").out


class TestShow:
    def test_it_says_what_works(self, db: str) -> None:
        health("set", "t1", "repair", "--reason", "fan")
        lines = health("show").out.splitlines()
        assert lines[0] == "7 of 8 nodes in service (87.5%; goal 95 %), 56 of 64 GPUs; out: 1 unplanned, 0 planned"
        assert "8 nodes without a feed" in health("show").out

    def test_it_may_be_about_some_nodes(self, db: str) -> None:
        health("set", "t1", "repair", "--reason", "fan")
        assert health("show", "cluster=lion").out.startswith("2 of 2 nodes in service (100.0%; goal 95 %)")
        assert health("show", "t1", "t2").out.startswith("1 of 2 nodes in service (50.0%; goal 95 %)")
        assert health("show", "t1", "cluster=lion").out.startswith("2 of 3 nodes in service")
        nothing = health("show", "service=joining")
        assert (nothing.code, nothing.out.splitlines()[0]) == (0, "no nodes")
        assert nothing.out.splitlines()[-1] == "no such node is in production; next: plimsoll fleet nodes"

    UNKNOWN = {
        "cluster=tigr": ("no node matches cluster=tigr; did you mean 'tiger'?", "cluster"),
        "cluster=tigr*,lionn": ("no node matches cluster=tigr*,lionn; did you mean 'tiger'?", "cluster"),
        "sku=H20 service=repair": ("no node matches sku=H20; did you mean 'H200'?", "sku"),
        "colo=nowhere": ("no node matches colo=nowhere", "colo"),
    }

    @pytest.mark.parametrize("words", UNKNOWN)
    def test_a_name_that_is_nowhere_is_refused(self, words: str, db: str) -> None:
        want, field = self.UNKNOWN[words]
        said = health("show", *words.split())
        assert (said.code, said.out) == (1, "")
        assert said.err == f"plimsoll: {want}\n  next: plimsoll fleet show --by {field}\n"
        assert health("show", *words.split(), "-o", "json").error["code"] == "no_nodes"

    def test_a_cluster_without_nodes_is_no_mistake(self, tmp_path: Path) -> None:
        clusters = [row("clusters"), row("clusters", cluster="cub")]
        Importer(f"sqlite:///{tmp_path}/cub.db").bring(write_fleet(tmp_path / "cub", clusters=clusters))
        said = health("show", "cluster=cub", "--db", "cub.db")
        assert (said.code, said.out.splitlines()[0]) == (0, "no nodes")
        assert health("show", "cluster!=tiger", "--db", "cub.db").code == 0

    def test_all_facts_are_there_also_where_nothing_is_known(self, db: str) -> None:
        assert done("show", "t1")["facts"] == {
            "health": "healthy", "owner": "ours", "why": "", "source": "import", "expected_return": None,
        }  # fmt: skip
        health("signal", "t1", "xid", "79")
        found = done("show", "t1")
        assert found["facts"].keys() == {"health", "owner", "why", "source", "expected_return"}
        (problem,) = found["problems"]
        assert problem == {"signal": "xid 79", "action": "quarantine", "why": "xid 79", "is_active": True}

    def test_a_node_that_a_breaker_holds_back_says_so(self, db: str) -> None:
        for name in ("t1", "t2", "t3", "t4", "u1"):
            health("signal", name, "xid", "79")
        out = health("show", "u1").out
        assert re.search(r"still in service: the breaker cluster/tiger holds automation back since \d{4}-.*Z\n", out)
        assert "next: plimsoll health breaker cluster/tiger --go-on | --dismiss --reason WHY\n" in out
        (held,) = done("show", "u1")["held_back_by"]
        assert held["scope"] == "cluster/tiger"
        assert done("show", "t1")["held_back_by"] == []
        assert "breaker" not in health("show", "t1").out
        assert "unhealthy_in_service" not in health("show").out

    def test_a_feed_that_fell_silent_shows_without_a_sweep(self, db: str) -> None:
        with open_keeper(db) as keeper:
            then = keeper.ledger.clock() - timedelta(hours=1)
            observe(keeper, [], feed="watcher", actor="feeder", swept=["t1"], at=then)
        assert health("show", "t1").out.splitlines()[0] == "t1: unknown, in_service, ours (feed watcher is silent)"
        facts = done("show", "t1")["facts"]
        assert (facts["health"], facts["why"], facts["source"]) == ("unknown", "feed watcher is silent", "watcher")
        assert done("show")["present"]["by_health"] == {"healthy": 7, "unknown": 1}
        assert "feed_silent" in health("show").out
        revision = head().partition(":")[0]
        assert done("show", "--as-of", revision)["present"]["by_health"] == {"healthy": 8}
        assert done("show", "t1", "--as-of", revision)["facts"]["health"] == "healthy"

    def test_without_a_database_it_says_how_to_get_one(self) -> None:
        said = health("show")
        assert (said.code, said.out) == (1, "")
        assert said.err.splitlines()[0] == "plimsoll: there is no database at plimsoll.db"

    def test_an_empty_fleet_says_so(self, tmp_path: Path) -> None:
        Importer(f"sqlite:///{tmp_path}/empty.db").bring(write_fleet(tmp_path / "none", nodes=[]))
        said = health("show", "--db", "empty.db")
        assert said.out.splitlines() == [
            "no nodes", "", "the fleet is empty; next: plimsoll demo, or plimsoll fleet import DIR",
        ]  # fmt: skip

    def test_the_past_is_what_was_known_then(self, db: str) -> None:
        before = head().partition(":")[0]
        health("signal", "t1", "xid", "79")
        assert health("show", "--as-of", before).out.startswith("8 of 8 nodes in service")
        now, then = done("show", "t1"), done("show", "t1", "--as-of", before)
        assert (now["service"], [each["signal"] for each in now["problems"]]) == ("quarantined", ["xid 79"])
        assert (then["service"], then["problems"], then["holds"]) == ("in_service", [], [])
        assert done("show", "--as-of", before)["present"]["feeds"] == []
        assert done("holds", "--as-of", before)["holds"] == []

    def test_a_node_tells_all_of_itself(self, db: str) -> None:
        health("signal", "t1", "xid", "79", "--detail", "GPU 3 fell off the bus")
        out = health("show", "t1").out
        assert out.splitlines()[0] == "t1: unhealthy, quarantined, ours (xid 79: GPU 3 fell off the bus)"
        assert "in tiger, island tiger-a, 8 x H200" in out
        assert out.splitlines()[-1] == "next: plimsoll audit log --subject node/t1"
        assert called("audit", "log", "--subject", "node/t1").code == 0

    def test_the_next_commands_it_names_exist(self, db: str) -> None:
        for words in (["slo"], ["slo", "--by", "node"], ["forecast", "--help"], ["observe", "--help"], ["holds"]):
            assert health(*words).code == 0


def _process(*words: str, db: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PLIMSOLL, "health", *words, "--db", db],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=terminal_environment(),
    )


def _said(process: subprocess.Popen[str], words: str) -> None:
    """Read on until a line holds these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    pytest.fail(f"it never said {words!r}")


def test_watching_shows_every_change_and_ctrl_c_ends_it(db: str) -> None:
    with _process("show", "--watch", db=db) as process:
        _said(process, "8 of 8 nodes in service")
        health("set", "t1", "repair", "--reason", "fan")
        _said(process, "7 of 8 nodes in service")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert "Traceback" not in err
    assert process.returncode != 0 or err == ""


def test_watching_misses_no_change_made_while_it_answers(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = SimpleNamespace(find_root=lambda: SimpleNamespace(obj=""))
    shown: list[int] = []
    waited: list[int] = []

    def wait(_store: object, after: int, *, seconds_max: float) -> bool:
        waited.append(after)
        raise KeyboardInterrupt

    def answer(keeper: Keeper, state: State) -> Answer:
        shown.append(state.revision)
        monkeypatch.setattr(type(keeper.ledger.store), "wait_for_change", wait)
        put_policy_in_force(keeper, POLICY, source="test", actor="ada", reason="")
        return Answer({})

    with pytest.raises(KeyboardInterrupt):
        answer_keeper(context, db, "", Output.JSON, watch=True, answer=answer)
    assert waited == shown


def test_sweeping_again_and_again_ends_with_ctrl_c(db: str) -> None:
    with _process("sweep", "--every", "1s", db=db) as process:
        _said(process, "swept: 0 nodes changed")
        _said(process, "swept: 0 nodes changed")
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert "Traceback" not in err
    assert "unexpected" not in err
