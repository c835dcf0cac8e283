"""Every reason that a condition can have: its code, how bad it is, and whose move it is. Codes are public: add, never
rename.
"""

from __future__ import annotations

import enum

from plimsoll.lifecycle.model import Move, Severity

_OK, _SLOW, _STOPPED = Severity.INFO, Severity.WARNING, Severity.ERROR


class Reason(enum.Enum):
    """From lasting to passing; the first that applies is shown."""

    # It holds.
    DONE = ("Done", _OK, Move.NOBODY)
    NOT_NEEDED = ("NotNeeded", _OK, Move.NOBODY)
    QUOTA_PROMISED = ("QuotaPromised", _OK, Move.NOBODY)
    QUOTA_IN_USE = ("QuotaInUse", _OK, Move.NOBODY)
    GREEN = ("Green", _OK, Move.NOBODY)
    IN_PRODUCTION = ("InProduction", _OK, Move.NOBODY)

    # A person has to do something.
    SPEC_WRONG = ("SpecWrong", _STOPPED, Move.PERSON)
    RECIPE_CHANGED = ("RecipeChanged", _STOPPED, Move.PERSON)
    QUOTA_SOURCE_WRONG = ("QuotaSourceWrong", _STOPPED, Move.PERSON)
    CREDENTIALS = ("Credentials", _STOPPED, Move.PERSON)
    MISSING_OUTSIDE = ("MissingOutside", _STOPPED, Move.PERSON)
    CANCELLED_OUTSIDE = ("CancelledOutside", _STOPPED, Move.PERSON)
    STEP_STUCK = ("StepStuck", _STOPPED, Move.PERSON)
    NODE_NAME_TAKEN = ("NodeNameTaken", _STOPPED, Move.PERSON)
    WAITING_IN_CIRCLE = ("WaitingInCircle", _STOPPED, Move.PERSON)
    RUNS_ELSEWHERE = ("RunsElsewhere", _SLOW, Move.PERSON)
    BLOCKED_OUTSIDE = ("BlockedOutside", _SLOW, Move.PERSON)
    OVERDUE = ("Overdue", _SLOW, Move.PERSON)
    FLAPPING = ("Flapping", _SLOW, Move.PERSON)
    PAUSED = ("Paused", _OK, Move.PERSON)
    WAITING_FOR_CHECK_IN = ("WaitingForCheckIn", _OK, Move.PERSON)

    # The provider has to.
    QUOTA_SHORT = ("QuotaShort", _OK, Move.PROVIDER)
    QUOTA_SHRANK = ("QuotaShrank", _SLOW, Move.PROVIDER)
    OUT_OF_QUOTA = ("OutOfQuota", _SLOW, Move.PROVIDER)
    NO_CAPACITY = ("NoCapacity", _SLOW, Move.PROVIDER)
    SCALE_SET_SHORT = ("ScaleSetShort", _SLOW, Move.PROVIDER)

    # Another cluster comes first.
    QUOTA_FOR_EARLIER = ("QuotaForEarlier", _OK, Move.OTHER_CLUSTER)
    WAITING_FOR_CLUSTER = ("WaitingForCluster", _OK, Move.OTHER_CLUSTER)

    # It goes by itself.
    QUOTA_UNREADABLE = ("QuotaUnreadable", _SLOW, Move.CONTROLLER)
    UNREACHABLE = ("Unreachable", _SLOW, Move.CONTROLLER)
    STEP_FAILED = ("StepFailed", _SLOW, Move.CONTROLLER)
    COMMAND_LOST = ("CommandLost", _SLOW, Move.CONTROLLER)
    ANSWER_LOST = ("AnswerLost", _OK, Move.CONTROLLER)
    BUSY = ("Busy", _OK, Move.CONTROLLER)
    NODES_UNHEALTHY = ("NodesUnhealthy", _SLOW, Move.PERSON)
    NODES_MISSING = ("NodesMissing", _SLOW, Move.CONTROLLER)
    VALIDATING = ("Validating", _OK, Move.CONTROLLER)
    FILLING = ("Filling", _OK, Move.PROVIDER)
    RUNNING = ("Running", _OK, Move.CONTROLLER)
    STARTING = ("Starting", _OK, Move.CONTROLLER)
    WAITING_FOR_QUOTA = ("WaitingForQuota", _OK, Move.PROVIDER)
    WAITING_FOR_STEP = ("WaitingForStep", _OK, Move.CONTROLLER)
    WAITING = ("Waiting", _OK, Move.CONTROLLER)
    SETTLING = ("Settling", _OK, Move.NOBODY)
    DRAINING = ("Draining", _OK, Move.CONTROLLER)
    LEAVING = ("Leaving", _OK, Move.CONTROLLER)
    RETIRED = ("Retired", _OK, Move.NOBODY)

    def __init__(self, code: str, severity: Severity, move: Move) -> None:
        self.code = code
        self.severity = severity
        self.move = move


BY_CODE = {reason.code: reason for reason in Reason}


def known_reason(code: str) -> Reason:
    """The reason of a code that came from outside."""
    return BY_CODE.get(code, Reason.STEP_FAILED)
