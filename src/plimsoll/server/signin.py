"""Signing in and out: by a one-time link, by an issuer (OIDC), and in a demo as one of its people.

Must never send a visitor elsewhere than to a page of ours afterwards, nor open a session for a name that nobody has
vouched for.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from plimsoll.access import service
from plimsoll.access.model import Kind
from plimsoll.connect.oidc import Oidc, Pending, settings_of
from plimsoll.errors import Refused, Unavailable, UsageError
from plimsoll.ledger.model import Paper
from plimsoll.server.bodies import read_body
from plimsoll.server.guard import SAFE_METHODS, Buckets, NotSignedIn, TooMany, Visitor
from plimsoll.server.settings import SIGN_INS_PER_MINUTE
from plimsoll.state.keeper import Keeper
from plimsoll.times import format_time, utc_now

if TYPE_CHECKING:
    from plimsoll.server.house import Handler, House

T = TypeVar("T")
FORM_BYTES_MAX = 16 << 10
ISSUER_THREADS = 2
ISSUER_WAITING_MAX = 16
WAY_MINUTES = 10
WAY = "signin"
"""The kind of paper that remembers a sign-in under way."""

PEOPLE = {
    "ada@example.org": "researcher, member of a team",
    "ines@example.org": "research program manager of the fleet",
    "omar@example.org": "capacity and health engineer",
    "noor@example.org": "on call",
    "pia@example.com": "the provider's engineer",
    "root@example.org": "admin",
}
"""Who can be tried in a demo. All of them are made up."""


class _Way(msgspec.Struct):
    """What a sign-in at the issuer needs when it comes back."""

    pending: Pending
    target: str


class SignIn:
    """Its handlers."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._attempts = Buckets(SIGN_INS_PER_MINUTE / 60, burst_seconds=60.0)
        known = settings_of(house.settings.oidc)
        self._oidc = Oidc(known) if known is not None else None
        self._asking = ThreadPoolExecutor(ISSUER_THREADS, thread_name_prefix="issuer")
        self._asking_count = 0

    def routes(self) -> dict[tuple[str, str], Handler]:
        return {
            ("GET", "/signin"): self._page,
            ("GET", "/signin/oidc"): self._to_issuer,
            ("GET", "/signin/callback"): self._back,
            ("POST", "/signin/as"): self._as,
            ("POST", "/signout"): self._out,
        }

    def prefixes(self) -> list[tuple[str, Handler]]:
        return [("/signin/once/", self._once)]

    async def _page(self, request: Request, visitor: Visitor) -> Response:
        return await self._house.pages.plain(
            "signin.html",
            request,
            visitor,
            has_oidc=self._oidc is not None,
            people=PEOPLE if self._house.settings.is_demo else {},
            next=_own_path(request.query_params.get("next", "/")),
        )

    def _check_attempts(self, request: Request) -> None:
        who = request.client.host if request.client else ""
        if wait := self._attempts.take(who):
            raise TooMany(
                "too_many_sign_ins",
                f"more than {SIGN_INS_PER_MINUTE:g} sign-ins a minute",
                next_step=f"wait {wait:.0f} s",
                retry_after=max(1, round(wait)),
            )

    async def _once(self, request: Request, visitor: Visitor) -> Response:
        """A link works once; whoever opens it is signed in as whom it names. What only looks where it leads (the
        preview of a chat, a scanner of mail) does not use it up: it is shown a button.
        """
        if request.method in SAFE_METHODS and not _is_somebody_going(request):
            return await self._house.pages.plain("signin_once.html", request, visitor)
        self._check_attempts(request)
        secret = request.url.path.removeprefix("/signin/once/")

        def redeem(keeper: Keeper) -> str | None:
            return service.redeem_link(keeper.ledger.store, secret, keeper.ledger.clock())

        name = await self._house.quick.run(redeem)
        if name is None:
            raise NotSignedIn(
                "bad_link", "this link was used already, or its time is over", next_step="plimsoll access link NAME"
            )
        return await self._welcome(name, None, _own_path(request.query_params.get("next", "/")))

    async def _as(self, request: Request, visitor: Visitor) -> Response:
        """In a demo: go on as somebody else."""
        if not self._house.settings.is_demo or visitor.by != "session":
            raise Refused("not_a_demo", "only in a demo one can be somebody else", next_step="sign in as yourself")
        form = parse_qs((await read_body(request, FORM_BYTES_MAX)).decode(errors="replace"))
        who = form.get("who", [""])[0]
        if who not in PEOPLE:
            raise UsageError("bad_parameter", f"{who[:100]!r} is nobody of this demo", next_step="GET /signin")
        return await self._welcome(who, None, _own_path(form.get("next", ["/"])[0]))

    async def _welcome(self, name: str, groups: tuple[str, ...] | None, target: str) -> Response:
        """Begin a session and go on. Only an issuer tells groups; without one nothing is known of them."""
        settings = self._house.settings

        def begin(keeper: Keeper) -> str:
            now = keeper.ledger.clock()
            return service.open_session(keeper.ledger.store, name, Kind.PERSON, groups, now, settings.session_hours)

        secret = await self._house.quick.run(begin)
        response = RedirectResponse(target, 303, {"cache-control": "no-store"})
        self._set_cookie(response, self._house.guard.cookie, secret, settings.session_hours * 3600)
        return response

    async def _out(self, request: Request, visitor: Visitor) -> Response:
        secret = request.cookies.get(self._house.guard.cookie, "")
        await self._house.quick.run(lambda keeper: service.end_session(keeper.ledger.store, secret))
        self._house.guard.forget()
        response = RedirectResponse("/signin", 303, {"cache-control": "no-store", "clear-site-data": '"cache"'})
        response.delete_cookie(self._house.guard.cookie, path="/", secure=self._house.settings.is_secure, httponly=True)
        return response

    # At the issuer.

    async def _to_issuer(self, request: Request, visitor: Visitor) -> Response:
        """Off to the issuer; what must be remembered is kept here, and the browser holds only its name."""
        self._check_attempts(request)
        oidc = self._issuer()
        pending = oidc.begin()
        target = _own_path(request.query_params.get("next", "/"))

        def keep(keeper: Keeper) -> None:
            until = format_time(keeper.ledger.clock() + timedelta(minutes=WAY_MINUTES))
            body = msgspec.json.encode(_Way(pending, target)).decode()
            keeper.ledger.store.keep_paper(Paper(WAY, _name_of(pending.state), until, body))

        url = await self._ask_issuer(lambda: oidc.authorization_url(self._callback, pending))
        await self._house.quick.run(keep)
        response = RedirectResponse(url, 303, {"cache-control": "no-store"})
        self._set_cookie(response, self._way_cookie, pending.state, WAY_MINUTES * 60)
        return response

    async def _back(self, request: Request, visitor: Visitor) -> Response:
        """Back from the issuer. The state must be the one that this browser left with."""
        self._check_attempts(request)
        oidc, query = self._issuer(), request.query_params
        state, held = query.get("state", ""), request.cookies.get(self._way_cookie, "")
        if not state or not hmac.compare_digest(state.encode(), held.encode()):
            raise NotSignedIn("wrong_state", "this sign-in was not begun in this browser", next_step="sign in again")
        paper = await self._house.quick.run(lambda keeper: keeper.ledger.store.take_paper(WAY, _name_of(state)))
        if paper is None or paper.is_over(utc_now()):
            raise NotSignedIn(
                "sign_in_over", f"a sign-in takes at most {WAY_MINUTES} minutes", next_step="sign in again"
            )
        if said := query.get("error"):
            raise NotSignedIn("issuer_refused", f"the issuer says {said[:100]!r}", next_step="sign in again")
        way = msgspec.json.decode(paper.body, type=_Way)
        claims = await self._ask_issuer(
            lambda: oidc.redeem(
                query.get("code", ""),
                way.pending,
                redirect_uri=self._callback,
                state=state,
                said_issuer=query.get("iss", ""),
            )
        )
        return await self._welcome(claims.name, claims.groups, way.target)

    async def _ask_issuer(self, ask: Callable[[], T]) -> T:
        """In threads of its own: an issuer that hangs holds up nobody but those who sign in there."""
        if self._asking_count >= ISSUER_WAITING_MAX:
            raise Unavailable(
                "issuer_busy",
                f"{self._asking_count} sign-ins wait for the issuer already",
                next_step="try again in a few seconds; tokens and links go on working",
                retry_after=5,
            )
        self._asking_count += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._asking, ask)
        finally:
            self._asking_count -= 1

    def _issuer(self) -> Oidc:
        if self._oidc is None:
            raise Unavailable(
                "no_issuer", "no issuer is set", next_step="PLIMSOLL_OIDC_ISSUER=…, see docs/how-to/sign-in"
            )
        return self._oidc

    @property
    def _callback(self) -> str:
        return f"{self._house.settings.origin}/signin/callback"

    @property
    def _way_cookie(self) -> str:
        return f"{self._house.guard.cookie}-way"

    def _set_cookie(self, response: Response, name: str, value: str, seconds: float) -> None:
        response.set_cookie(
            name,
            value,
            max_age=int(seconds),
            path="/",
            secure=self._house.settings.is_secure,
            httponly=True,
            samesite="lax",
        )


def _name_of(state: str) -> str:
    """A way is kept under a hash: who reads the table can't finish a sign-in of another."""
    return hashlib.sha256(state.encode()).hexdigest()


def _is_somebody_going(request: Request) -> bool:
    """A browser says when a person goes to a page, where it trusts the way there; nothing else says so."""
    headers = request.headers
    is_ahead_of_time = "prefetch" in headers.get("sec-purpose", headers.get("purpose", ""))
    return request.method == "GET" and headers.get("sec-fetch-mode") == "navigate" and not is_ahead_of_time


def _own_path(target: str) -> str:
    """A path of this server and nothing else: no scheme, no other host."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own and len(target) <= 2_000 else "/"
