"""Shapes of the answers of `plimsoll campaign`. In nodes, unless another unit is said."""

from __future__ import annotations

from plimsoll.campaigns.check.found import Code as ProblemCode
from plimsoll.campaigns.compare import Compared
from plimsoll.campaigns.impossible.explain import Colliding, Relaxation
from plimsoll.campaigns.model import Mode, Score, Status
from plimsoll.campaigns.publish.changes import ChangeKind
from plimsoll.campaigns.run.gate import Code as GateCode
from plimsoll.campaigns.run.progress import Phase, Step
from plimsoll.campaigns.run.status import View
from plimsoll.campaigns.versions.behind import Lag
from plimsoll.campaigns.versions.blocked import HeldBack
from plimsoll.campaigns.versions.combinations import Place
from plimsoll.campaigns.versions.model import Result, Verdict
from plimsoll.fleet.model import Service
from plimsoll.fleet.sheet import Difference
from plimsoll.server.shapes.derive import object_of, part_of
from plimsoll.server.shapes.fleet import COUNTS
from plimsoll.server.shapes.incident import INCIDENT
from plimsoll.server.shapes.incident import SHAPES as INCIDENTS
from plimsoll.server.shapes.model import (
    DAY,
    DRY_RUN,
    FLAG,
    INTEGER,
    NUMBER,
    REVISION,
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

UNIT = noted(TEXT, "A cluster, or cluster/value where a node label splits it.")
SCORE = part_of(Score)
PLAN = obj(
    campaign=TEXT,
    number=noted(INTEGER, "Of the plan, from 1."),
    status=choice(Status),
    objective=maybe(SCORE, "Null where there is no plan."),
    bound=maybe(NUMBER, "No plan has a smaller total."),
    gap=maybe(NUMBER, "(total - bound) / max(1, total)"),
    seconds=noted(NUMBER, "How long was searched."),
    batches=many(
        obj(
            cluster=UNIT,
            mode=choice(Mode),
            batch=noted(INTEGER, "The number of the unit's batch, from 1."),
            nodes=INTEGER,
            start=noted(TIME, "With the offset of the window's zone."),
            end=TIME,
        )
    ),
    conflict=many(part_of(Colliding), "Limits that collide: without any one there is a plan."),
    relaxations=many(part_of(Relaxation)),
    greedy=at_times(
        noted(joined(SCORE, obj(gap=maybe(NUMBER))), "First fit in the order of the file, where it finds a plan.")
    ),
    impactless=maps(INTEGER, "By cluster: nodes that can be taken at any time."),
    notes=many(TEXT),
    seed=maybe(INTEGER),
    moved=many(TEXT, "Batches that the plan in force has at another time."),
    dry_run=DRY_RUN,
    revision=REVISION,
    with_moves=at_times(
        noted(
            obj(total=NUMBER, bound=maybe(NUMBER), gap=maybe(NUMBER)),
            "After a replan: the proof is about the total with what moves weigh.",
        )
    ),
)
PROBLEM = obj(
    code=choice(ProblemCode),
    rule=noted(TEXT, "Its place in the file."),
    unit=maybe(TEXT),
    day=maybe(DAY),
    found={"type": ["number", "string", "null"]},
    allowed={"type": ["number", "string", "null"]},
    text=TEXT,
)
MOVED = joined(obj(campaign=TEXT, phase=choice(Phase)), WRITTEN)
LISTED = obj(
    campaign=TEXT,
    phase=choice(Phase),
    plan=noted(INTEGER, "The number of the plan in force."),
    batches=INTEGER,
    nodes=INTEGER,
    done=INTEGER,
    first=maybe(TIME),
    last=maybe(TIME),
)
STANDING = named(
    "CampaignStanding",
    joined(object_of(View), obj(phase=choice(Phase), incident=maybe(INCIDENT))),
    "A campaign as it stands.",
)
BATCH = named(
    "CampaignBatchShown",
    obj(
        campaign=TEXT,
        batch=TEXT,
        step=choice(Step),
        start=TIME,
        end=TIME,
        nodes=many(
            obj(
                node=TEXT,
                island=maybe(TEXT),
                sku=maybe(TEXT),
                gpus=maybe(INTEGER),
                service=maybe(choice(Service)),
                came_back=maybe(FLAG, "Null while nobody knows."),
            )
        ),
    ),
    "One batch with its nodes. Where a node is no longer in the fleet the rest of it is null.",
)

CELL = named(
    "CampaignCell",
    obj(
        batch=TEXT,
        number=INTEGER,
        of=noted(INTEGER, "How many batches its cluster has."),
        mode=choice(Mode),
        nodes=INTEGER,
        day=noted(DAY, "In the window's zone."),
        start=TIME,
        end=TIME,
        start_local=noted(TIME, "As the window's clocks show it."),
        end_local=TIME,
        left=noted(NUMBER, "Where in the day's window it begins, from 0 to 1."),
        right=NUMBER,
        step=choice(Step),
        change=maybe(choice(ChangeKind), "What happened to it since the plan before."),
    ),
    "A batch on its day.",
)
UNIT_ROW = named(
    "CampaignUnitRow",
    obj(
        unit=UNIT,
        cluster=TEXT,
        area=TEXT,
        purpose=TEXT,
        nodes=INTEGER,
        is_canary=FLAG,
        batches=many(CELL),
        was=many(obj(day=DAY, batch=TEXT, start=TIME, nodes=INTEGER), "Where the plan before had it."),
        shut=many(obj(day=DAY, why=TEXT), "Days on which it may not be touched."),
    ),
    "A cluster's row of the calendar.",
)
CALENDAR = obj(
    campaign=TEXT,
    number=INTEGER,
    published=maybe(INTEGER, "The number that was told last."),
    phase=choice(Phase),
    today=DAY,
    start=DAY,
    deadline=DAY,
    window=obj(opens=TEXT, closes=TEXT, tz=TEXT, days=many(TEXT)),
    changes=many(obj(component=TEXT, version=TEXT)),
    roster=many(TEXT),
    confirms=noted(TEXT, "Who says that work is done."),
    has_command=noted(FLAG, "A command does the work, and nobody has to say so."),
    proof=obj(
        status=choice(Status),
        text=TEXT,
        total=maybe(NUMBER),
        exposure=maybe(NUMBER),
        imbalance=maybe(NUMBER),
        peak=maybe(NUMBER),
        bound=maybe(NUMBER),
        gap=maybe(NUMBER),
        greedy=maybe(NUMBER, "The total of first fit."),
    ),
    days=many(
        obj(
            day=DAY,
            is_open=FLAG,
            units=noted(INTEGER, "Clusters that begin."),
            batches=INTEGER,
            nodes=noted(INTEGER, "Going out."),
            peak=noted(INTEGER, "The most out at once."),
            cap=maybe(NUMBER, "The lowest limit on all nodes out at once."),
            areas=maps(INTEGER, "Nodes going out, by area."),
        )
    ),
    units=many(UNIT_ROW),
    areas=many(obj(area=TEXT, clusters=INTEGER, nodes=INTEGER, most_out=INTEGER, first_day=DAY, last_day=DAY)),
    curve=obj(areas=many(TEXT), points=many(obj(at=TIME, out=many(INTEGER, "By area."), work=INTEGER))),
    caps=many(obj(limit=TEXT, unit=TEXT, at_most=NUMBER, most=NUMBER, share=NUMBER, at=maybe(TIME))),
    lowest_cap=many(obj(from_=DAY, until=DAY, at_most=NUMBER)),
    since=maybe(INTEGER, "The number of the plan before."),
    changed=noted(INTEGER, "Batches that differ from it."),
    same=INTEGER,
)

VERSIONS = maps(TEXT, "By component.")
RELEVANT = maybe(many(TEXT), "The components that tell combinations apart; null: all of them.")
COMBINATION = named(
    "CampaignCombination",
    obj(
        versions=noted(VERSIONS, "By component; empty where nobody knows what is there."),
        verdict=choice(Verdict),
        tested=maybe(obj(versions=VERSIONS, result=choice(Result), at=TIME, by=TEXT, where=TEXT, note=TEXT)),
        nodes_now=INTEGER,
        nodes_most=INTEGER,
        nodes_after=INTEGER,
        since=maybe(TIME, "Null: since always."),
        until=maybe(TIME, "Null: for good."),
        is_made=noted(FLAG, "Some update makes it."),
        made_by=many(TEXT, "Campaigns."),
        held_by=many(TEXT, "No-fly zones."),
        clusters=many(part_of(Place)),
    ),
)
BY_CLUSTER = obj(cluster=TEXT, versions=VERSIONS, nodes=INTEGER)
BY_NODE = obj(node=TEXT, versions=VERSIONS)
BY_COMBINATION = obj(versions=VERSIONS, nodes=INTEGER, clusters=many(TEXT))
RECORDED = joined(WRITTEN, obj(is_new=noted(FLAG, "False: known already, nothing changed.")))

RUNNING: dict[str, Shape] = {
    "campaign start": obj(
        campaign=TEXT, number=INTEGER, dry_run=DRY_RUN, incident=noted(TEXT, "Its id."), revision=REVISION
    ),
    "campaign run": obj(did=many(obj(campaign=TEXT, batch=TEXT, act=TEXT, text=TEXT, failed=FLAG))),
    "campaign list": many(LISTED),
    "campaign status": one_of(STANDING, BATCH),
    "campaign calendar": CALENDAR,
    "campaign gate": obj(
        batch=TEXT,
        open=FLAG,
        reasons=many(
            obj(
                code=choice(GateCode),
                text=TEXT,
                move=noted(TEXT, "Whose move it is."),
                until=maybe(TIME, "When it is expected to pass, where that is known."),
            )
        ),
    ),
    "campaign tick": joined(obj(campaign=TEXT, batch=TEXT, nodes=INTEGER, lost=many(TEXT)), WRITTEN),
    "campaign agree": joined(obj(campaign=TEXT, workload=TEXT, batches=many(TEXT)), WRITTEN),
    "campaign returned": joined(obj(campaign=TEXT, nodes=INTEGER), WRITTEN),
    "campaign pause": MOVED,
    "campaign resume": MOVED,
    "campaign cancel": joined(MOVED, obj(under_way=many(TEXT, "Batches that are brought to their end."))),
    **{f"campaign {words}": INCIDENTS[words] for words in ("incident open", "incident note", "incident close")},
    "campaign incident list": INCIDENTS["incident list"],
}
SHAPES: dict[str, Shape] = RUNNING | {
    "campaign plan": PLAN,
    "campaign replan": PLAN,
    "campaign check": obj(campaign=TEXT, valid=FLAG, problems=many(PROBLEM), objective=SCORE),
    "campaign compare": object_of(Compared),
    "campaign publish": obj(
        campaign=TEXT,
        number=INTEGER,
        files=many(TEXT, "Paths."),
        did=maps(TEXT, "What was told where."),
        dry_run=DRY_RUN,
    ),
    "campaign combinations": joined(
        STAMP,
        obj(
            campaigns=many(TEXT),
            relevant=RELEVANT,
            combinations=many(COMBINATION),
            canaries=obj(
                clusters=many(obj(cluster=TEXT, nodes=INTEGER, covers=many(VERSIONS))),
                is_least=noted(FLAG, "No choice has fewer clusters, nor as few with fewer nodes."),
            ),
        ),
    ),
    "campaign tested": joined(RECORDED, obj(versions=VERSIONS, result=choice(Result), where=TEXT, note=TEXT)),
    "campaign want": joined(RECORDED, obj(versions=VERSIONS, scope=maps(many(TEXT)), is_withdrawn=FLAG)),
    "campaign blocked": joined(STAMP, obj(blocked=many(part_of(HeldBack)))),
    "campaign behind": joined(STAMP, obj(behind=many(part_of(Lag)))),
    "campaign versions import": obj(
        source=TEXT,
        dry_run=DRY_RUN,
        revision=REVISION,
        counts=COUNTS,
        differences=many(part_of(Difference, key="NODE COMPONENT"), "Rows that are new are counted, not listed."),
        warnings=many(TEXT),
    ),
    "campaign versions show": joined(
        STAMP,
        obj(
            relevant=RELEVANT,
            nodes=INTEGER,
            nodes_known=INTEGER,
            components=maps(maps(INTEGER), "Nodes by component and version."),
            by=many(one_of(BY_COMBINATION, BY_CLUSTER, BY_NODE)),
        ),
    ),
    "campaign versions relevant": joined(RECORDED, obj(relevant=RELEVANT)),
}
