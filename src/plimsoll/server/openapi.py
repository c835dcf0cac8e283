"""The description of the API, OpenAPI 3.1: made from the same table that serves it, so that it can't say otherwise."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from plimsoll import __version__
from plimsoll.access.model import Permission
from plimsoll.commands.catalog import ITEMS_MAX, TEXT_CHARS_MAX
from plimsoll.server.call import FILE_NAME, FILES_MAX, Operation, Taken
from plimsoll.server.forms import ANSWER_TYPE, PAGE_MAX, Form
from plimsoll.server.openapi_specials import IF_NONE_MATCH, KEY, REVISION, Schema, specials
from plimsoll.server.routes import API, Sent
from plimsoll.server.shapes import ERROR, SHAPES, components, shape_of

TEXT_ANSWERS = "text/plain"


def document(operations: Sequence[Operation]) -> Schema:
    """All of it."""
    names = _names(operations)
    paths: dict[str, Schema] = {}
    for operation in operations:
        route = operation.route
        paths.setdefault(API + route.path, {})[route.method.lower()] = _operation(operation, names[id(operation)])
    for path, methods in specials().items():
        paths.setdefault(path, {}).update(methods)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Plimsoll",
            "version": __version__,
            "summary": "The load line for a GPU fleet: promise only what the healthy nodes can carry.",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": says} for name, says in _TAGS.items()],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": {**components(), **_PARTS},
            "responses": _RESPONSES,
            "headers": _HEADERS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "plimsoll access token issue"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "plimsoll",
                    "description": "Signed in at /signin.",
                },
            },
        },
    }


def _names(operations: Sequence[Operation]) -> dict[int, str]:
    """An id for each: the command's words, with the method where one command has two."""
    taken: dict[str, list[Operation]] = {}
    for operation in operations:
        taken.setdefault(operation.route.name, []).append(operation)
    return {
        id(each): name if len(same) == 1 else f"{name}_{each.route.method.lower()}"
        for name, same in taken.items()
        for each in same
    }


def _operation(operation: Operation, name: str) -> Schema:
    route = operation.route
    first, _, rest = operation.command.help.partition("\n")
    also = f" or `{route.also}`" if route.also is not None else ""
    whose = " of the team it is about" if route.team else ""
    needs = f"As `plimsoll {route.words}`. Needs `{route.permission}`{also}{whose}."
    if route.permission is Permission.NOBODY_NEEDED:
        needs = f"As `plimsoll {route.words}`. Open to all."
    made: Schema = {
        "operationId": name,
        "tags": [route.words.split()[0]],
        "summary": first.rstrip("."),
        "description": f"{rest.strip()}\n\n{needs}".strip(),
        "parameters": list(_parameters(operation)),
        "responses": _responses(operation),
        "x-permission": str(route.permission),
    }
    if not route.is_read:
        made["requestBody"] = _body(operation)
    if route.permission is Permission.NOBODY_NEEDED:
        made["security"] = []
    return made


def _parameters(operation: Operation) -> Iterable[Schema]:
    route = operation.route
    for taken in operation.takes.values():
        if taken.name == "limit" and route.items:
            continue
        if taken.is_in_path:
            schema = (
                {**_schema(taken, is_item=True), "minLength": 1} if _is_text(taken) else _schema(taken, is_item=True)
            )
            yield {"name": taken.name, "in": "path", "required": True, **_says(taken), "schema": schema}
        elif route.is_read:
            yield {
                "name": taken.name,
                "in": "query",
                "required": taken.parameter.is_required,
                **_says(taken),
                "schema": _schema(taken),
            }
    yield {
        "name": "format",
        "in": "query",
        "description": "The form of the answer; else `Accept` decides.",
        "schema": {"type": "string", "enum": [str(form) for form in Form]},
    }
    if route.is_read and not route.content:
        yield {
            "name": "table",
            "in": "query",
            "description": "With `format=csv`: which table of the answer; without it, what `-o csv` prints. It goes by"
            " the name that `format=answer` gives it, by its place from 1 on if it has none; a wrong one is told so.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 50},
        }
    yield {
        "name": "at_least",
        "in": "query",
        "description": "Nothing older than this revision: to see a change of one's own.",
        "schema": REVISION,
    }
    if route.is_read and route.items:
        yield {
            "name": "limit",
            "in": "query",
            "description": "How many at once; the header `Link` has the next.",
            "schema": {"type": "integer", "minimum": 1, "maximum": int(route.most.get("limit", PAGE_MAX))},
        }
        yield {
            "name": "cursor",
            "in": "query",
            "description": "Where to go on: from `Link`, and nowhere else. All pages are of one revision.",
            "schema": {"type": "string", "pattern": r"^\d{1,15}\.\d{1,9}$"},
        }
    yield IF_NONE_MATCH if route.is_read else KEY
    if route.content:
        yield {
            "name": "token",
            "in": "query",
            "description": "For who can send no header: a token that may see planned work, and nothing else.",
            "schema": {"type": "string", "maxLength": 200},
        }


