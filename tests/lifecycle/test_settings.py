"""The outside by the settings: what is missing is named where it is needed, and holds up nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError

from plimsoll.connect.azure import Azure
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import UsageError
from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.machines import MACHINES
from plimsoll.lifecycle.model import Going, Move, QuotaKey, Truth
from plimsoll.lifecycle.outside import Looks, Order, UsageRead
from plimsoll.lifecycle.providers.quota import Quotas
from plimsoll.lifecycle.providers.settings import Later, outside_of
from plimsoll.lifecycle.recipe_file import read_recipe
from tests.support.azure import SUBSCRIPTION, Fault
from tests.support.azure_site import KUBE_TOKEN, PLAIN, QUICK_AZURE, Site, azure_login, spec
from tests.support.buildkite import ORGANISATION, TOKEN

READY = "ScaleSetsReady"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, limit=None) as made:
        yield made


def environment(site: Site, **other: str | None) -> dict[str, str]:
    """What `plimsoll cluster run` finds; None takes one out."""
    usual: dict[str, str | None] = {
        "PLIMSOLL_BUILDKITE_URL": site.buildkite.url,
        "PLIMSOLL_BUILDKITE_ORG": ORGANISATION,
        "PLIMSOLL_BUILDKITE_TOKEN": TOKEN,
        "PLIMSOLL_AZURE_URL": site.cloud.url,
        "PLIMSOLL_KUBERNETES_URL": site.api.url,
        "PLIMSOLL_KUBERNETES_TOKEN": KUBE_TOKEN,
    }
    return {name: value for name, value in {**usual, **other}.items() if value is not None}


def use(site: Site, tmp_path: Path, **other: str | None) -> None:
    made = outside_of(environment(site, **other), errands=tmp_path / "errands", folder=tmp_path)
    # Azure's login is the machine's own; everything else is by the settings.
    site.outside = made._replace(quota=site.new_outside().quota)


MISSING: dict[str, tuple[dict[str, str | None], str]] = {
    "no organisation": ({"PLIMSOLL_BUILDKITE_ORG": None}, "PLIMSOLL_BUILDKITE_ORG is not set"),
    "no token": ({"PLIMSOLL_BUILDKITE_TOKEN": None}, "PLIMSOLL_BUILDKITE_TOKEN is not set"),
    "an old token": ({"PLIMSOLL_BUILDKITE_TOKEN": "old"}, "PLIMSOLL_BUILDKITE_TOKEN"),
}


@pytest.mark.parametrize("sentence", MISSING)
def test_a_missing_login_of_buildkite_is_named_and_holds_up_nobody_else(
    site: Site, tmp_path: Path, sentence: str
) -> None:
    other, want_words = MISSING[sentence]
    use(site, tmp_path, **other)
    site.use_recipe(PLAIN)
    site.plan(spec(), spec("puma", recipe="plain"))
    family = MACHINES["H200"].family
    tmp_path.joinpath("quota.csv").write_text(
        f"subscription,region,family,limit,used\n{SUBSCRIPTION},westeurope,{family},9999,0\n"
    )
    site.run()
    condition = site.condition("CheckedIn")
    assert (condition.reason, condition.move) == ("Credentials", Move.PERSON)
    assert want_words in condition.message
    assert site.condition("CheckedIn", "puma").is_true
    assert site.life("puma").works["fill"].going is Going.RUNNING
    use(site, tmp_path)
    site.retry("checkin")
    site.run()
    assert site.condition("CheckedIn").reason == "Running"


def test_a_missing_kubeconfig_is_named(site: Site, tmp_path: Path) -> None:
    use(site, tmp_path, PLIMSOLL_KUBERNETES_URL=None, KUBECONFIG=str(tmp_path / "none"))
    site.to_bootstrap()
    site.end("bootstrap")
    site.run()
    condition = site.condition(READY)
    assert (condition.reason, condition.move) == ("Credentials", Move.PERSON)
    assert "nobody knows which Kubernetes has the operator" in condition.message
    assert "KUBECONFIG" in condition.message
    assert site.life().works["dependencies"].going is Going.RUNNING


def test_a_context_that_is_not_there_does_not_hold_up_those_of_another(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in azure_login(tmp_path).items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\n"
        f"clusters: [{{name: hub, cluster: {{server: '{site.api.url}'}}}}]\n"
        f"users: [{{name: bot, user: {{token: {KUBE_TOKEN}}}}}]\n"
        "contexts: [{name: hub, context: {cluster: hub, user: bot}}]\n"
    )
    here = QUICK_AZURE.replace("      namespace: clusters", "      namespace: clusters\n      context: '{labels.hub}'")
    site.use_recipe(here)
    gone = {"PLIMSOLL_KUBERNETES_URL": None, "PLIMSOLL_KUBERNETES_TOKEN": None, "KUBECONFIG": str(config)}
    use(site, tmp_path, **gone)
    site.outside = site.outside._replace(
        providers={**site.new_outside().providers, "scale_sets": site.outside.providers["scale_sets"]}
    )
    site.plan(spec(labels={"hub": "hub"}), spec("puma", labels={"hub": "gone"}))
    site.run()
    for step in ("checkin", "bootstrap"):
        for number in (1, 2):
            site.end(step, number=number)
        site.run()
    assert site.condition(READY, "puma").reason == "Credentials"
    assert "'gone'" in site.condition(READY, "puma").message
    site.retry("scale-sets", "puma")
    config.write_text(config.read_text().replace("{name: hub, context", "{name: gone, context"))
    site.run()
    assert site.life("puma").works["scale-sets"].going is Going.RUNNING
    condition = site.condition(READY)
    assert (condition.status, condition.reason) == (Truth.UNKNOWN, "Credentials")
    site.run()
    assert site.condition(READY, "puma").status is Truth.FALSE, "it is looked at although the other one can't be"


UNUSABLE = {
    "a token with a line break": {"PLIMSOLL_BUILDKITE_TOKEN": "one\ntwo"},
    "an organisation that is none": {"PLIMSOLL_BUILDKITE_ORG": "a/b"},
    "a URL that is none": {"PLIMSOLL_BUILDKITE_URL": "buildkite"},
}


@pytest.mark.parametrize("sentence", UNUSABLE)
def test_a_login_of_buildkite_that_can_not_be_used_is_a_persons_move(site: Site, tmp_path: Path, sentence: str) -> None:
    use(site, tmp_path, **UNUSABLE[sentence])
    site.plan(spec())
    site.run()
    condition = site.condition("CheckedIn")
    assert (condition.reason, condition.move) == ("Credentials", Move.PERSON)
    assert "PLIMSOLL_BUILDKITE_" in condition.message
    assert "two" not in condition.message


def test_a_missing_login_of_azure_is_named(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "AzureCliCredential")
    monkeypatch.setenv("PATH", str(tmp_path))
    site.outside = outside_of(environment(site), errands=tmp_path / "errands", folder=tmp_path)
    site.plan(spec())
    site.run()
    condition = site.condition("QuotaSufficient")
    assert (condition.status, condition.reason, condition.move) == (Truth.UNKNOWN, "Credentials", Move.PERSON)
    assert "Azure CLI not found on path" in condition.message
    assert condition.next_step.startswith("az login")
    assert site.phase() is Phase.PLANNED


TRIED = "DefaultAzureCredential failed to retrieve a token from the included credentials.\nAttempted credentials:\n"
LOGINS = {
    "no way to log in is in use": (
        "\tEnvironmentCredential: environment variables are not fully configured.\nVisit a page.\n"
        "\tAzureCliCredential: Azure CLI not found on path",
        "nobody is logged in here (tried EnvironmentCredential, AzureCliCredential)",
    ),
    "one is in use and says what it wants": (
        "\tEnvironmentCredential: environment variables are not fully configured.\n"
        "\tAzureCliCredential: AADSTS700082: The refresh token has expired due to inactivity.",
        "AzureCliCredential: AADSTS700082: The refresh token has expired due to inactivity.",
    ),
}


@pytest.mark.parametrize("sentence", LOGINS)
def test_why_nobody_is_logged_in_is_one_sentence(site: Site, sentence: str) -> None:
    text, want_end = LOGINS[sentence]

    class NoLogin:
        def get_token(self, *_scopes: str, **_options: Any) -> Any:
            raise ClientAuthenticationError(message=TRIED + text)

    with (
        Azure(SUBSCRIPTION, credential=NoLogin(), url=site.cloud.url) as azure,
        pytest.raises(ProviderTrouble) as caught,
    ):
        azure.usages("westeurope")
    assert caught.value.kind is TroubleKind.CREDENTIALS
    assert caught.value.message.endswith(f"no credentials for it: {want_end}")


@pytest.mark.parametrize("text", ["soon", "-1", "1e400", "nan"])
def test_a_setting_that_is_no_number_is_refused(site: Site, tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        outside_of({"PLIMSOLL_BUILDKITE_SETTLE_SECONDS": text}, errands=tmp_path, folder=tmp_path)
    assert "PLIMSOLL_BUILDKITE_SETTLE_SECONDS" in caught.value.message


def test_many_threads_make_one_provider() -> None:
    """Two would ask twice as often as one may."""
    made: list[object] = []
    gate = threading.Barrier(8)

    class Nobody:
        place = ""
        settle_seconds = 0.0

        def look(self, _orders: Any) -> Looks:
            return {}

        def begin(self, _order: Order) -> Any:
            raise AssertionError("nobody asked for it")

    def make() -> Any:
        made.append(object())
        threading.Event().wait(0.02)
        return Nobody()

    later = Later(make, 0.0)

    def look() -> None:
        gate.wait(5)
        later.look([])

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(made) == 1


# Quota.


def test_families_are_known_however_azure_writes_them(site: Site, tmp_path: Path) -> None:
    site.cloud.limits |= {"STANDARDndasv4_a100family": 960, "Standard NDSH100v5 Family": 192}
    recipe = read_recipe(QUICK_AZURE, source="azure")
    found = Quotas(tmp_path, site.azure).usages(recipe, SUBSCRIPTION, "westeurope")
    for family, limit in (("Standard NDASv4_A100 Family", 960), ("standardNDSH100v5Family", 192)):
        assert UsageRead(QuotaKey(SUBSCRIPTION, "westeurope", family), limit, 0) in found


def test_azure_is_asked_once_a_minute_and_soon_again_where_it_could_not_say(site: Site, tmp_path: Path) -> None:
    recipe = read_recipe(QUICK_AZURE, source="azure")
    quotas = Quotas(tmp_path, site.azure, clock=site.clock)

    def ask() -> int:
        before = len(site.cloud.requests)
        with suppress(ProviderTrouble):
            quotas.usages(recipe, SUBSCRIPTION, "westeurope")
        return len(site.cloud.requests) - before

    assert [ask(), ask()] == [1, 0]
    site.wait(seconds=60)
    site.cloud.faults += [Fault(503)] * 3
    assert [ask(), ask()] == [3, 0], "three attempts, and then none for a while"
    site.wait(seconds=10)
    site.cloud.faults.append(Fault(429, headers={"Retry-After": "45"}))
    assert ask() == 1
    site.wait(seconds=44)
    assert ask() == 0
    site.wait(seconds=1)
    assert [ask(), ask()] == [1, 0]
