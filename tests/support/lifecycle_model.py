"""What may be true of clusters that are being made, told a second time: from the words of the design, not from the
code. `Reader` follows the ledger; the checks raise AssertionError with the names of those concerned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase
from plimsoll.ledger.model import Change, Event
from plimsoll.lifecycle import changes as told
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Condition, ConditionType, Going, Move, QuotaKey, Severity, Spec, Truth
from plimsoll.lifecycle.outside import Order
from plimsoll.lifecycle.reasons import BY_CODE
from plimsoll.lifecycle.recipe import QuotaSource, Recipe
from plimsoll.state.state import State
from tests.support.slipway import Cloud, command_problem

NINE = [
    "SpecValid",
    "QuotaSufficient",
    "CheckedIn",
    "InfrastructureApplied",
    "ScaleSetsReady",
    "ServicesDeployed",
    "DependenciesApplied",
    "HealthGreen",
    "Available",
]
BUILT = ["CheckedIn", "InfrastructureApplied", "ScaleSetsReady"]
NEVER = datetime.max.replace(tzinfo=UTC)
FOREIGN_STEPS = ("az login",)
"""What a provider says to type; the command line knows nothing of it."""


@dataclass
class Known:
    """One cluster, as far as the ledger has told."""

    name: str
    spec: Spec
    planned: datetime
    recipe: Recipe
    generation: int = 1
    is_promised: bool = False
    is_checked_in: bool = False
    is_paused: bool = False
    is_leaving: bool = False
    is_available: bool = False
    is_gone: bool = False
    going: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, Condition] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether it is where it was to go."""
        return self.is_gone or (self.is_available and not self.is_leaving)

    @property
    def order(self) -> tuple[datetime, datetime, str]:
        return self.spec.wanted or NEVER, self.planned, self.name

    @property
    def needs(self) -> dict[QuotaKey, int]:
        """Cores by what is counted: the family, and the region as a whole."""
        if self.recipe.quota.source is QuotaSource.NONE:
            return {}
        machine, spec = self.recipe.machines[self.spec.sku], self.spec
        cores = spec.nodes * machine.cores
        return {QuotaKey(spec.subscription, spec.region, each): cores for each in (machine.family, "cores")}

    @property
    def wish(self) -> tuple[object, ...]:
        """What quota is promised for: so many machines of a kind, somewhere, made in some way."""
        spec = self.spec
        return spec.subscription, spec.region, spec.sku, spec.nodes, self.recipe.name, self.recipe.version

    def is_done(self, step: str) -> bool:
        return self.going.get(step) == Going.DONE

    @property
    def phase(self) -> Phase:
        """Planned, until there is quota; provisioning, until it is built; provisioned, until it was let in."""
        if self.is_gone:
            return Phase.RETIRED
        if self.is_available:
            return Phase.PRODUCTION
        if not self.is_promised:
            return Phase.PLANNED
        is_built = all(name in self.conditions and self.conditions[name].status == "True" for name in BUILT)
        return Phase.PROVISIONED if is_built else Phase.PROVISIONING


