"""Pages of the demo fleet in Chromium: what the first one weighs, when the map of all nodes answers, and whether it
stays smooth under a mouse.

The server is a process of its own. Each measurement is in a new profile, with nothing in its cache; the server has
answered once before, as it has for whoever comes second.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from bench.figures import Figure
from bench.serving import NODES_MIN, Place, served

BYTES_MAX = 300_000
CHART_SCRIPT = "/static/vega.js"
MAP_SECONDS_MAX = 1.0
STALL_SECONDS_MAX = 0.1
ROUNDS = 5
MOVES = 120
SIZE = {"width": 1280, "height": 800}
# As soon as the map is drawn a pointer is moved over it; it answers when it tells of the node that is there.
ANSWERS = """
window.answered = 0;
const look = () => {
  const map = document.querySelector("[data-nodemap][data-drawn=yes]");
  const top = map?.querySelector(".nodemap-top");
  if (top) {
    const box = top.getBoundingClientRect();
    for (let x = 4; x < box.width && map.querySelector(".nodemap-tip").hidden; x += 6) {
      for (let y = 24; y < 120 && map.querySelector(".nodemap-tip").hidden; y += 6) {
        const place = { clientX: box.left + x, clientY: box.top + y, pointerType: "mouse" };
        top.dispatchEvent(new PointerEvent("pointermove", place));
      }
    }
    if (!map.querySelector(".nodemap-tip").hidden) {
      window.answered = performance.now();
      return;
    }
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
WATCH = """
() => {
  window.tasks = []; window.frames = [];
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) window.tasks.push(entry.duration); })
    .observe({ type: "longtask" });
  let before = performance.now();
  const frame = (now) => { window.frames.push(now - before); before = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}
"""


class _Opened(NamedTuple):
    """When a page with a map was there, and when its map answered, in seconds from the navigation on."""

    loaded: float
    answered: float


def measure() -> list[Figure]:
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            return [_weight(browser, place), _map(browser, place), _smooth(browser, place)]
        finally:
            browser.close()


def _context(browser: Browser, place: Place) -> BrowserContext:
    return browser.new_context(viewport=SIZE, extra_http_headers={"Authorization": f"Bearer {place.token}"})  # type: ignore[arg-type]


def _open(page: Page, place: Place, path: str) -> None:
    answer = page.goto(f"http://127.0.0.1:{place.port}{path}")
    assert answer is not None
    assert answer.status == 200, answer.status


def _weight(browser: Browser, place: Place) -> Figure:
    """Everything that comes over the wire for the first page of a new visitor, heads included."""
    context = _context(browser, place)
    page = context.new_page()
    session = context.new_cdp_session(page)
    urls: dict[str, str] = {}
    sizes: dict[str, float] = {}

    def on_request(event: dict[str, Any]) -> None:
        urls[event["requestId"]] = event["request"]["url"]

    def on_end(event: dict[str, Any]) -> None:
        sizes[urls.get(event["requestId"], "")] = event["encodedDataLength"]

    session.send("Network.enable")
    session.on("Network.requestWillBeSent", on_request)
    session.on("Network.loadingFinished", on_end)
    _open(page, place, "/")
    page.evaluate("scrollTo(0, document.scrollingElement.scrollHeight)")
    page.wait_for_timeout(2_000)
    context.close()
    chart = sum(size for url, size in sizes.items() if url.endswith(CHART_SCRIPT))
    rest = sum(sizes.values()) - chart
    return Figure(
        "the first page",
        f"{len(sizes)} requests, scrolled to its end",
        f"{rest / 1000:,.0f} KB",
        f"{chart / 1000:,.0f} KB the chart script, which comes later" if chart else "no chart script",
        "-",
        f"at most {BYTES_MAX / 1000:g} KB",
        rest <= BYTES_MAX,
    )


def _opened(browser: Browser, place: Place) -> _Opened:
    context = _context(browser, place)
    page = context.new_page()
    page.add_init_script(ANSWERS)
    _open(page, place, "/map")
    page.wait_for_function("() => window.answered > 0")
    loaded, answered = page.evaluate(
        "[performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd, window.answered]"
    )
    context.close()
    return _Opened(loaded / 1000, answered / 1000)


def _map(browser: Browser, place: Place) -> Figure:
    _opened(browser, place)
    found = [_opened(browser, place) for _ in range(ROUNDS)]
    loaded = statistics.median(each.loaded for each in found)
    answered = statistics.median(each.answered for each in found)
    count = _node_count(place)
    return Figure(
        "the map of all nodes answers a pointer",
        f"{count:,} nodes, median of {ROUNDS}",
        f"{answered * 1000:.0f} ms from the navigation on",
        f"{loaded * 1000:.0f} ms the page without its map",
        f"{answered / loaded:.1f}x",
        f"at most {MAP_SECONDS_MAX * 1000:g} ms, at least {NODES_MIN:,} nodes",
        answered <= MAP_SECONDS_MAX and count >= NODES_MIN,
    )


def _node_count(place: Place) -> int:
    return len(json.loads(place.get("/api/v1/fleet/map"))["nodes"]["node"])


def _smooth(browser: Browser, place: Place) -> Figure:
    """A mouse that moves over the map while it is scrolled."""
    context = _context(browser, place)
    page = context.new_page()
    _open(page, place, "/map")
    page.wait_for_selector("[data-nodemap][data-drawn=yes]")
    page.evaluate(WATCH)
    for number in range(MOVES):
        page.mouse.move(40 + (number * 37) % 1_200, 250 + (number * 53) % 500)
        if number % 4 == 3:
            page.mouse.wheel(0, 120 if number < MOVES / 2 else -120)
    page.wait_for_timeout(200)
    tasks, frames = page.evaluate("[window.tasks, window.frames]")
    context.close()
    longest = max([*tasks, 0.0]) / 1000
    return Figure(
        "the map under a mouse, while it is scrolled",
        f"{MOVES} moves, {len(frames)} frames",
        f"{longest * 1000:.0f} ms the longest task" if tasks else "no task of 50 ms or more",
        f"{statistics.median(frames):.0f} ms a frame, {max(frames):.0f} the longest",
        "-",
        f"at most {STALL_SECONDS_MAX * 1000:g} ms",
        longest <= STALL_SECONDS_MAX,
    )
