"""Shapes of the answers of `plimsoll quota` about requests, transfers and grants. In GPUs."""

from __future__ import annotations

from plimsoll.quota.model import Grant, Request, RequestState
from plimsoll.quota.requests.headroom import Room
from plimsoll.quota.requests.moves import Renamed, Transferred
from plimsoll.quota.requests.options import Option, PoolAnswer
from plimsoll.server.shapes.derive import full_object_of, object_of
from plimsoll.server.shapes.model import (
    INTEGER,
    REVISION,
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
    one_of,
    without,
)

REQUEST = named(
    "QuotaRequestMade",
    full_object_of(Request, cluster="Empty: any.", area="Empty: any."),
    "What a team asks for, and what became of it.",
)
GRANT = named(
    "QuotaGrantMade",
    full_object_of(Grant, giver="Empty: it goes back to flex."),
    "Quota that came with an end.",
)
DUE = named(
    "QuotaDue",
    obj(
        ended=many(joined(GRANT, obj(guaranteed=INTEGER))),
        begun=many(TEXT),
        expired=many(TEXT),
        waiting=many(obj(request=TEXT, why=TEXT)),
    ),
    "What time brought about first: grants that ended; requests that began, expired, or wait still.",
)
OPTION = named(
    "QuotaOption",
    joined(
        obj(
            number=maybe(INTEGER, "What `quota approve` takes; null for what is refused."),
            key=noted(TEXT, "CODE:CLUSTER, the same however the ranking changes."),
        ),
        object_of(
            Option,
            is_whole="All of it, in one island where that was asked.",
            share="Of the past hours in which so much flex stood.",
            share_with_lent="Of the past hours in which so much flex stood or was lent.",
            spell_hours="Median.",
            move="Whose move it is, of what is refused.",
        ),
    ),
)
POOL = named(
    "QuotaRequestPool",
    joined(object_of(Room), without(object_of(PoolAnswer), "room"), obj(move=noted(TEXT, "Whose move it is."))),
    "What stands between a pool and the request.",
)
ANSWER = obj(
    request=REQUEST,
    options=many(OPTION, "The best first."),
    pools=many(POOL),
    past=noted(TEXT, "On what the shares of the past rest."),
)
SAID = named(
    "QuotaRequestAnswer",
    obj(
        at=TIME,
        state=choice(RequestState),
        by=TEXT,
        option=noted(TEXT, "The key of what was approved; else empty."),
        why=noted(TEXT, "Empty where nothing was said."),
    ),
    "What was said to a request.",
)
ONE_REQUEST = joined(ANSWER, obj(answers=many(SAID, "The oldest first; none while it is open.")))
ANSWERED = joined(WRITTEN, obj(request=TEXT, state=choice(RequestState), answer=TEXT, option=maybe(OPTION), due=DUE))
SETTLED = joined(WRITTEN, obj(due=DUE))

SHAPES: dict[str, Shape] = {
    "quota request": joined(WRITTEN, ANSWER, obj(due=DUE)),
    "quota requests": one_of(
        obj(revision=REVISION, requests=many(REQUEST)),
        ONE_REQUEST,
    ),
    "quota approve": ANSWERED,
    "quota deny": ANSWERED,
    "quota withdraw": ANSWERED,
    "quota transfer": joined(WRITTEN, object_of(Transferred), obj(due=DUE)),
    "quota grants": obj(revision=REVISION, grants=many(GRANT)),
    "quota end-grant": SETTLED,
    "quota settle": SETTLED,
    "quota rename": joined(WRITTEN, object_of(Renamed), obj(due=DUE)),
}
