"""The course of a pool: how many GPUs were healthy, hour by hour, and what was promised. Worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from plimsoll.quota.history.course import POINTS_MAX, course
from plimsoll.quota.hull import pool_keys
from tests.support.office import Office

MIDNIGHT = datetime(2026, 1, 21, 0, 0, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-20T{text}:00+00:00")


def test_each_point_is_the_fewest_of_its_hours() -> None:
    with Office() as office:
        office.tell("repair", "n9", at=at("12:10"), reason="the past begins here")
        office.tell("in_service", "n9", at=at("12:20"), reason="")
        office.tell("repair", "n1", at=at("14:30"), reason="xid 79")
        office.tell("in_service", "n1", at=at("14:45"), reason="")
        office.tell("repair", "n2", "n3", at=at("16:00"), reason="xid 48")
        found = course(office.state, pool_keys(office.state), days=1, now=at("18:00"))
    assert (found.step_hours, found.ends) == (1, at("18:00"))
    (pool,) = found.pools
    assert pool.points == [80, 72, 80, 64, 64]  # from 13:00, the first whole hour, to 17:00
    assert (pool.total, pool.healthy, pool.healthy_then, pool.healthy_fewest) == (80, 64, 80, 64)


def test_what_was_promised_is_told_with_what_was_in_force_before() -> None:
    with Office() as office:
        office.tell("repair", "n1", at=at("01:00"), reason="xid 79")
        for hour, gpus in (("13:00", 16), ("15:00", 24), ("17:00", 32)):
            office.now = at(hour)
            office.align({"vision": gpus}, line=40)
        found = course(office.state, pool_keys(office.state), days=1, now=at("16:00") + timedelta(days=1))
    assert [(each.since, each.line, each.guaranteed) for each in found.pools[0].promised] == [
        (at("15:00"), 40, 24),
        (at("17:00"), 40, 32),
    ]


def test_a_long_course_has_no_more_points_than_a_picture_shows() -> None:
    with Office() as office:
        office.tell("repair", "n1", at=MIDNIGHT - timedelta(days=60), reason="xid 79")
        office.tell("in_service", "n1", at=MIDNIGHT - timedelta(days=59), reason="")
        office.tell("repair", "n1", at=MIDNIGHT - timedelta(hours=5), reason="a dip")
        office.tell("in_service", "n1", at=MIDNIGHT - timedelta(hours=4.5), reason="")
        found = course(office.state, pool_keys(office.state), days=30, now=MIDNIGHT)
    assert found.step_hours == 3
    assert len(found.pools[0].points) == POINTS_MAX
    assert found.pools[0].points[-3:] == [80, 72, 80]  # and no dip is lost


def test_without_any_history_there_is_no_course() -> None:
    with Office() as office:
        found = course(office.state, pool_keys(office.state), days=7, now=office.now)
    assert found.pools == []
