"""Signing people in at an OpenID Connect issuer: authorization code flow with PKCE, state and nonce.

Decides only who somebody is, by what the issuer has signed; what they may do is decided elsewhere. Must never take a
token that is not signed by a key of the issuer's with an algorithm of the list, is not for us, is over, or answers
another question (nonce); never show a code, a token or the client's secret; never wait longer than a deadline, nor let
a stranger make us ask the issuer again and again.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from plimsoll.connect.oidc_token import BadToken, checked_claims, header_of, import_keys, pick_key
from plimsoll.connect.web import Address, Answer, NoAnswer, Trouble, exchange, one_line, read_address, trust
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError

TIMEOUT_SECONDS = 10.0
BODY_BYTES_MAX = 1 << 20
KEEP_SECONDS = 3600.0
"""How long the discovery document and the keys are used before they are fetched anew."""
AGAIN_SECONDS = 30.0
"""How soon the keys may be fetched again because somebody shows a token signed with an unknown one."""
FAILED_SECONDS = 5.0
"""How long an issuer that failed is not asked again: whoever waits hears the same."""
SCOPES = "openid email profile"
DISCOVERY_PATH = "/.well-known/openid-configuration"
GROUPS_MAX = 500
TEXT_CHARS_MAX = 200
WORDS_CHARS_MAX = 300


class OidcSettings(msgspec.Struct, frozen=True):
    """Where people sign in, and which claims say who they are. `groups` maps groups to roles (`read_mapping`)."""

    issuer: str
    client_id: str
    client_secret: str = ""
    ca_file: str = ""
    groups_claim: str = "groups"
    name_claim: str = "email"
    groups: str = ""
    scopes: str = SCOPES
    """What is asked for, `openid` among it: some issuers tell groups to those only who ask for `groups`."""

    def __repr__(self) -> str:
        return f"OidcSettings({self.issuer!r}, {self.client_id!r})"


class Claims(msgspec.Struct, frozen=True):
    """Who has signed in, as the issuer says. `name` is what the name claim holds."""

    subject: str
    name: str
    groups: tuple[str, ...] = ()
    full_name: str = ""


class Pending(msgspec.Struct, frozen=True):
    """A sign-in that has begun: what must be remembered until the browser comes back."""

    state: str
    nonce: str
    verifier: str


class _Issuer(msgspec.Struct, frozen=True):
    """The discovery document, as far as it is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str
    access_token: str = ""


def settings_of(words: Mapping[str, str]) -> OidcSettings | None:
    """The settings by their names; None where no issuer is set."""
    if not words.get("issuer"):
        return None
    if not words.get("client_id"):
        raise _bad_setting("an issuer is set and no client id", "PLIMSOLL_OIDC_CLIENT_ID=… as the issuer gave it")
    if "openid" not in words.get("scopes", SCOPES).split():
        raise _bad_setting(
            f"the scopes {words['scopes'][:100]!r} have no openid", f"PLIMSOLL_OIDC_SCOPES='{SCOPES} groups'"
        )
    return OidcSettings(**{name: words[name] for name in OidcSettings.__struct_fields__ if words.get(name)})


