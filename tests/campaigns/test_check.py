"""The checker finds every rule that a plan breaks, by its place in the file, with numbers worked out by hand."""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

import pytest

from plimsoll.campaigns.check.found import Code
from plimsoll.campaigns.check.plan import check_plan, check_score
from plimsoll.campaigns.model import Batch, Score
from tests.support.plans import Ship, batch, campaign_of, fleet_of

ROLLING = [{"scope": {}, "mode": "rolling", "share_per_day": 0.4, "hours": 2}]
STAYS = {"non_return_share": 0.5, "repair_days": 1}


def rolling(unit: str, *starts: str, sizes: tuple[int, ...] = (4, 4, 2), tz: str = "UTC") -> list[Batch]:
    """Ten nodes by four a day."""
    return [
        batch(unit, start, nodes=nodes, number=number, mode="rolling", tz=tz)
        for number, (start, nodes) in enumerate(zip(starts, sizes, strict=True), 1)
    ]


class Case(NamedTuple):
    """What is wrong: code, place in the file, number found and allowed. None: nothing is."""

    batches: list[Batch]
    want: tuple[str, str, Any, Any] | None
    file: dict[str, Any] = {}
    ships: dict[str, Ship | int] = {"ant": 4, "bee": 6}


ANT, BEE = batch("ant", "05 10:00", nodes=4), batch("bee", "06 12:00", nodes=6)
TEN: dict[str, Ship | int] = {"ant": 10}
MIXED = Ship({"H100": 3, "GB200": 2})
LABELLED = Ship({"H100": 4}, node_labels=[{"serves": "chat"}, {"serves": "api"}, {"serves": "chat"}])


def limits(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"limits": list(entries), **more}


