"""Every number and every word on a page is the one that its place is for: each is worked out by hand, of a fleet in
which what could be taken for it is another (`tests/support/logbook.py`, and what `happened` there since)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.fleet.model import Service
from plimsoll.health.service import observe
from plimsoll.health.signals import Signal, SignalKind
from plimsoll.times import parse_time, show_time, utc_now
from tests.support.logbook import HOUR, Logbook, kept_week, logbook
from tests.support.pages import Page, see
from tests.support.served import OTHER, TEAM, Served, make_people, serving

BIG = """\
workload: big
team: posttraining
where: {cluster: tiger, sku: H200}
parts: [{name: train, kind: gang, gpus: 96, tier: critical, rank: 1}]
"""
QUOTA_FILE = """\
subscription,region,family,limit,used
sub-a,us-north,standardNDISRH200V5Family,1000,200
"""


def happened(book: Logbook, folder: Path) -> None:
    """What has happened since that week; the numbers of its end are those of now, but for what is told here.

    Of the three nodes of lion that are out one is in maintenance by now, and nothing else in the fleet is planned. For
    six hours the last one was out as well: nothing worked where 16 are guaranteed and 8 run.
    """
    book.hour = parse_time(book.keeper.ledger.head().recorded_at) + 18 * HOUR
    book.at(18).out("l4", service=Service.MAINTENANCE, reason="new switches")
    book.at(17).done("incident run")
    # Four times are a lemon. Without this node as many of tiger's work as are guaranteed.
    for hours in (16, 15, 14, 13):
        book.at(hours).out("t5")
        book.at(hours - 0.5).back("t5")
    book.at(10).out("l1")
    book.done("incident run")
    book.at(4).back("l1")
    book.done("incident run")
    hear(book.at(3), "dcgm", "t1", "t2", "t3")
    # With half kept back both teams lose something in tiger, and one does in lion.
    book.done("quota rollout", policy="fixed:0.5", announce=True, reason="a half")
    book.done("quota agree", team=TEAM, reason="we can do without")
    book.done("quota object", team=OTHER, reason="we can not")
    # A node has 96 cores: 576 are promised to the first one, and of the 384 of the other 160 are missing.
    (folder / "quota.csv").write_text(QUOTA_FILE, encoding="utf-8")
    for name, nodes in (("heron", 6), ("swan", 4)):
        book.done("cluster add", name=name, region="us-north", subscription="sub-a", sku="H200", nodes=nodes)
    with at(Desk(book.keeper, "tester", book.dsn)):
        command("cluster run").done()
    book.now = utc_now()
    hear(book, "slurm", "t4", "t5")
    for node, expected in (("l2", "12h"), ("l3", "2d")):
        book.done("health hold", targets=[node], hold_id=node, service=Service.REPAIR, expected=expected, reason="fans")
    book.done("health announce", targets=["t1", "t2"], starts="2d", ends="3d", reason="new cables")
    (folder / "big.yaml").write_text(BIG, encoding="utf-8")
    book.done("workload submit", files=[str(folder / "big.yaml")])


def hear(book: Logbook, feed: str, *names: str) -> None:
    """A feed tells that all is well with the nodes that it covers."""
    signals = [Signal(name, SignalKind.HEARTBEAT, book.now, is_ok=True) for name in names]
    observe(book.keeper, signals, feed=feed, actor="tester", swept=names, at=book.now)


class Site(NamedTuple):
    served: Served
    then: str
    """The moment at which the last node of lion was back."""

    def see(self, path: str) -> Page:
        return see(self.served, path.format(then=quote(self.then)))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("sums")
    dsn = kept_week(folder)
    with logbook(dsn) as book:
        happened(book, folder)
    with serving(dsn, make_people(dsn)) as served:
        yield Site(served, show_time(book.hour - 4 * HOUR))


FLEET, TIGER, LION = "/", "/clusters/tiger", "/clusters/lion"
INCIDENT = "/incidents/incident-1?as_of={then}"

NUMBERS: dict[str, dict[str, str]] = {
    # Lion: 8 work, so its line is at 8 now and at 24 in force.
    FLEET: {"total": "128", "healthy": "96", "line": "88", "guaranteed": "96", "flex": "32", "over": "40",
            "short": "8"},
    TIGER: {"total": "96", "healthy": "88", "line": "80", "assigned": "112", "guaranteed": "80", "allocated": "64",
            "flex": "24", "over": "32", "short": "0"},
    LION: {"total": "32", "healthy": "8", "line": "8", "assigned": "16", "guaranteed": "16", "allocated": "8",
           "flex": "8", "over": "8", "short": "8"},
    # 8 in each cluster; those in lion are what others use as flex.
    f"/teams/{TEAM}": {"startable": "16", "assigned": "64", "guaranteed": "40", "allocated": "16", "free": "8",
                       "waiting": "1"},
    f"/teams/{OTHER}": {"startable": "8", "assigned": "64", "guaranteed": "56", "allocated": "56", "free": "8",
                        "waiting": "0"},
    "/health": {"unplanned": "3", "planned": "1", "gpus": "96", "breakers": "0", "silent": "1"},
    "/lifecycle": {"making": "2", "people": "1", "stopped": "0", "owed": "160"},
    "/quota": {"over": "40", "never": "32", "to_flex": "8", "running": "0", "guaranteed": "88", "line": "88",
               "flex": "8"},
    # By then 8 were missing for 184 hours: since 20 hours before that week. For 6 of them 16 were.
    INCIDENT: {"amount": "8", "most": "16", "all": "1,520.0", "teams": "1"},
}  # fmt: skip


@pytest.mark.parametrize("path", NUMBERS)
def test_each_number_is_its_own(path: str, site: Site) -> None:
    page = site.see(path)
    assert {key: page.number(key) for key in NUMBERS[path]} == NUMBERS[path]


class Columns(NamedTuple):
    """Some columns of a table."""

    path: str
    caption: str
    heads: str
    want: list[str]
    """Its rows, cell by cell."""


TABLES = {
    "the fleet, cluster by cluster": Columns(
        FLEET, "Clusters with their hulls, in GPUs",
        "cluster | installed | healthy | line | assigned | guaranteed | in use | idle | flex | over",
        ["lion | 32 | 8 | 8 | 16 | 16 | 8 | 0 | 8 | 8 short",
         "tiger | 96 | 88 | 80 | 112 | 80 | 64 | 24 | 24 | ▲32",
         "2 clusters | 128 | 96 | 88 | 128 | 96 | 72 | 24 | 32 | 40"],
    ),
    "a cluster's teams": Columns(
        TIGER, "Teams with quota in tiger, in GPUs", "team | assigned | guaranteed | in use | idle",
        ["pretraining | 64 | 56 | 48 | 16", "posttraining | 48 | 24 | 16 | 8"],
    ),
    "a cluster's planned work": Columns(TIGER, "Planned work that was announced", "work | nodes", ["new cables | 2"]),
    "what is out in a cluster": Columns(
        LION, "Nodes out of service by reason", "reason | kind | nodes | GPUs",
        ["fans | unplanned | 2 | 16", "new switches | planned | 1 | 8"],
    ),
    "a team's pools": Columns(
        f"/teams/{TEAM}", "What the team has in each pool",
        "cluster | assigned | guaranteed | in use | as flex | idle | can start | largest block",
        ["lion | 16 | 16 | 0 | 0 | 0 | 8 | 8",
         "tiger | 48 | 24 | 16 | 0 | 8 | 8 | 8",
         "all | 64 | 40 | 16 | 0 |  | 16 | "],
    ),
    "the pools of a team with flex": Columns(
        f"/teams/{OTHER}", "What the team has in each pool",
        "cluster | assigned | guaranteed | in use | as flex | idle | can start | largest block",
        ["lion | 0 | 0 | 8 | 8 | 0 | 0 | –",
         "tiger | 64 | 56 | 48 | 0 | 16 | 8 | 8",
         "all | 64 | 56 | 56 | 8 |  | 8 | "],
    ),
    "what a team's owners were told": Columns(
        f"/teams/{OTHER}", "What owners were told", "workload | what was done | gpus",
        ["run-3 | nodes came back | 0", "run-3 | nothing: this work is not placed by Plimsoll | 8"],
    ),
    "what the owner of work was told": Columns(
        "/workloads/run-3", "What its owner was told", "what was done",
        ["nodes came back", "nothing: this work is not placed by Plimsoll"],
    ),
    "where work runs": Columns(
        "/workloads/run-1", "Parts and where they run", "part | GPUs | guaranteed | flex | idle | islands",
        ["gang-1 | 16 | 16 | 0 | 8 | tiger-a 16"],
    ),
    "quota at the provider": Columns(
        "/lifecycle", "Quota by subscription, region and family, in cores",
        "limit | used | promised | wanted | missing",
        ["1,000 | 200 | 576 | 384 | 160"],
    ),
    "feeds": Columns("/health", "Feeds of signals", "feed | is | nodes", ["dcgm | silent | 3", "slurm | heard | 2"]),
    "health, cluster by cluster": Columns(
        "/health", "Clusters by share in service", "cluster | share | nodes | unplanned | planned | degraded | unknown",
        ["lion | 25.0 % | 4 | 2 | 1 | 0 | 0", "tiger | 91.7 % | 12 | 1 | 0 | 0 | 3"],
    ),
    "what comes back": Columns(
        "/health", "Nodes expected back", "within | promised nodes | GPUs | expected nodes",
        ["4.0 h | 0 | 0 | 0", "24.0 h | 1 | 8 | 0", "3.0 days | 2 | 16 | 0", "7.0 days | 2 | 16 | 0"],
    ),
    # Half of tiger's 12 nodes are 48 GPUs: 32 are cut of what is guaranteed, 8 of each team's that nothing runs on. Who
    # runs 48 loses 16 more of the gang that they are.
    "notices and answers": Columns(
        "/quota", "Open notices", "team | where | was | guaranteed | cut | of it running | answer",
        ["posttraining | lion H200 | 16 | 8 | 8 | 0 | agreed “we can do without” tester",
         "posttraining | tiger H200 | 24 | 16 | 8 | 0 | agreed “we can do without” tester",
         "pretraining | tiger H200 | 56 | 32 | 24 | 16 | objected “we can not” tester"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_each_column_is_what_its_head_says(name: str, site: Site) -> None:
    case = TABLES[name]
    found = site.see(case.path).columns(case.caption, *case.heads.split(" | "))
    assert [" | ".join(row) for row in found] == case.want


WORDS: dict[str, tuple[str, list[str]]] = {
    "the fleet": (
        FLEET,
        ["75.0 % of what is installed", "128 assigned", "8 standing, 24 lent; 8 in use",
         "32 never backed, in 2 clusters", "8 in 1 cluster"],
    ),
    "a cluster that is over": (
        TIGER,
        ["24 of it idle", "8 standing, 16 lent; 0 in use", "24 never backed", "1 unplanned, 0 planned nodes"],
    ),
    "a cluster of which something comes back": (
        LION,
        ["2 unplanned, 1 planned nodes", "Expected back within a day: 8 GPUs; within a week: 16."],
    ),
    "a team inside its guarantee": (
        f"/teams/{TEAM}",
        ["16 GPUs can start now, in 2 places; the largest block is 8 in ", "62.5 % of it", "0 of them as flex",
         "1 workload waiting, 1 running"],
    ),
    "a team with flex": (f"/teams/{OTHER}", ["8 GPUs can start now, in 1 place", "8 of them as flex"]),
    # 96 are asked for, and 24 guaranteed. 64 of the 88 that work are in use.
    "work that waits": (
        "/workloads/big",
        ["Missing 72 GPUs", "What would let it start, the cheapest first ask for 24 GPUs in train, 72 fewer",
         "Where it comes closest", "needs 96 · free 24 · missing 72"],
    ),
    "work that is flex": (
        "/workloads/run-3",
        ["What threatens it flex is taken 8 GPUs of it are flex and go when a guarantee needs them"],
    ),
    "an incident": (INCIDENT, ["2 nodes unplanned, 1 planned", "hurt posttraining"]),
    "the lemon": ("/health/lemons", ["4 times or more in 30 days: 1 node.", "t5 lemon H200 4"]),
    "what was done": (
        "/changes?days=30",
        ["correction applied : lion H200, tiger H200 tester, “the first alignment”", "incident opened : incident-1"],
    ),
    "answers to notices": ("/quota", ["2 agreed 1 objected 0 not answered"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_each_number_in_words_is_its_own(name: str, site: Site) -> None:
    path, want = WORDS[name]
    text = site.see(path).part("<main", "</main>").text
    assert [words for words in want if words not in text] == []


TONES = {
    "a feed": ("/health", {"silent": "bad", "heard": "good"}),
    "an answer": ("/quota", {"agreed": "good", "objected": "bad"}),
}


@pytest.mark.parametrize("name", TONES)
def test_each_word_in_a_table_has_its_tone(name: str, site: Site) -> None:
    path, want = TONES[name]
    found = re.findall(r'<td><span class="badge ?(\w*)">(\w+)</span>', site.see(path).html)
    assert {word: tone for tone, word in found} == want


TIGERS_HULL = [
    "guaranteed 0-80", "to-flex 80-88", "never 88-112", "inside 0-40", "idle 40-64", "flex-free 64-88",
]  # fmt: skip
HULLS = {
    "a cluster's, large": (TIGER, 'class="hull hull-large"', TIGERS_HULL),
    "a cluster's in the list": (FLEET, 'href="/clusters/tiger"', TIGERS_HULL),
}


@pytest.mark.parametrize("name", HULLS)
def test_each_part_of_a_hull_is_where_its_gpus_are(name: str, site: Site) -> None:
    """It is as wide as what is assigned to tiger, 112: 96 are installed. 32 are over the line, and 88 work."""
    path, begins, want = HULLS[name]
    hull = site.see(path).part(begins, "</svg></svg>").html
    parts = re.findall(r'<rect x="([\d.]+)%"[^>]* width="([\d.]+)%"[^>]* class="h-([\w-]+)"', hull)
    gpus = [(kind, float(x) * 1.12, (float(x) + float(width)) * 1.12) for x, width, kind in parts]
    assert [f"{kind} {begin:.0f}-{end:.0f}" for kind, begin, end in gpus] == want
