"""What comes in: JSON lines, their mistakes, and what is remembered of many signals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.health.intake import LINE_BYTES_MAX, forget_old, merge_into, read_lines, sift, with_later_sweep
from plimsoll.health.model import to_microseconds
from plimsoll.health.signals import RETENTION, RUN_POINTS_KEPT, Memory, Signal, SignalKey, SignalKind, compact, point
from tests.support.health import Ward, minutes
from tests.support.imports import NOW


def _read(*lines: str) -> list[Signal]:
    return read_lines([line.encode() for line in lines], source="signals.jsonl", now=NOW)


def test_lines_are_read_as_they_say() -> None:
    assert _read(
        '{"node": "n1", "kind": "xid", "name": 79}',
        "",
        '{"node": "n2", "kind": "check", "name": "nccl", "ok": true, "at": "2026-01-20T11:00:00+02:00"}',
        ' {"node": "n3", "kind": "thermal", "name": "x", "value": 91.5, "at": "2026-01-20T11:00:00", "detail": "hot"}',
        '{"node": "n4", "kind": "heartbeat"}',
        '{"node": "n5", "kind": "xid", "name": "079"}',
    ) == [
        Signal("n1", SignalKind.XID, NOW, "79"),
        Signal("n2", SignalKind.CHECK, datetime(2026, 1, 20, 9, tzinfo=UTC), "nccl", None, True),
        Signal("n3", SignalKind.THERMAL, datetime(2026, 1, 20, 11, tzinfo=UTC), "x", 91.5, False, "hot"),
        Signal("n4", SignalKind.HEARTBEAT, NOW),
        Signal("n5", SignalKind.XID, NOW, "79"),
    ]


GOOD = '{"node": "n1", "kind": "xid", "name": "79"}'
BAD_LINES = {
    "no JSON": ("node n1", "JSON is malformed"),
    "a line cut short": (GOOD[:-4], "Input data was truncated"),
    "a list": ("[1]", "Expected `object`, got `array`"),
    "no node": ('{"kind": "xid", "name": "79"}', "missing required field `node`"),
    "a kind we do not know": (
        '{"node": "n1", "kind": "zid"}', "Invalid enum value 'zid' - at `$.kind`; kinds are xid, check,"
    ),
    "no kind": ('{"node": "n1"}', "missing required field `kind`; kinds are xid, check,"),
    "a value out of range": (
        '{"node": "n1", "kind": "ecc", "value": 1e300}', "the value 1e+300 is not a number between -1e+300 and 1e+300"
    ),
    "a field we do not know": ('{"node": "n1", "kind": "xid", "nmae": "79"}', "unknown field `nmae`"),
    "an XID without a code": ('{"node": "n1", "kind": "xid"}', "an xid's name is its code"),
    "an XID that is no number": ('{"node": "n1", "kind": "xid", "name": "7x"}', "found '7x'"),
    "an XID of other digits": ('{"node": "n1", "kind": "xid", "name": "\\u0667\\u0669"}', "a whole number from 1"),
    "an XID below one": ('{"node": "n1", "kind": "xid", "name": -3}', "found '-3'"),
    "a time that is none": ('{"node": "n1", "kind": "xid", "name": 79, "at": "noon"}', "Invalid RFC3339"),
    "a time before there were nodes": (
        '{"node": "n1", "kind": "xid", "name": 79, "at": "1900-01-01T00:00:00Z"}', "no time at which there are nodes"
    ),
    "a time at the end of the calendar": (
        '{"node": "n1", "kind": "xid", "name": 79, "at": "9999-12-31T23:59:59-12:00"}', "no time at which"
    ),
    "a time at its beginning": (
        '{"node": "n1", "kind": "xid", "name": 79, "at": "0001-01-01T00:00:00+12:00"}', "no time at which"
    ),
    "a value that is none": ('{"node": "n1", "kind": "ecc", "value": 1e999}', ""),
    "a value in words": ('{"node": "n1", "kind": "ecc", "value": "hot"}', "Expected `float | null`, got `str`"),
    "a node with a line break": ('{"node": "n\\n1", "kind": "heartbeat"}', "node is not one line of printable text"),
    "a name without end": (
        f'{{"node": "n1", "kind": "check", "name": "{"x" * 500}"}}', "name has 500 characters, at most 200 are taken"
    ),
    "a line without end": (f'{{"node": "{"x" * LINE_BYTES_MAX}"}}', "over 100,000 bytes in a line"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", BAD_LINES)
def test_a_bad_line_is_named_and_nothing_is_taken(sentence: str) -> None:
    line, want_message = BAD_LINES[sentence]
    with pytest.raises(UsageError) as caught:
        _read(GOOD, "", line, GOOD)
    assert caught.value.code == "bad_signal"
    assert caught.value.message.startswith("signals.jsonl, line 3: ")
    assert want_message in caught.value.message
    assert len(caught.value.message) < 500


def test_bytes_that_are_no_text_are_named_too() -> None:
    with pytest.raises(UsageError, match=r"x, line 1"):
        read_lines([b'{"node": "\xff", "kind": "heartbeat"}'], source="x", now=NOW)


def test_a_long_detail_is_cut() -> None:
    (signal,) = _read(f'{{"node": "n1", "kind": "heartbeat", "detail": "{"x" * 500}"}}')
    assert signal.detail == "x" * 200


def test_a_signal_that_is_too_old_says_its_age_and_where_the_past_belongs() -> None:
    with Ward(1) as ward:
        fleet = ward.state.of(Fleet)
        old = Signal("n1", SignalKind.XID, NOW - timedelta(days=45), "79")
        kept = Signal("n1", SignalKind.XID, NOW - timedelta(days=29), "79")
        signals, rejections = sift([old, kept], fleet, NOW)
    assert signals == [kept]
    assert [(each.code, each.message) for each in rejections] == [
        (
            "signal_too_old",
            "n1: 2025-12-06T12:00:00Z is 45 days ago; signals are taken for 30 days,"
            " history.csv is for what was before",
        )
    ]


# What is remembered.

KEY = SignalKey(SignalKind.CHECK, "nccl")


def _points(*moments: tuple[float, bool]) -> set[int]:
    return {point(NOW - minutes(ago), is_ok=is_ok) for ago, is_ok in moments}


_marks = st.sets(st.tuples(st.integers(0, 500), st.booleans()), max_size=40)


@given(_marks)
def test_never_more_remembered_than_the_ends_of_each_run(marks: set[tuple[int, bool]]) -> None:
    points = _points(*marks)
    kept = compact(points)
    assert list(kept) == sorted(kept)
    assert points.issuperset(kept)
    assert kept == compact(kept), "compacting again changes nothing"
    if points:
        assert kept[-1] == max(points), "the latest is never forgotten"


@given(_marks, _marks)
def test_never_another_memory_because_of_the_order(one: set[tuple[int, bool]], two: set[tuple[int, bool]]) -> None:
    """As long as no run is longer than what is kept of one: at most ten of each here."""
    few, more = sorted(one)[:RUN_POINTS_KEPT], sorted(two)[:RUN_POINTS_KEPT]
    first, second = Memory(compact(_points(*few)), 1.0, "a", "x"), Memory(compact(_points(*more)), 2.0, "b", "y")
    if not few or not more:
        return
    assert first.merged(second) == second.merged(first)
    assert first.merged(second).merged(first) == first.merged(second), "told twice it is the same"
    assert first.merged(second).points == compact(_points(*few, *more))


def test_a_memory_is_stored_in_few_bytes_and_read_back() -> None:
    memory = Memory(compact(_points((5, False), (1, True))), 91.5, "hot", "dcgm")
    text = msgspec.json.encode(memory)
    assert msgspec.json.decode(text, type=Memory) == memory
    assert len(text) < 80


def test_what_is_too_old_is_forgotten() -> None:
    memory = Memory(compact({*_points((1, False)), point(NOW - RETENTION - minutes(1), is_ok=False)}))
    assert forget_old(memory, NOW).points == compact(_points((1, False)))
    assert forget_old(memory, NOW + timedelta(days=60)).points == ()


def test_what_stays_good_is_not_news_to_a_sweep() -> None:
    good, bad = Memory(compact(_points((1, True)))), Memory(compact(_points((5, False))))
    assert merge_into({}, {KEY: good}, is_sweep=True, now=NOW) == {}
    assert merge_into({}, {KEY: good}, is_sweep=False, now=NOW) == {KEY: good}
    assert merge_into({KEY: bad}, {KEY: good}, is_sweep=True, now=NOW)[KEY].points == compact(
        _points((5, False), (1, True))
    )


def test_a_good_sweep_that_comes_late_ends_the_problem_when_it_was_seen_to_end() -> None:
    known = Memory(compact(_points((9, False), (1, True))))
    late = {KEY: Memory(compact(_points((5, True))))}
    merged = merge_into({KEY: known}, late, is_sweep=True, now=NOW)
    assert merged[KEY].points == compact(_points((9, False), (5, True), (1, True)))


def test_a_bad_sweep_that_comes_late_was_over_when_a_newer_one_was_good() -> None:
    late = {KEY: Memory(compact(_points((5, False))))}
    found = with_later_sweep(late, {}, NOW - minutes(1))
    assert found[KEY].points == compact(_points((5, False), (1, True)))
    known = {KEY: Memory((to_microseconds(NOW) << 1,))}
    assert with_later_sweep(late, known, NOW - minutes(1)) == late, "the newer one said that it was bad"
