"""What a file or folder can do to us, said clearly: not there, not a file, not ours to read or write, no room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plimsoll.errors import Refused

FILE_BYTES_MAX = 2 << 30


def check_file(path: Path) -> None:
    """Only a regular file has an end: a pipe, a device or a folder is refused before anything is read of it."""
    if not path.is_file():
        raise Refused(
            "not_a_file",
            f"{path} is not a regular file; nothing was imported",
            next_step="put a file there, or leave it out if it is not clusters.csv or nodes.csv",
            path=str(path),
        )
    if (size := path.stat().st_size) > FILE_BYTES_MAX:
        raise Refused(
            "too_big",
            f"{path.name} has {size:,} bytes, at most {FILE_BYTES_MAX:,} are read; nothing was imported",
            next_step="split it, and import the parts with --partial",
            path=str(path),
        )
    if not os.access(path, os.R_OK):
        raise Refused("not_readable", f"{path.name} can't be read; nothing was imported", next_step=f"chmod +r {path}")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """An error of the system while something is read, in words."""
    try:
        yield
    except OSError as error:
        raise Refused(
            "not_readable",
            f"{str(path)[:200]} can't be read: {error.strerror or error}; nothing was imported",
            next_step="look at the path, its rights and the disk",
        ) from error


def not_written(path: Path, error: OSError) -> Refused:
    """An error of the system while something is written, in words."""
    return Refused(
        "not_written",
        f"{str(path)[:200]} could not be written: {error.strerror or error}",
        next_step="give a place that you may write to and that has room",
        path=str(path)[:200],
    )
