"""Builds of a Buildkite organisation over its REST API v2: find, create, get, poll, cancel.

Decides only what an answer says, and whether a request may have been carried out although no answer says so. Must never
create twice: Buildkite knows no idempotency key, so `create` is sent once, and whoever asked looks first with `find`
for the operation id that it put into the meta-data. Must never show the token, follow a redirect or a link to another
host, or ask faster than the organisation's `Pace`, which people share with us.
"""

from __future__ import annotations

import enum
import errno
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from plimsoll.connect.pace import Pace
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.connect.web import Address, Answer, NoAnswer, Trouble, exchange, one_line, read_address, trust
from plimsoll.errors import UsageError
from plimsoll.times import format_time, parse_time

URL = "https://api.buildkite.com"
TIMEOUT_SECONDS = 20.0
WAIT_SECONDS_MAX = 10.0
"""How long a request waits for its turn before it says when that will be."""
ATTEMPTS_MAX = 3
RETRY_SECONDS = 0.5
BODY_BYTES_MAX = 64 << 20
REQUEST_BYTES_MAX = 1 << 20
PAGE_BUILDS = 100
FIND_PAGES_MAX = 20
POLL_PAGES_MAX = 10
POLL_LIST_FROM = 3
"""From so many numbers on a page of builds is cheaper than one request each."""
LINK_CHARS_MAX = 65_536
WORDS_CHARS_MAX = 300
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LINK = re.compile(r"<([^<>]*)>\s*;[^,<]*\brel=\"?next\"?")
_NEVER_SENT = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


class BuildState(enum.StrEnum):
    CREATING = "creating"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    PASSED = "passed"
    FAILING = "failing"
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELED = "canceled"
    CANCELING = "canceling"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"
    WAITING = "waiting"
    WAITING_FAILED = "waiting_failed"
    UNKNOWN = "unknown"
    """One that was added after this was written: not over, as far as we know."""


_STATES = {each.value: each for each in BuildState}
_CANCELLED = (BuildState.CANCELED, BuildState.CANCELING)


class Build(msgspec.Struct, frozen=True):
    """One run of a pipeline. `url` is for people. `said`: which job failed, or which block step waits for a person; one
    that waits there is `blocked` and not finished."""

    id: str
    number: int
    state: BuildState
    url: str
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    meta_data: dict[str, str]
    message: str
    said: str = ""


