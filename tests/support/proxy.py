"""A TCP proxy before a PostgreSQL server that breaks a connection exactly at its first COMMIT."""

from __future__ import annotations

import enum
import socket
import threading
from contextlib import suppress

CHUNK_BYTES = 65_536
COMMIT = b"COMMIT\x00"
ANSWER_SECONDS_MAX = 10.0


class Fault(enum.Enum):
    """What happens to the first COMMIT that passes."""

    LOST = "the server never gets it"
    UNANSWERED = "the server gets it, the client no answer"
    LATE = "the client is cut off, and the server gets it a while later"


class Proxy:
    """Passes everything on, but for the one fault. Later connections are not touched."""

    def __init__(self, server_port: int, fault: Fault, *, late_seconds: float = 0.0) -> None:
        self._server_port = server_port
        self._fault: Fault | None = fault
        self._late_seconds = late_seconds
        self._is_closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, server]
            for job in (self._forward_client, self._forward_server):
                thread = threading.Thread(target=job, args=(client, server))
                self._threads.append(thread)
                thread.start()

    def _forward_client(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(CHUNK_BYTES):
                if self._fault is not None and COMMIT in data:
                    fault, self._fault = self._fault, None
                    self._break(fault, client, server, data)
                    return
                server.sendall(data)
        _end(server)

    def _forward_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(CHUNK_BYTES):
                client.sendall(data)
        _end(client)

    def _break(self, fault: Fault, client: socket.socket, server: socket.socket, data: bytes) -> None:
        _end(client)
        if fault is Fault.LATE:
            self._is_closed.wait(self._late_seconds)
        if fault is not Fault.LOST:
            server.sendall(data)
            if fault is Fault.UNANSWERED:
                return  # what it answers goes to a client that is gone, which then ends it
            self._is_closed.wait(ANSWER_SECONDS_MAX)
        _end(server)

    def close(self) -> None:
        self._is_closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            _end(end)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
