"""How a forecast and a back-test are told: the number, why, and what to do next; for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from plimsoll.answers import Answer, Table
from plimsoll.health.forecast.backtest import Decision, Score, recommend
from plimsoll.health.forecast.history import HOUR
from plimsoll.health.forecast.live import Down, Forecast, PoolForecast
from plimsoll.health.forecast.method import Method, planned_most
from plimsoll.health.forecast.methods import HINDSIGHT, METHODS
from plimsoll.health.forecast.picture import ahead_points, past_points
from plimsoll.health.forecast.service import FolderBacktest
from plimsoll.health.model import from_microseconds
from plimsoll.state.state import State
from plimsoll.times import show_time

DOWN_SHOWN = 15
STALE_HOURS = 24
"""A fleet of any size has a transition a day: after this long somebody should look whether any are still told."""
POOL_COLUMNS = (
    "cluster", "sku", "total", "healthy", "promised", "buffer", "buffer_share", "reserve", "nodes_out", "method",
)  # fmt: skip
SCORE_COLUMNS = (
    "method", "violation_rate", "worst_cluster", "worst_violation_rate", "buffer_share", "shortfall_mean",
    "violation_to_hindsight", "buffer_to_hindsight", "buffer_to_worst",
)  # fmt: skip


def forecast_answer(found: Forecast, state: State, *, in_detail: bool) -> Answer:
    """All pools in one table; the pools of one cluster with everything behind them."""
    rows = [_pool_row(pool) for pool in found.pools]
    total, promised = sum(row[2] for row in rows), sum(row[4] for row in rows)
    span = f"{found.ask.horizon / 24:g} days"
    names = sorted({pool.pool.cluster for pool in found.pools})
    what = names[0] if in_detail else _counted(len(names), "cluster")
    heading = (
        f"{what}: {promised:,} of {total:,} GPUs can be promised for {span} at {found.ask.target:.10g},"
        f" {total - promised:,} are held back ({(total - promised) / total:.1%})"
    )
    tables = [Table(POOL_COLUMNS, rows, name="pools")]
    if in_detail:
        for pool in found.pools:
            tables += _detail(found, pool)
    until = found.start + timedelta(hours=found.ask.horizon)
    notes = [f"from {_minute(found.start)} until {_minute(until)}; {_history_note(found)}"]
    if found.quiet_hours > STALE_HOURS:
        notes.append(
            f"warning: nothing was told since {_minute(found.history_end)}, {found.quiet_hours / 24:.0f} days ago:"
            " what was out then is taken to be out still, and rates are those of before"
        )
    notes += [
        f"warning: with {each.name} the target holds for the fleet as a whole, not for each pool: one of them may be"
        " violated up to three times as often"
        for each in METHODS
        if not each.promises_each and any(pool.method == each.name for pool in found.pools)
    ]
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
        "until": until,
        "history_until": found.history_end,
        "horizon_hours": found.ask.horizon,
        "target": found.ask.target,
        "history_days": round(found.history_days, 3),
        "history_is_short": found.is_short,
        "horizons_judged": found.horizons_judged,
        "totals": {"total": total, "promised": promised, "buffer": total - promised},
        "colo_bursts": dict(found.colo_bursts),
        "pools": [_pool_document(found, pool) | (_points(found, pool) if in_detail else {}) for pool in found.pools],
    }
    return Answer(document, tables, heading, notes)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _minute(moment: datetime) -> str:
    """Nobody needs the seconds of a forecast."""
    return show_time(moment.replace(second=0, microsecond=0))


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
    judged = f"methods were chosen by {_counted(found.horizons_judged, 'horizon')} of it, the fleet's record mixed in"
    if found.is_short:
        return f"the history is short, {found.history_days:.0f} days: what is rarer was not seen; {judged}"
    return f"{found.history_days:.0f} days of history; {judged}"


def _detail(found: Forecast, pool: PoolForecast) -> list[Table]:
    facts = [*_why(pool), ("planned work", _planned_text(found, pool)), ("reserve", _reserve_text(pool))]
    name = f"{pool.pool.cluster} {pool.pool.sku}"
    rows = [
        (each.node, each.service, each.since, each.reason, each.is_planned, each.returns,
         "told" if each.is_told else "guess")
        for each in sorted(pool.down, key=lambda down: down.returns)
    ]  # fmt: skip
    title = f"{name}: out now" + (
        f", the first {DOWN_SHOWN} of {len(rows)} to return" if len(rows) > DOWN_SHOWN else ""
    )
    ahead = [(each["time"], each["low"], each["gpus"], each["high"]) for each in ahead_points(found, pool)]
    sku = pool.pool.sku
    judged = [(c.method, f"{c.own_violation_rate:.2%}", f"{c.violation_rate:.2%}", c.buffer) for c in pool.candidates]
    return [
        Table(("why", ""), facts, name, f"why_{sku}"),
        Table(
            ("node", "service", "since", "reason", "planned", "expected_back", "by"),
            rows,
            title,
            f"down_{sku}",
            DOWN_SHOWN,
        ),
        Table(
            ("method", "violated", "with_the_fleet's_record", "buffer_nodes"),
            judged,
            f"{name}: methods so far",
            f"methods_{sku}",
        ),
        Table(("time", "low", "gpus", "high"), ahead, f"{name}: what is expected", f"ahead_{sku}", shown=0),
    ]


def _why(pool: PoolForecast) -> list[tuple[str, str]]:
    """The numbers that the method used, or that set the floor; no others."""
    why, method = pool.why, next(method for method in METHODS if method.name == pool.method)
    facts = [("method", f"{pool.method}: {method.says}")]
    if not method.sees_present:
        facts.append(("asks for", _asked_text(why)))
        is_floored = why["floor_nodes"] > why["method_nodes"]
        least = f"{_counted(round(why['floor_nodes']), 'node')} by who is out now and what is expected"
        facts.append(("floor", f"{least}: {'this is taken' if is_floored else 'less, so it changes nothing'}"))
    if "failures_per_1000_node_days" in why:
        facts += [
            ("failures", f"{why['failures_per_1000_node_days']:.2f} per 1,000 node-days, planned work left out"),
            ("burstiness", f"weeks differ {why['weekly_dispersion']:.1f} times as much as chance alone would"
             " make them"),
            ("repair", f"half within {why['repair_hours_median']:.0f} hours, nine in ten in"
             f" {why['repair_hours_p90']:.0f}"),
            ("out now", f"{_counted(pool.total - pool.healthy, 'node')}; {why['out_at_end']:.1f} of the faulty ones"
             " still at the end"),
            ("bursts", _bursts_text(why)),
        ]  # fmt: skip
    if pool.is_capped:
        facts.append(("cap", f"no more than the {_counted(pool.healthy, 'node')} that are healthy now"))
    return facts


def _asked_text(why: Mapping[str, float]) -> str:
    """What a method that looks at the window only asks for, and by which numbers."""
    texts = {
        "mean": "{:.1f} nodes out on average", "variance": "variance {:.1f}", "hours": "{:.0f} hours looked at",
        "out_share": "{:.2%} of the nodes out on average", "planned": "{:.0f} of them for planned work",
    }  # fmt: skip
    used = [text.format(why[key]) for key, text in texts.items() if key in why]
    return f"{_counted(round(why['method_nodes']), 'node')} ({', '.join(used)})"


def _reserve_text(pool: PoolForecast) -> str:
    reserve = pool.reserve
    text = f"{_counted(reserve.node_count, 'node')} more for a burst of {reserve.burst_nodes}"
    if reserve.is_borrowed:
        text += ", as the fleet has seen"
    if not reserve.domain:
        return text
    own = f"{reserve.bursts_per_year:.1f} beyond coincidence a year, mostly of one {reserve.domain}"
    return f"{text} (here {own})"


def _bursts_text(why: Mapping[str, float]) -> str:
    if not why["burst_count"]:
        return "none seen"
    return (
        f"{why['burst_count']:.0f} of three nodes or more seen, the largest took {why['burst_nodes_max']:.0f} at once"
    )


def _planned_text(found: Forecast, pool: PoolForecast) -> str:
    if not pool.planned:
        return "none under way, none known ahead"
    nodes, last = planned_most(pool.planned, found.ask.horizon), max(taking.end for taking in pool.planned)
    throughout = sum(t.node_count for t in pool.planned if t.begin <= 0 and t.end >= found.ask.horizon)
    until = f"the last until {_minute(found.start + timedelta(hours=last))}"
    whole = f", {throughout:,} of them over the whole horizon" if throughout else ""
    coming = [taking.begin for taking in pool.planned if taking.begin > 0]
    at_once = f" at once, the next from {_minute(found.start + timedelta(hours=min(coming)))}" if coming else ""
    return f"{_counted(nodes, 'node')}{at_once}, {until}{whole}; put in as known"


def _points(found: Forecast, pool: PoolForecast) -> dict[str, Any]:
    """What a picture of one cluster is drawn from: too much for a whole fleet."""
    return {"past": past_points(found, pool), "ahead": ahead_points(found, pool)}


def _pool_document(found: Forecast, pool: PoolForecast) -> dict[str, Any]:
    values: dict[str, Any] = dict(zip(POOL_COLUMNS, _pool_row(pool), strict=True))
    reserve = pool.reserve
    return values | {
        "gpus_per_node": pool.gpus_per_node,
        "why": {key: round(value, 4) for key, value in pool.why.items()},
        "common_cause": {
            "reserve_nodes": reserve.node_count,
            "held_nodes": reserve.held_nodes,
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
        "is_told": down.is_told,
    }


def backtest_answer(found: FolderBacktest, methods: Sequence[Method], source: str, *, is_csv: bool) -> Answer:
    """The methods side by side; every decision in the document."""
    result, span = found.result, found.span
    risk = result.ask.risk
    recommended = recommend(result.scores, methods, risk)
    best = result.score(recommended or methods[0].name)
    rows = [_score_row(score, result.scores) for score in result.scores]
    yardstick = result.score(HINDSIGHT).buffer_share
    kept = best.violation_rate <= risk + 1e-9
    clusters = sorted({decision.cluster for decision in result.decisions})
    count = len([each for each in result.decisions if each.method == HINDSIGHT])
    heading = (
        f"{source}: {best.method} {'keeps' if kept else 'comes nearest to'} {result.ask.target:.10g}:"
        f" {best.violation_rate:.2%} of hours violated, {best.buffer_share:.2%} of nodes held back"
    )
    notes = [
        f"{_counted(count, 'decision')} in {_counted(len(clusters), 'cluster')} over {span.days:.0f} days,"
        f" window {result.window / 24:g} and horizon {result.ask.horizon / 24:g} days;"
        f" {risk:.2%} of hours may be violated",
        "hindsight knows the future: it is the smallest constant buffer that would have held, a yardstick",
    ]
    for_each = recommend(result.scores, methods, risk, is_each=True)
    if for_each != recommended and for_each is not None:
        each = result.score(for_each)
        notes.append(
            f"{best.method} keeps the target for the fleet as a whole ({best.worst_cluster}"
            f" {best.worst_violation_rate:.2%}); for a promise to each cluster: {each.method} with"
            f" {each.violation_rate:.2%} of hours violated and {each.buffer_share:.2%} held back"
        )
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
        "recommended_keeps_target": kept if recommended else None,
        "recommended_for_each": for_each,
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
