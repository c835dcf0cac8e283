"""What a server is told: where it listens, what it is called from outside, who may sign in how.

Secrets come from the environment only, never from words that a list of processes shows.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from plimsoll.errors import Refused, UsageError

PORT_DEFAULT = 8077
SESSION_HOURS = 12.0
REQUESTS_PER_SECOND = 400.0
WRITES_PER_SECOND = 50.0
SIGN_INS_PER_MINUTE = 20.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, with the defaults of a server for this machine alone."""

    dsn: str
    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    public_url: str = ""
    """How people reach it, such as https://plimsoll.example.org; empty: at the address it listens on."""
    trusted_proxy: str = ""
    """Whose word on where a request comes from is believed; empty: nobody's."""
    is_demo: bool = False
    session_hours: float = SESSION_HOURS
    requests_per_second: float = REQUESTS_PER_SECOND
    writes_per_second: float = WRITES_PER_SECOND
    log_form: str = "text"
    is_leading: bool = True
    """Whether it also carries out what is due: campaigns, clusters, repairs."""
    oidc: Mapping[str, str] = {}
    push_to: str = ""
    """Which schedulers are told of promises: `slurm`, `kubernetes`, `http`; empty: none."""
    prometheus: str = ""
    """Which Prometheus validation asks; empty: none."""

    @property
    def origin(self) -> str:
        """The scheme, host and port that a browser names for our own pages."""
        if self.public_url:
            parts = urlsplit(self.public_url)
            return f"{parts.scheme}://{parts.netloc}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def is_secure(self) -> bool:
        return self.origin.startswith("https://")

    @property
    def hosts(self) -> frozenset[str]:
        """The names under which it answers: a name of somebody else's that leads here is refused."""
        return frozenset({urlsplit(self.origin).netloc.lower(), *self._names_here})

    @property
    def origins(self) -> frozenset[str]:
        """Whose pages are our own. Where people come by https, a page that came without it is somebody else's."""
        return frozenset({self.origin, *(f"http://{name}" for name in self._names_here)})

    @property
    def _names_here(self) -> Sequence[str]:
        """What this machine may call it, where it listens for this machine alone."""
        names = ("localhost", "127.0.0.1", "[::1]") if is_loopback(self.host) else ()
        return [f"{name}:{self.port}" for name in names]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check(settings: Settings) -> Settings:
    """Refuse what would serve strangers, or nobody."""
    if settings.public_url:
        parts = urlsplit(settings.public_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
            raise UsageError(
                "bad_public_url",
                f"{settings.public_url[:200]!r} is not where people reach a server",
                next_step="--public-url https://plimsoll.example.org",
            )
    if settings.is_demo and not is_loopback(settings.host):
        raise Refused(
            "demo_for_strangers",
            f"{settings.host} can be reached by others, and whoever opens a demo may do everything",
            next_step="plimsoll demo --serve on 127.0.0.1, or plimsoll serve with sign-in",
        )
    if not is_loopback(settings.host) and not settings.is_secure:
        raise Refused(
            "not_secret",
            f"{settings.host} can be reached by others, and without https tokens and sessions could be read on the way",
            next_step="put a proxy with TLS before it and say --public-url https://…",
        )
    if settings.is_leading:
        from plimsoll.incidents.courier import chat_from

        chat_from(os.environ)  # incidents would open and close, and nobody would hear of them
    return settings


def oidc_settings() -> dict[str, str]:
    """What the environment says of the issuer."""
    names = ("issuer", "client_id", "client_secret", "groups", "groups_claim", "name_claim", "scopes", "ca_file")
    return {name: value for name in names if (value := os.environ.get(f"PLIMSOLL_OIDC_{name.upper()}", ""))}
