"""Against Glewlwyd, an issuer that others wrote: sign-in, its own checks of PKCE and codes, and keys that change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plimsoll.connect import oidc as client
from plimsoll.connect.oidc import Claims, Oidc
from plimsoll.errors import Refused, Unavailable
from tests.support.glewlwyd import PrivateGlewlwyd, private_glewlwyd
from tests.support.issuer import BACK

pytestmark = pytest.mark.xdist_group("glewlwyd")


@pytest.fixture(scope="module")
def glewlwyd() -> Iterator[PrivateGlewlwyd]:
    with private_glewlwyd() as server:
        yield server


def sign_in(glewlwyd: PrivateGlewlwyd, oidc: Oidc) -> Claims:
    pending = oidc.begin()
    back = glewlwyd.sign_in(oidc.authorization_url(BACK, pending))
    return oidc.redeem(back["code"], pending, redirect_uri=BACK, state=back["state"], said_issuer=back.get("iss", ""))


def assert_is_alice(claims: Claims) -> None:
    assert (claims.name, claims.full_name) == ("alice@example.org", "Alice A.")
    assert set(claims.groups) == {"posttraining", "everybody"}
    assert claims.subject


def test_somebody_signs_in_and_again_after_the_keys_changed(
    glewlwyd: PrivateGlewlwyd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "AGAIN_SECONDS", 0.0)
    oidc = glewlwyd.client()
    assert_is_alice(sign_in(glewlwyd, oidc))
    for _ in range(2):  # from an elliptic curve to RSA and back
        glewlwyd.rotate()
        assert_is_alice(sign_in(glewlwyd, oidc))


def test_a_code_needs_its_verifier_and_its_client(glewlwyd: PrivateGlewlwyd) -> None:
    oidc = glewlwyd.client()
    pending = oidc.begin()
    back = glewlwyd.sign_in(oidc.authorization_url(BACK, pending))
    thief = client.Pending(pending.state, pending.nonce, oidc.begin().verifier)
    with pytest.raises(Refused, match="refused the code"):
        oidc.redeem(back["code"], thief, redirect_uri=BACK, state=back["state"])
    with pytest.raises(Refused, match="refused the code"):
        glewlwyd.client(client_secret="wrong").redeem(back["code"], pending, redirect_uri=BACK, state=back["state"])


def test_an_address_that_is_no_issuer_is_told(glewlwyd: PrivateGlewlwyd) -> None:
    oidc = glewlwyd.client(issuer=glewlwyd.issuer.removesuffix("/oidc"))
    with pytest.raises(Unavailable) as refused:
        oidc.authorization_url(BACK, oidc.begin())
    assert refused.value.code == "issuer_unavailable"
    assert "HTTP 404" in refused.value.message
