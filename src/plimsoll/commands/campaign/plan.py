"""`plimsoll campaign plan|check|compare|replan|example`: make a plan, prove it, hold two side by side."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.changes import CampaignPlanned
from plimsoll.campaigns.model import Campaign, Plan, Status
from plimsoll.campaigns.run.desk import find_run, next_number, record_plan
from plimsoll.commands.campaign.app import app
from plimsoll.commands.campaign.run import Name
from plimsoll.commands.desk import check_programs
from plimsoll.commands.options import AsOf, Db, DryRun, Format, Reason, current_actor, open_database, state_as_of
from plimsoll.commands.output import is_terminal, show, show_text
from plimsoll.documents import Field, read_document
from plimsoll.errors import Refused, UsageError
from plimsoll.ledger.model import Draft
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.words import counted

if TYPE_CHECKING:
    from plimsoll.fleet.fold import Fleet

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A campaign file; - for standard input.")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.1, max=86_400, help="How long to search at most.")]
Gap = Annotated[float, typer.Option("--gap", min=0.0, max=1.0, help="Stop when the plan is proved to be so near.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="Same seed, same plan.")]


def read_file(path: Path) -> tuple[str, Field]:
    """A campaign file and its text."""
    source = "standard input" if str(path) == "-" else str(path)
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        step = "plimsoll campaign example > FILE   # makes one to begin with"
        raise UsageError("unreadable", f"{source[:200]!r}: {why}", next_step=step) from None
    return text, read_document(text, source=source)


class _Watch:
    """Shows how the search goes on stderr, and lets Ctrl-C end it with the best plan so far."""

    def __init__(self) -> None:
        self.is_stopped = threading.Event()
        self._is_shown = is_terminal(sys.stderr)
        self._last = 0.0

    def __call__(self, best: float | None, bound: float | None, seconds: float) -> None:
        if not self._is_shown or time.monotonic() - self._last < 0.2:
            return
        self._last = time.monotonic()
        gap = f"{(best - bound) / max(1.0, best):.2%}" if best is not None and bound is not None else "-"
        parts = [f"{value:,.0f}" if value is not None else "-" for value in (best, bound)]
        sys.stderr.write(f"\rbest {parts[0]}  bound {parts[1]}  gap {gap}  {seconds:.0f} s  (Ctrl-C: take the best)   ")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown and self._last:
            sys.stderr.write("\r" + " " * 100 + "\r")
            sys.stderr.flush()


@contextmanager
def watching() -> Iterator[_Watch]:
    watch = _Watch()
    if threading.current_thread() is not threading.main_thread():  # a server plans beside others: Ctrl-C is not ours
        yield watch
        return
    before = signal.signal(signal.SIGINT, lambda *_: watch.is_stopped.set())
    try:
        yield watch
    finally:
        signal.signal(signal.SIGINT, before)
        watch.clear()


@app.command("example")
def example_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Its name.")] = "nic-firmware",
    area: Annotated[
        list[str] | None, typer.Option("--area", metavar="AREA", help="Only this area; may be repeated.")
    ] = None,
    start: Annotated[
        str, typer.Option("--start", metavar="DATE", help="Its first day; else next Monday.", show_default=False)
    ] = "",
    db: Db = "",
) -> None:
    """Print a campaign file to begin with, fit for the fleet in the database."""
    from plimsoll.campaigns.example import example_file, next_monday
    from plimsoll.campaigns.file import START_MAX, parse_campaign
    from plimsoll.fleet.fold import Fleet
    from plimsoll.times import parse_moment

    keeper = open_database(context, db)
    now, fleet = keeper.ledger.clock(), keeper.state().of(Fleet)
    _refuse_nowhere(fleet, area or ())
    first = parse_moment(start, now=now).date() if start else next_monday(now.date())
    if first > START_MAX:
        raise UsageError(
            "bad_date",
            f"--start {first} is too late: a campaign starts on {START_MAX} at the latest",
            next_step=f"plimsoll campaign example --start {next_monday(now.date())}",
        )
    text = example_file(fleet, name, start=first, areas=area or ())
    parse_campaign(text, source="the example")  # a name that no file can have is told here
    show_text(text)


def _refuse_nowhere(fleet: Fleet, areas: Sequence[str]) -> None:
    """A file is made to fit clusters: where there are none it would fit nothing."""
    known = sorted({fleet.clusters[node.cluster].area for node in fleet.nodes.values()})
    if not known:
        raise Refused("no_fleet", "the database has no nodes to plan for", next_step="plimsoll fleet import DIR")
    for each in areas:
        if each not in known:
            message = f"no node is in an area {each[:100]!r}; there are {', '.join(known[:20])}"
            raise UsageError("unknown_area", message, next_step=f"plimsoll campaign example --area {known[0]}")


@app.command("plan")
def plan_command(
    context: typer.Context,
    file: FileArgument,
    seconds: Seconds = 60.0,
    gap: Gap = 0.01,
    seed: Seed = 1,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Plan a campaign on the fleet as it is: when each cluster's nodes go out, with a proof of how good that is.

    The plan is recorded under the next number, unless --dry-run. Where none exists it is said which limits collide, and
    what would help (exit 1).
    """
    from plimsoll.campaigns.file import read_campaign
    from plimsoll.campaigns.planning import Search, plan_campaign

    text, document = read_file(file)
    campaign = read_campaign(document)
    keeper = open_database(context, db)
    state = keeper.state()
    _check_programs(state, campaign)
    _refuse_running(state, campaign)
    number = next_number(state, campaign.name)
    with watching() as watch:
        search = Search(seconds, gap, seed, watch, watch.is_stopped.is_set)
        planned = plan_campaign(state, campaign, number=number, search=search, document=document)
    plan, revision = planned.plan, state.revision
    if plan.score is not None and not dry_run:
        plan, revision = _record(keeper, campaign, text, planned, reason)
    planned = planned._replace(plan=plan)
    now = keeper.ledger.clock()
    show(_plan_answer(campaign, planned, seed, revision, output, is_dry_run=dry_run, now=now), output)
    if plan.score is None:
        raise typer.Exit(1)


