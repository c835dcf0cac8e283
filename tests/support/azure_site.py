"""Everything that makes a cluster at Azure, as real servers on this machine, and a controller that talks to them.

Buildkite, Azure Resource Manager, a Kubernetes API server with the Azure Service Operator, a ledger whose clock a test
moves. Nothing of ours is replaced: the providers are those that `plimsoll cluster run` uses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from plimsoll.connect.azure import Azure
from plimsoll.connect.azure_operator import AzureOperator
from plimsoll.connect.buildkite import Buildkite
from plimsoll.connect.kubeconfig import access
from plimsoll.connect.pace import Pace
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Node, Phase, Purpose, Service
from plimsoll.health.acts import Acting, pass_checks
from plimsoll.health.service import load_memories
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle import desk
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.machines import AZURE
from plimsoll.lifecycle.model import Condition, Life, Said, Spec
from plimsoll.lifecycle.outside import Outside
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.providers.builds import Builds
from plimsoll.lifecycle.providers.quota import Quotas
from plimsoll.lifecycle.providers.scale_sets import AzureScaleSets
from plimsoll.lifecycle.recipe_file import read_recipe
from plimsoll.lifecycle.service import Did, run_pass, say
from plimsoll.rooms import open_keeper
from plimsoll.state.state import State
from plimsoll.times import utc_now
from tests.support.azure import SUBSCRIPTION, AzureCloud, HeldToken
from tests.support.buildkite import ORGANISATION, TOKEN, FakeBuildkite
from tests.support.kube_api import KubeApi
from tests.support.operator import PLURAL, ServiceOperator

PIPELINES = tuple(f"cluster-{step}" for step in ("checkin", "bootstrap", "services", "dependencies", "destroy"))
NAMESPACE = "clusters"
KUBE_TOKEN = "a-token-of-kubernetes"
FAMILY = "standardNDISRH200V5Family"


def spec(name: str = "lynx", **fields: Any) -> Spec:
    usual: dict[str, Any] = {
        "region": "westeurope",
        "area": Area.EU,
        "colo": "",
        "provider": "azure",
        "purpose": Purpose.RESEARCH,
        "subscription": SUBSCRIPTION,
        "sku": "H200",
        "nodes": 4,
        "islands": 2,
        "recipe": "azure",
    }
    return Spec(name=name, **{**usual, **fields})


class Site:
    """The servers and the controller. To be used with `with`."""

    def __init__(self, folder: Path, **buildkite: Any) -> None:
        self.moved = timedelta()
        self.buildkite = FakeBuildkite(pipelines=PIPELINES, clock=self.clock, **buildkite)
        self.cloud = AzureCloud(groups=())
        self.api = KubeApi(namespaces=(NAMESPACE,), token=KUBE_TOKEN)
        self.operator = ServiceOperator(self.api, self.cloud)
        self.credential = HeldToken()
        self.keeper = open_keeper(f"sqlite:///{folder}/site.db", create=True, clock=self.now)
        self._azure: dict[str, Azure] = {}
        self._folder = folder

    def __enter__(self) -> Site:
        self.buildkite.start()
        self.outside = self.new_outside()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.operator.stop()
        for azure in self._azure.values():
            azure.close()
        self.keeper.ledger.close()
        self.buildkite.stop()
        self.cloud.__exit__()
        self.api.__exit__()

    # The controller.

    def now(self) -> datetime:
        return utc_now() + self.moved

    def wait(self, **span: float) -> None:
        """Time passes: for the ledger, for Buildkite, and for whoever waits for it."""
        self.moved += timedelta(**span)

    def new_outside(self, *, token: str = TOKEN, kube_token: str = KUBE_TOKEN, a_minute: int = 200) -> Outside:
        """The outside as a controller that was just started has it."""
        buildkite = Buildkite(
            ORGANISATION,
            token,
            pace=Pace(a_minute, clock=self.clock),
            url=self.buildkite.url,
            timeout_seconds=2,
            wait_seconds_max=0.5,
            sleep=lambda _seconds: None,
        )
        reach = access(url=self.api.url, token=kube_token)

        def operator(_context: str, namespace: str) -> AzureOperator:
            return AzureOperator(reach, namespace, timeout_seconds=5.0, sleep=lambda _seconds: None)

        clock = self.clock
        sets = AzureScaleSets(operator, self.azure, clock=clock)
        builds = Builds(buildkite, settle_seconds=60.0)
        return Outside({"build": builds, "scale_sets": sets}, Quotas(self._folder, self.azure, clock=clock))

    def clock(self) -> float:
        return time.monotonic() + self.moved.total_seconds()

    def azure(self, subscription: str) -> Azure:
        if subscription not in self._azure:
            made = Azure(subscription, url=self.cloud.url, credential=self.credential, sleep=lambda _seconds: None)
            self._azure[subscription] = made
        return self._azure[subscription]

    def run(self, times: int = 1) -> list[Did]:
        """So many passes; what the last one did."""
        did: list[Did] = []
        for _ in range(times):
            did = run_pass(self.keeper, self.outside)
        return did

    # People.

    def say(self, decide: Callable[[State], list[Draft]]) -> None:
        say(self.keeper, lambda state, _now: (None, decide(state)), actor="ann")

    def use_recipe(self, text: str, old: str = "", new: str = "") -> None:
        assert old in text, "nothing is changed by a text that is not there"
        recipe = read_recipe(text.replace(old, new).replace("version: 1", "version: 2"), source="test")
        self.say(lambda state: desk.apply_recipe(state, recipe)[1])

    def plan(self, *specs: Spec, is_checked_in: bool = True) -> None:
        for each in specs:
            said = Said("ann", self.now())
            self.say(lambda state, each=each, said=said: desk.plan(state, each, f"u-{each.name}", said))  # type: ignore[misc]
            self.cloud.groups.add(f"{each.name}-rg")
            if is_checked_in:
                self.check_in(each.name)

    def plan_all(self, names: Sequence[str], **fields: Any) -> None:
        """Many clusters, checked in, with one commit each time."""

        def plan(state: State) -> list[Draft]:
            drafts = [
                draft
                for name in names
                for draft in desk.plan(
                    state, spec(name, **{"nodes": 1, "islands": 1} | fields), f"u-{name}", Said("ann", self.now())
                )
            ]
            recipes = [draft for draft in drafts if draft.change.kind == "recipe.recorded"]
            return [*recipes[:1], *(draft for draft in drafts if draft.change.kind != "recipe.recorded")]

        self.say(plan)
        self.cloud.groups |= {f"{name}-rg" for name in names}
        self.say(lambda state: [draft for name in names for draft in desk.check_in(desk.find_life(state, name))])

    def check_in(self, name: str) -> None:
        self.say(lambda state: desk.check_in(desk.find_life(state, name)))

    def retry(self, step: str, name: str = "lynx") -> None:
        def decide(state: State) -> list[Draft]:
            life = desk.find_life(state, name)
            return desk.retry(life, state.of(Lives).recipe_of(life), step)[1]

        self.say(decide)

    def pass_checks(self, name: str = "lynx") -> None:
        """The health checks of all nodes of a cluster that are being validated end well."""

        def decide(state: State) -> list[Draft]:
            names = [node.id for node in self.nodes(name) if node.service is Service.VALIDATING]
            memories = load_memories(self.keeper.ledger.store, names)
            return pass_checks(state, names, Acting("burn-in", self.now(), "burn-in", memories))

        self.say(decide)

    # What is to be seen.

    def life(self, name: str = "lynx") -> Life:
        return self.keeper.state().of(Lives).lives[name]

    def phase(self, name: str = "lynx") -> Phase:
        return phase_of(self.life(name))

    def condition(self, kind: str, name: str = "lynx") -> Condition:
        return self.life(name).conditions[kind]

    def nodes(self, name: str = "lynx") -> list[Node]:
        nodes = self.keeper.state().of(Fleet).nodes.values()
        return sorted((node for node in nodes if node.cluster == name), key=lambda node: node.id)

    def builds(self, step: str) -> list[dict[str, Any]]:
        return [each for each in self.buildkite.builds if each["pipeline"]["slug"] == f"cluster-{step}"]

    def end(self, step: str, state: str = "passed", *, number: int = 1, **more: Any) -> None:
        self.buildkite.advance(number, state, pipeline=f"cluster-{step}", **more)

    def objects(self) -> list[str]:
        return sorted(key[2] for key in self.api.objects if key[0] == PLURAL)

    # Short ways to a place.

    def to_bootstrap(self) -> None:
        """The bootstrap build of `lynx` runs."""
        self.plan(spec())
        self.run()
        self.end("checkin")
        self.run()

    def to_scale_sets(self) -> None:
        """Its scale sets are made at Azure; no machine came yet."""
        self.to_bootstrap()
        self.end("bootstrap")
        self.run()
        self.operator.step(2)

    def to_provisioned(self) -> None:
        self.to_scale_sets()
        self.cloud.arrive()
        self.operator.step()
        self.run()


QUICK_AZURE = AZURE.replace("steady_for: 30m", "steady_for: 1s").replace("settle: 15m", "settle: 1s")

PLAIN = """\
recipe: plain
version: 1
quota: {source: file}
steps:
  - {step: checkin, sets: CheckedIn}
  - step: fill
    sets: ScaleSetsReady
    needs: [checkin]
    scale_sets:
      group: "{cluster}-rg"
      namespace: clusters
      subnet: nodes
      image: "a:b:c:d"
      password_secret: node-login/password
"""
"""One that needs neither Buildkite nor Azure's usages."""

AZ = """\
#!/bin/sh
# What `az account get-access-token` prints.
echo '{"accessToken": "a-good-token", "expiresOn": "2046-01-01 00:00:00.000000", "expires_on": 2398377600,
"subscription": "s", "tenant": "t", "tokenType": "Bearer"}'
"""


def azure_login(folder: Path) -> dict[str, str]:
    """The environment of somebody who is logged in at Azure with `az login`, whose double is on its PATH."""
    login = folder / "bin" / "az"
    login.parent.mkdir()
    login.write_text(AZ)
    login.chmod(0o755)
    return {"PATH": f"{login.parent}:{os.environ['PATH']}", "AZURE_TOKEN_CREDENTIALS": "AzureCliCredential"}
