"""The templates' environment: where they are, and which filters they have. Made once for a server."""

from __future__ import annotations

from pathlib import Path

import jinja2

from plimsoll.server.pages.format import FILTERS, GLOBALS
from plimsoll.server.pages.hull import hull_picture

FOLDER = Path(__file__).parent.parent / "templates"


def environment() -> jinja2.Environment:
    """Escaping is always on, and a name that does not exist is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters.update(FILTERS)
    made.globals.update(GLOBALS)
    made.globals["hull_picture"] = hull_picture
    return made
