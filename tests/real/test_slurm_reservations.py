"""Batches of a campaign marked in a real Slurm: reservations, drains, jobs, and what is left to others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from plimsoll.campaigns.marks.model import Acted, AtDeadline, Extent, drain_reason
from plimsoll.campaigns.marks.slurm import SlurmMarks
from plimsoll.connect import slurm_reservations
from plimsoll.connect.commands import Ran
from plimsoll.connect.slurm_nodes import SlurmNode
from plimsoll.connect.slurm_reservations import Reservation, SlurmReservations, reservation_name
from plimsoll.errors import Refused, Unavailable
from plimsoll.health.outside import seen_in_slurm
from tests.support.slurm import PrivateSlurm
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("slurm")

CAMPAIGN, BATCH = "nic-firmware", "tiger/api#1"
NAME = reservation_name(CAMPAIGN, BATCH)
HOUR = timedelta(hours=1)


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


class Killed(BaseException):
    """The process ends here."""


class Mortal(SlurmReservations):
    """A client whose process is killed after so many outside calls that change something."""

    def __init__(self, *, config: str, lives: int, is_late: bool) -> None:
        super().__init__(config=config, timeout_seconds=20)
        self._lives, self._is_late = lives, is_late

    def _run(self, *arguments: str, program: str = "scontrol") -> Ran:
        is_change = "show" not in arguments and program == "scontrol"
        self._lives -= is_change
        if self._lives < 0 and not self._is_late:
            raise Killed
        ran = super()._run(*arguments, program=program)
        if self._lives < 0:
            raise Killed
        return ran


@pytest.fixture
def cluster(private_slurm: PrivateSlurm) -> Iterator[PrivateSlurm]:
    """The cluster; a test may leave its nodes as it likes."""
    yield private_slurm
    private_slurm.reset()


@pytest.fixture
def client(cluster: PrivateSlurm) -> SlurmReservations:
    return SlurmReservations(config=str(cluster.config), timeout_seconds=20)


@pytest.fixture
def marks(client: SlurmReservations, cluster: PrivateSlurm) -> SlurmMarks:
    return SlurmMarks(client, campaign=CAMPAIGN, clock=now, user=cluster.user)


def mark(marks: SlurmMarks, *names: str, batch: str = BATCH, starts: datetime | None = None) -> Acted:
    begins = starts or now()
    return marks.mark(batch, names, starts=begins, ends=begins + HOUR, reason="firmware")


def there(client: SlurmReservations) -> dict[str, SlurmNode]:
    return {node.name: node for node in client.nodes()}


def only(client: SlurmReservations) -> Reservation:
    (reservation,) = client.reservations()
    return reservation


def job_state(cluster: PrivateSlurm, job: int) -> str:
    return cluster.run("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T %N").strip()


def wait_running(cluster: PrivateSlurm, job: int) -> None:
    wait_until(lambda: job_state(cluster, job).startswith("RUNNING"), what=f"job {job} runs")


def reserve(
    client: SlurmReservations, nodes: Sequence[str], starts: datetime, ends: datetime, *, at: datetime | None = None
) -> list[Reservation]:
    return client.reserve(NAME, nodes, starts=starts, ends=ends, now=at or now())


def test_a_reservation_is_made_changed_and_deleted(client: SlurmReservations) -> None:
    starts = now() + HOUR
    reserve(client, ["n001", "n002", "n005"], starts, starts + HOUR)
    made = only(client)
    assert (made.name, set(made.nodes)) == (NAME, {"n001", "n002", "n005"})
    assert (made.starts, made.ends) == (starts, starts + HOUR)
    assert made.flags >= {"MAINT", "IGNORE_JOBS"}
    reserve(client, ["n002", "n006"], starts + HOUR, starts + 3 * HOUR)
    moved = only(client)
    assert (set(moved.nodes), moved.starts, moved.ends) == ({"n002", "n006"}, starts + HOUR, starts + 3 * HOUR)
    reserve(client, ["n002", "n006"], starts - timedelta(minutes=30), starts)
    assert (only(client).starts, only(client).ends) == (starts - timedelta(minutes=30), starts)
    assert client.release(NAME) is True
    assert client.reservations() == []
    assert client.release(NAME) is False


def test_the_same_again_asks_slurm_for_nothing(cluster: PrivateSlurm, client: SlurmReservations) -> None:
    starts = now()
    reserve(client, ["n001", "n002"], starts, starts + HOUR)
    before = only(client)
    quiet = Mortal(config=str(cluster.config), lives=0, is_late=False)
    reserve(quiet, ["n002", "n001", "n002"], starts, starts + HOUR)
    reserve(quiet, ["n001", "n002"], starts - HOUR, starts + HOUR, at=starts + timedelta(minutes=20))
    assert only(client) == before
    with pytest.raises(Killed):
        reserve(quiet, ["n001"], starts, starts + HOUR)


def test_a_start_that_has_passed_is_now_and_an_end_that_has_passed_is_put_off(client: SlurmReservations) -> None:
    at = now()
    reserve(client, ["n001"], at - 5 * HOUR, at - HOUR)
    made = only(client)
    assert abs(made.starts - at) < timedelta(seconds=30)
    assert made.ends == at + slurm_reservations.OVERRUN
    reserve(client, ["n001"], at - 5 * HOUR, at - HOUR, at=at + HOUR)
    assert only(client) == made, "it still covers the work"
    reserve(client, ["n001"], at - 5 * HOUR, at - HOUR, at=made.ends - timedelta(minutes=1))
    assert only(client).ends > made.ends


def test_what_was_booked_ahead_can_begin_at_once(client: SlurmReservations) -> None:
    at = now()
    reserve(client, ["n001"], at + HOUR, at + 2 * HOUR)
    reserve(client, ["n001"], at, at + 2 * HOUR)
    assert only(client).starts <= now()
    wait_until(lambda: "MAINTENANCE" in there(client)["n001"].states, what="it has begun")


def test_a_refusal_is_said_in_slurms_words(client: SlurmReservations) -> None:
    at = now()
    with pytest.raises(Refused) as caught:
        reserve(client, ["n001", "nowhere"], at, at + HOUR)
    assert caught.value.code == "slurm_not_done"
    assert "Invalid node name specified" in str(caught.value)
    assert client.reservations() == []


def test_a_reservation_in_use_is_not_called_deleted(cluster: PrivateSlurm, client: SlurmReservations) -> None:
    client.reserve(NAME, ["n001"], starts=now(), ends=now() + HOUR, now=now(), user=cluster.user)
    wait_running(cluster, cluster.start_job(f"--reservation={NAME}", "--nodelist=n001"))
    with pytest.raises(Refused) as caught:
        client.release(NAME)
    assert "Requested reservation is in use" in str(caught.value)
    assert f"squeue --reservation={NAME}" in caught.value.next_step


def test_too_many_names_for_one_command_line_make_several(
    client: SlurmReservations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_reservations, "HOSTLIST_BYTES_MAX", 4)
    monkeypatch.setattr("plimsoll.connect.slurm_hostlist.WORD_BYTES_MAX", 1)
    at, others = now() + HOUR, ["n020"]
    client.reserve(f"{NAME}x", others, starts=at, ends=at + HOUR, now=now())
    reserve(client, ["n001", "n003", "n005"], at, at + HOUR)
    assert {each.name for each in client.reserved(NAME)} == {NAME, f"{NAME}.2", f"{NAME}.3"}
    reserve(client, ["n001", "n007"], at, at + HOUR)
    assert {each.name: set(each.nodes) for each in client.reserved(NAME)} == {NAME: {"n001"}, f"{NAME}.2": {"n007"}}
    client.release(NAME)
    assert [each.name for each in client.reservations()] == [f"{NAME}x"]


def test_names_are_safe_and_tell_everything_apart() -> None:
    pairs = [
        ("a", "b_c"), ("a_b", "c"), ("a b", "c"), ("a-b", "c"), ("a,b", "c=d"), ("ü", "ö"), ("ö", "ü"), ("", ""),
        ("x" * 500, "1"), ("x" * 500, "2"), ("a", "b/c#1"), ("a", "b/c#2"), ("a_", "b"), ("a", "_b"),
    ]  # fmt: skip
    names = [reservation_name(*pair) for pair in pairs]
    assert len(set(names)) == len(pairs)
    assert all(len(name) <= 100 and name.isascii() and not set(name) - set(NAME_SIGNS) for name in names)
    assert NAME.startswith("plimsoll_nic-firmware_tiger-api-1_")


NAME_SIGNS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


def test_a_batch_is_marked_and_taken_back(client: SlurmReservations, marks: SlurmMarks) -> None:
    assert marks.look(BATCH, ["n001", "n002"]).extent is Extent.NOT_MARKED
    acted = mark(marks, "n001", "n002", "nowhere")
    assert acted == Acted(("n001", "n002"), ("nowhere",))
    assert only(client).nodes == {"n001", "n002"}
    assert {there(client)[name].reason for name in ("n001", "n002")} == {drain_reason(CAMPAIGN, BATCH)}
    looked = marks.look(BATCH, ["n001", "n002", "nowhere"])
    assert (looked.extent, looked.open, looked.missing) == (Extent.MARKED, (), ("nowhere",))
    assert marks.look(BATCH, ["n001", "n002", "n003"]).open == ("n003",)
    assert marks.unmark(BATCH, ["n001", "n002", "nowhere"]) == Acted(("n001", "n002"), ("nowhere",))
    assert client.reservations() == []
    assert not any(node.is_drained or node.reason for node in client.nodes())
    assert marks.unmark(BATCH, ["n001", "n002"]) == Acted(("n001", "n002"))


@pytest.mark.parametrize("is_late", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("lives", [0, 1])
@pytest.mark.parametrize("is_marking", [True, False], ids=["mark", "unmark"])
def test_killed_at_any_call_the_next_one_finishes_it(
    is_marking: bool, lives: int, is_late: bool, cluster: PrivateSlurm, client: SlurmReservations
) -> None:
    starts, names = now(), ["n001", "n002", "n003"]

    def act(slurm: SlurmReservations) -> Acted:
        marks = SlurmMarks(slurm, campaign=CAMPAIGN, clock=now, user=cluster.user)
        if is_marking:
            return marks.mark(BATCH, names, starts=starts, ends=starts + HOUR, reason="firmware")
        return marks.unmark(BATCH, names)

    marks = SlurmMarks(client, campaign=CAMPAIGN, clock=now, user=cluster.user)
    if not is_marking:
        marks.mark(BATCH, names, starts=starts, ends=starts + HOUR, reason="firmware")
    with pytest.raises(Killed):
        act(Mortal(config=str(cluster.config), lives=lives, is_late=is_late))
    assert act(client).done == tuple(names)
    if is_marking:
        assert only(client).nodes == set(names)
        assert marks.look(BATCH, names).extent is Extent.MARKED
    else:
        assert client.reservations() == []
        assert marks.look(BATCH, names).extent is Extent.NOT_MARKED
        assert not any(node.is_drained for node in client.nodes())


def test_half_a_mark_is_seen_as_that(client: SlurmReservations, marks: SlurmMarks) -> None:
    marks.book(BATCH, ["n001", "n002"], starts=now(), ends=now() + HOUR)
    assert marks.look(BATCH, ["n001", "n002"]).extent is Extent.PARTLY
    client.drain(["n001"], reason=drain_reason(CAMPAIGN, BATCH))
    looked = marks.look(BATCH, ["n001", "n002"])
    assert (looked.extent, looked.open) == (Extent.PARTLY, ("n002",))
    mark(marks, "n001", "n002")
    client.release(NAME)
    assert marks.look(BATCH, ["n001", "n002"]).extent is Extent.PARTLY


def test_a_drain_of_an_operator_is_there_before_and_after(
    cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks
) -> None:
    cluster.run("scontrol", "update", "NodeName=n001", "State=DRAIN", "Reason=alice swaps the fan")
    acted = mark(marks, "n001", "n002", "n003")
    assert (acted.done, acted.left) == (("n002", "n003"), {"n001": "alice swaps the fan"})
    assert marks.look(BATCH, ["n001", "n002", "n003"]).extent is Extent.MARKED, "nobody can scale onto it"
    cluster.run("scontrol", "update", "NodeName=n003", "State=DRAIN", "Reason=bob looks at the cable")
    acted = marks.unmark(BATCH, ["n001", "n002", "n003"])
    assert acted.done == ("n002",)
    assert acted.left == {"n001": "alice swaps the fan", "n003": "bob looks at the cable"}
    assert [there(client)[name].is_drained for name in ("n001", "n002", "n003")] == [True, False, True]


def test_a_drain_of_another_batch_is_not_ended(client: SlurmReservations, marks: SlurmMarks) -> None:
    mark(marks, "n001", batch="tiger/api#1")
    mark(marks, "n002", batch="tiger/api#11")
    acted = marks.unmark("tiger/api#1", ["n001", "n002"])
    assert acted.done == ("n001",)
    assert acted.left == {"n002": drain_reason(CAMPAIGN, "tiger/api#11")}
    assert only(client).name == reservation_name(CAMPAIGN, "tiger/api#11")


def test_a_drain_that_health_wrote_anew_from_the_ledger_is_still_the_batchs(
    client: SlurmReservations, marks: SlurmMarks
) -> None:
    mark(marks, "n001", "n002")
    again = drain_reason(CAMPAIGN, BATCH).replace("maintenance", "validating")
    client.drain(["n001"], reason=again, overwrites_reason=True)
    client.drain(["n002"], reason="plimsoll: quarantined, xid 79", overwrites_reason=True)
    acted = marks.unmark(BATCH, ["n001", "n002"])
    assert (acted.done, acted.left) == (("n001",), {"n002": "plimsoll: quarantined, xid 79"})


def test_our_drain_is_no_hold_of_an_operator(client: SlurmReservations, marks: SlurmMarks) -> None:
    """Before its reservation has begun; health takes a reservation that has for an operator's."""
    starts = now() + HOUR
    marks.mark(BATCH, ["n001"], starts=starts, ends=starts + HOUR, reason="firmware")
    assert seen_in_slurm(client.nodes(), feed="slurm", at=now()).holds == {}


