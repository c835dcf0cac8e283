"""Every reason that a condition can have: its code, how bad it is, whose move it is, and what it means. Codes are
public: add, never rename. `docs/reference/conditions.md` is written from here.
"""

from __future__ import annotations

import enum

from plimsoll.lifecycle.model import Move, Severity

_OK, _SLOW, _STOPPED = Severity.INFO, Severity.WARNING, Severity.ERROR


class Reason(enum.Enum):
    """What is true first, then by whose move it mostly is. Of several steps the one with the worst reason is shown."""

    # It holds.
    DONE = ("Done", _OK, Move.NOBODY, "Every step that it needs is done.")
    NOT_NEEDED = ("NotNeeded", _OK, Move.NOBODY, "The recipe asks for nothing here.")
    QUOTA_PROMISED = ("QuotaPromised", _OK, Move.NOBODY, "The cores are promised to this cluster, and to no other.")
    QUOTA_IN_USE = ("QuotaInUse", _OK, Move.NOBODY, "All of its machines are there, and count as used.")
    GREEN = ("Green", _OK, Move.NOBODY, "Enough of its nodes are in service.")
    IN_PRODUCTION = ("InProduction", _OK, Move.NOBODY, "Its nodes count in fleet, line and quota.")

    # A person has to do something.
    SPEC_WRONG = ("SpecWrong", _STOPPED, Move.PERSON, "The recipe can't make the cluster as its row says.")
    RECIPE_CHANGED = (
        "RecipeChanged",
        _STOPPED,
        Move.PERSON,
        "The recipe has a step that was never done for this cluster.",
    )
    QUOTA_SOURCE_WRONG = (
        "QuotaSourceWrong",
        _STOPPED,
        Move.PERSON,
        "The file or service that says how much quota there is can't be used as it is.",
    )
    CREDENTIALS = ("Credentials", _STOPPED, Move.PERSON, "A login is missing, wrong or expired, or may not do this.")
    MISSING_OUTSIDE = (
        "MissingOutside",
        _STOPPED,
        Move.PERSON,
        "Something that the step names is not there: a pipeline, a namespace, an API.",
    )
    CANCELLED_OUTSIDE = (
        "CancelledOutside",
        _STOPPED,
        Move.PERSON,
        "Somebody stopped the step; it is not begun again unless somebody says so.",
    )
    STEP_STUCK = ("StepStuck", _STOPPED, Move.PERSON, "The step failed as often as it may.")
    NODE_NAME_TAKEN = (
        "NodeNameTaken",
        _STOPPED,
        Move.PERSON,
        "A machine has the name of another cluster's node, or does not fit the pool.",
    )
    WAITING_IN_CIRCLE = (
        "WaitingInCircle",
        _STOPPED,
        Move.PERSON,
        "Clusters wait for each other, so none of them would ever go on.",
    )
    RUNS_ELSEWHERE = (
        "RunsElsewhere",
        _SLOW,
        Move.PERSON,
        "The step was begun from another machine, and nobody here can see how it is.",
    )
    BLOCKED_OUTSIDE = (
        "BlockedOutside",
        _SLOW,
        Move.PERSON,
        "The step waits for a person, such as at a block step of a build.",
    )
    NODES_TO_ACCEPT = ("NodesToAccept", _OK, Move.PERSON, "Its nodes wait for somebody to answer a check of theirs.")
    OVERDUE = ("Overdue", _SLOW, Move.PERSON, "The step takes longer than its recipe allows.")
    FLAPPING = ("Flapping", _SLOW, Move.PERSON, "The health was green and then not, again and again.")
    PAUSED = ("Paused", _OK, Move.PERSON, "Somebody paused the cluster.")
    WAITING_FOR_CHECK_IN = ("WaitingForCheckIn", _OK, Move.PERSON, "Somebody has to check the cluster in.")

    # The provider has to.
    QUOTA_SHORT = ("QuotaShort", _OK, Move.PROVIDER, "The provider has not given enough quota yet.")
    QUOTA_SHRANK = (
        "QuotaShrank",
        _SLOW,
        Move.PROVIDER,
        "Quota that was promised to the cluster is not there any more.",
    )
    OUT_OF_QUOTA = ("OutOfQuota", _SLOW, Move.PROVIDER, "The provider refused machines because of its quota.")
    NO_CAPACITY = ("NoCapacity", _SLOW, Move.PROVIDER, "There is quota, and there are no machines.")
    SCALE_SET_SHORT = ("ScaleSetShort", _SLOW, Move.PROVIDER, "Fewer machines came than are wanted.")

    # Another cluster comes first.
    QUOTA_FOR_EARLIER = (
        "QuotaForEarlier",
        _OK,
        Move.OTHER_CLUSTER,
        "There is enough, but a cluster that comes first waits for more of it.",
    )
    WAITING_FOR_CLUSTER = (
        "WaitingForCluster",
        _OK,
        Move.OTHER_CLUSTER,
        "Another cluster has to be as far as the recipe says.",
    )

    # Mostly it goes by itself; its nodes, where they need somebody, stand among their like.
    QUOTA_UNREADABLE = (
        "QuotaUnreadable",
        _SLOW,
        Move.CONTROLLER,
        "The provider does not say how much quota there is at the moment.",
    )
    UNREACHABLE = ("Unreachable", _SLOW, Move.CONTROLLER, "The service that carries the step out does not answer.")
    STEP_FAILED = ("StepFailed", _SLOW, Move.CONTROLLER, "The last attempt failed; the next one comes by itself.")
    COMMAND_LOST = ("CommandLost", _SLOW, Move.CONTROLLER, "What was begun is no more, and left no result.")
    ANSWER_LOST = (
        "AnswerLost",
        _OK,
        Move.CONTROLLER,
        "The step was begun, or not: no answer came. It is looked for before it is begun again.",
    )
    BUSY = ("Busy", _OK, Move.CONTROLLER, "The service asks to wait.")
    NODES_UNHEALTHY = ("NodesUnhealthy", _SLOW, Move.PERSON, "Too many of its nodes are quarantined or in repair.")
    NODES_MISSING = ("NodesMissing", _SLOW, Move.PERSON, "Too few of its nodes are known to the fleet.")
    PLANNED_WORK = ("PlannedWork", _OK, Move.NOBODY, "Nodes are out for planned work.")
    VALIDATING = ("Validating", _OK, Move.CONTROLLER, "Its nodes are being checked.")
    FILLING = ("Filling", _OK, Move.PROVIDER, "Its machines are coming.")
    RUNNING = ("Running", _OK, Move.CONTROLLER, "The step is going on.")
    STARTING = ("Starting", _OK, Move.CONTROLLER, "The step is about to begin.")
    WAITING_FOR_QUOTA = ("WaitingForQuota", _OK, Move.PROVIDER, "Nothing begins before the quota is promised.")
    WAITING_FOR_STEP = ("WaitingForStep", _OK, Move.CONTROLLER, "Other steps come first.")
    WAITING = ("Waiting", _OK, Move.CONTROLLER, "Other conditions do not hold yet.")
    SETTLING = ("Settling", _OK, Move.NOBODY, "Everything holds; it has to hold for a while.")
    DRAINING = ("Draining", _OK, Move.CONTROLLER, "It leaves, and something still runs on its nodes.")
    LEAVING = ("Leaving", _OK, Move.CONTROLLER, "It is on its way out.")
    RETIRED = ("Retired", _OK, Move.NOBODY, "It is gone.")

    def __init__(self, code: str, severity: Severity, move: Move, meaning: str) -> None:
        self.code = code
        self.meaning = meaning
        self.severity = severity
        self.move = move


SURELY_NOT_BEGUN = tuple(
    reason.code for reason in (Reason.BUSY, Reason.UNREACHABLE, Reason.CREDENTIALS, Reason.MISSING_OUTSIDE)
)
"""Why something that is intended has not begun: it begins when that has passed, or somebody has put it right."""
BY_CODE = {reason.code: reason for reason in Reason}


def known_reason(code: str) -> Reason:
    """The reason of a code that came from outside."""
    return BY_CODE.get(code, Reason.STEP_FAILED)
