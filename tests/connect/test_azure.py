"""What Azure can say, and what is made of it. The official client library judges the double of Azure, too."""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.identity import ClientAssertionCredential, EnvironmentCredential
from azure.mgmt.compute import ComputeManagementClient

from plimsoll.connect import azure
from plimsoll.connect.azure import Azure
from plimsoll.connect.azure_machines import (
    Instance,
    Refusal,
    ScaleSetSeen,
    Usage,
    kind_of,
    read_quota,
    read_refusal,
)
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import UsageError
from tests.support.azure import NO_MACHINES, SUBSCRIPTION, TOKEN, AzureCloud, Fault, HeldToken
from tests.support.bad_web import BadWeb, Conversation, http_answer
from tests.support.slurm import free_ports
from tests.support.tls import make_certificate, server_context

H100 = "Standard_ND96isr_H100_v5"
ROOT = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/plimsoll/providers/Microsoft.Compute/virtualMachineScaleSets"
USAGES = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/westeurope/usages"


def recorded(name: str) -> Any:
    """A document that is not part of this repository; skips the test where it is not."""
    named = os.environ.get("PLIMSOLL_DATA", "")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    file = folder / "azure" / name
    if not file.is_file():
        pytest.skip("what Azure said is not here: PLIMSOLL_DATA names the folder that holds azure/")
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture
def cloud() -> Iterator[AzureCloud]:
    with AzureCloud() as server:
        yield server


def at(server: AzureCloud | BadWeb, **options: Any) -> Azure:
    return Azure(
        SUBSCRIPTION, **{"credential": HeldToken(), "url": server.url, "sleep": lambda _seconds: None, **options}
    )


def trouble_of(ask: Callable[[], Any]) -> ProviderTrouble:
    with pytest.raises(ProviderTrouble) as caught:
        ask()
    error = caught.value
    assert TOKEN not in repr(error.fields) + error.message + error.next_step
    assert error.next_step
    assert "\n" not in error.message
    return error


# What is there.


def test_usages_come_from_all_pages(cloud: AzureCloud) -> None:
    cloud.limits = {"cores": 2_000, "standardNDSH100v5Family": 960, "standardDv2Family": 10}
    cloud.page_items = 2
    cloud.used_by_others = {"cores": 3, "standardDv2Family": 3}
    credential = HeldToken()
    with at(cloud, credential=credential) as subscription:
        found = subscription.usages("westeurope")
    assert found == [
        Usage(name="cores", text="Total Regional vCPUs", used=3, limit=2_000),
        Usage(name="standardNDSH100v5Family", text="standardNDSH100v5Family vCPUs", used=0, limit=960),
        Usage(name="standardDv2Family", text="standardDv2Family vCPUs", used=3, limit=10),
    ]
    assert cloud.requests == [f"GET {USAGES}"] * 2
    assert credential.scopes == ["https://management.azure.com/.default"]


def test_a_usage_without_a_name_is_left_out() -> None:
    body = {"value": [{"unit": "Count", "currentValue": 17, "limit": 19, "name": {}}]}
    with BadWeb(lambda conversation: conversation.say(http_answer(json.dumps(body)))) as server, at(server) as here:
        assert here.usages("westeurope") == []


def test_a_scale_set_fills(cloud: AzureCloud) -> None:
    cloud.page_items = 3
    cloud.add_scale_set("tiger", capacity=10)
    with at(cloud) as subscription:
        assert subscription.scale_set("plimsoll", "tiger") == ScaleSetSeen(
            name="tiger", state="Creating", capacity=10, vm_size=H100, region="westeurope", group="plimsoll"
        )
        assert [each.state for each in subscription.instances("plimsoll", "tiger")] == ["Creating"] * 10
        cloud.arrive(4)
        found = subscription.instances("plimsoll", "tiger")
        assert found[0] == Instance(
            id=f"{ROOT}/tiger/virtualMachines/0", name="tiger000000", state="Succeeded", message=""
        )
        assert [each.state for each in found] == ["Succeeded"] * 4 + ["Creating"] * 6
        used = {each.name: each.used for each in subscription.usages("westeurope")}
        assert (used["standardNDSH100v5Family"], used["cores"]) == (384, 384)  # 4 machines of 96 cores
        cloud.arrive()
        seen = subscription.scale_set("plimsoll", "tiger")
        assert seen is not None
        assert seen.state == "Succeeded"


