"""Clusters being made by a controller that can be killed: all that there is of it lies in one folder, and in doubles.

`ledger.db` is the database, `ledger.db.errands` where its commands run, `log` what they did, `wishes` how they shall go
(words of the rehearsal), `quota.csv` what there is of quota. Buildkite and the operator's scale sets are servers of the
test's process, which outlive every controller. Time outside passes only between two controllers (`tick`), and the clock
is what the test says: so it is known what was true when a controller wrote that it is.
"""

from __future__ import annotations

import copy
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import azure.mgmt.compute  # noqa: F401  # slow to load, and so loaded once before children are forked

from plimsoll import rooms
from plimsoll.cli import main  # noqa: F401  # loaded for the children
from plimsoll.commands import campaign  # noqa: F401  # loaded for the children
from plimsoll.commands.cluster import run as run_module
from plimsoll.connect import errands as errands_module
from plimsoll.connect.azure import Azure
from plimsoll.connect.azure_operator import AzureOperator
from plimsoll.connect.buildkite import Buildkite
from plimsoll.connect.errands import Errands
from plimsoll.connect.kubeconfig import access
from plimsoll.connect.pace import Pace
from plimsoll.fleet.fold import Fleet
from plimsoll.ledger import postgres, sqlite  # noqa: F401  # loaded for the children
from plimsoll.lifecycle import service
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.outside import Outside
from plimsoll.lifecycle.providers import builds as builds_module
from plimsoll.lifecycle.providers import settings
from plimsoll.lifecycle.providers.builds import Builds
from plimsoll.lifecycle.providers.commands import Commands
from plimsoll.lifecycle.providers.quota import Quotas
from plimsoll.lifecycle.providers.scale_sets import AzureScaleSets
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.times import parse_time
from tests.support.azure import SUBSCRIPTION, AzureCloud, HeldToken
from tests.support.buildkite import ORGANISATION, TOKEN, FakeBuildkite, Reply
from tests.support.children import Child
from tests.support.kube_api import KubeApi
from tests.support.ledgers import raw
from tests.support.waiting import wait_until

forkserver.set_forkserver_preload(["__main__", "plimsoll.rooms", "tests.support.writers", "tests.support.shipyard"])

MONDAY = parse_time("2026-01-05T09:00:00Z")
META = "plimsoll-operation"
PIPELINES = ("bootstrap", "services", "dependencies", "destroy")
FAMILIES = {"H200": ("standardNDISRH200V5Family", 96), "H100": ("standardNDSH100v5Family", 96)}
SETTLE_SECONDS = 60.0
AFTER_ONE_CHANGE = -1
"""To be killed after the first commit, or the first thing that was begun outside; -2 is after the second."""
CHANGES = ("after commit", "after command", "after create", "after apply", "after cancel")
DRIVES_MAX = 80
IMPATIENT: dict[str, Any] = {
    "timeout_seconds": 0.5,
    "wait_seconds_max": 0.2,
    "sleep": lambda _seconds: time.sleep(0.005),
}

