"""Shapes of the answers of `plimsoll audit`: what was recorded, and whether it is whole."""

from __future__ import annotations

from plimsoll.ledger.model import Event
from plimsoll.ledger.verify import Finding
from plimsoll.server.shapes.derive import object_of, part_of
from plimsoll.server.shapes.model import (
    ANYTHING,
    FLAG,
    INTEGER,
    TEXT,
    TIME,
    Shape,
    joined,
    many,
    maybe,
    named,
    noted,
    obj,
)

EVENT = named(
    "AuditEvent",
    joined(
        object_of(Event),
        obj(
            recorded_at=noted(TIME, "When we learnt it."),
            effective_at=noted(TIME, "When it happened."),
            payload=noted(ANYTHING, "What changed, as an object; a payload that is no JSON any more as its text."),
        ),
    ),
)

SHAPES: dict[str, Shape] = {
    "audit log": obj(events=many(EVENT, "Oldest first.")),
    "audit head": obj(
        head=noted(TEXT, "REVISION:HASH"),
        revision=INTEGER,
        hash=TEXT,
        recorded_at=maybe(TIME, "Null on an empty ledger."),
    ),
    "audit verify": obj(
        whole=FLAG,
        events=INTEGER,
        head=noted(TEXT, "REVISION:HASH"),
        findings=many(part_of(Finding)),
        unlisted=noted(INTEGER, "Findings beyond those that are listed."),
    ),
}
