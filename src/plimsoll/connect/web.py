"""One HTTP exchange with an end: a deadline for all of it and a bound on the answer.

Decides nothing about what an answer means. Must never follow a redirect (it would carry a token elsewhere), never wait
longer than the deadline however slowly a server drips, and never put a header's value into a message.
"""

from __future__ import annotations

import enum
import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

CHUNK_BYTES = 1 << 16
HTTP_PORTS = {"http": 80, "https": 443}
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Trouble(enum.Enum):
    """Why no answer came."""

    UNREACHABLE = "unreachable"
    UNTRUSTED = "untrusted"
    TOO_SLOW = "too_slow"
    TOO_MUCH = "too_much"
    BROKEN = "broken"


class NoAnswer(Exception):
    """The exchange failed. The client that asked puts it into its own words and code."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble = trouble
        self.detail = detail


class Address(msgspec.Struct, frozen=True):
    """Where a server is. Holds no credentials, so that it can be shown."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if HTTP_PORTS[self.scheme] == self.port else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    @property
    def keeps_secrets(self) -> bool:
        """Whether a token may be sent there: nobody on the way can read it, by TLS or because there is no way."""
        return self.scheme == "https" or self.host in LOOPBACK


class Answer(msgspec.Struct, frozen=True):
    """What the server said. `location` is where a redirect points, without credentials and query; the names of the
    `headers` are in lower case, and those that came several times are joined by commas."""

    status: int
    body: bytes
    location: str
    headers: dict[str, str] = {}


def read_address(url: str) -> tuple[Address, str]:
    """The address of an http(s) URL, and its `user:password` if it has one. Raises ValueError, which quotes neither."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("it is not a URL") from None
    if parts.scheme not in HTTP_PORTS:
        raise ValueError("it does not begin with http:// or https://")
    if not parts.hostname or not _is_word(parts.hostname):
        raise ValueError("it names no host")
    if parts.query or parts.fragment:
        raise ValueError("it has a query or a fragment")
    if not _is_word(parts.path or "/"):
        raise ValueError("its path has characters that a URL can't have")
    try:
        port = parts.port or HTTP_PORTS[parts.scheme]
    except ValueError:
        raise ValueError("its port is not a number from 1 to 65535") from None
    credentials = parts.netloc.rpartition("@")[0]
    return Address(parts.scheme, parts.hostname, port, parts.path.rstrip("/")), credentials


def trust(ca_file: str | None) -> ssl.SSLContext:
    """Whom to trust: the system's certificates, or those of a file. Raises ValueError, which names the file."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError, too
        raise ValueError(f"{str(ca_file)[:200]} is not a file of certificates") from error


def one_line(text: str, chars_max: int) -> str:
    """Words from outside, as one bounded line that can't control a terminal."""
    printable = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * chars_max])
    return " ".join(printable.split())[:chars_max]


def post(
    address: Address,
    *,
    body: bytes,
    headers: Mapping[str, str],
    timeout_seconds: float,
    body_bytes_max: int,
    tls: ssl.SSLContext | None,
) -> Answer:
    """Post a body and read the whole answer, all within the deadline. `tls` says whom to trust. Raises NoAnswer."""
    return exchange(
        "POST",
        address,
        body=body,
        headers=headers,
        timeout_seconds=timeout_seconds,
        body_bytes_max=body_bytes_max,
        tls=tls,
    )


