"""How numbers, times and words look on a page: the filters that every template has.

Pure: a value in, text (or a small piece of safe HTML) out. Nothing here asks the clock or knows what a page is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from plimsoll.times import parse_time
from plimsoll.words import counted, rough_span

NOTHING = "–"
THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
_COMMAND = re.compile(r"\b(plimsoll [a-z][^;,()…]*[^;,()….\s])")
_JSON_IN_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def number(value: object, digits: int = 0) -> str:
    """`18,500`; a dash for what is not known."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return NOTHING
    return f"{value:,.{digits}f}".replace("-", MINUS)


def signed(value: object) -> str:
    """`+120`, `−8`, `±0`: a change."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return NOTHING
    return "±0" if not value else f"{value:+,.0f}".replace("-", MINUS)


def share(value: object, digits: int = 1) -> str:
    """`94.2 %` of 0.942."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return NOTHING
    return f"{value * 100:.{digits}f}{THIN}%"


def share_of(part: object, whole: object, digits: int = 1) -> str:
    """The same from two counts."""
    if not isinstance(part, int | float) or not isinstance(whole, int | float) or not whole:
        return NOTHING
    return share(part / whole, digits)


def moment_of(value: object) -> datetime | None:
    """A moment from what a document holds; None where it holds none."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not value:
        return None
    try:
        return parse_time(value)
    except ValueError:
        return None


def moment(value: object, form: str = "minute") -> Markup:
    """A `<time>`: `16 Nov 19:02 UTC`, with the whole of it for machines and on hover. Forms: day, minute, second."""
    at = moment_of(value)
    if at is None:
        return Markup('<span class="nothing">{}</span>').format(NOTHING)
    at = at.astimezone(UTC)
    day = f"{at.day} {at:%b %Y}" if form == "day" else f"{at.day} {at:%b}"
    text = {"day": day, "minute": f"{day} {at:%H:%M}", "second": f"{day} {at:%H:%M:%S}"}[form]
    whole = at.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(whole, whole.replace("T", " "), text)


def ago(value: object, now: object) -> str:
    """`3 h 10 min ago`, `in 2 days`: from one moment to another, as people say it."""
    at, here = moment_of(value), moment_of(now)
    if at is None or here is None:
        return NOTHING
    return f"in {rough_span(at - here)}" if at > here else f"{rough_span(here - at)} ago"


def hours(value: object) -> str:
    """`19 h`, `2.0 days`, `40 min`: a length given in hours."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return NOTHING
    if value >= 48:
        return f"{value / 24:,.1f} days"
    return f"{value:,.1f} h" if value >= 1 else f"{value * 60:.0f} min"


def words(value: object) -> str:
    """`in_service` as people write it: `in service`."""
    return NOTHING if value in (None, "") else str(value).replace("_", " ")


def cell(value: object, kind: str = "") -> Markup | str:
    """A table's cell by the kind of its column; without one, by its type."""
    if value is None or value == "":
        return Markup('<span class="nothing">{}</span>').format(NOTHING)
    forms: dict[str, Any] = {
        "number": number, "share": share, "time": moment, "words": words, "hours": hours, "signed": signed,
        "text": str, "day": lambda given: moment(given, "day"),
    }  # fmt: skip
    if kind in forms:
        return forms[kind](value)  # type: ignore[no-any-return]
    if kind == "code":
        return Markup("<code>{}</code>").format(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value, 1 if isinstance(value, float) else 0) if isinstance(value, int | float) else str(value)


def json_in_html(value: object) -> Markup:
    """Data for a `<script type="application/json">`: nothing in it can end the element."""
    return Markup(json.dumps(value, separators=(",", ":"), default=str).translate(_JSON_IN_HTML))  # noqa: S704


def query_url(query: Mapping[str, str], **changes: object) -> str:
    """The same page with other parameters; None and the empty text take one away."""
    kept = {key: text for key, text in query.items() if key not in changes and text}
    given = {key: str(value) for key, value in changes.items() if value not in (None, "")}
    return "?" + urlencode({**kept, **given})


def fill(pattern: str, row: Mapping[str, object]) -> str:
    """`/teams/{team}` with a row's values, each quoted for a URL."""
    return pattern.format_map({key: quote(str(value), safe="") for key, value in row.items()})


def code_text(text: object) -> Markup:
    """A sentence in which what stands in `back ticks`, or begins with `plimsoll `, is something to type."""
    said = str(text)
    if "`" not in said:
        said = _COMMAND.sub(r"`\1`", said)
    pieces = said.split("`")
    marked = [
        Markup("<code>{}</code>").format(each) if place % 2 else escape(each) for place, each in enumerate(pieces)
    ]
    return Markup("").join(marked)


FILTERS = {
    "number": number, "signed": signed, "share": share, "moment": moment, "ago": ago, "hours": hours, "words": words,
    "cell": cell, "json_in_html": json_in_html, "counted": counted, "fill": fill, "code_text": code_text,
}  # fmt: skip
GLOBALS = {"query_url": query_url, "share_of": share_of}
