"""A push whose process is killed, on both databases: the next one takes its turn over at once and completes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plimsoll.connect.kubeconfig import access
from plimsoll.connect.kueue import KueueApi
from plimsoll.quota.outlets.kueue import KueueStyle
from plimsoll.quota.outlets.kueue_outlet import KueueOutlet
from plimsoll.quota.outlets.push import Pushed, push
from plimsoll.rooms import open_keeper
from plimsoll.state.keeper import Keeper
from tests.support.children import Child
from tests.support.kube_api import Key, KubeApi
from tests.support.promises import align, aligned_fleet, pushes

TEAMS = {"evals": 16, "vision": 48}
OBJECTS = 11


def tell(keeper: Keeper, url: str) -> Pushed:
    outlet = KueueOutlet(KueueApi(access(url=url), timeout_seconds=20), cluster="tiger", style=KueueStyle())
    return push(keeper, outlet, "tiger", actor="tester")


def push_once(say: Callable[[Any], None], dsn: str, url: str) -> None:
    with open_keeper(dsn) as keeper:
        say(tell(keeper, url).is_complete)


@pytest.mark.parametrize("number", [1, 5, OBJECTS])
def test_a_killed_push_is_completed_by_the_next(number: int, dsn: str, tmp_path: Path) -> None:
    importer = aligned_fleet(tmp_path, TEAMS, dsn=dsn)
    is_there, may_go_on = threading.Event(), threading.Event()
    count = [0]

    def stop_at(_method: str, _key: Key) -> None:
        count[0] += 1
        if count[0] == number:
            is_there.set()
            may_go_on.wait(60)

    with KubeApi(namespaces=("evals", "vision")) as api:
        api.on_write = stop_at
        with Child(push_once, dsn, api.url) as child:
            assert is_there.wait(60)
            child.kill()
        may_go_on.set()  # the write on which it was killed is still done, and nobody hears the answer
        align(importer, {"evals": 24, "vision": 40})
        assert not pushes(importer)
        assert tell(importer.keeper, api.url).is_complete
        assert len(api.objects) == OBJECTS
        assert not tell(importer.keeper, api.url).outcomes
    (event,) = pushes(importer)
    assert len(msgspec.json.decode(event.payload)["changed"]) == OBJECTS


def test_two_processes_push_one_after_the_other(dsn: str, tmp_path: Path) -> None:
    importer = aligned_fleet(tmp_path, TEAMS, dsn=dsn)
    with KubeApi(namespaces=("evals", "vision")) as api:
        with Child(push_once, dsn, api.url) as first, Child(push_once, dsn, api.url) as second:
            assert first.hear()
            assert second.hear()
            first.finish()
            second.finish()
        assert len(api.writes) == OBJECTS  # the second found nothing to do
    assert len(pushes(importer)) == 1
