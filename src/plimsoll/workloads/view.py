"""What is to be seen of workloads: who runs where and as what, who waits and why, what became of it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from plimsoll.fleet.model import PoolKey
from plimsoll.health.model import from_microseconds, to_microseconds
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Kind, QuotaKey, Tier
from plimsoll.state.state import State
from plimsoll.workloads.account import Uptime, uptime_of
from plimsoll.workloads.changes import WorkloadWaits
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Account, Asked, Booking, Interruption, Part, PartSpec, TeamHold, Workload
from plimsoll.workloads.refusal import refusal_for
from plimsoll.workloads.rights import Held, held_in
from plimsoll.workloads.shape import adopt, missing_parts, node_size
from plimsoll.workloads.turn import Turn

FRESH_MAX = 100
"""Of so many at most it is asked anew why they wait."""


class Standing(enum.StrEnum):
    """Where a workload stands."""

    RUNNING = "running"
    STARTING = "starting"
    """Flex was called back for it, and has until the due time to leave."""
    PARTLY = "partly"
    """Some of its parts run, others wait."""
    WAITING = "waiting"


class PartView(msgspec.Struct, frozen=True):
    """A part as it is now, in GPUs. `wanted` is all it could use; `guaranteed` and `flex` are what it has."""

    part: str
    kind: Kind
    tier: Tier
    rank: int
    wanted: int
    least: int
    gpus: int
    spare_gpus: int
    guaranteed: int
    flex: int
    idle: int
    islands: Mapping[str, int]
    nodes: tuple[str, ...]
    spare_nodes: tuple[str, ...]
    """Those of the nodes that only wait to step in."""

    @property
    def runs_as(self) -> str:
        """`guaranteed`, `flex`, `mixed`, or `-` where it does not run."""
        return runs_as(self.guaranteed, self.flex)


class WorkView(msgspec.Struct, frozen=True):
    """A workload as it is now."""

    workload: str
    team: str
    owner: str
    standing: Standing
    cluster: str
    sku: str
    submitted: datetime | None
    is_observed: bool
    parts: tuple[PartView, ...]
    waits: WorkloadWaits | None
    booking: Booking | None
    leaves_for: tuple[str, ...]
    """Who has called back some of what it holds."""
    uptime: Uptime
    interruptions: tuple[Interruption, ...]

    @property
    def gpus(self) -> int:
        return sum(part.gpus + part.spare_gpus for part in self.parts)

    @property
    def spare_gpus(self) -> int:
        return sum(part.spare_gpus for part in self.parts)

    @property
    def wanted(self) -> int:
        return sum(part.wanted for part in self.parts)

    @property
    def runs_as(self) -> str:
        return runs_as(sum(part.guaranteed for part in self.parts), sum(part.flex for part in self.parts))


def runs_as(guaranteed: int, flex: int) -> str:
    if guaranteed and flex:
        return "mixed"
    return "guaranteed" if guaranteed else "flex" if flex else "-"


def look_at(state: State, names: Iterable[str], *, now: datetime) -> list[WorkView]:
    """These workloads, as they are."""
    turn = Turn(state, now)
    held: dict[tuple[str, str, bool], Held] = {}
    pools: set[PoolKey] = set()
    wanted = list(names)
    for name in wanted:
        workload = turn.work.workloads.get(name)
        if workload is not None:
            pools |= {PoolKey(workload.cluster, part.sku) for part in workload.parts}
    for pool in pools:
        held |= {(each.work, each.part, each.is_spare): each for each in held_in(turn, pool)}
    is_fresh = len(wanted) <= FRESH_MAX
    return [_look(turn, name, held, is_fresh=is_fresh) for name in wanted]


def all_names(state: State) -> list[str]:
    """Everything that runs or waits."""
    tables = state.of(Workloads)
    return sorted({*tables.workloads, *tables.asked})


def _wait(turn: Turn, asked: Asked, name: str, *, is_fresh: bool) -> WorkloadWaits | None:
    """Why it waits, as it was recorded; with the numbers of now where few are looked at."""
    told = turn.work.wait_of(name)
    if told is None or not is_fresh:
        return told
    reason, is_guaranteed = refusal_for(turn, asked)
    return msgspec.structs.replace(told, workload=name, reason=reason, is_guaranteed=is_guaranteed)


def _look(turn: Turn, name: str, held: Mapping[tuple[str, str, bool], Held], *, is_fresh: bool) -> WorkView:
    tables = turn.work
    running = tables.workloads.get(name)
    asked = tables.asked.get(name)
    if asked is None:
        assert running is not None, f"{name} neither was submitted nor runs"
        asked = adopt(running, node_size(turn.fleet, running.cluster, running.parts[0].sku))
    accounts = {part.name: tables.accounts.get((name, part.name), Account()) for part in asked.spec.parts}
    booking = tables.bookings.get(name)
    cluster = running.cluster if running is not None else booking.cluster if booking is not None else ""
    sku = running.parts[0].sku if running is not None else booking.sku if booking is not None else ""
    return WorkView(
        workload=name,
        team=asked.spec.team,
        owner=asked.spec.owner,
        standing=_standing(asked, running, booking),
        cluster=cluster,
        sku=sku,
        submitted=from_microseconds(asked.submitted) if asked.submitted else None,
        is_observed=asked.is_observed,
        parts=tuple(_part(part, running, held, name) for part in asked.spec.parts),
        waits=_wait(turn, asked, name, is_fresh=is_fresh),
        booking=booking,
        leaves_for=tables.leaving.get(name, ()),
        uptime=uptime_of(((part, accounts[part.name]) for part in asked.spec.parts), now=to_microseconds(turn.now)),
        interruptions=tables.interruptions.get(name, ()),
    )


def _standing(asked: Asked, running: Workload | None, booking: Booking | None) -> Standing:
    missing = missing_parts(asked.spec, running)
    if not missing:
        return Standing.RUNNING
    if booking is not None:
        return Standing.STARTING
    return Standing.PARTLY if running is not None else Standing.WAITING


def _part(spec: PartSpec, running: Workload | None, held: Mapping[tuple[str, str, bool], Held], name: str) -> PartView:
    has: Part | None = running.running(spec.name) if running is not None else None
    spares = running.spares(spec.name) if running is not None else None
    parts = [part for part in (has, spares) if part is not None]
    flex = sum(held[name, spec.name, part.is_spare].flex for part in parts)
    gpus, spare_gpus = has.gpus if has else 0, spares.gpus if spares else 0
    islands: dict[str, int] = {}
    for part in parts:
        for block in part.blocks:
            islands[block.island] = islands.get(block.island, 0) + block.gpus
    nodes = sorted({node for part in parts for block in part.blocks for node, _ in block.nodes})
    return PartView(
        part=spec.name,
        kind=spec.kind,
        tier=spec.tier,
        rank=spec.rank,
        wanted=spec.gpus * spec.most,
        least=spec.gpus_least,
        gpus=gpus,
        spare_gpus=spare_gpus,
        guaranteed=gpus + spare_gpus - flex,
        flex=flex,
        idle=has.idle_gpus if has else 0,
        islands=islands,
        nodes=tuple(nodes),
        spare_nodes=tuple(sorted(node for block in (spares.blocks if spares else ()) for node, _ in block.nodes)),
    )


class PoolUse(msgspec.Struct, frozen=True):
    """What a team does with its quota in a pool, in GPUs."""

    cluster: str
    sku: str
    assigned: int
    guaranteed: int
    inside: int
    flex: int
    idle: int
    kept: int
    """Of the guarantee, for somebody who does not use it yet."""
    starting: int
    """What was called back for work of the team that starts when it has left."""
    left: int
    """Of the guarantee: neither used nor kept, nor about to be."""


class Use(msgspec.Struct, frozen=True):
    """Who of a team uses what, in GPUs."""

    owner: str
    workload: str
    part: str
    cluster: str
    sku: str
    tier: Tier
    rank: int
    gpus: int
    guaranteed: int
    flex: int
    idle: int


def team_use(state: State, team: str, *, now: datetime) -> tuple[list[PoolUse], list[Use], list[TeamHold]]:
    """Inside a team: its pools, who uses what of them, and what it keeps for whom."""
    book, tables = state.of(QuotaBook), state.of(Workloads)
    names = sorted(name for name, workload in tables.workloads.items() if workload.team == team)
    uses = [
        Use(view.owner, view.workload, part.part, view.cluster, view.sku, part.tier, part.rank,
            part.gpus + part.spare_gpus, part.guaranteed, part.flex, part.idle)
        for view in look_at(state, names, now=now)
        for part in view.parts
        if part.gpus
    ]  # fmt: skip
    keys = {key for key in (*book.quotas, *book.guaranteed) if key.team == team}
    keys |= {QuotaKey(team, use.cluster, use.sku) for use in uses}
    pools = []
    for key in sorted(keys):
        mine = [use for use in uses if (use.cluster, use.sku) == key.pool]
        inside, flex = sum(use.guaranteed for use in mine), sum(use.flex for use in mine)
        kept = sum(claim.reserve for claim in book.claims.get(key, ()))
        guaranteed = book.guaranteed.get(key, 0)
        starting = sum(
            place.gpus
            for name, booking in tables.bookings.items()
            if booking.pool == key.pool and tables.asked[name].spec.team == team
            for place in booking.places
        )
        pools.append(
            PoolUse(*key.pool, book.assigned_to(key), guaranteed, inside, flex, sum(use.idle for use in mine),
                    min(kept, guaranteed - inside), starting, max(0, guaranteed - inside - kept - starting))
        )  # fmt: skip
    holds = sorted((hold for hold in tables.holds.values() if hold.team == team), key=lambda hold: hold.id)
    return pools, uses, holds


class TeamUptime(msgspec.Struct, frozen=True):
    """What became of a team's gangs, or of one workload's."""

    team: str
    workload: str
    uptime: Uptime


UPTIME_GOAL = 0.9


def uptimes(
    state: State, *, now: datetime, teams: Collection[str] = (), since: timedelta | None = None
) -> list[TeamUptime]:
    """Per workload that ran, also those that are over: all of it that ended after `since` ago or still goes on."""
    tables, at = state.of(Workloads), to_microseconds(now)
    oldest = to_microseconds(now - since) if since is not None else 0
    found = []
    for name, asked in sorted(tables.asked.items()):
        if not teams or asked.spec.team in teams:
            accounts = [(part, tables.accounts.get((name, part.name), Account())) for part in asked.spec.parts]
            if any(account.first_started for _, account in accounts):
                found.append(TeamUptime(asked.spec.team, name, uptime_of(accounts, now=at)))
    for name, past in sorted(tables.past.items()):
        if past.ended >= oldest and (not teams or past.spec.team in teams) and past.accounts:
            accounts = [(part, past.accounts.get(part.name, Account())) for part in past.spec.parts]
            found.append(TeamUptime(past.spec.team, name, uptime_of(accounts, now=past.ended)))
    return found


def together(found: Iterable[Uptime]) -> Uptime:
    """The sum of several."""
    all_of_it = list(found)
    sums = {
        name: sum(getattr(each, name) for each in all_of_it) for name in Uptime.__struct_fields__ if name != "by_cause"
    }
    causes: dict[str, int] = {}
    for each in all_of_it:
        for cause, times in each.by_cause.items():
            causes[cause] = causes.get(cause, 0) + times
    return Uptime(**sums, by_cause=causes)
