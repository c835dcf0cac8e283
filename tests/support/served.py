"""A real server in this process, on loopback with a port of its own, and people to ask it as."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import uvicorn

from plimsoll.access import service
from plimsoll.access.model import Binding, Kind, Permission, Role
from plimsoll.rooms import open_keeper
from plimsoll.server.house import House
from plimsoll.server.logs import Log
from plimsoll.server.run import bind, config_of
from plimsoll.server.settings import Settings
from plimsoll.times import utc_now
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer

TEAM, OTHER = "posttraining", "pretraining"
PEOPLE: dict[str, Binding] = {
    "viewer": Binding(Role.VIEWER),
    "member": Binding(Role.MEMBER, TEAM),
    "rpm": Binding(Role.RPM, TEAM),
    "fleet_rpm": Binding(Role.RPM),
    "operator": Binding(Role.OPERATOR),
    "admin": Binding(Role.ADMIN),
    "partner": Binding(Role.PARTNER),
}
"""One person for each role; `member` and `rpm` are of one team."""


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.document["error"]


class Served:
    """A server that runs."""

    def __init__(self, house: House, tokens: Mapping[str, str]) -> None:
        self.house, self.tokens = house, tokens
        self.url = house.settings.origin

    def ask(self, path: str, *, who: str = "", method: str = "GET", send: object = None, **headers: str) -> Reply:
        """One request; header names have underscores for dashes."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body: bytes | None = None
        if send is not None:
            body = send if isinstance(send, bytes) else json.dumps(send).encode()
            named.setdefault("Content-Type", "application/json")
        if who:
            named.setdefault("Authorization", f"Bearer {self.tokens[who]}")
        try:
            connection.request(method, path, body=body, headers=named)
            response = connection.getresponse()
            return Reply(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def api(self, path: str, *, who: str = "admin", **more: Any) -> Reply:
        return self.ask(f"/api/v1{path}", who=who, **more)

    def post(self, path: str, send: object = None, *, who: str = "admin", **headers: str) -> Reply:
        return self.api(path, who=who, method="POST", send={} if send is None else send, **headers)


def session(served: Served, who: str, *groups: str) -> dict[str, str]:
    """The headers of somebody who is signed in."""
    with open_keeper(served.house.settings.dsn) as keeper:
        secret = service.open_session(keeper.ledger.store, who, Kind.PERSON, groups, utc_now(), 1)
    return {"Cookie": f"plimsoll={secret}", "Sec_Fetch_Site": "same-origin"}


def make_people(dsn: str) -> dict[str, str]:
    """A role and a token for each of the people; the tokens by name."""
    with open_keeper(dsn) as keeper:
        tokens = {}
        for name, binding in PEOPLE.items():
            person = f"{name}@example.org"
            service.grant(keeper, person, binding, actor="tester", reason="a test")
            tokens[name], _ = service.issue_token(
                keeper,
                person,
                kind=Kind.PERSON,
                scopes=None,
                expires=utc_now() + timedelta(days=1),
                actor="tester",
            )
        tokens["narrow"], _ = service.issue_token(
            keeper,
            "admin@example.org",
            kind=Kind.PERSON,
            scopes=[Permission.SEE],
            expires=utc_now() + timedelta(days=1),
            actor="tester",
        )
        return tokens


def small_book(folder: Path, dsn: str = "") -> str:
    """A database with two clusters, two teams and something that runs; quick to read. A file, if no URL is given."""
    dsn = dsn or f"sqlite:///{folder}/plimsoll.db"
    fleet = write_fleet(
        folder / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", area="eu")],
        nodes=[*nodes(12, prefix="t"), *nodes(4, prefix="l", cluster="lion", island="lion-a")],
        quotas=[
            row("quotas", team=TEAM, gpus="48"),
            row("quotas", team=OTHER, gpus="64"),
            row("quotas", team=TEAM, cluster="lion", gpus="16"),
        ],
        workloads=[row("workloads", workload="run-1", team=TEAM, gpus="16")],
    )
    importer = Importer(dsn)
    importer.bring(fleet)
    importer.keeper.close()
    return dsn


@contextmanager
def serving(
    dsn: str, tokens: Mapping[str, str] | None = None, *, log: Log | None = None, **more: Any
) -> Iterator[Served]:
    """A server of a database until the block ends. It leads nothing and logs nothing unless told to."""
    settings = Settings(dsn=dsn, **{"port": 0, "is_leading": False, "requests_per_second": 1e6,
                                    "writes_per_second": 1e6, **more})  # fmt: skip
    listener = bind(settings)
    settings = msgspec.structs.replace(settings, port=listener.getsockname()[1])
    house = House(settings, log or Log("none"))
    config = config_of(house, stop_seconds=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    ready = threading.Event()
    while not server.started and thread.is_alive():
        ready.wait(0.01)
    assert server.started, house.failed
    try:
        yield Served(house, tokens or {})
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