class Reader:
    """Follows the ledger, and judges what is written where it is written."""

    def __init__(self) -> None:
        self.revision = 0
        self.clusters: dict[str, Known] = {}

    def read(self, event: Event, change: Change, recipes: Mapping[tuple[str, int], Recipe]) -> bool:
        """Take in one event; whether it promises quota."""
        assert event.revision == self.revision + 1, "an event was left out"
        self.revision = event.revision
        if isinstance(change, told.ClusterPlanned):
            recipe = recipes[change.spec.recipe, change.recipe_version]
            self.clusters[change.cluster] = Known(change.cluster, change.spec, event.effective_time, recipe)
            return False
        known = self.clusters.get(event.subject.removeprefix("cluster/"))
        if known is None or not event.subject.startswith("cluster/"):
            return False
        if isinstance(change, told.ClusterRespecified):
            _respecify(known, change.spec, recipes[change.spec.recipe, change.recipe_version])
        elif isinstance(change, told.RecipeMigrated):
            _respecify(known, known.spec, recipes[change.recipe, change.version])
        elif isinstance(change, told.ConditionsChanged):
            _conditions(known, change, event.effective_time)
        elif isinstance(change, told.QuotaClaimed):
            assert not known.is_promised, f"{known.name} is promised quota twice"
            assert not known.is_paused, f"{known.name} is promised quota while it is paused"
            known.is_promised = True
            return True
        elif isinstance(change, told.QuotaReleased):
            assert not known.going, f"quota is taken from {known.name}, which has begun"
            known.is_promised = False
        else:
            _take(known, change)
        return False

    def check_settled(self, state: State) -> None:
        """What holds after every pass."""
        for known in self.clusters.values():
            assert set(known.conditions) == set(NINE), f"{known.name}: {known.conditions}"
            if not known.is_gone:
                looked = {each.generation for each in known.conditions.values()}
                assert looked == {known.generation}, f"{known.name} is at {known.generation}, looked at {looked}"
            cluster = state.of(Fleet).clusters[known.name]
            assert cluster.phase is known.phase, (
                f"the fleet says that {known.name} is {cluster.phase}, not {known.phase}"
            )
            life = state.of(Lives).lives[known.name]
            assert {step: str(work.going) for step, work in life.works.items()} == known.going


def _respecify(known: Known, spec: Spec, recipe: Recipe) -> None:
    """A promise is one for what was wanted then: whoever wants something else waits anew, until it has begun."""
    before = known.wish
    known.spec, known.recipe, known.generation = spec, recipe, known.generation + 1
    if not known.going and before != known.wish:
        known.is_promised = False


def _take(known: Known, change: Change) -> None:
    if isinstance(change, told.ClusterCheckedIn):
        known.is_checked_in = True
    elif isinstance(change, told.ClusterPaused | told.ClusterResumed):
        known.is_paused = isinstance(change, told.ClusterPaused)
    elif isinstance(change, told.ClusterLeaving):
        known.is_leaving, known.is_paused = True, False
    elif isinstance(change, told.ClusterAvailable):
        is_stopped = known.is_leaving or known.is_paused
        assert not is_stopped, f"{known.name} is let in, and is not to go on"
        assert known.is_promised, f"{known.name} is let in without quota"
        bad = [name for name in NINE[:-1] if known.conditions[name].status != "True"]
        assert not bad, f"{known.name} is let in, although not: {bad}"
        known.is_available = True
    elif isinstance(change, told.ClusterGone):
        assert known.is_leaving, f"{known.name} is gone, and nobody has asked for that"
        outside = [step for step, going in known.going.items() if Going(going).is_outside]
        assert not outside, f"{known.name} is gone while {outside} may still run"
        if known.going:
            left = [step.name for step in known.recipe.out if not known.is_done(step.name)]
            assert not left, f"{known.name} is gone before {left}"
        known.is_gone, known.is_promised, known.is_available = True, False, False
    elif isinstance(change, told.StepIntended):
        before = known.going.get(change.step)
        assert before in (None, "retrying"), f"{change.step} of {known.name} is to begin while it is {before}"
        known.going[change.step] = "intended"
    elif isinstance(change, told.StepSeen):
        assert known.going[change.step] in ("intended", "running", "blocked"), f"{change} after it had ended"
        known.going[change.step] = str(change.going)
    elif isinstance(change, told.StepRetried):
        known.going[change.step] = "retrying"
    elif isinstance(change, told.StepWaived):
        known.going[change.step] = "done"


