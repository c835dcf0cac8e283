"""Steps that make scale sets: objects of the Azure Service Operator, and the machines that Azure has made of them.

The objects are applied by name, so that doing it twice is doing it once; a tag names the attempt, so that an operator
that has given up sees a change and tries again. How many machines are there is asked of Azure itself: the operator only
says whether it is content. A list of all scale sets says which of them are still as they were when they were full; only
the others are asked for their machines.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from plimsoll.connect.azure import Azure
from plimsoll.connect.azure_machines import Instance, ScaleSetSeen
from plimsoll.connect.azure_operator import AzureOperator, OperatorSeen, ScaleSetWish, scale_set_object
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import PlimsollError
from plimsoll.lifecycle.conditions import TROUBLES
from plimsoll.lifecycle.model import Going
from plimsoll.lifecycle.outside import Found, Look, Looks, NodeFound, Order, SetFound, SetWish, as_trouble
from plimsoll.lifecycle.reasons import Reason
from plimsoll.lifecycle.template import filled, spec_values

READY_STATE, FAILED_STATE = "Succeeded", "Failed"
NO_ROOM = "allocation failed"
"""How Azure begins what it says of a machine for which it has no room."""
OPERATION_TAG = "plimsoll-operation"
ASKED_AT_ONCE = 10
"""As many connections as Azure's library keeps."""
FULL_SECONDS = 600.0
"""How long the machines of a full scale set are taken for those that were seen, while its number is the same. One that
fails without going away is seen by then, and before that by its health."""
CLOSED_SECONDS = 5.0
"""How long nobody asks a subscription that can't be asked now and does not say until when."""
CLOSING = (TroubleKind.BUSY, TroubleKind.CREDENTIALS, TroubleKind.UNREACHABLE)

T = TypeVar("T")
Place = tuple[str, str, str]
"""Subscription, resource group, scale set; the last two in small letters, as Azure does not tell them apart."""


class _Full(NamedTuple):
    at: float
    machines: tuple[Instance, ...]


