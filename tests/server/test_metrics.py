"""What Prometheus reads: judged by its own tool, and the same numbers as the API's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.server import specials
from plimsoll.server.metrics import HULL, Tally, Text
from tests.support.parts import missing_part
from tests.support.served import Served, make_people, serving, small_book
from tests.support.servers import Ear
from tests.support.waiting import wait_until


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server whose numbers are made anew each time and are its own alone: those of the fleet ask the API as well."""

    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(specials, "METRICS_SECONDS", 0.0)
    monkeypatch.setattr(specials.Specials, "_fleet_metrics", nothing)
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def samples(served: Served) -> dict[str, float]:
    lines = served.ask("/metrics", who="viewer").body.decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_the_numbers_are_those_of_the_api(served: Served) -> None:
    served.api("/fleet")
    found = samples(served)
    for row in served.api("/quota").document["clusters"]:
        for field in HULL:
            name = f'plimsoll_{field}_gpus{{cluster="{row["cluster"]}",sku="{row["sku"]}"}}'
            assert found[name] == row[field], name
    assert found['plimsoll_nodes{service="in_service"}'] == served.api("/health").document["present"]["in_service"]
    assert found["plimsoll_mistakes_total"] == served.house.mistakes
    assert "plimsoll_ledger_revision" in found
    assert any(name.startswith("plimsoll_request_seconds_bucket") for name in found)


def test_those_who_listen_are_counted(own: Served) -> None:
    ears = [Ear(own), Ear(own, who="partner"), Ear(own)]
    assert samples(own)["plimsoll_listeners"] == own.api("/status").document["listeners"] == 3
    for ear in ears:
        ear.close()
    wait_until(lambda: samples(own)["plimsoll_listeners"] == 0, what="they are gone")


def test_answers_are_counted_as_made_or_given_again(own: Served) -> None:
    for path, times in (("/quota", 5), ("/fleet", 2), ("/health", 1)):
        for _ in range(times):
            assert own.api(path).status == 200
    found, status = samples(own), own.api("/status").document
    assert (found['plimsoll_answers_total{how="made"}'], found['plimsoll_answers_total{how="again"}']) == (3, 5)
    assert (status["answers_made"], status["answers_again"]) == (3, 5)


def test_requests_are_counted_by_what_was_asked_and_how_it_ended(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/nodes/t1", "/nodes/t2", "/nodes/none", "/nodes/none2", "/nodes/none3", "/nope"):
        own.api(path)
    own.api("/quota", who="")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(own.house.api, "respond", fail)
        assert own.api("/fleet").status == 500
    found = samples(own)
    asked = {
        name.partition("{")[2]: value for name, value in found.items() if name.startswith("plimsoll_requests_total")
    }
    assert asked == {
        'route="/api/v1/nodes/{node}",status="200"}': 2,
        'route="/api/v1/nodes/{node}",status="404"}': 3,
        'route="other",status="404"}': 1,
        'route="/api/v1/quota",status="401"}': 1,
        'route="/api/v1/fleet",status="500"}': 1,
    }
    assert found["plimsoll_mistakes_total"] == 1
    assert found['plimsoll_request_seconds_count{route="/api/v1/nodes/{node}"}'] == 5
    assert found["plimsoll_ledger_revision"] == own.api("/audit/head").document["revision"]


def test_prometheus_own_tool_finds_nothing_wrong(served: Served) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing_part("promtool")
    body = served.ask("/metrics", who="viewer").body
    ran = subprocess.run([str(promtool), "check", "metrics"], input=body, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")


@pytest.mark.parametrize("label", ['a"b', "a\\b", "a\nb"])
def test_labels_are_escaped(label: str) -> None:
    text = Text()
    text.metric("x", "gauge", "Something.", [({"name": label}, 1)])
    line = text.body().decode().splitlines()[-1]
    inner = line[line.index('"') + 1 : line.rindex('"')]
    assert inner.replace("\\\\", "\0").replace('\\"', '"').replace("\\n", "\n").replace("\0", "\\") == label


def test_times_are_counted_in_their_buckets() -> None:
    tally, text = Tally(), Text()
    for seconds in (0.001, 0.005, 0.2, 99.0):
        tally.add("/x", 200, seconds)
    text.histogram("seconds", "How long.", tally.seconds)
    found = dict(line.rpartition(" ")[::2] for line in text.body().decode().splitlines() if line[0] != "#")
    assert found['plimsoll_seconds_bucket{route="/x",le="0.005"}'] == "2"
    assert found['plimsoll_seconds_bucket{route="/x",le="0.25"}'] == "3"
    assert found['plimsoll_seconds_bucket{route="/x",le="+Inf"}'] == "4"
    assert found['plimsoll_seconds_count{route="/x"}'] == "4"
