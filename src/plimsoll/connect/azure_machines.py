"""What Azure says of machines: how many a subscription may have, which are there, and why there are no more.

Decides what kind of "no" an answer of Azure is, and reads the numbers out of its words. Must never ask anything itself.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from plimsoll.connect.provider import TroubleKind

WORDS_CHARS_MAX = 500
DETAILS_MAX = 20

CODES = {
    TroubleKind.CREDENTIALS: "azure_unauthorised",
    TroubleKind.MISSING: "azure_missing",
    TroubleKind.REFUSED: "azure_refused",
    TroubleKind.OUT_OF_QUOTA: "azure_out_of_quota",
    TroubleKind.NO_CAPACITY: "azure_no_capacity",
    TroubleKind.BUSY: "azure_busy",
    TroubleKind.UNREACHABLE: "azure_unreachable",
}
"""Our code for each kind of trouble."""

KINDS = {
    TroubleKind.OUT_OF_QUOTA: {"QuotaExceeded", "SubscriptionQuotaExceeded", "ResourceQuotaExceeded"},
    TroubleKind.NO_CAPACITY: {
        "AllocationFailed",
        "ZonalAllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable",
    },
    TroubleKind.BUSY: {
        "AnotherOperationInProgress",
        "RetryableErrorDueToAnotherOperation",
        "SubscriptionRequestsThrottled",
        "TooManyRequests",
    },
    TroubleKind.CREDENTIALS: {
        "AuthenticationFailed",
        "AuthorizationFailed",
        "ExpiredAuthenticationToken",
        "InvalidAuthenticationToken",
        "InvalidAuthenticationTokenTenant",
        "LinkedAuthorizationFailed",
    },
    TroubleKind.MISSING: {
        "InvalidSubscriptionId",
        "MissingSubscriptionRegistration",
        "NoRegisteredProviderFound",
        "ParentResourceNotFound",
        "ResourceGroupNotFound",
        "ResourceNotFound",
        "SubscriptionNotFound",
        "SubscriptionNotRegistered",
    },
    TroubleKind.REFUSED: {"ReadOnlyDisabledSubscription", "RequestDisallowedByPolicy", "ScopeLocked"},
}
"""Azure's codes that say more than the HTTP status that comes with them."""

_QUOTA = re.compile(r"(?:exceeding|exceeds)\s+(?:the\s+)?(?:approved\s+)?(?:((?:(?!quota).){1,100}?)\s+)?quota", re.I)
_QUOTA_OF = re.compile(r"quota limits? of ([\w ]{1,100})", re.I)
_GROUP = re.compile(r"/resourceGroups/([^/]{1,90})/", re.I)
_NUMBERS = {
    "limit": re.compile(r"(?:Current Limit|Maximum allowed):\s*([0-9]{1,15})", re.I),
    "used": re.compile(r"(?:Current Usage|Current in use):\s*([0-9]{1,15})", re.I),
    "required": re.compile(r"(?:Additional Required|Additional requested):\s*([0-9]{1,15})", re.I),
}


class Usage(msgspec.Struct, frozen=True):
    """How much of one limit of a subscription is used in a region."""

    name: str
    """A family of sizes, as `standardNDSH100v5Family`; the total of the region is `cores`."""
    text: str
    used: int
    limit: int


class Instance(msgspec.Struct, frozen=True):
    """A machine of a scale set."""

    id: str
    """The whole id at Azure, as a node's provider id has it."""
    name: str
    """What the machine calls itself, else the instance's name."""
    state: str
    """Creating, Updating, Succeeded, Failed, Deleting ..."""
    message: str
    """What Azure says of one that is not well."""


class ScaleSetSeen(msgspec.Struct, frozen=True):
    """A scale set as Azure has it."""

    name: str
    state: str
    capacity: int
    vm_size: str
    region: str
    group: str = ""
    """Its resource group."""


class Refusal(msgspec.Struct, frozen=True):
    """The words of a "no"."""

    code: str = ""
    message: str = ""


class _Error(msgspec.Struct):
    code: str | None = None
    message: str | None = None
    details: list[dict[str, Any]] | None = None


class _Body(msgspec.Struct):
    error: _Error | None = None
    code: str | None = None
    message: str | None = None


