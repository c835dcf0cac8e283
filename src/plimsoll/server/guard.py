"""Who is asking, and may they: tokens and sessions, forged requests, too many of them.

Deny by default: a request without a name gets only what is open to everybody. Must never put a secret into a log, a
message or a cache key, and never let a page of somebody else's act with a visitor's session.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from starlette.requests import Request

from plimsoll.access import service
from plimsoll.access.decide import Verdict, judge
from plimsoll.access.model import PERMISSIONS, Permission, Principal
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

    @property
    def is_inside(self) -> bool:
        """Whether they have a role that sees who holds what, however little of it their token has: not the provider."""
        bindings = self.principal.bindings if self.principal is not None else ()
        return any(Permission.SEE in PERMISSIONS[binding.role] for binding in bindings)


class Pass(msgspec.Struct, frozen=True):
    """What somebody showed, and who they were by it: enough to look them up again. Lives as long as what was asked."""

    by: str
    secret: str
    principal: Principal

    def __repr__(self) -> str:
        return f"Pass({self.by} of {self.principal.label})"


NOBODY = Visitor()


class Guard:
    """Recognises who asks. What was found is kept for a moment, under a hash."""

    def __init__(self, settings: Settings, lane: Lane, mapping: service.Mapped) -> None:
        self._settings, self._lane, self.mapping = settings, lane, mapping
        self._known: OrderedDict[bytes, tuple[float, Visitor]] = OrderedDict()
        self._forgotten = 0
        self.moved = asyncio.Event()
        """Set where rights may have changed: whoever was recognised long ago is to be looked up again."""
        self.requests = Buckets(settings.requests_per_second, burst_seconds=2.0)
        self.unknown = Buckets(UNKNOWN_PER_SECOND, burst_seconds=5.0)
        self.writes = Buckets(settings.writes_per_second, burst_seconds=4.0)

    @property
    def cookie(self) -> str:
        """A `__Host-` cookie is bound to the one host and to TLS by the browser itself."""
        return "__Host-plimsoll" if self._settings.is_secure else "plimsoll"

    async def visitor(self, request: Request) -> Visitor:
        """Who it is; a secret that is wrong is refused and not taken for none."""
        by, secret = self._shown(request)
        if not by:
            return NOBODY
        visitor = await self._recognise(by, secret, _address(request), is_strict=by == "token")
        scopes = visitor.principal.scopes if visitor.principal is not None else None
        if by == "token" and not request.headers.get("authorization") and scopes != frozenset({Permission.SEE_WAVES}):
            # A calendar can send no header. The address then is the secret, and so it opens nothing else.
            raise Forbidden("wide_token", "a token in an address may see planned work only", next_step=HOW_CALENDAR)
        return visitor

    def _shown(self, request: Request) -> tuple[str, str]:
        """By what somebody wants to be recognised, `token` or `session`, and its secret; twice nothing for nobody."""
        if header := request.headers.get("authorization", ""):
            scheme, _, secret = header.partition(" ")
            if scheme.lower() != "bearer" or not secret.strip():
                raise NotSignedIn("bad_authorization", "Authorization is not `Bearer TOKEN`", next_step=HOW)
            return "token", secret.strip()
        if request.url.path == CALENDAR and (secret := request.query_params.get("token", "")):
            return "token", secret
        secret = request.cookies.get(self.cookie, "")
        return ("session", secret) if secret else ("", "")

    def pass_of(self, request: Request, visitor: Visitor) -> Pass | None:
        """What is needed to look somebody up again who was let in by this request."""
        return None if visitor.principal is None else Pass(*self._shown(request), visitor.principal)

    def lost(self, keeper: Keeper, passes: Sequence[Pass]) -> list[Pass]:
        """Those who are not any more who they were: signed out, revoked, over, or with other rights."""
        return [each for each in passes if self._look_up(keeper, each.by, each.secret) != each.principal]

    async def _recognise(self, by: str, secret: str, address: str, *, is_strict: bool) -> Visitor:
        key = hashlib.blake2b(f"{by}:{secret}".encode(errors="replace"), digest_size=20).digest()
        now = time.monotonic()
        if (known := self._known.get(key)) is not None and now - known[0] < KNOWN_SECONDS_MAX:
            return known[1]
        is_stranger = known is None or known[1].principal is None
        # Whoever tries secrets must not keep others from their turn; many whom we know may share an address.
        if is_stranger and (wait := self.unknown.take(address)):
            raise _too_many(f"more than {UNKNOWN_PER_SECOND:g} unknown secrets a second from one address", wait)
        forgotten = self._forgotten
        principal = await self._lane.run(lambda keeper: self._look_up(keeper, by, secret))
        if principal is None and is_strict:
            raise NotSignedIn("bad_token", "the token is unknown, over or revoked", next_step=HOW)
        visitor = Visitor(principal, by) if principal is not None else NOBODY
        if forgotten == self._forgotten:  # else it may have been looked up before what changed meanwhile
            self._known[key] = (now, visitor)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return visitor

    def _look_up(self, keeper: Keeper, by: str, secret: str) -> Principal | None:
        find = service.find_token if by == "token" else service.find_session
        return find(keeper.ledger.store, keeper.state(), secret, keeper.ledger.clock(), self.mapping)

    def forget(self) -> None:
        """Look everybody up anew: somebody signed out, or rights were changed."""
        self._known.clear()
        self._forgotten += 1
        self.moved.set()

    def check_origin(self, request: Request, visitor: Visitor) -> None:
        """A browser sends a session along with whatever page has a form: only our own pages may act with it."""
        if request.method in SAFE_METHODS or visitor.by != "session":
            return
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        own = self._settings.origins
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
