"""`plimsoll campaign versions|combinations|tested|want|blocked|behind` as their users type them."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from plimsoll.campaigns.file import read_campaign
from plimsoll.campaigns.model import Batch, Mode, Plan, Score, Status
from plimsoll.campaigns.plan_file import plan_json
from plimsoll.campaigns.run.desk import record_plan
from plimsoll.campaigns.units import make_units
from plimsoll.documents import read_document
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.ledger.model import Draft
from plimsoll.rooms import open_keeper
from plimsoll.times import parse_time
from tests.support.dock import FILE, with_lines
from tests.support.inside import called
from tests.support.versions import cluster, node

ROWS = """node,component,version
tiger-1,driver,550
tiger-1,nic-firmware,28.41
tiger-2,driver,560
tiger-2,nic-firmware,28.41
lion-1,driver,550
lion-1,nic-firmware,28.39
"""
TIGER_2 = {"driver": "560", "nic-firmware": "28.41"}


def fleet_of(dsn: str, *names: str) -> None:
    """Clusters of two nodes."""
    drafts = []
    for name in names:
        drafts.append(Draft(ClusterRecorded(cluster(name))))
        drafts += [Draft(NodeRecorded(node(f"{name}-{number}", name))) for number in (1, 2)]
    with open_keeper(dsn, create=True) as keeper:
        keeper.commit(drafts, actor="tester", read_at=None)


@pytest.fixture
def book(tmp_path: Path) -> str:
    """Two clusters of two nodes; of one node nobody has looked what is on it."""
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    fleet_of(dsn, "tiger", "lion")
    (tmp_path / "seen.csv").write_text(ROWS, encoding="utf-8")
    said = called("campaign", "versions", "import", str(tmp_path / "seen.csv"), "--db", dsn, "-o", "json")
    assert said.json()["counts"] == {"added": 6, "changed": 0, "removed": 0, "same": 0}
    return dsn


def test_import_again_is_a_diff(book: str, tmp_path: Path) -> None:
    words = ("campaign", "versions", "import", str(tmp_path / "seen.csv"), "--db", book)
    again = called(*words)
    assert again.out.startswith("seen.csv: nothing to change\n")
    revision = called(*words, "-o", "json").json()["revision"]
    (tmp_path / "seen.csv").write_text(ROWS.replace("28.39", "28.40"), encoding="utf-8")
    tried = called(*words, "--dry-run", "-o", "json").json()
    assert (tried["dry_run"], tried["revision"], tried["counts"]["changed"]) == (True, revision, 1)
    assert tried["differences"] == [{"what": "changed", "key": "lion-1 nic-firmware", "was": {"version": "28.39"}}]
    assert called(*words, "-o", "json").json()["revision"] == revision + 1


def test_a_bad_row_is_named_and_nothing_is_kept(book: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(ROWS.replace("lion-1,driver", "lion-9,driver"), encoding="utf-8")
    said = called("campaign", "versions", "import", str(tmp_path / "bad.csv"), "--db", book)
    assert said.code == 1
    assert "bad.csv row 6 column node: 'lion-9', expected a node that the fleet has" in said.err
    assert "next: correct the rows and import again" in said.err
    missing = called("campaign", "versions", "import", str(tmp_path / "none.csv"), "--db", book)
    assert (missing.code, "node,component,version" in missing.err) == (1, True)


def test_show_by_each_thing(book: str) -> None:
    words = ("campaign", "versions", "show", "--db", book)
    document = called(*words, "-o", "json").json()
    assert (document["nodes"], document["nodes_known"]) == (4, 3)
    assert document["components"] == {"driver": {"550": 2, "560": 1}, "nic-firmware": {"28.39": 1, "28.41": 2}}
    assert {"versions": TIGER_2, "nodes": 1, "clusters": ["tiger"]} in document["by"]
    rows = list(csv.reader(io.StringIO(called(*words, "cluster=tiger", "--by", "node", "-o", "csv").out)))
    assert rows == [["node", "driver", "nic-firmware"], ["tiger-1", "550", "28.41"], ["tiger-2", "560", "28.41"]]
    table = called(*words, "--by", "cluster").out
    assert "4 combinations on 3 of 4 nodes" in table
    assert called(*words, "-o", "yaml").out.startswith("as_of:")


def test_what_is_tested_is_known_afterwards(book: str) -> None:
    words = ("campaign", "combinations", "--db", book, "-o", "json")
    verdicts = {
        msgspec.json.encode(each["versions"]): each["verdict"] for each in called(*words).json()["combinations"]
    }
    assert sorted(verdicts.values()) == ["unknown", "untested", "untested", "untested"]
    pairs = [f"{component}={version}" for component, version in TIGER_2.items()]
    said = called("campaign", "tested", *pairs, "--result", "passed", "--where", "tiger", "--note", "ok", "--db", book)
    assert said.out.startswith("driver=560 nic-firmware=28.41: passed in tiger\n")
    called("campaign", "tested", "nic-firmware=28.39", "--result", "failed", "--db", book)
    listed = called(*words).json()["combinations"]
    assert [each["verdict"] for each in listed] == ["failed", "untested", "passed", "unknown"]
    passed = next(each for each in listed if each["verdict"] == "passed")
    assert passed["versions"] == TIGER_2
    assert {key: passed["tested"][key] for key in ("result", "where", "note")} == {
        "result": "passed",
        "where": "tiger",
        "note": "ok",
    }
    short = called("campaign", "combinations", "--untested", "--db", book, "-o", "json").json()
    assert "passed" not in [each["verdict"] for each in short["combinations"]]


def test_components_that_do_not_count(book: str) -> None:
    assert called("campaign", "versions", "relevant", "driver", "--db", book).code == 0
    again = called("campaign", "versions", "relevant", "driver", "--db", book)
    assert again.out.startswith("combinations are told apart by driver (known already)")
    document = called("campaign", "combinations", "--db", book, "-o", "json").json()
    assert document["relevant"] == ["driver"]
    assert [each["versions"] for each in document["combinations"]] == [{"driver": "550"}, {"driver": "560"}, {}]
    among = called("campaign", "combinations", "--among", "nic-firmware", "--db", book, "-o", "json").json()
    assert among["relevant"] == ["nic-firmware"]
    called("campaign", "versions", "relevant", "--all", "--db", book)
    assert called("campaign", "combinations", "--db", book, "-o", "json").json()["relevant"] is None


def test_who_is_behind_what_is_wanted(book: str) -> None:
    words = ("campaign", "want", "nic-firmware=28.41", "--scope", "cluster=lion,tiger", "--db", book)
    assert called(*words).out.startswith("nic-firmware=28.41 wanted, cluster: lion|tiger\n")
    document = called("campaign", "behind", "--db", book, "-o", "json").json()
    (lag,) = document["behind"]
    assert {key: lag[key] for key in ("cluster", "component", "wanted", "behind", "unknown", "oldest", "releases")} == {
        "cluster": "lion",
        "component": "nic-firmware",
        "wanted": "28.41",
        "behind": 2,
        "unknown": 1,
        "oldest": "28.39",
        "releases": 1,
    }
    assert [(cause["reason"], cause["nodes"]) for cause in lag["causes"]] == [("no_campaign", 2)]
    assert "2 no campaign" in called("campaign", "behind", "--db", book).out
    assert called("campaign", "behind", "cluster=tiger", "--db", book, "-o", "json").json()["behind"] == []
    assert len(called("campaign", "behind", "--all", "--db", book, "-o", "json").json()["behind"]) == 2
    assert called(*words, "--withdraw").code == 0
    assert called("campaign", "behind", "--db", book, "-o", "json").json()["behind"] == []


WRONG = {
    "not a pair": (("tested", "driver", "--result", "passed"), 2, "'driver' is not COMPONENT=VERSION"),
    "no result": (("tested", "driver=1"), 2, "Missing option '--result'"),
    "another result": (("tested", "driver=1", "--result", "maybe"), 2, "maybe"),
    "a component with a slip": (("tested", "drivr=1", "--result", "passed"), 1, "did you mean driver?"),
    "an unknown cluster": (("tested", "driver=1", "--result", "passed", "--where", "x"), 1, "there is no cluster 'x'"),
    "a time ahead": (("tested", "driver=1", "--result", "passed", "--at", "2999-01-01"), 2, "in the future"),
    "a scope that matches nothing": (("want", "driver=1", "--scope", "sku=B300"), 1, "no node of 4 matches sku: B300"),
    "a scope that is none": (("want", "driver=1", "--scope", "sku"), 2, "is not KEY=VALUE"),
    "nothing to withdraw": (("want", "driver=1", "--withdraw"), 1, "nobody has said which driver is wanted"),
    "a file without a plan": (("combinations", "--file", "x.yaml"), 2, "--file and --plan go together"),
    "a file that is not there": (("combinations", "--file", "x", "--plan", "y"), 2, "No such file"),
    "among nothing known": (("combinations", "--among", "x"), 1, "no node has a component 'x'"),
    "relevant to nothing": (("versions", "relevant"), 2, "say either which components count, or --all"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str, book: str) -> None:
    words, want_code, want_text = WRONG[name]
    revision = called("campaign", "versions", "show", "--db", book, "-o", "json").json()["revision"]
    said = called("campaign", *words, "--db", book)
    assert said.code == want_code, said.err
    assert want_text in said.err
    assert "next: " in said.err
    assert called("campaign", "versions", "show", "--db", book, "-o", "json").json()["revision"] == revision


# With a plan.

START = "2026-01-"
ZONE = "no_fly: [{scope: {cluster: [whale]}, from: 2026-01-05, to: 2026-01-06, why: training run}]"


def planned_in(dsn: str, **starts: str) -> Plan:
    """A plan in the ledger: by cluster, when it goes out for four hours."""
    text = with_lines(FILE, ZONE)
    document = read_document(text, source="nic.yaml")
    campaign, begins = read_campaign(document), {name: parse_time(f"{START}{at}Z") for name, at in starts.items()}
    batches = tuple(Batch(name, Mode.WHOLE, 1, 2, at, at + timedelta(hours=4)) for name, at in begins.items())
    plan = Plan("nic", 1, Status.FEASIBLE, Score(0.0, 0.0, 0.0, 0.0), 0.0, batches)
    with open_keeper(dsn) as keeper:
        roll = make_units(campaign, keeper.state().of(Fleet), document)
        drafts = record_plan(keeper.state(), campaign, text, plan, roll)
        keeper.commit(drafts, actor="tester", read_at=None)
    return plan


def test_a_plan_in_files_and_one_in_the_ledger_make_the_same(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    fleet_of(dsn, "tiger", "whale")
    rows = "".join(f"{name},nic-firmware,28.41\n" for name in ("tiger-1", "tiger-2", "whale-1", "whale-2"))
    (tmp_path / "seen.csv").write_text(f"node,component,version\n{rows}", encoding="utf-8")
    called("campaign", "versions", "import", str(tmp_path / "seen.csv"), "--db", dsn)
    words = ("campaign", "combinations", "--db", dsn, "-o", "json")
    before = called(*words).json()
    assert before["campaigns"] == []
    plan = planned_in(dsn, tiger="05T11:00", whale="07T11:00")
    planned = called(*words).json()
    assert planned["campaigns"] == ["nic"]
    old, made = planned["combinations"]
    assert (made["nodes_now"], made["nodes_after"], made["since"]) == (0, 4, "2026-01-05T15:00:00Z")
    assert (old["nodes_now"], old["until"], old["held_by"]) == (4, "2026-01-07T15:00:00Z", ["training run"])
    assert [each["cluster"] for each in planned["canaries"]["clusters"]] == ["tiger"]
    blocked = called("campaign", "blocked", "--all", "--db", dsn, "-o", "json").json()["blocked"]
    assert [(each["campaign"], each["nodes"], each["since"], each["why"]) for each in blocked] == [
        ("nic", 2, "2026-01-05", "training run")
    ]
    assert "0 no-fly zones hold back 0 nodes now" in called("campaign", "blocked", "--db", dsn).out
    behind = called("campaign", "behind", "--db", dsn, "-o", "json").json()["behind"]
    assert {each["cluster"]: each["causes"][0]["reason"] for each in behind} == {"tiger": "late", "whale": "late"}
    (tmp_path / "nic.yaml").write_text(with_lines(FILE, ZONE), encoding="utf-8")
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan_json(plan, 0.0)))
    files = ("--file", str(tmp_path / "nic.yaml"), "--plan", str(tmp_path / "plan.json"))
    assert called(*words, *files).json()["combinations"] == planned["combinations"]
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan_json(plan, 0.0)).replace(b'"nodes":2', b'"nodes":3'))
    said = called(*words, *files)
    assert (said.code, said.error["code"]) == (1, "plan_does_not_fit")
