"""The outside by the settings: where commands run from, which organisation builds, which cluster has the operator.

What a setting lacks is said when it is first needed, as the trouble of those steps that need it; clusters whose recipes
need none of it are not held up.
"""

from __future__ import annotations

import re
import threading
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
from plimsoll.errors import PlimsollError, UsageError
from plimsoll.lifecycle.outside import Look, Looks, Order, Outside, Provider
from plimsoll.lifecycle.providers.builds import SETTLE_SECONDS, Builds
from plimsoll.lifecycle.providers.commands import Commands
from plimsoll.lifecycle.providers.quota import Quotas
from plimsoll.lifecycle.providers.scale_sets import AzureScaleSets

AZURE_SECONDS_MAX = 30.0
"""One question to Azure, with all of its pages. A pass waits for it."""
BUILDKITE_WAIT_SECONDS_MAX = 5.0
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")


class Later:
    """A provider that is made when it is first needed."""

    place = ""

    def __init__(self, make: Callable[[], Provider], settle_seconds: float) -> None:
        self._make = make
        self._made: Provider | None = None
        self._lock = threading.Lock()
        self.settle_seconds = settle_seconds

    def _provider(self) -> Provider:
        with self._lock:  # two would not share the requests that one may make in a minute
            if self._made is None:
                self._made = self._make()
            return self._made

    def look(self, orders: Sequence[Order]) -> Looks:
        return self._provider().look(orders)

    def begin(self, order: Order) -> Look:
        return self._provider().begin(order)


def outside_of(environment: Mapping[str, str], *, errands: Path, folder: Path) -> Outside:
    """Everything outside. `errands` is where commands leave their results, `folder` where a quota file is found."""
    settle = _settle_seconds(environment)
    subscriptions: dict[str, Azure] = {}
    lock = threading.Lock()

    def azure(subscription: str) -> Azure:
        url = environment.get("PLIMSOLL_AZURE_URL") or AZURE_URL
        with lock:
            if subscription not in subscriptions:
                subscriptions[subscription] = Azure(subscription, url=url, total_seconds=AZURE_SECONDS_MAX)
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
    try:
        return Buildkite(organisation, token, pace=Pace(), url=url, wait_seconds_max=BUILDKITE_WAIT_SECONDS_MAX)
    except UsageError as error:
        raise ProviderTrouble(
            "buildkite_not_set",
            f"PLIMSOLL_BUILDKITE_URL, _ORG or _TOKEN can't be used: {error.message}",
            kind=TroubleKind.CREDENTIALS,
            next_step=error.next_step,
        ) from error


def _settle_seconds(environment: Mapping[str, str]) -> float:
    name = "PLIMSOLL_BUILDKITE_SETTLE_SECONDS"
    text = environment.get(name) or f"{SETTLE_SECONDS:g}"
    if not _SECONDS.fullmatch(text):
        raise UsageError("bad_setting", f"{name} is {text[:40]!r}, expected seconds", next_step=f"export {name}=60")
    return float(text)


def _access(environment: Mapping[str, str], context: str) -> Access:
    """What can't be read of it is a matter of credentials: a person gives others."""
    try:
        return _read_access(environment, context)
    except PlimsollError as error:
        raise ProviderTrouble(
            "kubernetes_not_set",
            f"nobody knows which Kubernetes has the operator: {error.message}",
            kind=TroubleKind.CREDENTIALS,
            next_step="export KUBECONFIG=FILE, or PLIMSOLL_KUBERNETES_URL=… PLIMSOLL_KUBERNETES_TOKEN=…",
        ) from error


def _read_access(environment: Mapping[str, str], context: str) -> Access:
    if url := environment.get("PLIMSOLL_KUBERNETES_URL"):
        token = environment.get("PLIMSOLL_KUBERNETES_TOKEN", "")
        return access(url=url, token=token, ca_file=environment.get("PLIMSOLL_KUBERNETES_CA_FILE", ""))
    config = environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    token = environment.get("PLIMSOLL_KUBERNETES_TOKEN", "")
    return read_kubeconfig(config.split(":")[0], context=context, token=token)
