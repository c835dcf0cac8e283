"""On a terminal and in a pipe: colours and progress only where somebody looks, and a quiet end."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import Demo
from tests.support.command import PLIMSOLL, plimsoll
from tests.support.fleets import row, write_fleet
from tests.support.imports import Importer
from tests.support.terminal import on_terminal, terminal_environment

SECONDS_MAX = 30.0


BOLD = "\x1b[1m"


def test_headings_are_bold_on_a_terminal_only(book: str) -> None:
    assert BOLD in on_terminal([PLIMSOLL, "fleet", "show", "--db", book], stream="stdout")
    assert "\x1b" not in plimsoll("fleet", "show", db=book, TERM="xterm").out


PLAIN = {"NO_COLOR is set": {"NO_COLOR": "1"}, "the terminal is dumb": {"TERM": "dumb"}}


@pytest.mark.parametrize("sentence", PLAIN)
def test_a_terminal_may_want_no_colours(sentence: str, book: str) -> None:
    printed = on_terminal([PLIMSOLL, "fleet", "show", "--db", book], stream="stdout", **PLAIN[sentence])
    assert "2 clusters" in printed
    assert "\x1b" not in printed


def test_something_long_shows_that_it_goes_on_and_wipes_it_away(demo: Demo) -> None:
    pictures = demo.shown.split("\r")
    shown = {picture.strip() for picture in pictures if picture.strip()}
    assert shown, "loading the demo takes longer than a second"
    assert all(re.fullmatch(r"(making the demo fleet|\w+: rows [\d,]+,) \d+ s", picture) for picture in shown)
    assert pictures[-2].strip() == pictures[-1] == "", "the line is wiped and the cursor is at its beginning"


SLOW = """
import sys, time
from plimsoll.commands.output import progress
with progress("proving", total=200) as line:
    for done in range(0, 201, 20):
        line(done)
        time.sleep(0.15)
"""


def test_something_that_knows_its_end_shows_a_bar() -> None:
    pictures = on_terminal([sys.executable, "-c", SLOW], stream="stderr").split("\r")
    shares = [
        int(found[1]) for picture in pictures if (found := re.search(r"proving █*░* +(\d+)% of 200, \d s", picture))
    ]
    assert len(shares) > 3
    assert shares == sorted(shares)
    assert shares[0] >= 40, "what is done within a moment shows nothing"
    assert {len(re.sub(r"[^█░]", "", picture)) for picture in pictures if "%" in picture} == {24}


def test_nothing_is_shown_where_nobody_looks() -> None:
    ran = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, env=terminal_environment(), check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")
    assert on_terminal([sys.executable, "-c", SLOW], stream="stderr", TERM="dumb") == ""


def test_a_reader_that_goes_away_is_no_error(demo_book: str) -> None:
    with subprocess.Popen(
        [PLIMSOLL, "audit", "log", "--limit", "0", "-o", "json", "--db", demo_book],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=terminal_environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS_MAX) == 1


class Watching:
    """A command that goes on until it is interrupted."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.printed = b""

    def until(self, is_enough: Callable[[bytes], bool]) -> bytes:
        """Read on until it has printed enough; fail when that takes too long."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + SECONDS_MAX
        while not is_enough(self.printed):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"nothing more within {SECONDS_MAX} s after {self.printed!r}"
            piece = os.read(self.process.stdout.fileno(), 65536)
            assert piece, f"it ended after {self.printed!r}"
            self.printed += piece
        return self.printed

    def interrupt(self) -> tuple[int, bytes]:
        """Ctrl-C: what it exits with, and says."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, said


@contextmanager
def watching(*words: str) -> Iterator[Watching]:
    process = subprocess.Popen(
        [PLIMSOLL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=terminal_environment(), bufsize=0
    )
    try:
        with process:
            try:
                yield Watching(process)
            finally:
                if process.poll() is None:
                    process.kill()
    finally:
        assert process.returncode is not None


def documents(printed: bytes) -> list[dict[str, object]]:
    """Each JSON document ends with a brace of its own line."""
    pieces = printed.decode().split("\n}\n")
    return [msgspec.json.decode(f"{piece}\n}}") for piece in pieces[:-1]]


def test_watching_prints_again_when_another_process_changes_something(tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(write_fleet(tmp_path / "1"))
    drains = write_fleet(tmp_path / "2", clusters=[], nodes=[row("nodes", service="draining")])
    with watching("fleet", "show", "--watch", "-o", "json", "--db", dsn) as command:
        command.until(lambda printed: len(documents(printed)) == 1)
        importer.bring(drains, is_partial=True)
        first, second = documents(command.until(lambda printed: len(documents(printed)) == 2))
        assert command.interrupt() == (130, b"")
    assert (first["revision"], second["revision"]) == (6, 8)
    healthy = [msgspec.convert(each["totals"], dict[str, object])["healthy"] for each in (first, second)]
    assert healthy == [32, 24]


LINES = {
    "json": (b'{"revision":8,', b'"subject":"node/n1"'),
    "table": (b"8  20", b"node/n1"),
    "csv": (b"8,20", b"node/n1"),
    "yaml": (b"- revision: 8", b"subject: node/n1"),
}


@pytest.mark.parametrize("form", LINES)
def test_the_log_goes_on_with_events_as_they_come(form: str, tmp_path: Path) -> None:
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(write_fleet(tmp_path / "1"))
    drains = write_fleet(tmp_path / "2", clusters=[], nodes=[row("nodes", service="draining")])
    with watching("audit", "log", "--watch", "--kind", "node.*", "-o", form, "--db", dsn) as command:
        command.until(lambda printed: b"node/n4" in printed)
        importer.bring(drains, is_partial=True)
        begins, holds = LINES[form]
        printed = command.until(lambda printed: begins in printed and printed.endswith(b"\n"))
        assert command.interrupt() == (130, b"")
    assert holds in printed.split(begins)[1]
    assert b"fleet.imported" not in printed
