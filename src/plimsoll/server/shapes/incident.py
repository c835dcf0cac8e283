"""Shapes of the answers of `plimsoll incident`: what is wrong, what it came to, and what owners were told."""

from __future__ import annotations

from plimsoll.incidents.model import Did, Numbers
from plimsoll.incidents.reasons import Fate, Kind, What
from plimsoll.server.shapes.derive import full_object_of, object_of
from plimsoll.server.shapes.model import (
    FLAG,
    INTEGER,
    TEXT,
    TIME,
    WRITTEN,
    Shape,
    choice,
    joined,
    many,
    maybe,
    named,
    noted,
    obj,
    row,
)

INCIDENT = named(
    "IncidentShown",
    obj(
        id=TEXT,
        kind=choice(Kind),
        title=TEXT,
        about=noted(TEXT, "What is wrong, named always in the same way; empty for a person's."),
        opened_at=noted(TIME, "Since when it was wrong."),
        noticed_at=TIME,
        opened_by=TEXT,
        roster=many(TEXT, "Who stands by."),
        clusters=many(TEXT, "Empty: all."),
        campaign=noted(TEXT, "Whose own it is; empty: nobody's."),
        holds_campaigns=noted(FLAG, "Campaigns begin nothing on these clusters."),
        notes=many(row(TIME, TEXT, TEXT), "When, who, what."),
        course=many(row(TIME, INTEGER), "The amount from each moment on."),
        amount=noted(INTEGER, "How bad it is now, in `unit`."),
        unit=TEXT,
        is_on=noted(FLAG, "There is trouble now; it closes a while after that ended."),
        move=noted(TEXT, "Whose move it is."),
        next_step=TEXT,
        numbers=noted(full_object_of(Numbers), "What it came to, so far where it is open."),
        closed_at=maybe(TIME),
        closed_by=TEXT,
    ),
)
POST = obj(what=TEXT, fate=choice(Fate), at=maybe(TIME), attempts=INTEGER, detail=TEXT)
NOTICE = named(
    "IncidentNotice",
    obj(
        workload=TEXT,
        team=TEXT,
        owner=TEXT,
        at=noted(TIME, "When it happened."),
        told_at=TIME,
        what=choice(What),
        by=noted(TEXT, "The node, or the planned work."),
        happened=TEXT,
        done=noted(TEXT, "What was done about it."),
        left=noted(TEXT, "What is left to do."),
        gpus=INTEGER,
    ),
    "What the owner of running work was told.",
)
TOLD = joined(obj(incident=noted(TEXT, "Its id.")), WRITTEN)

SHAPES: dict[str, Shape] = {
    "incident list": many(INCIDENT, "The oldest first."),
    "incident show": joined(INCIDENT, obj(posts=many(POST, "To the chat."))),
    "incident open": TOLD,
    "incident note": TOLD,
    "incident close": TOLD,
    "incident notices": many(NOTICE, "Newest first."),
    "incident run": obj(did=many(object_of(Did)), open=noted(INTEGER, "How many are.")),
}
