"""The description of the API is valid, complete, and true: a machine that knows only it can't make the server fail."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import openapi_spec_validator
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from plimsoll.errors import Unavailable
from plimsoll.server.call import Operation
from plimsoll.server.openapi import document
from plimsoll.server.routes import API, ROUTES
from plimsoll.server.specials import SPECIAL_PERMISSIONS
from tests.server import test_dry_runs
from tests.server.probes import Good, asked, good_requests, make_more
from tests.server.shapes.voyage import problems_of
from tests.support.served import Served, make_people, serving, small_book

EXAMPLES = 1_000 if os.environ.get("PLIMSOLL_SOAK") else 25
EXAMPLES_MIN = 25
IDLE_MAX = 10
"""So many operations may have had bad luck, of the seventy or so of a worker: none has, mostly, and at times one spoils
what another needs."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


site, names = test_dry_runs.site, test_dry_runs.names


@pytest.fixture(scope="module")
def probed(site: Served) -> Served:
    """A server of its own: what is sent to it changes things at random."""
    return site


@pytest.fixture(scope="module")
def good(probed: Served, names: dict[str, str]) -> dict[str, Good]:
    """By operation a request that is all right, of what there is in its book."""
    return good_requests({**names, **make_more(probed)})


def operations() -> dict[str, Any]:
    """Every operation by method and path. A stream does not end: test_changes listens to it."""
    described = document([Operation(route) for route in ROUTES])
    del described["paths"][f"{API}/changes"]
    found = schemathesis.openapi.from_dict(msgspec.json.decode(msgspec.json.encode(described))).get_all_operations()
    good = [result.ok() for result in found if isinstance(result, Ok)]
    return {operation.label: operation for operation in good}


OPERATIONS = operations()
DESCRIBED = msgspec.json.decode(msgspec.json.encode(document([Operation(route) for route in ROUTES])))
OURS = {"plimsoll-revision", "plimsoll-exit-code", "idempotency-replayed", "etag", "link", "retry-after"}
"""Headers that a client goes by."""


def headers_of(label: str, status: str) -> set[str]:
    """Which headers an answer of an operation may have, as the description says."""
    return {name.lower() for name in response_of(label, status).get("headers", {})}


def shape_at(label: str, status: str) -> dict[str, Any]:
    """Which shape the JSON of an answer has."""
    shape: dict[str, Any] = response_of(label, status)["content"]["application/json"]["schema"]
    return shape


