"""Buildkite's REST API for tests: one organisation, its builds, its rate limit, and what goes wrong on the way to it.

A real server on loopback, so that processes that get killed can talk to it. Shapes, statuses and headers are those of
Buildkite's documentation (builds, rate limits): a build that waits at a block step says `passed` and `blocked: true`.
"""

from __future__ import annotations

import copy
import enum
import json
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

TOKEN = "bkua_0123456789abcdef"
ORGANISATION = "acme"
PIPELINE = "bootstrap"
PAGE_DEFAULT, PAGE_MAX = 30, 100
CANCELLABLE = ("scheduled", "running", "failing")
OVER = ("passed", "failed", "canceled", "skipped", "not_run")
COURSE = ("running", "passed")
"""What a build goes through after `scheduled` when nobody says otherwise."""


class Fault(enum.Enum):
    """What happens to a request, and whether its work is done."""

    DROP = "the request is dropped: nothing is done, nothing answered"
    ERROR = "an error of the server, before anything is done"
    LOSE = "the work is done and the connection ends without an answer"
    RESET = "the work is done and the connection is torn down"
    ERROR_AFTER = "the work is done, and an error of the server is answered"
    HALF = "the work is done, and half of the answer arrives"
    GARBAGE = "the work is done, and something in between answers with a page of its own"
    SLOW = "the work is done, and the answer takes its time"
    REDIRECT = "the request is sent elsewhere: nothing is done"


NOTHING_DONE = (Fault.DROP, Fault.ERROR, Fault.REDIRECT)


class _Planned(NamedTuple):
    fault: Fault
    method: str
    seconds: float


class Reply(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str] = {}


