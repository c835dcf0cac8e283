"""Shapes of the answers of `plimsoll health`."""

from __future__ import annotations

from plimsoll.fleet.model import Service
from plimsoll.health.checks import Answered
from plimsoll.health.decide import Outcome
from plimsoll.health.facts import Facts, Hold
from plimsoll.health.levels.losses import Loss, Offender, Outage
from plimsoll.health.levels.measure import Level, LevelsBy, Point
from plimsoll.health.model import Ahead
from plimsoll.health.service import Observed
from plimsoll.health.view import Present
from plimsoll.server.shapes.derive import full_object_of, object_of, part_of
from plimsoll.server.shapes.model import (
    DRY_RUN,
    FLAG,
    INTEGER,
    NUMBER,
    SHARE,
    STAMP,
    TEXT,
    TIME,
    WRITTEN,
    Shape,
    at_times,
    choice,
    joined,
    many,
    maps,
    maybe,
    named,
    noted,
    obj,
    one_of,
)

_GOALS = obj(in_service_share=NUMBER, mttr_hours=NUMBER)
HOLD = part_of(
    Hold,
    is_exclusive="Its owner works on the node; nobody else may.",
    scope="The words by which the nodes were named.",
    signal="What an automated hold answers.",
    drains_until="Work may go on until then.",
    whose_move="Whose move it is while the hold lasts.",
)
AHEAD, OUTCOME = part_of(Ahead), part_of(Outcome)
LEVEL = part_of(
    Level,
    net_of_planned_share="The same with planned work left out.",
    repairs="Unplanned outages that ended.",
    planned_work="Planned outages that ended.",
    recovery="Null by node and in `before`.",
)

NODE = joined(
    STAMP,
    obj(
        node=TEXT,
        cluster=TEXT,
        island=TEXT,
        sku=TEXT,
        service=choice(Service),
        since=maybe(TIME),
        facts=noted(full_object_of(Facts), "Empty or null where there is none."),
        feeds=many(TEXT, "The feeds that watch it."),
        holds=many(HOLD),
        waits_for=many(obj(check=TEXT, what=TEXT), "Checks that are missing before it returns."),
        problems=many(obj(signal=TEXT, action=TEXT, why=TEXT, is_active=FLAG)),
        held_back_by=many(obj(scope=TEXT, since=TIME), "Breakers that keep it in service."),
        exits=noted(INTEGER, "Unplanned ones, in the time that the policy looks at for lemons."),
        timeline=many(obj(time=TIME, service=choice(Service), reason=TEXT), "Newest first."),
    ),
)

POOL_AHEAD = named(
    "HealthForecastPool",
    obj(
        cluster=TEXT,
        sku=TEXT,
        total=INTEGER,
        healthy=INTEGER,
        promised=noted(INTEGER, "`total` less `buffer`, never more than `healthy`."),
        buffer=INTEGER,
        buffer_share=SHARE,
        reserve=noted(INTEGER, "What one more burst with a common cause would take; not taken off."),
        nodes_out=noted(INTEGER, "In nodes."),
        method=TEXT,
        gpus_per_node=INTEGER,
        why=maps(NUMBER, "What the method used, or what set the floor."),
        common_cause=obj(
            reserve_nodes=INTEGER,
            held_nodes=INTEGER,
            burst_nodes=INTEGER,
            burst_count=INTEGER,
            bursts_per_year=NUMBER,
            domain=maybe(TEXT),
            is_borrowed=noted(FLAG, "Taken from what the fleet has seen."),
        ),
        planned=many(obj(begin=TIME, end=TIME, nodes=INTEGER)),
        down=many(
            obj(
                node=TEXT,
                service=choice(Service),
                since=maybe(TIME),
                reason=TEXT,
                is_planned=FLAG,
                expected_back=TIME,
                is_told=noted(FLAG, "Somebody said so; else it is a guess by history."),
            )
        ),
        methods=many(
            obj(
                method=TEXT,
                violation_rate=noted(SHARE, "With the fleet's record mixed in."),
                own_violation_rate=SHARE,
                buffer_nodes=NUMBER,
            )
        ),
        past=at_times(many(obj(time=TIME, gpus=INTEGER), "Healthy: the lowest of some hours. Of one cluster only.")),
        ahead=at_times(
            many(
                obj(time=TIME, low=INTEGER, gpus=INTEGER, high=INTEGER),
                "What is expected: the middle, and all but rare cases on either side. Of one cluster only.",
            )
        ),
    ),
)
FORECAST = joined(
    STAMP,
    obj(
        from_=noted(TIME, "Now, or `as_of`."),
        until=TIME,
        history_until=noted(TIME, "The last transition told."),
        horizon_hours=INTEGER,
        target=noted(NUMBER, "The share of hours in which the promise must hold."),
        history_days=NUMBER,
        history_is_short=FLAG,
        horizons_judged=INTEGER,
        totals=obj(total=INTEGER, promised=INTEGER, buffer=INTEGER),
        colo_bursts=maps(INTEGER, "By colo: how often several of its pools were hit together."),
        pools=many(POOL_AHEAD),
    ),
)

