"""Signals over HTTP: `POST /api/v1/signals` with one JSON object a line, as `plimsoll health observe signals` reads.

Answers with what became of them, or with one error shape (code, message, next step, fields). Must never take a body of
any size, wait for a slow sender for ever, or serve others than this machine without a token.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import msgspec

from plimsoll.errors import PlimsollError, Refused, UsageError
from plimsoll.health.intake import read_lines
from plimsoll.health.service import Observed, observe
from plimsoll.state.keeper import Keeper

BODY_BYTES_MAX = 64 << 20
LENGTH_DIGITS_MAX = 18
SENDER_SECONDS_MAX = 30.0
"""For all that a sender has to say, however it drips."""
GOODBYE_SECONDS_MAX = 2.0
"""How long the rest of a refused body is thrown away: a connection closed before would take our answer with it."""
CHUNK_BYTES = 1 << 16
SENDERS_MAX = 64
FEED_CHARS_MAX = 100
PATH = "/api/v1/signals"


class SignalServer(ThreadingHTTPServer):
    """Takes signals in for one database. One batch is judged at a time; senders wait for their turn."""

    daemon_threads = True
    request_queue_size = SENDERS_MAX

    def __init__(self, keeper: Keeper, *, host: str, port: int, token: str) -> None:
        if not token and not _is_loopback(host):
            raise Refused(
                "token_missing",
                f"{host} can be reached by others, and without a token anybody could take nodes out of service",
                next_step="set PLIMSOLL_SIGNALS_TOKEN, or listen on 127.0.0.1",
            )
        self._keeper, self._token = keeper, token
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(SENDERS_MAX)
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            message = f"can't listen on {host}:{port}: {error.strerror or error}"
            raise UsageError("bad_address", message, next_step="choose another --host or --port") from None

    def process_request(self, request: Any, client_address: Any) -> None:
        # Beyond so many senders at once the next waits in the kernel's queue: memory stays bounded.
        self._places.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that hangs up is no event; a mistake of ours is."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def is_allowed(self, header: str) -> bool:
        return not self._token or hmac.compare_digest(header.encode(), f"Bearer {self._token}".encode())

    def take(self, body: bytes, feed: str) -> Observed:
        signals = read_lines(body.splitlines(), source="the request", now=self._keeper.ledger.clock())
        with self._turn:
            return observe(self._keeper, signals, feed=feed, actor=f"http:{feed}")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: SignalServer
    server_version = "plimsoll"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile: Any = io.BufferedReader(
            _TimedReader(self.connection, time.monotonic() + SENDER_SECONDS_MAX), CHUNK_BYTES
        )

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer(200, {"status": "ok"})
        else:
            self._no_such_path()

    def do_POST(self) -> None:
        self.close_connection = True  # what we did not read of a refused body must not be taken for a request
        path, _, query = self.path.partition("?")
        if path != PATH:
            self._no_such_path()
            return
        if not self.server.is_allowed(self.headers.get("Authorization", "")):
            self._fail(401, "not_allowed", "the token is missing or wrong", "send Authorization: Bearer TOKEN")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) <= LENGTH_DIGITS_MAX):
            self._fail(411, "length_missing", "the request does not say how long it is", "send Content-Length")
            return
        if int(length) > BODY_BYTES_MAX:
            message = f"the body has {int(length):,} bytes, at most {BODY_BYTES_MAX:,} are taken"
            self._fail(413, "body_too_big", message, "send the signals in parts")
            return
        feed = parse_qs(query).get("feed", ["http"])[-1]
        if len(feed) > FEED_CHARS_MAX or not feed.isprintable():
            self._fail(400, "bad_feed", f"a feed's name has at most {FEED_CHARS_MAX} characters", "?feed=NAME")
            return
        try:
            body = self.rfile.read(int(length))
        except TimeoutError:
            message = f"the request did not come within {SENDER_SECONDS_MAX:g} s; nothing was taken"
            self._fail(408, "too_slow", message, "send the signals in parts")
            return
        if len(body) < int(length):
            message = f"the body broke off after {len(body):,} of {int(length):,} bytes; nothing was taken"
            self._fail(400, "body_cut", message, "send it again")
            return
        try:
            observed = self.server.take(body, feed)
        except PlimsollError as error:
            self._fail(error.status, error.code, error.message, error.next_step, error.fields)
            return
        self._answer(200, observed)

    def _no_such_path(self) -> None:
        self._fail(404, "no_such_path", f"there is nothing at {self.path[:200]!r}", f"POST {PATH}")

    def _fail(self, status: int, code: str, message: str, next_step: str, fields: object = None) -> None:
        self._answer(
            status, {"error": {"code": code, "message": message, "next_step": next_step, "fields": fields or {}}}
        )
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Let the sender read our answer before the connection ends."""
        self.close_connection = True
        deadline = time.monotonic() + GOODBYE_SECONDS_MAX
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            reader = _TimedReader(self.connection, deadline)
            while reader.read(CHUNK_BYTES):
                pass

    def _answer(self, status: int, document: object) -> None:
        body = msgspec.json.encode(document)
        self.connection.settimeout(SENDER_SECONDS_MAX)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Nothing: what matters is in the ledger."""


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a moment: that single bytes keep coming does not put it off."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline = connection, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
