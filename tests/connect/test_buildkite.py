"""Builds over Buildkite's API: what is asked, with how many requests, and what each fault on the way is called."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from plimsoll.connect import buildkite as module
from plimsoll.connect.buildkite import Build, Buildkite, BuildState
from plimsoll.connect.pace import Pace
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import UsageError
from tests.support.bad_web import BadWeb, http_answer
from tests.support.buildkite import PIPELINE, TOKEN, FakeBuildkite, Fault
from tests.support.children import Child
from tests.support.tls import make_certificate, server_context
from tests.support.waiting import wait_until

KEY = "plimsoll-operation"


@pytest.fixture
def server() -> Iterator[FakeBuildkite]:
    with FakeBuildkite(limit=None) as running:
        yield running


def client(
    server: FakeBuildkite, *, token: str = TOKEN, pace: Pace | None = None, timeout_seconds: float = 10.0
) -> Buildkite:
    return Buildkite(
        server.organisation,
        token,
        url=server.url,
        pace=pace or Pace(100_000),
        timeout_seconds=timeout_seconds,
        sleep=lambda _seconds: None,
    )


def create(buildkite: Buildkite, operation: str = "op-1", *, pipeline: str = PIPELINE, commit: str = "HEAD") -> Build:
    return buildkite.create(
        pipeline,
        commit=commit,
        branch="main",
        message="bootstrap tiger",
        env={"CLUSTER": "tiger"},
        meta_data={KEY: operation},
    )


def test_a_build_from_its_creation_to_its_end(server: FakeBuildkite) -> None:
    buildkite = client(server)
    assert buildkite.find(PIPELINE, key=KEY, value="op-1") == []
    made = create(buildkite)
    assert (made.number, made.state, made.message) == (1, BuildState.SCHEDULED, "bootstrap tiger")
    assert made.url == "https://buildkite.com/acme/bootstrap/builds/1"
    assert made.meta_data == {KEY: "op-1"}
    assert made.created_at is not None
    assert made.created_at.tzinfo is UTC
    assert (made.started_at, made.finished_at) == (None, None)
    [kept] = server.builds
    assert (kept["env"], kept["branch"], kept["commit"]) == ({"CLUSTER": "tiger"}, "main", "HEAD")
    assert buildkite.find(PIPELINE, key=KEY, value="op-1") == [made]
    assert buildkite.find(PIPELINE, key=KEY, value="op-2") == []
    server.polls_a_state = 2
    states = [buildkite.get(PIPELINE, 1).state.value for _ in range(5)]
    assert states == ["scheduled", "scheduled", "running", "running", "passed"]
    done = buildkite.get(PIPELINE, 1)
    assert done.started_at is not None
    assert done.finished_at is not None
    assert done.id == made.id


def test_a_key_and_a_value_are_quoted(server: FakeBuildkite) -> None:
    value = "a&b=c [d]/é+%20"
    create(client(server), value)
    create(client(server), "a")
    assert [each.number for each in client(server).find(PIPELINE, key=KEY, value=value)] == [1]


class Said(NamedTuple):
    do: Callable[[FakeBuildkite], None]
    want_state: BuildState
    want_said: str


SAID = {
    "a job fails": Said(
        lambda server: server.advance(1, "failed", job="terraform \x1b[31mapply"),
        BuildState.FAILED,
        "job 'terraform [31mapply' failed with exit status 1",
    ),
    "a block step waits, and the API says passed": Said(
        lambda server: server.block(1), BuildState.BLOCKED, "waits at the block step 'Approve the plan'"
    ),
    "a block step waits, and was told to say failed": Said(
        lambda server: server.block(1, state="failed"), BuildState.BLOCKED, "waits at the block step 'Approve the plan'"
    ),
    "a block step waits behind a failure": Said(
        lambda server: (server.advance(1, "failed"), server.block(1, state="failed"))[0],  # type: ignore[func-returns-value]
        BuildState.FAILED,
        "job 'terraform apply' failed with exit status 1; waits at the block step 'Approve the plan'",
    ),
    "a person unblocks it": Said(
        lambda server: (server.block(1), server.unblock(1))[0],  # type: ignore[func-returns-value]
        BuildState.RUNNING,
        "",
    ),
    "a person cancels it": Said(lambda server: server.cancel_by_person(1), BuildState.CANCELED, "cancelled: not today"),
    "a state that is new": Said(
        lambda server: server.advance(1, "levitating"), BuildState.UNKNOWN, "state 'levitating' is new to us"
    ),
    "it goes well": Said(lambda server: server.advance(1, "passed"), BuildState.PASSED, ""),
}


@pytest.mark.parametrize("case", SAID.values(), ids=SAID.keys())
def test_what_a_build_says(server: FakeBuildkite, case: Said) -> None:
    buildkite = client(server)
    create(buildkite)
    case.do(server)
    found = buildkite.get(PIPELINE, 1)
    assert (found.state, found.said) == (case.want_state, case.want_said)
    is_over = found.state in (BuildState.PASSED, BuildState.FAILED, BuildState.CANCELED)
    assert (found.finished_at is not None) is is_over, "at a block step it is not over, whatever the API says"
    assert buildkite.find(PIPELINE, key=KEY, value="op-1") == [found], "a list says the same"


@pytest.mark.parametrize("state", [each for each in BuildState if each is not BuildState.UNKNOWN])
def test_every_state_is_known(server: FakeBuildkite, state: BuildState) -> None:
    server.add()
    server.advance(1, state.value)
    assert client(server).get(PIPELINE, 1).state is state


def test_jobs_that_do_not_count() -> None:
    jobs: list[dict[str, Any]] = [
        {"type": "script", "name": "lint", "state": "failed", "exit_status": 2, "soft_failed": True},
        {"type": "script", "name": "flaky", "state": "failed", "exit_status": 3, "retried": True},
        {"type": "script", "name": "after", "state": "broken", "exit_status": None},
        {"type": "waiter", "state": "waiting_failed"},
        {"type": "script", "name": None, "label": "validate", "state": "timed_out", "exit_status": None},
        {"type": "script", "name": "later", "state": "failed", "exit_status": 4},
    ]
    body = msgspec.json.encode({"id": "x", "number": 7, "state": "failed", "jobs": jobs, "meta_data": None})
    with BadWeb(lambda conversation: conversation.say(http_answer(body))) as web:
        found = Buildkite("acme", TOKEN, url=web.url, pace=Pace()).get(PIPELINE, 7)
    assert found.said == "job 'validate' timed out"
    assert (found.meta_data, found.message, found.created_at) == ({}, "", None)


def test_all_pages_are_found_oldest_first(server: FakeBuildkite) -> None:
    server.add(130, **{KEY: "other"})
    wanted = server.add(230, **{KEY: "op-1"})
    server.link_host = "https://elsewhere.example"  # the token goes to no other host than ours
    server.requests.clear()
    assert [each.number for each in client(server).find(PIPELINE, key=KEY, value="op-1")] == wanted
    assert len(server.requests) == 3
    assert "page=3" in server.requests[2]


def test_a_list_without_an_end_is_not_believed(server: FakeBuildkite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIND_PAGES_MAX", 2)
    server.add(201, **{KEY: "op-1"})
    with pytest.raises(ProviderTrouble, match="more than 2 pages") as caught:
        client(server).find(PIPELINE, key=KEY, value="op-1")
    assert caught.value.code == "buildkite_bad_answer"


def test_a_filter_that_is_ignored_lends_us_no_build() -> None:
    body = b'[{"id": "x", "number": 7, "state": "passed", "meta_data": {"plimsoll-operation": "op-9"}}]'
    with (
        BadWeb(lambda conversation: conversation.say(http_answer(body))) as web,
        pytest.raises(ProviderTrouble, match="build 7 is in it") as caught,
    ):
        Buildkite("acme", TOKEN, url=web.url, pace=Pace()).find(PIPELINE, key=KEY, value="op-1")
    assert caught.value.code == "buildkite_bad_answer"


class Polled(NamedTuple):
    total: int
    numbers: list[int]
    want_requests: int
    want_pages: int


POLLS = {
    "nothing": Polled(5, [], 0, 0),
    "one": Polled(5, [3], 1, 0),
    "two": Polled(5, [3, 4], 2, 0),
    "many, all new": Polled(50, list(range(11, 51)), 1, 1),
    "as many as a page": Polled(250, list(range(151, 251)), 1, 1),
    "many on three pages": Polled(250, list(range(1, 251)), 3, 3),
    "some new, one old": Polled(1_000, [5, 998, 999, 1_000], 2, 1),
    "some new, two on the next page": Polled(250, [101, 102, 248, 249, 250], 2, 2),
    "some new, one on the next page": Polled(250, [101, 248, 249, 250], 2, 1),
    "old ones far apart": Polled(900, [100, 300, 500], 4, 1),
    "old ones close together": Polled(450, [11, 12, 13, 14, 15, 16], 5, 5),
}


@pytest.mark.parametrize("case", POLLS.values(), ids=POLLS.keys())
def test_polling_costs_few_requests(server: FakeBuildkite, case: Polled) -> None:
    server.add(case.total)
    found = client(server).poll(PIPELINE, case.numbers)
    assert sorted(found) == case.numbers
    assert all(number == each.number for number, each in found.items())
    assert len(server.requests) == case.want_requests
    assert sum("per_page=" in each for each in server.requests) == case.want_pages


def test_pages_of_a_poll_have_an_end(server: FakeBuildkite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_PAGES_MAX", 2)
    server.add(450)
    assert len(client(server).poll(PIPELINE, range(1, 7))) == 6
    assert len(server.requests) == 8


@pytest.mark.parametrize("numbers", [[3], [1, 2, 3]])
def test_a_build_that_is_gone_is_left_out(server: FakeBuildkite, numbers: list[int]) -> None:
    server.add(3)
    server.delete(3)
    assert sorted(client(server).poll(PIPELINE, numbers)) == [each for each in numbers if each != 3]


@pytest.mark.parametrize("numbers", [[3], [1, 2, 3]])
def test_a_pipeline_that_is_gone_is_no_build_that_is_gone(server: FakeBuildkite, numbers: list[int]) -> None:
    with pytest.raises(ProviderTrouble) as caught:
        client(server).poll("gone", numbers)
    assert caught.value.code == "buildkite_missing"


def test_cancelling(server: FakeBuildkite) -> None:
    buildkite = client(server)
    for _ in range(3):
        create(buildkite)
    server.advance(2, "running")
    server.advance(3, "passed")
    buildkite.cancel(PIPELINE, 1)
    buildkite.cancel(PIPELINE, 2)
    assert [each["state"] for each in server.builds] == ["canceled", "canceling", "passed"]
    buildkite.cancel(PIPELINE, 1)
    buildkite.cancel(PIPELINE, 2)
    with pytest.raises(ProviderTrouble, match="HTTP 422: Build can't be canceled because it's passed") as caught:
        buildkite.cancel(PIPELINE, 3)
    assert caught.value.code == "buildkite_refused"
    assert [each["state"] for each in server.builds] == ["canceled", "canceled", "passed"]


class Case(NamedTuple):
    fault: Fault
    want_code: str
    want_words: str
    want_may: bool
    want_builds: int
    want_reads: int = 3
    """How often a request that only reads is sent when the fault stays."""


FAULTS = {
    "the request is dropped": Case(Fault.DROP, "buildkite_unreachable", "RemoteDisconnected", True, 0),
    "the server fails before it": Case(Fault.ERROR, "buildkite_unreachable", "HTTP 503", True, 0),
    "the answer is lost": Case(Fault.LOSE, "buildkite_unreachable", "RemoteDisconnected", True, 1),
    "the connection is torn down": Case(Fault.RESET, "buildkite_unreachable", "did not answer", True, 1),
    "the server fails after it": Case(Fault.ERROR_AFTER, "buildkite_unreachable", "HTTP 500", True, 1),
    "half an answer": Case(Fault.HALF, "buildkite_unreachable", "missing", True, 1),
    "the answer comes too late": Case(Fault.SLOW, "buildkite_unreachable", "no whole answer within 0.3 s", True, 1),
    "a page of somebody else": Case(Fault.GARBAGE, "buildkite_bad_answer", "20 bytes", True, 1, want_reads=1),
    "it is sent elsewhere": Case(
        Fault.REDIRECT, "buildkite_bad_answer", "https://elsewhere.example/login, which", True, 0, want_reads=1
    ),
}


@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS.keys())
def test_a_build_is_created_at_most_once(server: FakeBuildkite, case: Case) -> None:
    buildkite = client(server, timeout_seconds=0.3)
    server.fail(case.fault, method="POST", times=5)
    with pytest.raises(ProviderTrouble) as caught:
        create(buildkite)
    check(caught.value, case.want_code, case.want_words, TroubleKind.UNREACHABLE)
    assert caught.value.may_have_happened is case.want_may
    assert len(server.requests) == 1, "who asked looks first"
    assert len(server.builds) == case.want_builds
    server.heal()
    assert len(buildkite.find(PIPELINE, key=KEY, value="op-1")) == case.want_builds, "and looking finds it"


@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS.keys())
def test_reading_is_tried_again_and_not_for_ever(server: FakeBuildkite, case: Case) -> None:
    server.add()
    buildkite = client(server, timeout_seconds=0.3)
    server.fail(case.fault, times=5)
    with pytest.raises(ProviderTrouble) as caught:
        buildkite.get(PIPELINE, 1)
    check(caught.value, case.want_code, case.want_words, TroubleKind.UNREACHABLE)
    assert caught.value.may_have_happened is False, "reading changes nothing"
    assert len(server.requests) == case.want_reads
    server.heal()
    server.fail(Fault.ERROR, times=2)
    assert buildkite.get(PIPELINE, 1).number == 1


def test_a_cancel_that_was_not_heard_may_have_happened(server: FakeBuildkite) -> None:
    buildkite = client(server)
    create(buildkite)
    server.fail(Fault.LOSE, method="PUT")
    with pytest.raises(ProviderTrouble) as caught:
        buildkite.cancel(PIPELINE, 1)
    assert caught.value.may_have_happened is True
    buildkite.cancel(PIPELINE, 1)
    assert server.builds[0]["state"] == "canceled"


def test_nobody_there_is_sure_not_to_have_happened(server: FakeBuildkite) -> None:
    buildkite = client(server)
    server.stop()
    with pytest.raises(ProviderTrouble) as caught:
        create(buildkite)
    check(caught.value, "buildkite_unreachable", "refused", TroubleKind.UNREACHABLE)
    assert caught.value.may_have_happened is False


def test_a_name_without_an_address_is_sure_not_to_have_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_asked: object, **_more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # a resolver that can't be reached would only be slow
    buildkite = Buildkite("acme", TOKEN, url="http://nowhere.invalid", pace=Pace())
    with pytest.raises(ProviderTrouble) as caught:
        create(buildkite)
    assert caught.value.code == "buildkite_unreachable"
    assert caught.value.may_have_happened is False


def test_a_stranger_gets_neither_token_nor_build(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    body = http_answer('{"id": "x", "number": 7, "state": "passed"}')
    with BadWeb(lambda conversation: conversation.say(body), tls=server_context(certificate, key)) as web:
        pace = Pace()
        buildkite = Buildkite("acme", TOKEN, url=web.url, pace=pace)
        with pytest.raises(ProviderTrouble) as read:
            buildkite.get(PIPELINE, 7)
        assert pace.report().used == 1, "trust does not come by asking again"
        with pytest.raises(ProviderTrouble) as changed:
            create(buildkite)
        assert web.requests == []
        for caught in (read, changed):
            check(caught.value, "buildkite_unreachable", "not trusted", TroubleKind.UNREACHABLE)
            assert "certificate authority" in caught.value.next_step
            assert caught.value.may_have_happened is False
        trusting = Buildkite("acme", TOKEN, url=web.url, pace=pace, ca_file=str(certificate))
        assert trusting.get(PIPELINE, 7).number == 7


class Refusal(NamedTuple):
    change: Callable[[FakeBuildkite], None]
    ask: Callable[[Buildkite], object]
    want_code: str
    want_words: str
    want_kind: TroubleKind


def nothing(server: FakeBuildkite) -> None:
    """The server stays as it is."""


REFUSALS = {
    "another token": Refusal(
        lambda server: setattr(server, "token", "new"),
        lambda buildkite: buildkite.get(PIPELINE, 1),
        "buildkite_unauthorised",
        "HTTP 401: Authentication required",
        TroubleKind.CREDENTIALS,
    ),
    "a token that may only read": Refusal(
        lambda server: server.scopes.discard("write_builds"),
        create,
        "buildkite_unauthorised",
        "HTTP 403: Forbidden. Your access token doesn't have the write_builds scope",
        TroubleKind.CREDENTIALS,
    ),
    "no such pipeline": Refusal(
        nothing,
        lambda buildkite: create(buildkite, pipeline="other"),
        "buildkite_missing",
        "HTTP 404: No pipeline found",
        TroubleKind.MISSING,
    ),
    "no such build": Refusal(
        nothing,
        lambda buildkite: buildkite.get(PIPELINE, 1),
        "buildkite_missing",
        "HTTP 404: No build found",
        TroubleKind.MISSING,
    ),
    "no commit": Refusal(
        nothing,
        lambda buildkite: create(buildkite, commit=""),
        "buildkite_refused",
        "HTTP 422: Validation Failed [{'field': 'commit'",
        TroubleKind.REFUSED,
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS.keys())
def test_what_is_refused_was_not_done(server: FakeBuildkite, case: Refusal) -> None:
    case.change(server)
    with pytest.raises(ProviderTrouble) as caught:
        case.ask(client(server))
    check(caught.value, case.want_code, case.want_words, case.want_kind)
    assert caught.value.may_have_happened is False
    assert len(server.requests) == 1
    assert server.builds == []


def test_a_server_that_repeats_the_token_does_not_make_us_say_it() -> None:
    answer = http_answer(f'{{"message": "{TOKEN} is no good"}}', status="401 Unauthorized")
    with (
        BadWeb(lambda conversation: conversation.say(answer)) as web,
        pytest.raises(ProviderTrouble, match=r"\.\.\. is no good") as caught,
    ):
        Buildkite("acme", TOKEN, url=web.url, pace=Pace()).get(PIPELINE, 1)
    check(caught.value, "buildkite_unauthorised", "HTTP 401", TroubleKind.CREDENTIALS)


BAD_ANSWERS = {
    "another API": http_answer('{"builds": 3}'),
    "no number": http_answer('{"id": "x", "number": "seven", "state": "passed"}'),
    "no time": http_answer('{"id": "x", "number": 7, "state": "passed", "created_at": "soon"}'),
    "it never ends": http_answer("{", length=1 << 40),
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_what_is_no_answer_of_buildkite(answer: bytes) -> None:
    with BadWeb(lambda conversation: conversation.say(answer)) as web:
        buildkite = Buildkite("acme", TOKEN, url=web.url, pace=Pace())
        with pytest.raises(ProviderTrouble) as read:
            buildkite.get(PIPELINE, 7)
        with pytest.raises(ProviderTrouble) as changed:
            create(buildkite)
    for caught, want_may in ((read, False), (changed, True)):
        check(caught.value, "buildkite_bad_answer", "can't be used", TroubleKind.UNREACHABLE)
        assert caught.value.may_have_happened is want_may


def test_a_link_that_is_none_is_no_end_of_the_list() -> None:
    answer = http_answer("[]", headers='Link: <https://api.buildkite.com/v2>; rel="next"\r\n')
    with (
        BadWeb(lambda conversation: conversation.say(answer)) as web,
        pytest.raises(ProviderTrouble, match="link to its next page") as caught,
    ):
        Buildkite("acme", TOKEN, url=web.url, pace=Pace()).find(PIPELINE, key=KEY, value="op-1")
    assert caught.value.code == "buildkite_bad_answer"


def check(trouble: ProviderTrouble, code: str, words: str, kind: TroubleKind) -> None:
    assert (trouble.code, trouble.kind) == (code, kind)
    assert words in str(trouble)
    assert trouble.next_step
    assert TOKEN not in f"{trouble} {trouble!r} {trouble.next_step} {trouble.fields}"


class Time:
    """One clock for the server and for us."""

    def __init__(self) -> None:
        self.now = 500.0
        self.slept: list[float] = []
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self.now += seconds


@pytest.mark.parametrize("has_retry_after", [True, False])
def test_a_refusal_for_haste_is_waited_out_when_it_is_short(has_retry_after: bool) -> None:
    clock = Time()
    with FakeBuildkite(limit=20, window_seconds=8, clock=clock) as server:
        server.has_retry_after = has_retry_after
        pace = Pace(1_000, clock=clock, sleep=clock.sleep)
        server.ask_as_others(20)
        made = create(client(server, pace=pace))
        assert made.number == 1
        assert clock.slept == [8.0]
        assert server.refused == 1
        assert len(server.builds) == 1


def test_a_refusal_for_haste_that_lasts_is_said_with_its_time() -> None:
    clock = Time()
    with FakeBuildkite(limit=20, clock=clock) as server:
        server.ask_as_others(20)
        clock.now += 15
        pace = Pace(1_000, clock=clock, sleep=clock.sleep)
        buildkite = client(server, pace=pace)
        for _ in range(2):
            with pytest.raises(ProviderTrouble, match="the next may go out in 45 s") as caught:
                create(buildkite)
            check(caught.value, "buildkite_busy", "1 requests of ours", TroubleKind.BUSY)
            assert caught.value.retry_seconds == 45.0
            assert caught.value.may_have_happened is False
            assert len(server.requests) == 1, "the second is not even sent"
        assert clock.slept == []
        clock.now += 45
        assert create(buildkite).number == 1


def ask_until_busy(buildkite: Buildkite) -> ProviderTrouble:
    for _ in range(300):
        try:
            buildkite.find(PIPELINE, key=KEY, value="x")
        except ProviderTrouble as trouble:
            if trouble.kind is TroubleKind.BUSY:
                return trouble
            raise
    pytest.fail("it is never busy")


def test_what_people_use_slows_us_down_before_we_are_refused() -> None:
    clock = Time()
    with FakeBuildkite(limit=40, clock=clock) as server:
        server.ask_as_others(12)
        trouble = ask_until_busy(client(server, pace=Pace(clock=clock, sleep=clock.sleep)))
        assert trouble.retry_seconds == 60.0
        assert len(server.requests) == 18, "ten are left for people"
        assert server.refused == 0


def test_the_user_s_own_limit_is_kept() -> None:
    clock = Time()
    with FakeBuildkite(limit=200, user_limit=50, clock=clock) as server:
        server.ask_as_others(60)
        ask_until_busy(client(server, pace=Pace(clock=clock, sleep=clock.sleep)))
        assert len(server.requests) == 50
        assert server.refused == 0


def test_a_full_minute_is_not_even_asked(server: FakeBuildkite) -> None:
    buildkite = client(server, pace=Pace(11))
    create(buildkite)
    with pytest.raises(ProviderTrouble, match="1 are allowed") as caught:
        create(buildkite, "op-2")
    assert caught.value.kind is TroubleKind.BUSY
    assert caught.value.retry_seconds == pytest.approx(60, abs=5)
    assert len(server.builds) == 1


def _create_one(tell: Callable[[object], None], url: str, operation: str) -> None:
    tell("begins")
    buildkite = Buildkite("acme", TOKEN, url=url, pace=Pace(), timeout_seconds=60)
    tell(create(buildkite, operation).number)


def test_a_process_that_is_killed_leaves_what_the_next_one_finds(server: FakeBuildkite) -> None:
    server.fail(Fault.SLOW, method="POST", seconds=60)
    with Child(_create_one, server.url, "op-1") as child:
        assert child.hear() == "begins"
        wait_until(lambda: len(server.builds) == 1, what="the build is created")
        child.kill()
    assert [each.number for each in client(server).find(PIPELINE, key=KEY, value="op-1")] == [1]
    with Child(_create_one, server.url, "op-2") as child:
        assert [child.hear(), child.hear()] == ["begins", 2]
        child.finish()


def test_many_threads_share_client_and_pace(server: FakeBuildkite) -> None:
    buildkite = client(server)

    def work(place: int) -> None:
        made = create(buildkite, f"op-{place}")
        assert [each.number for each in buildkite.find(PIPELINE, key=KEY, value=f"op-{place}")] == [made.number]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert sorted(each["number"] for each in server.builds) == list(range(1, 17))
    assert len({each["meta_data"][KEY] for each in server.builds}) == 16


def test_an_index_that_lags(server: FakeBuildkite) -> None:
    server.list_delay = 2
    buildkite = client(server)
    create(buildkite)
    looks = [len(buildkite.find(PIPELINE, key=KEY, value="op-1")) for _ in range(3)]
    assert looks == [0, 0, 1]


BAD_SETTINGS: dict[str, dict[str, Any]] = {
    "an organisation that climbs": {"organisation": "../acme"},
    "an organisation with a query": {"organisation": "acme?x"},
    "no organisation": {"organisation": ""},
    "no token": {"token": " "},
    "a token of two lines": {"token": f"{TOKEN}\r\nX: y"},
    "no URL": {"url": "api.buildkite.com"},
    "a URL with a password": {"url": f"https://u:{TOKEN}@api.buildkite.com"},
    "no certificates": {"ca_file": "/dev/null"},
}


@pytest.mark.parametrize("setting", BAD_SETTINGS.values(), ids=BAD_SETTINGS.keys())
def test_settings_that_can_not_be(setting: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Buildkite(**{"organisation": "acme", "token": TOKEN, "pace": Pace(), **setting})
    assert caught.value.code == "buildkite_bad_setting"
    assert TOKEN not in f"{caught.value} {caught.value.next_step}"


@pytest.mark.parametrize("pipeline", ["", "..", "a/b", "a b", "a?b", "x" * 101, "a\n"])
def test_a_pipeline_is_a_slug(server: FakeBuildkite, pipeline: str) -> None:
    with pytest.raises(UsageError) as caught:
        client(server).get(pipeline, 1)
    assert caught.value.code == "buildkite_bad_setting"
    assert server.requests == []


def test_a_build_that_is_too_big_is_not_sent(server: FakeBuildkite) -> None:
    with pytest.raises(UsageError, match="1,048,576 is the most"):
        create(client(server), "x" * (1 << 20))
    assert server.requests == []


def test_the_token_is_in_one_header_and_nowhere_else(server: FakeBuildkite) -> None:
    buildkite = client(server, token=f" {TOKEN}\n")
    create(buildkite)
    buildkite.poll(PIPELINE, [1])
    assert server.authorizations == {f"Bearer {TOKEN}"}
    assert TOKEN not in f"{server.requests} {buildkite!r} {buildkite.where}"
    assert repr(buildkite) == f"Buildkite('{server.url}/acme')"
