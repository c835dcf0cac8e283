"""The researcher's pages: for every role, with the API's numbers, harmless with hostile names, a page for errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import quote

import pytest

from plimsoll.access import service
from plimsoll.commands.access import LINK_PATH
from plimsoll.documents import read_documents
from plimsoll.rooms import open_keeper
from plimsoll.server.pages.causes import CAUSES, MOVES
from plimsoll.server.pages.teams import hurts
from plimsoll.server.pages.waterfall import waterfall
from plimsoll.server.pages.workloads import free_name, owned_by
from plimsoll.workloads.file import read_workload
from plimsoll.workloads.reasons import Cause, Move
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer
from tests.support.pages import see
from tests.support.served import OTHER, PEOPLE, TEAM, Reply, Served, make_people, serving

HOSTILE = "<script>alert(1)"
HOSTILE_TEAM = "<img src=x onerror=alert(2)>"
BIG = """
workload: big
team: posttraining
where: {cluster: tiger, sku: H200}
owner: ada
parts:
  - {name: train, kind: gang, gpus: 80, tier: critical, rank: 1}
  - {name: graders, kind: elastic, replicas: {min: 1, max: 2, gpus: 8}, tier: high, rank: 2}
"""
PAGES = (
    "/teams", f"/teams/{TEAM}", f"/teams/{TEAM}/flex", f"/teams/{TEAM}/coming", f"/teams/{TEAM}/history",
    "/workloads", "/workloads?submit=1&team=pretraining", "/workloads/run-1", "/workloads/big", "/why",
    f"/why?q={TEAM}", "/why?q=gpus%3D200+sku%3DH200+island", "/why?q=tiger", "/nodes/t1", "/requests/q1", "/account",
)  # fmt: skip
INSIDERS = sorted(set(PEOPLE) - {"partner"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two clusters after their first alignment; one gang waits, one request is open, and names are not kind.

    tiger: 12 nodes of 8, one in repair; 112 assigned, a line of 80. lion: 4 nodes, 24 assigned, a line of 24.
    """
    folder = tmp_path_factory.mktemp("team-pages")
    fleet = write_fleet(
        folder / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", area="eu")],
        nodes=[
            *nodes(11, prefix="t"),
            row("nodes", node="t12", service="repair", since="2026-01-05T11:00:00Z", reason="xid 79"),
            *nodes(4, prefix="l", cluster="lion", island="lion-a"),
        ],
        quotas=[
            row("quotas", team=TEAM, gpus="48"),
            row("quotas", team=OTHER, gpus="64"),
            row("quotas", team=TEAM, cluster="lion", gpus="16"),
            row("quotas", team=HOSTILE_TEAM, cluster="lion", gpus="8"),
        ],
        workloads=[
            row("workloads", workload="run-1", team=TEAM, gpus="16"),
            row("workloads", workload=HOSTILE, team=HOSTILE_TEAM, cluster="lion", island="lion-a", gpus="8"),
        ],
    )
    dsn = f"sqlite:///{folder}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(fleet)
    importer.keeper.close()
    with serving(dsn, make_people(dsn)) as server:
        done = [
            server.post("/quota/apply", {"reason": "the first alignment"}),
            server.post("/workloads", {"files": BIG}, who="member"),
            server.post("/requests", {"team": TEAM, "gpus": 16, "sku": "H200", "reason": HOSTILE}, who="member"),
        ]
        assert [reply.status for reply in done] == [200, 200, 200], [
            reply.body[:400] for reply in done if reply.status != 200
        ]
        yield server


def page(site: Served, path: str, who: str = "admin") -> Reply:
    return site.ask(path, who=who, Accept="text/html")


