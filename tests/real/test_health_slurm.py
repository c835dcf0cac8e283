"""Health and a real Slurm: drains come in as holds, quarantines go out as drains, and neither touches the other's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from plimsoll.connect.slurm import Slurm
from plimsoll.connect.slurm_nodes import Availability, SlurmNode, availability
from plimsoll.errors import Refused, Unavailable
from plimsoll.health.attention import Need, find_attention
from plimsoll.health.changes import NodeSteered
from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.health.feeds import Fed, observe_slurm, steer_slurm
from plimsoll.health.outside import Act, Steer
from plimsoll.health.service import feeds_heard
from tests.support.fleets import nodes as fleet_nodes
from tests.support.fleets import row, write_fleet
from tests.support.health import POLICY, Ward, signal
from tests.support.imports import NOW
from tests.support.inside import plimsoll
from tests.support.slurm import PrivateSlurm
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture
def cluster(private_slurm: PrivateSlurm) -> Iterator[PrivateSlurm]:
    """The cluster; a test may leave its nodes as it likes."""
    yield private_slurm
    private_slurm.reset()


class Watched(Ward):
    """The nodes of a Slurm under observation, at the time that Slurm has. It is real, so `wait` runs ahead of it."""

    def __init__(
        self, cluster: PrivateSlurm, *, known: Sequence[str] = (), policy: str = POLICY, **cells: dict[str, str]
    ) -> None:
        names = known or cluster.node_names
        super().__init__([row("nodes", node=name, **cells.get(name, {})) for name in names], policy=policy)
        self.now = datetime.now(UTC)
        self.cluster = cluster
        self.client = Slurm(config=str(cluster.config), timeout_seconds=20)

    def look_at_slurm(self, client: Slurm | None = None) -> Fed:
        return observe_slurm(self.keeper, client or self.client, feed="slurm", actor="feeder")

    def push(self, client: Slurm | None = None) -> list[Steer]:
        return steer_slurm(self.keeper, client or self.client, feed="slurm", actor="pusher")

    def there(self, name: str) -> SlurmNode:
        return next(node for node in self.client.nodes() if node.name == name)

    def operator(self, name: str, state: str, reason: str = "") -> None:
        """What an operator types."""
        self.cluster.run(
            "scontrol", "update", f"NodeName={name}", f"State={state}", *([f"Reason={reason}"] if reason else [])
        )

    def put_down(self, name: str, reason: str) -> None:
        """Until it stays: the last word of a node that has just died may still be on its way, and bring it back."""

        def stays() -> bool:
            self.operator(name, "DOWN", reason)
            time.sleep(1.5)
            return availability(self.there(name)) is Availability.DOWN

        wait_until(stays, what=f"{name} stays down", seconds_max=30)

    def wait_for(self, name: str, want: Availability, seconds_max: float = 30.0) -> None:
        wait_until(
            lambda: availability(self.there(name)) is want, what=f"{name} is {want.value}", seconds_max=seconds_max
        )

    def quarantine(self, name: str, xid: str = "79") -> None:
        """By a signal of now."""
        self.observe(signal(name, name=xid, ago=(NOW - self.now) / timedelta(minutes=1)))

    def steered(self) -> list[tuple[str, str]]:
        """What the ledger says was done in Slurm."""
        return [(change.node, change.act) for _, change in self.events(NodeSteered)]

    def needs(self) -> dict[Need, int]:
        nodes = [self.node(name) for name in self.cluster.node_names]
        found = find_attention(self.state, nodes, feeds_heard(self.keeper.ledger.store), self.now)
        return {each.need: each.count for each in found}


@pytest.fixture
def watch(cluster: PrivateSlurm) -> Iterator[Callable[..., Watched]]:
    """Makes fleets that are watched, and closes them."""
    made: list[Watched] = []

    def make(**options: object) -> Watched:
        made.append(Watched(cluster, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.keeper.close()


def test_an_operators_drain_is_their_hold_and_their_resume_is_their_tick(watch: Callable[..., Watched]) -> None:
    ward = watch()
    began = datetime.now(UTC)
    ward.operator("n001", "DRAIN", "bad fan")
    fed = ward.look_at_slurm()
    assert [(each.node, each.was, each.service) for each in fed.observed.outcome.moved] == [
        ("n001", "in_service", "quarantined")
    ]
    hold = ward.holds("n001")["slurm"]
    assert (hold.owner, hold.reason, str(hold.service)) == (f"slurm:{ward.cluster.user}", "bad fan", "quarantined")
    assert abs(hold.placed_at - began) < timedelta(seconds=30)
    assert ward.facts("n001").why == "bad fan"
    assert ward.look_at_slurm().observed.outcome.moved == []

    ward.operator("n001", "RESUME")
    ward.look_at_slurm()
    assert (ward.service("n001"), ward.holds("n001")) == ("validating", {})
    (tick,) = ward.health.ticks["n001"]
    assert (tick.check, tick.is_passed, tick.detail) == ("accepted", True, "resumed in the scheduler (slurm)")

    ward.cluster.run("scontrol", "reconfigure")  # else it is NOT_RESPONDING until the controller's next ping
    ward.wait_for("n001", Availability.UP)
    ward.wait(1)
    ward.look_at_slurm()
    ward.wait(11)
    ward.sweep()
    assert (ward.service("n001"), str(ward.facts("n001").health)) == ("in_service", "healthy")
    assert ward.moves("n001") == [
        ("in_service", "quarantined"), ("quarantined", "validating"), ("validating", "in_service"),
    ]  # fmt: skip


def test_our_quarantine_is_a_drain_there_until_the_node_is_back(watch: Callable[..., Watched]) -> None:
    ward = watch()
    ward.quarantine("n002")
    assert ward.push() == [Steer("n002", Act.DRAIN, "plimsoll: quarantined, xid 79")]
    there = ward.there("n002")
    assert (availability(there), there.reason) == (Availability.DRAINED, "plimsoll: quarantined, xid 79")

    head = ward.keeper.ledger.head()
    assert ward.push() == []
    assert ward.keeper.ledger.head() == head
    ward.look_at_slurm()
    assert ward.holds("n002").keys() == {"plimsoll:xid 79"}

    ward.set("validating", "n002", reason="new board")
    assert ward.push() == [Steer("n002", Act.DRAIN, "plimsoll: validating, xid 79")]
    assert availability(ward.there("n002")) is Availability.DRAINED
    ward.wait(11)
    ward.tick("accepted", "n002")
    assert ward.service("n002") == "in_service"
    assert ward.push() == [Steer("n002", Act.RESUME, "plimsoll: validating, xid 79")]
    assert not ward.there("n002").is_drained
    assert ward.push() == []
    assert ward.steered() == [("n002", "drain"), ("n002", "drain"), ("n002", "resume")]


def test_a_drain_of_an_operator_is_never_ended_or_overwritten(watch: Callable[..., Watched]) -> None:
    ward = watch()
    ward.operator("n003", "DRAIN", "bad fan")
    ward.look_at_slurm()
    ward.quarantine("n003")
    assert ward.holds("n003").keys() == {"slurm", "plimsoll:xid 79"}
    assert ward.push() == []
    ward.release("plimsoll:xid 79", is_forced=True)
    assert (ward.service("n003"), set(ward.holds("n003"))) == ("quarantined", {"slurm"})
    assert ward.push() == []
    assert (ward.there("n003").reason, ward.there("n003").is_drained) == ("bad fan", True)
    assert ward.steered() == []


def test_an_operators_drain_on_top_of_ours_stays_when_ours_ends(watch: Callable[..., Watched]) -> None:
    ward = watch()
    ward.quarantine("n004")
    ward.push()
    ward.operator("n004", "DRAIN", "swap the board")
    ward.look_at_slurm()
    assert ward.holds("n004").keys() == {"slurm", "plimsoll:xid 79"}
    ward.release("plimsoll:xid 79", is_forced=True)
    ward.look_at_slurm()
    assert (ward.service("n004"), set(ward.holds("n004"))) == ("quarantined", {"slurm"})
    assert ward.push() == []
    assert ward.there("n004").reason == "swap the board"

    ward.operator("n004", "RESUME")
    ward.look_at_slurm()
    assert ward.service("n004") == "validating"
    # It is not back before it is validated: Slurm is told so.
    assert [(steer.node, steer.act) for steer in ward.push()] == [("n004", Act.DRAIN)]
    assert ward.there("n004").reason.startswith("plimsoll: validating")


def test_an_operator_who_resumes_what_we_hold_is_told_again(watch: Callable[..., Watched]) -> None:
    ward = watch()
    ward.quarantine("n004")
    ward.push()
    ward.operator("n004", "RESUME")
    ward.look_at_slurm()
    assert ward.service("n004") == "quarantined"
    assert ward.push() == [Steer("n004", Act.DRAIN, "plimsoll: quarantined, xid 79")]


def test_a_node_with_work_drains_first(watch: Callable[..., Watched]) -> None:
    ward = watch()
    job = ward.cluster.start_job("--nodelist=n005,n006", "--nodes=2")
    wait_until(lambda: ward.there("n006").has_work, what="the job runs")
    ward.operator("n005", "DRAIN", "when it is free")
    ward.quarantine("n006", xid="48")  # which the policy answers with a drain
    ward.look_at_slurm()
    assert [steer.node for steer in ward.push()] == ["n006"]
    ward.look_at_slurm()
    assert (ward.service("n005"), ward.service("n006")) == ("draining", "draining")
    assert availability(ward.there("n006")) is Availability.DRAINING

    since = ward.holds("n005")["slurm"].placed_at
    ward.cluster.run("scancel", str(job))
    ward.wait_for("n005", Availability.DRAINED)
    ward.wait_for("n006", Availability.DRAINED)
    ward.wait(1)
    ward.look_at_slurm()
    assert (ward.service("n005"), ward.service("n006")) == ("quarantined", "quarantined")
    assert ward.moves("n006") == [("in_service", "draining"), ("draining", "quarantined")]
    assert ward.holds("n005")["slurm"].placed_at == since
    assert ward.push() == [Steer("n006", Act.DRAIN, "plimsoll: quarantined, xid 48")]


def test_a_node_that_was_just_resumed_is_not_at_fault(watch: Callable[..., Watched]) -> None:
    ward = watch(policy=DEFAULT_POLICY)
    mute = 0
    for _ in range(5):  # as often as would be called flapping
        ward.operator("n007", "DRAIN", "look at it")
        ward.look_at_slurm()
        ward.operator("n007", "RESUME")
        mute += availability(ward.there("n007")) is Availability.NOT_RESPONDING
        ward.look_at_slurm()
        ward.cluster.run("scontrol", "reconfigure")
        ward.wait_for("n007", Availability.UP)
        ward.wait(1)
        ward.look_at_slurm()
        ward.wait(11)
        ward.sweep()
        assert ward.look("n007") == ("healthy", "in_service", "ours", frozenset())
    assert mute, "a ping of the controller came before us each time"


def test_after_our_own_resume_the_node_is_not_at_fault_either(watch: Callable[..., Watched]) -> None:
    ward = watch(policy=DEFAULT_POLICY)
    ward.look_at_slurm()
    ward.client.drain(["n007"], reason="plimsoll: quarantined, xid 79")
    assert ward.push() == [Steer("n007", Act.RESUME, "plimsoll: quarantined, xid 79")]
    for _ in range(3):
        ward.wait(1)
        ward.look_at_slurm()
        assert ward.look("n007")[:2] == ("healthy", "in_service")


@pytest.mark.parametrize("is_told", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_node_that_dies_is_quarantined_when_it_stays_down(is_told: bool, watch: Callable[..., Watched]) -> None:
    ward = watch(policy=DEFAULT_POLICY)
    ward.look_at_slurm()
    ward.cluster.kill_node("n032")
    try:
        if is_told:  # Slurm takes half a minute to find out for itself
            ward.put_down("n032", "Not responding")
        ward.wait_for("n032", Availability.DOWN, seconds_max=90)
        ward.wait(2)
        ward.look_at_slurm()
        assert ward.service("n032") == "in_service"  # 10 minutes are given
        ward.wait(11)
        moved = ward.look_at_slurm().observed.outcome.moved
        assert [(each.node, each.service) for each in moved] == [("n032", "quarantined")]
        assert ward.holds("n032").keys() == {"plimsoll:scheduler down"}
        assert ward.facts("n032").why.startswith("scheduler down: DOWN")
        # Our reason would keep Slurm from bringing it back.
        assert ward.push() == []
        assert ward.there("n032").reason == "Not responding"
    finally:
        ward.cluster.start_node("n032")

    ward.wait_for("n032", Availability.UP)
    ward.wait(1)
    ward.look_at_slurm()
    assert [(steer.node, steer.act) for steer in ward.push()] == [("n032", Act.DRAIN)]
    ward.wait(11)
    ward.sweep()
    assert ward.service("n032") == "validating"
    ward.tick("accepted", "n032")
    ward.wait(11)
    ward.look_at_slurm()
    ward.sweep()
    assert ward.service("n032") == "in_service"
    assert [steer.act for steer in ward.push()] == [Act.RESUME]


def test_what_an_operator_says_of_a_node_that_is_down_stays(watch: Callable[..., Watched]) -> None:
    ward = watch()
    ward.operator("n018", "DOWN", "power supply")
    ward.quarantine("n018")
    assert ward.push() == []
    assert ward.there("n018").reason == "power supply"


def test_a_slurm_that_sleeps_makes_its_nodes_unknown_and_never_healthy(watch: Callable[..., Watched]) -> None:
    ward = watch()
    ward.look_at_slurm()
    ward.quarantine("n008")
    impatient = Slurm(config=str(ward.cluster.config), timeout_seconds=0.5)
    head = ward.keeper.ledger.head()
    ward.cluster.stop_controller()
    try:
        with pytest.raises(Unavailable) as caught:
            ward.look_at_slurm(impatient)
        with pytest.raises(Unavailable):
            ward.push(impatient)
    finally:
        ward.cluster.continue_controller()
    assert caught.value.code == "slurm_unavailable"
    assert "did not end within 0.5 s and was killed" in caught.value.message
    assert ward.keeper.ledger.head() == head

    ward.wait(14)
    assert "slurm" not in ward.sweep().silent
    ward.wait(2)
    assert "slurm" in ward.sweep().silent
    looks = ward.look_at_all()
    assert {name: facts.health for name, facts in looks.items() if facts.health != "unknown"} == {"n008": "unhealthy"}
    assert ward.needs()[Need.FEED_SILENT] == 32

    ward.look_at_slurm()
    assert {facts.health for name, facts in ward.look_at_all().items() if name != "n008"} == {"healthy"}
    assert Need.FEED_SILENT not in ward.needs()


def test_nodes_that_the_fleet_does_not_know_are_named(watch: Callable[..., Watched]) -> None:
    ward = watch(known=[f"n{number:03}" for number in range(1, 11)])
    fed = ward.look_at_slurm()
    assert fed.notes == ["22 names are no nodes of the fleet: n011, n012, n013, …"]
    assert (fed.observed.rejections, fed.observed.taken) == ([], 20)
    strangers = watch(known=["x1", "x2"])
    with pytest.raises(Refused) as caught:
        strangers.look_at_slurm()
    assert (caught.value.code, caught.value.message) == (
        "feed_empty",
        "of the 32 nodes that slurm names none is in the fleet",
    )


class Cut(Slurm):
    """A Slurm that can't be reached any more after the first change."""

    is_cut = False

    def drain(self, names: Sequence[str], *, reason: str, overwrites_reason: bool = False) -> list[SlurmNode]:
        if self.is_cut:
            raise Unavailable("slurm_unavailable", "gone")
        self.is_cut = True
        return super().drain(names, reason=reason, overwrites_reason=overwrites_reason)


