"""Every route, every role: who gets in is written down here by hand, and nobody else does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from plimsoll.server.pages.registry import PAGES, Page
from plimsoll.server.routes import API, LOCAL, ROUTES, Route
from plimsoll.server.specials import SPECIAL_PERMISSIONS
from tests.support.served import OTHER, PEOPLE, TEAM, Served, make_people, serving, small_book

EVERYBODY = set(PEOPLE)
INSIDERS = EVERYBODY - {"partner"}
"""Everybody but the provider's people."""
HANDS_ON = {"operator", "admin"}
QUOTA = {"fleet_rpm", "admin"}
OWN_TEAM = {"member", "rpm", "fleet_rpm", "admin"}
OWN_TEAM_QUOTA = {"rpm", "fleet_rpm", "admin"}
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


LOOKED_UP = {
    "stops another's work": "/workloads/other-1/cancel",
    "scales another's work": "/workloads/other-1/scale",
    "ranks another's work": "/workloads/other-1/rank",
    "finishes another's work": "/workloads/other-1/finish",
    "agrees for another's work": "/campaigns/none/agree/other-1",
    "withdraws another's request": "/requests/{request}/withdraw",
    "approves another's request": "/requests/{request}/approve",
    "denies another's request": "/requests/{request}/deny",
    "lets go of what another keeps": "/workload-holds/{hold}/release",
}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A server with something of the other team that each of the routes names."""
    dsn = small_book(tmp_path_factory.mktemp("others"))
    with serving(dsn, make_people(dsn)) as served:
        yield served, _make_others(served)


def _make_others(served: Served) -> dict[str, str]:
    assert served.post("/quota/apply", {"policy": "fixed:0", "reason": "a test", "without_notice": True}).status == 200
    assert served.post("/workloads", {"files": [_work("other-1", OTHER)]}).status == 200
    asked = served.post("/requests", {"team": OTHER, "gpus": "8", "sku": "H200"})
    kept = served.post(
        "/workload-holds",
        {"team": OTHER, "gpus": "8", "cluster": "tiger", "sku": "H200", "for": "somebody", "until": "2099-01-01"},
    )
    found = served.api("/workload-holds").document
    holds = found if isinstance(found, list) else found["holds"]
    assert (asked.status, kept.status) == (200, 200), (asked, kept)
    return {"request": asked.document["request"]["id"], "hold": holds[0]["id"]}


@pytest.mark.parametrize("case", LOOKED_UP)
@pytest.mark.parametrize("who", ["member", "rpm"])
def test_what_is_another_team_s_is_found_and_refused(
    others: tuple[Served, dict[str, str]], case: str, who: str
) -> None:
    served, names = others
    before = served.house.api.head
    reply = served.post(LOOKED_UP[case].format(**names), {"min": 1} if "scale" in case else {}, who=who)
    assert reply.status == 403, reply
    assert served.house.api.head == before


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
}


@pytest.mark.parametrize("route", SPECIAL_MATRIX)
def test_what_is_no_command_lets_in_whom_it_should_too(served: Served, route: str) -> None:
    assert {f"{method} {path}" for method, path in SPECIAL_PERMISSIONS} == set(SPECIAL_MATRIX)
    method, path = route.split()
    for who in ["", *PEOPLE]:
        if (who in SPECIAL_MATRIX[route] or not who) and path.endswith("/changes"):
            # A stream does not end: a question that it refuses is past its door as well.
            reply = served.ask(f"{path}?after=none", who=who)
            assert reply.status == (400 if who else 401), (who, reply)
            continue
        reply = served.ask(path, who=who, method=method, send=b"" if method == "POST" else None)
        want = 200 if who in SPECIAL_MATRIX[route] else 403 if who else 401
        assert reply.status == want, (route, who, reply)


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
