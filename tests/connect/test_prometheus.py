"""What a server can do to the Prometheus client, and what the client then says. The real server is in tests/real."""

from __future__ import annotations

import itertools
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.connect import prometheus
from plimsoll.connect.prometheus import Prometheus
from plimsoll.errors import PlimsollError, Unavailable, UsageError
from tests.support.bad_web import BadWeb, Conversation, http_answer
from tests.support.parts import missing_part
from tests.support.slurm import free_ports

SOON_SECONDS = 0.4
TOKEN = "s3cr3t-t0ken"


def success(result: object, kind: str = "vector", **more: object) -> str:
    document = {"status": "success", "data": {"resultType": kind, "result": result}, **more}
    return msgspec.json.encode(document).decode()


def failure(kind: str, words: str) -> str:
    return msgspec.json.encode({"status": "error", "errorType": kind, "error": words}).decode()


def row(value: str, **labels: str) -> dict[str, object]:
    return {"metric": labels, "value": [1767610800.5, value]}


def saying(data: bytes) -> Callable[[Conversation], None]:
    return lambda conversation: conversation.say(data)


def asked(speak: Callable[[Conversation], None], *, timeout_seconds: float = 10.0) -> PlimsollError:
    """The error that a client gets from such a server."""
    with BadWeb(speak) as server, pytest.raises(PlimsollError) as caught:
        Prometheus(f"{server.url}/prefix", timeout_seconds=timeout_seconds, bearer_token=TOKEN).query("up")
    error = caught.value
    shown = f"{error} {error.next_step} {error.fields}"
    assert TOKEN not in shown
    assert f"127.0.0.1:{server.port}/prefix" in str(error)
    assert error.next_step
    return error


class Case(NamedTuple):
    answer: bytes
    want_code: str
    want_words: str
    want: type[PlimsollError] = Unavailable