def response_of(label: str, status: str) -> dict[str, Any]:
    method, path = label.split(" ")
    found: dict[str, Any] = DESCRIBED["paths"][path][method.lower()]["responses"][status]
    return DESCRIBED["components"]["responses"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found


def test_it_is_openapi_3_1_and_names_every_route(served: Served) -> None:
    said = served.ask(f"{API}/openapi.json").document
    openapi_spec_validator.validate(said)
    assert said["openapi"].startswith("3.1")
    listed = {(method.upper(), path) for path, methods in said["paths"].items() for method in methods}
    want = {(route.method, API + route.path) for route in ROUTES}
    want |= set(SPECIAL_PERMISSIONS)
    assert listed == want
    assert set(OPERATIONS) == {f"{method} {path}" for method, path in want} - {f"GET {API}/changes"}
    ids = [each["operationId"] for methods in said["paths"].values() for each in methods.values()]
    assert len(ids) == len(set(ids))
    for methods in said["paths"].values():
        for operation in methods.values():
            assert operation["x-permission"]
            assert operation["summary"]


def test_every_answer_has_a_shape(served: Served) -> None:
    """No answer is described as just anything."""
    said = served.ask(f"{API}/openapi.json").document
    for path, methods in said["paths"].items():
        for method, operation in methods.items():
            content = operation["responses"]["200"]["content"]
            schema = content.get("application/json", {"schema": {"type": "string"}})["schema"]
            assert set(schema) & {"$ref", "properties", "type", "oneOf", "anyOf", "allOf"}, (method, path)


def test_a_secret_that_was_told_is_described_as_well(probed: Served) -> None:
    """With a key that was sent before comes what the description says, and no secret."""
    sent = {"owner": "somebody@example.org", "scope": ["see"]}
    first, again = (probed.post("/access/tokens", sent, Idempotency_Key="told-once") for _ in range(2))
    assert "secret" in first.document
    assert set(again.document) == {"answer"}
    described = document([Operation(route) for route in ROUTES])
    content = described["paths"][f"{API}/access/tokens"]["post"]["responses"]["200"]["content"]
    shape = content["application/json"]["schema"]
    assert not problems_of(shape, first.document)
    assert not problems_of(shape, again.document)
    assert problems_of(shape, {"answer": "x", "more": 1})


def parameters_of(label: str) -> set[tuple[str, str]]:
    method, path = label.split(" ")
    return {(each["in"], each["name"]) for each in DESCRIBED["paths"][path][method.lower()].get("parameters", ())}


def test_what_is_sent_beside_a_commands_own_words_is_described() -> None:
    for route in ROUTES:
        sent = parameters_of(f"{route.method} {API}{route.path}")
        assert (("header", "If-None-Match") in sent) == route.is_read, route.path
        assert (("header", "Idempotency-Key") in sent) != route.is_read, route.path
        assert (("query", "token") in sent) == (route.path == "/calendar"), route.path
    assert ("header", "Idempotency-Key") in parameters_of(f"POST {API}/signals")


SAID: dict[str, tuple[str, str, dict[str, Any], int, set[str]]] = {
    # an operation, where it is asked, how, with what it answers, and which of our headers that has
    "an answer that one has already": (
        f"GET {API}/quota", "/quota", {"If_None_Match": "TAG"}, 304, {"etag", "plimsoll-revision"},
    ),
    "a no that is an answer": (
        f"GET {API}/access/check", "/access/check?who=viewer@example.org&permission=operate", {}, 200,
        {"etag", "plimsoll-revision", "plimsoll-exit-code"},
    ),
    "a change that was made before": (
        f"POST {API}/incidents", "/incidents", {"send": {"title": "again"}, "Idempotency_Key": "again"}, 200,
        {"plimsoll-revision", "idempotency-replayed"},
    ),
    "signals that were taken before": (
        f"POST {API}/signals", "/signals", {"send": b'{"node": "t3", "kind": "xid", "name": "79"}', "method": "POST",
        "Idempotency_Key": "signals"}, 200, {"plimsoll-revision", "idempotency-replayed"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_an_answer_has_the_headers_that_are_described(probed: Served, case: str) -> None:
    label, path, how, want_status, want = SAID[case]
    method = label.split(" ")[0]
    first = probed.api(path, **{"method": method, **how})
    named = {name: first.headers["etag"] if value == "TAG" else value for name, value in how.items()}
    again = probed.api(path, **{"method": method, **named})
    assert (again.status, set(again.headers) & OURS) == (want_status, want), again
    assert want <= headers_of(label, str(want_status))


def test_a_server_that_can_not_listen_or_answer_says_what_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(small_book(tmp_path)) as server:
        ready = server.ask("/readyz")
        monkeypatch.setattr(server.house.watcher, "trouble", Unavailable("connection_lost", "did not answer"))
        monkeypatch.setattr(server.house.watcher, "heard_at", time.monotonic() - 3_600)
        gone = server.ask("/readyz")
    for reply in (ready, gone):
        shape = DESCRIBED["paths"]["/readyz"]["get"]["responses"][str(reply.status)]["content"]["application/json"]
        assert not problems_of(shape["schema"], reply.document)
    assert (ready.status, gone.status, gone.document["status"]) == (200, 503, "not ready")


def test_changes_that_can_not_be_told_are_described(tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        server.house.watcher.end_streams()
        reply = server.api("/changes")
    assert (reply.status, set(reply.headers) & OURS) == (503, {"retry-after"})
    assert headers_of(f"GET {API}/changes", "503") == {"retry-after"}


ONE_WAY = {"GET /healthz", "GET /readyz", f"GET {API}/openapi.json"}
"""Nothing can be said to them, so that there is one way to ask."""
TUPLES = {f"GET {API}/incidents/{{name}}"}
"""Schemathesis takes lists whose places have shapes of their own for something of an older draft, where they stand in
an answer itself; our own judge holds these against the description."""
NOT_REACHED = {
    f"POST {API}/campaigns/{{name}}/tick/{{batch}}": "planned work would have to be under way",
    f"POST {API}/campaigns/{{name}}/returned": "nodes would have to be lost to it",
    f"POST {API}/campaigns/{{name}}/agree/{{workload}}": "a batch would have to wait for the work",
    f"POST {API}/clusters/{{name}}/retry": "a step would have to fail",
    f"POST {API}/clusters/{{name}}/waive": "a step would have to begin",
}
"""What needs more of a history than there is: `shapes/test_voyages.py` does it."""
Reached = dict[str, Counter[int]]
"""By operation how often each status was answered."""


@pytest.fixture(scope="module")
def reached() -> Iterator[Reached]:
    """Filled by what is probed. In the end nearly all of it must have done something: else names that nobody has would
    be all that is tried. Where several workers share the operations, each judges its own.
    """
    found: Reached = {}
    yield found
    idle = {label for label, seen in found.items() if not seen[200]} - set(NOT_REACHED)
    assert len(idle) <= IDLE_MAX, f"nothing was done by {idle}"


@pytest.mark.parametrize("label", OPERATIONS)
def test_nothing_that_fits_the_description_makes_it_fail(
    probed: Served, good: dict[str, Good], reached: Reached, label: str
) -> None:
    headers = {"Authorization": f"Bearer {probed.tokens['admin']}"}
    checks = [each for each in CHECKS if label not in TUPLES or each is not response_schema_conformance]
    seen = reached[label] = Counter[int]()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=asked(OPERATIONS[label], good.get(label)))
    def probe(case: Any) -> None:
        response = case.call(base_url=probed.url, headers=headers)
        seen[response.status_code] += 1
        case.validate_response(response, checks=checks)
        assert {name.lower() for name in response.headers} & OURS <= headers_of(label, str(response.status_code))
        if label in TUPLES and response.headers.get("content-type") == "application/json":
            assert not problems_of(shape_at(label, str(response.status_code)), response.json())

    probe()
    assert seen.total() >= (1 if label in ONE_WAY else EXAMPLES_MIN)
