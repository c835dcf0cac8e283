"""The worked case of the design, to the GPU: 361 nodes of 8 H100s, 319 healthy, 345 assigned, 310 allocated.

Three teams hold 200, 100 and 45 nodes and use 180, 90 and 40, so that 20, 10 and 5 nodes are unscheduled; of what the
first and the last use 3 and 2 nodes are idle. Nobody is above its assigned. Everything was worked out by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey, Service
from plimsoll.ledger.model import Draft
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import TeamHull
from plimsoll.quota.lines import LineNow
from plimsoll.quota.model import QuotaKey
from plimsoll.quota.plan import PoolPlan, Trim, make_plan, plan_pool, summarise
from plimsoll.quota.policy import Floor, Policy, parse_word
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer

NODE = 8
POOL = PoolKey("tiger", "H100")
HELD = {"vision": (200, 180, 3), "voice": (100, 90, 0), "evals": (45, 40, 2)}
"""Assigned, allocated, idle; in nodes."""


def bring(folder: Path, *, has_idle: bool = True) -> Importer:
    everything = [*nodes(319, sku="H100"), *nodes(42, prefix="out", sku="H100", service="repair", reason="xid 79")]
    quotas, workloads = [], []
    for team, counts in HELD.items():
        assigned, allocated, idle = (str(count * NODE) for count in counts)
        quotas.append(row("quotas", team=team, sku="H100", gpus=assigned, ticket="Q-7"))
        work = {"workload": f"{team}-run", "team": team, "sku": "H100", "kind": "elastic"}
        workloads.append(row("workloads", gpus=allocated, idle_gpus=idle if has_idle else "0", **work))
    importer = Importer()
    importer.bring(write_fleet(folder, nodes=everything, quotas=quotas, workloads=workloads))
    return importer


@pytest.fixture
def importer(tmp_path: Path) -> Importer:
    return bring(tmp_path)


class Case(NamedTuple):
    """A policy and what it makes of the pool, and of each team: guaranteed and what is cut of it. In nodes."""

    word: str
    trim: Trim
    want_pool: Mapping[str, int]
    want_teams: Mapping[str, tuple[int, tuple[int, int, int]]]


ALWAYS = {"total": 361, "healthy": 319, "allocated": 310, "unallocated": 0}
CASES = {
    "buffer 0: all of the overload was never there, and nobody's running work is touched": Case(
        "fixed:0",
        Trim.NOTHING,
        {
            "line": 319,
            "assigned": 345,
            "guaranteed": 319,
            "over": 26,
            "never_backed": 26,
            "to_flex": 0,
            "flex_standing": 0,
            "flex_lent": 9,
            "flex_used": 0,
        },
        # 26 of 35: 14.86, 7.43 and 3.71.
        {"vision": (185, (15, 0, 0)), "voice": (93, (7, 0, 0)), "evals": (41, (4, 0, 0))},
    ),
    "buffer 0, trimmed: the book falls by 35 to 310, and 9 are standing flex": Case(
        "fixed:0",
        Trim.UNSCHEDULED,
        {
            "line": 319,
            "assigned": 310,
            "guaranteed": 310,
            "over": 0,
            "never_backed": 0,
            "to_flex": 0,
            "flex_standing": 9,
            "flex_lent": 0,
            "flex_used": 0,
            "unallocated": 9,
        },
        {"vision": (180, (20, 0, 0)), "voice": (90, (10, 0, 0)), "evals": (40, (5, 0, 0))},
    ),
    "buffer 0, trimmed by idle as well: the book falls by 40 to 305": Case(
        "fixed:0",
        Trim.IDLE,
        {
            "line": 319,
            "assigned": 305,
            "guaranteed": 305,
            "over": 0,
            "never_backed": 0,
            "to_flex": 0,
            "flex_standing": 14,
            "flex_lent": 0,
            "flex_used": 5,
            "unallocated": 14,
        },
        {"vision": (177, (20, 3, 0)), "voice": (90, (10, 0, 0)), "evals": (38, (5, 2, 0))},
    ),
    "buffer 15 %: 26 were never there and 13 go to flex; 35 unscheduled, then 4 idle": Case(
        "fixed:0.15",
        Trim.NOTHING,
        {
            "line": 306,
            "assigned": 345,
            "guaranteed": 306,
            "over": 39,
            "never_backed": 26,
            "to_flex": 13,
            "flex_standing": 13,
            "flex_lent": 0,
            "flex_used": 4,
        },
        # 4 of 5: 2.4 and 1.6.
        {"vision": (178, (20, 2, 0)), "voice": (90, (10, 0, 0)), "evals": (38, (5, 2, 0))},
    ),
}


def _plan(importer: Importer, word: str, trim: Trim = Trim.NOTHING) -> PoolPlan:
    (each,) = make_plan(importer.state, parse_word(word), now=NOW, trim=trim).pools
    return each


def _cut(team: TeamHull) -> tuple[int, int, int]:
    return team.haircut.unscheduled, team.haircut.idle, team.haircut.running


@pytest.mark.parametrize("sentence", CASES)
def test_the_worked_case(sentence: str, importer: Importer) -> None:
    word, trim, want_pool, want_teams = CASES[sentence]
    hull = _plan(importer, word, trim).hull
    want = {name: count * NODE for name, count in {**ALWAYS, **want_pool}.items()}
    assert {name: getattr(hull, name) for name in want} == want
    assert {team.team: (team.guaranteed, _cut(team)) for team in hull.teams} == {
        team: (gpus * NODE, tuple(each * NODE for each in cut)) for team, (gpus, cut) in want_teams.items()
    }
    assert hull.stage == (3 if any(cut[1] for _, cut in want_teams.values()) else 2)
    assert hull.shortfall == 0


@pytest.mark.parametrize("sentence", CASES)
def test_applied_it_is_in_force(sentence: str, importer: Importer) -> None:
    word, trim, want_pool, want_teams = CASES[sentence]
    each = _plan(importer, word, trim)
    assert each.is_change
    importer.keeper.commit(each.drafts("test"), actor="tester", read_at=None)
    book = importer.of(QuotaBook)
    assert book.guaranteed_in(POOL) == {team: gpus * NODE for team, (gpus, _) in want_teams.items()}
    assert book.line_of(POOL) == want_pool["line"] * NODE
    assert book.assigned[POOL] == want_pool["assigned"] * NODE
    assert {quota.labels["ticket"] for quota in book.quotas.values()} == {"Q-7"}
    now = _plan(importer, word)
    assert not now.is_change
    assert (now.before.guaranteed, now.before.flex_standing) == (now.hull.guaranteed, now.hull.flex_standing)


def test_without_idle_the_last_four_are_running(tmp_path: Path) -> None:
    """4 of 310 that run: 2.32, 1.16 and 0.52."""
    importer = bring(tmp_path, has_idle=False)
    hull = _plan(importer, "fixed:0.15").hull
    assert {team.team: _cut(team) for team in hull.teams} == {
        "vision": (160, 0, 16),
        "voice": (80, 0, 8),
        "evals": (40, 0, 8),
    }
    assert (hull.stage, hull.flex_used) == (4, 32)


def test_before_anything_is_applied_nothing_is_guaranteed(importer: Importer) -> None:
    before = _plan(importer, "fixed:0").before
    assert (before.guaranteed, before.line_in_force, before.flex_standing) == (0, 0, 319 * NODE)
    assert (before.flex_used, before.assigned) == (310 * NODE, 345 * NODE)


def test_the_summary_says_how_much_was_never_there(importer: Importer) -> None:
    found = summarise([_plan(importer, "fixed:0.15").hull])
    assert (found.pools_over, found.clusters_over, found.teams_touched) == (1, 1, 3)
    assert (found.over, found.never_backed, found.to_flex) == (312, 208, 104)
    assert (found.haircut.unscheduled, found.haircut.idle, found.haircut.running) == (280, 32, 0)
    assert found.stages == {"1": 0, "2": 0, "3": 1, "4": 0}


def _fail(importer: Importer, count: int) -> None:
    """So many more nodes die, under running work if need be."""
    fleet = importer.of(Fleet)
    working = sorted(node.id for node in fleet.nodes.values() if node.service is Service.IN_SERVICE)
    drafts = [
        Draft(NodeRecorded(msgspec.structs.replace(fleet.nodes[name], service=Service.REPAIR)))
        for name in working[:count]
    ]
    importer.keeper.commit(drafts, actor="tester", read_at=None)


def _apply(importer: Importer, word: str) -> None:
    importer.keeper.commit(_plan(importer, word).drafts("test"), actor="tester", read_at=None)


def test_a_promise_that_breaks_is_a_shortfall_at_once(importer: Importer) -> None:
    """319 are guaranteed and 310 used; 20 die. 11 of what runs is lost, nothing is left to lend, 20 are short."""
    _apply(importer, "fixed:0")
    _fail(importer, 20)
    now = _plan(importer, "fixed:0").before
    assert (now.healthy, now.guaranteed, now.allocated) == (299 * NODE, 319 * NODE, 299 * NODE)
    assert (now.shortfall, now.flex_standing, now.flex_lent) == (20 * NODE, 0, 0)
    # The graders of all three teams are alike, so each loses in proportion to what it runs: 6.39, 3.19 and 1.42 nodes.
    lost = {loss.team: loss.gpus for loss in _plan(importer, "fixed:0").pool.losses}
    assert lost == {"vision": 51, "voice": 26, "evals": 11}


def test_what_is_refilled_is_no_loss(importer: Importer) -> None:
    """Of 319 healthy 310 are used: nine may die."""
    _apply(importer, "fixed:0")
    _fail(importer, 9)
    each = _plan(importer, "fixed:0")
    assert (each.before.allocated, each.before.shortfall, list(each.pool.losses)) == (310 * NODE, 9 * NODE, [])


def test_when_nothing_works_nothing_is_promised_and_nothing_hurts_any_more(importer: Importer) -> None:
    _apply(importer, "fixed:0")
    _fail(importer, 319)
    each = _plan(importer, "fixed:0")
    assert (each.before.shortfall, each.before.allocated, each.before.flex_used) == (319 * NODE, 0, 0)
    assert (each.hull.line, each.hull.guaranteed, each.hull.allocated, each.hull.stage) == (0, 0, 0, 2)
    assert (each.hull.over, each.hull.never_backed) == (345 * NODE, 345 * NODE)


def test_a_plan_that_was_applied_is_not_made_anew_though_work_was_lost(importer: Importer) -> None:
    """Who loses work depends on what is guaranteed; what is planned does not, else each plan would bring the next."""
    _fail(importer, 159)
    _apply(importer, "fixed:0.15")
    assert importer.of(QuotaBook).line_of(POOL) == 160 * NODE
    assert not _plan(importer, "fixed:0.15").is_change
    _apply(importer, "fixed:0.6")
    assert not _plan(importer, "fixed:0.6").is_change


def test_trimming_keeps_gangs_pins_and_blocks(tmp_path: Path) -> None:
    """Five of eight nodes work. A gang that is idle, a pin and a block stay in the book; idle elastic work does not."""
    gang = row("workloads", workload="g", team="gang", gpus="8", idle_gpus="8")
    work = {"kind": "elastic", "gpus": "8", "idle_gpus": "8"}
    importer = Importer()
    importer.bring(
        write_fleet(
            tmp_path,
            nodes=[*nodes(5), *nodes(3, prefix="out", service="repair")],
            quotas=[row("quotas", team=team) for team in ("gang", "idle", "pinned", "whole")],
            workloads=[gang, *(row("workloads", workload=team, team=team, **work) for team in ("idle", "pinned"))],
        )
    )
    pin = Floor(QuotaKey("pinned", "tiger", "H200"), 16, "launch")
    block = Floor(QuotaKey("whole", "tiger", "H200"), 16, "one run")
    policy = Policy("test", parse_word("fixed:0").rules, (pin,), (block,))
    (each,) = make_plan(importer.state, policy, now=NOW, trim=Trim.IDLE).pools
    assert each.assigned == {"gang": 8, "idle": 0, "pinned": 16, "whole": 16}
    assert each.hull.guaranteed == each.hull.line == 40


def test_a_pool_that_is_not_over_is_not_trimmed(importer: Importer) -> None:
    plan = make_plan(importer.state, parse_word("fixed:0"), now=NOW, trim=Trim.IDLE)
    assert plan.pools[0].assigned["vision"] == 177 * NODE
    line = LineNow(345 * NODE, "test", "as if all worked")
    assert plan_pool(plan.pools[0].pool, line, Trim.IDLE).assigned == {
        "vision": 200 * NODE,
        "voice": 100 * NODE,
        "evals": 45 * NODE,
    }