STRUCTURE = {
    "a plan that is right": Case([ANT, BEE], None),
    "a unit is left out": Case([ANT], ("unit_missing", "scope", 0, 1)),
    "a unit that nobody knows": Case(
        [ANT, BEE, batch("cat", "05 10:00", nodes=1)], ("unknown_unit", "scope", None, None)
    ),
    "a batch that the unit does not have": Case(
        [ANT, BEE, batch("bee", "07 12:00", nodes=6, number=2)], ("batch_unknown", "work", 2, 1)
    ),
    "a batch twice": Case([ANT, BEE, BEE], ("batch_twice", "work", None, None)),
    "a batch of a rolling unit is left out": Case(
        rolling("ant", "05 10:00", "06 10:00", "07 10:00")[:2],
        ("batch_missing", "work", None, 3),
        {"work": ROLLING},
        TEN,
    ),
    "too few nodes": Case([batch("ant", "05 10:00", nodes=3), BEE], ("wrong_nodes", "work", 3, 4)),
    "retired nodes are no part of a batch": Case(
        [batch("ant", "05 10:00", nodes=5)], ("wrong_nodes", "work", 5, 4), {}, {"ant": Ship({"H100": 4}, retired=1)}
    ),
    "only nodes in scope are part of a batch": Case(
        [batch("ant", "05 10:00", nodes=5)], ("wrong_nodes", "work", 5, 3), {"scope": {"sku": "H100"}}, {"ant": MIXED}
    ),
    "rolling shares are rounded up, the last batch is smaller": Case(
        rolling("ant", "05 10:00", "06 10:00", "07 10:00", sizes=(4, 3, 3)),
        ("wrong_nodes", "work", 3, 4),
        {"work": ROLLING},
        {"ant": 10},
    ),
    "whole where the rule says rolling": Case(
        [batch("ant", "05 10:00", nodes=4)],
        ("wrong_mode", "work", "whole", "rolling"),
        {"work": [{"scope": {}, "mode": "rolling", "share_per_day": 1, "hours": 2}]},
        {"ant": 4},
    ),
    "an hour too long": Case([batch("ant", "05 10:00", nodes=4, hours=3), BEE], ("wrong_length", "work", 3.0, 2.0)),
    "no rule of work matches": Case(
        [ANT],
        ("no_work_rule", "work", None, None),
        {"work": [{"scope": {"area": "eu"}, "mode": "whole", "hours": 2}]},
        {"ant": 4},
    ),
    "the first rule of work that matches is the one": Case(
        [batch("ant", "05 10:00", nodes=4, hours=3), BEE],
        ("wrong_length", "work", 2.0, 3.0),
        {"work": [{"scope": {"area": "us"}, "mode": "whole", "hours": 3}, {"scope": {}, "mode": "whole", "hours": 2}]},
    ),
    "a unit that stays in service is not taken out": Case(
        [ANT, BEE],
        ("unknown_unit", "changes", None, None),
        {
            "changes": [
                {
                    "component": "nic",
                    "version": "2",
                    "impact": [
                        {"scope": {"cluster": "bee"}, "impact": "impactless"},
                        {"scope": {}, "impact": "disruptive"},
                    ],
                }
            ]
        },
    ),
    "big is over so many nodes in scope, not as many": Case(
        [batch("ant", "05 10:00", nodes=4), batch("bee", "06 10:00", nodes=6, hours=4)],
        None,
        {
            "big": {"nodes_over": 5},
            "work": [
                {"scope": {"size": "big"}, "mode": "whole", "hours": 4},
                {"scope": {}, "mode": "whole", "hours": 2},
            ],
        },
        {"ant": 4, "bee": 6},
    ),
    "a cluster of just so many nodes is small": Case(
        [batch("ant", "05 10:00", nodes=5, hours=4)],
        ("wrong_length", "work", 4.0, 2.0),
        {
            "big": {"nodes_over": 5},
            "work": [
                {"scope": {"size": "big"}, "mode": "whole", "hours": 4},
                {"scope": {}, "mode": "whole", "hours": 2},
            ],
        },
        {"ant": 5},
    ),
    "nodes out of scope do not make a cluster big": Case(
        [batch("ant", "05 10:00", nodes=3, hours=4)],
        ("wrong_length", "work", 4.0, 2.0),
        {
            "scope": {"sku": "H100", "size": "small"},
            "big": {"nodes_over": 4},
            "work": [
                {"scope": {"size": "big"}, "mode": "whole", "hours": 4},
                {"scope": {}, "mode": "whole", "hours": 2},
            ],
        },
        {"ant": MIXED},
    ),
    "a size in the scope itself does not count for sizes": Case(
        [BEE], None, {"scope": {"size": "big"}, "big": {"nodes_over": 5}}
    ),
    "a change that no rule of its impact matches takes nodes out": Case(
        [ANT],
        None,
        {
            "changes": [
                {
                    "component": "nic",
                    "version": "2",
                    "impact": [{"scope": {"cluster": "bee"}, "impact": "impactless"}],
                }
            ]
        },
    ),
    "a node label that a limit names splits the cluster": Case(
        [batch("ant", "05 10:00", nodes=4)],
        ("wrong_nodes", "work", 4, 1),
        limits({"kind": "out_at_once", "at_most": 9, "scope": {"serves": "chat"}}),
        {"ant": LABELLED},
    ),
    "the groups of a cluster that is split": Case(
        [
            batch("ant/chat", "05 10:00", nodes=2),
            batch("ant/api", "05 10:00", nodes=1),
            batch("ant", "05 10:00", nodes=1),
        ],
        None,
        limits({"kind": "out_at_once", "at_most": 2, "scope": {"serves": "chat"}}),
        {"ant": LABELLED},
    ),
    "a label that nothing names does not split": Case([ANT], None, {}, {"ant": LABELLED}),
}

