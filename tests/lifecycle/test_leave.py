"""The way out: nothing is taken from under anybody, and what was made is taken down before it is forgotten."""

from __future__ import annotations

import pytest

from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, Service
from plimsoll.health.fold import Health
from plimsoll.lifecycle import desk
from plimsoll.lifecycle.changes import ClusterGone
from plimsoll.lifecycle.model import ConditionType, Going
from plimsoll.lifecycle.outside import Found
from plimsoll.quota.changes import QuotaAssigned
from plimsoll.quota.model import Quota
from plimsoll.workloads.changes import WorkloadGone
from tests.support.slipway import BARE, START, Crash, Slip, key


def services(slip: Slip) -> set[Service]:
    return {node.service for node in slip.state.of(Fleet).nodes.values()}


def test_what_was_only_planned_is_gone_at_once() -> None:
    with Slip() as slip:
        slip.add()
        slip.run()
        slip.retire()
        slip.run()
        assert (slip.phase(), slip.cloud.calls, slip.life().claim) == (Phase.RETIRED, [], {})
        assert not slip.idle()


def test_its_quota_is_free_for_the_next_one() -> None:
    with Slip(limit=400) as slip:
        slip.add()
        slip.run()
        slip.add("puma")
        slip.run(minutes=1)
        assert slip.phase("puma") is Phase.PLANNED
        slip.retire()
        slip.run()
        assert slip.phase("puma") is Phase.PROVISIONING


@pytest.mark.parametrize("nodes", [(), ("lynx-01",)], ids=["on nodes that nobody knows", "on a node"])
def test_nothing_is_taken_down_while_work_runs_there(nodes: tuple[str, ...]) -> None:
    with Slip() as slip:
        slip.produce()
        slip.observe_work(nodes=nodes)
        slip.retire()
        for _ in range(3):
            slip.run(days=1)
        assert services(slip) == {Service.DRAINING}
        assert slip.life().work("destroy") is None
        assert slip.phase() is Phase.PRODUCTION
        slip.record(WorkloadGone("train"))
        slip.run()
        assert slip.life().works["destroy"].going is Going.RUNNING
        slip.finish("destroy")
        assert slip.phase() is Phase.RETIRED
        assert services(slip) == {Service.RETIRED}
        assert not dict(slip.state.of(Health).holds.items()), "no mark stays on a node that is gone"


def test_a_cluster_that_was_taken_over_is_drained_like_any_other() -> None:
    """Its nodes are in the fleet, and nothing of it was begun here."""
    with Slip(limit=0) as slip:
        slip.record_cluster("lynx", Phase.PROVISIONED)
        slip.add()
        slip.run()
        slip.import_nodes()
        slip.observe_work(nodes=("lynx-x1",))
        slip.retire()
        slip.run()
        assert slip.phase() is not Phase.RETIRED
        assert services(slip) == {Service.DRAINING}
        slip.record(WorkloadGone("train"))
        slip.run()
        assert (slip.phase(), services(slip), slip.cloud.calls) == (Phase.RETIRED, {Service.RETIRED}, [])


def test_a_step_of_the_way_in_ends_before_the_way_out_begins() -> None:
    with Slip() as slip:
        slip.begin()
        slip.retire()
        slip.run(hours=1)
        assert list(slip.life().works) == ["checkin"]
        slip.finish("checkin")
        assert slip.life().work("bootstrap") is None
        assert slip.life().works["destroy"].going is Going.RUNNING


def test_what_was_intended_and_never_begun_is_not_begun_any_more() -> None:
    with Slip() as slip:
        slip.cloud.early["lynx", "checkin"] = Crash()
        slip.add()
        slip.check_in()
        with pytest.raises(Crash):
            slip.run()
        slip.restart()
        slip.retire()
        slip.run(minutes=5)
        slip.run()
        assert slip.cloud.calls[1:] == ["u1-lynx-destroy-1"]
        assert slip.life().works["checkin"].going is Going.STUCK


def test_a_way_out_that_fails_is_tried_again_and_its_end_is_waited_for() -> None:
    with Slip() as slip:
        slip.produce()
        slip.retire()
        slip.run()
        slip.cloud.set("lynx", "destroy", Found.FAILED, "", "still attached")
        slip.run()
        available = slip.condition(ConditionType.AVAILABLE)
        assert available.message.startswith("it leaves: destroy failed (attempt 1 of 6): still attached; again at ")
        slip.run(minutes=2)
        slip.finish("destroy")
        assert slip.phase() is Phase.RETIRED


def test_a_recipe_without_a_way_out() -> None:
    with Slip() as slip:
        slip.apply(BARE)
        slip.begin(recipe="bare")
        slip.finish("scale-sets")
        slip.retire()
        slip.run()
        assert slip.phase() is Phase.RETIRED
        assert not dict(slip.state.of(Health).holds.items())


def test_it_is_gone_once() -> None:
    with Slip() as slip:
        slip.produce()
        slip.retire()
        slip.retire()
        slip.run()
        slip.finish("destroy")
        slip.retire()
        slip.run(days=1)
        assert len([change for _, change in slip.changes() if isinstance(change, ClusterGone)]) == 1


def test_a_cluster_that_teams_hold_quota_of_leaves_only_when_somebody_insists() -> None:
    with Slip() as slip:
        slip.produce()
        slip.record(QuotaAssigned(Quota("x", "lynx", "H200", 16)), QuotaAssigned(Quota("y", "lynx", "H200", 8)))
        with pytest.raises(Refused, match="2 teams hold quota for 24 GPUs of lynx, most of it x \\(16\\)"):
            desk.leave(slip.state, slip.life(), is_anyway=False)
        assert desk.leave(slip.state, slip.life(), is_anyway=True)


def test_machines_that_were_left_behind_are_still_used() -> None:
    """Somebody waives the taking down: the quota is free only when the provider says so."""
    with Slip(limit=400) as slip:
        slip.produce()
        slip.retire()
        slip.run()
        slip.retry(step="destroy", is_lost=True)
        slip.waive(step="destroy")
        slip.run()
        assert slip.phase() is Phase.RETIRED
        slip.add("puma", wanted=START)
        slip.run()
        assert slip.phase("puma") is Phase.PLANNED
        slip.cloud.machines.clear()
        slip.run()
        assert slip.phase("puma") is Phase.PROVISIONING
        assert slip.cloud.used(key()) == 0
