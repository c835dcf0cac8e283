"""A workload file: who asks for what, and where it may run. Pure; a mistake is named with its line.

`parse_workload` takes the words; `check_workload` asks whether the fleet could ever carry it, so that nothing waits for
what can't be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from plimsoll.documents import Field, read_document
from plimsoll.errors import Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, PoolKey
from plimsoll.fleet.selector import check_scope, pools_in, read_scope
from plimsoll.quota.model import Kind, Tier
from plimsoll.quota.names import check_team
from plimsoll.state.state import State
from plimsoll.workloads.model import PartSpec, RunsAs, Spec

PARTS_MAX = 100
GPUS_MAX = 1_000_000
REPLICAS_MAX = 100_000
RANK_MAX = 1_000_000
SPARES_MAX = 10_000
MINUTES_MAX = 100_000
HOURS_MAX = 24 * 3660
NAME_LENGTH_MAX = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORKLOAD_KEYS = (
    "workload",
    "team",
    "where",
    "owner",
    "as",
    "hours",
    "checkpoint_minutes",
    "restart_minutes",
    "parts",
)


def parse_workload(text: str, *, source: str) -> Spec:
    """The workload that a file describes."""
    return read_workload(read_document(text, source=source))


def read_workload(document: Field) -> Spec:
    with document.mapping(_WORKLOAD_KEYS) as top:
        name = _name(top.need("workload"))
        team = top.need("team").text()
        where = top.need("where")
        scope = read_scope(where)
        if not {"cluster", "sku"} & set(where.keys()):
            raise where.bad("says neither cluster nor sku: it may run nowhere in particular; add sku: H200, say")
        owner = top.get("owner")
        runs_as = top.get("as")
        hours = top.get("hours")
        checkpoint, restart = top.get("checkpoint_minutes"), top.get("restart_minutes")
        listed = top.need("parts")
        fields = listed.items()
        if not 1 <= len(fields) <= PARTS_MAX:
            raise listed.bad(f"has {len(fields)} parts; expected 1 to {PARTS_MAX}")
        parts = tuple(_part(field) for field in fields)
        _refuse_twice(fields, parts)
        return Spec(
            name,
            team,
            scope,
            parts,
            owner=owner.text() if owner else "",
            runs_as=RunsAs(runs_as.one_of(list(RunsAs))) if runs_as else RunsAs.ANY,
            hours=hours.number(least=0.01, most=HOURS_MAX) if hours else 0.0,
            checkpoint_minutes=checkpoint.number(least=0, most=MINUTES_MAX) if checkpoint else 0.0,
            restart_minutes=restart.number(least=0, most=MINUTES_MAX) if restart else 0.0,
        )


def _name(field: Field) -> str:
    text = field.text()
    if len(text) > NAME_LENGTH_MAX or not _NAME.fullmatch(text):
        raise field.expected(f"a name of at most {NAME_LENGTH_MAX} letters, digits, dots, dashes and underscores")
    return text


def _part(field: Field) -> PartSpec:
    with field.mapping(("name", "kind", "gpus", "replicas", "tier", "rank", "spare_nodes")) as part:
        name = _name(part.need("name"))
        kind = Kind(part.need("kind").one_of(list(Kind)))
        tier = Tier(part.need("tier").one_of(list(Tier)))
        rank = part.need("rank").whole_number(least=1, most=RANK_MAX)
        gpus, replicas, spares = part.get("gpus"), part.get("replicas"), part.get("spare_nodes")
        if kind is Kind.GANG:
            if replicas is not None:
                raise replicas.bad("a gang has no replicas: it is all or nothing; gpus says how many it needs")
            wanted = part.need("gpus").whole_number(least=1, most=GPUS_MAX)
            count = spares.whole_number(least=0, most=SPARES_MAX) if spares is not None else 0
            return PartSpec(name, kind, tier, rank, wanted, spare_nodes=count)
        if gpus is not None:
            raise gpus.bad("an elastic part says its GPUs by replica: replicas: {min: 4, max: 20, gpus: 8}")
        if spares is not None:
            raise spares.bad("an elastic part needs no spares: it runs on with one replica less")
        return _elastic(name, tier, rank, part.need("replicas"))


def _elastic(name: str, tier: Tier, rank: int, field: Field) -> PartSpec:
    with field.mapping(("min", "max", "gpus")) as replicas:
        least = replicas.need("min").whole_number(least=0, most=REPLICAS_MAX)
        most = replicas.need("max").whole_number(least=1, most=REPLICAS_MAX)
        gpus = replicas.need("gpus").whole_number(least=1, most=GPUS_MAX)
        if least > most:
            raise field.bad(f"min is {least} and max is {most}: at least can't be more than at most")
        return PartSpec(name, Kind.ELASTIC, tier, rank, gpus, least=least, most=most)


def _refuse_twice(fields: Sequence[Field], parts: Sequence[PartSpec]) -> None:
    """Names and ranks tell parts apart: the second of its kind is the mistake."""
    for what in ("name", "rank"):
        seen: dict[object, int] = {}
        for field, part in zip(fields, parts, strict=True):
            value = getattr(part, what)
            place = field.need(what)
            if value in seen:
                raise place.bad(f"{what} {value} stands here twice; first on line {seen[value]}")
            seen[value] = place.line


def check_workload(state: State, spec: Spec, document: Field | None = None) -> list[PoolKey]:
    """The pools in production where it could run if all of them worked and were free; refuses what never can."""
    fleet = state.of(Fleet)
    check_team(state, spec.team)
    if document is not None:
        check_scope(spec.where, fleet, document.need("where"))
    pools = [pool for pool in pools_in(spec.where, fleet) if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION]
    if not pools:
        raise Refused(
            "nowhere",
            f"no cluster in production matches {{{spec.where}}}: {spec.name} could run nowhere",
            next_step="plimsoll fleet show --by cluster",
            workload=spec.name,
        )
    islands = _islands_of(fleet, pools)
    fitting = [pool for pool in pools if _could_hold(spec, islands[pool])]
    if not fitting:
        raise _too_large(spec, islands)
    return fitting


def _islands_of(fleet: Fleet, pools: Sequence[PoolKey]) -> dict[PoolKey, list[tuple[int, str]]]:
    """What is installed in the islands of these pools."""
    islands: dict[PoolKey, list[tuple[int, str]]] = {pool: [] for pool in pools}
    for key, count in fleet.islands.items():
        mine = islands.get(PoolKey(fleet.island_cluster[key.island], key.sku))
        if mine is not None:
            mine.append((count.gpus, key.island))
    return islands


def _could_hold(spec: Spec, islands: Sequence[tuple[int, str]]) -> bool:
    largest = max((gpus for gpus, _ in islands), default=0)
    installed = sum(gpus for gpus, _ in islands)
    return all(part.gpus <= largest for part in spec.parts) and spec.gpus_least <= installed


def _too_large(spec: Spec, islands: dict[PoolKey, list[tuple[int, str]]]) -> Refused:
    part = max(spec.parts, key=lambda each: (each.gpus, each.name))
    best = max(gpus for found in islands.values() for gpus, _ in found)
    named = sorted(
        (pool.cluster, pool.sku, island) for pool, found in islands.items() for gpus, island in found if gpus == best
    )
    where = ", ".join(f"{island} of cluster {cluster} ({sku})" for cluster, sku, island in named[:3])
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    clusters = sorted({cluster for cluster, _, _ in named})
    if part.gpus > best:
        thing = "gang" if part.is_gang else "one replica of"
        message = f"{thing} {part.name} needs {part.gpus:,} GPUs in one island; the largest has {best:,}: {where}{more}"
        next_step = f"ask for at most {best:,} GPUs in one island, or look elsewhere: plimsoll fleet show --by island"
        return Refused(
            "larger_than_any_island",
            message,
            next_step=next_step,
            part=part.name,
            gpus=part.gpus,
            largest=best,
            clusters=clusters,
            islands=[island for *_, island in named[:100]],
        )
    most = max((sum(gpus for gpus, _ in found), pool) for pool, found in islands.items())
    return Refused(
        "larger_than_any_pool",
        f"{spec.name} needs at least {spec.gpus_least:,} GPUs in one cluster; the largest pool has {most[0]:,}:"
        f" {most[1].sku} of {most[1].cluster}",
        next_step="split it into workloads of their own: parts of one workload run in one cluster",
        gpus=spec.gpus_least,
        largest=most[0],
        cluster=most[1].cluster,
    )