class _Job(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    label: str | None = None
    state: str | None = None
    exit_status: int | None = None
    soft_failed: bool | None = None
    retried: bool | None = None


class _Build(msgspec.Struct):
    id: str
    number: int
    state: str
    web_url: str = ""
    blocked: bool | None = None
    cancel_reason: str | None = None
    message: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    meta_data: dict[str, Any] | None = None
    jobs: list[_Job] | None = None


_one = msgspec.json.Decoder(_Build)
_many = msgspec.json.Decoder(list[_Build])


class Buildkite:
    """One organisation. The token goes into the Authorization header and nowhere else."""

    def __init__(
        self,
        organisation: str,
        token: str,
        *,
        pace: Pace,
        url: str = URL,
        timeout_seconds: float = TIMEOUT_SECONDS,
        wait_seconds_max: float = WAIT_SECONDS_MAX,
        ca_file: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.organisation = _slug(organisation, "organisation")
        try:
            self._address, credentials = read_address(url)
        except ValueError as error:
            raise _bad_setting(f"this is not the URL of Buildkite's API: {error}", f"write {URL}") from None
        if credentials:
            raise _bad_setting("the URL has a password in it", "give the token apart from the URL")
        self._token = token.strip()
        if not self._token or not (self._token.isascii() and self._token.isprintable()):
            raise _bad_setting("the token is not one line of printable ASCII", "look for a stray character in it")
        self._pace, self._sleep = pace, sleep
        self._timeout_seconds, self._wait_seconds_max = timeout_seconds, wait_seconds_max
        self._tls = _trust(ca_file) if self._address.scheme == "https" else None

    @property
    def where(self) -> str:
        """The organisation at its server: what to show."""
        return f"{self._address}/{self.organisation}"

    def __repr__(self) -> str:
        return f"Buildkite({self.where!r})"

    def find(self, pipeline: str, *, key: str, value: str) -> list[Build]:
        """All builds whose meta-data has this value, oldest first. Half a list is never given: whoever asks wants to
        know whether one is there."""
        query = {f"meta_data[{key}]": value}
        found = self._all(pipeline, query, f"with one value of {key}")
        for each in found:
            # A server that filters otherwise than we think must neither lend us a build nor hide one.
            if each.meta_data.get(key) != value:
                raise self._bad_answer(f"build {each.number} is in it and has not the meta-data that was asked for")
        return found

    def made_since(self, pipeline: str, moment: datetime) -> list[Build]:
        """All builds that were made at a moment or later, oldest first: one list to look for many operations in."""
        return self._all(pipeline, {"created_from": format_time(moment)}, f"since {format_time(moment)}")

    def _all(self, pipeline: str, asked: Mapping[str, str], which: str) -> list[Build]:
        path, found = _path(self.organisation, pipeline), dict[int, Build]()
        query = urlencode({**asked, "per_page": PAGE_BUILDS, "exclude_pipeline": "true"})
        for _ in range(FIND_PAGES_MAX):
            builds, query = self._page(path, query)
            found |= {each.number: each for each in builds}
            if not query:
                return [found[number] for number in sorted(found)]
        raise self._bad_answer(f"more than {FIND_PAGES_MAX} pages of builds {which}")

    def create(
        self,
        pipeline: str,
        *,
        commit: str,
        branch: str,
        message: str,
        env: Mapping[str, str],
        meta_data: Mapping[str, str],
    ) -> Build:
        """Start a build. Sent at most once, but for answers that say that it was not looked at (429)."""
        body = msgspec.json.encode(
            {"commit": commit, "branch": branch, "message": message, "env": dict(env), "meta_data": dict(meta_data)}
        )
        if len(body) > REQUEST_BYTES_MAX:
            raise _bad_setting(
                f"the build to create has {len(body):,} bytes, and {REQUEST_BYTES_MAX:,} is the most",
                "put less into its variables and meta-data",
            )
        answer = self._ask("POST", _path(self.organisation, pipeline), body=body)
        return self._read_build(answer, may_have_happened=True)

    def get(self, pipeline: str, number: int) -> Build:
        return self._read_build(self._ask("GET", _path(self.organisation, pipeline, number)))

    def poll(self, pipeline: str, numbers: Collection[int]) -> dict[int, Build]:
        """The builds with these numbers, with few requests: pages of the newest first, as long as they are worth it,
        then one by one. A build that is not there any more is left out; a pipeline that is not there is an error."""
        path, missing = _path(self.organisation, pipeline), set(numbers)
        found: dict[int, Build] = {}
        query = urlencode({"per_page": PAGE_BUILDS, "exclude_pipeline": "true"})
        is_listed = False
        if len(missing) >= POLL_LIST_FROM:
            for _ in range(POLL_PAGES_MAX):
                builds, query = self._page(path, query)
                is_listed = True
                found |= {each.number: each for each in builds if each.number in missing}
                missing -= found.keys()
                if not query or not builds or not _is_page_worth(min(each.number for each in builds), missing):
                    break
        for number in sorted(missing):
            try:
                found[number] = self.get(pipeline, number)
            except ProviderTrouble as trouble:
                if trouble.kind is not TroubleKind.MISSING:
                    raise
                if not is_listed:  # is it the build that is gone, or the pipeline?
                    self._page(path, "per_page=1")
                    is_listed = True
        return found

    def cancel(self, pipeline: str, number: int) -> None:
        """Stop a build. One that has been cancelled already is no mistake; one that is over otherwise is refused."""
        try:
            self._ask("PUT", f"{_path(self.organisation, pipeline, number)}/cancel")
        except ProviderTrouble as trouble:
            if trouble.fields.get("status") != 422 or self.get(pipeline, number).state not in _CANCELLED:
                raise

    def _page(self, path: str, query: str) -> tuple[list[Build], str]:
        """Builds, newest first, and the query of the next page: empty where there is none."""
        answer = self._ask("GET", path, query=query)
        try:
            builds = [_build(each) for each in _many.decode(answer.body)]
        except _UNREADABLE as error:
            raise self._bad_answer(f"{one_line(str(error), WORDS_CHARS_MAX)}, in {len(answer.body):,} bytes") from error
        link = answer.headers.get("link", "")
        if len(link) > LINK_CHARS_MAX:
            raise self._bad_answer(f"its links have {len(link):,} characters")
        if not (next_link := _LINK.search(link)):
            return builds, ""
        # Only the query is taken: the link names a host, and the token goes to none but ours.
        try:
            query = urlsplit(next_link[1]).query
        except ValueError:
            query = ""
        if not query or not (query.isascii() and query.isprintable() and " " not in query):
            raise self._bad_answer("the link to its next page can't be read")
        return builds, query

    def _ask(self, method: str, path: str, *, query: str = "", body: bytes = b"") -> Answer:
        """One exchange. Again, a bounded number of times, where the server was not ready for it (429), and where asking
        changes nothing, when it failed or was not heard."""
        where = f"{self._address.path}{path}{'?' if query else ''}{query}"
        address = Address(self._address.scheme, self._address.host, self._address.port, where)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            wait = self._pace.take(self._wait_seconds_max)
            if wait is not None:
                raise self._busy(wait)
            try:
                answer = self._exchange(method, address, body)
                if 200 <= answer.status < 300:
                    return answer
                raise self._refused(answer, is_change=method != "GET")
            except ProviderTrouble as trouble:
                is_again = trouble.kind is TroubleKind.BUSY or _is_worth_asking_again(method, trouble)
                if attempt == ATTEMPTS_MAX or not is_again:
                    raise
                if trouble.kind is not TroubleKind.BUSY:  # then the pace waits
                    self._sleep(RETRY_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _exchange(self, method: str, address: Address, body: bytes) -> Answer:
        headers = {"Accept": "application/json", "User-Agent": "plimsoll", "Authorization": f"Bearer {self._token}"}
        if body:
            headers["Content-Type"] = "application/json"
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
            raise self._no_answer(failed, is_change=method != "GET") from failed
        if answer.status == 429:
            self._pace.refused(answer.headers)
        else:
            self._pace.learn(answer.headers)
        return answer

    def _no_answer(self, failed: NoAnswer, *, is_change: bool) -> ProviderTrouble:
        may_have_happened = is_change and not _was_never_sent(failed)
        if failed.trouble is Trouble.TOO_MUCH:
            return self._bad_answer(
                f"{failed.detail}, and {BODY_BYTES_MAX:,} is the most", may_have_happened=may_have_happened
            )
        next_step = f"look whether it can be reached from here: curl -sS {self._address}"
        if failed.trouble is Trouble.UNTRUSTED:
            next_step = "give the file of the certificate authority that signed it"
        return ProviderTrouble(
            "buildkite_unreachable",
            f"{self.where} did not answer: {failed.detail}",
            kind=TroubleKind.UNREACHABLE,
            next_step=next_step,
            may_have_happened=may_have_happened,
        )

    def _refused(self, answer: Answer, *, is_change: bool) -> ProviderTrouble:
        """What a status other than 2xx means. 4xx says that nothing was done."""
        status = answer.status
        if 300 <= status < 400:
            detail = f"HTTP {status}, a redirect to {answer.location or 'nowhere'}, which is not followed"
            return self._bad_answer(detail, may_have_happened=is_change)
        if status == 429:
            return self._busy(self._pace.report().wait_seconds)
        words = one_line(_words(answer.body).replace(self._token, "..."), WORDS_CHARS_MAX)
        message = f"{self.where} said HTTP {status}{': ' if words else ''}{words}"
        if status in (401, 403):
            code, kind = "buildkite_unauthorised", TroubleKind.CREDENTIALS
            next_step = "give PLIMSOLL_BUILDKITE_TOKEN a token of it with the scopes read_builds and write_builds"
        elif status == 404:
            code, kind = "buildkite_missing", TroubleKind.MISSING
            next_step = "look at the names of organisation and pipeline, and whether the token's user may see them"
        elif 400 <= status < 500:
            code, kind = "buildkite_refused", TroubleKind.REFUSED
            next_step = "change what Buildkite does not like, in the pipeline's settings or in what is asked for"
        else:
            code, kind = "buildkite_unreachable", TroubleKind.UNREACHABLE
            next_step = "look at Buildkite's status page: https://www.buildkitestatus.com"
        return ProviderTrouble(
            code,
            message,
            kind=kind,
            next_step=next_step,
            may_have_happened=is_change and kind is TroubleKind.UNREACHABLE,
            status=status,
        )

    def _busy(self, wait: float) -> ProviderTrouble:
        report = self._pace.report()
        return ProviderTrouble(
            "buildkite_busy",
            f"{self.where} has had {report.used} requests of ours in the last minute, {report.allowed} are allowed, "
            f"and the next may go out in {wait:.0f} s",
            kind=TroubleKind.BUSY,
            next_step="wait: nothing was done",
            retry_seconds=wait,
            used=report.used,
            allowed=report.allowed,
        )

    def _read_build(self, answer: Answer, *, may_have_happened: bool = False) -> Build:
        try:
            return _build(_one.decode(answer.body))
        except _UNREADABLE as error:
            detail = f"{one_line(str(error), WORDS_CHARS_MAX)}, in {len(answer.body):,} bytes"
            raise self._bad_answer(detail, may_have_happened=may_have_happened) from error

    def _bad_answer(self, detail: str, *, may_have_happened: bool = False) -> ProviderTrouble:
        return ProviderTrouble(
            "buildkite_bad_answer",
            f"the answer of {self.where} can't be used: {detail}",
            kind=TroubleKind.UNREACHABLE,
            next_step="check that the URL is that of Buildkite's REST API, and that nothing in between answers for it",
            may_have_happened=may_have_happened,
        )


def _build(each: _Build) -> Build:
    state = _state(each)
    return Build(
        id=each.id,
        number=each.number,
        state=state,
        url=each.web_url,
        created_at=_moment(each.created_at),
        started_at=_moment(each.started_at),
        finished_at=None if state is BuildState.BLOCKED else _moment(each.finished_at),
        meta_data={key: str(value) for key, value in (each.meta_data or {}).items()},
        message=each.message or "",
        said=_said(each, state),
    )


def _state(each: _Build) -> BuildState:
    """A build that waits at a block step says `passed` (or what the step tells it to) and `blocked: true`."""
    state = _STATES.get(each.state, BuildState.UNKNOWN)
    has_failed = state is BuildState.FAILED and _failed_job(each) is not None
    is_stopped = state in (*_CANCELLED, BuildState.SKIPPED, BuildState.NOT_RUN)
    return BuildState.BLOCKED if each.blocked and not has_failed and not is_stopped else state


def _said(each: _Build, state: BuildState) -> str:
    parts = [f"state '{one_line(each.state, WORDS_CHARS_MAX)}' is new to us"] if state is BuildState.UNKNOWN else []
    if job := _failed_job(each):
        status = "" if job.exit_status is None else f" with exit status {job.exit_status}"
        parts.append(f"job {_job_name(job)} {(job.state or '').replace('_', ' ')}{status}")
    waiting = next((job for job in each.jobs or () if job.type == "manual" and job.state == "blocked"), None)
    if waiting:
        parts.append(f"waits at the block step {_job_name(waiting)}")
    if each.cancel_reason and state in _CANCELLED:
        parts.append(f"cancelled: {one_line(each.cancel_reason, WORDS_CHARS_MAX)}")
    return "; ".join(parts)


def _failed_job(each: _Build) -> _Job | None:
    """The first that failed by itself. Jobs that are `broken` never ran because of it."""
    for job in each.jobs or ():
        if job.state in ("failed", "timed_out", "expired") and not job.soft_failed and not job.retried:
            return job
    return None


def _job_name(job: _Job) -> str:
    return f"'{one_line(job.name or job.label or 'without a name', WORDS_CHARS_MAX)}'"


def _moment(text: str | None) -> datetime | None:
    return parse_time(text) if text else None


def _is_page_worth(lowest_seen: int, missing: Collection[int]) -> bool:
    """Whether paging on to some of the missing costs less than asking for those one by one. Numbers may have gaps, so
    a page reaches at least as far as this counts."""
    wanted = sorted((number for number in missing if number < lowest_seen), reverse=True)
    return any(count > -(-(lowest_seen - number) // PAGE_BUILDS) for count, number in enumerate(wanted, start=1))


def _is_worth_asking_again(method: str, trouble: ProviderTrouble) -> bool:
    cause = trouble.__cause__
    is_lasting = isinstance(cause, NoAnswer) and cause.trouble is Trouble.UNTRUSTED
    return method == "GET" and trouble.code == "buildkite_unreachable" and not is_lasting


def _was_never_sent(failed: NoAnswer) -> bool:
    """Whether it is sure that the server got nothing. In doubt it is not."""
    cause = failed.__cause__
    is_no_way = isinstance(cause, socket.gaierror) or (isinstance(cause, OSError) and cause.errno in _NEVER_SENT)
    return failed.trouble is Trouble.UNTRUSTED or (failed.trouble is Trouble.UNREACHABLE and is_no_way)


def _path(organisation: str, pipeline: str, number: int | None = None) -> str:
    builds = f"/v2/organizations/{quote(organisation, safe='')}/pipelines/{_slug(pipeline, 'pipeline')}/builds"
    if number is None:
        return builds
    assert number > 0, "builds count from 1"
    return f"{builds}/{number}"


def _slug(name: str, what: str) -> str:
    if not _SLUG.fullmatch(name):
        raise _bad_setting(
            f"{name[:100]!r} is not the slug of a Buildkite {what}",
            "write the name as in the address of its page: letters, digits and dashes",
        )
    return name


def _words(body: bytes) -> str:
    """An error is a mapping with a message, and sometimes with a list of what is wrong."""
    try:
        found = msgspec.json.decode(body)
    except _UNREADABLE:
        return body.decode(errors="replace")
    if not isinstance(found, dict):
        return str(found)
    errors = found.get("errors")
    return f"{found.get('message', found)}{f' {errors}' if errors else ''}"


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return trust(ca_file)
    except ValueError as error:
        raise _bad_setting(str(error), "give a file in PEM form") from error


def _bad_setting(what: str, next_step: str) -> UsageError:
    return UsageError("buildkite_bad_setting", what, next_step=next_step)