WHEN = {
    "before the start": Case(
        [batch("ant", "04 10:00", nodes=4), BEE], ("before_start", "start", "2026-01-04", "2026-01-05")
    ),
    "past the deadline": Case(
        [batch("ant", "08 10:00", nodes=4), BEE], ("past_deadline", "deadline", "2026-01-08", "2026-01-07")
    ),
    "a weekday that is no day of the window": Case(
        [ANT, batch("bee", "06 12:00", nodes=6)],
        ("wrong_weekday", "window.days", "Tuesday", None),
        {"window": {"hours": [10, 16], "days": ["mon", "wed"]}},
    ),
    "the first day of a no-fly zone": Case(
        [ANT, BEE],
        ("no_fly", "no_fly[1]", "2026-01-06", None),
        {
            "no_fly": [
                {"scope": {"cluster": "ant"}, "from": "2026-01-06", "to": "2026-01-07"},
                {"scope": {"cluster": "bee"}, "from": "2026-01-06", "to": "2026-01-06", "why": "launch"},
            ]
        },
    ),
    "the last day of a no-fly zone": Case(
        [ANT, BEE],
        ("no_fly", "no_fly[0]", "2026-01-06", None),
        {"no_fly": [{"scope": {"cluster": "bee"}, "from": "2026-01-05", "to": "2026-01-06"}]},
    ),
    "a zone on a SKU holds the unit that has one such node": Case(
        [batch("ant", "05 10:00", nodes=5)],
        ("no_fly", "no_fly[0]", "2026-01-05", None),
        {"no_fly": [{"scope": {"sku": "GB200"}, "from": "2026-01-05", "to": "2026-01-05"}]},
        {"ant": MIXED},
    ),
    "between two slots": Case([batch("ant", "05 11:00", nodes=4), BEE], ("off_slot", "slot_minutes", "11:00:00", None)),
    "slots count from the opening, 45 minutes each": Case(
        [batch("ant", "05 11:15", nodes=4, hours=0.5), batch("bee", "05 10:30", nodes=6, hours=0.5)],
        None,
        {"slot_minutes": 45, "window": {"hours": [9.75, 16]}, "work": [{"scope": {}, "mode": "whole", "hours": 0.5}]},
    ),
    "a full hour where slots of 45 minutes count from a quarter to ten": Case(
        [batch("ant", "05 11:00", nodes=4, hours=0.5), batch("bee", "05 10:30", nodes=6, hours=0.5)],
        ("off_slot", "slot_minutes", "11:00:00", None),
        {"slot_minutes": 45, "window": {"hours": [9.75, 16]}, "work": [{"scope": {}, "mode": "whole", "hours": 0.5}]},
    ),
    "half a slot of 30 minutes": Case(
        [batch("ant", "05 10:15", nodes=4), BEE], ("off_slot", "slot_minutes", "10:15:00", None), {"slot_minutes": 30}
    ),
    "some seconds after the slot": Case(
        [batch("ant", "2026-01-05 10:00:30", nodes=4), BEE], ("off_slot", "slot_minutes", "10:00:30", None)
    ),
    "before the window opens": Case(
        [batch("ant", "05 08:00", nodes=4), BEE], ("outside_window", "window.hours", "08:00", "10:00 to 16:00 UTC")
    ),
    "still out when the window closes": Case(
        [batch("ant", "05 14:00", nodes=4, hours=3), BEE],
        ("outside_window", "window.hours", "17:00", "10:00 to 16:00 UTC"),
        {
            "work": [
                {"scope": {"cluster": "ant"}, "mode": "whole", "hours": 3},
                {"scope": {}, "mode": "whole", "hours": 2},
            ]
        },
    ),
    "a minute after the window has closed": Case(
        [batch("ant", "05 14:00", nodes=4, hours=121 / 60)],
        ("outside_window", "window.hours", "16:01", "10:00 to 16:00 UTC"),
        {"work": [{"scope": {}, "mode": "whole", "hours": 121 / 60}]},
        {"ant": 4},
    ),
    "when the window closes": Case(
        [batch("ant", "05 16:00", nodes=4), BEE], ("outside_window", "window.hours", "16:00", "10:00 to 16:00 UTC")
    ),
    "out until the window closes": Case([batch("ant", "05 14:00", nodes=4), BEE], None),
    "rolling on consecutive days": Case(
        rolling("ant", "05 10:00", "06 10:00", "07 10:00"), None, {"work": ROLLING}, TEN
    ),
    "rolling leaves a day out": Case(
        rolling("ant", "05 10:00", "07 10:00", "08 10:00"),
        ("not_consecutive", "work", "2026-01-07", "2026-01-06"),
        {"work": ROLLING, "deadline": "2026-01-08"},
        TEN,
    ),
    "rolling passes over the days that are not permitted": Case(
        rolling("ant", "05 10:00", "07 10:00", "09 10:00"),
        None,
        {
            "work": ROLLING,
            "deadline": "2026-01-09",
            "window": {"hours": [10, 16], "days": ["mon", "wed", "thu", "fri"]},
            "no_fly": [{"scope": {}, "from": "2026-01-08", "to": "2026-01-08"}],
        },
        TEN,
    ),
    "rolling at another hour": Case(
        rolling("ant", "05 10:00", "06 12:00", "07 10:00"),
        ("other_hour", "work", "12:00", "10:00"),
        {"work": ROLLING},
        TEN,
    ),
    "a canary that has not soaked": Case(
        [ANT, BEE], ("canary_soak", "canary", 24.0, 25.0), {"canary": {"clusters": ["ant"], "soak_hours": 25}}
    ),
    "a canary that is a part of a cluster": Case(
        [
            batch("ant/chat", "05 10:00", nodes=2),
            batch("ant/api", "05 14:00", nodes=1),
            batch("ant", "07 14:00", nodes=1),
        ],
        ("canary_soak", "canary", 2.0, 24.0),
        {
            "canary": {"clusters": ["ant/chat"], "soak_hours": 24},
            "order": [{"scope": {"serves": "chat"}}],
        },
        {"ant": LABELLED},
    ),
    "a canary that has soaked": Case([ANT, BEE], None, {"canary": {"clusters": ["ant"], "soak_hours": 24}}),
    "a strict group starts while an earlier one is out": Case(
        [batch("ant", "06 10:00", nodes=4), batch("bee", "06 10:00", nodes=6)],
        ("strict_order", "order[1]", -2.0, 0),
        {"order": [{"scope": {"cluster": "ant"}}, {"scope": {"cluster": "bee"}, "strict": True}]},
    ),
    "a strict group starts when the earlier one ends": Case(
        [batch("ant", "06 10:00", nodes=4), batch("bee", "06 12:00", nodes=6)],
        None,
        {"order": [{"scope": {"cluster": "ant"}}, {"scope": {"cluster": "bee"}, "strict": True}]},
    ),
    "an order that is not strict is no rule": Case(
        [batch("ant", "06 10:00", nodes=4), batch("bee", "05 12:00", nodes=6)],
        None,
        {"order": [{"scope": {"cluster": "ant"}, "strict": True}, {"scope": {"cluster": "bee"}}]},
    ),
    "two clusters of one colo apart": Case(
        [ANT, BEE],
        ("not_together", "together", "2026-01-06T12:00:00+00:00", "2026-01-05T10:00:00+00:00"),
        {"together": "colo"},
        {"ant": Ship({"H100": 4}, colo="x"), "bee": Ship({"H100": 6}, colo="x")},
    ),
    "two clusters of two colos apart": Case([ANT, BEE], None, {"together": "colo"}),
}

