"""Every route, every role: who gets in is written down here by hand, and nobody else does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from plimsoll.server.house import PERMISSIONS, PREFIX_PERMISSIONS, House
from plimsoll.server.pages.registry import PAGES, Page
from plimsoll.server.routes import API, LOCAL, ROUTES, Route
from plimsoll.server.settings import Settings
from plimsoll.server.signin import SignIn
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import contents
from tests.support.served import OTHER, PEOPLE, TEAM, Served, make_people, serving, small_book

EVERYBODY = set(PEOPLE)
INSIDERS = EVERYBODY - {"partner"}
"""Everybody but the provider's people."""
HANDS_ON = {"operator", "admin"}
QUOTA = {"fleet_rpm", "admin"}
OWN_TEAM = {"member", "rpm", "fleet_rpm", "admin"}
OWN_TEAM_QUOTA = {"rpm", "fleet_rpm", "admin"}
ROLES_OF_A_TEAM = {"member", "rpm"}
ADMINS = {"admin"}

MATRIX: dict[str, tuple[set[str], str]] = {
    "what is open to all": ({"", *EVERYBODY}, "GET /whoami"),
    "what everybody inside may see": (
        INSIDERS,
        """
        GET /fleet · GET /fleet/map · GET /fleet/clusters · GET /nodes · GET /fleet/export · GET /health
        GET /nodes/{node} · GET /health/levels · GET /health/outages · GET /health/forecast · GET /holds
        GET /health/announced · GET /health/policy · GET /quota · GET /quota/plan · GET /quota/compare
        GET /quota/report · GET /quota/rollout · GET /quota/notices · GET /quota/modes · GET /quota/pilot/{cluster}
        GET /quota/flex · GET /quota/promise · GET /quota/history · GET /requests · GET /requests/{request_id}
        GET /grants · GET /quota/render/{scheduler}/{cluster} · GET /quota/policy · GET /workloads
        GET /workloads/example · GET /workloads/{name} · GET /teams/{team}/usage · GET /teams/{team}/changes
        GET /workload-holds · GET /uptime · GET /defrag · GET /why · GET /campaigns/example
        GET /campaigns/combinations · GET /campaigns/blocked
        GET /campaigns/behind · GET /campaigns/versions · GET /clusters · GET /clusters/quota · GET /clusters/times
        GET /clusters/{name} · GET /clusters/{name}/objects · GET /recipes · GET /recipes/{name} · GET /incidents
        GET /incidents/{name} · GET /notices · GET /access/check · GET /events · GET /audit/head · GET /audit/verify
        """,
    ),
    "what is only looked over, though it is sent": (
        INSIDERS,
        """
        POST /health/backtest · POST /health/policy/check · POST /quota/policy/check · POST /campaigns/check
        POST /recipes/check
        """,
    ),
    "planned work, for the provider as well": (
        EVERYBODY,
        """
        GET /campaigns · GET /campaigns/{name} · GET /campaigns/{name}/calendar · GET /campaigns/{name}/gate/{batch}
        GET /campaigns/compare · GET /calendar
        """,
    ),
    "what the provider says of its work": (
        {"partner"} | HANDS_ON,
        "POST /campaigns/{name}/tick/{batch} · POST /campaigns/{name}/returned",
    ),
    "machines, campaigns, clusters, incidents": (
        HANDS_ON,
        """
        POST /health/signal · POST /health/sweep · POST /health/set · POST /holds · POST /holds/{hold_id}/release
        POST /health/tick · POST /health/breaker · POST /health/announced · POST /health/announced/{work_id}/withdraw
        POST /defrag · POST /workloads/run · POST /campaigns/plan · POST /campaigns/tested · POST /campaigns/want
        POST /campaigns/versions · POST /campaigns/versions/relevant · POST /campaigns/{name}/publish
        POST /campaigns/{name}/start · POST /campaigns/{name}/pause · POST /campaigns/{name}/resume
        POST /campaigns/{name}/replan · POST /campaigns/{name}/cancel · POST /clusters · POST /clusters/import
        POST /clusters/{name}/edit · GET /clusters/{name}/log · POST /clusters/{name}/checkin
        POST /clusters/{name}/retry · POST /clusters/{name}/waive · POST /clusters/{name}/pause
        POST /clusters/{name}/resume · POST /clusters/{name}/retire · POST /clusters/{name}/migrate
        POST /incidents · POST /incidents/{name}/note · POST /incidents/{name}/close
        """,
    ),
    "quota of the whole fleet": (
        QUOTA,
        """
        POST /quota/apply · POST /quota/rollout · POST /quota/modes/{cluster} · POST /quota/control
        POST /quota/settle
        """,
    ),
    "a team's own": (
        OWN_TEAM,
        """
        POST /quota/notices/{team}/agree · POST /quota/notices/{team}/object · POST /quota/callback · POST /requests
        POST /requests/{request_id}/withdraw · POST /workloads · POST /workloads/{name}/scale
        POST /workloads/{name}/rank · POST /workload-holds · POST /workload-holds/{hold}/release
        """,
    ),
    "a team's own, and who has the machines": (
        OWN_TEAM | {"operator"},
        """
        POST /workloads/{name}/cancel · POST /workloads/{name}/finish · POST /campaigns/{name}/agree/{workload}
        """,
    ),
    "quota of a team": (
        OWN_TEAM_QUOTA,
        """
        POST /requests/{request_id}/approve · POST /requests/{request_id}/deny · POST /transfers
        POST /grants/{grant_id}/end
        """,
    ),
    "who may do what, and what holds for all": (
        ADMINS,
        """
        POST /fleet/import · POST /health/policy · POST /quota/policy · POST /teams/{old}/rename · POST /recipes
        GET /access · POST /access/grant · POST /access/revoke · GET /access/tokens · POST /access/tokens
        POST /access/tokens/{token}/revoke · POST /access/sessions/end
        """,
    ),
}
WANT = {line.strip(): who for who, text in MATRIX.values() for line in re.split(r"[·\n]", text) if line.strip()}

