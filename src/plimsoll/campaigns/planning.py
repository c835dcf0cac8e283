"""Makes plans: the file held against the fleet, the search, and the check without which no plan leaves.

`plan_campaign` plans from nothing, `replan_campaign` from what has happened. Both return what there is to say when no
plan exists; neither records anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from plimsoll.campaigns.check.plan import check_plan
from plimsoll.campaigns.days import Days, make_days
from plimsoll.campaigns.model import Batch, Campaign, Counts, LimitKind, Measure, Plan, Score, Status
from plimsoll.campaigns.replan import Kept, batches_from, batches_moved, keep, names_from
from plimsoll.campaigns.run.progress import Run
from plimsoll.campaigns.units import Lot, Roll, Unit, amount, labelled, make_units, matches_node, weights
from plimsoll.documents import Field
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.fold import Health
from plimsoll.state.state import State
from plimsoll.words import counted

if TYPE_CHECKING:
    from plimsoll.campaigns.impossible.explain import Explained

SECONDS_DEFAULT = 60.0
GAP_DEFAULT = 0.01
DAYS_MORE_MAX = 21
EXPLAIN_SECONDS = 30.0
"""How long it may take to say why there is no plan, and what would help."""


class Search(NamedTuple):
    """How to search: for how long, until which gap, with which seed; `is_cancelled` is asked now and then."""

    seconds: float = SECONDS_DEFAULT
    gap: float = GAP_DEFAULT
    seed: int = 1
    on_progress: Callable[[float | None, float | None, float], None] = lambda _best, _bound, _seconds: None
    is_cancelled: Callable[[], bool] = lambda: False


class MoveProof(NamedTuple):
    """How good a new plan is: the total with what its moves weigh, and what no plan can be below of that."""

    total: float
    bound: float | None

    @property
    def gap(self) -> float | None:
        return None if self.bound is None else (self.total - self.bound) / max(1.0, self.total)


class Planned(NamedTuple):
    """A plan, or why there is none. `moved`: batches that the plan in force has at another time, and `why` for those
    that had to move."""

    plan: Plan
    roll: Roll
    names: Mapping[str, tuple[str, ...]]
    seconds: float
    explained: Explained | None = None
    moved: Sequence[str] = ()
    why: Mapping[str, str] = {}
    proof: MoveProof | None = None
    help_text: str = ""


def plan_campaign(
    state: State,
    campaign: Campaign,
    *,
    number: int,
    search: Search,
    document: Field | None = None,
    explains: bool = True,
) -> Planned:
    """The best plan that is found for a campaign on the fleet as it is, or, if wanted, why none exists."""
    began = time.monotonic()
    fleet = state.of(Fleet)
    roll = make_units(campaign, fleet, document)
    days = make_days(campaign)
    elsewhere = outages_elsewhere(state, campaign)
    if not roll.units:
        empty = Plan(campaign.name, number, Status.OPTIMAL, Score(0.0, 0.0, 0.0, 0.0), 0.0, ())
        return Planned(empty, roll, {}, time.monotonic() - began)
    from plimsoll.campaigns.solve.make import make_problem

    problem = make_problem(campaign, fleet, roll, days, elsewhere=elsewhere.amounts, already=elsewhere.nodes)
    status, starts, bound, greedy = _search(problem, roll.units, search)
    seconds = time.monotonic() - began
    if starts is None:
        plan = Plan(campaign.name, number, status, None, None, ())
        is_explained = status is Status.INFEASIBLE and explains
        explained = _explain(campaign, fleet, search, elsewhere.amounts) if is_explained else None
        return Planned(plan, roll, {}, time.monotonic() - began, explained)
    batches = _batches(roll, starts, days)
    score = _checked(campaign, fleet, batches, elsewhere)
    baseline = None if greedy is None else check_plan(campaign, fleet, _batches(roll, greedy, days)).score
    # The checker sums up in another order than the search: in the last bits the bound may be above the total.
    bound = None if bound is None else min(bound, score.total)
    plan = Plan(campaign.name, number, status, score, bound, batches, baseline)
    names = {f"{unit.name}#{place}": names for unit in roll.units for place, names in enumerate(unit.batches, start=1)}
    return Planned(plan, roll, names, seconds)


def _search(
    problem: object, units: Sequence[Unit], search: Search, near: Mapping[str, int] | None = None
) -> tuple[Status, Mapping[str, Sequence[int]] | None, float | None, Mapping[str, Sequence[int]] | None]:
    """The status, when each batch starts, the bound, and what people's way gives. `near`: when units were to start."""
    from plimsoll.campaigns.solve.early import as_early_as_can_be
    from plimsoll.campaigns.solve.greedy import first_fit, in_order, near_fit
    from plimsoll.campaigns.solve.problem import PlanProblem, starts_of
    from plimsoll.campaigns.solve.race import Progress, solve

    assert isinstance(problem, PlanProblem)

    def tell(progress: Progress) -> None:
        search.on_progress(progress.best, progress.bound, progress.seconds)

    order = in_order(problem, units)
    first = first_fit(problem, order) if near is None else near_fit(problem, order, near)
    solved = solve(
        problem,
        start=first,
        is_near=near is not None,
        seed=search.seed,
        seconds=search.seconds,
        gap_target=search.gap,
        on_progress=tell,
        should_stop=search.is_cancelled,
    )
    found = None if solved.columns is None else starts_of(problem, as_early_as_can_be(problem, solved.columns))
    return solved.status, found, solved.bound, None if first is None else starts_of(problem, first)


