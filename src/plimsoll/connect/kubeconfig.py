"""Where a Kubernetes API server is and how to prove who we are: from a kubeconfig, or from words.

Decides nothing about what is said there. Must never show a token or a key, run a command that a kubeconfig names, or
guess which cluster is meant: a context that is not there is refused with the names of those that are.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.connect.web import Address, read_address
from plimsoll.errors import PlimsollError, UsageError

FILE_BYTES_MAX = 4 << 20
TOKEN_CHARS_MAX = 20_000
NAMES_SHOWN_MAX = 20


class Access(msgspec.Struct, frozen=True):
    """A server, and what to show it. Its secrets are in no message and no `repr`."""

    address: Address
    tls: ssl.SSLContext | None
    authorization: str = ""
    """The value of the header, if there is one."""

    def __repr__(self) -> str:
        return f"Access({str(self.address)!r})"


class _Named(msgspec.Struct):
    name: str
    cluster: dict[str, Any] = {}
    context: dict[str, Any] = {}
    user: dict[str, Any] = {}


class _Config(msgspec.Struct, rename={"current_context": "current-context"}):
    clusters: list[_Named] = []
    contexts: list[_Named] = []
    users: list[_Named] = []
    current_context: str = ""


def access(*, url: str, token: str = "", ca_file: str = "") -> Access:
    """A server by its URL."""
    return _access(url, _trust(url, ca_file, ""), _bearer(token))


def read_kubeconfig(path: str | Path, *, context: str, token: str = "") -> Access:
    """The server of a context. `token` is used instead of what the file says of the user."""
    config = _read(Path(path))
    chosen = _find(config.contexts, context, "context", path).context
    cluster = _find(config.clusters, str(chosen.get("cluster", "")), "cluster", path).cluster
    base = Path(path).resolve().parent
    url = str(cluster.get("server", ""))
    if cluster.get("insecure-skip-tls-verify"):
        raise _bad(f"context {context!r} does not check who the server is", "give certificate-authority instead")
    tls = _trust(url, _file(cluster, "certificate-authority", base), _data(cluster, "certificate-authority-data"))
    if token or not chosen.get("user"):
        return _access(url, tls, _bearer(token))
    user = _find(config.users, str(chosen["user"]), "user", path).user
    return _access(url, tls, _prove(user, base, tls))


def _access(url: str, tls: ssl.SSLContext | None, authorization: str) -> Access:
    address = _address(url)
    if authorization and not address.keeps_secrets:
        raise _bad("a token would go over the network unencrypted", "write https:// and give --ca-file FILE")
    return Access(address, tls, authorization)


def _prove(user: dict[str, Any], base: Path, tls: ssl.SSLContext | None) -> str:
    """The header's value; a client certificate goes into `tls`."""
    if "exec" in user or "auth-provider" in user:
        raise _bad(
            "the user gets its token from a command, and none is run from here",
            "give a token: PLIMSOLL_KUBERNETES_TOKEN, or --token-file FILE",
        )
    if tls is not None and (certificate := _pem(user, "client-certificate", base)):
        with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:  # ssl reads a key from a file only
            file = Path(folder, "client.pem")
            file.touch(mode=0o600)
            file.write_text(certificate + "\n" + _pem(user, "client-key", base))
            try:
                tls.load_cert_chain(file)
            except (ssl.SSLError, OSError):
                raise _bad("its client certificate and key do not fit", "look at the user in it") from None
    if user.get("tokenFile"):
        return _bearer(read_secret(base / str(user["tokenFile"])))
    return _bearer(str(user.get("token", "")))


def read_secret(path: str | Path) -> str:
    """The one line of a file that holds a secret."""
    try:
        text = _read_bounded(Path(path)).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            "unreadable", f"{path}: {words}", next_step="give a file with the secret alone in it"
        ) from None
    if not text.strip():
        raise UsageError("unreadable", f"{path} is empty", next_step="give a file with the secret alone in it")
    return text.strip()


def _read(path: Path) -> _Config:
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(_read_bounded(path)), _Config)
    except OSError as error:
        raise _bad(f"{path}: {error.strerror}", "give a file: --kubeconfig FILE, or a server: --url URL") from None
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        raise _bad(f"{path} is not a kubeconfig", "look at it with: kubectl config view") from None


def _read_bounded(path: Path) -> bytes:
    """What is in a file. Not more than a bound is read: what is named may be a device, or a log."""
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        message = f"{path} has more than {FILE_BYTES_MAX:,} bytes"
        raise UsageError("unreadable", message, next_step="give the file that was meant")
    return data


def _find(entries: list[_Named], name: str, what: str, path: str | Path) -> _Named:
    for entry in entries:
        if entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in entries[:NAMES_SHOWN_MAX]) or "none"
    raise _bad(f"{path} has no {what} {name!r}; it has {names}", "name one: --context NAME")


def _address(url: str) -> Address:
    try:
        address, credentials = read_address(url)
    except ValueError as error:
        raise _bad(f"this is not the URL of an API server: {error}", "write https://HOST:6443") from None
    if credentials:
        raise _bad("the URL has a password in it", "give a token: PLIMSOLL_KUBERNETES_TOKEN")
    return address


def _trust(url: str, ca_file: str, ca_data: str) -> ssl.SSLContext | None:
    if not url.lower().startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=ca_file or None, cadata=ca_data or None)
    except (OSError, ValueError):  # an SSLError, too
        raise _bad(
            f"{ca_file or 'its certificate authority'} is not a certificate", "give a file in PEM form"
        ) from None


def _bearer(token: str) -> str:
    token = token.strip()
    if len(token) > TOKEN_CHARS_MAX or not (token.isascii() and token.isprintable()) or " " in token:
        raise _bad("the token is not one word of printable ASCII", "look for a line break or a stray character in it")
    return f"Bearer {token}" if token else ""


def _pem(user: dict[str, Any], key: str, base: Path) -> str:
    if data := _data(user, f"{key}-data"):
        return data
    return read_secret(file) if (file := _file(user, key, base)) else ""


def _file(entry: dict[str, Any], key: str, base: Path) -> str:
    """A path is meant from where the kubeconfig is."""
    return os.path.join(base, str(entry[key])) if entry.get(key) else ""


def _data(entry: dict[str, Any], key: str) -> str:
    try:
        return base64.b64decode(str(entry.get(key, "")), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        raise _bad(f"{key} is not base64 of a PEM file", "look at it with: kubectl config view --raw") from None


def _bad(what: str, next_step: str) -> PlimsollError:
    return UsageError("kubernetes_bad_setting", f"the way to Kubernetes: {what}", next_step=next_step)
