"""Pages of a list: which one a request means, and where the next one begins.

A list is cut out of its whole answer, so that all pages are of one revision. The log only grows, and may be far too
long to be made at once: of it each page is read by itself, and the next one is what came right before it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from plimsoll.errors import UsageError
from plimsoll.server.call import Operation, Said
from plimsoll.server.forms import PAGE_MAX, WHOLE, Cut, Form, count_of, number_meant
from plimsoll.server.routes import Route

_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,9})")


class Page(NamedTuple):
    """Which part of a list is meant; without a limit all of it."""

    limit: int | None = None
    begin: int = 0
    revision: int = 0
    """The revision that all pages are of; 0 for the newest."""

    def cut(self, route: Route) -> Cut:
        """What is cut out of the answer: of a log nothing, its command reads no more than the page."""
        return WHOLE if self.limit is None or not route.items or route.is_log else Cut(self.begin, self.limit)


def page_meant(operation: Operation, values: dict[str, Any], *, is_terminal: bool) -> Page:
    """What `limit` and `cursor` of a query say; they are taken out of it, but for the limit of a log, and for the one
    that was typed at a terminal."""
    route = operation.route
    own = operation.takes.get("limit")
    if not route.items or (is_terminal and own is not None and not route.is_log):
        return Page()
    given = values.get("limit") if route.is_log else values.pop("limit", None)
    if given is not None:
        limit: int | None = max(1, min(PAGE_MAX, number_meant(str(given[-1]), "limit")))
    else:
        limit = int(str(own.parameter.default)) if route.is_log and own is not None else None
    cursor = values.pop("cursor", None)
    if cursor is None:
        return Page(limit)
    match = _CURSOR.fullmatch(str(cursor[-1]))
    if match is None:
        raise UsageError(
            "bad_cursor", "this is not a cursor of ours", next_step="follow the Link header", parameter="cursor"
        )
    return Page(limit or PAGE_MAX, int(match[2]), int(match[1]))


def next_cursor(route: Route, said: Said, form: Form, page: Page, table: str = "") -> str:
    """Where the next page begins; empty where this is the last."""
    if not route.items or page.limit is None:
        return ""
    if route.is_log:
        return _before(said, route.items, page.limit)
    end = page.begin + page.limit
    return f"{said.shown_revision}.{end}" if end < count_of(said, route.items, form, table) else ""


def _before(said: Said, items: str, limit: int) -> str:
    """The log as it was before the oldest event of a page that is full."""
    document: Any = said.answer.document if said.answer is not None else {}
    listed = document[items]
    oldest = listed[0]["revision"] if listed else 0
    return f"{oldest - 1}.0" if len(listed) >= limit and oldest > 1 else ""