TOGETHER = [batch("ant", "05 10:00", nodes=4), batch("bee", "05 10:00", nodes=6)]
BY_SKU: dict[str, Ship | int] = {"ant": MIXED, "bee": 6}
FIVE = [batch("ant", "05 10:00", nodes=5), batch("bee", "06 10:00", nodes=6)]
LIMITS = {
    "one node too many at once": Case(
        TOGETHER,
        ("out_at_once", "limits[1]", 10, 9),
        limits({"kind": "crews", "at_most": 2}, {"kind": "out_at_once", "at_most": 9}),
    ),
    "as many as allowed at once": Case(TOGETHER, None, limits({"kind": "out_at_once", "at_most": 10})),
    "one ends when the other starts": Case(
        [ANT, batch("bee", "05 12:00", nodes=6)],
        None,
        limits({"kind": "out_at_once", "at_most": 6}, {"kind": "crews", "at_most": 1}),
    ),
    "out at once overlaps by one slot": Case(
        [batch("ant", "05 10:00", nodes=4, hours=4), batch("bee", "05 12:00", nodes=6)],
        ("out_at_once", "limits[0]", 10, 9),
        limits(
            {"kind": "out_at_once", "at_most": 9},
            work=[
                {"scope": {"cluster": "ant"}, "mode": "whole", "hours": 4},
                {"scope": {}, "mode": "whole", "hours": 2},
            ],
        ),
    ),
    "what is out of the limit's scope does not count": Case(
        TOGETHER, None, limits({"kind": "out_at_once", "at_most": 6, "scope": {"cluster": "bee"}})
    ),
    "GPUs at once": Case(
        TOGETHER, ("out_at_once", "limits[0]", 80, 79), limits({"kind": "out_at_once", "unit": "gpus", "at_most": 79})
    ),
    "A100-equivalents at once, by SKU": Case(
        FIVE,
        ("out_at_once", "limits[0]", 204.8, 204.7),  # 3 x 8 x 3.2 + 2 x 8 x 8
        limits({"kind": "out_at_once", "unit": "a100e", "at_most": 204.7}),
        BY_SKU,
    ),
    "A100-equivalents just as many as allowed": Case(
        FIVE, None, limits({"kind": "out_at_once", "unit": "a100e", "at_most": 204.8}), BY_SKU
    ),
    "a SKU that nobody has weighed": Case(
        [batch("ant", "05 10:00", nodes=1)],
        ("unknown_weight", "limits[0]", "B900", None),
        limits({"kind": "out_at_once", "unit": "a100e", "at_most": 1}),
        {"ant": Ship({"B900": 1})},
    ),
    "a scope of SKUs counts such nodes alone": Case(
        FIVE,
        ("out_at_once", "limits[0]", 2, 1),
        limits({"kind": "out_at_once", "at_most": 1, "scope": {"sku": "GB200"}}),
        BY_SKU,
    ),
    "a share of the limit's scope": Case(
        FIVE,
        ("out_at_once", "limits[0]", 6, 5.4),  # 0.6 of the nine nodes of H100
        limits({"kind": "out_at_once", "at_most_share": 0.6, "of": "scope", "scope": {"sku": "H100"}}),
        BY_SKU,
    ),
    "a share that a float has a little less of": Case(
        # 0.29 x 100 are 28.999999999999996.
        [batch("ant", "05 10:00", nodes=29), batch("bee", "06 10:00", nodes=71)],
        None,
        limits({"kind": "out_at_once", "at_most_share": 0.29, "days": ["mon"]}),
        {"ant": 29, "bee": 71},
    ),
    "a share of the fleet is of what is in production": Case(
        [ANT, BEE],
        ("out_at_once", "limits[0]", 6, 5),
        limits(
            {"kind": "out_at_once", "at_most_share": 0.5, "of": "fleet", "scope": {"cluster": ["bee"]}},
            scope={"phase": "production"},
        ),
        {"ant": 4, "bee": 6, "cub": Ship({"H100": 90}, phase="planned")},
    ),
    "nodes that stay out count until they are repaired": Case(
        [ANT, batch("bee", "06 10:00", nodes=6)],
        ("out_at_once", "limits[0]", 8, 7),  # two of four are still out, 22 h later
        limits({"kind": "out_at_once", "at_most": 7}, expect=STAYS),
    ),
    "nodes that stay out are back after a day": Case(
        [ANT, BEE], None, limits({"kind": "out_at_once", "at_most": 6}, expect=STAYS)
    ),
    "the first expectation that matches is the one": Case(
        [ANT, batch("bee", "06 10:00", nodes=6)],
        ("out_at_once", "limits[0]", 7, 6),
        limits(
            {"kind": "out_at_once", "at_most": 6},
            expect=[
                {"scope": {"cluster": "ant"}, "non_return_share": 0.1, "repair_days": 1},
                {"scope": {}, "non_return_share": 1, "repair_days": 1},
            ],
        ),
    ),
    "nodes that stay out need no crew": Case(
        [ANT, batch("bee", "06 10:00", nodes=6)], None, limits({"kind": "crews", "at_most": 1}, expect=STAYS)
    ),
    "a limit that begins to hold at midnight": Case(
        [batch("ant", "05 14:00", nodes=4), batch("bee", "07 10:00", nodes=6)],
        ("out_at_once", "limits[0]", 2, 1),
        limits(
            {"kind": "out_at_once", "at_most": 1, "from": "2026-01-06", "until": "2026-01-06"},
            expect=STAYS | {"repair_days": 0.5},
        ),
    ),
    "a limit that holds no longer": Case(
        TOGETHER, None, limits({"kind": "out_at_once", "at_most": 1, "from": "2026-01-06"})
    ),
    "a limit on Mondays": Case(
        [ANT, BEE], ("out_at_once", "limits[0]", 4, 3), limits({"kind": "out_at_once", "at_most": 3, "days": ["mon"]})
    ),
    "too many nodes go out on one day": Case(
        [ANT, batch("bee", "05 14:00", nodes=6)],
        ("out_per_day", "limits[0]", 10, 9),
        limits({"kind": "out_per_day", "at_most": 9}),
    ),
    "nodes that go out on two days": Case([ANT, BEE], None, limits({"kind": "out_per_day", "at_most": 6})),
    "nodes per day until a day": Case(
        [ANT, BEE],
        ("out_per_day", "limits[0]", 4, 3),
        limits({"kind": "out_per_day", "at_most": 3, "until": "2026-01-05"}),
    ),
    "two units begin on one day": Case(
        [ANT, batch("bee", "05 14:00", nodes=6)],
        ("starts_per_day", "limits[0]", 2, 1),
        limits({"kind": "starts_per_day", "at_most": 1}),
    ),
    "a unit begins with its first batch alone": Case(
        rolling("ant", "05 10:00", "06 10:00", "07 10:00"),
        None,
        limits({"kind": "starts_per_day", "at_most": 0, "from": "2026-01-06"}, work=ROLLING),
        TEN,
    ),
    "two crews at once": Case(TOGETHER, ("crews", "limits[0]", 2, 1), limits({"kind": "crews", "at_most": 1})),
    "crews of a scope": Case(TOGETHER, None, limits({"kind": "crews", "at_most": 1, "scope": {"cluster": "ant"}})),
    "more lost on average than allowed": Case(
        # (4 + 6) x 2 hours over 10 nodes x 72 hours are 1/36.
        [ANT, BEE],
        ("average_loss", "limits[0]", pytest.approx(1 / 36), 0.0277),
        limits({"kind": "average_loss", "at_most_share": 0.0277}),
    ),
    "lost on average just as allowed": Case(
        # ten nodes for 72 hours, of which (2 x 2 + 3 x 24) hours and 2 x 4, 2 x 6: 20 / 720 without stays
        [ANT, BEE],
        None,
        limits({"kind": "average_loss", "at_most_share": 20 / 720}),
    ),
    "what stays out beyond the deadline is lost as well": Case(
        # 4 x 2 + 2 x 24 + 6 x 2 + 3 x 24 = 140 of 720 node-hours
        [ANT, batch("bee", "07 14:00", nodes=6)],
        ("average_loss", "limits[0]", pytest.approx(140 / 720), 0.194),
        limits({"kind": "average_loss", "at_most_share": 0.194}, expect=STAYS),
    ),
    "lost on one day": Case(
        # Tuesday: 2 nodes stay until 12:00 (24 node-hours), bee 6 x 2, then 3 x 10: 66 of 240
        [ANT, BEE],
        ("average_loss", "limits[0]", pytest.approx(66 / 240), 0.27),
        limits({"kind": "average_loss", "at_most_share": 0.27, "days": ["tue"]}, expect=STAYS),
    ),
    "average loss in A100-equivalents of the fleet": Case(
        # ant alone: 204.8 x 2 hours over (204.8 + 6 x 25.6) x 72
        FIVE,
        ("average_loss", "limits[0]", pytest.approx(204.8 * 2 / (358.4 * 72)), 0.0158),
        limits(
            {
                "kind": "average_loss",
                "unit": "a100e",
                "at_most_share": 0.0158,
                "of": "fleet",
                "scope": {"cluster": "ant"},
            }
        ),
        BY_SKU,
    ),
}

