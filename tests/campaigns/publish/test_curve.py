"""How much is out, worked out by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from plimsoll.campaigns.model import Measure
from plimsoll.campaigns.publish.curve import area_progress, cap_on, cap_steps, cap_uses, day_counts, out_curve
from tests.campaigns.publish.plans import MONDAY, batch, cap, publish, scope, unit

HOUR = timedelta(hours=1)
TIGER, LION = unit("tiger", nodes=100, stays=2), unit("lion", nodes=50, area="eu", stays=1, stay_days=1)


def test_nodes_are_out_until_they_are_repaired() -> None:
    published = publish([batch("tiger", nodes=100), batch("lion", hour=3, nodes=50)], units=[TIGER, LION])
    curve = out_curve(published)
    assert curve.areas == ("us", "eu")
    assert [(point.at - MONDAY, point.out, point.work) for point in curve.points] == [
        (0 * HOUR, (100, 0), 100),
        (3 * HOUR, (100, 50), 150),
        (4 * HOUR, (2, 50), 50),
        (7 * HOUR, (2, 1), 0),
        (7 * HOUR + timedelta(days=1), (2, 0), 0),
        (4 * HOUR + timedelta(days=2), (0, 0), 0),
    ]
    assert curve.peak is not None
    assert (curve.peak.total, curve.peak.at) == (150, MONDAY + 3 * HOUR)


def test_what_ends_when_another_begins_is_not_counted_twice() -> None:
    published = publish([batch("tiger", nodes=100), batch("lion", hour=4, nodes=50)], units=[TIGER, LION])
    peak = out_curve(published).peak
    assert peak is not None
    assert (peak.total, peak.at) == (100, MONDAY)


def test_each_day_in_numbers() -> None:
    batches = [
        batch("tiger", nodes=100),
        batch("lion", day=1, nodes=50),
        batch("lion", day=1, hour=4, number=2, nodes=50),
    ]
    published = publish(batches, units=[TIGER, unit("lion", nodes=50, batches=2, area="eu", stays=1, stay_days=1)])
    counts = day_counts(published, out_curve(published))
    assert [tuple(count) for count in counts[:5]] == [
        (date(2026, 1, 5), 1, 1, 100, 100, True),
        (date(2026, 1, 6), 1, 2, 100, 53, True),  # 50 + 1 of the first half + 2 of tiger
        (date(2026, 1, 7), 0, 0, 0, 4, True),  # what does not come back: 2 of tiger, 1 + 1 of lion
        (date(2026, 1, 8), 0, 0, 0, 0, True),
        (date(2026, 1, 9), 0, 0, 0, 0, True),
    ]
    assert len(counts) == 5, "three days after the last batch"
    assert len(day_counts(publish([]), out_curve(publish([])))) == 18, "all days to the deadline"
    late = publish([batch(day=20)])
    assert len(day_counts(late, out_curve(late))) == 21, "the deadline has passed"


def test_a_limit_counts_what_its_scope_matches_in_its_unit() -> None:
    caps = (
        cap(200),
        cap(60, scope=scope(area="eu")),
        cap(10_000, unit=Measure.GPUS),
        cap(10_000, unit=Measure.A100E, scope=scope(area="us")),
        cap(10, from_day=date(2026, 1, 6)),
    )
    batches = [batch("tiger", nodes=100), batch("lion", hour=3, nodes=50)]
    published = publish(batches, units=[TIGER, LION], caps=caps, a100e={"H200": 3.2})
    uses = cap_uses(published)
    assert [round(use.most, 3) for use in uses] == [150, 50, 1200, 2560, 3]
    assert uses[0].at == MONDAY + 3 * HOUR
    assert uses[4].at == datetime(2026, 1, 6, tzinfo=UTC), "it holds from midnight, and two and one are still out"
    assert uses[0].share == 0.75


def test_the_cap_of_a_day_is_the_lowest_that_holds() -> None:
    caps = (cap(1800), cap(900, from_day=date(2026, 1, 8), until_day=date(2026, 1, 9)), cap(5, scope=scope(area="eu")))
    published = publish([batch()], caps=caps)
    assert (cap_on(published, date(2026, 1, 7)), cap_on(published, date(2026, 1, 8))) == (1800, 900)
    assert cap_steps(published, date(2026, 1, 5), date(2026, 1, 22)) == [
        (date(2026, 1, 5), date(2026, 1, 7), 1800),
        (date(2026, 1, 8), date(2026, 1, 9), 900),
        (date(2026, 1, 10), date(2026, 1, 22), 1800),
    ]
    assert cap_on(publish([batch()]), date(2026, 1, 7)) is None


def test_days_are_those_of_the_window() -> None:
    """20:00 UTC is the next day in Tokyo."""
    published = publish([batch(hour=9)], tz="Asia/Tokyo")
    counts = day_counts(published, out_curve(published))
    assert [count.day for count in counts if count.nodes] == [date(2026, 1, 6)]


def test_progress_is_a_share_of_each_area() -> None:
    batches = [batch("tiger", nodes=75), batch("bear", day=2, nodes=25), batch("lion", day=1, nodes=50)]
    published = publish(batches, units=[unit("tiger"), unit("bear"), unit("lion", area="eu")])
    shares = area_progress(published, ("us", "eu"))
    assert shares["us"][:4] == [0.75, 0.75, 1.0, 1.0]
    assert shares["eu"][:4] == [0.0, 1.0, 1.0, 1.0]
