"""Which scheduler marks a cluster, and the words by which a drain is known as a batch's."""

from __future__ import annotations

import pytest

from plimsoll.campaigns.marks.kubernetes import KubernetesMarks
from plimsoll.campaigns.marks.model import NoMarks, drain_reason, hold_reason, is_of_batch
from plimsoll.campaigns.marks.settings import marker_for
from plimsoll.campaigns.marks.slurm import SlurmMarks
from plimsoll.connect.slurm import _check_reason
from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Phase, Purpose
from plimsoll.health.outside import our_reason
from plimsoll.times import utc_now
from tests.support.dock import FILE, Dock, with_lines


def cluster(scheduler: str | None) -> Cluster:
    labels = {} if scheduler is None else {"scheduler": scheduler}
    place = ("us-north", Area.US, "colo", "acme", Purpose.RESEARCH, Phase.PRODUCTION)
    return Cluster("tiger 1", *place, labels=labels)


def test_the_label_says_which_scheduler_and_the_settings_where() -> None:
    settings = {"PLIMSOLL_SLURM_CONF": "/etc/{cluster}.conf", "PLIMSOLL_KUBERNETES_URL": "http://127.0.0.1:1/{cluster}"}
    for label in (None, "", "none", " NONE "):
        assert isinstance(marker_for("nic", cluster(label), settings, clock=utc_now), NoMarks)
    slurm = marker_for("nic", cluster("Slurm"), settings, clock=utc_now)
    assert isinstance(slurm, SlurmMarks)
    assert slurm.where == "scontrol with /etc/tiger%201.conf"
    kubernetes = marker_for("nic", cluster("kubernetes"), settings, clock=utc_now)
    assert isinstance(kubernetes, KubernetesMarks)
    assert kubernetes.where == "Kubernetes at http://127.0.0.1:1/tiger%201"


def test_what_nobody_said_is_refused() -> None:
    for label, want_code in {"nomad": "unknown_scheduler", "kubernetes": "kubernetes_bad_setting"}.items():
        with pytest.raises(UsageError) as caught:
            marker_for("nic", cluster(label), {}, clock=utc_now)
        assert caught.value.code == want_code
        assert "tiger 1" in caught.value.message


def test_a_drain_is_known_as_its_batchs_and_no_others() -> None:
    pairs = [
        ("nic", "tiger#1"), ("nic", "tiger#11"), ("nic", "tiger/api#1"), ("nic, tiger", "x#1"), ("nic", "[a]#1"),
        ("n" * 300, "tiger#1"), ("n" * 300, "tiger#2"), ("nic\n", "tiger#1"),
    ]  # fmt: skip
    reasons = [drain_reason(*pair) for pair in pairs]
    for reason, pair in zip(reasons, pairs, strict=True):
        _check_reason(reason)
        assert [other for other in pairs if is_of_batch(reason, *other)] == [pair]
    for other in ("", "alice swaps the fan", "plimsoll: quarantined, xid 79", hold_reason("nic", "tiger#1")):
        assert not is_of_batch(other, "nic", "tiger#1")


def test_what_health_would_write_is_the_batchs_as_well() -> None:
    dock = Dock({"tiger": 2}, with_lines(FILE, "run: {grace_minutes: 30}"))
    dock.plan(tiger="05T11:00")
    dock.start()
    dock.go("05T11:00")
    node = dock.state.of(Fleet).nodes["tiger-1"]
    assert node.reason == hold_reason("nic", "tiger#1")
    assert our_reason(node) == drain_reason("nic", "tiger#1")
