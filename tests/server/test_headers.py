"""What every answer says to a browser, whatever kind of answer it is: compared whole, and written down by hand."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.support.served import Served, make_people, serving, small_book

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "font-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
WANT = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
LOOSE = "access-control-"
"""How the headers begin that let pages of somebody else's read an answer."""
PAGE = {"Accept": "text/html"}


class Asked(NamedTuple):
    """A request, and the kind of answer that it gets."""

    path: str
    want_status: int
    want_type: str = "application/json"
    who: str = "viewer"
    method: str = "GET"
    headers: dict[str, str] = {}


ANSWERS: dict[str, Asked] = {
    "a page": Asked("/quota", 200, "text/html; charset=utf-8", headers=PAGE),
    "the page for signing in": Asked("/signin", 200, "text/html; charset=utf-8", "", headers=PAGE),
    "a page that does not exist": Asked("/nope", 404, "text/html; charset=utf-8", headers=PAGE),
    "a page that one may not see": Asked("/quota", 403, "text/html; charset=utf-8", "partner", headers=PAGE),
    "the way to the sign-in": Asked("/quota", 303, "", "", headers=PAGE),
    "the way out": Asked("/signout", 303, "", method="POST"),
    "an answer of the API": Asked("/api/v1/quota", 200),
    "a list as CSV": Asked("/api/v1/nodes?format=csv", 200, "text/csv; charset=utf-8"),
    "a calendar": Asked("/api/v1/calendar", 200, "text/calendar; charset=utf-8"),
    "the head of an answer": Asked("/api/v1/quota", 200, method="HEAD"),
    "what is still so": Asked("/api/v1/quota", 304, "", headers={"If-None-Match": "TAG"}),
    "a name that nobody has": Asked("/api/v1/nodes/none", 404),
    "words that are wrong": Asked("/api/v1/quota?nonsense=1", 400),
    "a stranger at the API": Asked("/api/v1/quota", 401, who=""),
    "one who may not": Asked("/api/v1/access", 403),
    "another method": Asked("/api/v1/quota", 405, method="DELETE"),
    "a change that is refused": Asked("/api/v1/incidents", 403, method="POST"),
    "a mistake of ours": Asked("/api/v1/fleet/clusters", 500),
    "a stream": Asked("/api/v1/changes", 200, "text/event-stream; charset=utf-8"),
    "the description": Asked("/api/v1/openapi.json", 200),
    "numbers for Prometheus": Asked("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
    "a health check": Asked("/healthz", 200, who=""),
    "a script": Asked("/static/app.js", 200, "text/javascript; charset=utf-8", ""),
    "a style": Asked("/static/app.css", 200, "text/css; charset=utf-8", ""),
    "a file that does not exist": Asked("/static/none.js", 404, who=""),
    "a host of another name": Asked("/quota", 404, headers={"Host": "evil.example"}),
}


def heads_of(served: Served, asked: Asked) -> tuple[int, list[tuple[str, str]]]:
    """The status and all headers, each as often as it came; of a stream nothing more is waited for."""
    if asked.headers.get("If-None-Match") == "TAG":
        tag = served.ask(asked.path, who=asked.who).headers["etag"]
        asked = asked._replace(headers={"If-None-Match": tag})
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    headers = {"Authorization": f"Bearer {served.tokens[asked.who]}"} if asked.who else {}
    body = b"{}" if asked.method == "POST" else None
    sent = {"Content-Type": "application/json", **headers, **asked.headers}
    try:
        connection.request(asked.method, asked.path, body=body, headers=sent)
        response = connection.getresponse()
        return response.status, [(name.lower(), value) for name, value in response.getheaders()]
    finally:
        connection.close()


@pytest.mark.parametrize("case", ANSWERS)
def test_every_kind_of_answer_has_all_its_guards(served: Served, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ANSWERS[case]
    if asked.want_status == 500:

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(served.house.api, "respond", fail)
    status, heads = heads_of(served, asked)
    found = dict(heads)
    assert (status, found.get("content-type", "")) == (asked.want_status, asked.want_type)
    names = [name for name, _ in heads]
    for name in (*WANT, "content-security-policy", "x-request-id"):
        assert names.count(name) == 1, name
    assert {name: found[name] for name in WANT} == WANT
    policy = [part.strip().partition(" ") for part in found["content-security-policy"].split(";")]
    assert {name: sources for name, _, sources in policy} == POLICY
    assert len(policy) == len(POLICY), "a browser goes by the first of two"
    assert not [name for name in names if name.startswith(LOOSE)]
    assert "server" not in names, "nobody is told what we run"


KEPT: dict[str, tuple[str, str]] = {
    # what is asked, and who may keep the answer for how long
    "what one sees": ("/api/v1/quota", "private, no-cache"),
    "a page": ("/quota", "private, no-cache"),
    "how the server is": ("/api/v1/status", "no-store"),
    "numbers for Prometheus": ("/metrics", "no-store"),
    "an error": ("/api/v1/nodes/none", "no-store"),
    "a stream": ("/api/v1/changes", "no-store"),
    "a script": ("/static/app.js", "public, max-age=60, stale-while-revalidate=600"),
}


@pytest.mark.parametrize("case", KEPT)
def test_nobody_keeps_for_others_what_one_sees(served: Served, case: str) -> None:
    path, want = KEPT[case]
    _, heads = heads_of(served, Asked(path, 200, headers=PAGE if path == "/quota" else {}))
    found = dict(heads)
    assert found["cache-control"] == want
    if want.startswith("private"):
        assert "cookie" in found["vary"], "what a browser holds is not shown to who signs in after"


def test_behind_tls_every_kind_of_answer_says_to_come_by_it(tmp_path: Path) -> None:
    dsn = small_book(tmp_path)
    with serving(dsn, make_people(dsn), public_url="https://plimsoll.example.org") as server:
        server.url = f"http://127.0.0.1:{server.house.settings.port}"
        for case in ("a page", "an answer of the API", "a stranger at the API", "a stream", "a script", "the way out"):
            asked = ANSWERS[case]
            asked = asked._replace(headers={**asked.headers, "Host": "plimsoll.example.org"})
            status, heads = heads_of(server, asked)
            assert (status, dict(heads)["strict-transport-security"]) == (asked.want_status, "max-age=31536000"), case
