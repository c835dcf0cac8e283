"""The outside by the settings: where commands run from, which organisation builds, which cluster has the operator.

What a setting lacks is said when it is first needed, as the trouble of those steps that need it; clusters whose recipes
need none of it are not held up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plimsoll.connect.azure import URL as AZURE_URL
from plimsoll.connect.azure import Azure
from plimsoll.connect.azure_operator import AzureOperator
from plimsoll.connect.buildkite import URL as BUILDKITE_URL
from plimsoll.connect.buildkite import Buildkite
from plimsoll.connect.errands import Errands
from plimsoll.connect.kubeconfig import Access, access, read_kubeconfig
from plimsoll.connect.pace import Pace
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.lifecycle.outside import Look, Looks, Order, Outside, Provider
from plimsoll.lifecycle.providers.builds import SETTLE_SECONDS, Builds
from plimsoll.lifecycle.providers.commands import Commands
from plimsoll.lifecycle.providers.quota import Quotas
from plimsoll.lifecycle.providers.scale_sets import AzureScaleSets


class Later:
    """A provider that is made when it is first needed."""

    place = ""

    def __init__(self, make: Callable[[], Provider], settle_seconds: float) -> None:
        self._make = make
        self._made: Provider | None = None
        self.settle_seconds = settle_seconds

    def _provider(self) -> Provider:
        if self._made is None:
            self._made = self._make()
        return self._made

    def look(self, orders: Sequence[Order]) -> Looks:
        return self._provider().look(orders)

    def begin(self, order: Order) -> Look:
        return self._provider().begin(order)


def outside_of(environment: Mapping[str, str], *, errands: Path, folder: Path) -> Outside:
    """Everything outside. `errands` is where commands leave their results, `folder` where a quota file is found."""
    settle = float(environment.get("PLIMSOLL_BUILDKITE_SETTLE_SECONDS") or SETTLE_SECONDS)
    subscriptions: dict[str, Azure] = {}

    def azure(subscription: str) -> Azure:
        if subscription not in subscriptions:
            url = environment.get("PLIMSOLL_AZURE_URL") or AZURE_URL
            subscriptions[subscription] = Azure(subscription, url=url)
        return subscriptions[subscription]

    def operator(context: str, namespace: str) -> AzureOperator:
        return AzureOperator(_access(environment, context), namespace)

    return Outside(
        {
            "run": Commands(Errands(errands)),
            "build": Later(lambda: Builds(_buildkite(environment), settle_seconds=settle), settle),
            "scale_sets": AzureScaleSets(operator, azure),
        },
        Quotas(folder, azure),
    )


def _buildkite(environment: Mapping[str, str]) -> Buildkite:
    organisation = environment.get("PLIMSOLL_BUILDKITE_ORG", "")
    token = environment.get("PLIMSOLL_BUILDKITE_TOKEN", "")
    if not organisation or not token:
        missing = "PLIMSOLL_BUILDKITE_TOKEN" if organisation else "PLIMSOLL_BUILDKITE_ORG"
        raise ProviderTrouble(
            "buildkite_not_set",
            f"{missing} is not set, so nobody knows who builds",
            kind=TroubleKind.CREDENTIALS,
            next_step="export PLIMSOLL_BUILDKITE_ORG=… PLIMSOLL_BUILDKITE_TOKEN=…, and run the controller again",
        )
    url = environment.get("PLIMSOLL_BUILDKITE_URL") or BUILDKITE_URL
    return Buildkite(organisation, token, pace=Pace(), url=url)


def _access(environment: Mapping[str, str], context: str) -> Access:
    if url := environment.get("PLIMSOLL_KUBERNETES_URL"):
        token = environment.get("PLIMSOLL_KUBERNETES_TOKEN", "")
        return access(url=url, token=token, ca_file=environment.get("PLIMSOLL_KUBERNETES_CA_FILE", ""))
    config = environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    token = environment.get("PLIMSOLL_KUBERNETES_TOKEN", "")
    return read_kubeconfig(config.split(":")[0], context=context, token=token)
