"""Every reason that a condition can have: what leads to it, how bad it is, whose move it is, and what to type."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import PlimsollError, Refused, UsageError
from plimsoll.fleet.model import Phase, Service
from plimsoll.health.changes import PolicyApplied
from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.lifecycle.changes import ConditionsChanged
from plimsoll.lifecycle.model import ConditionType, Move, Severity, Truth
from plimsoll.lifecycle.outside import Found
from plimsoll.lifecycle.reasons import BY_CODE, Reason
from tests.support.slipway import BARE, SLIP, Crash, Slip, command_problem, key

SPEC, QUOTA, CHECKED_IN, INFRA, SETS, SERVICES, DEPENDENCIES, HEALTH, AVAILABLE = ConditionType
INFO, WARNING, ERROR = Severity
TRUE, FALSE, UNKNOWN = Truth
SHOW = "plimsoll cluster show lynx"


def trouble(
    kind: TroubleKind, *, next_step: str = "", is_lost: bool = False, wait: float | None = None
) -> ProviderTrouble:
    return ProviderTrouble(
        "t", "it said no", kind=kind, next_step=next_step, may_have_happened=is_lost, retry_seconds=wait
    )


class Case(NamedTuple):
    """`do` leads to it; the rest is what is wanted of the condition after that."""

    do: Callable[[Slip], object]
    kind: ConditionType
    reason: Reason
    status: Truth = FALSE
    severity: Severity = INFO
    move: Move = Move.CONTROLLER
    says: str = ""
    next_step: str = ""


# What leads to each.


def _chain(*acts: Callable[[Slip], object]) -> Callable[[Slip], None]:
    def do(slip: Slip) -> None:
        for act in acts:
            act(slip)

    return do


def begin(slip: Slip) -> None:
    slip.begin()


def run(slip: Slip) -> None:
    slip.run()


def after(**span: float) -> Callable[[Slip], object]:
    return lambda slip: slip.run(**span)


def finish(*steps: str) -> Callable[[Slip], object]:
    return lambda slip: slip.finish(*steps)


def limit(cores: int, family: str = "") -> Callable[[Slip], object]:
    return lambda slip: slip.cloud.limits.update({key(family) if family else key(): cores})


def show(step: str, found: Found, reason: str = "", detail: str = "", **more: object) -> Callable[[Slip], object]:
    def do(slip: Slip) -> None:
        slip.cloud.set("lynx", step, found, reason, detail, **more)
        slip.run(minutes=1)

    return do


def refuse(step: str, error: ProviderTrouble) -> Callable[[Slip], object]:
    return lambda slip: slip.cloud.early.update({("lynx", step): error})


def add(name: str = "lynx", **changes: object) -> Callable[[Slip], object]:
    return lambda slip: slip.add(name, **changes)


def build(slip: Slip) -> None:
    slip.build()


def produce(slip: Slip) -> None:
    slip.produce()


def go_out(service: Service, *numbers: int) -> Callable[[Slip], object]:
    def do(slip: Slip) -> None:
        slip.set_service([f"lynx-{number:02d}" for number in numbers], service)
        slip.run(minutes=1)

    return do


def flap(slip: Slip) -> None:
    """Green and then not, three times, and then green."""
    for _ in range(3):
        go_out(Service.QUARANTINED, 1, 2)(slip)
        go_out(Service.IN_SERVICE, 1, 2)(slip)


def with_recipe(text: str, *acts: Callable[[Slip], object]) -> Callable[[Slip], None]:
    return _chain(lambda slip: slip.apply(text), *acts)


def fail_thrice(slip: Slip) -> None:
    for _ in range(3):
        show("bootstrap", Found.FAILED, "", "exit 1")(slip)
        slip.run(hours=1)


def take_names(slip: Slip) -> None:
    """Another cluster has a node of the name of our second machine."""
    slip.begin("puma", nodes=2)
    slip.finish("checkin", "bootstrap", "dependencies", "scale-sets", name="puma")
    slip.cloud.names["lynx-02"] = "puma-01"
    slip.begin()
    slip.finish("checkin", "bootstrap", "scale-sets")


def after_cluster(other: str, reaches: str, version: int = 2, recipe: str = "slip") -> str:
    text = SLIP.replace("needs: [checkin]", f"needs: [checkin, {{cluster: '{other}', reaches: {reaches}}}]")
    return text.replace("version: 1", f"version: {version}").replace("recipe: slip", f"recipe: {recipe}")


NO_SKU = SLIP.replace("version: 1", "version: 2") + "machines: {H100: {vm: v, family: f, cores: 96, gpus: 8}}\n"
ONE_MORE = SLIP.replace("version: 1", "version: 2").replace(
    "validation:",
    "  - {step: dns, sets: DependenciesApplied, needs: [checkin, {cluster: hub, reaches: production}], run: [dns]}\n"
    "validation:",
)
TWO_MORE = SLIP.replace("version: 1", "version: 2").replace(
    "validation:",
    "  - {step: dns, sets: DependenciesApplied, needs: [checkin], run: [dns]}\n"
    "  - {step: certs, sets: DependenciesApplied, needs: [dns], run: [certs]}\n"
    "validation:",
)


def circle(slip: Slip) -> None:
    """lynx waits for puma, and puma for lynx."""
    slip.apply(after_cluster("puma", "production", 1, "to-puma"))
    slip.apply(after_cluster("lynx", "production", 1, "to-lynx"))
    slip.begin("puma", recipe="to-lynx")
    slip.begin(recipe="to-puma")
    slip.finish("checkin", name="puma")
    slip.finish("checkin")


def crash_in(step: str) -> Callable[[Slip], None]:
    def do(slip: Slip) -> None:
        slip.cloud.early["lynx", step] = Crash()
        with pytest.raises(Crash):
            slip.run(minutes=1)
        slip.restart()

    return do


def till_filling(there: int) -> Callable[[Slip], None]:
    return _chain(begin, finish("checkin", "bootstrap"), lambda slip: slip.cloud.fill("lynx", there), run)


def made_by_hand(slip: Slip) -> None:
    """A person says that the machines are there; nobody has named any."""
    slip.add(recipe="bare")
    slip.run()
    slip.waive(step="scale-sets")
    slip.check_in()
    slip.run()


def retry_both(slip: Slip) -> None:
    slip.retry(step="dns")
    slip.retry(step="certs")


def taken_nodes(slip: Slip) -> None:
    slip.finish("checkin", "bootstrap", "dependencies", "scale-sets", "services")


def quota_trouble(error: PlimsollError) -> Callable[[Slip], object]:
    def do(slip: Slip) -> None:
        slip.cloud.quota_trouble = error
        slip.add()
        slip.run()

    return do


def look_trouble(step: str, error: ProviderTrouble) -> Callable[[Slip], object]:
    return lambda slip: (slip.cloud.blind.update({("lynx", step): error}), slip.run())


BUILD = finish("checkin")


def _without_people(slip: Slip) -> None:
    """A policy whose checks answer themselves."""
    policy = DEFAULT_POLICY.replace("  - {check: accepted, by: manual}\n", "")
    assert policy != DEFAULT_POLICY
    slip.record(PolicyApplied("default", policy))


CASES = {
    # It holds.
    "a step is done": Case(_chain(begin, BUILD), CHECKED_IN, Reason.DONE, TRUE, INFO, Move.NOBODY, "done: checkin"),
    "a recipe that has no step for it": Case(
        with_recipe(BARE, add(recipe="bare"), run), SERVICES, Reason.NOT_NEEDED, TRUE, INFO, Move.NOBODY, "recipe bare"
    ),
    "a recipe that asks for no quota": Case(
        with_recipe(BARE, add(recipe="bare"), run), QUOTA, Reason.NOT_NEEDED, TRUE, INFO, Move.NOBODY, "no quota"
    ),
    "there is enough quota": Case(
        _chain(add(), run), QUOTA, Reason.QUOTA_PROMISED, TRUE, INFO, Move.NOBODY, "384 cores are promised to it"
    ),
    "all machines have been there for a while": Case(produce, QUOTA, Reason.QUOTA_IN_USE, TRUE, INFO, Move.NOBODY),
    "enough nodes are in service": Case(build, HEALTH, Reason.GREEN, TRUE, INFO, Move.NOBODY, "at least 75%"),
    "it was green for long enough": Case(
        produce, AVAILABLE, Reason.IN_PRODUCTION, TRUE, INFO, Move.NOBODY, "since 2026-03-02T09:21:00Z"
    ),
    "a step that a person waives": Case(
        _chain(begin, lambda slip: slip.waive(step="bootstrap"), run), INFRA, Reason.DONE, TRUE, INFO, Move.NOBODY
    ),
    # A person has to do something.
    "a new version of its recipe does not know its SKU": Case(
        with_recipe(SLIP, add(), lambda slip: slip.apply(NO_SKU), run),
        SPEC,
        Reason.SPEC_WRONG,
        FALSE,
        ERROR,
        Move.PERSON,
        "sku: expected a SKU whose machines recipe slip knows: H100",
        "plimsoll cluster edit lynx …",
    ),
    "quota waits for a spec that is right": Case(
        with_recipe(SLIP, add(), lambda slip: slip.apply(NO_SKU), run),
        QUOTA,
        Reason.WAITING,
        UNKNOWN,
        INFO,
        Move.PERSON,
        "waits for a spec that is right",
        "plimsoll cluster edit lynx …",
    ),
    "in production, and migrated to a recipe with a step that waits": Case(
        _chain(produce, lambda slip: slip.apply(ONE_MORE), lambda slip: slip.migrate(), run),
        DEPENDENCIES,
        Reason.RECIPE_CHANGED,
        FALSE,
        ERROR,
        Move.PERSON,
        "dns was never done: the recipe has changed since",
        "plimsoll cluster retry lynx dns",
    ),
    "in production, and somebody has what the new recipe adds be done": Case(
        _chain(produce, lambda slip: slip.apply(TWO_MORE), lambda slip: slip.migrate(), retry_both, run),
        DEPENDENCIES,
        Reason.RUNNING,
        says="dns runs",
    ),
    "the quota file is wrong": Case(
        quota_trouble(UsageError("bad_quota_file", "quota.csv, row 3: limit is 'many'", next_step="correct it")),
        QUOTA,
        Reason.QUOTA_SOURCE_WRONG,
        UNKNOWN,
        ERROR,
        Move.PERSON,
        "the quota can't be read: quota.csv, row 3: limit is 'many'",
        "correct it",
    ),
    "the quota source is wrong, and nobody says what to do": Case(
        quota_trouble(Refused("bad", "no such source")),
        QUOTA,
        Reason.QUOTA_SOURCE_WRONG,
        UNKNOWN,
        ERROR,
        Move.PERSON,
        "no such source",
        "plimsoll cluster quota",
    ),
    "quota is asked for with an expired login": Case(
        quota_trouble(trouble(TroubleKind.CREDENTIALS, next_step="az login")),
        QUOTA,
        Reason.CREDENTIALS,
        UNKNOWN,
        ERROR,
        Move.PERSON,
        "it said no",
        "az login",
    ),
    "credentials are missing when a step is to begin": Case(
        _chain(refuse("checkin", trouble(TroubleKind.CREDENTIALS, next_step="export TOKEN=…")), begin),
        CHECKED_IN,
        Reason.CREDENTIALS,
        FALSE,
        ERROR,
        Move.PERSON,
        "checkin: it said no (export TOKEN=…)",
        "plimsoll cluster retry lynx checkin",
    ),
    "credentials expire while a step runs": Case(
        _chain(begin, look_trouble("checkin", trouble(TroubleKind.CREDENTIALS))),
        CHECKED_IN,
        Reason.CREDENTIALS,
        UNKNOWN,
        ERROR,
        Move.PERSON,
        "nobody can see how checkin is: it said no",
        SHOW,
    ),
    "a pipeline is not there": Case(
        _chain(refuse("bootstrap", trouble(TroubleKind.MISSING)), begin, BUILD),
        INFRA,
        Reason.MISSING_OUTSIDE,
        FALSE,
        ERROR,
        Move.PERSON,
        "bootstrap: it said no",
        "plimsoll cluster retry lynx bootstrap",
    ),
    "somebody cancels the build": Case(
        _chain(begin, BUILD, show("bootstrap", Found.CANCELLED, "", "cancelled by grace")),
        INFRA,
        Reason.CANCELLED_OUTSIDE,
        FALSE,
        ERROR,
        Move.PERSON,
        "cancelled by grace",
        "plimsoll cluster retry lynx bootstrap",
    ),
    "a step fails as often as it may": Case(
        _chain(begin, BUILD, fail_thrice),
        INFRA,
        Reason.STEP_STUCK,
        FALSE,
        ERROR,
        Move.PERSON,
        "bootstrap failed (attempt 3 of 3): exit 1; the yard: look at it, then try again",
        "plimsoll cluster retry lynx bootstrap",
    ),
    "a step fails that nobody may do twice": Case(
        _chain(begin, finish("checkin", "bootstrap"), show("dependencies", Found.FAILED, "", "exit 1")),
        DEPENDENCIES,
        Reason.STEP_STUCK,
        FALSE,
        ERROR,
        Move.PERSON,
        "dependencies failed (attempt 1): exit 1",
        "plimsoll cluster retry lynx dependencies",
    ),
    "a machine has the name of another cluster's node": Case(
        take_names,
        SETS,
        Reason.NODE_NAME_TAKEN,
        FALSE,
        ERROR,
        Move.PERSON,
        "puma-01 is a node of puma already",
        "plimsoll cluster retry lynx scale-sets",
    ),
    "clusters wait for each other": Case(
        circle,
        INFRA,
        Reason.WAITING_IN_CIRCLE,
        FALSE,
        ERROR,
        Move.PERSON,
        "clusters wait for each other: lynx -> puma -> lynx",
        "plimsoll cluster migrate lynx --recipe RECIPE",
    ),
    "a command was begun on another machine": Case(
        _chain(begin, lambda slip: setattr(slip, "place", "there"), run),
        CHECKED_IN,
        Reason.RUNS_ELSEWHERE,
        UNKNOWN,
        WARNING,
        Move.PERSON,
        "another place (here)",
        "plimsoll cluster retry lynx checkin --lost",
    ),
    "a build is blocked by a person": Case(
        _chain(begin, BUILD, show("bootstrap", Found.BLOCKED, "", "blocked at deploy", handle="7 https://b/7")),
        INFRA,
        Reason.BLOCKED_OUTSIDE,
        FALSE,
        WARNING,
        Move.PERSON,
        "bootstrap: blocked at deploy; the yard: unblock it there (7 https://b/7)",
        "plimsoll cluster log lynx bootstrap",
    ),
    "a step takes longer than it may": Case(
        _chain(begin, BUILD, after(hours=4)),
        INFRA,
        Reason.OVERDUE,
        FALSE,
        WARNING,
        Move.PERSON,
        "bootstrap has been going since 2026-03-02T09:01:00Z, longer than it may (running); the yard should look",
        SHOW,
    ),
    "validation flaps": Case(
        _chain(build, flap),
        AVAILABLE,
        Reason.FLAPPING,
        FALSE,
        WARNING,
        Move.PERSON,
        "its health was green and then not 3 times since 2026-03-02T09:07:00Z;"
        " in production at 2026-03-02T09:22:00Z if it stays green; the yard should look",
        "plimsoll health outages cluster=lynx",
    ),
    "paused before its quota is promised": Case(
        _chain(add(), lambda slip: slip.pause(), run),
        QUOTA,
        Reason.PAUSED,
        FALSE,
        INFO,
        Move.PERSON,
        "there is enough quota; it is promised as soon as the cluster goes on",
        "plimsoll cluster resume lynx",
    ),
    "paused before a step": Case(
        _chain(begin, lambda slip: slip.pause(why="audit"), BUILD),
        INFRA,
        Reason.PAUSED,
        FALSE,
        INFO,
        Move.PERSON,
        "paused by ada at 2026-03-02T09:00:00Z: audit; bootstrap would begin",
        "plimsoll cluster resume lynx",
    ),
    "paused before a step is tried again": Case(
        _chain(begin, BUILD, show("bootstrap", Found.FAILED), lambda slip: slip.pause(), after(hours=1)),
        INFRA,
        Reason.PAUSED,
        FALSE,
        INFO,
        Move.PERSON,
        "bootstrap is to be tried again",
        "plimsoll cluster resume lynx",
    ),
    "paused at the door": Case(
        _chain(build, lambda slip: slip.pause(), after(hours=1)),
        AVAILABLE,
        Reason.PAUSED,
        FALSE,
        INFO,
        Move.PERSON,
        "paused by ada",
        "plimsoll cluster resume lynx",
    ),
    "paused on the way out": Case(
        _chain(build, lambda slip: slip.retire(), lambda slip: slip.pause(), run),
        AVAILABLE,
        Reason.PAUSED,
        FALSE,
        INFO,
        Move.PERSON,
        "it leaves: paused by ada",
        "plimsoll cluster resume lynx",
    ),
    "nobody has checked it in": Case(
        _chain(add(), run),
        CHECKED_IN,
        Reason.WAITING_FOR_CHECK_IN,
        FALSE,
        INFO,
        Move.PERSON,
        "somebody has to check it in",
        "plimsoll cluster checkin lynx",
    ),
    # The provider has to.
    "the family's limit is too low": Case(
        _chain(limit(300), add(), run),
        QUOTA,
        Reason.QUOTA_SHORT,
        FALSE,
        INFO,
        Move.PROVIDER,
        f"84 of 384 cores of {key().family} are missing in eastus of sub-a (limit 300, 0 used)",
        "plimsoll cluster quota",
    ),
    "the region's limit is too low, the family's is not": Case(
        _chain(limit(300, "cores"), add(), run),
        QUOTA,
        Reason.QUOTA_SHORT,
        FALSE,
        INFO,
        Move.PROVIDER,
        "84 of 384 cores of the region's total are missing",
        "plimsoll cluster quota",
    ),
    "the provider does not know the family": Case(
        _chain(lambda slip: slip.cloud.limits.clear(), add(), run),
        QUOTA,
        Reason.QUOTA_SHORT,
        FALSE,
        INFO,
        Move.PROVIDER,
        "384 of 384 cores",
        "plimsoll cluster quota",
    ),
    "quota shrinks before anything was begun": Case(
        _chain(add(), run, limit(300), run),
        QUOTA,
        Reason.QUOTA_SHORT,
        FALSE,
        INFO,
        Move.PROVIDER,
        "84 of 384 cores",
        "plimsoll cluster quota",
    ),
    "quota shrinks after something was begun": Case(
        _chain(begin, limit(300), run),
        QUOTA,
        Reason.QUOTA_SHRANK,
        FALSE,
        WARNING,
        Move.PROVIDER,
        "it was promised, and is not there any more: 84 of 384 cores",
        "plimsoll cluster quota",
    ),
    "the provider says that quota is used up": Case(
        _chain(begin, BUILD, refuse("scale-sets", trouble(TroubleKind.OUT_OF_QUOTA)), finish("bootstrap")),
        SETS,
        Reason.OUT_OF_QUOTA,
        FALSE,
        WARNING,
        Move.PROVIDER,
        "scale-sets failed (attempt 1 of 6): it said no; again at ",
        "plimsoll cluster retry lynx scale-sets",
    ),
    "the provider has no machines": Case(
        _chain(begin, BUILD, refuse("scale-sets", trouble(TroubleKind.NO_CAPACITY)), finish("bootstrap")),
        SETS,
        Reason.NO_CAPACITY,
        FALSE,
        WARNING,
        Move.PROVIDER,
        "it said no",
        "plimsoll cluster retry lynx scale-sets",
    ),
    "a scale set stays at three of four": Case(
        _chain(till_filling(3), after(hours=4)),
        SETS,
        Reason.SCALE_SET_SHORT,
        FALSE,
        WARNING,
        Move.PROVIDER,
        "3 of 4 machines are there (75.0%); scale-sets has been going since",
        SHOW,
    ),
    "a command ends before its machines are there": Case(
        _chain(till_filling(3), show("scale-sets", Found.DONE)),
        SETS,
        Reason.SCALE_SET_SHORT,
        FALSE,
        WARNING,
        Move.PROVIDER,
        "3 of 4 machines are there (75.0%)",
        "plimsoll cluster retry lynx scale-sets",
    ),
    "machines go away while it is validated": Case(
        _chain(begin, taken_nodes, lambda slip: slip.cloud.fill("lynx", 2), run),
        SETS,
        Reason.SCALE_SET_SHORT,
        FALSE,
        WARNING,
        Move.PROVIDER,
        "2 of 4 machines are there (lynx-1 2 of 4)",
        SHOW,
    ),
    # Another cluster comes first.
    "an earlier cluster waits for more of it": Case(
        _chain(limit(500), add("puma", nodes=8), lambda slip: slip.clock.go(minutes=1), add(), run),
        QUOTA,
        Reason.QUOTA_FOR_EARLIER,
        FALSE,
        INFO,
        Move.OTHER_CLUSTER,
        f"there is enough {key().family}, but puma comes first and waits for more of it",
        "plimsoll cluster quota",
    ),
    "another cluster has to be there first": Case(
        with_recipe(after_cluster("hub-{region}", "production"), begin, BUILD),
        INFRA,
        Reason.WAITING_FOR_CLUSTER,
        FALSE,
        INFO,
        Move.OTHER_CLUSTER,
        "bootstrap comes after hub-eastus has reached production; there is no such cluster yet",
        "plimsoll cluster show hub-eastus",
    ),
    "a cluster that others made has to be there first": Case(
        with_recipe(
            after_cluster("hub", "production"),
            lambda slip: slip.record_cluster("hub", Phase.PROVISIONED),
            begin,
            BUILD,
        ),
        INFRA,
        Reason.WAITING_FOR_CLUSTER,
        FALSE,
        INFO,
        Move.OTHER_CLUSTER,
        "bootstrap comes after hub has reached production; it is not that far",
        "plimsoll cluster show hub",
    ),
    # It goes by itself.
    "quota can't be reached": Case(
        quota_trouble(trouble(TroubleKind.UNREACHABLE)), QUOTA, Reason.QUOTA_UNREADABLE, UNKNOWN, WARNING
    ),
    "quota is asked for too often": Case(
        quota_trouble(trouble(TroubleKind.BUSY)), QUOTA, Reason.QUOTA_UNREADABLE, UNKNOWN, WARNING
    ),
    "a provider can't be reached when a step is to begin": Case(
        _chain(refuse("checkin", trouble(TroubleKind.UNREACHABLE)), begin),
        CHECKED_IN,
        Reason.UNREACHABLE,
        FALSE,
        WARNING,
        says="checkin: it said no",
    ),
    "a provider can't be reached while a step runs": Case(
        _chain(begin, look_trouble("checkin", trouble(TroubleKind.UNREACHABLE))),
        CHECKED_IN,
        Reason.UNREACHABLE,
        UNKNOWN,
        WARNING,
        says="nobody can see how checkin is",
    ),
    "a step fails and will be tried again": Case(
        _chain(begin, BUILD, show("bootstrap", Found.FAILED, "SomethingElse", "exit 1")),
        INFRA,
        Reason.STEP_FAILED,
        FALSE,
        WARNING,
        says="bootstrap failed (attempt 1 of 3): exit 1; again at 2026-03-02T09:0",
        next_step="plimsoll cluster retry lynx bootstrap",
    ),
    "a command is lost with its machine": Case(
        _chain(begin, show("checkin", Found.LOST)),
        CHECKED_IN,
        Reason.COMMAND_LOST,
        FALSE,
        WARNING,
        says="its command was lost with the machine that ran it",
    ),
    "something that ran is not there any more": Case(
        _chain(begin, lambda slip: slip.cloud.operations.clear(), run),
        CHECKED_IN,
        Reason.COMMAND_LOST,
        FALSE,
        WARNING,
        says="it was begun, and is not there any more",
    ),
    "an answer is lost": Case(
        _chain(refuse("checkin", trouble(TroubleKind.UNREACHABLE, is_lost=True)), begin),
        CHECKED_IN,
        Reason.ANSWER_LOST,
        says="checkin: it said no",
    ),
    "a provider asks to wait": Case(
        _chain(refuse("checkin", trouble(TroubleKind.BUSY, wait=90)), begin), CHECKED_IN, Reason.BUSY, says="it said no"
    ),
    "nodes are broken": Case(
        _chain(build, go_out(Service.QUARANTINED, 1, 2)),
        HEALTH,
        Reason.NODES_UNHEALTHY,
        FALSE,
        WARNING,
        Move.PERSON,
        "2 of 4 nodes are in service (2 quarantined)",
        "plimsoll fleet nodes cluster=lynx service!=in_service",
    ),
    "nodes fail their checks": Case(
        _chain(begin, taken_nodes, lambda slip: slip.cloud.bad_nodes.update(("lynx-03", "lynx-04")), finish("burn-in")),
        HEALTH,
        Reason.NODES_UNHEALTHY,
        FALSE,
        WARNING,
        Move.PERSON,
        "2 of 4 nodes are in service (2 quarantined)",
        "plimsoll fleet nodes cluster=lynx service!=in_service",
    ),
    "nodes have never joined": Case(
        with_recipe(BARE, made_by_hand),
        HEALTH,
        Reason.NODES_MISSING,
        FALSE,
        WARNING,
        Move.PERSON,
        "0 of 4 nodes are in service; only 0 are known",
        "plimsoll fleet nodes cluster=lynx service!=in_service",
    ),
    "nodes are out for planned work": Case(
        _chain(build, go_out(Service.MAINTENANCE, 1, 2)),
        HEALTH,
        Reason.PLANNED_WORK,
        FALSE,
        INFO,
        Move.NOBODY,
        "2 of 4 nodes are in service (2 maintenance)",
    ),
    "no nodes yet, and no step that checks them": Case(
        with_recipe(BARE, add(recipe="bare"), run), HEALTH, Reason.WAITING_FOR_STEP, says="come with its scale sets"
    ),
    "nodes wait for somebody to accept them": Case(
        with_recipe(BARE, lambda slip: slip.begin(recipe="bare"), finish("scale-sets")),
        HEALTH,
        Reason.NODES_TO_ACCEPT,
        FALSE,
        INFO,
        Move.PERSON,
        "0 of 4 nodes are in service (4 validating); somebody has to answer accepted for them",
        "plimsoll health tick accepted cluster=lynx",
    ),
    "nodes are being checked": Case(
        with_recipe(BARE, _without_people, lambda slip: slip.begin(recipe="bare"), finish("scale-sets")),
        HEALTH,
        Reason.VALIDATING,
        says="0 of 4 nodes are in service (4 validating)",
    ),
    "machines are being made": Case(
        till_filling(3), SETS, Reason.FILLING, FALSE, INFO, Move.PROVIDER, "3 of 4 machines are there"
    ),
    "a step runs": Case(
        _chain(begin, show("checkin", Found.RUNNING, "", "3 of 9")), CHECKED_IN, Reason.RUNNING, says="3 of 9"
    ),
    "a step was intended when the controller died": Case(
        _chain(add(), lambda slip: slip.check_in(), crash_in("checkin")),
        CHECKED_IN,
        Reason.STARTING,
        says="checkin begins",
    ),
    "a step waits for quota": Case(
        _chain(limit(0), add(), run),
        CHECKED_IN,
        Reason.WAITING_FOR_QUOTA,
        FALSE,
        INFO,
        Move.PROVIDER,
        "waits for quota",
    ),
    "a step waits for a step": Case(begin, SERVICES, Reason.WAITING_FOR_STEP, says="services comes after scale-sets"),
    "it is not available because of others": Case(
        begin,
        AVAILABLE,
        Reason.WAITING,
        says="waits for CheckedIn, InfrastructureApplied, ScaleSetsReady, ServicesDeployed, DependenciesApplied, Hea",
    ),
    "it is not available because of the worst of others": Case(
        _chain(begin, finish("checkin", "bootstrap"), show("dependencies", Found.FAILED, "", "exit 1")),
        AVAILABLE,
        Reason.WAITING,
        FALSE,
        ERROR,
        Move.PERSON,
        "waits for ScaleSetsReady, ServicesDeployed, DependenciesApplied, HealthGreen",
        "plimsoll cluster retry lynx dependencies",
    ),
    "everything holds, not for long enough yet": Case(
        build,
        AVAILABLE,
        Reason.SETTLING,
        FALSE,
        INFO,
        Move.NOBODY,
        "everything holds; in production at 2026-03-02T09:16:00Z",
    ),
    "it leaves, and work runs there on nodes that nobody knows": Case(
        _chain(produce, lambda slip: slip.observe_work(), lambda slip: slip.retire(), run, after(hours=9)),
        AVAILABLE,
        Reason.DRAINING,
        says="it leaves: drained, it waits for the end of 1 workload (train)",
    ),
    "it leaves, and a step of the way out runs": Case(
        _chain(produce, lambda slip: slip.retire(), run), AVAILABLE, Reason.RUNNING, says="it leaves: destroy runs"
    ),
    "it leaves, and a step of the way in still runs": Case(
        _chain(begin, lambda slip: slip.retire(), run), AVAILABLE, Reason.RUNNING, says="it leaves: checkin runs"
    ),
    "it leaves: what was not begun never will be": Case(
        _chain(begin, lambda slip: slip.retire(), run),
        INFRA,
        Reason.LEAVING,
        says="bootstrap is not done any more: the cluster leaves",
    ),
    "it has left": Case(
        _chain(produce, lambda slip: slip.retire(), run, finish("destroy")),
        AVAILABLE,
        Reason.RETIRED,
        FALSE,
        INFO,
        Move.NOBODY,
        "retired at 2026-03-02T09:22:00Z",
    ),
    "it has left before anything was begun, and nobody is asked to check it in": Case(
        _chain(add(), run, lambda slip: slip.retire(), run),
        CHECKED_IN,
        Reason.RETIRED,
        FALSE,
        INFO,
        Move.NOBODY,
        "retired",
    ),
}


@pytest.mark.parametrize("told", CASES)
def test_every_reason_has_its_condition(told: str) -> None:
    case = CASES[told]
    with Slip() as slip:
        case.do(slip)
        found = slip.condition(case.kind)
        assert (found.status, found.reason) == (case.status, case.reason.code), found
        assert (found.severity, found.move) == (case.severity, case.move), found
        assert case.says in found.message, found.message
        if case.move is Move.PERSON or case.next_step:
            assert found.next_step == case.next_step
        check_all(slip)
        assert not slip.idle(), "a second pass at the same moment has nothing to tell"
        assert slip.condition(case.kind) == found


def check_all(slip: Slip) -> None:
    """What holds of every condition that was ever told."""
    for _, change in slip.changes():
        if not isinstance(change, ConditionsChanged):
            continue
        for each in change.conditions:
            assert each.reason in BY_CODE, f"{each.reason} is no reason that anybody can look up"
            assert each.message
            if each.status is TRUE:
                assert (each.severity, each.move) == (INFO, Move.NOBODY)
            if each.move is Move.PERSON and each.next_step not in ("az login", "correct it"):
                assert not command_problem(each.next_step), each


def test_every_reason_has_a_case() -> None:
    assert {case.reason for case in CASES.values()} == set(Reason)
