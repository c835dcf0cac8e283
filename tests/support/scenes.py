"""Scenes: a small yard, what happens in it act by act, and what must run where in the end, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple

from tests.support.workload_checker import check_rebuild, check_settled, check_state
from tests.support.yard import Yard

Act = Callable[[Yard], object]


class Scene(NamedTuple):
    """`want`: GPUs by island (`tiger-a` is `a`) of every workload that runs; `want_waits`: the cause of the others."""

    islands: Mapping[str, Mapping[str, int]]
    guaranteed: Mapping[str, Mapping[str, int]]
    acts: tuple[Act, ...]
    want: Mapping[str, Mapping[str, int]]
    want_waits: Mapping[str, str] = {}
    grace: int = 0
    """Minutes."""


def play(scene: Scene) -> Yard:
    """All acts, with everything counted again after each."""
    assigned = {cluster: dict.fromkeys(("x", "y", "z"), 8) for cluster in scene.islands}
    for cluster, teams in scene.guaranteed.items():
        assigned[cluster] = {**assigned[cluster], **{team: max(8, gpus) for team, gpus in teams.items()}}
    yard = Yard(scene.islands, scene.guaranteed, assigned=assigned, grace=timedelta(minutes=scene.grace))
    for act in scene.acts:
        act(yard)
        check_state(yard.state)
        check_settled(yard.state)
        check_rebuild(yard.state)
    return yard


def judge(scene: Scene) -> Yard:
    """Play it, and compare what runs and what waits with what is wanted."""
    yard = play(scene)
    assert {name: yard.islands(name) for name in yard.work.workloads} == scene.want
    waiting = sorted({*yard.work.queued, *yard.work.bookings})
    assert {name: yard.cause(name) or "booked" for name in waiting} == scene.want_waits
    return yard


def submit(*specs: object) -> Act:
    """The same moment for all of them; a second passes first, so that submit times differ between acts."""

    def act(yard: Yard) -> None:
        yard.now += timedelta(seconds=1)
        yard.submit(*specs)  # type: ignore[arg-type]

    return act


def cancel(name: str) -> Act:
    return lambda yard: yard.cancel(name)


def lose(*nodes: str) -> Act:
    return lambda yard: yard.lose(*nodes)


def bring_back(*nodes: str) -> Act:
    return lambda yard: yard.bring_back(*nodes)


def later(**span: float) -> Act:
    return lambda yard: yard.wait(**span)
