"""The examples of docs/how-to/use-the-api.md, run as they stand against a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import PLIMSOLL
from tests.support.parts import missing_part
from tests.support.served import Served

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "use-the-api.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_run(served: Served, tmp_path: Path) -> None:
    assert len(BLOCKS) >= 5
    if not any((Path(folder) / "curl").exists() for folder in os.environ["PATH"].split(":")):
        missing_part("curl")
    script = "\n".join(line for block in BLOCKS for line in block.splitlines() if not line.startswith("export"))
    environment = {
        **os.environ,
        "PATH": f"{Path(PLIMSOLL).parent}:{os.environ['PATH']}",
        "PLIMSOLL_SERVER": served.url,
        "PLIMSOLL_TOKEN": served.tokens["admin"],
    }
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    for want in ('"totals"', "node,cluster,island", "can start", '"request"', '"taken":1', "id: "):
        assert want in ran.stdout, want


@pytest.mark.parametrize("word", ["Idempotency-Key", "at_least", "Last-Event-ID", "format", "as_of"])
def test_the_page_names_what_the_description_has(served: Served, word: str) -> None:
    assert word in PAGE.read_text(encoding="utf-8")
    assert word.encode() in served.ask("/api/v1/openapi.json").body
