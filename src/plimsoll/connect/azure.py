"""Ask Azure what a subscription may use and which machines of a scale set are there.

Decides only what Azure's answers mean, through its own client library, which is imported when it is first needed. Must
never change anything there (scale sets are made through Azure Service Operator; the library's habit to register
providers is left out), never wait longer than a bound however an answer drips or an account is looked for, never send
the token to another host than the one it was given for (no redirect, no foreign page), and never show a token.
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from plimsoll.connect.azure_machines import (
    CODES,
    Instance,
    Refusal,
    ScaleSetSeen,
    Usage,
    kind_of,
    next_step_of,
    one_line,
    read_instance,
    read_quota,
    read_refusal,
    read_scale_set_seen,
    read_usage,
)
from plimsoll.connect.provider import ProviderTrouble, TroubleKind
from plimsoll.connect.web import read_address
from plimsoll.errors import PlimsollError, UsageError

URL = "https://management.azure.com"
TOTAL_SECONDS_MAX = 60.0
"""All of a call: finding credentials, every page, every attempt."""
TIMEOUT_SECONDS = 20.0
"""How long one request may be silent."""
CONNECT_SECONDS_MAX = 5.0
ATTEMPTS_MAX = 3
RETRY_SECONDS = 0.5
PAGES_MAX = 200
LINK_CHARS_SHOWN = 100
BODY_BYTES_MAX = 64 << 20
GONE_CODES = {"ResourceNotFound", "ResourceGroupNotFound", "ParentResourceNotFound", "NotFound"}
"""What Azure calls a scale set that is not there; a subscription that is not there is called otherwise."""

_TRIED = re.compile(r"^\s+(\w+Credential): (.*)$", re.M)
_TELLING = re.compile(r"AADSTS|expired|'az login'|denied|invalid", re.I)
_SUBSCRIPTION = re.compile(r"[0-9A-Za-z-]{1,64}")
_REGION = re.compile(r"[-\w.]{1,90}")
_NAME = re.compile(r"[-\w.()]{1,90}")

T = TypeVar("T")


class Azure:
    """One subscription. To be closed."""

    def __init__(
        self,
        subscription: str,
        *,
        credential: Any = None,
        url: str = URL,
        ca_file: str = "",
        scope: str = "",
        timeout_seconds: float = TIMEOUT_SECONDS,
        total_seconds: float = TOTAL_SECONDS_MAX,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        _check(_SUBSCRIPTION, subscription, "the id of a subscription", "look it up: az account list --output table")
        self._is_plain = _read_url(url)
        if ca_file and not Path(ca_file).is_file():
            raise _bad_setting(f"there is no file {one_line(ca_file)}", "give a file of certificates in PEM form")
        self._subscription, self._credential = subscription, credential
        self._url, self._ca_file = url.rstrip("/"), ca_file
        self._scope = scope or f"{URL if self._is_plain else self._url}/.default"
        self._timeout_seconds, self._total_seconds, self._sleep = timeout_seconds, total_seconds, sleep
        self._kept: Any = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Azure({self._subscription!r}, url={self._url!r})"

    def __enter__(self) -> Azure:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    @property
    def where(self) -> str:
        return self._url

    def usages(self, region: str) -> list[Usage]:
        """All limits of the subscription in a region."""
        _check(_REGION, region, "the name of a region", "look it up: az account list-locations --output table")
        what = f"the usages of {region}"

        def ask(attempts: _Attempts, client: Any) -> list[Usage]:
            pages = attempts.pages(client.usage.list(region, **self._options()))
            return [usage for item in pages if (usage := read_usage(item)).name]

        return self._within(what, ask)

    def instances(self, group: str, scale_set: str) -> list[Instance]:
        """All machines of a scale set; one that is not there has none."""
        what = _name_scale_set(group, scale_set)

        def ask(attempts: _Attempts, client: Any) -> list[Instance]:
            options = {"expand": "instanceView", **self._options()}
            pages = attempts.pages(client.virtual_machine_scale_set_vms.list(group, scale_set, **options))
            return [read_instance(item) for item in pages]

        return self._within(what, lambda *both: _unless_gone(lambda: ask(*both))) or []

    def scale_set(self, group: str, name: str) -> ScaleSetSeen | None:
        """A scale set; None where there is none."""
        what = _name_scale_set(group, name)

        def ask(attempts: _Attempts, client: Any) -> ScaleSetSeen:
            found = attempts.once(lambda: client.virtual_machine_scale_sets.get(group, name, **self._options()))
            return read_scale_set_seen(found)

        return self._within(what, lambda *both: _unless_gone(lambda: ask(*both)))

    def scale_sets(self) -> list[ScaleSetSeen]:
        """All scale sets of the subscription. Their capacity is how many machines there are or will be: it shrinks
        when somebody deletes one."""

        def ask(attempts: _Attempts, client: Any) -> list[ScaleSetSeen]:
            pages = attempts.pages(client.virtual_machine_scale_sets.list_all(**self._options()))
            return [read_scale_set_seen(item) for item in pages]

        return self._within("the scale sets", ask)

    def _options(self) -> dict[str, Any]:
        """The library sends a token over https only, unless told so; here that is a server on this machine."""
        return {"enforce_https": False} if self._is_plain else {}

    def _within(self, what: str, ask: Callable[[_Attempts, Any], T]) -> T:
        """Ask in a thread of its own: the library knows no deadline for a whole answer, nor for finding an account."""
        sdk = _Sdk()
        deadline = time.monotonic() + self._total_seconds
        attempts = _Attempts(sdk, what, self._url, self._subscription, deadline, self._sleep)
        answers: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                with self._lock:
                    client = self._kept = self._kept or self._client(sdk)
                answers.append(ask(attempts, client))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="plimsoll-azure", daemon=True)
        thread.start()
        thread.join(self._total_seconds)
        if thread.is_alive():
            self._kept = None  # the thread may still use it: the next call gets another
            raise attempts.unreachable(f"no whole answer within {self._total_seconds:g} s")
        if not errors:
            return answers[0]
        trouble = errors[0] if isinstance(errors[0], ProviderTrouble) else attempts.trouble(errors[0])
        if trouble.kind is TroubleKind.CREDENTIALS:
            self.close()  # the client keeps a token: after `az login` the next call must not use the old one
        raise trouble

    def _client(self, sdk: _Sdk) -> Any:
        credential = self._credential or _default_credential(sdk)
        session = sdk.requests.Session()
        session.hooks["response"].append(_bound_body)
        transport = sdk.transport.RequestsTransport(
            session=session,
            connection_timeout=min(self._timeout_seconds, CONNECT_SECONDS_MAX),
            read_timeout=self._timeout_seconds,
            connection_verify=self._ca_file or True,
        )
        # Only these: no retries of the library's own (it sleeps as long as a server says), no redirects, no logs of
        # requests, no registering of providers.
        policies = [
            sdk.policies.RequestIdPolicy(),
            sdk.policies.UserAgentPolicy("plimsoll"),
            sdk.policies.ContentDecodePolicy(),
            sdk.arm_policies.ARMChallengeAuthenticationPolicy(credential, self._scope),
        ]
        return sdk.compute.ComputeManagementClient(
            credential, self._subscription, base_url=self._url, transport=transport, policies=policies
        )


class _Sdk:
    """Azure's client library, imported when it is needed: that takes a while, and not everybody has it."""

    def __init__(self) -> None:
        # It would print on stderr what it tried; we say that in our own words.
        if not (logger := logging.getLogger("azure")).handlers:
            logger.addHandler(logging.NullHandler())
        try:
            self.requests = importlib.import_module("requests")
            self.errors = importlib.import_module("azure.core.exceptions")
            self.policies = importlib.import_module("azure.core.pipeline.policies")
            self.transport = importlib.import_module("azure.core.pipeline.transport")
            self.identity = importlib.import_module("azure.identity")
            self.compute = importlib.import_module("azure.mgmt.compute")
            self.arm_policies = importlib.import_module("azure.mgmt.core.policies")
        except ImportError as error:
            raise ProviderTrouble(
                "azure_sdk_missing",
                f"Azure's client library is not installed: no module {error.name or 'azure'}",
                kind=TroubleKind.MISSING,
                next_step="pip install -r requirements/azure.txt",
            ) from error


