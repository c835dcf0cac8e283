"""A private Slurm on loopback: its own munged, slurmctld and many slurmd, each with its own folder and port.

Nothing of the machine's own Slurm is touched: folder, key, socket and ports are new, and every daemon dies with us.
"""

from __future__ import annotations

import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.parts import missing_part

START_SECONDS_MAX = 60.0
NODE_COUNT = 32
NODE_CPUS = 4
NODE_GPUS = 8
NULL_DEVICE = os.makedev(1, 3)
SETTLED = ("State=IDLE ", "State=IDLE+DYNAMIC_NORM ")

PORTS = range(12_000, 30_000)
"""Below the system's range for outgoing connections: a slurmd that starts late must still find its port free."""


def find_binaries() -> bool:
    """Whether all daemons and commands are here."""
    return all(shutil.which(name, path=_path()) for name in ("munged", "slurmctld", "slurmd", "scontrol", "sbatch"))


_GIVEN: set[int] = set()
"""Ports that were given out here: nobody may listen on them yet, and they are taken all the same."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different, and different from all that were given before."""
    found: list[int] = []
    start = random.SystemRandom().choice(PORTS)
    for port in [*range(start, PORTS.stop), *range(PORTS.start, start)]:
        if port in _GIVEN:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        if len(found) == count:
            _GIVEN.update(found)
            return found
    raise RuntimeError(f"only {len(found)} of {count} ports are free")


