"""Scale sets as objects of Azure Service Operator: write them, apply them, and read what the operator says of them.

Decides what a scale set must look like as an object, and what the operator's Ready condition means. The operator makes
the machines, not we. Must never take a field from somebody else unless told to, never put a password or a key that is
a secret into an object (only the name of the secret that holds it), and never show a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from plimsoll.connect.azure_machines import KINDS, kind_of, one_line, read_quota
from plimsoll.connect.kubeconfig import Access
from plimsoll.connect.kueue import FIELD_MANAGER, KueueApi
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.errors import NotFound, PlimsollError, UsageError

KIND = "VirtualMachineScaleSet"
PLURAL = "virtualmachinescalesets"
API_VERSION = "compute.azure.com/v20220301"
"""Older operators call the same version `compute.azure.com/v1api20220301`."""
MANAGED_BY = "app.kubernetes.io/managed-by"
CAPACITY_MAX = 1_000
"""Azure's most for one scale set."""
MESSAGE_CHARS_MAX = 20_000
CONDITIONS_MAX = 100

STARTED = {"Reconciling", "Deleting"}
"""Reasons of the operator that say: it is being done."""
MISSING = {"AzureResourceNotFound", "ConfigMapNotFound", "ReferenceNotFound", "SecretNotFound", "WaitingForOwner"}
"""Reasons that say: it waits for something that is not there."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WORD = re.compile(r"[-\w.]{1,90}")
_CODE = re.compile(r'ERROR CODE: (\w{1,80})|"code":\s*"(\w{1,80})"')
_STATUS = re.compile(r"RESPONSE ([0-9]{3})\b")

T = TypeVar("T")


class ScaleSetWish(msgspec.Struct, frozen=True, kw_only=True):
    """A scale set that shall be there."""

    name: str
    namespace: str
    group: str
    """The name of the ResourceGroup object, or the whole id of a group that is none."""
    region: str
    vm_size: str
    capacity: int
    subnet: str
    """The name of the VirtualNetworksSubnet object, or the whole id of a subnet that is none."""
    image: str
    """PUBLISHER:OFFER:SKU:VERSION, or the whole id of an image."""
    admin_name: str = "plimsoll"
    ssh_public_key: str = ""
    admin_password_secret: str = ""
    """NAME/KEY of a secret in the namespace."""
    custom_data_secret: str = ""
    """NAME/KEY of a secret in the namespace: what a machine runs first."""
    computer_name_prefix: str = ""
    """The name, if nothing else is said."""
    fault_domain_count: int = 1
    zones: tuple[str, ...] = ()
    disk_gigabytes: int | None = None
    tags: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    api_version: str = API_VERSION


class OperatorSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says of a scale set."""

    name: str
    is_ready: bool | None
    """None: it has said nothing yet. What it said of an older wish does not make it ready."""
    reason: str = ""
    message: str = ""
    severity: str = ""
    """Info: it is on its way. Warning: the operator tries again. Error: it has given up until the object changes."""
    provisioning_state: str = ""
    capacity: int | None = None
    generation: int = 0
    observed_generation: int = 0
    trouble: TroubleKind | None = None
    """Why it is not ready, where that is more than being on its way."""
    quota: str = ""
    limit: int | None = None
    used: int | None = None
    required: int | None = None
    tags: dict[str, str] = {}
    """Those that are wished for."""

    @property
    def is_stale(self) -> bool:
        """Whether what it says is of an older wish than the one that is there."""
        return self.observed_generation < self.generation


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    severity: str | None = None
    reason: str | None = None
    message: str | None = None
    observed_generation: int | None = None


class _Sku(msgspec.Struct):
    capacity: int | None = None


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    provisioning_state: str | None = None
    sku: _Sku | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    generation: int | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct):
    tags: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


def scale_set_object(wish: ScaleSetWish) -> dict[str, Any]:
    """The object for a wish. Raises UsageError for one that Azure could not take."""
    _check(wish)
    machine: dict[str, Any] = {
        "networkProfile": _network(wish),
        "osProfile": _system(wish),
        "storageProfile": {"imageReference": _image(wish.image), **_disk(wish)},
    }
    spec: dict[str, Any] = {
        "location": wish.region,
        "orchestrationMode": "Uniform",
        "overprovision": False,  # more machines than wished for would count against the quota
        "owner": {"armId": wish.group} if wish.group.startswith("/") else {"name": wish.group},
        "platformFaultDomainCount": wish.fault_domain_count,
        "singlePlacementGroup": False,  # true: not more than 100 machines
        "sku": {"capacity": wish.capacity, "name": wish.vm_size},
        "upgradePolicy": {"mode": "Manual"},  # no machine is changed under running work
        "virtualMachineProfile": machine,
    }
    spec |= {"tags": dict(wish.tags)} if wish.tags else {}
    spec |= {"zones": list(wish.zones)} if wish.zones else {}
    return {
        "apiVersion": wish.api_version,
        "kind": KIND,
        "metadata": {
            "labels": {**wish.labels, MANAGED_BY: FIELD_MANAGER},
            "name": wish.name,
            "namespace": wish.namespace,
        },
        "spec": spec,
    }