SCORE = named(
    "HealthScore",
    obj(
        method=TEXT,
        violation_rate=SHARE,
        worst_cluster=TEXT,
        worst_violation_rate=SHARE,
        buffer_share=SHARE,
        shortfall_mean=noted(NUMBER, "Nodes missing, on average over violated hours."),
        violation_to_hindsight=maybe(NUMBER),
        buffer_to_hindsight=maybe(NUMBER),
        buffer_to_worst=maybe(NUMBER),
        hindsight_buffer_share=SHARE,
    ),
    "How a method would have done. Ratios are null where the yardstick is 0 or was not run.",
)
BACKTEST = obj(
    from_=TIME,
    until=TIME,
    window_hours=INTEGER,
    horizon_hours=INTEGER,
    target=NUMBER,
    methods=many(SCORE),
    hindsight=SCORE,
    recommended=maybe(TEXT),
    recommended_keeps_target=maybe(FLAG),
    recommended_for_each=maybe(TEXT, "The method that promises something to each cluster."),
    clusters=many(obj(cluster=TEXT, method=TEXT, violated_hours=INTEGER, hours=INTEGER, buffer_share=SHARE)),
    skipped=many(TEXT, "Clusters that were left out."),
    decisions=many(
        obj(
            cluster=TEXT,
            method=TEXT,
            at=TIME,
            until=TIME,
            total=noted(INTEGER, "In nodes."),
            promised=noted(INTEGER, "In nodes."),
            violated_hours=INTEGER,
        )
    ),
)

PERIOD = joined(STAMP, obj(from_=TIME, to=TIME))
SLO = joined(
    PERIOD,
    obj(
        days=NUMBER,
        by=choice(LevelsBy),
        goals=_GOALS,
        storm_gap_minutes=NUMBER,
        history_from=maybe(TIME, "The first transition known."),
        total=LEVEL,
        group_count=noted(INTEGER, "Of all groups."),
        groups=many(LEVEL, "Worst first."),
        reasons=many(part_of(Loss)),
        offenders=obj(
            lemons=many(TEXT),
            lemon_exits=INTEGER,
            lemon_days=NUMBER,
            by_interruptions=many(part_of(Offender), "100 at most."),
            by_gpu_hours=many(part_of(Offender), "100 at most."),
        ),
        trend=obj(before=maybe(LEVEL), series=many(part_of(Point))),
        not_in_production=maps(INTEGER, "Nodes by cluster."),
        contradicted=many(TEXT, "Nodes that are not in the service that their history ends in."),
    ),
)
OUTAGES = joined(
    PERIOD,
    obj(
        count=noted(INTEGER, "Of all that match."),
        totals=noted(
            obj(
                node_hours_out_planned=NUMBER,
                node_hours_out_unplanned=NUMBER,
                gpu_hours_lost=NUMBER,
                interruptions_planned=INTEGER,
                interruptions_unplanned=INTEGER,
                repair_count=INTEGER,
                mttr_hours=maybe(NUMBER),
                open=INTEGER,
            ),
            "Of all that match.",
        ),
        outages=many(part_of(Outage, ended="Null where it was open at the end of the period."), "Newest first."),
    ),
)

ACTED = joined(WRITTEN, obj(count=noted(INTEGER, "Nodes that were meant."), outcome=OUTCOME))
FED = obj(
    dry_run=DRY_RUN,
    observed=part_of(Observed),
    notes=many(TEXT),
    steered=many(obj(node=TEXT, act=choice("drain", "resume"), reason=TEXT), "What was done in the scheduler."),
)
POLICY = obj(policy=TEXT, xid_profile=TEXT)

SHAPES: dict[str, Shape] = {
    "health show": one_of(joined(STAMP, obj(goals=_GOALS, present=part_of(Present))), NODE),
    "health slo": SLO,
    "health outages": OUTAGES,
    "health forecast": FORECAST,
    "health backtest": BACKTEST,
    "health signal": FED,
    "health observe signals": FED,
    "health observe kubernetes": FED,
    "health observe prometheus": FED,
    "health observe slurm": FED,
    "health set": ACTED,
    "health hold": ACTED,
    "health release": ACTED,
    "health tick": ACTED,
    "health breaker": ACTED,
    "health sweep": joined(
        WRITTEN,
        obj(
            outcome=OUTCOME,
            silent=many(TEXT, "Feeds that have fallen silent."),
            expired=many(obj(node=TEXT, hold=HOLD)),
            checks=many(object_of(Answered)),
            over=many(AHEAD),
        ),
    ),
    "health holds": joined(STAMP, obj(holds=many(obj(node=TEXT, hold=HOLD)))),
    "health announce": joined(
        WRITTEN, obj(is_new=noted(FLAG, "False: announced already, nothing changed."), ahead=AHEAD)
    ),
    "health announced": joined(STAMP, obj(ahead=many(AHEAD, "What starts first first."))),
    "health withdraw": joined(WRITTEN, obj(ahead=AHEAD)),
    "health policy show": joined(POLICY, obj(is_default=FLAG, text=noted(TEXT, "The file."))),
    "health policy check": joined(POLICY, obj(rules=noted(INTEGER, "How many."))),
    "health policy apply": joined(POLICY, WRITTEN),
}
