"""Azure Resource Manager for tests: usages, scale sets that fill with machines, operations that take a while, faults.

The official client library and a recorded sequence (tests/connect/test_azure.py) judge whether it is one. Time is what
a test says it is: machines come with `arrive`, or `arrive_per_look` of them whenever somebody looks.
"""

from __future__ import annotations

import json
import math
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from azure.core.credentials import AccessToken

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
TOKEN = "a-good-token"
STARTED, ENDED = "2026-01-20T12:00:00.1234567+00:00", "2026-01-20T12:04:00.1234567+00:00"
REGIONAL = "cores"
SIZES = {
    "Standard_ND96isr_H100_v5": ("standardNDSH100v5Family", 96),
    "Standard_ND96isr_H200_v5": ("standardNDISRH200V5Family", 96),
    "STANDARD_D1_v2": ("standardDv2Family", 1),
}
"""By size: whose limit it counts against, and how many cores it has."""
LIMITS = {REGIONAL: 100_000, **{family: 10_000 for family, _ in SIZES.values()}}
NO_MACHINES = (
    "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read more about "
    "improving likelihood of allocation success at https://aka.ms/allocation-guidance"
)


class HeldToken:
    """A credential as the client library wants one. It counts how often it is asked, and for what."""

    def __init__(self, token: str = TOKEN) -> None:
        self.token = token
        self.scopes: list[str] = []

    def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
        self.scopes += scopes
        return AccessToken(self.token, int(time.time()) + 3600)


class Fault(NamedTuple):
    """What is said to one request instead of doing it. Status 0: nothing, the connection ends."""

    status: int
    body: Any = b""
    headers: dict[str, str] = {}
    pause_seconds: float = 0.0


