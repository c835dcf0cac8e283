"""What goes with a plan, out of a fleet and a quota book."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.publish.gather import gather
from plimsoll.campaigns.publish.model import Published
from plimsoll.campaigns.units import make_units
from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.quota.fold import QuotaBook
from tests.campaigns.publish.plans import NOW, batch, plan
from tests.support.promises import aligned_fleet

FILE = """\
campaign: nic-firmware
changes: [{component: nic, version: "28.43"}]
start: 2026-01-05
deadline: 2026-01-22
window: {hours: [11, 20]}
work: [{mode: whole, hours: 4}]
limits:
  - {kind: crews, at_most: 2}
  - {kind: out_at_once, unit: gpus, at_most_share: 0.25, of: fleet}
"""


def gathered(folder: Path, *, url: str = "") -> Published:
    # evals gave 8 of its 24 back after the alignment, new has none guaranteed yet.
    importer = aligned_fleet(folder, {"evals": 24, "vision": 16}, assigned={"evals": 16, "vision": 32, "new": 8})
    campaign = parse_campaign(FILE, source="test.yaml")
    fleet, book = importer.of(Fleet), importer.of(QuotaBook)
    roll = make_units(campaign, fleet)
    return gather(campaign, plan([batch(nodes=10)]), roll, fleet, book, generated_at=NOW, url=url)


def test_teams_limits_and_nodes_come_from_the_state(tmp_path: Path) -> None:
    published = gathered(tmp_path, url="https://p.example/x/")
    held = {(holder.team, holder.cluster, holder.sku): holder.gpus for holder in published.holders}
    assert held == {("evals", "tiger", "H200"): 24, ("new", "tiger", "H200"): 8, ("vision", "tiger", "H200"): 32}
    assert published.teams_of("tiger") == ("evals", "new", "vision")
    assert [cap.most for cap in published.caps] == [20], "a quarter of 80 GPUs; crews are no amount"
    assert published.a100e == {"H200": 3.2}
    (each,) = published.batches
    assert len(published.nodes_of(each)) == 10


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://x.example/\nATTENDEE:x", "https://x.example/a b", "x"])
def test_a_link_is_a_link(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        gathered(tmp_path, url=url)
    assert caught.value.code == "bad_url"
