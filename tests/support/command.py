"""The command line as its users have it: a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

PLIMSOLL = Path(sys.executable).with_name("plimsoll")


class Ran:
    """What a command did."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    def json(self) -> Any:
        return msgspec.json.decode(self.out)


def plimsoll(*arguments: str | Path, db: str = "", cwd: Path | None = None, **environment: str) -> Ran:
    """Run `plimsoll` with a clean environment."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PLIMSOLL_")} | environment
    env.setdefault("PLIMSOLL_ACTOR", "tester")
    command = [str(PLIMSOLL), *(["--db", db] if db else []), *map(str, arguments)]
    return Ran(subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=300, check=False))
