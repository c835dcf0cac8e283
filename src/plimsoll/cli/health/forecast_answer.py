"""How a forecast and a back-test are told: the number, why, and what to do next; for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from plimsoll.cli.output import Answer, Table
from plimsoll.health.forecast.backtest import Decision, Score, recommend
from plimsoll.health.forecast.history import HOUR
from plimsoll.health.forecast.live import Down, Forecast, PoolForecast
from plimsoll.health.forecast.method import Method
from plimsoll.health.forecast.methods import HINDSIGHT, METHODS
from plimsoll.health.forecast.service import FolderBacktest
from plimsoll.health.model import from_microseconds
from plimsoll.state.state import State

DOWN_SHOWN = 15
POOL_COLUMNS = (
    "cluster", "sku", "total", "healthy", "promised", "buffer", "buffer_share", "reserve", "nodes_out", "method",
)  # fmt: skip
SCORE_COLUMNS = (
    "method", "violation_rate", "worst_cluster", "worst_violation_rate", "buffer_share", "shortfall_mean",
    "violation_to_hindsight", "buffer_to_hindsight", "buffer_to_worst",
)  # fmt: skip


def forecast_answer(found: Forecast, state: State, output: str, *, in_detail: bool) -> Answer:
    """All pools in one table; the pools of one cluster with everything behind them."""
    rows = [_pool_row(pool) for pool in found.pools]
    total, promised = sum(row[2] for row in rows), sum(row[4] for row in rows)
    span = f"{found.ask.horizon / 24:g} days"
    names = sorted({pool.pool.cluster for pool in found.pools})
    what = names[0] if in_detail else f"{len(names)} clusters"
    heading = (
        f"{what}: {promised:,} of {total:,} GPUs can be promised for {span} at {found.ask.target:.10g},"
        f" {total - promised:,} are held back ({(total - promised) / total:.1%})"
    )
    tables = [Table(POOL_COLUMNS, rows)]
    if in_detail and output == "table":
        for pool in found.pools:
            tables += _detail(pool)
    notes = [_history_note(found)]
    if any(pool.reserve.node_count for pool in found.pools):
        notes.append(
            "reserve: what one more burst with a common cause would take beyond the buffer; not held back here"
        )
    cluster = names[0] if in_detail else max(found.pools, key=_gap).pool.cluster
    notes.append(
        f"next: plimsoll health forecast --cluster {cluster} -o png > forecast.png\n"
        "      plimsoll fleet export DIR; plimsoll health backtest DIR --window 30d    how the methods did"
        if in_detail
        else f"next: plimsoll health forecast --cluster {cluster}    the pool with the most to hold back, and why"
    )
    document = {
        "as_of": state.recorded_at or None,
        "revision": state.revision,
        "from": found.start,
        "until": found.start + timedelta(hours=found.ask.horizon),
        "horizon_hours": found.ask.horizon,
        "target": found.ask.target,
        "history_days": round(found.history_days, 3),
        "history_is_short": found.is_short,
        "horizons_judged": found.horizons_judged,
        "totals": {"total": total, "promised": promised, "buffer": total - promised},
        "colo_bursts": dict(found.colo_bursts),
        "pools": [_pool_document(found, pool) for pool in found.pools],
    }
    return Answer(document, tables, heading, notes)


def _gap(pool: PoolForecast) -> int:
    return (pool.total - pool.promised) * pool.gpus_per_node


def _pool_row(pool: PoolForecast) -> tuple[Any, ...]:
    gpus = pool.gpus_per_node
    return (
        pool.pool.cluster,
        pool.pool.sku,
        pool.total * gpus,
        pool.healthy * gpus,
        pool.promised * gpus,
        _gap(pool),
        (pool.total - pool.promised) / pool.total,
        pool.reserve.node_count * gpus,
        pool.total - pool.healthy,
        pool.method,
    )


def _history_note(found: Forecast) -> str:
    judged = f"methods were chosen by {found.horizons_judged} horizons of it, the fleet's record mixed in"
    if found.is_short:
        return f"the history is short, {found.history_days:.0f} days: what is rarer was not seen; {judged}"
    return f"{found.history_days:.0f} days of history; {judged}"


def _detail(pool: PoolForecast) -> list[Table]:
    why = pool.why
    says = next(method.says for method in METHODS if method.name == pool.method)
    reserve = pool.reserve
    facts: list[tuple[str, str]] = [
        ("method", f"{pool.method}: {says}"),
        ("failures", f"{why['failures_per_1000_node_days']:.2f} per 1,000 node-days, planned work left out"),
        ("burstiness", f"weeks differ {why['weekly_dispersion']:.1f} times as much as chance alone would make them"),
        ("repair", f"half within {why['repair_hours_median']:.0f} hours, nine in ten in {why['repair_hours_p90']:.0f}"),
        ("out now", f"{pool.total - pool.healthy} nodes; {why['out_at_end']:.1f} of the faulty ones still at the end"),
        ("bursts", _bursts_text(why)),
        ("planned work", _planned_text(pool)),
        ("reserve", f"{reserve.node_count} nodes more for a burst of {reserve.burst_nodes}"
         + (f" ({reserve.bursts_per_year:.1f} a year, mostly of one {reserve.domain})" if reserve.domain else "")
         + (", as the rest of the fleet has seen" if reserve.is_borrowed else "")),
    ]  # fmt: skip
    name = f"{pool.pool.cluster} {pool.pool.sku}"
    shown = sorted(pool.down, key=lambda down: down.returns)[:DOWN_SHOWN]
    rows = [(each.node, each.service, each.since, each.reason, each.is_planned, each.returns) for each in shown]
    title = f"{name}: out now" + (
        f", the first {DOWN_SHOWN} of {len(pool.down)} to return" if len(rows) < len(pool.down) else ""
    )
    judged = [(c.method, f"{c.own_violation_rate:.2%}", f"{c.violation_rate:.2%}", c.buffer) for c in pool.candidates]
    return [
        Table(("why", ""), facts, name),
        Table(("node", "service", "since", "reason", "planned", "expected_back"), rows, title),
        Table(("method", "violated", "with_the_fleet's_record", "buffer_nodes"), judged, f"{name}: methods so far"),
    ]


def _bursts_text(why: Mapping[str, float]) -> str:
    if not why["burst_count"]:
        return "none seen"
    return f"{why['burst_count']:.0f} seen, the largest took {why['burst_nodes_max']:.0f} nodes at once"


def _planned_text(pool: PoolForecast) -> str:
    if not pool.planned:
        return "none under way, none known ahead"
    nodes, last = sum(taking.node_count for taking in pool.planned), max(taking.end for taking in pool.planned)
    return f"{nodes} {'node' if nodes == 1 else 'nodes'}, the last for {last:.0f} hours more; put in as known"


def _pool_document(found: Forecast, pool: PoolForecast) -> dict[str, Any]:
    values: dict[str, Any] = dict(zip(POOL_COLUMNS, _pool_row(pool), strict=True))
    reserve = pool.reserve
    return values | {
        "gpus_per_node": pool.gpus_per_node,
        "why": {key: round(value, 4) for key, value in pool.why.items()},
        "common_cause": {
            "reserve_nodes": reserve.node_count,
            "burst_nodes": reserve.burst_nodes,
            "burst_count": reserve.burst_count,
            "bursts_per_year": round(reserve.bursts_per_year, 2),
            "domain": reserve.domain or None,
            "is_borrowed": reserve.is_borrowed,
        },
        "planned": [
            {
                "begin": found.start + timedelta(hours=taking.begin),
                "end": found.start + timedelta(hours=taking.end),
                "nodes": taking.node_count,
            }
            for taking in pool.planned
        ],
        "down": [_down_document(down) for down in pool.down],
        "methods": [
            {
                "method": each.method,
                "violation_rate": each.violation_rate,
                "own_violation_rate": each.own_violation_rate,
                "buffer_nodes": each.buffer,
            }
            for each in pool.candidates
        ],
    }


def _down_document(down: Down) -> dict[str, Any]:
    return {
        "node": down.node,
        "service": down.service,
        "since": down.since,
        "reason": down.reason,
        "is_planned": down.is_planned,
        "expected_back": down.returns,
    }


def backtest_answer(found: FolderBacktest, methods: Sequence[Method], source: str, *, is_csv: bool) -> Answer:
    """The methods side by side; every decision in the document."""
    result, span = found.result, found.span
    risk = result.ask.risk
    recommended = recommend(result.scores, methods, risk)
    best = result.score(recommended)
    rows = [_score_row(score, result.scores) for score in result.scores]
    yardstick = result.score(HINDSIGHT).buffer_share
    kept = best.violation_rate <= risk + 1e-9
    clusters = sorted({decision.cluster for decision in result.decisions})
    count = len([each for each in result.decisions if each.method == HINDSIGHT])
    heading = (
        f"{source}: {recommended} {'keeps' if kept else 'comes nearest to'} {result.ask.target:.10g}:"
        f" {best.violation_rate:.2%} of hours violated, {best.buffer_share:.2%} of nodes held back"
    )
    notes = [
        f"{count:,} decisions in {len(clusters)} clusters over {span.days:.0f} days, window {result.window / 24:g} and"
        f" horizon {result.ask.horizon / 24:g} days; {risk:.2%} of hours may be violated",
        "hindsight knows the future: it is the smallest constant buffer that would have held, a yardstick",
    ]
    if not kept:
        notes.append("no method kept the target on this past: take the one that came nearest, and a reserve")
    if found.skipped:
        notes.append(f"left out, not in production or without nodes: {', '.join(found.skipped)}")
    notes.append("next: -o json for every decision; plimsoll health forecast for the time ahead")
    document = {
        "from": from_microseconds(span.start),
        "until": from_microseconds(span.end),
        "window_hours": result.window,
        "horizon_hours": result.ask.horizon,
        "target": result.ask.target,
        "methods": [_score_document(row, yardstick) for row in rows if row[0] != HINDSIGHT],
        "hindsight": next(_score_document(row, yardstick) for row in rows if row[0] == HINDSIGHT),
        "recommended": recommended,
        "recommended_keeps_target": kept,
        "clusters": _by_cluster(result.decisions),
        "skipped": list(found.skipped),
        # The yardstick decides nothing: it knows the future, so on a history cut short it would be another.
        "decisions": [_decision_document(each, span.start) for each in result.decisions if each.method != HINDSIGHT],
    }
    shown = rows if is_csv else [_for_people(row) for row in rows]
    return Answer(document, [Table(SCORE_COLUMNS, shown)], heading, notes)


def _score_document(row: tuple[Any, ...], yardstick: float) -> dict[str, Any]:
    return dict(zip(SCORE_COLUMNS, row, strict=True)) | {"hindsight_buffer_share": yardstick}


def _score_row(score: Score, scores: Sequence[Score]) -> tuple[Any, ...]:
    known = {each.method: each for each in scores}
    yardstick, worst = known[HINDSIGHT], known.get("worst")
    return (
        score.method,
        score.violation_rate,
        score.worst_cluster,
        score.worst_violation_rate,
        score.buffer_share,
        score.shortfall_mean,
        _ratio(score.violation_rate, yardstick.violation_rate),
        _ratio(score.buffer_share, yardstick.buffer_share),
        _ratio(score.buffer_share, worst.buffer_share) if worst else None,
    )


def _ratio(value: float, yardstick: float) -> float | None:
    return value / yardstick if yardstick else None


def _for_people(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Rates with two digits, ratios as such: the interesting ones lie close together."""
    method, rate, worst, worst_rate, share, shortfall, *ratios = row
    texts = ["-" if ratio is None else f"{ratio:.2f}x" for ratio in ratios]
    return method, f"{rate:.2%}", worst, f"{worst_rate:.2%}", f"{share:.2%}", shortfall, *texts


def _by_cluster(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """Per cluster and method what became of the promises."""
    found: dict[tuple[str, str], list[Decision]] = {}
    for each in decisions:
        found.setdefault((each.cluster, each.method), []).append(each)
    return [
        {
            "cluster": cluster,
            "method": method,
            "violated_hours": sum(each.violated_hours for each in made),
            "hours": sum(each.until - each.at for each in made),
            "buffer_share": sum(each.buffer_share for each in made) / len(made),
        }
        for (cluster, method), made in sorted(found.items())
    ]


def _decision_document(decision: Decision, start: int) -> dict[str, Any]:
    return {
        "cluster": decision.cluster,
        "method": decision.method,
        "at": from_microseconds(start + decision.at * HOUR),
        "until": from_microseconds(start + decision.until * HOUR),
        "total": decision.total,
        "promised": decision.promised,
        "violated_hours": decision.violated_hours,
    }