def test_a_node_that_is_down_is_not_drained_and_gets_no_work(
    cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks
) -> None:
    cluster.run("scontrol", "update", "NodeName=n001", "State=DOWN", "Reason=power supply")
    mark(marks, "n001", "n002")
    assert there(client)["n001"].reason == "power supply"
    assert marks.look(BATCH, ["n001", "n002"]).extent is Extent.MARKED
    acted = marks.unmark(BATCH, ["n001", "n002"])
    assert (acted.done, acted.left) == (("n002",), {"n001": "power supply"})
    assert "DOWN" in there(client)["n001"].states


def test_a_node_that_went_down_during_the_work_comes_back(
    cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks
) -> None:
    """As after a reboot that took longer than SlurmdTimeout: Slurm keeps a DOWN node with a reason of ours for ever."""
    mark(marks, "n001", "n002")
    cluster.run("scontrol", "update", "NodeName=n001", "State=DOWN", f"Reason={drain_reason(CAMPAIGN, BATCH)}")
    assert there(client)["n001"].states >= {"DOWN", "DRAIN"}
    assert marks.unmark(BATCH, ["n001", "n002"]).done == ("n001", "n002")
    assert there(client)["n001"].states.isdisjoint({"DOWN", "DRAIN"})


def test_no_job_starts_on_a_marked_node(cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks) -> None:
    mark(marks, "n001")
    waits = cluster.start_job("--nodelist=n001", "--time=1")
    elsewhere = [cluster.start_job("--nodes=1", "--exclusive", "--time=1") for _ in range(31)]
    for job in elsewhere:
        wait_running(cluster, job)
    assert "n001" not in {job_state(cluster, job).split()[1] for job in elsewhere}
    assert job_state(cluster, waits).startswith("PENDING")
    marks.unmark(BATCH, ["n001"])
    cluster.run("scontrol", "reconfigure")  # else it is NOT_RESPONDING until the controller's next ping
    wait_running(cluster, waits)


