"""`plimsoll workload` as people and scripts use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.inside import plimsoll

CLUSTERS = "cluster,region,area,colo,provider,purpose,phase\ntiger,us-1,us,c1,cloud,research,production\n"
TEAMS = {"red": 64, "blue": 32}


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Two islands of 8 and 4 nodes, 8 GPUs each; red is guaranteed 64 GPUs and blue 32, of 96."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "clusters.csv").write_text(CLUSTERS)
    rows = [f"n{number},tiger,{'a' if number <= 8 else 'b'},H200,8,in_service,," for number in range(1, 13)]
    (folder / "nodes.csv").write_text("node,cluster,island,sku,gpus,service,since,reason\n" + "\n".join(rows) + "\n")
    quotas = [f"{team},tiger,H200,{gpus}" for team, gpus in TEAMS.items()]
    (folder / "quotas.csv").write_text("team,cluster,sku,gpus\n" + "\n".join(quotas) + "\n")
    url = f"sqlite:///{tmp_path}/p.db"
    for words in (("fleet", "import", str(folder)), ("quota", "apply", "--policy", "fixed:0")):
        ran = plimsoll(*words, db=url)
        assert ran.code == 0, ran.err
    return url


def file_of(tmp_path: Path, name: str, team: str, *parts: str, more: str = "") -> str:
    path = tmp_path / f"{name}.yaml"
    lines = "".join(f"  - {part}\n" for part in parts)
    path.write_text(f"workload: {name}\nteam: {team}\nwhere: {{cluster: tiger, sku: H200}}\n{more}parts:\n{lines}")
    return str(path)


def gang(gpus: int, *, rank: int = 1, tier: str = "high", name: str = "train", spare_nodes: int = 0) -> str:
    spares = f", spare_nodes: {spare_nodes}" if spare_nodes else ""
    return f"{{name: {name}, kind: gang, gpus: {gpus}, tier: {tier}, rank: {rank}{spares}}}"


def elastic(least: int, most: int, *, rank: int = 2, gpus: int = 8, name: str = "graders") -> str:
    replicas = f"{{min: {least}, max: {most}, gpus: {gpus}}}"
    return f"{{name: {name}, kind: elastic, replicas: {replicas}, tier: high, rank: {rank}}}"


def document(*words: str, db: str) -> Any:
    ran = plimsoll(*words, "-o", "json", db=db)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_a_submit_answers_where_it_runs_and_as_what(db: str, tmp_path: Path) -> None:
    ran = plimsoll("workload", "submit", file_of(tmp_path, "r1", "red", gang(32), elastic(1, 2)), db=db)
    assert ran.code == 0, ran.err
    assert "r1 runs as guaranteed on 48 of 48 GPUs (tiger: b 32, a 16)" in ran.out
    [found] = document("workload", "list", db=db)["workloads"]
    assert (found["standing"], found["as"], found["gpus"]) == ("running", "guaranteed", 48)


def test_work_beyond_the_guarantee_is_flex_and_gives_way_when_it_is_due(db: str, tmp_path: Path) -> None:
    flex = document("workload", "submit", file_of(tmp_path, "b1", "blue", gang(64)), db=db)["workloads"][0]
    assert (flex["standing"], flex["as"]) == ("running", "flex")
    guest = document("workload", "submit", file_of(tmp_path, "r1", "red", gang(48)), db=db)["workloads"][0]
    assert guest["standing"] == "starting"
    assert [victim["workload"] for victim in guest["victims"]] == ["b1"]
    assert document("workload", "show", "b1", db=db)["leaves_for"] == ["r1"]


def test_a_dry_run_changes_nothing(db: str, tmp_path: Path) -> None:
    before = plimsoll("audit", "head", db=db).out
    ran = plimsoll("workload", "submit", file_of(tmp_path, "r1", "red", gang(32)), "--dry-run", db=db)
    assert "would be: r1 runs as guaranteed" in ran.out
    assert plimsoll("audit", "head", db=db).out == before


def test_the_same_file_twice_is_one_workload_and_another_content_is_refused(db: str, tmp_path: Path) -> None:
    first = file_of(tmp_path, "r1", "red", gang(32))
    plimsoll("workload", "submit", first, db=db)
    head = plimsoll("audit", "head", db=db).out
    again = plimsoll("workload", "submit", first, db=db)
    assert again.code == 0
    assert "submitted before, unchanged: r1" in again.out
    assert plimsoll("audit", "head", db=db).out == head
    other = plimsoll("workload", "submit", file_of(tmp_path, "r1", "red", gang(40)), db=db)
    assert other.code == 1
    assert "asked for something else: part train" in other.err


REFUSED = {
    "a gang larger than any island": ((gang(72),), "", 1, "the largest has 64: a of cluster tiger (H200)"),
    "a rank that stands twice": ((gang(8), elastic(1, 2, rank=1)), "", 2, "rank 1 stands here twice; first on line 5"),
    "no replicas at all": ((elastic(0, 0),), "", 2, "replicas.max: expected a number from 1"),
    "at least more than at most": ((elastic(3, 2),), "", 2, "min is 3 and max is 2"),
    "a part without a kind": (("{name: x, tier: low, rank: 1}",), "", 2, "'kind' is missing"),
    "a word that is not known": ((gang(8),), "chekpoint_minutes: 3\n", 2, "did you mean 'checkpoint_minutes'?"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_file_is_refused_and_nothing_is_kept(case: str, db: str, tmp_path: Path) -> None:
    parts, more, want_code, want_error = REFUSED[case]
    head = plimsoll("audit", "head", db=db).out
    ran = plimsoll("workload", "submit", file_of(tmp_path, "x", "red", *parts, more=more), db=db)
    assert (ran.code, want_error in ran.err) == (want_code, True), ran.err
    assert plimsoll("audit", "head", db=db).out == head


def test_an_unknown_team_and_cluster_get_a_hint(db: str, tmp_path: Path) -> None:
    ran = plimsoll("workload", "submit", file_of(tmp_path, "x", "bleu", gang(8)), db=db)
    assert (ran.code, "did you mean blue?" in ran.err) == (1, True), ran.err
    path = file_of(tmp_path, "y", "red", gang(8))
    Path(path).write_text(Path(path).read_text().replace("cluster: tiger", "cluster: tigre"))
    ran = plimsoll("workload", "submit", path, db=db)
    assert (ran.code, "did you mean tiger?" in ran.err) == (2, True), ran.err


def test_a_node_that_dies_is_replaced_before_anybody_asks(db: str, tmp_path: Path) -> None:
    plimsoll("workload", "submit", file_of(tmp_path, "r1", "red", gang(24, spare_nodes=1)), db=db)
    before = document("workload", "show", "r1", db=db)["parts"][0]
    assert (before["gpus"], before["spare_gpus"]) == (24, 8)
    dead = before["nodes"][0]
    assert plimsoll("health", "set", "quarantined", dead, "--reason", "xid 79", db=db).code == 0
    after = document("workload", "show", "r1", db=db)
    assert after["standing"] == "running"
    assert dead not in after["parts"][0]["nodes"]
    assert after["parts"][0]["gpus"] == 24


def test_scale_rank_and_cancel(db: str, tmp_path: Path) -> None:
    plimsoll("workload", "submit", file_of(tmp_path, "r1", "red", gang(16), elastic(1, 4)), db=db)
    assert document("workload", "scale", "r1", "--part", "graders", "--max", "2", db=db)["gpus"] == 32
    ran = plimsoll("workload", "scale", "r1", "--part", "train", "--max", "2", db=db)
    assert (ran.code, "is a gang of 16 GPUs" in ran.err) == (1, True), ran.err
    ranked = document("workload", "rank", "r1", "--part", "graders", "--tier", "low", "--rank", "7", db=db)
    assert [(part["tier"], part["rank"]) for part in ranked["parts"]] == [("high", 1), ("low", 7)]
    taken = plimsoll("workload", "rank", "r1", "--part", "graders", "--rank", "1", db=db)
    assert (taken.code, "part train of r1 has rank 1 already" in taken.err) == (1, True), taken.err
    assert "32 GPUs are given back" in plimsoll("workload", "cancel", "r1", db=db).out
    gone = plimsoll("workload", "cancel", "r1", db=db)
    assert (gone.code, "r1 is over: cancelled at" in gone.err) == (1, True), gone.err
    never = plimsoll("workload", "cancel", "r2", db=db)
    assert (never.code, "there is no workload 'r2'" in never.err) == (1, True), never.err


def test_what_a_team_keeps_for_somebody_is_not_taken_by_a_teammate(db: str, tmp_path: Path) -> None:
    hold = document(
        "workload", "hold", "red", "48", "--cluster", "tiger", "--sku", "H200", "--for", "ann", "--until", "7d", db=db
    )["hold"]
    bob = file_of(tmp_path, "bob-1", "red", gang(32, tier="critical"), more="owner: bob\n")
    assert document("workload", "submit", bob, db=db)["workloads"][0]["as"] == "flex"
    ann = file_of(tmp_path, "ann-1", "red", gang(48, tier="low"), more="owner: ann\n")
    assert document("workload", "submit", ann, db=db)["workloads"][0]["as"] == "guaranteed"
    usage = document("workload", "usage", "red", db=db)
    assert [(use["owner"], use["guaranteed"], use["flex"]) for use in usage["uses"]] == [("ann", 48, 0), ("bob", 0, 32)]
    assert plimsoll("workload", "release", hold["id"], db=db).code == 0
    assert document("workload", "holds", db=db)["holds"] == []


def test_an_empty_database_says_what_to_do(tmp_path: Path) -> None:
    ran = plimsoll("workload", "submit", file_of(tmp_path, "r1", "red", gang(8)), db=f"sqlite:///{tmp_path}/none.db")
    assert ran.code != 0
    assert "plimsoll demo" in ran.err or "fleet import" in ran.err
