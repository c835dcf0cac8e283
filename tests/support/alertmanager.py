"""A private Alertmanager on loopback: its own folder and port, no peers, alerts that tests send."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from plimsoll.connect.alertmanager import Alertmanager, Silence
from plimsoll.errors import Unavailable
from tests.support.parts import missing_part
from tests.support.slurm import dies_with_us, free_ports

START_SECONDS_MAX = 60.0
PREFIX = "/alerts-of/tiger"
"""The server answers only under this path, as behind a proxy."""

CONFIG = """\
route: {receiver: nobody}
receivers:
  - name: nobody
"""


class PrivateAlertmanager:
    """One server."""

    def __init__(self, binary: str) -> None:
        self._binary = binary
        self.folder = Path(tempfile.mkdtemp(prefix="plimsoll-alertmanager-"))
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        (self.folder / "alertmanager.yml").write_text(CONFIG)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    def client(self) -> Alertmanager:
        return Alertmanager(self.url, timeout_seconds=10)

    def start(self) -> None:
        command = [self._binary, f"--config.file={self.folder}/alertmanager.yml", f"--storage.path={self.folder}/data"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}", f"--web.external-url={self.url}"]
        command += ["--cluster.listen-address=", "--log.level=warn"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*dies_with_us(), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self.client().silences()
        except Unavailable:
            return False
        return True

    def living(self) -> list[Silence]:
        """Silences that have not expired."""
        return [silence for silence in self.client().silences() if not silence.is_expired]

    def clear(self) -> None:
        for silence in self.living():
            self.client().expire(silence.id)

    def fire(self, alerts: Sequence[Mapping[str, str]]) -> None:
        """Alerts with these labels, from now on."""
        ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        self._call("POST", "/alerts", [{"labels": dict(labels), "endsAt": ends} for labels in alerts])

    def loud(self) -> list[dict[str, str]]:
        """The labels of alerts that no silence holds back."""
        found = self._call("GET", "/alerts?active=true&silenced=false&inhibited=false&unprocessed=true")
        return [alert["labels"] for alert in found]

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(  # noqa: S310  # our own server
            f"{self.url}/api/v2{path}", data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # its folder is removed anyway
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def private_alertmanager() -> Iterator[PrivateAlertmanager]:
    """A server that runs while it is used. Debian calls it prometheus-alertmanager."""
    binary = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    server = PrivateAlertmanager(binary or missing_part("Alertmanager"))
    try:
        server.start()
        yield server
    finally:
        server.stop()
