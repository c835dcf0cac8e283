"""Steps that make scale sets: objects of the Azure Service Operator, and the machines that Azure has made of them.

The objects are applied by name, so that doing it twice is doing it once. How many machines are there is asked of Azure
itself: the operator only says whether it is content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plimsoll.connect.azure import Azure
from plimsoll.connect.azure_machines import Instance
from plimsoll.connect.azure_operator import AzureOperator, OperatorSeen, ScaleSetWish, scale_set_object
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.lifecycle.conditions import TROUBLES
from plimsoll.lifecycle.outside import Found, Look, Looks, NodeFound, Order, SetFound, SetWish
from plimsoll.lifecycle.template import filled, spec_values

READY_STATE = "Succeeded"


class AzureScaleSets:
    """Scale sets through the operator of one Kubernetes cluster. `azure` gives the client of a subscription."""

    place = ""
    settle_seconds = 0.0  # applied by name: begun twice is begun once

    def __init__(
        self,
        operator: Callable[[str, str], AzureOperator],
        azure: Callable[[str], Azure],
    ) -> None:
        self._operator, self._azure = operator, azure

    def look(self, orders: Sequence[Order]) -> Looks:
        looks: Looks = {}
        for order in orders:
            try:
                looks[order.key] = self._look(order)
            except ProviderTrouble as trouble:
                looks[order.key] = trouble
        return looks

    def begin(self, order: Order) -> Look:
        self._operator_of(order).apply(objects_of(order))
        return self._look(order)

    def _operator_of(self, order: Order) -> AzureOperator:
        wanted = order.step.scale_sets
        assert wanted is not None, f"{order.step.name} makes no scale sets"
        values = spec_values(order.life.spec)
        return self._operator(filled(wanted.context, values), filled(wanted.namespace, values))

    def _look(self, order: Order) -> Look:
        wanted = order.step.scale_sets
        assert wanted is not None
        seen = self._operator_of(order).read([wish.name for wish in order.sets])
        if not order.is_done and any(wish.name not in seen for wish in order.sets):
            return Look(Found.ABSENT)
        azure = self._azure(order.life.spec.subscription)
        group = filled(wanted.group, spec_values(order.life.spec)).rpartition("/")[2]
        sets: list[SetFound] = []
        nodes: list[NodeFound] = []
        for wish in order.sets:
            instances = azure.instances(group, wish.name)
            there = [each for each in instances if each.state == READY_STATE]
            sets.append(SetFound(wish.name, len(there), _set_detail(seen.get(wish.name), instances)))
            nodes += [NodeFound(each.name, wish.island, labels={"provider_id": each.id}) for each in there]
        trouble = next((each for each in seen.values() if each.trouble is not None), None)
        if trouble is not None and trouble.severity == "Error" and trouble.trouble is not None:
            reason = TROUBLES[trouble.trouble].code
            may_retry = trouble.trouble not in (TroubleKind.CREDENTIALS, TroubleKind.REFUSED)
            return Look(
                Found.FAILED, reason, trouble.message, sets=tuple(sets), nodes=tuple(nodes), may_retry=may_retry
            )
        return Look(Found.RUNNING, "", _detail(seen), sets=tuple(sets), nodes=tuple(nodes))


def _set_detail(seen: OperatorSeen | None, instances: Sequence[Instance]) -> str:
    """Why a set is not full, as far as anybody says."""
    if seen is not None and seen.is_ready is False and seen.trouble is not None:
        return seen.message
    failed = [each for each in instances if each.state == "Failed"]
    return f"{failed[0].name}: {failed[0].message}" if failed else ""


def _detail(seen: dict[str, OperatorSeen]) -> str:
    waiting = [each for each in seen.values() if not each.is_ready]
    if not waiting:
        return ""
    first = waiting[0]
    return f"{first.name}: {first.reason}" + (f", {first.message}" if first.message else "")


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
        tags={"plimsoll-cluster": spec.name, "plimsoll-island": wish.island},
        labels={name: filled(value, values) for name, value in wanted.labels.items()},
    )
