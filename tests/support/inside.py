"""The command line called inside this process: for what it prints, where the process itself is not the point."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from plimsoll.cli.main import main
from tests.support.writers import Tell, as_nobody


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error, where JSON was asked for."""
        document: dict[str, dict[str, Any]] = msgspec.json.decode(self.err)
        return document["error"]


def called(*words: object) -> Said:
    """Call `plimsoll` with these words."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int) or code is None
    return Said(code or 0, out.getvalue(), err.getvalue())


def plimsoll(*arguments: str | Path, db: str = "", cwd: Path | None = None, **environment: str) -> Said:
    """The same with a clean environment: the quick form of `command.plimsoll`."""
    before, place = dict(os.environ), Path.cwd()
    settings = {key: value for key, value in before.items() if not key.startswith("PLIMSOLL_")} | environment
    settings.setdefault("PLIMSOLL_ACTOR", "tester")
    try:
        _set_environment(settings)
        os.chdir(cwd or place)
        return called(*(["--db", db] if db else []), *arguments)
    finally:
        os.chdir(place)
        _set_environment(before)


def _set_environment(settings: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(settings)


def call_as_nobody(tell: Tell, *words: object) -> None:
    """The same in a child process without root's rights, which tells what was said."""
    # What could not be read later is loaded first.
    codecs.lookup("utf-8-sig")
    called("fleet", "nodes", "--db", "nowhere.db", "--limit", "1")
    as_nobody(tell, _call, *words)


def _call(tell: Tell, *words: object) -> None:
    tell(tuple(called(*words)))