CASES = {
    "a page of a proxy": Case(
        http_answer("<h1>Bad\nGateway</h1>", status="502 Bad Gateway"),
        "prometheus_unavailable",
        "HTTP 502: <h1>Bad Gateway</h1>",
    ),
    "an error without words": Case(http_answer("", status="500 No"), "prometheus_unavailable", "said HTTP 500"),
    "no rights": Case(http_answer("who?", status="401 Unauthorized"), "prometheus_unavailable", "HTTP 401: who?"),
    "another server": Case(
        http_answer("nope", status="404 Not Found"), "prometheus_bad_answer", "HTTP 404: there is no"
    ),
    "a redirect": Case(
        http_answer("", status="302 Found", headers="Location: https://me:pw@login.example/sign?token=x\r\n"),
        "prometheus_bad_answer",
        "HTTP 302, a redirect to https://login.example/sign, which is not followed",
    ),
    "a page with status 200": Case(http_answer("<html>sign in</html>"), "prometheus_bad_answer", "malformed"),
    "no JSON at all": Case(http_answer(""), "prometheus_bad_answer", "truncated"),
    "JSON that breaks off": Case(
        http_answer(success([row("1")])[:-9]), "prometheus_bad_answer", "truncated, in 94 bytes"
    ),
    "a body that breaks off": Case(
        http_answer(success([]), length=1_000), "prometheus_bad_answer", "broke off after 63 bytes, 937 are missing"
    ),
    "chunks that break off": Case(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFF\r\nabc", "prometheus_bad_answer", "IncompleteRead"
    ),
    "no HTTP": Case(b"SSH-2.0-OpenSSH_9.2\r\n", "prometheus_bad_answer", "BadStatusLine"),
    "nothing": Case(b"", "prometheus_bad_answer", "RemoteDisconnected"),
    "a header without end": Case(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "prometheus_bad_answer", "LineTooLong"),
    "a hundred thousand headers": Case(
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, "prometheus_bad_answer", "HTTPException"
    ),
    "JSON that nests without end": Case(http_answer('{"x": ' + "[" * 100_000), "prometheus_bad_answer", "recursion"),
    "another shape of JSON": Case(http_answer('{"status": "success", "data": []}'), "prometheus_bad_answer", "$.data"),
    "a value that is no number": Case(
        http_answer(success([row("1"), row("many")])), "prometheus_bad_answer", "sample 1 is 'many'"
    ),
    "a time outside the calendar": Case(
        http_answer(success([{"metric": {}, "value": [1e300, "1"]}])),
        "prometheus_bad_answer",
        "sample 0 is '1' at 1e+300",
    ),
    "a native histogram": Case(
        http_answer(success([{"metric": {}, "histogram": [1, {}]}])), "prometheus_bad_answer", "native histogram"
    ),
    "a matrix": Case(
        http_answer(success([], "matrix")),
        "prometheus_bad_query",
        "answered with a matrix",
        UsageError,
    ),
    "a query that is wrong": Case(
        http_answer(failure("bad_data", "1:4: parse error"), status="400 Bad Request"),
        "prometheus_bad_query",
        "does not understand the query: 1:4: parse error",
        UsageError,
    ),
    "a query that can't be worked out": Case(
        http_answer(failure("execution", "many-to-many"), status="422 x"), "prometheus_bad_query", "many", UsageError
    ),
    "a query that is too much for the server": Case(
        http_answer(failure("execution", "query processing would load too many samples into memory"), status="422 x"),
        "prometheus_too_much",
        "too many samples into memory",
    ),
    "a query that takes the server too long": Case(
        http_answer(failure("timeout", "query timed out"), status="503 x"),
        "prometheus_unavailable",
        "(timeout, HTTP 503): query timed out",
    ),
    "an error with status 200": Case(
        http_answer(failure("internal", "storage\x1b[31m\ngone")), "prometheus_unavailable", "storage [31m gone"
    ),
    "an answer of ten gigabytes": Case(
        http_answer("[", length=10**10), "prometheus_too_much", "has 10,000,000,000 bytes; at most 134,217,728 are read"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_bad_answer_is_said_in_words(case: Case) -> None:
    error = asked(saying(case.answer))
    assert (error.code, type(error)) == (case.want_code, case.want), error
    assert case.want_words in str(error)
    assert str(error).isprintable()


def say_nothing(conversation: Conversation) -> None:
    conversation.pause(30)


def drip_headers(conversation: Conversation) -> None:
    conversation.drip(http_answer(success([])) * 100)


def drip_body(conversation: Conversation) -> None:
    conversation.say(http_answer("", length=10_000))
    conversation.drip(b" " * 10_000)


def drip_chunks(conversation: Conversation) -> None:
    conversation.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    conversation.drip(b"1\r\n \r\n" * 10_000)


def continue_for_ever(conversation: Conversation) -> None:
    while conversation.pause(0.01):
        conversation.say(b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.parametrize("speak", [say_nothing, drip_headers, drip_body, drip_chunks, continue_for_ever])
def test_no_server_holds_us_longer_than_the_deadline(speak: Callable[[Conversation], None]) -> None:
    began = time.monotonic()
    error = asked(speak, timeout_seconds=SOON_SECONDS)
    assert SOON_SECONDS <= time.monotonic() - began < SOON_SECONDS + 2
    assert error.code == "prometheus_unavailable"
    assert "no whole answer within 0.4 s" in str(error)


def test_no_name_server_holds_us_longer_than_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up_slowly(*_words: object, **_options: object) -> list[object]:
        time.sleep(3)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up_slowly)
    began = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        Prometheus("http://prometheus.example", timeout_seconds=SOON_SECONDS).query("up")
    assert time.monotonic() - began < SOON_SECONDS + 2
    assert "http://prometheus.example did not answer: no whole answer within 0.4 s" in str(caught.value)


def test_an_endless_answer_is_given_up_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "BODY_BYTES_MAX", 1_000_000)

    def speak(conversation: Conversation) -> None:
        conversation.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while conversation.pause(0):
            conversation.say(b"10000\r\n" + b" " * 65_536 + b"\r\n")

    error = asked(speak)
    assert error.code == "prometheus_too_much"
    assert "more than 1,000,000 bytes; at most 1,000,000 are read" in str(error)


def test_a_huge_vector_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "SAMPLES_MAX", 1_000)
    error = asked(saying(http_answer(success([row("1", gpu=str(number)) for number in range(1_001)]))))
    assert error.code == "prometheus_too_much"
    assert "has 1,001 samples; at most 1,000 are taken" in str(error)
    assert "aggregate" in error.next_step