def test_machines_that_never_come(cloud: AzureCloud) -> None:
    cloud.arrive_share_max, cloud.arrive_per_look = 0.97, 60
    cloud.limits["standardNDSH100v5Family"] = 9_600
    cloud.add_scale_set("tiger", capacity=100)
    with at(cloud) as subscription:
        assert _states(subscription) == {"Succeeded": 60, "Creating": 40}
        assert _states(subscription) == {"Succeeded": 97, "Creating": 3}
        assert _states(subscription) == {"Succeeded": 97, "Creating": 3}
        cloud.is_giving_up = True
        cloud.arrive()
        assert _states(subscription) == {"Succeeded": 97, "Failed": 3}
        assert subscription.instances("plimsoll", "tiger")[99].message == NO_MACHINES
        seen = subscription.scale_set("plimsoll", "tiger")
        assert seen is not None
        assert seen.state == "Failed"


def _states(subscription: Azure) -> dict[str, int]:
    states = [each.state for each in subscription.instances("plimsoll", "tiger")]
    return {state: states.count(state) for state in dict.fromkeys(states)}


@pytest.mark.parametrize("group", ["plimsoll", "nowhere"])
def test_a_scale_set_that_is_not_there_has_no_machines(cloud: AzureCloud, group: str) -> None:
    with at(cloud) as subscription:
        assert subscription.instances(group, "tiger") == []
        assert subscription.scale_set(group, "tiger") is None


def test_a_subscription_that_is_not_there_is_no_empty_one(cloud: AzureCloud) -> None:
    with Azure("another", credential=HeldToken(), url=cloud.url) as stranger:
        for ask in (lambda: stranger.instances("plimsoll", "tiger"), lambda: stranger.scale_set("plimsoll", "tiger")):
            error = trouble_of(ask)
            assert (error.code, error.kind) == ("azure_missing", K.MISSING)
            assert "SubscriptionNotFound" in error.message


def test_an_instance_that_does_not_know_its_name_yet() -> None:
    item = {"id": f"{ROOT}/tiger/virtualMachines/7", "name": "tiger_7", "instanceId": "7", "location": "westeurope"}
    body = json.dumps({"value": [item]})
    with BadWeb(lambda conversation: conversation.say(http_answer(body))) as server, at(server) as here:
        (found,) = here.instances("plimsoll", "tiger")
        assert found == Instance(id=f"{ROOT}/tiger/virtualMachines/7", name="tiger_7", state="", message="")


# What goes wrong.


class Case(NamedTuple):
    faults: list[Fault]
    want_code: str = ""
    want_kind: TroubleKind | None = None
    want_words: str = ""
    want_requests: int = 1
    want_pauses: tuple[float, ...] = ()
    want_retry_seconds: float | None = None


def no(status: int, code: str, message: str = "Azure says so.", **headers: str) -> Fault:
    headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return Fault(status, {"error": {"code": code, "message": message}}, headers)


