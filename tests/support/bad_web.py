"""A web server that misbehaves as told: silent, dripping, endless, cut off. It speaks raw bytes."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress

REQUEST_BYTES_MAX = 1 << 20


class Conversation:
    """One connection, after the client has asked."""

    def __init__(self, client: socket.socket, is_over: threading.Event) -> None:
        self._client = client
        self._is_over = is_over

    def say(self, data: bytes) -> None:
        self._client.sendall(data)

    def pause(self, seconds: float) -> bool:
        """Wait; whether the test still runs."""
        return not self._is_over.wait(seconds)

    def drip(self, data: bytes, *, seconds: float = 0.02) -> None:
        """One byte at a time: each comes in time, the whole never does."""
        for place in range(len(data)):
            if not self.pause(seconds):
                return
            self.say(data[place : place + 1])


class BadWeb:
    """Reads a request, then does what it was told. Keeps the requests for the test to look at."""

    def __init__(self, speak: Callable[[Conversation], None], *, tls: ssl.SSLContext | None = None) -> None:
        self._speak = speak
        self._tls = tls
        self._is_over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._clients: list[socket.socket] = []
        self.requests: list[bytes] = []
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
                self._clients.append(client)
            self.requests.append(_read_request(client))
            self._speak(Conversation(client, self._is_over))
            client.shutdown(socket.SHUT_WR)
            while client.recv(65_536):
                pass  # close only after the client did, so that it reads everything
        client.close()

    def __enter__(self) -> BadWeb:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()
        for end in [self._listener, *self._clients]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)


def _read_request(client: socket.socket) -> bytes:
    """Headers and the announced body."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < REQUEST_BYTES_MAX:
        if not (piece := client.recv(65_536)):
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < lengths[0] and (piece := client.recv(65_536)):
        body += piece
    return head + b"\r\n\r\n" + body


def http_answer(body: bytes | str, *, status: str = "200 OK", length: int | None = None, headers: str = "") -> bytes:
    """A whole answer; `length` may lie."""
    data = body.encode() if isinstance(body, str) else body
    announced = len(data) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {announced}\r\n{headers}\r\n"
    return head.encode() + data
