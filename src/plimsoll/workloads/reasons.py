"""Why work does not run, as codes: from lasting to passing, each with whose move it is. Add, never rename."""

from __future__ import annotations

import enum

import msgspec


class Move(enum.StrEnum):
    """Whose move it is."""

    OWNER = "owner"
    TEAM = "team"
    RPM = "rpm"
    HARDWARE = "hardware"
    PLANNED_WORK = "planned_work"
    SCHEDULER = "scheduler"
    WAIT = "wait"


class Cause(enum.StrEnum):
    """The reason for a "no" or a loss. The order is from lasting to passing; the lasting one is shown first."""

    NO_SUCH_ROOM = "no_such_room"
    NEVER_BACKED = "never_backed"
    TO_FLEX = "to_flex"
    NOT_ALIGNED = "not_aligned"
    NO_GUARANTEE = "no_guarantee"
    OVER_GUARANTEE = "over_guarantee"
    TEAM_HELD = "team_held"
    OVER_PROMISED = "over_promised"
    NODES_UNHEALTHY = "nodes_unhealthy"
    PLANNED_WORK = "planned_work"
    PLANNED_AHEAD = "planned_ahead"
    IN_USE = "in_use"
    IN_USE_BY_OTHERS = "in_use_by_others"
    ISLAND_FRAGMENTED = "island_fragmented"
    FLEX_TAKEN = "flex_taken"
    RESERVED = "reserved"
    LENT_DRAINING = "lent_draining"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"

    @property
    def move(self) -> Move:
        return _MOVES[self]

    @property
    def place(self) -> int:
        """0 lasts longest."""
        return _PLACES[self]


_MOVES = {
    Cause.NO_SUCH_ROOM: Move.OWNER,
    Cause.NEVER_BACKED: Move.RPM,
    Cause.TO_FLEX: Move.RPM,
    Cause.NOT_ALIGNED: Move.RPM,
    Cause.NO_GUARANTEE: Move.RPM,
    Cause.OVER_GUARANTEE: Move.RPM,
    Cause.TEAM_HELD: Move.TEAM,
    Cause.IN_USE: Move.TEAM,
    Cause.IN_USE_BY_OTHERS: Move.WAIT,
    Cause.OVER_PROMISED: Move.RPM,
    Cause.NODES_UNHEALTHY: Move.HARDWARE,
    Cause.PLANNED_WORK: Move.PLANNED_WORK,
    Cause.PLANNED_AHEAD: Move.PLANNED_WORK,
    Cause.ISLAND_FRAGMENTED: Move.SCHEDULER,
    Cause.FLEX_TAKEN: Move.WAIT,
    Cause.RESERVED: Move.WAIT,
    Cause.LENT_DRAINING: Move.WAIT,
    Cause.PREEMPTED: Move.WAIT,
    Cause.NODE_LOST: Move.HARDWARE,
}
_PLACES = {cause: place for place, cause in enumerate(Cause)}


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something waits, where it comes closest to running: it needs `gpus`, and `missing` of them are not there."""

    cause: Cause
    gpus: int
    missing: int = 0
    cluster: str = ""
    sku: str = ""
    island: str = ""
    detail: str = ""
