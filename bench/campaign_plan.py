"""Plans for the demo fleet and for fleets four and ten times as large, with the campaign file of the design: how soon
there is a plan, and how far it may be from the best after a while. Beside it what people would plan (first fit), and
the plain time-indexed model on SCIP with one thread, for as long, in the same run.

The larger fleets are the demo fleet several times over, with the caps, crews and starts of the file as many times.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from bench.figures import Figure
from plimsoll.campaigns.days import make_days
from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.model import Campaign, Limit
from plimsoll.campaigns.solve.greedy import first_fit, in_order
from plimsoll.campaigns.solve.make import make_problem
from plimsoll.campaigns.solve.problem import PlanProblem, totals
from plimsoll.campaigns.solve.race import Progress, solve
from plimsoll.campaigns.units import make_units
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.state.table import Journal

SEED = 1
FIRST_SECONDS_MAX = 3.0
TEXT = """\
campaign: nic-firmware
changes:
  - {component: nic-firmware, version: "28.43", impact: disruptive}
scope: {sku: [H100, H200, GB200]}
start: 2026-01-05
deadline: 2026-01-22
window: {hours: [11, 20], tz: UTC, days: [mon, tue, wed, thu, fri, sat, sun]}
slot_minutes: 60
big: {nodes_over: 400}
work:
  - {scope: {size: big, purpose: applied}, mode: rolling, share_per_day: 0.10, hours: 6}
  - {scope: {size: big}, mode: whole, hours: 8}
  - {scope: {}, mode: whole, hours: 4}
limits:
  - {kind: out_at_once, unit: nodes, at_most: 1800}
  - {kind: out_at_once, unit: nodes, at_most: 700, scope: {purpose: applied, area: eu}}
  - {kind: out_at_once, unit: nodes, at_most_share: 0.5, of: scope, scope: {serves: [api], area: us}}
  - {kind: out_per_day, unit: nodes, at_most: 3000}
  - {kind: average_loss, unit: a100e, at_most_share: 0.03, of: fleet}
  - {kind: starts_per_day, scope: {size: big}, at_most: 2, until: 2026-01-18}
  - {kind: starts_per_day, scope: {size: big}, at_most: 1, from: 2026-01-19}
  - {kind: crews, at_most: 8}
expect:
  - {scope: {sku: [H100, H200]}, non_return_share: 0.02, repair_days: 2}
  - {scope: {}, non_return_share: 0.01, repair_days: 2}
canary: {clusters: [sweden-a], soak_hours: 24}
no_fly: [{scope: {cluster: [tiger]}, from: 2026-01-08, to: 2026-01-10, why: "training run"}]
order:
  - {scope: {size: small, purpose: research}, weight: 8}
  - {scope: {size: small, purpose: applied}, weight: 4}
  - {scope: {size: big, purpose: research}, weight: 2}
  - {scope: {size: big, purpose: applied}, weight: 1}
