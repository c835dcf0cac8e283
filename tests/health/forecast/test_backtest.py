"""The back-test, against cases that were worked out by hand."""

from __future__ import annotations

import pytest

from plimsoll.errors import UsageError
from plimsoll.health.forecast.backtest import Score, backtest, decision_hours, recommend
from plimsoll.health.forecast.method import Ask
from plimsoll.health.forecast.methods import METHODS, methods_named
from tests.health.forecast.pasts import past

DAY = 24
TRAILING_AND_WORST = methods_named(["trailing", "worst"])

HOURS = {
    "decisions start after the window and come every horizon": (100, 40, 20, [40, 60, 80]),
    "an incomplete last horizon is dropped": (99, 40, 20, [40, 60]),
    "a history that ends with the first horizon has one decision": (60, 40, 20, [40]),
    "a shorter one has none": (59, 40, 20, []),
}


@pytest.mark.parametrize("case", HOURS)
def test_when_decisions_are_made(case: str) -> None:
    hours, window, horizon, want_hours = HOURS[case]
    assert list(decision_hours(hours, window=window, horizon=horizon)) == want_hours


def test_violated_hours_shortfall_and_shares_by_hand() -> None:
    # Ten nodes. In the window one is out for an hour. In the first horizon (hours 10 to 19) two are out from 12.5 to
    # 14.25, which touches hours 12, 13 and 14, and a third one in hour 13. In the second (20 to 29) nothing happens.
    history = past([(0, 3.0, 4.0), (0, 12.5, 14.25), (1, 12.5, 14.25), (2, 13.25, 13.5)], nodes=10, hours=30)
    found = backtest([history], TRAILING_AND_WORST, Ask(10, 0.9), window=10)
    by_method = {
        name: [(each.at, each.total, each.promised, each.violated_hours, each.shortfall) for each in found.decisions
               if each.method == name]
        for name in ("trailing", "worst", "hindsight")
    }  # fmt: skip
    assert by_method == {
        # 9 of 10 hours of the window had nobody out, so 10 are promised: 8, 7 and 8 are healthy in the bad hours.
        "trailing": [(10, 10, 10, 3, 7), (20, 10, 8, 0, 0)],
        # The worst of the window was one: 9 promised, so 1, 2 and 1 are missing. After that the worst was three.
        "worst": [(10, 10, 9, 3, 4), (20, 10, 7, 0, 0)],
        # Two of 20 hours may be violated and three had two out, so the buffer is two: hour 13 is one short.
        "hindsight": [(10, 10, 8, 1, 1), (20, 10, 8, 0, 0)],
    }
    trailing = found.score("trailing")
    assert trailing.violation_rate == 3 / 20
    assert trailing.buffer_share == pytest.approx(0.1)
    assert trailing.shortfall_mean == pytest.approx(7 / 3)
    assert found.score("hindsight").buffer_share == pytest.approx(0.2)


def test_no_more_is_promised_than_is_healthy_at_that_moment() -> None:
    # The window was quiet; three nodes leave just before the decision, so seven can be promised and seven hold.
    history = past([(node, 9.5, 25.0) for node in range(3)], nodes=10, hours=20)
    made = backtest([history], TRAILING_AND_WORST, Ask(10, 0.5), window=10).decisions
    assert [(each.promised, each.violated_hours) for each in made if each.method == "trailing"] == [(7, 0)]


def test_the_worst_cluster_is_named_and_rates_are_over_all_cluster_hours() -> None:
    calm = past([], nodes=10, hours=30, name="calm")
    rough = past([(0, 12.0, 16.0)], nodes=10, hours=30, name="rough")
    score = backtest([calm, rough], TRAILING_AND_WORST, Ask(10, 0.9), window=10).score("trailing")
    assert (score.worst_cluster, score.worst_violation_rate, score.violation_rate) == ("rough", 4 / 20, 4 / 40)


def test_a_retired_node_leaves_the_total_and_breaks_a_promise_made_before() -> None:
    history = past([], nodes=10, hours=30, left=[(15.0, -1)])
    found = backtest([history], TRAILING_AND_WORST, Ask(10, 0.99), window=10)
    assert [(each.total, each.promised, each.violated_hours) for each in found.decisions if each.method == "worst"] == [
        (10, 10, 5),
        (9, 9, 0),
    ]


def test_a_cluster_is_decided_for_only_while_it_has_nodes() -> None:
    gone = past([], nodes=1, hours=30, name="gone", left=[(5.0, -1)])
    found = backtest([gone, past([], hours=30)], TRAILING_AND_WORST, Ask(10, 0.99), window=10)
    assert {each.cluster for each in found.decisions} == {"tiger"}


def test_hindsight_allows_exactly_the_share_of_hours() -> None:
    # 200 hours are judged at 0.99: two may be violated. Three have a node out, so two are not enough to go without.
    for end, want_share in ((53.0, 0.1), (52.0, 0.0)):
        found = backtest([past([(0, 50.0, end)], hours=210)], (), Ask(10, 0.99), window=10)
        assert found.score("hindsight").buffer_share == pytest.approx(want_share)


def _score(method: str, violation_rate: float, buffer_share: float) -> Score:
    return Score(method, violation_rate, buffer_share, "tiger", violation_rate, 0.0)


CHOICES = {
    "the cheapest that kept the target": ([("arrivals", 0.01, 0.05), ("worst", 0.001, 0.09)], "arrivals"),
    "cheap is no excuse": ([("arrivals", 0.0101, 0.05), ("worst", 0.001, 0.09)], "worst"),
    "the nearest where none kept it": ([("arrivals", 0.03, 0.05), ("worst", 0.02, 0.09)], "worst"),
    "never the naive one": ([("independent", 0.0, 0.01), ("worst", 0.001, 0.09)], "worst"),
    "also one whose target is the fleet's": ([("thrifty", 0.005, 0.01), ("worst", 0.001, 0.09)], "thrifty"),
    "never the oracle": ([("hindsight", 0.009, 0.01), ("worst", 0.02, 0.09)], "worst"),
}


@pytest.mark.parametrize("case", CHOICES)
def test_what_is_recommended(case: str) -> None:
    scores, want_method = CHOICES[case]
    assert recommend([_score(*each) for each in scores], METHODS, 0.01) == want_method


def test_what_is_recommended_for_each_cluster_is_no_fleets_promise() -> None:
    scores = [_score("thrifty", 0.005, 0.01), _score("worst", 0.001, 0.09)]
    assert recommend(scores, METHODS, 0.01, is_each=True) == "worst"


def test_who_asks_for_one_baseline_gets_it_but_not_a_fleets_promise() -> None:
    for name, want in (("independent", "independent"), ("thrifty", None)):
        assert recommend([_score(name, 0.001, 0.01)], methods_named([name]), 0.01, is_each=True) == want


def test_a_method_that_does_not_exist() -> None:
    with pytest.raises(UsageError) as caught:
        methods_named(["trialing"])
    assert caught.value.code == "bad_method"
    assert "did you mean trailing?" in caught.value.message
    assert "negative_binomial" in caught.value.next_step
