"""Scale sets through Azure Service Operator: the objects, what the operator says of them, and its API server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from plimsoll.connect.azure_operator import (
    API_VERSION,
    AzureOperator,
    OperatorSeen,
    ScaleSetWish,
    read_scale_set,
    scale_set_object,
    yaml_text,
)
from plimsoll.connect.kubeconfig import access
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import UsageError
from tests.support.bad_web import BadWeb, Conversation, http_answer
from tests.support.kube_api import KubeApi, Problem
from tests.support.slurm import free_ports

K = TroubleKind
PLURAL = "virtualmachinescalesets"
SUBNET = "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/gpu"
KEYS = "/".join(["", "home", "plimsoll", ".ssh", "authorized_keys"])
IMAGE = "/subscriptions/s/resourceGroups/images/providers/Microsoft.Compute/galleries/g/images/ubuntu/versions/1.0.0"


def wish(**fields: Any) -> ScaleSetWish:
    usual: dict[str, Any] = {
        "name": "tiger-a",
        "namespace": "clusters",
        "group": "tiger-rg",
        "region": "westeurope",
        "vm_size": "Standard_ND96isr_H100_v5",
        "capacity": 16,
        "subnet": "gpu-subnet",
        "image": "Canonical:0001-com-ubuntu-server-jammy:22_04-lts:latest",
    }
    return ScaleSetWish(**{**usual, **fields})


def sample() -> Any:
    named = os.environ.get("PLIMSOLL_DATA", "")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    file = folder / "azure" / "aso_vmss_sample_v20220301.yaml"
    if not file.is_file():
        pytest.skip("the operator's sample is not here: PLIMSOLL_DATA names the folder that holds azure/")
    return yaml.safe_load(file.read_text(encoding="utf-8"))


# Objects.


def test_an_object_has_the_shape_of_the_operators_sample() -> None:
    want = sample()
    found = scale_set_object(
        wish(
            name="aso-sample-vmss",
            namespace="default",
            group="aso-sample-rg",
            region="westus3",
            vm_size="STANDARD_D1_v2",
            capacity=1,
            subnet="samplesubnetvmss1",
            admin_name="adminUser",
            admin_password_secret="sample-vmss-secret/password",
            computer_name_prefix="computer",
            fault_domain_count=2,
        )
    )
    sample_only = {
        "spec.virtualMachineProfile.extensionProfile",
        "spec.virtualMachineProfile.networkProfile.networkInterfaceConfigurations[0].ipConfigurations[0]"
        ".loadBalancerInboundNatPools",
    }
    ours_only = {"metadata.labels", "spec.orchestrationMode", "spec.overprovision"}
    other_words = {
        "spec.upgradePolicy.mode",
        "spec.virtualMachineProfile.networkProfile.networkInterfaceConfigurations[0].name",
        "spec.virtualMachineProfile.networkProfile.networkInterfaceConfigurations[0].ipConfigurations[0].name",
    }
    assert set(_differences(want, found, "")) == {
        *(f"-{path}" for path in sample_only),
        *(f"+{path}" for path in ours_only),
        *(f"~{path}" for path in other_words),
    }


def _differences(want: Any, found: Any, path: str) -> Iterator[str]:
    """Paths that only one of them has (- and +), and those that have other values (~)."""
    if isinstance(want, dict) and isinstance(found, dict):
        for key in want.keys() | found.keys():
            inner = f"{path}.{key}".lstrip(".")
            if key not in found:
                yield f"-{inner}"
            elif key not in want:
                yield f"+{inner}"
            else:
                yield from _differences(want[key], found[key], inner)
    elif isinstance(want, list) and isinstance(found, list) and len(want) == len(found):
        for place, (one, other) in enumerate(zip(want, found, strict=True)):
            yield from _differences(one, other, f"{path}[{place}]")
    elif want != found:
        yield f"~{path}"


def test_an_object_for_things_that_the_operator_did_not_make() -> None:
    content = scale_set_object(
        wish(
            group="/subscriptions/s/resourceGroups/tiger-rg",
            subnet=SUBNET,
            image=IMAGE,
            ssh_public_key="ssh-ed25519 AAAA",
            custom_data_secret="boot/cloud-init",
            zones=("1",),
            disk_gigabytes=256,
            tags={"team": "infra"},
            labels={"plimsoll.io/cluster": "tiger"},
            api_version="compute.azure.com/v1api20220301",
        )
    )
    assert content == {
        "apiVersion": "compute.azure.com/v1api20220301",
        "kind": "VirtualMachineScaleSet",
        "metadata": {
            "labels": {"app.kubernetes.io/managed-by": "plimsoll", "plimsoll.io/cluster": "tiger"},
            "name": "tiger-a",
            "namespace": "clusters",
        },
        "spec": {
            "location": "westeurope",
            "orchestrationMode": "Uniform",
            "overprovision": False,
            "owner": {"armId": "/subscriptions/s/resourceGroups/tiger-rg"},
            "platformFaultDomainCount": 1,
            "singlePlacementGroup": False,
            "sku": {"capacity": 16, "name": "Standard_ND96isr_H100_v5"},
            "tags": {"team": "infra"},
            "upgradePolicy": {"mode": "Manual"},
            "virtualMachineProfile": {
                "networkProfile": {
                    "networkInterfaceConfigurations": [
                        {
                            "ipConfigurations": [{"name": "ipconfig", "subnet": {"reference": {"armId": SUBNET}}}],
                            "name": "nic",
                            "primary": True,
                        }
                    ]
                },
                "osProfile": {
                    "adminUsername": "plimsoll",
                    "computerNamePrefix": "tiger-a",
                    "customData": {"name": "boot", "key": "cloud-init"},
                    "linuxConfiguration": {
                        "disablePasswordAuthentication": True,
                        "ssh": {"publicKeys": [{"keyData": "ssh-ed25519 AAAA", "path": KEYS}]},
                    },
                },
                "storageProfile": {
                    "imageReference": {"reference": {"armId": IMAGE}},
                    "osDisk": {"createOption": "FromImage", "diskSizeGB": 256},
                },
            },
            "zones": ["1"],
        },
    }


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name that Kubernetes does not take": ({"name": "Tiger_A"}, "'Tiger_A'"),
    "no name": ({"name": ""}, "small letters"),
    "no namespace": ({"namespace": ""}, "namespace"),
    "no group": ({"group": ""}, "resource group"),
    "no subnet": ({"subnet": ""}, "subnet"),
    "no region": ({"region": ""}, "region"),
    "no size": ({"vm_size": ""}, "size"),
    "fewer than none": ({"capacity": -1}, "-1 machines"),
    "more than one scale set has": ({"capacity": 1_001}, "1,001 machines, and one scale set has 0 to 1,000"),
    "half an image": ({"image": "Canonical:jammy"}, "PUBLISHER:OFFER:SKU:VERSION"),
    "an image with a hole": ({"image": "a::c:d"}, "PUBLISHER:OFFER:SKU:VERSION"),
    "a secret without its key": ({"admin_password_secret": "secret"}, "NAME/KEY"),
    "a key that is a secret": ({"ssh_public_key": "-----BEGIN OPENSSH PRIVATE KEY-----x"}, "private key"),
}


@pytest.mark.parametrize(("fields", "want"), WRONG.values(), ids=WRONG.keys())
def test_a_wish_that_azure_could_not_take(fields: dict[str, Any], want: str) -> None:
    with pytest.raises(UsageError) as caught:
        scale_set_object(wish(**fields))
    assert caught.value.code == "azure_bad_scale_set"
    assert want in caught.value.message
    assert "BEGIN" not in caught.value.message


def test_text_is_the_same_in_any_order() -> None:
    one, two, three = (scale_set_object(wish(name=name)) for name in ("a", "b", "c"))
    text = yaml_text([three, one, two])
    assert text == yaml_text([one, two, three])
    assert list(yaml.safe_load_all(text)) == [one, two, three]
    assert text.startswith("apiVersion: compute.azure.com/v20220301\nkind: VirtualMachineScaleSet\nmetadata:\n")
    assert yaml_text([]) == ""


# What the operator says.

QUOTA = (
    "PUT https://management.azure.com/subscriptions/s/resourceGroups/tiger-rg/providers/Microsoft.Compute/"
    "virtualMachineScaleSets/tiger-a\n-----\nRESPONSE 409: 409 Conflict\nERROR CODE: OperationNotAllowed\n-----\n"
    '{\n  "error": {\n    "code": "OperationNotAllowed",\n    "message": "Operation could not be completed as it '
    "results in exceeding approved standardNDSH100v5Family Cores quota. Additional details - Deployment Model: "
    "Resource Manager, Location: westeurope, Current Limit: 100, Current Usage: 90, Additional Required: 20, (Minimum) "
    'New Limit Required: 110."\n  }\n}\n'
)


def said(status: str = "False", *, generation: int = 1, observed: int = 1, **condition: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "observedGeneration": observed, **condition}
    ready["lastTransitionTime"] = "2026-01-20T12:00:00Z"
    other = {"type": "Other", "status": "True", "reason": "X", "lastTransitionTime": "2026-01-20T12:00:00Z"}
    return {
        "apiVersion": API_VERSION,
        "kind": "VirtualMachineScaleSet",
        "metadata": {"name": "tiger-a", "namespace": "clusters", "generation": generation, "uid": "u"},
        "spec": {"sku": {"capacity": 16}},
        "status": {"conditions": [other, ready]},
    }


def with_status(content: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**content, "status": {**content["status"], **status}}


def seen(is_ready: bool | None, reason: str = "", **fields: Any) -> OperatorSeen:
    usual = {"generation": 1, "observed_generation": 1}
    return OperatorSeen(name="tiger-a", is_ready=is_ready, reason=reason, **{**usual, **fields})


NEW = {"metadata": {"name": "tiger-a", "generation": 1}}
SAID: dict[str, tuple[dict[str, Any], OperatorSeen]] = {
    "nothing yet": (NEW, seen(None, observed_generation=0)),
    "no condition yet": ({**NEW, "status": {}}, seen(None, observed_generation=0)),
    "it does not know": (said("Unknown", reason="Starting"), seen(None, "Starting")),
    "it is ready": (
        with_status(said("True", reason="Succeeded"), provisioningState="Succeeded", sku={"capacity": 16}),
        seen(True, "Succeeded", provisioning_state="Succeeded", capacity=16),
    ),
    "it was ready for an older wish": (
        said("True", reason="Succeeded", generation=3, observed=2),
        seen(False, "Succeeded", generation=3, observed_generation=2),
    ),
    "it failed for an older wish, which says nothing of the newer": (
        said(reason="Failed", severity="Error", generation=3, observed=2),
        seen(False, "Failed", severity="Error", generation=3, observed_generation=2),
    ),
    "it is being made": (
        said(reason="Reconciling", severity="Info", message="The resource is being reconciled"),
        seen(False, "Reconciling", severity="Info", message="The resource is being reconciled"),
    ),
    "it is being deleted": (
        {
            **said("True", reason="Succeeded"),
            "metadata": {"name": "tiger-a", "generation": 1, "deletionTimestamp": "2026-01-20T12:00:00Z"},
        },
        seen(False, "Deleting"),
    ),
    "its group is not there": (
        said(reason="WaitingForOwner", severity="Warning"),
        seen(False, "WaitingForOwner", severity="Warning", trouble=K.MISSING),
    ),
    "its subnet is not there": (
        said(reason="ReferenceNotFound", severity="Warning"),
        seen(False, "ReferenceNotFound", severity="Warning", trouble=K.MISSING),
    ),
    "its secret is not there": (
        said(reason="SecretNotFound", severity="Warning"),
        seen(False, "SecretNotFound", severity="Warning", trouble=K.MISSING),
    ),
    "somebody deleted it at Azure": (
        said(reason="AzureResourceNotFound", severity="Warning"),
        seen(False, "AzureResourceNotFound", severity="Warning", trouble=K.MISSING),
    ),
    "no machines": (
        said(reason="AllocationFailed", severity="Warning"),
        seen(False, "AllocationFailed", severity="Warning", trouble=K.NO_CAPACITY),
    ),
    "no machines, said in the message only": (
        said(reason="Failed", severity="Warning", message='{"error": {"code": "SkuNotAvailable", "message": "x"}}'),
        seen(
            False,
            "Failed",
            severity="Warning",
            message='{"error": {"code": "SkuNotAvailable", "message": "x"}}',
            trouble=K.NO_CAPACITY,
        ),
    ),
    "the operator may not": (
        said(reason="AuthorizationFailed", severity="Error"),
        seen(False, "AuthorizationFailed", severity="Error", trouble=K.CREDENTIALS),
    ),
    "Azure is busy": (
        said(reason="Failed", severity="Warning", message="RESPONSE 429: 429 Too Many Requests"),
        seen(False, "Failed", severity="Warning", message="RESPONSE 429: 429 Too Many Requests", trouble=K.BUSY),
    ),
    "Azure is down": (
        said(reason="InternalServerError", severity="Warning", message="RESPONSE 500: x"),
        seen(False, "InternalServerError", severity="Warning", message="RESPONSE 500: x", trouble=K.UNREACHABLE),
    ),
    "Azure does not take it": (
        said(reason="InvalidParameter", severity="Error", message="RESPONSE 400: x"),
        seen(False, "InvalidParameter", severity="Error", message="RESPONSE 400: x", trouble=K.REFUSED),
    ),
    "it gave up, and says no more": (
        said(reason="Failed", severity="Error"),
        seen(False, "Failed", severity="Error", trouble=K.REFUSED),
    ),
    "it tries again, and says no more": (
        said(reason="Failed", severity="Warning"),
        seen(False, "Failed", severity="Warning", trouble=K.UNREACHABLE),
    ),
}


@pytest.mark.parametrize(("content", "want"), SAID.values(), ids=SAID.keys())
def test_what_the_operator_says(content: dict[str, Any], want: OperatorSeen) -> None:
    assert read_scale_set(content) == want


def test_stale_is_older_than_the_wish() -> None:
    assert read_scale_set(said(generation=3, observed=2)).is_stale
    assert not read_scale_set(said(generation=3, observed=3)).is_stale


@pytest.mark.parametrize("severity", ["Warning", "Error"])
def test_out_of_quota_has_its_numbers(severity: str) -> None:
    found = read_scale_set(said(reason="OperationNotAllowed", severity=severity, message=QUOTA))
    assert found.trouble is K.OUT_OF_QUOTA
    assert (found.quota, found.limit, found.used, found.required) == ("standardNDSH100v5Family Cores", 100, 90, 20)
    assert "\n" not in found.message


@pytest.mark.parametrize(
    "content", [{}, {"metadata": {}}, {"metadata": {"name": "x"}, "status": {"conditions": "none"}}]
)
def test_what_is_no_scale_set(content: dict[str, Any]) -> None:
    with pytest.raises(ProviderTrouble) as caught:
        read_scale_set(content)
    assert (caught.value.code, caught.value.kind) == ("kubernetes_bad_answer", K.UNREACHABLE)


# Its API server.


@pytest.fixture
def api() -> Iterator[KubeApi]:
    with KubeApi(namespaces=("default", "clusters")) as server:
        yield server


def at(url: str, **options: Any) -> AzureOperator:
    known = {"timeout_seconds": 2, "sleep": lambda _seconds: None}
    return AzureOperator(access(url=url), "clusters", **{**known, **options})


def trouble_of(call: Callable[[], Any]) -> ProviderTrouble:
    with pytest.raises(ProviderTrouble) as caught:
        call()
    assert caught.value.next_step
    return caught.value


def test_applied_read_and_deleted(api: KubeApi) -> None:
    operator = at(api.url)
    one, two = scale_set_object(wish(name="tiger-a")), scale_set_object(wish(name="tiger-b"))
    operator.apply([one, two])
    operator.apply([one])
    kept = api.get(PLURAL, "tiger-a", "clusters")
    assert kept["spec"] == one["spec"]
    assert [each["manager"] for each in kept["metadata"]["managedFields"]] == ["plimsoll"]
    assert operator.read(["tiger-a"])["tiger-a"].is_ready is None
    api.objects[PLURAL, "clusters", "tiger-b"].content["status"] = said("True", reason="Succeeded")["status"]
    found = operator.read(["tiger-a", "tiger-b", "tiger-z"])
    assert {name: each.is_ready for name, each in found.items()} == {"tiger-a": None, "tiger-b": True}
    operator.delete("tiger-b")
    operator.delete("tiger-b")
    assert list(operator.read(["tiger-a", "tiger-b"])) == ["tiger-a"]
    assert api.writes == [
        "PATCH virtualmachinescalesets/clusters/tiger-a",
        "PATCH virtualmachinescalesets/clusters/tiger-b",
        "PATCH virtualmachinescalesets/clusters/tiger-a",
        "DELETE virtualmachinescalesets/clusters/tiger-b",
        "DELETE virtualmachinescalesets/clusters/tiger-b",
    ]


def test_other_namespaces_are_others(api: KubeApi) -> None:
    at(api.url).apply([scale_set_object(wish())])
    assert AzureOperator(access(url=api.url), "default").read(["tiger-a"]) == {}
    with pytest.raises(AssertionError):
        AzureOperator(access(url=api.url), "default").apply([scale_set_object(wish())])


def test_all_pages_are_read(api: KubeApi) -> None:
    api.page_objects_max = 2
    names = [f"tiger-{number}" for number in range(5)]
    at(api.url).apply([scale_set_object(wish(name=name)) for name in names])
    assert sorted(at(api.url).read(names)) == names


def test_a_field_of_somebody_else_is_left_to_them(api: KubeApi) -> None:
    operator = at(api.url)
    operator.apply([scale_set_object(wish())])
    kept = api.objects[PLURAL, "clusters", "tiger-a"]
    changed = msgspec.json.decode(msgspec.json.encode(kept.content))
    changed["spec"]["sku"]["capacity"] = 20
    kept.replace(changed, "autoscaler")
    error = trouble_of(lambda: operator.apply([scale_set_object(wish())]))
    assert (error.code, error.kind, error.may_have_happened) == ("field_taken", K.REFUSED, False)
    assert error.fields["owners"] == ["autoscaler"]
    assert api.get(PLURAL, "tiger-a", "clusters")["spec"]["sku"]["capacity"] == 20
    operator.apply([scale_set_object(wish())], is_forced=True)
    assert api.get(PLURAL, "tiger-a", "clusters")["spec"]["sku"]["capacity"] == 16


class Answered(NamedTuple):
    speak: Callable[[Conversation], None]
    want_code: str
    want_kind: TroubleKind
    want_unsure: bool
    """Whether an apply may have happened all the same."""


def saying(status: str, message: str = "no") -> Callable[[Conversation], None]:
    body = msgspec.json.encode({"kind": "Status", "status": "Failure", "message": message, "reason": "X"})
    return lambda conversation: conversation.say(http_answer(body, status=status))


ANSWERS = {
    "no token": Answered(saying("401 Unauthorized"), "kubernetes_unavailable", K.CREDENTIALS, False),
    "no rights": Answered(saying("403 Forbidden"), "kubernetes_unavailable", K.CREDENTIALS, False),
    "the operator is not installed": Answered(
        saying("404 Not Found", "the server could not find the requested resource"),
        "azure_operator_missing",
        K.MISSING,
        False,
    ),
    "no namespace": Answered(
        saying("404 Not Found", 'namespaces "clusters" not found'), "kubernetes_no_namespace", K.MISSING, False
    ),
    "its webhook does not take it": Answered(
        saying("422 Unprocessable Entity"), "kubernetes_refused", K.REFUSED, False
    ),
    "busy": Answered(saying("429 Too Many Requests"), "kubernetes_unavailable", K.BUSY, False),
    "its webhook does not answer": Answered(
        saying("500 Internal Server Error"), "kubernetes_unavailable", K.UNREACHABLE, True
    ),
    "not now": Answered(saying("503 Service Unavailable"), "kubernetes_unavailable", K.UNREACHABLE, False),
    "a gateway gave up": Answered(saying("504 Gateway Timeout"), "kubernetes_unavailable", K.UNREACHABLE, True),
    "no answer": Answered(lambda _conversation: None, "kubernetes_unavailable", K.UNREACHABLE, True),
    "no JSON": Answered(
        lambda conversation: conversation.say(http_answer("<html>")), "kubernetes_bad_answer", K.UNREACHABLE, True
    ),
}


@pytest.mark.parametrize("case", ANSWERS.values(), ids=ANSWERS.keys())
def test_what_the_server_answers(case: Answered) -> None:
    with BadWeb(case.speak) as server:
        operator = at(server.url)
        error = trouble_of(lambda: operator.apply([scale_set_object(wish())]))
        assert (error.code, error.kind) == (case.want_code, case.want_kind)
        assert error.may_have_happened == case.want_unsure
        error = trouble_of(lambda: operator.read(["tiger-a"]))
        assert (error.code, error.kind, error.may_have_happened) == (case.want_code, case.want_kind, False)


def test_nobody_listens() -> None:
    (port,) = free_ports(1)
    error = trouble_of(lambda: at(f"http://127.0.0.1:{port}").delete("tiger-a"))
    assert (error.code, error.kind) == ("kubernetes_unavailable", K.UNREACHABLE)


def test_rights_are_named() -> None:
    with BadWeb(saying("403 Forbidden")) as server:
        error = trouble_of(lambda: at(server.url).read(["tiger-a"]))
    assert "virtualmachinescalesets of compute.azure.com" in error.next_step


def test_an_older_operator(api: KubeApi) -> None:
    older = "compute.azure.com/v1api20220301"
    api.others[PLURAL] = ("compute.azure.com", "v1api20220301", "VirtualMachineScaleSet")
    at(api.url, api_version=older).apply([scale_set_object(wish(api_version=older))])
    assert list(at(api.url, api_version=older).read(["tiger-a"])) == ["tiger-a"]
    error = trouble_of(lambda: at(api.url).read(["tiger-a"]))
    assert (error.code, error.kind) == ("azure_operator_missing", K.MISSING)
    assert "crdPattern" in error.next_step


def test_the_first_that_fails_stops_the_rest(api: KubeApi) -> None:
    def refuse(_method: str, key: tuple[str, str, str]) -> None:
        if key[2] == "tiger-b":
            raise Problem(422, "Invalid", "no")

    api.on_write = refuse
    objects = [scale_set_object(wish(name=name)) for name in ("tiger-a", "tiger-b", "tiger-c")]
    error = trouble_of(lambda: at(api.url).apply(objects))
    assert error.fields["object"] == "VirtualMachineScaleSet tiger-b"
    assert [key[2] for key in api.objects] == ["tiger-a"]
