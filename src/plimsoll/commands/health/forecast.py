"""`plimsoll health forecast` and `backtest`: how many GPUs can be promised, and how well such promises held."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plimsoll.answers import Output
from plimsoll.commands.health.app import app
from plimsoll.commands.options import AsOf, Db, Format, open_database, parse_as_of
from plimsoll.commands.output import progress, show
from plimsoll.commands.pictures import PictureOutput, check_place, put
from plimsoll.errors import UsageError
from plimsoll.times import parse_time, utc_now

if TYPE_CHECKING:
    from plimsoll.health.forecast.live import Forecast
    from plimsoll.state.state import State

_SPAN = re.compile(r"(\d{1,6})(h|d|w)")
_HOURS = {"h": 1, "d": 24, "w": 168}


Target = Annotated[float, typer.Option("--target", help="The share of hours in which the promise must hold.")]
Horizon = Annotated[str, typer.Option("--horizon", metavar="SPAN", help="How long it must hold: 36h, 7d, 2w.")]


def parse_hours(text: str, *, option: str) -> int:
    """A span in whole hours."""
    span = _SPAN.fullmatch(text.strip())
    if span is None:
        raise UsageError(
            "bad_span",
            f"{option} {text[:100]!r} is not a span of whole hours",
            next_step=f"{option} 36h, {option} 7d or {option} 2w",
            value=text[:100],
        )
    return int(span[1]) * _HOURS[span[2]]


@app.command("forecast")
def forecast_command(
    context: typer.Context,
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="One cluster, in detail.", show_default=False)
    ] = "",
    horizon: Horizon = "7d",
    target: Target = 0.99,
    method: Annotated[
        str,
        typer.Option(
            "--method", metavar="NAME", help="Use this method everywhere.", show_default="the best on each pool's past"
        ),
    ] = "",
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="Where -o png or -o svg goes.", show_default="stdout"),
    ] = None,
    db: Db = "",
    output: Annotated[PictureOutput, typer.Option("-o", "--output", help="How to print.")] = PictureOutput.TABLE,
    as_of: AsOf = "",
) -> None:
    """Say how many GPUs of each pool can be promised: healthy with the target probability over the horizon, and why.

    Which method is used is decided per pool by how the methods would have done on its own past.
    """
    hours = parse_hours(horizon, option="--horizon")
    check_place(output, file, noun="forecast")
    from plimsoll.commands.health.forecast_answer import forecast_answer
    from plimsoll.health.forecast.methods import methods_named
    from plimsoll.health.forecast.present import checked_ask, forecast_state

    ask = checked_ask(horizon=hours, target=target)
    methods_named([method] if method else [])
    with progress("forecasting"):
        keeper, moment = open_database(context, db), parse_as_of(as_of) if as_of else None
        state = keeper.state() if moment is None else keeper.as_of(moment)
        found = forecast_state(state, ask, now=_now(state, moment), cluster=cluster, method=method)
    if output.is_picture:
        _draw(found, output, file)
        return
    show(forecast_answer(found, state, in_detail=bool(cluster)), Output(output.value))


def _now(state: State, as_of: Any) -> datetime:
    """The moment to look ahead from: now, or what was asked for; a revision was now when it was recorded."""
    if as_of is None or not (isinstance(as_of, datetime) or state.recorded_at):
        return utc_now()
    return as_of if isinstance(as_of, datetime) else parse_time(state.recorded_at)


def _draw(found: Forecast, output: PictureOutput, file: Path | None) -> None:
    from plimsoll.charts import render
    from plimsoll.health.forecast.picture import picture

    with progress("drawing"):
        body = render(picture(found), "svg" if output is PictureOutput.SVG else "png")
    put(body, file, next_step=f"--file forecast.{output}")


@app.command("backtest")
def backtest_command(
    path: Annotated[
        Path, typer.Argument(metavar="FLEET_DIR", help="A fleet folder with clusters.csv, nodes.csv and history.csv.")
    ],
    window: Annotated[
        str, typer.Option("--window", metavar="SPAN", help="How much of the past a decision looks at.")
    ] = "90d",
    horizon: Horizon = "7d",
    target: Target = 0.99,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", metavar="NAME", help="Only this method; may be given again.", show_default="all methods"
        ),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Say how each method would have done on a fleet's past: decide, look what happened, decide again.

    Nothing is stored. Every decision is made with what was known at its time; -o json lists them all.
    """
    window_hours, horizon_hours = parse_hours(window, option="--window"), parse_hours(horizon, option="--horizon")
    from plimsoll.commands.health.forecast_answer import backtest_answer
    from plimsoll.fleet.service import Source
    from plimsoll.health.forecast.methods import methods_named
    from plimsoll.health.forecast.present import checked_ask
    from plimsoll.health.forecast.service import backtest_state, read_folder_state, sheets_needed
    from plimsoll.rooms import SHEETS, open_keeper

    ask = checked_ask(horizon=horizon_hours, target=target)
    methods = methods_named(method or [])
    sheets = sheets_needed(SHEETS)
    source = Source.of_path(path, sheets)
    with progress(f"reading {source.name}") as line, open_keeper("sqlite:///:memory:", create=True) as keeper:
        watched = source.watched(lambda name, rows: line(rows, f"{name}: rows read"))
        state = read_folder_state(keeper, watched, sheets)
        tell: Any = lambda hour: line(hour // 24, "days decided")  # noqa: E731
        found = backtest_state(state, methods, ask, window=window_hours, tell=tell)
    show(backtest_answer(found, methods, source.name, is_csv=output is Output.CSV), output)