class AzureScaleSets:
    """Scale sets through the operators of Kubernetes clusters. `azure` gives the client of a subscription."""

    place = ""
    settle_seconds = 0.0  # applied by name: begun twice is begun once

    def __init__(
        self,
        operator: Callable[[str, str], AzureOperator],
        azure: Callable[[str], Azure],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._operator, self._azure, self._clock = operator, azure, clock
        self._full: dict[Place, _Full] = {}
        self._closed: dict[str, tuple[float, ProviderTrouble]] = {}

    def begin(self, order: Order) -> Look:
        self._operator(*_operator_of(order)).apply(objects_of(order))
        return Look(Found.RUNNING, "", "its scale sets are applied")

    def look(self, orders: Sequence[Order]) -> Looks:
        """What the operators say, then what Azure says; what goes wrong with one says nothing about the others."""
        looks: Looks = {}
        seen: dict[tuple[str, str], dict[str, OperatorSeen]] = {}
        for place, some in _sorted_by(orders, _operator_of).items():
            try:
                seen[place] = self._operator(*place).read([wish.name for order in some for wish in order.sets])
            except PlimsollError as error:
                looks |= {order.key: as_trouble(error) for order in some}
                continue
            looks |= {order.key: Look(Found.ABSENT) for order in some if _is_absent(order, seen[place])}
        there = [order for order in orders if order.key not in looks]
        machines = self._machines(there)
        for order in there:
            found = [machines[_place(order, wish)] for wish in order.sets]
            trouble = next((each for each in found if isinstance(each, ProviderTrouble)), None)
            lists = [each for each in found if not isinstance(each, ProviderTrouble)]
            looks[order.key] = trouble or _look(order, seen[_operator_of(order)], lists)
        return looks

    # What Azure says.

    def _machines(self, orders: Sequence[Order]) -> dict[Place, Sequence[Instance] | ProviderTrouble]:
        """The machines of every scale set. One that is not in its subscription's list has none."""
        wanted = {_place(order, wish): wish.nodes for order in orders for wish in order.sets}
        # A list may be behind; one that had machines is not believed to be gone before it was asked itself.
        known = {_place(order, wish) for order in orders for wish in order.sets if wish.name in order.life.sets}
        found: dict[Place, Sequence[Instance] | ProviderTrouble] = {}
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            subscriptions = sorted({subscription for subscription, _, _ in wanted})
            lists = dict(zip(subscriptions, pool.map(self._list, subscriptions), strict=True))
            asked = []
            for place, count in wanted.items():
                listed = lists[place[0]]
                if isinstance(listed, ProviderTrouble):
                    found[place] = listed
                elif (there := listed.get(place[1:])) is None and place not in known:
                    found[place] = ()
                elif there is not None and (full := self._still_full(place, there, count)) is not None:
                    found[place] = full
                else:
                    asked.append(place)
            found |= zip(asked, pool.map(self._instances, asked), strict=True)
        for place in asked:
            machines = found[place]
            is_full = not isinstance(machines, ProviderTrouble) and _ready_count(machines) >= wanted[place]
            self._full.pop(place, None)
            if is_full and not isinstance(machines, ProviderTrouble):
                self._full[place] = _Full(self._clock(), tuple(machines))
        return found

    def _still_full(self, place: Place, there: ScaleSetSeen, count: int) -> Sequence[Instance] | None:
        full = self._full.get(place)
        if full is None or self._clock() - full.at >= FULL_SECONDS:
            return None
        is_same = there.state == READY_STATE and there.capacity == count == len(full.machines)
        return full.machines if is_same else None

    def _list(self, subscription: str) -> dict[tuple[str, str], ScaleSetSeen] | ProviderTrouble:
        found = self._ask(subscription, lambda azure: azure.scale_sets())
        if isinstance(found, ProviderTrouble):
            return found
        return {(each.group.lower(), each.name.lower()): each for each in found}

    def _instances(self, place: Place) -> Sequence[Instance] | ProviderTrouble:
        subscription, group, name = place
        return self._ask(subscription, lambda azure: azure.instances(group, name))

    def _ask(self, subscription: str, ask: Callable[[Azure], T]) -> T | ProviderTrouble:
        """Ask, unless this subscription can't be asked now: then all of its scale sets have that trouble."""
        until, known = self._closed.get(subscription, (0.0, None))
        if known is not None and self._clock() < until:
            return known
        try:
            return ask(self._azure(subscription))
        except PlimsollError as error:
            trouble = as_trouble(error)
            if trouble.kind in CLOSING:
                seconds = trouble.retry_seconds or CLOSED_SECONDS
                self._closed[subscription] = self._clock() + seconds, trouble
            return trouble


def _sorted_by(orders: Sequence[Order], key: Callable[[Order], T]) -> dict[T, list[Order]]:
    found: dict[T, list[Order]] = defaultdict(list)
    for order in orders:
        found[key(order)].append(order)
    return found


def _operator_of(order: Order) -> tuple[str, str]:
    """The Kubernetes cluster (a context) and the namespace."""
    wanted = order.step.scale_sets
    assert wanted is not None, f"{order.step.name} makes no scale sets"
    values = spec_values(order.life.spec)
    return filled(wanted.context, values), filled(wanted.namespace, values)


def _place(order: Order, wish: SetWish) -> Place:
    assert order.step.scale_sets is not None
    group = filled(order.step.scale_sets.group, spec_values(order.life.spec)).rpartition("/")[2]
    return order.life.spec.subscription, group.lower(), wish.name.lower()


def _is_absent(order: Order, seen: Mapping[str, OperatorSeen]) -> bool:
    """Whether an attempt was not begun: an object is missing, or is still that of the attempt before."""
    if order.is_done:
        return False
    found = [seen.get(wish.name) for wish in order.sets]
    work = order.life.work(order.step.name)
    is_intended = work is not None and work.going is Going.INTENDED
    return any(
        each is None or (is_intended and each.tags.get(OPERATION_TAG, order.operation) != order.operation)
        for each in found
    )


# What it means.


def _look(order: Order, seen: Mapping[str, OperatorSeen], lists: Sequence[Sequence[Instance]]) -> Look:
    sets = []
    nodes: list[NodeFound] = []
    for wish, machines in zip(order.sets, lists, strict=True):
        sets.append(SetFound(wish.name, _ready_count(machines), _set_detail(seen.get(wish.name), machines)))
        ready = (each for each in machines if each.state == READY_STATE)
        nodes += [NodeFound(each.name, wish.island, labels={"provider_id": each.id}) for each in ready]
    ours = [each for wish in order.sets if (each := seen.get(wish.name)) is not None]
    troubled = [each for each in ours if each.trouble is not None]
    found, reason, detail, may_retry = Found.RUNNING, "", _waiting_text(ours), True
    if troubled:
        # From lasting to passing, and those that the operator has given up first.
        kinds = list(TroubleKind)
        worst = min(troubled, key=lambda each: (each.severity != "Error", kinds.index(each.trouble or kinds[-1])))
        assert worst.trouble is not None
        reason, detail = TROUBLES[worst.trouble].code, f"{worst.name}: {_trouble_text(worst)}"
        if worst.severity == "Error":
            found, may_retry = Found.FAILED, worst.trouble not in (TroubleKind.CREDENTIALS, TroubleKind.REFUSED)
    elif failed := [each for machines in lists for each in machines if each.state == FAILED_STATE]:
        is_no_room = failed[0].message.lower().startswith(NO_ROOM)
        reason = (Reason.NO_CAPACITY if is_no_room else Reason.SCALE_SET_SHORT).code
        detail = _failed_text(failed)
    return Look(found, reason, detail, sets=tuple(sets), nodes=tuple(nodes), may_retry=may_retry)


def _ready_count(machines: Sequence[Instance]) -> int:
    return sum(each.state == READY_STATE for each in machines)


def _set_detail(seen: OperatorSeen | None, machines: Sequence[Instance]) -> str:
    """Why a set is not full, as far as anybody says."""
    if seen is not None and seen.trouble is not None:
        return _trouble_text(seen)
    failed = [each for each in machines if each.state == FAILED_STATE]
    return _failed_text(failed) if failed else ""


def _trouble_text(seen: OperatorSeen) -> str:
    if seen.trouble is TroubleKind.OUT_OF_QUOTA and seen.limit is not None and seen.required is not None:
        return (
            f"{seen.quota or 'its'} quota is exceeded: limit {seen.limit:,}, {seen.used or 0:,} used,"
            f" {seen.required:,} more required"
        )
    return f"{seen.reason}: {seen.message}" if seen.message else seen.reason


def _failed_text(failed: Sequence[Instance]) -> str:
    more = f" and {len(failed) - 1:,} more" if len(failed) > 1 else ""
    return f"{failed[0].name}{more} failed: {failed[0].message or 'Azure does not say why'}"


def _waiting_text(ours: Sequence[OperatorSeen]) -> str:
    waiting = [each for each in ours if not each.is_ready]
    if not waiting:
        return ""
    first = waiting[0]
    return f"{first.name}: {first.reason or 'the operator has not looked at it yet'}"


# What is wanted.


def objects_of(order: Order) -> list[dict[str, Any]]:
    """The objects that make the scale sets of a cluster."""
    return [scale_set_object(_wish(order, wish)) for wish in order.sets]


def _wish(order: Order, wish: SetWish) -> ScaleSetWish:
    wanted, spec = order.step.scale_sets, order.life.spec
    assert wanted is not None
    values = spec_values(spec)
    machine = order.recipe.machines[spec.sku]
    return ScaleSetWish(
        name=wish.name,
        namespace=filled(wanted.namespace, values),
        group=filled(wanted.group, values),
        region=spec.region,
        vm_size=machine.vm,
        capacity=wish.nodes,
        subnet=filled(wanted.subnet, values),
        image=filled(wanted.image, values),
        ssh_public_key=filled(wanted.ssh_key, values),
        admin_password_secret=filled(wanted.password_secret, values),
        tags={"plimsoll-cluster": spec.name, "plimsoll-island": wish.island, OPERATION_TAG: order.operation},
        labels={name: filled(value, values) for name, value in wanted.labels.items()},
    )
