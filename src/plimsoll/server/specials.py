"""What is no command: health checks, metrics, the API's description, the stream of changes, signals as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from plimsoll.access.model import Permission
from plimsoll.errors import PlimsollError, UsageError
from plimsoll.health.intake import read_lines
from plimsoll.health.service import observe
from plimsoll.ledger.store import Store
from plimsoll.server.api import LARGE_BYTES
from plimsoll.server.bodies import read_body
from plimsoll.server.changes import CATCH_UP_MAX, Change, Listener, Watcher, change_of
from plimsoll.server.guard import Visitor
from plimsoll.server.metrics import CONTENT_TYPE, Text, fleet_metrics, hull_metrics
from plimsoll.server.once import key_of, make_once
from plimsoll.server.openapi import document
from plimsoll.server.receipts import UNDER_WAY_SECONDS, UNDER_WAY_SECONDS_SLOW
from plimsoll.server.routes import API
from plimsoll.state.keeper import Keeper
from plimsoll.times import utc_now

if TYPE_CHECKING:
    from plimsoll.server.house import Handler, House

SIGNALS_BYTES_MAX = 64 << 20
FEED_CHARS_MAX = 100
STREAM_TYPE = "text/event-stream"
METRICS_SECONDS = 5.0
PROMISE_DAYS = 7

SPECIAL_PERMISSIONS: Mapping[tuple[str, str], Permission] = {
    ("GET", "/healthz"): Permission.NOBODY_NEEDED,
    ("GET", "/readyz"): Permission.NOBODY_NEEDED,
    ("GET", "/metrics"): Permission.SEE,
    ("GET", f"{API}/openapi.json"): Permission.NOBODY_NEEDED,
    ("GET", f"{API}/changes"): Permission.SEE_WAVES,
    ("GET", f"{API}/status"): Permission.SEE,
    ("POST", f"{API}/signals"): Permission.SIGNAL,
}
"""Each names its permission here, and the house asks for it."""


class Specials:
    """Their handlers."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._openapi: bytes | None = None
        self._metrics: tuple[float, bytes] = (0.0, b"")

    def routes(self) -> dict[tuple[str, str], Handler]:
        return {
            ("GET", "/healthz"): self._healthz,
            ("GET", "/readyz"): self._readyz,
            ("GET", "/metrics"): self._metrics_page,
            ("GET", f"{API}/openapi.json"): self._describe,
            ("GET", f"{API}/changes"): self._changes,
            ("GET", f"{API}/status"): self._status,
            ("POST", f"{API}/signals"): self._signals,
        }

    async def _healthz(self, request: Request, visitor: Visitor) -> Response:
        return _json({"status": "ok"})

    async def _readyz(self, request: Request, visitor: Visitor) -> Response:
        is_ready, facts = self._house.is_ready()
        return _json({"status": "ready" if is_ready else "not ready", **facts}, 200 if is_ready else 503)

    async def _describe(self, request: Request, visitor: Visitor) -> Response:
        if self._openapi is None:
            self._openapi = msgspec.json.encode(document(self._house.api.operations))
        return Response(self._openapi, 200, {"content-type": "application/json", "cache-control": "max-age=300"})

    async def _changes(self, request: Request, visitor: Visitor) -> Response:
        text = request.headers.get("last-event-id") or request.query_params.get("after")
        if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise UsageError("bad_parameter", f"after: {text[:50]!r} is not a revision", parameter="after")
        after = int(text) if text is not None else None
        watcher = self._house.watcher
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":  # a stream has no end that could be waited for
            return Response(b"", 200, {**headers, "content-type": f"{STREAM_TYPE}; charset=utf-8"})
        sees = "" if visitor.may(Permission.SEE) else "campaign/"  # the provider hears of planned work only
        listener = watcher.join(after, sees, self._house.guard.pass_of(request, visitor))
        try:
            missed = None
            if after is not None and after != watcher.head:  # else all that comes is told to everybody
                missed = await self._house.quick.run(lambda keeper: _missed(keeper.ledger.store, after))
        except BaseException:
            watcher.leave(listener)
            raise
        return _Stream(watcher, listener, missed, headers)

    async def _signals(self, request: Request, visitor: Visitor) -> Response:
        """One JSON object a line, as `plimsoll health observe signals` reads."""
        feed = request.query_params.get("feed", "http")
        if not 1 <= len(feed) <= FEED_CHARS_MAX or not feed.isprintable():
            raise UsageError("bad_feed", f"a feed's name has 1 to {FEED_CHARS_MAX} characters", next_step="?feed=NAME")
        body = await read_body(request, SIGNALS_BYTES_MAX)
        lane, seconds = self._house.quick, UNDER_WAY_SECONDS
        if len(body) > LARGE_BYTES:  # nobody who asks for little waits for a feed that sends much
            lane, seconds = self._house.slow, UNDER_WAY_SECONDS_SLOW
        key = key_of(request, visitor, body, seconds=seconds, more=f"?feed={feed}")

        def work(keeper: Keeper) -> Response:
            def take() -> Response:
                signals = read_lines(body.splitlines(), source="the request", now=keeper.ledger.clock())
                observed = observe(keeper, signals, feed=feed, actor=visitor.label)
                headers = {"content-type": "application/json", "plimsoll-revision": str(keeper.revision)}
                return Response(msgspec.json.encode(observed), 200, headers)

            return make_once(keeper, key, take)

        response = await lane.run(work)
        self._house.watcher.saw(int(response.headers.get("plimsoll-revision", "0")))
        return response

    async def _status(self, request: Request, visitor: Visitor) -> Response:
        _, facts = self._house.is_ready()
        controllers = self._house.controllers
        loops = controllers.status() if controllers is not None else []
        counts = self._house.shelf.counts
        return _json(
            {
                "server": facts,
                "listeners": self._house.watcher.listening,
                "answers_again": counts.hits,
                "answers_made": counts.misses,
                "loops": loops,
            }
        )

    async def _metrics_page(self, request: Request, visitor: Visitor) -> Response:
        at, body = self._metrics
        if time.monotonic() - at > METRICS_SECONDS:
            body = await self._make_metrics()
            self._metrics = (time.monotonic(), body)
        return Response(body, 200, {"content-type": CONTENT_TYPE, "cache-control": "no-store"})

    async def _make_metrics(self) -> bytes:
        house, text = self._house, Text()
        _server_metrics(text, house)
        with suppress(PlimsollError):  # the server's own numbers are told also where the fleet's can't be had
            await self._fleet_metrics(text)
        return text.body()

    async def _fleet_metrics(self, text: Text) -> None:
        house, visitor = self._house, METRICS_VISITOR
        quota = _plain(await house.api.said("quota show", {}, visitor))
        health = _plain(await house.api.said("health show", {}, visitor))
        work = _plain(await house.api.said("workload list", {"waiting": True}, visitor))
        promise = _plain(await house.api.said("quota promise", {"days": PROMISE_DAYS}, visitor))
        hull_metrics(text, quota)
        fleet_metrics(text, _facts(health, work, promise, await _incidents(house)))