class PrivateSlurm:
    """One cluster. Nodes are called `n001`, `n002`, … and have fake GPUs where the system lets us make devices."""

    def __init__(self, *, node_count: int = NODE_COUNT, time_zone: str = "UTC", gpu_types: Sequence[str] = ()) -> None:
        self.is_root = os.geteuid() == 0
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.node_names = [f"n{number:03}" for number in range(1, node_count + 1)]
        self.gpu_type_by_node = dict(zip(self.node_names, itertools.cycle(gpu_types)))
        """Empty where GPUs are of one kind that Slurm is not told."""
        self.folder = Path(tempfile.mkdtemp(prefix="plimsoll-slurm-"))
        self.folder.chmod(0o755)
        self.config = self.folder / "slurm.conf"
        self.environment = {"PATH": _path(), "LC_ALL": "C.UTF-8", "SLURM_CONF": str(self.config), "TZ": time_zone}
        self._controller_port, *self._node_ports = free_ports(1 + node_count)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "spool", "run", "log", "dev"):
            (self.folder / name).mkdir()
        self.node_gpus = self._make_devices()
        self._write_config()

    def _make_devices(self) -> int:
        """GPUs are device files to Slurm; without the right to make them the nodes have none."""
        try:
            for number in range(NODE_GPUS):
                os.mknod(self.folder / "dev" / f"gpu{number}", stat.S_IFCHR | 0o666, NULL_DEVICE)
        except OSError:
            return 0
        return NODE_GPUS

    def _write_config(self) -> None:
        host = socket.gethostname().split(".")[0]
        lines = [
            "ClusterName=tiger",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={self._controller_port}",
            f"SlurmUser={self.user}",
            f"SlurmdUser={self.user}",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self._munge_socket}",
            "CredType=cred/munge",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool/%n",
            f"SlurmctldPidFile={self.folder}/run/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/run/%n.pid",
            f"SlurmctldLogFile={self.folder}/log/slurmctld.log",
            f"SlurmdLogFile={self.folder}/log/%n.log",
            "SelectType=select/cons_tres",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "ReturnToService=1",
            "SlurmdTimeout=10",
            "KillWait=1",
            "SlurmdParameters=config_overrides",
            *self._accounting(),
            "GresTypes=gpu" if self.node_gpus else "",
            *(
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {self._resources(name)}"
                for name, port in zip(self.node_names, self._node_ports, strict=True)
            ),
            f"PartitionName=all Nodes={','.join(self.node_names)} Default=YES MaxTime=INFINITE State=UP",
            f"PartitionName=small Nodes={','.join(self.node_names[:4])} MaxTime=60 State=UP",
        ]
        self.config.write_text("\n".join(lines) + "\n")
        if self.node_gpus:
            devices = f"File={self.folder}/dev/gpu[0-{self.node_gpus - 1}]"
            typed = [f"NodeName={name} Name=gpu Type={kind} {devices}" for name, kind in self.gpu_type_by_node.items()]
            lines = ["AutoDetect=off", *(typed or [f"Name=gpu {devices}"])]
            (self.folder / "gres.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _resources(self, name: str) -> str:
        gpus = ":".join(filter(None, ["gpu", self.gpu_type_by_node.get(name), str(self.node_gpus)]))
        return f"CPUs={NODE_CPUS} {f'Gres={gpus}' if self.node_gpus else ''}"

    def _accounting(self) -> list[str]:
        """Without accounts and limits: they need slurmdbd and a database, as `slurm_accounting.AccountedSlurm` has."""
        return ["AccountingStorageType=accounting_storage/none"]

    def _start_accounting(self) -> None:
        """What has to run before the controller."""

    @property
    def _munge_socket(self) -> Path:
        return self.folder / "munge" / "socket"

    def start(self) -> None:
        self._start_munge()
        self._start_accounting()
        self._start("slurmctld", ["slurmctld", "-D", "-i", "-f", str(self.config)])
        for name in self.node_names:
            self.start_node(name)
        self.wait_for_nodes(self.node_names)

    def _start_munge(self) -> None:
        folder = self._munge_socket.parent
        folder.mkdir()
        key = folder / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        user = _munge_user()
        if user:
            shutil.chown(folder, user)
            shutil.chown(key, user)
        command = ["munged", "--foreground", f"--key-file={key}", f"--socket={self._munge_socket}"]
        command += [f"--pid-file={folder}/pid", f"--seed-file={folder}/seed", f"--log-file={folder}/log"]
        self._start("munged", command, user=user)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._munge_socket.exists():
            if time.monotonic() > deadline or self._daemons["munged"].poll() is not None:
                raise RuntimeError(self.logs())
            time.sleep(0.01)

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        self._start(name, ["slurmd", "-D", "-N", name, "-f", str(self.config)])

    def kill_node(self, name: str) -> None:
        """The node is gone at once, as when its power fails."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def stop_controller(self) -> None:
        """The controller sleeps: it holds its port and answers nobody."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def continue_controller(self) -> None:
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def _start(self, name: str, command: list[str], *, user: str | None = None) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [*dies_with_us(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user,
                cwd=self.folder,
                env=self.environment,
            )

    def run(self, *command: str, check: bool = True) -> str:
        """Run one of Slurm's commands; what it printed."""
        ran = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )
        assert not check or ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    def start_job(self, *options: str) -> int:
        """Start a job that works until it is cancelled; its number."""
        said = self.run("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap=exec sleep 600")
        return int(said.strip())

    def wait_for_nodes(self, names: Sequence[str]) -> None:
        """Wait until nodes have registered and are idle."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            lines = self.run("scontrol", "-o", "show", "node", ",".join(names), check=False).splitlines()
            if len(lines) == len(names) and all(any(mark in line for mark in SETTLED) for line in lines):
                return
            if time.monotonic() > deadline or self._daemons["slurmctld"].poll() is not None:
                raise RuntimeError(f"{lines[:3]}\n{self.logs()}")
            time.sleep(0.1)

    def reset(self) -> None:
        """End all jobs, reservations and drains, and wait until every node is idle again."""
        self.run("scancel", f"--user={self.user}")
        for line in self.run("scontrol", "--oneliner", "show", "reservation").splitlines():
            if line.startswith("ReservationName="):
                self.run("scontrol", "delete", line.split()[0])
        states = {
            line.split()[0].removeprefix("NodeName="): line.partition(" State=")[2].split()[0]
            for line in self.run("scontrol", "--oneliner", "show", "node").splitlines()
        }
        marked = [name for name, state in states.items() if any(mark in state for mark in ("DRAIN", "FAIL", "DOWN"))]
        if marked:
            self.run("scontrol", "update", f"NodeName={','.join(marked)}", "State=RESUME")
        if marked or any("NOT_RESPONDING" in state for state in states.values()):
            self.run("scontrol", "reconfigure")  # makes the nodes register at once, instead of at the next ping
        self.wait_for_nodes(self.node_names)

    def log_names(self) -> list[str]:
        """Where the daemons say what is wrong."""
        daemons = ["log/slurmctld.log", "log/slurmctld.out", "log/n001.log", "log/n001.out"]
        return ["munge/log", "log/munged.out", *daemons]

    def logs(self) -> str:
        """The ends of the daemons' logs, for a failure's message."""
        paths = [self.folder / name for name in self.log_names()]
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in paths if path.exists())

    def stop(self) -> None:
        """Stop every daemon and remove the folder; jobs still running are killed."""
        self._kill_jobs()
        for daemon in self._daemons.values():
            daemon.kill()
        for daemon in self._daemons.values():
            daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_jobs(self) -> None:
        """The keeper of a job's processes outlives its slurmd, so it is found by our folder on its command line."""
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if f"SLURM_CONF={self.config}".encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)


@contextmanager
def private_slurm(*, node_count: int = NODE_COUNT, time_zone: str = "UTC") -> Iterator[PrivateSlurm]:
    """A cluster that runs while it is used."""
    if not find_binaries():
        missing_part("Slurm")
    cluster = PrivateSlurm(node_count=node_count, time_zone=time_zone)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _munge_user() -> str | None:
    """Root's munged gives up its rights; the Debian package brings a user for it."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("munge").pw_name
    return None


def dies_with_us() -> list[str]:
    """A killed test run leaves no daemon behind."""
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
