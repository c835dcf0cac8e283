"""Who is promised which quota, and what a provider still owes: numbers worked out by hand, 96 cores a node."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from plimsoll.lifecycle.claims import Owed, QuotaRead, Unread, answer_quota, in_order, needed, outstanding, quota_owed
from plimsoll.lifecycle.model import Life, QuotaKey, SetSeen
from plimsoll.lifecycle.outside import UsageRead
from plimsoll.lifecycle.reasons import Reason
from tests.support.slipway import BARE, H100, H200, SLIP, START, Slip, key, life, recipe, usage

LATER = START + timedelta(hours=2)
SLIP_RECIPE, BARE_RECIPE = recipe(), recipe(BARE)


def read(*usages: UsageRead) -> QuotaRead:
    return QuotaRead({each.key: each for each in usages})


def holder(name: str, *, at: datetime = START, **changes: Any) -> Life:
    return life(name, claimed_at=at, **changes)


def full(name: str, nodes: int, *, since: datetime | None, there: int | None = None) -> dict[str, SetSeen]:
    """One scale set of so many machines."""
    return {f"{name}-1": SetSeen(f"{name}-1", f"{name}-i1", nodes, nodes if there is None else there, "", since)}


def minutes(count: int) -> datetime:
    return START + timedelta(minutes=count)


class Case(NamedTuple):
    """`want` is the reason that each cluster gets, in the order of `lives`."""

    lives: list[Life]
    read: QuotaRead
    want: dict[str, Reason]


PROMISED, SHORT, EARLIER, SHRANK = (
    Reason.QUOTA_PROMISED,
    Reason.QUOTA_SHORT,
    Reason.QUOTA_FOR_EARLIER,
    Reason.QUOTA_SHRANK,
)
CASES = {
    "exactly enough": Case([life()], read(usage(384)), {"lynx": PROMISED}),
    "one core too few": Case([life()], read(usage(383)), {"lynx": SHORT}),
    "what others use is not free": Case([life()], read(usage(484, 101)), {"lynx": SHORT}),
    "enough for one of two: the first that was planned": Case(
        [life("ant", at=minutes(2)), life("bee", at=minutes(1))],
        read(usage(500)),
        {"ant": SHORT, "bee": PROMISED},
    ),
    "enough for one of two: the first that is wanted": Case(
        [life("ant", at=minutes(2), wanted=LATER), life("bee", at=minutes(1))],
        read(usage(500)),
        {"ant": PROMISED, "bee": SHORT},
    ),
    "planned in the same moment: by name": Case(
        [life("bee"), life("ant")], read(usage(500)), {"ant": PROMISED, "bee": SHORT}
    ),
    "nobody overtakes one that waits for the same family": Case(
        [life("ant", nodes=9), life("bee", nodes=1, at=minutes(1))],
        read(usage(500)),
        {"ant": SHORT, "bee": EARLIER},
    ),
    "another family is not waited for": Case(
        [life("ant", nodes=9), life("bee", nodes=1, sku="H100", at=minutes(1))],
        read(usage(500), usage(500, family=H100)),
        {"ant": SHORT, "bee": PROMISED},
    ),
    "another region is not waited for": Case(
        [life("ant", nodes=9), life("bee", nodes=1, region="westus", at=minutes(1))],
        read(usage(500), usage(500, region="westus")),
        {"ant": SHORT, "bee": PROMISED},
    ),
    "two families share the cores of a region": Case(
        [life("ant"), life("bee", sku="H100", at=minutes(1))],
        read(usage(900), usage(900, family=H100), usage(767, family="cores")),
        {"ant": PROMISED, "bee": SHORT},
    ),
    "one that is paused keeps nobody waiting": Case(
        [life("ant", nodes=9, paused=life().planned), life("bee", nodes=1, at=minutes(1))],
        read(usage(500)),
        {"ant": SHORT, "bee": PROMISED},
    ),
    "a promise comes before a wish that is older": Case(
        [life("ant"), holder("bee", at=LATER)], read(usage(500)), {"ant": SHORT, "bee": PROMISED}
    ),
    "a limit that fell is missing to the last promise": Case(
        [holder("ant", at=minutes(5)), holder("bee", at=minutes(4))],
        read(usage(500)),
        {"ant": SHRANK, "bee": PROMISED},
    ),
    "machines that are there count as used, and only once": Case(
        [holder("ant", sets=full("ant", 4, since=START)), life("bee", at=minutes(1))],
        read(usage(768, 384)),
        {"ant": Reason.QUOTA_IN_USE, "bee": PROMISED},
    ),
    "machines that have only just come may not show yet: they count twice": Case(
        [holder("ant", sets=full("ant", 4, since=LATER - timedelta(minutes=9))), life("bee", at=minutes(1))],
        read(usage(1151, 384)),
        {"ant": PROMISED, "bee": SHORT},
    ),
    "a set that is not full counts whole": Case(
        [holder("ant", sets=full("ant", 4, since=None, there=3)), life("bee", at=minutes(1))],
        read(usage(900, 288)),
        {"ant": PROMISED, "bee": SHORT},
    ),
    "one that is gone holds nothing": Case(
        [holder("ant", gone_at=LATER), life("bee")], read(usage(384)), {"bee": PROMISED}
    ),
    "a family that the provider does not know": Case([life()], read(), {"lynx": SHORT}),
    "quota that can't be read": Case(
        [life(), holder("ant")],
        QuotaRead({}, {("sub-a", "eastus", SLIP_RECIPE.quota.name): Unread(Reason.QUOTA_UNREADABLE, "no answer")}),
        {"lynx": Reason.QUOTA_UNREADABLE, "ant": Reason.QUOTA_UNREADABLE},
    ),
}


@pytest.mark.parametrize("told", CASES)
def test_who_is_promised_what(told: str) -> None:
    case = CASES[told]
    answers = answer_quota(case.lives, {each.name: SLIP_RECIPE for each in case.lives}, case.read, LATER)
    assert {name: answer.reason for name, answer in answers.items()} == case.want
    for answer in answers.values():
        wants = {PROMISED: True, Reason.QUOTA_IN_USE: True, Reason.QUOTA_UNREADABLE: None}
        assert answer.is_sufficient is wants.get(answer.reason, False)


def test_the_order_of_names_does_not_matter() -> None:
    lives = [life(name, nodes=nodes) for name, nodes in (("cat", 2), ("ant", 3), ("bee", 4))]
    some = read(usage(6 * 96))
    recipes = {each.name: SLIP_RECIPE for each in lives}
    assert [each.name for each in in_order(lives)] == ["ant", "bee", "cat"]
    assert answer_quota(lives, recipes, some, LATER) == answer_quota(lives[::-1], recipes, some, LATER)


def test_what_a_cluster_needs() -> None:
    assert needed(life(nodes=7), SLIP_RECIPE) == {H200: 672, "cores": 672}
    assert needed(life(nodes=7, sku="GB200"), SLIP_RECIPE) == {"standardNDISRGB200V6NDRFamily": 896, "cores": 896}
    assert needed(life(nodes=7, sku="B300"), SLIP_RECIPE) == {}
    assert needed(life(nodes=7), BARE_RECIPE) == {}


def test_what_is_outstanding_falls_set_by_set() -> None:
    """Two sets of two; each counts until it has been full for ten minutes."""
    sets = {
        "a": SetSeen("a", "i1", 2, 2, "", START),
        "b": SetSeen("b", "i2", 2, 2, "", minutes(5)),
    }
    some = holder("lynx", sets=sets)
    want = {9: 384, 10: 192, 14: 192, 15: 0}
    assert {at: outstanding(some, SLIP_RECIPE, minutes(at)).get(H200, 0) for at in want} == want
    assert outstanding(life(sets=sets), SLIP_RECIPE, START) == {}, "nothing is promised to it"


def test_a_file_says_what_others_use_so_that_a_promise_always_counts() -> None:
    by_file = recipe(SLIP.replace("source: azure", "source: file"))
    some = holder("lynx", sets=full("lynx", 4, since=START))
    assert outstanding(some, by_file, LATER) == {H200: 384, "cores": 384}
    assert outstanding(some, SLIP_RECIPE, LATER) == {}


def test_a_promise_says_how_much_and_a_want_how_much_is_missing() -> None:
    lives = [holder("ant"), life("bee", nodes=2)]
    answers = answer_quota(lives, {each.name: SLIP_RECIPE for each in lives}, read(usage(500, 20)), LATER)
    assert answers["ant"].message == "384 cores are promised to it, and to nobody else"
    assert answers["bee"].message == (
        f"96 of 192 cores of {H200} are missing in eastus of sub-a (limit 500, 20 used, 384 promised to others)"
    )
    assert [short.missing for short in answers["bee"].short] == [96]


def test_what_the_provider_owes() -> None:
    """Limit 1,000, 100 used, 384 promised: 516 free. Wanted 192 + 960 = 1,152, so 636 are owed."""
    lives = [
        holder("ant"),
        life("bee", nodes=2, at=minutes(1)),
        life("cat", nodes=10, at=minutes(2)),
        life("dog", nodes=1, sku="H100"),
        life("eel", nodes=1, sku="H100", subscription="sub-b"),
        life("fox", nodes=50, gone_at=LATER),
    ]
    some = read(usage(1_000, 100), usage(96, family=H100), usage(2_000, 100, family="cores"))
    owed = quota_owed(lives, {each.name: SLIP_RECIPE for each in lives}, some, LATER)
    assert owed == [
        Owed(key("cores"), 2_000, 100, 384, 192 + 960 + 96, ("dog", "bee", "cat"), {"ant": 384}),
        Owed(key(H200), 1_000, 100, 384, 192 + 960, ("bee", "cat"), {"ant": 384}),
        Owed(key(H100), 96, 0, 0, 96, ("dog",)),
        Owed(QuotaKey("sub-b", "eastus", H100), 0, 0, 0, 96, ("eel",)),
    ]
    assert [each.missing for each in owed] == [0, 636, 0, 96]


EDITS: dict[str, dict[str, Any]] = {
    "more nodes": {"nodes": 8},
    "another subscription": {"subscription": "sub-b"},
    "another SKU": {"sku": "H100"},
    "another region": {"region": "westus"},
}


@pytest.mark.parametrize("told", EDITS)
def test_a_promise_does_not_move_with_the_wish(told: str) -> None:
    """puma waits for the five nodes that are left; lynx, which came later, holds four and now wants something else."""
    with Slip(limit=9 * 96) as slip:
        for place in (key(H100), key(subscription="sub-b"), key(region="westus")):
            slip.cloud.limits[place] = 5 * 96
        slip.add()
        slip.run()
        slip.clock.go(minutes=1)
        slip.add("puma", **{**EDITS[told], "nodes": 6, "wanted": START})
        slip.run()
        assert slip.life().claimed_at is not None
        slip.edit(**EDITS[told])
        slip.run()
        first = slip.life("puma").claimed_at is not None
        assert slip.life().claimed_at is None, "it would have overtaken puma, which waits for more than there is"
        assert first is (told == "more nodes"), "what lynx gave back is enough for puma"


def test_machines_that_go_away_free_nothing_for_others() -> None:
    """lynx has all four and loses two; puma waits for three, and two are free beside those that lynx lost."""
    with Slip(limit=6 * 96) as slip:
        slip.begin()
        slip.finish("checkin", "bootstrap", "dependencies", "scale-sets")
        slip.run(minutes=30)
        slip.begin("puma", nodes=3)
        slip.cloud.fill("lynx", 2)
        slip.run(minutes=1)
        assert slip.life("puma").claimed_at is None
        assert not slip.life("puma").works


def test_an_edit_that_changes_nothing_of_quota_keeps_the_promise() -> None:
    with Slip() as slip:
        slip.add()
        slip.run()
        slip.edit(owner="grace", wanted=LATER)
        slip.run()
        assert slip.life().claimed_at == START
