"""What a second reading of the lifecycle found: work done twice, quota promised twice, waits that never end, and
clusters that suffer from what is wrong with others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import PlimsollError, Refused
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase, Purpose, Service
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.health.acts import Acting, Setting, release_hold, set_service
from plimsoll.health.fold import Health
from plimsoll.lifecycle.claims import outstanding
from plimsoll.lifecycle.decide import Call
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import ConditionType, Going, Move, QuotaKey, Said, SetSeen, Severity, Truth
from plimsoll.lifecycle.outside import Found, Look, Looks, NodeFound, Order, Outside, UsageRead
from plimsoll.lifecycle.providers.quota import read_quota_file
from plimsoll.lifecycle.recipe import Recipe
from plimsoll.lifecycle.service import Pass, order_of, run_pass
from plimsoll.lifecycle.sheet import COLUMNS, plan_rows
from tests.support.azure_site import Site
from tests.support.slipway import (
    BARE,
    CORES,
    H200,
    SLIP,
    START,
    Cloud,
    Crash,
    Hand,
    Slip,
    command_problem,
    key,
    life,
    recipe,
    replace,
)

BOOTSTRAP = ("lynx", "bootstrap")
BOOTSTRAP_1, BOOTSTRAP_2 = "u1-lynx-bootstrap-1", "u1-lynx-bootstrap-2"
PART = SLIP.replace("recipe: slip", "recipe: part").replace("filled_share: 1", "filled_share: 0.7")
"""With 7 of 10 machines there are enough."""


def trouble(kind: TroubleKind, message: str = "no", *, is_lost: bool = False, seconds: float | None = None) -> Any:
    return ProviderTrouble("t", message, kind=kind, may_have_happened=is_lost, retry_seconds=seconds)


class Always(dict[Any, Any]):
    """The same goes wrong with every call for a step."""

    def __init__(self, step: str, fault: PlimsollError) -> None:
        super().__init__()
        self._step, self._fault = step, fault

    def pop(self, order: Any, default: Any = None) -> Any:
        return self._fault if order[1] == self._step else default


def begun(slip: Slip, step: str = "bootstrap") -> list[str]:
    """Every operation of a step that was ever begun outside."""
    return [name for name, operation in slip.cloud.operations.items() if operation.key[1] == step]


def to_scale_sets(slip: Slip, **changes: Any) -> None:
    """Its scale sets are made; no machine came yet."""
    slip.begin(**changes)
    slip.finish("checkin", "bootstrap", "dependencies")


def services(slip: Slip, name: str = "lynx") -> dict[str, str]:
    nodes = slip.state.of(Fleet).nodes.values()
    return {node.id: str(node.service) for node in nodes if node.cluster == name}


def code_of(act: Callable[[], object]) -> str:
    """With which code something is refused; empty where it is done."""
    try:
        act()
    except Refused as error:
        return error.code
    return ""


# A build is the one that was begun.


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, limit=None) as made:
        made.to_bootstrap()
        yield made


def bootstrap_order(site: Site) -> Order:
    state = site.keeper.state()
    recipe_now = state.of(Lives).recipe_of(site.life())
    step = recipe_now.step("bootstrap")
    assert step is not None
    return order_of(state, site.life(), recipe_now, step)


def look_at(site: Site, order: Order) -> Look | ProviderTrouble:
    return site.outside.providers["build"].look([order])[order.key]


def test_a_build_is_polled_where_it_was_begun_whatever_its_recipe_says_now(site: Site) -> None:
    [build] = site.builds("bootstrap")
    order = bootstrap_order(site)
    assert order.handle == f"cluster-bootstrap#1 {build['web_url']}"
    assert order.step.build is not None
    site.buildkite.add(1, pipeline="cluster-services", state="passed")
    other = order._replace(step=replace(order.step, build=replace(order.step.build, pipeline="cluster-services")))
    look = look_at(site, other)
    assert isinstance(look, Look)
    assert (look.found, look.handle) == (Found.RUNNING, order.handle)


def test_a_build_of_somebody_else_is_never_taken_for_ours(site: Site) -> None:
    [number] = site.buildkite.add(1, pipeline="cluster-bootstrap", state="passed")
    order = bootstrap_order(site)._replace(handle=f"cluster-bootstrap#{number} https://b.test/{number}")
    found = look_at(site, order)
    assert isinstance(found, ProviderTrouble)
    assert found.kind is TroubleKind.MISSING
    assert found.message == "build 2 of cluster-bootstrap is not the one that was begun as u-lynx-bootstrap-1"
    assert command_problem(found.next_step) == ""


EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "labels may name a pipeline": ({"labels": {"ring": "b"}}, "step_runs"),
    "so may the purpose": ({"purpose": Purpose.APPLIED}, "step_runs"),
    "and the colo": ({"colo": "b7"}, "step_runs"),
    "an owner and a label together are refused together": ({"owner": "bob", "labels": {"ring": "b"}}, "step_runs"),
    "nothing is begun by its owner": ({"owner": "bob"}, ""),
    "nor by the day on which it is wanted": ({"wanted": START + timedelta(days=9)}, ""),
}


@pytest.mark.parametrize("sentence", EDITS)
def test_what_a_step_may_have_been_begun_by_is_not_edited_while_it_is_outside(sentence: str) -> None:
    changes, want = EDITS[sentence]
    with Slip() as slip:
        slip.begin()
        before = slip.life().spec
        assert code_of(lambda: slip.edit(**changes)) == want
        assert (slip.life().spec == before) is bool(want)
        slip.cloud.set("lynx", "checkin", Found.FAILED, may_retry=False)
        slip.run()
        assert slip.life().works["checkin"].going is Going.STUCK
        slip.edit(**changes)  # nothing is outside any more
        assert slip.life().spec == replace(before, **changes)


MIGRATIONS = {
    "another pipeline for a build that runs": ("pipeline: bootstrap", "pipeline: bootstrap-two", "step_runs"),
    "a command instead of a build": ("build: {pipeline: bootstrap}", "run: [bootstrap]", "step_runs"),
    "another span for it": ("within: 4h\n    retry", "within: 9h\n    retry", ""),
    "another command for a step that does not run": ("run: [services]", "run: [services, --all]", ""),
}


@pytest.mark.parametrize("sentence", MIGRATIONS)
def test_a_recipe_that_does_a_running_step_otherwise_is_refused_until_it_has_ended(sentence: str) -> None:
    old, new, want = MIGRATIONS[sentence]
    assert old in SLIP
    with Slip() as slip:
        slip.begin()
        slip.finish("checkin")
        slip.apply(SLIP.replace("version: 1", "version: 2").replace(old, new))
        assert code_of(slip.migrate) == want
        assert slip.life().recipe_version == (1 if want else 2)
        slip.finish("bootstrap")
        slip.migrate()
        assert slip.life().recipe_version == 2


# A call that may have been made is not made twice.


def refuse_login(slip: Slip) -> None:
    """The bootstrap of `lynx` is intended, and was surely not begun: a login is wrong."""
    slip.begin()
    slip.cloud.early[BOOTSTRAP] = trouble(TroubleKind.CREDENTIALS)
    slip.finish("checkin")
    work = slip.life().works["bootstrap"]
    assert (work.going, work.reason) == (Going.INTENDED, "Credentials")


def test_nobody_retries_beside_a_call_that_is_just_being_repeated() -> None:
    with Slip() as slip:
        refuse_login(slip)
        codes: list[str] = []

        def retry(order: Order) -> None:
            if order.operation == BOOTSTRAP_1:
                codes.append(code_of(lambda: slip.retry(step="bootstrap")))

        slip.cloud.on_begin = retry
        slip.run(minutes=3)
        assert codes == ["step_runs"]
        slip.run(minutes=3)
        assert begun(slip) == [BOOTSTRAP_1]


def test_nobody_retries_beside_a_repeated_call_whose_controller_died() -> None:
    with Slip() as slip:
        refuse_login(slip)
        slip.cloud.late[BOOTSTRAP] = Crash()
        with pytest.raises(Crash):
            slip.run(minutes=3)
        slip.restart()
        assert code_of(lambda: slip.retry(step="bootstrap")) == "step_runs"
        slip.run(minutes=3)
        assert begun(slip) == [BOOTSTRAP_1]
        assert slip.life().works["bootstrap"].going is Going.RUNNING


NOT_MADE = (TroubleKind.BUSY, TroubleKind.UNREACHABLE, TroubleKind.CREDENTIALS)


@pytest.mark.parametrize("kind", NOT_MADE)
def test_that_a_call_was_not_made_does_not_tell_what_became_of_the_one_before(kind: TroubleKind) -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.late[BOOTSTRAP] = trouble(TroubleKind.UNREACHABLE, is_lost=True)
        slip.finish("checkin")
        hidden = slip.cloud.operations.pop(BOOTSTRAP_1)  # it is there, and the list lags behind
        slip.cloud.early[BOOTSTRAP] = trouble(kind, seconds=30.0)
        slip.run(minutes=2)
        assert slip.life().works["bootstrap"].reason == "AnswerLost"
        assert code_of(lambda: slip.retry(step="bootstrap")) == "step_runs"
        slip.cloud.operations[BOOTSTRAP_1] = hidden
        slip.run(minutes=3)
        assert begun(slip) == [BOOTSTRAP_1]


class Interrupted(Pass):
    """A pass in which somebody speaks between the intent and its call."""

    speak: Callable[[], None] | None = None

    def _call(self, calls: Sequence[Call]) -> list[tuple[Call, Look | ProviderTrouble]]:
        if calls and self.speak is not None:
            said, self.speak = self.speak, None
            said()
        return super()._call(calls)


def test_a_call_is_not_made_when_somebody_retries_in_between() -> None:
    with Slip() as slip:
        slip.add()
        slip.check_in()
        one = Interrupted(slip.keeper, slip.outside, None)
        one.speak = lambda: slip.retry(step="checkin", is_lost=True)
        one.go()
        assert slip.cloud.calls == ["u1-lynx-checkin-2"]


def test_a_call_is_not_made_when_somebody_waives_in_between() -> None:
    with Slip() as slip:
        slip.add()
        slip.check_in()

        def waive() -> None:
            slip.retry(step="checkin", is_lost=True)
            slip.waive(step="checkin")

        one = Interrupted(slip.keeper, slip.outside, None)
        one.speak = waive
        one.go()
        assert slip.cloud.calls == [BOOTSTRAP_1]


# Quota is promised once.


class Reader:
    """Says of every place that is asked for what `answer` says of the recipe."""

    def __init__(self, answer: Callable[[Recipe], int]) -> None:
        self._answer = answer

    def usages(self, recipe: Recipe, subscription: str, region: str) -> Sequence[UsageRead]:
        return [UsageRead(QuotaKey(subscription, region, H200), self._answer(recipe), 0)]


def pass_with(slip: Slip, quota: Any = None, **providers: Any) -> None:
    outside = slip.outside
    run_pass(slip.keeper, Outside({**outside.providers, **providers}, quota or outside.quota))


SPELT = """\
machines:
  H200: {vm: Standard_ND96isr_H200_v5, family: STANDARD NDISRH200V5 Family, cores: 96, gpus: 8}
