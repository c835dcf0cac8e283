"""Who is asking, and may they: tokens and sessions, forged requests, too many of them.

Deny by default: a request without a name gets only what is open to everybody. Must never put a secret into a log, a
message or a cache key, and never let a page of somebody else's act with a visitor's session.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
from starlette.requests import Request

from plimsoll.access import service
from plimsoll.access.decide import Verdict, judge
from plimsoll.access.model import Permission, Principal
from plimsoll.errors import PlimsollError
from plimsoll.server.lanes import Lane
from plimsoll.server.settings import Settings
from plimsoll.state.keeper import Keeper

KNOWN_SECONDS_MAX = 2.0
"""How long somebody who was recognised is not looked up again: the longest a revoked token still works."""
KNOWN_MAX = 5_000
BUCKETS_MAX = 20_000
UNKNOWN_PER_SECOND = 100.0
"""How many secrets that are not known yet are looked up for one address."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class NotSignedIn(PlimsollError):
    """Nobody is known by what was sent."""

    status = 401


class Forbidden(PlimsollError):
    """Known, and not allowed."""

    status = 403


class TooMany(PlimsollError):
    """More requests than are taken from one."""

    status = 429


class Visitor(msgspec.Struct, frozen=True):
    """Whoever asks: a principal, or nobody; how they were recognised."""

    principal: Principal | None = None
    by: str = ""
    """`token`, `session`, or empty."""

    @property
    def label(self) -> str:
        return self.principal.label if self.principal is not None else ""

    def may(self, permission: Permission, team: str = "") -> bool:
        return judge(self.principal, permission, team).is_allowed


NOBODY = Visitor()
Find = Callable[[Keeper], Principal | None]


class Guard:
    """Recognises who asks. What was found is kept for a moment, under a hash."""

    def __init__(self, settings: Settings, lane: Lane, mapping: service.Mapped) -> None:
        self._settings, self._lane, self.mapping = settings, lane, mapping
        self._known: OrderedDict[bytes, tuple[float, Visitor]] = OrderedDict()
        self.requests = Buckets(settings.requests_per_second, burst_seconds=2.0)
        self.unknown = Buckets(UNKNOWN_PER_SECOND, burst_seconds=5.0)
        self.writes = Buckets(settings.writes_per_second, burst_seconds=4.0)

    @property
    def cookie(self) -> str:
        """A `__Host-` cookie is bound to the one host and to TLS by the browser itself."""
        return "__Host-plimsoll" if self._settings.is_secure else "plimsoll"

    async def visitor(self, request: Request) -> Visitor:
        """Who it is; a secret that is wrong is refused and not taken for none."""
        header = request.headers.get("authorization", "")
        if header:
            scheme, _, secret = header.partition(" ")
            if scheme.lower() != "bearer" or not secret.strip():
                raise NotSignedIn("bad_authorization", "Authorization is not `Bearer TOKEN`", next_step=HOW)
            return await self._recognise("token", secret.strip(), _address(request), is_strict=True)
        if request.url.path == CALENDAR and (secret := request.query_params.get("token", "")):
            # A calendar can send no header. The address then is the secret, and so it opens nothing else.
            visitor = await self._recognise("token", secret, _address(request), is_strict=True)
            if visitor.principal is None or visitor.principal.scopes != frozenset({Permission.SEE_WAVES}):
                raise Forbidden("wide_token", "a token in an address may see planned work only", next_step=HOW_CALENDAR)
            return visitor
        if secret := request.cookies.get(self.cookie, ""):
            return await self._recognise("session", secret, _address(request), is_strict=False)
        return NOBODY

    async def _recognise(self, by: str, secret: str, address: str, *, is_strict: bool) -> Visitor:
        key = hashlib.blake2b(f"{by}:{secret}".encode(errors="replace"), digest_size=20).digest()
        now = time.monotonic()
        if (known := self._known.get(key)) is not None and now - known[0] < KNOWN_SECONDS_MAX:
            return known[1]
        if wait := self.unknown.take(address):  # whoever tries secrets must not keep others from their turn
            raise _too_many(f"more than {UNKNOWN_PER_SECOND:g} unknown secrets a second from one address", wait)
        principal = await self._lane.run(lambda keeper: self._look_up(keeper, by, secret))
        if principal is None and is_strict:
            raise NotSignedIn("bad_token", "the token is unknown, over or revoked", next_step=HOW)
        visitor = Visitor(principal, by) if principal is not None else NOBODY
        self._known[key] = (now, visitor)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return visitor

    def _look_up(self, keeper: Keeper, by: str, secret: str) -> Principal | None:
        find = service.find_token if by == "token" else service.find_session
        return find(keeper.ledger.store, keeper.state(), secret, keeper.ledger.clock(), self.mapping)

    def forget(self) -> None:
        """Look everybody up anew: somebody signed out, or rights were changed here."""
        self._known.clear()

    def check_origin(self, request: Request, visitor: Visitor) -> None:
        """A browser sends a session along with whatever page has a form: only our own pages may act with it."""
        if request.method in SAFE_METHODS or visitor.by != "session":
            return
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        own = {self._settings.origin, *(f"http://{host}" for host in self._settings.hosts)}
        is_own = site == "same-origin" or (site is None and origin in own)
        if origin is not None and origin not in own:
            is_own = False
        if not is_own:
            raise Forbidden(
                "foreign_page",
                "the request does not come from a page of ours",
                next_step="open the page here, or send a token: Authorization: Bearer TOKEN",
            )

    def check_rate(self, request: Request, visitor: Visitor) -> None:
        """At most so many a second from one."""
        who = visitor.label or _address(request)
        wait = self.requests.take(who)
        if not wait and request.method not in SAFE_METHODS:
            wait = self.writes.take(who)
        if wait:
            most = f"{self._settings.requests_per_second:g} requests, or {self._settings.writes_per_second:g} changes"
            raise _too_many(f"more than {most}, a second", wait)


