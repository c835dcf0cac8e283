"""What Prometheus reads: judged by its own tool, and the same numbers as the API's."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from plimsoll.server.metrics import HULL, Tally, Text
from tests.support.parts import missing_part
from tests.support.served import Served


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
