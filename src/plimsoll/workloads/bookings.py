"""What was called back: whoever booked starts when its victims are due, or sooner if there is room. Pure, in a turn.

Between the booking and its beginning anything may happen: victims end, nodes die, guarantees move. So nobody leaves
because of what was so when the notice was given: it is looked again who must, among those who were told, and nobody
leaves who has a right to stay by then or who is no longer needed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from plimsoll.fleet.model import IslandKey
from plimsoll.workloads.act import evict, place
from plimsoll.workloads.changes import BookingDropped, WorkloadBooked
from plimsoll.workloads.model import Asked, Because, Booking, PartSpec, Place, RunsAs, Victim
from plimsoll.workloads.preempt import Preemption
from plimsoll.workloads.rooms import barred_for, barred_nodes
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.turn import Turn


def begin_bookings(turn: Turn) -> None:
    """Start what is due or has its room already. What can't be any more is dropped, and looks for something else."""
    for name, booking in sorted(turn.work.bookings.items(), key=lambda each: (each[1].due, each[0])):
        if turn.work.bookings.get(name) != booking:
            continue  # its victims' or its own part was touched by another that began before it
        is_due = booking.due <= turn.now
        if not is_due and not _has_room(turn, booking) and _is_as_booked(turn, booking):
            continue
        asked = turn.work.asked[name]
        turn.do(BookingDropped(name))
        again = _look_again(turn, asked, booking)
        if again is None:
            continue
        places, victims = again
        if victims and not is_due:  # some left before their time: what they left is kept for it from now on
            turn.do(WorkloadBooked(msgspec.structs.replace(booking, places=places, victims=victims)))
            continue
        is_start = bool(missing_parts(asked.spec, turn.work.workloads.get(name)))
        evict(turn, victims, by=name, barred=barred_for(turn, asked))
        place(turn, asked, booking.pool, places, Because.STARTED if is_start else Because.GROWN)


def _has_room(turn: Turn, booking: Booking) -> bool:
    """Whether all of its room is free or kept for it."""
    wanted = _by_island(booking.places)
    called = _by_island(booking.victims)
    return all(
        turn.floor.free.get(IslandKey(island, booking.sku), 0) + max(0, gpus - called.get(island, 0)) >= gpus
        for island, gpus in wanted.items()
    )


def _is_as_booked(turn: Turn, booking: Booking) -> bool:
    """Whether the victims still hold what they must give up, and the room beside them is still there."""
    held: dict[tuple[str, str, bool, str], int] = {}
    for name in {victim.workload for victim in booking.victims}:
        workload = turn.work.workloads.get(name)
        for part in workload.parts if workload is not None else ():
            for block in part.blocks:
                held[name, part.name, part.is_spare, block.island] = block.gpus
    for victim in booking.victims:
        who = victim.workload, victim.part, victim.is_spare, victim.island
        if held.get(who, 0) < victim.gpus:
            return False
        held[who] -= victim.gpus
    islands = {each.island for each in booking.places}
    return all(turn.floor.free.get(IslandKey(island, booking.sku), 0) >= 0 for island in islands)


def _look_again(turn: Turn, asked: Asked, booking: Booking) -> tuple[tuple[Place, ...], tuple[Victim, ...]] | None:
    """The places, and who of those that were told must leave for them now; None where it can't be any more."""
    parts = _booked_parts(asked, booking)
    told = {(victim.workload, victim.part, victim.is_spare) for victim in booking.victims}
    preemption = Preemption(turn, asked, list(parts.values()), booking.pool, among=told)
    if asked.spec.runs_as is RunsAs.GUARANTEED and not preemption.is_guaranteed:
        return None
    barred = barred_nodes(turn, asked, booking.pool) if asked.spec.hours else {}
    free = {
        island: turn.floor.free.get(IslandKey(island, booking.sku), 0) - barred.get(island, 0)
        for island in _by_island(booking.places)
    }
    places = []
    for each in booking.places:
        left = free[each.island] - each.gpus
        if left < 0 and each.is_spare:
            continue  # a missing spare does not block a start
        if left < 0:
            freed = preemption.freed.get(each.island, 0)
            if preemption.in_island(parts[each.part], each.island, -left) is None:
                return None
            left += preemption.freed[each.island] - freed
        free[each.island] = left
        places.append(each)
    return tuple(places), tuple(preemption.victims)


def _booked_parts(asked: Asked, booking: Booking) -> dict[str, PartSpec]:
    """The parts that the room was booked for, as large as it was booked."""
    found = {}
    for name in dict.fromkeys(each.part for each in booking.places):
        part = asked.spec.part(name)
        if not part.is_gang:
            gpus = sum(each.gpus for each in booking.places if each.part == name)
            part = msgspec.structs.replace(part, least=gpus // part.gpus)
        found[name] = part
    return found


def _by_island(pieces: Iterable[Place | Victim]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in pieces:
        found[each.island] = found.get(each.island, 0) + each.gpus
    return found
