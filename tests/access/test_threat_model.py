"""The threat model is true as far as a test can see: what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def test_every_test_that_is_named_exists() -> None:
    rows = [line for line in (PROJECT / "THREAT_MODEL.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    named = 0
    for row in rows:
        text = ""
        for word in re.findall(r"`((?:tests|server)/[\w/]+\.py|test_\w+)`", row):
            if word.endswith(".py"):
                place = PROJECT / (word if word.startswith("tests") else f"src/plimsoll/{word}")
                text = place.read_text(encoding="utf-8")
            else:
                assert f"def {word}(" in text, word
                named += 1
    assert named > 30