spread: {scope: {purpose: applied}, over: area}
objective: {exposure: 1, imbalance: 20000, peak: 1}
"""


class Case(NamedTuple):
    """A fleet so many times the demo fleet, and the gaps that are wanted after so many seconds."""

    times: int
    gaps: dict[float, float]


CASES = (Case(1, {30.0: 0.02, 60.0: 0.01}), Case(4, {60.0: 0.03}), Case(10, {180.0: 0.05}))


def measure() -> list[Figure]:
    demo = demo_state()
    return [figure for case in CASES for figure in _measure(case, demo)]


def demo_state() -> Fleet:
    rows = demo_fleet(seed=1, until=datetime(2026, 1, 5, tzinfo=UTC))
    sheets = {sheet: MemorySheet(sheet, cells) for sheet, cells in rows.items()}
    with open_keeper("sqlite:///:memory:", create=True) as keeper:
        import_fleet(keeper, Source("bench", "", sheets), SHEETS, actor="bench")
        return keeper.state().of(Fleet)


def several(demo: Fleet, times: int) -> Fleet:
    """The demo fleet so many times over: clusters, islands and nodes of the copies have a number after their name."""
    fleet = Fleet(Journal())
    for number in range(times):
        mark = f"-copy-{number}" if number else ""
        for cluster in demo.clusters.values():
            fleet.clusters.put(cluster.id + mark, msgspec.structs.replace(cluster, id=cluster.id + mark))
        for node in demo.nodes.values():
            names = {"id": node.id + mark, "cluster": node.cluster + mark, "island": node.island + mark}
            fleet.put_node(msgspec.structs.replace(node, **names))
    return fleet


def campaign_for(times: int) -> Campaign:
    campaign = parse_campaign(TEXT, source="bench")

    def more(limit: Limit) -> Limit:
        return limit if limit.at_most is None else msgspec.structs.replace(limit, at_most=limit.at_most * times)

    return msgspec.structs.replace(campaign, limits=tuple(more(limit) for limit in campaign.limits))


def _measure(case: Case, demo: Fleet) -> list[Figure]:
    fleet, campaign = several(demo, case.times), campaign_for(case.times)
    roll = make_units(campaign, fleet)
    began = time.perf_counter()
    problem = make_problem(campaign, fleet, roll, make_days(campaign))
    first = first_fit(problem, in_order(problem, roll.units))
    first_seconds = time.perf_counter() - began + _import_seconds()
    assert first is not None, "first fit finds a plan for the demo fleet"
    size = f"{len(roll.units)} clusters, {problem.columns:,} starts"
    seen: list[Progress] = []
    seconds = max(case.gaps)
    solved = solve(problem, start=first, seed=SEED, seconds=seconds, gap_target=0.0, on_progress=seen.append)
    assert solved.bound is not None
    plain = _plain(problem, seconds)
    people = totals(problem, first).total
    by_hand = f"first fit {_percent((people - solved.bound) / people)}"
    figures = [
        Figure(
            "first plan of a campaign, imports included", size, f"{first_seconds:.2f} s", "none", "",
            f"under {FIRST_SECONDS_MAX:g} s" if case.times == 1 else "",
            first_seconds < FIRST_SECONDS_MAX if case.times == 1 else None,
        )
    ]  # fmt: skip
    for after, wanted in case.gaps.items():
        gap = min((each.gap for each in seen if each.gap is not None and each.seconds <= after), default=1.0)
        other = min((found for at, found in plain if at <= after), default=1.0)
        figures.append(
            Figure(
                f"gap proved after {after:g} s", size, _percent(gap), f"plain SCIP {_percent(other)}, {by_hand}",
                f"{gap / max(other, 1e-9):.2f}x", f"at most {_percent(wanted)}", gap <= wanted,
            )
        )  # fmt: skip
    return figures


def _percent(gap: float) -> str:
    return f"{100 * gap:.2f} %"


def _import_seconds() -> float:
    """What a fresh interpreter takes to import what a first plan needs."""
    began = time.perf_counter()
    code = "import plimsoll.campaigns.solve.race, plimsoll.campaigns.solve.make, plimsoll.campaigns.solve.greedy"
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def _plain(problem: PlanProblem, seconds: float) -> list[tuple[float, float]]:
    """The time-indexed model on SCIP: its gap as time goes by."""
    from plimsoll.campaigns.solve.engine import Effort, Engine, solve_model
    from plimsoll.campaigns.solve.mip import make_model

    found: list[tuple[float, float]] = []
    began = time.perf_counter()
    model = make_model(problem)
    effort = Effort(seconds=seconds - (time.perf_counter() - began), seed=SEED)
    answer = solve_model(Engine.SCIP, model.proto, effort=effort, on_line=_listener(found, began))
    if answer.values is not None:
        found.append((seconds, (answer.value - answer.bound) / max(1.0, answer.value)))
    return found


def _listener(found: list[tuple[float, float]], began: float) -> Callable[[list[str]], None]:
    def listen(lines: list[str]) -> None:
        for line in lines:
            fields = line.split("|")
            try:
                bound, best = float(fields[-4]), float(fields[-3].rstrip("* "))
            except (ValueError, IndexError):
                continue
            found.append((time.perf_counter() - began, (best - bound) / max(1.0, best)))

    return listen
