"""Long commands that outlive us: begun once, found again after a crash.

An errand is a folder: `begun` is made before the command is, `lock` is held by whoever runs it, and by the command
itself, while it runs, and `result` is written, whole or not at all, when it has ended. So a process that comes later
can tell one that still runs from one that ended and from one that was lost with its machine, and never begins the same
errand twice unknowingly. Another machine does not see the folder: `where` tells whether it is the one that was meant.
`out` grows with what the command prints, and can be read while it runs and after the end, however it ended.
"""

from __future__ import annotations

import enum
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from plimsoll.connect.commands import End, run_command
from plimsoll.errors import Unavailable

OUT_BYTES_MAX = 1 << 22
SECONDS_MAX = 7 * 24 * 3600.0
FILES_MAX = 16
FILE_BYTES_MAX = 1 << 26
OPEN_ATTEMPTS_MAX = 5
FORGET_ATTEMPTS_MAX = 50
FORGET_WAIT_SECONDS = 0.02
_CHILDREN: list[subprocess.Popen[bytes]] = []
"""Those that this process has begun. They are asked for their end now and then, so that none stays as a zombie."""
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_FILE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_FORGOTTEN = "~forgotten-"
"""How a folder is called that is being removed. No errand's folder begins so."""


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
    out_bytes_max: int = OUT_BYTES_MAX


class Errands:
    """Errands in one folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def where(self) -> str:
        """What tells this folder from every other one, on any machine."""
        marker = self.folder / "id"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not marker.exists():
                draft = self.folder / f"id.{os.getpid()}"
                _write(draft, uuid.uuid4().hex.encode())
                with suppress(FileExistsError):  # somebody else was quicker: theirs is the one
                    os.link(draft, marker)
                draft.unlink()
            return marker.read_text()
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def _place(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return self.folder / f"{_UNFIT.sub('-', name)[:80]}-{digest}"

    def look(self, name: str) -> tuple[Going, Result | None]:
        """How an errand is, and its result where it has ended."""
        place = self._place(name)
        if not (place / "begun").exists():
            return Going.NOT_BEGUN, None
        # Looked at before the lock, which something that the command left behind may hold, and once more after it:
        # whoever held it wrote the result before letting go.
        for is_last in (False, True):
            if (result := _read_result(place / "result")) is not None:
                return Going.ENDED, result
            if not is_last and _is_locked(place / "lock"):
                return Going.RUNNING, None
        return (Going.LOST if (place / "begun").exists() else Going.NOT_BEGUN), None  # or forgotten meanwhile

    def begin(
        self,
        name: str,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        lines: Sequence[str],
        files: Mapping[str, str] | None = None,
        seconds_max: float = SECONDS_MAX,
        out_bytes_max: int = OUT_BYTES_MAX,
    ) -> bool:
        """Begin an errand, unless it was begun before; says whether it was now. `lines` are given to the command in a
        file whose name is in PLIMSOLL_NODES_FILE, and what `files` holds under `sets` in one whose absolute path is in
        PLIMSOLL_SETS_FILE. A command that prints more than `out_bytes_max` is ended.
        """
        files = files or {}
        assert len(files) <= FILES_MAX, len(files)
        assert all(_FILE_NAME.fullmatch(file) and file != "nodes" for file in files), list(files)
        place = self._place(name)
        lock = _open_lock(place)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_still(place / "lock", lock) or (place / "begun").exists():
                return False
            given = {f"PLIMSOLL_{file.upper()}_FILE": _give(place, file, body) for file, body in files.items()}
            asked = Asked(tuple(words), {**environment, **given}, tuple(lines), seconds_max, out_bytes_max)
            _write(place / "asked", msgspec.json.encode(asked))
            _write(place / "begun", b"")
            _start(place, lock)
            return True
        except BlockingIOError:
            return False
        except OSError as error:
            raise _unwritable(place, error) from error
        finally:
            os.close(lock)

    def peek(self, name: str, bytes_max: int = OUT_BYTES_MAX) -> str:
        """What the command has printed so far, or did print: all of it, or the whole lines of its last `bytes_max`
        bytes. Empty where it printed nothing or was not begun.
        """
        try:
            with (self._place(name) / "out").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - bytes_max))
                tail = file.read(bytes_max)
        except FileNotFoundError:
            return ""
        if size > bytes_max:
            _, has_end, whole = tail.partition(b"\n")
            tail = whole if has_end else tail
        return tail.decode(errors="replace")

    def forget(self, name: str) -> bool:
        """Remove what is left of an errand that has ended or was lost; says whether it was removed. One that runs is
        left alone. It could be begun again after this: whoever forgets has written down how it ended.
        """
        place = self._place(name)
        for _ in range(FORGET_ATTEMPTS_MAX):
            if self.look(name)[0] in (Going.NOT_BEGUN, Going.RUNNING):
                return False
            if _move_away(place, self.folder / f"{_FORGOTTEN}{uuid.uuid4().hex}"):
                for forgotten in self.folder.glob(f"{_FORGOTTEN}*"):  # also what a crash left of an earlier one
                    shutil.rmtree(forgotten, ignore_errors=True)
                return True
            time.sleep(FORGET_WAIT_SECONDS)  # its process has left the result, and is about to let go
        return False

    def forget_old(self, names: Iterable[str], *, before: float) -> int:
        """Forget those of these errands that ended before a moment, in seconds of the machine's clock; how many.

        As with `forget`, whoever names them has written down how each ended.
        """
        try:
            there = {each.name: each.stat().st_mtime for each in os.scandir(self.folder) if each.is_dir()}
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        # Its folder changed last when its result was put there.
        return sum(self.forget(name) for name in names if there.get(self._place(name).name, before) < before)


def _open_lock(place: Path) -> int:
    for attempts_left in reversed(range(OPEN_ATTEMPTS_MAX)):
        try:
            place.mkdir(parents=True, exist_ok=True)
            return os.open(place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except (FileNotFoundError, FileExistsError) as error:  # it was there, and is forgotten at this moment
            if not attempts_left:
                raise _unwritable(place, error) from error
        except OSError as error:
            raise _unwritable(place, error) from error
    raise AssertionError("not reached")


def _give(place: Path, file: str, body: str) -> str:
    """Write a file for the command; its absolute path."""
    path = (place / f"{file}.given").absolute()
    encoded = body.encode()
    assert len(encoded) <= FILE_BYTES_MAX, len(encoded)
    _write(path, encoded)
    return str(path)


def _move_away(place: Path, target: Path) -> bool:
    """Take a folder out of the way at one stroke, so that nobody finds half of it and begins in it."""
    try:
        lock = os.open(place / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_still(place / "lock", lock):
            return False
        place.rename(target)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _unwritable(place, error) from error
    finally:
        os.close(lock)
    return True


def _is_still(path: Path, file: int) -> bool:
    """Whether an open file is the one of that name, and not of an errand that was forgotten meanwhile."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _start(place: Path, lock: int) -> None:
    """The lock is handed on with its file: it is let go of when that process ends, however it ends."""
    for ended in [child for child in _CHILDREN if child.poll() is not None]:
        with suppress(ValueError):  # another thread has seen it too
            _CHILDREN.remove(ended)
    try:
        child = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "plimsoll.connect.errands", str(place), str(lock)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock,),
        )
    except OSError:
        (place / "begun").unlink()  # there was no room for another process, and so there is none
        raise
    _CHILDREN.append(child)


