"""Posts to a chat: each once, none repeated that may have been posted, none lost that surely was not."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.connect.slack import Webhook
from plimsoll.errors import Fenced, PlimsollError, Refused, Unavailable
from plimsoll.incidents.changes import OwnerTold, PostEnded, PostIntended
from plimsoll.incidents.courier import ATTEMPTS_MAX, FRESH, INTENT_LASTS, POSTS_MAX, Courier, courier_from
from plimsoll.incidents.desk import close_incident, open_incident
from plimsoll.incidents.fold import POSTS_KEPT, POSTS_WAIT_MAX, Incidents
from plimsoll.incidents.reasons import Fate, What
from plimsoll.incidents.service import run_pass, say
from plimsoll.incidents.view import posts_of
from plimsoll.rooms import FINDERS, open_keeper
from plimsoll.state.table import Journal
from tests.support.bad_web import BadWeb, Conversation, http_answer
from tests.support.harbour import Harbour

SECRET = "/services/T0/B0/s3cr3tpath"
MINUTE = timedelta(minutes=1)


class FakeChat:
    """A chat that does with each message what the test says, and keeps those that it has seen."""

    where = "https://chat.example"

    def __init__(self, does: Callable[[], None] = lambda: None) -> None:
        self.does = does
        self.seen: list[str] = []

    def post(self, message: Mapping[str, object]) -> None:
        self.seen.append(str(message["text"]))
        self.does()


@pytest.fixture
def harbour() -> Iterator[Harbour]:
    """One pool that is short by two nodes, and an incident about it."""
    with Harbour(10, {"a": 6, "b": 4}) as found:
        found.apply()
        found.work_only(8)
        run_pass(found.keeper, FINDERS, found.now, "x")
        yield found


def fates(harbour: Harbour) -> list[str]:
    posts = harbour.state.of(Incidents).posts.values()
    return [str(post.fate) for post in sorted(posts, key=lambda post: (post.queued_at, post.id))]


def test_a_real_webhook_gets_the_numbers_and_whose_move_it_is(harbour: Harbour) -> None:
    with BadWeb(lambda talk: talk.say(http_answer("ok"))) as web:
        environment = {"PLIMSOLL_WEBHOOK": f"{web.url}{SECRET}", "PLIMSOLL_PUBLIC_URL": "https://plimsoll.example/"}
        courier = courier_from(environment, harbour.keeper)
        assert courier is not None
        courier.wake()
        assert courier.wait(10)
        harbour.wait(60 * MINUTE)
        harbour.work_only(10)
        run_pass(harbour.keeper, FINDERS, harbour.now, "x")
        harbour.wait(10 * MINUTE)
        run_pass(harbour.keeper, FINDERS, harbour.now, "x")
        courier.deliver()
        courier.wake()  # nothing waits
        assert courier.wait(10)
        opened, closed = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in web.requests]
    assert fates(harbour) == ["posted", "posted"]
    assert not harbour.state.of(Incidents).waiting
    assert opened["text"].startswith("Open: tiger H200: fewer GPUs work than are guaranteed\n16 GPUs short: ")
    assert "80 guaranteed, 64 healthy" in opened["text"]
    assert "Teams hurt: a, b" in opened["text"]
    assert "Whose move: hardware: repair" in opened["text"]
    assert "<https://plimsoll.example/incidents/incident-1|Look at it>" in json.dumps(opened["blocks"])
    assert "It came to: 1 h, at most 16 GPUs, 16.0 GPU-hours, 2 teams hurt: a, b" in closed["text"]
    assert "s3cr3tpath" not in json.dumps([tuple(event) for event in harbour.keeper.ledger.store.events()])


def test_without_a_webhook_nothing_is_posted_and_what_is_old_never_is(harbour: Harbour) -> None:
    assert courier_from({}, harbour.keeper) is None
    harbour.wait(FRESH + MINUTE)
    chat = FakeChat()
    Courier(harbour.keeper, chat).deliver()
    assert (chat.seen, fates(harbour)) == ([], ["given_up"])


def failing(kind: type[PlimsollError], code: str, is_posted: str) -> Callable[[], None]:
    def fail() -> None:
        raise kind(code, "it went wrong", is_posted=is_posted)

    return fail


class Case(NamedTuple):
    does: Callable[[], None]
    want_fate: str
    want_posts: int
    """After a day of tries."""


CASES = {
    "it is taken": Case(lambda: None, "posted", 1),
    "it may have been taken": Case(failing(Unavailable, "webhook_unavailable", "maybe"), "maybe", 1),
    "it was surely not heard": Case(failing(Unavailable, "webhook_unavailable", "no"), "given_up", ATTEMPTS_MAX),
    "the chat does not want it": Case(failing(Refused, "webhook_refused", "no"), "refused", 1),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_becomes_of_a_post(case: Case, harbour: Harbour) -> None:
    chat = FakeChat(case.does)
    for _ in range(200):
        Courier(harbour.keeper, chat).deliver()
        harbour.wait(10 * timedelta(seconds=30))
    assert (fates(harbour), len(chat.seen)) == ([case.want_fate], case.want_posts)


def test_the_wait_between_tries_grows(harbour: Harbour) -> None:
    minutes: list[int] = []
    began = harbour.now

    def fail() -> None:
        minutes.append((harbour.now - began) // MINUTE)
        raise Unavailable("webhook_unavailable", "it was not reached", is_posted="no")

    chat = FakeChat(fail)
    for _ in range(60):
        Courier(harbour.keeper, chat).deliver()
        harbour.wait(MINUTE)
    assert minutes == [0, 1, 3, 7, 15]


def test_who_dies_between_the_intent_and_the_result_leaves_a_post_that_is_not_repeated(harbour: Harbour) -> None:
    class Died(BaseException):
        """The process is gone."""

    def die() -> None:
        raise Died

    first = FakeChat(die)
    with pytest.raises(Died):
        Courier(harbour.keeper, first).deliver()
    assert len(first.seen) == 1
    assert fates(harbour) == ["intended"]
    second = FakeChat()
    harbour.wait(INTENT_LASTS - MINUTE)
    Courier(harbour.keeper, second).deliver()
    assert fates(harbour) == ["intended"], "whoever posts it may still be at it"
    harbour.wait(2 * MINUTE)
    Courier(harbour.keeper, second).deliver()
    assert (second.seen, fates(harbour)) == ([], ["maybe"])


def test_of_two_couriers_one_posts(tmp_path: object) -> None:
    with Harbour(10, {"a": 6, "b": 4}, dsn=f"sqlite:///{tmp_path}/two.db") as harbour:
        for number in range(8):
            drafts = open_incident(harbour.state, f"fire-{number}", "fire", clusters=(), roster=())
            say(harbour.keeper, lambda _state, _now, drafts=drafts: (None, drafts), actor="x")  # type: ignore[misc]
        both = FakeChat(), FakeChat()
        keepers = [open_keeper(harbour.dsn, clock=lambda: harbour.now) for _ in both]
        threads = [
            threading.Thread(target=Courier(keeper, chat).deliver) for keeper, chat in zip(keepers, both, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for keeper in keepers:
            keeper.close()
        assert len(both[0].seen) + len(both[1].seen) == 8
        assert fates(harbour) == ["posted"] * 8


def test_who_leads_no_more_does_not_post(harbour: Harbour) -> None:
    lead = harbour.keeper.ledger.store.lead("old", "server")
    assert lead is not None
    epoch = lead.epoch
    lead.resign()
    assert harbour.keeper.ledger.store.lead("new", "server") is not None
    chat = FakeChat()
    with pytest.raises(Fenced):
        Courier(harbour.keeper, chat, epoch=lambda: epoch).deliver()
    assert (chat.seen, fates(harbour)) == ([], ["waiting"])


def test_the_intent_is_on_the_ledger_before_the_chat_is_called(harbour: Harbour) -> None:
    kinds: list[str] = []
    chat = FakeChat(lambda: kinds.append(harbour.keeper.ledger.store.last_events(1)[0].kind))
    Courier(harbour.keeper, chat).deliver()
    assert kinds == [PostIntended.kind]


def test_a_persons_incident_and_its_end_are_posted(harbour: Harbour) -> None:
    chat = FakeChat()
    carrier = Courier(harbour.keeper, chat)
    carrier.deliver()
    drafts = open_incident(harbour.state, "fire", "smoke in <hall> 2", clusters=(), roster=("bob",))
    say(harbour.keeper, lambda _state, _now: (None, drafts), actor="alice")
    harbour.wait(MINUTE)
    say(harbour.keeper, lambda state, now: (None, close_incident(state, "fire", now=now)), actor="alice")
    carrier.deliver()
    assert chat.seen[1].splitlines()[0] == "Open: smoke in &lt;hall&gt; 2"
    assert "on call: bob" in chat.seen[1]
    assert "It came to: 1 min" in chat.seen[2]


def test_a_chat_that_hangs_does_not_hold_up_whoever_wakes_the_courier(harbour: Harbour) -> None:
    def hang(talk: Conversation) -> None:
        while talk.pause(0.02):
            pass

    with BadWeb(hang) as web:
        courier = Courier(harbour.keeper, Webhook(f"{web.url}{SECRET}", timeout_seconds=0.3))
        courier.wake()
        courier.wake()
        assert run_pass(harbour.keeper, FINDERS, harbour.now, "x") == []
        assert courier.wait(10)
        assert len(web.requests) == 1
    assert fates(harbour) == [str(Fate.MAYBE)]


def open_many(harbour: Harbour, *names: str) -> None:
    say(
        harbour.keeper,
        lambda state, _now: (
            None,
            [draft for name in names for draft in open_incident(state, name, name, clusters=(), roster=())],
        ),
        actor="alice",
    )


def test_what_waits_is_posted_however_much_there_is(harbour: Harbour) -> None:
    Courier(harbour.keeper, FakeChat()).deliver()
    names = [f"fire-{number}" for number in range(POSTS_KEPT + 20)]
    open_many(harbour, *names)
    chat = FakeChat()
    while harbour.state.of(Incidents).waiting:
        Courier(harbour.keeper, chat).deliver()
    assert sorted(text.partition("\n")[0] for text in chat.seen) == sorted(f"Open: {name}" for name in names)
    assert fates(harbour) == ["posted"] * POSTS_KEPT, "those that are over are forgotten beyond that"
    assert load(harbour).posts.items() == harbour.state.of(Incidents).posts.items()


def load(harbour: Harbour) -> Incidents:
    """What a snapshot of it brings back."""
    found = Incidents(Journal())
    found.load(harbour.state.of(Incidents).dump())
    return found


def test_too_many_that_wait_are_given_up_and_say_so(harbour: Harbour) -> None:
    (lost,) = harbour.state.of(Incidents).posts
    harbour.wait(MINUTE)
    open_many(harbour, *(f"fire-{number}" for number in range(POSTS_WAIT_MAX)))
    tables = harbour.state.of(Incidents)
    assert len(tables.waiting) == POSTS_WAIT_MAX
    assert (tables.posts[lost].fate, tables.posts[lost].detail) == (Fate.GIVEN_UP, "more than 2,000 waited")


def test_what_is_new_does_not_wait_behind_what_is_old(harbour: Harbour) -> None:
    open_many(harbour, *(f"old-{number}" for number in range(2 * POSTS_MAX)))
    harbour.wait(FRESH + MINUTE)
    open_many(harbour, "fire")
    chat = FakeChat()
    ended = Courier(harbour.keeper, chat).deliver()
    assert [text.partition("\n")[0] for text in chat.seen] == ["Open: fire"]
    assert [str(post.fate) for post in ended] == ["given_up"] * (2 * POSTS_MAX + 1) + ["posted"]
    assert fates(harbour) == [str(post.fate) for post in ended]


def test_one_that_is_forgotten_while_it_is_posted_still_has_its_end_on_the_ledger(harbour: Harbour) -> None:
    chat = FakeChat(lambda: harbour.state.of(Incidents).posts.drop(min(harbour.state.of(Incidents).posts)))
    (post,) = Courier(harbour.keeper, chat).deliver()
    assert post.fate is Fate.POSTED
    assert harbour.keeper.ledger.store.last_events(1)[0].kind == PostEnded.kind


def test_a_mistake_over_one_post_keeps_no_other_waiting_and_is_told_at_the_next_wake(harbour: Harbour) -> None:
    open_many(harbour, "fire")
    mistakes = [ZeroDivisionError("nobody had foreseen it")]

    def trip() -> None:
        if mistakes:
            raise mistakes.pop()

    chat = FakeChat(trip)
    courier = Courier(harbour.keeper, chat)
    courier.wake()
    assert courier.wait(10)
    assert (len(chat.seen), fates(harbour)) == (2, ["intended", "posted"])
    with pytest.raises(ZeroDivisionError):
        courier.wake()
    courier.wake()  # told once
    assert courier.wait(10)


def test_an_incident_may_be_called_owners(harbour: Harbour) -> None:
    Courier(harbour.keeper, FakeChat()).deliver()
    open_many(harbour, "owners")
    chat = FakeChat()
    Courier(harbour.keeper, chat).deliver()
    assert [text.partition("\n")[0] for text in chat.seen] == ["Open: owners"]
    assert fates(harbour) == ["posted", "posted"]
    assert [post.what for post in posts_of(harbour.state, "owners")] == ["opened"]


def test_what_is_new_does_not_wait_behind_what_is_tried_again_later(harbour: Harbour) -> None:
    open_many(harbour, *(f"old-{number}" for number in range(2 * POSTS_MAX)))
    away = FakeChat(failing(Unavailable, "webhook_unavailable", "no"))
    for _ in range(3):
        Courier(harbour.keeper, away).deliver()
    open_many(harbour, "fire")
    chat = FakeChat()
    Courier(harbour.keeper, chat).deliver()
    assert [text.partition("\n")[0] for text in chat.seen] == ["Open: fire"]


def test_owners_hear_of_losses_also_after_the_clock_was_set_back(harbour: Harbour) -> None:
    chat = FakeChat()
    Courier(harbour.keeper, chat).deliver()

    def tell(*works: str) -> None:
        at, lost = harbour.now, What.NODE_LOST
        harbour.commit(*(OwnerTold(work, "a", "ada", at, lost, "n1", "gone", "none", "none") for work in works))
        Courier(harbour.keeper, chat).deliver()

    tell("run-1", "run-2")
    harbour.wait(-5 * MINUTE)  # what is recorded now has the time of what was recorded last
    tell("run-3")
    tell("run-4", "run-5")
    told = [sorted(re.findall(r"run-\d", text)) for text in chat.seen[1:]]
    assert told == [["run-1", "run-2"], ["run-3"], ["run-4", "run-5"]]
