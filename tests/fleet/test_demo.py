"""The demo fleet has the shape, the numbers and the worked case that tutorials and demos rely on.

Everything is counted here again from the rows, as a reader of the files would.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from plimsoll.fleet.demo import demo_fleet

UNTIL = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
START = UNTIL - timedelta(days=90)
SEEDS = (1, 2)

WANT_COLUMNS = {
    "clusters": "cluster,region,area,colo,provider,purpose,phase,serves",
    "nodes": "node,cluster,island,sku,gpus,service,since,reason",
    "quotas": "team,cluster,sku,gpus",
    "workloads": "workload,team,cluster,island,sku,gpus,kind,tier,rank,idle_gpus,owner",
    "versions": "node,component,version",
    "history": "time,node,service,reason",
}
WANT_NEXT = {
    "in_service": {"quarantined", "draining"},
    "draining": {"repair", "maintenance"},
    "quarantined": {"repair", "validating"},
    "repair": {"validating"},
    "maintenance": {"validating"},
    "validating": {"in_service", "quarantined"},
}
WANT_REASONS = {
    "xid 79",
    "xid 48",
    "xid 74",
    "ecc uncorrectable",
    "nvlink down",
    "ib link flapping",
    "thermal throttle",
    "lost heartbeat",
    "provider: host maintenance",
    "planned: nic-firmware",
    "planned: driver",
    "power event",
}
WANT_GPUS = {"A100": 8, "H100": 8, "H200": 8, "GB200": 4}
WANT_ISLAND_NODES = {
    "A100": range(32, 65),
    "H100": range(32, 257),
    "H200": range(32, 257),
    "GB200": range(18, 145, 18),
}

Record = dict[str, str]
Pool = tuple[str, str]


@dataclass
class Departure:
    """A node left service: when, why, and when it was back."""

    node: str
    at: datetime
    reason: str
    back_at: datetime | None = None

    @property
    def is_planned(self) -> bool:
        return self.reason.startswith(("planned:", "provider:"))


@dataclass
class Fleet:
    """The rows as records, and a few sums that many tests need."""

    rows: dict[str, list[tuple[str, ...]]]
    clusters: dict[str, Record] = field(default_factory=dict)
    nodes: dict[str, Record] = field(default_factory=dict)
    quotas: list[Record] = field(default_factory=list)
    workloads: list[Record] = field(default_factory=list)
    lines: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.clusters = {record["cluster"]: record for record in self.records("clusters")}
        self.nodes = {record["node"]: record for record in self.records("nodes")}
        self.quotas = self.records("quotas")
        self.workloads = self.records("workloads")
        for record in self.records("history"):
            self.lines[record["node"]].append(record)

    def records(self, name: str) -> list[Record]:
        header, *rows = self.rows[name]
        return [dict(zip(header, row, strict=True)) for row in rows]

    def production_nodes(self) -> list[Record]:
        return [n for n in self.nodes.values() if self.clusters[n["cluster"]]["phase"] == "production"]

    def total(self) -> Counter[Pool]:
        return _sum_gpus(self.production_nodes())

    def healthy(self) -> Counter[Pool]:
        return _sum_gpus([node for node in self.production_nodes() if node["service"] == "in_service"])

    def assigned(self) -> Counter[Pool]:
        return _sum_gpus(self.quotas)

    def allocated(self) -> Counter[Pool]:
        return _sum_gpus(self.workloads)

    def departures(self) -> list[Departure]:
        """Every time a production node left service in the window."""
        found = []
        for node in self.production_nodes():
            current: Departure | None = None
            for record in self.lines.get(node["node"], ()):
                at = datetime.fromisoformat(record["time"])
                if current is None:
                    current = Departure(node["node"], at, record["reason"])
                    found.append(current)
                elif record["service"] == "in_service":
                    current.back_at = at
                    current = None
        return found


def _sum_gpus(records: list[Record]) -> Counter[Pool]:
    sums: Counter[Pool] = Counter()
    for record in records:
        sums[record["cluster"], record["sku"]] += int(record["gpus"])
    return sums


def _by_cluster(pools: Counter[Pool]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for (cluster, _), gpus in pools.items():
        sums[cluster] += gpus
    return sums


def _by_team(records: list[Record], cluster: str) -> Counter[str]:
    sums: Counter[str] = Counter()
    for record in records:
        if record["cluster"] == cluster:
            sums[record["team"]] += int(record["gpus"])
    return sums


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seed: f"seed{seed}")
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return Fleet(demo_fleet(seed=request.param, until=UNTIL))


def test_same_seed_same_rows_and_other_seed_other_rows(fleet: Fleet) -> None:
    again = {seed: demo_fleet(seed=seed, until=UNTIL) for seed in SEEDS}
    assert sorted(rows == fleet.rows for rows in again.values()) == [False, True]
    assert all(again[1][name] != again[2][name] for name in WANT_COLUMNS)


def test_until_in_another_zone_is_the_same_moment() -> None:
    offset = datetime.fromisoformat("2026-01-05T11:30:00+02:00")
    assert demo_fleet(seed=1, until=offset) == demo_fleet(seed=1, until=UNTIL)


def test_files_come_in_order_with_their_columns(fleet: Fleet) -> None:
    assert {name: ",".join(rows[0]) for name, rows in fleet.rows.items()} == WANT_COLUMNS
    assert list(fleet.rows) == list(WANT_COLUMNS)
    for name, (header, *rows) in fleet.rows.items():
        assert {len(row) for row in rows} == {len(header)}, name
        assert all(type(cell) is str and cell == cell.strip() for row in rows for cell in row), name


def test_clusters_have_the_wanted_sizes_and_phases(fleet: Fleet) -> None:
    nodes_by_cluster: Counter[str] = Counter(node["cluster"] for node in fleet.nodes.values())
    skus: dict[str, set[str]] = defaultdict(set)
    for node in fleet.nodes.values():
        skus[node["cluster"]].add(node["sku"])
    phases = Counter(cluster["phase"] for cluster in fleet.clusters.values())
    assert phases == {"production": 76, "planned": 1, "provisioning": 1}
    current = {n for n, c in fleet.clusters.items() if c["phase"] == "production" and skus[n] != {"A100"}}
    old = {n for n, c in fleet.clusters.items() if c["phase"] == "production" and skus[n] == {"A100"}}
    assert (len(current), len(old)) == (72, 4)
    assert 18_300 <= sum(nodes_by_cluster[name] for name in current) <= 18_700
    assert sum(nodes_by_cluster[name] > 400 for name in current) == 10
    assert all(60 <= nodes_by_cluster[name] <= 160 for name in old)
    assert not any("A100" in skus[name] for name in current)
    assert sum(len(skus[name]) == 2 for name in current) in (4, 5)
    assert {sku for name in current for sku in skus[name]} == {"H100", "H200", "GB200"}


def test_clusters_being_created_hold_no_promise(fleet: Fleet) -> None:
    unborn = {cluster["phase"]: name for name, cluster in fleet.clusters.items() if cluster["phase"] != "production"}
    services = defaultdict(set)
    for node in fleet.nodes.values():
        services[node["cluster"]].add(node["service"])
    assert services[unborn["planned"]] == set()
    assert services[unborn["provisioning"]] == {"joining", "validating"}
    assert not {record["cluster"] for record in (*fleet.quotas, *fleet.workloads)} & set(unborn.values())


def test_places_nest_and_purposes_are_mixed(fleet: Fleet) -> None:
    clusters = fleet.clusters.values()
    assert {cluster["area"] for cluster in clusters} == {"us", "eu", "uk", "other"}
    for inner, outer in (("colo", "region"), ("region", "area"), ("colo", "provider")):
        assert len({cluster[inner] for cluster in clusters}) == len({(c[inner], c[outer]) for c in clusters})
    assert max(Counter(cluster["colo"] for cluster in clusters).values()) > 1
    second = sorted(Counter(cluster["provider"] for cluster in clusters).values())[:-1]
    assert len(second) == 1
    assert 1 <= second[0] <= 15
    assert 0.28 <= sum(cluster["purpose"] == "applied" for cluster in clusters) / len(clusters) <= 0.38
    assert {c["serves"] for c in clusters if c["purpose"] == "applied"} == {"chat", "api", "batch"}
    assert {c["serves"] for c in clusters if c["purpose"] == "research"} == {""}


def test_named_clusters_are_what_the_docs_say(fleet: Fleet) -> None:
    tiger, sweden = fleet.clusters["tiger"], fleet.clusters["sweden-a"]
    assert (tiger["purpose"], tiger["area"], sweden["area"]) == ("research", "us", "eu")
    islands = Counter(node["island"] for node in fleet.nodes.values() if node["cluster"] == "tiger")
    assert {node["sku"] for node in fleet.nodes.values() if node["cluster"] == "tiger"} == {"H200"}
    assert max(islands.values()) > 352 // 8
    assigned, allocated = _by_team(fleet.quotas, "tiger"), _by_team(fleet.workloads, "tiger")
    assert assigned["posttraining"] - allocated["posttraining"] >= 352


def test_tiger_has_352_free_gpus_but_not_in_one_island(fleet: Fleet) -> None:
    free: Counter[str] = Counter()
    for node in fleet.nodes.values():
        if node["cluster"] == "tiger" and node["service"] == "in_service":
            free[node["island"]] += int(node["gpus"])
    for part in fleet.workloads:
        if part["cluster"] == "tiger":
            free[part["island"]] -= int(part["gpus"])
    assert free.total() >= 352
    assert max(free.values()) < 352


def test_islands_and_nodes_are_well_formed(fleet: Fleet) -> None:
    assert len(fleet.nodes) == len(fleet.rows["nodes"]) - 1
    assert {(node["sku"], int(node["gpus"])) for node in fleet.nodes.values()} == set(WANT_GPUS.items())
    members: dict[str, list[Record]] = defaultdict(list)
    for node in fleet.nodes.values():
        members[node["island"]].append(node)
    for island, nodes in members.items():
        assert len({(node["cluster"], node["sku"]) for node in nodes}) == 1, island
        assert island.startswith(nodes[0]["cluster"] + "-i")
        assert len(nodes) in WANT_ISLAND_NODES[nodes[0]["sku"]], (island, len(nodes))


def test_some_nodes_are_out_unevenly_and_for_known_reasons(fleet: Fleet) -> None:
    nodes = fleet.production_nodes()
    out = [node for node in nodes if node["service"] != "in_service"]
    assert 0.04 <= len(out) / len(nodes) <= 0.07
    assert {node["service"] for node in out} == {"quarantined", "repair", "maintenance", "draining", "validating"}
    assert {node["reason"] for node in out} <= WANT_REASONS
    assert {node["reason"] for node in nodes if node["service"] == "in_service"} == {""}
    sizes = Counter(node["cluster"] for node in nodes)
    shares = sorted(count / sizes[name] for name, count in Counter(node["cluster"] for node in out).items())
    assert sum(share <= 0.042 for share in shares) >= 20
    assert 3 <= sum(share >= 0.095 for share in shares) <= 8
    assert shares[-1] <= 0.13


def test_quotas_over_promise_about_half_of_the_clusters(fleet: Fleet) -> None:
    assigned, healthy = _by_cluster(fleet.assigned()), _by_cluster(fleet.healthy())
    over = [assigned[name] / healthy[name] - 1 for name in healthy if assigned[name] > healthy[name]]
    assert 0.40 <= len(over) / 76 <= 0.60
    assert sum(0.02 <= share <= 0.12 for share in over) >= 0.8 * len(over)
    assert max(over) <= 0.20
    assert all(assigned[name] != healthy[name] for name in healthy)


def test_quotas_are_whole_nodes_of_known_pools(fleet: Fleet) -> None:
    total = fleet.total()
    held = [(quota["team"], quota["cluster"], quota["sku"]) for quota in fleet.quotas]
    assert len(set(held)) == len(held)
    for quota in fleet.quotas:
        assert (quota["cluster"], quota["sku"]) in total
        assert int(quota["gpus"]) > 0
        assert int(quota["gpus"]) % WANT_GPUS[quota["sku"]] == 0
    teams: dict[str, set[str]] = defaultdict(set)
    for quota in fleet.quotas:
        teams[quota["cluster"]].add(quota["team"])
    limits = {"research": (2, 8), "applied": (1, 3)}
    for name, here in teams.items():
        low, high = limits[fleet.clusters[name]["purpose"]]
        assert low <= len(here) <= high, name
    assert 36 <= len(set().union(*teams.values())) <= 44


def test_work_never_exceeds_the_nodes_in_service(fleet: Fleet) -> None:
    in_service: Counter[str] = Counter()
    place: dict[str, Pool] = {}
    for node in fleet.nodes.values():
        place[node["island"]] = (node["cluster"], node["sku"])
        if node["service"] == "in_service":
            in_service[node["island"]] += int(node["gpus"])
    on_island: Counter[str] = Counter()
    for part in fleet.workloads:
        if part["island"]:
            assert place[part["island"]] == (part["cluster"], part["sku"])
            on_island[part["island"]] += int(part["gpus"])
        else:
            assert part["kind"] == "elastic"
    assert [island for island in on_island if on_island[island] > in_service[island]] == []
    healthy, allocated = fleet.healthy(), fleet.allocated()
    assert [pool for pool in allocated if allocated[pool] > healthy[pool]] == []
    assert 0.85 <= allocated.total() / healthy.total() <= 0.92


def test_parts_of_workloads_are_well_formed(fleet: Fleet) -> None:
    quotas = {(quota["team"], quota["cluster"], quota["sku"]) for quota in fleet.quotas}
    for part in fleet.workloads:
        gpus, idle = int(part["gpus"]), int(part["idle_gpus"])
        assert (part["team"], part["cluster"], part["sku"]) in quotas
        assert 0 <= idle <= gpus
        assert gpus > 0
        assert int(part["rank"]) >= 1
        if part["kind"] == "gang":
            assert 8 <= gpus <= 1024
            assert gpus % WANT_GPUS[part["sku"]] == 0
    kinds = Counter(part["kind"] for part in fleet.workloads)
    assert set(kinds) == {"gang", "elastic"}
    assert min(kinds.values()) > 500
    tiers = Counter(part["tier"] for part in fleet.workloads)
    assert set(tiers) == {"critical", "high", "mid", "low"}
    assert tiers["critical"] + tiers["high"] > 0.8 * tiers.total()
    unplaced = sum(part["island"] == "" for part in fleet.workloads)
    assert 50 <= unplaced < kinds["elastic"] / 2
    idle_share = sum(int(part["idle_gpus"]) for part in fleet.workloads) / fleet.allocated().total()
    assert 0.05 <= idle_share <= 0.10


def test_some_workloads_are_a_gang_with_an_elastic_part(fleet: Fleet) -> None:
    parts: dict[str, list[Record]] = defaultdict(list)
    for part in fleet.workloads:
        parts[part["workload"]].append(part)
    assert {len(rows) for rows in parts.values()} == {1, 2}
    pairs = [rows for rows in parts.values() if len(rows) == 2]
    assert 15 <= len(pairs) <= 50
    for pair in pairs:
        assert [(part["kind"], part["rank"]) for part in pair] == [("gang", "1"), ("elastic", "2")]
        for column in ("team", "cluster", "sku", "tier", "owner"):
            assert pair[0][column] == pair[1][column]


def test_a_few_teams_run_above_their_quota(fleet: Fleet) -> None:
    assigned: Counter[tuple[str, ...]] = Counter()
    allocated: Counter[tuple[str, ...]] = Counter()
    for records, sums in ((fleet.quotas, assigned), (fleet.workloads, allocated)):
        for record in records:
            sums[record["team"], record["cluster"], record["sku"]] += int(record["gpus"])
    above = [key for key, gpus in allocated.items() if gpus > assigned[key]]
    assert 0.02 <= len(above) / len(assigned) <= 0.20


def test_the_worked_case_is_exact(fleet: Fleet) -> None:
    nodes = [node for node in fleet.nodes.values() if node["cluster"] == "walrus"]
    assert {(node["sku"], node["gpus"]) for node in nodes} == {("H100", "8")}
    assert fleet.clusters["walrus"]["phase"] == "production"
    assert len(nodes) == 361
    assert "retired" not in {node["service"] for node in nodes}
    assert sum(node["service"] == "in_service" for node in nodes) == 319
    assigned, allocated = _by_team(fleet.quotas, "walrus"), _by_team(fleet.workloads, "walrus")
    assert assigned.total() == 345 * 8
    assert allocated.total() == 310 * 8
    assert [team for team in allocated if allocated[team] > assigned[team]] == []
    assert sum(max(0, assigned[team] - allocated[team]) for team in assigned) == 35 * 8
    parts = [part for part in fleet.workloads if part["cluster"] == "walrus"]
    assert sum(int(part["idle_gpus"]) for part in parts) >= 4 * 8
    assert all(int(part["gpus"]) % 8 == 0 and int(part["idle_gpus"]) % 8 == 0 for part in parts)


def test_history_is_sorted_and_inside_the_window(fleet: Fleet) -> None:
    rows = fleet.rows["history"][1:]
    assert 60_000 <= len(rows) <= 130_000
    assert all(earlier[:2] <= later[:2] for earlier, later in itertools.pairwise(rows))
    assert rows[0][0] >= f"{START:%Y-%m-%dT%H:%M:%SZ}"
    assert rows[-1][0] <= f"{UNTIL:%Y-%m-%dT%H:%M:%SZ}"
    assert all(len(row[0]) == len("2026-01-05T09:30:00Z") and row[0].endswith("Z") for row in rows)


def test_history_ends_where_the_nodes_are_now(fleet: Fleet) -> None:
    assert set(fleet.lines) <= set(fleet.nodes)
    for name, node in fleet.nodes.items():
        now = (node["service"], node["reason"])
        if line := fleet.lines.get(name):
            assert now == (line[-1]["service"], line[-1]["reason"])
            assert node["since"] == line[-1]["time"]
        else:
            assert now == ("in_service", "")
            assert node["since"] < f"{START:%Y-%m-%dT%H:%M:%SZ}"


def test_history_never_makes_an_odd_move(fleet: Fleet) -> None:
    seen = set()
    for node in fleet.production_nodes():
        service, time = "in_service", ""
        for record in fleet.lines.get(node["node"], ()):
            assert record["service"] in WANT_NEXT[service], (node["node"], record)
            assert record["time"] > time
            assert (record["reason"] == "") == (record["service"] == "in_service")
            service, time = record["service"], record["time"]
            seen.add(record["reason"])
    assert seen - {""} == WANT_REASONS


def test_outages_are_as_frequent_and_as_long_as_wanted(fleet: Fleet) -> None:
    unplanned = [departure for departure in fleet.departures() if not departure.is_planned]
    sizes = Counter(node["cluster"] for node in fleet.production_nodes())
    by_cluster = Counter(fleet.nodes[departure.node]["cluster"] for departure in unplanned)
    rate = 1000 * len(unplanned) / (90 * sizes.total())
    assert 4.0 <= rate <= 6.0
    factors = sorted(1000 * by_cluster[name] / (90 * size) / rate for name, size in sizes.items())
    assert factors[0] < 0.7
    assert factors[-1] > 1.8
    assert 0.3 <= factors[0] <= factors[-1] <= 3.5
    days = [(d.back_at - d.at) / timedelta(days=1) for d in unplanned if d.back_at is not None]
    assert 1.5 <= sum(days) / len(days) <= 2.5
    lemons = [count for count in Counter(departure.node for departure in unplanned).values() if count >= 5]
    assert 0.003 <= len(lemons) / sizes.total() <= 0.008
    assert max(lemons) <= 17


def test_a_handful_of_bursts_hit_a_part_of_an_island_within_minutes(fleet: Fleet) -> None:
    island_nodes = Counter(node["island"] for node in fleet.nodes.values())
    lost: dict[str, list[Departure]] = defaultdict(list)
    for departure in fleet.departures():
        if departure.reason in ("power event", "ib link flapping"):
            lost[fleet.nodes[departure.node]["island"]].append(departure)
    bursts = set()
    hit: dict[str, Departure] = {}
    for island, found in lost.items():
        found.sort(key=lambda departure: departure.at)
        for first in found:
            near = [d for d in found if timedelta() <= d.at - first.at <= timedelta(minutes=5)]
            if first.at > START and len(near) >= 0.1 * island_nodes[island]:
                hit |= {departure.node: departure for departure in near}
                bursts.add((fleet.nodes[first.node]["cluster"], f"{first.at:%j}"))
    assert 5 <= len(bursts) <= 10
    soon = [d for d in hit.values() if d.back_at is not None and d.back_at - d.at < timedelta(days=1)]
    assert len(soon) >= 0.75 * len(hit)


def test_planned_work_is_whole_or_rolling_and_one_is_under_way(fleet: Fleet) -> None:
    sizes = Counter(node["cluster"] for node in fleet.nodes.values())
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    for line in fleet.lines.values():
        for record in line:
            if record["service"] == "maintenance" and record["reason"].startswith("planned:"):
                taken[fleet.nodes[record["node"]]["cluster"]][record["time"][:10]] += 1
    whole = [name for name, days in taken.items() if max(days.values()) > 0.8 * sizes[name]]
    rolling = [name for name, days in taken.items() if max(days.values()) <= 0.11 * sizes[name]]
    assert 4 <= len(whole) <= 16
    assert 3 <= len(rolling) <= 8
    assert len(whole) + len(rolling) == len(taken)
    assert all(len(taken[name]) >= 5 for name in rolling)
    under_way = {n["cluster"] for n in fleet.nodes.values() if n["reason"].startswith("planned:")} & set(rolling)
    assert under_way


def test_every_node_has_its_versions_and_clusters_differ_in_them(fleet: Fleet) -> None:
    on: dict[str, dict[str, str]] = defaultdict(dict)
    for record in fleet.records("versions"):
        on[record["node"]][record["component"]] = record["version"]
    assert len(fleet.rows["versions"]) - 1 == 3 * len(fleet.nodes)
    assert {tuple(versions) for versions in on.values()} == {("bios", "driver", "nic-firmware")}
    assert on.keys() == fleet.nodes.keys()
    mixed = Counter(
        len({tuple(on[name].items()) for name, node in fleet.nodes.items() if node["cluster"] == cluster})
        for cluster in {node["cluster"] for node in fleet.nodes.values()}
    )
    assert mixed[1] >= 30, "most clusters are alike"
    assert sum(mixed[count] for count in mixed if count > 1) >= 10, "and some are not"
    firmware = Counter(versions["nic-firmware"] for versions in on.values())
    assert set(firmware) == {"28.39", "28.41"}
    assert min(firmware.values()) > 3_000
    combinations = {tuple(versions.items()) for versions in on.values()}
    assert 10 <= len(combinations) <= 20
