"""What people ask of workloads: submit, cancel, scale, rank, keep quota for somebody. Pure, within a turn.

A submit is idempotent by name and content. Whatever can't be done is refused with the number and what to do instead.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from plimsoll.errors import NotFound, PlimsollError, Refused, UsageError
from plimsoll.health.model import from_microseconds
from plimsoll.quota.model import QuotaKey, Tier
from plimsoll.quota.names import check_gpus, check_pool, check_team
from plimsoll.times import show_time
from plimsoll.words import counted, near
from plimsoll.workloads.act import without
from plimsoll.workloads.changes import (
    BookingDropped,
    PartRanked,
    PartScaled,
    TeamHoldEnded,
    TeamHoldPlaced,
    WorkloadEnded,
    WorkloadPlaced,
    WorkloadSubmitted,
)
from plimsoll.workloads.file import RANK_MAX, REPLICAS_MAX, check_workload
from plimsoll.workloads.model import Asked, Because, Block, PartPlaced, PartSpec, Spec, TeamHold
from plimsoll.workloads.queue import run_round, start_asked
from plimsoll.workloads.shape import adopt, node_size
from plimsoll.workloads.turn import Turn

SUBMITS_MAX = 100_000
"""Workloads in one act."""


class Outcome(enum.StrEnum):
    """What became of a submit."""

    NEW = "new"
    SAME = "same"


def submit(turn: Turn, specs: Sequence[Spec], *, grace: timedelta) -> dict[str, Outcome]:
    """Take workloads in, and start what can be started. All or none are taken."""
    if len(specs) > SUBMITS_MAX:
        raise UsageError(
            "too_many", f"{len(specs):,} workloads at once", next_step=f"at most {SUBMITS_MAX:,} in one act"
        )
    outcomes: dict[str, Outcome] = {}
    checked: set[tuple[object, ...]] = set()
    for spec in specs:
        if spec.name in outcomes:
            raise UsageError(
                "name_twice",
                f"workload {spec.name} is there twice",
                next_step="give each its own name",
                workload=spec.name,
            )
        outcomes[spec.name] = _take_in(turn, spec, checked)
    start_asked(turn, [name for name, outcome in outcomes.items() if outcome is Outcome.NEW], grace=grace)
    return outcomes


def _take_in(turn: Turn, spec: Spec, checked: set[tuple[object, ...]]) -> Outcome:
    """`checked`: what is known to be possible, as of many workloads most ask for the like."""
    known = turn.work.asked.get(spec.name)
    if known is not None and not known.is_observed:
        if spec in (known.spec, known.original):
            return Outcome.SAME
        raise Refused(
            "name_taken",
            f"workload {spec.name} was submitted before, and asked for something else: {_difference(known.spec, spec)}",
            next_step=f"another name, or plimsoll workload scale|rank|cancel {spec.name}",
            workload=spec.name,
        )
    if known is not None or spec.name in turn.work.workloads:
        raise Refused(
            "name_observed",
            f"a workload {spec.name} that nobody submitted here was seen running",
            next_step="another name",
            workload=spec.name,
        )
    like = spec.team, spec.where, tuple((part.gpus, part.least) for part in spec.parts)
    if like not in checked:
        check_workload(turn.state, spec)
        checked.add(like)
    turn.do(WorkloadSubmitted(spec))
    return Outcome.NEW


def _difference(before: Spec, after: Spec) -> str:
    fields = [name for name in Spec.__struct_fields__ if getattr(before, name) != getattr(after, name)]
    if "parts" in fields:
        old, new = ({part.name: part for part in spec.parts} for spec in (before, after))
        changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        fields[fields.index("parts")] = f"part {', '.join(changed)}" if changed else "the order of parts"
    return ", ".join(fields)


def cancel(turn: Turn, name: str, *, how: str, grace: timedelta) -> int:
    """End a workload, running or waiting; the GPUs it gave back."""
    running = turn.work.workloads.get(name)
    if name not in turn.work.asked and running is None:
        raise unknown_workload(turn, name)
    gpus = running.gpus if running is not None else 0
    turn.do(WorkloadEnded(name, how))
    run_round(turn, grace=grace)
    return gpus


def unknown_workload(turn: Turn, name: str) -> PlimsollError:
    past = turn.work.past.get(name)
    if past is not None:
        at = show_time(from_microseconds(past.ended).replace(microsecond=0))
        return Refused(
            "already_over",
            f"workload {name} is over: {past.how} at {at}",
            next_step=f"plimsoll why {name}",
            workload=name,
            how=past.how,
        )
    known = {*turn.work.asked, *turn.work.workloads}
    return NotFound(
        "no_such_workload",
        f"there is no workload {name[:100]!r} among {len(known):,}{near(name, known)}",
        next_step="plimsoll workload list",
        workload=name[:100],
    )


def asked_for(turn: Turn, name: str) -> Asked:
    """A workload that waits or runs, observed ones too."""
    asked, running = turn.work.asked.get(name), turn.work.workloads.get(name)
    if asked is None and running is not None:
        asked = adopt(running, node_size(turn.fleet, running.cluster, running.parts[0].sku))
    if asked is None:
        raise unknown_workload(turn, name)
    return asked


def part_of(asked: Asked, part: str) -> PartSpec:
    """The part that is meant; it need not be named where there is only one."""
    parts = asked.spec.parts
    if not part and len(parts) == 1:
        return parts[0]
    names = [each.name for each in parts]
    if part not in names:
        what = f"has no part {part[:100]!r}{near(part, names)}" if part else f"has {counted(len(names), 'part')}"
        raise NotFound(
            "no_such_part",
            f"workload {asked.spec.name} {what}",
            next_step=f"--part, one of: {', '.join(names)}",
            workload=asked.spec.name,
            parts=names,
        )
    return asked.spec.part(part)


def scale(turn: Turn, name: str, part_name: str, *, least: int | None, most: int | None, grace: timedelta) -> PartSpec:
    """Another number of replicas for an elastic part. Fewer leave at once, more come as there is room."""
    asked = asked_for(turn, name)
    part = part_of(asked, part_name)
    if part.is_gang:
        raise Refused(
            "gang_scaled",
            f"{part.name} of {name} is a gang of {part.gpus:,} GPUs: it is all or nothing",
            next_step=f"plimsoll workload cancel {name}, and submit it with another size",
            workload=name,
        )
    most = part.most if most is None else most
    least = min(part.least, most) if least is None else least
    if not 0 <= least <= most or not 1 <= most <= REPLICAS_MAX:
        raise UsageError(
            "bad_replicas",
            f"{least} to {most} replicas can't be",
            next_step=f"min from 0, max from 1 to {REPLICAS_MAX:,}; to stop it: plimsoll workload cancel {name}",
        )
    if name in turn.work.bookings:  # it was for another number; what is still wanted is looked for again
        turn.do(BookingDropped(name))
    turn.do(PartScaled(name, part.name, least, most))
    _shrink_to(turn, name, part, most)
    run_round(turn, grace=grace, asking=[name])
    return turn.work.asked[name].spec.part(part.name)


def _shrink_to(turn: Turn, name: str, part: PartSpec, most: int) -> None:
    running = turn.work.workloads.get(name)
    has = running.running(part.name) if running is not None else None
    if running is None or has is None or has.gpus <= most * part.gpus:
        return
    over = has.gpus - most * part.gpus
    lost: dict[str, int] = {}
    for block in sorted(has.blocks, key=_smallest_first):  # the small rests go first: what is left stays together
        gone = min(over, block.gpus // part.gpus * part.gpus)
        lost[block.island] = gone
        over -= gone
    placed = PartPlaced(part.name, without(has.blocks, lost))
    turn.do(WorkloadPlaced(name, running.cluster, has.sku, (placed,), Because.SCALED))


def _smallest_first(block: Block) -> tuple[int, str]:
    return block.gpus, block.island


def rank(
    turn: Turn, name: str, part_name: str, *, tier: Tier | None, rank_now: int | None, grace: timedelta
) -> PartSpec:
    """Another tier or rank for a part, running or not; what that changes is decided at once."""
    asked = asked_for(turn, name)
    part = part_of(asked, part_name)
    tier, number = tier or part.tier, part.rank if rank_now is None else rank_now
    if not 1 <= number <= RANK_MAX:
        raise UsageError("bad_rank", f"{number} is no rank", next_step=f"from 1 (first) to {RANK_MAX:,}")
    twin = next((each for each in asked.spec.parts if each.name != part.name and each.rank == number), None)
    if twin is not None:
        raise Refused(
            "rank_twice",
            f"part {twin.name} of {name} has rank {number} already: ranks differ inside a workload",
            next_step="another rank",
            workload=name,
            part=twin.name,
        )
    if (tier, number) != (part.tier, part.rank):
        turn.do(PartRanked(name, part.name, tier, number))
        run_round(turn, grace=grace, asking=[name])
    return msgspec.structs.replace(part, tier=tier, rank=number)


def hold_quota(
    turn: Turn,
    *,
    team: str,
    cluster: str,
    sku: str,
    gpus: int,
    keeper: str,
    until: datetime,
    by: str,
    reason: str,
) -> TeamHold:
    """Keep a part of a team's quota for a person or a run: at most what it is guaranteed and keeps for nobody yet."""
    check_team(turn.state, team)
    pool, _ = check_pool(turn.state, cluster, sku)
    check_gpus(gpus)
    if until <= turn.now:
        raise UsageError("bad_period", "a hold must end in the future", next_step="--until 7d, or a date")
    key = QuotaKey(team, *pool)
    kept = sum(turn.work.holds[each].gpus for each in turn.work.team_holds.get(key, ()))
    guaranteed = turn.book.guaranteed.get(key, 0)
    if gpus > guaranteed - kept:
        raise Refused(
            "over_guarantee",
            f"{team} is guaranteed {guaranteed:,} {sku} in {cluster} and keeps {kept:,} of them already;"
            f" {gpus:,} more can't be kept",
            next_step=f"at most {max(0, guaranteed - kept):,}",
            guaranteed=guaranteed,
            kept=kept,
        )
    hold_id = f"keep-{turn.state.revision + 1}"  # no revision comes twice
    hold = TeamHold(hold_id, team, cluster, sku, gpus, keeper, until, by, reason)
    turn.do(TeamHoldPlaced(hold))
    return hold


def release_quota(turn: Turn, hold_id: str, *, grace: timedelta) -> TeamHold:
    """What was kept is anybody's in the team again."""
    hold = turn.work.holds.get(hold_id)
    if hold is None:
        known = turn.work.holds
        raise NotFound(
            "no_such_hold",
            f"no team keeps quota under {hold_id[:100]!r} ({counted(len(known), 'hold')} are known)"
            f"{near(hold_id, known)}",
            next_step="plimsoll workload holds",
        )
    turn.do(TeamHoldEnded(hold.id, hold.team, "released"))
    run_round(turn, grace=grace)
    return hold
