"""A page of the past leads to the same past: its links, its parts and its searches keep the moment that is shown.

Done once, on what was rendered, so that no template can forget it; what leads out says so with `data-now`. Pure: HTML
in, HTML out. Whatever is shown was escaped, so that `href="/` stands only where a template wrote it.
"""

from __future__ import annotations

import re
from urllib.parse import urlencode

from markupsafe import escape

_LINK = re.compile(r'(?<!data-now )\b(href|data-href|data-include)="([/?][^"]*)"')
_SEARCH = re.compile(r'(<form\b[^>]*\bmethod="get"[^>]*>)(.*?</form>)', re.DOTALL)
_NOW = ("/api/", "/static/", "/account", "/signin", "/signout")
"""What has no past, or says its own."""


def keep_past(html: str, as_of: str) -> str:
    """The page with links that stay at `as_of`."""
    query = escape(urlencode({"as_of": as_of}))

    def link(match: re.Match[str]) -> str:
        name, target = match.groups()
        if target.startswith(_NOW) or "as_of=" in target:
            return match[0]
        address, hash_sign, place = target.partition("#")
        joint = "&amp;" if "?" in address and not address.endswith("?") else "" if "?" in address else "?"
        return f'{name}="{address}{joint}{query}{hash_sign}{place}"'

    def search(match: re.Match[str]) -> str:
        begin, rest = match.groups()
        if 'name="as_of"' in rest or 'action="/api/' in begin:
            return match[0]
        return f'{begin}<input type="hidden" name="as_of" value="{escape(as_of)}">{rest}'

    return _SEARCH.sub(search, _LINK.sub(link, html))