def _check_programs(state: State, campaign: Campaign) -> None:
    """What its batches run is asked for, unless that is what the campaign runs already."""
    from plimsoll.campaigns.fold import Campaigns

    known = state.of(Campaigns).runs.get(campaign.name)
    before = _programs(known.campaign) if known is not None else ()
    check_programs(program for program in _programs(campaign) if program not in before)


def _programs(campaign: Campaign) -> tuple[tuple[str, ...], ...]:
    return campaign.running.work, campaign.running.validate


def _refuse_running(state: State, campaign: Campaign) -> None:
    """Before a minute of searching, not after it."""
    from plimsoll.campaigns.fold import Campaigns
    from plimsoll.campaigns.run.progress import Phase

    run = state.of(Campaigns).runs.get(campaign.name)
    if run is not None and not run.phase.is_over and run.phase is not Phase.PLANNED:
        raise Refused(
            "campaign_runs",
            f"{run.name} is {run.phase} with plan {run.plan.number}",
            next_step=f"plimsoll campaign replan {run.name} --file FILE",
            campaign=run.name,
        )


def _record(keeper: Keeper, campaign: Campaign, text: str, planned: Any, reason: str) -> tuple[Plan, int]:
    """Commit a plan; the same plan again keeps its number."""
    import msgspec

    def decide(state: State) -> tuple[Plan, Sequence[Draft]]:
        plan = msgspec.structs.replace(planned.plan, number=next_number(state, campaign.name))
        drafts = record_plan(state, campaign, text, plan, planned.roll)
        return (plan if drafts else find_run(state, campaign.name).plan), drafts

    plan, events = keeper.decide_and_commit(decide, actor=current_actor(), reason=reason or "planned")
    return plan, events[-1].revision if events else keeper.state().revision


def _plan_answer(
    campaign: Campaign,
    planned: Any,
    seed: int,
    revision: int,
    output: Output,
    *,
    is_dry_run: bool,
    now: datetime | None = None,
) -> Answer:
    from plimsoll.campaigns.plan_file import plan_json
    from plimsoll.commands.campaign.plan_text import plan_notes, plan_tables, status_line

    plan: Plan = planned.plan
    explained = planned.explained
    document = plan_json(
        plan,
        planned.seconds,
        [] if explained is None else explained.conflict_json(),
        [] if explained is None else explained.relaxations_json(),
        zone=campaign.window.tz,
        seed=seed,
        impactless={name: len(nodes) for name, nodes in planned.roll.impactless.items()},
        notes=planned.roll.notes,
    )
    document |= {"moved": list(planned.moved), "dry_run": is_dry_run, "revision": revision}
    if planned.proof is not None:
        document["with_moves"] = {**planned.proof._asdict(), "gap": planned.proof.gap}
    heading = status_line(campaign, planned)
    tables = plan_tables(campaign, planned, output)
    return Answer(document, tables, heading, plan_notes(campaign, planned, is_dry_run=is_dry_run, now=now))


