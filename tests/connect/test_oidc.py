"""Signing in at an issuer: the whole way, tokens that must not be taken, issuers that misbehave."""

from __future__ import annotations

import base64
import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from joserfc import jws, jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OctKey, RSAKey

from plimsoll.connect.oidc import AGAIN_SECONDS, FAILED_SECONDS, Claims, Oidc, OidcSettings, settings_of
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError
from tests.support.bad_web import BadWeb, Conversation, http_answer
from tests.support.issuer import BACK, CLIENT, SECRET, Issuer, issuer, one_each, visit
from tests.support.tls import make_certificate, server_context

WANT_ALICE = Claims("u-17", "Alice@Example.org", ("posttraining", "everybody"), "Alice A.")
TIMEOUT_SECONDS = 0.3
HOUR = 3600


@pytest.fixture
def one() -> Iterator[Issuer]:
    with issuer() as each:
        yield each


def refusal_of(one: Issuer, oidc: Oidc | None = None) -> PlimsollError:
    with pytest.raises(PlimsollError) as refused:
        one.sign_in(oidc or one.client())
    return refused.value


@pytest.mark.parametrize("methods", [("client_secret_basic",), ("client_secret_post",), ("none",)])
def test_somebody_signs_in(one: Issuer, methods: tuple[str, ...]) -> None:
    one.methods = methods
    secret = "" if methods == ("none",) else SECRET
    assert one.sign_in(one.client(client_secret=secret)) == WANT_ALICE


def test_the_way_out_has_state_nonce_and_challenge_and_no_secret(one: Issuer) -> None:
    oidc = one.client()
    first, second = oidc.begin(), oidc.begin()
    assert len({*vars_of(first), *vars_of(second)}) == 6
    url = oidc.authorization_url(BACK, first)
    query = one_each(urlsplit(url).query)
    assert query["state"] == first.state
    assert query["nonce"] == first.nonce
    assert (query["code_challenge_method"], query["response_type"], query["redirect_uri"]) == ("S256", "code", BACK)
    assert first.verifier not in url
    assert "s3cret" not in url
    assert "s3cret" not in repr(oidc.settings)


def test_the_scopes_that_are_set_are_asked_for(one: Issuer) -> None:
    """Some issuers tell groups to those only who ask for `groups`."""
    asked = []
    for words in ({}, {"scopes": "openid email groups"}):
        oidc = Oidc(settings_of({"issuer": one.url, "client_id": "x", **words}) or pytest.fail("no settings"))
        asked.append(one_each(urlsplit(oidc.authorization_url(BACK, oidc.begin())).query)["scope"])
    assert asked == ["openid email profile", "openid email groups"]


def vars_of(pending: Any) -> list[str]:
    return [pending.state, pending.nonce, pending.verifier]


def test_a_query_of_the_issuers_address_is_kept(one: Issuer) -> None:
    one.discovery = {"authorization_endpoint": f"{one.url}/authorize?policy=one", "jwks_uri": f"{one.url}/keys?p=1"}
    oidc = one.client()
    assert "/authorize?policy=one&response_type=code" in oidc.authorization_url(BACK, oidc.begin())
    assert one.sign_in(oidc) == WANT_ALICE


def test_an_answer_to_another_sign_in_is_refused_without_asking_the_issuer(one: Issuer) -> None:
    oidc = one.client()
    pending, other = oidc.begin(), oidc.begin()
    back = visit(oidc.authorization_url(BACK, other))
    with pytest.raises(Refused) as refused:
        oidc.redeem(back["code"], pending, redirect_uri=BACK, state=back["state"])
    assert refused.value.code == "wrong_state"
    with pytest.raises(Refused) as refused:
        oidc.redeem(back["code"], other, redirect_uri=BACK, state=back["state"], said_issuer="https://evil.example")
    assert refused.value.code == "wrong_issuer"
    assert one.asked["/token"] == 0


def test_a_stolen_code_is_worth_nothing_without_the_verifier_and_works_once(one: Issuer) -> None:
    oidc = one.client()
    pending, thief = oidc.begin(), oidc.begin()
    code = visit(oidc.authorization_url(BACK, pending))["code"]
    with pytest.raises(Refused) as refused:
        oidc.redeem(code, thief, redirect_uri=BACK, state=thief.state)
    assert refused.value.code == "sign_in_refused"
    assert refused.value.message == "the issuer refused the code: HTTP 400 (invalid_grant: this code is [31m not good)"
    code = visit(oidc.authorization_url(BACK, pending))["code"]
    assert oidc.redeem(code, pending, redirect_uri=BACK, state=pending.state) == WANT_ALICE
    with pytest.raises(Refused) as refused:
        oidc.redeem(code, pending, redirect_uri=BACK, state=pending.state)
    assert code not in refused.value.message


