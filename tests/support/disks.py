"""Folders with a fault: one in which nobody may write, one on a disk that is nearly full."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that everybody may read, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="plimsoll-public-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


class SmallDisk:
    """A file system in memory with a fixed size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def grow(self, megabytes: int) -> None:
        _mount("-o", f"remount,size={megabytes}m", self.folder)


@contextmanager
def small_disk(megabytes: int) -> Iterator[SmallDisk | None]:
    """None where we may not mount one."""
    folder = Path(tempfile.mkdtemp(prefix="plimsoll-disk-"))
    try:
        is_mounted = os.geteuid() == 0 and _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder)
        try:
            yield SmallDisk(folder) if is_mounted else None
        finally:
            if is_mounted:
                subprocess.run(["umount", "--lazy", folder], check=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _mount(*arguments: str | Path) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
