"""Moments as text: one stored form whose order is that of time, and what people may type."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import UsageError
from plimsoll.times import as_moment, format_time, parse_moment, parse_time, show_time

NOW = datetime(2026, 1, 20, 12, 30, 15, tzinfo=UTC)
INDIA = timezone(timedelta(hours=5, minutes=30))
MOMENTS = st.datetimes(timezones=st.just(UTC))

STORED = {
    datetime(2026, 1, 5, 11, tzinfo=UTC): ("2026-01-05T11:00:00.000000Z", "2026-01-05T11:00:00Z"),
    datetime(2026, 1, 5, 11, 0, 0, 250, tzinfo=UTC): ("2026-01-05T11:00:00.000250Z", "2026-01-05T11:00:00.000250Z"),
    datetime(2026, 1, 5, 3, tzinfo=INDIA): ("2026-01-04T21:30:00.000000Z", "2026-01-04T21:30:00Z"),
    datetime(1, 1, 1, tzinfo=UTC): ("0001-01-01T00:00:00.000000Z", "0001-01-01T00:00:00Z"),
}


@pytest.mark.parametrize("moment", STORED, ids=str)
def test_a_moment_has_one_stored_and_one_shown_form(moment: datetime) -> None:
    assert (format_time(moment), show_time(moment)) == STORED[moment]


def test_an_unknown_moment_is_shown_as_nothing() -> None:
    assert show_time(None) == ""


@given(first=MOMENTS, second=MOMENTS)
def test_the_order_of_texts_is_never_other_than_that_of_time(first: datetime, second: datetime) -> None:
    assert (format_time(first) < format_time(second)) == (first < second)
    assert parse_time(format_time(first)) == parse_time(show_time(first)) == first


TYPED = {
    "now": NOW,
    "today": datetime(2026, 1, 20, tzinfo=UTC),
    "2026-01-05": datetime(2026, 1, 5, tzinfo=UTC),
    "2026-01-05T11:00Z": datetime(2026, 1, 5, 11, tzinfo=UTC),
    "2026-01-05 11:00": datetime(2026, 1, 5, 11, tzinfo=UTC),
    "2026-01-05T11:00:00+05:30": datetime(2026, 1, 5, 5, 30, tzinfo=UTC),
    "90s": datetime(2026, 1, 20, 12, 28, 45, tzinfo=UTC),
    "5m": datetime(2026, 1, 20, 12, 25, 15, tzinfo=UTC),
    "36h": datetime(2026, 1, 19, 0, 30, 15, tzinfo=UTC),
    "7d": datetime(2026, 1, 13, 12, 30, 15, tzinfo=UTC),
    "2w": datetime(2026, 1, 6, 12, 30, 15, tzinfo=UTC),
    "0d": NOW,
}


@pytest.mark.parametrize("text", TYPED)
def test_people_may_type_a_moment_in_many_ways(text: str) -> None:
    found = parse_moment(text, now=NOW)
    assert found == TYPED[text]
    assert found.tzinfo is UTC


WRONG = [
    "",
    "tomorrow",
    "7",
    "d",
    "-7d",
    "7 d",
    "2026-13-01",
    "2026-02-30",
    "11:00",
    "99999999999999w",
    "9" * 5000 + "d",
    "0001-01-01T00:00+14:00",
    "9999-12-31T23:59:59-14:00",
]


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:30] or "nothing")
def test_what_is_no_moment_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_moment(text, now=NOW)
    assert (caught.value.code, caught.value.message) == ("bad_time", f"{text[:100]!r} is not a time")
    assert "36h or 7d" in caught.value.next_step


@given(text=st.text(max_size=40))
def test_any_text_is_a_moment_or_refused_with_words(text: str) -> None:
    try:
        found = parse_moment(text, now=NOW)
    except UsageError:
        return
    assert found.tzinfo is UTC


SPREADSHEET = {
    date(2026, 1, 5): datetime(2026, 1, 5, tzinfo=UTC),
    datetime(2026, 1, 5, 11): datetime(2026, 1, 5, 11, tzinfo=UTC),  # noqa: DTZ001
    datetime(2026, 1, 5, 11, tzinfo=INDIA): datetime(2026, 1, 5, 5, 30, tzinfo=UTC),
}


@pytest.mark.parametrize("value", SPREADSHEET, ids=str)
def test_a_date_of_a_spreadsheet_is_in_utc(value: date) -> None:
    assert as_moment(value) == SPREADSHEET[value]
