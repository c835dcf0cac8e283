"""Shapes of the answers of `plimsoll why`. Each is flat, and `about` says which it is."""

from __future__ import annotations

from typing import Any

from plimsoll.server.shapes.derive import object_of
from plimsoll.server.shapes.model import (
    STAMP,
    TEXT,
    Shape,
    always,
    choice,
    joined,
    many,
    named,
    noted,
    obj,
    one_of,
    without,
)
from plimsoll.workloads.why.fleet import FleetWhy
from plimsoll.workloads.why.model import TeamWhy, WorkWhy
from plimsoll.workloads.why.node import NodeWhy
from plimsoll.workloads.why.stopped import StoppedWhy

SAYS = obj(says=many(TEXT, "The sentences that people read."))


def _answer(about: Shape, kind: type[Any]) -> Shape:
    found = object_of(kind)
    if "answer" in found["properties"]:
        found = without(found, "answer")
    return joined(STAMP, obj(about=about), found, SAYS)


WORK = joined(
    _answer(choice("workload", "if"), WorkWhy),
    obj(
        workload=noted(TEXT, "Empty for `if`."),
        standing=choice("waiting", "starting", "partly", "running", "startable"),
    ),
)

SHAPES: dict[str, Shape] = {
    "why": one_of(
        named("WhyTeam", _answer(always("team"), TeamWhy), "Why a team can't use all of its quota."),
        named("WhyWork", WORK, "Why work waits, or would; what threatens it while it runs."),
        named("WhyNode", _answer(always("node"), NodeWhy), "Why a node is as it is, and whom that concerns."),
        named("WhyStopped", _answer(always("stopped"), StoppedWhy), "Why work stopped."),
        named("WhyFleet", _answer(always("fleet"), FleetWhy), "GPU-hours promised but unusable, by cause."),
    ),
}
