"""What `why` says to type works literally: no name that is taken, none that nobody knows."""

from __future__ import annotations

import pytest

from tests.workloads.why.test_actions import (
    another_cluster,
    broken_node,
    insists,
    lent_by_a_teammate,
    own_replicas,
    planned_ahead,
)
from tests.workloads.why.test_workload import why, why_if


@pytest.mark.parametrize("kind", ["smaller", "as_flex", "elsewhere", "shorter"])
def test_work_that_waits_is_cancelled_before_it_is_submitted_again(kind: str) -> None:
    """A name is taken as long as its work waits."""
    case = {"smaller": broken_node, "as_flex": insists, "elsewhere": another_cluster, "shorter": planned_ahead}[kind]
    [act] = [each.acts[0] for each in why(case(), "mine").actions if each.acts[0].kind == kind]
    want = {"smaller": "gpus: 24 for train", "as_flex": "as: any", "elsewhere": "where: {cluster: lion, sku: H200}",
            "shorter": "hours: 5"}[kind]  # fmt: skip
    assert act.command == f"plimsoll workload cancel mine; plimsoll workload submit FILE   # with {want}"


def test_what_nobody_submitted_is_named_in_no_command() -> None:
    yard = own_replicas()
    yard.cancel("mine")
    found = why_if(yard, "gpus=16", "sku=H200", "island", "team=red", "tier=low")
    commands = {act.kind.value: act.command for each in found.actions for act in each.acts}
    assert commands["rank"] == "plimsoll workload submit FILE   # with tier: critical, rank: 1"
    assert not any(" it " in f"{command} " for command in commands.values())
    yard = broken_node()
    yard.cancel("mine")
    found = why_if(yard, "gpus=32", "sku=H200", "island", "team=red")
    commands = {act.kind.value: act.command for each in found.actions for act in each.acts}
    assert commands["smaller"] == "plimsoll workload submit FILE   # with gpus: 24"


def test_a_teammate_is_put_after_it_by_a_command_that_names_it() -> None:
    [act] = [each.acts[0] for each in why(lent_by_a_teammate(), "mine").actions if each.acts[0].kind == "lower_own"]
    assert act.command == "plimsoll workload rank first --part train --tier critical --rank 2"
