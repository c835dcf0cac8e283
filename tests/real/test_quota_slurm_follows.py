"""From a machine to a limit, with nothing but commands: a drained node moves the line, the line moves the guarantee,
and a real Slurm with slurmdbd and 32 nodes of 8 GPUs is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.quota.outlets.slurm_names import guaranteed_account
from plimsoll.quota.outlets.slurm_render import config_lines
from tests.support.fleets import row, write_fleet
from tests.support.inside import plimsoll
from tests.support.slurm_accounting import AccountedSlurm, accounted_slurm

pytestmark = pytest.mark.xdist_group("slurm-accounting")

QUOTAS = {"vision": 128, "speech": 96, "audio": 32}
"""All 32 nodes: one node less breaks a promise."""
POLICY = "policy: bare\nlines: [{scope: {}, by: fixed, buffer: 0}]\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[AccountedSlurm]:
    with accounted_slurm(config_lines=config_lines()) as cluster:
        yield cluster


class Site:
    """A database and a Slurm, steered by commands alone."""

    def __init__(self, folder: Path, cluster: AccountedSlurm) -> None:
        self.cluster = cluster
        self.db = f"sqlite:///{folder}/plimsoll.db"
        nodes = [row("nodes", node=name, sku="H100") for name in cluster.node_names]
        quotas = [row("quotas", team=team, sku="H100", gpus=str(gpus)) for team, gpus in QUOTAS.items()]
        (folder / "policy.yaml").write_text(POLICY)
        self.run("fleet", "import", write_fleet(folder / "fleet", nodes=nodes, quotas=quotas))
        self.run("quota", "policy", "apply", folder / "policy.yaml")

    def run(self, *words: str | Path, code: int = 0) -> Any:
        config = str(self.cluster.config)
        ran = plimsoll(*words, "-o", "json", db=self.db, PLIMSOLL_SLURM_CONF=config)
        assert ran.code == code, ran.err
        return ran.json()

    def pilot(self) -> Any:
        return self.run("quota", "pilot", "tiger", "--outlet", "slurm", code=1)

    def control(self, *, code: int = 0) -> Any:
        return self.run("quota", "control", "--push", "slurm", code=code)

    def push(self, *words: str, code: int = 0) -> Any:
        return self.run("quota", "push", "slurm", "tiger", "--slurm-conf", self.cluster.config, *words, code=code)

    def observe(self) -> None:
        self.run("health", "observe", "slurm", "--config", self.cluster.config)

    def limit(self, team: str) -> int:
        """What Slurm's own database says."""
        where = f"account={guaranteed_account(team)}"
        said = self.cluster.run("sacctmgr", "-nP", "show", "assoc", where, "user=", "format=GrpTRES")
        return int(said.strip().rpartition("=")[2])


def test_a_drained_node_moves_the_line_and_then_the_limit(tmp_path: Path, cluster: AccountedSlurm) -> None:
    site = Site(tmp_path, cluster)
    site.run("quota", "apply")
    site.run("quota", "mode", "tiger", "enforce")
    site.push()
    assert {team: site.limit(team) for team in QUOTAS} == QUOTAS
    assert site.push()["steps"] == [], "pushing twice changes nothing"

    site.observe()
    cluster.run("scontrol", "update", "NodeName=n001", "State=DRAIN", "Reason=bad fan")
    site.observe()
    [pool] = site.run("quota", "show")["clusters"]
    assert (pool["healthy"], pool["line"], pool["line_in_force"], pool["shortfall"]) == (248, 248, 256, 8)
    assert site.push()["steps"] == [], "the limit follows the guarantee, not the line"

    [step] = site.run("quota", "control")["pools"]
    assert (step["verdict"], step["done"], step["guaranteed_after"]) == ("cut", True, 248)
    [step] = site.run("quota", "control")["pools"]
    assert step["done"] is False, "one round was enough"
    assert {team: site.limit(team) for team in QUOTAS} == QUOTAS, "nobody was told yet"
    site.push()
    # Nothing runs, so what is cut is unscheduled: of 16, 12 and 4 nodes one goes, by the largest remainder.
    assert {team: site.limit(team) for team in QUOTAS} == {"vision": 120, "speech": 96, "audio": 32}
    [pool] = site.run("quota", "show")["clusters"]
    assert (pool["guaranteed"], pool["line_in_force"], pool["shortfall"]) == (248, 248, 0)


def test_a_limit_changed_by_hand_is_shown_and_put_back(tmp_path: Path, cluster: AccountedSlurm) -> None:
    cluster.run("scontrol", "update", "NodeName=n001", "State=RESUME", check=False)
    site = Site(tmp_path, cluster)
    site.run("quota", "apply")
    site.push("--put-back")
    account = guaranteed_account("audio")
    cluster.run("sacctmgr", "-i", "modify", "account", account, "set", "GrpTRES=gres/gpu=64")
    drifted = site.push(code=1)
    assert [(step["cause"], step["result"], step["gpus_found"]) for step in drifted["steps"]] == [("drift", "left", 64)]
    assert site.limit("audio") == 64, "shown, and left alone"
    site.push("--put-back")
    assert site.limit("audio") == 32


def test_the_controller_tells_slurm_by_itself(tmp_path: Path, cluster: AccountedSlurm) -> None:
    cluster.run("scontrol", "update", "NodeName=n001", "State=RESUME", check=False)
    site = Site(tmp_path, cluster)
    site.run("quota", "apply")
    site.push("--put-back")
    site.run("quota", "mode", "tiger", "enforce")
    site.observe()
    found = {each["check"]: each["is_met"] for each in site.pilot()["checks"]}
    assert (found["health_feed"], found["drift"], found["history"]) == (True, True, False)
    cluster.run("scontrol", "update", "NodeName=n002", "State=DRAIN", "Reason=bad cable")
    site.observe()
    [told] = site.control()["told"]
    assert (told["cluster"], told["outlet"], told["problem"]) == ("tiger", "slurm", "")
    assert site.limit("vision") == 120
    cluster.run("sacctmgr", "-i", "modify", "account", guaranteed_account("audio"), "set", "GrpTRES=gres/gpu=64")
    [told] = site.control(code=1)["told"]
    assert told["drifted"] == 1
    assert site.limit("audio") == 64, "what somebody set by hand is shown, and left to a person"