def _batches(roll: Roll, starts: Mapping[str, Sequence[int]], days: Days) -> tuple[Batch, ...]:
    found = []
    for unit in roll.units:
        for number, (names, minute) in enumerate(zip(unit.batches, starts[unit.name], strict=True), start=1):
            begin = days.moment(minute).astimezone(UTC)
            end = begin + timedelta(minutes=unit.minutes)
            found.append(Batch(unit.name, unit.mode, number, len(names), begin, end))
    return tuple(sorted(found, key=lambda batch: (batch.start, batch.unit, batch.number)))


def _checked(campaign: Campaign, fleet: Fleet, batches: Sequence[Batch], elsewhere: Elsewhere) -> Score:
    """The objective, as the checker works it out. A plan that does not pass is our own mistake, and never leaves."""
    checked = check_plan(campaign, fleet, batches, elsewhere=elsewhere.amounts, already=elsewhere.nodes)
    assert not checked.problems, f"the plan breaks its own file: {checked.problems[0]}"
    return checked.score


def _explain(campaign: Campaign, fleet: Fleet, search: Search, elsewhere: Mapping[int, float]) -> Explained:
    from plimsoll.campaigns.impossible.explain import explain

    ends = time.monotonic() + EXPLAIN_SECONDS

    def is_over() -> bool:
        return search.is_cancelled() or time.monotonic() >= ends

    return explain(campaign, fleet, elsewhere=elsewhere, is_cancelled=is_over)


# Reality.


class Elsewhere(NamedTuple):
    """Other outages: what they take of the limits that count all, by the limit's place, and the nodes that are out."""

    amounts: Mapping[int, float]
    nodes: frozenset[str]


def outages_elsewhere(state: State, campaign: Campaign) -> Elsewhere:
    """What is out now for other reasons is what is expected to be out on any day. A node of it that goes out with its
    batch as well is not counted twice: whoever counts is told the names."""
    places = [
        place
        for place, limit in enumerate(campaign.limits)
        if limit.kind is LimitKind.OUT_AT_ONCE and limit.counts is Counts.ALL
    ]
    if not places:
        return Elsewhere({}, frozenset())
    fleet, holds = state.of(Fleet), state.of(Health).holds
    out = [
        each
        for each in labelled(campaign, fleet)
        if each.node.service is not Service.IN_SERVICE
        and not any(hold.id.startswith("campaign:") for hold in holds.get(each.node.id, ()))
    ]
    found = {}
    for place in places:
        limit = campaign.limits[place]
        lots = [Lot(each.node.sku, each.node.gpus, 1) for each in out if matches_node(limit.scope, each)]
        a100e = weights(fleet, {lot.sku for lot in lots}) if limit.unit is Measure.A100E else {}
        found[place] = amount(lots, limit.unit, a100e)
    return Elsewhere(found, frozenset(each.node.id for each in out))


