"""What only a browser can see, in Chromium: the colours of a map and of a hull, what is written in charts, that parts
of other pages follow; and that the checks of all pages find what they look for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import CONTRAST, Chromium, Scheme, Window, chromium
from tests.support.served import Served, make_people, serving, small_book

pytestmark = pytest.mark.xdist_group("chromium")

OPERATOR = "operator@example.org"
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WORK = """\
workload: busy
team: posttraining
where: {cluster: tiger, sku: H200}
parts: [{name: train, kind: gang, gpus: 16, tier: critical, rank: 1}]
"""
HELD = {"t9": "repair", "t10": "quarantined", "t11": "maintenance", "t12": "draining"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """Of the 12 nodes of tiger the last four are held, each in its own way, and the one before them begins to validate.
    Of those that work the last one is degraded; it and the one before it run something."""
    dsn = small_book(Path(tmp_path_factory.mktemp("looks")))
    with serving(dsn, make_people(dsn)) as served:
        for node, service in (*HELD.items(), ("t8", "repair")):
            _post(served, "/holds", {"targets": [node], "id": node, "service": service, "reason": "a test"})
        _post(served, "/holds/t8/release", {})
        _post(served, "/health/signal", {"node": "t7", "kind": "scheduler", "name": "slow", "feed": "slurm"})
        _post(served, "/workloads", {"files": WORK}, who="admin")
        with chromium(served) as found:
            yield found


def _post(served: Served, path: str, sent: dict[str, object], who: str = "operator") -> None:
    reply = served.post(path, sent, who=who)
    assert reply.status == 200, reply.body


# Colours.

TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

# The colours that words of the style sheet stand for.
COLOURS = """
(names) => {
  const place = document.body.appendChild(document.createElement("i"));
  const found = names.map((name) => { place.style.color = `var(--${name})`; return getComputedStyle(place).color; });
  place.remove();
  return found;
}
"""
# Wherever the pointer finds a node: what colour is there? By node: the share of each colour; "" is none.
LOOK_AT_NODES = """
() => {
  const [canvas, top, tip] = ["canvas", "top", "tip"].map((each) => document.querySelector(`.nodemap-${each}`));
  const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
  const to = copy.getContext("2d", { willReadFrequently: true });
  to.drawImage(canvas, 0, 0);
  const { data } = to.getImageData(0, 0, copy.width, copy.height);
  const bounds = top.getBoundingClientRect(), found = {};
  for (let y = 0; y < copy.height; y += 1) for (let x = 0; x < copy.width; x += 1) {
    const at = { clientX: bounds.left + x, clientY: bounds.top + y, pointerType: "mouse" };
    top.dispatchEvent(new PointerEvent("pointermove", at));
    if (tip.hidden) continue;
    const [red, green, blue, cover] = data.slice(4 * (y * copy.width + x), 4 * (y * copy.width + x + 1));
    const colour = cover === 255 ? `rgb(${red}, ${green}, ${blue})` : "";
    const node = (found[tip.querySelector("a").textContent] ??= {});
    node[colour] = (node[colour] ?? 0) + 1;
  }
  for (const node of Object.values(found)) {
    const count = Object.values(node).reduce((sum, each) => sum + each, 0);
    for (const colour in node) node[colour] /= count;
  }
  return found;
}
"""
FREE, BUSY, RED, GREEN, BROWN = "hull-assigned", "hull-guaranteed", "hull-over", "hull-flex", "warn"
NODES: dict[str, tuple[set[str], str]] = {
    **{f"t{number}": ({FREE}, "full") for number in (1, 2, 3, 4, 5)},
    "t6": ({BUSY}, "full"),
    "t7": ({BUSY, BROWN}, "full"),
    "t8": ({GREEN}, "hollow"),
    "t9": ({RED}, "hollow"),
    "t10": ({RED}, "full"),
    "t11": ({BROWN}, "half"),
    "t12": ({GREEN}, "half"),
}
"""By node: its colours, and how much of its square they fill."""


def test_each_node_has_the_colours_of_its_service(browser: Chromium) -> None:
    """A cell is 20 wide, and the square in it 18: 81 % of it. A frame that is two wide is 32 %, bars of two are 45 %,
    and a frame with its lower half filled is 57 %."""
    names = sorted(set().union(*(colours for colours, _ in NODES.values())))
    with browser.window(OPERATOR) as window:
        window.go("/clusters/tiger").scroll_through()
        for scheme in SCHEMES:
            _change(window, scheme)
            words = dict(zip(window.page.evaluate(COLOURS, names), names, strict=True))
            assert len(words) == len(names), "two of them are the same"
            seen = {}
            for node, shares in window.page.evaluate(LOOK_AT_NODES).items():
                filled = 1 - shares.pop("")
                # Where two lines meet a few places are of neither colour.
                colours = {words.get(colour, colour) for colour, share in shares.items() if share > 0.06}
                seen[node] = (colours, "hollow" if filled < 0.4 else "half" if filled < 0.65 else "full")
            assert seen == NODES, scheme


HULL = {"guaranteed": BUSY, "assigned": FREE, "never": RED, "inside": "hull-inside"}
"""Parts of a hull, each with the word of the style sheet for its colour."""
FILLS = """
(part) => [...new Set([...document.querySelectorAll(`rect.h-${part}`)].map((each) => getComputedStyle(each).fill))]
"""


def test_each_part_of_a_hull_has_its_colour_in_the_legend_and_in_the_picture(browser: Chromium) -> None:
    with browser.window(OPERATOR) as window:
        window.go("/")
        assert window.page.locator(".hull-large rect.h-never").count() == 1
        for scheme in SCHEMES:
            _change(window, scheme)
            want = window.page.evaluate(COLOURS, list(HULL.values()))
            assert [window.page.evaluate(FILLS, part) for part in HULL] == [[colour] for colour in want], scheme


# Both charts are drawn: an axis has its numbers, and the other one its days.
ARE_WRITTEN = """
() => {
  const drawn = [...document.querySelectorAll(".chart canvas")];
  return drawn.length === 2 && drawn.every((canvas) => window.written.get(canvas)?.size >= 6);
}
"""


def test_what_is_written_in_charts_can_be_read(browser: Chromium) -> None:
    with browser.window(OPERATOR) as window:
        window.go("/health/levels").scroll_through()
        for scheme in SCHEMES:
            _change(window, scheme)
            window.page.wait_for_function(ARE_WRITTEN)
            assert window.unreachable(only=[CONTRAST]) == [], scheme


def _change(window: Window, scheme: Scheme) -> None:
    """The page learns of it before its next frame."""
    window.page.emulate_media(color_scheme=scheme)
    window.page.evaluate(TWO_FRAMES)


# Parts of other pages.

AGAIN_SECONDS = 60
WHAT_CHANGED = ".changes-place"


def test_a_part_of_another_page_follows_once_a_minute_unless_it_is_paused_or_past(browser: Chromium) -> None:
    with browser.window(OPERATOR) as window:
        asked: list[str] = []
        window.page.on("request", lambda request: asked.append(request.url) if "days=7" in request.url else None)
        window.page.clock.install()
        window.go("/").see(WHAT_CHANGED, "Nobody applied a correction")
        _post(browser.served, "/incidents", {"title": "a leak", "id": "leak"})
        window.see("[data-live='incidents']", "a leak")
        _wait(window, AGAIN_SECONDS - 20)
        assert len(asked) == 1
        _wait(window, 20)
        window.see(WHAT_CHANGED, "incident opened: leak")
        assert len(asked) == 2

        window.see(".stamp summary").click()
        window.see("button", "Pause").click()
        _wait(window, 2 * AGAIN_SECONDS)
        assert len(asked) == 2
        window.see("button", "Go on").click()
        _wait(window, AGAIN_SECONDS)
        assert len(asked) == 3

        window.go("/?as_of=2026-02-01").see(WHAT_CHANGED, "Nobody applied a correction")
        _wait(window, 2 * AGAIN_SECONDS)
        assert len(asked) == 4


def _wait(window: Window, seconds: int) -> None:
    """So much time goes by at once; a timer that is due goes off once."""
    window.page.clock.fast_forward(1_000 * seconds)
    window.settle()


# The checks of all pages: each finds what is wrong on a page that was made for it, and nothing on one that is right.

PAGE = "<!doctype html><html lang='en'><title>A page</title><body><main><h1>A page</h1><h4>Far below</h4>{}</main>"
WIDE = "<p style='width: 3000px'>wide</p>"
SCROLLS = f"<div class='table-wrap' tabindex='0' style='overflow: auto'>{WIDE}</div>"
PALE = """<canvas></canvas><script>
  const to = document.querySelector("canvas").getContext("2d");
  to.fillText("dark", 9, 9);
  to.fillStyle = "#bbb";
  to.fillText("pale", 9, 29);