"""
SPELLINGS: dict[str, dict[str, str]] = {
    "the region in capitals": {"region": "EastUS"},
    "the region with a blank": {"region": "East US"},
    "the subscription in capitals": {"subscription": "SUB-A"},
    "the family in capitals and with blanks": {"recipe": "spelt"},
    "all of them": {"region": "EASTUS", "subscription": "Sub-A", "recipe": "spelt"},
}


@pytest.mark.parametrize("sentence", SPELLINGS)
def test_one_quota_that_is_spelt_in_two_ways_is_promised_once(sentence: str) -> None:
    with Slip() as slip:
        slip.apply(SLIP.replace("recipe: slip", "recipe: spelt") + SPELT)
        slip.add("lynx", nodes=4)
        slip.add("orca", nodes=4, **SPELLINGS[sentence])
        for _ in range(2):
            pass_with(slip, Reader(lambda _recipe: 7 * CORES))
        promised = {name: slip.life(name).claimed_at is not None for name in ("lynx", "orca")}
        assert promised == {"lynx": True, "orca": False}
        message = slip.condition(ConditionType.QUOTA_SUFFICIENT, "orca").message
        assert "96 of 384 cores" in message
        assert "384 promised to others" in message


def test_a_quota_file_that_spells_one_quota_in_two_ways_says_it_twice(tmp_path: Path) -> None:
    file = tmp_path / "quota.csv"
    rows = f"sub-a,eastus,{H200},900,0\nSub-A,East US,{H200.upper()},900,0\n"
    file.write_text(f"subscription,region,family,limit,used\n{rows}")
    with pytest.raises(Refused, match=r"row 3: .* stands there twice; first in row 2"):
        read_quota_file(file)


SEEN: dict[str, tuple[int, timedelta | None, int]] = {
    "9 of 10 that have been there for long enough are used": (9, timedelta(minutes=-10), 1),
    "9 of 10 that just came are not seen by others yet": (9, timedelta(minutes=-9), 10),
    "all that have been there for long enough": (10, timedelta(hours=-1), 0),
    "a moment that is still to come was written by another clock": (10, timedelta(days=365), 0),
    "nobody knows since when": (10, None, 10),
}


@pytest.mark.parametrize("sentence", SEEN)
def test_machines_that_have_settled_count_as_used(sentence: str) -> None:
    there, ago, want_nodes = SEEN[sentence]
    since = None if ago is None else START + ago
    row = SetSeen("lynx-1", "lynx-i1", 10, there, steady_since=since)
    some = life(nodes=10, claimed_at=START, sets={"lynx-1": row})
    want = {H200: want_nodes * CORES, "cores": want_nodes * CORES} if want_nodes else {}
    assert outstanding(some, recipe(), START) == want


def test_a_set_that_stays_at_9_of_10_holds_nothing_but_the_last_machine() -> None:
    with Slip(limit=20 * CORES) as slip:
        slip.apply(PART)
        to_scale_sets(slip, nodes=10, recipe="part")
        slip.cloud.fill("lynx", 9)
        slip.run(minutes=1)
        slip.finish("services", "burn-in")
        slip.run(minutes=30)
        assert outstanding(slip.life(), slip.recipe_of("lynx"), slip.clock())[H200] == CORES
        slip.add("orca", nodes=11, recipe="part")
        slip.run(minutes=11)
        message = slip.condition(ConditionType.QUOTA_SUFFICIENT, "orca").message
        want = "96 of 1,056 cores of standardNDISRH200V5Family are missing in eastus of sub-a"
        assert message == f"{want} (limit 1,920, 864 used, 96 promised to others)"
        slip.add("puma", nodes=10, recipe="part", wanted=START)
        slip.run(minutes=11)
        assert slip.life("puma").claimed_at is not None, "9 are used, 1 is held, and 10 of 20 are free"


def test_machines_that_came_before_the_clock_was_set_back_are_not_counted_twice() -> None:
    with Slip(limit=8 * CORES) as slip:
        to_scale_sets(slip)
        slip.clock.go(days=365)
        slip.finish("scale-sets")
        slip.clock.go(days=-365)
        slip.finish("services", "burn-in")
        slip.add("orca")
        slip.run(minutes=1)
        assert slip.life("orca").claimed_at is not None


# Two sources of one place.


def add_two_sources(slip: Slip, first: str) -> None:
    """`lynx` has its quota from Azure, `orca` from a file, in the same place."""
    slip.apply(SLIP.replace("recipe: slip", "recipe: filed").replace("source: azure, settle: 10m", "source: file"))
    for name in sorted(("lynx", "orca"), key=lambda each: each != first):
        slip.add(name, recipe="filed" if name == "orca" else "slip")


@pytest.mark.parametrize("first", ["lynx", "orca"])
def test_a_file_that_cannot_be_read_hides_nothing_that_azure_says(first: str) -> None:
    def answer(asked: Recipe) -> int:
        if asked.name == "filed":
            raise Refused("quota_unreadable", "quota.csv can't be read: no such file")
        return 100 * CORES

    with Slip() as slip:
        add_two_sources(slip, first)
        pass_with(slip, Reader(answer))
        found = [slip.condition(ConditionType.QUOTA_SUFFICIENT, name) for name in ("lynx", "orca")]
        assert [(each.status, each.reason) for each in found] == [
            (Truth.TRUE, "QuotaPromised"),
            (Truth.UNKNOWN, "QuotaSourceWrong"),
        ]


@pytest.mark.parametrize("first", ["lynx", "orca"])
def test_of_one_place_azure_is_believed_rather_than_a_file(first: str) -> None:
    with Slip() as slip:
        add_two_sources(slip, first)
        pass_with(slip, Reader(lambda asked: 10_000 if asked.name == "filed" else 0))
        assert [slip.life(name).claimed_at for name in ("lynx", "orca")] == [None, None]
        assert "limit 0, 0 used" in slip.condition(ConditionType.QUOTA_SUFFICIENT).message


# Waits that say whose move it is, and end.


def test_nodes_that_wait_for_a_check_by_hand_ask_for_somebody() -> None:
    with Slip() as slip:
        slip.apply(BARE)
        slip.begin(recipe="bare")
        slip.finish("scale-sets")
        slip.run(days=1)
        condition = slip.condition(ConditionType.HEALTH_GREEN)
        assert (condition.status, condition.reason, condition.move) == (Truth.FALSE, "NodesToAccept", Move.PERSON)
        assert condition.next_step.startswith("plimsoll health tick ")
        assert command_problem(condition.next_step) == ""


def stick_short(slip: Slip) -> None:
    """3 of 4 machines came, and no more will."""
    to_scale_sets(slip)
    slip.cloud.fill("lynx", 3)
    slip.cloud.set("lynx", "scale-sets", Found.FAILED, "StepFailed", "gave up", may_retry=False)
    slip.run()
    assert slip.life().works["scale-sets"].going is Going.STUCK


def test_a_cluster_whose_missing_machine_is_waived_gets_into_production() -> None:
    with Slip() as slip:
        stick_short(slip)
        slip.waive(step="scale-sets", why="3 are enough")
        slip.run()
        assert slip.life().sets["lynx-1"].there == 3
        assert slip.condition(ConditionType.SCALE_SETS_READY).status is Truth.TRUE
        slip.finish("services", "burn-in")
        slip.run(minutes=15)
        assert slip.phase() is Phase.PRODUCTION


def test_a_step_that_was_waived_can_be_taken_up_again() -> None:
    with Slip() as slip:
        stick_short(slip)
        slip.waive(step="scale-sets")
        slip.run()
        slip.retry(step="scale-sets")
        slip.run()
        assert begun(slip, "scale-sets") == ["u1-lynx-scale-sets-1", "u1-lynx-scale-sets-2"]
        slip.finish("scale-sets")
        assert slip.condition(ConditionType.SCALE_SETS_READY).reason == "Done"
        assert code_of(lambda: slip.retry(step="scale-sets")) == "step_done"


def test_a_cluster_that_leaves_does_not_wait_for_machines_that_never_come() -> None:
    with Slip() as slip:
        to_scale_sets(slip)
        slip.cloud.set("lynx", "scale-sets", Found.RUNNING, "NoCapacity", "no room")
        slip.run()
        slip.retire()
        slip.run(days=1)
        assert begun(slip, "destroy") == ["u1-lynx-destroy-1"]
        slip.finish("destroy")
        assert slip.phase() is Phase.RETIRED


@pytest.mark.parametrize("step", ["bootstrap", "dependencies"])
def test_what_was_surely_never_sent_uses_up_no_attempt(step: str) -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.early = Always(step, trouble(TroubleKind.UNREACHABLE, "connection refused"))
        slip.finish("checkin")
        if step == "dependencies":
            slip.finish("bootstrap")
        for _ in range(30):
            slip.run(minutes=1)
        work = slip.life().works[step]
        assert (work.going, work.attempt, work.failures, work.reason) == (Going.INTENDED, 1, 0, "Unreachable")
        slip.cloud.early = {}
        slip.run(minutes=1)
        assert begun(slip, step) == [f"u1-lynx-{step}-1"]


@pytest.mark.parametrize("reason", ["OutOfQuota", "NoCapacity"])
def test_what_the_provider_does_not_have_is_asked_for_until_it_has_it(reason: str) -> None:
    with Slip() as slip:
        to_scale_sets(slip)
        for _ in range(20):
            slip.cloud.set("lynx", "scale-sets", Found.FAILED, reason, "none")
            slip.run()
            work = slip.life().works["scale-sets"]
            assert work.going is Going.RETRYING
            condition = slip.condition(ConditionType.SCALE_SETS_READY)
            assert (condition.reason, condition.move) == (reason, Move.PROVIDER)
            slip.run(minutes=30)
        assert slip.life().works["scale-sets"].attempt == 21
        slip.finish("scale-sets")
        assert slip.condition(ConditionType.SCALE_SETS_READY).is_true


GATE = ("checkin, sets: CheckedIn, run: [checkin], within: 30m", "gate, sets: CheckedIn")
GATED = SLIP.replace("recipe: slip", "recipe: gated").replace(*GATE).replace("needs: [checkin]", "needs: [gate]")


def test_a_check_in_that_does_nothing_is_passed_when_it_is_retried() -> None:
    with Slip() as slip:
        slip.apply(GATED)
        slip.produce()
        slip.migrate(recipe="gated")
        slip.run(minutes=1)
        condition = slip.condition(ConditionType.CHECKED_IN)
        assert (condition.reason, condition.next_step) == ("RecipeChanged", "plimsoll cluster retry lynx gate")
        slip.retry(step="gate")
        slip.run(minutes=1)
        assert slip.life().works["gate"].going is Going.DONE
        assert slip.condition(ConditionType.CHECKED_IN).is_true


# Nodes.


class Numbered(Cloud):
    """Its machines have numbers of their own: another one may come with the same name."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, str] = {}
        self.limits[key()] = 10_000

    def show(self, order: Order) -> Look:
        look = super().show(order)
        if order.step.name != "scale-sets":
            return look
        nodes = [replace(each, labels={"provider_id": self.numbers.get(each.node, "1")}) for each in look.nodes]
        return replace(look, nodes=tuple(nodes))


