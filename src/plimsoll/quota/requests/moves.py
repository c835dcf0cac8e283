"""How quota moves between teams and back: transfers, grants, the end of both, and a team's new name. Pure.

A transfer moves assigned and guaranteed in one event, at most what the giver is guaranteed, so that nobody can come in
between (rule 5). It never takes what a pin or a block keeps, nor what the giver has only borrowed. The sum of
guarantees of a pool never rises here but by a grant, and that never above the line (rule 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.model import PoolKey
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import GrantEnded, GrantOpened, QuotaGranted, QuotaTransferred, TeamRenamed, team_stream
from plimsoll.quota.fill import fill
from plimsoll.quota.flex import not_aligned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Pool, look
from plimsoll.quota.model import Grant, Kind, QuotaKey
from plimsoll.quota.names import NAME_LENGTH_MAX, check_new_name, check_pool, check_team, check_whole_nodes, known_teams
from plimsoll.quota.plan import policy_in_force
from plimsoll.quota.policy import day_of
from plimsoll.quota.requests.givers import borrowed_by
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import near


class Holding(msgspec.Struct, frozen=True):
    """What a team is assigned and guaranteed, before and after, in GPUs."""

    team: str
    assigned_was: int
    assigned: int
    guaranteed_was: int
    guaranteed: int


class Transferred(msgspec.Struct, frozen=True):
    """What a transfer does. `grant` and `until` are set where it goes back by itself."""

    cluster: str
    sku: str
    gpus: int
    giver: Holding
    taker: Holding
    grant: str
    until: datetime | None
    notes: Sequence[str]


class Ended(msgspec.Struct, frozen=True):
    """A temporary grant that is over: so many GPUs go back, to the giver or to flex."""

    grant: Grant
    guaranteed: int


class Renamed(msgspec.Struct, frozen=True):
    """A team's new name, and what it takes along."""

    team: str
    name: str
    pools: int
    assigned: int
    guaranteed: int
    notes: Sequence[str]


def transfer(
    state: State,
    *,
    giver: str,
    taker: str,
    cluster: str,
    sku: str,
    gpus: int,
    until: datetime | None = None,
    is_new_taker: bool = False,
    now: datetime,
) -> tuple[Transferred, list[Draft]]:
    """One team gives another some of its quota in a pool; with `until` only for a while."""
    key, count = check_pool(state, cluster, sku)
    check_team(state, giver)
    check_team(state, taker, may_be_new=is_new_taker)
    if giver == taker:
        next_step = "name two teams: GIVER TAKER"
        raise UsageError("same_team", f"{giver} can't give {gpus} GPUs to itself", next_step=next_step)
    check_whole_nodes(gpus, count.gpus_per_node, f"{cluster} {sku}")
    check_end(until, now=now)
    [pool] = look(state, [key], policy_in_force(state), day_of(now))
    check_gift(state, pool, giver, gpus)
    grant = grant_id(state, key) if until is not None else ""
    drafts = list(transfer_drafts(key, giver, taker, gpus, grant=grant, until=until))
    book = state.of(QuotaBook)
    outcome = Transferred(
        cluster,
        sku,
        gpus,
        _holding(book, QuotaKey(giver, *key), -gpus),
        _holding(book, QuotaKey(taker, *key), gpus),
        grant,
        until,
        list(_transfer_notes(pool, giver, gpus)),
    )
    return outcome, drafts


def transfer_drafts(
    key: PoolKey, giver: str, taker: str, gpus: int, *, grant: str = "", until: datetime | None = None
) -> Iterator[Draft]:
    """The events of a transfer; the promise to give it back is made in the same commit."""
    yield Draft(QuotaTransferred(*key, giver, taker, gpus))
    if until is not None:
        yield Draft(GrantOpened(Grant(grant, taker, *key, gpus, until, giver)))


def grant_drafts(
    key: PoolKey, team: str, gpus: int, *, request: str = "", grant: str = "", until: datetime | None = None
) -> Iterator[Draft]:
    """The events of a grant out of what nobody was promised."""
    yield Draft(QuotaGranted(*key, team, gpus, request))
    if until is not None:
        yield Draft(GrantOpened(Grant(grant, team, *key, gpus, until)))


def grant_id(state: State, key: PoolKey, place: int = 0) -> str:
    """A name for a grant. Two that are decided at one revision are of different pools, or one of them is stale."""
    return f"{key.cluster}/{key.sku}/{state.revision + 1 + place}"


def check_end(until: datetime | None, *, now: datetime) -> None:
    if until is not None and until <= now:
        raise UsageError(
            "bad_time",
            f"it would end at {show_time(until)}, which is not after {show_time(now.replace(microsecond=0))}",
            next_step="--for 14d, or --until with a later time",
        )


def _holding(book: QuotaBook, key: QuotaKey, gpus: int) -> Holding:
    assigned, guaranteed = book.assigned_to(key), book.guaranteed.get(key, 0)
    return Holding(key.team, assigned, assigned + gpus, guaranteed, guaranteed + gpus)