def _write(path: Path, body: bytes) -> None:
    """Write a file so that it is there after a power cut too."""
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_result(path: Path) -> Result | None:
    """What a command left; None where it left nothing that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


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
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two who look do not take each other for the command
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def carry_out(place: Path, lock: int) -> None:
    """In the process of the errand: run the command to its end, and leave the result."""
    asked = msgspec.json.decode((place / "asked").read_bytes(), type=Asked)
    listed = place / "nodes"
    listed.write_text("".join(f"{line}\n" for line in asked.lines))
    environment = {**asked.environment, "PLIMSOLL_NODES_FILE": str(listed)}
    # The command keeps the lock as well: if this process alone is killed, it is known that the command still runs.
    ran = run_command(
        asked.words,
        environment=environment,
        timeout_seconds=asked.seconds_max,
        out_bytes_max=asked.out_bytes_max,
        keeps_open=(lock,),
        out_file=place / "out",
    )
    code = ran.code if ran.end is End.EXITED else -1
    said = ran.last_words
    if ran.end is not End.EXITED:
        said = f"{ran.end.value}: {said}" if said else ran.end.value
    result = Result(code, ran.out.decode(errors="replace"), said)
    draft = place / "result.draft"
    _write(draft, msgspec.json.encode(result))
    draft.replace(place / "result")
    # For a daemon too that the command left behind: the errand has ended, and may be forgotten from now on.
    fcntl.flock(lock, fcntl.LOCK_UN)


if __name__ == "__main__":
    carry_out(Path(sys.argv[1]), int(sys.argv[2]))