def _default_credential(sdk: _Sdk) -> Any:
    try:
        return sdk.identity.DefaultAzureCredential()
    except ValueError as error:  # one of its variables has a value that it does not know
        raise sdk.errors.ClientAuthenticationError(str(error)) from error


class _Attempts:
    """One question, asked again within a deadline where nothing came of it: every request here only reads."""

    def __init__(
        self, sdk: _Sdk, what: str, url: str, subscription: str, deadline: float, sleep: Callable[[float], None]
    ) -> None:
        self._sdk, self._what, self._url, self._subscription = sdk, what, url, subscription
        self._deadline, self._sleep = deadline, sleep

    def pages(self, listing: Any) -> Iterator[Any]:
        """What is on all pages. A page that fails is asked for again, not those before it."""
        link: str | None = None
        for _ in range(PAGES_MAX):
            page, link = self.once(lambda link=link: _page(listing, link))  # type: ignore[misc]
            yield from page
            if not link:
                return
            if not _is_at(link, self._url):
                place = one_line(link.partition("?")[0])[:LINK_CHARS_SHOWN]
                raise self._bad(f"the next page is at {place}, and the token goes only to {self._url}")
        raise self._bad(f"more than {PAGES_MAX} pages")

    def once(self, ask: Callable[[], T]) -> T:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return ask()
            except Exception as error:
                trouble = self.trouble(error)
                pause = RETRY_SECONDS * 2 ** (attempt - 1)
                is_late = time.monotonic() + pause >= self._deadline
                if trouble.code != CODES[TroubleKind.UNREACHABLE] or attempt == ATTEMPTS_MAX or is_late:
                    raise trouble from error
            self._sleep(pause)
        raise AssertionError("unreachable")

    def trouble(self, error: BaseException) -> ProviderTrouble:
        """What the library raised, in our words."""
        errors = self._sdk.errors
        response = error.response if isinstance(error, errors.HttpResponseError) else None
        is_unreadable = isinstance(error, errors.DecodeError) and (response is None or response.status_code < 400)
        if is_unreadable or isinstance(error, AttributeError | TypeError | ValueError):
            return self._bad(f"it does not read as one ({type(error).__name__})")
        is_ours = response is not None and _is_at(str(response.request.url), self._url)
        if isinstance(error, errors.ClientAuthenticationError) and not is_ours:  # there was no token to ask with
            return self._explain(TroubleKind.CREDENTIALS, f"no credentials for it: {_login_words(str(error))}")
        if response is not None:
            return self._refused(response)
        if isinstance(error, errors.AzureError):
            return self.unreachable(one_line(str(error)))
        raise error

    def _refused(self, response: Any) -> ProviderTrouble:
        status = int(response.status_code)
        refusal = read_refusal(response.text())
        if status < 400:
            return self._bad(f"HTTP {status}, and only 200 is one")
        kind = kind_of(code=refusal.code, message=refusal.message, status=status)
        retry_seconds = _retry_seconds(response) if kind in (TroubleKind.BUSY, TroubleKind.UNREACHABLE) else None
        named = f" ({refusal.code})" if refusal.code else ""
        return self._explain(
            kind, f"HTTP {status}{named} {one_line(refusal.message)}".rstrip(), refusal, status, retry_seconds
        )

    def unreachable(self, words: str) -> ProviderTrouble:
        return self._explain(TroubleKind.UNREACHABLE, words)

    def _explain(
        self,
        kind: TroubleKind,
        words: str,
        refusal: Refusal | None = None,
        status: int | None = None,
        retry_seconds: float | None = None,
    ) -> ProviderTrouble:
        fields: dict[str, Any] = {"url": self._url, "subscription": self._subscription}
        fields |= {} if status is None else {"status": status}
        if refusal is not None:
            fields |= {"azure_code": refusal.code} if refusal.code else {}
            fields |= read_quota(refusal.message) if kind is TroubleKind.OUT_OF_QUOTA else {}
        return ProviderTrouble(
            CODES[kind],
            f"{self._url} on {self._what}: {words}",
            kind=kind,
            next_step=next_step_of(
                kind,
                subscription=self._subscription,
                code=refusal.code if refusal else "",
                is_forbidden=status == 403,
            ),
            retry_seconds=retry_seconds,
            **fields,
        )

    def _bad(self, words: str) -> ProviderTrouble:
        return ProviderTrouble(
            "azure_bad_answer",
            f"the answer of {self._url} on {self._what}: {words}",
            kind=TroubleKind.UNREACHABLE,
            next_step="check that the URL is that of Azure Resource Manager, and what stands between",
            url=self._url,
            subscription=self._subscription,
        )