def _conditions(known: Known, change: told.ConditionsChanged, at: datetime) -> None:
    for each in change.conditions:
        before = known.conditions.get(each.type)
        assert each.reason in BY_CODE, f"{each.reason} is no reason"
        assert each.message, f"{each.type} of {known.name} says nothing"
        if before is None or before.status != each.status:
            assert each.since == at, f"{each.type} of {known.name} changed at {at}, not at {each.since}"
        elif before.since <= at:
            assert each.since == before.since, f"{each.type} of {known.name} did not change at {each.since}"
        if before is not None and max(before.since, before.changed) <= at:
            assert _news(before) != _news(each), f"{each.type} of {known.name} is told again: {each}"
        if each.status is Truth.TRUE:
            assert (each.severity, each.move) == (Severity.INFO, Move.NOBODY)
        elif each.move is Move.PERSON and each.next_step not in FOREIGN_STEPS:
            assert not command_problem(each.next_step), each
        known.conditions[each.type] = each


def _news(condition: Condition) -> tuple[object, ...]:
    each = condition
    return each.status, each.reason, each.message, each.severity, each.move, each.next_step, each.generation


# What a call must have behind it.


def check_begin(reader: Reader, order: Order) -> None:
    """Nothing begins unasked, before its turn, or without quota."""
    known, step = reader.clusters[order.life.name], order.step
    name = f"{step.name} of {known.name}"
    assert not known.is_paused, f"{name} begins while the cluster is paused"
    assert known.going.get(step.name) == "intended", f"{name} begins while it is {known.going.get(step.name)}"
    if step in known.recipe.out:
        assert known.is_leaving, f"{name} begins, and nobody has asked for that"
        outside = [each.name for each in known.recipe.steps if known.going.get(each.name) in ("running", "blocked")]
        assert not outside, f"{name} begins while {outside} may still run"
        return
    assert not known.is_leaving, f"{name} begins while the cluster leaves"
    assert known.is_promised, f"{name} begins without quota"
    gate = next(each.name for each in known.recipe.steps if each.sets is ConditionType.CHECKED_IN)
    assert known.is_checked_in, f"{name} begins before somebody has checked the cluster in"
    assert step.name == gate or known.is_done(gate), f"{name} begins before the check-in is done"
    missing = [need for need in step.needs if not known.is_done(need)]
    assert not missing, f"{name} begins before {missing}"


# Who is promised what.


def check_promises(reader: Reader, promised: list[str], cloud: Cloud) -> None:
    """After a pass that promised quota: nobody was promised what is another's, and nobody has overtaken."""
    clusters = reader.clusters.values()
    taken: dict[QuotaKey, int] = {}
    for each in clusters:
        there = sum(cloud.machines.get(each.name, {}).values()) * _cores(each)
        for key, cores in each.needs.items():
            # Whoever is gone may have left machines behind; whoever waits has none.
            taken[key] = taken.get(key, 0) + (cores if each.is_promised else there)
    free = {key: limit - cloud.others.get(key, 0) - taken.get(key, 0) for key, limit in cloud.limits.items()}
    for name in promised:
        mine = reader.clusters[name].needs
        for key in mine:
            if key in free or key.family != "cores":
                assert free.get(key, -1) >= 0, f"{name} is promised {key}, of which {-free.get(key, 0)} are another's"
        _check_turn(reader, name, free)


def _cores(known: Known) -> int:
    return known.recipe.machines[known.spec.sku].cores


def _check_turn(reader: Reader, name: str, free: Mapping[QuotaKey, int]) -> None:
    late = reader.clusters[name]
    if not late.needs:
        return  # nobody is overtaken by one that needs nothing
    for other in reader.clusters.values():
        waits = not (other.is_promised or other.is_paused or other.is_leaving or other.is_gone)
        if not waits or other.order >= late.order or not other.needs:
            continue
        # A family that the provider does not know has nothing; not every provider counts a region as a whole.
        counted = [key for key in other.needs if key in free or key.family != "cores"]
        before = {key: free.get(key, 0) + late.needs.get(key, 0) for key in counted}
        short = [key for key, cores in before.items() if cores < other.needs[key]]
        assert short, f"{late.name} is promised what {other.name} could have had, which comes first"
        both = [key for key in short if key in late.needs]
        assert not both, f"{late.name} is promised {both}, for which {other.name} waits and comes first"
