"""Whether a cluster is ready to be the first whose quota follows its health: each need, met and not met."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from plimsoll.fleet.changes import ClusterRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, Service
from plimsoll.health.changes import BreakerTripped, FeedChanged, NodeHistory
from plimsoll.health.fold import FLEET_SCOPE, cluster_scope
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import QuotaAssigned, TeamRenamed
from plimsoll.quota.model import Answer, Quota
from plimsoll.quota.outlets.model import Cause, Step
from plimsoll.quota.pilot import Check, Finding, pilot
from plimsoll.quota.plan import policy_in_force
from plimsoll.quota.service import give_notices
from tests.support.harbour import DAY, TIGER, WEEK, Harbour, Work, policy_text

NODES = 20


@pytest.fixture
def harbour() -> Iterator[Harbour]:
    """A cluster that has all it needs: 20 nodes, 100 days of history, a feed, quotas that fit, work with owners."""
    with Harbour(NODES, {"a": 10, "b": 5}, (Work("a", 8), Work("b", 5))) as harbour:
        names = [f"n{number:03}" for number in range(NODES)]
        harbour.commit(FeedChanged("slurm", False, harbour.now, joined=names))
        _tell(harbour, 100)
        yield harbour


def _tell(harbour: Harbour, days: int) -> None:
    """History that begins so many days ago: a node that was out for a day."""
    out = Draft(NodeHistory("n001", Service.REPAIR), "", harbour.now - days * DAY)
    back = Draft(NodeHistory("n001", Service.IN_SERVICE), "", harbour.now - (days - 1) * DAY)
    harbour.keeper.commit([out, back], actor="importer", read_at=None)


def _ask(harbour: Harbour, **told: Any) -> dict[Check, Finding]:
    heard = {"slurm": harbour.now - timedelta(minutes=1)}
    options: dict[str, Any] = {"heard": heard, "unowned": [], "work_count": 2, "drift": []} | told
    findings = pilot(harbour.state, "tiger", policy_in_force(harbour.state), now=harbour.now, **options)
    assert [finding.check for finding in findings if finding.is_met and finding.next_step] == []
    assert [finding.check for finding in findings if not finding.is_met and not finding.next_step] == []
    return {finding.check: finding for finding in findings}


def _missing(harbour: Harbour, **told: Any) -> dict[Check, str]:
    return {check: finding.found for check, finding in _ask(harbour, **told).items() if not finding.is_met}


def test_a_cluster_that_has_all_is_ready(harbour: Harbour) -> None:
    found = _ask(harbour)
    assert list(found) == list(Check)
    assert [check for check, finding in found.items() if not finding.is_met] == []
    assert found[Check.HEALTH_FEED].found == "20 of 20 nodes watched by a feed heard in the last 15 minutes"
    assert found[Check.QUOTAS].found == "2 quotas; 0 teams with work and without quota"
    assert found[Check.EFFECT].found == "it takes 0 unscheduled, 0 idle, 0 running GPUs"


def test_a_cluster_that_is_not_in_production(harbour: Harbour) -> None:
    cluster = harbour.state.of(Fleet).clusters["tiger"]
    harbour.commit(ClusterRecorded(msgspec.structs.replace(cluster, phase=Phase.PROVISIONED)))
    assert _missing(harbour)[Check.PRODUCTION] == "phase provisioned, 20 nodes"


FEEDS = {
    "nobody speaks": {},
    "the last word was an hour ago": {"slurm": timedelta(hours=1)},
    "another feed speaks, that watches none of the nodes": {"other": timedelta(0)},
}


@pytest.mark.parametrize("sentence", FEEDS)
def test_a_health_feed_that_is_not_fresh(sentence: str, harbour: Harbour) -> None:
    heard = {name: harbour.now - ago for name, ago in FEEDS[sentence].items()}
    assert _missing(harbour, heard=heard) == {
        Check.HEALTH_FEED: "0 of 20 nodes watched by a feed heard in the last 15 minutes"
    }


def test_a_feed_that_was_found_silent_is_not_fresh(harbour: Harbour) -> None:
    harbour.commit(FeedChanged("slurm", True, harbour.now))
    assert set(_missing(harbour)) == {Check.HEALTH_FEED}


def test_one_node_of_twenty_that_nobody_watches_is_too_many(harbour: Harbour) -> None:
    harbour.commit(FeedChanged("slurm", False, harbour.now, left=["n000"]))
    assert _missing(harbour) == {Check.HEALTH_FEED: "19 of 20 nodes watched by a feed heard in the last 15 minutes"}


def test_history_that_is_too_short() -> None:
    with Harbour(NODES, {"a": 10}) as harbour:
        harbour.commit(FeedChanged("slurm", False, harbour.now, joined=[f"n{number:03}" for number in range(NODES)]))
        assert _missing(harbour) == {Check.HISTORY: "0 days of history, 90 are needed"}
        _tell(harbour, 60)
        assert _missing(harbour) == {Check.HISTORY: "60 days of history, 90 are needed"}


def test_work_without_quota(harbour: Harbour) -> None:
    harbour.run(Work("stray", 1))
    assert _missing(harbour) == {Check.QUOTAS: "2 quotas; 1 team with work and without quota: stray (H200)"}


def test_quota_without_nodes(harbour: Harbour) -> None:
    harbour.commit(QuotaAssigned(Quota("a", "tiger", "GB200", 8)))
    assert _missing(harbour) == {
        Check.QUOTAS: "3 quotas; 0 teams with work and without quota; quota for GB200, of which there are no nodes"
    }


def test_work_that_nobody_owns(harbour: Harbour) -> None:
    assert _missing(harbour, unowned=["run-a"], work_count=2) == {
        Check.OWNERS: "1 of 2 workloads with an owner; without: run-a"
    }
    assert _missing(harbour, unowned=["run-a"], work_count=20) == {}, "5 % may be without"


@pytest.mark.parametrize("scope", [cluster_scope("tiger"), FLEET_SCOPE])
def test_a_breaker_that_tripped(scope: str, harbour: Harbour) -> None:
    harbour.commit(BreakerTripped(scope, 1, 3600.0, 1, ["n001"]))
    found = _ask(harbour)[Check.BREAKERS]
    assert (found.is_met, found.found) == (False, f"1 breaker tripped: {scope}")
    assert found.next_step == f"plimsoll health breaker {scope} --go-on --reason WHY"


def test_the_breaker_of_another_cluster_is_none_of_its_business(harbour: Harbour) -> None:
    harbour.commit(BreakerTripped(cluster_scope("lion"), 1, 3600.0, 1, ["n001"]))
    assert _missing(harbour) == {}


def test_a_correction_that_takes_running_capacity_needs_agreement(harbour: Harbour) -> None:
    """Under half of 20 nodes 15 are over by 5: b's 5 and a's 8 run, a's 2 do not; 3 of 13 running, 1.8 and 1.2."""
    harbour.rule(policy_text(buffer="0.5"))
    assert _missing(harbour) == {
        Check.EFFECT: "it takes 16 unscheduled, 0 idle, 24 running GPUs; without agreement: a, b"
    }
    give_notices(
        harbour.keeper,
        lambda state: harbour.plan(state),
        start=harbour.now.date() + DAY,
        every=WEEK,
        actor="rpm",
        reason="",
    )
    harbour.agree("a")
    harbour.agree("b", Answer.OBJECTED)
    assert _missing(harbour)[Check.EFFECT].endswith("; without agreement: b")
    harbour.agree("b")
    assert _missing(harbour) == {}


