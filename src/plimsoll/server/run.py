"""Runs a server until it is told to stop: the web in front, the controllers beside it."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from plimsoll.errors import UsageError
from plimsoll.server.front import Front
from plimsoll.server.house import House
from plimsoll.server.settings import Settings, check

STOP_SECONDS = 5
WAITING_CONNECTIONS = 2_048
SWITCH_SECONDS = 0.001
"""How long a thread that calculates may keep the one that answers waiting."""
CONNECTIONS_MAX = 4_000
"""Beyond so many the next is told to come back: listeners are among them."""


def bind(settings: Settings) -> socket.socket:
    """Take the address first: whoever finds it taken is told before anything is read."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise UsageError(
            "bad_address",
            f"can't listen on {settings.host}:{settings.port}: {error.strerror or error}",
            next_step="choose another --port, or --port 0 for any that is free",
        ) from None
    listener.listen(WAITING_CONNECTIONS)
    return listener


def config_of(house: House, *, stop_seconds: int = STOP_SECONDS) -> uvicorn.Config:
    """How uvicorn serves a house. Where a request comes from is only believed of the proxy that is named."""
    proxy = house.settings.trusted_proxy
    return uvicorn.Config(
        Front(house),
        access_log=False,
        log_level="error",
        lifespan="on",
        proxy_headers=bool(proxy),
        forwarded_allow_ips=proxy or "",
        server_header=False,
        timeout_graceful_shutdown=stop_seconds,
        backlog=WAITING_CONNECTIONS,
        limit_concurrency=CONNECTIONS_MAX,
    )


def serve(settings: Settings, listener: socket.socket, *, told: Callable[[House], None] = lambda _: None) -> None:
    """Serve on an address that was taken, until a signal ends it. `told` is called when requests are answered."""
    house = House(check(settings))
    sys.setswitchinterval(SWITCH_SECONDS)
    server = _Server(config_of(house), house, told)
    server.run(sockets=[listener])
    if house.failed is not None:
        raise house.failed


class _Server(uvicorn.Server):
    """Says when it is up, and lets listeners go first when it is to end: they would stay for ever."""

    def __init__(self, config: uvicorn.Config, house: House, told: Callable[[House], None]) -> None:
        super().__init__(config)
        self._house, self._told = house, told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._told(self._house)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._house.watcher.end_streams()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to end is what ends a server well: it is not raised again when all is done, as uvicorn would."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
