"""Shapes of the answers of `plimsoll quota` about lines and alignment; requests are in `quota_requests`. In GPUs."""

from __future__ import annotations

from plimsoll.commands.quota.effects import Effect
from plimsoll.commands.quota.tell import Told
from plimsoll.quota.apply import Wait
from plimsoll.quota.control import Verdict
from plimsoll.quota.fill import Loss
from plimsoll.quota.flex import Availability, CalledBack, PoolFlex, TeamFlex
from plimsoll.quota.history.compare import Kept, PoolRow, TeamRow
from plimsoll.quota.history.course import PoolCourse
from plimsoll.quota.history.log import Line
from plimsoll.quota.history.promise import PromiseKept, Spell
from plimsoll.quota.model import Haircut, Mode, Notice
from plimsoll.quota.outlets.model import Cause
from plimsoll.quota.outlets.push import Result
from plimsoll.quota.pilot import Finding
from plimsoll.quota.plan import Summary
from plimsoll.quota.rollout import Stage
from plimsoll.server.shapes.derive import object_of, part_of
from plimsoll.server.shapes.model import (
    ANYTHING,
    DRY_RUN,
    FLAG,
    INTEGER,
    NUMBER,
    REVISION,
    STAMP,
    TEXT,
    TIME,
    TIME_OR_EMPTY,
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
)
from plimsoll.server.shapes.quota_requests import DUE
from plimsoll.server.shapes.quota_requests import SHAPES as REQUESTS

HAIRCUT = part_of(
    Haircut,
    unscheduled="Assigned, but nothing of the team runs on it.",
    idle="Under running work that does nothing.",
    running="Under work that does something.",
)
STAGE = noted(INTEGER, "1 nobody is cut, 2 only unscheduled, 3 idle, 4 running.")

HULL = named(
    "Hull",
    obj(
        cluster=TEXT,
        sku=TEXT,
        total=noted(INTEGER, "Installed in production."),
        healthy=noted(INTEGER, "On nodes in service."),
        line=noted(INTEGER, "The most that may be promised, by the policy on today's health."),
        line_in_force=noted(INTEGER, "The line of the last applied alignment; 0 before the first."),
        assigned=INTEGER,
        guaranteed=INTEGER,
        allocated=INTEGER,
        over=noted(INTEGER, "Assigned above the line."),
        never_backed=noted(INTEGER, "Of `over`: assigned above what is healthy."),
        to_flex=noted(INTEGER, "Of `over`: healthy, but too uncertain to promise."),
        unallocated=noted(INTEGER, "Healthy, and assigned to nobody."),
        flex_standing=INTEGER,
        flex_lent=INTEGER,
        flex_used=INTEGER,
        stage=STAGE,
    ),
    "A pool as a hull: what is there, the line, and the load.",
)
HULL_NOW = named(
    "HullNow",
    joined(
        HULL,
        obj(
            idle=INTEGER,
            is_aligned=noted(FLAG, "An alignment was applied: a line is in force, be it 0."),
            shortfall=noted(INTEGER, "Guaranteed above what is healthy."),
            line_policy=TEXT,
            line_why=TEXT,
            mode=choice(Mode),
        ),
    ),
    "A pool as it is now.",
)
TEAM = named(
    "QuotaTeam",
    obj(
        team=TEXT,
        cluster=TEXT,
        sku=TEXT,
        assigned=INTEGER,
        guaranteed=INTEGER,
        allocated=INTEGER,
        idle=INTEGER,
        haircut=HAIRCUT,
        stage=STAGE,
    ),
    "A team's quota in a pool.",
)
TEAM_NOW = named(
    "QuotaTeamNow",
    joined(TEAM, obj(flex_used=noted(INTEGER, "Runs beyond the guarantee."))),
    "A team's quota in a pool as it is now.",
)
PLAN = obj(
    as_of=noted(TIME, "The moment that was looked at."),
    policy=TEXT,
    clusters=many(HULL, "One for each pool."),
    teams=many(TEAM),
    summary=part_of(Summary, stages="How many pools are in each stage."),
)
HELD = obj(cluster=TEXT, sku=TEXT, waits=choice(Wait), teams=many(TEXT), until=TIME_OR_EMPTY)
EFFECT = named(
    "QuotaEffect",
    object_of(
        Effect,
        guaranteed_was="Before it.",
        guaranteed="After it.",
        haircut="Of what was guaranteed; where nothing was yet, of what was assigned.",
    ),
    "What an application makes of a team's quota in a pool.",
)
LOSS = joined(obj(cluster=TEXT, sku=TEXT), object_of(Loss))

KEPT = part_of(Kept)
POLICY_ROW = named(
    "QuotaPolicyRow",
    obj(
        policy=TEXT,
        clusters_over=maybe(INTEGER),
        pools_over=maybe(INTEGER),
        over=maybe(INTEGER),
        never_backed=maybe(INTEGER),
        to_flex=maybe(INTEGER),
        teams_touched=maybe(INTEGER),
        line=maybe(INTEGER),
        assigned=maybe(INTEGER),
        healthy=maybe(INTEGER),
        guaranteed=maybe(INTEGER),
        flex_standing=maybe(INTEGER),
        unallocated=maybe(INTEGER),
        haircut=maybe(HAIRCUT),
        stages=maybe(maps(INTEGER), "How many pools are in each stage."),
        flex_created=maybe(INTEGER),
        kept_share=maybe(NUMBER, "Of team-hours of the past."),
        past=maybe(KEPT),
        reason=maybe(TEXT, "Why numbers are missing."),
    ),
    "A policy for all pools asked for; null where it has no plan, or no past.",
)
COMPARED = obj(
    as_of=TIME,
    days=noted(INTEGER, "So many were asked for."),
    judged_days=noted(NUMBER, "So many are judged: a history may not reach so far, or a policy must learn first."),
    judged_from=maybe(TIME),
    judged_until=maybe(TIME),
    quiet_days=noted(NUMBER, "For so long nothing was told, and health is taken as it was."),
    today=maybe(KEPT, "The book as it stands: all that is assigned is promised."),
    policies=many(POLICY_ROW),
    clusters=many(part_of(PoolRow)),
    teams=many(part_of(TeamRow)),
)