def text_of(reply: Reply) -> str:
    """What a reader sees: no tags, one blank between words."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", reply.body.decode()))).replace(" ,", ",")


@pytest.mark.parametrize("who", INSIDERS)
def test_every_page_is_there_for_who_may_see(site: Served, who: str) -> None:
    found = {path: page(site, path, who).status for path in PAGES}
    assert found == dict.fromkeys(PAGES, 200)


def test_a_partner_sees_only_their_account(site: Served) -> None:
    found = {path: page(site, path, "partner").status for path in PAGES}
    assert {path for path, status in found.items() if status == 200} == {"/account"}
    assert set(found.values()) == {200, 403}


def test_the_number_is_the_one_of_the_api(site: Served) -> None:
    # tiger: 32 over the line come from unscheduled quota, 32 and 64 of it: one node of this team, three of the other.
    # 40 + 16 are guaranteed, 16 of them in use: 24 can start in tiger, 16 in lion.
    want_startable, want_places = 40, 2
    why = site.api(f"/why?words={TEAM}").document
    assert sum(pool["startable"] for pool in why["pools"]) == want_startable
    text = text_of(page(site, f"/teams/{TEAM}"))
    assert f"{want_startable} GPUs can start now, in {want_places} places" in text
    assert why["says"][0] in text
    assert "Guaranteed 56 GPUs" in text
    assert "Assigned 64 GPUs" in text


def test_ones_own_teams_come_first(site: Served) -> None:
    rows = re.findall(r'<th scope="row"><a href="/teams/([^"]+)">', page(site, "/teams", "member").body.decode())
    assert rows[0] == TEAM
    assert rows.count(TEAM) == 1
    assert set(rows) == {TEAM, OTHER, quote(HOSTILE_TEAM, safe="")}


BUTTONS = {
    "a member asks for more": (f"/teams/{TEAM}", "POST /api/v1/requests", {"member", "rpm", "fleet_rpm", "admin"}),
    "an RPM approves": ("/requests/q1", "/approve", {"rpm", "fleet_rpm", "admin"}),
    "a member takes it back": ("/requests/q1", "/withdraw", {"member", "rpm", "fleet_rpm", "admin"}),
    "a member scales": ("/workloads/big", "/scale", {"member", "rpm", "fleet_rpm", "admin"}),
    "an operator cancels as well": ("/workloads/big", "/cancel", {"member", "rpm", "fleet_rpm", "operator", "admin"}),
    "nobody submits who may not": (
        "/workloads?submit=1", "POST /api/v1/workloads", {"member", "rpm", "fleet_rpm", "admin"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BUTTONS)
def test_a_button_is_there_for_who_may(site: Served, case: str) -> None:
    path, act, want_people = BUTTONS[case]
    found = {who for who in INSIDERS if f"{act}" in "".join(re.findall(r'data-act="[^"]*"', _body(site, path, who)))}
    assert found == want_people


def _body(site: Served, path: str, who: str) -> str:
    return page(site, path, who).body.decode()


@pytest.mark.parametrize(
    "path",
    [
        "/teams", f"/teams/{quote(HOSTILE_TEAM)}", f"/teams/{TEAM}", f"/teams/{TEAM}/history", "/workloads",
        f"/workloads/{quote(HOSTILE)}", f"/workloads?find={quote(HOSTILE)}", f"/why?q={quote(HOSTILE)}",
        f"/why?q={quote(HOSTILE_TEAM)}", f"/why?q={quote(HOSTILE + 'x')}", "/requests/q1",
        f"/teams/{quote(HOSTILE + 'x')}", f"/nodes/{quote(HOSTILE)}",
    ],
)  # fmt: skip
def test_a_name_is_never_taken_for_html(site: Served, path: str) -> None:
    body = _body(site, path, "admin")
    assert "alert(" in unescape(body), "the name is not on the page at all"
    assert not re.search(r"<(script|img)\b[^>]*alert", body)
    assert HOSTILE not in body
    assert HOSTILE_TEAM not in body


@pytest.mark.parametrize(
    ("path", "want_hint"),
    [("/teams/posttraning", TEAM), ("/workloads/run-2", "run-1"), ("/nodes/t13", "t1"), ("/requests/q99", "q")],
)
def test_what_does_not_exist_has_a_page(site: Served, path: str, want_hint: str) -> None:
    reply = page(site, path)
    assert reply.status == 404
    assert 'class="error-page"' in reply.body.decode()
    assert want_hint in text_of(reply)


ANSWERS = {
    "denied": ("deny", {"reason": "the launch comes first"}, "denied", ["denied", "–", "the launch comes first"]),
    "approved as flex without a word": (
        "approve", {"option": "flex:tiger"}, "Approved: 8 H200 in tiger As flex: nothing is guaranteed by it",
        ["approved", "flex in tiger", "–"],
    ),
    "taken back": ("withdraw", {"reason": "not needed"}, "Nothing was given", ["withdrawn", "–", "not needed"]),
}  # fmt: skip
"""What is done, what is said with it, what the page says, and the row: answer, what was chosen, why."""


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answered_request_shows_the_answer_and_no_options(site: Served, case: str) -> None:
    act, sent, want, want_row = ANSWERS[case]
    asked = site.post("/requests", {"team": TEAM, "gpus": 8, "sku": "H200"}, who="member").document["request"]["id"]
    answered = site.post(f"/requests/{asked}/{act}", sent, who="rpm")
    assert answered.status == 200, answered.body
    found = see(site, f"/requests/{asked}?at_least={answered.document['revision']}", "rpm")
    assert want in found.text
    [cells] = found.tables["What was answered, by whom and when"][1:]
    assert [cells[1], *cells[3:]] == want_row
    assert cells[2] == "rpm@example.org"
    for gone in ("Best option", "can be given", "No pool", "Options", "Why not all", "Answer:"):
        assert gone not in found.text, gone
    assert "data-act" not in found.html.partition("<main")[2]
    csv = site.api(f"/requests/{asked}?format=csv").body.decode().splitlines()
    assert csv[0] == "at,state,by,option,why"
    assert csv[1].split(",")[1:3] == [want_row[0], "rpm@example.org"]


def test_a_reservation_says_when_it_is_handed_over_and_who_gives(site: Served) -> None:
    sent = {"team": TEAM, "gpus": 8, "sku": "H200", "cluster": "tiger", "from": "3d", "for": "14d"}
    asked = site.post("/requests", sent, who="member").document["request"]["id"]
    assert site.post(f"/requests/{asked}/approve", {"option": "transfer:tiger"}, who="fleet_rpm").status == 200
    text = see(site, f"/requests/{asked}", "viewer").text
    assert "Reserved 8 GPUs transfer in tiger" in text
    assert re.search(rf"Approved: 8 H200 in tiger Reserved, and handed over on .*, until .*: 8 from {OTHER} ", text)


EXAMPLES = {
    "of one's own team": ("?submit=1", "member", f"{TEAM}-1", "member@example.org"),
    "of the chosen team": (f"?submit=1&team={OTHER}", "member", f"{OTHER}-1", "member@example.org"),
    "of a team that can't be in a name": (
        f"?submit=1&team={quote(HOSTILE_TEAM)}", "admin", "img-src-x-onerror-alert-2-1",
        "admin@example.org",
    ),
    "of no team, where run-1 runs already": ("?submit=1", "admin", "run-2", "admin@example.org"),
}  # fmt: skip


@pytest.mark.parametrize("case", EXAMPLES)
def test_the_example_to_submit_is_the_visitors_own(site: Served, case: str) -> None:
    query, who, want_name, want_owner = EXAMPLES[case]
    found = re.search(r"(?s)<textarea[^>]*>(.*?)</textarea>", _body(site, f"/workloads{query}", who))
    assert found is not None
    read = read_workload(read_documents(unescape(found[1]), source="the form")[0])
    assert (read.name, read.owner) == (want_name, want_owner)


OWNERS = {
    "an address": ("ada@example.org", "ada@example.org"),
    "a word of YAML": ("null", "null"),
    "a name with a colon": ("build: nightly", "build: nightly"),
    "a name longer than its place": ("a" * 60 + "@example.org", "a" * 60 + "@example.org"),
}


@pytest.mark.parametrize("case", OWNERS)
def test_an_owner_is_read_as_it_was_written(case: str) -> None:
    name, want = OWNERS[case]
    text = owned_by(name, "owner: a-person                       # for whom\nteam: a\n")
    root = read_documents(text, source="the form")[0]
    assert (root.need("owner").text(), root.need("team").text()) == (want, "a")


def test_a_name_is_the_first_that_is_free() -> None:
    taken = {"vision-1", "vision-2", "vision-4"}
    assert [free_name(team, taken) for team in ("vision", "pre/training", "", "—")] == [
        "vision-3",
        "pre-training-1",
        "run-1",
        "run-1",
    ]


WHYS = {
    "nothing asked shows what can be": ("", "For example"),
    "a team": (TEAM, "can start 40 GPUs more"),
    "a workload that waits": ("big", "big can't start now"),
    "a node that is out": ("t12", "xid 79"),
    "a cluster": ("tiger", "promised GPU-hours were not usable"),
    "something not submitted yet": ("gpus=80 sku=H200 island", "No: it can't start now"),
    "a name that nobody has": ("posttraning", f"Did you mean {TEAM}"),
    "terms that say too little": ("gpus=80", "--if says no sku"),
}


@pytest.mark.parametrize("case", WHYS)
def test_the_search_box_answers(site: Served, case: str) -> None:
    asked, want = WHYS[case]
    reply = page(site, f"/why?q={quote(asked)}")
    assert reply.status == 200
    assert want in text_of(reply)


def test_a_list_is_filtered_by_its_address(site: Served) -> None:
    def shown(query: str) -> list[str]:
        return re.findall(
            r'<th scope="row"[^>]*><a href="/workloads/([^"]+)">', _body(site, f"/workloads{query}", "viewer")
        )

    assert shown("?team=posttraining&sort=workload") == ["big", "run-1"]
    assert shown("?team=posttraining&sort=-workload") == ["run-1", "big"]
    assert shown("?standing=waiting") == ["big"]
    assert shown("?find=nobody") == []


def test_the_history_tells_what_and_why(site: Served) -> None:
    text = text_of(page(site, f"/teams/{TEAM}/history"))
    assert "40 are guaranteed, 0 were: the line is 80" in text
    assert "the first alignment" in text
    assert "asked for 16 more ( q1 )" in text


def test_who_signed_in_sees_their_own_tokens(site: Served) -> None:
    with open_keeper(site.house.settings.dsn) as keeper:
        secret, _ = service.make_link(keeper, "member@example.org", 5, actor="tester")
        own = {each.id for each in service.tokens(keeper.state()) if each.owner == "member@example.org"}
    cookie = site.ask(f"{LINK_PATH}{secret}", method="POST").headers["set-cookie"]
    body = site.ask("/account", Accept="text/html", Cookie=cookie.partition(";")[0]).body.decode()
    assert set(re.findall(r'name="token" value="([^"]+)"', body)) == own
    assert "posttraining" in body
    assert 'data-act="POST /api/v1/access/tokens"' in body


def test_every_code_has_words() -> None:
    assert set(CAUSES) == {cause.value for cause in Cause}
    assert set(MOVES) == {move.value for move in Move}


def test_the_waterfall_ends_where_the_numbers_do() -> None:
    def step(after: str, cause: str, gpus: int) -> dict[str, object]:
        return {
            "after": after,
            "cause": cause,
            "gpus": gpus,
            "says": "",
            "move": "rpm",
            "until": None,
            "is_told": False,
        }

    pools = [
        {"cluster": "a", "sku": "H100", "assigned": 100, "guaranteed": 60, "startable": 50,
         "steps": [step("assigned", "to_flex", 40), step("guaranteed", "in_use", 10)]},
        {"cluster": "b", "sku": "H100", "assigned": 100, "guaranteed": 90, "startable": 10,
         "steps": [step("assigned", "to_flex", 10), step("guaranteed", "in_use", 80)]},
    ]  # fmt: skip
    bars = [(bar.kind, bar.label, bar.gpus, bar.x, bar.width) for bar in waterfall(pools)]
    assert bars == [
        ("assigned", "assigned", 200, "0%", "100%"),
        ("step", "to_flex", 50, "75%", "25%"),
        ("guaranteed", "guaranteed", 150, "0%", "75%"),
        ("step", "in_use", 90, "30%", "45%"),
        ("startable", "startable", 60, "0%", "30%"),
    ]
    assert waterfall([]) == []


def test_a_broken_promise_hurts_more_than_a_queue() -> None:
    base = {"short": 0, "short_pools": [], "waits": [], "assigned": 100, "guaranteed": 60, "not_aligned": 0}
    wait = {"standing": "waiting", "wanted": 64, "gpus": 0, "waits": {"code": "over_guarantee"}}
    quiet, queue = hurts(base), hurts({**base, "waits": [wait]})
    broken = hurts({**base, "waits": [wait], "short": 8, "short_pools": ["tiger H200"]})
    assert quiet[2] < queue[2] < broken[2]
    assert queue[0] == "1 workload waiting for 64 GPUs: beyond the guarantee"
    assert broken[:2] == ("tiger H200: 8 short of what is guaranteed there", "bad")
