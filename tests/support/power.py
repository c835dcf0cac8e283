"""A power cut for a private PostgreSQL: every one of its processes dies at the same instant.

(Its backends lead process groups of their own, so killing the server's group leaves them to end by themselves, after
whatever they were at.)
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.support.postgres import PrivatePostgres
from tests.support.waiting import wait_until


def cut_power(server: PrivatePostgres) -> None:
    """SIGKILL to the server and all its children; returns when none of them is left."""
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)  # so that it starts no other child, and mends nothing
    children = _children_of(postmaster)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    server.kill()
    wait_until(lambda: not any(map(_lives, children)), what="all backends are dead")


def _children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
