"""What a server is made of, put together and taken down in order: lanes, shelf, guard, watcher, API, pages, loops."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from plimsoll.access.decide import read_mapping
from plimsoll.access.model import Permission
from plimsoll.commands.quota.ways import Target
from plimsoll.errors import PlimsollError
from plimsoll.ledger import open_store
from plimsoll.memory import learn_types
from plimsoll.rooms import open_keeper
from plimsoll.server.api import Api
from plimsoll.server.changes import Watcher
from plimsoll.server.guard import Guard, Visitor, check_permission
from plimsoll.server.lanes import QUICK_WAITING_MAX, SLOW_SECONDS_MAX, SLOW_WAITING_MAX, Lane
from plimsoll.server.logs import Log
from plimsoll.server.loops import Controllers
from plimsoll.server.loops_passes import PassSettings, settings_of
from plimsoll.server.metrics import Tally
from plimsoll.server.pages.serve import Pages
from plimsoll.server.recheck import Recheck
from plimsoll.server.settings import Settings
from plimsoll.server.shelf import Shelf
from plimsoll.server.signin import SignIn
from plimsoll.server.specials import SPECIAL_PERMISSIONS, Specials
from plimsoll.server.static import Static
from plimsoll.state.keeper import Keeper

Handler = Callable[[Request, Visitor], Awaitable[Response]]
STALE_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 6.0
"""How long the end waits for what is in hand: what was done is in the ledger, what was begun is found again."""
DEMO_SEED = 1
PAST_KEPT = 3

PERMISSIONS: Mapping[tuple[str, str], Permission] = {
    **SPECIAL_PERMISSIONS,
    ("GET", "/signin"): Permission.NOBODY_NEEDED,
    ("GET", "/signin/oidc"): Permission.NOBODY_NEEDED,
    ("GET", "/signin/callback"): Permission.NOBODY_NEEDED,
    ("POST", "/signin/as"): Permission.NOBODY_NEEDED,
    ("POST", "/signout"): Permission.NOBODY_NEEDED,
}
PREFIX_PERMISSIONS: Mapping[str, Permission] = {
    "/static/": Permission.NOBODY_NEEDED,
    "/signin/once/": Permission.NOBODY_NEEDED,
}
"""What is no command and no page needs what is written here, by its path or by how its paths begin. What is not
written here can't be served: a server that has it does not start."""


class House:
    """One server's parts."""

    def __init__(self, settings: Settings, log: Log | None = None) -> None:
        self.settings = settings
        self.log = log or Log(settings.log_form)
        self.quick = Lane("quick", self.open_keeper, waiting_max=QUICK_WAITING_MAX)
        self.slow = Lane("slow", self._open_for_the_past, waiting_max=SLOW_WAITING_MAX, seconds_max=SLOW_SECONDS_MAX)
        self.long = Lane("long", self.open_keeper, waiting_max=SLOW_WAITING_MAX, seconds_max=SLOW_SECONDS_MAX)
        self.lanes = (self.quick, self.slow, self.long)
        self.shelf = Shelf()
        self.guard = Guard(settings, self.quick, read_mapping(settings.oidc.get("groups", "")))
        self.watcher = Watcher(lambda: open_store(settings.dsn), on_access=self.guard.forget)
        self._recheck = Recheck(self.guard, self.watcher, self.quick, self.log)
        self._rechecking: asyncio.Task[None] | None = None
        self.api = Api(
            quick=self.quick,
            slow=self.slow,
            long=self.long,
            shelf=self.shelf,
            guard=self.guard,
            watcher=self.watcher,
            dsn=settings.dsn,
        )
        self.static = Static()
        self.pages = Pages(self)
        self.tally = Tally()
        self.mistakes = 0
        self.failed: PlimsollError | None = None
        """Why it could not open."""
        self.began = time.monotonic()
        self.controllers: Controllers | None = None
        signin = SignIn(self)
        routes = {**Specials(self).routes(), **signin.routes()}
        self.specials: Mapping[tuple[str, str], Handler] = {
            key: _guarded(PERMISSIONS[key], key[1], handler) for key, handler in routes.items()
        }
        self.prefixes: list[tuple[str, Handler]] = [
            (prefix, _guarded(PREFIX_PERMISSIONS[prefix], prefix, handler))
            for prefix, handler in (("/static/", self.static.respond), *signin.prefixes())
        ]

    def open_keeper(self) -> Keeper:
        return open_keeper(self.settings.dsn)

    def _open_for_the_past(self) -> Keeper:
        """A page of the past asks several times for the same moment."""
        keeper = self.open_keeper()
        keeper.past_kept = PAST_KEPT
        return keeper

    async def open(self) -> None:
        """Read the state, so that the first answer is quick; then watch."""
        learn_types()  # before any thread: two that decode a type for the first time at once crash the interpreter
        for lane in self.lanes:
            lane.start()
        head = await self.quick.run(lambda keeper: keeper.state().revision)
        self.watcher.start(head)
        self._rechecking = asyncio.create_task(self._recheck.run())
        if self.settings.is_leading:
            seed = DEMO_SEED if self.settings.is_demo else None
            self.controllers = Controllers(self.open_keeper, self._passes(seed), log=self.log)
            self.controllers.start()

    def _passes(self, seed: int | None) -> PassSettings:
        """What the controllers are told; links in messages lead to where people reach us."""
        known = self.settings
        environment = {**os.environ, **({"PLIMSOLL_PUBLIC_URL": known.public_url} if known.public_url else {})}
        return settings_of(
            known.dsn,
            environment=environment,
            demo_seed=seed,
            push_to=Target(known.push_to) if known.push_to else None,
            prometheus=known.prometheus,
        )

    async def close(self) -> None:
        """Let go of everything: listeners first, so that nobody waits for them."""
        self.watcher.end_streams()
        if self._rechecking is not None:
            self._rechecking.cancel()
        stops: list[Callable[[float], object]] = [lane.stop for lane in self.lanes]
        if self.controllers is not None:
            stops.append(self.controllers.stop)
        await asyncio.gather(*(asyncio.to_thread(stop, STOP_SECONDS_MAX) for stop in stops))
        await asyncio.to_thread(self.watcher.stop)

    def is_ready(self) -> tuple[bool, dict[str, object]]:
        """Whether requests can be answered now, and why not."""
        silent = time.monotonic() - self.watcher.heard_at
        busy = self.quick.busy_since
        stuck = time.monotonic() - busy if busy is not None else 0.0
        facts: dict[str, object] = {
            "revision": self.api.head,
            "ledger_silent_seconds": round(silent, 1),
            "waiting": self.quick.waiting,
            "busy_seconds": round(stuck, 1),
        }
        trouble = self.watcher.trouble
        if trouble is not None:
            facts["trouble"] = trouble.code
        return trouble is None and silent < STALE_SECONDS_MAX and stuck < STALE_SECONDS_MAX, facts


def _guarded(permission: Permission, path: str, handler: Handler) -> Handler:
    async def guarded(request: Request, visitor: Visitor) -> Response:
        if permission is not Permission.NOBODY_NEEDED:
            check_permission(visitor.principal, [permission], [], act=path)
        return await handler(request, visitor)

    return guarded
