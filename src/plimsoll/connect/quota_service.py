"""A quota service over HTTP: one JSON document for each cluster, read by GET and replaced by PUT, both signed.

Decides only whether the service took what was sent. Must never show the secret, follow a redirect, or repeat a PUT in a
way that the service could take for another one: every attempt carries the same `Idempotency-Key`.

    Plimsoll-Timestamp: 1767610800                     seconds since 1970
    Plimsoll-Signature: sha256=HEX                     HMAC-SHA256 with the secret over the bytes
                                                       TIMESTAMP\\nMETHOD\\nPATH\\nBODY
    Idempotency-Key: HEX                               one for each change, the same for all its attempts (PUT only)

The key is not made of the body: limits that come back to what they were last week are a change, and a service that
remembers keys would take it for the old one and not write it.
"""

from __future__ import annotations

import hmac
import ssl
import time
import uuid
from collections.abc import Callable, Mapping

from plimsoll.connect.web import Address, Answer, NoAnswer, Trouble, exchange, read_address
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError

TIMEOUT_SECONDS = 20.0
BODY_BYTES_MAX = 16 << 20
ATTEMPTS_MAX = 4
RETRY_SECONDS = 0.5
RETRY_STATUSES = (429, 502, 503, 504)
SECRET_CHARS_MIN = 16
WORDS_CHARS_MAX = 300


class QuotaService:
    """The document of one cluster at a URL."""

    def __init__(
        self,
        url: str,
        *,
        secret: str,
        ca_file: str = "",
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            self._address, credentials = read_address(url)
        except ValueError as error:
            raise _bad_setting(f"this is not the URL of a quota service: {error}", "write https://HOST/PATH") from None
        if credentials:
            raise _bad_setting("the URL has a password in it", "give the secret: PLIMSOLL_HTTP_SECRET")
        if len(secret) < SECRET_CHARS_MIN:
            raise _bad_setting(
                f"the secret has {len(secret)} characters, and {SECRET_CHARS_MIN} is the least",
                "make one: openssl rand -hex 32; then give it in PLIMSOLL_HTTP_SECRET or --secret-file FILE",
            )
        self._secret = secret.encode()
        self._timeout_seconds, self._clock, self._sleep = timeout_seconds, clock, sleep
        self._tls = _trust(ca_file) if self._address.scheme == "https" else None

    @property
    def where(self) -> str:
        return str(self._address)

    def __repr__(self) -> str:
        return f"QuotaService({self.where!r})"

    def fetch(self) -> bytes | None:
        """The document as it is; None where there is none yet."""
        answer = self._ask("GET", b"", {})
        if answer.status in (204, 404):
            return None
        if answer.status != 200:
            raise self._refused(answer)
        return answer.body

    def replace(self, body: bytes) -> None:
        """Put another document in its place; returns when the service has said that it did."""
        key = uuid.uuid4().hex
        answer = self._ask("PUT", body, {"Content-Type": "application/json", "Idempotency-Key": key})
        if answer.status not in (200, 201, 204):
            raise self._refused(answer)

    def _ask(self, method: str, body: bytes, more: Mapping[str, str]) -> Answer:
        """One exchange; again, a bounded number of times, where the service is busy or was not heard."""
        path = self._address.path or "/"
        address = Address(self._address.scheme, self._address.host, self._address.port, path)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                answer = exchange(
                    method,
                    address,
                    body=body,
                    headers={**self._headers(method, path, body), **more},
                    timeout_seconds=self._timeout_seconds,
                    body_bytes_max=BODY_BYTES_MAX,
                    tls=self._tls,
                )
            except NoAnswer as failed:
                if attempt == ATTEMPTS_MAX or failed.trouble in (Trouble.UNTRUSTED, Trouble.TOO_MUCH):
                    raise self._no_answer(failed, attempt) from failed
            else:
                if answer.status not in RETRY_STATUSES or attempt == ATTEMPTS_MAX:
                    return answer
            self._sleep(RETRY_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _headers(self, method: str, path: str, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._clock()))
        return {
            "Accept": "application/json",
            "User-Agent": "plimsoll",
            "Plimsoll-Timestamp": timestamp,
            "Plimsoll-Signature": f"sha256={sign(self._secret, timestamp, method, path, body)}",
        }

    def _no_answer(self, failed: NoAnswer, attempts: int) -> PlimsollError:
        next_step = {Trouble.UNTRUSTED: "give the certificate authority that signed it: --ca-file FILE"}.get(
            failed.trouble, "look whether the service runs there, then push again: nothing is done twice"
        )
        return Unavailable(
            "quota_service_unavailable",
            f"{self.where} did not answer, asked {attempts} times: {failed.detail}",
            next_step=next_step,
            url=self.where,
            attempts=attempts,
        )

    def _refused(self, answer: Answer) -> PlimsollError:
        words = _one_line(answer.body.decode(errors="replace")) or answer.location
        message = f"{self.where} said HTTP {answer.status}{': ' if words else ''}{words}"
        if answer.status in (401, 403):
            next_step = "give the secret that the service has, and look at both clocks: PLIMSOLL_HTTP_SECRET"
            return Unavailable("quota_service_unavailable", message, next_step=next_step, status=answer.status)
        if 400 <= answer.status < 500 and answer.status not in RETRY_STATUSES:
            next_step = "ask the people of the service what it does not like"
            return Refused("quota_service_refused", message, next_step=next_step, status=answer.status)
        next_step = "look at the service's log, then push again: nothing is done twice"
        return Unavailable("quota_service_unavailable", message, next_step=next_step, status=answer.status)


def sign(secret: bytes, timestamp: str, method: str, path: str, body: bytes) -> str:
    """What proves to the service that the request is ours, for this document, and from now."""
    return hmac.new(
        secret, b"\n".join([timestamp.encode(), method.encode(), path.encode(), body]), "sha256"
    ).hexdigest()


def _trust(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # an SSLError, too
        raise _bad_setting(f"{ca_file[:200]} is not a file of certificates", "give a file in PEM form") from error


def _bad_setting(what: str, next_step: str) -> PlimsollError:
    return UsageError("quota_service_bad_setting", what, next_step=next_step)


def _one_line(text: str) -> str:
    """Words from outside, as one bounded line that can't control a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * WORDS_CHARS_MAX]).split())[
        :WORDS_CHARS_MAX
    ]