def test_a_push_that_was_cut_is_completed_by_the_next(watch: Callable[..., Watched]) -> None:
    ward = watch()
    for name, xid in (("n009", "79"), ("n010", "64"), ("n011", "79")):
        ward.quarantine(name, xid)
    with pytest.raises(Unavailable):
        ward.push(Cut(config=str(ward.cluster.config)))
    assert ward.steered() == [("n009", "drain"), ("n011", "drain")]
    assert ward.push() == [Steer("n010", Act.DRAIN, "plimsoll: repair, xid 64")]
    assert sorted(ward.steered()) == [("n009", "drain"), ("n010", "drain"), ("n011", "drain")]
    assert ward.push() == []


class Raced(Slurm):
    """An operator is quicker: between our reading and our resume they drain a node."""

    operator: Callable[[], None]

    def resume(self, names: Sequence[str], *, drained_for: str | None = None) -> list[SlurmNode]:
        self.operator()
        return super().resume(names, drained_for=drained_for)


def test_an_operator_who_is_quicker_keeps_their_drain_and_the_rest_is_done(watch: Callable[..., Watched]) -> None:
    ward = watch()
    ours = "plimsoll: quarantined, xid 79"
    ward.client.drain(["n012", "n013"], reason=ours)
    ward.client.drain(["n014"], reason="plimsoll: repair, xid 64")
    raced = Raced(config=str(ward.cluster.config))
    raced.operator = lambda: ward.operator("n012", "DRAIN", "mine")
    with pytest.raises(Refused) as caught:
        ward.push(raced)
    assert caught.value.fields["not_done"] == {"n012": "is DRAIN+IDLE, for: mine"}
    assert sorted(ward.steered()) == [("n013", "resume"), ("n014", "resume")]
    assert ward.there("n012").reason == "mine"
    ward.look_at_slurm()
    assert ward.holds("n012")["slurm"].reason == "mine"


