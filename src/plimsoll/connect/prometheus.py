"""Ask a Prometheus server for the value of an expression at a moment.

Decides only whether an answer can be trusted to be whole. Must never follow a redirect, show or log a token, hand on a
NaN as if it were a number, or take an answer of any size.
"""

from __future__ import annotations

import base64
import math
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NoReturn
from urllib.parse import unquote, urlencode

import msgspec

from plimsoll.connect.web import Address, Answer, NoAnswer, Trouble, post, read_address
from plimsoll.errors import PlimsollError, Unavailable, UsageError

TIMEOUT_SECONDS = 30.0
TIMEOUT_SECONDS_MAX = 600.0
BODY_BYTES_MAX = 128 << 20
"""About 250,000 samples with the labels of the DCGM exporter."""
SAMPLES_MAX = 250_000
EXPRESSION_CHARS_MAX = 20_000
WORDS_CHARS_MAX = 500
WARNINGS_MAX = 20

NARROW = "ask for less: select by cluster or job in the expression, or aggregate with max by (Hostname, gpu) (…)"
TOO_MANY_IN_SERVER = "too many samples"
"""How Prometheus words that a query went over its own --query.max-samples."""


class Sample(msgspec.Struct, frozen=True):
    """One number with its labels."""

    labels: dict[str, str]
    value: float
    at: datetime


class Vector(msgspec.Struct, frozen=True):
    """The samples of an expression at one moment. What is not a finite number is left out and counted.

    `warnings` are the server's own: with a query layer over many servers they say that a part did not answer.
    """

    samples: list[Sample]
    nan_count: int
    warnings: tuple[str, ...] = ()


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815  # Prometheus' name
    result: msgspec.Raw


class _Document(msgspec.Struct):
    status: str
    data: _Data | None = None
    errorType: str = ""  # noqa: N815
    error: str = ""
    warnings: list[str] = []


class _Row(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str] | None = None  # a native histogram has none


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_documents = msgspec.json.Decoder(_Document)
_vectors = msgspec.json.Decoder(list[_Row])
_scalars = msgspec.json.Decoder(tuple[float, str])