def test_a_team_that_was_renamed_has_agreed_under_its_old_name(harbour: Harbour) -> None:
    harbour.rule(policy_text(buffer="0.5"))
    give_notices(
        harbour.keeper,
        lambda state: harbour.plan(state),
        start=harbour.now.date() + DAY,
        every=WEEK,
        actor="rpm",
        reason="",
    )
    harbour.agree("a")
    harbour.agree("b")
    harbour.commit(TeamRenamed("a", "alpha"))
    assert _missing(harbour) == {}


def test_what_was_applied_needs_no_agreement_any_more(harbour: Harbour) -> None:
    harbour.rule(policy_text(buffer="0.5"))
    harbour.apply(needs_notice=False)
    assert _ask(harbour)[Check.EFFECT].found == "it takes 0 unscheduled, 0 idle, 0 running GPUs"


def test_pins_above_the_line_are_said_and_not_raised(harbour: Harbour) -> None:
    harbour.rule(policy_text(buffer="0.5", pins={"a": 10, "b": 5}))
    assert _missing(harbour) == {Check.EFFECT: "tiger H200: 120 GPUs are pinned above the line of 80"}


def test_a_scheduler_that_nobody_asked_or_that_was_changed_by_hand(harbour: Harbour) -> None:
    assert _missing(harbour, drift=None) == {Check.DRIFT: "no scheduler was asked"}
    step = Step("qos a", "8", "16", Cause.DRIFT)
    assert _missing(harbour, drift=[step]) == {Check.DRIFT: "1 setting of the scheduler changed by hand: qos a"}


def test_a_cluster_without_nodes_lacks_much_and_breaks_nothing() -> None:
    with Harbour(0, {}) as harbour:
        assert set(_missing(harbour, work_count=0)) == {
            Check.PRODUCTION,
            Check.HEALTH_FEED,
            Check.HISTORY,
            Check.QUOTAS,
        }
        assert TIGER not in harbour.state.of(Fleet).pools
