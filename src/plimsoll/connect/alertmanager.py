"""Silences of an Alertmanager over its v2 API: list, save, expire.

Decides only whether an answer can be trusted. Must never follow a redirect, show a token, or repeat a request that the
server may have carried out: saving a silence that has no id makes another one each time. Whoever asked looks first.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NoReturn
from urllib.parse import quote, unquote

import msgspec

from plimsoll.connect.web import Address, Answer, NoAnswer, Trouble, exchange, one_line, read_address, trust
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError
from plimsoll.times import parse_time, show_time

TIMEOUT_SECONDS = 20.0
BODY_BYTES_MAX = 64 << 20
SILENCES_MAX = 50_000
WORDS_CHARS_MAX = 300
EXPIRED = "expired"
GONE = "alertmanager_no_such_silence"
_GONE_WORDS = ("silence not found", "already expired")
"""With which status Alertmanager says so depends on its version and on the request."""


class Matcher(msgspec.Struct, frozen=True):
    """A label that has a value, or one that an expression matches as a whole."""

    name: str
    value: str
    is_regex: bool = False
    is_equal: bool = True


class Silence(msgspec.Struct, frozen=True):
    """A silence as the server knows it. `state` is pending, active or expired."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_at: datetime
    ends_at: datetime
    created_by: str
    comment: str
    state: str

    @property
    def is_expired(self) -> bool:
        return self.state == EXPIRED


class _Matcher(msgspec.Struct, rename="camel"):
    name: str
    value: str
    is_regex: bool
    is_equal: bool = True


class _Status(msgspec.Struct):
    state: str


class _Silence(msgspec.Struct, rename="camel"):
    id: str
    matchers: list[_Matcher]
    starts_at: str
    ends_at: str
    created_by: str
    comment: str
    status: _Status


class _Saved(msgspec.Struct):
    silenceID: str  # noqa: N815  # Alertmanager's name


_silences = msgspec.json.Decoder(list[_Silence])
_saved = msgspec.json.Decoder(_Saved)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


