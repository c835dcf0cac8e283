"""Clusters with effects: records what people say, and makes one pass after another over all clusters.

A pass looks outside, decides, records what it is about to do, does it, and records what came of it. All clusters share
the commits, so that hundreds cost little more than one. Nothing is called outside whose intent is not in the ledger; a
call that is late is not made, because somebody else may lead by now.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple, TypeVar

from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import Fenced, PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.decide import Memories
from plimsoll.health.service import load_memories
from plimsoll.ledger.model import Draft, Event
from plimsoll.ledger.store import Leadership
from plimsoll.lifecycle.claims import TOTAL, QuotaRead, Unread, outstanding
from plimsoll.lifecycle.decide import CONTROLLER, Call, Visit, answered, operation_of
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import ConditionType, Going, Life, QuotaKey, plain_name
from plimsoll.lifecycle.nodes import may_validate
from plimsoll.lifecycle.outside import Look, Order, Outside, Provider, StepKey, UsageRead, as_trouble, set_wishes
from plimsoll.lifecycle.reasons import Reason
from plimsoll.lifecycle.recipe import QuotaSource, Recipe, Step
from plimsoll.lifecycle.world import World
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import format_time, parse_time

ROLE = "lifecycle"
"""In what a controller of clusters leads; campaigns have a leader of their own."""
ROUNDS_MAX = 12
"""How often one pass decides again because what it did makes more possible."""
CALLS_AT_ONCE = 16
CALL_FRESH_SECONDS = 10.0
"""A call is made within so long after its intent was recorded, or not in this pass."""
USAGE_SCOPE = "lifecycle quota"
USAGE_KEPT_SECONDS = 60.0

D = TypeVar("D")
Seen = dict[StepKey, tuple[str, Look | ProviderTrouble]]


class Did(NamedTuple):
    """What a pass did about a cluster."""

    cluster: str
    what: str
    is_failed: bool = False


def say(
    keeper: Keeper,
    decide: Callable[[State, datetime], tuple[D, Sequence[Draft]]],
    *,
    actor: str,
    reason: str = "",
    is_dry_run: bool = False,
) -> tuple[D, list[Event]]:
    """Record what somebody said."""
    return keeper.say(decide, actor=actor, reason=reason, reads=("cluster/*", "recipe/*"), is_dry_run=is_dry_run)


def run_pass(
    keeper: Keeper, outside: Outside, *, lead: Leadership | None = None, only: Collection[str] = ()
) -> list[Did]:
    """Bring every cluster, or those named, as far as it can go now."""
    return Pass(keeper, outside, lead, only).go()


class Pass:
    """One pass over the clusters."""

    def __init__(self, keeper: Keeper, outside: Outside, lead: Leadership | None, only: Collection[str] = ()) -> None:
        self._keeper, self._outside, self._lead, self._only = keeper, outside, lead, frozenset(only)
        self._did: list[Did] = []
        self._decided = time.monotonic()
        self._places = {kind: _place(provider) for kind, provider in outside.providers.items()}
        self._settles = {kind: provider.settle_seconds for kind, provider in outside.providers.items()}

    def go(self) -> list[Did]:
        if self._lead is not None and not self._lead.is_held():
            # Whoever lost it would begin nothing any more, and never say so where there is nothing to record.
            raise Fenced(
                "fenced",
                f"this process led in epoch {self._lead.epoch}, and the connection that held the lead is gone",
                next_step="start it again: plimsoll cluster run --every 30s; it stands by where another leads",
                epoch=self._lead.epoch,
            )
        state = self._keeper.state()
        lives = self._lives(state)
        if not lives:
            return self._did
        read = self._read_quota(state)
        seen = self._look(state, lives)
        for _ in range(ROUNDS_MAX):
            calls, events = self._decide(seen, read)
            if not events and not calls:
                break
            answers = self._call(calls)
            self._record_answers(answers, read)
            # What was seen before is taken in; what nobody could see is still not to be seen.
            called = {(call.cluster, call.step) for call in calls}
            seen = {
                key: each for key, each in seen.items() if isinstance(each[1], ProviderTrouble) and key not in called
            }
        return self._did

    def _lives(self, state: State) -> list[Life]:
        lives = state.of(Lives).lives.values()
        return [life for life in lives if life.gone_at is None and (not self._only or life.name in self._only)]

    # Looking.

    def _read_quota(self, state: State) -> QuotaRead:
        """How much quota there is wherever a cluster needs some. What can't be read is said, not guessed."""
        lives, now = state.of(Lives), self._keeper.ledger.clock()
        usages: dict[QuotaKey, UsageRead] = {}
        unread: dict[tuple[str, str, str], Unread] = {}
        machines = (machine for recipe in lives.recipes.values() for machine in recipe.machines.values())
        counted = {TOTAL, *(plain_name(machine.family) for machine in machines)}
        questions: dict[tuple[str, str, str, int], Recipe] = {}  # recipes have sources and families of their own
        for life in lives.lives.values():
            recipe = lives.recipe_of(life)
            if life.gone_at is not None or recipe.quota.source is QuotaSource.NONE:
                continue
            if life.claimed_at is None or outstanding(life, recipe, now):
                questions[life.spec.subscription, life.spec.region, recipe.name, recipe.version] = recipe

        def ask(question: tuple[str, str, str, int]) -> Sequence[UsageRead] | Unread:
            try:
                return self._outside.quota.usages(questions[question], *question[:2])
            except Exception as error:  # of one place; the clusters of the others go on
                return _unread(error)

        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            answers = list(pool.map(ask, questions))
        asked = list(zip(questions, answers, strict=True))
        # Of one place the provider itself is believed, rather than a file about it.
        for question, answer in sorted(asked, key=lambda pair: questions[pair[0]].quota.source is QuotaSource.AZURE):
            if isinstance(answer, Unread):
                unread[*question[:2], questions[question].quota.name] = answer
            else:
                usages |= {each.key: each for each in answer if plain_name(each.key.family) in counted}
        keep_usages(self._keeper, usages, now)
        return QuotaRead(usages, unread)

    def _look(self, state: State, lives: Sequence[Life]) -> Seen:
        orders: dict[str, list[Order]] = defaultdict(list)
        tables = state.of(Lives)
        for life in lives:
            recipe = tables.recipe_of(life)
            for work in life.works.values():
                step = recipe.step(work.step)
                is_watched = work.going.is_outside or (
                    work.going is Going.DONE and step is not None and step.scale_sets and life.leaving is None
                )
                if step is not None and is_watched and step.kind in self._outside.providers:
                    orders[step.kind].append(order_of(state, life, recipe, step))
        seen: Seen = {}
        for kind, asked in orders.items():
            operations = {order.key: order.operation for order in asked}
            looked = look_safely(self._outside.providers[kind], asked)
            seen |= {key: (operations[key], found) for key, found in looked.items()}
        return seen

    # Deciding and doing.

    def _decide(self, seen: Seen, read: QuotaRead) -> tuple[list[Call], list[Event]]:
        def decide(state: State) -> tuple[tuple[list[Call], list[Did]], list[Draft]]:
            self._decided = time.monotonic()  # before its commit: whoever leads next counts from what it says
            world = self._world(state, seen, read)
            drafts: list[Draft] = []
            calls: list[Call] = []
            did: list[Did] = []
            for life in self._lives(state):
                try:
                    visit = Visit(life, world).go()
                except PlimsollError as error:  # of one cluster; the others go on
                    did.append(Did(life.name, error.message, is_failed=True))
                    continue
                drafts += visit.drafts
                calls += visit.calls
                did += [Did(life.name, text) for text in tell(visit)]
            return (calls, did), drafts

        (calls, did), events = self._keeper.decide_and_commit(
            decide, actor=CONTROLLER, reads=("cluster/*", "recipe/*"), epoch=self._epoch
        )
        self._did += [each for each in did if each not in self._did]
        return calls, events

    @property
    def _epoch(self) -> int | None:
        return None if self._lead is None else self._lead.epoch

    def _world(self, state: State, seen: Seen, read: QuotaRead) -> World:
        return World(
            state,
            self._keeper.ledger.clock(),
            looks=seen,
            read=read,
            places=self._places,
            settles=self._settles,
            memories=self._memories(state),
        )

    def _memories(self, state: State) -> Memories:
        """What is remembered of the signals of nodes that are about to be let in."""
        lives = state.of(Lives)
        checked = {
            life.name
            for life in self._lives(state)
            if life.available_at is None and life.works and may_validate(life, lives.recipe_of(life))
        }
        if not checked:
            return {}
        waiting = (Service.JOINING, Service.VALIDATING)
        nodes = state.of(Fleet).nodes.values()
        names = [node.id for node in nodes if node.cluster in checked and node.service in waiting]
        return load_memories(self._keeper.ledger.store, names) if names else {}

    def _call(self, calls: Sequence[Call]) -> list[tuple[Call, Look | ProviderTrouble]]:
        """Begin what was intended, many at a time."""
        if not calls or (self._lead is not None and not self._lead.is_held()):
            return []
        state, decided = self._keeper.state(), self._decided

        def begin(call: Call) -> tuple[Call, Look | ProviderTrouble] | None:
            life = state.of(Lives).lives[call.cluster]
            recipe = state.of(Lives).recipe_of(life)
            step = recipe.step(call.step)
            work = life.work(call.step)
            if step is None or work is None or (work.going, work.operation) != (Going.INTENDED, call.operation):
                return None  # somebody has said otherwise in the meantime
            if time.monotonic() - decided > CALL_FRESH_SECONDS:
                return None  # whoever leads next may look for it by now: it is looked for first
            provider = self._outside.providers[step.kind]
            return call, begin_safely(provider, order_of(state, life, recipe, step))

        if len(calls) == 1:
            answers = [begin(calls[0])]
        else:
            with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
                answers = list(pool.map(begin, calls))
        return [answer for answer in answers if answer is not None]

    def _record_answers(self, answers: Sequence[tuple[Call, Look | ProviderTrouble]], read: QuotaRead) -> None:
        if not answers:
            return

        def decide(state: State) -> tuple[None, list[Draft]]:
            world = self._world(state, {}, read)
            drafts: list[Draft] = []
            for call, answer in answers:
                life = state.of(Lives).lives[call.cluster]
                drafts += answered(life, call, answer, world)
            return None, drafts

        self._keeper.decide_and_commit(decide, actor=CONTROLLER, reads=("cluster/*",), epoch=self._epoch)