CONTROLLED = obj(
    pools=many(
        obj(
            cluster=TEXT,
            sku=TEXT,
            mode=choice(Mode),
            verdict=choice(Verdict),
            why=TEXT,
            done=noted(FLAG, "It was carried out."),
            line=INTEGER,
            healthy=INTEGER,
            guaranteed=INTEGER,
            guaranteed_after=INTEGER,
            shortfall=INTEGER,
        )
    ),
    events=noted(INTEGER, "How many were written."),
    dry_run=DRY_RUN,
    told=many(part_of(Told), "Schedulers, with `push`."),
)

NOTICE = part_of(Notice, answer="Left out while there is none.")
TOLD = named("QuotaNoticeText", joined(object_of(Notice), obj(text=noted(TEXT, "What the team reads."))))
ANSWERED = joined(
    obj(notices=many(NOTICE, "All open notices of the team."), answered=noted(INTEGER, "How many were.")), WRITTEN
)
IF_WRITTEN = obj(dry_run=at_times(DRY_RUN), revision=at_times(REVISION))
"""Of what reads as well as changes: only where something was, or would be, changed."""

FLEX_POOL = named(
    "QuotaFlexPool",
    joined(
        object_of(PoolFlex),
        obj(
            teams=many(joined(object_of(TeamFlex), obj(available=INTEGER))),
            past=obj(
                from_=TIME,
                to=TIME,
                hours=INTEGER,
                standing_in_share_of_hours=maps(maybe(INTEGER), "So many GPUs stood in 99%, 90%, 50% of the hours."),
                standing=part_of(Availability),
                with_lent=part_of(Availability),
                says=TEXT,
            ),
        ),
    ),
)
PROMISE = joined(
    obj(
        revision=REVISION,
        days=INTEGER,
        fragmented_gpu_hours=noted(NUMBER, "Waited inside a guarantee: enough was free, not in one island."),
    ),
    object_of(PromiseKept),
    obj(spells=many(joined(object_of(Spell), obj(move=noted(TEXT, "Whose move it is."))))),
)
PUSHED = obj(
    outlet=TEXT,
    cluster=TEXT,
    dry_run=DRY_RUN,
    complete=FLAG,
    same=noted(INTEGER, "Settings that were as they should be."),
    steps=many(
        obj(
            name=TEXT,
            cause=choice(Cause),
            result=choice(Result),
            found=ANYTHING,
            wanted=ANYTHING,
            owner=TEXT,
            problem=TEXT,
            gpus_found=maybe(INTEGER),
            gpus_wanted=maybe(INTEGER),
        )
    ),
    adopted=many(obj(team=TEXT, sku=TEXT, was=INTEGER, found=INTEGER, problem=TEXT)),
    completed=many(TEXT, "Set by an earlier push that was cut short."),
    warnings=many(TEXT),
    revision=REVISION,
)

SHAPES: dict[str, Shape] = REQUESTS | {
    "quota show": joined(
        PLAN,
        obj(
            clusters=many(HULL_NOW),
            teams=many(TEAM_NOW),
            losses=many(LOSS, "What was lost as fewer GPUs work than are used."),
        ),
    ),
    "quota plan": PLAN,
    "quota apply": joined(
        PLAN,
        WRITTEN,
        obj(
            held=many(HELD, "Pools that wait."),
            effects=many(EFFECT, "Who loses most stands first; whom nothing happens to is left out."),
            is_change=noted(FLAG, "Whether anything is written, or would be: pools change, or notices are given."),
        ),
    ),
    "quota compare": COMPARED,
    "quota rollout": joined(
        obj(policy=TEXT, stages=many(part_of(Stage)), notices=many(NOTICE, "With `announce`.")), IF_WRITTEN
    ),
    "quota notices": obj(notices=many(TOLD)),
    "quota agree": ANSWERED,
    "quota object": ANSWERED,
    "quota pilot": obj(cluster=TEXT, ready=FLAG, mode=choice(Mode), checks=many(part_of(Finding))),
    "quota mode": joined(obj(modes=many(obj(cluster=TEXT, mode=choice(Mode)))), IF_WRITTEN),
    "quota control": CONTROLLED,
    "quota flex": obj(revision=REVISION, days=INTEGER, pools=many(FLEX_POOL)),
    "quota callback": joined(WRITTEN, object_of(CalledBack), obj(due_settled=DUE)),
    "quota promise": PROMISE,
    "quota history": joined(STAMP, obj(from_=TIME, to=TIME, step_hours=INTEGER, pools=many(part_of(PoolCourse)))),
    "quota changes": obj(
        revision=REVISION,
        team=TEXT,
        changes=many(part_of(Line), "The newest first."),
        count=noted(INTEGER, "How many there are in all."),
    ),
    "quota push": PUSHED,
    "quota policy show": obj(policy=TEXT, is_default=FLAG, text=noted(TEXT, "The file.")),
    "quota policy check": obj(policy=TEXT, rules=INTEGER, pins=INTEGER, blocks=INTEGER),
    "quota policy apply": joined(obj(policy=TEXT), WRITTEN),
}