class Quicker(Slurm):
    """An operator drains a node after we looked for the first time."""

    operator: Callable[[], None]
    looks = 0

    def nodes(self) -> list[SlurmNode]:
        self.looks += 1
        if self.looks == 2:
            self.operator()
        return super().nodes()


@pytest.mark.parametrize("was", ["", "plimsoll: draining, xid 48"], ids=["nothing before", "an older drain of ours"])
def test_an_operator_who_drains_while_we_look_is_not_overwritten(was: str, watch: Callable[..., Watched]) -> None:
    ward = watch()
    for name in ("n019", "n020"):
        ward.quarantine(name)
    if was:
        ward.client.drain(["n019", "n020"], reason=was)
    quicker = Quicker(config=str(ward.cluster.config))
    quicker.operator = lambda: ward.operator("n019", "DRAIN", "mine")
    assert ward.push(quicker) == [Steer("n020", Act.DRAIN, "plimsoll: quarantined, xid 79")]
    assert ward.there("n019").reason == "mine"
    assert ward.steered() == [("n020", "drain")]


def test_planned_work_there_is_theirs_also_after_our_drain(watch: Callable[..., Watched]) -> None:
    ward = watch()
    ward.cluster.run(
        "scontrol", "create", "reservation", "ReservationName=firmware", "StartTime=now", "Duration=60",
        "Nodes=n015", "Flags=MAINT,IGNORE_JOBS", f"Users={ward.cluster.user}",
    )  # fmt: skip
    ward.wait_for("n015", Availability.MAINTENANCE)
    ward.look_at_slurm()
    hold = ward.holds("n015")["slurm"]
    assert (ward.service("n015"), hold.owner) == ("maintenance", "slurm:unknown")
    ward.push()
    assert ward.there("n015").reason.startswith("plimsoll: maintenance")
    ward.look_at_slurm()
    assert ward.holds("n015")["slurm"] == hold
    ward.cluster.run("scontrol", "delete", "ReservationName=firmware")
    ward.wait_for("n015", Availability.DRAINED)
    ward.wait(1)
    ward.look_at_slurm()
    assert (ward.service("n015"), ward.holds("n015")) == ("validating", {})


