"""Files that pages need: our style and scripts, and the script that draws charts, made once from vl-convert."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from plimsoll.errors import NotFound
from plimsoll.server.guard import Visitor

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
CHARTS = "vega.js"


class Static:
    """The files, read once; each with a tag, so that a browser asks and gets nothing when nothing changed."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for path in sorted(FOLDER.iterdir()):
            if path.suffix in TYPES:
                self._take(path.name, path.read_bytes())
        self._making = asyncio.Lock()

    def _take(self, name: str, body: bytes) -> None:
        tag = f'"{hashlib.blake2b(body, digest_size=9).hexdigest()}"'
        self._files[name] = (body, tag, TYPES[Path(name).suffix])

    async def respond(self, request: Request, visitor: Visitor) -> Response:
        """One file. They hold nothing that is anybody's, and so need no sign-in."""
        name = request.url.path.removeprefix("/static/")
        if name == CHARTS and name not in self._files:
            async with self._making:
                if name not in self._files:
                    self._take(name, await asyncio.to_thread(chart_script))
        if name not in self._files:
            raise NotFound("no_such_file", f"there is no file {name[:100]!r}", next_step="GET /")
        body, tag, kind = self._files[name]
        headers = {"etag": tag, "cache-control": "public, max-age=60, stale-while-revalidate=600", "content-type": kind}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, 200, headers)


def chart_script() -> bytes:
    """Vega-Lite for the browser, with the interpreter that a strict CSP needs; kept on disk, as it takes a second."""
    import vl_convert

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plimsoll"
    file = cache / f"vega-{version('vl-convert-python')}.js"
    try:
        return file.read_bytes()
    except OSError:
        pass
    body = vl_convert.javascript_bundle().encode()  # type: ignore[call-arg]  # its stub lacks the default
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as made:
            made.write(body)
        os.replace(made.name, file)
    except OSError:  # a home that can't be written: it is made again next time
        pass
    return body