def test_a_wrong_client_secret_is_told_and_not_shown(one: Issuer) -> None:
    refused = refusal_of(one, one.client(client_secret="wrong-secret-17"))
    assert "HTTP 401 (invalid_client)" in refused.message
    assert "wrong-secret-17" not in f"{refused.message} {refused.next_step} {refused.fields}"


# Keys.


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_fetched_once_and_anew_after_a_rotation(one: Issuer) -> None:
    ticks = Ticks()
    oidc = Oidc(one.settings(), ticks=ticks)
    for _ in range(3):
        assert one.sign_in(oidc) == WANT_ALICE
    assert (one.asked["/keys"], one.asked["/.well-known/openid-configuration"]) == (1, 1)
    one.rotate()
    ticks.now += AGAIN_SECONDS + 1
    assert one.sign_in(oidc) == WANT_ALICE, "an unknown key makes us look again"
    one.rotate(keep=1)
    ticks.now += AGAIN_SECONDS + 1
    assert one.sign_in(oidc) == WANT_ALICE
    assert one.asked["/keys"] == 3


def test_unknown_keys_can_not_make_us_hammer_the_issuer(one: Issuer) -> None:
    ticks = Ticks()
    oidc = Oidc(one.settings(), ticks=ticks)
    assert one.sign_in(oidc) == WANT_ALICE
    one.header = {"kid": "made-up"}
    for _ in range(5):
        assert refusal_of(one, oidc).code == "bad_id_token"
    assert one.asked["/keys"] == 1, "the keys are too young to be fetched again"
    ticks.now += AGAIN_SECONDS + 1
    for _ in range(5):
        assert "a key that the issuer does not publish" in refusal_of(one, oidc).message
    assert one.asked["/keys"] == 2


def test_old_keys_are_not_trusted_for_ever(one: Issuer) -> None:
    ticks = Ticks()
    oidc = Oidc(one.settings(), ticks=ticks)
    assert one.sign_in(oidc) == WANT_ALICE
    stolen = one.keys[0]
    one.rotate()
    one.sign = lambda header, claims: jwt.encode(header | {"kid": stolen.kid}, claims, stolen, algorithms=["ES256"])
    ticks.now += 2 * HOUR
    assert "does not publish" in refusal_of(one, oidc).message