class FakeBuildkite:
    """`builds` is everything that was ever created. Threads may use it; all changes are made under one lock."""

    def __init__(
        self,
        *,
        organisation: str = ORGANISATION,
        pipelines: Sequence[str] = (PIPELINE,),
        token: str = TOKEN,
        limit: int | None = 200,
        user_limit: int | None = None,
        window_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.organisation, self.token = organisation, token
        self.pipelines: dict[str, list[dict[str, Any]]] = {each: [] for each in pipelines}
        self.limit, self.user_limit, self.window_seconds = limit, user_limit, window_seconds
        self.has_retry_after = True
        self.scopes = {"read_builds", "write_builds"}
        self.polls_a_state: int | None = None
        """After so many looks at a build it goes one state on; None: only when a test says so."""
        self.course: Sequence[str] = COURSE
        self.list_delay = 0
        """How many lists a new build is missing from, as when an index lags behind."""
        self.link_host = ""
        self.requests: list[str] = []
        self.authorizations: set[str] = set()
        self.refused = 0
        self._clock = clock
        self._window_started, self._window_used, self._user_used = float("-inf"), 0, 0
        self._faults: list[_Planned] = []
        self._created: list[dict[str, Any]] = []
        self._lock = threading.RLock()
        self._is_over = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.url = ""

    def start(self) -> FakeBuildkite:
        assert self._server is None, "started twice"
        self._is_over.clear()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End it; the port then refuses connections. What it knows stays, for tests to look at."""
        if self._server is None or self._thread is None:
            return
        self._is_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
        self._server = self._thread = None

    def __enter__(self) -> FakeBuildkite:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    # What tests look at and do.

    @property
    def builds(self) -> list[dict[str, Any]]:
        """All that were ever created, in order, deleted ones included; copies."""
        with self._lock:
            return [copy.deepcopy(_shown(each)) for each in self._created]

    def having(self, key: str, value: str) -> list[dict[str, Any]]:
        return [each for each in self.builds if each["meta_data"].get(key) == value]

    def fail(self, fault: Fault, *, method: str = "", times: int = 1, seconds: float = 30.0) -> None:
        """What happens to the next requests (of a method, where one is named). `seconds`: how slow."""
        with self._lock:
            self._faults += [_Planned(fault, method, seconds)] * times

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()

    def add(self, count: int = 1, *, pipeline: str = PIPELINE, state: str = "passed", **meta_data: str) -> list[int]:
        """Builds of other people; their numbers."""
        with self._lock:
            made = [self._create(pipeline, {"commit": "HEAD", "branch": "main"}, meta_data) for _ in range(count)]
            for each in made:
                self._move(each, state)
            return [each["number"] for each in made]

    def advance(self, number: int, state: str, *, pipeline: str = PIPELINE, job: str = "terraform apply") -> None:
        """Put a build into a state; with `failed` its job has failed with exit status 1."""
        with self._lock:
            self._move(self._build(pipeline, number), state, job=job)

    def block(
        self, number: int, *, pipeline: str = PIPELINE, label: str = "Approve the plan", state: str = "passed"
    ) -> None:
        """A block step waits for a person; `state` is the step's `blocked_state`."""
        with self._lock:
            build = self._build(pipeline, number)
            build["state"], build["blocked"], build["finished_at"] = state, True, _now()
            build["jobs"].append({"id": str(uuid.uuid4()), "type": "manual", "label": label, "state": "blocked"})

    def unblock(self, number: int, *, pipeline: str = PIPELINE) -> None:
        """A person lets it go on."""
        with self._lock:
            build = self._build(pipeline, number)
            for job in build["jobs"]:
                if job["type"] == "manual" and job["state"] == "blocked":
                    job["state"] = "unblocked"
            build["blocked"], build["finished_at"] = False, None
            self._move(build, "running")

    def cancel_by_person(self, number: int, *, pipeline: str = PIPELINE, reason: str = "not today") -> None:
        with self._lock:
            build = self._build(pipeline, number)
            build["cancel_reason"] = reason
            self._move(build, "canceled")

    def ask_as_others(self, count: int) -> None:
        """Requests of people and of other programs: they use the organisation's minute, not the user's."""
        with self._lock:
            self._enter_window()
            self._window_used += count

    def delete(self, number: int, *, pipeline: str = PIPELINE) -> None:
        with self._lock:
            self.pipelines[pipeline].remove(self._build(pipeline, number))

    # What the server does.

    def planned(self, method: str) -> _Planned | None:
        with self._lock:
            for each in self._faults:
                if each.method in ("", method):
                    self._faults.remove(each)
                    return each
            return None

    def wait(self, seconds: float) -> None:
        self._is_over.wait(seconds)

    def answer(self, method: str, target: str, authorization: str, body: bytes, *, is_served: bool) -> Reply:
        """The reply, and the limits in its headers; with `is_served` false only these: nothing is done."""
        with self._lock:
            self.requests.append(f"{method} {target}")
            self.authorizations.add(authorization)
            if authorization != f"Bearer {self.token}":
                return _said(401, "Authentication required. Please supply a valid API Access Token")
            headers, refusal = self._count()
            if refusal is not None:
                return refusal
            reply = self._serve(method, target, body) if is_served else _said(503, "Service Unavailable")
            # A copy: others change the builds while this thread writes them.
            return Reply(reply.status, copy.deepcopy(reply.body), {**headers, **reply.headers})

    def _enter_window(self) -> None:
        now = self._clock()
        if now - self._window_started >= self.window_seconds:
            self._window_started, self._window_used, self._user_used = now, 0, 0

    def _count(self) -> tuple[dict[str, str], Reply | None]:
        """Fixed windows, as the real one has; a refused request counts, too."""
        self._enter_window()
        self._window_used += 1
        self._user_used += 1
        reset = max(1, round(self._window_started + self.window_seconds - self._clock()))
        headers: dict[str, str] = {}
        refusal: Reply | None = None
        organisation, user = (self.limit, self._window_used), (self.user_limit, self._user_used)
        for prefix, scope, (limit, used) in (("", "rest", organisation), ("User-", "rest_user", user)):
            if limit is None:
                continue
            headers |= {
                f"RateLimit-{prefix}Scope": scope,
                f"RateLimit-{prefix}Remaining": str(max(0, limit - used)),
                f"RateLimit-{prefix}Limit": str(limit),
                f"RateLimit-{prefix}Reset": str(reset),
            }
            if used > limit:
                words = (
                    f"You have exceeded your API rate limit. Please wait {reset} seconds before making more requests."
                )
                more = {"scope": scope, "limit": limit, "current": used, "reset": reset}
                refusal = Reply(429, {"message": words, **more}, headers)
        if refusal is not None:
            self.refused += 1
            if self.has_retry_after:
                headers["Retry-After"] = str(reset)
        return headers, refusal

    def _serve(self, method: str, target: str, body: bytes) -> Reply:
        parts = urlsplit(target)
        words = parts.path.strip("/").split("/")
        if words[:3] != ["v2", "organizations", self.organisation] or words[3:4] != ["pipelines"]:
            return _said(404, "Not Found")
        if len(words) < 6 or words[4] not in self.pipelines or words[5] != "builds":
            return _said(404, "No pipeline found")
        scope = "read_builds" if method == "GET" else "write_builds"
        if scope not in self.scopes:
            return _said(403, f"Forbidden. Your access token doesn't have the {scope} scope")
        pipeline, rest = words[4], words[6:]
        if not rest:
            if method == "POST":
                return self._post(pipeline, body)
            return self._list(pipeline, parts.path, parse_qsl(parts.query))
        found = [each for each in self.pipelines[pipeline] if str(each["number"]) == rest[0]]
        if not found:
            return _said(404, "No build found")
        if method == "PUT" and rest[1:] == ["cancel"]:
            return self._cancel(found[0])
        if method == "GET" and not rest[1:]:
            shown = copy.deepcopy(found[0])
            self._look(found[0])
            return Reply(200, shown)
        return _said(404, "Not Found")

    def _post(self, pipeline: str, body: bytes) -> Reply:
        try:
            asked = json.loads(body)
        except ValueError:
            return _said(400, "Problems parsing JSON")
        errors = [
            {"field": field, "code": "missing_field", "value": None}
            for field in ("commit", "branch")
            if not isinstance(asked, dict) or not asked.get(field)
        ]
        if errors or not all(isinstance(asked.get(field, {}), dict) for field in ("env", "meta_data")):
            return Reply(422, {"message": "Validation Failed", "errors": errors})
        return Reply(201, self._create(pipeline, asked, asked.get("meta_data", {})))

    def _create(self, pipeline: str, asked: dict[str, Any], meta_data: dict[str, Any]) -> dict[str, Any]:
        number = 1 + sum(each["pipeline"]["slug"] == pipeline for each in self._created)
        page = f"https://buildkite.com/{self.organisation}/{pipeline}/builds/{number}"
        build = {
            "id": str(uuid.uuid4()),
            "number": number,
            "url": f"{self.url}/v2/organizations/{self.organisation}/pipelines/{pipeline}/builds/{number}",
            "web_url": page,
            "state": "scheduled",
            "cancel_reason": None,
            "blocked": False,
            "message": asked.get("message"),
            "commit": asked["commit"],
            "branch": asked["branch"],
            "env": asked.get("env", {}),
            "source": "api",
            "jobs": [],
            "created_at": _now(),
            "scheduled_at": _now(),
            "started_at": None,
            "finished_at": None,
            "meta_data": {key: str(value) for key, value in meta_data.items()},
            "pipeline": {"slug": pipeline},
            "_looks": 0,
            "_hidden": self.list_delay,
        }
        self.pipelines[pipeline].append(build)
        self._created.append(build)
        return build

    def _list(self, pipeline: str, path: str, query: list[tuple[str, str]]) -> Reply:
        asked = dict(query)
        page, size = int(asked.get("page", 1)), min(int(asked.get("per_page", PAGE_DEFAULT)), PAGE_MAX)
        wanted = {key[10:-1]: value for key, value in query if key.startswith("meta_data[")}
        found = []
        for each in reversed(self.pipelines[pipeline]):
            if each["_hidden"] > 0:
                each["_hidden"] -= 1
            elif all(each["meta_data"].get(key) == value for key, value in wanted.items()):
                found += [each] if each["created_at"] >= asked.get("created_from", "") else []
        shown = found[(page - 1) * size : page * size]
        left_out = {name[8:] for name in ("exclude_jobs", "exclude_pipeline") if asked.get(name) == "true"}
        last = max(1, -(-len(found) // size))
        links = {"next": page + 1, "last": last} if page < last else {}
        links |= {"first": 1, "prev": page - 1} if page > 1 else {}
        text = ", ".join(
            f'<{self.link_host or self.url}{path}?{urlencode({**asked, "page": place})}>; rel="{name}"'
            for name, place in links.items()
        )
        builds = [copy.deepcopy({key: each[key] for key in each.keys() - left_out}) for each in shown]
        for each in shown:
            self._look(each)
        return Reply(200, builds, {"Link": text} if text else {})

    def _cancel(self, build: dict[str, Any]) -> Reply:
        if build["blocked"] or build["state"] not in CANCELLABLE:
            return _said(422, f"Build can't be canceled because it's {build['state']}")
        self._move(build, "canceled" if build["state"] == "scheduled" else "canceling")
        return Reply(200, build)

    def _look(self, build: dict[str, Any]) -> None:
        """Somebody has looked at it: time passes."""
        if build["state"] == "canceling":
            self._move(build, "canceled")
        if self.polls_a_state is None or build["blocked"] or build["state"] in OVER:
            return
        build["_looks"] += 1
        if build["_looks"] >= self.polls_a_state:
            states = ["scheduled", *self.course]
            place = states.index(build["state"]) if build["state"] in states else 0
            if place + 1 < len(states):
                self._move(build, states[place + 1])

    def _move(self, build: dict[str, Any], state: str, *, job: str = "terraform apply") -> None:
        build["state"], build["_looks"] = state, 0
        if state not in ("creating", "scheduled", "skipped", "not_run"):
            build["started_at"] = build["started_at"] or _now()
        if state in OVER:
            build["finished_at"] = _now()
        if state in ("passed", "failed"):
            exit_status = 0 if state == "passed" else 1
            build["jobs"].append(
                {"id": str(uuid.uuid4()), "type": "script", "name": job, "state": state, "exit_status": exit_status}
            )

    def _build(self, pipeline: str, number: int) -> dict[str, Any]:
        return next(each for each in self.pipelines[pipeline] if each["number"] == number)


def _said(status: int, message: str) -> Reply:
    return Reply(status, {"message": message})


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, owner: FakeBuildkite) -> None:
        self.owner = owner
        self.torn: set[Any] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def shutdown_request(self, request: Any) -> None:
        if request not in self.torn:
            super().shutdown_request(request)
            return
        self.torn.discard(request)
        request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_request(request)  # without a farewell: the client's read is reset

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class calls it so
        """Quiet."""

    def _serve(self) -> None:
        owner = self.server.owner
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        planned = owner.planned(self.command)
        fault = planned.fault if planned else None
        authorization = self.headers.get("Authorization", "")
        reply = owner.answer(self.command, self.path, authorization, body, is_served=fault not in NOTHING_DONE)
        if fault is Fault.SLOW and planned:
            owner.wait(planned.seconds)
        if fault in (Fault.DROP, Fault.LOSE, Fault.RESET):
            if fault is Fault.RESET:
                self.server.torn.add(self.request)
            self.close_connection = True
            return
        if fault is Fault.ERROR_AFTER:
            reply = Reply(500, {"message": "Internal Server Error"}, reply.headers)
        if fault is Fault.REDIRECT:
            reply = Reply(302, {}, {"Location": "https://user:secret@elsewhere.example/login?next=1"})
        text = b"<html>Sign in</html>" if fault is Fault.GARBAGE else json.dumps(_shown(reply.body)).encode()
        with suppress(OSError):  # the client may be gone
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text[: len(text) // 2] if fault is Fault.HALF else text)
        if fault is Fault.HALF:
            self.close_connection = True

    do_GET = do_PUT = do_POST = _serve  # noqa: N815  # names of the base class


def _shown(body: Any) -> Any:
    """Without what the double keeps for itself."""
    if isinstance(body, list):
        return [_shown(each) for each in body]
    return {key: value for key, value in body.items() if not key.startswith("_")}