def _unread(error: Exception) -> Unread:
    """Why quota can't be read: a file that is wrong, or a login, waits for a person; an answer that did not come for
    the next pass."""
    trouble = as_trouble(error)
    reasons = {TroubleKind.UNREACHABLE: Reason.QUOTA_UNREADABLE, TroubleKind.BUSY: Reason.QUOTA_UNREADABLE}
    reasons[TroubleKind.CREDENTIALS] = Reason.CREDENTIALS
    return Unread(reasons.get(trouble.kind, Reason.QUOTA_SOURCE_WRONG), trouble.message, trouble.next_step)


def _place(provider: Provider) -> str:
    """Where a provider begins; one that can't tell says so when it is needed."""
    try:
        return provider.place
    except Exception:  # whatever it is, it is told by the steps that need it
        return ""


def order_of(state: State, life: Life, recipe: Recipe, step: Step) -> Order:
    """A step of a cluster as its provider gets it."""
    work = life.works[step.name]
    is_check = step.sets is ConditionType.HEALTH_GREEN
    return Order(
        life=life,
        recipe=recipe,
        step=step,
        operation=work.operation,
        attempt=work.attempt,
        place=work.place,
        handle=work.handle,
        sets=set_wishes(life),
        nodes=_nodes_to_check(state, life) if is_check and work.going is Going.INTENDED else (),
        is_done=work.going is Going.DONE,
    )


