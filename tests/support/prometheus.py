"""A private Prometheus on loopback: its own folder and port, scraping an exporter that tests control."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plimsoll.connect.prometheus import Prometheus, Vector
from plimsoll.errors import Unavailable
from tests.support.exporter import Exporter
from tests.support.parts import missing_part
from tests.support.slurm import dies_with_us, free_ports

START_SECONDS_MAX = 60.0
SCRAPE_SECONDS = 0.2
PREFIX = "/metrics-of/tiger"
"""The server answers only under this path, as behind a proxy."""

CONFIG = """\
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
scrape_configs:
  - job_name: dcgm
    static_configs:
      - targets: ["{target}"]
        labels: {{cluster: tiger}}
"""


class PrivatePrometheus:
    """One server and the exporter it scrapes."""

    def __init__(self, binary: str) -> None:
        self._numbers = itertools.count(1)
        self._binary = binary
        self.folder = Path(tempfile.mkdtemp(prefix="plimsoll-prometheus-"))
        (self.port,) = free_ports(1)
        self.exporter = Exporter()
        self._process: subprocess.Popen[bytes] | None = None
        (self.folder / "prometheus.yml").write_text(
            CONFIG.format(interval=f"{SCRAPE_SECONDS * 1000:.0f}ms", target=self.exporter.target)
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    def client(self) -> Prometheus:
        return Prometheus(self.url, timeout_seconds=10)

    def start(self) -> None:
        command = [self._binary, f"--config.file={self.folder}/prometheus.yml"]
        command += [f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address=127.0.0.1:{self.port}"]
        command += [f"--web.external-url={self.url}", "--log.level=warn", "--query.max-samples=50000"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*dies_with_us(), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_scraping():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def reload(self) -> None:
        """Read the configuration again, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def _is_scraping(self) -> bool:
        try:
            return any(sample.value == 1 for sample in self.client().query("up").samples)
        except Unavailable:
            return False

    def settle(self) -> None:
        """Wait for a scrape of what is set now: nothing of the test before is in it any more."""
        number = next(self._numbers)
        self.exporter.set("test_number", {}, number)
        self.wait_for(f"test_number == {number}", count=1)

    def wait_for(self, expression: str, *, count: int, seconds_max: float = 30.0) -> Vector:
        """Wait until an expression gives so many samples: what was set has been scraped."""
        deadline = time.monotonic() + seconds_max
        while True:
            vector = self.client().query(expression)
            if len(vector.samples) == count:
                return vector
            assert time.monotonic() < deadline, f"{expression} gives {len(vector.samples)} samples, not {count}"
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # its folder is removed anyway
            self._process.wait()
        self.exporter.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def private_prometheus() -> Iterator[PrivatePrometheus]:
    """A server that runs while it is used."""
    server = PrivatePrometheus(shutil.which("prometheus") or missing_part("Prometheus"))
    try:
        server.start()
        yield server
    finally:
        server.stop()