def acting(slip: Slip, why: str) -> Acting:
    return Acting("bob", slip.clock(), why, {})


def retire_node(slip: Slip, name: str) -> None:
    node, by = slip.node(name), acting(slip, "burnt")
    slip._say(lambda state: set_service(state, [node], Setting(Service.RETIRED), by)[1], "burnt")


def test_a_node_that_somebody_retired_stays_so_and_another_machine_of_its_name_joins() -> None:
    with Slip() as slip:
        slip.cloud = cloud = Numbered()
        slip.produce()
        retire_node(slip, "lynx-01")
        for _ in range(3):
            slip.run(minutes=1)
            assert slip.node("lynx-01").service is Service.RETIRED
        cloud.numbers["lynx-01"] = "2"
        slip.run(minutes=1)
        node = slip.node("lynx-01")
        assert node.service in (Service.JOINING, Service.VALIDATING)
        assert node.labels["provider_id"] == "2"


def test_a_retired_node_of_which_nobody_knows_which_machine_it_is_stays_retired() -> None:
    with Slip() as slip:
        slip.produce()
        retire_node(slip, "lynx-01")
        slip.run(minutes=1)
        slip.run(days=1)
        assert slip.node("lynx-01").service is Service.RETIRED


def test_what_a_burn_in_found_is_taken_once_and_at_its_end() -> None:
    with Slip() as slip:
        to_scale_sets(slip)
        slip.finish("scale-sets", "services")
        names = sorted(services(slip))
        early = tuple(NodeFound(name, "", name != "lynx-01", "ecc") for name in names)
        slip.cloud.set("lynx", "burn-in", Found.RUNNING, nodes=early)
        for _ in range(2):
            slip.run(minutes=1)
            assert Counter(services(slip).values()) == {"validating": 4}
        slip.cloud.bad_nodes = {"lynx-01"}
        slip.finish("burn-in")
        assert services(slip) == dict.fromkeys(names, "in_service") | {"lynx-01": "quarantined"}
        [hold] = slip.state.of(Health).holds["lynx-01"]
        by = acting(slip, "dimm replaced")
        slip._say(lambda state: release_hold(state, hold.id, by, at=slip.clock(), is_forced=True)[1])
        released = services(slip)["lynx-01"]
        assert released != "quarantined"
        slip.run(minutes=1)
        slip.run(days=1)
        assert services(slip)["lynx-01"] == released