def operations_over(state: State) -> list[str]:
    """Attempts whose end is recorded and that nobody looks at any more: all but the latest, and the latest where it is
    done, or the cluster gone."""
    lives = state.of(Lives)
    names = []
    for life in lives.lives.values():
        for work in life.works.values():
            step = lives.recipe_of(life).step(work.step)
            if step is None:
                continue
            is_over = life.gone_at is not None or (work.going is Going.DONE and not step.scale_sets)
            last = work.attempt + 1 if is_over else work.attempt
            names += [operation_of(life, step, attempt) for attempt in range(1, last)]
    return names


def _nodes_to_check(state: State, life: Life) -> tuple[str, ...]:
    waiting = (Service.JOINING, Service.VALIDATING)
    nodes = state.of(Fleet).nodes.values()
    return tuple(sorted(node.id for node in nodes if node.cluster == life.name and node.service in waiting))


def look_safely(provider: Provider, orders: Sequence[Order]) -> dict[StepKey, Look | ProviderTrouble]:
    """What a provider says; a trouble that concerns all of it concerns each."""
    try:
        return provider.look(orders)
    except Exception as error:  # whatever it is, the other providers' clusters go on
        trouble = as_trouble(error)
        return {order.key: trouble for order in orders}


def begin_safely(provider: Provider, order: Order) -> Look | ProviderTrouble:
    try:
        return provider.begin(order)
    except Exception as error:  # of one call; what came of the others has to be recorded
        return as_trouble(error)


def tell(visit: Visit) -> list[str]:
    """What a visit decided, for whoever watches."""
    return [text for draft in visit.drafts if (text := visit.words_of(draft))]


# What was read of quota last: raw samples, and so no events.


def keep_usages(keeper: Keeper, usages: dict[QuotaKey, UsageRead], now: datetime) -> None:
    """Remember what a provider said, for whoever asks between two passes."""
    known = last_usages(keeper)
    fresh = {}
    for key, usage in usages.items():
        before = known.get(key)
        is_same = before is not None and (before[0].limit, before[0].used) == (usage.limit, usage.used)
        if before is None or not is_same or (now - before[1]).total_seconds() >= USAGE_KEPT_SECONDS:
            fresh[USAGE_SCOPE, _usage_name(key)] = f"{usage.limit} {usage.used} {format_time(now)}"
    if fresh:
        keeper.ledger.store.update_cursors([USAGE_SCOPE], lambda _known: dict(fresh))


def last_usages(keeper: Keeper) -> dict[QuotaKey, tuple[UsageRead, datetime]]:
    """What every provider said last, and when."""
    found = {}
    for (_, name), value in keeper.ledger.store.cursors([USAGE_SCOPE]).items():
        subscription, region, family = name.split("\t")
        limit, used, at = value.split(" ")
        key = QuotaKey(subscription, region, family)
        found[key] = UsageRead(key, int(limit), int(used)), parse_time(at)
    return found


def _usage_name(key: QuotaKey) -> str:
    return f"{key.subscription}\t{key.region}\t{key.family}"
