"""A chat's webhook, as Slack has it: a message posted to a URL that is itself the secret.

Decides only whether the message was taken. Must never show more of the URL than its host, follow a redirect, or post a
message a second time that may have been posted already: only where it surely was not does it try again.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import Callable, Mapping

import msgspec

from plimsoll.connect.web import Address, Answer, NoAnswer, Trouble, exchange, one_line, read_address, trust
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError

TIMEOUT_SECONDS = 15.0
ATTEMPTS_MAX = 4
RETRY_SECONDS = 1.0
RETRY_STATUSES = (429, 503)
"""The two with which a server says that it has not begun."""
MESSAGE_BYTES_MAX = 100_000
BODY_BYTES_MAX = 1 << 20
WORDS_CHARS_MAX = 200
_UNSENT = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Webhook:
    """A place where messages can be posted."""

    def __init__(
        self,
        url: str,
        *,
        ca_file: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            self._address, credentials = read_address(url)
        except ValueError as error:
            raise _bad_setting(f"this is not the URL of a webhook: {error}", "write https://HOST/PATH") from None
        if credentials:
            raise _bad_setting("the URL has a password in it", "give the URL as the chat shows it")
        self._timeout_seconds, self._sleep = timeout_seconds, sleep
        self._tls = _trust(ca_file) if self._address.scheme == "https" else None

    @property
    def where(self) -> str:
        """The host alone: whoever knows the path may post."""
        return str(Address(self._address.scheme, self._address.host, self._address.port, ""))

    def __repr__(self) -> str:
        return f"Webhook({self.where!r})"

    def post(self, message: Mapping[str, object]) -> None:
        """Post a message; returns when the chat has said that it took it."""
        body = msgspec.json.encode(message)
        if len(body) > MESSAGE_BYTES_MAX:
            raise UsageError(
                "webhook_too_long",
                f"the message has {len(body):,} bytes, and at most {MESSAGE_BYTES_MAX:,} are posted",
                next_step="say less, and link to the page",
            )
        answer = self._ask(body)
        if answer.status not in (200, 201, 202, 204):
            raise self._refused(answer)

    def _ask(self, body: bytes) -> Answer:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                answer = exchange(
                    "POST",
                    self._address,
                    body=body,
                    headers={"Content-Type": "application/json; charset=utf-8", "User-Agent": "plimsoll"},
                    timeout_seconds=self._timeout_seconds,
                    body_bytes_max=BODY_BYTES_MAX,
                    tls=self._tls,
                )
            except NoAnswer as failed:
                if attempt == ATTEMPTS_MAX or not _is_unsent(failed):
                    raise self._no_answer(failed, attempt) from None  # the cause may show the path
            else:
                if answer.status not in RETRY_STATUSES or attempt == ATTEMPTS_MAX:
                    return answer
            self._sleep(RETRY_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _no_answer(self, failed: NoAnswer, attempts: int) -> PlimsollError:
        if _is_unsent(failed):
            words, next_step = "was not reached", "look at the URL and the network, then post again"
        elif failed.trouble is Trouble.UNTRUSTED:
            words, next_step = "was not asked", "give the certificate authority that signed it"
        else:
            words, next_step = "did not answer, and may have posted it", "look into the chat before you post again"
        return Unavailable(
            "webhook_unavailable",
            f"{self.where} {words}: {self._clean(failed.detail)}",
            next_step=next_step,
            host=self.where,
            attempts=attempts,
            is_posted="no" if _is_unsent(failed) or failed.trouble is Trouble.UNTRUSTED else "maybe",
        )

    def _refused(self, answer: Answer) -> PlimsollError:
        words = self._clean(answer.body.decode(errors="replace"))
        message = f"{self.where} said HTTP {answer.status}{': ' if words else ''}{words}"
        if answer.status >= 500 or answer.status == 429:
            next_step = "look into the chat whether it was posted, then post again"
            is_posted = "no" if answer.status in RETRY_STATUSES else "maybe"
            return Unavailable(
                "webhook_unavailable", message, next_step=next_step, status=answer.status, is_posted=is_posted
            )
        next_step = "make a new webhook in the chat, or correct its URL"
        return Refused("webhook_refused", message, next_step=next_step, status=answer.status, is_posted="no")

    def _clean(self, text: str) -> str:
        """Words from outside, as one bounded line without what must stay secret."""
        for secret in sorted({self._address.path, *self._address.path.split("/")}, key=len, reverse=True):
            if len(secret) > 3:
                text = text.replace(secret, "…")
        return one_line(text, WORDS_CHARS_MAX)


def _is_unsent(failed: NoAnswer) -> bool:
    """Whether nothing can have been heard at the other end."""
    cause = failed.__cause__
    return isinstance(cause, socket.gaierror) or (isinstance(cause, OSError) and cause.errno in _UNSENT)


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return trust(ca_file)
    except ValueError as error:
        raise _bad_setting(str(error), "give a file in PEM form") from error


def _bad_setting(what: str, next_step: str) -> UsageError:
    return UsageError("webhook_bad_setting", what, next_step=next_step)