def test_what_is_no_number_is_counted_and_never_handed_on() -> None:
    values = ["0", "NaN", "+Inf", "-Inf", "-1.5e3", "NaN"]
    answer = success([row(value, gpu=str(place)) for place, value in enumerate(values)], warnings=["half is missing"])
    with BadWeb(saying(http_answer(answer))) as server:
        vector = Prometheus(server.url).query("x")
    assert [(sample.labels["gpu"], sample.value) for sample in vector.samples] == [("0", 0.0), ("4", -1500.0)]
    assert vector.nan_count == 4
    assert vector.warnings == ("half is missing",)
    assert vector.samples[0].at == datetime(2026, 1, 5, 11, 0, 0, 500_000, UTC)


def test_a_scalar_is_a_sample_without_labels() -> None:
    with BadWeb(saying(http_answer(success([1767610800, "42"], "scalar")))) as server:
        vector = Prometheus(server.url).query("scalar(x)")
    assert [(sample.labels, sample.value) for sample in vector.samples] == [({}, 42.0)]


def test_the_answer_of_a_server_that_closes_at_once_is_read() -> None:
    answer = b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n" + success([row("7")]).encode()
    with BadWeb(saying(answer)) as server:
        assert Prometheus(server.url).query("x").samples[0].value == 7.0


def test_the_request_is_a_form_with_the_token_under_the_prefix() -> None:
    with BadWeb(saying(http_answer(success([])))) as server:
        client = Prometheus(f"{server.url}/a/b/", bearer_token=f"{TOKEN}\n", headers={"X-Scope-OrgID": "tiger"})
        client.query('up{job="a&b=c"}', at=datetime(2026, 1, 5, 11, 0, 0, 250_000, UTC))
        head, _, body = server.requests[0].decode().partition("\r\n\r\n")
    assert TOKEN not in repr(client)
    assert head.startswith("POST /a/b/api/v1/query HTTP/1.1\r\n")
    assert f"\r\nAuthorization: Bearer {TOKEN}\r\n" in head
    assert "\r\nX-Scope-OrgID: tiger\r\n" in head
    assert parse_qs(body) == {"query": ['up{job="a&b=c"}'], "timeout": ["30.000"], "time": ["1767610800.250"]}


def test_credentials_of_the_url_are_sent_and_never_shown() -> None:
    with BadWeb(saying(http_answer("no", status="403 Forbidden"))) as server:
        client = Prometheus(f"http://alice:p%40ss@127.0.0.1:{server.port}")
        with pytest.raises(Unavailable) as caught:
            client.query("up")
        assert b"\r\nAuthorization: Basic YWxpY2U6cEBzcw==\r\n" in server.requests[0]
    assert client.where == f"http://127.0.0.1:{server.port}"
    assert not any(secret in f"{caught.value}{caught.value.fields}{client!r}" for secret in ("alice", "p@ss", "p%40ss"))


def test_a_refused_connection_and_an_unknown_host_are_said() -> None:
    (port,) = free_ports(1)
    for url, words in ((f"http://127.0.0.1:{port}", "Connection refused"), ("http://no.such.host.invalid", "")):
        with pytest.raises(Unavailable) as caught:
            Prometheus(url, timeout_seconds=10).query("up")
        assert caught.value.code == "prometheus_unavailable"
        assert f"{url} did not answer: " in str(caught.value)
        assert words in str(caught.value)


