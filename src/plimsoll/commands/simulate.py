"""`plimsoll simulate replay|generate`: the same decisions on a virtual clock."""

from __future__ import annotations

import csv
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import Format, read_text
from plimsoll.commands.output import progress, show
from plimsoll.errors import Refused, UsageError
from plimsoll.words import counted

if TYPE_CHECKING:
    from plimsoll.quota.policy import Policy
    from plimsoll.simulate.model import Settings, Trace
    from plimsoll.state.state import State

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="The same decisions on a virtual clock: replay a trace.",
)

SHEETS_READ = ("skus", "clusters", "nodes", "quotas")
"""What a replay wants of a fleet folder: what runs there now gives way to the trace."""
GENERATE_BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
RATE_MAX, REPAIR_HOURS_MAX = 100_000.0, 10_000.0
MINUTES_MAX = 100_000.0
INTERRUPTED = 130
WAIT_COLUMNS = ("jobs", "mean", "median", "p99", "most")

_NUMBER_FORM = "failures per 1,000 node-days and mean repair hours, such as 6.5,24"


@app.callback()
def _simulate() -> None:
    """The same decisions on a virtual clock: replay a trace."""


@app.command("replay")
def replay_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE.csv", help="One job a row: time,duration,gpus and more.")],
    fleet: Annotated[Path, typer.Option("--fleet", metavar="DIR", help="The fleet folder that it runs on.")],
    failures: Annotated[
        str, typer.Option("--failures", metavar="RATE,MTTR", help=f"Nodes fail: {_NUMBER_FORM}.", show_default="none")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="For all that is left to chance.")] = 1,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="FILE|WORD",
            help="How pools are aligned: fixed:0.15, tiered, a file.",
            show_default=False,
        ),
    ] = "",
    checkpoint_minutes: Annotated[
        float, typer.Option("--checkpoint-minutes", metavar="N", help="How often jobs save; 0: never.")
    ] = 30.0,
    restart_minutes: Annotated[
        float, typer.Option("--restart-minutes", metavar="N", help="What a start from a checkpoint takes.")
    ] = 10.0,
    grace_minutes: Annotated[
        float | None,
        typer.Option("--grace-minutes", metavar="N", help="Notice for called-back flex.", show_default="the policy's"),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Run a trace of jobs through the real decisions: how long work would wait, what would be used and lost.

    Nothing is stored. What a trace does not say (teams, tiers) is dealt by the seed, and told. A preempted or
    interrupted job needs what is left since its last checkpoint, and its restart.
    """
    rate, repair = parse_failures(failures)
    _check_minutes(checkpoint=checkpoint_minutes, restart=restart_minutes, grace=grace_minutes)
    from plimsoll.fleet.folder import CsvSheet
    from plimsoll.quota.plan import policy_in_force
    from plimsoll.simulate.model import Settings
    from plimsoll.simulate.trace import read_trace

    try:
        with progress(f"reading {trace.name}") as line:
            rows = read_trace(CsvSheet(trace), tell=lambda count: line(count, f"{trace.name}: rows read"))
        with progress(f"reading {fleet.name}") as line:
            state = read_fleet(fleet, lambda name, count: line(count, f"{name}: rows read"))
        meant = _policy(state, policy)
        grace = (meant or policy_in_force(state)).flex_grace
        if grace_minutes is not None:
            grace = timedelta(minutes=grace_minutes)
        settings = Settings(seed, rate, repair, checkpoint_minutes, restart_minutes, grace)
        document = _replayed(state, rows, settings, meant)
    except KeyboardInterrupt:
        typer.echo("plimsoll: stopped by Ctrl-C; nothing was stored", err=True)
        raise typer.Exit(INTERRUPTED) from None
    show(Answer(document, _tables(document), _heading(document), _notes(document)), output)


def _replayed(state: State, trace: Trace, settings: Settings, policy: Policy | None) -> dict[str, Any]:
    """The outcome, and how long it took."""
    from plimsoll.simulate.outcome import replay

    with progress("replaying", len(trace.jobs)) as line:
        began = time.perf_counter()
        found = replay(state, trace, settings, policy=policy, tell=line)
        seconds = time.perf_counter() - began
    speed = {"seconds": round(seconds, 3), "job_events_per_second": round(found.job_events / seconds, 1)}
    return {**found.document, "speed": speed}


def _check_minutes(**options: float | None) -> None:
    for name, value in options.items():
        if value is not None and not 0 <= value <= MINUTES_MAX:
            raise UsageError(
                "bad_minutes", f"--{name}-minutes {value:g} can't be", next_step=f"from 0 to {MINUTES_MAX:,.0f}"
            )


def parse_failures(text: str) -> tuple[float, float]:
    """`RATE,MTTR`; nothing where nothing was asked for."""
    if not text:
        return 0.0, 0.0
    words = text.split(",")
    try:
        rate, repair = (float(word) for word in words)
    except ValueError:
        raise _bad_failures(text, "not two numbers") from None
    if not (0 <= rate <= RATE_MAX and 0 < repair <= REPAIR_HOURS_MAX):
        raise _bad_failures(text, f"a rate lies between 0 and {RATE_MAX:,.0f}, a repair takes up to 10,000 hours")
    return rate, repair


def _bad_failures(text: str, why: str) -> UsageError:
    return UsageError("bad_failures", f"--failures {text[:60]!r}: {why}", next_step=f"give {_NUMBER_FORM}")


def read_fleet(path: Path, tell: Any = lambda _name, _count: None) -> State:
    """A state of its own with what a folder says exists and is promised."""
    from plimsoll.fleet.decide import plan_import
    from plimsoll.fleet.service import Source
    from plimsoll.fleet.sheet import ImportContext
    from plimsoll.memory import no_collection
    from plimsoll.rooms import KINDS, SHEETS
    from plimsoll.state.state import State
    from plimsoll.times import format_time, utc_now

    sheets = [sheet for sheet in SHEETS if sheet.name in SHEETS_READ]
    source = Source.of_path(path, sheets).watched(tell)
    state, now = State(KINDS), utc_now()
    with no_collection():
        context = ImportContext(now=now, source=source.name)
        plan = plan_import(state, source.raws, sheets, context, digest=source.digest, is_removal_allowed=True)
        state.assume(plan.drafts(), recorded_at=format_time(now))
    return state


def _policy(state: State, word: str) -> Policy | None:
    if not word:
        return None
    from plimsoll.fleet.fold import Fleet
    from plimsoll.quota.policy import check_policy, parse_word

    if word.endswith((".yaml", ".yml")):
        return check_policy(read_text(Path(word), noun="quota"), state.of(Fleet), source=word)
    return parse_word(word)


def _heading(document: dict[str, Any]) -> str:
    trace, fleet, waits = document["trace"], document["fleet"], document["waits"]["all"]
    block, broken = document["largest_block"], document["broken_promises"]
    lines = [
        f"{trace['jobs']:,} jobs of {trace['source']} ({trace['from'][:10]} to {trace['until'][:10]}) on"
        f" {fleet['nodes']:,} nodes, {fleet['healthy']:,} healthy GPUs, {fleet['islands']:,} islands",
        f"wait: mean {_span(waits['mean'])}, median {_span(waits['median'])}, p99 {_span(waits['p99'])}",
        f"utilisation {_share(document['utilisation_share'])}; largest block kept: mean"
        f" {block['mean'] or 0:,.0f} of {block['largest_island']:,} GPUs, least {block['least']:,}",
        f"preemptions {document['preemptions']:,}; interruptions {document['interruptions']['total']:,};"
        f" job uptime {_share(document['uptime_share'])}; goodput {_share(document['goodput_share'])}",
        f"broken promises: {broken['team_hours']:,.1f} of {broken['of_team_hours']:,.0f} team-hours"
        f" (kept {_share(broken['kept_share'])}): {broken['waiting_team_hours']:,.1f} waiting,"
        f" {broken['shortfall_team_hours']:,.1f} shortfall; by fragmentation, apart:"
        f" {broken['fragmented_team_hours']:,.1f}",
        f"{document['events']['jobs']:,} job events in {document['speed']['seconds']:,.1f} s:"
        f" {document['speed']['job_events_per_second']:,.0f} a second",
    ]
    return "\n".join(lines)


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _tables(document: dict[str, Any]) -> list[Table]:
    waits = document["waits"]
    size = [("size", row["size"], *(row[column] for column in WAIT_COLUMNS)) for row in waits["by_size"]]
    tier = [("tier", row["tier"], *(row[column] for column in WAIT_COLUMNS)) for row in waits["by_tier"]]
    columns = ("by", "class", "jobs", "mean_s", "median_s", "p99_s", "most_s")
    return [Table(columns, [*size, *tier], "seconds from submit to first start; size in GPUs")]


def _notes(document: dict[str, Any]) -> list[str]:
    notes = [f"assumed: {each}" for each in document["assumed"]]
    if refused := document["refused"]["jobs"]:
        most, largest = document["refused"]["gpus_most"], document["fleet"]["largest_island"]
        notes.append(
            f"left out: {counted(refused, 'job')} of up to {most:,} GPUs that would fit nowhere; the largest island has"
            f" {largest:,} that work"
        )
    if document["unfinished_jobs"]:
        never = document["never_started_jobs"]
        notes.append(f"not over in the end: {counted(document['unfinished_jobs'], 'job')}, {never:,} never started")
    if document["broken_promises"]["shortfall_team_hours"]:
        notes.append("next: --policy fixed:0.15 (or another buffer) to see how many promises a lower line would keep")
    return notes


@app.command("generate")
def generate_command(
    out: Annotated[Path, typer.Argument(metavar="OUT.csv", help="Where the trace goes.")],
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", help="How many jobs.")] = 10_000,
    days: Annotated[float, typer.Option("--days", metavar="D", help="Over how many days.")] = 7.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Another seed, another trace.")] = 1,
    gangs: Annotated[
        str, typer.Option("--gangs", metavar="LIST", help="GPUs of the island-scale gangs.")
    ] = "128,256,352,512",
    gang_share: Annotated[
        float, typer.Option("--gang-share", metavar="SHARE", help="The share of jobs that are such gangs.")
    ] = 0.03,
    busy_gpus: Annotated[
        int,
        typer.Option(
            "--busy-gpus", metavar="N", help="Scale durations so that so many GPUs are busy on average; 0: do not."
        ),
    ] = 0,
    is_replaced: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
) -> None:
    """Make a trace up: gangs as large as islands among small jobs and elastic work, with made-up teams."""
    from plimsoll.simulate.generate import DAYS_MAX, JOBS_MAX, Wanted, make_trace

    sizes = _gang_sizes(gangs)
    if not 1 <= jobs <= JOBS_MAX:
        raise UsageError("bad_jobs", f"--jobs {jobs:,} can't be", next_step=f"from 1 to {JOBS_MAX:,}")
    if not 0 < days <= DAYS_MAX:
        raise UsageError("bad_days", f"--days {days:g} can't be", next_step=f"up to {DAYS_MAX:,} days")
    if not 0 <= gang_share <= 1 or busy_gpus < 0:
        raise UsageError(
            "bad_share", "a share lies between 0 and 1, GPUs are not negative", next_step="--gang-share 0.03"
        )
    if out.exists() and not is_replaced:
        raise Refused(
            "file_exists", f"{out} is there already; nothing was written", next_step="--replace, or another name"
        )
    wanted = Wanted(jobs, days, seed, sizes, gang_share, busy_gpus)
    try:
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(make_trace(wanted, begin=GENERATE_BEGIN))
    except OSError as error:
        raise UsageError("bad_file", f"{out} can't be written: {error.strerror}", next_step="another place") from None
    typer.echo(f"{out}: {jobs:,} jobs over {days:g} days")
    typer.echo(f"next: plimsoll simulate replay {out} --fleet DIR")


def _gang_sizes(text: str) -> tuple[int, ...]:
    from plimsoll.simulate.trace import GPUS_MAX

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and 1 <= int(word) <= GPUS_MAX for word in words):
        raise UsageError("bad_gangs", f"--gangs {text[:60]!r}: not GPU counts", next_step="--gangs 128,256,352")
    return tuple(int(word) for word in words)
