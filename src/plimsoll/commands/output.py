"""How a terminal shows answers: a table for people, JSON, CSV and YAML for machines. Errors go to stderr."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, csv_text, table_text
from plimsoll.commands.desk import here
from plimsoll.errors import PlimsollError

PROGRESS_AFTER_SECONDS = 0.7
PROGRESS_EVERY_SECONDS = 0.1


def show(answer: Answer, output: Output) -> None:
    """Print an answer to stdout, or leave it at the desk."""
    if (desk := here()) is not None:
        desk.answer = answer
        return
    if output is Output.JSON:
        _print(msgspec.json.format(msgspec.json.encode(answer.document), indent=2).decode())
    elif output is Output.YAML:
        import yaml

        plain = msgspec.to_builtins(answer.document, builtin_types=())
        _print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip())
    elif output is Output.CSV:
        _print(csv_text([answer.tables[0].columns, *answer.tables[0].rows]) if answer.tables else "")
    else:
        _print(table_text(answer, _bold))


def show_text(text: str) -> None:
    """Print a text as it is: a file to begin with, objects to apply."""
    if (desk := here()) is not None:
        desk.text = text
        return
    typer.echo(text, nl=False)


def _print(text: str) -> None:
    typer.echo(text)


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") else text


def is_terminal(stream: Any) -> bool:
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def show_error(error: PlimsollError, arguments: Sequence[str]) -> None:
    """What happened, the number, the next thing to type; as JSON where JSON was asked for."""
    words = list(arguments)
    wants_json = any(word == "-ojson" or word == "--output=json" for word in words) or any(
        flag in ("-o", "--output") and value == "json" for flag, value in pairwise(words)
    )
    if wants_json:
        document = {
            "error": {
                "code": error.code,
                "message": error.message,
                "next_step": error.next_step,
                "fields": error.fields,
            }
        }
        typer.echo(msgspec.json.encode(document).decode(), err=True)
        return
    typer.echo(f"plimsoll: {error.message}", err=True)
    if error.next_step:
        typer.echo(f"  next: {error.next_step}", err=True)


class Progress:
    """A line on stderr while something takes long; nothing at all when stderr is no terminal.

    A thread draws it, so that it moves also while a step that can't say how far it is goes on.
    """

    def __init__(self, label: str, total: int | None = None) -> None:
        self._label, self._total = label, total
        self._done: int | None = None
        self._began = time.monotonic()
        self._is_drawn = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._draw_on, daemon=True)
        if is_terminal(sys.stderr):
            self._thread.start()

    def __call__(self, done: int, label: str = "") -> None:
        self._done, self._label = done, label or self._label

    def _draw_on(self) -> None:
        wait = PROGRESS_AFTER_SECONDS
        while not self._is_over.wait(wait):
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write("\r" + self._text()[:width].ljust(width))
            sys.stderr.flush()
            self._is_drawn, wait = True, PROGRESS_EVERY_SECONDS

    def _text(self) -> str:
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if self._total and self._done is not None:
            share = min(1.0, self._done / self._total)
            bar = ("█" * round(24 * share)).ljust(24, "░")
            return f"{self._label} {bar} {share:4.0%} of {self._total:,}, {seconds}"
        return f"{self._label} {seconds}" if self._done is None else f"{self._label} {self._done:,}, {seconds}"

    def clear(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._is_drawn:
            sys.stderr.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
            sys.stderr.flush()


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Progress]:
    """A progress line that is gone afterwards."""
    line = Progress(label, total)
    try:
        yield line
    finally:
        line.clear()