URLS = [
    "", "prometheus:9090", "ftp://x", "http://", "http://x:99999", "http://x:y", "http://u:s3cr3t@[::1",
    "http://x/a b", "http://x/?q=s3cr3t", "http://u:s3cr3t@x\u2100y", "http://x/\u00e4",
]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_a_bad_url_is_a_wrong_word(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Prometheus(url)
    assert caught.value.code == "prometheus_bad_url"
    assert "s3cr3t" not in str(caught.value)


def test_settings_are_checked_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    wrong: list[dict[str, Any]] = [
        {"bearer_token": "a\r\nX-Evil: 1"},
        {"headers": {"X\r\nEvil": "1"}},
        {"headers": {"X": "ü"}},
        {"timeout_seconds": 0},
        {"timeout_seconds": float("nan")},
        {"ca_file": str(tmp_path / "none.pem")},
        {"ca_file": str(tmp_path / "ca.pem")},
    ]
    for settings in wrong:
        with pytest.raises(UsageError) as caught:
            Prometheus("https://x", **settings)
        assert caught.value.code == "prometheus_bad_setting"
    for expression in ("", " \n", "x" * 20_001):
        with pytest.raises(UsageError) as caught:
            Prometheus("http://x").query(expression)
        assert caught.value.code == "prometheus_bad_query"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 that nobody trusts, in one file."""
    openssl = shutil.which("openssl") or missing_part("openssl")
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(command, check=True, capture_output=True)
    with path.open("a") as file:
        file.write(Path(f"{path}.crt").read_text())
    return path


def test_https_is_trusted_only_with_the_right_authority(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with BadWeb(saying(http_answer(success([row("1")]))), tls=context) as server:
        assert Prometheus(server.url, ca_file=f"{certificate}.crt").query("up").samples
        with pytest.raises(Unavailable) as caught:
            Prometheus(server.url).query("up")
    assert caught.value.code == "prometheus_unavailable"
    assert "its certificate is not trusted: self-signed certificate" in str(caught.value)


def test_https_to_a_server_without_it_ends_in_time() -> None:
    with BadWeb(say_nothing) as silent, BadWeb(saying(http_answer(success([])))) as plain:
        for server, code in ((silent, "prometheus_unavailable"), (plain, "prometheus_bad_answer")):
            began = time.monotonic()
            with pytest.raises(Unavailable) as caught:
                Prometheus(server.url.replace("http:", "https:"), timeout_seconds=SOON_SECONDS).query("up")
            assert time.monotonic() - began < SOON_SECONDS + 2
            assert caught.value.code in (code, "prometheus_unavailable")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "status": st.sampled_from(["success", "error"]) | JSON,
            "data": st.fixed_dictionaries(
                {},
                optional={
                    "resultType": st.sampled_from(["vector", "scalar", "matrix"]) | JSON,
                    "result": JSON | st.lists(st.fixed_dictionaries({"metric": JSON, "value": JSON}), max_size=2),
                },
            )
            | JSON,
            "errorType": JSON,
            "error": JSON,
            "warnings": JSON,
        },
    )
)
def test_no_answer_makes_anything_but_a_vector_or_our_error(document: dict[str, object]) -> None:
    body = msgspec.json.encode(document)
    with suppress(PlimsollError):
        assert Prometheus("http://x")._read(body).nan_count >= 0


@given(st.lists(st.sampled_from(["0", "1.5", "NaN", "+Inf", "-Inf", "1e308"]), max_size=20))
def test_every_sample_is_handed_on_or_counted(values: list[str]) -> None:
    counter = itertools.count()
    body = success([row(value, n=str(next(counter))) for value in values]).encode()
    vector = Prometheus("http://x")._read(body)
    assert len(vector.samples) + vector.nan_count == len(values)
    assert [sample.labels["n"] for sample in vector.samples] == [
        str(place) for place, value in enumerate(values) if value in ("0", "1.5", "1e308")
    ]
