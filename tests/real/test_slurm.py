"""The Slurm client on a real slurmctld with 32 nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.connect.slurm import REASON_CHARS_MAX, Slurm
from plimsoll.connect.slurm_nodes import Availability, SlurmNode, availability
from plimsoll.errors import Refused, Unavailable
from tests.support.parts import missing_part
from tests.support.slurm import PrivateSlurm
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture
def cluster(private_slurm: PrivateSlurm) -> Iterator[PrivateSlurm]:
    """The cluster; a test may leave its nodes as it likes."""
    yield private_slurm
    private_slurm.reset()


@pytest.fixture
def client(cluster: PrivateSlurm) -> Slurm:
    return Slurm(config=str(cluster.config), timeout_seconds=20)


def states(client: Slurm) -> dict[str, SlurmNode]:
    return {node.name: node for node in client.nodes()}


def kinds(nodes: list[SlurmNode]) -> list[Availability]:
    return [availability(node) for node in nodes]


def test_nodes_are_read_as_configured(cluster: PrivateSlurm, client: Slurm) -> None:
    nodes = client.nodes()
    assert [node.name for node in nodes] == cluster.node_names
    assert len(nodes) == 32
    assert {node.gpus for node in nodes} == {cluster.node_gpus}
    assert {node.address for node in nodes} == {"127.0.0.1"}
    assert [node.partitions for node in nodes[3:5]] == [("all", "small"), ("all",)]
    assert not any(node.has_work or node.reason for node in nodes)


def test_drain_and_resume_are_read_back(cluster: PrivateSlurm, client: Slurm) -> None:
    before = datetime.now(UTC)
    first, second = client.drain(["n002", "n001"], reason="plimsoll: XID 79")
    assert (first.name, second.name) == ("n002", "n001")
    assert kinds([first, second]) == [Availability.DRAINED] * 2
    assert (first.reason, first.reason_by) == ("plimsoll: XID 79", cluster.user)
    assert first.reason_at is not None
    assert abs(first.reason_at - before) < timedelta(seconds=30)
    (resumed,) = client.resume(["n001"])
    assert not resumed.is_drained
    assert (resumed.reason, resumed.reason_at) == ("", None)
    assert states(client)["n002"].is_drained


def test_a_resumed_node_gets_no_work_before_the_next_ping(client: Slurm) -> None:
    seen = []
    for _ in range(5):  # on a busy machine the ping may come before we look
        client.drain(["n001"], reason="x")
        seen += kinds(client.resume(["n001"]))
        if seen[-1] is Availability.NOT_RESPONDING:
            break
    assert Availability.NOT_RESPONDING in seen


def test_a_node_that_is_not_drained_is_left_alone(client: Slurm) -> None:
    # Slurm itself would take it for NOT_RESPONDING after an UNDRAIN.
    assert kinds(client.resume(["n005"])) == [Availability.UP]


def test_a_node_with_work_drains_first(cluster: PrivateSlurm, client: Slurm) -> None:
    job = cluster.start_job("--nodelist=n003,n004", "--nodes=2")
    wait_until(lambda: states(client)["n003"].has_work, what="the job runs")
    assert kinds(client.drain(["n003"], reason="x")) == [Availability.DRAINING]
    assert kinds([states(client)["n004"]]) == [Availability.UP]
    cluster.run("scancel", str(job))
    wait_until(lambda: availability(states(client)["n003"]) is Availability.DRAINED, what="the work has ended")


def test_a_node_that_is_down_stays_down(cluster: PrivateSlurm, client: Slurm) -> None:
    cluster.run("scontrol", "update", "NodeName=n006", "State=DOWN", "Reason=power supply")
    (drained,) = client.drain(["n006"], reason="plimsoll: kept")
    assert drained.states >= {"DOWN", "DRAIN"}
    assert drained.reason == "plimsoll: kept"
    (resumed,) = client.resume(["n006"])
    assert availability(resumed) is Availability.DOWN
    assert "DRAIN" not in resumed.states
    # What we don't do: RESUME brings a node back that is DOWN.
    cluster.run("scontrol", "update", "NodeName=n006", "State=RESUME")
    assert "DOWN" not in states(client)["n006"].states


def test_a_reason_of_another_is_not_taken_away(cluster: PrivateSlurm, client: Slurm) -> None:
    cluster.run("scontrol", "update", "NodeName=n007", "State=DRAIN", "Reason=alice swaps the fan")
    nodes = client.drain(["n007", "n008"], reason="plimsoll: XID 48")
    assert [node.reason for node in nodes] == ["alice swaps the fan", "plimsoll: XID 48"]
    with pytest.raises(Refused) as caught:
        client.resume(["n007", "n008"], drained_for="plimsoll: XID 48")
    assert caught.value.code == "slurm_not_done"
    assert caught.value.fields["done"] == ["n008"]
    assert caught.value.fields["not_done"] == {"n007": "is DRAIN+IDLE, for: alice swaps the fan"}
    (node,) = client.drain(["n007"], reason="ours now", overwrites_reason=True)
    assert node.reason == "ours now"


def test_an_unknown_name_does_not_hold_up_the_others(client: Slurm) -> None:
    with pytest.raises(Refused) as caught:
        client.drain(["n009", "nowhere", "n010"], reason="x")
    assert "1 of 3 nodes were not drained: nowhere is not known to Slurm" in str(caught.value)
    assert caught.value.fields["done"] == ["n009", "n010"]
    assert all(states(client)[name].is_drained for name in ("n009", "n010"))


def test_all_nodes_at_once(cluster: PrivateSlurm, client: Slurm) -> None:
    assert kinds(client.drain(cluster.node_names, reason="the whole cluster")) == [Availability.DRAINED] * 32
    assert not any(node.is_drained for node in client.resume(cluster.node_names))


def test_planned_work_is_told_from_a_fault(cluster: PrivateSlurm, client: Slurm) -> None:
    cluster.run(
        "scontrol", "create", "reservation", "ReservationName=firmware", "StartTime=now", "Duration=60",
        "Nodes=n011,n012", "Flags=MAINT,IGNORE_JOBS", f"Users={cluster.user}",
    )  # fmt: skip
    wait_until(lambda: availability(states(client)["n011"]) is Availability.MAINTENANCE, what="the reservation starts")
    cluster.run("scontrol", "update", "NodeName=n012", "State=DOWN", "Reason=off for firmware")
    assert states(client)["n012"].states >= {"DOWN", "MAINTENANCE"}
    assert kinds([states(client)[name] for name in ("n011", "n012", "n013")]) == [
        Availability.MAINTENANCE, Availability.MAINTENANCE, Availability.UP,
    ]  # fmt: skip


def test_a_failing_node_is_drained_and_comes_back(cluster: PrivateSlurm, client: Slurm) -> None:
    cluster.run("scontrol", "update", "NodeName=n014", "State=FAIL", "Reason=expected to fail")
    assert kinds([states(client)["n014"]]) == [Availability.DRAINED]
    assert not client.resume(["n014"])[0].is_drained


REASONS = [
    "plain",
    '"quoted at both ends"',
    "'single'",
    '"',
    '""',
    "=",
    "a=b State=DOWN Comment=c NodeName=n001",
    "$(id) `id` ; rm -rf * | & > x \\n \\",
    "  spaces around and  inside  ",
    "it is 日本語, naïve and 🔥",
    "[alice@2026-01-05T11:00:00]",
    "%s %n %d %",
    "x" * REASON_CHARS_MAX,
]


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_goes_through_exactly(reason: str, client: Slurm) -> None:
    assert client.drain(["n015"], reason=reason)[0].reason == reason


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec="utf-8").filter(str.isprintable), min_size=1, max_size=80).filter(str.strip))
def test_any_reason_goes_through_exactly(client: Slurm, reason: str) -> None:
    (node,) = client.drain(["n016"], reason=reason, overwrites_reason=True)
    assert node.reason == reason


def test_times_are_utc_whatever_the_zone(cluster: PrivateSlurm, client: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    (node,) = client.drain(["n017"], reason="x")
    assert node.reason_at is not None
    assert abs(node.reason_at - datetime.now(UTC)) < timedelta(seconds=30)


def test_a_controller_that_sleeps_is_given_up(cluster: PrivateSlurm) -> None:
    client = Slurm(config=str(cluster.config), timeout_seconds=0.5)
    cluster.stop_controller()
    try:
        began = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            client.nodes()
        assert time.monotonic() - began < 3
    finally:
        cluster.continue_controller()
    assert caught.value.code == "slurm_unavailable"
    assert "did not end within 0.5 s and was killed" in str(caught.value)
    assert len(Slurm(config=str(cluster.config)).nodes()) == 32


def test_without_munge_slurms_words_are_passed_on(cluster: PrivateSlurm) -> None:
    config = cluster.folder / "no-munge.conf"
    text = cluster.config.read_text()
    config.write_text(
        "\n".join(f"{text_line}-gone" if "AuthInfo" in text_line else text_line for text_line in text.splitlines())
    )
    with pytest.raises(Unavailable) as caught:
        Slurm(config=str(config)).nodes()
    assert "failed with exit code 1" in str(caught.value)
    assert "Protocol authentication error" in str(caught.value)


def test_without_rights_the_nodes_are_named(cluster: PrivateSlurm) -> None:
    if not cluster.is_root:
        missing_part("root, which alone can become somebody else,")
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    client = Slurm(config=str(cluster.config), command_prefix=prefix)
    with pytest.raises(Refused) as caught:
        client.drain(["n018"], reason="x")
    assert caught.value.fields["not_done"] == {"n018": "is IDLE"}
    assert "Slurm said: slurm_update error: Invalid user id" in str(caught.value)


def test_a_dead_node_does_not_come_back(cluster: PrivateSlurm, client: Slurm) -> None:
    cluster.kill_node("n032")
    try:
        client.drain(["n031", "n032"], reason="x")
        client.resume(["n031", "n032"])
        cluster.run("scontrol", "reconfigure")
        wait_until(lambda: availability(states(client)["n031"]) is Availability.UP, what="the living one is back")
        # The controller may not have asked it yet: that it is taken for living ends, and does not begin.
        gone = (Availability.NOT_RESPONDING, Availability.DOWN)
        wait_until(lambda: availability(states(client)["n032"]) in gone, what="the dead one is not", seconds_max=60)
    finally:
        cluster.start_node("n032")


@pytest.mark.soak
def test_a_node_that_dies_is_not_responding_and_then_down(cluster: PrivateSlurm, client: Slurm) -> None:
    cluster.kill_node("n032")
    try:
        for want in (Availability.NOT_RESPONDING, Availability.DOWN):
            wait_until(
                lambda want=want: availability(states(client)["n032"]) is want,  # type: ignore[misc]
                what=f"the controller notices: {want.value}",
                seconds_max=60,
            )
        assert states(client)["n032"].reason == "Not responding"
        assert kinds(client.drain(["n032"], reason="x")) == [Availability.DOWN]
        assert kinds(client.resume(["n032"])) == [Availability.DOWN]
    finally:
        cluster.start_node("n032")
