"""Receipts: whatever is cut off, and whoever sends it again, a key leads to one change."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.commands.desk import Desk
from plimsoll.errors import PlimsollError, Refused, Stale, Unavailable
from plimsoll.health.service import load_memories
from plimsoll.ledger import Ledger, open_ledger
from plimsoll.ledger.store import Store
from plimsoll.server import receipts
from plimsoll.server.call import Operation
from plimsoll.server.receipts import KEPT_HOURS, UNDER_WAY_SECONDS, Receipt
from tests.support.ledgers import MONDAY, note, raw
from tests.support.served import Reply, Served, make_people, serving, small_book
from tests.support.servers import Sent, counts_of, let_receipts_age

SERVERS, KEYS = 3, 2
STEPS = ("begin", "commit", "commit and fall", "end", "give up", "die", "wait")
WAITS = (1.0, UNDER_WAY_SECONDS + 1, KEPT_HOURS * 3600 + 1)
RACERS, RACES = 6, 8


@pytest.fixture
def ledgers(dsn: str) -> Iterator[list[Ledger]]:
    opened = [open_ledger(dsn, create=True) for _ in range(SERVERS)]
    yield opened
    for ledger in opened:
        ledger.close()


class PowerCut(Exception):
    """Comes in the middle of a transaction."""


@dataclass
class Doing:
    """One who does what a key stands for, at a server."""

    key: str
    mine: Receipt
    word: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass
class Known:
    """What the model knows of a key: who has it, until when, and what came of it."""

    word: str
    begun_at: datetime
    until: datetime
    revision: int = 0
    answer: bytes = b""


class Model:
    """Says what must come of each step, from what came of those before. It reads nothing of the code's."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}

    def begin(self, key: str, now: datetime) -> str:
        known = self.known.get(key)
        if known is None or known.until <= now:
            return "mine"
        if known.answer:
            return "answer"
        if now - known.begun_at < timedelta(seconds=UNDER_WAY_SECONDS):
            return "under_way"
        return "answer_lost" if known.revision else "mine"

    def has(self, doing: Doing) -> bool:
        known = self.known.get(doing.key)
        return known is not None and known.word == doing.word


class Play:
    """Servers that begin, commit, answer and die in any order."""

    def __init__(self, ledgers: list[Ledger]) -> None:
        self.ledgers, self.now = ledgers, MONDAY
        self.prefix = uuid.uuid4().hex
        self.model = Model()
        self.doing: dict[int, Doing] = {}

    def step(self, server: int, key_number: int, what: str, wait: float) -> None:
        key = f"{self.prefix}-{key_number}"
        if what == "wait":
            self.now += timedelta(seconds=wait)
        elif what == "begin" and server not in self.doing:
            self._begin(server, key)
        elif (doing := self.doing.get(server)) is not None:
            self._go_on(server, doing, what)

    def _begin(self, server: int, key: str) -> None:
        want, store = self.model.begin(key, self.now), self.ledgers[server].store
        if want in ("under_way", "answer_lost"):
            with pytest.raises(Stale) as caught:
                receipts.begin(store, key, "digest", self.now)
            assert caught.value.code == want
            assert caught.value.fields.get("revision", self.model.known[key].revision) == self.model.known[key].revision
            return
        mine = receipts.begin(store, key, "digest", self.now)
        if mine.status:
            assert (want, mine.body.encode()) == ("answer", self.model.known[key].answer)
            assert mine.revision == self.model.known[key].revision
            return
        assert want == "mine"
        self.doing[server] = Doing(key, mine)
        self.model.known[key] = Known(self.doing[server].word, self.now, self.now + timedelta(hours=KEPT_HOURS))

    def _go_on(self, server: int, doing: Doing, what: str) -> None:
        ledger, known = self.ledgers[server], self.model.known[doing.key]
        if what == "commit":
            self._commit(ledger, doing, known)
            return
        del self.doing[server]
        if what == "commit and fall":
            with suppress(PowerCut, Stale):
                self._write(ledger, doing, falls=True)
        elif what == "end":
            answer = f"answer {doing.word}".encode()
            receipts.end(
                ledger.store, doing.key, doing.mine, status=200, content_type="text/plain", body=answer, now=self.now
            )
            if self.model.has(doing):
                known.answer, known.until = answer, self.now + timedelta(hours=KEPT_HOURS)
        elif what == "give up":
            receipts.give_up(ledger.store, doing.key, doing.mine)
            if self.model.has(doing) and not known.revision:
                del self.model.known[doing.key]

    def _commit(self, ledger: Ledger, doing: Doing, known: Known) -> None:
        if not self.model.has(doing):
            with pytest.raises(Stale) as caught:
                self._write(ledger, doing)
            assert caught.value.code == "taken_over"
            return
        known.revision = self._write(ledger, doing)

    def _write(self, ledger: Ledger, doing: Doing, *, falls: bool = False) -> int:
        def beside(revision: int) -> None:
            receipts.mark(ledger.store, doing.key, doing.mine, revision)
            if falls:
                raise PowerCut

        with ledger.beside(beside):
            return ledger.commit([note(doing.key, doing.word)], actor="tester", read_at=None)[-1].revision


