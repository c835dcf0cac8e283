"""One line for each request and each happening, for people or as JSON. Must never hold a secret: no query, no header,
no cookie, no body; of a path that we have nothing at, no part that could be one.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any, TextIO

import msgspec

from plimsoll.times import format_time, utc_now


class Log:
    """Writes lines to a stream."""

    def __init__(self, form: str = "text", stream: TextIO | None = None) -> None:
        self._is_json, self._is_silent = form == "json", form == "none"
        self._stream = stream or sys.stderr

    def __call__(self, event: str, **fields: Any) -> None:
        if self._is_silent:
            return
        known = {key: value for key, value in fields.items() if value not in (None, "")}
        at = format_time(utc_now())
        if self._is_json:
            line = msgspec.json.encode({"at": at, "event": event, **known}).decode()
        else:
            line = f"{at[11:19]} {event} " + " ".join(f"{key}={_plain(value)}" for key, value in known.items())
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads any more: no reason to fail a request
            return


SILENT = Log("none")
FRAMES_MAX = 6
PATH_CHARS_MAX = 200
PART_CHARS_MAX = 32
"""Our secrets are longer: 43 characters and more."""


def frames(error: BaseException) -> str:
    """Where something went wrong: files, lines, functions. What was said there may hold anything, and is left out."""
    found = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return " < ".join(f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in reversed(found))


def plain_path(path: str) -> str:
    """A path for the log that we have nothing at: somebody may have pasted a link or a token wrongly."""
    parts = (each if len(each) <= PART_CHARS_MAX else "…" for each in path.split("/"))
    return "/".join(parts)[:PATH_CHARS_MAX]


def _plain(value: object) -> str:
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    if not text.isprintable():  # a terminal may show it, and must not obey it
        text = ascii(text)[1:-1]
    return msgspec.json.encode(text).decode() if any(sign in text for sign in ' "\n\\') else text
