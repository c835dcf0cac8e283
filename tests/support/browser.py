"""Debian's Chromium, and windows in it that remember everything that went wrong: what the console said, scripts that
failed, requests that were refused. Whoever looks through one is a person who signed in by a one-time link."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, Response, sync_playwright

from plimsoll.access import service
from plimsoll.commands.access import LINK_PATH
from plimsoll.rooms import open_keeper
from tests.support.parts import missing_part
from tests.support.served import Served

Scheme = Literal["light", "dark"]
DESKTOP, PHONE = (1280, 800), (390, 844)
"""Widths and heights of a window."""
LINK_MINUTES = 300
"""Longer than a test sets the clock of a server forward."""
SETTLE_SECONDS_MAX = 40.0
QUIET_MILLISECONDS = 50
STREAM = "/api/v1/changes"
"""Never ends while a page is open, and ends with it."""

# Shifts are added up from the first one on; Chromium marks those that follow a click or a key.
WATCH_SHIFTS = """
window.shifted = 0; window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) {
    window.shifted += entry.value;
    for (const source of entry.sources) {
      const at = source.node?.nodeType === 1 ? source.node : source.node?.parentElement;
      if (at) window.shifts.push(`${entry.value.toFixed(3)} ${at.tagName}.${at.className} #${at.id}`);
    }
  }
}).observe({ type: "layout-shift", buffered: true });
"""
# The next screen: two frames long, and until what is near it is drawn.
SCROLL = """
async (to) => {
  const frame = () => new Promise(requestAnimationFrame);
  const isNear = (place) => place.offsetParent !== null && place.dataset.drawn !== "yes"
      && place.getBoundingClientRect().top < innerHeight + 200 && place.getBoundingClientRect().bottom > -200;
  scrollTo(0, to);
  await frame(), await frame();
  const drawings = () => [...document.querySelectorAll("[data-chart], [data-nodemap]")];
  const end = performance.now() + 20000;
  while (drawings().some(isNear) && performance.now() < end) await frame();
  return document.scrollingElement.scrollHeight;
}
"""
# Everything that waits for being near the view is there, or its words.
ALL_DRAWN = """
() => [...document.querySelectorAll("[data-chart], [data-nodemap]")].every(
        (place) => place.offsetParent === null || place.dataset.drawn === "yes")
    && document.querySelector("[aria-busy=true]") === null
"""
WIDER = """
() => {
  const most = document.scrollingElement.clientWidth + 1, found = [];
  if (document.scrollingElement.scrollWidth <= most) return found;
  for (const element of document.body.querySelectorAll("*")) {
    const scrolls = element.closest(".table-wrap, .grid-wrap, pre");
    if (element.getBoundingClientRect().right > most && (!scrolls || scrolls === element)) {
      found.push(`${element.tagName}.${element.className} ${Math.round(element.getBoundingClientRect().right)} px`);
    }
  }
  return [`${document.scrollingElement.scrollWidth} px of ${most - 1}`, ...found.slice(0, 4)];
}
"""
CONTRAST = "color-contrast"
# What was written on each canvas, as it was written last: axe does not look into pictures.
WATCH_TEXTS = """
window.written = new WeakMap();
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  if (!window.written.has(this.canvas)) window.written.set(this.canvas, new Map());
  window.written.get(this.canvas).set(String(text), this.fillStyle);
  return write.call(this, text, ...rest);
};
"""
# Words on canvases with less contrast than axe wants of other words.
FAINT = """
() => {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = (colour) => {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = colour;
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => {
    const [red, green, blue] = parts(colour).map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    if (parts(colour)[3] === 255) return colour;
    return element.parentElement ? ground(element.parentElement) : "white";
  };
  const found = [];
  for (const canvas of document.querySelectorAll("canvas")) {
    const under = light(ground(canvas));
    for (const [text, colour] of window.written.get(canvas) ?? []) {
      const over = light(colour);
      const contrast = (Math.max(over, under) + 0.05) / (Math.min(over, under) + 0.05);
      if (contrast < 4.5) found.push(`on a canvas: ${text}: ${colour}, a contrast of ${contrast.toFixed(1)}`);
    }
  }
  return found;
}
"""
AXE = Axe().axe_script
RUN_AXE = """
async ([only, without]) => (await axe.run(document, {
  resultTypes: ["violations"],
  ...(only.length ? { runOnly: only } : {}),
  rules: Object.fromEntries(without.map((rule) => [rule, { enabled: false }])),
})).violations.filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => `${each.id}: ${each.help}: ` + each.nodes.slice(0, 3).map(
      (node) => `${node.html.slice(0, 160)} (${node.any[0]?.message ?? ""})`).join(" | "))