def test_an_import_of_the_whole_sheet_keeps_a_planned_cluster_that_has_nodes() -> None:
    with Slip(limit=0) as slip:
        slip.record_cluster("hub", Phase.PROVISIONED)
        slip.record(NodeRecorded(Node("hub-0", "hub", "hub-i1", "H200", 8, Service.IN_SERVICE)))
        slip.add("hub")
        slip.add("moth")
        slip.run()
        assert not slip.life("hub").has_begun
        row = ["orca", "eastus", "us", "", "azure", "research", "sub-a", "H200", "4", "1", "slip", "", ""]
        raw = MemorySheet("sheet.csv", [list(COLUMNS), row])
        plan, _ = plan_rows(slip.state, raw, said=Said("ada", START), seed="x", is_whole=True)
        assert any("hub" in warning for warning in plan.warnings)
        slip._say(lambda state: plan_rows(state, raw, said=Said("ada", START), seed="x", is_whole=True)[1])
        slip.run(minutes=1)
        gone = {name: slip.life(name).leaving is not None for name in ("hub", "moth", "orca")}
        assert gone == {"hub": False, "moth": True, "orca": False}
        assert slip.node("hub-0").service is Service.IN_SERVICE


def test_others_join_although_the_name_of_one_is_taken() -> None:
    with Slip() as slip:
        slip.record_cluster("old", Phase.PRODUCTION)
        slip.record(NodeRecorded(Node("lynx-02", "old", "old-i1", "H200", 8, Service.IN_SERVICE)))
        to_scale_sets(slip)
        slip.finish("scale-sets")
        assert sorted(services(slip)) == ["lynx-01", "lynx-03", "lynx-04"]
        assert slip.node("lynx-02").cluster == "old"
        condition = slip.condition(ConditionType.SCALE_SETS_READY)
        assert (condition.status, condition.reason, condition.move) == (Truth.FALSE, "NodeNameTaken", Move.PERSON)


