"""A small campaign from its start to its end on a real Slurm, whose controller is killed at every change it makes."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.marks.model import hold_reason
from plimsoll.campaigns.model import Batch, Plan, Score, Status
from plimsoll.campaigns.run.desk import record_plan, returned, start
from plimsoll.campaigns.run.progress import Phase as RunPhase
from plimsoll.campaigns.run.progress import Run
from plimsoll.campaigns.service import say
from plimsoll.campaigns.units import make_units
from plimsoll.connect.slurm_reservations import SlurmReservations
from plimsoll.documents import read_document
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service
from plimsoll.health.acts import Acting, pass_checks
from plimsoll.health.fold import Health
from plimsoll.health.service import put_policy_in_force
from plimsoll.ledger.model import Draft
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.times import parse_time
from tests.support.campaign_runner import run_shifted
from tests.support.children import Child
from tests.support.health import POLICY
from tests.support.slurm import PrivateSlurm
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("slurm")

EVE = parse_time("2026-01-05T08:00:00Z")
CLUSTERS = {"tiger": ("n001", "n002", "n003", "n004"), "whale": ("n005", "n006", "n007", "n008")}
NODES = [name for names in CLUSTERS.values() for name in names]
STARTS = {"tiger": "2026-01-05T11:00:00Z", "whale": "2026-01-05T16:00:00Z"}
PASSES_MAX = 60
PAUSE_SECONDS = 0.3

FILE = """\
campaign: nic
changes: [{{component: nic-firmware, version: "28.43"}}]
scope: {{}}
start: 2026-01-05
deadline: 2026-01-09
window: {{hours: [11, 20], tz: UTC}}
work:
  - {{scope: {{cluster: [tiger]}}, mode: rolling, share_per_day: 0.5, hours: 4}}
  - {{scope: {{}}, mode: whole, hours: 4}}
run: {{grace_minutes: 0, work: [{folder}/update], validate: [/bin/true]}}
"""

UPDATE = """\
#!/bin/sh
# On every node: ask for a job on it, note it as updated, and note the jobs that Slurm has running there.
set -e
for node in $(cat "$PLIMSOLL_NODES_FILE"); do
    sbatch --parsable --output=/dev/null --time=1 --nodelist="$node" --wrap='exec sleep 600' >> {folder}/asked
    echo "$node" >> {folder}/updated
