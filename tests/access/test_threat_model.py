"""The threat model is true as far as a test can see: what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def rows() -> list[str]:
    """The lines of the tables of threats."""
    threats = (PROJECT / "THREAT_MODEL.md").read_text(encoding="utf-8").partition("\n## Threats\n")[2]
    lines = [line for line in threats.splitlines() if line[:1] == "|"]
    return [line for line in lines if not line.startswith(("| threat |", "|---"))]


def test_every_threat_names_a_test_and_every_test_that_is_named_exists() -> None:
    assert len(rows()) > 25
    for row in rows():
        text, named = "", 0
        for word in re.findall(r"`(tests/[\w/]+\.py|test_\w+)`", row.rstrip(" |").rpartition(" | ")[2]):
            if word.endswith(".py"):
                text = (PROJECT / word).read_text(encoding="utf-8")
            else:
                assert f"def {word}(" in text, word
                named += 1
        assert named, f"nothing shows this: {row}"