def _one_change_for_each_key(play: Play, dsn: str, expiries: int) -> None:
    """By plain SQL: as many who changed something as there were days for a key, at most."""
    with raw(dsn) as run:
        rows = run("SELECT subject, payload FROM events WHERE subject LIKE ?", f"page/{play.prefix}%")
    by_key: dict[str, set[str]] = {}
    for subject, payload in rows:
        by_key.setdefault(subject, set()).add(payload)
    assert all(len(payloads) <= 1 + expiries for payloads in by_key.values()), by_key


actions = st.lists(
    st.tuples(st.integers(0, SERVERS - 1), st.integers(0, KEYS - 1), st.sampled_from(STEPS), st.sampled_from(WAITS)),
    max_size=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=actions)
def test_a_key_never_leads_to_two_changes_whatever_dies_in_between(
    ledgers: list[Ledger], dsn: str, steps: list[tuple[int, int, str, float]]
) -> None:
    play = Play(ledgers)
    for server, key, what, wait in steps:
        play.step(server, key, what, wait)
    _one_change_for_each_key(play, dsn, sum(what == "wait" and wait == WAITS[-1] for _, _, what, wait in steps))


STORIES: dict[str, tuple[list[tuple[int, str, float]], str]] = {
    "it died before it changed anything": ([(0, "begin", 0), (0, "die", 0), (0, "wait", 31)], "mine"),
    "it died in the middle of a commit": ([(0, "begin", 0), (0, "commit and fall", 0), (0, "wait", 31)], "mine"),
    "it died after its commit": ([(0, "begin", 0), (0, "commit", 0), (0, "die", 0), (0, "wait", 31)], "answer_lost"),
    "it may be alive": ([(0, "begin", 0), (0, "commit", 0), (0, "wait", 29)], "under_way"),
    "it was refused": ([(0, "begin", 0), (0, "give up", 0)], "mine"),
    "it failed after a first commit": (
        [(0, "begin", 0), (0, "commit", 0), (0, "give up", 0), (0, "wait", 31)],
        "answer_lost",
    ),
    "it was done": ([(0, "begin", 0), (0, "commit", 0), (0, "end", 0), (0, "wait", 80_000)], "answer"),
    "it was done the day before": ([(0, "begin", 0), (0, "commit", 0), (0, "end", 0), (0, "wait", 86_401)], "mine"),
    "it was slow, taken over, and comes back": (
        [(0, "begin", 0), (0, "wait", 31), (1, "begin", 0), (1, "commit", 0), (0, "commit", 0), (0, "end", 0)],
        "under_way",
    ),
}


@pytest.mark.parametrize("case", STORIES)
def test_what_the_next_one_is_told(case: str, ledgers: list[Ledger]) -> None:
    steps, want = STORIES[case]
    play = Play(ledgers)
    for server, what, wait in steps:
        play.step(server, 0, what, wait)
    assert play.model.begin(f"{play.prefix}-0", play.now) == want, "the model is right"
    play.step(2, 0, "begin", 0)
    assert (2 in play.doing) == (want == "mine")


def _begin(ledger: Ledger, key: str, now: datetime, start: threading.Barrier) -> str:
    start.wait(10)
    try:
        return "answer" if receipts.begin(ledger.store, key, "digest", now).status else "mine"
    except Stale as error:
        return error.code