def exchange(
    method: str,
    address: Address,
    *,
    body: bytes,
    headers: Mapping[str, str],
    timeout_seconds: float,
    body_bytes_max: int,
    tls: ssl.SSLContext | None,
) -> Answer:
    """The same with any method; the path of the address may carry a query. A request without a body sends none."""
    deadline = time.monotonic() + timeout_seconds
    connection: _Connection | None = None
    try:
        connection = _Connection(_connect(address, deadline, tls), deadline)
        connection.request(
            method, address.path or "/", body=body or None, headers={"Host": _host_header(address), **headers}
        )
        response = connection.getresponse()
        body_read = _read(response, body_bytes_max)
        return Answer(response.status, body_read, _shown_location(response), _headers(response))
    except TimeoutError:
        raise NoAnswer(Trouble.TOO_SLOW, f"no whole answer within {timeout_seconds:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise NoAnswer(Trouble.UNTRUSTED, f"its certificate is not trusted: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise NoAnswer(Trouble.BROKEN, f"no TLS with it: {error.reason or 'broken off'}") from error
    except http.client.HTTPException as error:
        raise NoAnswer(Trouble.BROKEN, f"what came is not a whole HTTP answer ({type(error).__name__})") from error
    except OSError as error:
        raise NoAnswer(Trouble.UNREACHABLE, error.strerror or str(error) or type(error).__name__) from error
    finally:
        if connection is not None:
            connection.end()


def _read(response: http.client.HTTPResponse, body_bytes_max: int) -> bytes:
    if response.length is not None and response.length > body_bytes_max:
        raise NoAnswer(Trouble.TOO_MUCH, f"{response.length:,} bytes")
    pieces: list[bytes] = []
    size = 0
    while piece := response.read(CHUNK_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > body_bytes_max:
            raise NoAnswer(Trouble.TOO_MUCH, f"more than {body_bytes_max:,} bytes")
    if response.length:  # what was announced and did not come
        raise NoAnswer(Trouble.BROKEN, f"the answer broke off after {size:,} bytes, {response.length:,} are missing")
    return b"".join(pieces)


def _connect(address: Address, deadline: float, tls: ssl.SSLContext | None) -> socket.socket:
    error: OSError = OSError("the name has no address")
    for family, kind, protocol, _, place in _look_up(address, deadline):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(_left(deadline))
            plain.connect(place)
            if address.scheme == "http":
                return plain
            # The handshake's timeout is a total one, unlike that of a read.
            plain.settimeout(_left(deadline))
            assert tls is not None, "https needs to know whom to trust"
            return tls.wrap_socket(plain, server_hostname=address.host)
        except OSError as failed:
            plain.close()
            error = failed
            if isinstance(failed, TimeoutError | ssl.SSLError):
                break
    raise error


def _look_up(address: Address, deadline: float) -> list[Any]:
    """Names are looked up in a thread of their own: the system's resolver knows no deadline."""
    found: list[Any] = []
    failed: list[OSError] = []

    def look() -> None:
        try:
            found.extend(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:  # a label that is too long for IDNA
            failed.append(error if isinstance(error, OSError) else OSError(f"{address.host[:80]!r} is no host name"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_left(deadline))
    if thread.is_alive():
        raise TimeoutError
    if failed:
        raise failed[0]
    return found


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Connection(http.client.HTTPConnection):
    """A connection over a socket whose every read ends at the same deadline."""

    def __init__(self, plain: socket.socket, deadline: float) -> None:
        super().__init__("")
        plain.settimeout(_left(deadline))
        self._plain = plain
        self.sock: Any = _TimedSocket(plain, deadline)
        self.auto_open = 0

    def end(self) -> None:
        """Unlike `close`, which http.client calls as soon as the headers of a last answer are read."""
        self.close()
        self._plain.close()


class _TimedSocket:
    """What http.client uses of a socket."""

    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self._plain = plain
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        # A server may answer and close without reading everything; its answer is worth more than our broken pipe.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._plain.settimeout(_left(self._deadline))
            self._plain.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._plain, self._deadline), CHUNK_BYTES)

    def close(self) -> None:
        """The body may still have to be read: `end` closes the socket."""


class _TimedReader(io.RawIOBase):
    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self._plain = plain
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._plain.settimeout(_left(self._deadline))
        return self._plain.recv_into(buffer)


def _host_header(address: Address) -> str:
    return str(Address(address.scheme, address.host, address.port, "")).partition("://")[2]


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in response.getheaders():
        found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
    return found


def _shown_location(response: http.client.HTTPResponse) -> str:
    """A redirect's goal without credentials and query, which may hold secrets."""
    with suppress(ValueError):
        parts = urlsplit(response.getheader("Location") or "")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200] if parts.netloc else parts.path
    return ""


def _is_word(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
