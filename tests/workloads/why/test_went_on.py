"""Work that was interrupted and went on: what happened is told, and not blamed for its end."""

from __future__ import annotations

from plimsoll.fleet.model import Service
from plimsoll.workloads.model import RunsAs
from plimsoll.workloads.reasons import Move
from plimsoll.workloads.why.stopped import StoppedBy
from plimsoll.workloads.why.stops import Became
from tests.support.yard import elastic, gang, spec
from tests.workloads.why.test_stopped import (
    HOUR,
    MINUTE,
    cancelled_before_it_ran,
    end,
    failed_soon_after_a_repair,
    four,
    says,
    why,
)


def test_planned_work_after_which_it_went_on_did_not_stop_it() -> None:
    """Its node went to planned work, it went on with a free one, and failed 5 minutes later."""
    yard = four()
    yard.submit(spec("run", "vision", gang(16)))
    node = min(yard.nodes("run"))
    yard.now += HOUR
    yard.set_service([node], Service.MAINTENANCE, "planned: firmware")
    yard.round()
    assert len(yard.nodes("run")) == 2
    yard.now += 5 * MINUTE
    end(yard, "failed")
    assert (why(yard).because, why(yard).move) == (StoppedBy.NO_INFRASTRUCTURE_CAUSE, Move.OWNER)
    text = says(yard)
    assert f"train lost 1 node: {node} (maintenance, planned: firmware)" in text
    assert "What became of it: it went on with " in text
    assert "Of the nodes that it ran on in the end none left service" in text
    assert "No node that it may have run on" not in text


def test_a_fault_after_which_it_went_on_is_only_perhaps_why_it_failed() -> None:
    yard = four()
    failed_soon_after_a_repair(yard)
    assert says(yard).startswith(
        "run of vision ended at 2026-03-02 10:10 UTC (failed by what-if), perhaps because a node was lost shortly"
    )


def test_of_work_that_never_ran_no_node_is_spoken_of() -> None:
    yard = four()
    cancelled_before_it_ran(yard)
    assert "left service" not in says(yard)


def test_an_elastic_part_that_lost_replicas_ran_on_with_less() -> None:
    """Vision's gang of 16 calls two of four replicas back."""
    yard = four(vision=16, voice=8)
    yard.submit(spec("run", "voice", elastic(1, 4), runs_as=RunsAs.FLEX))
    yard.now += HOUR
    yard.submit(spec("first", "vision", gang(16)))
    (stop,) = why(yard).stops
    assert (stop.because, stop.gpus, stop.outcome.became) == (StoppedBy.PREEMPTED, 16, Became.SHRUNK)
    assert stop.outcome.how == "it ran on with 16 GPUs fewer"