def _too_many(what: str, wait: float) -> TooMany:
    return TooMany("too_many_requests", what, next_step=f"wait {wait:.1f} s", retry_after=max(1, round(wait)))


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


CALENDAR = "/api/v1/calendar"
HOW_CALENDAR = "plimsoll access token issue NAME --scope see_waves"
HOW = "sign in at /signin, or plimsoll access token issue"


def check_permission(
    principal: Principal | None, permissions: Sequence[Permission], teams: Sequence[str], *, act: str
) -> None:
    """Allowed by one of the permissions, for each of the teams; else an error that says what is missing."""
    for team in teams or [""]:
        verdicts = [judge(principal, permission, team, act=act) for permission in permissions]
        if any(verdict.is_allowed for verdict in verdicts):
            continue
        check_verdict(principal, verdicts[0])


def check_verdict(principal: Principal | None, verdict: Verdict) -> None:
    """Go on, or an error that says what is missing."""
    if verdict.is_allowed:
        return
    kind = NotSignedIn if principal is None else Forbidden
    raise kind(
        verdict.code,
        verdict.says,
        next_step=HOW if principal is None else verdict.next_step,
        needs=[str(role) for role in verdict.needs],
    )


class Buckets:
    """A bucket of tokens for each who asks: filled at a rate, emptied by asking."""

    def __init__(self, per_second: float, *, burst_seconds: float) -> None:
        self._rate, self._size = per_second, per_second * burst_seconds
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> float:
        """0 where there is one to take, else the seconds until there is."""
        now = time.monotonic()
        left, since = self._left.get(who, (self._size, now))
        left = min(self._size, left + (now - since) * self._rate)
        if left < 1:
            self._left[who] = (left, now)
            return (1 - left) / self._rate
        self._left[who] = (left - 1, now)
        while len(self._left) > BUCKETS_MAX:
            self._left.popitem(last=False)
        return 0.0