SCRIPT = """\
#!/bin/sh
# A rehearsal whose log and wishes lie in the folder of the yard, wherever that was copied to.
place=$(dirname "$PLIMSOLL_NODES_FILE")/../..
PLIMSOLL_REHEARSAL_LOG="$place/log"
PLIMSOLL_REHEARSAL="seconds=0.02 $(cat "$place/wishes" 2>/dev/null)"
export PLIMSOLL_REHEARSAL_LOG PLIMSOLL_REHEARSAL
exec "$1" -m plimsoll.connect.rehearsal "$2"
"""
RETRY = "retry: {class: backoff, attempts: 8, first: 30s, most: 5m}"
RECIPE = """\
recipe: yard
version: 1
quota: {{source: file, file: quota.csv, settle: 15m}}
steps:
  - {{step: checkin, sets: CheckedIn}}
  - {{step: bootstrap, sets: InfrastructureApplied, needs: [checkin], build: {{pipeline: bootstrap}}, {retry}}}
  - {{step: scale-sets, sets: ScaleSetsReady, needs: [bootstrap], run: [{script}, "{{python}}", fill], {retry}}}
  - {{step: services, sets: ServicesDeployed, needs: [scale-sets], build: {{pipeline: services}}, {retry}}}
  - {{step: burn-in, sets: HealthGreen, needs: [services], run: [{script}, "{{python}}", burn-in], {retry}}}
validation: {{healthy_share: 0.95, steady_for: 2m, filled_share: 1}}
out:
  - {{step: destroy, build: {{pipeline: destroy}}, {retry}}}
"""
AZURE_RECIPE = """\
recipe: cloud
version: 1
quota: {{source: azure, settle: 15m}}
steps:
  - {{step: checkin, sets: CheckedIn, run: [{script}, "{{python}}", checkin], {retry}}}
  - {{step: bootstrap, sets: InfrastructureApplied, needs: [checkin], build: {{pipeline: bootstrap}}, {retry}}}
  - step: scale-sets
    sets: ScaleSetsReady
    needs: [bootstrap]
    scale_sets: {{group: plimsoll, namespace: clusters, subnet: gpu, image: "Canonical:ubuntu:22_04-lts:latest"}}
  - {{step: dependencies, sets: DependenciesApplied, needs: [bootstrap], build: {{pipeline: dependencies}}, {retry}}}
  - {{step: burn-in, sets: HealthGreen, needs: [scale-sets], run: [{script}, "{{python}}", burn-in], {retry}}}
validation: {{healthy_share: 0.95, steady_for: 2m, filled_share: 1}}
out:
  - {{step: destroy, run: [{script}, "{{python}}", destroy], {retry}}}
"""


def is_announced(dsn: str, operation: str) -> bool:
    """Whether the intent of an operation is in the ledger, by plain SQL."""
    sql = "SELECT count(*) FROM events WHERE kind = 'cluster.step_intended' AND payload LIKE ?"
    with raw(dsn) as run:
        return bool(run(sql, f'%"{operation}"%')[0][0])


class YardBuildkite(FakeBuildkite):
    """Buildkite that looks, at the moment a build is created, whether its operation was announced."""

    def __init__(self, **options: Any) -> None:
        super().__init__(pipelines=PIPELINES, limit=None, **options)
        self.dsn = ""
        self.unannounced: list[str] = []

    def _post(self, pipeline: str, body: bytes) -> Reply:
        reply = super()._post(pipeline, body)
        if reply.status == 201 and self.dsn:
            operation = reply.body["meta_data"].get(META, "")
            if not is_announced(self.dsn, operation):
                self.unannounced.append(operation)
        return reply

    def copied(self) -> YardBuildkite:
        """One that knows the same builds, and goes its own way from here."""
        other = YardBuildkite()
        with self._lock:
            other.pipelines, other._created = copy.deepcopy((self.pipelines, self._created))
        return other

    def restless(self) -> list[tuple[str, dict[str, Any]]]:
        """The builds that go on by themselves, with their pipelines."""
        with self._lock:
            return [
                (name, each)
                for name, builds in self.pipelines.items()
                for each in builds
                if not each["blocked"] and each["state"] in ("scheduled", "running", "canceling")
            ]


class Cloud:
    """The operator's API server, and Azure: what is applied there is made here, by name, with the next tick."""

    def __init__(self) -> None:
        self.kube, self.azure = KubeApi(namespaces=("default", "clusters")), AzureCloud()
        self.azure.limits = dict.fromkeys(self.azure.limits, 10**6)
        self.made: Counter[str] = Counter()

    def tick(self) -> None:
        with self.kube._lock:
            wanted = {key[2]: kept.content for key, kept in self.kube.objects.items() if "scalesets" in key[0]}
        for name, content in wanted.items():
            if ("plimsoll", name) not in self.azure.scale_sets:
                size, capacity = content["spec"]["sku"]["name"], content["spec"]["sku"]["capacity"]
                self.azure.add_scale_set(name, capacity=capacity, vm_size=size)
                self.made[name] += 1
        self.azure.arrive()

    def stop(self) -> None:
        self.kube.__exit__()
        self.azure.__exit__()


