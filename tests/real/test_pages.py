"""Every page in Chromium, of the demo fleet: in light and dark, on a desk and on a phone. Nothing may go wrong in the
console, nothing may reach over the edge or jump, and everybody must be able to read it.

`PLIMSOLL_SHOTS=DIR` leaves a picture of each, to be looked at.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from plimsoll.answers import csv_text
from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.demo.names import PLANNED, PROVISIONING
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.lifecycle.demo import demo_lives, demo_quota
from plimsoll.lifecycle.providers.quota import COLUMNS as QUOTA_COLUMNS
from plimsoll.lifecycle.service import say
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.server.demo import CAMPAIGN, TEAM, set_scene
from plimsoll.server.pages.registry import PAGES
from plimsoll.times import utc_now
from tests.support.browser import DESKTOP, PHONE, Chromium, Scheme, Window, chromium
from tests.support.served import serving

pytestmark = pytest.mark.xdist_group("chromium")

WHO = "root@example.org"
SHOTS = os.environ.get("PLIMSOLL_SHOTS", "")
CLUSTERS = {"tiger", "lemur", "barnacle", "tapir", "otter", "salmon", "rabbit", "swan", "bobcat", PLANNED, PROVISIONING}
TABLES_BESIDE = """
() => [...document.querySelectorAll("main a[href*='format=csv']")].map((link) => {
  const inRow = link.closest("tr"), limit = link.closest("section, article, figure, main");
  let place = link.parentElement;
  while (place !== limit && !place.querySelector("table")) place = place.parentElement;
  // What stands in a section of its own has its own file.
  const isOf = (table) => table.closest("section, article, figure, main") === limit;
  const table = inRow ? undefined : [...place.querySelectorAll("table.table")].find(isOf);
  const rows = table ? [...table.tBodies[0].rows].filter((row) => !row.querySelector(".none")).slice(0, 5) : [];
  const name = (cell) => {
    const time = cell.querySelector(":scope > time"), inner = cell.querySelector("a, code") ?? cell;
    if (time) return time.dateTime.slice(0, 16);
    const text = [...inner.childNodes].find((node) => node.textContent.trim()).textContent.trim();
    return /^[\\d.]+ (h|days)$/.test(text) ? "" : text;
  };
  const numbers = (row) => [...row.querySelectorAll("td.n")]
    .map((cell) => (cell.firstChild?.textContent ?? "").trim().replaceAll(",", ""))
    .filter((text) => /^\\d{2,}$/.test(text));
  return { href: link.getAttribute("href"), rows: rows.map((row) => [name(row.cells[0]), numbers(row)]) };
})
"""
"""Of every link to a file: the table that stands beside it, by the first of each row and by its numbers."""
SHIFT_MAX = 0.1
"""What Chromium's makers call good."""
NAMES = {
    "cluster": "tiger",
    "team": TEAM,
    "workload": "posttrain-42",
    "request_id": "q1",
    "campaign": CAMPAIGN,
    "step": "checkin",
    "node": "tiger-0001",
    "incident": "power",
}
"""What stands for the names in a page's path."""
ADDRESSES = {
    "/why": f"/why?q={TEAM}",
    "/campaigns/{campaign}/compare": f"/campaigns/{CAMPAIGN}/compare?left=1&right=1",
    "/lifecycle/{cluster}": f"/lifecycle/{PROVISIONING}",
    "/lifecycle/{cluster}/log/{step}": f"/lifecycle/{PROVISIONING}/log/checkin",
}
"""Where that is not all."""
OTHERS = {
    "/?over=yes": 200,
    "/why": 200,
    "/lifecycle/tiger": 200,
    "/nothing-here": 404,
    "/clusters/nothing-here": 404,
    "/signin": 200,
}
WANT = {ADDRESSES.get(page.path, page.path.format_map(NAMES)): 200 for page in PAGES} | OTHERS


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A part of the demo as it is served, with an incident and a cluster being made; all of it for pictures."""
    folder = tmp_path_factory.mktemp("pages")
    dsn = f"sqlite:///{folder}/plimsoll.db"
    rows = demo_fleet(seed=1, until=utc_now() - timedelta(hours=1))
    if not SHOTS:
        rows = {name: [head, *(row for row in body if _is_kept(head, row))] for name, (head, *body) in rows.items()}
    sheets = {name: MemorySheet(name, cells) for name, cells in rows.items()}
    with open_keeper(dsn, create=True) as keeper:
        import_fleet(keeper, Source("demo", "0" * 64, sheets), SHEETS, actor=WHO)
        say(keeper, lambda state, now: (None, demo_lives(state, now)), actor=WHO)
        quota = csv_text([QUOTA_COLUMNS, *demo_quota(keeper.state())])
        (folder / "quota.csv").write_text(f"{quota}\n", encoding="utf-8")
        set_scene(keeper)
        with at(Desk(keeper, WHO, dsn)):
            command("incident open").done(title="power work in gulf-2", cluster=["tiger"], identity="power")
            command("incident run").done()
            command("cluster run").done(names=[PROVISIONING])
    return dsn


def _is_kept(head: Sequence[str], row: Sequence[str]) -> bool:
    """Whether a row is of the clusters that are quick to load. Nodes are named by their cluster."""
    if "cluster" in head:
        return row[head.index("cluster")] in CLUSTERS
    return row[head.index("node")].rpartition("-")[0] in CLUSTERS


@pytest.fixture(scope="module")
def browser(scene: str) -> Iterator[Chromium]:
    with serving(scene) as served, chromium(served) as found:
        yield found


@pytest.fixture(scope="module")
def desk(browser: Chromium) -> Iterator[Window]:
    with browser.window(WHO, scheme="light", size=DESKTOP) as window:
        yield window


@pytest.fixture(scope="module")
def phone(browser: Chromium) -> Iterator[Window]:
    with browser.window(WHO, scheme="dark", size=PHONE) as window:
        yield window


@pytest.mark.parametrize("path", WANT)
def test_a_page_on_a_desk(desk: Window, path: str) -> None:
    desk.troubles.clear()
    desk.go(path, WANT[path])
    _check_head(desk)
    _check_look(desk, path, ("light", "dark"))
    _check_csv(desk)
    desk.check()


@pytest.mark.parametrize("path", WANT)
def test_a_page_on_a_phone(phone: Window, path: str) -> None:
    phone.troubles.clear()
    phone.go(path, WANT[path])
    _check_look(phone, path, ("dark", "light") if SHOTS else ("dark",))  # colours are the same on every size
    phone.check()


def _check_head(window: Window) -> None:
    """One heading, a name, a language, the time of what is shown, and a way past the navigation."""
    page = window.page
    assert page.locator("h1").count() == 1
    assert " -o json" not in page.inner_text("main"), "what is meant for a terminal"
    assert page.title().endswith("Plimsoll")
    assert len(page.title()) > len("Plimsoll") or "/signin" in page.url
    assert page.get_attribute("html", "lang") == "en"
    if WANT.get(page.url.removeprefix(window.url)) == 200 and "/signin" not in page.url:
        assert page.locator(".stamp time").first.get_attribute("datetime")
        assert page.locator("header form[action='/why'] #why-box").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def _check_look(window: Window, path: str, schemes: tuple[Scheme, ...]) -> None:
    """All of it comes, nothing jumps or reaches over the edge, everybody can read it, in every scheme."""
    window.scroll_through()
    total, where = window.shifted()
    for scheme in reversed(schemes):
        window.page.emulate_media(color_scheme=scheme)
        window.settle()
        _shoot(window, path, scheme)
        if window.page.viewport_size == {"width": DESKTOP[0], "height": DESKTOP[1]}:
            assert window.unreachable(only=["color-contrast"]) == []  # slow, and the same on a phone
    assert window.unreachable(leave_out=["color-contrast"]) == []
    assert window.wider() == []
    assert total < SHIFT_MAX, "\n".join(where)


def _check_csv(window: Window) -> None:
    """Whoever takes the file beside a table gets that table: its rows are there, with most of their numbers."""
    for link in window.page.evaluate(TABLES_BESIDE):
        answer = window.page.request.get(f"{window.url}{link['href']}")
        assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/csv"), link
        _head, *lines = [[_plain(cell) for cell in line] for line in csv.reader(io.StringIO(answer.text()))]
        assert len(lines) >= len(link["rows"]), link
        for name, numbers in link["rows"]:
            same = [line for line in lines if any(_plain(name) in cell for cell in line)]
            assert same, (link["href"], name, lines[:3])
            cells = {_whole(cell) for line in same for cell in line}
            missing = [each for each in numbers if each not in cells]
            assert 2 * len(missing) <= len(numbers), (link["href"], name, missing, same[:3])


def _whole(text: str) -> str:
    """A number as a page shows it: rounded."""
    return f"{float(text):.0f}" if re.fullmatch(r"\d+\.\d+", text) else text


def _plain(text: str) -> str:
    return text.casefold().replace("_", " ")


def _shoot(window: Window, path: str, scheme: Scheme) -> None:
    if SHOTS:
        name = re.sub(r"[^a-z0-9]+", "-", path).strip("-") or "fleet"
        size = "desk" if window.page.evaluate("innerWidth") > 600 else "phone"
        window.shoot(Path(SHOTS) / f"{name}-{size}-{scheme}.png")