</script>"""
JUMPS = """<p style="height: 400px; background: #eee">Many words</p><script>
  setTimeout(() => {{ document.querySelector("h1").style.marginTop = "{}px"; }}, 100);
</script>"""
SHIFT_MAX = 0.1
"""As on every page of ours."""

# What stands on the page, and how each of the findings about it begins, all checks together.
CHECKS: dict[str, tuple[str, list[str]]] = {
    "a page with small faults only, on which something scrolls by itself": (SCROLLS, []),
    "a picture without words": ("<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>", ["image-alt: "]),
    "a link without a name": ("<a href='/'></a>", ["link-name: "]),
    "pale words": ("<p style='color: #bbb'>pale</p>", ["color-contrast: "]),
    "pale words on a canvas": (PALE, ["on a canvas: pale: #bbbbbb, a contrast of 1.9"]),
    "what is wider than the page": (SCROLLS + WIDE, ["3008 px of 1280", "P. 3008 px"]),
    "what goes to another place": (JUMPS.format(400), ["0."]),
    "what goes a little": (JUMPS.format(30), []),
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_checks_of_all_pages_find_what_is_wrong_and_nothing_else(browser: Chromium, name: str) -> None:
    body, want = CHECKS[name]
    with browser.window("") as window:
        _open(window, body)
        window.page.wait_for_timeout(250)
        total, where = window.shifted()
        found = [*window.unreachable(), *window.wider(), *(where[:1] if total > SHIFT_MAX else [])]
    assert len(found) == len(want), found
    assert all(each.startswith(begin) for each, begin in zip(found, want, strict=True)), found


TROUBLES = {
    "a script that fails": ("<script>throw new Error('bang')</script>", "a script failed: bang"),
    "an error in the console": ("<script>console.error('bang')</script>", "the console says: bang"),
    "a warning in the console": ("<script>console.warn('bang')</script>", "the console says: bang"),
    "what is refused": ("<img alt='' src='/nothing-here'>", "/nothing-here answered 404"),
    "what can't be had": ("<img alt='' src='http://127.0.0.1:9/'>", "http://127.0.0.1:9/ failed: net::"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_window_remembers_what_went_wrong(browser: Chromium, name: str) -> None:
    body, want = TROUBLES[name]
    with browser.window("") as window:
        _open(window, body)
        window.settle()
        with pytest.raises(AssertionError, match=re.escape(want)):
            window.check()
        window.troubles.clear()


def _open(window: Window, body: str) -> None:
    """A page of ours that has this on it."""
    window.page.route("**/made", lambda route: route.fulfill(body=PAGE.format(body), content_type="text/html"))
    window.page.goto(f"{window.url}/made")