STOCKHOLM = {"tz": "Europe/Stockholm"}
SPRING = {"start": "2026-03-28", "deadline": "2026-03-30"}
AUTUMN = {"start": "2026-10-24", "deadline": "2026-10-26"}
NIGHT: dict[str, Any] = {"hours": [1, 6], **STOCKHOLM}
SHORT = [{"scope": {}, "mode": "whole", "hours": 1}]
CLOCKS = {
    "days are those of the window's zone": Case(
        [batch("ant", "07 23:30", nodes=4, hours=1)],
        ("past_deadline", "deadline", "2026-01-08", "2026-01-07"),
        {"window": {"hours": [0, 24], **STOCKHOLM}, "slot_minutes": 30, "work": SHORT},
        {"ant": 4},
    ),
    "a window after the clock was put forward is an hour shorter": Case(
        # From 01:00 to 06:00 on 29 March are four hours; three from 01:00 end at 05:00, four from 03:00 at 07:00.
        [batch("ant", "2026-03-29 03:00", nodes=4, hours=4, tz="Europe/Stockholm")],
        ("outside_window", "window.hours", "07:00", "01:00 to 06:00 Europe/Stockholm"),
        {**SPRING, "window": NIGHT, "slot_minutes": 60, "work": [{"scope": {}, "mode": "whole", "hours": 4}]},
        {"ant": 4},
    ),
    "four real hours fit from one to six": Case(
        [batch("ant", "2026-03-29 01:00", nodes=4, hours=4, tz="Europe/Stockholm")],
        None,
        {**SPRING, "window": NIGHT, "slot_minutes": 60, "work": [{"scope": {}, "mode": "whole", "hours": 4}]},
        {"ant": 4},
    ),
    "the second time that clocks show half past two is no slot": Case(
        [batch("ant", "2026-10-25 01:30", nodes=4, hours=1)],
        ("off_slot", "slot_minutes", "02:30:00", None),
        {**AUTUMN, "window": NIGHT, "slot_minutes": 30, "work": SHORT},
        {"ant": 4},
    ),
    "the first time that clocks show half past two is a slot": Case(
        [batch("ant", "2026-10-25 00:30", nodes=4, hours=1)],
        None,
        {**AUTUMN, "window": NIGHT, "slot_minutes": 30, "work": SHORT},
        {"ant": 4},
    ),
    "rolling over the change keeps the local hour": Case(
        rolling("ant", "2026-03-28 10:00", "2026-03-29 10:00", "2026-03-30 10:00", tz="Europe/Stockholm"),
        None,
        {**SPRING, "window": {"hours": [10, 16], **STOCKHOLM}, "work": ROLLING},
        TEN,
    ),
    "rolling over the change at the same hour of UTC is another hour": Case(
        [
            *rolling("ant", "2026-03-28 10:00", "2026-03-29 10:00", "2026-03-30 12:00", tz="Europe/Stockholm"),
        ],
        ("other_hour", "work", "12:00", "10:00"),
        {**SPRING, "window": {"hours": [10, 16], **STOCKHOLM}, "work": ROLLING},
        TEN,
    ),
    "the hours of a campaign are real hours": Case(
        # 71 hours from 28 to 30 March: 4 x 2 / (4 x 71) is over 2/72.
        [batch("ant", "2026-03-28 10:00", nodes=4, tz="Europe/Stockholm")],
        ("average_loss", "limits[0]", pytest.approx(2 / 71), 2 / 72),
        limits({"kind": "average_loss", "at_most_share": 2 / 72}, **SPRING, window={"hours": [10, 16], **STOCKHOLM}),
        {"ant": 4},
    ),
}

