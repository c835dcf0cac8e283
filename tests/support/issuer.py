"""An OpenID Connect issuer on loopback that does what a test says: rotates keys, signs wrongly, answers slowly.

It keeps to the rules itself where it is not told otherwise: codes work once, for their client, address and verifier.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, Key

from plimsoll.connect.oidc import Claims, Oidc, OidcSettings

CLIENT, SECRET = "plimsoll", "s3cret/+ of the client"
BACK = "https://plimsoll.example.org/signed-in"
ALICE: dict[str, Any] = {
    "sub": "u-17",
    "email": "Alice@Example.org",
    "email_verified": True,
    "name": "Alice A.",
    "groups": ["posttraining", "everybody"],
}


class Issuer:
    """One issuer. Its fields may be changed between two requests."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.person: dict[str, Any] = dict(ALICE)
        self.userinfo: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        """What the ID token says otherwise; None leaves a claim out."""
        self.header: dict[str, Any] = {}
        self.sign: Callable[[dict[str, Any], dict[str, Any]], str] = self._sign
        self.discovery: dict[str, Any] = {}
        self.delay_seconds = 0.0
        self.methods: tuple[str, ...] = ("client_secret_basic", "client_secret_post")
        self.asked: Counter[str] = Counter()
        self.keys: list[Key] = []
        self.rotate()
        self._codes: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def rotate(self, *, keep: int = 0) -> None:
        """Sign with a new key from now on, and go on publishing so many old ones."""
        kid = f"k{len(self.keys)}-{secrets.token_hex(3)}"
        self.keys = [ECKey.generate_key("P-256", {"kid": kid, "use": "sig"}), *self.keys[:keep]]

    def settings(self, **fields: str) -> OidcSettings:
        return OidcSettings(**{"issuer": self.url, "client_id": CLIENT, "client_secret": SECRET, **fields})

    def client(self, *, timeout_seconds: float = 20.0, **fields: str) -> Oidc:
        return Oidc(self.settings(**fields), timeout_seconds=timeout_seconds)

    def sign_in(self, oidc: Oidc) -> Claims:
        """All of it: the way out, the browser's part, the way back."""
        pending = oidc.begin()
        back = visit(oidc.authorization_url(BACK, pending))
        return oidc.redeem(back["code"], pending, redirect_uri=BACK, state=back["state"])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _sign(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        return jwt.encode(header, claims, self.keys[0], algorithms=["ES256"])

    def answer(self, path: str, query: Mapping[str, str], form: Mapping[str, str], login: str) -> tuple[int, Any, str]:
        """Status, body and where to go."""
        if path == "/.well-known/openid-configuration":
            return 200, self._discovered(), ""
        if path == "/keys":
            return 200, {"keys": [key.as_dict(private=False) for key in self.keys]}, ""
        if path == "/userinfo":
            return 200, self.userinfo, ""
        if path == "/authorize":
            code = secrets.token_urlsafe(9)
            self._codes[code] = dict(query)
            return 302, {}, f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
        if path == "/token":
            return self._token(form, login)
        return 404, {"error": "not_found"}, ""

    def _discovered(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "token_endpoint_auth_methods_supported": list(self.methods),
        } | self.discovery

    def _token(self, form: Mapping[str, str], login: str) -> tuple[int, Any, str]:
        name, secret = form.get("client_id", ""), form.get("client_secret", "")
        if login:
            name, secret = (unquote(word) for word in base64.b64decode(login.split()[1]).decode().split(":"))
        if name != CLIENT or (secret != SECRET and "none" not in self.methods):
            return 401, {"error": "invalid_client"}, ""
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["redirect_uri"] != form["redirect_uri"] or asked["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant", "error_description": "this code is\x1b[31m not good"}, ""
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims |= self.person | self.claims
        header = {"alg": "ES256", "kid": self.keys[0].kid} | self.header
        token = self.sign(_present(header), _present(claims))
        return 200, {"id_token": token, "access_token": "at-1", "token_type": "Bearer"}, ""


@contextmanager
def issuer(*, tls: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    """An issuer that runs while it is used."""
    one = Issuer(tls=tls)
    try:
        yield one
    finally:
        one.close()


def visit(url: str) -> dict[str, str]:
    """What a browser brings back from the issuer."""
    with urllib.request.build_opener(Stay).open(url, timeout=10) as answer:
        return one_each(urlsplit(answer.headers["Location"]).query)


def one_each(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}


class Stay(urllib.request.HTTPRedirectHandler):
    """Goes nowhere: where it was sent is what a test wants to know."""

    def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> Any:
        return fp


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _handler(one: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve({})

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._serve(one_each(self.rfile.read(length).decode()))

        def _serve(self, form: Mapping[str, str]) -> None:
            parts = urlsplit(self.path)
            one.asked[parts.path] += 1
            time.sleep(one.delay_seconds)
            login = self.headers.get("Authorization", "") if parts.path == "/token" else ""
            status, document, goal = one.answer(parts.path, one_each(parts.query), form, login)
            body = json.dumps(document).encode()
            self.send_response(status)
            if goal:
                self.send_header("Location", goal)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing: tests look at what came."""

    return Handler