done
sleep 3
nodes=$(paste -sd, "$PLIMSOLL_NODES_FILE")
states=RUNNING,SUSPENDED,CONFIGURING,COMPLETING
squeue --noheader --states=$states --nodelist="$nodes" --format='%A %N' >> {folder}/intruders
"""


class Killed(NamedTuple):
    """How often the controller was killed, and how many of its passes came to their end."""

    kills: int
    passes: int


class Harbour:
    """Two clusters of one Slurm, their ledger, and a campaign over them."""

    def __init__(self, cluster: PrivateSlurm, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.dsn = f"sqlite:///{folder}/plimsoll.db"
        self.slurm = SlurmReservations(config=str(cluster.config), timeout_seconds=20)
        script = folder / "update"
        script.write_text(UPDATE.format(folder=folder))
        script.chmod(0o755)
        for name in ("asked", "updated", "intruders"):
            (folder / name).touch()
        with_fleet(self.dsn)
        keeper = self._keeper(EVE)
        plan_and_start(keeper, FILE.format(folder=folder))
        keeper.close()

    def _keeper(self, moment: datetime) -> Keeper:
        return open_keeper(self.dsn, clock=lambda: moment)

    def run_once(self, shift: timedelta, kill_at: int, when: str) -> int:
        """One `plimsoll campaign run`; its exit code."""
        environment = {**os.environ, **self.cluster.environment, "PLIMSOLL_ACTOR": "controller"}
        environment |= {"PLIMSOLL_SLURM_CONF": str(self.cluster.config)}
        words = ("campaign", "run", "nic", "--db", self.dsn)
        with Child(run_shifted, environment, shift, kill_at, when, *words) as child:
            code = child.end()
        assert code in (0, -signal.SIGKILL)
        return code

    def run_until(self, moment: datetime, batches: Sequence[str]) -> Killed:
        """Start the controller again and again, killed each time, until these batches are back."""
        kills, shift = 0, moment - datetime.now(UTC)
        for number in range(PASSES_MAX):
            kill_at, when = ((1, "after"), (2, "before"))[number % 2]
            is_killed = self.run_once(shift, kill_at, when) != 0
            kills += is_killed
            run = self.campaign()
            if all(str(run.step_of(batch)) == "returned" for batch in batches):
                return Killed(kills, number + 1)
            if not is_killed:
                time.sleep(PAUSE_SECONDS)  # there was nothing to do yet
        pytest.fail(f"not back after {PASSES_MAX} passes: {[str(run.step_of(batch)) for batch in batches]}")

    def campaign(self) -> Run:
        keeper = self._keeper(EVE)
        try:
            return keeper.state().of(Campaigns).runs["nic"]
        finally:
            keeper.close()

    def services(self) -> dict[str, str]:
        keeper = self._keeper(EVE)
        try:
            return {name: str(node.service) for name, node in keeper.state().of(Fleet).nodes.items()}
        finally:
            keeper.close()

    def holds(self) -> list[str]:
        keeper = self._keeper(EVE)
        try:
            return [hold.id for holds in keeper.state().of(Health).holds.values() for hold in holds]
        finally:
            keeper.close()

    def repair(self, name: str, moment: datetime) -> None:
        """It validates, and is in service again."""
        keeper = self._keeper(moment)
        acting = Acting("tester", moment, "repaired", {})
        say(keeper, lambda state, _now: (None, returned(state, "nic", [name], acting)), actor="tester")
        say(keeper, lambda state, _now: (None, pass_checks(state, [name], acting)), actor="tester")
        keeper.close()
        assert self.services()[name] == "in_service"

    def kept_for(self, batches: Sequence[str]) -> list[str]:
        """Reservations for these batches."""
        marks = tuple(f"_{batch.replace('#', '-')}_" for batch in batches)
        return [each.name for each in self.slurm.reservations() if any(mark in each.name for mark in marks)]

    def drained(self) -> set[str]:
        return {node.name for node in self.slurm.nodes() if node.is_drained}

    def lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text().split("\n")[:-1]


def with_fleet(dsn: str) -> None:
    keeper = open_keeper(dsn, create=True, clock=lambda: EVE)
    drafts: list[Draft] = []
    for name, nodes in CLUSTERS.items():
        place = ("us-north", Area.US, f"{name}-colo", "acme", Purpose.RESEARCH, Phase.PRODUCTION)
        drafts.append(Draft(ClusterRecorded(Cluster(name, *place, labels={"scheduler": "slurm"}))))
        made = [Node(node, name, f"{name}-a", "H200", 8, Service.IN_SERVICE, since=EVE) for node in nodes]
        drafts += [Draft(NodeRecorded(node)) for node in made]
    keeper.commit(drafts, actor="tester", reason="setup", read_at=None)
    put_policy_in_force(keeper, POLICY, source="test", actor="tester", reason="setup")
    keeper.close()


def plan_and_start(keeper: Keeper, text: str) -> None:
    campaign = parse_campaign(text, source="nic.yaml")
    roll = make_units(campaign, keeper.state().of(Fleet), read_document(text, source="nic.yaml"))
    batches = []
    for unit in roll.units:
        for number, names in enumerate(unit.batches, start=1):
            begins = parse_time(STARTS[unit.name]) + timedelta(days=number - 1)
            ends = begins + timedelta(minutes=unit.minutes)
            batches.append(Batch(unit.name, unit.mode, number, len(names), begins, ends))
    plan = Plan("nic", 1, Status.FEASIBLE, Score(0.0, 0.0, 0.0, 0.0), 0.0, tuple(batches))
    say(keeper, lambda state, _now: (None, record_plan(state, campaign, text, plan, roll)), actor="tester")
    say(keeper, lambda state, now: (None, start(state, "nic", now=now)), actor="tester", reason="go")


@pytest.fixture
def harbour(private_slurm: PrivateSlurm, tmp_path: Path) -> Iterator[Harbour]:
    yield Harbour(private_slurm, tmp_path)
    private_slurm.reset()


def test_a_campaign_survives_a_controller_that_is_killed_at_every_change(harbour: Harbour) -> None:
    cluster = harbour.cluster
    jobs = [cluster.start_job(f"--nodelist={name}", "--time=30") for name in NODES]
    wait_until(lambda: len(harbour.slurm.jobs(NODES)) == len(jobs), what="all nodes work")

    days = [
        (parse_time("2026-01-05T11:00:00Z"), ["tiger#1"]),
        (parse_time("2026-01-05T16:00:00Z"), ["whale#1"]),
        (parse_time("2026-01-06T11:00:00Z"), ["tiger#2"]),
    ]
    updated: set[str] = set()
    for moment, batches in days:
        names = {name for batch in batches for name in harbour.campaign().names[batch]}
        killed = harbour.run_until(moment, batches)
        assert killed.kills >= 6, "begin, reserve, drain, requeue, hand over, finish, unmark, return"
        assert harbour.kept_for(batches) == [], "what later batches need may be kept free already"
        assert harbour.drained() == set(), "what is returned is in nobody's way"
        updated |= names
        assert set(harbour.lines("updated")) == updated, "nobody touched a node whose turn it was not"

    # The last kill may have come before the campaign's own end was recorded.
    assert harbour.run_once(days[-1][0] + timedelta(hours=1) - datetime.now(UTC), 0, "after") == 0
    assert sorted(harbour.lines("updated")) == NODES, "each node was updated, and once"
    assert harbour.lines("intruders") == [], "no job was on a node while it was worked on"
    assert len(harbour.lines("asked")) == len(NODES)
    assert harbour.campaign().phase is RunPhase.DONE
    assert harbour.slurm.reservations() == []
    assert set(harbour.services().values()) == {"in_service"}
    assert harbour.holds() == []
    cluster.run("scontrol", "reconfigure")  # else nodes are NOT_RESPONDING until the controller's next ping

    def working() -> set[str]:
        return {name for job in harbour.slurm.jobs(NODES) for name in job.nodes}

    wait_until(lambda: len(working()) == len(NODES), what="all nodes work again", seconds_max=200)


def test_a_drain_says_what_the_ledger_says(harbour: Harbour) -> None:
    """So that health's own steering and a mark never write over each other."""
    moment = parse_time("2026-01-05T11:00:00Z")
    shift = moment - datetime.now(UTC)
    for kill_at in itertools.count(2):
        harbour.run_once(shift, kill_at, "after")
        if harbour.drained():
            break
        assert kill_at < 20
    keeper = open_keeper(harbour.dsn, clock=lambda: moment)
    reasons = {keeper.state().of(Fleet).nodes[name].reason for name in harbour.drained()}
    keeper.close()
    assert reasons == {hold_reason("nic", "tiger#1")}


def test_a_node_that_did_not_come_back_stays_closed_until_it_is_repaired(harbour: Harbour) -> None:
    moment = parse_time("2026-01-05T11:00:00Z")
    (harbour.folder / "update").write_text('#!/bin/sh\necho \'{"node": "n001", "ok": false}\'\n')
    shift = moment - datetime.now(UTC)

    def step() -> str:
        harbour.run_once(shift, 0, "after")
        return str(harbour.campaign().step_of("tiger#1"))

    wait_until(lambda: step() == "returned", what="the batch is over")
    assert harbour.campaign().progress["tiger#1"].lost == ("n001",)
    assert harbour.kept_for(["tiger#1"]) == []
    assert harbour.drained() == {"n001"}, "it is broken: nothing may run there"
    harbour.repair("n001", moment + timedelta(hours=1))
    harbour.run_once(shift, 0, "after")
    assert harbour.drained() == set()