NAMES = {
    "team": TEAM, "giver": TEAM, "name": "run-1", "workload": "run-1", "node": "t1", "cluster": "tiger",
    "scheduler": "slurm", "old": TEAM,
}  # fmt: skip
"""For what a path names; anything else is `none`, which does not exist."""
BODIES: dict[str, dict[str, object]] = {
    "POST /quota/callback": {"team": TEAM},
    "POST /requests": {"team": TEAM},
    "POST /transfers": {"giver": TEAM},
    "POST /workload-holds": {"team": TEAM},
    "POST /workloads": {"files": [f"workload: x\nteam: {TEAM}\n"], "dry_run": True},
    "POST /access/tokens/{token}/revoke": {},
    "POST /access/tokens": {"owner": "somebody@example.org", "dry_run": True},
    "POST /access/sessions/end": {"who": "somebody@example.org", "dry_run": True},
}
"""As little as says whose it is; most of it is refused as incomplete, which is after the door."""
QUERIES = {"GET /access/tokens": "?owner=somebody@example.org"}
SLOW = {"GET /fleet/export", "GET /audit/verify"}


def asked(route: Route) -> tuple[str, dict[str, object]]:
    """A request that gets as far as the door and changes nothing."""
    path = re.sub(r"\{(\w+)\}", lambda match: NAMES.get(match[1], "none"), route.path)
    body: dict[str, object] = {"nonsense": True}
    return path, BODIES.get(f"{route.method} {route.path}", body)


