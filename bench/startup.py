"""How long a person waits for `plimsoll --help`, against an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.figures import Figure, alternate, compare

RUNS = 15


def measure() -> list[Figure]:
    plimsoll = str(Path(sys.executable).with_name("plimsoll"))

    def run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    ours, bare = alternate(RUNS, lambda: run(plimsoll, "--help"), lambda: run(sys.executable, "-c", "pass"))
    return [compare("plimsoll --help", "against python3 -c pass", ours, bare, at_most=20)]
