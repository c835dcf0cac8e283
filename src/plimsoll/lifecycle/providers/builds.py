"""Steps that are builds of Buildkite.

A build carries the name of its operation in its meta-data: whoever is not sure whether it was made looks for that.
Must never make a build whose operation has one; should two be there after all, the older one counts and the other is
cancelled.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence

from plimsoll.connect.buildkite import Build, Buildkite, BuildState
from plimsoll.connect.provider import ProviderTrouble
from plimsoll.lifecycle.outside import Found, Look, Looks, Order
from plimsoll.lifecycle.reasons import Reason
from plimsoll.lifecycle.template import filled, spec_values

META_KEY = "plimsoll-operation"
SETTLE_SECONDS = 60.0

_FOUND = {
    BuildState.PASSED: Found.DONE,
    BuildState.FAILED: Found.FAILED,
    BuildState.BLOCKED: Found.BLOCKED,
    BuildState.CANCELED: Found.CANCELLED,
    BuildState.CANCELING: Found.CANCELLED,
    BuildState.SKIPPED: Found.CANCELLED,
    BuildState.NOT_RUN: Found.FAILED,
    BuildState.WAITING_FAILED: Found.FAILED,
}
"""Every other state is one of a build that goes on."""


class Builds:
    """Builds of one organisation."""

    place = ""

    def __init__(self, buildkite: Buildkite, *, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._buildkite = buildkite
        self.settle_seconds = settle_seconds

    def look(self, orders: Sequence[Order]) -> Looks:
        """Those whose number is known are asked for together; the others are looked for by their operation."""
        looks: Looks = {}
        known: dict[str, dict[int, Order]] = defaultdict(dict)
        for order in orders:
            if order.handle:
                known[_pipeline(order)][_number(order.handle)] = order
                continue
            try:
                looks[order.key] = self._find(order) or Look(Found.ABSENT)
            except ProviderTrouble as trouble:
                looks[order.key] = trouble
        for pipeline, by_number in known.items():
            try:
                builds = self._buildkite.poll(pipeline, list(by_number))
            except ProviderTrouble as trouble:
                looks |= {order.key: trouble for order in by_number.values()}
                continue
            for number, order in by_number.items():
                build = builds.get(number)
                gone = Look(Found.LOST, Reason.COMMAND_LOST.code, f"build {number} of {pipeline} is not there any more")
                looks[order.key] = _look(pipeline, build) if build is not None else gone
        return looks

    def begin(self, order: Order) -> Look:
        if (known := self._find(order)) is not None:
            return known
        job = order.step.build
        assert job is not None, f"{order.step.name} is no build"
        values = _values(order)
        build = self._buildkite.create(
            _pipeline(order),
            commit=job.commit,
            branch=filled(job.branch, values),
            message=f"{order.life.name}: {order.step.name}, attempt {order.attempt}",
            env={name: filled(value, values) for name, value in job.env.items()},
            meta_data={META_KEY: order.operation, "cluster": order.life.name, "step": order.step.name},
        )
        return _look(_pipeline(order), build)

    def _find(self, order: Order) -> Look | None:
        pipeline = _pipeline(order)
        builds = self._buildkite.find(pipeline, key=META_KEY, value=order.operation)
        if not builds:
            return None
        for other in builds[1:]:
            if _FOUND.get(other.state, Found.RUNNING) in (Found.RUNNING, Found.BLOCKED):
                self._buildkite.cancel(pipeline, other.number)
        return _look(pipeline, builds[0])


def _values(order: Order) -> dict[str, str]:
    return spec_values(
        order.life.spec,
        step=order.step.name,
        operation=order.operation,
        attempt=str(order.attempt),
        python=sys.executable,
    )


def _pipeline(order: Order) -> str:
    assert order.step.build is not None, f"{order.step.name} is no build"
    return filled(order.step.build.pipeline, _values(order))


def _handle(build: Build) -> str:
    return f"{build.number} {build.url}".strip()


def _number(handle: str) -> int:
    return int(handle.partition(" ")[0])


def _look(pipeline: str, build: Build) -> Look:
    found = _FOUND.get(build.state, Found.RUNNING)
    name = f"build {build.number} of {pipeline}"
    said = f": {build.said}" if build.said else ""
    if found is Found.BLOCKED:
        return Look(found, Reason.BLOCKED_OUTSIDE.code, f"{name} waits for a person{said}", _handle(build))
    if found is Found.CANCELLED:
        return Look(found, Reason.CANCELLED_OUTSIDE.code, f"{name} was {build.state}{said}", _handle(build))
    if found is Found.FAILED:
        return Look(found, Reason.STEP_FAILED.code, f"{name} is {build.state}{said}", _handle(build))
    return Look(found, "", f"{name} is {build.state}{said}", _handle(build))