class Problem(Exception):
    """What Azure says instead of doing it."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, {key.replace("_", "-"): value for key, value in headers.items()}
        self.body = {"error": {"code": code, "message": message}}


class Machine:
    """An instance of a scale set."""

    def __init__(self, number: int) -> None:
        self.number, self.state, self.message = number, "Creating", ""


class ScaleSet:
    """A scale set and its machines."""

    def __init__(self, group: str, name: str, content: dict[str, Any]) -> None:
        self.group, self.name, self.content = group, name, content
        self.state = "Creating"
        self.machines: list[Machine] = []

    @property
    def capacity(self) -> int:
        return int(self.content["sku"]["capacity"])

    def resize(self) -> None:
        """Make what is missing; the newest go first where there are too many."""
        numbers = [machine.number for machine in self.machines]
        first = max(numbers, default=-1) + 1
        self.machines += [Machine(first + place) for place in range(self.capacity - len(self.machines))]
        del self.machines[self.capacity :]


class Operation:
    """Something that takes a while."""

    def __init__(self, name: str, verb: str, scale_set: ScaleSet, region: str) -> None:
        self.name, self.verb, self.scale_set, self.region = name, verb, scale_set, region
        self.status, self.error = "InProgress", ("", "")


class AzureCloud:
    """The server. A test sets limits, faults and how machines come, and looks at `requests`."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, groups: tuple[str, ...] = ("plimsoll",)) -> None:
        self.groups = set(groups)
        self.scale_sets: dict[tuple[str, str], ScaleSet] = {}
        self.operations: dict[str, Operation] = {}
        self.limits: dict[str, int] = dict(LIMITS)
        self.used_by_others: dict[str, int] = {}
        self.token, self.expired_tokens = TOKEN, {"an-old-token"}
        self.forbidden_tokens = {"a-strangers-token"}
        self.faults: list[Fault] = []
        self.arrive_per_look = 0
        self.arrive_share_max = 1.0
        """No more than this share of a scale set ever comes."""
        self.is_giving_up = False
        """Whether the rest fails once no more will come; else it is waited for."""
        self.page_items = 500
        self.next_link: Callable[[str], str] = lambda link: link
        self.retry_after_seconds = 10
        self.requests: list[str] = []
        self._lock = threading.RLock()
        cloud = self

        class Handler(_Handler):
            server_cloud = cloud

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> AzureCloud:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def pause(self, seconds: float) -> None:
        self._is_over.wait(seconds)

    # What a test does to it.

    def add_scale_set(
        self, name: str, *, capacity: int, vm_size: str = "Standard_ND96isr_H100_v5", group: str = "plimsoll"
    ) -> ScaleSet:
        """A scale set that somebody made; its machines are still to come."""
        sku = {"name": vm_size, "tier": "Standard", "capacity": capacity}
        with self._lock:
            self._write(group, name, {"location": "westeurope", "sku": sku, "properties": {}})
            return self.scale_sets[group.lower(), name.lower()]

    def arrive(self, count: int | None = None) -> None:
        """So many machines of every scale set come, or all that may."""
        with self._lock:
            for scale_set in self.scale_sets.values():
                self._arrive(scale_set, scale_set.capacity if count is None else count)
            for operation in self.operations.values():
                self._end(operation)

    def lose(self, group: str, name: str, count: int = 1) -> None:
        """Somebody deletes machines: the newest ones of a scale set, which is smaller from then on."""
        with self._lock:
            scale_set = self.scale_sets[group.lower(), name.lower()]
            sku = scale_set.content["sku"]
            scale_set.content = {**scale_set.content, "sku": {**sku, "capacity": scale_set.capacity - count}}
            scale_set.resize()

    def used(self, name: str) -> int:
        """Cores that are used of a limit: by others, and by machines that came."""
        return self.used_by_others.get(name, 0) + self._cores(name, {"Succeeded"})

    def _cores(self, name: str, states: set[str]) -> int:
        return sum(
            SIZES[scale_set.content["sku"]["name"]][1]
            for scale_set in self.scale_sets.values()
            if name in (REGIONAL, SIZES[scale_set.content["sku"]["name"]][0])
            for machine in scale_set.machines
            if machine.state in states
        )

    def _arrive(self, scale_set: ScaleSet, count: int) -> None:
        came = sum(machine.state == "Succeeded" for machine in scale_set.machines)
        most = math.floor(self.arrive_share_max * scale_set.capacity + 1e-9)
        waiting = [machine for machine in scale_set.machines if machine.state == "Creating"]
        for machine in waiting[: max(0, min(count, most - came))]:
            machine.state = "Succeeded"
            came += 1
        if came >= most and self.is_giving_up:
            for machine in waiting:
                if machine.state == "Creating":
                    machine.state, machine.message = "Failed", NO_MACHINES

    def _end(self, operation: Operation) -> None:
        scale_set = operation.scale_set
        states = {machine.state for machine in scale_set.machines}
        if operation.status != "InProgress":
            return
        if operation.verb == "DELETE":
            operation.status = "Succeeded"
            self.scale_sets.pop((scale_set.group.lower(), scale_set.name.lower()), None)
        elif "Creating" not in states:
            is_whole = "Failed" not in states
            operation.status = scale_set.state = "Succeeded" if is_whole else "Failed"
            operation.error = ("", "") if is_whole else ("AllocationFailed", NO_MACHINES)

    # What it says.

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """Status, document and headers."""
        parts = urlsplit(target)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        with self._lock:
            self.requests.append(f"{method} {parts.path}")
            self._check_token(headers.get("Authorization", ""))
            if "api-version" not in query:
                words = "The api-version query parameter (?api-version=) is required for all requests."
                raise Problem(400, "MissingApiVersionParameter", words)
            steps = [unquote(step) for step in parts.path.strip("/").split("/")]
            if steps[:2] != ["subscriptions", SUBSCRIPTION]:
                raise Problem(404, "SubscriptionNotFound", f"The subscription '{steps[1]}' could not be found.")
            match steps[2:]:
                case ["providers", "Microsoft.Compute", "locations", _, "usages"] if method == "GET":
                    return 200, self._page(parts.path, query, self._usages()), {}
                case ["providers", "Microsoft.Compute", "locations", _, "operations", name] if method == "GET":
                    return self._operation(name)
                case ["providers", "Microsoft.Compute", "virtualMachineScaleSets"] if method == "GET":
                    return 200, self._page(parts.path, query, list(map(self._shown, self.scale_sets.values()))), {}
                case ["resourceGroups", group, "providers", "Microsoft.Compute", "virtualMachineScaleSets", *rest]:
                    return self._scale_set(method, group, rest, parts.path, query, body)
            raise Problem(404, "InvalidResourceType", "The resource type could not be found.")

    def _check_token(self, authorization: str) -> None:
        kind, _, token = authorization.partition(" ")
        challenge = f'Bearer authorization_uri="https://login.example/{SUBSCRIPTION}", error="invalid_token"'
        if not authorization:
            words = "Authentication failed. The 'Authorization' header is missing."
            raise Problem(401, "AuthenticationFailed", words, WWW_Authenticate=challenge)
        if token in self.expired_tokens:
            words = "The access token expiry UTC time '1/20/2026 11:00:00 AM' is earlier than current UTC time."
            raise Problem(401, "ExpiredAuthenticationToken", words, WWW_Authenticate=challenge)
        if token in self.forbidden_tokens:
            words = (
                "The client does not have authorization to perform action 'Microsoft.Compute/locations/usages/read'."
            )
            raise Problem(403, "AuthorizationFailed", words)
        if (kind, token) != ("Bearer", self.token):
            raise Problem(401, "InvalidAuthenticationToken", "The access token is invalid.", WWW_Authenticate=challenge)

    def _usages(self) -> list[dict[str, Any]]:
        texts = {REGIONAL: "Total Regional vCPUs"}
        return [
            {
                "limit": limit,
                "unit": "Count",
                "currentValue": self.used(name),
                "name": {"value": name, "localizedValue": texts.get(name, f"{name} vCPUs")},
            }
            for name, limit in self.limits.items()
        ]

    def _page(self, path: str, query: dict[str, str], items: list[dict[str, Any]]) -> dict[str, Any]:
        start = int(query.get("$skiptoken", 0))
        stop = start + self.page_items
        page: dict[str, Any] = {"value": items[start:stop]}
        if stop < len(items):
            page["nextLink"] = self.next_link(f"{self.url}{path}?{urlencode({**query, '$skiptoken': str(stop)})}")
        return page

    def _scale_set(
        self, method: str, group: str, rest: list[str], path: str, query: dict[str, str], body: bytes
    ) -> tuple[int, Any, dict[str, str]]:
        if group.lower() not in self.groups:
            raise Problem(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
        if method == "PUT" and len(rest) == 1:
            return self._write(group, rest[0], json.loads(body))
        found = self.scale_sets.get((group.lower(), rest[0].lower()))
        if found is None:
            raise Problem(
                404,
                "ResourceNotFound",
                f"The Resource 'Microsoft.Compute/virtualMachineScaleSets/{rest[0]}' under resource group '{group}' "
                "was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
            )
        if method == "GET" and len(rest) == 1:
            return 200, self._shown(found), {}
        if method == "GET" and rest[1:] == ["virtualMachines"]:
            self._arrive(found, self.arrive_per_look)
            is_viewed = query.get("$expand") == "instanceView"
            machines = [self._machine(found, machine, is_viewed) for machine in found.machines]
            return 200, self._page(path, query, machines), {}
        if method == "DELETE" and len(rest) == 1:
            found.state = "Deleting"
            headers = self._start("DELETE", found)
            return 202, None, {**headers, "Location": headers["Azure-AsyncOperation"] + "&monitor=true"}
        raise Problem(405, "MethodNotAllowed", f"{method} is not supported here.")

    def _write(self, group: str, name: str, content: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        sku = content.get("sku") or {}
        if sku.get("name") not in SIZES or not content.get("location"):
            raise Problem(400, "InvalidParameter", f"The value of parameter sku.name is invalid: {sku.get('name')}")
        key = (group.lower(), name.lower())
        old = self.scale_sets.get(key)
        self._check_quota(content["location"], sku["name"], int(sku["capacity"]) - (old.capacity if old else 0))
        made = old or ScaleSet(group, name, content)
        made.content, made.state = content, "Updating" if old else "Creating"
        made.resize()
        self.scale_sets[key] = made
        return 200 if old else 201, self._shown(made), self._start("PUT", made)

    def _check_quota(self, region: str, vm_size: str, count: int) -> None:
        """Machines that are still to come are promised already."""
        family, cores = SIZES[vm_size]
        for name, words in ((family, f"{family} Cores"), (REGIONAL, "Total Regional Cores")):
            used = self.used(name) + self._cores(name, {"Creating"})
            limit, required = self.limits[name], count * cores
            if required > 0 and used + required > limit:
                raise Problem(
                    409,
                    "OperationNotAllowed",
                    f"Operation could not be completed as it results in exceeding approved {words} quota. Additional "
                    f"details - Deployment Model: Resource Manager, Location: {region}, Current Limit: {limit}, "
                    f"Current Usage: {used}, Additional Required: {required}, (Minimum) New Limit Required: "
                    f"{used + required}. Submit a request for Quota increase at https://aka.ms/ProdportalCRP .",
                )

    def _start(self, verb: str, scale_set: ScaleSet) -> dict[str, str]:
        region = scale_set.content["location"]
        operation = Operation(str(uuid.uuid4()), verb, scale_set, region)
        self.operations[operation.name] = operation
        place = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/{region}"
        link = f"{self.url}{place}/operations/{operation.name}?p=974bb35d&api-version=2024-11-01"
        return {"Azure-AsyncOperation": link, "Retry-After": str(self.retry_after_seconds)}

    def _operation(self, name: str) -> tuple[int, Any, dict[str, str]]:
        if name not in self.operations:
            raise Problem(404, "NotFound", "The entity was not found in this Azure location.")
        operation = self.operations[name]
        if self.arrive_per_look:
            self._arrive(operation.scale_set, self.arrive_per_look)
            self._end(operation)
        shown: dict[str, Any] = {"startTime": STARTED, "status": operation.status, "name": name}
        if operation.status == "InProgress":
            return 200, shown, {"Retry-After": str(self.retry_after_seconds)}
        shown = {"startTime": STARTED, "endTime": ENDED, "status": operation.status, "name": name}
        if operation.error[0]:
            shown["error"] = {"code": operation.error[0], "message": operation.error[1]}
        return 200, shown, {}

    def _id(self, scale_set: ScaleSet) -> str:
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{scale_set.group}"
        return f"{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{scale_set.name}"

    def _shown(self, scale_set: ScaleSet) -> dict[str, Any]:
        return {
            "name": scale_set.name,
            "id": self._id(scale_set),
            "type": "Microsoft.Compute/virtualMachineScaleSets",
            "location": scale_set.content["location"],
            "sku": scale_set.content["sku"],
            "tags": scale_set.content.get("tags") or {},
            "properties": {**(scale_set.content.get("properties") or {}), "provisioningState": scale_set.state},
        }

    def _machine(self, scale_set: ScaleSet, machine: Machine, is_viewed: bool) -> dict[str, Any]:
        properties: dict[str, Any] = {
            "latestModelApplied": True,
            "vmId": str(uuid.UUID(int=machine.number + 1)),
            "provisioningState": machine.state,
            "osProfile": {"computerName": f"{scale_set.name}{machine.number:06d}", "adminUsername": "plimsoll"},
        }
        if is_viewed:
            level = "Error" if machine.state == "Failed" else "Info"
            status = {"code": f"ProvisioningState/{machine.state.lower()}", "level": level, "time": STARTED}
            words = {"message": machine.message} if machine.message else {}
            properties["instanceView"] = {"statuses": [{**status, "displayStatus": machine.state, **words}]}
        return {
            "name": f"{scale_set.name}_{machine.number}",
            "instanceId": str(machine.number),
            "id": f"{self._id(scale_set)}/virtualMachines/{machine.number}",
            "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
            "location": scale_set.content["location"],
            "sku": {"name": scale_set.content["sku"]["name"], "tier": "Standard"},
            "properties": properties,
        }


class _Handler(BaseHTTPRequestHandler):
    server_cloud: AzureCloud
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for an answer: the second would wait 40 ms for the first to be acknowledged

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class calls it so
        """Quiet."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        cloud = self.server_cloud
        if cloud.faults:
            fault = cloud.faults.pop(0)
            cloud.requests.append(f"{self.command} {urlsplit(self.path).path}")
            cloud.pause(fault.pause_seconds)
            if not fault.status:
                self.close_connection = True
                return
            self._say(fault.status, fault.body, fault.headers)
            return
        try:
            status, document, headers = cloud.answer(self.command, self.path, self.headers, body)
        except Problem as problem:
            status, document, headers = problem.status, problem.body, problem.headers
        self._say(status, document, headers)

    def _say(self, status: int, document: Any, headers: dict[str, str]) -> None:
        data = document if isinstance(document, bytes) else b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        for key, value in {"Content-Type": "application/json; charset=utf-8", **headers}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_DELETE = do_POST = _serve  # noqa: N815  # names of the base class
