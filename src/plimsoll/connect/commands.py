"""Run a command of another program with an end: a deadline and a bound on what it prints.

Decides nothing about what the output means. Must never use a shell, and never leave a process of the command running:
all of its group is killed at the deadline, on too much output, and when we are interrupted.
"""

from __future__ import annotations

import enum
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

CHUNK_BYTES = 1 << 16
ERROR_BYTES_MAX = 1 << 16
POLL_SECONDS = 0.05
"""How late the end of a command may be noticed that left its output open to a child of its own."""
REAP_SECONDS_MAX = 1.0


class End(enum.Enum):
    """How a command ended."""

    EXITED = "exited"
    NOT_FOUND = "not_found"
    TOO_SLOW = "too_slow"
    TOO_MUCH = "too_much"


class Ran(msgspec.Struct, frozen=True):
    """What a command did. `code` is its exit code when it exited; `error` is at most the last ERROR_BYTES_MAX bytes."""

    end: End
    code: int
    out: bytes
    error: bytes

    @property
    def last_words(self) -> str:
        """What it said last on stderr, as one bounded line that can't control a terminal."""
        text = self.error.decode(errors="replace")
        lines = ["".join(sign if sign.isprintable() else " " for sign in line).strip() for line in text.splitlines()]
        return "; ".join(line for line in lines if line)[-400:]


def run_command(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_seconds: float,
    out_bytes_max: int,
    keeps_open: Collection[int] = (),
    out_file: Path | None = None,
) -> Ran:
    """Run a command to its end, or kill it. The environment is added to ours; it inherits the files in `keeps_open`.
    What it prints can be read in `out_file` as soon as it is printed, up to `out_bytes_max`.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  # words, no shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
            pass_fds=tuple(keeps_open),
        )
    except OSError as error:
        return Ran(End.NOT_FOUND, -1, b"", f"{words[0]}: {error.strerror}".encode())
    copy = _Copy(out_file, out_bytes_max)
    try:
        return _watch(process, time.monotonic() + timeout_seconds, out_bytes_max, copy)
    finally:
        # The command is not reaped yet, so the number of its group can't be anybody else's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # another user's, through sudo: we may not kill it
            process.wait(REAP_SECONDS_MAX)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        copy.close()


class _Copy:
    """What was printed so far, for others to look at. A full disk ends the copy, and not the command."""

    def __init__(self, path: Path | None, bytes_max: int) -> None:
        self._left = bytes_max
        self._file: IO[bytes] | None = None
        if path is not None:
            with suppress(OSError):
                self._file = path.open("wb", buffering=0)

    def add(self, piece: bytes) -> None:
        if self._file is None:
            return
        piece = piece[: self._left]
        written = 0
        with suppress(OSError):
            written = self._file.write(piece)
        self._left -= written
        if written < len(piece):
            self.close()  # a hole in the middle would be taken for what was printed

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _watch(process: subprocess.Popen[bytes], deadline: float, out_bytes_max: int, copy: _Copy) -> Ran:
    assert process.stdout is not None
    assert process.stderr is not None
    out, error = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for pipe, heard in ((process.stdout, out), (process.stderr, error)):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, heard)
        while True:
            exit_code = _exit_code(process)  # asked before the last reading, so that nothing is lost
            has_exited = exit_code is not None
            left = deadline - time.monotonic()
            ready = selector.select(0 if has_exited else max(0.001, min(left, POLL_SECONDS)))
            for key, _ in ready:
                pipe_io: IO[bytes] = key.fileobj  # type: ignore[assignment]
                if piece := os.read(pipe_io.fileno(), CHUNK_BYTES):
                    key.data.extend(piece)
                    if key.data is out:
                        copy.add(piece)
                else:
                    selector.unregister(pipe_io)
            del error[:-ERROR_BYTES_MAX]
            if len(out) > out_bytes_max:
                return Ran(End.TOO_MUCH, -1, b"", bytes(error))
            if exit_code is not None and not ready:
                return Ran(End.EXITED, exit_code, bytes(out), bytes(error))
            if left <= 0:
                return Ran(End.TOO_SLOW, -1, b"", bytes(error))


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """Like `poll`, but leaves the process unreaped."""
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