# What is said.


def test_a_step_that_is_about_to_begin_in_a_paused_cluster_says_that_it_is_paused() -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.early[BOOTSTRAP] = trouble(TroubleKind.BUSY, seconds=10.0)
        slip.finish("checkin")
        slip.pause(why="freeze")
        slip.run(minutes=5)
        assert slip.life().works["bootstrap"].going is Going.INTENDED
        condition = slip.condition(ConditionType.INFRASTRUCTURE_APPLIED)
        assert (condition.reason, condition.move) == ("Paused", Move.PERSON)
        assert condition.message.endswith("freeze; bootstrap is to begin")
        assert condition.next_step == "plimsoll cluster resume lynx"
        slip.resume()
        slip.run()
        assert begun(slip) == [BOOTSTRAP_1]


def test_who_waits_for_a_retired_cluster_is_told_that_a_person_has_to_say_what_next() -> None:
    needs = "needs: [bootstrap, {cluster: hub, reaches: production}], run: [dependencies]"
    text = SLIP.replace("recipe: slip", "recipe: after").replace("needs: [bootstrap], run: [dependencies]", needs)
    with Slip() as slip:
        slip.apply(text)
        slip.record_cluster("hub", Phase.RETIRED)
        slip.begin(recipe="after")
        slip.finish("checkin", "bootstrap")
        condition = slip.condition(ConditionType.DEPENDENCIES_APPLIED)
        assert (condition.reason, condition.severity, condition.move) == (
            "WaitingForCluster",
            Severity.ERROR,
            Move.PERSON,
        )
        assert condition.message.endswith("and hub is retired")
        assert command_problem(condition.next_step) == ""
        slip.waive(step="dependencies")
        slip.run()
        assert slip.condition(ConditionType.DEPENDENCIES_APPLIED).is_true


