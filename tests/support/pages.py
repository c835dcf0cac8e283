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
        self.bare: dict[str, list[list[str]]] = {}
        """The same without what stands small below a name or a number."""
        self._rows, self._bare_rows = list[list[str]](), list[list[str]]()
        self._caption, self._text, self._bare_text = "", list[str](), list[str]()
        self._spans_below = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._rows, self._bare_rows, self._caption = [], [], ""
        elif tag == "tr":
            self._rows.append([])
            self._bare_rows.append([])
        elif tag == "span" and (self._spans_below or "under" in (dict(attrs).get("class") or "").split()):
            self._spans_below += 1
        if tag in ("th", "td", "caption"):
            self._text, self._bare_text = [], []

    def handle_endtag(self, tag: str) -> None:
        text = _on_a_line(self._text)
        if tag == "caption":
            self._caption = text
        elif tag in ("th", "td") and self._rows:
            self._rows[-1].append(text)
            self._bare_rows[-1].append(_on_a_line(self._bare_text))
        elif tag == "table":
            self.found[self._caption], self.bare[self._caption] = self._rows, self._bare_rows
        elif tag == "span" and self._spans_below:
            self._spans_below -= 1

    def handle_data(self, data: str) -> None:
        self._text.append(data)
        if not self._spans_below:
            self._bare_text.append(data)


def _on_a_line(texts: list[str]) -> str:
    return " ".join("".join(texts).split())


class Page:
    """A page as somebody sees it."""

    def __init__(self, html: str) -> None:
        self.html = html
        reader = _Tables()
        reader.feed(html)
        self.tables, self._bare = reader.found, reader.bare
        self.text = " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())

    def number(self, key: str) -> str:
        found = re.search(rf'data-number="{key}">([^<]*)<', self.html)
        assert found, f"no number {key}"
        return found[1]

    def rows(self, caption: str) -> dict[str, list[str]]:
        """The rows of a table by their first cell, without the head."""
        return {row[0]: row[1:] for row in self.tables[caption][1:]}

    def columns(self, caption: str, *heads: str) -> list[list[str]]:
        """Some columns of a table, by their heads: row by row, without what stands small below."""
        head, *rows = self._bare[caption]
        places = [head.index(name) for name in heads]
        return [[row[place] for place in places] for row in rows]

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
