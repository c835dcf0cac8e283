"""The page, the picture, the table and the post: whole, escaped, true to the plan."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, date, datetime
from html.parser import HTMLParser

import pytest

from plimsoll.campaigns.model import NoFly
from plimsoll.campaigns.publish.changes import changes
from plimsoll.campaigns.publish.chat import make_post, markdown, slack_message
from plimsoll.campaigns.publish.curve import out_curve
from plimsoll.campaigns.publish.grid import make_grid
from plimsoll.campaigns.publish.model import Published
from plimsoll.campaigns.publish.page import page
from plimsoll.campaigns.publish.picture import AREA_COLOURS, calendar_picture, picture
from plimsoll.campaigns.publish.table import COLUMNS, table
from plimsoll.charts import render
from plimsoll.fleet.selector import Scope
from tests.campaigns.publish.plans import batch, cap, plan, publish, unit

NASTY = "<script>alert(1)</script>\"'&"
VOID = {"meta", "br", "img", "link", "hr"}


class Reader(HTMLParser):
    """What is in a page: elements, links, text; refuses what is not closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(key, value or "") for key, value in attrs]
        found = dict(attrs)
        self.links += [value for key in ("href", "src", "xlink:href") if (value := found.get(key))]
        if name := found.get("id"):
            self.ids.add(name)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(key, value or "") for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += f"{data} "


def made(published: Published) -> str:
    found = changes(published.previous, published.plan, called_off=published.called_off)
    return page(published, out_curve(published), make_grid(published, found), found)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    reader.text = " ".join(reader.text.split())
    return reader


def moved() -> Published:
    """Plan 2, in which tiger is two days later, bear is new and wolf is gone."""
    before = plan([batch("tiger", nodes=100), batch("lion", nodes=50), batch("wolf", day=3)])
    batches = [batch("tiger", day=2, nodes=100), batch("lion", nodes=50), batch("bear", day=1)]
    no_fly = (NoFly(Scope(), date(2026, 1, 8), date(2026, 1, 10), "training run"),)
    units = [unit("tiger", nodes=100, no_fly=no_fly), unit("lion", nodes=50, area="eu"), unit("bear"), unit("wolf")]
    return publish(
        batches,
        units=units,
        number=2,
        previous=before,
        teams={"tiger": ("evals", "vision"), "lion": ("vision",)},
        caps=(cap(120),),
        url="https://p.example/nic/",
    )


def test_the_page_says_what_the_plan_says() -> None:
    text = read(made(moved())).text
    for words in (
        "nic-firmware plan 2",
        "154 nodes",
        "in 3 clusters",
        "100 of 120 nodes out",
        "2.0% gap to the best",
        "total 1,000; proved: no plan is below 980; first fit is +20%",
        "What changed since plan 1",
        "2 days later",
        "Mon 5 Jan 11:00–15:00 Wed 7 Jan 11:00–15:00",
        "evals 1 cluster",
        "vision 2 clusters",
    ):
        assert words in text, words


def test_every_batch_and_every_change_is_in_the_calendar() -> None:
    body = made(moved())
    cells = re.findall(r'<div class="b ([^"]*)" title="([^"]*)"', body)
    assert sorted(cells) == [
        ("eu whole", "Mon 5 Jan 11:00–15:00; 50 nodes"),
        ("us whole moved", "Tue 6 Jan 11:00–15:00; 4 nodes; added"),
        ("us whole moved", "Wed 7 Jan 11:00–15:00; 100 nodes; 2 days later"),
    ]
    ghosts = re.findall(r'<div class="was" title="([^"]*)"', body)
    assert sorted(ghosts) == [
        "plan before: Mon 5 Jan 11:00–15:00, 100 nodes",
        "plan before: Thu 8 Jan 11:00–15:00, 4 nodes",
    ]
    assert body.count('class="shut" title="training run"') == 3


def test_what_was_planned_for_later_is_shown_where_it_was() -> None:
    published = publish([batch()], number=2, previous=plan([batch(day=16)]))
    assert made(published).count('class="was"') == 1


