"""Sentences of commands as a page shows them: what is to be typed as code, moments as people read them. Pure."""

from __future__ import annotations

import re

from markupsafe import Markup

from plimsoll.server.pages.format import code_text, moment

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z")


def prose(text: object) -> Markup:
    """A sentence; nothing in it is taken for HTML."""
    said = str(code_text(text))  # escaped here: a moment has nothing in it that escaping would change
    return Markup(_MOMENT.sub(lambda found: str(moment(found[0])), said))  # noqa: S704
