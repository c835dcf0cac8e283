"""One line for each request and each happening, for people or as JSON. Must never hold a secret: no query, no header,
no cookie, no body; paths of one-time links are cut.
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


def frames(error: BaseException) -> str:
    """Where something went wrong: files, lines, functions. What was said there may hold anything, and is left out."""
    found = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return " < ".join(f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in reversed(found))


def _plain(value: object) -> str:
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return msgspec.json.encode(text).decode() if any(sign in text for sign in ' "\n\\') else text