# One that fails takes nobody with it.


class Broken(Hand):
    """Raises what nobody has foreseen."""

    def __init__(self, cloud: Cloud, *, where: str) -> None:
        self._where = where
        super().__init__(cloud)

    def look(self, orders: Sequence[Order]) -> Looks:
        if self._where == "look":
            raise KeyError("meta_data")
        return super().look(orders)

    def begin(self, order: Order) -> Look:
        if self._where == "begin" and order.life.name == "lynx":
            raise OSError(28, "no space left on device")
        return super().begin(order)


class Placeless(Hand):
    """Can't say where it is."""

    def __init__(self, cloud: Cloud, error: Exception) -> None:
        self._error = error
        super().__init__(cloud)

    @property
    def place(self) -> str:
        raise self._error

    @place.setter
    def place(self, value: str) -> None:
        pass


def test_a_call_that_ends_in_the_unforeseen_leaves_the_others_calls_recorded() -> None:
    with Slip() as slip:
        names = ("kite", "lynx", "moth")
        for name in names:
            slip.add(name)
            slip.check_in(name)
        slip.run()
        for name in names:
            slip.cloud.finish(name, "checkin")
        slip.clock.go(minutes=1)
        pass_with(slip, build=Broken(slip.cloud, where="begin"))
        works = {name: slip.life(name).works["bootstrap"] for name in names}
        want = {"kite": Going.RUNNING, "lynx": Going.INTENDED, "moth": Going.RUNNING}
        assert {name: work.going for name, work in works.items()} == want
        assert works["lynx"].reason == "AnswerLost"
        assert "no space left" in works["lynx"].detail


