"""`quota render` and `quota push` where they need no scheduler: what is printed, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.commands.quota.ways import Target, Way, kueue_style, outlet_by_settings, slurm_target
from plimsoll.errors import UsageError
from tests.support.fleets import row, write_fleet
from tests.support.imports import Importer
from tests.support.inside import Said, plimsoll
from tests.support.promises import aligned_fleet

TEAMS = {"evals": 16, "vision": 48}


@pytest.fixture
def database(tmp_path: Path) -> str:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    aligned_fleet(tmp_path, TEAMS, dsn=dsn)
    return dsn


def run(database: str, *words: str, **environment: Any) -> Said:
    return plimsoll("quota", *words, db=database, **environment)


def test_render_prints_the_form_of_each_scheduler(database: str) -> None:
    slurm = run(database, "render", "slurm", "tiger")
    assert slurm.code == 0, slurm.err
    assert slurm.out.startswith("#!/bin/sh\n")
    assert "GrpTRES=gres/gpu=48" in slurm.out
    as_json = run(database, "render", "slurm", "tiger", "-o", "json").json()
    assert any("gres/gpu" in f"{name} {value}" for name, value in as_json.items())
    kueue = run(database, "render", "kueue", "tiger", "--namespace", "team-{team}", "--island-label", "x/block")
    assert kueue.code == 0, kueue.err
    made = {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(kueue.out)}
    assert made["LocalQueue/h200"]["metadata"]["namespace"] == "team-vision"
    assert made["Topology/islands"]["spec"]["levels"][0] == {"nodeLabel": "x/block"}
    listed = run(database, "render", "kueue", "tiger", "-o", "csv").out.splitlines()
    assert listed[:2] == ["kind,namespace,name", "Topology,,islands"]


def test_render_answers_for_the_past(database: str) -> None:
    before = run(database, "render", "kueue", "tiger", "--as-of", "2020-01-01")
    assert before.code == 1
    assert "there is no cluster 'tiger'" in before.err


def test_settings_stand_in_for_options(database: str) -> None:
    style = {"PLIMSOLL_KUEUE_NAMESPACE": "x-{team}", "PLIMSOLL_KUEUE_GPU_RESOURCE": "amd.com/gpu"}
    out = run(database, "render", "kueue", "tiger", **style).out
    assert "namespace: x-vision" in out
    assert "amd.com/gpu" in out
    assert "nvidia.com/gpu" not in out
    assert kueue_style(Way(namespace="y-{team}")).namespace == "y-{team}"


WRONG = {
    "a scheduler that nobody knows": (("push", "pbs", "tiger"), 2, "pbs"),
    "a cluster that nobody knows": (("push", "kubernetes", "lion"), 1, "there is no cluster 'lion'"),
    "both ways at once": (("push", "http", "tiger", "--put-back", "--adopt"), 2, "exclude each other"),
    "no way to Kubernetes": (("push", "kubernetes", "tiger"), 2, "nothing says where the Kubernetes of tiger is"),
    "no quota service": (("push", "http", "tiger"), 2, "nothing says where the quota service of tiger is"),
    "a namespace for all": (("render", "kueue", "tiger", "--namespace", "teams"), 2, "a namespace of its own"),
    "a type without a SKU": (("render", "slurm", "tiger", "--gpu-type", "h200"), 2, "which SKU has which type"),
    "a Slurm that is not there": (
        ("push", "slurm", "tiger", "--slurm-conf", "/nowhere/slurm.conf"),
        1,
        "slurm.conf is not there",
    ),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_what_can_not_be_done_is_said(case: str, database: str) -> None:
    words, want_code, want_words = WRONG[case]
    ran = run(database, *words, KUBECONFIG="")
    assert ran.code == want_code, ran.err
    assert want_words in ran.err
    assert "Traceback" not in ran.err


def test_a_cluster_that_was_never_aligned_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/new.db"
    Importer(dsn).bring(write_fleet(tmp_path / "fleet", quotas=[row("quotas")]))
    for words in (("render", "kueue", "tiger"), ("push", "kubernetes", "tiger", "--url", "http://127.0.0.1:9")):
        ran = plimsoll("quota", *words, "-o", "json", db=dsn)
        assert ran.code == 1
        assert '"not_aligned"' in ran.err
        assert "plimsoll quota apply" in ran.err


def test_an_outlet_by_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(UsageError):
        outlet_by_settings(Target.KUBERNETES, "tiger")
    monkeypatch.setenv("PLIMSOLL_KUBERNETES_URL", "https://{cluster}.example:6443")
    monkeypatch.setenv("PLIMSOLL_HTTP_URL", "https://quota.example/{cluster}")
    monkeypatch.setenv("PLIMSOLL_HTTP_SECRET", "a-secret-that-is-long-enough\n")
    names = [outlet_by_settings(target, "tiger").name for target in Target]
    assert names == ["slurm", "kubernetes", "http"]


def test_slurm_may_call_cluster_and_sku_otherwise() -> None:
    target = slurm_target("tiger", Way(slurm_cluster="tgr", gpu_types=["H200=hopper"]))
    assert target.cluster == "tgr"
    assert target.gpu_type_by_sku == {"H200": "hopper"}