def test_every_route_is_in_the_matrix_once() -> None:
    listed = [line.strip() for _, text in MATRIX.values() for line in re.split(r"[·\n]", text) if line.strip()]
    assert len(listed) == len(set(listed))
    assert set(listed) == {f"{route.method} {route.path}" for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_lets_in_whom_it_should(served: Served, route: Route) -> None:
    want = WANT[f"{route.method} {route.path}"]
    path, body = asked(route)
    send = None if route.is_read else body
    for who in ["", *PEOPLE]:
        if who in want and f"{route.method} {route.path}" in SLOW and who != "viewer":
            continue
        query = QUERIES.get(f"{route.method} {route.path}", "?nonsense=1") if route.is_read else ""
        reply = served.ask(f"{API}{path}{query}", who=who, method=route.method, send=send)
        if not who and who not in want:
            assert reply.status == 401, (route.path, reply)
        elif who in want:
            assert reply.status not in (401, 403, 500), (route.path, who, reply)
        else:
            assert reply.status == 403, (route.path, who, reply)
            assert reply.error["message"], "a no explains itself"
            assert reply.error["next_step"] or reply.error["fields"].get("needs")


PARTS = "parts:\n  - {name: a, kind: elastic, replicas: {min: 1, max: 2, gpus: 8}, tier: mid, rank: 1}\n"


def _work(name: str, team: str) -> str:
    return f"workload: {name}\nteam: {team}\nwhere: {{sku: H200}}\n{PARTS}"


ELSEWHERE = {
    "asks for quota": ("/requests", {"team": OTHER, "gpus": "8", "sku": "H200"}),
    "gives another's quota away": (
        "/transfers",
        {"giver": OTHER, "taker": TEAM, "gpus": "8", "cluster": "tiger", "sku": "H200"},
    ),
    "submits work as another": ("/workloads", {"files": [_work("x", OTHER)]}),
    "submits its own with another's": ("/workloads", {"files": [_work("x", TEAM), _work("y", OTHER)]}),
    "hides another's behind its own": ("/workloads", {"files": [f"{_work('x', TEAM)}---\n{_work('y', OTHER)}"]}),
    "agrees for another": (f"/quota/notices/{OTHER}/agree", {}),
    "objects for another": (f"/quota/notices/{OTHER}/object", {"reason": "no"}),
    "keeps another's quota": (
        "/workload-holds",
        {"team": OTHER, "gpus": "8", "cluster": "tiger", "sku": "H200", "for": "somebody", "until": "2099-01-01"},
    ),
    "calls back for another": ("/quota/callback", {"team": OTHER, "gpus": "8", "cluster": "tiger", "sku": "H200"}),
}


class LookedUp(NamedTuple):
    """Something that is asked of a thing which only the ledger knows whose it is."""

    route: str
    path: str
    send: dict[str, str]
    want: int = 200
    """What whoever may do it is told, when they try it."""


PART = {"part": "a"}
LOOKED_UP: dict[str, LookedUp] = {
    "stops work": LookedUp("/workloads/{name}/cancel", "/workloads/{work}/cancel", {}),
    "finishes work": LookedUp("/workloads/{name}/finish", "/workloads/{work}/finish", {}),
    "scales work": LookedUp("/workloads/{name}/scale", "/workloads/{work}/scale", {**PART, "max": "3"}),
    "ranks work": LookedUp("/workloads/{name}/rank", "/workloads/{work}/rank", {**PART, "tier": "high"}),
    "agrees that work is moved": LookedUp(
        "/campaigns/{name}/agree/{workload}", "/campaigns/none/agree/{work}", {}, want=404
    ),
    "stops work that was only observed": LookedUp("/workloads/{name}/cancel", "/workloads/{seen}/cancel", {}),
    "stops work that is over": LookedUp("/workloads/{name}/cancel", "/workloads/{over}/cancel", {}, want=422),
    "withdraws a request": LookedUp("/requests/{request_id}/withdraw", "/requests/{request}/withdraw", {}),
    "approves a request": LookedUp("/requests/{request_id}/approve", "/requests/{request}/approve", {"option": "1"}),
    "denies a request": LookedUp("/requests/{request_id}/deny", "/requests/{request}/deny", {"reason": "no"}),
    "ends a grant": LookedUp("/grants/{grant_id}/end", "/grants/{grant}/end", {}),
    "lets go of what is kept": LookedUp("/workload-holds/{hold}/release", "/workload-holds/{hold}/release", {}),
}


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, dict[str, str]]]]:
    """A server with something of both teams that each of the routes names; by team, what it is called."""
    folder = tmp_path_factory.mktemp("things")
    dsn = small_book(folder)
    observed = [row("workloads", workload=f"seen-{team}", team=team, gpus="8") for team in (TEAM, OTHER)]
    sent = contents(write_fleet(folder / "more", nodes=nodes(12, prefix="t"), workloads=observed))
    with serving(dsn, make_people(dsn)) as served:

        def do(path: str, **values: Any) -> Any:
            reply = served.post(path, values)
            assert reply.status == 200, (path, reply)
            return reply.document

        do("/fleet/import", files=sent, partial=True)
        do("/quota/apply", policy="fixed:0", reason="a test", without_notice=True)
        pool, named = {"cluster": "tiger", "sku": "H200", "gpus": "8"}, {}
        for team, giver in ((TEAM, OTHER), (OTHER, TEAM)):
            do("/workloads", files=[_work(f"work-{team}", team), _work(f"over-{team}", team)])
            do(f"/workloads/over-{team}/cancel")
            grant = do("/transfers", giver=giver, taker=team, **pool, **{"for": "7d"})["grant"]
            kept = do("/workload-holds", team=team, **pool, **{"for": "somebody", "until": "2099-01-01"})
            named[team] = {
                "work": f"work-{team}",
                "seen": f"seen-{team}",
                "over": f"over-{team}",
                "request": do("/requests", team=team, gpus="8", sku="H200")["request"]["id"],
                "grant": quote(grant, safe=""),
                "hold": kept["hold"]["id"],
            }
        yield served, named


