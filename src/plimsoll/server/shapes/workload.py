"""Shapes of the answers of `plimsoll workload`. In GPUs."""

from __future__ import annotations

from plimsoll.server.shapes.derive import object_of, part_of
from plimsoll.server.shapes.model import (
    DRY_RUN,
    FLAG,
    INTEGER,
    NUMBER,
    REVISION,
    SHARE,
    TEXT,
    TIME,
    WRITTEN,
    Shape,
    always,
    choice,
    joined,
    many,
    maps,
    maybe,
    named,
    noted,
    obj,
    one_of,
    without,
)
from plimsoll.workloads.defrag import Step
from plimsoll.workloads.desk import Outcome
from plimsoll.workloads.model import TeamHold, Victim
from plimsoll.workloads.reasons import Cause, Move
from plimsoll.workloads.view import PartView, PoolUse, Standing, Use

UPTIME = named(
    "WorkloadUptimeTold",
    obj(
        uptime_share=maybe(NUMBER),
        goodput_share=maybe(NUMBER),
        hours=NUMBER,
        running_hours=NUMBER,
        down_hours=NUMBER,
        lost_hours=NUMBER,
        restart_hours=NUMBER,
        gpu_hours=NUMBER,
        lost_gpu_hours=NUMBER,
        interruptions=INTEGER,
        interruptions_per_day=maybe(NUMBER),
        by_cause=maps(INTEGER, "Interruptions."),
    ),
    "What gangs made of their time. Shares are null where nothing ran.",
)
RUNS_AS = noted(choice("guaranteed", "flex", "mixed", "-"), "`-`: it holds nothing.")
WAITS = named(
    "WorkloadWaitsTold",
    obj(
        code=choice(Cause),
        move=choice(Move),
        needs=INTEGER,
        missing=INTEGER,
        cluster=noted(TEXT, "Where it comes closest to running."),
        sku=TEXT,
        island=TEXT,
        keeps_island=noted(FLAG, "The island is kept free for it."),
        starts=maybe(TIME, "As far as is known."),
        text=TEXT,
    ),
    "Why a workload waits.",
)
PART_FULL = joined(object_of(PartView, wanted="All it could use.", islands="GPUs by island."), obj(**{"as": RUNS_AS}))
PART = without(PART_FULL, "nodes", "spare_nodes")
WORK = named(
    "Workload",
    obj(
        workload=TEXT,
        team=TEXT,
        owner=TEXT,
        standing=choice(Standing),
        as_=RUNS_AS,
        cluster=noted(TEXT, "Empty while nothing is chosen."),
        sku=noted(TEXT, "Empty while nothing is chosen."),
        gpus=noted(INTEGER, "What it holds, spares among them."),
        wanted=noted(INTEGER, "What it asks for, without spares."),
        submitted=maybe(TIME, "Null for work that was only observed."),
        is_observed=FLAG,
        waits=maybe(WAITS),
        starts_by=maybe(TIME, "Null unless room was called back for it."),
        victims=many(object_of(Victim), "Who gives that room up."),
        leaves_for=many(TEXT, "Workloads for which some of it was called back."),
        parts=many(PART),
    ),
    "A workload that runs or waits.",
)
INTERRUPTION = obj(
    part=TEXT,
    at=TIME,
    because=TEXT,
    by=noted(TEXT, "The node, or the workload that came first."),
    detail=TEXT,
    gpus=INTEGER,
    down_hours=NUMBER,
)
SHOWN = named(
    "WorkloadShown",
    joined(
        obj(revision=REVISION),
        WORK,
        obj(parts=many(PART_FULL), uptime=UPTIME, interruptions=many(INTERRUPTION, "The oldest first.")),
    ),
    "A workload that runs or waits, with its nodes and its past.",
)
OVER = named(
    "WorkloadOver",
    obj(
        revision=REVISION,
        workload=TEXT,
        team=TEXT,
        standing=always("over"),
        how=TEXT,
        ended=TIME,
        cluster=TEXT,
        sku=TEXT,
        uptime=maybe(UPTIME),
    ),
    "A workload that is over.",
)
CHANGED = many(TEXT, "Other workloads that it started, called back or changed.")
RESCALED = joined(WRITTEN, WORK, obj(changed=CHANGED))
ENDED = joined(WRITTEN, obj(workload=TEXT, how=TEXT, gpus=noted(INTEGER, "Given back."), changed=CHANGED))
HOLD = part_of(TeamHold, keeper="For whom it is kept.")
HELD = joined(WRITTEN, obj(hold=HOLD))

SHAPES: dict[str, Shape] = {
    "workload submit": joined(
        WRITTEN, obj(workloads=many(joined(WORK, obj(outcome=noted(choice(Outcome), "`same`: nothing changed.")))))
    ),
    "workload list": obj(revision=REVISION, workloads=many(WORK)),
    "workload show": one_of(SHOWN, OVER),
    "workload scale": RESCALED,
    "workload rank": RESCALED,
    "workload cancel": ENDED,
    "workload finish": ENDED,
    "workload usage": obj(
        revision=REVISION, team=TEXT, pools=many(part_of(PoolUse)), uses=many(part_of(Use)), holds=many(HOLD)
    ),
    "workload hold": HELD,
    "workload holds": obj(revision=REVISION, holds=many(HOLD)),
    "workload release": HELD,
    "workload uptime": obj(
        revision=REVISION,
        goal=SHARE,
        all=UPTIME,
        teams=many(joined(obj(team=TEXT), UPTIME)),
        workloads=many(joined(obj(team=TEXT, workload=TEXT), UPTIME)),
    ),
    "workload defrag": obj(
        applied=FLAG,
        dry_run=DRY_RUN,
        revision=REVISION,
        cluster=TEXT,
        sku=TEXT,
        island=TEXT,
        gpus=INTEGER,
        free_after=INTEGER,
        moves=many(part_of(Step)),
        gpus_disturbed=INTEGER,
        is_proven=noted(FLAG, "No plan has fewer moves."),
    ),
    "workload run": joined(
        WRITTEN,
        obj(changes=many(obj(kind=noted(TEXT, "Of the event."), workload=TEXT, because=TEXT, by=TEXT))),
    ),
}