def kind_of(*, code: str, message: str, status: int = 0) -> TroubleKind:
    """What kind of "no" it is: by Azure's words, and where these say nothing by the HTTP status."""
    if status == 429:
        return TroubleKind.BUSY
    if read_quota(message):  # OperationNotAllowed says it of a quota, and of much else
        return TroubleKind.OUT_OF_QUOTA
    for kind, codes in KINDS.items():
        if code in codes:
            return kind
    if status in (401, 403):
        return TroubleKind.CREDENTIALS
    if status == 404:
        return TroubleKind.MISSING
    return TroubleKind.UNREACHABLE if status == 408 or status >= 500 else TroubleKind.REFUSED


def read_quota(message: str) -> dict[str, object]:
    """The quota that would be exceeded, with `limit`, `used` and `required` as far as they are said; empty: none is."""
    if not (found := _QUOTA.search(message)):
        return {}
    named = found[1] or (of[1].strip() if (of := _QUOTA_OF.search(message)) else "")
    numbers = {key: int(said[1]) for key, pattern in _NUMBERS.items() if (said := pattern.search(message))}
    return {"quota": one_line(named), **numbers}


def read_refusal(body: str) -> Refusal:
    """The code and the words of an error's body. A template's error is only the cover of one that says more."""
    try:
        read = msgspec.json.decode(body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(message=body[: 4 * WORDS_CHARS_MAX])
    error = read.error or _Error(read.code, read.message)
    known = set().union(*KINDS.values())
    for detail in (error.details or [])[:DETAILS_MAX]:
        code, message = str(detail.get("code") or ""), str(detail.get("message") or "")
        if error.code not in known and (code in known or read_quota(message)):
            return Refusal(code, message)
    return Refusal(error.code or "", error.message or "")


def next_step_of(kind: TroubleKind, *, subscription: str, code: str = "", is_forbidden: bool = False) -> str:
    """What a person can do about it."""
    if is_forbidden and kind is TroubleKind.CREDENTIALS:
        return f"az role assignment create --role Reader --assignee WHO --scope /subscriptions/{subscription}"
    if code in ("MissingSubscriptionRegistration", "SubscriptionNotRegistered"):
        return f"az provider register --namespace Microsoft.Compute --subscription {subscription}"
    return {
        TroubleKind.CREDENTIALS: "az login, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
        TroubleKind.MISSING: f"look whether it is there: az account show --subscription {subscription}",
        TroubleKind.REFUSED: "change what Azure names in its words",
        TroubleKind.OUT_OF_QUOTA: "ask Azure for more (portal: Quotas), and see: az vm list-usage --location REGION",
        TroubleKind.NO_CAPACITY: "ask Azure when there will be machines, or take another zone, region or size",
        TroubleKind.BUSY: "wait, then ask again",
        TroubleKind.UNREACHABLE: "look whether the network lets it through, then try again: nothing was changed",
    }[kind]


def read_usage(item: Any) -> Usage:
    """The library's usage as ours. Raises msgspec.ValidationError, AttributeError or TypeError for something else."""
    fields = {"name": _of(item.name, "value") or "", "text": _of(item.name, "localized_value") or ""}
    return msgspec.convert({**fields, "used": item.current_value, "limit": item.limit}, Usage)


def read_instance(item: Any) -> Instance:
    """The library's instance as ours."""
    view = item.instance_view
    names = (_of(item.os_profile, "computer_name"), _of(view, "computer_name"), item.name)
    statuses = _of(view, "statuses") or []
    messages = [str(status.message) for status in statuses if status.message and status.level != "Info"]
    fields = {"id": item.id, "name": next((name for name in names if name), "")}
    fields |= {"state": item.provisioning_state or "", "message": one_line("; ".join(messages))}
    return msgspec.convert(fields, Instance)


def read_scale_set_seen(item: Any) -> ScaleSetSeen:
    """The library's scale set as ours."""
    fields = {"name": item.name, "state": item.provisioning_state or "", "region": item.location or ""}
    fields |= {"capacity": _of(item.sku, "capacity") or 0, "vm_size": _of(item.sku, "name") or ""}
    group = _GROUP.search(str(item.id or ""))
    return msgspec.convert({**fields, "group": group[1] if group else ""}, ScaleSetSeen)


def _of(model: Any, key: str) -> Any:
    """An attribute of a part that may be missing. An empty one is false, too: only None is missing."""
    return None if model is None else getattr(model, key)


def one_line(text: str) -> str:
    """Words from outside, as one bounded line that can't control a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * WORDS_CHARS_MAX]).split())[
        :WORDS_CHARS_MAX
    ]
