"""A private Slurm with accounts and limits: its own slurmdbd and, behind it, its own MariaDB on a private socket.

MariaDB is made ready by its server's own bootstrap mode, so that the server's core package is all that is needed, and
does not wait for the disk: nothing of a test has to outlive it.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.parts import missing_part
from tests.support.relay import Relay
from tests.support.slurm import NODE_COUNT, START_SECONDS_MAX, PrivateSlurm, _path, find_binaries, free_ports

SYSTEM_TABLES = [
    Path("/usr/share/mysql/mysql_system_tables.sql"),
    Path("/usr/share/mariadb/mariadb_system_tables.sql"),
]
"""Where versions of Debian's package have them."""
DATABASE_OPTIONS = (
    "--no-defaults", "--innodb-flush-method=nosync", "--innodb-log-file-size=8M", "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=0",
)  # fmt: skip
QUICK = "SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0"
"""A busy controller may wait a minute before it looks again; a test may not."""


def find_accounting() -> bool:
    """Whether the accounting daemon and its database are here."""
    return any(path.is_file() for path in SYSTEM_TABLES) and all(
        shutil.which(name, path=_path()) for name in ("slurmdbd", "mariadbd")
    )


class AccountedSlurm(PrivateSlurm):
    """A cluster whose slurm.conf has the given lines for accounts, limits, priorities and preemption."""

    def __init__(
        self, *, config_lines: Sequence[str], node_count: int = NODE_COUNT, gpu_types: Sequence[str] = ()
    ) -> None:
        self._config_lines = list(config_lines)
        self._accounting_port, self._relay_port = free_ports(2)
        self._relay: Relay | None = None
        super().__init__(node_count=node_count, gpu_types=gpu_types)
        self.environment["MYSQL_UNIX_PORT"] = str(self._database_socket)

    @property
    def _database_socket(self) -> Path:
        return self.folder / "database.socket"

    def _accounting(self) -> list[str]:
        return [
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self._relay_port}",
            f"AccountingStoragePass={self._munge_socket}",  # to Slurm, a socket is munge's password
            QUICK,
            *self._config_lines,
        ]

    def _start_accounting(self) -> None:
        password = secrets.token_hex()
        self._make_database(password)
        self._start_database()
        config = self.folder / "slurmdbd.conf"
        config.touch(mode=0o600)
        lines = [
            "AuthType=auth/munge",
            f"AuthInfo=socket={self._munge_socket}",
            "DbdHost=localhost",
            f"DbdPort={self._accounting_port}",
            f"SlurmUser={self.user}",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=slurm",
            f"StoragePass={password}",
            "StorageLoc=slurm",
            f"LogFile={self.folder}/log/slurmdbd.log",
            f"PidFile={self.folder}/run/slurmdbd.pid",
        ]
        config.write_text("\n".join(lines) + "\n")
        self.start_accounting()
        self._wait_for("slurmdbd", self._has_cluster)

    def _has_cluster(self) -> bool:
        """Add it, and look: slurmdbd that has just begun may take one connection and let go of the next."""
        self.run("sacctmgr", "-i", "add", "cluster", "tiger", check=False)
        return self.run("sacctmgr", "-nP", "show", "cluster", "format=Cluster", check=False).split() == ["tiger"]

    def _make_database(self, password: str) -> None:
        words = [
            "create database mysql;",
            "use mysql;",
            "set @auth_root_socket=NULL;",
            next(path for path in SYSTEM_TABLES if path.is_file()).read_text(),
            "flush privileges;",
            f"create user slurm@localhost identified by '{password}';",
            "grant all on slurm.* to slurm@localhost;",
            "",
        ]
        for name in ("database", "database_tmp"):
            (self.folder / name).mkdir()
        made = subprocess.run(
            [*self._database_command, "--bootstrap"],
            input="\n".join(words), env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr[-1500:]

    @property
    def _database_command(self) -> list[str]:
        user = pwd.getpwuid(os.geteuid()).pw_name
        folders = [f"--datadir={self.folder}/database", f"--tmpdir={self.folder}/database_tmp"]
        return ["mariadbd", *DATABASE_OPTIONS, *folders, f"--user={user}"]

    def _start_database(self) -> None:
        options = [
            "--skip-networking",
            f"--socket={self._database_socket}",
            f"--pid-file={self.folder}/run/mariadb.pid",
        ]
        self._start("mariadbd", [*self._database_command, *options])
        self._wait_for("mariadbd", lambda: self._database_socket.exists())

    def start_accounting(self) -> None:
        """Start slurmdbd and wait until it answers."""
        self._start("slurmdbd", ["slurmdbd", "-D"])
        self._relay = Relay(port=self._relay_port, server_port=self._accounting_port)
        self._wait_for("slurmdbd", lambda: "rror" not in self.run("sacctmgr", "show", "cluster", check=False))

        if "slurmctld" in self._daemons:
            self._wait_for_controller()

    def start(self) -> None:
        super().start()
        self._wait_for_controller()

    def _wait_for_controller(self) -> None:
        """It connects to slurmdbd when it likes, and again some seconds after slurmdbd was away."""
        words = ["sacctmgr", "-nP", "show", "cluster", "format=ControlHost"]

        def is_connected() -> bool:
            said = self.run(*words, check=False)  # slurmdbd may not take the first connection yet
            return bool(said.strip()) and "rror" not in said

        self._wait_for("slurmctld", is_connected)

    def kill_accounting(self) -> None:
        """slurmdbd is gone at once."""
        self._close_relay()
        daemon = self._daemons.pop("slurmdbd")
        daemon.kill()
        daemon.wait()

    @contextmanager
    def asleep(self, name: str) -> Iterator[None]:
        """A daemon holds its port and answers nobody."""
        self._daemons[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._daemons[name].send_signal(signal.SIGCONT)

    def _close_relay(self) -> None:
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def stop(self) -> None:
        super().stop()
        self._close_relay()

    def _wait_for(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not is_ready():
            if time.monotonic() > deadline or self._daemons[name].poll() is not None:
                raise RuntimeError(self.logs())
            time.sleep(0.02)

    def log_names(self) -> list[str]:
        return [*super().log_names(), "log/mariadbd.out", "log/slurmdbd.log", "log/slurmdbd.out"]


@contextmanager
def accounted_slurm(
    *, config_lines: Sequence[str], node_count: int = NODE_COUNT, gpu_types: Sequence[str] = ()
) -> Iterator[AccountedSlurm]:
    """A cluster with accounts that runs while it is used."""
    if not find_binaries():
        missing_part("Slurm")
    if not find_accounting():
        missing_part("slurmdbd with MariaDB")
    cluster = AccountedSlurm(config_lines=config_lines, node_count=node_count, gpu_types=gpu_types)
    try:
        if not cluster.node_gpus:
            missing_part("the right to make device files, which stand for GPUs,")
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
