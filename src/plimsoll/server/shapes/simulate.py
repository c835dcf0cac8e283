"""Shape of the answer of `plimsoll simulate replay`."""

from __future__ import annotations

from plimsoll.server.shapes.derive import object_of
from plimsoll.server.shapes.model import (
    INTEGER,
    NUMBER,
    TEXT,
    TIME,
    Shape,
    joined,
    many,
    maybe,
    noted,
    obj,
)
from plimsoll.simulate.measures import Counts, Waits

WAITS = object_of(Waits)

SHAPES: dict[str, Shape] = {
    "simulate replay": obj(
        trace=obj(source=TEXT, jobs=INTEGER, from_=TIME, until=TIME, gpu_hours=NUMBER),
        fleet=obj(
            pools=INTEGER,
            islands=INTEGER,
            nodes=INTEGER,
            gpus=INTEGER,
            healthy=INTEGER,
            guaranteed=INTEGER,
            largest_island=INTEGER,
            teams=INTEGER,
        ),
        settings=obj(
            seed=INTEGER,
            failures_per_1000_node_days=NUMBER,
            repair_hours=NUMBER,
            checkpoint_minutes=NUMBER,
            restart_minutes=NUMBER,
            grace_minutes=NUMBER,
        ),
        assumed=many(TEXT),
        refused=noted(obj(jobs=INTEGER, gpus_most=INTEGER, gpu_hours=NUMBER), "They fit nowhere, and were left out."),
        waits=noted(
            obj(
                all=WAITS,
                by_size=many(joined(obj(size=TEXT), WAITS)),
                by_tier=many(joined(obj(tier=TEXT), WAITS)),
            ),
            "Seconds from submit to first start.",
        ),
        utilisation_share=maybe(NUMBER),
        largest_block=obj(mean=maybe(NUMBER), least=INTEGER, of_possible_share=maybe(NUMBER), largest_island=INTEGER),
        preemptions=INTEGER,
        interruptions=obj(total=INTEGER, preempted=INTEGER, node_lost=INTEGER, repaired=INTEGER, moved=INTEGER),
        uptime_share=maybe(NUMBER),
        goodput_share=maybe(NUMBER),
        lost_gpu_hours=NUMBER,
        gpu_hours_run=NUMBER,
        broken_promises=obj(
            team_hours=NUMBER,
            of_team_hours=NUMBER,
            kept_share=maybe(NUMBER),
            waiting_team_hours=NUMBER,
            shortfall_team_hours=NUMBER,
            fragmented_team_hours=NUMBER,
            by_team=many(obj(team=TEXT, team_hours=NUMBER)),
        ),
        events=joined(obj(jobs=INTEGER), object_of(Counts)),
        unfinished_jobs=INTEGER,
        never_started_jobs=INTEGER,
        speed=noted(
            obj(seconds=NUMBER, job_events_per_second=NUMBER), "All but this is the same for the same trace and seed."
        ),
    ),
}