class _Stream(StreamingResponse):
    """The stream of one listener, who is let go of however it ends."""

    def __init__(self, watcher: Watcher, listener: Listener, missed: Change | None, headers: dict[str, str]) -> None:
        super().__init__(watcher.listen(listener, missed), 200, headers, STREAM_TYPE)
        self._watcher, self._listener = watcher, listener

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._watcher.leave(self._listener)


def _missed(store: Store, after: int) -> Change | None:
    """What happened after a revision; of very much only the end is named, and it says so.

    One who knows more than the ledger has heard of another one, such as that before it was put back to an older copy:
    it is told how far this one goes, and that more happened than is named.
    """
    head = store.head()
    if after > head.revision:
        return Change(head.revision, head.recorded_at, [], [], is_cut=True)
    events = [event for event in store.last_events(CATCH_UP_MAX) if event.revision > after]
    if not events:
        return None
    change = change_of(events)
    return msgspec.structs.replace(change, is_cut=change.is_cut or events[0].revision > after + 1)


def _plain(said: Any) -> Any:
    return msgspec.to_builtins(said.answer.document)


async def _incidents(house: House) -> int:
    found = _plain(await house.api.said("incident list", {}, METRICS_VISITOR))
    return len(found if isinstance(found, list) else found["incidents"])


def _facts(health: Any, work: Any, promise: Any, incidents: int) -> dict[str, Any]:
    present = health["present"]
    now = utc_now()
    ages: dict[str, float | None] = {}
    for feed in present["feeds"]:
        heard = feed["heard_at"]
        heard = datetime.fromisoformat(heard) if isinstance(heard, str) else heard
        ages[feed["feed"]] = max(0.0, (now - heard).total_seconds()) if heard else None
    queue: dict[str, int] = {}
    for each in work["workloads"]:
        reason = each["waits"]["code"] if each["waits"] else each["standing"]
        queue[reason] = queue.get(reason, 0) + 1
    return {
        "by_service": present["by_service"],
        "feed_ages": ages,
        "feeds_silent": {feed["feed"]: feed["is_silent"] for feed in present["feeds"]},
        "queue": queue,
        "promise_kept": promise["fleet"]["kept_share"],
        "promise_kept_by_team": {each["name"]: each["kept_share"] for each in promise["teams"]},
        "incidents": incidents,
    }


def _server_metrics(text: Text, house: House) -> None:
    text.metric("ledger_revision", "gauge", "The newest event.", [({}, house.api.head)])
    text.metric("listeners", "gauge", "Who listens for changes.", [({}, house.watcher.listening)])
    text.metric(
        "lane_waiting",
        "gauge",
        "Requests that wait for their turn.",
        [({"lane": lane.name}, lane.waiting) for lane in house.lanes],
    )
    text.metric(
        "answers_total",
        "counter",
        "Answers given, made anew or again.",
        [({"how": "again"}, house.shelf.counts.hits), ({"how": "made"}, house.shelf.counts.misses)],
    )
    text.metric("mistakes_total", "counter", "Requests that met a mistake of ours.", [({}, house.mistakes)])
    text.metric(
        "requests_total",
        "counter",
        "Requests, by route and status.",
        [({"route": route, "status": code}, count) for (route, code), count in sorted(house.tally.requests.items())],
    )
    text.histogram("request_seconds", "How long requests took.", house.tally.seconds)
    loops = house.controllers.status() if house.controllers is not None else []
    text.metric(
        "controller_lag_seconds",
        "gauge",
        "How long a good pass of a controller has been overdue: 0 where another process leads.",
        [({"controller": loop.name}, loop.lag_seconds) for loop in loops],
    )
    text.metric(
        "controller_leading",
        "gauge",
        "Whether this process leads.",
        [({"controller": loop.name}, float(loop.is_leading)) for loop in loops],
    )


def _json(value: Any, status: int = 200) -> Response:
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return Response(msgspec.json.encode(value), status, headers)


def _metrics_visitor() -> Visitor:
    from plimsoll.access.model import Binding, Kind, Principal, Role

    return Visitor(Principal("metrics", Kind.SERVICE, (Binding(Role.VIEWER),)), "token")


METRICS_VISITOR = _metrics_visitor()
"""Whoever may see the metrics sees these numbers of the whole fleet, and nothing else."""
