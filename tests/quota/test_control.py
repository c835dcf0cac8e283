"""What the controller decides about a pool. All numbers are nodes of 8 GPUs, worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.fleet.model import Service
from plimsoll.quota.control import Verdict
from plimsoll.quota.model import Kind
from tests.support.harbour import DAY, SIZE, Harbour, Work, policy_text

HOUR = timedelta(hours=1)
OF_TOTAL = policy_text()
"""The line is what is healthy."""
OF_HEALTHY = policy_text(buffer="0.1", of="healthy")
"""The line is nine tenths of what is healthy: it can fall below a promise that still holds."""
BOTH = {"a": 60, "b": 40}
ALL_RUN = (Work("a", 60), Work("b", 40))


class Fall(NamedTuple):
    """Guarantees were aligned `ago`; now only so many nodes are healthy, since `out`."""

    healthy: int
    want: Verdict
    want_guaranteed: Mapping[str, int]
    want_told: Mapping[str, int] = {}
    nodes: int = 100
    quotas: Mapping[str, int] = BOTH
    work: Sequence[Work] = ()
    policy: str = OF_TOTAL
    ago: timedelta = 8 * DAY
    out: timedelta = 2 * DAY
    service: Service = Service.REPAIR


FALLS = {
    "all promises fit: 100 healthy, 90 promised": Fall(
        95, Verdict.STEADY, {"a": 60, "b": 30}, quotas={"a": 60, "b": 30}
    ),
    "2 nodes below 100 is the dead band of 2 %, and the promise holds": Fall(
        109, Verdict.DEAD_BAND, BOTH, nodes=120, policy=OF_HEALTHY
    ),
    "3 nodes below is beyond it: 60 and 40 unscheduled lose 1.8 and 1.2": Fall(
        108, Verdict.CUT, {"a": 58, "b": 39}, nodes=120, policy=OF_HEALTHY
    ),
    "1 node short since an hour is a small move": Fall(99, Verdict.DEAD_BAND, BOTH, out=HOUR),
    "2 nodes short since an hour is a small move": Fall(98, Verdict.DEAD_BAND, BOTH, out=HOUR),
    "3 nodes short since an hour breaks the promise by more": Fall(97, Verdict.CUT, {"a": 58, "b": 39}, out=HOUR),
    "1 node short for two days breaks it as well": Fall(99, Verdict.CUT, {"a": 59, "b": 40}),
    "6 days after a change another one waits while the promise holds": Fall(
        108, Verdict.CHANGED_LATELY, BOTH, nodes=120, policy=OF_HEALTHY, ago=6 * DAY
    ),
    "7 days after a change the next one may come": Fall(
        108, Verdict.CUT, {"a": 58, "b": 39}, nodes=120, policy=OF_HEALTHY, ago=7 * DAY
    ),
    "an hour after a change a broken promise does not wait": Fall(
        90, Verdict.CUT, {"a": 54, "b": 36}, ago=HOUR, out=HOUR
    ),
    "what nothing runs on goes first": Fall(90, Verdict.CUT, {"a": 60, "b": 30}, work=(Work("a", 60), Work("b", 10))),
    "then what is idle, without notice": Fall(
        100, Verdict.CUT, {"a": 50, "b": 40}, nodes=112, policy=OF_HEALTHY, work=(Work("a", 60, idle=10), Work("b", 40))
    ),
    "running capacity is told of and not taken: 10 of 100, 6 and 4": Fall(
        100, Verdict.NOTICE, BOTH, {"a": 54, "b": 36}, nodes=112, policy=OF_HEALTHY, work=ALL_RUN
    ),
    "5 unscheduled go now, 5 of 55 and 40 running wait: 2.9 and 2.1": Fall(
        100,
        Verdict.CUT,
        {"a": 55, "b": 40},
        {"a": 52, "b": 38},
        nodes=112,
        policy=OF_HEALTHY,
        work=(Work("a", 55), Work("b", 40)),
    ),
    "2 idle nodes of a gang of 20 are under running work": Fall(
        20,
        Verdict.NOTICE,
        {"a": 20},
        {"a": 18},
        nodes=23,
        quotas={"a": 20},
        policy=OF_HEALTHY,
        work=(Work("a", 20, idle=2, kind=Kind.GANG),),
    ),
    "beside a gang of 20, 2 idle nodes of elastic work go": Fall(
        25,
        Verdict.CUT,
        {"a": 22},
        nodes=27,
        quotas={"a": 24},
        policy=OF_HEALTHY,
        work=(Work("a", 20, kind=Kind.GANG), Work("a", 4, idle=2, name="graders", rank=2)),
    ),
    "pins of 60 above a line of 50 stop it": Fall(50, Verdict.PINNED, BOTH, policy=policy_text(pins={"a": 60})),
    "a pin of 55 leaves 35 of 90 to the other team": Fall(
        90, Verdict.CUT, {"a": 55, "b": 35}, policy=policy_text(pins={"a": 55}), work=(Work("b", 20),)
    ),
    "a whole cluster in planned work since an hour keeps its promises, in plain sight": Fall(
        0, Verdict.PLANNED_WORK, BOTH, out=HOUR, service=Service.MAINTENANCE
    ),
    "planned work of more than a day is a loss like any other": Fall(
        90, Verdict.CUT, {"a": 54, "b": 36}, service=Service.MAINTENANCE
    ),
    "health collapses to nothing: work died, and nothing can be promised": Fall(0, Verdict.CUT, {}, work=ALL_RUN),
    "work without quota is flex, and gets no guarantee": Fall(
        45, Verdict.CUT, {"a": 45}, quotas={"a": 50}, work=(Work("c", 40),), nodes=50
    ),
    "nobody holds anything": Fall(50, Verdict.STEADY, {}, quotas={}),
}


@pytest.mark.parametrize("sentence", FALLS)
def test_when_health_falls(sentence: str) -> None:
    case = FALLS[sentence]
    with Harbour(case.nodes, case.quotas, case.work, policy=case.policy) as harbour:
        harbour.apply()
        assert harbour.guaranteed == case.quotas, "all of it was guaranteed"
        harbour.mode()
        harbour.wait(case.ago)
        harbour.work_only(case.healthy, since=harbour.now - case.out, out=case.service)
        assert harbour.hull().shortfall == max(0, sum(case.quotas.values()) - case.healthy) * SIZE, "at once"
        assert harbour.control().verdict is case.want
        assert harbour.guaranteed == case.want_guaranteed
        assert harbour.told == case.want_told
        assert sum(harbour.guaranteed.values()) <= harbour.line_in_force


class Return(NamedTuple):
    """Aligned when only `before` nodes were healthy; now so many are, since `back`."""

    healthy: int
    want: Verdict
    want_guaranteed: Mapping[str, int]
    before: int = 80
    ago: timedelta = 8 * DAY
    back: timedelta = 2 * DAY


RETURNS = {
    "10 of 20 nodes that were cut come back as 6 and 4": Return(90, Verdict.GROW, {"a": 54, "b": 36}),
    "7 come back as 4.2 and 2.8, in whole nodes": Return(87, Verdict.GROW, {"a": 52, "b": 35}),
    "all come back": Return(100, Verdict.GROW, BOTH),
    "from nothing at all": Return(50, Verdict.GROW, {"a": 30, "b": 20}, before=0),
    "nodes that are back for an hour are not promised": Return(90, Verdict.SETTLING, {"a": 48, "b": 32}, back=HOUR),
    "after a day they are": Return(90, Verdict.GROW, {"a": 54, "b": 36}, back=DAY),
    "a change of 6 days ago holds growth up": Return(100, Verdict.CHANGED_LATELY, {"a": 48, "b": 32}, ago=6 * DAY),
    "1 node more of 80 is within the dead band": Return(81, Verdict.DEAD_BAND, {"a": 48, "b": 32}),
    "2 nodes more are not: 1.2 and 0.8": Return(82, Verdict.GROW, {"a": 49, "b": 33}),
    "the last node is given back though it is small": Return(100, Verdict.GROW, BOTH, before=99),
    "health as before moves nothing": Return(80, Verdict.STEADY, {"a": 48, "b": 32}),
}


@pytest.mark.parametrize("sentence", RETURNS)
def test_when_health_returns(sentence: str) -> None:
    case = RETURNS[sentence]
    with Harbour(100, BOTH) as harbour:
        harbour.work_only(case.before, since=harbour.now - 9 * DAY)
        harbour.apply()
        harbour.mode()
        harbour.wait(case.ago)
        harbour.work_only(case.healthy, since=harbour.now - case.back)
        assert harbour.control().verdict is case.want
        assert harbour.guaranteed == case.want_guaranteed
        assert sum(harbour.guaranteed.values()) <= harbour.line_in_force


def test_health_that_collapses_and_returns_gives_all_back() -> None:
    with Harbour(100, BOTH, ALL_RUN) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.wait(8 * DAY)
        harbour.work_only(0)
        harbour.control()
        assert harbour.guaranteed == {}
        harbour.wait(8 * DAY)
        harbour.work_only(100)
        assert harbour.control().verdict is Verdict.SETTLING
        harbour.wait(DAY)
        assert harbour.control().verdict is Verdict.GROW
        assert harbour.guaranteed == BOTH


def test_a_pool_that_was_never_aligned_is_left_to_a_person() -> None:
    with Harbour(100, BOTH) as harbour:
        harbour.mode()
        assert harbour.control().verdict is Verdict.NOT_ALIGNED
        assert harbour.guaranteed == {}


def test_quota_that_was_assigned_after_the_alignment_is_guaranteed_where_it_fits() -> None:
    with Harbour(100, {"a": 60}) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.assign(b=50)
        harbour.wait(8 * DAY)
        assert harbour.control().verdict is Verdict.GROW
        assert harbour.guaranteed == {"a": 60, "b": 40}


def test_planned_work_hides_no_fault_beside_it() -> None:
    """10 nodes are in planned work and come back; 20 more are broken and do not, so 20 of 100 go, and 10 are short."""
    with Harbour(100, BOTH) as harbour:
        harbour.apply()
        harbour.mode()
        harbour.wait(8 * DAY)
        harbour.work_only(90, out=Service.MAINTENANCE)
        harbour.work_only(70)
        assert harbour.control().verdict is Verdict.CUT
        assert harbour.guaranteed == {"a": 48, "b": 32}
        assert harbour.hull().shortfall == 10 * SIZE
        assert harbour.control().verdict is Verdict.PLANNED_WORK, "a second round takes nothing more"
