"""Steps that are builds: each is made once whatever happens on the way, people may stop or hold them, and hundreds of
them are watched with a few requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.model import Going, Move, Severity, Truth
from tests.support.azure_site import PLAIN, Site, spec
from tests.support.buildkite import Fault

OPERATION = "plimsoll-operation"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, limit=None) as made:
        yield made


def states(site: Site, step: str) -> list[str]:
    return [each["state"] for each in site.builds(step)]


def test_a_build_says_whose_it_is_and_what_it_is_for(site: Site) -> None:
    site.to_bootstrap()
    [build] = site.builds("bootstrap")
    assert build["meta_data"] == {OPERATION: "u-lynx-bootstrap-1", "cluster": "lynx", "step": "bootstrap"}
    assert build["env"] == {"CLUSTER": "lynx", "REGION": "westeurope", "SKU": "H200"}
    assert (build["message"], build["branch"], build["commit"]) == ("lynx: bootstrap, attempt 1", "main", "HEAD")
    work = site.life().works["bootstrap"]
    assert work.handle == f"cluster-bootstrap#1 {build['web_url']}"
    assert site.condition("InfrastructureApplied").message == "bootstrap: build 1 of cluster-bootstrap is scheduled"


# Answers that do not come.

LOST = {
    "the answer is lost": (Fault.LOSE, 1),
    "the connection is torn down after the work was done": (Fault.RESET, 1),
    "an error is answered after the work was done": (Fault.ERROR_AFTER, 1),
    "half of the answer comes": (Fault.HALF, 1),
    "something in between answers": (Fault.GARBAGE, 1),
    "the answer takes longer than anybody waits": (Fault.SLOW, 1),
    "the request is dropped": (Fault.DROP, 0),
    "the server fails before it does anything": (Fault.ERROR, 0),
}


@pytest.mark.parametrize("sentence", LOST)
def test_a_build_is_made_exactly_once(site: Site, sentence: str) -> None:
    fault, want_made = LOST[sentence]
    site.plan(spec())
    site.buildkite.fail(fault, method="POST", seconds=2.5)
    site.run()
    condition = site.condition("CheckedIn")
    assert (condition.status, condition.reason, condition.move) == (Truth.FALSE, "AnswerLost", Move.CONTROLLER)
    assert len(site.builds("checkin")) == want_made
    site.run()  # one that was made is found at once; one that was not is not made before it can't come any more
    assert len(site.builds("checkin")) == want_made
    assert site.life().works["checkin"].going is (Going.RUNNING if want_made else Going.INTENDED)
    site.wait(seconds=61)
    site.run(2)
    assert len(site.builds("checkin")) == 1
    assert site.condition("CheckedIn").reason == "Running"


def test_a_list_that_lags_behind_makes_no_second_build(site: Site) -> None:
    """It lags behind the look of a pass; what makes builds looks once more."""
    site.buildkite.list_delay = 1
    site.buildkite.fail(Fault.LOSE, method="POST")
    site.plan(spec())
    site.run()
    site.wait(seconds=61)
    site.run()
    assert len(site.builds("checkin")) == 1
    assert site.life().works["checkin"].going is Going.RUNNING


def test_of_two_builds_of_one_operation_the_younger_is_cancelled(site: Site) -> None:
    site.plan(spec())
    site.buildkite.fail(Fault.LOSE, method="POST")
    site.run()
    more = {OPERATION: "u-lynx-checkin-1"}
    site.buildkite.add(1, pipeline="cluster-checkin", state="running", **more)
    site.buildkite.add(1, pipeline="cluster-checkin", state="scheduled", **more)
    site.run()
    assert site.life().works["checkin"].handle.startswith("cluster-checkin#1 ")
    assert states(site, "checkin") == ["scheduled", "canceling", "canceled"]


def test_of_two_builds_the_one_that_a_person_left_counts(site: Site) -> None:
    site.plan(spec())
    site.buildkite.fail(Fault.LOSE, method="POST")
    site.run()
    site.buildkite.add(1, pipeline="cluster-checkin", state="running", **{OPERATION: "u-lynx-checkin-1"})
    site.buildkite.cancel_by_person(1, pipeline="cluster-checkin", reason="twice")
    site.run()
    assert site.life().works["checkin"].handle.startswith("cluster-checkin#2 ")
    assert states(site, "checkin") == ["canceled", "running"]


def test_one_that_waits_for_a_person_can_not_be_cancelled_and_does_no_harm(site: Site) -> None:
    site.plan(spec())
    site.buildkite.fail(Fault.LOSE, method="POST")
    site.run()
    site.buildkite.add(1, pipeline="cluster-checkin", state="running", **{OPERATION: "u-lynx-checkin-1"})
    site.buildkite.block(2, pipeline="cluster-checkin")
    site.run()
    assert site.condition("CheckedIn").message == "checkin: build 1 of cluster-checkin is scheduled"


# Buildkite that can't be asked.


def test_too_many_requests_are_waited_for_as_long_as_buildkite_says(tmp_path: Path) -> None:
    with Site(tmp_path, limit=50) as site:
        site.plan(spec(), spec("wolf"))
        site.buildkite.ask_as_others(200)
        site.run()
        condition = site.condition("CheckedIn")
        assert condition.reason == "Busy"
        assert site.builds("checkin") == []
        assert "the next may go out in" in condition.message
        work = site.life().works["checkin"]
        assert work.next_attempt_at is not None
        assert 40 <= (work.next_attempt_at - work.tried).total_seconds() <= 62  # its minute has just begun
        requests = len(site.buildkite.requests)
        site.run(3)
        assert len(site.buildkite.requests) == requests, "nobody asks before that"
        site.wait(seconds=63)
        site.run()
        assert sorted(each["meta_data"]["cluster"] for each in site.builds("checkin")) == ["lynx", "wolf"]


class Trouble(NamedTuple):
    fault: Fault
    times: int
    want_reason: str


TROUBLES = {
    "5xx for a while": Trouble(Fault.ERROR, 30, "Unreachable"),
    "no answer": Trouble(Fault.DROP, 30, "Unreachable"),
    "a page of somebody else": Trouble(Fault.GARBAGE, 30, "Unreachable"),
    "one answer that did not come is asked for again": Trouble(Fault.ERROR, 1, "Running"),
}


@pytest.mark.parametrize("sentence", TROUBLES)
def test_nobody_says_how_a_build_is_while_nobody_can_look(site: Site, sentence: str) -> None:
    case = TROUBLES[sentence]
    site.to_bootstrap()
    site.buildkite.fail(case.fault, method="GET", times=case.times)
    site.run()
    condition = site.condition("InfrastructureApplied")
    assert condition.reason == case.want_reason
    assert (condition.status is Truth.UNKNOWN) == (case.want_reason == "Unreachable")
    site.buildkite.heal()
    site.end("bootstrap")
    site.run()
    assert site.condition("InfrastructureApplied").is_true
    assert len(site.builds("bootstrap")) == 1


def test_a_token_that_has_expired_is_named_and_holds_up_nobody_else(site: Site) -> None:
    site.to_bootstrap()
    site.use_recipe(PLAIN, "source: file", "source: none")
    site.plan(spec("puma", recipe="plain", islands=1))
    site.outside = site.new_outside(token="an-old-token")
    site.run()
    condition = site.condition("InfrastructureApplied")
    assert (condition.status, condition.reason) == (Truth.UNKNOWN, "Credentials")
    assert (condition.severity, condition.move) == (Severity.ERROR, Move.PERSON)
    assert "PLIMSOLL_BUILDKITE_TOKEN" in condition.next_step
    assert "an-old-token" not in condition.message + condition.next_step
    assert site.life("puma").works["fill"].going is Going.RUNNING
    site.outside = site.new_outside()
    site.run()
    assert site.condition("InfrastructureApplied").reason == "Running"


def test_a_pipeline_that_is_not_there_is_named(site: Site) -> None:
    site.buildkite.pipelines.pop("cluster-checkin")
    site.plan(spec())
    site.run()
    condition = site.condition("CheckedIn")
    assert (condition.reason, condition.move) == ("MissingOutside", Move.PERSON)
    assert "No pipeline found" in condition.message
    assert condition.next_step == "plimsoll cluster retry lynx checkin"


# People.


def test_a_blocked_build_says_where_and_for_whom_it_waits(site: Site) -> None:
    site.to_bootstrap()
    site.end("bootstrap", "running")
    site.buildkite.block(1, pipeline="cluster-bootstrap", label="Approve the plan")
    site.run()
    condition = site.condition("InfrastructureApplied")
    assert (condition.reason, condition.move) == ("BlockedOutside", Move.PERSON)
    assert (
        "build 1 of cluster-bootstrap waits for a person: waits at the block step 'Approve the plan'"
        in condition.message
    )
    for word in ("the fleet's engineers", "https://buildkite.com/acme/cluster-bootstrap/builds/1"):
        assert word in condition.message + condition.next_step
    site.buildkite.unblock(1, pipeline="cluster-bootstrap")
    site.run()
    assert site.condition("InfrastructureApplied").reason == "Running"
    site.end("bootstrap")
    site.run()
    assert site.condition("InfrastructureApplied").is_true


def test_a_build_that_a_person_cancelled_waits_for_a_person(site: Site) -> None:
    site.to_bootstrap()
    site.buildkite.cancel_by_person(1, pipeline="cluster-bootstrap", reason="wrong subnet")
    site.run()
    condition = site.condition("InfrastructureApplied")
    assert (condition.reason, condition.severity) == ("CancelledOutside", Severity.ERROR)
    assert "build 1 of cluster-bootstrap was canceled: cancelled: wrong subnet" in condition.message
    site.wait(days=2)
    site.run(2)
    assert len(site.builds("bootstrap")) == 1, "nobody begins again what a person stopped"
    site.retry("bootstrap")
    site.run()
    assert [each["meta_data"][OPERATION] for each in site.builds("bootstrap")] == [
        "u-lynx-bootstrap-1",
        "u-lynx-bootstrap-2",
    ]
    assert site.condition("InfrastructureApplied").reason == "Running"


def test_one_that_is_being_cancelled_goes_on_until_it_is(site: Site) -> None:
    site.to_bootstrap()
    site.end("bootstrap", "canceling")
    site.run()
    assert site.condition("InfrastructureApplied").reason == "Running"
    site.run()
    assert site.condition("InfrastructureApplied").reason == "CancelledOutside"


def test_a_build_that_failed_is_made_again_later_and_names_its_job(site: Site) -> None:
    site.to_bootstrap()
    site.end("bootstrap", "failed", job="terraform apply")
    site.run()
    condition = site.condition("InfrastructureApplied")
    assert condition.reason == "StepFailed"
    assert "job 'terraform apply' failed with exit status 1" in condition.message
    assert "attempt 1 of 5" in condition.message
    work = site.life().works["bootstrap"]
    assert work.next_attempt_at is not None
    assert 60 <= (work.next_attempt_at - site.now()).total_seconds() <= 120  # half to all of 2 minutes
    site.run()
    assert len(site.builds("bootstrap")) == 1
    site.wait(minutes=2)
    site.run()
    assert len(site.builds("bootstrap")) == 2
    site.end("bootstrap", number=2)
    site.run()
    assert site.condition("InfrastructureApplied").is_true


def test_a_build_that_was_deleted_is_made_again(site: Site) -> None:
    site.to_bootstrap()
    site.buildkite.delete(1, pipeline="cluster-bootstrap")
    site.run()
    assert site.condition("InfrastructureApplied").reason == "CommandLost"
    assert "build 1 of cluster-bootstrap is not there any more" in site.condition("InfrastructureApplied").message


# Many.


def test_three_hundred_builds_are_watched_with_a_few_requests(tmp_path: Path) -> None:
    with Site(tmp_path, limit=None) as site:
        names = [f"c-{number:03d}" for number in range(300)]
        site.cloud.limits |= dict.fromkeys(site.cloud.limits, 10**8)
        site.plan_all(names)
        site.outside = site.new_outside(a_minute=10_000)
        site.run()
        assert len(site.builds("checkin")) == 300
        site.buildkite.limit = 200
        site.outside = site.new_outside()
        site.wait(seconds=61)
        for number in range(1, 301):
            site.end("checkin", "running", number=number)
        before = len(site.buildkite.requests)
        site.run()
        assert len(site.buildkite.requests) - before == 3, "pages of a hundred builds"
        site.end("checkin", "failed", number=7)
        site.run()
        assert len(site.buildkite.requests) - before == 6
        assert site.buildkite.refused == 0
        reasons = {site.condition("CheckedIn", name).reason for name in names}
        assert reasons == {"Running", "StepFailed"}
        [failed] = [name for name in names if site.condition("CheckedIn", name).reason == "StepFailed"]
        assert "build 7 of cluster-checkin is failed" in site.condition("CheckedIn", failed).message


def test_many_that_wait_for_their_turn_do_not_use_it_up_by_looking(tmp_path: Path) -> None:
    """Sixty clusters, and sixty requests a minute: what a minute has goes into builds, not into looking for them."""
    with Site(tmp_path, limit=60) as site:
        names = [f"c-{number:02d}" for number in range(60)]
        site.plan_all(names)
        made = [0]
        for _ in range(4):
            site.run()
            made.append(len(site.builds("checkin")))
            site.wait(seconds=61)
        # Fifty requests are ours, two for each build; sixteen at once may have looked when the last one goes out.
        assert all(after - before >= 15 for before, after in pairwise(made[:4])), made
        assert made[-1] == 60
        assert site.buildkite.refused == 0
        assert {each["meta_data"][OPERATION] for each in site.builds("checkin")} == {f"u-{n}-checkin-1" for n in names}


def test_a_change_outside_is_seen_by_the_next_pass(site: Site) -> None:
    site.to_bootstrap()
    assert site.phase() is Phase.PROVISIONING
    for state, want_reason in (("running", "Running"), ("failing", "Running"), ("failed", "StepFailed")):
        site.end("bootstrap", state)
        site.run()
        assert site.condition("InfrastructureApplied").reason == want_reason
