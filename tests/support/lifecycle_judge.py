"""Judges what a controller of clusters wrote, from the rows of the ledger alone and from what is true outside.

It knows the issue and not the code: it reads events as JSON and recipes as YAML, and calls nothing of the lifecycle. A
condition that is True must be true in the doubles; nothing was begun that had no intent, and nothing twice; attempts
count without a gap, and each but the first was made because the one before it was known to have failed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import yaml

from plimsoll.commands.options import parse_span
from plimsoll.connect.errands import Errands
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.ledger.model import Event
from plimsoll.ledger.verify import verify
from plimsoll.rooms import KINDS
from tests.support.ledgers import events_of, fold_of
from tests.support.shipyard import FAMILIES, META, Shipyard

OTHERS = (
    "SpecValid",
    "QuotaSufficient",
    "CheckedIn",
    "InfrastructureApplied",
    "ScaleSetsReady",
    "ServicesDeployed",
    "DependenciesApplied",
    "HealthGreen",
)
STEPS = ("CheckedIn", "InfrastructureApplied", "ServicesDeployed", "DependenciesApplied")
"""Conditions that say no more than that their steps are done."""
Json = dict[str, Any]


class Record:
    """What was written of a cluster."""

    def __init__(self, name: str) -> None:
        self.name, self.spec, self.version = name, {}, 0
        self.conditions: dict[str, str] = {}
        self.since: dict[str, datetime] = {}
        self.attempts: dict[str, int] = {}
        self.going: dict[str, str] = {}
        self.operations: dict[str, tuple[str, str]] = {}
        """The step of each operation, and how it was last seen."""
        self.reasons: defaultdict[str, set[str]] = defaultdict(set)
        self.waived: set[str] = set()
        self.asked: set[str] = set()
        """Steps that a person wants tried again."""
        self.claim: Json = {}
        self.is_checked_in = self.is_available = self.is_gone = self.is_leaving = False

    spec: Json

    @property
    def phase(self) -> str:
        if self.is_gone:
            return "retired"
        if self.is_available:
            return "production"
        if not self.claim and not self.attempts:
            return "planned"
        built = ("CheckedIn", "InfrastructureApplied", "ScaleSetsReady")
        is_built = all(self.conditions.get(kind) == "True" for kind in built)
        return "provisioned" if is_built else "provisioning"

    def operation(self, step: str) -> str:
        return next(name for name, (of, _) in reversed(self.operations.items()) if of == step)


class Judge:
    """Looks at a yard after each controller that ended, however it ended."""

    def __init__(self, yard: Shipyard) -> None:
        self.yard = yard
        self.records: dict[str, Record] = {}
        self.recipes: dict[tuple[str, int], Json] = {}
        self._revision = self.count = 0

    def run_pass(self) -> None:
        """A pass to its end: what was true outside before it is known after it."""
        self.look()
        before = self._truths()
        self.yard.run_pass()
        self.look()
        for name, kind in before:
            assert self.records[name].conditions[kind] == "True", f"{name}: nobody saw that {kind} is so"
        self._check_promises({name for name, each in self.records.items() if self._is_promised(each)})

    def look(self) -> None:
        """Judge what is new."""
        with self.yard.keeper() as keeper:
            state = keeper.state()
            for event in keeper.ledger.store.events(after=self._revision, until=state.revision):
                self._take(event)
            self.count = self._revision = state.revision
            fleet = state.of(Fleet)
            for record in self.records.values():
                if record.conditions:  # visited at least once
                    assert str(fleet.clusters[record.name].phase) == record.phase, record.name
                    self._check_health(record, fleet)
        self._check_outside()

    # What was written.

    def _take(self, event: Event) -> None:
        payload = json.loads(event.payload)
        if event.kind == "recipe.recorded":
            self.recipes[payload["recipe"], payload["version"]] = yaml.safe_load(payload["text"])
            return
        kind = event.kind.removeprefix("cluster.")
        name = payload.get("cluster")
        if not event.kind.startswith("cluster.") or kind == "recorded":
            return
        if kind == "planned":
            self.records[name] = Record(name)
        record = self.records[name]
        if kind in ("planned", "respecified"):
            record.spec, record.version = payload["spec"], payload["recipe_version"]
        elif kind == "recipe_migrated":
            record.version = payload["version"]
        elif kind == "checked_in":
            record.is_checked_in = True
        elif kind == "quota_claimed":
            record.claim = payload["cores"]
            self._check_promises({each.name for each in self.records.values() if each.claim})
        elif kind == "quota_released":
            assert not record.attempts, f"{name} gave back quota that it uses"
            record.claim = {}
        elif kind == "step_intended":
            self._intended(record, payload)
        elif kind == "step_seen":
            self._seen(record, payload)
        elif kind == "step_retried":
            record.going[payload["step"]] = "retrying"
            record.asked.add(payload["step"])
        elif kind == "step_waived":
            record.waived.add(payload["step"])
        elif kind == "conditions":
            self._conditions(record, payload, event.effective_time)
        elif kind == "available":
            self._available(record, event.effective_time)
        elif kind == "leaving":
            record.is_leaving = True
        elif kind == "gone":
            record.is_gone, record.claim = True, {}
            for step in self._recipe(record).get("out", ()) if record.attempts else ():
                assert self._is_done(record, step), f"{name} is gone, and {step['step']} was not done"

    def _intended(self, record: Record, payload: Json) -> None:
        step, attempt, operation = payload["step"], payload["attempt"], payload["operation"]
        assert attempt == record.attempts.get(step, 0) + 1, f"{operation}: a number was skipped or used twice"
        assert attempt == 1 or record.going[step] == "retrying", f"{operation}: nobody knew that the last had failed"
        if attempt > 1 and step not in record.asked:
            assert not self._is_alive(record.operation(step)), f"{operation}: the last one is not over"
        record.asked.discard(step)
        assert all(operation not in each.operations for each in self.records.values()), operation
        assert record.claim, f"{operation} without quota"
        found = next(each for each in self._steps(record) if each["step"] == step)
        for need in found.get("needs", ()):
            assert record.going[need] == "done" or need in record.waived, f"{operation} before {need}"
        record.attempts[step], record.going[step] = attempt, "intended"
        record.operations[operation] = (step, "intended")

    def _seen(self, record: Record, payload: Json) -> None:
        step = payload["step"]
        operation = record.operation(step)
        assert operation.endswith(f"-{step}-{payload['attempt']}"), f"{operation} was not the one that was seen"
        record.going[step] = payload["going"]
        record.operations[operation] = (step, payload["going"])
        record.reasons[operation].add(payload.get("reason", ""))
        if payload["going"] == "done":
            found = next(each for each in self._steps(record) if each["step"] == step)
            assert self._is_done(record, found), f"{operation} is not done"

    def _conditions(self, record: Record, payload: Json, at: datetime) -> None:
        recipe = self._recipe(record)
        # A clock that was set back counts anew.
        record.since = {kind: min(since, at) for kind, since in record.since.items()}
        for each in payload["conditions"]:
            kind, status = each["type"], each["status"]
            if record.conditions.get(kind) != status:
                record.since[kind] = at
            record.conditions[kind] = status
            assert each["reason"], f"{kind} without a reason"
            assert each["message"], f"{kind} without a message"
            if status != "True":
                continue
            if kind == "QuotaSufficient":
                assert record.claim or recipe["quota"]["source"] == "none", f"{record.name} was promised nothing"
            elif kind == "Available":
                assert record.is_available, f"{record.name} was not let in"
            elif kind != "SpecValid":
                self._check_steps(record, kind)
        assert set(record.conditions) == {*OTHERS, "Available"}, "all conditions are there from the first visit"

    def _available(self, record: Record, at: datetime) -> None:
        wrong = [kind for kind in OTHERS if record.conditions.get(kind) != "True"]
        assert not wrong, f"{record.name} was let in although {wrong}"
        steady = parse_span(self._recipe(record)["validation"]["steady_for"])
        assert steady is not None
        assert timedelta(0) <= at - record.since["HealthGreen"] >= steady, f"{record.name} was let in too early"
        record.is_available = True

    # What is true.

    def _recipe(self, record: Record) -> Json:
        return self.recipes[record.spec.get("recipe", "standard"), record.version]

    def _steps(self, record: Record) -> Iterator[Json]:
        recipe = self._recipe(record)
        yield from recipe["steps"]
        yield from recipe.get("out", ())

    def _check_steps(self, record: Record, kind: str) -> None:
        for step in self._recipe(record)["steps"]:
            if step["sets"] == kind:
                assert self._is_done(record, step), f"{record.name} says {kind}, and {step['step']} is not done"
        if kind == "ScaleSetsReady":
            assert self._machines(record) >= record.spec["nodes"], f"{record.name}: {self._machines(record)} machines"

    def _is_done(self, record: Record, step: Json) -> bool:
        """Whether a step is done outside."""
        if step["step"] in record.waived:
            return True
        if step["step"] not in record.attempts:
            return False
        operation = record.operation(step["step"])
        if "build" in step:
            found = self.yard.buildkite.having(META, operation)
            return any(each["state"] == "passed" and not each["blocked"] for each in found)
        if "run" in step:
            return self._result(operation) == 0
        if "scale_sets" in step:
            return bool(self._machines(record) >= record.spec["nodes"])
        return record.is_checked_in

    def _is_alive(self, operation: str) -> bool:
        """Whether an operation is going on outside, or has come to a good end."""
        builds = self.yard.buildkite.having(META, operation)
        return self._result(operation) == 0 or any(
            each["blocked"] or each["state"] in ("scheduled", "running", "passed") for each in builds
        )

    def _result(self, operation: str) -> int | None:
        file = Errands(self.yard.errands)._place(operation) / "result"
        return int(json.loads(file.read_text())["code"]) if file.exists() else None

    def _machines(self, record: Record) -> int:
        """The machines that somebody outside has named."""
        step = next(each for each in self._steps(record) if each.get("sets") == "ScaleSetsReady")
        if "scale_sets" in step:
            assert self.yard.cloud is not None
            sets = [each for each in self.yard.cloud.azure.scale_sets.values() if each.name.startswith(record.name)]
            return sum(machine.state == "Succeeded" for each in sets for machine in each.machines)
        file = Errands(self.yard.errands)._place(record.operation(step["step"])) / "out"
        said = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return len({each["node"] for each in said if each.get("type") == "node"})

    def _is_promised(self, record: Record) -> bool:
        return bool(record.claim) and record.conditions.get("QuotaSufficient") == "True"

    def _check_promises(self, names: set[str]) -> None:
        """What these clusters are promised, and have not filled, and what is used, is not more than there is."""
        promised: Counter[tuple[str, str, str]] = Counter()
        for name in names:
            record = self.records[name]
            family, _ = FAMILIES[record.spec["sku"]]
            if "scale-sets" not in record.attempts or self._machines(record) < record.spec["nodes"]:
                key = (record.spec["subscription"], record.spec["region"], family)
                promised[key] += record.claim[family]
        for key, cores in promised.items():
            limit, used = self._quota(key)
            assert cores + used <= limit, f"{key}: {cores} promised to {sorted(names)}, {used} used, of {limit}"

    def _quota(self, key: tuple[str, str, str]) -> tuple[int, int]:
        if self.yard.cloud is not None and "H100" in key[2]:
            return self.yard.cloud.azure.limits[key[2]], self.yard.cloud.azure.used(key[2])
        limit, used = self.yard.quota[key]
        return limit, used

    def _check_health(self, record: Record, fleet: Fleet) -> None:
        if record.conditions["HealthGreen"] != "True" or record.is_leaving or record.is_gone:
            return
        nodes = [node for node in fleet.nodes.values() if node.cluster == record.name]
        good = sum(node.service is Service.IN_SERVICE for node in nodes)
        assert good >= 0.95 * record.spec["nodes"], f"{record.name} is green with {good} nodes in service"

    def _truths(self) -> list[tuple[str, str]]:
        """The conditions of clusters on their way in whose steps are all done outside."""
        return [
            (record.name, kind)
            for record in self.records.values()
            if not record.is_gone and not record.is_leaving
            for kind in STEPS
            if all(self._is_done(record, step) for step in self._recipe(record)["steps"] if step["sets"] == kind)
        ]

    def _check_outside(self) -> None:
        yard = self.yard
        assert not yard.buildkite.unannounced, f"created without an intent: {yard.buildkite.unannounced}"
        known = {operation for record in self.records.values() for operation in record.operations}
        built = Counter(each["meta_data"][META] for each in yard.buildkite.builds)
        begun = self.begun()
        assert {*built, *begun} <= known, "begun, and nobody wrote that it would be"
        twice = [operation for operation, count in {**built, **begun}.items() if count > 1]
        assert not twice, f"done twice: {twice}"
        if yard.cloud is not None:
            assert set(yard.cloud.made.values()) <= {1}, yard.cloud.made

    def begun(self) -> Counter[str]:
        """How often each command began, by its operation."""
        file = self.yard.folder / "log"
        lines = file.read_text().splitlines() if file.exists() else []
        assert all(line.endswith(" begin") for line in lines), lines
        return Counter(line.split()[0] for line in lines)

    # In the end.

    def end(self, phase: str, *names: str) -> None:
        """All clusters, or these, are there; each operation that is done was begun once, and the ledger is whole."""
        self.look()
        begun, built = self.begun(), Counter(each["meta_data"][META] for each in self.yard.buildkite.builds)
        for name in names or self.records:
            record = self.records[name]
            assert record.phase == phase, f"{name}: {self.yard.told()}"
            for operation, (step, going) in record.operations.items():
                found = next(each for each in self._steps(record) if each["step"] == step)
                count = begun[operation] if "run" in found else built[operation] if "build" in found else 1
                is_lost = record.reasons[operation] & {"CommandLost", "Credentials", "Unreachable", "Leaving"}
                assert count == 1 or (is_lost and going != "done"), f"{operation} was begun {count} times"
        with self.yard.keeper() as keeper:
            assert verify(keeper.ledger.store).is_whole
            assert fold_of(events_of(keeper.ledger), KINDS).dump() == keeper.state().dump()