class Alertmanager:
    """A server at a URL, which may have a path prefix and `user:password@`."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        bearer_token: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        try:
            self._address, credentials = read_address(url)
        except ValueError as error:
            raise _bad_setting(
                f"this is not the URL of an Alertmanager: {error}", "write http://HOST:9093 or https://HOST/PREFIX"
            ) from None
        self._timeout_seconds = timeout_seconds
        self._headers = {"Accept": "application/json", "User-Agent": "plimsoll"}
        if bearer_token is not None:
            self._headers["Authorization"] = f"Bearer {bearer_token.strip()}"
        elif credentials:
            self._headers["Authorization"] = f"Basic {base64.b64encode(unquote(credentials).encode()).decode()}"
        if not all(value.isascii() and value.isprintable() for value in self._headers.values()):
            raise _bad_setting("the token is not one line of printable ASCII", "look for a stray character in it")
        self._tls = _trust(ca_file) if self._address.scheme == "https" else None

    @property
    def where(self) -> str:
        """The URL without credentials: what to show."""
        return str(self._address)

    def __repr__(self) -> str:
        return f"Alertmanager({self.where!r})"

    def silences(self) -> list[Silence]:
        """All that the server knows, those that have expired included for as long as it keeps them."""
        answer = self._ask("GET", "/silences")
        try:
            found = _silences.decode(answer.body)
            if len(found) > SILENCES_MAX:
                raise self._bad_answer(f"{len(found):,} silences; at most {SILENCES_MAX:,} are taken")
            return [_silence(each) for each in found]
        except _UNREADABLE as error:
            raise self._bad_answer(f"{one_line(str(error), WORDS_CHARS_MAX)}, in {len(answer.body):,} bytes") from error

    def save(
        self,
        *,
        matchers: Sequence[Matcher],
        starts_at: datetime,
        ends_at: datetime,
        created_by: str,
        comment: str,
        silence_id: str = "",
    ) -> str:
        """Make a silence, or change the one with an id; returns its id, which may be another one afterwards: an active
        silence whose matchers or start change is ended, and a new one made."""
        body = {
            "matchers": [
                {"name": each.name, "value": each.value, "isRegex": each.is_regex, "isEqual": each.is_equal}
                for each in matchers
            ],
            "startsAt": show_time(starts_at),
            "endsAt": show_time(ends_at),
            "createdBy": created_by,
            "comment": comment,
        }
        if silence_id:
            body["id"] = silence_id
        answer = self._ask("POST", "/silences", msgspec.json.encode(body))
        try:
            return _saved.decode(answer.body).silenceID
        except _UNREADABLE as error:
            raise self._bad_answer(one_line(str(error), WORDS_CHARS_MAX)) from error

    def expire(self, silence_id: str) -> None:
        """End a silence now. One that has ended already, or that the server has forgotten, is no mistake."""
        try:
            self._ask("DELETE", f"/silence/{quote(silence_id, safe='')}")
        except Refused as refused:
            if refused.code != GONE:
                raise

    def _ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        address = Address(
            self._address.scheme, self._address.host, self._address.port, f"{self._address.path}/api/v2{path}"
        )
        headers = {**self._headers, "Content-Type": "application/json"} if body else self._headers
        try:
            answer = exchange(
                method,
                address,
                body=body,
                headers=headers,
                timeout_seconds=self._timeout_seconds,
                body_bytes_max=BODY_BYTES_MAX,
                tls=self._tls,
            )
        except NoAnswer as failed:
            raise self._no_answer(failed) from failed
        if not 200 <= answer.status < 300:
            self._refuse(answer)
        return answer

    def _no_answer(self, failed: NoAnswer) -> PlimsollError:
        next_step = {
            Trouble.UNTRUSTED: "give the file of the certificate authority that signed it",
            Trouble.TOO_SLOW: "look at the server's load, then publish again: what is there is found",
        }.get(failed.trouble, "look whether the server runs there, then publish again: what is there is found")
        return Unavailable(
            "alertmanager_unavailable",
            f"{self.where} did not answer: {failed.detail}",
            next_step=next_step,
            url=self.where,
        )

    def _refuse(self, answer: Answer) -> NoReturn:
        if 300 <= answer.status < 400:
            raise self._bad_answer(
                f"HTTP {answer.status}, a redirect to {answer.location or 'nowhere'}, which is not followed"
            )
        words = one_line(_words(answer.body), WORDS_CHARS_MAX)
        message = f"{self.where} said HTTP {answer.status}{': ' if words else ''}{words}"
        if answer.status in (401, 403):
            next_step = "give a token that may change silences"
            raise Unavailable("alertmanager_unavailable", message, next_step=next_step, status=answer.status)
        if any(word in words for word in _GONE_WORDS):
            next_step = "publish again: what is there is found"
            raise Refused(GONE, message, next_step=next_step, status=answer.status)
        if 400 <= answer.status < 500 and answer.status != 429:
            next_step = "look whether the URL is that of an Alertmanager, and at its version: the v2 API is needed"
            raise Refused("alertmanager_refused", message, next_step=next_step, status=answer.status)
        next_step = "look at the server's log, then publish again: what is there is found"
        raise Unavailable("alertmanager_unavailable", message, next_step=next_step, status=answer.status)

    def _bad_answer(self, detail: str) -> Unavailable:
        return Unavailable(
            "alertmanager_bad_answer",
            f"the answer of {self.where} can't be used: {detail}",
            next_step="check that the URL is that of an Alertmanager",
            url=self.where,
        )


def _silence(each: _Silence) -> Silence:
    matchers = tuple(Matcher(one.name, one.value, one.is_regex, one.is_equal) for one in each.matchers)
    return Silence(
        each.id,
        matchers,
        parse_time(each.starts_at).astimezone(UTC),
        parse_time(each.ends_at).astimezone(UTC),
        each.created_by,
        each.comment,
        each.status.state,
    )


def _words(body: bytes) -> str:
    """An error is a JSON string, or a mapping with a message."""
    try:
        found = msgspec.json.decode(body)
    except _UNREADABLE:
        return body.decode(errors="replace")
    return str(found.get("message", found)) if isinstance(found, dict) else str(found)


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return trust(ca_file)
    except ValueError as error:
        raise _bad_setting(str(error), "give a file in PEM form") from error


def _bad_setting(what: str, next_step: str) -> UsageError:
    return UsageError("alertmanager_bad_setting", what, next_step=next_step)