CASES = {**STRUCTURE, **WHEN, **LIMITS, **CLOCKS}


@pytest.mark.parametrize("name", CASES)
def test_finds(name: str) -> None:
    case = CASES[name]
    checked = check_plan(campaign_of(**case.file), fleet_of(**case.ships), case.batches)
    if case.want is None:
        assert checked.problems == ()
        return
    assert checked.problems, "nothing was found"
    left_out = [each for each in checked.problems if each.code is Code.UNIT_MISSING]
    first = next((each for each in checked.problems if each not in left_out), checked.problems[0])
    want_code, want_rule, want_found, want_allowed = case.want
    assert (first.code, first.rule) == (want_code, want_rule), first.text
    assert first.found == (pytest.approx(want_found) if isinstance(want_found, float) else want_found)
    assert first.allowed == (pytest.approx(want_allowed) if isinstance(want_allowed, float) else want_allowed)
    alone = {each.code for each in checked.problems} - {Code.UNIT_MISSING}
    assert alone <= {first.code}, [each.text for each in checked.problems]
    assert first.text


def test_every_code_has_a_case() -> None:
    seen = {case.want[0] for case in CASES.values() if case.want}
    assert set(Code) - seen == {Code.OBJECTIVE}


def test_a_problem_says_where() -> None:
    campaign = campaign_of(limits=[{"kind": "out_at_once", "at_most": 9}])
    problem = check_plan(campaign, fleet_of(ant=4, bee=6), TOGETHER).problems[0]
    assert (problem.day, problem.moment) == (date(2026, 1, 5), TOGETHER[0].start)
    assert problem.text == "limits[0] (out_at_once, everything): 10 nodes out at once, 2026-01-05 10:00; at most 9"


