"""Clusters as people see them: what each waits for, whose move it is, and one sentence that says why. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.model import Condition, ConditionType, Life, Move, Severity
from plimsoll.lifecycle.phases import ORDER, phase_of
from plimsoll.words import rough_span

_SEVERITIES = list(Severity)
LATE = timedelta(minutes=2)
OUT_OF_DATE = "No controller has looked at it since: plimsoll cluster run"


class Row(msgspec.Struct, frozen=True):
    """A cluster in the list."""

    cluster: str
    phase: Phase
    since: datetime
    sku: str
    nodes: int
    waits_for: str
    reason: str
    severity: Severity
    move: Move
    message: str
    next_step: str
    is_paused: bool


def waiting_condition(life: Life) -> Condition | None:
    """The condition that a cluster waits for: the worst, and of equals the one that comes first."""
    if life.gone_at is not None:
        return None
    left = [
        condition
        for kind in ConditionType
        if kind is not ConditionType.AVAILABLE
        and (condition := life.condition(kind)) is not None
        and not condition.is_true
    ]
    available = life.condition(ConditionType.AVAILABLE)
    if available is not None and not available.is_true and not left:
        return available
    if life.leaving is not None:
        return available
    return max(left, key=lambda each: _SEVERITIES.index(each.severity), default=None)


def row_of(life: Life) -> Row:
    """A cluster as a line."""
    condition = waiting_condition(life)
    phase = phase_of(life)
    since = phase_since(life)
    if condition is None:
        is_new = not life.conditions
        message = "not looked at yet" if is_new else ""
        move = Move.CONTROLLER if is_new else Move.NOBODY
        step = "plimsoll cluster run" if is_new else ""
        return _row(life, phase, since, "", "", Severity.INFO, move, message, step)
    return _row(
        life,
        phase,
        since,
        str(condition.type),
        condition.reason,
        condition.severity,
        condition.move,
        condition.message,
        condition.next_step,
    )


def _row(
    life: Life,
    phase: Phase,
    since: datetime,
    waits_for: str,
    reason: str,
    severity: Severity,
    move: Move,
    message: str,
    next_step: str,
) -> Row:
    return Row(
        life.name,
        phase,
        since,
        life.spec.sku,
        life.spec.nodes,
        waits_for,
        reason,
        severity,
        move,
        message,
        next_step,
        life.paused is not None,
    )


def phase_since(life: Life) -> datetime:
    """Since when a cluster is in its phase."""
    phase = phase_of(life)
    if phase is Phase.RETIRED and life.gone_at is not None:
        return life.gone_at
    if phase is Phase.PRODUCTION and life.available_at is not None:
        return life.available_at
    if phase is Phase.PROVISIONED:
        kinds = (ConditionType.CHECKED_IN, ConditionType.INFRASTRUCTURE_APPLIED, ConditionType.SCALE_SETS_READY)
        return max(life.conditions[kind].since for kind in kinds)
    if phase is Phase.PROVISIONING and life.claimed_at is not None:
        return life.claimed_at
    return life.planned.at


def in_board_order(lives: Iterable[Life]) -> list[Life]:
    """Those that need somebody first, then by phase and name; what is in production or gone comes last."""

    def key(life: Life) -> tuple[bool, bool, int, int, str]:
        condition = waiting_condition(life)
        severity = 0 if condition is None else _SEVERITIES.index(condition.severity)
        phase = phase_of(life)
        place = len(ORDER) if phase is Phase.RETIRED else ORDER.index(phase)
        is_over = phase in (Phase.PRODUCTION, Phase.RETIRED)
        is_persons = condition is not None and condition.move is Move.PERSON
        return is_over, not is_persons, -severity, place, life.name

    return sorted(lives, key=key)


def sentence(life: Life, now: datetime) -> str:
    """Why a cluster is where it is, in one sentence."""
    row = row_of(life)
    span = rough_span(now - row.since)
    begin = f"{life.name} has been {phase_words(row.phase)} for {span}"
    if not row.message:
        return f"{begin}."
    whose = {
        Move.PERSON: "a person's move",
        Move.PROVIDER: "the provider's move",
        Move.OTHER_CLUSTER: "another cluster comes first",
        Move.CONTROLLER: "it goes on by itself",
        Move.NOBODY: "nothing is to be done",
    }[row.move]
    step = f": {row.next_step}" if row.next_step and row.move is Move.PERSON else ""
    paused = f"; paused by {life.paused.by}" if life.paused is not None and "paused" not in row.message else ""
    behind = f" {OUT_OF_DATE}" if is_behind(life, now) else ""
    return f"{begin}: {row.message} ({whose}{step}){paused}.{behind}"


def is_behind(life: Life, now: datetime) -> bool:
    """Whether something was said, or is due, that no controller has looked at yet."""
    if life.gone_at is not None or not life.conditions:
        return False
    looked = max(condition.told or condition.changed for condition in life.conditions.values())
    said = [each.at for each in (life.leaving, life.paused, life.checked_in) if each is not None]
    due = [work.next_attempt_at for work in life.works.values() if work.next_attempt_at is not None]
    steps = [work.since for work in life.works.values()]
    return any(moment > looked for moment in (*said, *steps)) or any(moment + LATE < now for moment in due)


def phase_words(phase: Phase) -> str:
    """A phase as it stands after `is`."""
    return {Phase.PRODUCTION: "in production", Phase.PROVISIONED: "provisioned and being validated"}.get(
        phase, str(phase)
    )