def _says(taken: Taken) -> Schema:
    return {"description": taken.parameter.help} if taken.parameter.help else {}


def _is_text(taken: Taken) -> bool:
    return taken.sent is None and taken.parameter.type in (str, Path)


def _schema(taken: Taken, *, is_item: bool = False) -> Schema:
    sent = taken.sent
    if sent in (Sent.TEXT, Sent.BYTES):
        one = {"type": "string", **({"contentEncoding": "base64"} if sent is Sent.BYTES else {})}
        return {"anyOf": [one, _files(one, 1)], "description": f"What the file says; {_BY_NAME}."}
    if sent is Sent.TEXTS:
        texts = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": FILES_MAX}
        return {"anyOf": [texts, _files({"type": "string"}, FILES_MAX)], "description": f"Texts; {_BY_NAME}."}
    if sent is Sent.FOLDER:
        says = "A text for each file's name; of a workbook (.xlsx), which stands alone, its bytes in base64."
        return {**_files({"type": "string"}, FILES_MAX), "description": says}
    one = _one(taken)
    if taken.parameter.is_list and not is_item:
        least = {"minItems": 1} if taken.parameter.is_required else {}
        return {"type": "array", "items": one, "maxItems": ITEMS_MAX, **least}
    return one


_BY_NAME = "or an object that has it under the file's name: what is said of it then calls it so"


def _files(one: Schema, most: int) -> Schema:
    """What files hold, by their names."""
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": most,
        "propertyNames": {"pattern": f"^{FILE_NAME.pattern}$"},
        "additionalProperties": one,
    }


def _one(taken: Taken) -> Schema:
    kind = taken.parameter.type
    if kind is bool:
        return {"type": "boolean"}
    if kind in (int, float):
        bounds = {"minimum": taken.least, "maximum": taken.most}
        return {
            "type": "integer" if kind is int else "number",
            **{key: value for key, value in bounds.items() if value is not None},
        }
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"type": "string", "enum": [str(each.value) for each in kind]}
    return {"type": "string", "maxLength": TEXT_CHARS_MAX}


def _body(operation: Operation) -> Schema:
    taken = [each for each in operation.takes.values() if not each.is_in_path]
    properties = {each.name: {**_schema(each), **_says(each)} for each in taken}
    needed = [each.name for each in taken if each.parameter.is_required]
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if needed:
        schema["required"] = needed
    return {"required": bool(needed), "content": {"application/json": {"schema": schema}}}


def _responses(operation: Operation) -> Schema:
    words, route = operation.command.words, operation.route
    headers: Schema = {"Plimsoll-Revision": {"$ref": "#/components/headers/Revision"}}
    headers["Plimsoll-Exit-Code"] = {"$ref": "#/components/headers/ExitCode"}
    if route.is_read:
        headers["ETag"] = {"$ref": "#/components/headers/ETag"}
    else:
        headers["Idempotency-Replayed"] = {"$ref": "#/components/headers/Replayed"}
    if route.items:
        headers["Link"] = {"$ref": "#/components/headers/Link"}
    answer = {ANSWER_TYPE: {"schema": {"$ref": "#/components/schemas/Answer"}}}
    if words in SHAPES:
        schema = shape_of(words, is_one=route.is_one)
        if Sent.MADE in route.sent.values():
            schema = {"allOf": [{"$ref": "#/components/schemas/WithFiles"}], "type": "object"}
        content: Schema = {
            "application/json": {"schema": schema},
            "text/csv": {"schema": {"type": "string"}},
            "application/yaml": {"schema": schema},
            **answer,
        }
    else:
        content = {route.content.partition(";")[0] or TEXT_ANSWERS: {"schema": {"type": "string"}}, **answer}
    if route.is_secret:  # the same key again: it was done once, and was told once
        content = {kind: {"schema": {"anyOf": [each["schema"], _TOLD]}} for kind, each in content.items()}
    done = {"description": "The answer.", "headers": headers, "content": content}
    statuses = ["400", "401", "403", "404", "409", "422", "429", "503"]
    if not route.is_read:
        statuses += ["408", "413", "415"]
    made = {"200": done, **{status: {"$ref": f"#/components/responses/E{status}"} for status in sorted(statuses)}}
    if route.is_read:
        made["304"] = {"description": "What `If-None-Match` names is still so.", "headers": headers}
    return dict(sorted(made.items()))


