"""What a reader finds on a page: its numbers by key, its tables cell by cell, what its charts draw."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

from tests.support.served import Served


class _Tables(HTMLParser):
    """Tables by their caption: rows of cells, each as text with one blank between words."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self._caption, self._text = "", list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        if tag in ("th", "td", "caption"):
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        text = " ".join("".join(self._text).split())
        if tag == "caption":
            self._caption = text
        elif tag in ("th", "td") and self._rows:
            self._rows[-1].append(text)
        elif tag == "table":
            self.found[self._caption] = self._rows

    def handle_data(self, data: str) -> None:
        self._text.append(data)


class Page:
    """A page as somebody sees it."""

    def __init__(self, html: str) -> None:
        self.html = html
        reader = _Tables()
        reader.feed(html)
        self.tables = reader.found
        self.text = " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())

    def number(self, key: str) -> str:
        found = re.search(rf'data-number="{key}">([^<]*)<', self.html)
        assert found, f"no number {key}"
        return found[1]

    def rows(self, caption: str) -> dict[str, list[str]]:
        """The rows of a table by their first cell, without the head."""
        return {row[0]: row[1:] for row in self.tables[caption][1:]}

    def chart(self, name: str) -> Any:
        """The description that a chart is drawn from."""
        found = re.search(rf'(?s)<script type="application/json" id="{name}-spec">(.*?)</script>', self.html)
        assert found, f"no chart {name}"
        return json.loads(found[1])

    def part(self, begin: str, end: str) -> Page:
        """What stands between two pieces of the page."""
        start = self.html.index(begin)
        return Page(self.html[start : self.html.index(end, start)])


def see(site: Served, path: str, who: str = "viewer") -> Page:
    reply = site.ask(path, who=who, Accept="text/html")
    assert reply.status == 200, reply.body[:500]
    return Page(reply.body.decode())