def test_the_page_needs_nothing_from_elsewhere() -> None:
    reader = read(made(moved()))
    assert not {"script", "iframe", "img", "link", "object", "form"} & reader.tags
    assert not [key for key, _ in reader.attributes if key.startswith("on")]
    for link in reader.links:
        assert re.fullmatch(r"#[a-z]+|[A-Za-z0-9._~-]+\.(ics|csv|png)", link), link
        assert not link.startswith("#") or link[1:] in reader.ids


def test_a_name_can_never_become_markup() -> None:
    units = [unit(NASTY, cluster=NASTY, no_fly=(NoFly(Scope(), date(2026, 1, 5), date(2026, 1, 9), NASTY),))]
    published = publish([batch(NASTY)], units=units, teams={NASTY: (NASTY,)}, previous=plan([batch(NASTY, day=3)]))
    body = made(published)
    assert "<script" not in body
    assert "alert(1)</" not in body
    text = read(body).text
    assert f"{NASTY} 1 cluster" in text, "as a team"
    assert text.count(NASTY) >= 5, "as a cluster that moved, in the calendar, among the batches"


def test_a_plan_with_nothing_in_it_is_a_page_and_a_picture() -> None:
    before = plan([batch("tiger")])
    for published in (publish([]), publish([], number=2, previous=before, units=[unit()])):
        assert f"plan {published.number}" in read(made(published)).text
        found = changes(published.previous, published.plan)
        grid = make_grid(published, found)
        assert render(picture(published, out_curve(published), grid, found), "png").startswith(b"\x89PNG")
        assert "nothing is planned any more" in markdown(make_post(published, out_curve(published), found))


def test_a_campaign_of_a_year_shows_only_days_with_work() -> None:
    names = [f"c{number:03}" for number in range(150)]
    batches = [batch(name, day=2 * place) for place, name in enumerate(names)]
    assert made(publish(batches)).count('<th scope="col"') == 150


def test_the_picture_has_a_bar_for_each_batch() -> None:
    published = moved()
    grid = make_grid(published, changes(published.previous, published.plan))
    layers = calendar_picture(grid)["layer"]
    bars = next(layer for layer in layers if layer["mark"]["type"] == "bar")["data"]["values"]
    # 11:00 is the window's opening and 15:00 lies 4/9 into it; days are columns from 0.
    assert {(bar["unit"], int(bar["x"]), round((bar["x2"] - bar["x"]) / 0.92, 3)) for bar in bars} == {
        ("tiger", 2, 0.444),
        ("lion", 0, 0.444),
        ("bear", 1, 0.444),
    }
    shades = next(layer for layer in layers if layer["mark"]["type"] == "rect")["data"]["values"]
    assert [(shade["unit"], shade["x"]) for shade in shades] == [("tiger", 3), ("tiger", 4), ("tiger", 5)]
    assert set(AREA_COLOURS) == {"us", "eu", "uk", "other"}


def test_the_picture_is_drawn_on_white() -> None:
    published = moved()
    found = changes(published.previous, published.plan)
    spec = picture(published, out_curve(published), make_grid(published, found), found)
    assert b'fill="#ffffff"' in render(spec, "svg")


def test_the_picture_names_only_the_areas_that_are_in_it() -> None:
    published = publish([batch()], units=[unit(area="uk")])
    found = changes(None, published.plan)
    drawn = render(picture(published, out_curve(published), make_grid(published, found), found), "svg")
    assert AREA_COLOURS["uk"].encode() in drawn
    assert b">uk</text>" in drawn
    assert not [area for area in ("us", "eu", "other") if f">{area}</text>".encode() in drawn]