class Shipyard:
    """A folder, its doubles, and the time there."""

    def __init__(self, folder: Path, buildkite: YardBuildkite, cloud: Cloud | None = None, dsn: str = "") -> None:
        self.folder, self.buildkite, self.cloud = folder, buildkite, cloud
        self.dsn = dsn or f"sqlite:///{folder}/ledger.db"
        self.now = MONDAY
        self.quota: dict[tuple[str, str, str], list[int]] = {}
        """Limit and use, by subscription, region and family: what stands in the file."""
        self.errands = folder / "ledger.db.errands"
        self.kills = 0
        self._began = time.monotonic()
        self.fails: Counter[str] = Counter()
        """How often the builds of `CLUSTER STEP` fail before one passes."""
        if not buildkite.url:
            buildkite.start()
        buildkite.dsn = self.dsn

    @classmethod
    def build(cls, folder: Path, *, dsn: str = "", cloud: Cloud | None = None) -> Shipyard:
        folder.mkdir(parents=True)
        yard = cls(folder, YardBuildkite(), cloud, dsn)
        script = folder.parent / "step"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        for name, text in {"yard": RECIPE, "cloud": AZURE_RECIPE}.items():
            (folder / f"{name}.yaml").write_text(text.format(script=script, retry=RETRY))
            yard.said("cluster", "recipe", "apply", str(folder / f"{name}.yaml"))
        return yard

    def copy(self, folder: Path) -> Shipyard:
        assert self.cloud is None, "the cloud is not copied"
        shutil.copytree(self.folder, folder)
        other = Shipyard(folder, self.buildkite.copied())
        other.now, other.quota, other.fails = self.now, copy.deepcopy(self.quota), Counter(self.fails)
        return other

    def stop(self) -> None:
        self.buildkite.stop()
        if self.cloud is not None:
            self.cloud.stop()

    def __enter__(self) -> Shipyard:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        found = {
            "PLIMSOLL_ERRANDS": str(self.errands),
            "PLIMSOLL_BUILDKITE_ORG": ORGANISATION,
            "PLIMSOLL_BUILDKITE_TOKEN": TOKEN,
            "PLIMSOLL_BUILDKITE_URL": self.buildkite.url,
            "PLIMSOLL_BUILDKITE_SETTLE_SECONDS": str(SETTLE_SECONDS),
            "PLIMSOLL_ACTOR": "tester",
        }
        if self.cloud is not None:
            found |= {"PLIMSOLL_KUBERNETES_URL": self.cloud.kube.url, "PLIMSOLL_AZURE_URL": self.cloud.azure.url}
        return found

    # People.

    def add(self, *names: str, recipe: str = "yard", nodes: int = 2, islands: int = 1) -> None:
        """Plan clusters, with quota for them all, and check them in."""
        sku, subscription = ("H100", SUBSCRIPTION) if recipe == "cloud" else ("H200", "sub-a")
        family, cores = FAMILIES[sku]
        row = self.quota.setdefault((subscription, "eastus", family), [0, 0])
        row[0] += len(names) * nodes * cores
        self.write_quota()
        for name in names:
            wish = ("--region", "eastus", "--subscription", subscription, "--sku", sku, "--nodes", str(nodes))
            self.said("cluster", "add", name, *wish, "--islands", str(islands), "--recipe", recipe)
            self.said("cluster", "checkin", name)

    def write_quota(self) -> None:
        rows = [",".join((*key, *map(str, numbers))) for key, numbers in self.quota.items()]
        draft = self.folder / "quota.draft"
        draft.write_text("\n".join(("subscription,region,family,limit,used", *rows)) + "\n")
        draft.replace(self.folder / "quota.csv")

    def wish(self, words: str) -> None:
        (self.folder / "wishes").write_text(words)

    def said(self, *words: str, kill_at: int = 0) -> list[str]:
        """A command of somebody, in a process of its own; the moments that it came to."""
        return self.go(*words, kill_at=kill_at)

    def go(self, *words: str, kill_at: int = 0, may_exit: bool = False) -> list[str]:
        """A process to its end, which is a kill unless `kill_at` is 0; the moments that it came to."""
        points: list[str] = []
        with self.child(*(words or ("cluster", "run")), kill_at=kill_at) as child:
            with suppress(EOFError, OSError, UnpicklingError):
                while True:
                    points.append(child.hear())
            if not kill_at:
                child.finish()
        assert may_exit or not any(point.startswith("exit") for point in points), points
        passed = len(points) if kill_at > 0 else sum(point in CHANGES for point in points)
        self.kills += bool(kill_at) and passed >= abs(kill_at)
        return points

    def child(self, *words: str, kill_at: int = 0, rate: float = 0.0, stop_at: str = "") -> Child:
        now = self.now + timedelta(seconds=rate * (time.monotonic() - self._began))
        fate = {"kill_at": kill_at, "stop_at": stop_at}
        return Child(run_mortal, self.dsn, self.environment, self.folder, now, rate, fate, words)

    # The controller that nothing happens to.

    def keeper(self) -> Keeper:
        return open_keeper(self.dsn, clock=lambda: self.now)

    def outside(self) -> Outside:
        """As the settings make it, with clients that have short patience and a login for the doubles."""
        buildkite = Buildkite(ORGANISATION, TOKEN, pace=Pace(), url=self.buildkite.url, **IMPATIENT)
        kube = self.cloud.kube.url if self.cloud else ""
        url = self.cloud.azure.url if self.cloud else ""

        def azure(subscription: str) -> Azure:
            return Azure(subscription, url=url, credential=HeldToken())

        def operator(_context: str, namespace: str) -> AzureOperator:
            return AzureOperator(access(url=kube), namespace)

        return Outside(
            {
                "run": Commands(Errands(self.errands)),
                "build": Builds(buildkite, settle_seconds=SETTLE_SECONDS),
                "scale_sets": AzureScaleSets(operator, azure),
            },
            Quotas(self.folder, azure),
        )

    def run_pass(self, *names: str) -> None:
        with self.keeper() as keeper:
            lead = keeper.ledger.store.lead("the next controller", service.ROLE)
            assert lead is not None, "the lead of a killed process passes on"
            service.run_pass(keeper, self.outside(), lead=lead, only=names)
            lead.resign()

    def phases(self) -> dict[str, str]:
        with self.keeper() as keeper:
            return {name: str(each.phase) for name, each in keeper.state().of(Fleet).clusters.items()}

    # Time.

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def wait_for_commands(self) -> None:
        """Until no command runs any more."""
        places = [each for each in self.errands.iterdir() if each.is_dir()] if self.errands.exists() else []

        def is_quiet(place: Path) -> bool:
            return (place / "result").exists() or not errands_module._is_locked(place / "lock")

        for place in places:
            wait_until(partial(is_quiet, place), what=f"{place.name} ended")

    def tick(self) -> None:
        """What runs outside goes on: builds to their end, machines come, and what is used is counted."""
        for pipeline, build in self.buildkite.restless():
            key = f"{build['meta_data'].get('cluster')} {build['meta_data'].get('step')}"
            state = "failed" if self.fails[key] > 0 and build["state"] != "canceling" else "passed"
            self.fails[key] -= state == "failed"
            self.buildkite.advance(
                build["number"], "canceled" if build["state"] == "canceling" else state, pipeline=pipeline
            )
        if self.cloud is not None:
            self.cloud.tick()
        self.wait_for_commands()

    def drive(
        self,
        until: Callable[[], bool],
        *,
        go: Callable[[], object] | None = None,
        seconds: Sequence[float] = (20, 130),
        drives_max: int = DRIVES_MAX,
    ) -> None:
        """One controller after another, and time passes in between, less and more than a build takes to settle, until
        it is so."""
        for number in range(drives_max):
            self.tick()
            if until():
                return
            (go or self.run_pass)()
            self.later(seconds[number % len(seconds)])
        raise AssertionError(f"nothing goes on: {self.told()}")

    def told(self) -> str:
        """What keeps the clusters, for a test that fails."""
        with self.keeper() as keeper:
            lives = keeper.state().of(Lives).lives
            return "; ".join(
                f"{name} {kind} {each.status} {each.reason}: {each.message}"
                for name, life in lives.items()
                for kind, each in life.conditions.items()
                if not each.is_true
            )

    def are(self, phase: str, *names: str) -> bool:
        phases = self.phases()
        return all(phases.get(name) == phase for name in names or phases)