_TOLD: Schema = {
    "type": "object",
    "description": "To an `Idempotency-Key` that was sent before: a secret is told once.",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


def _error(says: str, *, is_later: bool = False) -> Schema:
    later = {"headers": {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}} if is_later else {}
    return {"description": says, **later, "content": {"application/json": {"schema": ERROR}}}


_RESPONSES: Mapping[str, Schema] = {
    "E400": _error("The words are wrong; nothing was tried."),
    "E401": _error("Nobody is signed in, or the token is wrong."),
    "E403": _error("Signed in, and not allowed: the message says what is missing and whom to ask."),
    "E404": _error("A named thing does not exist."),
    "E408": _error("The body did not come in time."),
    "E409": _error("Something moved meanwhile, or the same request is under way.", is_later=True),
    "E413": _error("The body is too big."),
    "E415": _error("The body is not JSON."),
    "E422": _error("Understood, and not done: the message says why."),
    "E429": _error("Too many requests from one.", is_later=True),
    "E503": _error("Can't be served now; `Retry-After` says when to try again.", is_later=True),
}
_HEADERS: Mapping[str, Schema] = {
    "Revision": {"description": "The newest event that the answer rests on.", "schema": {"type": "integer"}},
    "ETag": {"description": "Names this answer, for `If-None-Match`.", "schema": {"type": "string"}},
    "ExitCode": {
        "description": "How the command would end in a terminal, where that is not 0: what was asked for is not so.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Replayed": {
        "description": "`true`: the answer of the first time that this key was sent; nothing was done now.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "RetryAfter": {"description": "Seconds until it is worth trying again.", "schema": {"type": "integer"}},
    "Link": {"description": 'The next page, `rel="next"`.', "schema": {"type": "string"}},
}
_PARTS: Mapping[str, Schema] = {
    "Answer": {
        "type": "object",
        "description": "The whole answer, as a terminal shows it.",
        "required": ["document", "tables", "heading", "notes", "text", "files", "exit_code", "revision"],
        "properties": {
            "document": {},
            "tables": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["columns", "rows", "title", "name", "shown"],
                    "properties": {
                        "columns": {"type": "array", "items": {"type": "string"}},
                        "rows": {"type": "array", "items": {"type": "array"}},
                        "title": {"type": "string"},
                        "name": {"type": "string", "description": "What `table` calls it; without one, its place."},
                        "shown": {
                            "type": ["integer", "null"],
                            "description": "So many of its rows are printed for people.",
                        },
                    },
                },
            },
            "heading": {"type": "string"},
            "notes": {"type": "array", "items": {"type": "string"}},
            "text": {"type": ["string", "null"]},
            "files": {
                "type": ["object", "null"],
                "description": "What the command made, a text for each file's name; null where it makes none.",
                "additionalProperties": {"type": "string"},
            },
            "exit_code": {"type": "integer"},
            "revision": {"type": "integer"},
        },
    },
    "WithFiles": {
        "type": "object",
        "description": "The command's answer, and the files it made: a text for each name.",
        "required": ["files"],
        "properties": {"files": {"type": "object", "additionalProperties": {"type": "string"}}},
    },
}


_TAGS = {
    "fleet": "What exists.",
    "health": "What works.",
    "quota": "What is promised.",
    "workload": "Who runs where.",
    "why": "Why not, and what can be done.",
    "campaign": "Planned work.",
    "cluster": "Clusters being made.",
    "incident": "Where everybody looks.",
    "access": "Who may do what.",
    "audit": "The memory.",
    "server": "The server itself.",
}
_ABOUT = """Every command of `plimsoll` that speaks of a database, by the same words and with the same answers.

**Reading.** `as_of` answers for the past by time or revision. Lists take `filter` (the grammar of the command line:
`cluster=tiger`, `service!=in_service`, `since<7d`), `limit` and `cursor`. `format=csv` gives any list as CSV, and with
`table` another table of the same answer. An answer may be a second old; `Plimsoll-Revision` says what it rests on, and
`at_least` asks for nothing older.

**Changing.** Values are sent as a JSON object; `dry_run` decides and changes nothing; with an `Idempotency-Key` the
same request happens once. What is a file on the command line is sent as its text.

**Errors** have one shape: a stable `code`, a `message` with the number, the `next_step`, and `fields`.

**Changes** come over `GET /api/v1/changes` as server-sent events whose ids are revisions.
"""
