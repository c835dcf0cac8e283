"""How long a new user waits for the demo: to its link and to the first page, beside only loading it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from bench.figures import Figure

PLIMSOLL = str(Path(sys.executable).with_name("plimsoll"))
RUNS = 3
SECONDS_MAX = 15.0


def measure() -> list[Figure]:
    served = [_served() for _ in range(RUNS)]
    loaded = sorted(_loaded() for _ in range(RUNS))[RUNS // 2]
    link, page = (sorted(each)[RUNS // 2] for each in zip(*served, strict=True))
    return [
        Figure(
            "the demo, to its first page",
            f"loaded, its link printed after {link:.1f} s, median of {RUNS}",
            f"{page:.1f} s",
            f"{loaded:.1f} s only loading it",
            f"{page / loaded:.1f}x",
            f"at most {SECONDS_MAX:g} s",
            page <= SECONDS_MAX,
        )
    ]


def _loaded() -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        command = [PLIMSOLL, "demo", "--db", f"sqlite:///{folder}/plimsoll.db"]
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began


def _served() -> tuple[float, float]:
    """Until the link is printed, and until the page behind it is there."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        command = [PLIMSOLL, "demo", "--serve", "--port", "0", "--db", f"sqlite:///{folder}/plimsoll.db"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                link = next(found[1] for line in process.stdout if (found := re.search(r"open (\S+)", line)))
                printed = time.perf_counter() - began
                opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
                opener.addheaders = [("Sec-Fetch-Mode", "navigate"), ("Accept", "text/html")]
                with opener.open(link, timeout=60) as answer:
                    assert b"The whole fleet" in answer.read()
                return printed, time.perf_counter() - began
            finally:
                process.terminate()
