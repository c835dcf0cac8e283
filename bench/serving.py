"""A server of the demo fleet under load: reads beside a bare FastAPI route that answers a constant of the same size,
reads at a fixed rate while signals come in, all nodes as JSON, listeners held, memory over time.

The server, the bare route and the load are processes of their own on two cores. `wrk` asks as fast as it can; what is
offered at a fixed rate is sent by a loop that does not wait for answers, so that a slow answer delays nobody else.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure
from plimsoll.server.shelf import PAGES_SECONDS_MAX

PLIMSOLL = [str(Path(sys.executable).with_name("plimsoll"))]
WRK_SECONDS = 5
CONNECTIONS = 16
RATIO_MIN = 0.25
OFFERED_PER_SECOND = 200
EVENTS_PER_SECOND_MIN = 200
BATCHES_PER_SECOND = 10
LOSSES_PER_BATCH = 20
OFFERED_SECONDS = 20
P99_SECONDS_MAX = 0.1
NODES_SECONDS_MAX = 0.5
NODES_MIN = 18_500
"""Of less than the whole fleet no figure says anything."""
LISTENERS = 500
LISTENERS_HELD = 50
"""While memory is watched."""
MEMORY_SECONDS = float(os.environ.get("PLIMSOLL_BENCH_MEMORY_SECONDS", "60"))
MEMORY_GROWTH_MAX = 0.05
READS_PER_LOSS = 10
PATHS = ("/api/v1/quota?clusters=tiger", "/api/v1/fleet", "/api/v1/health", "/api/v1/workloads/posttrain-42")
PAGES = ("/", "/quota", "/clusters/tiger", "/workloads", "/workloads/posttrain-42")
BARE = """
import sys, uvicorn
from fastapi import FastAPI, Response
app, body = FastAPI(), b"x" * int(sys.argv[2])
@app.get("/x")
async def x() -> Response:
    return Response(body, media_type="application/json")
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
"""


class Place(NamedTuple):
    """A server that answers, and what it takes to ask it. Who reads is not who sends signals: a feed has its own token,
    and whoever changed something waits until it sees that.
    """

    port: int
    token: str
    feed_token: str
    process: subprocess.Popen[bytes]

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body

    @property
    def megabytes(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmRSS:\s+(\d+)", text)
        assert found is not None
        return int(found[1]) / 1024


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as place:
        losses = Losses(place)
        figures = [
            *_reads(place),
            _all_nodes(place),
            asyncio.run(_offered(place, losses)),
            asyncio.run(_listeners(place, losses)),
            asyncio.run(_memory(place, losses)),
        ]
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), is_leading=True) as place:
        return [*figures, asyncio.run(_offered(place, Losses(place), beside=", controllers in the same process"))]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def served(folder: Path, *, is_leading: bool = False) -> Iterator[Place]:
    """It only answers, unless it is to lead as well: then gangs are repaired and owners told while it answers."""
    dsn = f"sqlite:///{folder}/plimsoll.db"
    subprocess.run([*PLIMSOLL, "demo", "--db", dsn], check=True, capture_output=True)
    _submit(dsn, folder / "workload.yaml")
    token, feed_token = _token(dsn, "bench@example.org", "viewer"), _token(dsn, "service:bench", "operator")
    port = _free_port()
    lead = [] if is_leading else ["--no-lead"]
    words = ["serve", *lead, "--log", "none", "--rate", "1000000", "--port", str(port), "--db", dsn]
    process = subprocess.Popen([*PLIMSOLL, *words], stdout=subprocess.DEVNULL)
    try:
        _wait(port, "/healthz")
        yield Place(port, token, feed_token, process)
    finally:
        process.terminate()
        process.wait(30)


def _submit(dsn: str, file: Path) -> None:
    """The run that everybody asks about, posttrain-42: it waits, so that there is something to say of it."""
    example = subprocess.run([*PLIMSOLL, "workload", "example"], check=True, capture_output=True)
    file.write_bytes(example.stdout)
    subprocess.run([*PLIMSOLL, "workload", "submit", str(file), "--db", dsn], check=True, capture_output=True)


def _token(dsn: str, owner: str, role: str) -> str:
    subprocess.run([*PLIMSOLL, "access", "grant", owner, role, "--db", dsn], check=True, capture_output=True)
    issue = [*PLIMSOLL, "access", "token", "issue", owner, "--db", dsn, "-o", "json"]
    return str(json.loads(subprocess.run(issue, check=True, capture_output=True).stdout)["secret"])


def _wait(port: int, path: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"nothing answers at {port}")


# As fast as it can.


def _wrk(url: str, token: str = "") -> float:
    wrk = shutil.which("wrk")
    if wrk is None:
        raise SystemExit("wrk is missing: apt-get install wrk")
    words = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{WRK_SECONDS}s", "-H", f"Authorization: Bearer {token}", url]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "Non-2xx" not in said, said
    found = re.search(r"Requests/sec:\s+([\d.]+)", said)
    assert found is not None, said
    return float(found[1])


def _reads(place: Place) -> list[Figure]:
    figures = []
    for path in PATHS:
        size, port = len(place.get(path)), _free_port()
        bare = subprocess.Popen([sys.executable, "-c", BARE, str(port), str(size)])
        try:
            _wait(port, "/x")
            rates = [
                (_wrk(f"http://127.0.0.1:{place.port}{path}", place.token), _wrk(f"http://127.0.0.1:{port}/x"))
                for _ in range(3)
            ]
        finally:
            bare.terminate()
            bare.wait(30)
        ours, theirs = (statistics.median(each) for each in zip(*rates, strict=True))
        ratio = ours / theirs
        figures.append(
            Figure(
                f"reads of {path}",
                f"{size:,} bytes, {CONNECTIONS} connections",
                f"{ours:,.0f}/s",
                f"{theirs:,.0f}/s a bare FastAPI route",
                f"{ratio:.2f}x",
                f"at least {RATIO_MIN:g}x",
                ratio >= RATIO_MIN,
            )
        )
    return figures


def _all_nodes(place: Place) -> Figure:
    times = []
    for number in range(5):
        began = time.perf_counter()
        body = place.get(f"/api/v1/nodes?filter=sku!=none{number}")  # another question each time: nothing is kept of it
        times.append(time.perf_counter() - began)
    took, count = statistics.median(times), len(json.loads(body)["nodes"])
    return Figure(
        "all nodes as JSON, made anew",
        f"{count:,} nodes, {len(body):,} bytes",
        f"{took * 1000:.0f} ms",
        "-",
        "-",
        f"at most {NODES_SECONDS_MAX * 1000:g} ms, at least {NODES_MIN:,} nodes",
        took <= NODES_SECONDS_MAX and count >= NODES_MIN,
    )


# At a fixed rate.


async def _ask(port: int, head: bytes, body: bytes = b"") -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head + body)
        status = int((await reader.readline()).split()[1])
        await reader.read()
        return status
    finally:
        writer.close()


def _head(place: Place, method: str, path: str, length: int = 0, accept: str = "*/*") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{place.port}",
        f"Authorization: Bearer {place.token if method == 'GET' else place.feed_token}",
        f"Accept: {accept}",
        "Connection: close",
        *([f"Content-Length: {length}"] if length else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Losses:
    """Signals of nodes that are lost, each of another one, all over the fleet: every signal changes something."""

    def __init__(self, place: Place) -> None:
        told = json.loads(place.get("/api/v1/nodes"))["nodes"]
        self.names = [node["node"] for node in told if node["service"] == "in_service"]
        random.Random(8).shuffle(self.names)
        self.place = place

    async def send(self, count: int) -> int:
        lines = [json.dumps({"node": self.names.pop(), "kind": "xid", "name": 79}) for _ in range(count)]
        body = "\n".join(lines).encode()
        return await _ask(self.place.port, _head(self.place, "POST", "/api/v1/signals?feed=bench", len(body)), body)


def _revision(place: Place) -> int:
    time.sleep(1.5)  # an answer may be a second old
    return int(json.loads(place.get("/api/v1/audit/head"))["revision"])


async def _offered(place: Place, losses: Losses, beside: str = "") -> Figure:
    """Reads at a fixed rate, while a feed tells of lost nodes. Each has been asked once: what a server makes when it is
    first asked for a workload, it makes once."""
    times: list[float] = []
    statuses: list[int] = []
    for path in PATHS:
        place.get(path)
    before = _revision(place)

    async def read(number: int) -> None:
        began = time.perf_counter()
        statuses.append(await _ask(place.port, _head(place, "GET", PATHS[number % len(PATHS)])))
        times.append(time.perf_counter() - began)

    async def tell() -> None:
        began = time.perf_counter()
        for number in range(OFFERED_SECONDS * BATCHES_PER_SECOND):
            await asyncio.sleep(max(0.0, began + number / BATCHES_PER_SECOND - time.perf_counter()))
            statuses.append(await losses.send(LOSSES_PER_BATCH))

    began = time.perf_counter()
    feed = asyncio.create_task(tell())
    reads = []
    for number in range(OFFERED_PER_SECOND * OFFERED_SECONDS):
        await asyncio.sleep(max(0.0, began + number / OFFERED_PER_SECOND - time.perf_counter()))
        reads.append(asyncio.create_task(read(number)))
    await asyncio.gather(feed, *reads)
    took = time.perf_counter() - began
    rate = (_revision(place) - before) / took
    p99 = statistics.quantiles(times, n=100)[98]
    failed = sum(status != 200 for status in statuses)
    return Figure(
        f"p99 of reads at {OFFERED_PER_SECOND}/s while nodes are lost{beside}",
        f"{OFFERED_SECONDS} s, {rate:,.0f} events/s, {failed} failed",
        f"{p99 * 1000:.1f} ms (median {statistics.median(times) * 1000:.1f})",
        "-",
        "-",
        f"at most {P99_SECONDS_MAX * 1000:g} ms, at least {EVENTS_PER_SECOND_MIN} events/s",
        p99 <= P99_SECONDS_MAX and rate >= EVENTS_PER_SECOND_MIN and not failed,
    )


async def _listeners(place: Place, losses: Losses) -> Figure:
    """Many listen, one thing happens, and all of them hear it."""
    ears = [await asyncio.open_connection("127.0.0.1", place.port) for _ in range(LISTENERS)]
    try:
        for _, writer in ears:
            writer.write(_head(place, "GET", "/api/v1/changes"))
        for reader, _ in ears:
            await reader.readuntil(b"\n\n")
        await losses.send(1)
        began = time.perf_counter()
        heard = await asyncio.gather(*(asyncio.wait_for(reader.readuntil(b"data: "), 10) for reader, _ in ears))
        took = time.perf_counter() - began
    finally:
        for _, writer in ears:
            writer.close()
    return Figure(
        "listeners that hear one change",
        f"{LISTENERS} held",
        f"{len(heard)} heard it within {took * 1000:.0f} ms",
        "-",
        "-",
        f"{LISTENERS} of {LISTENERS}",
        len(heard) == LISTENERS,
    )


async def _memory(place: Place, losses: Losses) -> Figure:
    """After the load so far: reads, pages and a few losses for a while, with some who listen, and what they add. What
    is lost stays known, so it adds a little; what is only read must add nothing, once all is kept that is kept for a
    moment.
    """
    async with _held(place) as ears:
        await _steady(place, losses, PAGES_SECONDS_MAX + 10)
        start, before = place.megabytes, _revision(place)
        statuses = await _steady(place, losses, MEMORY_SECONDS)
        growth = place.megabytes / start - 1
        listening = sum(not ear.done() for ear in ears)
    failed = statuses.total() - statuses[200]
    return Figure(
        "memory under a steady load",
        f"{MEMORY_SECONDS:g} s, {statuses.total():,} requests, {failed} failed, {listening} listening,"
        f" {_revision(place) - before:,} events",
        f"{place.megabytes:,.0f} MB",
        f"{start:,.0f} MB at its begin",
        f"{growth:+.1%}",
        f"at most {MEMORY_GROWTH_MAX:+.0%}, {LISTENERS_HELD} listening",
        growth <= MEMORY_GROWTH_MAX and not failed and listening == LISTENERS_HELD,
    )


@asynccontextmanager
async def _held(place: Place) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Some who listen and hear whatever comes: one is done when its stream has ended."""
    ears = [await asyncio.open_connection("127.0.0.1", place.port) for _ in range(LISTENERS_HELD)]
    for _, writer in ears:
        writer.write(_head(place, "GET", "/api/v1/changes"))
    tasks = [asyncio.create_task(_hear(reader)) for reader, _ in ears]
    try:
        yield tasks
    finally:
        for _, writer in ears:
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hear(reader: asyncio.StreamReader) -> None:
    assert b" 200 " in await reader.readline()
    while await reader.read(1 << 16):
        pass


async def _steady(place: Place, losses: Losses, seconds: float) -> Counter[int]:
    """How often each status was answered, round after round."""
    end, number, statuses = time.monotonic() + seconds, 0, Counter[int]()
    while time.monotonic() < end:
        number += 1
        statuses.update(
            await asyncio.gather(
                *(_ask(place.port, _head(place, "GET", path)) for path in PATHS),
                _ask(place.port, _head(place, "GET", f"/api/v1/nodes?filter=cluster=tiger&limit={number % 100 + 1}")),
                _ask(place.port, _head(place, "GET", PAGES[number % len(PAGES)], accept="text/html")),
                *([losses.send(1)] if number % READS_PER_LOSS == 0 else []),
            )
        )
        await asyncio.sleep(0.02)
    return statuses