# In a process of its own.


class Fate:
    """Counts the moments at which a process could die; at one of them it does."""

    def __init__(self, tell: Callable[[Any], None], *, kill_at: int = 0, stop_at: str = "") -> None:
        self._tell, self._left, self._is_mortal = tell, kill_at, kill_at != 0
        self._stop_at = stop_at
        self._lock = threading.Lock()

    def pass_by(self, name: str) -> None:
        with self._lock:
            self._tell(name)
            self._left += (self._left < 0 and name in CHANGES) - (self._left > 0)
            if self._left == 0 and self._is_mortal:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)  # the signal arrives
            if name == self._stop_at:
                self._stop_at = ""
                os.kill(os.getpid(), signal.SIGSTOP)

    def around(self, owner: Any, method: str, name: str, check: Callable[..., bool] = lambda *_: True) -> None:
        change = getattr(owner, method)

        def mortal(*arguments: Any, **options: Any) -> Any:
            if not check(*arguments):
                return change(*arguments, **options)
            self.pass_by(f"before {name}")
            try:
                return change(*arguments, **options)
            finally:
                self.pass_by(f"after {name}")

        setattr(owner, method, mortal)


def _be_impatient() -> None:
    """Clients with short patience, and with a login for the doubles."""
    setattr(settings, "Buildkite", partial(Buildkite, **IMPATIENT))  # noqa: B010
    setattr(settings, "Azure", partial(Azure, credential=HeldToken()))  # noqa: B010