def yaml_text(objects: Iterable[Mapping[str, Any]]) -> str:
    """The objects as a file for `kubectl apply`, in an order that does not depend on how they were given."""
    import yaml

    def place(content: Mapping[str, Any]) -> tuple[str, ...]:
        metadata = content["metadata"]
        return content["kind"], metadata.get("namespace", ""), metadata["name"]

    return yaml.safe_dump_all([dict(each) for each in sorted(objects, key=place)], sort_keys=True, allow_unicode=True)


def read_scale_set(content: Mapping[str, Any]) -> OperatorSeen:
    """What `kubectl get virtualmachinescaleset NAME -o json` prints. Raises ProviderTrouble for something else."""
    try:
        read = msgspec.convert(content, _Object)
    except msgspec.ValidationError as error:
        raise ProviderTrouble(
            "kubernetes_bad_answer",
            f"this is no {KIND}: {one_line(str(error))}",
            kind=TroubleKind.UNREACHABLE,
            next_step=f"look at it: kubectl get {PLURAL} -o yaml",
        ) from error
    status = read.status or _Status()
    ready = next((each for each in (status.conditions or [])[:CONDITIONS_MAX] if each.type == "Ready"), _Condition())
    generation, observed = read.metadata.generation or 0, ready.observed_generation or 0
    message = (ready.message or "")[:MESSAGE_CHARS_MAX]
    is_ready = {"True": True, "False": False}.get(ready.status)
    if is_ready is not None and (observed < generation or read.metadata.deletion_timestamp):
        is_ready = False
    trouble = None
    if ready.status == "False" and observed >= generation:
        trouble = _trouble(ready.reason or "", ready.severity or "", message)
    numbers: dict[str, Any] = read_quota(message) if trouble is TroubleKind.OUT_OF_QUOTA else {}
    return OperatorSeen(
        name=read.metadata.name,
        is_ready=is_ready,
        reason="Deleting" if read.metadata.deletion_timestamp else one_line(ready.reason or ""),
        message=one_line(message),
        severity=one_line(ready.severity or ""),
        provisioning_state=one_line(status.provisioning_state or ""),
        capacity=status.sku.capacity if status.sku else None,
        generation=generation,
        observed_generation=observed,
        trouble=trouble,
        tags=(read.spec.tags if read.spec else None) or {},
        **numbers,
    )


def _trouble(reason: str, severity: str, message: str) -> TroubleKind | None:
    """The operator's reason is its own or Azure's code; its message holds Azure's whole answer."""
    if severity == "Info" or reason in STARTED:
        return None
    if reason in MISSING:
        return TroubleKind.MISSING
    found, status = _CODE.search(message), _STATUS.search(message)
    codes = [reason, *([found[1] or found[2]] if found else [])]
    known = [code for code in codes if any(code in each for each in KINDS.values())]
    if known or status or read_quota(message):
        return kind_of(code=(known or codes)[0], message=message, status=int(status[1]) if status else 0)
    return TroubleKind.REFUSED if severity == "Error" else TroubleKind.UNREACHABLE


class AzureOperator:
    """The operator's scale sets in one namespace of one cluster. Whatever goes wrong is a ProviderTrouble."""

    def __init__(self, access: Access, namespace: str, *, api_version: str = API_VERSION, **options: Any) -> None:
        self._api = _Api(access, **options)
        self._api.group_version = api_version
        self._namespace = namespace

    @property
    def where(self) -> str:
        return self._api.where

    def apply(self, objects: Sequence[Mapping[str, Any]], *, is_forced: bool = False) -> None:
        """Make the objects, or set our fields of them. Doing it twice is doing it once."""
        for content in objects:
            assert content["metadata"].get("namespace") == self._namespace, "objects are made for their namespace"
            self._speak(lambda content=content: self._api.apply(content, is_forced=is_forced), is_write=True)  # type: ignore[misc]

    def read(self, names: Collection[str]) -> dict[str, OperatorSeen]:
        """Of these scale sets those that are there, by name."""
        wanted = set(names)
        found = self._speak(lambda: self._api.list_objects(KIND, labels={}, namespace=self._namespace), is_write=False)
        seen = [read_scale_set(each) for each in found if (each.get("metadata") or {}).get("name") in wanted]
        return {each.name: each for each in seen}

    def delete(self, name: str) -> None:
        """Delete an object, and with it the machines at Azure. One that is not there is deleted."""
        self._speak(lambda: self._api.delete(KIND, namespace=self._namespace, name=name), is_write=True)

    def _speak(self, call: Callable[[], T], *, is_write: bool) -> T:
        try:
            return call()
        except PlimsollError as error:
            fields: dict[str, Any] = error.fields
            status = fields.get("status")
            kind = _KINDS.get(error.code) or _STATUSES.get(status, TroubleKind.UNREACHABLE)
            is_unheard = kind is TroubleKind.UNREACHABLE and (status is None or error.code == "kubernetes_bad_answer")
            raise ProviderTrouble(
                error.code,
                error.message,
                kind=kind,
                next_step=_STEPS.get(error.code) or (_RIGHTS if status == 403 else error.next_step),
                may_have_happened=is_write and (is_unheard or status in _UNSURE),
                **fields,
            ) from error


