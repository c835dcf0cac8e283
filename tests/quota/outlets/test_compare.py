"""Three values decide about a setting, and in which order settings are written."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.quota.outlets.model import Cause, Limit, Step, compare, in_order

NOT_BEGUN = object()


class Case(msgspec.Struct, frozen=True):
    """One setting; None means that it is not there."""

    want: str | None
    have: str | None
    last: str | None = None
    tried: object = NOT_BEGUN
    want_cause: Cause | None = None


CASES = {
    "everything is as it should be": Case(want="8", have="8", last="8"),
    "it is as it should be, though we never set it": Case(want="8", have="8"),
    "the scheduler does not have it yet": Case(want="8", have=None, want_cause=Cause.MISSING),
    "the promise moved": Case(want="16", have="8", last="8", want_cause=Cause.BEHIND),
    "somebody changed it": Case(want="16", have="12", last="8", want_cause=Cause.DRIFT),
    "somebody changed it to what we want now": Case(want="16", have="16", last="8"),
    "somebody deleted it": Case(want="8", have=None, last="8", want_cause=Cause.DRIFT),
    "it was there before we came": Case(want="8", have="12", want_cause=Cause.DRIFT),
    "it is nobody's business of ours": Case(want=None, have="12"),
    "it is ours and not needed any more": Case(want=None, have="8", last="8", want_cause=Cause.LEFT_OVER),
    "it is not needed, but somebody changed it": Case(want=None, have="12", last="8", want_cause=Cause.DRIFT),
    "it is not needed and gone": Case(want=None, have=None, last="8"),
    "a cut push had set it, and the promise moved": Case(
        want="24", have="16", last="8", tried="16", want_cause=Cause.BEHIND
    ),
    "a cut push had not set it, and the promise moved": Case(
        want="24", have="8", last="8", tried="16", want_cause=Cause.BEHIND
    ),
    "a cut push had made it for the first time": Case(want="24", have="16", tried="16", want_cause=Cause.BEHIND),
    "a cut push had made it, and it is not needed": Case(want=None, have="16", tried="16", want_cause=Cause.LEFT_OVER),
    "a cut push had taken it away, and it is needed again": Case(
        want="8", have=None, last="8", tried=None, want_cause=Cause.MISSING
    ),
    "somebody changed it after a cut push": Case(want="24", have="12", last="8", tried="16", want_cause=Cause.DRIFT),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compare(case: str) -> None:
    given_ = CASES[case]
    settings = [{} if value is None else {"x": value} for value in (given_.want, given_.have, given_.last)]
    tried: dict[str, str | None] = {}
    if given_.tried is None or isinstance(given_.tried, str):
        tried = {"x": given_.tried}
    steps = compare(settings[0], settings[1], settings[2], tried)
    want = [] if given_.want_cause is None else [Step("x", given_.have, given_.want, given_.want_cause)]
    assert steps == want


VALUES = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["1", "2", "3"]))


@given(wanted=VALUES, found=VALUES, last=VALUES)
def test_doing_all_steps_leaves_nothing_to_do_and_touches_nothing_else(
    wanted: dict[str, str], found: dict[str, str], last: dict[str, str]
) -> None:
    after: dict[str, str] = dict(found)
    for step in compare(wanted, found, last):
        assert step.found == found.get(step.name)
        after.pop(step.name, None)
        if step.wanted is not None:
            after[step.name] = step.wanted
    assert not compare(wanted, after, wanted)
    strangers = {name: value for name, value in found.items() if name not in wanted and name not in last}
    assert {name: value for name, value in after.items() if name not in wanted} == strangers


def as_limit(name: str, value: str) -> Limit | None:
    return Limit("H200", name, int(value)) if name.startswith("limit") else None


def test_lower_first_then_by_name_then_away_in_reverse() -> None:
    steps = [
        Step("account a", None, "x", Cause.MISSING),
        Step("account b", "x", None, Cause.LEFT_OVER),
        Step("account c", "x", None, Cause.LEFT_OVER),
        Step("limit a", None, "8", Cause.MISSING),
        Step("limit b", "8", None, Cause.LEFT_OVER),
        Step("limit c", "8", "16", Cause.BEHIND),
        Step("limit d", "16", "8", Cause.BEHIND),
    ]
    assert [step.name for step in in_order(steps, as_limit)] == [
        "limit b",
        "limit d",
        "account a",
        "limit a",
        "limit c",
        "account c",
        "account b",
    ]


@given(before=VALUES, after=VALUES)
def test_never_more_is_promised_on_the_way_than_before_or_after(before: dict[str, str], after: dict[str, str]) -> None:
    now = {f"limit {name}": gpus for name, gpus in before.items()}
    wanted = {f"limit {name}": gpus for name, gpus in after.items()}
    bound = max(sum(map(int, now.values())), sum(map(int, wanted.values())))
    for step in in_order(compare(wanted, dict(now), dict(now)), as_limit):
        now.pop(step.name, None)
        if step.wanted is not None:
            now[step.name] = step.wanted
        assert sum(map(int, now.values())) <= bound
    assert now == wanted
