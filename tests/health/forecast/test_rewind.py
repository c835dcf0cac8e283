"""Forecasts of the past: never a look ahead, and at the last hour the same as the forecast of now."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import PoolKey
from plimsoll.health.fold import Health
from plimsoll.health.forecast.history import History
from plimsoll.health.forecast.method import Ask
from plimsoll.health.forecast.present import forecast_state
from plimsoll.health.forecast.rewind import PastPool, Rewind, first_hour, past_pools
from plimsoll.health.model import to_microseconds
from tests.health.forecast.pasts import OPEN, Outages, past
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import NOW, Importer

HOURS, HORIZON, NODES = 480, 48, 10
ASK = Ask(HORIZON, 0.95)


def pool_of(history: History) -> PastPool:
    islands = [f"{history.name}-{number % 2}" for number in range(history.node_count)]
    return PastPool(PoolKey(history.name, "H200"), 8, history, history.unplanned(), islands)


@st.composite
def outages(draw: st.DrawFn) -> Outages:
    """Single outages and one burst, some of which have not ended."""
    found: list[tuple[int, float, float]] = []
    burst = draw(st.integers(1, HOURS - 40))
    for node in range(NODES):
        at = draw(st.integers(0, HOURS - 1))
        if abs(at - burst) > 30:
            length = draw(st.sampled_from([1.0, 8.0, 24.0, OPEN]))
            is_clear = at + length < burst or at > burst + 30
            found.append((node, float(at), at + length if is_clear else at + 1.0))
        if node % 2 and not any(each[0] == node and each[1] < burst + 10 and each[2] > burst for each in found):
            found.append((node, burst + node / 60, burst + 9.0))
    return found


@settings(max_examples=20, deadline=None)
@given(outages(), outages(), st.integers(first_hour(HORIZON), HOURS - 1), st.integers(0, HOURS))
def test_never_a_look_ahead(lion: Outages, tiger: Outages, hour: int, later: int) -> None:
    planned = [0, 1]
    whole = [past(each, hours=HOURS, nodes=NODES, name=name, planned=planned)
             for name, each in (("lion", lion), ("tiger", tiger))]  # fmt: skip
    want = Rewind([pool_of(history) for history in whole]).at(hour, ASK)
    end = min(HOURS, hour + later)
    cut = Rewind([pool_of(history.cut(end)) for history in whole])
    assert cut.at(hour, ASK) == want


def test_a_forecast_after_others_is_the_same_as_alone() -> None:
    history = past([(node, 30.0 * node, 30.0 * node + 20) for node in range(NODES)], hours=HOURS, nodes=NODES)
    pools = [pool_of(history)]
    many = Rewind(pools)
    in_turn = [many.at(hour, ASK) for hour in range(first_hour(HORIZON), HOURS, HORIZON)]
    alone = [Rewind(pools).at(hour, ASK) for hour in range(first_hour(HORIZON), HOURS, HORIZON)]
    assert in_turn == alone


def test_a_pool_that_is_out_as_a_whole_is_promised_nothing() -> None:
    history = past([(node, 300.0, OPEN) for node in range(NODES)], hours=HOURS, nodes=NODES)
    assert Rewind([pool_of(history)]).at(320, ASK)[PoolKey("tiger", "H200")].line == 0


def test_at_the_last_hour_it_is_the_forecast_of_now(tmp_path: Path) -> None:
    history = []
    for number in range(40):
        begin = NOW - timedelta(hours=24 * (41 - number))
        node = f"n{number % 10 + 1}"
        reason = "planned: firmware" if number % 7 == 0 else "xid 79"
        service = "maintenance" if number % 7 == 0 else "repair"
        history.append(row("history", time=begin.isoformat(), node=node, service=service, reason=reason))
        if number < 39:
            end = begin + timedelta(hours=9)
            history.append(row("history", time=end.isoformat(), node=node, service="in_service", reason=""))
    history.append(row("history", time=NOW.isoformat(), node="n1", service="in_service", reason="checked"))
    open_row = history[-2]
    out = row("nodes", node=open_row["node"], service="repair", since=open_row["time"], reason="xid 79")
    others = [each for each in nodes(10) if each["node"] != out["node"]]
    importer = Importer()
    importer.bring(write_fleet(tmp_path / "fleet", nodes=[*others, out], history=history))
    ask = Ask(168, 0.99)
    (want,) = forecast_state(importer.state, ask, now=NOW).pools
    pools = past_pools(importer.of(Fleet), importer.of(Health), end=to_microseconds(NOW))
    found = Rewind(pools).at(pools[0].history.span.hour_count, ask)[want.pool]
    assert (found.promised, found.reserve, found.method) == (want.promised, want.reserve.held_nodes, want.method)
    assert want.healthy == 9
