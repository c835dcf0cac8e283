"""An in-house quota service for tests: checks signatures as docs/how-to/steer-over-http.md tells its authors to."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AGE_SECONDS_MAX = 300


class FakeQuotaService:
    """Keeps one document for each path. `faults` are statuses to answer with first; 0 closes the connection unheard."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.documents: dict[str, bytes] = {}
        self.faults: list[int] = []
        self.faults_after: list[int] = []
        self.keys: list[str] = []
        self.writes = 0
        self.requests: list[str] = []
        service = self

        class Handler(_Handler):
            owner = service

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeQuotaService:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def document(self, path: str = "/clusters/tiger") -> Any:
        return json.loads(self.documents[path])

    def set_by_hand(self, sku: str, team: str, gpus: int, path: str = "/clusters/tiger") -> None:
        document = self.document(path)
        for pool in document["pools"]:
            if pool["sku"] == sku:
                pool["guaranteed"][team] = gpus
        document["edited_by"] = "a person"  # a field of the service's own
        self.documents[path] = json.dumps(document).encode()

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:
        self.requests.append(f"{method} {path}")
        if self.faults:
            return self.faults.pop(0), b"not now"
        if problem := self._problem(method, path, headers, body):
            return 401, problem.encode()
        if method == "GET":
            return (200, self.documents[path]) if path in self.documents else (404, b"nothing here")
        key = headers["Idempotency-Key"]
        is_known = key in self.keys
        self.keys.append(key)
        if not is_known:  # as services do: a key that was seen is a request that was served
            self.documents[path] = body
            self.writes += 1
        return (self.faults_after.pop(0), b"lost") if self.faults_after else (204, b"")

    def _problem(self, method: str, path: str, headers: Any, body: bytes) -> str:
        timestamp = headers.get("Plimsoll-Timestamp", "0")
        if abs(time.time() - int(timestamp)) > AGE_SECONDS_MAX:
            return "too old"
        signed = f"{timestamp}\n{method}\n{path}\n".encode() + body
        want = "sha256=" + hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()
        return "" if hmac.compare_digest(headers.get("Plimsoll-Signature", ""), want) else "wrong signature"


class _Handler(BaseHTTPRequestHandler):
    owner: FakeQuotaService
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base class calls it so
        """Quiet."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        code, answer = self.owner.answer(self.command, self.path, self.headers, body)
        if code == 0:
            self.close_connection = True
            return
        self.send_response(code)
        if code != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if code != 204:
            self.wfile.write(answer)

    do_GET = do_PUT = _serve  # noqa: N815  # names of the base class
