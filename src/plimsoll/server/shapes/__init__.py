"""The shapes of all answers: what a command's document looks like, for OpenAPI and for whoever writes a client.

Each noun has its module with `SHAPES` by the command's words. Nothing here looks at a database.
"""

from __future__ import annotations

import functools

from plimsoll.server.shapes import (
    access,
    audit,
    campaign,
    cluster,
    fleet,
    health,
    incident,
    quota,
    quota_requests,
    simulate,
    why,
    workload,
)
from plimsoll.server.shapes.model import TEXT, Shape, maps, named, noted, obj, parts, refers_to

_NOUNS = (fleet, health, quota, workload, why, campaign, cluster, incident, simulate, access, audit)

SHAPES: dict[str, Shape] = {words: shape for noun in _NOUNS for words, shape in noun.SHAPES.items()}

ONE: dict[str, Shape] = {"health show": health.NODE, "quota requests": quota_requests.ONE_REQUEST}
"""What commands that answer for many or for one say of one that is named."""

ERROR = named(
    "Error",
    obj(
        error=obj(
            code=noted(TEXT, "Stable; docs/reference/errors.md lists all."),
            message=noted(TEXT, "What happened, where, and the number."),
            next_step=noted(TEXT, "What to do about it; empty where nothing helps."),
            fields=maps({}, "What the message tells, as data."),
        )
    ),
    "Whatever went wrong has this shape.",
)


def shape_of(words: str, *, is_one: bool = False) -> Shape:
    """The schema of what a command answers with, by its words: `quota show`. `is_one`: where one thing is named."""
    return ONE[words] if is_one else SHAPES[words]


@functools.cache
def components() -> dict[str, Shape]:
    """The parts that shapes refer to, by name: OpenAPI's `components/schemas`."""
    known, found = parts(), {"Error"}
    ahead = [*SHAPES.values(), *ONE.values(), known["Error"]]
    while ahead:
        new = {name for name in refers_to(ahead.pop()) if name not in found}
        found |= new
        ahead += (known[name] for name in new)
    return {name: known[name] for name in known if name in found}