def run_mortal(
    tell: Callable[[Any], None],
    dsn: str,
    environment: Mapping[str, str],
    folder: Path,
    now: datetime,
    rate: float,
    fated: Mapping[str, Any],
    words: Sequence[str],
) -> None:
    """`plimsoll …` that dies at the `kill_at`-th moment, or after one change, or never where that is 0. Tells each
    moment that it comes to, and its exit code where that is none of success. `rate`: how many seconds of its clock
    pass in one; then it goes round quickly, too."""
    fate = Fate(tell, **fated)
    os.chdir(folder)
    os.environ.update(environment)

    def was_announced(_errands: Errands, name: str, *_rest: object) -> bool:
        assert is_announced(dsn, name), f"{name} begins, and nobody wrote that it would"
        return True

    fate.around(Keeper, "commit", "commit", lambda _keeper, drafts: bool(drafts))
    fate.around(Errands, "begin", "command", was_announced)
    fate.around(errands_module, "_start", "its process")
    for method in ("create", "find", "made_since", "poll", "cancel"):
        fate.around(Buildkite, method, method)
    fate.around(AzureOperator, "apply", "apply")
    if rate:
        run_module.STANDBY_SECONDS = 0.2
        setattr(run_module, "seconds_between", lambda _text: 0.1)  # noqa: B010
    builds_module.BEGIN_SECONDS_MAX, builds_module.PIPELINES_AT_ONCE = 1.0, 1
    service.CALLS_AT_ONCE = 1  # one after the other: the same moments in every run
    started = time.monotonic()
    rooms.open_keeper = partial(
        rooms.open_keeper, clock=lambda: now + timedelta(seconds=rate * (time.monotonic() - started))
    )
    sys.argv = ["plimsoll", "--db", dsn, *words]
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    from plimsoll.cli.main import main as command

    _be_impatient()
    try:
        command()
    except SystemExit as ended:
        if ended.code:
            sys.stderr.flush()
            tell(f"exit {ended.code}")
