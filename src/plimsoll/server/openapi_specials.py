"""The description of what is no command: health checks, metrics, changes, signals; and of what requests share."""

from __future__ import annotations

from typing import Any

from plimsoll.access.model import Permission
from plimsoll.health.service import Observed
from plimsoll.server.loops_role import LoopStatus
from plimsoll.server.routes import API
from plimsoll.server.shapes.derive import object_of, part_of
from plimsoll.server.shapes.model import NUMBER, TEXT, at_times, choice, many, obj

Schema = dict[str, Any]

REVISION: Schema = {"type": "integer", "minimum": 0, "maximum": 10**15}
KEY: Schema = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Sent again with the same key, a change happens once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}
IF_NONE_MATCH: Schema = {
    "name": "If-None-Match",
    "in": "header",
    "description": "The `ETag` of an answer that one has, or several by comma: what is still so is not sent again.",
    "schema": {"type": "string", "maxLength": 1_000, "pattern": "^[ -~]*$"},
}

_COUNT = {"type": "integer", "minimum": 0}
_HOW = {
    "revision": _COUNT,
    "ledger_silent_seconds": NUMBER,
    "waiting": _COUNT,
    "busy_seconds": NUMBER,
    "trouble": at_times(TEXT),
}
_READY = obj(status=choice("ready", "not ready"), **_HOW)
_STATUS = obj(
    server=obj(**_HOW), listeners=_COUNT, answers_again=_COUNT, answers_made=_COUNT, loops=many(object_of(LoopStatus))
)
_LINES = {"text/plain": {"schema": TEXT}, "application/x-ndjson": {"schema": TEXT}}
_STREAM = "text/event-stream"
_NOBODY = Permission.NOBODY_NEEDED
_ANYBODY = ("401", "429", "503")
"""What everybody may be told who is looked up."""


def specials() -> dict[str, Schema]:
    """Their paths. A health check looks nobody up, and so it is refused to nobody."""
    return {
        "/healthz": {"get": _special("healthz", "The process answers", _NOBODY, _json("It does.", obj(status=TEXT)))},
        "/readyz": {"get": _readyz()},
        "/metrics": {
            "get": _special(
                "metrics", "Numbers for Prometheus", Permission.SEE, _text("As Prometheus reads it.", "text/plain"),
                *("403", *_ANYBODY),
            )
        },
        f"{API}/openapi.json": {
            "get": _special(
                "openapi", "This description", _NOBODY, _json("OpenAPI 3.1.", {"type": "object"}), *_ANYBODY
            )
        },
        f"{API}/status": {
            "get": _special(
                "status", "How the server and its controllers are", Permission.SEE, _json("How.", _STATUS),
                *("403", *_ANYBODY),
            )
        },
        f"{API}/changes": {"get": _changes()},
        f"{API}/signals": {"post": _signals()},
    }  # fmt: skip


def _readyz() -> Schema:
    made = _special("readyz", "Requests can be answered now", _NOBODY, _json("They can.", _READY))
    made["responses"]["503"] = _json("They can't: `trouble` is the code of why.", _READY)
    return made


def _changes() -> Schema:
    made = _special(
        "changes",
        "What changes, as it changes: server-sent events",
        Permission.SEE_WAVES,
        _text("The stream. It ends where one's rights change, and after a while: come back with `after`.", _STREAM),
        *("400", "403", *_ANYBODY),
    )
    made["parameters"] = [
        {"name": "after", "in": "query", "schema": REVISION, "description": "Go on after this revision."},
        {"name": "Last-Event-ID", "in": "header", "schema": REVISION, "description": "As browsers say it."},
    ]
    return made


def _signals() -> Schema:
    answer = _json("What became of them.", part_of(Observed))
    answer["headers"] = {
        "Plimsoll-Revision": {"$ref": "#/components/headers/Revision"},
        "Idempotency-Replayed": {"$ref": "#/components/headers/Replayed"},
    }
    made = _special(
        "signals",
        "Signals of nodes, one JSON object a line",
        Permission.SIGNAL,
        answer,
        *("400", "403", "408", "409", "413", "422", *_ANYBODY),
        tag="health",
    )
    feed = {"type": "string", "minLength": 1, "maxLength": 100}
    made["parameters"] = [{"name": "feed", "in": "query", "schema": feed, "description": "Who tells it."}, KEY]
    made["requestBody"] = {"required": True, "content": _LINES}
    return made


def _special(
    name: str, summary: str, permission: Permission, answer: Schema, *errors: str, tag: str = "server"
) -> Schema:
    refused = {status: {"$ref": f"#/components/responses/E{status}"} for status in sorted(errors)}
    made: Schema = {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        "responses": {"200": answer, **refused},
        "x-permission": str(permission),
    }
    if permission is _NOBODY:
        made["security"] = []
    return made


def _json(says: str, shape: Schema) -> Schema:
    return {"description": says, "content": {"application/json": {"schema": shape}}}


def _text(says: str, kind: str) -> Schema:
    return {"description": says, "content": {kind: {"schema": TEXT}}}
