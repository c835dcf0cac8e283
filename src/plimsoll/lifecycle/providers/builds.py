"""Steps that are builds of Buildkite.

A build carries the name of its operation in its meta-data: whoever is not sure whether it was made looks for that.
Must never make a build whose operation has one; should two be there after all, the older one counts and the other is
cancelled. Hundreds of builds are looked at with a few lists: the organisation's requests are shared with people.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

from plimsoll.connect.buildkite import Build, Buildkite, BuildState
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import PlimsollError
from plimsoll.lifecycle.outside import Found, Look, Looks, Order, as_trouble
from plimsoll.lifecycle.reasons import Reason
from plimsoll.lifecycle.template import filled, spec_values

META_KEY = "plimsoll-operation"
SETTLE_SECONDS = 60.0
BEGIN_SECONDS_MAX = 10.0
"""How long looking for a build may take before it is made: whoever leads by now counts on the settle time."""
PIPELINES_AT_ONCE = 4
LIST_FROM = 3
"""From so many operations on one list is cheaper than looking for each."""
CLOCKS_APART = timedelta(minutes=10)
"""How far Buildkite's clock may be from ours. Where it is further, a build is found a settle time later."""

_FOUND = {
    BuildState.PASSED: Found.DONE,
    BuildState.FAILED: Found.FAILED,
    BuildState.BLOCKED: Found.BLOCKED,
    BuildState.CANCELED: Found.CANCELLED,
    BuildState.SKIPPED: Found.CANCELLED,
    BuildState.NOT_RUN: Found.FAILED,
    BuildState.WAITING_FAILED: Found.FAILED,
}
"""Every other state is one of a build that goes on; one that is being cancelled may still change something."""


class Builds:
    """Builds of one organisation."""

    place = ""

    def __init__(
        self,
        buildkite: Buildkite,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._buildkite, self._clock = buildkite, clock
        self.settle_seconds = settle_seconds

    def look(self, orders: Sequence[Order]) -> Looks:
        """Pipeline by pipeline. What goes wrong with one says nothing about the others."""
        by_pipeline: dict[str, list[Order]] = defaultdict(list)
        for order in orders:
            by_pipeline[_pipeline_of(order.handle) or _pipeline(order)].append(order)
        looks: Looks = {}
        with ThreadPoolExecutor(PIPELINES_AT_ONCE) as pool:
            for found in pool.map(self._look_at, by_pipeline, by_pipeline.values()):
                looks |= found
        return looks

    def begin(self, order: Order) -> Look:
        asked = self._clock()
        if (known := self._find(order)) is not None:
            return known
        if self._clock() - asked > BEGIN_SECONDS_MAX:
            raise ProviderTrouble(
                "buildkite_slow",
                f"{self._buildkite.where} took over {BEGIN_SECONDS_MAX:g} s to say whether the build is there",
                kind=TroubleKind.BUSY,
                next_step="wait: nothing was done",
            )
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

    def _look_at(self, pipeline: str, orders: Sequence[Order]) -> Looks:
        """Those whose number is known are asked for together, and first: how they are is news. The others are looked
        for by their operations."""
        known = {_number(order.handle): order for order in orders if order.handle}
        unknown = [order for order in orders if not order.handle]
        looks: Looks = {}
        try:
            builds = self._buildkite.poll(pipeline, list(known)) if known else {}
            for number, order in known.items():
                gone = Look(Found.LOST, Reason.COMMAND_LOST.code, f"build {number} of {pipeline} is not there any more")
                looks[order.key] = self._own(pipeline, builds[number], order) if number in builds else gone
            looks |= self._search(pipeline, unknown)
        except PlimsollError as error:
            looks |= {order.key: as_trouble(error) for order in orders if order.key not in looks}
        return looks

    def _own(self, pipeline: str, build: Build, order: Order) -> Look | ProviderTrouble:
        """How a build is, if it is this order's."""
        if build.meta_data.get(META_KEY) == order.operation:
            return _look(pipeline, build)
        return ProviderTrouble(
            "buildkite_bad_answer",
            f"build {build.number} of {pipeline} is not the one that was begun as {order.operation}",
            kind=TroubleKind.MISSING,
            next_step=f"plimsoll cluster retry {order.life.name} {order.step.name} --lost, if it does not run any more",
        )

    def _search(self, pipeline: str, orders: Sequence[Order]) -> Looks:
        if len(orders) < LIST_FROM:
            return {order.key: self._find(order) or Look(Found.ABSENT) for order in orders}
        earliest = min(order.life.works[order.step.name].tried for order in orders)
        by_operation: dict[str, list[Build]] = defaultdict(list)
        try:
            made = self._buildkite.made_since(pipeline, earliest - CLOCKS_APART)
        except ProviderTrouble as trouble:
            if trouble.code != "buildkite_bad_answer":  # there are too many since then: one by one
                raise
            return {order.key: self._find(order) or Look(Found.ABSENT) for order in orders}
        for build in made:
            by_operation[build.meta_data.get(META_KEY, "")].append(build)
        return {
            order.key: self._chosen(pipeline, by_operation[order.operation]) or Look(Found.ABSENT) for order in orders
        }

    def _find(self, order: Order) -> Look | None:
        pipeline = _pipeline(order)
        return self._chosen(pipeline, self._buildkite.find(pipeline, key=META_KEY, value=order.operation))

    def _chosen(self, pipeline: str, builds: Sequence[Build]) -> Look | None:
        """The oldest build of an operation that nobody stopped; others are stopped, as far as they can be."""
        if not builds:
            return None
        chosen = next((each for each in builds if _FOUND.get(each.state) is not Found.CANCELLED), builds[0])
        for other in builds:
            is_going = _FOUND.get(other.state, Found.RUNNING) in (Found.RUNNING, Found.BLOCKED)
            if other is not chosen and is_going and other.state is not BuildState.CANCELING:
                with suppress(ProviderTrouble):  # Buildkite cancels none that waits for a person
                    self._buildkite.cancel(pipeline, other.number)
        return _look(pipeline, chosen)


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


def _handle(pipeline: str, build: Build) -> str:
    """Where a build is found again, whatever becomes of the recipe: `bootstrap#12`, and its page."""
    return f"{pipeline}#{build.number} {build.url}".strip()


def _pipeline_of(handle: str) -> str:
    return handle.partition("#")[0]


def _number(handle: str) -> int:
    return int(handle.partition("#")[2].partition(" ")[0])


def _look(pipeline: str, build: Build) -> Look:
    found = _FOUND.get(build.state, Found.RUNNING)
    name = f"build {build.number} of {pipeline}"
    said = f": {build.said}" if build.said else ""
    if found is Found.BLOCKED:
        return Look(found, Reason.BLOCKED_OUTSIDE.code, f"{name} waits for a person{said}", _handle(pipeline, build))
    if found is Found.CANCELLED:
        return Look(found, Reason.CANCELLED_OUTSIDE.code, f"{name} was {build.state}{said}", _handle(pipeline, build))
    if found is Found.FAILED:
        return Look(found, Reason.STEP_FAILED.code, f"{name} is {build.state}{said}", _handle(pipeline, build))
    return Look(found, "", f"{name} is {build.state}{said}", _handle(pipeline, build))
