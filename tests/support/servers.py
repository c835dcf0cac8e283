"""Servers as they are run: processes that can be killed, told to stop and started again; and who sends them changes."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.command import PLIMSOLL
from tests.support.ledgers import raw
from tests.support.postgres import PrivatePostgres
from tests.support.served import Reply, Served
from tests.support.waiting import wait_until

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
GONE = (OSError, http.client.HTTPException)
"""What one who asks sees of a server that died under the request."""


class RealServer(Served):
    """`plimsoll serve` as a process. Leaving the `with` kills it if it still lives."""

    def __init__(self, dsn: str, tokens: Mapping[str, str], *, port: int = 0) -> None:
        self.tokens = tokens
        command = [str(PLIMSOLL), "--db", dsn, "serve", "--port", str(port), "--log", "none", "--rate", "1000000"]
        env = {key: value for key, value in os.environ.items() if not key.startswith("PLIMSOLL_")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self.url = ""

    def wait(self) -> RealServer:
        """Until it says where it is."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(START_SECONDS_MAX), "the server says nothing"
        line = self.process.stdout.readline().decode()
        assert line.startswith("Plimsoll is at "), (line, self.process.poll())
        self.url = line.removeprefix("Plimsoll is at ").strip()
        return self

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def loops(self) -> dict[str, bool]:
        """Which loops it leads."""
        return {each["name"]: each["is_leading"] for each in self.api("/status").document["loops"]}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> tuple[int, str]:
        """SIGTERM; how it ended, and what it complained of."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=STOP_SECONDS_MAX)
        return self.process.returncode, said.decode()

    def __enter__(self) -> RealServer:
        return self.wait() if not self.url else self

    def __exit__(self, *_exception: object) -> None:
        self.kill()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Sent:
    """One change, and what was heard of it: 0 is nothing."""

    def __init__(self, path: str, body: dict[str, str], who: str) -> None:
        self.word = f"word-{uuid.uuid4().hex}"
        self.key = str(uuid.uuid4())
        self.path, self.who = path, who
        self.body = {name: value.replace("WORD", self.word) for name, value in body.items()}
        self.status, self.code, self.revision = 0, "", 0

    def send(self, server: Served) -> Sent:
        """Send it, with its own key; a server that dies leaves it unanswered."""
        try:
            reply = server.post(self.path, self.body, who=self.who, Idempotency_Key=self.key)
        except GONE:
            return self
        self.status = reply.status
        self.code = "" if reply.status == 200 else reply.error["code"]
        self.revision = int(reply.headers.get("plimsoll-revision", "0"))
        return self

    @property
    def is_open(self) -> bool:
        """Whether nobody can say from the answers alone if it happened."""
        return self.status == 0 or self.code == "under_way" or self.status >= 500

    @property
    def is_done(self) -> bool:
        return self.status == 200


CHANGES: tuple[tuple[str, dict[str, str]], ...] = (
    ("/incidents", {"title": "WORD"}),
    ("/incidents/common/note", {"note": "WORD"}),
    ("/incidents", {"title": "WORD"}),
    ("/incidents/nobody-knows-it/note", {"note": "WORD"}),
)
"""New streams, one that all of them want, and one that is refused."""


class Load:
    """Writers and readers of several servers, until told to end."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.reads: dict[str, int] = {}
        self.wrong: list[str] = []
        """What a reader saw that it should not have."""
        self.acknowledged = 0
        self._dead: set[str] = set()
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []

    def write(self, to: Served, who: str) -> None:
        self._start(self._write, to, who)

    def read(self, of: Served) -> None:
        self._start(self._read, of)

    def expect_death(self, server: Served) -> None:
        """From now on this one may not answer."""
        self._dead.add(server.url)

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), thread

    def done(self) -> list[Sent]:
        return [each for each in list(self.sent) if each.is_done]

    def _start(self, work: Any, *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _write(self, to: Served, who: str) -> None:
        for path, body in itertools.cycle(CHANGES):
            if self._is_over.is_set() or to.url in self._dead:
                return
            one = Sent(path, body, who)
            self.sent.append(one)
            self.acknowledged = max(self.acknowledged, one.send(to).revision)
            time.sleep(0.01)  # fifty changes a second are taken from one

    def _read(self, of: Served) -> None:
        while not self._is_over.is_set():
            want = self.acknowledged
            newest = [each.word for each in self.done()[-3:] if each.path == "/incidents" and each.revision <= want]
            try:
                reply = of.api(f"/incidents?at_least={want}", who="viewer")
            except GONE as error:
                if of.url in self._dead:
                    return
                self.wrong.append(f"{of.url}: {error!r}")
                continue
            self.reads[of.url] = self.reads.get(of.url, 0) + 1
            if reply.status != 200:
                self.wrong.append(f"{of.url}: {reply.status} {reply.body[:300]!r}")
            elif missing := [word for word in newest if word.encode() not in reply.body]:
                self.wrong.append(
                    f"{of.url}: {missing} at {want}, in an answer of {reply.headers['plimsoll-revision']}"
                )


def counts_of(dsn: str, words: list[str]) -> dict[str, int]:
    """How often each word is in the ledger, by plain SQL."""
    found = dict.fromkeys(words, 0)
    with raw(dsn) as run:
        for (payload,) in run("SELECT payload FROM events WHERE kind IN ('incident.opened', 'incident.noted')"):
            document = json.loads(payload)
            word = document.get("title") or document.get("note") or ""
            if word in found:
                found[word] += 1
    return found


def let_receipts_age(dsn: str) -> None:
    """As if an hour had passed since each change was begun."""
    with raw(dsn) as run:
        for name, body in run("SELECT id, body FROM papers WHERE kind = 'receipt'"):
            document = json.loads(body)
            if not document["status"]:
                document["begun_at"] = "2000-01-01T00:00:00.000000Z"
                run("UPDATE papers SET body = ? WHERE kind = 'receipt' AND id = ?", json.dumps(document), name)


@contextmanager
def paused(server: PrivatePostgres) -> Iterator[None]:
    """A database that hangs: connected, and silent."""
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    pids = [postmaster, *map(int, children)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Ear:
    """Somebody who listens for changes: reads until the stream ends."""

    def __init__(
        self, server: Served, *, after: int | None = None, who: str = "viewer", cookie: str = "", token: str = ""
    ) -> None:
        parts = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
        headers = {"Cookie": cookie} if cookie else {"Authorization": f"Bearer {token or server.tokens[who]}"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        self._connection.request("GET", "/api/v1/changes", headers=headers)
        self._socket = self._connection.sock
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self.told: list[Any] = []
        self.revisions: list[int] = []
        self.subjects: set[str] = set()
        self.is_over = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with suppress(*GONE, ValueError, AttributeError):
            for line in self._response:
                if line.startswith(b"data: "):
                    change = json.loads(line.removeprefix(b"data: "))
                    self.told.append(change)
                    self.revisions.append(change["revision"])
                    self.subjects |= set(change["subjects"])
            self.is_over = True

    def wait_for(self, subject: str, seconds_max: float = 15.0) -> None:
        wait_until(lambda: subject in self.subjects, what=f"{subject} was told", seconds_max=seconds_max)

    def wait_for_end(self, seconds_max: float = STOP_SECONDS_MAX) -> None:
        """The stream came to its proper end: not broken off."""
        self._thread.join(seconds_max)
        assert self.is_over
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._response.close()
        self._connection.close()


def is_error(reply: Reply, status: int) -> bool:
    """Whether it is an error in the one shape, with a word when to come back."""
    is_shaped = reply.status == status and set(reply.error) == {"code", "message", "next_step", "fields"}
    return is_shaped and int(reply.headers["retry-after"]) >= 1
