"""Who is promised which quota. Pure.

A provider gives cores per VM family and region of a subscription. What is free is its limit, less what is used, less
what is promised to clusters that have not filled their scale sets yet: no two clusters are promised the same cores. Of
those that wait, the one that is needed first goes first, and nobody overtakes it to what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from plimsoll.lifecycle.model import ConditionType, Life, QuotaKey, SetSeen
from plimsoll.lifecycle.outside import UsageRead
from plimsoll.lifecycle.reasons import Reason
from plimsoll.lifecycle.recipe import QuotaSource, Recipe

TOTAL = "cores"
"""The family under which Azure counts all cores of a region together."""
_FAR = datetime.max.replace(tzinfo=UTC)


class Unread(msgspec.Struct, frozen=True):
    """Why quota could not be read, and what a person can do about it. `reason` tells whether one has to."""

    reason: Reason
    message: str
    next_step: str = ""


class QuotaRead(msgspec.Struct, frozen=True):
    """What was read of quota. `unread`: places of which nothing could be read, and why."""

    usages: dict[QuotaKey, UsageRead] = {}
    unread: dict[tuple[str, str, str], Unread] = {}
    """By subscription, region, and who would have said it."""

    def why_unread(self, life: Life, recipe: Recipe) -> Unread | None:
        """Why nobody can say what this cluster has."""
        return self.unread.get((life.spec.subscription, life.spec.region, recipe.quota.name))


class Short(msgspec.Struct, frozen=True):
    """Why a family is not enough for a cluster. `promised`: to clusters that come before it."""

    key: QuotaKey
    need: int
    limit: int
    used: int
    promised: int

    @property
    def missing(self) -> int:
        return self.need - (self.limit - self.used - self.promised)


class QuotaAnswer(msgspec.Struct, frozen=True):
    """Whether a cluster has the quota that it needs."""

    is_sufficient: bool | None
    """None: nobody could look."""
    reason: Reason
    message: str
    short: tuple[Short, ...] = ()
    next_step: str = ""


def needed(life: Life, recipe: Recipe) -> dict[str, int]:
    """The cores that a cluster needs, by family; nothing where its SKU is not known or nobody counts."""
    machine = recipe.machines.get(life.spec.sku)
    if machine is None or recipe.quota.source is QuotaSource.NONE:
        return {}
    cores = life.spec.nodes * machine.cores
    return {machine.family: cores, TOTAL: cores}


def outstanding(life: Life, recipe: Recipe, now: datetime) -> dict[str, int]:
    """What is promised to a cluster and does not show in what is used yet. Machines show a while after they came; until
    then they count twice rather than not at all. A file says what others use: in it a cluster never shows.
    """
    machine = recipe.machines.get(life.spec.sku)
    if machine is None or life.claimed_at is None or recipe.quota.source is QuotaSource.NONE:
        return {}
    settle = timedelta(seconds=recipe.quota.settle_seconds)
    shown = 0
    if recipe.quota.source is not QuotaSource.FILE:
        shown = sum(min(each.there, each.wanted) for each in life.sets.values() if _is_steady(each, settle, now))
    cores = max(0, life.spec.nodes - shown) * machine.cores
    return {machine.family: cores, TOTAL: cores} if cores else {}


def _is_steady(seen: SetSeen, settle: timedelta, now: datetime) -> bool:
    """Whether the machines of a set have been there for long enough to show. A moment that is still to come was written
    before the clock was set back."""
    since = seen.steady_since
    return since is not None and (now - since >= settle or since > now)


def in_order(lives: Iterable[Life]) -> list[Life]:
    """Who goes first: the one that is needed first, then the one that was planned first."""
    return sorted(lives, key=lambda life: (_wanted(life), life.planned.at, life.name))


def _wanted(life: Life) -> datetime:
    return life.spec.wanted or _FAR


def answer_quota(
    lives: Iterable[Life], recipes: Mapping[str, Recipe], read: QuotaRead, now: datetime
) -> dict[str, QuotaAnswer]:
    """Whether each cluster has its quota, or may be promised it now. `recipes` are those of the clusters, by name.

    Those that have a promise come first, in the order of their promises; what a limit that fell does not cover any
    more is missing to the last of them.
    """
    alive = [life for life in lives if life.gone_at is None]
    taken: dict[QuotaKey, int] = {}
    awaited: dict[QuotaKey, str] = {}
    answers: dict[str, QuotaAnswer] = {}
    holders = [life for life in alive if life.claimed_at is not None]
    of_others = _used_by_others(holders, recipes, read, now)
    for life in sorted(holders, key=lambda each: (each.claimed_at, each.name)):
        recipe = recipes[life.name]
        answers[life.name] = _holder(life, recipe, of_others, taken, now)
        _take(life, outstanding(life, recipe, now), taken)
    for life in in_order(life for life in alive if life.claimed_at is None and life.leaving is None):
        answers[life.name] = answer = _waiter(life, recipes[life.name], read, taken, awaited)
        if answer.is_sufficient and life.paused is None:
            _take(life, needed(life, recipes[life.name]), taken)
        elif answer.is_sufficient is False and life.paused is None:
            for short in answer.short:
                awaited.setdefault(short.key, life.name)
    return answers


def _used_by_others(
    holders: Iterable[Life], recipes: Mapping[str, Recipe], read: QuotaRead, now: datetime
) -> QuotaRead:
    """What is used for sure by others than those who have a promise and are being filled: nobody loses what is his
    because he uses it. Who waits for a promise is told the whole of what is used."""
    filling: dict[QuotaKey, int] = {}
    for life in holders:
        steps = recipes[life.name].setting(ConditionType.SCALE_SETS_READY)
        if any(life.work(step.name) is not None for step in steps):
            _take(life, outstanding(life, recipes[life.name], now), filling)
    usages = {
        key: UsageRead(key, usage.limit, max(0, usage.used - cores))
        for key, cores in filling.items()
        if (usage := read.usages.get(key)) is not None
    }
    return QuotaRead({**read.usages, **usages}, read.unread)


def _key(life: Life, family: str) -> QuotaKey:
    return QuotaKey(life.spec.subscription, life.spec.region, family)


def _take(life: Life, cores: Mapping[str, int], taken: dict[QuotaKey, int]) -> None:
    for family, count in cores.items():
        key = _key(life, family)
        taken[key] = taken.get(key, 0) + count


def _shorts(life: Life, cores: Mapping[str, int], read: QuotaRead, taken: Mapping[QuotaKey, int]) -> list[Short]:
    shorts = []
    for family, need in cores.items():
        key = _key(life, family)
        usage = read.usages.get(key)
        if usage is None and family == TOTAL:
            continue  # not every provider counts a region as a whole
        limit, used = (usage.limit, usage.used) if usage else (0, 0)
        short = Short(key, need, limit, used, taken.get(key, 0))
        if short.missing > 0:
            shorts.append(short)
    return shorts


def _holder(life: Life, recipe: Recipe, read: QuotaRead, taken: Mapping[QuotaKey, int], now: datetime) -> QuotaAnswer:
    left = outstanding(life, recipe, now)
    if recipe.quota.source is QuotaSource.NONE:
        return QuotaAnswer(True, Reason.NOT_NEEDED, "its recipe asks for no quota")
    if not left:
        return QuotaAnswer(True, Reason.QUOTA_IN_USE, "all of its machines are there")
    if (unread := read.why_unread(life, recipe)) is not None:
        return _unread(unread)
    shorts = _shorts(life, left, read, taken)
    if not shorts:
        cores = next(iter(left.values()))
        return QuotaAnswer(True, Reason.QUOTA_PROMISED, f"{cores:,} cores are promised to it, and to nobody else")
    told = "; ".join(map(_short_text, shorts))
    return QuotaAnswer(False, Reason.QUOTA_SHRANK, f"it was promised, and is not there any more: {told}", tuple(shorts))


def _waiter(
    life: Life,
    recipe: Recipe,
    read: QuotaRead,
    taken: Mapping[QuotaKey, int],
    awaited: Mapping[QuotaKey, str],
) -> QuotaAnswer:
    if recipe.quota.source is QuotaSource.NONE:
        return QuotaAnswer(True, Reason.NOT_NEEDED, "its recipe asks for no quota")
    cores = needed(life, recipe)
    if not cores:
        message = f"nobody knows which machines {life.spec.sku} is made of"
        return QuotaAnswer(False, Reason.SPEC_WRONG, message)
    if (unread := read.why_unread(life, recipe)) is not None:
        return _unread(unread)
    shorts = _shorts(life, cores, read, taken)
    if shorts:
        told = "; ".join(map(_short_text, shorts))
        return QuotaAnswer(False, Reason.QUOTA_SHORT, told, tuple(shorts))
    for family in cores:
        key = _key(life, family)
        if (earlier := awaited.get(key)) is not None:
            message = f"there is enough {family}, but {earlier} comes first and waits for more of it"
            return QuotaAnswer(False, Reason.QUOTA_FOR_EARLIER, message)
    need = next(iter(cores.values()))
    return QuotaAnswer(True, Reason.QUOTA_PROMISED, f"{need:,} cores are promised to it, and to nobody else")


def _unread(why: Unread) -> QuotaAnswer:
    return QuotaAnswer(None, why.reason, f"the quota can't be read: {why.message}", next_step=why.next_step)


def _short_text(short: Short) -> str:
    key = short.key
    promised = f", {short.promised:,} promised to others" if short.promised else ""
    family = "the region's total" if key.family == TOTAL else key.family
    missing = min(short.missing, short.need)  # what others are promised beyond the limit is missing to them
    return (
        f"{missing:,} of {short.need:,} cores of {family} are missing in {key.region} of {key.subscription}"
        f" (limit {short.limit:,}, {short.used:,} used{promised})"
    )


class Owed(msgspec.Struct, frozen=True):
    """What a provider has to give before all planned clusters can be made. `clusters`: those that wait for it."""

    key: QuotaKey
    limit: int
    used: int
    promised: int
    wanted: int
    clusters: tuple[str, ...]
    promised_to: Mapping[str, int] = {}
    """The clusters that the promised cores are for."""

    @property
    def missing(self) -> int:
        return max(0, self.wanted - (self.limit - self.used - self.promised))


def quota_owed(lives: Iterable[Life], recipes: Mapping[str, Recipe], read: QuotaRead, now: datetime) -> list[Owed]:
    """Per subscription, region and family: what is there, what is promised, and what is still owed to whom."""
    alive = [life for life in lives if life.gone_at is None]
    promised: dict[QuotaKey, int] = {}
    wanted: dict[QuotaKey, int] = {}
    waiting: dict[QuotaKey, list[str]] = {}
    holders: dict[QuotaKey, dict[str, int]] = {}
    for life in in_order(alive):
        recipe = recipes[life.name]
        if life.claimed_at is not None:
            mine: dict[QuotaKey, int] = {}
            _take(life, outstanding(life, recipe, now), mine)
            for key, count in mine.items():
                promised[key] = promised.get(key, 0) + count
                holders.setdefault(key, {}).update({life.name: count} if count else {})
            continue
        for family, count in needed(life, recipe).items():
            key = _key(life, family)
            if family == TOTAL and key not in read.usages:
                continue
            wanted[key] = wanted.get(key, 0) + count
            waiting.setdefault(key, []).append(life.name)
    owed = []
    for key in sorted({*promised, *wanted}):
        usage = read.usages.get(key)
        if usage is None and key.family == TOTAL:
            continue
        limit, used = (usage.limit, usage.used) if usage else (0, 0)
        clusters = tuple(waiting.get(key, ()))
        owed.append(Owed(key, limit, used, promised.get(key, 0), wanted.get(key, 0), clusters, holders.get(key, {})))
    return owed