@pytest.mark.parametrize("team", [TEAM, OTHER])
@pytest.mark.parametrize("case", LOOKED_UP)
def test_what_a_thing_is_of_is_looked_up(
    things: tuple[Served, dict[str, dict[str, str]]], case: str, team: str
) -> None:
    """A role of its team is let in, as far as the matrix has it; one of another team is not, and nothing happens."""
    served, named = things
    route, path, send, status = LOOKED_UP[case]
    want = WANT[f"POST {route}"] - (ROLES_OF_A_TEAM if team != TEAM else set())
    before = served.house.api.head
    for who in PEOPLE:
        reply = served.post(path.format(**named[team]), {**send, "dry_run": True}, who=who)
        assert reply.status == (status if who in want else 403), (who, reply)
    assert served.house.api.head == before


def test_everything_that_is_looked_up_is_tried() -> None:
    routes = {route.path for route in ROUTES if ":" in route.team}
    assert {each.route for each in LOOKED_UP.values()} == routes


def test_what_does_not_exist_is_nobody_s(served: Served) -> None:
    """Else something that comes into being between the look and the act would be anybody's."""
    for path in ("/workloads/none/cancel", "/requests/none/withdraw", "/workload-holds/none/release"):
        assert served.post(path, who="member").error["code"] == "no_such_thing", path
        assert served.post(path, who="admin").status == 404


@pytest.mark.parametrize("case", ELSEWHERE)
@pytest.mark.parametrize("who", ["member", "rpm"])
def test_a_role_of_one_team_never_acts_for_another(served: Served, case: str, who: str) -> None:
    path, body = ELSEWHERE[case]
    before = served.house.api.head
    reply = served.post(path, body, who=who)
    assert reply.status == 403, reply
    assert OTHER in reply.error["message"] or "fleet" in reply.error["message"]
    assert served.house.api.head == before


@pytest.mark.parametrize("case", ELSEWHERE)
def test_the_same_for_the_own_team_is_past_the_door(served: Served, case: str) -> None:
    """Whole requests, so that they come to the question whose it is; what they then say depends on the fleet."""
    path, body = ELSEWHERE[case]
    own = json.loads(json.dumps(body).replace(OTHER, TEAM)) | {"dry_run": True}
    own |= {"taker": OTHER} if "taker" in own else {}
    before = served.house.api.head
    reply = served.post(path.replace(OTHER, TEAM), own, who="rpm")
    assert reply.status in (200, 404, 409, 422), reply
    assert served.house.api.head == before


def test_a_narrow_token_does_less_than_its_owner(served: Served) -> None:
    assert served.api("/fleet", who="narrow").status == 200
    reply = served.post("/incidents", {"title": "x"}, who="narrow")
    assert (reply.status, served.api("/access", who="narrow").status) == (403, 403)


SPECIAL_MATRIX: dict[str, set[str]] = {
    "GET /healthz": {"", *EVERYBODY},
    "GET /readyz": {"", *EVERYBODY},
    "GET /metrics": INSIDERS,
    "GET /api/v1/openapi.json": {"", *EVERYBODY},
    "GET /api/v1/changes": EVERYBODY,
    "GET /api/v1/status": INSIDERS,
    "POST /api/v1/signals": HANDS_ON,
    "GET /signin": {"", *EVERYBODY},
    "GET /signin/oidc": {"", *EVERYBODY},
    "GET /signin/callback": {"", *EVERYBODY},
    "POST /signin/as": {"", *EVERYBODY},
    "POST /signout": {"", *EVERYBODY},
    "GET /static/": {"", *EVERYBODY},
    "GET /signin/once/": {"", *EVERYBODY},
}
PAST_THE_DOOR: dict[str, tuple[str, int]] = {
    # how a path goes on, and what whoever is let in is told there
    "GET /api/v1/changes": ("?after=none", 400),  # a stream does not end: a question that it refuses
    "GET /signin/oidc": ("", 503),  # there is no issuer here
    "GET /signin/callback": ("", 503),
    "POST /signin/as": ("", 422),  # this is no demo
    "POST /signout": ("", 303),
    "GET /static/": ("app.css", 200),
    "GET /signin/once/": ("none", 200),  # a button: it was only looked at
}


