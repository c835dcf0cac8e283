"""How pages put things: numbers, times, words; where the parts of a hull lie; what the first pages sort and gather."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from plimsoll.server.pages import format as forms
from plimsoll.server.pages.changes import movers, told
from plimsoll.server.pages.cluster import course_spec, team_rows
from plimsoll.server.pages.fleet import cluster_rows, sorted_rows
from plimsoll.server.pages.hull import add_up, hull_picture
from plimsoll.server.pages.templates import FOLDER, environment

TEXTS: dict[str, tuple[str, list[Any], str]] = {
    "thousands are told apart": ("number", [18500], "18,500"),
    "a loss has a real minus": ("number", [-8], "−8"),
    "what is not known is a dash": ("number", [None], "–"),
    "a flag is no number": ("number", [True], "–"),
    "a change has its sign": ("signed", [120], "+120"),
    "no change is told as such": ("signed", [0], "±0"),
    "a share is a percentage": ("share", [0.9421], "94.2\N{NARROW NO-BREAK SPACE}%"),
    "an unknown share is a dash": ("share", [None], "–"),
    "a long time is in days": ("hours", [60.0], "2.5 days"),
    "a short one in minutes": ("hours", [0.5], "30 min"),
    "names of states are words": ("words", ["in_service"], "in service"),
    "before now": ("ago", ["2026-01-05T10:00:00Z", "2026-01-05T13:10:00Z"], "3 h 10 min ago"),
    "after now": ("ago", ["2026-01-07T13:10:00Z", "2026-01-05T13:10:00Z"], "in 2 days"),
    "a day by its name": (
        "moment",
        ["2026-01-05T11:02:03Z", "day"],
        '<time datetime="2026-01-05T11:02:03Z" title="2026-01-05 11:02:03Z">5 Jan 2026</time>',
    ),
    "a moment of another zone is told in UTC": (
        "moment",
        ["2026-01-05T11:00:00+02:00"],
        '<time datetime="2026-01-05T09:00:00Z" title="2026-01-05 09:00:00Z">5 Jan 09:00</time>',
    ),
    "a cell without a value": ("cell", ["", "time"], '<span class="nothing">–</span>'),
    "a cell by its type": ("cell", [1.25], "1.2"),
    "a value of a row in an address is quoted": ("fill", ["/teams/{team}", {"team": "a/b c"}], "/teams/a%2Fb%20c"),
    "what is to be typed stands out": ("code_text", ["first `make demo`, then"], "first <code>make demo</code>, then"),
    "a command of ours stands out by itself": (
        "code_text",
        ["plimsoll health outages --unplanned; ask whoever has them"],
        "<code>plimsoll health outages --unplanned</code>; ask whoever has them",
    ),
    "a text can't bring markup": ("code_text", ["<b> `<i>`"], "&lt;b&gt; <code>&lt;i&gt;</code>"),
    "data can't end its element": ("json_in_html", [{"a": "</script>&"}], '{"a":"\\u003c/script\\u003e\\u0026"}'),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_value_looks_as_people_write_it(case: str) -> None:
    name, arguments, want = TEXTS[case]
    assert str(forms.FILTERS[name](*arguments)) == want  # type: ignore[operator]


def test_other_parameters_keep_the_rest_of_the_address() -> None:
    query = {"area": "us", "sort": "over", "find": ""}
    assert forms.query_url(query, sort="-over", as_of=None) == "?area=us&sort=-over"
    assert forms.query_url(query, area="") == "?sort=over"


def pool(**numbers: Any) -> dict[str, Any]:
    """The walrus of the design in GPUs, with a buffer of 15 %, nothing guaranteed yet."""
    return {
        "cluster": "walrus", "sku": "H100", "total": 2888, "healthy": 2552, "line": 2448, "line_in_force": 0,
        "assigned": 2760, "guaranteed": 0, "allocated": 2480, "idle": 80, "over": 312, "never_backed": 208,
        "to_flex": 104, "unallocated": 0, "flex_standing": 2552, "flex_lent": 0, "flex_used": 2480, "shortfall": 0,
    } | numbers  # fmt: skip


HULLS: dict[str, tuple[dict[str, Any], list[tuple[str, int]], list[tuple[str, int]]]] = {
    "before the first alignment all is assigned, and what runs is busy or idle": (
        pool(),
        [("assigned", 2448), ("to-flex", 104), ("never", 208)],
        [("inside", 2400), ("idle", 80)],
    ),
    "after it the guarantee stands under the line": (
        pool(line_in_force=2448, guaranteed=2448, flex_standing=104, flex_used=32, idle=0),
        [("guaranteed", 2448), ("to-flex", 104), ("never", 208)],
        [("inside", 2448), ("flex", 32), ("flex-free", 72)],
    ),
    "flex that is lent is free as long as its owner does not come": (
        pool(
            line_in_force=2448, guaranteed=2448, flex_standing=104, flex_lent=408, flex_used=40, allocated=2080, idle=0
        ),
        [("guaranteed", 2448), ("to-flex", 104), ("never", 208)],
        [("inside", 2040), ("flex", 40), ("flex-free", 472)],
    ),
    "no flex is free that has no machine": (
        pool(line_in_force=2448, guaranteed=2448, flex_standing=104, flex_lent=8, flex_used=0, allocated=2552, idle=0),
        [("guaranteed", 2448), ("to-flex", 104), ("never", 208)],
        [("inside", 2552)],
    ),
    "idle GPUs are taken from what runs as flex first": (
        pool(line_in_force=2448, guaranteed=2448, flex_standing=32, flex_used=32, idle=20),
        [("guaranteed", 2448), ("to-flex", 104), ("never", 208)],
        [("inside", 2448), ("flex", 12), ("idle", 20)],
    ),
    "with room under the line there is nothing red": (
        pool(
            assigned=1000,
            over=0,
            never_backed=0,
            to_flex=0,
            allocated=800,
            idle=0,
            guaranteed=1000,
            flex_used=0,
            flex_standing=1552,
            flex_lent=200,
        ),
        [("guaranteed", 1000)],
        [("inside", 800), ("flex-free", 1752)],
    ),
    "an empty pool has no parts": (
        pool(**dict.fromkeys(("total", "healthy", "line", "assigned", "allocated", "over", "never_backed", "idle"), 0)),
        [],
        [],
    ),
}


@pytest.mark.parametrize("case", HULLS)
def test_the_parts_of_a_hull_are_the_numbers_of_its_pool(case: str) -> None:
    given, want_promised, want_running = HULLS[case]
    found = hull_picture(given)
    assert [(part.kind, part.gpus) for part in found.promised] == want_promised
    assert [(part.kind, part.gpus) for part in found.running] == want_running


def test_the_parts_of_a_hull_lie_end_to_end_on_one_scale() -> None:
    found = hull_picture(pool(total=2000, healthy=2000, line=1500, assigned=2500, over=1000, never_backed=500))
    assert (found.installed, found.line) == ("80%", "60%")
    assert [(part.x, part.width) for part in found.promised] == [("0%", "60%"), ("60%", "20%"), ("80%", "20%")]
    assert found.says.startswith("2,000 GPUs installed, 2,000 healthy, the line at 1,500; 2,500 assigned, 1,000 of it")


def test_several_pools_add_up_to_one() -> None:
    both = add_up([pool(), pool(total=112)], cluster="walrus")
    assert (both["cluster"], both["total"], both["over"]) == ("walrus", 3000, 624)


PLACES = {"crow": {"area": "us", "purpose": "research"}, "ant": {"area": "eu", "purpose": "applied"}}
POOLS = [
    pool(cluster="crow", over=40), pool(cluster="crow", sku="H200", over=2),
    pool(cluster="ant", over=42, flex_standing=8), pool(cluster="bee", over=0, shortfall=8),
]  # fmt: skip
SORTS = {
    "the worst first: short before over, then by size": ("-worst", ["bee", "crow", "ant"]),
    "by name": ("cluster", ["ant", "bee", "crow"]),
    "by name, turned round": ("-cluster", ["crow", "bee", "ant"]),
    "by flex, lent and standing": ("-flex", ["crow", "bee", "ant"]),
    "equal ones by name": ("over", ["bee", "ant", "crow"]),
    "an unknown word is the default": ("nonsense", ["bee", "crow", "ant"]),
}


@pytest.mark.parametrize("case", SORTS)
def test_clusters_are_sorted_by_the_word_of_the_address(case: str) -> None:
    sort, want = SORTS[case]
    rows = cluster_rows(POOLS, PLACES)
    assert [row["cluster"] for row in sorted_rows(rows, sort)] == want


def test_a_cluster_is_all_its_pools() -> None:
    crow = next(row for row in cluster_rows(POOLS, PLACES) if row["cluster"] == "crow")
    assert (crow["skus"], crow["total"], crow["over"], crow["area"]) == (["H100", "H200"], 5776, 42, "us")


def test_what_moved_is_told_from_the_largest() -> None:
    pools = [
        {"cluster": name, "sku": "H100", "healthy": now, "healthy_then": then}
        for name, now, then in (("ant", 80, 88), ("bee", 96, 80), ("crow", 8, 48), ("dove", 8, 8))
    ]
    assert [(row["cluster"], row["change"]) for row in movers(pools, -1)] == [("crow", -40), ("ant", -8)]
    assert [(row["cluster"], row["change"]) for row in movers(pools, +1)] == [("bee", 16)]


def test_what_one_person_did_at_once_is_one_line() -> None:
    def event(subject: str, at: str, actor: str = "ines") -> dict[str, Any]:
        return {"subject": subject, "recorded_at": at, "actor": actor, "reason": "stage 1", "revision": 7}

    together = [event(f"pool/{name}/H100", "10:00") for name in ("ant", "bee", "crow", "dove")]
    lines = told("quota.aligned", [*together, event("pool/tiger/H200", "11:00", "omar")])
    assert [(line["actor"], line["where"], line["href"]) for line in lines] == [
        ("ines", "ant H100 and 3 others", ""),
        ("omar", "tiger H200", "/clusters/tiger"),
    ]


def test_teams_stand_by_what_they_hold_and_use_of_what_is_guaranteed() -> None:
    teams = [
        {"team": "voice", "sku": "H100", "assigned": 16, "guaranteed": 0, "allocated": 8},
        {"team": "vision", "sku": "H100", "assigned": 80, "guaranteed": 40, "allocated": 60},
        {"team": "guest", "sku": "H100", "assigned": 0, "guaranteed": 0, "allocated": 8},
    ]
    assert [(row["team"], row["used_share"]) for row in team_rows(teams)] == [
        ("vision", 1.5),
        ("voice", 0.5),
        ("guest", None),
    ]


def test_the_course_is_drawn_from_the_first_hour_on_to_now() -> None:
    history = {"from": "2026-01-05T00:00:00Z", "to": "2026-01-05T06:00:00Z", "step_hours": 3}
    past = {"points": [80, 64], "healthy": 72, "healthy_fewest": 64, "total": 80, "promised": []}
    spec = course_spec(past, history, {"line": 68}, None)
    line = spec["layer"][0]["data"]["values"]
    assert [(datetime.fromisoformat(point["time"]).astimezone(UTC).hour, point["gpus"]) for point in line] == [
        (0, 80),
        (3, 64),
        (6, 72),
    ]
    assert spec["layer"][1]["data"]["values"][0]["label"] == "the line 68"


def test_every_template_can_be_read() -> None:
    made = environment()
    names = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.html"))
    assert "base.html" in names
    for name in names:
        made.get_template(name)


def test_no_template_holds_what_the_policy_of_the_browser_refuses() -> None:
    for path in FOLDER.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert " style=" not in text, path.name
        assert " onclick=" not in text, path.name
        assert text.count("<script") == text.count('<script type="application/json"') + text.count(
            '<script type="module" src='
        ), path.name


def test_idle_work_of_one_pool_hides_no_flex_of_another() -> None:
    """8 of ant's are flex and busy; bee has 32 idle inside its guarantees. Taken together 8 are flex and busy still."""
    ant = pool(cluster="ant", line_in_force=8, guaranteed=8, flex_used=8, idle=0, allocated=8)
    bee = pool(cluster="bee", line_in_force=64, guaranteed=64, flex_used=0, idle=32, allocated=64)
    both = hull_picture(add_up([ant, bee]))
    assert {part.kind: part.gpus for part in both.running if part.kind in ("flex", "idle", "inside")} == {
        "inside": 32,
        "flex": 8,
        "idle": 32,
    }