def test_any_reason_of_ours_can_be_given_to_slurm(watch: Callable[..., Watched]) -> None:
    odd = {"service": "repair", "reason": "fan [bob@2026-01-05T11:00:00] = 日本 " + "x" * 300}
    ward = watch(n016=odd, n017={"service": "repair"})
    assert sorted(steer.node for steer in ward.push()) == ["n016", "n017"]
    assert ward.there("n016").reason.startswith("plimsoll: repair, fan (bob@2026-01-05T11:00:00)")
    assert ward.there("n017").reason == "plimsoll: repair"
    assert ward.push() == []


def test_the_command_takes_in_and_pushes_and_repeats_nothing(cluster: PrivateSlurm, tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/plimsoll.db"
    rows = [row("nodes", node=each["node"].replace("n", "n00")) for each in fleet_nodes(9)]
    assert plimsoll("fleet", "import", write_fleet(tmp_path / "fleet", nodes=rows), db=db).code == 0
    cluster.run("scontrol", "update", "NodeName=n001", "State=DRAIN", "Reason=bad fan")
    assert plimsoll("health", "signal", "n002", "xid", "79", db=db).code == 0
    words = ["health", "observe", "slurm", "--config", str(cluster.config), "--push"]

    head = plimsoll("audit", "head", db=db).out
    would = plimsoll(*words, "--dry-run", "-o", "json", db=db).json()
    assert (would["dry_run"], plimsoll("audit", "head", db=db).out) == (True, head)
    assert "DRAIN" not in cluster.run("scontrol", "--oneliner", "show", "node", "n002")

    done = plimsoll(*words, "-o", "json", db=db).json()
    assert done.keys() == {"dry_run", "observed", "notes", "steered"}
    assert done["steered"] == [{"node": "n002", "act": "drain", "reason": "plimsoll: quarantined, xid 79"}]
    assert would["steered"] == done["steered"]
    assert done["notes"] == ["23 names are no nodes of the fleet: n010, n011, n012, …"]
    head = plimsoll("audit", "head", db=db).out
    again = plimsoll(*words, db=db)
    want = "slurm: 18 signals taken, 0 that the policy has no use for, 0 refused; 0 nodes changed"
    assert again.out.splitlines()[0] == want
    assert plimsoll("audit", "head", db=db).out == head
    shown = plimsoll("health", "show", "n001", db=db).out
    assert f"slurm:{cluster.user}" in shown
    assert "bad fan" in shown


def test_a_slurm_that_is_gone_is_said_and_nothing_changes(cluster: PrivateSlurm, tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/plimsoll.db"
    plimsoll("fleet", "import", write_fleet(tmp_path / "fleet"), db=db)
    head = plimsoll("audit", "head", db=db).out
    ran = plimsoll("health", "observe", "slurm", "--config", tmp_path / "slurm.conf", db=db)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        f"plimsoll: Slurm's configuration {tmp_path}/slurm.conf is not there",
        "  next: give the path of slurm.conf",
    ]
    assert plimsoll("audit", "head", db=db).out == head