def test_other_outages_count_where_a_limit_counts_all() -> None:
    campaign = campaign_of(limits=[{"kind": "out_at_once", "at_most": 11, "counts": "all"}])
    fleet = fleet_of(ant=4, bee=6)
    assert check_plan(campaign, fleet, TOGETHER, elsewhere={0: 1}).is_valid
    assert [each.found for each in check_plan(campaign, fleet, TOGETHER, elsewhere={0: 2}).problems] == [12]


SPREAD = {
    "order": [{"scope": {"cluster": "ant"}, "weight": 3}],
    "spread": {"scope": {"purpose": "applied"}, "over": "area"},
    "objective": {"exposure": 2, "imbalance": 100, "peak": 10},
    "expect": STAYS,
}
APPLIED: dict[str, Ship | int] = {
    "ant": Ship({"H100": 4}, purpose="applied"),
    "bee": Ship({"H100": 6}, purpose="applied", area="eu"),
    "cat": Ship({"H100": 2}, purpose="applied", area="eu"),
    "dog": Ship({"H100": 5}, area="uk"),
}
OBJECTIVE = [
    batch("ant", "06 10:00", nodes=4),
    batch("bee", "06 10:00", nodes=6),
    batch("cat", "07 14:00", nodes=2),
    batch("dog", "05 10:00", nodes=5),
]


