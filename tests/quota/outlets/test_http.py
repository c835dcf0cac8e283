"""An in-house quota service: signed, idempotent, told as a whole, drift read back, faults of the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.connect.quota_service import ATTEMPTS_MAX, QuotaService, sign
from plimsoll.errors import Refused, Unavailable, UsageError
from plimsoll.quota.outlets.http import Document, HttpOutlet, PoolLimits, encode, from_settings, settings
from plimsoll.quota.outlets.model import Limit
from plimsoll.quota.outlets.push import OnDrift, Pushed, Result, push
from tests.support.imports import Importer
from tests.support.inside import Said, plimsoll
from tests.support.promises import align, aligned_fleet, guaranteed, pushes
from tests.support.quota_service import FakeQuotaService

SECRET = "a-secret-of-a-test-that-is-long-enough"
TEAMS = {"evals": 16, "vision": 48}


@pytest.fixture
def service() -> Iterator[FakeQuotaService]:
    with FakeQuotaService(SECRET) as running:
        yield running


@pytest.fixture
def importer(tmp_path: Path) -> Importer:
    return aligned_fleet(tmp_path, TEAMS)


def client(service: FakeQuotaService, **options: Any) -> QuotaService:
    options = {"secret": SECRET, "timeout_seconds": 5, "sleep": lambda _seconds: None, **options}
    return QuotaService(f"{service.url}/clusters/tiger", **options)


def tell(importer: Importer, service: FakeQuotaService, *, on_drift: OnDrift = OnDrift.SHOW) -> Pushed:
    outlet = HttpOutlet(client(service), cluster="tiger")
    return push(importer.keeper, outlet, "tiger", actor="tester", on_drift=on_drift)


def test_all_limits_go_in_one_request_and_a_second_push_sends_none(
    importer: Importer, service: FakeQuotaService
) -> None:
    assert tell(importer, service).is_complete
    assert service.document() == {
        "version": 1,
        "cluster": "tiger",
        "pools": [{"sku": "H200", "gpus_per_node": 8, "line": 80, "flex_standing": 16, "guaranteed": TEAMS}],
    }
    assert service.requests == ["GET /clusters/tiger", "PUT /clusters/tiger"]
    assert not tell(importer, service).outcomes
    assert service.requests[2:] == ["GET /clusters/tiger"]
    assert len(pushes(importer)) == 1


def test_a_signature_is_what_the_page_says() -> None:
    """Worked out with: printf '1767610800\\nPUT\\n/clusters/tiger\\n{}' | openssl dgst -sha256 -hmac key"""
    want = "1c80f799d5671c8e5902f200620ddbec56a111562b116a8c7a1fb53dbf5db618"
    assert sign(b"key", "1767610800", "PUT", "/clusters/tiger", b"{}") == want


def test_drift_is_left_in_the_document_until_it_is_put_back(importer: Importer, service: FakeQuotaService) -> None:
    tell(importer, service)
    service.set_by_hand("H200", "vision", 80)
    align(importer, {"evals": 24, "vision": 48})
    pushed = tell(importer, service)
    assert [each.step.name for each in pushed.with_result(Result.LEFT)] == ["H200/guaranteed/vision"]
    assert service.document()["pools"][0]["guaranteed"] == {"evals": 24, "vision": 80}
    assert tell(importer, service, on_drift=OnDrift.PUT_BACK).is_complete
    assert service.document()["pools"][0]["guaranteed"] == {"evals": 24, "vision": 48}


def test_drift_is_adopted(importer: Importer, service: FakeQuotaService) -> None:
    tell(importer, service)
    service.set_by_hand("H200", "vision", 56)
    assert tell(importer, service, on_drift=OnDrift.ADOPT).is_complete
    assert guaranteed(importer) == {"evals": 16, "vision": 56}
    assert service.document()["pools"][0]["flex_standing"] == 8


def test_a_service_that_is_busy_is_asked_again_with_the_same_key(importer: Importer, service: FakeQuotaService) -> None:
    service.faults_after = [503, 504, 0]  # each time it was done, and the answer was lost
    assert tell(importer, service).is_complete
    assert len(service.keys) == 4
    assert len(set(service.keys)) == 1
    assert service.writes == 1


def test_limits_that_come_back_to_what_they_were_are_told_again(importer: Importer, service: FakeQuotaService) -> None:
    """The service remembers keys: were they made of the body, it would take the third document for the first."""
    for evals in (16, 24, 16):
        align(importer, {"evals": evals, "vision": 48})
        assert tell(importer, service).is_complete
        assert service.document()["pools"][0]["guaranteed"]["evals"] == evals


def test_attempts_are_bounded_and_the_next_push_finds_what_was_done(
    importer: Importer, service: FakeQuotaService
) -> None:
    service.faults_after = [503] * ATTEMPTS_MAX
    with pytest.raises(Unavailable) as caught:
        tell(importer, service)
    assert "HTTP 503" in caught.value.message
    assert len(service.keys) == ATTEMPTS_MAX
    assert not pushes(importer)
    pushed = tell(importer, service)  # it had been done: nothing is sent again, and it is on record now
    assert len(pushed.completed) == 5
    assert len(service.keys) == ATTEMPTS_MAX
    assert len(pushes(importer)) == 1


def test_a_service_that_is_not_there_is_said_with_the_attempts() -> None:
    there = QuotaService("http://127.0.0.1:9/x", secret=SECRET, timeout_seconds=2, sleep=lambda _seconds: None)
    with pytest.raises(Unavailable) as caught:
        there.fetch()
    assert caught.value.fields["attempts"] == ATTEMPTS_MAX


def test_waits_grow_and_are_bounded(service: FakeQuotaService) -> None:
    waits: list[float] = []
    service.faults = [503] * ATTEMPTS_MAX
    with pytest.raises(Unavailable):
        client(service, sleep=waits.append).fetch()
    assert waits == [0.5, 1.0, 2.0]


REFUSED = {400: Refused, 403: Unavailable, 404: Refused, 409: Refused, 422: Refused, 500: Unavailable}


@pytest.mark.parametrize("status", REFUSED)
def test_what_the_service_refuses_is_not_tried_again(status: int, service: FakeQuotaService) -> None:
    service.faults = [status]
    with pytest.raises(REFUSED[status]) as caught:
        client(service).replace(b"{}")
    assert f"HTTP {status}: not now" in str(caught.value)
    assert len(service.requests) == 1


def test_a_wrong_secret_is_said_and_never_shown(service: FakeQuotaService) -> None:
    other = client(service, secret="another-secret-that-is-long-enough")
    with pytest.raises(Unavailable) as caught:
        other.fetch()
    assert "wrong signature" in caught.value.message
    assert "another-secret" not in repr(caught.value.__dict__) + repr(other)


def test_a_clock_that_is_off_is_refused_by_the_service(service: FakeQuotaService) -> None:
    with pytest.raises(Unavailable) as caught:
        client(service, clock=lambda: 0.0).fetch()
    assert "too old" in caught.value.message


BAD_DOCUMENTS = {
    "no JSON": (b"<html>", "quota_service_bad_answer"),
    "another form": (b'{"limits": []}', "quota_service_bad_answer"),
    "a negative limit": (
        b'{"version":1,"cluster":"tiger","pools":[{"sku":"H200","guaranteed":{"vision":-8}}]}',
        "quota_service_bad_answer",
    ),
    "half a GPU": (
        b'{"version":1,"cluster":"tiger","pools":[{"sku":"H200","guaranteed":{"vision":0.5}}]}',
        "quota_service_bad_answer",
    ),
    "another cluster": (b'{"version":1,"cluster":"lion","pools":[]}', "wrong_quota_service"),
    "another version": (b'{"version":2,"cluster":"tiger","pools":[]}', "wrong_quota_service"),
}


@pytest.mark.parametrize("case", BAD_DOCUMENTS, ids=str)
def test_a_document_that_is_not_ours_is_never_replaced(
    case: str, importer: Importer, service: FakeQuotaService
) -> None:
    body, want_code = BAD_DOCUMENTS[case]
    service.documents["/clusters/tiger"] = body
    with pytest.raises((Refused, Unavailable)) as caught:
        tell(importer, service, on_drift=OnDrift.PUT_BACK)
    assert caught.value.code == want_code
    assert service.documents["/clusters/tiger"] == body


BAD_SETTINGS = {
    "a secret that is too short": ("https://quota.example", "short"),
    "no URL": ("quota.example", SECRET),
    "a password in the URL": ("https://me:word@quota.example", SECRET),
}


@pytest.mark.parametrize("case", BAD_SETTINGS, ids=str)
def test_bad_settings_are_refused_without_showing_them(case: str) -> None:
    url, secret = BAD_SETTINGS[case]
    with pytest.raises(UsageError) as caught:
        QuotaService(url, secret=secret)
    assert secret not in caught.value.message
    assert "word@" not in caught.value.message


POOLS = st.builds(
    PoolLimits,
    sku=st.text(min_size=1),
    gpus_per_node=st.integers(1, 72),
    line=st.integers(0, 10**6),
    flex_standing=st.integers(0, 10**6),
    guaranteed=st.dictionaries(st.text(min_size=1), st.integers(0, 10**6), max_size=4),
)


@given(pools=st.lists(POOLS, max_size=3, unique_by=lambda pool: pool.sku))
def test_settings_are_the_document_whatever_the_names(pools: list[PoolLimits]) -> None:
    document = Document(1, "tiger", sorted(pools, key=lambda pool: pool.sku))
    values = settings(document)
    assert from_settings("tiger", values) == document
    assert encode(from_settings("tiger", dict(reversed(values.items())))) == encode(document)


def test_what_is_a_limit() -> None:
    outlet = HttpOutlet(QuotaService("https://quota.example", secret=SECRET), cluster="tiger")
    assert outlet.limit("H200/guaranteed/a/b", "8") == Limit("H200", "a/b", 8)
    assert outlet.limit("H200/flex_standing", "16") == Limit("H200", "", 16)
    assert outlet.limit("H200/line", "80") is None


# The command.


@pytest.fixture
def database(tmp_path: Path) -> str:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    aligned_fleet(tmp_path, TEAMS, dsn=dsn)
    return dsn


def test_the_command_takes_the_secret_from_a_file_or_a_setting(
    database: str, service: FakeQuotaService, tmp_path: Path
) -> None:
    url = service.url + "/clusters/{cluster}"

    def run(*options: str, **environment: Any) -> Said:
        return plimsoll("quota", "push", "http", "tiger", *options, db=database, **environment)

    missing = run("--url", url)
    assert missing.code == 2
    assert "PLIMSOLL_HTTP_SECRET" in missing.err
    first = run(PLIMSOLL_HTTP_URL=url, PLIMSOLL_HTTP_SECRET=SECRET)
    assert first.code == 0, first.err
    assert "5 settings changed" in first.out
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    second = run("--url", url, "--secret-file", str(tmp_path / "secret"), "-o", "json")
    assert second.json()["complete"]
    assert second.json()["steps"] == []
    service.set_by_hand("H200", "vision", 80)
    drift = run(PLIMSOLL_HTTP_URL=url, PLIMSOLL_HTTP_SECRET=SECRET)
    assert drift.code == 1
    assert SECRET not in first.out + first.err + drift.out + drift.err