def check_gift(state: State, pool: Pool, giver: str, gpus: int) -> None:
    """Refuse what the giver does not have, or may not give."""
    if not pool.is_aligned:
        raise not_aligned(pool.key)
    where, guaranteed = f"{pool.key.cluster} {pool.key.sku}", pool.guaranteed.get(giver, 0)
    fields: dict[str, object] = {"team": giver, "guaranteed": guaranteed, "wanted": gpus}
    if gpus > guaranteed:
        raise Refused(
            "over_guarantee",
            f"{giver} is guaranteed {guaranteed} GPUs of {where} and can't give {gpus}",
            next_step=f"plimsoll quota show {pool.key.cluster} --team {giver}",
            **fields,
        )
    borrowed = borrowed_by(state, QuotaKey(giver, *pool.key))
    if gpus > guaranteed - borrowed:
        raise Refused(
            "borrowed",
            f"{giver} is guaranteed {guaranteed} GPUs of {where}, {borrowed} of them only for a while;"
            f" it can give {max(0, guaranteed - borrowed)} at most, not {gpus}",
            next_step="plimsoll quota grants",
            borrowed=borrowed,
            **fields,
        )
    stake = next(each for each in pool.stakes if each.team == giver)
    left = guaranteed - gpus
    if left < stake.pin:
        raise Refused(
            "pinned",
            f"the policy pins {stake.pin} GPUs of {where} for {giver}: of {guaranteed} guaranteed it can give"
            f" {max(0, guaranteed - stake.pin)}, not {gpus}",
            next_step="give less, or change the pin: plimsoll quota policy show",
            pin=stake.pin,
            **fields,
        )
    if 0 < left < stake.block <= guaranteed:
        raise Refused(
            "block_broken",
            f"{giver} needs {stake.block} GPUs of {where} whole or not at all, and would have {left} of {guaranteed}",
            next_step=f"give at most {guaranteed - stake.block}, or all {guaranteed}",
            block=stake.block,
            **fields,
        )


def _transfer_notes(pool: Pool, giver: str, gpus: int) -> Iterator[str]:
    """What the giver's running work comes to."""
    stake = next(each for each in pool.stakes if each.team == giver)
    guaranteed = pool.guaranteed[giver]
    before, after = fill(stake.claims, guaranteed), fill(stake.claims, guaranteed - gpus)
    out = sum(before) - sum(after)
    if out <= 0:
        return
    hurt = [claim for claim, was, left in zip(stake.claims, before, after, strict=True) if was > left]
    gangs = sum(claim.kind is Kind.GANG for claim in hurt)
    parts = f"{len(hurt)} {'part' if len(hurt) == 1 else 'parts'}" + (f", {gangs} of them gangs" if gangs else "")
    yield f"{out} GPUs of {giver}'s running work ({parts}) go on as flex: others may call them back"


def end_due_grants(state: State, *, now: datetime) -> tuple[list[Ended], list[Draft]]:
    """The way back of every temporary grant whose time is over, in the order in which they end."""
    book = state.of(QuotaBook)
    due = sorted((grant for grant in book.grants.values() if grant.until <= now), key=lambda g: (g.until, g.id))
    left: dict[QuotaKey, int] = {}
    ended, drafts = [], []
    for grant in due:
        guaranteed = left.get(grant.key, book.guaranteed.get(grant.key, 0))
        back = min(grant.gpus, guaranteed)
        left[grant.key] = guaranteed - back
        ended.append(Ended(grant, back))
        drafts.append(_way_back(grant, back))
    return ended, drafts


def end_grant(state: State, grant_id: str) -> tuple[Ended, list[Draft]]:
    """End one temporary grant before its time."""
    book = state.of(QuotaBook)
    grant = book.grants.get(grant_id)
    if grant is None:
        raise NotFound(
            "no_such_grant",
            f"there is no open grant {grant_id[:NAME_LENGTH_MAX]!r} among {len(book.grants)}"
            f"{near(grant_id, book.grants)}",
            next_step="plimsoll quota grants",
            grant=grant_id[:NAME_LENGTH_MAX],
        )
    back = min(grant.gpus, book.guaranteed.get(grant.key, 0))
    return Ended(grant, back), [_way_back(grant, back)]


def _way_back(grant: Grant, guaranteed: int) -> Draft:
    reason = f"the end of grant {grant.id}"
    if not grant.giver:
        return Draft(GrantEnded(grant.cluster, grant.sku, grant.id, grant.team, grant.gpus), reason)
    # What a correction has cut meanwhile is not guaranteed any more, but it goes back in the book.
    assigned = None if guaranteed == grant.gpus else grant.gpus
    change = QuotaTransferred(
        grant.cluster, grant.sku, grant.team, grant.giver, guaranteed, grant=grant.id, assigned=assigned
    )
    return Draft(change, reason)


def rename_team(state: State, team: str, name: str) -> tuple[Renamed, list[Draft]]:
    """Another name for a team; everything it holds goes with it."""
    check_team(state, team)
    check_new_name(name)
    if name == team:
        raise UsageError("same_team", f"{team} has that name already", next_step="plimsoll quota rename OLD NEW")
    book = state.of(QuotaBook)
    if name in known_teams(state):
        raise Refused(
            "team_exists",
            f"there is a team {name} already, with {_assigned(book, name)} GPUs assigned; two teams can't be made one"
            " by a name",
            next_step=f"plimsoll quota transfer {team} {name} GPUS --cluster CLUSTER --sku SKU",
            team=name,
        )
    keys = sorted({key for key in (*book.quotas, *book.guaranteed, *book.claims) if key.team == team})
    grants = [grant for grant in book.grants.values() if team in (grant.team, grant.giver)]
    pools = sorted({key.pool for key in keys} | {grant.key.pool for grant in grants})
    streams = ["", team_stream(name), *(pool.stream for pool in pools)]
    policy = policy_in_force(state)
    named = [floor for floor in (*policy.pins, *policy.blocks) if floor.key.team == team]
    notes = []
    if named:
        notes.append(f"the policy in force names {team} in {len(named)} pins and blocks: change them there as well")
    outcome = Renamed(
        team, name, len(pools), _assigned(book, team), sum(book.guaranteed.get(key, 0) for key in keys), notes
    )
    return outcome, [Draft(TeamRenamed(team, name, stream)) for stream in streams]


def _assigned(book: QuotaBook, team: str) -> int:
    return sum(quota.gpus for key, quota in book.quotas.items() if key.team == team)
