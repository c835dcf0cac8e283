"""Never a look ahead, never a promise beyond what there is, never a score that its own decisions don't give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.health.forecast.backtest import backtest
from plimsoll.health.forecast.history import History
from plimsoll.health.forecast.method import Ask, FleetView, Record, Records, Taking
from plimsoll.health.forecast.methods import METHODS
from tests.health.forecast.pasts import OPEN, past

NODES, HOURS, WINDOW, HORIZON = 12, 600, 100, 50


class Drawn(NamedTuple):
    histories: list[History]
    cut: int


@st.composite
def _histories(draw: st.DrawFn) -> Drawn:
    """Two clusters with single outages, bursts, storms, open ends and a node that leaves."""
    histories = []
    for name in ("lion", "tiger"):
        outages: list[tuple[int, float, float]] = []
        quarters = st.integers(0, 4 * HOURS - 1).map(lambda quarter: quarter / 4)
        for node in range(NODES):
            hours = sorted(set(draw(st.lists(quarters, max_size=4))))
            for begin, following in zip(hours, [*hours[1:], 2 * HOURS], strict=False):
                end = begin + draw(st.sampled_from([0.25, 1.0, 7.5, 40.0]))
                if end < following:
                    outages.append((node, begin, end if end < HOURS else OPEN))
        if draw(st.booleans()):
            at = draw(st.integers(1, HOURS - 30))
            taken = {node for node, begin, end in outages if begin < at + 10 and end > at}
            outages += [(node, float(at), at + 9.0) for node in range(8) if node not in taken]
            outages = [each for each in outages if not (each[0] < 8 and at < each[1] < at + 10)]
        left = [(float(draw(st.integers(1, HOURS))), -1)] if draw(st.booleans()) else []
        histories.append(past(outages, nodes=NODES + 1, hours=HOURS, name=name, left=left))
    return Drawn(histories, draw(st.integers(WINDOW + HORIZON, HOURS)))


@settings(max_examples=25)
@given(_histories())
def test_never_a_look_ahead(drawn: Drawn) -> None:
    ask = Ask(HORIZON, 0.95)
    full = backtest(drawn.histories, METHODS, ask, window=WINDOW)
    cut = backtest([history.cut(drawn.cut) for history in drawn.histories], METHODS, ask, window=WINDOW)
    # Hindsight is the one that may know the future, so it is left out.
    want = {(e.cluster, e.method, e.at): e for e in full.decisions if e.method != "hindsight" and e.until <= drawn.cut}
    assert {(e.cluster, e.method, e.at): e for e in cut.decisions if e.method != "hindsight"} == want
    assert want


@settings(max_examples=25)
@given(_histories(), st.floats(0.5, 0.999), st.floats(0.0005, 0.4), st.floats(0.0, 3.0))
def test_never_a_promise_beyond_what_there_is_nor_a_larger_one_for_more_certainty(
    drawn: Drawn, target: float, more: float, violated: float
) -> None:
    records = Records(Record(20, violated), Record(40, 2 * violated), 2)
    takings = (Taking(3.0, 30.0, 2),)
    higher = target + more * (1 - target)
    for view in FleetView(drawn.histories, drawn.cut, WINDOW).views:
        for method in METHODS:
            lower_buffer = method.promise(view, Ask(HORIZON, target, takings), records).buffer
            higher_buffer = method.promise(view, Ask(HORIZON, higher, takings), records).buffer
            assert 0 <= lower_buffer <= higher_buffer <= view.total, method.name


@settings(max_examples=25)
@given(_histories())
def test_never_a_score_that_its_decisions_do_not_give(drawn: Drawn) -> None:
    """Count again, in the plainest way, from the decisions and the outages alone."""
    found = backtest(drawn.histories, METHODS, Ask(HORIZON, 0.95), window=WINDOW)
    healthy = {history.name: [_healthy_least(history, hour) for hour in range(HOURS)] for history in drawn.histories}
    for score in found.scores:
        violated = hours = 0
        shares = []
        for each in (each for each in found.decisions if each.method == score.method):
            shares.append((each.total - each.promised) / each.total)
            for hour in range(each.at, each.until):
                violated += healthy[each.cluster][hour] < each.promised
                hours += 1
        assert score.violation_rate == violated / hours
        assert np.isclose(score.buffer_share, sum(shares) / len(shares))


def _healthy_least(history: History, hour: int) -> int:
    """Look at the opening of the hour and at every change inside it."""
    moments = [float(hour), *(m for m in [*history.began, *history.ended, *history.left_at] if hour < m < hour + 1)]
    return min(
        history.node_count
        + sum(int(sign) for at, sign in zip(history.left_at, history.left_sign, strict=True) if at <= moment)
        - sum(bool(begin <= moment < end) for begin, end in zip(history.began, history.ended, strict=True))
        for moment in moments
    )
