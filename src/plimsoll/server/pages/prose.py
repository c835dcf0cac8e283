"""Sentences of commands as a page shows them: what is to be typed as code, moments as people read them. Pure."""

from __future__ import annotations

import re

from markupsafe import Markup

from plimsoll.server.pages.format import code_text, moment, moment_of

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z")


def _shown(found: re.Match[str]) -> str:
    """A moment; what only looks like one stays as it is."""
    return str(moment(found[0])) if moment_of(found[0]) is not None else found[0]


def prose(text: object) -> Markup:
    """A sentence; nothing in it is taken for HTML."""
    said = str(code_text(text))  # escaped here: a moment has nothing in it that escaping would change
    return Markup(_MOMENT.sub(_shown, said))  # noqa: S704