class Prometheus:
    """A server at a URL, which may have a path prefix and `user:password@`."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        bearer_token: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
    ) -> None:
        try:
            self._address, credentials = read_address(url)
        except ValueError as error:
            raise UsageError(
                "prometheus_bad_url",
                f"this is not the URL of a Prometheus server: {error}",
                next_step="write http://HOST:9090 or https://HOST/PREFIX",
            ) from None
        if not 0 < timeout_seconds <= TIMEOUT_SECONDS_MAX:
            raise UsageError(
                "prometheus_bad_setting",
                f"a timeout of {timeout_seconds:g} s is not more than 0 and at most {TIMEOUT_SECONDS_MAX:g} s",
                next_step=f"leave it at {TIMEOUT_SECONDS:g} s",
            )
        self._timeout_seconds = timeout_seconds
        self._headers = {"Accept": "application/json", **_checked_headers(headers or {}, bearer_token, credentials)}
        self._tls = _trust(ca_file) if self._address.scheme == "https" else None

    @property
    def where(self) -> str:
        """The URL without credentials: what to show."""
        return str(self._address)

    def __repr__(self) -> str:
        return f"Prometheus({self.where!r})"

    def query(self, expression: str, *, at: datetime | None = None) -> Vector:
        """The value of an expression now, or at a moment. Raises Unavailable and UsageError."""
        if not expression.strip() or len(expression) > EXPRESSION_CHARS_MAX:
            raise UsageError(
                "prometheus_bad_query",
                f"an expression has 1 to {EXPRESSION_CHARS_MAX:,} characters, this one {len(expression):,}",
                next_step="write an expression such as DCGM_FI_DEV_XID_ERRORS > 0",
            )
        form = {"query": expression, "timeout": f"{max(self._timeout_seconds, 0.001):.3f}"}
        if at is not None:
            assert at.tzinfo is not None, "moments have a zone"
            form["time"] = f"{at.timestamp():.3f}"
        answer = self._ask(urlencode(form).encode())
        if not 200 <= answer.status < 300:
            self._refuse_status(answer)
        return self._read(answer.body)

    def _ask(self, body: bytes) -> Answer:
        address = Address(
            self._address.scheme, self._address.host, self._address.port, f"{self._address.path}/api/v1/query"
        )
        try:
            return post(
                address,
                body=body,
                headers={**self._headers, "Content-Type": "application/x-www-form-urlencoded"},
                timeout_seconds=self._timeout_seconds,
                body_bytes_max=BODY_BYTES_MAX,
                tls=self._tls,
            )
        except NoAnswer as failed:
            raise self._no_answer(failed) from failed

    def _no_answer(self, failed: NoAnswer) -> PlimsollError:
        if failed.trouble is Trouble.TOO_MUCH:
            return Unavailable(
                "prometheus_too_much",
                f"the answer of {self.where} has {failed.detail}; at most {BODY_BYTES_MAX:,} are read",
                next_step=NARROW,
                url=self.where,
                bytes_max=BODY_BYTES_MAX,
            )
        if failed.trouble is Trouble.BROKEN:
            return self._bad_answer(failed.detail)
        next_step = {
            Trouble.TOO_SLOW: "look at the server's load, ask for less, or allow more time",
            Trouble.UNTRUSTED: "give the file of the certificate authority that signed it",
        }.get(failed.trouble, "look whether the server runs there and the network lets you through")
        return Unavailable(
            "prometheus_unavailable",
            f"{self.where} did not answer: {failed.detail}",
            next_step=next_step,
            url=self.where,
            timeout_seconds=self._timeout_seconds,
        )

    def _refuse_status(self, answer: Answer) -> NoReturn:
        if 300 <= answer.status < 400:
            raise self._bad_answer(
                f"HTTP {answer.status}, a redirect to {answer.location or 'nowhere'}, which is not followed",
                next_step="give the URL it points to, without /api/v1/query",
            )
        try:
            document = _documents.decode(answer.body)
        except _UNREADABLE:
            self._refuse_plain_status(answer)
        self._refuse_error(document, answer.status)

    def _refuse_plain_status(self, answer: Answer) -> NoReturn:
        """The server, or something before it, said no without Prometheus' own words."""
        if answer.status == 404:
            raise self._bad_answer(
                "HTTP 404: there is no Prometheus API under this URL", next_step="check the path prefix of the URL"
            )
        next_step = {
            401: "give a bearer token, or a newer one",
            403: "give a token that may read",
            429: "wait, and ask less often",
        }.get(answer.status, "look at the server's log")
        words = _one_line(answer.body.decode(errors="replace"))
        raise Unavailable(
            "prometheus_unavailable",
            f"{self.where} said HTTP {answer.status}{': ' if words else ''}{words}",
            next_step=next_step,
            url=self.where,
            status=answer.status,
        )

    def _refuse_error(self, document: _Document, status: int) -> NoReturn:
        """Prometheus' own words, by its kind of error."""
        words = _one_line(document.error) or "no reason given"
        if TOO_MANY_IN_SERVER in words:
            raise Unavailable(
                "prometheus_too_much", f"{self.where} will not answer: {words}", next_step=NARROW, url=self.where
            )
        if document.errorType in ("bad_data", "execution"):
            raise UsageError(
                "prometheus_bad_query",
                f"{self.where} does not understand the query: {words}",
                next_step="try the expression on the server's own page",
                url=self.where,
                kind=document.errorType,
            )
        raise Unavailable(
            "prometheus_unavailable",
            f"{self.where} can't answer ({document.errorType or 'no kind'}, HTTP {status}): {words}",
            next_step="look at the server's load and log, or ask for less",
            url=self.where,
            kind=document.errorType,
            status=status,
        )

    def _read(self, body: bytes) -> Vector:
        try:
            document = _documents.decode(body)
            if document.status != "success" or document.data is None:
                self._refuse_error(document, 200)
            kind = document.data.resultType
            if kind == "scalar":
                rows = [_Row({}, _scalars.decode(document.data.result))]
            elif kind == "vector":
                rows = _vectors.decode(document.data.result)
            else:
                raise UsageError(
                    "prometheus_bad_query",
                    f"{self.where} answered with a {_one_line(kind)}, not with one value for each series",
                    next_step="take off the range, as in rate(x[5m]) instead of x[5m]",
                    url=self.where,
                )
        except _UNREADABLE as error:
            raise self._bad_answer(f"{_one_line(str(error))}, in {len(body):,} bytes") from error
        if len(rows) > SAMPLES_MAX:
            raise Unavailable(
                "prometheus_too_much",
                f"the answer of {self.where} has {len(rows):,} samples; at most {SAMPLES_MAX:,} are taken",
                next_step=NARROW,
                url=self.where,
                samples=len(rows),
                samples_max=SAMPLES_MAX,
            )
        return self._vector(rows, tuple(_one_line(words) for words in document.warnings[:WARNINGS_MAX]))

    def _vector(self, rows: list[_Row], warnings: tuple[str, ...]) -> Vector:
        samples: list[Sample] = []
        for number, row in enumerate(rows):
            if row.value is None:
                raise self._bad_answer(
                    f"sample {number} has no value: it is a native histogram",
                    next_step="ask for a number, as in histogram_quantile(0.99, x)",
                )
            seconds, text = row.value
            try:
                value, at = float(text), datetime.fromtimestamp(seconds, UTC)
            except (ValueError, OverflowError, OSError):
                raise self._bad_answer(
                    f"sample {number} is {text[:40]!r} at {seconds:g}, not a number at a time"
                ) from None
            if math.isfinite(value):
                samples.append(Sample(row.metric, value, at))
        return Vector(samples, len(rows) - len(samples), warnings)

    def _bad_answer(
        self, detail: str, *, next_step: str = "check that the URL is that of a Prometheus server"
    ) -> Unavailable:
        return Unavailable(
            "prometheus_bad_answer",
            f"the answer of {self.where} can't be used: {detail}",
            next_step=next_step,
            url=self.where,
        )


def _checked_headers(headers: Mapping[str, str], bearer_token: str | None, credentials: str) -> dict[str, str]:
    checked = dict(headers)
    if credentials:
        checked["Authorization"] = f"Basic {base64.b64encode(unquote(credentials).encode()).decode()}"
    if bearer_token is not None:
        checked["Authorization"] = f"Bearer {bearer_token.strip()}"
    for name, value in checked.items():
        is_token = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
        if not (is_token and value.isascii() and value.isprintable()):
            raise UsageError(
                "prometheus_bad_setting",
                f"the header {name[:60]!r} (or the token that goes into it) is not one line of printable ASCII",
                next_step="look for a line break or a stray character in it",
            )
    return checked


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError, too
        raise UsageError(
            "prometheus_bad_setting",
            f"{str(ca_file)[:200]} is not a file of certificates: {error.strerror or error}",
            next_step="give a file in PEM form",
        ) from error


def _one_line(text: str) -> str:
    """Words from outside, as one bounded line that can't control a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * WORDS_CHARS_MAX]).split())[
        :WORDS_CHARS_MAX
    ]