def _age(store: Store, key: str, now: datetime) -> datetime:
    """The key was begun by one who died, and that is long ago."""
    receipts.begin(store, key, "digest", now)
    return now + timedelta(seconds=UNDER_WAY_SECONDS + 1)


def _expire(store: Store, key: str, now: datetime) -> datetime:
    """The key was used the day before."""
    mine = receipts.begin(store, key, "digest", now)
    receipts.end(store, key, mine, status=200, content_type="text/plain", body=b"x", now=now)
    return now + timedelta(hours=KEPT_HOURS)


BEFORE: dict[str, Callable[[Store, str, datetime], datetime]] = {
    "a new key": lambda _store, _key, now: now,
    "a key of one who died": _age,
    "a key that is over": _expire,
}


@pytest.mark.parametrize("case", BEFORE)
def test_of_many_who_begin_at_once_one_does_it(case: str, dsn: str) -> None:
    opened = [open_ledger(dsn, create=True) for _ in range(RACERS)]
    with ThreadPoolExecutor(RACERS) as pool:
        for number in range(RACES):
            key = f"race-{number}"
            now = BEFORE[case](opened[0].store, key, MONDAY)
            start = threading.Barrier(RACERS)
            said = list(pool.map(partial(_begin, key=key, now=now, start=start), opened))
            assert sorted(said) == ["mine", *["under_way"] * (RACERS - 1)]
    for ledger in opened:
        ledger.close()


def test_a_commit_that_is_refused_beside_leaves_nothing(ledgers: list[Ledger]) -> None:
    def refuse(_revision: int) -> None:
        raise Unavailable("no", "no")

    with pytest.raises(PlimsollError), ledgers[0].beside(refuse):
        ledgers[0].commit([note("a")], actor="tester", read_at=None)
    assert ledgers[1].head().revision == 0
    ledgers[0].commit([note("a")], actor="tester", read_at=None)
    assert ledgers[1].head().revision == 1


# At a server.


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


def _operation(server: Served, path: str) -> Operation:
    return next(each for each in server.house.api.operations if each.route.path == path and not each.route.is_read)


def _again(server: Served, sent: Sent) -> Sent:
    let_receipts_age(server.house.settings.dsn)
    return sent.send(server)