def test_a_look_that_ends_in_the_unforeseen_blinds_only_its_own_steps() -> None:
    with Slip() as slip:
        slip.begin("lynx")
        slip.finish("checkin")
        slip.begin("moth")
        slip.cloud.finish("moth", "checkin")
        slip.clock.go(minutes=1)
        pass_with(slip, build=Broken(slip.cloud, where="look"))
        condition = slip.condition(ConditionType.INFRASTRUCTURE_APPLIED)
        assert (condition.status, condition.reason) == (Truth.UNKNOWN, "Unreachable")
        assert slip.life("moth").works["bootstrap"].going is Going.RUNNING


PLACES = {
    "a folder that can't be written": Refused("errands", "the folder can't be written"),
    "something that nobody has foreseen": OSError(13, "permission denied"),
}


@pytest.mark.parametrize("sentence", PLACES)
def test_a_provider_that_cannot_say_where_it_is_stops_no_pass(sentence: str) -> None:
    with Slip() as slip:
        slip.begin("lynx")
        slip.finish("checkin")
        slip.add("moth")
        slip.cloud.finish("lynx", "bootstrap")
        slip.clock.go(minutes=1)
        pass_with(slip, run=Placeless(slip.cloud, PLACES[sentence]))
        assert slip.life("lynx").works["bootstrap"].going is Going.DONE
        assert slip.condition(ConditionType.QUOTA_SUFFICIENT, "moth").is_true


