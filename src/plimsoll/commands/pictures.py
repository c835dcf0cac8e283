"""Answers that are files: pictures and pages, to a pipe or to a place that is named."""

from __future__ import annotations

import enum
import sys
from pathlib import Path

import typer

from plimsoll.commands.desk import here
from plimsoll.commands.output import is_terminal
from plimsoll.errors import UsageError


class PictureOutput(enum.StrEnum):
    """What `-o` takes where there is a picture as well."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    YAML = "yaml"
    PNG = "png"
    SVG = "svg"

    @property
    def is_picture(self) -> bool:
        return self in (PictureOutput.PNG, PictureOutput.SVG)


def check_place(output: PictureOutput, file: Path | None, *, noun: str) -> None:
    """Before any work is done: is there a place for what was asked for?"""
    if file is not None and not output.is_picture:
        raise UsageError(
            "bad_usage", f"--file is for pictures, and -o is {output}", next_step=f"-o png --file {file}, or no --file"
        )
    if output.is_picture and file is None:
        refuse_terminal(output, next_step=f"--file {noun}.{output}, or > {noun}.{output}")


def refuse_terminal(form: str, *, next_step: str) -> None:
    """A terminal would only ring its bell."""
    if here() is None and is_terminal(sys.stdout):
        raise UsageError("picture_to_terminal", f"a terminal can't show {form.upper()}", next_step=next_step)


def put(body: bytes, file: Path | None, *, next_step: str) -> None:
    """To the file, or to stdout where none is named; at a desk it stays there."""
    if (desk := here()) is not None:
        desk.picture = body
        return
    if file is None:
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    try:
        file.write_bytes(body)
    except OSError as error:
        raise UsageError("bad_file", f"{file} can't be written: {error.strerror}", next_step=next_step) from None
    typer.echo(f"{file}: written, {len(body):,} bytes")
