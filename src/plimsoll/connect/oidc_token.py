"""Whether an ID token is what it says: the algorithm, the key, the signature, and for whom, from whom and until when.

Decides from the token, the issuer's keys and the time alone, with no I/O. Must never trust a word of a token before its
signature is checked, but its header, which only says which key to try; and never take `none` or a shared secret.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import Key, RSAKey, import_key

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
"""Only signatures that need the issuer's private key."""
KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 16384
LEEWAY_SECONDS = 60
"""How far the two clocks may be apart."""
TOKEN_CHARS_MAX = 64 << 10
KEYS_MAX = 50


class _Registry(jws.JWSRegistry):
    """Which algorithms, and how long a token may be: somebody in many groups has a long one."""

    max_header_length = 16 << 10
    max_payload_length = TOKEN_CHARS_MAX
    max_signature_length = 16 << 10


_REGISTRY = _Registry(algorithms=ALGORITHMS, strict_check_header=False)


class BadToken(Exception):
    """Why a token is not taken; never quotes it."""


def header_of(token: str) -> dict[str, Any]:
    """What the token says about its own signature."""
    if len(token) > TOKEN_CHARS_MAX:
        raise BadToken(f"it has {len(token):,} characters, at most {TOKEN_CHARS_MAX:,} are read")
    if token.count(".") == 4:
        raise BadToken("it is encrypted; have the issuer sign it only")
    try:
        header = jws.extract_compact(token.encode("ascii"), registry=_REGISTRY).headers()
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadToken("it is no signed token") from error
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        shown = ascii(algorithm)[:40]
        raise BadToken(f"it is signed by {shown}, which is not one of {', '.join(ALGORITHMS)}")
    return header


def import_keys(document: Mapping[str, Any]) -> tuple[Key, ...]:
    """The keys of a JWKS that can sign with an algorithm of the list. What is not understood is left out (RFC 7517)."""
    found = document.get("keys")
    keys: list[Key] = []
    for each in found[:KEYS_MAX] if isinstance(found, list) else ():
        if not isinstance(each, dict) or each.get("use") not in (None, "sig") or each.get("kty") == "oct":
            continue
        try:
            key = import_key(each)
            if not isinstance(key, RSAKey) or RSA_BITS_MIN <= key.public_key.key_size <= RSA_BITS_MAX:
                keys.append(key)
        except Exception:  # noqa: S112  # whatever a library says of a strange key, it is one that we can't use
            continue
    return tuple(keys)


def pick_key(keys: Sequence[Key], header: Mapping[str, Any]) -> Key | None:
    """The key that a header names, if it is of the kind that the algorithm needs. Without a name: if only one fits."""
    algorithm, kid = header["alg"], header.get("kid")
    kind = KEY_TYPES[algorithm[:2]]
    fitting = [key for key in keys if key.key_type == kind and key.alg in (None, algorithm) and kid in (None, key.kid)]
    return fitting[0] if len(fitting) == 1 or (fitting and kid is not None) else None


def checked_claims(token: str, key: Key, *, issuer: str, client_id: str, nonce: str, now: int) -> dict[str, Any]:
    """The claims of a token that is right in every respect. Raises BadToken."""
    registry = jwt.JWTClaimsRegistry(
        now=now,
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": issuer},
        sub={"essential": True},
        aud={"essential": True, "value": client_id},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        claims = jwt.decode(token, key, registry=_REGISTRY).claims
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadToken(f"its signature does not hold ({type(error).__name__})") from error
    try:
        registry.validate(claims)
    except (JoseError, ValueError, TypeError, OverflowError) as error:
        raise BadToken(str(error)[:200]) from error
    if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and "azp" not in claims:
        raise BadToken("it is for several clients and does not say for which (azp)")
    if claims.get("azp", client_id) != client_id:
        raise BadToken("it was made for another client (azp)")
    said = claims.get("nonce")
    if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
        raise BadToken("it answers another sign-in (nonce)")
    return claims
