"""Long commands that outlive us: begun once, found again after a crash.

An errand is a folder: `begun` is made before the command is, `lock` is held by whoever runs it while it runs, and
`result` is written, whole or not at all, when it has ended. So a process that comes later can tell one that still runs
from one that ended and from one that was lost with its machine, and never begins the same errand twice unknowingly.
"""

from __future__ import annotations

import enum
import fcntl
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from plimsoll.connect.commands import End, run_command
from plimsoll.errors import Unavailable

OUT_BYTES_MAX = 1 << 22
SECONDS_MAX = 7 * 24 * 3600.0
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


class Going(enum.StrEnum):
    """How an errand is."""

    NOT_BEGUN = "not_begun"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"
    """It was begun, does not run any more, and left no result."""


class Result(msgspec.Struct, frozen=True):
    """How the command ended. `code` is -1 where it was not there, too slow, or printed too much."""

    code: int
    out: str
    last_words: str


class Asked(msgspec.Struct, frozen=True):
    """The command, for the process that runs it."""

    words: tuple[str, ...]
    environment: dict[str, str]
    lines: tuple[str, ...]
    seconds_max: float


class Errands:
    """Errands in one folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _place(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return self.folder / f"{_UNFIT.sub('-', name)[:80]}-{digest}"

    def look(self, name: str) -> tuple[Going, Result | None]:
        """How an errand is, and its result where it has ended."""
        place = self._place(name)
        if not (place / "begun").exists():
            return Going.NOT_BEGUN, None
        if _is_locked(place / "lock"):
            return Going.RUNNING, None
        # Looked at after the lock: whoever held it wrote the result before letting go.
        with suppress(FileNotFoundError):
            return Going.ENDED, msgspec.json.decode((place / "result").read_bytes(), type=Result)
        return Going.LOST, None

    def begin(
        self,
        name: str,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        lines: Sequence[str],
        seconds_max: float = SECONDS_MAX,
    ) -> bool:
        """Begin an errand, unless it was begun before; says whether it was now. `lines` are given to the command in a
        file whose name is in PLIMSOLL_NODES_FILE.
        """
        place = self._place(name)
        try:
            place.mkdir(parents=True, exist_ok=True)
            asked = Asked(tuple(words), dict(environment), tuple(lines), seconds_max)
            (place / "asked").write_bytes(msgspec.json.encode(asked))
            lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unwritable(place, error) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.close(os.open(place / "begun", os.O_CREAT | os.O_EXCL, 0o600))
            except (BlockingIOError, FileExistsError):
                return False
            except OSError as error:
                raise _unwritable(place, error) from error
            # The lock is handed on with its file: it is let go of when that process ends, however it ends.
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "plimsoll.connect.errands", str(place), str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(lock,),
            )
            return True
        finally:
            os.close(lock)


def _unwritable(place: Path, error: OSError) -> Unavailable:
    return Unavailable(
        "errand_unwritable",
        f"{place} can't be written: {error.strerror}",
        next_step="name another folder: --errands DIR",
    )


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def carry_out(place: Path) -> None:
    """In the process of the errand: run the command to its end, and leave the result."""
    asked = msgspec.json.decode((place / "asked").read_bytes(), type=Asked)
    listed = place / "nodes"
    listed.write_text("".join(f"{line}\n" for line in asked.lines))
    environment = {**asked.environment, "PLIMSOLL_NODES_FILE": str(listed)}
    ran = run_command(
        asked.words, environment=environment, timeout_seconds=asked.seconds_max, out_bytes_max=OUT_BYTES_MAX
    )
    code = ran.code if ran.end is End.EXITED else -1
    said = ran.last_words or ("" if ran.end is End.EXITED else ran.end.value)
    result = Result(code, ran.out.decode(errors="replace"), said)
    draft = place / "result.draft"
    draft.write_bytes(msgspec.json.encode(result))
    draft.replace(place / "result")


if __name__ == "__main__":
    carry_out(Path(sys.argv[1]))
