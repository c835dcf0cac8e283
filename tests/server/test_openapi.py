"""The description of the API is valid, complete, and true: a machine that knows only it can't make the server fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
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

from plimsoll.server.call import Operation
from plimsoll.server.openapi import document
from plimsoll.server.routes import API, ROUTES
from plimsoll.server.specials import SPECIAL_PERMISSIONS
from tests.server.shapes.voyage import problems_of
from tests.support.served import Served, make_people, serving, small_book

EXAMPLES = 1_000 if os.environ.get("PLIMSOLL_SOAK") else 25
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of its own: what is sent to it changes things at random."""
    dsn = small_book(tmp_path_factory.mktemp("probed"))
    with serving(dsn, make_people(dsn)) as server:
        yield server


def operations() -> dict[str, Any]:
    """Every operation by method and path. A stream does not end: test_changes listens to it."""
    described = document([Operation(route) for route in ROUTES])
    del described["paths"][f"{API}/changes"]
    found = schemathesis.openapi.from_dict(msgspec.json.decode(msgspec.json.encode(described))).get_all_operations()
    good = [result.ok() for result in found if isinstance(result, Ok)]
    return {operation.label: operation for operation in good}


OPERATIONS = operations()


def test_it_is_openapi_3_1_and_names_every_route(served: Served) -> None:
    said = served.ask(f"{API}/openapi.json").document
    openapi_spec_validator.validate(said)
    assert said["openapi"].startswith("3.1")
    listed = {(method.upper(), path) for path, methods in said["paths"].items() for method in methods}
    want = {(route.method, API + route.path) for route in ROUTES}
    want |= {(method, path) for method, path in SPECIAL_PERMISSIONS if path.startswith(API)}
    assert listed == want
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


@pytest.mark.parametrize("label", OPERATIONS)
def test_nothing_that_fits_the_description_makes_it_fail(probed: Served, label: str) -> None:
    headers = {"Authorization": f"Bearer {probed.tokens['admin']}"}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[label].as_strategy())
    def probe(case: Any) -> None:
        response = case.call(base_url=probed.url, headers=headers)
        case.validate_response(response, checks=CHECKS)

    probe()