def _login_words(text: str) -> str:
    """The library tells in many lines of every way to log in that it tried. Most are only not in use; what one that is
    in use says is what a person needs."""
    tried = _TRIED.findall(text)
    telling = [f"{name}: {words}" for name, words in tried if _TELLING.search(words)]
    if len(tried) < 2 or telling:
        return one_line(telling[0] if telling else text)
    return one_line(f"nobody is logged in here (tried {', '.join(name for name, _ in tried)})")


def _page(listing: Any, link: str | None) -> tuple[list[Any], str | None]:
    pages = listing.by_page(link)
    return list(next(pages)), pages.continuation_token


def _is_at(link: str, url: str) -> bool:
    """Whether a page is at the server, or at one of its regions, as `westeurope.management.azure.com`."""
    try:
        there, here = urlsplit(link), urlsplit(url)
        ports = (there.port, here.port) if here.port else (there.port or 443, 443)
    except ValueError:
        return False
    host, home = there.hostname or "", here.hostname or ""
    return there.scheme == here.scheme and ports[0] == ports[1] and (host == home or host.endswith(f".{home}"))


def _unless_gone(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except ProviderTrouble as trouble:
        if trouble.kind is TroubleKind.MISSING and trouble.fields.get("azure_code") in GONE_CODES:
            return None
        raise


def _bound_body(response: Any, *_arguments: object, **_options: object) -> None:
    """Make the library stop reading where an answer is too much."""
    whole = response.iter_content

    def iter_content(*arguments: Any, **options: Any) -> Iterator[bytes]:
        size = 0
        for piece in whole(*arguments, **options):
            size += len(piece)
            if size > BODY_BYTES_MAX:
                response.close()
                raise ValueError(f"more than {BODY_BYTES_MAX:,} bytes")
            yield piece

    response.iter_content = iter_content


def _retry_seconds(response: Any) -> float | None:
    """Seconds that the server asks for. A date instead of a number is left alone: our clock may not be its clock."""
    text = str(response.headers.get("Retry-After", ""))
    return float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) else None


def _name_scale_set(group: str, name: str) -> str:
    next_step = "look them up: az vmss list --output table"
    _check(_NAME, group, "the name of a resource group", next_step)
    _check(_NAME, name, "the name of a scale set", next_step)
    return f"scale set {name} in {group}"


def _read_url(url: str) -> bool:
    """Whether the URL is one without encryption, which is for a server on this machine only."""
    try:
        address, credentials = read_address(url)
    except ValueError as error:
        raise _bad_setting(f"this is not the URL of Azure: {error}", f"write {URL}") from None
    if credentials:
        raise _bad_setting("the URL has a password in it", f"write {URL}")
    if not address.keeps_secrets:
        raise _bad_setting("a token would go over the network unencrypted", f"write {URL}")
    return address.scheme == "http"


def _check(pattern: re.Pattern[str], text: str, what: str, next_step: str) -> None:
    if not pattern.fullmatch(text):
        raise _bad_setting(f"{one_line(text)[:90]!r} is not {what}", next_step)


def _bad_setting(message: str, next_step: str) -> PlimsollError:
    return UsageError("azure_bad_setting", message, next_step=next_step)