def test_the_table_has_a_row_for_each_batch() -> None:
    published = moved()
    rows = list(csv.DictReader(io.StringIO(table(published, changes(published.previous, published.plan)))))
    assert [(row["batch_id"], row["state"], row["change"], row["start_before"]) for row in rows] == [
        ("lion#1", "planned", "", ""),
        ("bear#1", "planned", "added", ""),
        ("tiger#1", "planned", "later", "2026-01-05T11:00:00Z"),
        ("wolf#1", "cancelled", "cancelled", "2026-01-08T11:00:00Z"),
    ]
    tiger = rows[2]
    assert tuple(tiger) == COLUMNS
    assert {key: tiger[key] for key in ("plan", "nodes", "gpus", "skus", "start", "end", "tz", "teams")} == {
        "plan": "2",
        "nodes": "100",
        "gpus": "800",
        "skus": "H200",
        "start": "2026-01-07T11:00:00Z",
        "end": "2026-01-07T15:00:00Z",
        "tz": "UTC",
        "teams": "evals vision",
    }


def test_local_times_are_those_of_the_window() -> None:
    published = publish([batch()], tz="Europe/Stockholm")
    (row,) = csv.DictReader(io.StringIO(table(published, changes(None, published.plan))))
    assert (row["local_start"], row["start"]) == ("2026-01-05 12:00", "2026-01-05T11:00:00Z")


WANT_POST = """\
**nic-firmware: plan 2, replaces plan 1**

- nic 28.43 on 154 nodes in 3 clusters, Mon 5 Jan 11:00 to Wed 7 Jan 15:00 (UTC)
- Peak: 100 of at most 120 nodes out, Wed 7 Jan 11:00; no plan can be more than 2.0% better: proved

**Out next, Mon 5 Jan to Sun 11 Jan**

- 3 clusters, 154 nodes
- Mon 5 Jan: 11:00 lion
- Tue 6 Jan: 11:00 bear
- Wed 7 Jan: 11:00 tiger
- Teams hit most: vision (32 GPUs), evals (16 GPUs)

**Changed since plan 1: 1 cancelled, 1 later, 1 added**

- tiger: 2 days later, Mon 5 Jan 11:00–15:00 → Wed 7 Jan 11:00–15:00
- bear: added, Tue 6 Jan 11:00–15:00
- wolf: cancelled, Thu 8 Jan 11:00–15:00

[Calendar, picture and table](<https://p.example/nic/>)
"""


def test_the_post_is_short_and_says_who_is_hit() -> None:
    published = moved()
    found = changes(published.previous, published.plan)
    assert markdown(make_post(published, out_curve(published), found)) == WANT_POST


def test_only_what_is_ahead_is_out_next() -> None:
    batches = [batch("tiger"), batch("lion", day=3), batch("bear", day=11)]
    published = publish(batches, at=datetime(2026, 1, 6, 9, tzinfo=UTC))
    text = markdown(make_post(published, out_curve(published), changes(None, published.plan)))
    assert "Out next, Thu 8 Jan to Wed 14 Jan" in text
    assert "lion" in text
    assert "tiger" not in text
    assert "bear" not in text


def test_marks_in_names_are_only_names() -> None:
    published = publish([batch("a*b_[c](d)<e>&")], previous=plan([batch("x", day=1)]), number=2)
    post = make_post(published, out_curve(published), changes(published.previous, published.plan))
    assert r"a\*b\_\[c\](d)\<e\>&" in markdown(post)
    message = slack_message(post)
    assert all("<e>" not in block["text"]["text"] for block in message["blocks"][1:])
    assert any("&lt;e&gt;&amp;" in block["text"]["text"] for block in message["blocks"])


@pytest.mark.parametrize("count", [1, 400])
def test_a_message_keeps_within_what_a_chat_takes(count: int) -> None:
    names = ["x" * 900 + str(number) for number in range(count)]
    batches = [batch(name, day=number % 7) for number, name in enumerate(names)]
    published = publish(batches, number=2, previous=plan([batch(name, day=9) for name in names]))
    message = slack_message(make_post(published, out_curve(published), changes(published.previous, published.plan)))
    assert len(message["blocks"]) <= 50
    assert len(message["text"]) <= 3_000
    assert len(message["blocks"][0]["text"]["text"]) <= 150
    assert all(0 < len(block["text"]["text"]) <= 3_000 for block in message["blocks"])
