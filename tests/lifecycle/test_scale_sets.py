"""Steps that make scale sets at Azure: machines that come over minutes, everything that keeps them from coming, and how
little is asked for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from plimsoll.fleet.model import Phase, Service
from plimsoll.lifecycle.machines import AZURE
from plimsoll.lifecycle.model import Condition, Going, Move, Truth
from tests.support.azure import NO_MACHINES, Fault
from tests.support.azure_site import FAMILY, NAMESPACE, PLAIN, Site, spec
from tests.support.kube_api import Problem
from tests.support.operator import PLURAL

READY = "ScaleSetsReady"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, limit=None) as made:
        yield made


def there(site: Site) -> dict[str, tuple[int, int]]:
    return {name: (seen.there, seen.wanted) for name, seen in site.life().sets.items()}


# The way to production.


def test_a_cluster_goes_from_a_plan_to_production(site: Site) -> None:
    site.cloud.limits[FAMILY] = 383
    site.plan(spec(), is_checked_in=False)
    site.run()
    assert site.phase() is Phase.PLANNED
    assert site.condition("QuotaSufficient").message == (
        f"1 of 384 cores of {FAMILY} are missing in westeurope of {site.life().spec.subscription} (limit 383, 0 used)"
    )
    site.cloud.limits |= {FAMILY: 384, "cores": 383}
    site.wait(minutes=1)
    site.run()
    assert "1 of 384 cores of the region's total are missing" in site.condition("QuotaSufficient").message
    site.cloud.limits["cores"] = 384
    site.cloud.page_items = 2  # what is asked for is on the last page
    site.wait(minutes=1)
    site.run()
    assert (site.phase(), site.condition("CheckedIn").reason) == (Phase.PROVISIONING, "WaitingForCheckIn")
    assert site.buildkite.builds == []
    site.check_in("lynx")
    site.run()
    site.end("checkin")
    site.run()
    assert site.objects() == []
    site.end("bootstrap")
    site.run()
    assert site.objects() == ["lynx-1", "lynx-2"]
    site.operator.step(2)
    site.run()
    assert site.condition(READY).message == "0 of 4 machines are there"
    site.wait(minutes=3)
    site.cloud.arrive(1)
    site.run()
    assert there(site) == {"lynx-1": (1, 2), "lynx-2": (1, 2)}
    assert [node.id for node in site.nodes()] == ["lynx-1000000", "lynx-2000000"]
    assert site.condition("QuotaSufficient").is_true, "what its own machines use was promised to it"
    site.wait(minutes=3)
    site.cloud.arrive()
    site.operator.step()
    site.run()
    assert (site.phase(), site.condition(READY).reason) == (Phase.PROVISIONED, "Done")
    assert [(node.id, node.island) for node in site.nodes()] == [
        ("lynx-1000000", "lynx-i1"),
        ("lynx-1000001", "lynx-i1"),
        ("lynx-2000000", "lynx-i2"),
        ("lynx-2000001", "lynx-i2"),
    ]
    assert site.nodes()[0].labels["provider_id"].endswith("/virtualMachineScaleSets/lynx-1/virtualMachines/0")
    site.end("services")
    site.end("dependencies")
    site.run(2)
    assert {node.service for node in site.nodes()} == {Service.VALIDATING}
    assert site.phase() is Phase.PROVISIONED
    site.pass_checks()
    site.run()
    assert site.condition("Available").reason == "Settling"
    site.wait(minutes=31)
    site.run()
    assert site.phase() is Phase.PRODUCTION
    assert {node.service for node in site.nodes()} == {Service.IN_SERVICE}
    steps = ("checkin", "bootstrap", "services", "dependencies", "destroy")
    assert [len(site.builds(step)) for step in steps] == [1, 1, 1, 1, 0]
    puts = [each for each in site.cloud.requests if each.startswith("PUT")]
    assert len(puts) == 2, "each scale set was made once"


def test_no_two_clusters_are_promised_the_same_cores(site: Site) -> None:
    site.cloud.limits[FAMILY] = 500
    site.plan(spec(), spec("puma"))
    site.run()
    assert (site.phase(), site.phase("puma")) == (Phase.PROVISIONING, Phase.PLANNED)
    assert "limit 500, 0 used, 384 promised to others" in site.condition("QuotaSufficient", "puma").message


def test_two_that_fill_at_once_are_not_said_to_have_lost_what_they_use(site: Site) -> None:
    site.cloud.limits |= {FAMILY: 768, "cores": 768}
    site.plan(spec(), spec("puma"))
    site.run()
    for number in (1, 2):
        site.end("checkin", number=number)
    site.run()
    for number in (1, 2):
        site.end("bootstrap", number=number)
    site.run()
    site.operator.step(2)
    for _ in range(3):
        site.wait(minutes=2)
        site.run()
        assert site.condition("QuotaSufficient").is_true
        assert site.condition("QuotaSufficient", "puma").is_true
        site.cloud.arrive(1)
        site.operator.step()


# What keeps machines from coming.


def set_limit(site: Site, name: str, limit: int) -> None:
    site.cloud.limits[name] = limit


class Case(NamedTuple):
    before: Callable[[Site], Any]
    """What is so when the scale sets are to be made."""
    want_reason: str
    want_words: tuple[str, ...]
    want_move: Move
    after: Callable[[Site], Any]
    """What puts it right. The operator, or our next attempt, then makes them."""


def refuse(code: int, reason: str, message: str) -> Callable[[Site], None]:
    def set_up(site: Site) -> None:
        def say_no(_method: str, _key: object) -> None:
            raise Problem(code, reason, message)

        site.api.on_write = say_no

    return set_up


def let_write(site: Site) -> None:
    site.api.on_write = lambda _method, _key: None
    site.retry("scale-sets")


def uninstall(site: Site) -> None:
    site.api.others.clear()


def install(site: Site) -> None:
    site.api.others[PLURAL] = ("compute.azure.com", "v20220301", "VirtualMachineScaleSet")
    site.retry("scale-sets")


def remove_namespace(site: Site) -> None:
    site.api.namespaces.clear()


def add_namespace(site: Site) -> None:
    site.api.namespaces.add(NAMESPACE)
    site.retry("scale-sets")


def fill_none(site: Site) -> None:
    site.cloud.arrive_share_max, site.cloud.is_giving_up, site.cloud.arrive_per_look = 0.0, True, 1


def fill_all(site: Site) -> None:
    site.cloud.arrive_share_max, site.cloud.is_giving_up = 1.0, False
    for scale_set in site.cloud.scale_sets.values():
        for machine in scale_set.machines:
            machine.state, machine.message = "Creating", ""


CASES = {
    "the family's quota is used up in the meantime": Case(
        lambda site: set_limit(site, FAMILY, 100),
        "OutOfQuota",
        ("0 of 4 machines are there", f"{FAMILY} Cores quota is exceeded", "limit 100, 0 used, 192 more required"),
        Move.PROVIDER,
        lambda site: set_limit(site, FAMILY, 1000),
    ),
    "the region's total is used up": Case(
        lambda site: set_limit(site, "cores", 191),
        "OutOfQuota",
        ("Total Regional Cores quota is exceeded", "limit 191"),
        Move.PROVIDER,
        lambda site: set_limit(site, "cores", 1000),
    ),
    "there is quota, and there are no machines": Case(
        fill_none, "NoCapacity", ("0 of 4", "sufficient capacity"), Move.PROVIDER, fill_all
    ),
    "the resource group is not there yet": Case(
        lambda site: site.cloud.groups.clear(),
        "MissingOutside",
        ("WaitingForOwner", "lynx-rg"),
        Move.PERSON,
        lambda site: site.cloud.groups.add("lynx-rg"),
    ),
    "the secret with the machines' password is not there": Case(
        lambda site: site.operator.secrets.clear(),
        "MissingOutside",
        ("SecretNotFound", "node-login"),
        Move.PERSON,
        lambda site: site.operator.secrets.add("node-login/password"),
    ),
    "the operator is not installed": Case(
        uninstall,
        "MissingOutside",
        ("knows no VirtualMachineScaleSet", "install Azure Service Operator"),
        Move.PERSON,
        install,
    ),
    "the namespace is not there": Case(
        remove_namespace,
        "MissingOutside",
        ("there is no namespace 'clusters'", "kubectl create namespace"),
        Move.PERSON,
        add_namespace,
    ),
    "the token may not write there": Case(
        refuse(403, "Forbidden", 'virtualmachinescalesets "lynx-1" is forbidden: User "bot" cannot patch resource'),
        "Credentials",
        ('User "bot" cannot patch', "give the token's user the rights"),
        Move.PERSON,
        let_write,
    ),
    "a webhook refuses the object": Case(
        refuse(422, "Invalid", "admission webhook denied the request: no tags allowed"),
        "StepStuck",
        ("no tags allowed",),
        Move.PERSON,
        let_write,
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_what_keeps_machines_from_coming_is_said_and_goes_on_when_it_is_put_right(site: Site, sentence: str) -> None:
    case = CASES[sentence]
    site.to_bootstrap()
    case.before(site)
    site.end("bootstrap")
    site.run()
    site.operator.step(4)
    site.run()
    condition = site.condition(READY)
    assert (condition.is_true, condition.reason, condition.move) == (False, case.want_reason, case.want_move)
    for words in case.want_words:
        assert words in condition.message + condition.next_step, condition
    case.after(site)
    site.wait(minutes=31)
    site.run()
    site.operator.step(3)
    site.cloud.arrive()
    site.operator.step()
    site.run()
    assert site.condition(READY).is_true, site.condition(READY).message
    assert sorted(name for _, name in site.cloud.scale_sets) == ["lynx-1", "lynx-2"]


def test_an_operator_that_has_given_up_tries_again_with_our_next_attempt(site: Site) -> None:
    """It looks again only when the object changes."""
    site.use_recipe(AZURE, "      password_secret: node-login/password\n")
    site.to_bootstrap()
    site.end("bootstrap")
    site.run()
    site.operator.step(2)
    site.run()
    condition = site.condition(READY)
    assert (condition.reason, condition.move) == ("StepStuck", Move.PERSON)
    assert "Required parameter 'adminPassword' is missing" in condition.message
    assert [site.api.get(PLURAL, name, NAMESPACE)["metadata"]["generation"] for name in site.objects()] == [1, 1]
    site.retry("scale-sets")
    site.run()
    found = [site.api.get(PLURAL, name, NAMESPACE) for name in site.objects()]
    assert [each["metadata"]["generation"] for each in found] == [2, 2]
    assert {each["spec"]["tags"]["plimsoll-operation"] for each in found} == {"u-lynx-scale-sets-2"}
    site.run()
    assert site.condition(READY).reason == "Filling", "what it said of the attempt before is over"


def test_what_an_operator_said_of_the_attempt_before_does_not_end_the_next(site: Site) -> None:
    """A controller that ends between the intent and the call leaves objects of the attempt before."""
    site.use_recipe(AZURE, "      password_secret: node-login/password\n")
    site.to_bootstrap()
    site.end("bootstrap")
    site.run()
    site.operator.step(2)
    site.run()
    site.retry("scale-sets")
    refuse(504, "Timeout", "the request did not finish")(site)
    site.run()
    assert site.life().works["scale-sets"].going is Going.INTENDED
    site.api.on_write = lambda _method, _key: None
    site.run()
    work = site.life().works["scale-sets"]
    assert (work.going, work.attempt) == (Going.RUNNING, 2)
    assert {site.api.get(PLURAL, name, NAMESPACE)["spec"]["tags"]["plimsoll-operation"] for name in site.objects()} == {
        work.operation
    }


def test_an_operator_that_says_nothing_is_waited_for(site: Site) -> None:
    site.operator.is_quiet = True
    site.to_scale_sets()
    site.run()
    assert site.condition(READY).message == "0 of 4 machines are there"
    assert site.life().works["scale-sets"].detail == "its scale sets are applied"
    site.wait(hours=7)
    site.run()
    condition = site.condition(READY)
    assert (condition.reason, condition.status) == ("ScaleSetShort", Truth.FALSE)
    assert condition.message.startswith("0 of 4 machines are there (0.0%); scale-sets has been going since")


def test_an_object_that_somebody_deleted_is_made_again(site: Site) -> None:
    site.to_scale_sets()
    del site.api.objects[PLURAL, NAMESPACE, "lynx-2"]
    site.run()
    assert site.condition(READY).reason == "CommandLost"
    site.wait(minutes=2)
    site.run()
    assert site.objects() == ["lynx-1", "lynx-2"]


# Not all of them.


def hundred(site: Site, share: float, **more: Any) -> None:
    site.use_recipe(AZURE, "filled_share: 0.98", f"filled_share: {share}")
    site.cloud.arrive_share_max = 0.97
    site.plan(spec(nodes=100, islands=1, **more))
    site.run()
    for step in ("checkin", "bootstrap"):
        site.end(step)
        site.run()
    site.operator.step(2)
    site.cloud.arrive()
    site.run()


def test_a_scale_set_that_stays_at_97_percent_is_said_with_its_number(site: Site) -> None:
    hundred(site, 0.98)
    assert site.condition(READY).message == "97 of 100 machines are there"
    site.wait(hours=6)
    site.run()
    condition = site.condition(READY)
    assert (condition.reason, condition.move) == ("ScaleSetShort", Move.PROVIDER)
    assert condition.message.startswith("97 of 100 machines are there (97.0%)")
    site.cloud.arrive_share_max = 1.0
    site.cloud.arrive()
    site.run()
    assert site.condition(READY).is_true


def test_97_percent_are_enough_for_who_says_so_and_the_last_ones_join_later(site: Site) -> None:
    hundred(site, 0.97)
    assert (site.condition(READY).status, site.phase()) == (Truth.TRUE, Phase.PROVISIONED)
    assert len(site.nodes()) == 97
    site.cloud.arrive_share_max = 1.0
    site.cloud.arrive()
    site.operator.step()
    site.run()
    assert len(site.nodes()) == 100


def test_machines_that_failed_are_named(site: Site) -> None:
    site.cloud.is_giving_up = True
    hundred(site, 1.0)
    condition = site.condition(READY)
    assert (condition.reason, condition.move) == ("NoCapacity", Move.PROVIDER)
    assert condition.message.startswith(
        "97 of 100 machines are there; scale-sets: lynx-1000097 and 2 more failed: Allocation failed."
    )
    assert NO_MACHINES[:40] in site.life().sets["lynx-1"].detail
    for machine in site.cloud.scale_sets["lynx-rg", "lynx-1"].machines:
        machine.message = "OS provisioning did not finish in the allotted time" if machine.message else ""
    site.run()
    assert site.condition(READY).reason == "ScaleSetShort"
    assert "OS provisioning did not finish" in site.condition(READY).message


def test_a_machine_that_somebody_deletes_later_is_missed_by_the_next_pass(site: Site) -> None:
    site.to_provisioned()
    assert site.phase() is Phase.PROVISIONED
    site.run()
    site.cloud.lose("lynx-rg", "lynx-2")
    site.run()
    condition = site.condition(READY)
    assert (condition.status, condition.reason) == (Truth.FALSE, "ScaleSetShort")
    assert condition.message == "3 of 4 machines are there (lynx-2 1 of 2)"
    assert site.phase() is Phase.PROVISIONING


def test_a_machine_that_fails_later_is_seen_when_all_are_asked_for_again(site: Site) -> None:
    site.to_provisioned()
    site.cloud.scale_sets["lynx-rg", "lynx-1"].machines[0].state = "Failed"
    site.run()
    assert site.condition(READY).is_true
    site.wait(minutes=10)
    site.run()
    assert site.condition(READY).message.startswith("3 of 4 machines are there (lynx-1 1 of 2)")


def test_quota_that_shrinks_while_the_cluster_is_made_is_said(site: Site) -> None:
    site.to_bootstrap()
    site.cloud.limits[FAMILY] = 300
    site.wait(minutes=1)
    site.run()
    condition = site.condition("QuotaSufficient")
    assert (condition.status, condition.reason) == (Truth.FALSE, "QuotaShrank")
    assert "84 of 384 cores" in condition.message
    assert len(site.builds("bootstrap")) == 1, "what was begun goes on"


# Azure that can't be asked.


class Blind(NamedTuple):
    fault: Callable[[Site], Any]
    want: tuple[Truth, str]
    want_step: str = ""


def expire(site: Site) -> None:
    site.credential.token = "an-old-token"
    site.azure(site.life().spec.subscription).close()  # the library keeps a token for as long as it says


BLIND = {
    "its login has expired": Blind(expire, (Truth.UNKNOWN, "Credentials"), "az login"),
    "it answers with errors": Blind(
        lambda site: site.cloud.faults.extend([Fault(503)] * 9), (Truth.UNKNOWN, "Unreachable")
    ),
    "it does not answer": Blind(lambda site: site.cloud.faults.extend([Fault(0)] * 9), (Truth.UNKNOWN, "Unreachable")),
    "it is asked too much": Blind(
        lambda site: site.cloud.faults.append(Fault(429, headers={"Retry-After": "17"})), (Truth.UNKNOWN, "Busy")
    ),
    "one answer gets lost": Blind(lambda site: site.cloud.faults.append(Fault(0)), (Truth.FALSE, "Filling")),
}


@pytest.mark.parametrize("sentence", BLIND)
def test_nobody_says_how_many_machines_there_are_while_nobody_can_look(site: Site, sentence: str) -> None:
    case = BLIND[sentence]
    site.to_scale_sets()
    site.run()
    case.fault(site)
    site.cloud.arrive(1)
    site.run()
    condition = site.condition(READY)
    assert (condition.status, condition.reason) == case.want
    assert case.want_step in condition.next_step
    assert "an-old-token" not in condition.message
    site.cloud.faults.clear()
    site.credential.token = site.cloud.token
    site.wait(seconds=18)
    site.run()
    assert there(site) == {"lynx-1": (1, 2), "lynx-2": (1, 2)}


def test_azure_that_says_for_how_long_is_left_alone_for_so_long(site: Site) -> None:
    site.to_scale_sets()
    site.run()
    site.cloud.faults.append(Fault(429, headers={"Retry-After": "40"}))
    site.run()
    before = len(site.cloud.requests)
    site.wait(seconds=35)
    site.run()
    assert len(site.cloud.requests) == before
    site.wait(seconds=6)
    site.run()
    assert len(site.cloud.requests) > before
    assert site.condition(READY).reason == "Filling"


def test_a_subscription_that_can_not_be_read_does_not_hold_up_another(site: Site) -> None:
    site.plan(spec(), spec("puma", subscription="11111111-1111-1111-1111-111111111111"))
    site.run()
    condition = site.condition("QuotaSufficient", "puma")
    assert (condition.status, condition.reason) == (Truth.UNKNOWN, "QuotaSourceWrong")
    assert "could not be found" in condition.message
    assert site.phase() is Phase.PROVISIONING


# Many.


def test_two_hundred_clusters_are_filled_with_few_requests(site: Site) -> None:
    names = [f"c-{number:03d}" for number in range(200)]
    site.cloud.limits |= dict.fromkeys(site.cloud.limits, 10**8)
    site.use_recipe(PLAIN, "source: file", "source: none")
    site.plan_all(names, recipe="plain")
    site.run()
    assert len(site.objects()) == 200
    site.operator.step(2)

    def requests() -> tuple[int, int, int]:
        before = len(site.api.requests), len(site.cloud.requests)
        looked = len([each for each in site.cloud.requests if each.endswith("/virtualMachines")])
        site.run()
        after = len(site.api.requests), len(site.cloud.requests)
        after_looked = len([each for each in site.cloud.requests if each.endswith("/virtualMachines")])
        return after[0] - before[0], after[1] - before[1], after_looked - looked

    assert requests() == (1, 201, 200), "one list of objects, one of scale sets, and the machines of each"
    site.cloud.arrive()
    site.operator.step()
    assert requests() == (1, 201, 200)
    assert {site.condition(READY, name).reason for name in names} == {"Done"}
    assert requests() == (1, 1, 0), "those that are full are only counted"
    site.cloud.lose("c-007-rg", "c-007-1")
    assert requests() == (1, 2, 1)
    short: list[Condition] = [each for name in names if not (each := site.condition(READY, name)).is_true]
    assert [each.message for each in short] == ["0 of 1 machines are there (c-007-1 0 of 1)"]


def test_slow_answers_are_waited_for_together(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question takes Azure a good while: twenty regions, then forty scale sets, each 0.15 s."""
    quick = site.cloud.answer

    def slow(*request: Any) -> Any:
        time.sleep(0.15)
        return quick(*request)

    def seconds() -> float:
        begun = time.monotonic()
        site.run()
        return time.monotonic() - begun

    names = [f"c-{number:02d}" for number in range(40)]
    for number, name in enumerate(names):
        site.plan_all([name], region=f"region{number % 20}")
    site.outside = site.new_outside(a_minute=10_000)
    monkeypatch.setattr(site.cloud, "answer", slow)
    assert seconds() < 2.8  # 3 s one after another
    for step in ("checkin", "bootstrap"):
        for number in range(1, 41):
            site.end(step, number=number)
        site.run()
    monkeypatch.setattr(site.cloud, "answer", quick)
    site.operator.step(2)
    monkeypatch.setattr(site.cloud, "answer", slow)
    assert seconds() < 5.5  # 6 s one after another
    assert {site.condition(READY, name).reason for name in names} == {"Filling"}
