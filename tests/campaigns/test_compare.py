"""Two plans side by side, in numbers worked out by hand."""

from __future__ import annotations

from datetime import date

import pytest

from plimsoll.campaigns.compare import Part, Side, compare
from plimsoll.campaigns.units import make_units
from tests.support.plans import Ship, batch, campaign_of, fleet_of

FLEET = fleet_of(
    ant=Ship({"H100": 4}, area="us"),
    bee=Ship({"GB200": 6}, area="eu", purpose="applied"),
    cat=Ship({"H100": 10}, area="uk", phase="planned"),
)
FILE = campaign_of(scope={"cluster": ["ant", "bee"]}, expect={"non_return_share": 0.5, "repair_days": 1})
ROLL = make_units(FILE, FLEET)
LEFT = Side("left", FILE, ROLL, [batch("ant", "05 10:00", nodes=4), batch("bee", "06 12:00", nodes=6)])
RIGHT = Side("right", FILE, ROLL, [batch("ant", "05 10:00", nodes=4), batch("bee", "05 14:00", nodes=6)])


def test_figures_by_hand() -> None:
    """ant: 4 x 8 x 3.2 = 102.4 A100e for 2 hours and half of them for 24; bee: 6 x 8 x 8 = 384, the same. So 14 hours
    of 486.4 over 72, of which all is in production: cat is not."""
    found = compare(LEFT, RIGHT, FLEET)
    left, right = found.left, found.right
    assert (left.days_used, left.first_day, left.last_day) == (2, date(2026, 1, 5), date(2026, 1, 6))
    assert (right.days_used, right.last_day) == (1, date(2026, 1, 5))
    assert (left.peak, right.peak) == (6, 8)  # bee alone, ant is back at 12:00; bee and two of ant
    assert (left.score.peak, right.score.peak) == (6, 8)
    assert (left.score.exposure, right.score.exposure) == (6, 0)
    assert left.average_loss == right.average_loss == pytest.approx(486.4 * 14 / 72)
    assert left.average_loss_share == pytest.approx(14 / 72)
    assert left.nodes_per_day == ((date(2026, 1, 5), 4), (date(2026, 1, 6), 6))
    assert (left.units, left.nodes, left.batches, left.problems) == (2, 10, 2, 0)


def test_parts_by_area_and_purpose() -> None:
    found = {(key, value): part for key, value, part in compare(LEFT, RIGHT, FLEET).left.parts}
    assert set(found) == {("area", "us"), ("area", "eu"), ("purpose", "research"), ("purpose", "applied")}
    tuesday = date(2026, 1, 6)
    assert found["area", "eu"] == Part(6, 1, tuesday, tuesday, 6.0, pytest.approx(384 * 14))  # type: ignore[arg-type]
    assert found["area", "eu"] == found["purpose", "applied"]


def test_what_moved() -> None:
    found = compare(LEFT, RIGHT, FLEET)
    assert [(each.unit, each.hours) for each in found.moved] == [("bee", -22)]
    assert found.same == 1


def test_a_batch_of_one_plan_alone() -> None:
    found = compare(LEFT, RIGHT._replace(batches=RIGHT.batches[:1]), FLEET)
    assert [(each.unit, each.left, each.right, each.hours) for each in found.moved] == [
        ("bee", LEFT.batches[1], None, None)
    ]
    assert found.right.problems == 1


def test_the_same_plan_in_another_zone_is_the_same() -> None:
    abroad = [
        batch("ant", "05 11:00", nodes=4, tz="Europe/Stockholm"),
        batch("bee", "06 13:00", nodes=6, tz="Europe/Paris"),
    ]
    found = compare(LEFT, LEFT._replace(batches=abroad), FLEET)
    assert (found.moved, found.same) == ((), 2)
    assert found.left == found.right


def test_a_loss_that_nobody_can_weigh_is_not_zero() -> None:
    fleet = fleet_of(ant=Ship({"B900": 4}))
    side = Side("left", campaign_of(), make_units(campaign_of(), fleet), [batch("ant", "05 10:00", nodes=4)])
    found = compare(side, side, fleet).left
    assert (found.average_loss, found.average_loss_share) == (None, None)
    assert found.parts[0][2].lost is None