def test_backfill_steers_around_what_is_booked_ahead(
    cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks
) -> None:
    starts = now() + timedelta(minutes=30)
    marks.book(BATCH, ["n001", "n002"], starts=starts, ends=starts + HOUR)
    assert not any(node.is_drained for node in client.nodes()), "until then they work"
    short = cluster.start_job("--nodelist=n001", "--time=10")
    wait_running(cluster, short)
    long = cluster.start_job("--nodelist=n002", "--time=120")
    free = cluster.start_job("--nodelist=n003", "--time=120")
    wait_running(cluster, free)  # the scheduler has looked at all that came before
    assert job_state(cluster, long).startswith("PENDING")
    marks.unmark(BATCH, ["n001", "n002"])
    wait_until(lambda: job_state(cluster, long).startswith("RUNNING"), what="it may start now", seconds_max=90)


def test_a_node_is_empty_when_no_job_has_it(
    cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks
) -> None:
    job = cluster.start_job("--nodelist=n001,n002", "--nodes=2", "--time=5")
    wait_running(cluster, job)
    mark(marks, "n001", "n003")
    assert marks.drained(["n001", "n003"]).empty == ("n003",)
    assert marks.drained(["n001", "n003"]).busy == {"n001": (f"job {job}",)}
    cluster.run("scontrol", "suspend", str(job))
    wait_until(lambda: job_state(cluster, job).startswith("SUSPENDED"), what="it sleeps")
    assert not there(client)["n001"].has_work, "Slurm itself calls the node idle"
    assert marks.drained(["n001", "n003"]).busy == {"n001": (f"job {job}",)}
    cluster.run("scancel", str(job))
    wait_until(lambda: marks.drained(["n001", "n003"]).empty == ("n001", "n003"), what="it is empty")


