"""A TCP relay that acknowledges at once.

Slurm sends a message in two pieces, and the second waits until the first is acknowledged, which the system puts off for
40 ms to save a packet. With some hundred messages in a run of tests that is most of its time.
"""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

CHUNK_BYTES = 1 << 20


class Relay:
    """Passes everything on between a port of its own and a server's, until it is closed."""

    def __init__(self, *, port: int, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", port))
        self._peers: dict[socket.socket, socket.socket] = {}
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for end in (self._listener, self._woken):
            self._selector.register(end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if end is self._woken:
                    return
                if end is self._listener:
                    self._accept()
                elif end in self._peers:
                    self._pass_on(end)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            client.close()
            return
        self._peers |= {client: server, server: client}
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end: socket.socket) -> None:
        peer = self._peers[end]
        with suppress(OSError):
            if data := end.recv(CHUNK_BYTES):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                peer.sendall(data)
                return
        for each in (end, peer):
            self._selector.unregister(each)
            self._peers.pop(each)
            each.close()

    def close(self) -> None:
        self._wake.send(b".")
        self._thread.join()
        self._selector.close()
        for end in (self._listener, self._wake, self._woken, *self._peers):
            end.close()
