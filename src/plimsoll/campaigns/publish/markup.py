"""The pieces of HTML of which the page of a plan is made. Pure; what is given to them is escaped already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from plimsoll.charts import render


def meter(share: float) -> str:
    kind = "over" if share > 1 + 1e-9 else "full" if share > 0.95 else ""
    return f'<div class="meter"><i class="{kind}" style="width:{min(1.0, share):.1%}"></i></div>'


def section(name: str, title: str, *parts: str) -> str:
    return f'<section id="{name}"><h2><a href="#{name}">{title}</a></h2>{"".join(parts)}</section>'


def scroll(inner: str, *, kind: str = "", label: str) -> str:
    return f'<div class="scroll {kind}" tabindex="0" role="region" aria-label="{escape(label)}">{inner}</div>'


def chart_svg(spec: dict[str, Any]) -> str:
    return render(spec, "svg").decode()


def list_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """A plain table; what is given is HTML already."""

    def cell(tag: str, place: int, text: str) -> str:
        kind = ' class="n"' if place in numbers else ' class="wide"' if tag == "td" and len(text) > 90 else ""
        return f"<{tag}{kind}>{text}</{tag}>"

    top = "".join(cell("th", place, text) for place, text in enumerate(head))
    body = "".join(f"<tr>{''.join(cell('td', place, text) for place, text in enumerate(row))}</tr>" for row in rows)
    return f'<table class="list"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
