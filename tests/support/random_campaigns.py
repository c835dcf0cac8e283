"""Random small fleets and campaign files that use every field: hypothesis draws them, the file reader takes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from plimsoll.campaigns.file import parse_campaign
from plimsoll.campaigns.model import Campaign
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Area, Cluster, Node, Phase, Purpose, Service, Sku
from plimsoll.state.table import Journal
from tests.support.plans import file_text

Draw = Callable[[st.SearchStrategy[Any]], Any]

NAMES = ("ant", "bee", "cat", "dog")
SKUS = ("H100", "H200", "GB200", "B900")
SERVES = ("api", "chat")
ZONES = ("UTC", "Europe/Stockholm", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
STARTS = (
    date(2026, 1, 5),
    date(2026, 3, 27),
    date(2026, 3, 7),
    date(2026, 10, 24),
    date(2026, 10, 31),
    date(2026, 4, 4),
)
"""Some lie before a change of the clock in one of the zones."""
SHARES = (0.07, 0.1, 0.3, 0.34, 0.5, 1 / 3, 2 / 3, 1.0)


class Scene(NamedTuple):
    """A fleet and a file that fits it."""

    fleet: Fleet
    text: str

    @property
    def campaign(self) -> Campaign:
        return parse_campaign(self.text, source="file.yaml")


def chance(draw: Draw, one_in: int) -> bool:
    return bool(draw(st.integers(1, one_in)) == one_in)


@st.composite
def small_fleets(draw: Draw, *, clusters_max: int = 3, nodes_max: int = 7) -> Fleet:
    """Clusters of mixed SKUs, some nodes with labels of their own, some retired, some in repair."""
    fleet = Fleet(Journal())
    fleet.skus.put("B900", Sku("B900", draw(st.sampled_from([0.3, 12.5]))))
    for name in NAMES[: draw(st.integers(1, clusters_max))]:
        labels = {"serves": draw(st.sampled_from(SERVES))} if chance(draw, 3) else {}
        fleet.clusters.put(
            name,
            Cluster(
                id=name,
                region=draw(st.sampled_from(["north", "south"])),
                area=draw(st.sampled_from(list(Area))),
                colo=draw(st.sampled_from(["quay", "pier"])),
                provider="acme",
                purpose=draw(st.sampled_from(list(Purpose))),
                phase=draw(st.sampled_from([Phase.PRODUCTION, Phase.PRODUCTION, Phase.PROVISIONED])),
                labels=labels,
            ),
        )
        skus = draw(st.lists(st.sampled_from(SKUS), min_size=1, max_size=2, unique=True))
        gpus = {sku: draw(st.sampled_from([4, 8])) for sku in skus}
        has_labels = chance(draw, 4)
        for number in range(draw(st.integers(1, nodes_max))):
            sku = draw(st.sampled_from(skus))
            own = {}
            if has_labels and chance(draw, 2):
                own["serves"] = draw(st.sampled_from(SERVES))
            if has_labels and chance(draw, 3):
                own["rack"] = draw(st.sampled_from(["r1", "r2"]))
            service = draw(st.sampled_from([Service.IN_SERVICE] * 5 + [Service.REPAIR, Service.RETIRED]))
            island = f"{name}-i{draw(st.integers(1, 2))}"
            fleet.put_node(Node(f"{name}-{number}", name, island, sku, gpus[sku], service, labels=own))
    return fleet


@st.composite
def scopes(draw: Draw, fleet: Fleet, *, has_size: bool, may_be_label: bool = True) -> dict[str, Any]:
    """A selector of at most two keys, all of which somebody has."""
    known: dict[str, list[str]] = {
        "cluster": sorted(fleet.clusters),
        "area": sorted({str(each.area) for each in fleet.clusters.values()}),
        "purpose": ["research", "applied"],
        "sku": list(SKUS),
        "colo": sorted({each.colo for each in fleet.clusters.values()}),
    }
    if has_size:
        known["size"] = ["big", "small"]
    for key in ("serves", "rack"):
        owned = [*(each.labels for each in fleet.clusters.values()), *(each.labels for each in fleet.nodes.values())]
        values = {labels[key] for labels in owned if key in labels}
        if values and may_be_label:
            known[key] = sorted(values)
    keys = draw(st.lists(st.sampled_from(sorted(known)), max_size=2, unique=True)) if chance(draw, 2) else []
    return {key: draw(st.lists(st.sampled_from(known[key]), min_size=1, max_size=2, unique=True)) for key in keys}


@st.composite
def limits(draw: Draw, fleet: Fleet, days: list[str], *, has_size: bool) -> dict[str, Any]:
    kind = draw(st.sampled_from(["out_at_once", "out_per_day", "average_loss", "starts_per_day", "crews"]))
    limit: dict[str, Any] = {"kind": kind, "scope": draw(scopes(fleet, has_size=has_size))}
    if kind in ("starts_per_day", "crews"):
        limit["at_most"] = draw(st.integers(0, 3))
    else:
        limit["unit"] = draw(st.sampled_from(["nodes", "gpus", "a100e"]))
        if kind == "average_loss" or chance(draw, 2):
            top = 0.2 if kind == "average_loss" else 1.0
            limit["at_most_share"] = draw(st.sampled_from([0.1, 0.3, 0.5, 0.9])) * top
            limit["of"] = draw(st.sampled_from(["scope", "fleet"]))
        else:
            limit["at_most"] = draw(st.integers(1, 12)) * {"nodes": 1, "gpus": 8, "a100e": 30}[limit["unit"]]
    if chance(draw, 3):
        limit["from"] = draw(st.sampled_from(days))
    if chance(draw, 3) and "from" not in limit:
        limit["until"] = draw(st.sampled_from(days))
    if chance(draw, 3):
        limit["days"] = draw(st.lists(st.sampled_from(["mon", "tue", "sat", "sun"]), min_size=1, unique=True))
    return limit


@st.composite
def scenes(draw: Draw, *, clusters_max: int = 3, nodes_max: int = 7) -> Scene:
    """A fleet and a campaign file; nothing says that a plan exists."""
    fleet = draw(small_fleets(clusters_max=clusters_max, nodes_max=nodes_max))
    start = draw(st.sampled_from(STARTS))
    days = [str(start + timedelta(days=number)) for number in range(draw(st.integers(1, 4)))]
    opens = draw(st.sampled_from([0, 1, 1.5, 9, 18]))
    slot = draw(st.sampled_from([30, 45, 60, 90]))
    hours = draw(st.sampled_from([1, 1.5, 2, 3]))
    span = hours + draw(st.sampled_from([0, 0.5, 1.5]))
    weekdays = draw(st.sampled_from([None, ["mon", "tue", "wed", "thu", "fri"], ["sat", "sun", "mon"]]))
    window = {"hours": [opens, opens + span], "tz": draw(st.sampled_from(ZONES))}
    size: dict[str, Any] = {"has_size": chance(draw, 2)}
    scope = scopes(fleet, **size)
    modes = st.sampled_from(
        [{"mode": "whole", "hours": hours}, {"mode": "whole", "hours": 1}]
        + [{"mode": "rolling", "share_per_day": share, "hours": 1} for share in SHARES]
    )
    work = [{"scope": draw(scope), **draw(modes)} for _ in range(draw(st.integers(0, 2)))]
    file: dict[str, Any] = {
        "start": days[0],
        "deadline": days[-1],
        "window": window | ({"days": weekdays} if weekdays else {}),
        "slot_minutes": slot,
        "work": [*work, {"scope": {}, **draw(modes)}],
        "big": {"nodes_over": draw(st.integers(0, 5))} if size["has_size"] else None,
        "scope": draw(scope) if chance(draw, 3) else {},
        "together": "colo" if chance(draw, 6) else None,
        "limits": [draw(limits(fleet, days, **size)) for _ in range(draw(st.integers(0, 3)))],
        "expect": [
            {"scope": draw(scope), "non_return_share": draw(st.sampled_from(SHARES)), "repair_days": draw(repairs)}
            for repairs in [st.sampled_from([0, 0.1, 0.5, 1, 2])] * draw(st.integers(0, 2))
        ],
        "canary": {"clusters": [draw(st.sampled_from(sorted(fleet.clusters)))], "soak_hours": draw(st.integers(0, 24))}
        if chance(draw, 5)
        else None,
        "no_fly": [
            {"scope": draw(scope), "from": (day := draw(st.sampled_from(days))), "to": day}
            for _ in range(draw(st.integers(0, 1)))
        ],
        "order": [
            {"scope": draw(scope), "weight": draw(st.integers(0, 5)), "strict": chance(draw, 4)}
            for _ in range(draw(st.integers(0, 3)))
        ],
        "spread": {"scope": draw(scope), "over": draw(st.sampled_from(["area", "purpose"]))}
        if chance(draw, 2)
        else None,
        "objective": {
            "exposure": 1,
            "imbalance": draw(st.sampled_from([0, 3.5])),
            "peak": draw(st.sampled_from([0, 2])),
        },
    }
    if chance(draw, 4):
        rules = [{"scope": draw(scope), "impact": "impactless"}, {"scope": {}, "impact": "disruptive"}]
        file["changes"] = [{"component": "nic", "version": "2", "impact": rules}]
    return Scene(fleet, file_text(**file))
