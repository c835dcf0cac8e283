"""One suite for both databases: what a commit promises."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest

from plimsoll.errors import Fenced, Stale, Unavailable, UsageError
from plimsoll.ledger import open_ledger
from plimsoll.ledger.model import GENESIS, Draft
from plimsoll.ledger.verify import verify
from tests.support.ledgers import MONDAY, events_of, note, raw, stopped, ticking, write

ODD_TEXTS = {
    "quotes and backslashes": "\"'\\ \\N \\. \\t",
    "what SQL and COPY give a meaning to": "NULL \\N % %s ? ; -- $1",
    "control characters": "tab\t newline\n return\r separator\x1f nul\x00",
    "characters beyond the first plane": "🚢 Größe 日本語 \U0010ffff",
    "nothing": "",
    "a hundred thousand characters": "x" * 100_000,
}


def test_an_empty_ledger_ends_at_revision_zero(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        assert (ledger.head().revision, ledger.head().hash) == (0, "0" * 64)
        assert events_of(ledger) == []
        assert verify(ledger.store).is_whole


def test_what_is_committed_is_read_back_as_it_was_by_others(dsn: str) -> None:
    with open_ledger(dsn, create=True, clock=ticking()) as ledger:
        drafts = [note("a", "first", reason="because"), note("b", "second", effective_at=MONDAY - timedelta(days=1))]
        committed = ledger.commit(drafts, actor="ana", reason="spring cleaning", read_at=0)
    with open_ledger(dsn) as other:
        first, second = events_of(other)
        head = other.head()
    assert [first, second] == committed
    assert first[:8] == (
        1,
        "2026-01-05T09:00:00.000000Z",
        "2026-01-05T09:00:00.000000Z",
        "ana",
        "page.noted",
        "page/a",
        "because",
        '{"page":"a","text":"first"}',
    )
    assert (second.revision, second.recorded_at, second.reason) == (2, first.recorded_at, "spring cleaning")
    assert second.effective_time == datetime(2026, 1, 4, 9, tzinfo=UTC)
    assert (first.prev_hash, second.prev_hash) == (GENESIS, first.hash)
    assert head == (2, second.hash, second.recorded_at)


@pytest.mark.parametrize("count", [1, 19, 20, 5_001])
def test_commits_of_any_size_are_chained(dsn: str, count: int) -> None:
    """Around the sizes at which a database is written to or read from in another way."""
    with open_ledger(dsn, create=True) as ledger:
        write(ledger, "before")
        ledger.commit([note(f"p{number}") for number in range(count)], actor="tester", read_at=None)
        write(ledger, "after")
        verdict = verify(ledger.store)
        assert (verdict.is_whole, verdict.events) == (True, count + 2)
        subjects = [event.subject for event in events_of(ledger)]
        assert subjects == ["page/before", *(f"page/p{number}" for number in range(count)), "page/after"]


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
def test_a_payload_may_hold_any_text(dsn: str, text: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        # One by itself and thirty at once: the databases have a way of their own for many rows.
        for count in (1, 30):
            committed = ledger.commit([note("a", text)] * count, actor="tester", read_at=None)
            assert list(ledger.store.events(after=committed[0].revision - 1)) == committed
        assert verify(ledger.store).is_whole


def test_an_effective_time_is_kept_in_utc_to_the_microsecond(dsn: str) -> None:
    there = timezone(timedelta(hours=-8))
    with open_ledger(dsn, create=True) as ledger:
        ledger.commit(
            [note(effective_at=datetime(2025, 12, 31, 23, 59, 59, 999_999, there)), note(effective_at=MONDAY)],
            actor="tester",
            read_at=None,
        )
        stored = [event.effective_at for event in events_of(ledger)]
    assert stored == ["2026-01-01T07:59:59.999999Z", "2026-01-05T09:00:00.000000Z"]


def test_an_empty_commit_leaves_no_trace(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        write(ledger, "a")
        head = ledger.head()
        assert ledger.commit([], actor="tester", read_at=0, epoch=99) == []
        assert ledger.head() == head


@dataclass
class Race:
    """Somebody read at revision 2 (pages a, b); then `meanwhile` was written; then they write."""

    meanwhile: Sequence[str]
    writes: Sequence[str]
    reads: Sequence[str] = ()
    read_at: int | None = 2
    want_stream: str = ""
    want_changed_at: int = 0


RACES = {
    "nothing happened since": Race([], ["a"]),
    "another stream moved": Race(["b", "c"], ["a"]),
    "a stream that did not exist yet moved": Race(["new"], ["a"]),
    "the stream written to moved": Race(["c", "a", "c"], ["a"], want_stream="page/a", want_changed_at=4),
    "it moved twice": Race(["a", "a"], ["a"], want_stream="page/a", want_changed_at=4),
    "one of several streams written to moved": Race(["b"], ["a", "b"], want_stream="page/b", want_changed_at=3),
    "both wrote a page that was not there": Race(["new"], ["new"], want_stream="page/new", want_changed_at=3),
    "a stream that was only read moved": Race(["b"], ["a"], reads=["page/b"], want_stream="page/b", want_changed_at=3),
    "a stream that was neither read nor written moved": Race(["c"], ["a"], reads=["page/b"]),
    "a name that merely begins alike moved": Race(["ab"], ["a"], reads=["page"]),
    "the writer read after it": Race(["a"], ["a"], read_at=3),
    "the writer decided from nothing": Race(["a"], ["a"], reads=["page/a"], read_at=None),
}


@pytest.mark.parametrize("race", RACES.values(), ids=RACES.keys())
def test_only_a_stream_that_was_read_and_moved_makes_a_writer_stale(dsn: str, race: Race) -> None:
    with open_ledger(dsn, create=True) as ledger, open_ledger(dsn) as other:
        write(ledger, "a", "b")
        for page in race.meanwhile:
            write(other, page)
        drafts, before = [note(page) for page in race.writes], ledger.head()
        if not race.want_stream:
            ledger.commit(drafts, actor="tester", read_at=race.read_at, reads=race.reads)
            assert ledger.head().revision == before.revision + len(drafts)
            return
        with pytest.raises(Stale) as refused:
            ledger.commit(drafts, actor="tester", read_at=race.read_at, reads=race.reads)
        assert ledger.head() == before
        error = refused.value
        assert error.code == "stale"
        assert (error.fields["stream"], error.fields["read_at"]) == (race.want_stream, 2)
        assert error.fields["changed_at"] == race.want_changed_at
        assert error.message.startswith(f"{race.want_stream} changed at revision {race.want_changed_at}")
        assert f"--subject {race.want_stream}" in error.next_step


def test_a_stale_writer_of_many_streams_is_told_how_many_moved(dsn: str) -> None:
    pages = [f"p{number}" for number in range(150)]
    with open_ledger(dsn, create=True) as ledger:
        write(ledger, *pages)
        with pytest.raises(Stale, match=r"and 149 more streams") as refused:
            write(ledger, *pages, read_at=0)
    streams = refused.value.fields["streams"]
    assert isinstance(streams, list)
    assert len(streams) == 100


def test_a_stale_writer_that_reads_again_gets_through(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        write(ledger, "a", read_at=0)
        with pytest.raises(Stale):
            write(ledger, "a", read_at=0)
        assert write(ledger, "a", read_at=1)[0].revision == 2


@pytest.mark.parametrize("size", [3, 30])
def test_a_commit_that_fails_half_way_leaves_nothing(dsn: str, size: int) -> None:
    """A row that is in the way of the last event makes the database refuse it after it took the others."""
    with open_ledger(dsn, create=True) as ledger:
        write(ledger, "a")
        with raw(dsn) as run:
            run(f"INSERT INTO events SELECT {size + 1}, '', '', '', '', '', '', '', '', '' FROM ledger_head")
        with pytest.raises(Unavailable):
            write(ledger, *["b"] * size)
        assert [event.revision for event in events_of(ledger)] == [1, size + 1]
        assert ledger.head().revision == 1
        with raw(dsn) as run:
            run(f"DELETE FROM events WHERE revision = {size + 1}")
        write(ledger, *["b"] * size)
        assert (verify(ledger.store).is_whole, ledger.head().revision) == (True, size + 1)


class Unspeakable(Exception):
    pass


def test_a_failure_of_our_own_in_the_middle_leaves_nothing(dsn: str) -> None:
    moments = iter([MONDAY])

    def clock() -> datetime:
        for moment in moments:
            return moment
        raise Unspeakable

    with open_ledger(dsn, create=True, clock=clock) as ledger:
        write(ledger, "a")
        with pytest.raises(Unspeakable):
            write(ledger, "b")
        ledger.clock = ticking(MONDAY)
        write(ledger, "c")
        assert [event.subject for event in events_of(ledger)] == ["page/a", "page/c"]


def test_a_leader_of_the_past_is_fenced_off(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger:
        first = ledger.store.next_epoch("one")
        ledger.commit([note()], actor="one", read_at=None, epoch=first)
        second = ledger.store.next_epoch("two")
        with pytest.raises(Fenced) as refused:
            ledger.commit([note()], actor="one", read_at=None, epoch=first)
        assert (refused.value.code, refused.value.fields) == ("fenced", {"epoch": 1, "current": 2})
        ledger.commit([note()], actor="two", read_at=None, epoch=second)
        ledger.commit([note()], actor="somebody who does not lead", read_at=None)
        assert [event.actor for event in events_of(ledger)] == ["one", "two", "somebody who does not lead"]
        assert ledger.store.leader() == (2, "two")


def test_an_epoch_that_never_began_is_fenced_off_too(dsn: str) -> None:
    with open_ledger(dsn, create=True) as ledger, pytest.raises(Fenced):
        ledger.commit([note()], actor="one", read_at=None, epoch=1)


@pytest.mark.parametrize(
    ("clock_hours", "want_hours"),
    [
        pytest.param([0, 1, 2], [0, 1, 2], id="a clock that goes on"),
        pytest.param([5, 1, 6], [5, 5, 6], id="a clock that was put back for a while"),
        pytest.param([5, 4, 3], [5, 5, 5], id="a clock that runs backwards"),
    ],
)
def test_recorded_time_never_goes_back(dsn: str, clock_hours: list[int], want_hours: list[int]) -> None:
    """Each commit is by another process with a clock of its own."""
    for hours in clock_hours:
        with open_ledger(dsn, create=True, clock=stopped(MONDAY + timedelta(hours=hours))) as ledger:
            write(ledger, "a")
    with open_ledger(dsn) as ledger:
        assert [event.recorded_time - MONDAY for event in events_of(ledger)] == [
            timedelta(hours=hours) for hours in want_hours
        ]
        assert verify(ledger.store).is_whole


REFUSED_TEXTS: dict[str, tuple[Callable[[], Draft], dict[str, str], str]] = {
    "nobody as the actor": (note, {"actor": ""}, "no_actor"),
    "an actor of two lines": (note, {"actor": "ana\nbob"}, "text_not_printable"),
    "the separator in the actor": (note, {"actor": "ana\x1fnode.recorded"}, "text_not_printable"),
    "the separator in the reason": (note, {"reason": "a\x1fb"}, "text_not_printable"),
    "the separator in a draft's own reason": (lambda: note(reason="a\x1fb"), {}, "text_not_printable"),
    "the separator in the subject": (lambda: note("a\x1fb"), {}, "text_not_printable"),
    "a NUL in the subject": (lambda: note("a\0b"), {}, "text_not_printable"),
    "an escape sequence in the reason": (note, {"reason": "\x1b[2J"}, "text_not_printable"),
    "half a character in the reason": (note, {"reason": "\ud800"}, "text_not_printable"),
    "a reason that is too long": (note, {"reason": "x" * 4_001}, "text_too_long"),
    "an actor that is too long": (note, {"actor": "x" * 4_001}, "text_too_long"),
    "a subject that is too long": (lambda: note("x" * 4_000), {}, "text_too_long"),
}


@pytest.mark.parametrize(("draft", "texts", "want_code"), REFUSED_TEXTS.values(), ids=REFUSED_TEXTS.keys())
def test_text_that_would_blur_the_fields_is_refused(
    dsn: str, draft: Callable[[], Draft], texts: dict[str, str], want_code: str
) -> None:
    with open_ledger(dsn, create=True) as ledger:
        with pytest.raises(UsageError) as refused:
            ledger.commit([note(), draft()], **{"actor": "tester", "read_at": None, **texts})  # type: ignore[arg-type]
        assert refused.value.code == want_code
        assert events_of(ledger) == []


def test_text_of_the_greatest_length_in_any_language_is_taken(dsn: str) -> None:
    texts = ["x" * 4_000, "Größe 日本語 🚢", "'; DROP TABLE events; --", "%s ? {} \\"]
    with open_ledger(dsn, create=True) as ledger:
        for actor, reason in itertools.product(texts, texts):
            ledger.commit([note()], actor=actor, reason=reason, read_at=None)
        assert [(event.actor, event.reason) for event in events_of(ledger)] == list(itertools.product(texts, texts))
        assert verify(ledger.store).is_whole
