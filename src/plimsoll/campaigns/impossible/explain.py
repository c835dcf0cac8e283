"""Why no plan exists: sums that can't come out, rules that collide, and what is the least to give up. Pure.

`find_conflict` names an irreducible set of rules: together they allow no plan, without any one of them there is one.
`find_relaxations` says for each rule of it what is the cheapest change that makes a plan possible by itself. Sums
decide what they can; whether a plan exists is asked of `is_feasible`, which must answer True only with a plan in hand,
False only with a proof, and None where it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from plimsoll.campaigns.impossible.allows import Allows
from plimsoll.campaigns.impossible.arithmetic import Shortfall, find_shortfalls
from plimsoll.campaigns.impossible.ground import Ground, limit_bases, limit_ceilings
from plimsoll.campaigns.impossible.ladders import Ladder, Step, ladders_of
from plimsoll.campaigns.impossible.rules import DEADLINE, Rule, latest_deadline, roll_without, rules_of, without
from plimsoll.campaigns.model import Campaign
from plimsoll.campaigns.units import Roll, make_units
from plimsoll.fleet.fold import Fleet

IsFeasible = Callable[[Campaign], bool | None]
IsCancelled = Callable[[], bool]
_NOTHING: Mapping[int, float] = {}

STEPS_ASKED_MAX = 12
"""Steps of one rule that `is_feasible` is asked about."""


class Colliding(msgspec.Struct, frozen=True):
    """A rule that collides with others."""

    limit: str
    text: str


class Relaxation(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """The cheapest change of one rule that makes a plan possible. `possible`: None where that could not be decided."""

    limit: str
    change: str
    before: object
    after: object
    possible: bool | None
    text: str


class Conflict(msgspec.Struct, frozen=True):
    """Rules that allow no plan together. `is_irreducible`: a plan is proved to exist without any one of them."""

    rules: tuple[Colliding, ...]
    is_irreducible: bool


class Explained(msgspec.Struct, frozen=True):
    """Why there is no plan."""

    arithmetic: tuple[Shortfall, ...]
    conflict: tuple[Colliding, ...]
    is_irreducible: bool
    relaxations: tuple[Relaxation, ...]

    def conflict_json(self) -> list[dict[str, object]]:
        return [msgspec.to_builtins(each) for each in self.conflict]

    def relaxations_json(self) -> list[dict[str, object]]:
        return [msgspec.to_builtins(each) for each in self.relaxations]


def explain(
    campaign: Campaign,
    fleet: Fleet,
    is_feasible: IsFeasible | None = None,
    *,
    roll: Roll | None = None,
    elsewhere: Mapping[int, float] = _NOTHING,
    is_cancelled: IsCancelled = lambda: False,
) -> Explained:
    """Why there is no plan. What is not decided when it is cancelled is left undecided, and said so.

    `elsewhere`: what other outages take of limits that count all, by their place. Without `is_feasible` the search of
    `allows` decides.
    """
    units = make_units(campaign, fleet) if roll is None else roll
    if is_feasible is None:
        is_feasible = Allows(fleet, elsewhere=elsewhere)
    court = Court(campaign, fleet, is_feasible, units, is_cancelled=is_cancelled, elsewhere=elsewhere)
    conflict = find_conflict(court)
    relaxations = find_relaxations(court, conflict)
    return Explained(tuple(court.shortfalls), conflict.rules, conflict.is_irreducible, tuple(relaxations))


class Court:
    """Who decides whether a file allows a plan: sums first, which only ever say no, then whoever can search."""

    def __init__(
        self,
        campaign: Campaign,
        fleet: Fleet,
        is_feasible: IsFeasible,
        roll: Roll,
        *,
        is_cancelled: IsCancelled = lambda: False,
        elsewhere: Mapping[int, float] = _NOTHING,
    ) -> None:
        self.campaign, self.fleet, self.roll = campaign, fleet, roll
        self._is_feasible, self.is_cancelled, self._elsewhere = is_feasible, is_cancelled, elsewhere
        self._bases = limit_bases(campaign, fleet)
        self._ceilings = self._ceilings_of(campaign)
        self.ground = Ground(campaign, fleet, roll, self._ceilings)
        self.shortfalls = find_shortfalls(Ground(campaign, fleet, roll, self._ceilings))
        self.rules = rules_of(campaign, roll)
        self._known: dict[frozenset[str], bool | None] = {}

    def _ceilings_of(self, campaign: Campaign) -> dict[int, float]:
        found = limit_ceilings(campaign, self._bases)
        return {place: most - self._elsewhere.get(place, 0.0) for place, most in found.items()}

    def sums_say_no(self, kept: Collection[str]) -> bool:
        """Whether the file with these rules alone is impossible by arithmetic."""
        dropped = self._others(kept)
        roll = roll_without(self.campaign, self.roll, dropped)
        if not roll.units:
            return False
        ground = Ground(without(self.campaign, self.roll, dropped), self.fleet, roll, self._ceilings)
        return bool(find_shortfalls(ground))

    def allows(self, kept: Collection[str]) -> bool | None:
        """Whether the file with these rules alone allows a plan."""
        key = frozenset(kept)
        if key not in self._known:
            self._known[key] = self._decide(key)
        return self._known[key]

    def _decide(self, kept: Collection[str]) -> bool | None:
        dropped = self._others(kept)
        if not roll_without(self.campaign, self.roll, dropped).units:
            return True  # nothing is to be done
        if self.sums_say_no(kept):
            return False
        if self.is_cancelled():
            return None
        return self._is_feasible(without(self.campaign, self.roll, dropped))

    def _others(self, kept: Collection[str]) -> set[str]:
        return {rule.name for rule in self.rules} - {*kept}

    def step_is_short(self, step: Step) -> list[Shortfall]:
        """The sums of a file with a changed rule. Its units are made anew: a change may cut them otherwise."""
        roll = self.roll
        if step.campaign.work != self.campaign.work or step.campaign.no_fly != self.campaign.no_fly:
            roll = make_units(step.campaign, self.fleet)
        elif step.campaign.canary is None and self.campaign.canary is not None:
            roll = roll_without(self.campaign, roll, ("canary",))
        ceilings = self._ceilings
        if step.campaign.limits != self.campaign.limits:
            ceilings = self._ceilings_of(step.campaign)
        return find_shortfalls(Ground(step.campaign, self.fleet, roll, ceilings))

    def step_allows(self, step: Step) -> bool | None:
        return None if self.is_cancelled() else self._is_feasible(step.campaign)


# What collides.


def find_conflict(court: Court) -> Conflict:
    """An irreducible set of rules that allow no plan; where a sum proves it, within the rules of that sum."""
    start = [rule.name for rule in court.rules]
    for shortfall in court.shortfalls:
        named = [name for name in start if name in shortfall.rules]
        if court.sums_say_no(named):
            start = _fewest(named, court.sums_say_no)
            break
    unsure: list[bool] = []

    def allows_none(kept: Collection[str]) -> bool:
        found = court.allows(kept)
        if found is None:
            unsure.append(True)
        return found is False

    names = _fewest(start, allows_none) if len(start) <= 4 else _quick_explain(start, allows_none)
    is_proved = court.allows(names) is False or names == [rule.name for rule in court.rules]
    texts = {rule.name: rule.text for rule in court.rules}
    found = tuple(Colliding(name, texts[name]) for name in names)
    return Conflict(found, is_irreducible=is_proved and not unsure)


def _fewest(names: Sequence[str], is_impossible: Callable[[Collection[str]], bool]) -> list[str]:
    """Leave out one after the other what is not needed for it to be impossible."""
    kept = list(names)
    for name in names:
        fewer = [each for each in kept if each != name]
        if is_impossible(fewer):
            kept = fewer
    return kept


def _quick_explain(names: Sequence[str], is_impossible: Callable[[Collection[str]], bool]) -> list[str]:
    """The same by halves (QuickXplain): few questions where few of many rules collide."""

    def search(background: list[str], is_new: bool, rest: list[str]) -> list[str]:
        if is_new and is_impossible(background):
            return []
        if len(rest) == 1:
            return rest
        half = len(rest) // 2
        first, second = rest[:half], rest[half:]
        from_second = search([*background, *first], bool(first), second)
        from_first = search([*background, *from_second], bool(from_second), first)
        return [*from_first, *from_second]

    found = search([], is_new=False, rest=list(names)) if names else []
    return [name for name in names if name in found]


# What to give up.


def find_relaxations(court: Court, conflict: Conflict) -> list[Relaxation]:
    """For each rule of a conflict the cheapest change of it alone that makes a plan possible."""
    return [_relax(court, Rule(each.limit, each.text)) for each in conflict.rules]


def _relax(court: Court, rule: Rule) -> Relaxation:
    found = [_first_that_helps(court, ladder) for ladder in ladders_of(rule.name, court.ground)]
    helpful = [(place, step, is_sure) for place, step, is_sure, _ in found if step is not None]
    is_sure = all(each for _, _, each, _ in found)
    why = next((reason for _, _, _, reason in found if reason), "")
    if helpful:
        _, step, is_least = min(helpful, key=lambda each: each[0])
        text = f"{step.change}: a plan exists" + ("" if is_least else "; less may do")
        return Relaxation(rule.name, step.change, step.before, step.after, True, text)
    if not is_sure:
        text = f"whether relaxing {rule.name} ({rule.text}) alone makes a plan possible was not decided in time"
        return Relaxation(rule.name, "", None, None, None, text)
    far = f" until {latest_deadline(court.ground.campaign, court.ground.roll)}" if rule.name == DEADLINE else ""
    text = f"relaxing {rule.name} ({rule.text}){far} alone does not help" + (f": {why}" if why else "")
    return Relaxation(rule.name, "", None, None, False, text)


class Helps(NamedTuple):
    """The first step of a ladder with a plan, if any; whether all before it have none; and why the last has none."""

    place: int
    step: Step | None
    is_sure: bool
    why: str = ""


def _first_that_helps(court: Court, ladder: Ladder) -> Helps:
    steps = ladder.steps
    if not steps:
        return Helps(0, None, True)
    if not ladder.is_rising:
        return _one_by_one(court, steps)
    short = court.step_is_short(steps[-1])
    if short:
        return Helps(0, None, True, short[0].text)
    low, high = 0, len(steps) - 1  # the first step that sums do not rule out
    while low < high:
        middle = (low + high) // 2
        if court.step_is_short(steps[middle]):
            low = middle + 1
        else:
            high = middle
    return _climb(court, steps, low)


def _climb(court: Court, steps: Sequence[Step], low: int) -> Helps:
    """Up from a step in strides that double, until a plan is found; then back by halves.

    Where the first does not help the last is asked: if all that can be given up does not help, nothing in between does.
    """
    known: dict[int, bool | None] = {low: court.step_allows(steps[low])}
    place, stride, below, last = low, 1, low - 1, len(steps) - 1
    if not known[low]:
        known[last] = court.step_allows(steps[last])
        if known[last] is False:
            return Helps(last, None, is_sure=True)
    while not known.get(place) and place < last and len(known) < STEPS_ASKED_MAX and not court.is_cancelled():
        below, place, stride = place, min(place + stride, last), stride * 2
        if place not in known:
            known[place] = court.step_allows(steps[place])
    if not known.get(place):
        place = last
    if not known.get(place):
        return Helps(last, None, is_sure=False)
    while place - below > 1 and len(known) < STEPS_ASKED_MAX and not court.is_cancelled():
        middle = (place + below) // 2
        known[middle] = court.step_allows(steps[middle])
        if known[middle]:
            place = middle
        else:
            below = middle
    is_least = place - below <= 1 and (below < low or known.get(below) is False)
    return Helps(place, steps[place], is_least)


def _one_by_one(court: Court, steps: Sequence[Step]) -> Helps:
    is_sure, reasons = True, []
    for place, step in enumerate(steps[:STEPS_ASKED_MAX]):
        short = court.step_is_short(step)
        reasons.append({each.code: each.text for each in short})
        if short:
            continue
        found = court.step_allows(step)
        if found:
            return Helps(place, step, is_sure)
        is_sure = is_sure and found is False
    lasting = [text for code, text in reasons[-1].items() if all(code in each for each in reasons)]
    return Helps(0, None, is_sure, lasting[-1] if lasting else "")