def test_at_the_deadline_jobs_are_requeued_and_run_elsewhere(
    cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks
) -> None:
    moves = cluster.start_job("--nodelist=n001", "--time=5")
    stays = cluster.start_job("--nodelist=n002", "--time=5", "--no-requeue")
    other = cluster.start_job("--nodelist=n003", "--time=5")
    for job in (moves, stays, other):
        wait_running(cluster, job)
    mark(marks, "n001", "n002")
    waits = SlurmMarks(client, campaign=CAMPAIGN, clock=now, at_deadline=AtDeadline.WAIT)
    assert waits.clear(["n001", "n002"]).asked == ()
    assert set(waits.clear(["n001", "n002"]).waiting) == {f"job {moves}", f"job {stays}"}
    cleared = marks.clear(["n001", "n002"])
    assert cleared.asked == (f"job {moves}",)
    assert "disabled" in cleared.waiting[f"job {stays}"]
    wait_until(lambda: marks.drained(["n001"]).empty == ("n001",), what="n001 is empty")
    assert job_state(cluster, moves).startswith("PENDING")
    ends = SlurmMarks(client, campaign=CAMPAIGN, clock=now, at_deadline=AtDeadline.CANCEL)
    wait_until(lambda: not ends.clear(["n001", "n002"]).waiting, what="it is cancelled")
    wait_until(lambda: marks.drained(["n002"]).empty == ("n002",), what="n002 is empty")
    assert job_state(cluster, other).startswith("RUNNING")


def test_a_controller_that_sleeps_is_said_and_the_next_call_finishes(
    cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks
) -> None:
    hasty = SlurmReservations(config=str(cluster.config), timeout_seconds=0.5)
    cluster.stop_controller()
    try:
        with pytest.raises(Unavailable):
            mark(SlurmMarks(hasty, campaign=CAMPAIGN, clock=now), "n001")
    finally:
        cluster.continue_controller()
    assert mark(marks, "n001").done == ("n001",)
    assert len(client.reservations()) == 1


def test_a_whole_cluster_is_one_reservation(
    cluster: PrivateSlurm, client: SlurmReservations, marks: SlurmMarks
) -> None:
    assert mark(marks, *cluster.node_names).done == tuple(cluster.node_names)
    assert len(only(client).nodes) == 32
    assert marks.unmark(BATCH, cluster.node_names).done == tuple(cluster.node_names)