_KINDS = {
    "azure_operator_missing": TroubleKind.MISSING,
    "field_taken": TroubleKind.REFUSED,
    "kubernetes_bad_answer": TroubleKind.UNREACHABLE,
    "kubernetes_no_namespace": TroubleKind.MISSING,
    "kubernetes_refused": TroubleKind.REFUSED,
}
_STATUSES: dict[object, TroubleKind] = {
    401: TroubleKind.CREDENTIALS,
    403: TroubleKind.CREDENTIALS,
    429: TroubleKind.BUSY,
}
_UNSURE = (500, 502, 504)
"""The server, or what stands before it, failed on the way: it may have been done."""
_STEPS = {
    "field_taken": f"agree with who holds it: kubectl get {PLURAL} -o yaml --show-managed-fields",
    "kubernetes_no_namespace": "make it: kubectl create namespace NAME",
}
_RIGHTS = f"give the token's user the rights to get, list, patch and delete {PLURAL} of compute.azure.com"


class _Api(KueueApi):
    """It is talked to as for Kueue; only the kind is another."""

    group_version = API_VERSION
    plurals = {KIND: PLURAL}

    def _refuse_missing(self, what: str, words: str) -> NoReturn:
        try:
            super()._refuse_missing(what, words)
        except NotFound:
            raise NotFound(
                "azure_operator_missing",
                f"{self.where} knows no {what} of {self.group_version}: {words}",
                next_step="install Azure Service Operator there with compute.azure.com/* in its crdPattern, then: "
                "kubectl api-resources --api-group=compute.azure.com",
            ) from None


def _network(wish: ScaleSetWish) -> dict[str, Any]:
    subnet = {"group": "network.azure.com", "kind": "VirtualNetworksSubnet", "name": wish.subnet}
    reference = {"armId": wish.subnet} if wish.subnet.startswith("/") else subnet
    address = {"name": "ipconfig", "subnet": {"reference": reference}}
    return {"networkInterfaceConfigurations": [{"ipConfigurations": [address], "name": "nic", "primary": True}]}


def _system(wish: ScaleSetWish) -> dict[str, Any]:
    system: dict[str, Any] = {
        "adminUsername": wish.admin_name,
        "computerNamePrefix": wish.computer_name_prefix or wish.name,
    }
    if wish.admin_password_secret:
        system["adminPassword"] = _secret(wish.admin_password_secret)
    if wish.custom_data_secret:
        system["customData"] = _secret(wish.custom_data_secret)
    if wish.ssh_public_key:
        key = {"keyData": wish.ssh_public_key, "path": f"/home/{wish.admin_name}/.ssh/authorized_keys"}
        is_password_off = not wish.admin_password_secret
        linux = {"disablePasswordAuthentication": is_password_off, "ssh": {"publicKeys": [key]}}
        system["linuxConfiguration"] = linux
    return system


def _disk(wish: ScaleSetWish) -> dict[str, Any]:
    if wish.disk_gigabytes is None:
        return {}
    return {"osDisk": {"createOption": "FromImage", "diskSizeGB": wish.disk_gigabytes}}


def _image(image: str) -> dict[str, Any]:
    if image.startswith("/"):
        return {"reference": {"armId": image}}
    publisher, offer, sku, version = image.split(":")
    return {"publisher": publisher, "offer": offer, "sku": sku, "version": version}


def _secret(place: str) -> dict[str, str]:
    name, _, key = place.partition("/")
    return {"name": name, "key": key}


def _check(wish: ScaleSetWish) -> None:
    secrets = [place for place in (wish.admin_password_secret, wish.custom_data_secret) if place]
    parts = wish.image.split(":")
    problems = {
        f"the name {wish.name!r} is not one of small letters, digits and hyphens": not _NAME.fullmatch(wish.name),
        f"the namespace {wish.namespace!r} is none": not _NAME.fullmatch(wish.namespace),
        "it has no resource group": not wish.group,
        "it has no subnet": not wish.subnet,
        f"{wish.region!r} is no region": not _WORD.fullmatch(wish.region),
        f"{wish.vm_size!r} is no size": not _WORD.fullmatch(wish.vm_size),
        f"{wish.capacity:,} machines, and one scale set has 0 to {CAPACITY_MAX:,}": not (
            0 <= wish.capacity <= CAPACITY_MAX
        ),
        f"{wish.image!r} is neither PUBLISHER:OFFER:SKU:VERSION nor an id": not wish.image.startswith("/")
        and (len(parts) != 4 or not all(parts)),
        "a secret is not named NAME/KEY": any(not all(place.partition("/")) for place in secrets),
        "a private key was given where a public one is wanted": "PRIVATE KEY" in wish.ssh_public_key,
    }
    for words, is_so in problems.items():
        if is_so:
            raise UsageError(
                "azure_bad_scale_set",
                f"scale set {wish.name[:90]}: {one_line(words)}",
                next_step="put it right where the scale set is described",
                scale_set=wish.name,
            )