"""


class Window:
    """A page that one person looks at."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.troubles: list[str] = []
        self._pending: set[Request] = set()
        page.set_default_timeout(20_000)
        page.add_init_script(WATCH_SHIFTS)
        page.add_init_script(WATCH_TEXTS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.troubles.append(f"a script failed: {error}"))
        page.on("request", self._on_request)
        page.on("requestfinished", self._on_finished)
        page.on("requestfailed", self._on_failed)
        page.on("response", self._on_response)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"the console says: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Request) -> None:
        if STREAM not in request.url:
            self._pending.add(request)

    def _on_finished(self, request: Request) -> None:
        self._pending.discard(request)

    def _on_failed(self, request: Request) -> None:
        self._pending.discard(request)
        # What is still asked for when somebody leaves a page is given up; that is no failure.
        if request.failure != "net::ERR_ABORTED":
            self.troubles.append(f"{request.url} failed: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.troubles.append(f"{response.url} answered {response.status}")

    def go(self, path: str, want_status: int = 200) -> Window:
        """Open a page of ours and wait until it is all there."""
        answer = self.page.goto(f"{self.url}{path}")
        assert answer is not None
        assert answer.status == want_status, f"{path}: {answer.status}\n{self.page.inner_text('body')}"
        assert self.page.url == f"{self.url}{path}", f"{path} led to {self.page.url}"
        if want_status >= 400:
            self.forgive(f"{answer.url} answered", "Failed to load resource")
        return self.settle()

    def settle(self) -> Window:
        """Wait until nothing is asked for any more."""
        end = time.monotonic() + SETTLE_SECONDS_MAX
        quiet = 0
        while quiet < 2:
            self.page.wait_for_timeout(QUIET_MILLISECONDS)
            quiet = 0 if self._pending else quiet + 1
            assert time.monotonic() < end, f"still asked for: {[request.url for request in self._pending]}"
        return self

    def scroll_through(self) -> Window:
        """Look at all of it, as a reader would: what waits for being near the view comes."""
        screen = (self.page.viewport_size["height"] if self.page.viewport_size else 800) - 100
        place, height = 0, 1
        while place < min(height, 30 * screen):
            height = self.page.evaluate(SCROLL, place)
            if self._pending:
                self.settle()
            place += screen
        self.page.wait_for_function(ALL_DRAWN)
        self.page.evaluate("scrollTo(0, 0)")
        return self.settle()

    def forgive(self, *starts: str) -> None:
        """Drop the troubles that a test has made on purpose."""
        self.troubles = [each for each in self.troubles if not any(start in each for start in starts)]

    def check(self) -> None:
        """Nothing went wrong until now."""
        assert self.troubles == [], "\n".join(self.troubles)

    # What a reader looks at and types.

    def text(self, selector: str) -> str:
        """The words of one element, on one line."""
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def number(self, key: str) -> int:
        """A number of the page's head, by its key."""
        return int(re.sub(r"[^0-9-]", "", self.text(f"[data-number='{key}']").replace("−", "-")))

    def see(self, selector: str, text: str = "", seconds: float = 20.0) -> Locator:
        """Wait until something is there to be seen."""
        found = self.page.locator(selector).filter(has_text=text).filter(visible=True).first
        found.wait_for(timeout=seconds * 1_000)
        return found

    def wait_number(self, key: str, want: int, seconds: float = 20.0) -> None:
        """Without a reload a number of the page becomes this."""
        self.page.wait_for_function(
            "([key, want]) =>"
            " document.querySelector(`[data-number='${key}']`)?.textContent.replace(/\\D/g, '') === want",
            arg=[key, str(want)],
            timeout=seconds * 1_000,
        )

    def wait_live(self, dot: str, says: str) -> None:
        """The mark at the top, and what it says when it is opened."""
        self.page.wait_for_function(
            """([dot, says]) => document.querySelector("[data-live-dot]").classList.contains(dot)
                && document.querySelector("[data-live-says]").textContent.startsWith(says)""",
            arg=[dot, says],
        )

    def act(self, form: Locator, button: str, confirm: str = "") -> str:
        """Press a button of a form and, where it only asks what would happen, the one that does it. What it said."""
        form.get_by_role("button", name=button, exact=True).click()
        if confirm:
            form.get_by_role("button", name=confirm, exact=True).click(timeout=60_000)
        self.page.wait_for_function(
            "(form) => ![...form.querySelectorAll('button')].some((each) => each.disabled)",
            arg=form.element_handle(),
            timeout=90_000,
        )
        self.settle()
        said = form.locator("[data-answer]")
        text = said.inner_text() if said.count() else ""
        assert not form.locator(".bad-text").count(), text
        return text

    # What is judged on every page.

    def shifted(self) -> tuple[float, list[str]]:
        found = self.page.evaluate("[window.shifted, window.shifts]")
        return float(found[0]), list(found[1])

    def wider(self) -> list[str]:
        """What reaches beyond the edge, where the page as a whole can be scrolled sideways."""
        return list(self.page.evaluate(WIDER))

    def unreachable(self, *, only: Sequence[str] = (), leave_out: Sequence[str] = ()) -> list[str]:
        """Serious and critical findings of axe: by all its rules, by some only, or by all but some. With its rule about
        contrast goes what is written in charts and maps."""
        self.page.evaluate(AXE)
        found = list(self.page.evaluate(RUN_AXE, [list(only), list(leave_out)]))
        if CONTRAST in only or not (only or CONTRAST in leave_out):
            found += self.page.evaluate(FAINT)
        return found

    def shoot(self, path: Path) -> None:
        self.page.screenshot(path=path, full_page=True)


class Chromium:
    """A browser, and whoever has signed in with it."""

    def __init__(self, browser: Browser, served: Served) -> None:
        self.browser, self.served = browser, served
        self._signed_in: dict[str, Any] = {}

    def context(
        self, person: str, *, scheme: Scheme = "light", size: tuple[int, int] = DESKTOP, **more: Any
    ) -> BrowserContext:
        """A new profile. Somebody who has signed in before is signed in; nobody ("") is not."""
        width, height = size
        state = self._signed_in.get(person)
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            storage_state=state,
            has_touch=size == PHONE,
            **more,
        )
        if person and state is None:
            page = context.new_page()
            answer = page.goto(f"{self.served.url}{LINK_PATH}{self.link(person)}")
            assert answer is not None
            assert context.cookies(), f"{person} was not let in: {answer.status}"
            page.close()
            self._signed_in[person] = context.storage_state()
        return context

    def link(self, person: str) -> str:
        """The secret of a link that signs somebody in once."""
        with open_keeper(self.served.house.settings.dsn) as keeper:
            secret, _ = service.make_link(keeper, person, LINK_MINUTES, actor="tester", reason="a test")
            return secret

    @contextmanager
    def window(self, person: str, **more: Any) -> Iterator[Window]:
        """A window of a person's until the block ends; nothing may have gone wrong in it."""
        context = self.context(person, **more)
        window = Window(context.new_page(), self.served.url)
        try:
            yield window
            window.check()
        finally:
            context.close()


@contextmanager
def chromium(served: Served) -> Iterator[Chromium]:
    """A browser for a server. While it is open this thread has a loop of its own: no `asyncio.run` beside it."""
    program = shutil.which("chromium")
    if program is None:
        missing_part("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield Chromium(browser, served)
        finally:
            browser.close()
