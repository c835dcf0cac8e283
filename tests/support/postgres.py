"""A private PostgreSQL on loopback: its own folder and port, started and stopped by the tests that use it."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.support.parts import missing_part

START_SECONDS_MAX = 60.0
FILE_COPY_SINCE = 150_000
MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY_BYTES_MIN = 4 << 30
"""A thousand files a database, and a database a test: in memory they are made and removed at once."""


def find_binaries() -> Path | None:
    """The folder of `initdb` and `postgres`, the newest version first."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    if found:
        return found[0].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PrivatePostgres:
    """One server. `start` also brings it back after a power cut (`tests/support/power.py`)."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._user = _unprivileged_user()
        self.folder = Path(tempfile.mkdtemp(prefix="plimsoll-pg-", dir=_roomy_memory()))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        if self._user:
            shutil.chown(self.folder, self._user)
        self._run(
            ["initdb", "-D", str(self.folder / "data"), "-U", "plimsoll", "-A", "trust", "-E", "UTF8", "--no-sync"]
        )

    def _run(self, command: list[str]) -> None:
        command[0] = str(self._binaries / command[0])
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self.folder, env=_environment())

    def start(self) -> None:
        command = [str(self._binaries / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}"]
        # Its processes die in tests, and the system under them never does: that it has a page is enough.
        command += ["-c", "fsync=off"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._user, cwd=self.folder, env=_environment(), process_group=0
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to the server and all its children at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # The children are gone when nothing answers on the port; the next start then recovers from the log.
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)):
                    return
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # at once: its folder is removed anyway
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str) -> str:
        return f"postgresql://plimsoll@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """An empty database; its URL."""
        name = f"test_{os.getpid()}_{next(self._names)}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            # To copy the files of the template is five times quicker than to write them through the log.
            how = " STRATEGY file_copy" if connection.info.server_version >= FILE_COPY_SINCE else ""
            connection.execute(f"CREATE DATABASE {name}{how}".encode())
        return self.dsn(name)


@contextmanager
def private_postgres() -> Iterator[PrivatePostgres]:
    """A server that runs while it is used."""
    server = PrivatePostgres(find_binaries() or missing_part("PostgreSQL"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root; its Debian package brings a user of its own."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return None


def _roomy_memory() -> Path | None:
    """The file system in memory, where there is one with room; else files lie where all temporary ones do."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN else None


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
