"""An in-house quota service as an outlet: all limits of a cluster in one JSON document.

The document is told as a whole, so a service never sees half a correction. What somebody changed there by hand and
nobody put back stays in it as it was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec

from plimsoll.errors import Refused, Unavailable
from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.model import Limit, Settings, Step

VERSION = 1
GUARANTEED = "guaranteed"
FLEX = "flex_standing"
NUMBERS = ("gpus_per_node", "line", FLEX)

_Count = Annotated[int, msgspec.Meta(ge=0)]


class PoolLimits(msgspec.Struct, frozen=True):
    """The limits of a pool in GPUs; `guaranteed` by team. Fields of other names are the service's own."""

    sku: str
    gpus_per_node: _Count = 0
    line: _Count = 0
    flex_standing: _Count = 0
    guaranteed: dict[str, _Count] = {}


class Document(msgspec.Struct, frozen=True):
    """What goes over the wire."""

    version: int
    cluster: str
    pools: list[PoolLimits]


class Service(Protocol):
    """What the outlet asks of a quota service."""

    @property
    def where(self) -> str: ...

    def fetch(self) -> bytes | None: ...

    def replace(self, body: bytes) -> None: ...


def document(promises: Sequence[PoolPromise]) -> Document:
    """A cluster's promises as a service is told them."""
    pools = [
        PoolLimits(
            promise.pool.sku,
            promise.gpus_per_node,
            promise.line,
            promise.flex_standing,
            dict(sorted(promise.guaranteed.items())),
        )
        for promise in promises
    ]
    return Document(VERSION, promises[0].pool.cluster if promises else "", pools)


def encode(content: Document) -> bytes:
    """The same limits give the same bytes, so that a repeated request is known as one."""
    return msgspec.json.encode(content, order="deterministic")


def settings(content: Document) -> dict[str, str]:
    """`H200/line`, `H200/guaranteed/vision`: a SKU's own slash is written %2F, a team's stays."""
    found: dict[str, str] = {}
    for pool in content.pools:
        sku = pool.sku.replace("%", "%25").replace("/", "%2F")
        found |= {f"{sku}/{name}": str(getattr(pool, name)) for name in NUMBERS}
        found |= {f"{sku}/{GUARANTEED}/{team}": str(gpus) for team, gpus in pool.guaranteed.items()}
    return found


def from_settings(cluster: str, values: Settings) -> Document:
    """The document that has these settings."""
    numbers: dict[str, dict[str, int]] = {}
    teams: dict[str, dict[str, int]] = {}
    for name, value in sorted(values.items()):
        sku, what, team = _parts(name)
        if what == GUARANTEED:
            teams.setdefault(sku, {})[team] = int(value)
        else:
            numbers.setdefault(sku, {})[what] = int(value)
    skus = sorted({*numbers, *teams})
    return Document(
        VERSION, cluster, [PoolLimits(sku, **numbers.get(sku, {}), guaranteed=teams.get(sku, {})) for sku in skus]
    )


def _parts(name: str) -> tuple[str, str, str]:
    sku, what, *team = name.split("/", 2)
    return sku.replace("%2F", "/").replace("%25", "%"), what, team[0] if team else ""


class HttpOutlet:
    """The quota service of one cluster."""

    name = "http"

    def __init__(self, service: Service, *, cluster: str) -> None:
        self._service = service
        self._cluster = cluster
        self._found: dict[str, str] = {}

    def wanted(self, promises: Sequence[PoolPromise]) -> Settings:
        return settings(document(promises))

    def read(self) -> Settings:
        body = self._service.fetch()
        self._found = {} if body is None else settings(self._decode(body))
        return self._found

    def _decode(self, body: bytes) -> Document:
        try:
            content = msgspec.json.decode(body, type=Document)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Unavailable(
                "quota_service_bad_answer",
                f"what {self._service.where} has is not a document of limits: {error}",
                next_step="look at it; docs/how-to/steer-over-http.md has the form",
            ) from error
        if content.cluster != self._cluster or content.version != VERSION:
            raise Refused(
                "wrong_quota_service",
                f"{self._service.where} has the limits of {content.cluster[:80]!r} (version {content.version}), not"
                f" those of {self._cluster} (version {VERSION})",
                next_step="give the URL of this cluster, such as https://HOST/clusters/{cluster}: --url URL",
                found=content.cluster,
            )
        return content

    def write(self, step: Step) -> None:
        self.write_together([step])

    def write_together(self, steps: Sequence[Step]) -> None:
        """One document with all of it. Pools that it no longer has go as a whole."""
        values = {**self._found, **{step.name: step.wanted for step in steps}}
        kept = {name: value for name, value in values.items() if value is not None}
        self._service.replace(encode(from_settings(self._cluster, kept)))
        self._found = kept

    def limit(self, name: str, value: str) -> Limit | None:
        sku, what, team = _parts(name)
        return Limit(sku, team if what == GUARANTEED else "", int(value)) if what in (GUARANTEED, FLEX) else None