def replan_campaign(
    state: State, run: Run, campaign: Campaign, *, search: Search, now: datetime, document: Field | None = None
) -> Planned:
    """A new plan that keeps what is over, under way or near, and moves as few of the other batches as it can."""
    from plimsoll.campaigns.solve.make import make_problem

    began = time.monotonic()
    fleet = state.of(Fleet)
    roll, days = make_units(campaign, fleet, document), make_days(campaign)
    kept = keep(run, campaign, roll, days, fleet, now=now)
    weight = campaign.replanning.move_weight

    def move_cost(unit: Unit, minute: int) -> float:
        before = kept.old.get(unit.name)
        return 0.0 if before is None or before == minute else weight * len(unit.batches)

    elsewhere = outages_elsewhere(state, campaign)
    problem = make_problem(
        campaign,
        fleet,
        kept.roll,
        days,
        frozen=kept.frozen,
        earliest=kept.earliest,
        move_cost=move_cost,
        elsewhere=elsewhere.amounts,
        already=elsewhere.nodes,
    )
    status, starts, bound, _ = _search(problem, kept.roll.units, search, near=kept.old)
    number = run.plan.number + 1
    if starts is None:
        plan = Plan(campaign.name, number, status, None, None, ())
        help_text = _more_days(state, run, campaign, now, search) if status is Status.INFEASIBLE else ""
        return Planned(plan, kept.roll, {}, time.monotonic() - began, None, (), kept.why, help_text=help_text)
    batches = batches_from(kept, starts, days)
    score = _score_of(campaign, fleet, batches, kept)
    costs = sum(move_cost(unit, starts[unit.name][0]) for unit in kept.roll.units)
    # The bound is on the total with what moves weigh: of the total alone it says nothing, so it is told apart.
    plan = Plan(campaign.name, number, status, score, None, batches)
    moved = batches_moved(run.plan, batches)
    proof = MoveProof(score.total + costs, bound)
    return Planned(plan, kept.roll, names_from(kept), time.monotonic() - began, None, moved, kept.why, proof)


def _more_days(state: State, run: Run, campaign: Campaign, now: datetime, search: Search) -> str:
    """How many days more would make a plan possible from where things stand; each tried."""
    from plimsoll.campaigns.solve.feasible import is_feasible
    from plimsoll.campaigns.solve.greedy import in_order
    from plimsoll.campaigns.solve.make import make_problem

    fleet, ends = state.of(Fleet), time.monotonic() + EXPLAIN_SECONDS / 2
    for more in range(1, DAYS_MORE_MAX + 1):
        if search.is_cancelled() or time.monotonic() >= ends:
            break
        longer = msgspec.structs.replace(campaign, deadline=campaign.deadline + timedelta(days=more))
        roll, days = make_units(longer, fleet), make_days(longer)
        kept = keep(run, longer, roll, days, fleet, now=now)
        elsewhere = outages_elsewhere(state, longer)
        problem = make_problem(
            longer,
            fleet,
            kept.roll,
            days,
            frozen=kept.frozen,
            earliest=kept.earliest,
            elsewhere=elsewhere.amounts,
            already=elsewhere.nodes,
        )
        found = is_feasible(problem, seconds=5.0, order=in_order(problem, kept.roll.units), seed=search.seed)
        if found.answer:
            return f"with {counted(more, 'day')} more (deadline: {longer.deadline}) a plan exists"
    return ""


def _score_of(campaign: Campaign, fleet: Fleet, batches: Sequence[Batch], kept: Kept) -> Score:
    """The objective of a plan of which a part has happened. What has happened may break the file, what is ahead not."""
    checked = check_plan(campaign, fleet, batches)
    settled = {name.removesuffix("~rest") for name in (*kept.frozen, *kept.offsets)}
    wrong = [each for each in checked.problems if each.unit and each.unit not in settled]
    assert not wrong, f"the new plan breaks its own file: {wrong[0]}"
    return checked.score
