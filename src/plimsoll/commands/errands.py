"""Where the results of long commands are found again, by `--errands`, PLIMSOLL_ERRANDS, or beside the database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

ErrandFolder = Annotated[
    Path | None,
    typer.Option(
        "--errands",
        metavar="DIR",
        help="Where commands leave their results; else PLIMSOLL_ERRANDS, else beside a SQLite file.",
        show_default=False,
    ),
]


def errand_folder(folder: Path | None, dsn: str) -> Path:
    """Where the results of commands are found again after a crash."""
    if folder is not None:
        return folder
    if given := os.environ.get("PLIMSOLL_ERRANDS"):
        return Path(given)
    if dsn.startswith("sqlite:///"):
        return Path(f"{dsn.removeprefix('sqlite:///')}.errands")
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "plimsoll" / "errands"


def beside(dsn: str) -> Path:
    """The folder of a database that is a file; else the one where we are."""
    return Path(dsn.removeprefix("sqlite:///")).absolute().parent if dsn.startswith("sqlite:///") else Path.cwd()