@app.command("check")
def check_command(
    context: typer.Context,
    file: FileArgument,
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan as JSON, whoever made it.")],
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """Check a plan against its file and the fleet, by other code than that which makes plans. Exit 1 if it is wrong."""
    from plimsoll.campaigns.check.plan import check_plan, check_score
    from plimsoll.campaigns.file import read_campaign
    from plimsoll.campaigns.plan_file import read_plan
    from plimsoll.campaigns.planning import outages_elsewhere
    from plimsoll.fleet.fold import Fleet

    _, document = read_file(file)
    campaign = read_campaign(document)
    plan = read_plan(plan_text(plan_file), str(plan_file))
    state = state_as_of(open_database(context, db), as_of)
    others = outages_elsewhere(state, campaign)
    checked = check_plan(campaign, state.of(Fleet), plan.batches, elsewhere=others.amounts, already=others.nodes)
    problems = list(checked.problems)
    if plan.score is not None and (wrong := check_score(plan.score, checked)) is not None:
        problems.append(wrong)
    rows = [(each.code, each.rule, each.unit, each.day, each.found, each.allowed, each.text) for each in problems]
    score = checked.score
    found = {
        "campaign": campaign.name,
        "valid": not problems,
        "problems": [dict(zip(_PROBLEM, row, strict=True)) for row in rows],
        "objective": {
            "total": score.total,
            "exposure": score.exposure,
            "imbalance": score.imbalance,
            "peak": score.peak,
        },
    }
    verdict = f"{counted(len(problems), 'problem')}" if problems else "valid"
    heading = f"{campaign.name}: {verdict}; total {score.total:,.0f}, peak {score.peak:,.0f} nodes"
    show(Answer(found, [Table(_PROBLEM, rows)] if rows or output is Output.CSV else [], heading), output)
    if problems:
        raise typer.Exit(1)


_PROBLEM = ("code", "rule", "unit", "day", "found", "allowed", "text")


def plan_text(path: Path) -> str:
    """A plan as somebody wrote it."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        step = "plimsoll campaign plan FILE -o json > PLAN"
        raise UsageError("unreadable", f"{str(path)[:200]!r}: {why}", next_step=step) from None


@app.command("replan")
def replan_command(
    context: typer.Context,
    name: Name,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A changed file; else the one in force.")
    ] = None,
    seconds: Seconds = 10.0,
    gap: Gap = 0.01,
    seed: Seed = 1,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """A new plan from what has happened: what is over, under way or near stays; as few other batches as can be move."""
    from plimsoll.campaigns.file import read_campaign
    from plimsoll.campaigns.planning import Search, replan_campaign
    from plimsoll.campaigns.run.progress import Phase

    keeper = open_database(context, db)
    state = keeper.state()
    run = find_run(state, name)
    if run.phase.is_over:
        raise Refused("campaign_over", f"{name} is {run.phase}", next_step="plimsoll campaign plan FILE", campaign=name)
    text, document = (run.text, None) if file is None else read_file(file)
    campaign = run.campaign if document is None else read_campaign(document)
    if campaign.name != name:
        raise UsageError(
            "other_campaign",
            f"the file is of {campaign.name!r}, not of {name!r}",
            next_step=f"plimsoll campaign replan {campaign.name} --file {file}",
        )
    _check_programs(state, campaign)
    with watching() as watch:
        search = Search(seconds, gap, seed, watch, watch.is_stopped.is_set)
        planned = replan_campaign(state, run, campaign, search=search, now=keeper.ledger.clock(), document=document)
    revision = state.revision
    if planned.plan.score is not None and not dry_run:
        change = CampaignPlanned(name, campaign, text, planned.plan, dict(planned.names), dict(planned.roll.impactless))
        # Whoever moved the campaign on meanwhile comes first: then it is planned once more.
        events = keeper.commit(
            [Draft(change)],
            actor=current_actor(),
            reason=reason or "replanned",
            read_at=state.revision,
            reads=(f"campaign/{name}",),
        )
        revision = events[-1].revision
    now = keeper.ledger.clock() if run.phase is Phase.PLANNED else None
    show(_plan_answer(campaign, planned, seed, revision, output, is_dry_run=dry_run, now=now), output)
    if planned.plan.status in (Status.INFEASIBLE, Status.UNKNOWN):
        raise typer.Exit(1)