class Oidc:
    """One issuer. Safe to share between threads."""

    def __init__(
        self,
        settings: OidcSettings,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._timeout_seconds, self._clock, self._ticks = timeout_seconds, clock, ticks
        _address(settings.issuer, "the issuer", _bad_setting_of_issuer)
        self._tls: ssl.SSLContext | None = None
        try:
            self._tls = trust(settings.ca_file or None)
        except ValueError as error:
            raise _bad_setting(str(error), "PLIMSOLL_OIDC_CA_FILE=FILE in PEM form") from error
        self._lock = threading.Lock()
        self._issuer: _Issuer | None = None
        self._issuer_at = self._keys_at = 0.0
        self._keys: tuple[Any, ...] = ()
        self._failed: PlimsollError | None = None
        self._failed_at = 0.0

    def begin(self) -> Pending:
        """New secrets for one sign-in."""
        return Pending(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48))

    def authorization_url(self, redirect_uri: str, pending: Pending) -> str:
        """Where to send the browser."""
        digest = sha256(pending.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.settings.scopes,
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        endpoint = self._discovered().authorization_endpoint
        return f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query, quote_via=quote)}"

    def redeem(self, code: str, pending: Pending, *, redirect_uri: str, state: str, said_issuer: str = "") -> Claims:
        """Who the browser that came back with a code belongs to. `said_issuer` is the `iss` it came with, if any."""
        if not hmac.compare_digest(state.encode(), pending.state.encode()):
            raise _refused("the answer belongs to another sign-in (state)", code="wrong_state")
        if said_issuer and said_issuer != self.settings.issuer:
            raise _refused("the answer comes from another issuer", code="wrong_issuer")
        issuer = self._discovered()
        tokens = self._exchange_code(issuer, code, pending.verifier, redirect_uri)
        claims = self._verified(issuer, tokens.id_token, pending.nonce)
        return self._person(issuer, claims, tokens.access_token)

    def _exchange_code(self, issuer: _Issuer, code: str, verifier: str, redirect_uri: str) -> _Tokens:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        name, secret = self.settings.client_id, self.settings.client_secret
        methods = issuer.token_endpoint_auth_methods_supported
        # RFC 6749 escapes both for Basic, and some issuers do not know; where it makes a difference, post them.
        is_plain = quote(f"{name}{secret}", safe="") == f"{name}{secret}"
        if secret and "client_secret_basic" in methods and (is_plain or "client_secret_post" not in methods):
            pair = f"{quote(name, safe='')}:{quote(secret, safe='')}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        else:
            form |= {"client_id": name} | ({"client_secret": secret} if secret else {})
        answer = self._ask("POST", issuer.token_endpoint, "its token endpoint", urlencode(form).encode(), headers)
        if answer.status >= 500 or answer.status == 429:
            raise self._unavailable(f"its token endpoint said HTTP {answer.status}")
        if answer.status != 200:
            raise _refused(f"the issuer refused the code: HTTP {answer.status}{_error_words(answer)}")
        tokens: _Tokens = self._read(answer, _Tokens, "its token endpoint")
        return tokens

    def _verified(self, issuer: _Issuer, id_token: str, nonce: str) -> dict[str, Any]:
        try:
            header = header_of(id_token)
            key = pick_key(self._known_keys(issuer), header)
            if key is None:
                key = pick_key(self._known_keys(issuer, is_stale=True), header)
            if key is None:
                raise BadToken("it is signed with a key that the issuer does not publish")
            return checked_claims(
                id_token,
                key,
                issuer=self.settings.issuer,
                client_id=self.settings.client_id,
                nonce=nonce,
                now=int(self._clock()),
            )
        except BadToken as bad:
            raise _refused(f"the issuer's token is not taken: {bad}", code="bad_id_token") from bad

    def _person(self, issuer: _Issuer, claims: dict[str, Any], access_token: str) -> Claims:
        names = (self.settings.name_claim, self.settings.groups_claim)
        if issuer.userinfo_endpoint and access_token and any(name not in claims for name in names):
            claims = self._userinfo(issuer, access_token, str(claims["sub"])) | claims
        name = _text(claims.get(self.settings.name_claim))
        if not name:
            raise _refused(
                f"the issuer says no {self.settings.name_claim} of {_text(claims['sub'])}",
                next_step="let the issuer tell it to this client, or set PLIMSOLL_OIDC_NAME_CLAIM to what it tells",
                code="no_name",
            )
        if self.settings.name_claim == "email" and claims.get("email_verified") not in (True, "true"):
            raise _refused(
                f"the issuer does not say that {name} was verified to be theirs",
                next_step="have it verified there, or set PLIMSOLL_OIDC_NAME_CLAIM to a claim that nobody can choose",
                code="email_not_verified",
            )
        return Claims(
            _text(claims["sub"]), name, _groups(claims.get(self.settings.groups_claim)), _text(claims.get("name"))
        )

    def _userinfo(self, issuer: _Issuer, access_token: str, subject: str) -> dict[str, Any]:
        if not (access_token.isascii() and access_token.isprintable()):
            raise self._unavailable("its access token has characters that no header can have")
        headers = {"Authorization": f"Bearer {access_token}"}
        answer = self._ask("GET", issuer.userinfo_endpoint, "its userinfo endpoint", b"", headers)
        if answer.status != 200:
            raise self._unavailable(f"its userinfo endpoint said HTTP {answer.status}")
        found: dict[str, Any] = self._read(answer, dict[str, Any], "its userinfo endpoint")
        if found.get("sub") != subject:
            raise _refused("the issuer's userinfo is about somebody else", code="bad_id_token")
        return found

    def _discovered(self) -> _Issuer:
        with self._lock:
            if self._issuer is None or self._ticks() - self._issuer_at > KEEP_SECONDS:
                self._issuer = self._guarded(self._discover)
                self._issuer_at = self._ticks()
            return self._issuer

    def _discover(self) -> _Issuer:
        place = self.settings.issuer.rstrip("/") + DISCOVERY_PATH
        answer = self._ask("GET", place, "its discovery document")
        if answer.status != 200:
            where = f", which points to {answer.location}" if answer.location else ""
            raise self._unavailable(f"its discovery document: HTTP {answer.status}{where}")
        found: _Issuer = self._read(answer, _Issuer, "its discovery document")
        if found.issuer != self.settings.issuer:
            said = one_line(found.issuer, TEXT_CHARS_MAX)
            raise self._unavailable(
                f"its discovery document is of {said}", f"if that is meant: PLIMSOLL_OIDC_ISSUER={said}", "issuer_wrong"
            )
        places = [found.authorization_endpoint, found.token_endpoint, found.jwks_uri]
        for each in [*places, *([found.userinfo_endpoint] if found.userinfo_endpoint else [])]:
            _address(each, "an endpoint of its discovery document", self._unavailable)
        return found

    def _known_keys(self, issuer: _Issuer, *, is_stale: bool = False) -> tuple[Any, ...]:
        """The issuer's keys; fetched again where they are old, or (not too often) where one is not among them."""
        with self._lock:
            age = self._ticks() - self._keys_at
            if not self._keys or age > KEEP_SECONDS or (is_stale and age > AGAIN_SECONDS):
                self._keys = self._guarded(lambda: self._fetch_keys(issuer))
                self._keys_at = self._ticks()
            return self._keys

    def _fetch_keys(self, issuer: _Issuer) -> tuple[Any, ...]:
        answer = self._ask("GET", issuer.jwks_uri, "its keys")
        if answer.status != 200:
            raise self._unavailable(f"its keys: HTTP {answer.status}")
        found: dict[str, Any] = self._read(answer, dict[str, Any], "its keys")
        keys = import_keys(found)
        if not keys:
            raise self._unavailable("it publishes no key that could sign", code="issuer_wrong")
        return keys

    def _guarded(self, fetch: Callable[[], Any]) -> Any:
        """Under the lock: an issuer that just failed is not asked again."""
        if self._failed is not None and self._ticks() - self._failed_at < FAILED_SECONDS:
            raise self._failed
        try:
            found = fetch()
        except PlimsollError as error:
            self._failed, self._failed_at = error, self._ticks()
            raise
        self._failed = None
        return found

    def _ask(
        self, method: str, url: str, what: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        address = _address(url, what, self._unavailable)
        try:
            return exchange(
                method,
                address,
                body=body,
                headers={"Accept": "application/json", "User-Agent": "plimsoll", **(headers or {})},
                timeout_seconds=self._timeout_seconds,
                body_bytes_max=BODY_BYTES_MAX,
                tls=self._tls,
            )
        except NoAnswer as failed:
            next_step = "is the issuer up, and may this machine reach it?"
            if failed.trouble is Trouble.UNTRUSTED:
                next_step = "give the certificate authority that signed it: PLIMSOLL_OIDC_CA_FILE=FILE"
            raise self._unavailable(f"{what}: {failed.detail}", next_step) from failed

    def _read(self, answer: Answer, kind: Any, what: str) -> Any:
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            detail = one_line(str(error), WORDS_CHARS_MAX)
            raise self._unavailable(f"{what} is not what it should be: {detail}", code="issuer_wrong") from error

    def _unavailable(self, what: str, next_step: str = "", code: str = "issuer_unavailable") -> PlimsollError:
        return Unavailable(
            code,
            f"nobody can sign in at {one_line(self.settings.issuer, TEXT_CHARS_MAX)} now: {what}",
            next_step=next_step or "ask the people of the issuer; tokens go on working",
        )


def _address(url: str, what: str, error_of: Callable[[str], PlimsollError]) -> Address:
    """An address that secrets may be sent to: TLS, or this machine."""
    base, separator, query = url.partition("?")
    try:
        address, credentials = read_address(base)
    except ValueError as error:
        raise error_of(f"{what} is no address: {error}") from None
    if credentials:
        raise error_of(f"{what} has a password in it")
    if not address.keeps_secrets:
        raise error_of(f"{what} is not https: anybody on the way could sign in as somebody else")
    if not (query.isascii() and query.isprintable() and " " not in query):
        raise error_of(f"{what} has characters that a URL can't have")
    return Address(address.scheme, address.host, address.port, f"{address.path or '/'}{separator}{query}")


def _error_words(answer: Answer) -> str:
    """What the issuer says is wrong; it may say anything, so it is cut and made one line."""
    try:
        said = msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return ""
    words = [said[name] for name in ("error", "error_description") if isinstance(said.get(name), str)]
    return f" ({one_line(': '.join(words), WORDS_CHARS_MAX)})" if words else ""


def _groups(value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [each for each in found if isinstance(each, str) and 0 < len(each) <= TEXT_CHARS_MAX and each.isprintable()]
    return tuple(dict.fromkeys(texts))[:GROUPS_MAX]


def _text(value: object) -> str:
    return one_line(value, TEXT_CHARS_MAX) if isinstance(value, str) else ""


def _refused(
    what: str, *, next_step: str = "begin again: sign in on the page", code: str = "sign_in_refused"
) -> PlimsollError:
    return Refused(code, what, next_step=next_step)


def _bad_setting(what: str, next_step: str) -> PlimsollError:
    return UsageError("oidc_bad_setting", what, next_step=next_step)


def _bad_setting_of_issuer(what: str) -> PlimsollError:
    return _bad_setting(what, "PLIMSOLL_OIDC_ISSUER=https://HOST/PATH, as the issuer's discovery document says")
