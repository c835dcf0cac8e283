"""Never over the line, never a worse cut than the design allows: over random fleets, and over the lives they lead.

The plans are judged by `tests/support/quota_checker.py`, which knows the design and none of our code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.errors import Refused
from plimsoll.fleet.changes import ClusterRecorded, NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.ledger.model import Change, Draft
from plimsoll.quota.changes import GrantEnded, QuotaAssigned, QuotaGranted, QuotaTransferred, TeamRenamed
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Quota, QuotaKey
from plimsoll.quota.plan import Plan, Trim, make_plan
from plimsoll.quota.policy import Floor, LineBy, Policy, Rule
from plimsoll.rooms import SHEETS
from plimsoll.state.state import State
from plimsoll.workloads.changes import WorkloadGone
from plimsoll.workloads.fold import Workloads
from tests.support.fleets import HEADERS, row
from tests.support.imports import NOW, Importer
from tests.support.quota_checker import Rows, Terms, check_plan, refused_pools

SOAK_FLEETS = 10_000
SOAK_LIVES = 3_000
TEAMS = ("ada", "bob", "cyd", "dee")
SERVICES = ("in_service",) * 6 + ("repair", "repair", "draining", "retired")
BUFFERS = ("0", "0.05", "0.1", "0.15", "0.34", "0.5", "0.85")

Draw = Callable[[st.SearchStrategy[Any]], Any]
Cells = dict[str, str]


@st.composite
def fleets(draw: Draw) -> Rows:
    """One or two clusters of one or two small pools; more is held, and more runs, than there is."""
    clusters, nodes, quotas, workloads = list[Cells](), list[Cells](), list[Cells](), list[Cells]()
    for cluster in ("tiger", "lynx")[: draw(st.integers(1, 2))]:
        phase = draw(st.sampled_from(["production"] * 6 + ["provisioned", "retired"]))
        clusters.append(row("clusters", cluster=cluster, phase=phase))
        for sku in ("H100", "GB200")[: draw(st.sampled_from([1, 1, 2]))]:
            pool = {"cluster": cluster, "sku": sku}
            size = draw(st.sampled_from([1, 4, 8]))
            mine = draw(node_rows(pool, size))
            nodes += mine
            if mine:
                held = draw(st.lists(st.integers(0, 6), max_size=len(TEAMS)))
                pairs = zip(TEAMS, held, strict=False)
                quotas += [row("quotas", team=team, gpus=str(count * size), **pool) for team, count in pairs]
                workloads += draw(work_rows(pool, size, mine))
    return Rows(clusters, nodes, quotas, workloads)


@st.composite
def node_rows(draw: Draw, pool: Cells, size: int) -> list[Cells]:
    services = draw(st.lists(st.sampled_from(SERVICES), max_size=10))
    if services and draw(st.integers(0, 19)) == 0:
        services = [draw(st.sampled_from(["repair", "retired"]))] * len(services)
    return [
        row(
            "nodes",
            node=f"{pool['cluster']}-{pool['sku']}-{number}",
            island=f"{pool['cluster']}-{number % 2}",
            gpus=str(size),
            service=service,
            **pool,
        )
        for number, service in enumerate(services)
    ]


@st.composite
def work_rows(draw: Draw, pool: Cells, size: int, nodes: list[Cells]) -> list[Cells]:
    """Work that fits what is installed, dead or not: whole nodes of it or parts of one."""
    free: dict[str, int] = {}
    for node in nodes:
        if node["service"] != "retired":
            free[node["island"]] = free.get(node["island"], 0) + size
    rows = []
    for number, (team, nodes_asked, less, idle, kind) in enumerate(draw(_works)):
        islands = [island for island in sorted(free) if free[island]]
        if not islands:
            break
        island = islands[number % len(islands)]
        gpus = max(1, min(free[island], nodes_asked * size - less % size))
        free[island] -= gpus
        tier, rank = ("critical", "high", "high", "low")[idle % 4], 1 + less % 3
        rows.append(
            row(
                "workloads",
                workload=f"{pool['cluster']}-{pool['sku']}-{number}",
                team=team,
                island=island,
                gpus=str(gpus),
                kind=kind,
                tier=tier,
                rank=str(rank),
                idle_gpus=str(min(gpus, max(0, idle - 4) * size // 2)),
                **pool,
            )
        )
    return rows


_works = st.lists(
    st.tuples(
        st.sampled_from((*TEAMS, "eve")),
        st.integers(1, 4),
        st.sampled_from([0, 0, 0, 0, 1, 3, 5]),
        st.integers(0, 9),
        st.sampled_from(["gang", "gang", "elastic"]),
    ),
    max_size=8,
)


@st.composite
def terms_for(draw: Draw, rows: Rows) -> Terms:
    """A policy; often nobody is pinned, so that the pins of one team do not refuse every plan."""
    floors: list[dict[tuple[str, str, str], int]] = [{}, {}]
    sizes = {(node["cluster"], node["sku"]): int(node["gpus"]) for node in rows.nodes}
    for place in range(2):
        if rows.quotas and draw(st.booleans()):
            quota = draw(st.sampled_from(rows.quotas))
            size = sizes[quota["cluster"], quota["sku"]]
            key = quota["team"], quota["cluster"], quota["sku"]
            floors[place][key] = size * draw(st.integers(1, 1 + int(quota["gpus"]) // size))
            others = [each for each in rows.quotas if each is not quota]
            if place and others and draw(st.booleans()):
                other = draw(st.sampled_from(others))
                floors[place][other["team"], other["cluster"], other["sku"]] = (
                    2 * sizes[other["cluster"], other["sku"]]
                )
    return Terms(Fraction(draw(st.sampled_from(BUFFERS))), draw(st.integers(0, 3)) == 0, *floors)


fleets_and_terms = fleets().flatmap(lambda rows: st.tuples(st.just(rows), terms_for(rows)))


def policy_of(terms: Terms) -> Policy:
    rule = Rule(LineBy.FIXED, buffer=terms.buffer, is_of_healthy=terms.is_of_healthy)
    pins, blocks = (
        tuple(Floor(QuotaKey(*key), gpus, "test") for key, gpus in floors.items())
        for floors in (terms.pins, terms.blocks)
    )
    return Policy("test", (rule,), pins, blocks)


def source_of(rows: Rows) -> Source:
    sheets = {}
    for name, cells in rows._asdict().items():
        header = HEADERS[name]
        sheets[name] = MemorySheet(name, [header, *([each[column] for column in header] for each in cells)])
    return Source("test", "", sheets)


def imported(rows: Rows) -> Importer:
    importer = Importer()
    import_fleet(importer.keeper, source_of(rows), SHEETS, actor="tester")
    return importer


def document(plan: Plan) -> dict[str, Any]:
    """As `quota plan -o json` has it."""
    built = msgspec.to_builtins(plan.hulls)
    return {"clusters": built, "teams": [team for hull in built for team in hull["teams"]]}


def _judge(rows: Rows, terms: Terms) -> None:
    state = imported(rows).state
    pinned = refused_pools(rows, terms)
    try:
        plan = make_plan(state, policy_of(terms), now=NOW)
    except Refused as refused:
        assert refused.code == "pins_above_line"
        assert {(each["cluster"], each["sku"]) for each in refused.fields["pools"]} == pinned  # type: ignore[attr-defined]
        return
    assert not pinned, "pins above a line refuse the plan"
    assert check_plan(rows, terms, document(plan)) == []


@given(fleets_and_terms)
@settings(max_examples=settings().max_examples * 5)
def test_never_a_plan_against_the_design(case: tuple[Rows, Terms]) -> None:
    _judge(*case)


@pytest.mark.soak
@given(fleets_and_terms)
@settings(max_examples=SOAK_FLEETS)
def test_never_a_plan_against_the_design_in_ten_thousand_fleets(case: tuple[Rows, Terms]) -> None:
    _judge(*case)