def test_a_change_whose_receipt_can_not_be_ended_was_made_all_the_same(
    own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise Unavailable("connection_lost", "did not answer")

    sent = Sent("/incidents", {"title": "WORD"}, "admin")
    with monkeypatch.context() as patch:
        patch.setattr(receipts, "end", away)
        assert sent.send(own).status == 200
    revision = sent.revision
    assert sent.send(own).code == "under_way"
    reply = own.post(sent.path, sent.body, Idempotency_Key=sent.key)
    assert int(reply.headers["retry-after"]) >= 1
    let_receipts_age(own.house.settings.dsn)
    lost = own.post(sent.path, sent.body, Idempotency_Key=sent.key)
    assert (lost.status, lost.error["code"], lost.error["fields"]["revision"]) == (409, "answer_lost", revision)
    assert counts_of(own.house.settings.dsn, [sent.word]) == {sent.word: 1}


FAILURES: dict[str, tuple[bool, Exception, int, str, int]] = {
    # whether it committed first, what it raised, what was told, what the next one is told, how often it is there
    "a refusal before anything was changed": (False, Refused("no_room", "no room"), 422, "", 1),
    "a mistake of ours before anything was changed": (False, KeyError("oh"), 500, "", 1),
    "a commit of which nobody knows": (False, Unavailable("commit_unknown", "broke"), 503, "", 1),
    "a refusal after a first commit": (True, Refused("no_room", "no room"), 422, "answer_lost", 1),
    "a mistake of ours after a first commit": (True, KeyError("oh"), 500, "answer_lost", 1),
    "a commit of which nobody knew, and it was made": (True, Unavailable("commit_unknown", "b"), 503, "answer_lost", 1),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_failed_is_done_again_only_if_nothing_was_changed(
    case: str, own: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_committed, error, want_status, want_code, want_count = FAILURES[case]
    operation, sent = _operation(own, "/incidents"), Sent("/incidents", {"title": "WORD"}, "admin")
    call = operation.call

    def fail(desk: Desk, read: Mapping[str, Any]) -> None:
        if is_committed:
            call(desk, read)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(operation, "call", fail)
        assert sent.send(own).status == want_status
    assert _again(own, sent).code == want_code
    assert sent.is_done == (want_code == "")
    assert counts_of(own.house.settings.dsn, [sent.word]) == {sent.word: want_count}


def test_one_that_was_slow_and_taken_over_changes_nothing_any_more(own: Served) -> None:
    """The first is held up just before its commit by one who writes; meanwhile its key is taken over elsewhere."""
    dsn = own.house.settings.dsn
    operation, sent = _operation(own, "/incidents"), Sent("/incidents", {"title": "WORD"}, "admin")
    call, began, go = operation.call, threading.Event(), threading.Event()

    def slow(desk: Desk, read: Mapping[str, Any]) -> Any:
        began.set()
        assert go.wait(10)
        return call(desk, read)

    with serving(dsn, own.tokens) as other, ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(operation, "call", slow)
        first = pool.submit(own.post, sent.path, sent.body, Idempotency_Key=sent.key)
        assert began.wait(10)
        assert sent.send(other).code == "under_way"
        assert _again(other, sent).is_done
        go.set()
        reply = first.result(10)
        assert (reply.status, reply.error["code"]) == (409, "taken_over")
        again = own.post(sent.path, sent.body, Idempotency_Key=sent.key)
        assert (again.status, again.headers["plimsoll-revision"]) == (200, str(sent.revision))
    assert counts_of(dsn, [sent.word]) == {sent.word: 1}


def test_a_revision_that_is_not_there_yet_is_not_answered_for(own: Served) -> None:
    reply = own.api("/fleet?at_least=99999")
    assert (reply.status, reply.error["code"]) == (404, "no_such_revision")


# Signals are no command, and their keys are keys all the same.

SIGNAL = b'{"node": "t3", "kind": "xid", "name": "79"}\n'
"""It says no time: sent twice it would count as seen twice."""


def _signal(server: Served, lines: bytes = SIGNAL, *, feed: str = "dcgm", who: str = "operator", key: str) -> Reply:
    return server.ask(f"/api/v1/signals?feed={feed}", who=who, method="POST", send=lines, Idempotency_Key=key)


def _remembered(server: Served, node: str = "t3") -> Any:
    with server.house.open_keeper() as keeper:
        return dict(load_memories(keeper.ledger.store, [node]))


def test_signals_with_a_key_are_taken_once(own: Served) -> None:
    first = _signal(own, key="s-1")
    known, head = _remembered(own), own.house.api.head
    again = _signal(own, key="s-1")
    assert (first.status, first.document["taken"]) == (200, 1)
    assert (again.status, again.body) == (200, first.body)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["plimsoll-revision"] == first.headers["plimsoll-revision"]
    assert (_remembered(own), own.api(f"/audit/head?at_least={head}").document["revision"]) == (known, head)
    assert _signal(own, key="s-2").status == 200
    assert _remembered(own) != known, "under another key it is another signal"


def test_a_key_of_signals_is_for_these_lines_of_this_feed_by_this_sender(own: Served) -> None:
    assert _signal(own, key="s-1").status == 200
    for reply in (_signal(own, SIGNAL * 2, key="s-1"), _signal(own, feed="other", key="s-1")):
        assert (reply.status, reply.error["code"]) == (422, "idempotency_key_reused")
    elsewhere = _signal(own, who="admin", key="s-1")
    assert (elsewhere.status, "idempotency-replayed" in elsewhere.headers) == (200, False)
    assert _signal(own, key="").error["code"] == "bad_idempotency_key"


def test_signals_that_could_not_be_read_free_their_key(own: Served) -> None:
    assert _signal(own, b"nonsense", key="s-1").status == 400
    assert _signal(own, key="s-1").document["taken"] == 1


def test_signals_sent_at_once_under_one_key_are_taken_once(own: Served) -> None:
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda _: _signal(own, key="s-1"), range(8)))
    assert {reply.status for reply in replies} <= {200, 409}
    assert sum(reply.status == 200 and "idempotency-replayed" not in reply.headers for reply in replies) == 1
