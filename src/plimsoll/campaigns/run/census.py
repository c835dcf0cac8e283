"""What the fleet is to a campaign: its units, each node as selectors see it, what limits come to. Pure.

It takes a look at every node, and what it depends on hardly ever changes: so a pass makes it once, and asks of each
state whether it still holds. The service of a node is not in it, but for retired or not.
"""

from __future__ import annotations

from functools import cached_property

from plimsoll.campaigns.model import Campaign
from plimsoll.campaigns.units import Labelled, Unit, ceiling, labelled, make_units
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service


class Census:
    """A campaign's file held against the fleet. `unfit`: why the fleet does not fit the file any more."""

    def __init__(self, campaign: Campaign, fleet: Fleet) -> None:
        self._campaign, self._fleet = campaign, fleet
        self._nodes = list(fleet.nodes.values())
        self._clusters, self._skus = dict(fleet.clusters.items()), dict(fleet.skus.items())
        self._ceilings: dict[int, float] = {}
        self.units: dict[str, Unit] = {}
        self.unfit = ""
        try:
            self.units = {unit.name: unit for unit in make_units(campaign, fleet).units}
        except PlimsollError as error:  # what is under way must go on all the same
            self.unfit = error.message

    @cached_property
    def labelled(self) -> dict[str, Labelled]:
        """Every node but retired ones, by its name."""
        return {each.node.id: each for each in labelled(self._campaign, self._fleet)}

    def ceiling(self, number: int) -> float:
        """The most that a limit allows."""
        found = self._ceilings.get(number)
        if found is None:
            limit = self._campaign.limits[number]
            found = self._ceilings[number] = ceiling(limit, self._campaign, self._fleet)
        return found

    def holds_for(self, campaign: Campaign, fleet: Fleet) -> bool:
        """Whether it would come out the same."""
        return (
            campaign == self._campaign
            and len(fleet.nodes) == len(self._nodes)
            and all(
                one is two or _is_alike(one, two) for one, two in zip(self._nodes, fleet.nodes.values(), strict=True)
            )
            and dict(fleet.clusters.items()) == self._clusters
            and dict(fleet.skus.items()) == self._skus
        )


def _is_alike(one: Node, two: Node) -> bool:
    return (
        (one.id, one.cluster, one.island, one.sku, one.gpus) == (two.id, two.cluster, two.island, two.sku, two.gpus)
        and one.labels == two.labels
        and (one.service is Service.RETIRED) == (two.service is Service.RETIRED)
    )