def test_the_objective_by_hand() -> None:
    """Exposure 3 x 4 x 1 + 6 x 1 + 2 x 2 + 0. On the 6th 4/4 of us and 6/8 of eu go, on the 7th 0 and 2/8: twice 1/4;
    uk is not in the spread's scope. On the 6th at 10:00 ant, bee and three of dog are out."""
    checked = check_plan(campaign_of(**SPREAD), fleet_of(**APPLIED), OBJECTIVE)
    assert checked.problems == ()
    assert checked.score == Score(total=44 + 50 + 130, exposure=22, imbalance=0.5, peak=13)


def test_an_objective_that_is_not_the_plans() -> None:
    checked = check_plan(campaign_of(**SPREAD), fleet_of(**APPLIED), OBJECTIVE)
    assert check_score(Score(total=224, exposure=22, imbalance=0.5, peak=13), checked) is None
    problem = check_score(Score(total=224, exposure=22, imbalance=0.5, peak=12), checked)
    assert problem is not None
    assert (problem.code, problem.found, problem.allowed) == (Code.OBJECTIVE, 12, 13)


def test_a_part_of_a_weight_is_missing() -> None:
    checked = check_plan(campaign_of(**SPREAD | {"objective": {"peak": 1}}), fleet_of(**APPLIED), OBJECTIVE)
    assert checked.score.total == 13
    checked = check_plan(campaign_of(**SPREAD | {"objective": None}), fleet_of(**APPLIED), OBJECTIVE)
    assert checked.score.total == 22
