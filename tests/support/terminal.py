"""A command whose output somebody looks at: one of its streams is a terminal, the other one a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path

SECONDS_MAX = 60.0


def terminal_environment(**more: str) -> dict[str, str]:
    """Without settings of our own or of Python, on a terminal of a common kind."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PLIMSOLL_", "PYTHON", "NO_COLOR"))}
    return clean | {"TERM": "xterm", "PLIMSOLL_ACTOR": "tester"} | more


def on_terminal(command: Sequence[str | Path], *, stream: str, **more: str) -> str:
    """What a command prints on a stream that is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        env=terminal_environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=theirs if stream == "stdout" else subprocess.DEVNULL,
        stderr=theirs if stream == "stderr" else subprocess.DEVNULL,
    ) as process:
        os.close(theirs)
        printed = _read(ours)
        assert process.wait(SECONDS_MAX) == 0, printed
    return printed


def _read(descriptor: int) -> str:
    """All that is printed, until the last writer has gone: which a terminal tells by an error."""
    printed = b""
    try:
        while piece := os.read(descriptor, 65536):
            printed += piece
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return printed.decode()
