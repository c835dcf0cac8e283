"""Shapes of the answers of `plimsoll cluster`: clusters being born."""

from __future__ import annotations

from plimsoll.fleet.model import Phase
from plimsoll.lifecycle.estimate import StepTime
from plimsoll.lifecycle.model import Condition, Going, Move, Said, SetSeen, Severity, Spec
from plimsoll.server.shapes.derive import part_of
from plimsoll.server.shapes.fleet import COUNTS
from plimsoll.server.shapes.model import (
    DRY_RUN,
    FLAG,
    INTEGER,
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

ROW = named(
    "ClusterRow",
    obj(
        cluster=TEXT,
        phase=choice(Phase),
        since=TIME_OR_EMPTY,
        sku=TEXT,
        nodes=INTEGER,
        waits_for=noted(TEXT, "The condition that it waits for; empty where nothing is waited for."),
        reason=TEXT,
        message=TEXT,
        severity=choice(Severity),
        move=noted(choice(Move), "Whose move it is."),
        next_step=TEXT,
        paused=FLAG,
        region=TEXT,
        subscription=TEXT,
        owner=TEXT,
        wanted=maybe(TIME, "When it is needed."),
        checked_in=FLAG,
        leaving=noted(FLAG, "It is on its way out."),
        expected=maybe(TIME, "When it should be in production if nothing has to be waited for; null: nobody knows."),
        expected_late=maybe(TIME, "By when nine of ten are."),
    ),
)
STEP = named(
    "ClusterStep",
    obj(
        step=TEXT,
        sets=noted(TEXT, "The condition that it makes true; empty where none."),
        how=TEXT,
        is_=choice("not begun", Going),
        attempt=INTEGER,
        operation=at_times(TEXT),
        begun=at_times(TIME),
        ended=at_times(TIME_OR_EMPTY),
        next_attempt_at=at_times(TIME_OR_EMPTY),
        reason=at_times(TEXT),
        detail=at_times(TEXT),
        handle=at_times(noted(TEXT, "What it is called where it is done.")),
    ),
    "A step of the recipe; from `operation` on only once it has begun.",
)
SHOWN = obj(
    cluster=TEXT,
    sentence=noted(TEXT, "Why it is where it is."),
    phase=choice(Phase),
    spec=part_of(Spec),
    generation=noted(INTEGER, "How often the spec was changed."),
    recipe=obj(name=TEXT, version=INTEGER),
    paused=maybe(part_of(Said)),
    checked_in=maybe(part_of(Said)),
    leaving=maybe(part_of(Said), "Who sent it on its way out."),
    conditions=many(part_of(Condition, generation="Of the spec that was looked at.")),
    steps=many(STEP),
    sets=many(part_of(SetSeen), "Scale sets."),
    estimate=maybe(
        obj(usual=TIME, late=TIME),
        "When it should be in production, and by when nine of ten are; null where nobody knows, and once it is there.",
    ),
    timeline=many(obj(time=TIME, who=TEXT, what=TEXT, why=TEXT), "Oldest first."),
)
DID = joined(obj(cluster=TEXT, did=TEXT), WRITTEN)
SAID = joined(DID, obj(phase=choice(Phase)))
SPECIFIED = joined(
    DID,
    obj(
        phase=at_times(noted(choice(Phase), "Left out after a dry run of a cluster that is not there yet.")),
        generation=at_times(INTEGER),
    ),
)

SHAPES: dict[str, Shape] = {
    "cluster add": SPECIFIED,
    "cluster edit": SPECIFIED,
    "cluster import": obj(
        source=TEXT,
        counts=COUNTS,
        changes=many(
            obj(what=choice("added", "changed", "removed"), cluster=TEXT, was=maps(maybe(TEXT), "Old values."))
        ),
        warnings=many(TEXT),
        dry_run=DRY_RUN,
    ),
    "cluster list": obj(clusters=many(ROW)),
    "cluster show": SHOWN,
    "cluster log": obj(
        cluster=TEXT,
        step=TEXT,
        from_=noted(choice("", "this machine", "the ledger"), "Empty: not begun yet."),
        log=TEXT,
    ),
    "cluster checkin": SAID,
    "cluster retry": SAID,
    "cluster waive": SAID,
    "cluster pause": SAID,
    "cluster resume": SAID,
    "cluster retire": SAID,
    "cluster migrate": SAID,
    "cluster run": obj(did=many(obj(cluster=TEXT, what=TEXT, failed=FLAG))),
    "cluster quota": obj(
        as_of=TIME,
        quota=many(
            obj(
                subscription=TEXT,
                region=TEXT,
                family=TEXT,
                limit=INTEGER,
                used=INTEGER,
                promised=INTEGER,
                wanted=INTEGER,
                owed=INTEGER,
                waiting=many(TEXT, "The clusters that it blocks."),
                promised_to=maps(INTEGER, "The clusters that the promised cores are for."),
                read_at=maybe(TIME, "When the provider was last asked; null: never."),
            ),
            "In cores.",
        ),
    ),
    "cluster times": obj(steps=many(part_of(StepTime, late="What nine of ten needed at most."), "In seconds.")),
    "cluster recipe list": obj(
        recipes=many(obj(recipe=TEXT, version=INTEGER, newest=FLAG, clusters=INTEGER, steps=many(TEXT)))
    ),
    "cluster recipe check": obj(recipe=TEXT, version=INTEGER, steps=many(TEXT)),
    "cluster recipe apply": obj(
        recipe=TEXT,
        version=INTEGER,
        new=noted(FLAG, "False: it was there already."),
        clusters=many(TEXT, "Planned clusters that take it."),
        wrong=maps(TEXT, "Why it can't make those."),
        dry_run=DRY_RUN,
    ),
}