def test_many_who_sign_in_at_once_fetch_the_keys_once(one: Issuer) -> None:
    oidc, found = one.client(), []
    one.delay_seconds = 0.05
    threads = [threading.Thread(target=lambda: found.append(one.sign_in(oidc))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [WANT_ALICE] * 6
    assert (one.asked["/keys"], one.asked["/.well-known/openid-configuration"]) == (1, 1)


# Tokens.

Sign = Callable[[Issuer], None]


def claims(**fields: Any) -> Sign:
    return lambda one: one.claims.update(fields)


def claims_since(**seconds: int) -> Sign:
    """Times so many seconds from now, whenever the test runs."""
    return lambda one: one.claims.update({name: int(time.time()) + each for name, each in seconds.items()})


def header(**fields: Any) -> Sign:
    return lambda one: one.header.update(fields)


def signed(sign: Callable[[Issuer, dict[str, Any], dict[str, Any]], str]) -> Sign:
    def change(one: Issuer) -> None:
        one.sign = lambda header, claims: sign(one, header, claims)

    return change


def _encoded(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _unsigned(_one: Issuer, header: dict[str, Any], claims: dict[str, Any]) -> str:
    return f"{_encoded(header | {'alg': 'none'})}.{_encoded(claims)}."


def _by_secret(key: Callable[[Issuer], bytes]) -> Sign:
    def sign(one: Issuer, header: dict[str, Any], claims: dict[str, Any]) -> str:
        return jwt.encode(header | {"alg": "HS256"}, claims, OctKey.import_key(key(one)), algorithms=["HS256"])

    return signed(sign)


def _by_stranger(_one: Issuer, header: dict[str, Any], claims: dict[str, Any]) -> str:
    return jwt.encode(header, claims, ECKey.generate_key("P-256"), algorithms=["ES256"])


def _changed(one: Issuer, header: dict[str, Any], claims: dict[str, Any]) -> str:
    head, _, mark = jwt.encode(header, claims, one.keys[0], algorithms=["ES256"]).split(".")
    return f"{head}.{_encoded(claims | {'email': 'admin@example.org'})}.{mark}"


def _deep(one: Issuer, header: dict[str, Any], claims: dict[str, Any]) -> str:
    return jws.serialize_compact(header, b"[" * 20_000, one.keys[0], algorithms=["ES256"])


LAX = jws.JWSRegistry(algorithms=["ES256"], strict_check_header=False)
BAD_TOKENS: dict[str, tuple[Sign, str]] = {
    "of another issuer": (claims(iss="https://evil.example"), "iss"),
    "without an issuer": (claims(iss=None), "iss"),
    "for another client": (claims(aud="other"), "aud"),
    "for nobody": (claims(aud=None), "aud"),
    "for several, not said for which": (claims(aud=[CLIENT, "other"]), "azp"),
    "for several, made for the other": (claims(aud=[CLIENT, "other"], azp="other"), "azp"),
    "made for another client": (claims(azp="other"), "azp"),
    "over": (claims_since(iat=-HOUR, exp=-120), "expired"),
    "without an end": (claims(exp=None), "exp"),
    "with an end that is no number": (claims(exp="never"), "exp"),
    "with an end that never comes": (claims(exp=float("inf")), "exp"),
    "not valid yet": (claims_since(nbf=HOUR), "not yet valid"),
    "from the future": (claims_since(iat=HOUR), "future"),
    "without a subject": (claims(sub=None), "sub"),
    "with a subject that is no text": (claims(sub=17), "sub"),
    "with the nonce of another sign-in": (claims(nonce="another"), "nonce"),
    "without a nonce": (claims(nonce=None), "nonce"),
    "with a nonce that is no text": (claims(nonce=["x"]), "nonce"),
    "not signed": (signed(_unsigned), "'none'"),
    "signed with the client's secret": (_by_secret(lambda _: SECRET.encode()), "'HS256'"),
    "signed with our own public key as a secret": (
        _by_secret(lambda one: json.dumps(one.keys[0].as_dict(private=False)).encode()),
        "'HS256'",
    ),
    "signed by a stranger under the issuer's key id": (signed(_by_stranger), "signature"),
    "changed after it was signed": (signed(_changed), "signature"),
    "with an algorithm that does not fit the key": (
        signed(lambda one, head, body: _relabelled(one, head, body, "RS256")),
        "does not publish",
    ),
    "with a header that must be understood": (
        signed(lambda one, head, body: _relabelled(one, head | {"crit": ["x"], "x": 1}, body, "ES256")),
        "UnsupportedHeader",
    ),
    "no token": (signed(lambda *_: "hello"), "no signed token"),
    "empty": (signed(lambda *_: ""), "no signed token"),
    "not even letters": (signed(lambda *_: "ä.ö.ü"), "no signed token"),
    "encrypted": (signed(lambda *_: "a.b.c.d.e"), "encrypted"),
    "endless": (signed(lambda *_: "a" * 100_000), "100,000 characters"),
    "deeper than one can look": (signed(_deep), "signature does not hold"),
}


def _relabelled(one: Issuer, header: dict[str, Any], claims: dict[str, Any], algorithm: str) -> str:
    _, body, mark = jwt.encode({"alg": "ES256"}, claims, one.keys[0], algorithms=["ES256"]).split(".")
    return f"{_encoded(header | {'alg': algorithm})}.{body}.{mark}"


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_token_is_not_taken(one: Issuer, name: str) -> None:
    change, want_words = BAD_TOKENS[name]
    change(one)
    refused = refusal_of(one)
    assert (type(refused), refused.code) == (Refused, "bad_id_token")
    assert want_words in refused.message
    assert "eyJ" not in refused.message, "a token is never shown"


GOOD_TOKENS: dict[str, Sign] = {
    "a little over: clocks differ": claims_since(exp=-20),
    "for several, made for us": claims(aud=["other", CLIENT], azp=CLIENT),
    "with a header that nobody needs to know": signed(
        lambda one, head, body: jws.serialize_compact(
            head | {"colour": "blue"}, json.dumps(body), one.keys[0], registry=LAX
        )
    ),
    "without a key id, where there is one key": header(kid=None),
    "of somebody in many groups": claims(padding="x" * 20_000),
}


@pytest.mark.parametrize("name", GOOD_TOKENS)
def test_a_token_is_taken(one: Issuer, name: str) -> None:
    GOOD_TOKENS[name](one)
    assert one.sign_in(one.client()) == WANT_ALICE


@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
def test_rsa_keys_sign_too_but_short_ones_do_not(one: Issuer, algorithm: str) -> None:
    one.keys = [RSAKey.generate_key(2048, {"kid": "r"})]
    one.header = {"alg": algorithm}
    one.sign = lambda header, claims: jwt.encode(header, claims, one.keys[0], algorithms=[algorithm])
    assert one.sign_in(one.client()) == WANT_ALICE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        one.keys = [RSAKey.generate_key(1024, {"kid": "r"})]
        assert refusal_of(one).code == "issuer_wrong"


# Who it is.


def test_what_the_token_does_not_say_is_asked_of_userinfo(one: Issuer) -> None:
    one.discovery = {"userinfo_endpoint": f"{one.url}/userinfo"}
    one.userinfo = dict(one.person)
    one.person = {"sub": "u-17"}
    assert one.sign_in(one.client()) == WANT_ALICE
    one.userinfo["sub"] = "u-18"
    assert "about somebody else" in refusal_of(one).message
    one.person = dict(one.userinfo) | {"sub": "u-17", "email": "token@example.org", "groups": None}
    one.userinfo["sub"] = "u-17"
    assert one.sign_in(one.client()).name == "token@example.org", "what is signed counts more"


PEOPLE: dict[str, tuple[dict[str, Any], str]] = {
    "an address that was not verified": ({"email_verified": False}, "email_not_verified"),
    "an address of which nobody says that it was": ({"email_verified": None}, "email_not_verified"),
    "no address": ({"email": None}, "no_name"),
    "an address that is no text": ({"email": ["a@example.org"]}, "no_name"),
}


@pytest.mark.parametrize("name", PEOPLE)
def test_nobody_signs_in_with(one: Issuer, name: str) -> None:
    fields, want_code = PEOPLE[name]
    one.claims = fields
    assert refusal_of(one).code == want_code


def test_other_claims_can_be_the_name_and_the_groups(one: Issuer) -> None:
    one.claims = {"email": None, "upn": "alice", "teams": "one-team", "groups": ["x"]}
    assert one.sign_in(one.client(name_claim="upn", groups_claim="teams")) == Claims(
        "u-17", "alice", ("one-team",), "Alice A."
    )
    one.claims |= {"teams": ["a", 1, None, "a", "", "b\x1b[0m", ["c"]]}
    assert one.sign_in(one.client(name_claim="upn", groups_claim="teams")).groups == ("a",)


# Issuers that misbehave.


def _wait(talk: Conversation) -> None:
    talk.pause(60)


def _drip(talk: Conversation) -> None:
    talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    talk.drip(b"{" * 5_000)


def _pour(talk: Conversation) -> None:
    talk.say(b"HTTP/1.1 200 OK\r\n\r\n")
    while talk.pause(0):
        talk.say(b" " * 65_536)


def says(body: bytes | str, **fields: Any) -> Callable[[Conversation], None]:
    return lambda talk: talk.say(http_answer(body, **fields))


BAD_ISSUERS: dict[str, tuple[Callable[[Conversation], None], str, str]] = {
    "says nothing": (_wait, "issuer_unavailable", "no whole answer within 0.3 s"),
    "drips": (_drip, "issuer_unavailable", "no whole answer within 0.3 s"),
    "pours": (_pour, "issuer_unavailable", "more than 1,048,576 bytes"),
    "hangs up": (lambda _: None, "issuer_unavailable", "not a whole HTTP answer"),
    "breaks off": (says("{}", length=900), "issuer_unavailable", "broke off"),
    "is a page": (says("<html>"), "issuer_wrong", "discovery document is not what it should be"),
    "is a list": (says("[]"), "issuer_wrong", "discovery document is not what it should be"),
    "is half a document": (says('{"issuer": "x"}'), "issuer_wrong", "discovery document is not what it should be"),
    "is no text": (says(b'{"issuer": "\xff"}'), "issuer_wrong", "discovery document is not what it should be"),
    "is too deep": (says("[" * 100_000), "issuer_wrong", "discovery document is not what it should be"),
    "is not found": (says("", status="404 Not Found"), "issuer_unavailable", "HTTP 404"),
    "is broken": (says("", status="500 Oops"), "issuer_unavailable", "HTTP 500"),
    "points elsewhere": (
        says("", status="302 Found", headers="Location: https://user:pw@evil.example/x?y=1\r\n"),
        "issuer_unavailable",
        "HTTP 302, which points to https://evil.example/x",
    ),
    "is another": (
        says(
            json.dumps(
                dict.fromkeys(["issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"], "https://x.example")
            )
        ),
        "issuer_wrong",
        "is of https://x.example",
    ),
}


@pytest.mark.parametrize("name", BAD_ISSUERS)
def test_an_issuer_gets_a_clear_error(name: str) -> None:
    speak, want_code, want_words = BAD_ISSUERS[name]
    with BadWeb(speak) as web:
        # Short only where it is waited for: a busy machine may take longer than that for a good answer.
        timeout_seconds = TIMEOUT_SECONDS if "no whole answer" in want_words else 20.0
        oidc = Oidc(OidcSettings(web.url, CLIENT, SECRET), timeout_seconds=timeout_seconds)
        began = time.monotonic()
        with pytest.raises(Unavailable) as refused:
            oidc.authorization_url(BACK, oidc.begin())
        assert time.monotonic() - began < 10
    assert refused.value.code == want_code
    assert want_words in refused.value.message
    assert f"nobody can sign in at {web.url} now" in refused.value.message
    assert refused.value.next_step


def test_an_issuer_that_is_not_there(one: Issuer) -> None:
    oidc = one.client(issuer="http://127.0.0.1:9")
    with pytest.raises(Unavailable) as refused:
        oidc.authorization_url(BACK, oidc.begin())
    assert refused.value.code == "issuer_unavailable"


def _publish_secret(one: Issuer) -> None:
    signing = one.keys[0]
    one.sign = lambda header, claims: jwt.encode(header, claims, signing, algorithms=["ES256"])
    one.keys = [OctKey.generate_key(256, {"kid": "x"})]


LATER: dict[str, tuple[Callable[[Issuer], None], str]] = {
    "only keys that are secrets": (_publish_secret, "no key that could sign"),
    "an endpoint without TLS": (
        lambda one: one.discovery.update(token_endpoint="http://192.0.2.1/token"),
        "is not https",
    ),
    "an endpoint that is no address": (lambda one: one.discovery.update(jwks_uri="javascript:1"), "is no address"),
    "an endpoint with a password": (
        lambda one: one.discovery.update(jwks_uri="https://u:p@x.example/"),
        "has a password in it",
    ),
    "a token endpoint that is not there": (
        lambda one: one.discovery.update(token_endpoint=f"{one.url}/nothing"),
        "refused the code: HTTP 404",
    ),
    "userinfo that is not there": (
        lambda one: one.discovery.update(userinfo_endpoint=f"{one.url}/nothing") or one.claims.update(groups=None),
        "userinfo endpoint said HTTP 404",
    ),
}


@pytest.mark.parametrize("name", LATER)
def test_an_issuer_that_fails_later_gets_a_clear_error_too(one: Issuer, name: str) -> None:
    change, want_words = LATER[name]
    change(one)
    assert want_words in refusal_of(one).message


def test_an_issuer_that_failed_is_left_alone_for_a_while() -> None:
    ticks = Ticks()
    with BadWeb(says("", status="500 Oops")) as web:
        oidc = Oidc(OidcSettings(web.url, CLIENT), ticks=ticks)
        for _ in range(5):
            with pytest.raises(Unavailable):
                oidc.authorization_url(BACK, oidc.begin())
        assert len(web.requests) == 1
        ticks.now += FAILED_SECONDS + 1
        with pytest.raises(Unavailable):
            oidc.authorization_url(BACK, oidc.begin())
        assert len(web.requests) == 2


def test_a_certificate_must_be_trusted(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with issuer(tls=server_context(certificate, key)) as one:
        oidc = one.client()
        with pytest.raises(Unavailable) as refused:
            oidc.authorization_url(BACK, oidc.begin())
        assert "PLIMSOLL_OIDC_CA_FILE" in refused.value.next_step
        oidc = one.client(ca_file=str(certificate))
        assert oidc.authorization_url(BACK, oidc.begin()).startswith("https://127.0.0.1")


SETTINGS = {
    "an issuer without TLS": {"issuer": "http://idp.example.org", "client_id": "x"},
    "an issuer that is no address": {"issuer": "idp.example.org", "client_id": "x"},
    "an issuer with a password": {"issuer": "https://u:p@idp.example.org", "client_id": "x"},
    "no client": {"issuer": "https://idp.example.org"},
    "no certificates": {"issuer": "https://idp.example.org", "client_id": "x", "ca_file": "/nowhere"},
    "scopes without openid": {"issuer": "https://idp.example.org", "client_id": "x", "scopes": "email groups"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        Oidc(settings_of(SETTINGS[name]) or pytest.fail("no settings"))
    assert refused.value.code == "oidc_bad_setting"
    assert "PLIMSOLL_OIDC_" in refused.value.next_step


def test_without_an_issuer_there_are_no_settings() -> None:
    assert settings_of({"client_id": "x"}) is None
    found = settings_of({"issuer": "https://a.example", "client_id": "x", "groups": "a=admin", "unknown": "y"})
    assert found == OidcSettings("https://a.example", "x", groups="a=admin")