def test_what_is_no_command_and_no_page_is_in_the_matrix_too(served: Served) -> None:
    house = served.house
    assert set(house.specials) == set(PERMISSIONS)
    assert {prefix for prefix, _ in house.prefixes} == set(PREFIX_PERMISSIONS)
    listed = {f"{method} {path}" for method, path in PERMISSIONS} | {f"GET {prefix}" for prefix in PREFIX_PERMISSIONS}
    assert set(SPECIAL_MATRIX) == listed


@pytest.mark.parametrize("route", SPECIAL_MATRIX)
def test_what_is_no_command_lets_in_whom_it_should_too(
    things: tuple[Served, dict[str, dict[str, str]]], route: str
) -> None:
    served, _ = things
    method, path = route.split()
    more, let_in = PAST_THE_DOOR.get(route, ("", 200))
    asked = ("", "partner") if let_in == 503 else ("", *PEOPLE)  # so many may sign in from one address in a minute
    for who in asked:
        reply = served.ask(f"{path}{more}", who=who, method=method, send=b"" if method == "POST" else None)
        want = let_in if who in SPECIAL_MATRIX[route] else 403 if who else 401
        assert reply.status == want, (route, who, reply)


@pytest.mark.parametrize("room", ["routes", "prefixes"])
def test_what_names_no_permission_is_not_served(room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody adds a path, and forgets to say who may go there."""
    routes, prefixes = SignIn.routes, SignIn.prefixes

    def more_routes(signin: SignIn) -> Any:
        return {**routes(signin), ("GET", "/debug/people"): signin._page}

    def more_prefixes(signin: SignIn) -> Any:
        return [*prefixes(signin), ("/debug/", signin._page)]

    monkeypatch.setattr(SignIn, room, more_routes if room == "routes" else more_prefixes)
    with pytest.raises(KeyError, match="/debug/"):
        House(Settings(dsn=f"sqlite:///{tmp_path}/none.db"))


PAGE_MATRIX: dict[str, tuple[set[str], str]] = {
    "pages for everybody inside": (
        INSIDERS,
        """
        / · /map · /changes · /clusters/{cluster} · /clusters/{cluster}/forecast · /teams · /teams/{team}
        /teams/{team}/flex · /teams/{team}/coming · /teams/{team}/history · /workloads · /workloads/{workload} · /why
        /quota · /quota/compare · /requests/{request_id} · /lifecycle · /lifecycle/{cluster} · /health
        /health/levels · /health/lemons · /nodes/{node} · /incidents · /on-call · /incidents/{incident} · /audit
        """,
    ),
    "pages of planned work, and one's own": (
        EVERYBODY,
        """
        /campaigns · /campaigns/{campaign} · /campaigns/{campaign}/gates · /campaigns/{campaign}/compare · /account
        """,
    ),
    "pages for who has the machines": (HANDS_ON, "/lifecycle/{cluster}/log/{step}"),
}
WANT_PAGES = {path: who for who, text in PAGE_MATRIX.values() for path in re.split(r"[·\s]+", text.strip())}


def test_every_page_is_in_the_matrix_once() -> None:
    listed = [path for _, text in PAGE_MATRIX.values() for path in re.split(r"[·\s]+", text.strip())]
    assert sorted(listed) == sorted(page.path for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_a_page_sends_strangers_to_sign_in_and_lets_in_whom_it_should(served: Served, page: Page) -> None:
    path = re.sub(r"\{\w+\}", "none", page.path)
    reply = served.ask(path, Accept="text/html")
    assert (reply.status, reply.headers["location"].partition("?")[0]) == (303, "/signin")
    for who in PEOPLE:
        status = served.ask(path, who=who, Accept="text/html").status
        is_moved_on = (page.path, who) == ("/", "partner")  # to where planned work is
        assert status in ((200, 404) if who in WANT_PAGES[page.path] else (303,) if is_moved_on else (403,)), who


def test_what_is_not_in_the_api_says_why() -> None:
    assert all(LOCAL.values())
    assert not set(LOCAL) & {route.words for route in ROUTES}
