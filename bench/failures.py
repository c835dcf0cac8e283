"""Recorded failures as fleet folders: LANL's systems and Grid'5000, and bursty fleets that are made up.

The recordings are not part of this repository: `PLIMSOLL_DATA` names the folder that holds `failures/`, else they are
looked for beside the repository. Outages of one node that overlap are one outage.
"""

from __future__ import annotations

import csv
import lzma
import math
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from plimsoll.times import show_time

LANL_SYSTEMS = (18, 19, 20)
LANL_TIME = "%m/%d/%Y %H:%M"
LONG_REPAIR_HOURS, LONG_REPAIR_SIGMA = 48.0, 1.0
UNAVAILABLE = "0"
"""The event type of Grid'5000 for a node that is down."""
CLUSTER_HEADER = ["cluster", "region", "area", "colo", "provider", "purpose", "phase"]
NODE_HEADER = ["node", "cluster", "island", "sku", "gpus", "service", "since", "reason"]
HISTORY_HEADER = ["time", "node", "service", "reason"]


class Outage(NamedTuple):
    """A node was out from one moment until another; both in seconds since 1970."""

    begin: float
    end: float


class Recorded(NamedTuple):
    """A cluster: its nodes by island, and the outages of each node."""

    islands: Mapping[str, list[str]]
    outages: Mapping[str, list[Outage]]


def data_folder() -> Path | None:
    """Where the recordings are, if they are here."""
    named = os.environ.get("PLIMSOLL_DATA", "")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder if (folder / "failures").is_dir() else None


def write_lanl(data: Path, folder: Path, *, repair_seed: int | None = None) -> Path:
    """LANL systems 18 to 20 with their own repair times, or with lognormal ones of 48 hours on average."""
    dice = random.Random(repair_seed)
    mu = math.log(LONG_REPAIR_HOURS * 3600) - LONG_REPAIR_SIGMA**2 / 2
    sizes: dict[str, int] = {}
    outages: dict[str, dict[str, list[Outage]]] = defaultdict(lambda: defaultdict(list))
    with lzma.open(data / "failures" / "lanl.csv.xz", "rt", encoding="latin-1", newline="") as file:
        for row in csv.DictReader(file):
            if not row["System"].isdigit() or int(row["System"]) not in LANL_SYSTEMS:
                continue
            cluster = f"lanl-{row['System']}"
            sizes[cluster] = int(row["nodes"])
            begin, end = (_seconds(row[column]) for column in ("Prob Started", "Prob Fixed"))
            if repair_seed is not None:
                end = begin + dice.lognormvariate(mu, LONG_REPAIR_SIGMA)
            outages[cluster][f"{cluster}-{int(row['nodenumz']):04d}"].append(Outage(begin, end))
    recorded = {
        cluster: Recorded({f"{cluster}-i1": [f"{cluster}-{n:04d}" for n in range(size)]}, outages[cluster])
        for cluster, size in sorted(sizes.items())
    }
    return write_recorded(folder, recorded)


def _seconds(text: str) -> float:
    return datetime.strptime(text, LANL_TIME).replace(tzinfo=UTC).timestamp()


def write_grid5000(data: Path, folder: Path) -> Path:
    """Grid'5000: each cluster of each site."""
    nodes: dict[str, set[str]] = defaultdict(set)
    outages: dict[str, dict[str, list[Outage]]] = defaultdict(lambda: defaultdict(list))
    with lzma.open(data / "failures" / "grid5000" / "event_trace.tab.xz", "rt", encoding="utf-8") as file:
        for line in file:
            if line.startswith("#"):
                continue
            _, _, _, _, name, kind, begin, end, *_ = line.split()
            cluster = "-".join(name.split("/")[1:3])
            node = name.replace("/", "-")
            nodes[cluster].add(node)
            if kind == UNAVAILABLE:
                outages[cluster][node].append(Outage(float(begin), float(end)))
    recorded = {
        cluster: Recorded({f"{cluster}-i1": sorted(names)}, outages[cluster])
        for cluster, names in sorted(nodes.items())
    }
    return write_recorded(folder, recorded)


def write_bursty(
    folder: Path, seed: int, *, clusters: int = 12, days: int = 540, burst_days: float = 45.0, burst_hours: float = 6.0
) -> Path:
    """A made-up fleet: single failures with long repairs, and islands that lose a part of their nodes at once."""
    dice = random.Random(seed)
    start = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    mu = math.log(LONG_REPAIR_HOURS) - 0.5
    recorded = {}
    for number in range(clusters):
        name = f"bursty-{number:02d}"
        size, count = dice.choice((16, 32, 64)), dice.randint(1, 6)
        islands = {f"{name}-i{i}": [f"{name}-i{i}-{n:03d}" for n in range(size)] for i in range(count)}
        names = [node for members in islands.values() for node in members]
        outages: dict[str, list[Outage]] = defaultdict(list)
        per_hour = dice.uniform(2, 7) / 1000 / 24 * len(names)
        for hour in _poisson(dice, per_hour, days * 24):
            begin = start + hour * 3600
            outages[dice.choice(names)].append(Outage(begin, begin + dice.lognormvariate(mu, 1.0) * 3600))
        for hour in _poisson(dice, count / burst_days / 24, days * 24):
            share, hours = dice.uniform(0.1, 1.0), dice.lognormvariate(math.log(burst_hours), 0.8)
            for node in dice.choice(list(islands.values())):
                if dice.random() < share:
                    begin = start + hour * 3600 + dice.uniform(0, 300)
                    outages[node].append(Outage(begin, begin + hours * dice.uniform(0.9, 1.3) * 3600))
        recorded[name] = Recorded(islands, outages)
    return write_recorded(folder, recorded)


def _poisson(dice: random.Random, per_hour: float, hours: float) -> Iterable[float]:
    """The hours at which something happens that happens so often on average."""
    hour = dice.expovariate(per_hour)
    while hour < hours:
        yield hour
        hour += dice.expovariate(per_hour)


def merged(outages: Iterable[Outage]) -> list[Outage]:
    """Outages that overlap or touch are one."""
    found: list[Outage] = []
    for each in sorted(outages):
        if found and each.begin <= found[-1].end:
            found[-1] = Outage(found[-1].begin, max(found[-1].end, each.end))
        else:
            found.append(each)
    return found


def write_recorded(folder: Path, recorded: Mapping[str, Recorded]) -> Path:
    """A fleet folder; every node is told as in service, and its history says when it was not."""
    folder.mkdir(parents=True, exist_ok=True)
    clusters, nodes, history = [], [], []
    for cluster, (islands, outages) in recorded.items():
        clusters.append([cluster, "recorded", "other", "recorded", "recorded", "research", "production"])
        for island, names in islands.items():
            nodes += [[name, cluster, island, "H100", "8", "in_service", "", ""] for name in names]
            for name in names:
                for begin, end in merged(outages.get(name, ())):
                    history += [(begin, name, "repair", "recorded"), (end, name, "in_service", "")]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    told = [[show_time(epoch + timedelta(seconds=round(at))), *rest] for at, *rest in sorted(history)]
    for sheet, header, rows in (
        ("clusters", CLUSTER_HEADER, clusters),
        ("nodes", NODE_HEADER, nodes),
        ("history", HISTORY_HEADER, told),
    ):
        with (folder / f"{sheet}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return folder
