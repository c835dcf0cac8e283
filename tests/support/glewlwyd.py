"""A private Glewlwyd on loopback: a real OpenID Connect issuer with its own folder, database and port."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from joserfc.jwk import ECKey, RSAKey

from plimsoll.connect.oidc import Oidc, OidcSettings
from tests.support.issuer import BACK, Stay, one_each
from tests.support.parts import missing_part
from tests.support.slurm import dies_with_us, free_ports

START_SECONDS_MAX = 30.0
TABLES = Path("/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3")
MODULES = Path("/usr/lib/glewlwyd")
CLIENT, SECRET = "plimsoll", "the-clients-secret-17"
ADMIN = {"username": "admin", "password": "password"}  # what its own tables begin with
PERSON = {"username": "alice", "password": "alice-password"}

CONFIG = """\
port={port}
bind_address="127.0.0.1"
external_url="{url}/"
api_prefix="api"
log_mode="file"
log_level="WARNING"
log_file="{folder}/glewlwyd.log"
cookie_secure=0
session_expiration=3600
session_key="GLEWLWYD2_SESSION_ID"
admin_scope="g_admin"
profile_scope="g_profile"
login_url="login.html"
user_module_path="{modules}/user"
client_module_path="{modules}/client"
user_auth_scheme_module_path="{modules}/scheme"
plugin_module_path="{modules}/plugin"
hash_algorithm="SHA512"
database = {{ type = "sqlite3" path = "{folder}/glewlwyd.db" }};
"""


class PrivateGlewlwyd:
    """One issuer with one client and one person."""

    def __init__(self, binary: str) -> None:
        self._binary = binary
        self.folder = Path(tempfile.mkdtemp(prefix="plimsoll-glewlwyd-"))
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._keys: list[dict[str, Any]] = []
        with closing(sqlite3.connect(self.folder / "glewlwyd.db")) as database:
            database.executescript(TABLES.read_text(encoding="utf-8"))
        config = CONFIG.format(port=port, url=self._url, folder=self.folder, modules=MODULES)
        (self.folder / "glewlwyd.conf").write_text(config)

    @property
    def issuer(self) -> str:
        return f"{self._url}/api/oidc"

    def client(self, **fields: str) -> Oidc:
        words = {"issuer": self.issuer, "client_id": CLIENT, "client_secret": SECRET, "scopes": "openid", **fields}
        return Oidc(OidcSettings(**words))

    def start(self) -> None:
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [*dies_with_us(), self._binary, f"--config-file={self.folder}/glewlwyd.conf"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                logs = [each.read_text() for each in self.folder.iterdir() if each.name in ("out", "glewlwyd.log")]
                raise RuntimeError("\n".join(logs)[-2000:])
            time.sleep(0.05)
        self._set_up()

    def rotate(self) -> None:
        """Another key signs from now on, and the old one is not published any more."""
        number = len(self._keys)
        key = RSAKey.generate_key(2048) if number % 2 else ECKey.generate_key("P-256")
        named = {"kid": f"key-{number}", "alg": "RS256" if number % 2 else "ES256"}
        self._keys.append({**key.as_dict(private=True), **named})
        admin = _Browser(self._url)
        admin.send("POST", "/api/auth/", ADMIN)
        plugin = {"module": "oidc", "name": "oidc", "display_name": "OpenID Connect", "parameters": self._parameters()}
        if number:
            admin.send("PUT", "/api/mod/plugin/oidc", plugin)
            admin.send("PUT", "/api/mod/plugin/oidc/reset", {})
        else:
            admin.send("POST", "/api/mod/plugin/", plugin)

    def sign_in(self, url: str) -> dict[str, str]:
        """What alice's browser brings back, after her password and her consent."""
        browser = _Browser(self._url)
        browser.send("POST", "/api/auth/", PERSON)
        browser.send("PUT", f"/api/auth/grant/{CLIENT}/", {"scope": "openid"})
        place = browser.send("GET", url.removeprefix(self._url) + "&g_continue", None)
        assert place.startswith(BACK), place
        return one_each(urlsplit(place).query)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # its folder is removed anyway
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            _Browser(self._url).send("GET", "/config", None)
        except (OSError, urllib.error.URLError):
            return False
        return True

    def _set_up(self) -> None:
        self.rotate()
        admin = _Browser(self._url)
        admin.send("POST", "/api/auth/", ADMIN)
        can = {"read": True, "write": True, "profile-read": True, "profile-write": False}
        formats = {"verified": {"multiple": False, **can}, "teams": {"multiple": True, **can}}
        backend = {"module": "database", "name": "database", "display_name": "Database", "order_rank": 0}
        backend |= {"parameters": {"use-glewlwyd-connection": True, "data-format": formats}}
        admin.send("PUT", "/api/mod/user/database", backend)
        admin.send("PUT", "/api/mod/user/database/reset", {})
        client = {"client_id": CLIENT, "name": "Plimsoll", "password": SECRET, "confidential": True, "scope": []}
        client |= {"authorization_type": ["code"], "redirect_uri": [BACK], "enabled": True}
        client |= {"token_endpoint_auth_method": ["client_secret_basic", "client_secret_post"]}
        admin.send("POST", "/api/client/", client)
        person = {**PERSON, "name": "Alice A.", "email": "alice@example.org", "enabled": True}
        person |= {"scope": ["openid", "g_profile"], "verified": "1", "teams": ["posttraining", "everybody"]}
        admin.send("POST", "/api/user/", person)

    def _parameters(self) -> dict[str, Any]:
        """As its administration page would send them."""
        verified = {"type": "boolean", "boolean-value-true": "1", "boolean-value-false": "0"}
        return {
            "iss": self.issuer,
            "jwks-private": json.dumps({"keys": [self._keys[-1]]}),
            "jwks-show": True,
            "access-token-duration": 3600,
            "refresh-token-duration": 3600,
            "code-duration": 600,
            "auth-type-code-enabled": True,
            "pkce-allowed": True,
            "pkce-required": True,
            "allowed-scope": ["openid"],
            "subject-type": "public",
            "name-claim": "mandatory",
            "email-claim": "mandatory",
            "claims": [
                {"name": "email_verified", "user-property": "verified", "mandatory": True, **verified},
                {"name": "groups", "user-property": "teams", "mandatory": True, "type": "string"},
            ],
        }


class _Browser:
    """Keeps cookies and follows nothing."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()), Stay)

    def send(self, method: str, path: str, body: object) -> str:
        """Where the answer points."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        request = urllib.request.Request(f"{self._url}{path}", data=data, method=method, headers=headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=20) as answer:
                return str(answer.headers.get("Location", ""))
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from None


@contextmanager
def private_glewlwyd() -> Iterator[PrivateGlewlwyd]:
    """An issuer that runs while it is used."""
    binary = shutil.which("glewlwyd")
    server = PrivateGlewlwyd(binary if binary and TABLES.exists() else missing_part("Glewlwyd"))
    try:
        server.start()
        yield server
    finally:
        server.stop()