QUOTA = (
    "Operation could not be completed as it results in exceeding approved standardNDSH100v5Family Cores quota. "
    "Additional details - Deployment Model: Resource Manager, Location: westeurope, Current Limit: 100, Current Usage: "
    "90, Additional Required: 20, (Minimum) New Limit Required: 110. Submit a request for Quota increase at X."
)
DROPPED = Fault(0)
DOWN = Fault(503, b"<html>down</html>", {"Content-Type": "text/html"})
K = TroubleKind
CASES = {
    "a subscription that is not there": Case(
        [no(404, "SubscriptionNotFound")], "azure_missing", K.MISSING, "HTTP 404 (SubscriptionNotFound) Azure says so."
    ),
    "a provider that is not registered is not registered from here": Case(
        [no(409, "MissingSubscriptionRegistration")], "azure_missing", K.MISSING, "MissingSubscriptionRegistration"
    ),
    "not allowed to look": Case([no(403, "AuthorizationFailed")], "azure_unauthorised", K.CREDENTIALS, "HTTP 403"),
    "not allowed, in words that nobody knows": Case(
        [Fault(403, b"go away")], "azure_unauthorised", K.CREDENTIALS, "HTTP 403 go away"
    ),
    "forbidden by a policy, which is nobody's login": Case(
        [no(403, "RequestDisallowedByPolicy")], "azure_refused", K.REFUSED, "RequestDisallowedByPolicy"
    ),
    "wrong words": Case([no(400, "InvalidParameter")], "azure_refused", K.REFUSED, "InvalidParameter"),
    "a conflict that is no quota": Case(
        [no(409, "OperationNotAllowed", "Disk x is attached to VM y.")], "azure_refused", K.REFUSED, "Disk x"
    ),
    "out of quota": Case([no(409, "OperationNotAllowed", QUOTA)], "azure_out_of_quota", K.OUT_OF_QUOTA, "Limit: 100"),
    "no machines": Case([no(409, "AllocationFailed", NO_MACHINES)], "azure_no_capacity", K.NO_CAPACITY, "sufficient"),
    "no machines in the zone": Case([no(409, "ZonalAllocationFailed")], "azure_no_capacity", K.NO_CAPACITY),
    "no machines of this kind": Case([no(409, "SkuNotAvailable")], "azure_no_capacity", K.NO_CAPACITY),
    "no machines so close together": Case(
        [no(409, "OverconstrainedAllocationRequest")], "azure_no_capacity", K.NO_CAPACITY
    ),
    "busy for five minutes, which are not waited here": Case(
        [no(429, "TooManyRequests", Retry_After="300")], "azure_busy", K.BUSY, "HTTP 429", want_retry_seconds=300.0
    ),
    "busy until a date": Case(
        [no(429, "TooManyRequests", Retry_After="Tue, 20 Jan 2026 12:00:00 GMT")], "azure_busy", K.BUSY
    ),
    "busy, and no word for how long": Case([no(429, "OperationNotAllowed")], "azure_busy", K.BUSY),
    "down once": Case([DOWN], want_requests=2, want_pauses=(0.5,)),
    "down once and dropped once": Case(
        [no(500, "InternalServerError"), DROPPED], want_requests=3, want_pauses=(0.5, 1.0)
    ),
    "down for long": Case(
        [DOWN] * 3, "azure_unreachable", K.UNREACHABLE, "HTTP 503 <html>down", want_requests=3, want_pauses=(0.5, 1.0)
    ),
    "down, and says for how long": Case(
        [no(503, "ServerBusy", Retry_After="30")] * 3,
        "azure_unreachable",
        K.UNREACHABLE,
        want_requests=3,
        want_pauses=(0.5, 1.0),
        want_retry_seconds=30.0,
    ),
    "the connection ends without an answer": Case(
        [DROPPED] * 3, "azure_unreachable", K.UNREACHABLE, "Connection", want_requests=3, want_pauses=(0.5, 1.0)
    ),
    "too slow": Case(
        [Fault(200, pause_seconds=2.0)] * 3,
        "azure_unreachable",
        K.UNREACHABLE,
        "timed out",
        want_requests=3,
        want_pauses=(0.5, 1.0),
    ),
    "an answer that is no JSON": Case([Fault(200, b"{nonsense")], "azure_bad_answer", K.UNREACHABLE, "DecodeError"),
    "an answer that is another JSON": Case([Fault(200, [1, 2])], "azure_bad_answer", K.UNREACHABLE, "AttributeError"),
    "a limit that is no number": Case(
        [Fault(200, {"value": [{"currentValue": 1, "limit": "many", "name": {"value": "cores"}}]})],
        "azure_bad_answer",
        K.UNREACHABLE,
    ),
    "a limit that is missing": Case(
        [Fault(200, {"value": [{"currentValue": 1, "name": {"value": "cores"}}]})], "azure_bad_answer", K.UNREACHABLE
    ),
    "a redirect, which would carry the token elsewhere": Case(
        [Fault(302, headers={"Location": "https://elsewhere.example/"})], "azure_bad_answer", K.UNREACHABLE, "HTTP 302"
    ),
    "a line that would control a terminal": Case(
        [no(400, "Bad", "red \x1b[31m\r\nnext line")], "azure_refused", K.REFUSED, "red [31m next line"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_azure_does(cloud: AzureCloud, case: Case) -> None:
    cloud.faults = list(case.faults)
    pauses: list[float] = []
    with at(cloud, sleep=pauses.append, timeout_seconds=0.2) as subscription:
        if case.want_code:
            error = trouble_of(lambda: subscription.usages("westeurope"))
            assert (error.code, error.kind) == (case.want_code, case.want_kind)
            assert case.want_words in error.message
            assert error.retry_seconds == case.want_retry_seconds
            assert not error.may_have_happened
        else:
            assert len(subscription.usages("westeurope")) == 4
    assert len(cloud.requests) == case.want_requests
    assert tuple(pauses) == case.want_pauses


def test_out_of_quota_has_its_numbers(cloud: AzureCloud) -> None:
    cloud.faults = [no(409, "OperationNotAllowed", QUOTA)]
    with at(cloud) as subscription:
        error = trouble_of(lambda: subscription.usages("westeurope"))
    want = {"quota": "standardNDSH100v5Family Cores", "limit": 100, "used": 90, "required": 20, "status": 409}
    assert want.items() <= error.fields.items()


def test_a_later_page_is_asked_for_again_alone(cloud: AzureCloud) -> None:
    cloud.page_items = 1

    def fail_once(link: str) -> str:
        cloud.faults, cloud.next_link = [DOWN], lambda link: link
        return link

    cloud.next_link = fail_once
    with at(cloud) as subscription:
        assert len(subscription.usages("westeurope")) == 4
    assert len(cloud.requests) == 5


class Link(NamedTuple):
    change: Callable[[str], str]
    want_words: str


LINKS = {
    "a page of another host": Link(
        lambda link: link.replace("127.0.0.1", "elsewhere.example"), "at http://elsewhere.example"
    ),
    "a page of another port": Link(
        lambda link: re.sub(r":\d+/", ":1/", link), "the next page is at http://127.0.0.1:1/"
    ),
    "a page without encryption of one with it": Link(lambda link: link.replace("http", "https"), "the next page is at"),
    "a page that is no address": Link(lambda _link: "http://[", "the next page is at"),
    "the same page for ever": Link(lambda link: re.sub(r"skiptoken=\d+", "skiptoken=0", link), "more than 200 pages"),
}


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
def test_pages_end_and_stay_at_home(cloud: AzureCloud, link: Link) -> None:
    cloud.page_items, cloud.next_link = 1, link.change
    with at(cloud) as subscription:
        error = trouble_of(lambda: subscription.usages("westeurope"))
    assert error.code == "azure_bad_answer"
    assert link.want_words in error.message
    assert len(cloud.requests) == (200 if "200" in link.want_words else 1)


def test_a_page_of_a_region_is_at_home() -> None:
    home = "https://management.azure.com"
    assert azure._is_at("https://management.azure.com:443/x?y", home)
    assert azure._is_at("https://westeurope.management.azure.com/x", home)
    assert not azure._is_at("https://evilmanagement.azure.com/x", home)
    assert not azure._is_at("https://management.azure.com:444/x", home)


def test_an_answer_that_is_too_much(cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure, "BODY_BYTES_MAX", 100)
    with at(cloud) as subscription:
        error = trouble_of(lambda: subscription.usages("westeurope"))
    assert error.code == "azure_bad_answer"
    assert len(cloud.requests) == 1


def test_an_answer_that_drips_has_an_end() -> None:
    def drip(conversation: Conversation) -> None:
        conversation.drip(http_answer(json.dumps({"value": []}) + " " * 1_000))

    started = time.monotonic()
    with BadWeb(drip) as server, at(server, total_seconds=0.3) as subscription:
        error = trouble_of(lambda: subscription.usages("westeurope"))
    assert (error.code, error.kind) == ("azure_unreachable", K.UNREACHABLE)
    assert "no whole answer within 0.3 s" in error.message
    assert time.monotonic() - started < 3


def test_no_attempt_begins_that_could_not_end_in_time(cloud: AzureCloud) -> None:
    cloud.faults = [DOWN] * 3
    with at(cloud, total_seconds=0.4) as subscription:  # the first pause alone is 0.5 s
        assert trouble_of(lambda: subscription.usages("westeurope")).code == "azure_unreachable"
    assert len(cloud.requests) == 1


def test_nobody_listens() -> None:
    (port,) = free_ports(1)
    with Azure(SUBSCRIPTION, credential=HeldToken(), url=f"http://127.0.0.1:{port}", sleep=lambda _: None) as here:
        error = trouble_of(lambda: here.usages("westeurope"))
    assert (error.code, error.kind) == ("azure_unreachable", K.UNREACHABLE)


def test_a_server_is_believed_by_its_certificate(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with AzureCloud(tls=server_context(certificate, key)) as cloud:
        with at(cloud) as stranger:
            error = trouble_of(lambda: stranger.usages("westeurope"))
        assert error.code == "azure_unreachable"
        assert "certificate" in error.message.lower()
        credential = HeldToken()
        with at(cloud, credential=credential, ca_file=str(certificate)) as subscription:
            assert len(subscription.usages("westeurope")) == 4
        assert credential.scopes == [f"{cloud.url}/.default"]  # another cloud than the usual one has a scope of its own


# Who asks.


@pytest.mark.parametrize(
    ("token", "want_words", "want_step"),
    [
        ("an-old-token", "ExpiredAuthenticationToken", "az login"),
        ("a-made-up-token", "InvalidAuthenticationToken", "AZURE_CLIENT_ID"),
        ("a-strangers-token", "AuthorizationFailed", "az role assignment create"),
    ],
)
def test_a_token_that_does_not_do(cloud: AzureCloud, token: str, want_words: str, want_step: str) -> None:
    credential = HeldToken(token)
    with at(cloud, credential=credential) as subscription:
        for ask in (
            lambda: subscription.usages("westeurope"),
            lambda: subscription.instances("plimsoll", "tiger"),
            lambda: subscription.scale_set("plimsoll", "tiger"),
        ):
            error = trouble_of(ask)
            assert (error.code, error.kind) == ("azure_unauthorised", K.CREDENTIALS)
            assert want_words in error.message
            assert token not in error.message
            assert want_step in error.next_step
        assert len(cloud.requests) == 3  # asked once each
        credential.token = TOKEN
        assert len(subscription.usages("westeurope")) == 4


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "MSI_", "IDENTITY_"))]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("nobody")
def test_no_credentials_at_all(cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")  # looks nowhere else
    for credential in (None, EnvironmentCredential()):
        with at(cloud, credential=credential) as subscription:
            error = trouble_of(lambda: subscription.usages("westeurope"))
        assert (error.code, error.kind) == ("azure_unauthorised", K.CREDENTIALS)
        assert "EnvironmentCredential" in error.message
        assert "az login" in error.next_step
    assert cloud.requests == []


def test_a_grant_that_has_expired(cloud: AzureCloud, tmp_path: Path) -> None:
    """Where one signs in says no, and not Azure: still it is the credentials that do not do."""
    certificate, key = make_certificate(tmp_path)
    refusal = {"error": "invalid_grant", "error_description": "AADSTS70008: The grant of app 'x' has expired."}

    answer = http_answer(json.dumps(refusal), status="400 Bad Request")
    with BadWeb(lambda conversation: conversation.say(answer), tls=server_context(certificate, key)) as entry:
        credential = ClientAssertionCredential(
            "tenant", "client", lambda: "s3cr3t", authority=entry.url, connection_verify=str(certificate)
        )
        with at(cloud, credential=credential) as subscription:
            error = trouble_of(lambda: subscription.usages("westeurope"))
        credential.close()
    assert (error.code, error.kind) == ("azure_unauthorised", K.CREDENTIALS)
    assert "AADSTS70008" in error.message
    assert "s3cr3t" not in error.message
    assert cloud.requests == []


@pytest.mark.usefixtures("nobody")
def test_credentials_that_can_not_be(cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "Nonsense")
    with at(cloud, credential=None) as subscription:
        assert trouble_of(lambda: subscription.usages("westeurope")).code == "azure_unauthorised"


@pytest.mark.parametrize("module", ["azure.identity", "azure.mgmt.compute", "azure.core.exceptions"])
def test_the_library_is_not_installed(cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with at(cloud) as subscription:
        error = trouble_of(lambda: subscription.usages("westeurope"))
    assert (error.code, error.kind) == ("azure_sdk_missing", K.MISSING)
    assert error.next_step == "pip install -r requirements/azure.txt"


SETTINGS: dict[str, Callable[[], Any]] = {
    "a token would go over the network in the open": lambda: Azure("s", url="http://management.azure.com"),
    "not a URL": lambda: Azure("s", url="management.azure.com"),
    "a password in the URL": lambda: Azure("s", url="https://me:secret@management.azure.com"),
    "no subscription": lambda: Azure(""),
    "a subscription that is a path": lambda: Azure("../x"),
    "a file of certificates that is not there": lambda: Azure("s", ca_file="/nowhere/ca.pem"),
    "a region that is a path": lambda: Azure("s").usages("west/europe"),
    "a region without a name": lambda: Azure("s").usages(""),
    "a group that is a path": lambda: Azure("s").instances("../x", "y"),
    "a scale set without a name": lambda: Azure("s").scale_set("x", ""),
}


@pytest.mark.parametrize("ask", SETTINGS.values(), ids=SETTINGS.keys())
def test_what_can_not_be_asked(ask: Callable[[], Any]) -> None:
    with pytest.raises(UsageError) as caught:
        ask()
    assert caught.value.code == "azure_bad_setting"
    assert caught.value.next_step
    assert "secret" not in caught.value.message


# Words.


QUOTAS = {
    "as it is said today": (
        QUOTA,
        {"quota": "standardNDSH100v5Family Cores", "limit": 100, "used": 90, "required": 20},
    ),
    "as it was said before": (
        "Operation results in exceeding quota limits of Core. Maximum allowed: 4, Current in use: 4, Additional "
        "requested: 2.",
        {"quota": "Core", "limit": 4, "used": 4, "required": 2},
    ),
    "as a template says it": (
        "The operation couldn't be completed as it results in exceeding quota limit of Core. Maximum allowed: 4, "
        "Current in use: 3, Additional requested: 2. Read more about quota limits at https://aka.ms/x.",
        {"quota": "Core", "limit": 4, "used": 3, "required": 2},
    ),
    "without numbers": (
        "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.",
        {"quota": "Total Regional Cores"},
    ),
    "not of a quota": ("Disk x is attached to VM y.", {}),
    "a quota by name only": ("See the quota page. Current Limit: 3", {}),
    "nothing": ("", {}),
}


@pytest.mark.parametrize(("message", "want"), QUOTAS.values(), ids=QUOTAS.keys())
def test_the_numbers_of_a_quota(message: str, want: dict[str, object]) -> None:
    assert read_quota(message) == want
    kind = kind_of(code="OperationNotAllowed", message=message, status=409)
    assert kind is (K.OUT_OF_QUOTA if want else K.REFUSED)


BODIES = {
    "an error": ('{"error":{"code":"A","message":"b"}}', Refusal("A", "b")),
    "an error without its cover": ('{"code":"A","message":"b"}', Refusal("A", "b")),
    "a cover with the error in its details": (
        json.dumps(
            {
                "error": {
                    "code": "InvalidTemplateDeployment",
                    "message": "see inner errors",
                    "details": [{"code": "Other", "message": "x"}, {"code": "QuotaExceeded", "message": "y"}],
                }
            }
        ),
        Refusal("QuotaExceeded", "y"),
    ),
    "an error that says enough, with details": (
        json.dumps({"error": {"code": "SkuNotAvailable", "message": "x", "details": [{"code": "QuotaExceeded"}]}}),
        Refusal("SkuNotAvailable", "x"),
    ),
    "not JSON": ("<html>", Refusal("", "<html>")),
    "another JSON": ("[1]", Refusal("", "[1]")),
    "nothing": ("", Refusal("", "")),
    "nulls": ('{"error":{"code":null,"message":null,"details":null}}', Refusal("", "")),
}


@pytest.mark.parametrize(("body", "want"), BODIES.values(), ids=BODIES.keys())
def test_the_words_of_a_no(body: str, want: Refusal) -> None:
    assert read_refusal(body) == want


# The double, judged.


def sdk(cloud: AzureCloud) -> Any:
    return ComputeManagementClient(HeldToken(), SUBSCRIPTION, base_url=cloud.url, polling_interval=0, retry_total=0)


def wish(capacity: int) -> dict[str, Any]:
    sku = {"name": H100, "capacity": capacity, "tier": "Standard"}
    return {"location": "westeurope", "sku": sku, "properties": {"singlePlacementGroup": False, "overprovision": False}}


def begin(client: Any, capacity: int) -> Any:
    return client.virtual_machine_scale_sets.begin_create_or_update(
        "plimsoll", "tiger", wish(capacity), enforce_https=False
    )


def test_the_library_makes_a_scale_set_and_deletes_it(cloud: AzureCloud) -> None:
    cloud.arrive_per_look, cloud.retry_after_seconds = 4, 0
    with sdk(cloud) as client:
        made = begin(client, 10).result()
        assert (made.provisioning_state, made.sku.capacity) == ("Succeeded", 10)
        polls = [each for each in cloud.requests if "/operations/" in each]
        assert len(polls) == 3  # 4, 8, 10
        assert begin(client, 11).result().sku.capacity == 11
        client.virtual_machine_scale_sets.begin_delete("plimsoll", "tiger", enforce_https=False).result()
    assert cloud.scale_sets == {}
    assert cloud.used("cores") == 0


def test_the_library_is_told_of_machines_that_do_not_come(cloud: AzureCloud) -> None:
    cloud.arrive_per_look, cloud.retry_after_seconds = 100, 0
    cloud.arrive_share_max, cloud.is_giving_up = 0.5, True
    with sdk(cloud) as client, pytest.raises(HttpResponseError) as caught:
        begin(client, 10).result()
    assert caught.value.error is not None
    assert caught.value.error.code == "AllocationFailed"
    assert cloud.used("cores") == 480  # 5 of 10 came, with 96 cores each


def test_the_library_is_told_of_the_quota(cloud: AzureCloud) -> None:
    cloud.limits["standardNDSH100v5Family"] = 100
    with sdk(cloud) as client, pytest.raises(ResourceExistsError) as caught:
        begin(client, 2)
    assert caught.value.error is not None
    assert caught.value.error.code == "OperationNotAllowed"
    want = {"quota": "standardNDSH100v5Family Cores", "limit": 100, "used": 0, "required": 192}
    assert read_quota(str(caught.value.error.message)) == want
    assert cloud.scale_sets == {}


def test_the_double_does_what_was_recorded(cloud: AzureCloud) -> None:
    """Status, headers and keys of each answer; what belongs to extensions of a scale set is left out."""
    sequence = recorded("arm_vmss_lro_sequence.json")
    operation, is_extension, compared = "", False, 0
    content = {"location": "westeurope", "sku": {"name": "STANDARD_D1_v2", "capacity": 1}, "properties": {}}
    for want in sequence:
        is_operation = "/operations/" in want["path"]
        is_extension = "/ext" in want["path"] or (is_extension and is_operation)
        if is_extension:
            continue
        if '"Succeeded"' in want["body"] and is_operation:
            cloud.arrive()
        target = operation if is_operation else f"{ROOT}/asotest-vmss-idossk?api-version=2022-03-01"
        status, headers, body = exchange(cloud, want["method"], target, content if want["method"] == "PUT" else None)
        assert status == want["status"], want["path"]
        assert ("Retry-After" in headers) == bool(want["retry_after"])
        assert ("Azure-AsyncOperation" in headers) == want["async"]
        assert ("Location" in headers) == want["location"]
        keys = re.findall(r'"(\w+)":', want["body"])
        assert keys == re.findall(r'"(\w+)":', body)[: len(keys)]
        assert re.findall(r'"(?:code|status)": ?"(\w+)"', want["body"]) == re.findall(
            r'"(?:code|status)": ?"(\w+)"', body if keys else ""
        )
        operation = headers.get("Azure-AsyncOperation", operation)
        compared += 1
    assert compared == 23


def exchange(cloud: AzureCloud, method: str, target: str, content: Any) -> tuple[int, dict[str, str], str]:
    parts = urlsplit(target)
    connection = http.client.HTTPConnection(str(urlsplit(cloud.url).netloc), timeout=10)
    try:
        body = None if content is None else json.dumps(content)
        connection.request(method, f"{parts.path}?{parts.query}", body, {"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    finally:
        connection.close()


def test_the_usages_of_the_double_fit_azures_schema(cloud: AzureCloud) -> None:
    schema = recorded("azure_compute_usages_2024-11-01.subset.json")
    get = schema["paths"]["/subscriptions/{subscriptionId}/providers/Microsoft.Compute/locations/{location}/usages"][
        "get"
    ]
    cloud.page_items = 2
    for want_status, target in ((200, f"{USAGES}?api-version=2024-11-01"), (400, USAGES)):
        status, _, body = exchange(cloud, "GET", target, None)
        assert status == want_status
        response = get["responses"].get(str(status)) or get["responses"]["default"]
        assert _misfits(schema, response["schema"], json.loads(body), "$") == []
    assert _misfits(schema, {"$ref": "#/definitions/Usage"}, {"unit": "Number", "limit": "1", "name": {}}, "$") == [
        "$ has no currentValue",
        "$.unit is not one of ['Count']",
        "$.limit is no integer",
    ]


def _misfits(schema: Any, part: Any, value: Any, where: str) -> list[str]:
    """As much of JSON Schema as these documents use."""
    if "$ref" in part:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]]
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int}
    if not isinstance(value, kinds[part["type"]]):
        return [f"{where} is no {part['type']}"]
    if "enum" in part and value not in part["enum"]:
        return [f"{where} is not one of {part['enum']}"]
    if part["type"] == "array":
        return [words for item in value for words in _misfits(schema, part["items"], item, f"{where}[]")]
    found = [f"{where} has no {key}" for key in part.get("required", []) if key not in value]
    for key, inner in part.get("properties", {}).items():
        if key in value:
            found += _misfits(schema, inner, value[key], f"{where}.{key}")
    return found