def test_a_failed_look_at_sets_that_hold_enough_is_done() -> None:
    with Slip() as slip:
        slip.apply(PART)
        to_scale_sets(slip, recipe="part", nodes=10)
        slip.cloud.fill("lynx", 6)
        slip.cloud.set("lynx", "scale-sets", Found.FAILED, "NoCapacity", "no room")
        slip.run()
        assert slip.life().works["scale-sets"].going is Going.RETRYING
        slip.run(hours=1)
        slip.cloud.fill("lynx", 7)
        slip.cloud.set("lynx", "scale-sets", Found.FAILED, "NoCapacity", "no room")
        slip.run()
        assert slip.life().works["scale-sets"].going is Going.DONE


# How much is written, and how often is asked.


def told_in_an_hour(slip: Slip, blink: Callable[[int], None]) -> int:
    """The events of 120 passes, 30 s apart, before each of which something blinks."""
    before = slip.state.revision
    for number in range(120):
        blink(number)
        slip.run(seconds=30)
    return len(slip.events(before))


def test_numbers_of_a_quota_that_blink_are_told_every_ten_minutes() -> None:
    with Slip(limit=2 * CORES) as slip:
        slip.add()
        slip.run()
        assert 1 <= told_in_an_hour(slip, lambda number: slip.cloud.others.update({key(): number})) <= 6


def test_numbers_of_a_trouble_that_blink_are_told_every_ten_minutes() -> None:
    with Slip() as slip:
        slip.begin()

        def blink(number: int) -> None:
            text = f"has had {number} requests of ours in the last minute, the next may go out in {number * 7 % 60} s"
            slip.cloud.blind["lynx", "checkin"] = trouble(TroubleKind.BUSY, text)

        assert 1 <= told_in_an_hour(slip, blink) <= 7


@pytest.mark.parametrize("settle_seconds", [0.0, 30.0])
def test_who_asks_us_to_wait_for_two_hours_is_asked_every_hour(settle_seconds: float) -> None:
    with Slip() as slip:
        slip.begin()
        slip.cloud.early = Always("scale-sets", trouble(TroubleKind.BUSY, "slow down", seconds=7200.0))
        slip.finish("checkin", "bootstrap", "dependencies")
        begun_at = slip.life().works["scale-sets"].tried
        hand = Hand(slip.cloud, settle_seconds=settle_seconds)
        minutes: list[float] = []
        while (minute := (slip.clock() - begun_at) / timedelta(minutes=1)) < 185:
            before = slip.cloud.calls.count("u1-lynx-scale-sets-1")
            pass_with(slip, scale_sets=hand)
            minutes += [minute] * (slip.cloud.calls.count("u1-lynx-scale-sets-1") - before)
            slip.clock.go(minutes=1)
        assert minutes == [60, 120, 180]
        assert slip.life().works["scale-sets"].reason == "Busy"


GONE: dict[str, Callable[[Slip], None]] = {
    "retry": lambda slip: slip.retry(step="bootstrap"),
    "retry of what is lost": lambda slip: slip.retry(step="bootstrap", is_lost=True),
    "waive": lambda slip: slip.waive(step="bootstrap"),
    "retry of its last step": lambda slip: slip.retry(step="destroy", is_lost=True),
}


@pytest.mark.parametrize("sentence", GONE)
def test_nothing_is_done_any_more_for_a_retired_cluster(sentence: str) -> None:
    with Slip() as slip:
        slip.begin()
        slip.finish("checkin")
        slip.cloud.set("lynx", "bootstrap", Found.FAILED, may_retry=False)
        slip.run()
        slip.retire()
        slip.run(minutes=1)
        slip.finish("destroy")
        assert slip.phase() is Phase.RETIRED
        assert code_of(lambda: GONE[sentence](slip)) == "cluster_leaves"
