"""`plimsoll quota request|requests|approve|deny|withdraw`: asking for more, and the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.desk import check_teams
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Format,
    Reason,
    answer_keeper,
    current_actor,
    open_database,
    parse_span,
)
from plimsoll.commands.output import progress, show
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.request_text import (
    answer_document,
    answer_row,
    answer_tables,
    answers_table,
    came_of,
    describe,
    due_document,
    due_notes,
    full_row,
    option_row,
    seconds,
    state_text,
)
from plimsoll.commands.quota.words import moment_of
from plimsoll.errors import UsageError
from plimsoll.ledger.model import Draft, Event, EventFilter
from plimsoll.quota.changes import RequestAnswered, request_stream
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Request, RequestState
from plimsoll.quota.names import check_team
from plimsoll.quota.requests import desk
from plimsoll.quota.requests.clerk import carry_out
from plimsoll.quota.requests.desk import Answered, Asked, Due
from plimsoll.quota.requests.options import Answer as RequestAnswer
from plimsoll.quota.requests.options import Code, answer_request
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_moment, show_time, utc_now

ANSWERS_MAX = 20
"""A request is approved, and begins or is denied: more than a few were never given."""

RequestId = Annotated[str, typer.Argument(metavar="REQUEST", help="Its number, such as q3.")]
NewTeam = Annotated[bool, typer.Option("--new-team", help="The team holds nothing yet: its name is meant as written.")]
For = Annotated[
    str, typer.Option("--for", metavar="SPAN", help="For how long: 14d, 2w; else without an end.", show_default=False)
]


_WHOLE = re.compile(r"-?[0-9]{1,15}")


def whole_number(text: str, what: str = "GPUS") -> int:
    """A number of GPUs: digits alone, as a comma is a point to some; whatever else it is, is said by name."""
    if _WHOLE.fullmatch(text) is None:
        message = f"{text[:40]!r} is no whole number of GPUs"
        raise UsageError("bad_gpus", message, next_step=f"{what}: digits alone, such as 1280", value=text[:40])
    return int(text)


def span_ahead(text: str, option: str = "--for") -> Any:
    """A length of time from now on; None where none is given."""
    if not text:
        return None
    span = parse_span(text)
    if span is None or not span:
        message = f"{option} {text[:40]!r} is no length of time"
        raise UsageError("bad_span", message, next_step=f"{option} 14d, 36h or 2w", value=text[:40])
    return span


def moment_ahead(text: str, *, now: datetime) -> datetime | None:
    """A day or a moment that has not passed, or a span from now."""
    if not text:
        return None
    next_step = "--from 2026-01-05, --from 2026-01-05T11:00Z, or a span from now such as --from 3d"
    try:
        moment = now + span if (span := parse_span(text)) is not None else parse_moment(text, now=now)
    except UsageError as error:
        raise UsageError(error.code, error.message, next_step=next_step) from None
    if moment.date() < now.date():
        raise UsageError("bad_time", f"--from {text[:40]} has passed", next_step=next_step)
    return moment


@app.command("request")
def request_command(
    context: typer.Context,
    team: Annotated[str, typer.Argument(metavar="TEAM", help="Who needs it.")],
    gpus: Annotated[str, typer.Argument(metavar="GPUS", help="How many GPUs more, in whole nodes.")],
    sku: Annotated[str, typer.Option("--sku", metavar="SKU", help="Of which SKU.")],
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="Only there.", show_default=False)] = "",
    area: Annotated[str, typer.Option("--area", metavar="AREA", help="us, eu, uk or other.", show_default=False)] = "",
    one_island: Annotated[bool, typer.Option("--one-island", help="All of it in one island.")] = False,
    starts: Annotated[
        str, typer.Option("--from", metavar="DATE|SPAN", help="From when on; else now.", show_default=False)
    ] = "",
    lasts: For = "",
    new_team: NewTeam = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Ask for more quota. The answer has ranked options with numbers; an RPM approves one of them.

    plimsoll quota request vision 128 --sku H200 --area us --one-island --from 2026-01-12 --for 14d
    """
    if cluster and area:
        raise UsageError("bad_usage", "--cluster and --area exclude each other", next_step="leave out one of them")
    now, span = utc_now(), span_ahead(lasts)
    begins = moment_ahead(starts, now=now)
    asked = Asked(
        team=team,
        sku=sku,
        gpus=whole_number(gpus),
        cluster=cluster,
        area=area,
        is_one_island=one_island,
        starts=begins,
        ends=None if span is None else (begins or now) + span,
        reason=reason,
        is_new_team=new_team,
    )
    with progress("looking for it"):
        keeper = open_database(context, db)
        found, due, events = carry_out(
            keeper,
            lambda state, moment: desk.ask(state, asked, by=current_actor(), now=moment),
            actor=current_actor(),
            reason=reason,
            teams=[team],
            is_dry_run=dry_run,
        )
    show(_asked_answer(found, due, revision_of(keeper, events), is_dry_run=dry_run), output)


def revision_of(keeper: Keeper, events: Sequence[Event]) -> int:
    return events[-1].revision if events else keeper.state().revision


def _asked_answer(found: RequestAnswer, due: Due, revision: int, *, is_dry_run: bool) -> Answer:
    request, best = found.request, found.best()
    name = "this" if is_dry_run else request.id
    heading = f"{name}: {describe(request)}"
    notes = due_notes(due, is_dry_run=is_dry_run)
    if is_dry_run:
        notes.append("nothing was asked: without --dry-run it goes to an RPM")
    else:
        notes.append(f"open until {show_time(request.expires.replace(microsecond=0))}")
        option = f"next: plimsoll quota approve {request.id}" + ("" if best else " --option NUMBER")
        notes.append(f"{option}; plimsoll quota deny {request.id} --reason WHY")
    document = {"dry_run": is_dry_run, "revision": revision, **answer_document(found), "due": due_document(due)}
    return Answer(document, answer_tables(found), heading, notes)


@app.command("requests")
def requests_command(
    context: typer.Context,
    request_id: Annotated[
        str, typer.Argument(metavar="REQUEST", help="One of them, with its options as they are now.")
    ] = "",
    team: Annotated[str, typer.Option("--team", metavar="TEAM", help="Only of this team.", show_default=False)] = "",
    is_all: Annotated[bool, typer.Option("--all", help="Also those that were answered.")] = False,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """What was asked for and is not answered yet; one of them with its options."""

    def answer(keeper: Keeper, state: State) -> Answer:
        if request_id:
            return _one_request(keeper, state, request_id, moment_of(state, as_of))
        if team:
            check_team(state, team)
        return _requests_answer(state, team, moment_of(state, as_of), is_all=is_all)

    answer_keeper(context, db, as_of, output, watch=False, answer=answer)


def _one_request(keeper: Keeper, state: State, request_id: str, now: datetime) -> Answer:
    request = desk.find_request(state, request_id)
    if request.state is not RequestState.OPEN:
        heading = f"{request.id}: {describe(request)}: {request.state}"
        answers = _answers_to(keeper, state, request)
        document = {"request": full_row(request), "options": [], "pools": [], "past": "", "answers": answers}
        return Answer(document, [answers_table(answers)], heading, [came_of(request)])
    found = answer_request(state, request, now=now)
    notes = [f"flex of the past: {found.past}", f"next: plimsoll quota approve {request.id} --option NUMBER"]
    document = {**answer_document(found), "answers": []}
    return Answer(document, answer_tables(found), f"{request.id}: {describe(request)}", notes)


def _answers_to(keeper: Keeper, state: State, request: Request) -> list[dict[str, Any]]:
    """What was said to a request until then, the oldest first: the state knows only how it ended."""
    where = EventFilter(subject=request_stream(request.id), kind=RequestAnswered.kind)
    events = keeper.ledger.store.last_events(ANSWERS_MAX, until=state.revision, where=where)
    return [answer_row(event) for event in events]


def _requests_answer(state: State, team: str, now: datetime, *, is_all: bool) -> Answer:
    pending = (RequestState.OPEN, RequestState.WAITING)
    requests = sorted(state.of(QuotaBook).requests.values(), key=lambda each: (each.asked_at, each.id))
    shown = [each for each in requests if team in ("", each.team) and (is_all or each.state in pending)]
    columns = (
        "request", "state", "team", "gpus", "sku", "where", "one_island", "from", "until", "asked_by", "expires",
        "answer",
    )  # fmt: skip
    rows = [
        (
            each.id, state_text(each, now), each.team, each.gpus, each.sku, each.cluster or each.area or "anywhere",
            each.is_one_island, seconds(each.starts), seconds(each.ends), each.by, seconds(each.expires),
            each.answer or None,
        )
        for each in shown
    ]  # fmt: skip
    notes = []
    if not is_all and len(shown) < len(requests):
        notes.append(f"{len(requests) - len(shown)} more were answered or are others': --all")
    notes.append(
        "next: plimsoll quota requests REQUEST" if shown else "next: plimsoll quota request TEAM GPUS --sku SKU"
    )
    document = {"revision": state.revision, "requests": [full_row(each) for each in shown]}
    return Answer(document, [Table(columns, rows)], "", notes)


@app.command("approve")
def approve_command(
    context: typer.Context,
    request_id: RequestId,
    option: Annotated[
        str,
        typer.Option(
            "--option",
            metavar="NUMBER|KEY",
            help="Which one: its number as `quota requests REQUEST` shows it now, or its key such as flex:tiger; else"
            " the best that gives all of it.",
            show_default=False,
        ),
    ] = "",
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Give a team what it asked for, by one of the options. What begins later is reserved until then."""
    _answer_request(
        context,
        db,
        request_id,
        lambda state, now: _approve(state, request_id, option, now),
        reason,
        output,
        is_dry_run=dry_run,
    )


def _approve(state: State, request_id: str, option: str, now: datetime) -> tuple[Answered, list[Draft]]:
    """Whoever approves takes it from its givers, too: the options are those of the state that it is committed to."""
    answered, drafts = desk.approve(state, request_id, option, now=now)
    check_teams(giver.team for giver in (answered.option.givers if answered.option is not None else ()))
    return answered, drafts


@app.command("deny")
def deny_command(
    context: typer.Context,
    request_id: RequestId,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Refuse a request, with a reason."""
    _answer_request(
        context, db, request_id, lambda state, _now: desk.deny(state, request_id, why=reason), reason, output,
        is_dry_run=dry_run,
    )  # fmt: skip


@app.command("withdraw")
def withdraw_command(
    context: typer.Context,
    request_id: RequestId,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Take a request of yours back."""
    _answer_request(
        context, db, request_id, lambda state, _now: desk.withdraw(state, request_id, why=reason), reason, output,
        is_dry_run=dry_run,
    )  # fmt: skip


def _answer_request(
    context: typer.Context, db: str, request_id: str, decide: Any, reason: str, output: Output, *, is_dry_run: bool
) -> None:
    keeper = open_database(context, db)
    request = desk.find_request(keeper.state(), request_id)
    with progress("looking at it"):
        outcome, due, events = carry_out(
            keeper, decide, actor=current_actor(), reason=reason, teams=[request.team], requests=[request_id],
            is_dry_run=is_dry_run,
        )  # fmt: skip
    show(_answered(outcome, due, revision_of(keeper, events), is_dry_run=is_dry_run), output)


def _answered(outcome: Answered, due: Due, revision: int, *, is_dry_run: bool) -> Answer:
    request, option = outcome.request, outcome.option
    would = "would be " if is_dry_run else ""
    heading = f"{request.id} {would}{outcome.state}: {describe(request)}"
    notes = due_notes(due, is_dry_run=is_dry_run)
    tables = []
    if option is not None:
        columns = ("what", "cluster", "gpus", "from", "island", "why")
        row = (
            str(option.code),
            option.cluster,
            option.gpus,
            seconds(option.starts),
            option.island or None,
            option.why,
        )
        tables = [Table(columns, [row])]
        if option.code is Code.FLEX:
            notes.append("nothing is guaranteed by it: flex may be called back")
        if option.gpus < request.gpus:
            notes.append(
                f"that is {option.gpus:,} of the {request.gpus:,} asked for; the rest needs a request of its own"
            )
        # A team that holds nothing there yet is not shown there: it is in the pool's own picture.
        notes.append(f"next: plimsoll quota show {option.cluster}")
    elif outcome.answer:
        notes.append(outcome.answer)
    document = {
        "dry_run": is_dry_run,
        "revision": revision,
        "request": request.id,
        "state": str(outcome.state),
        "answer": outcome.answer,
        "option": None if option is None else option_row(None, option),
        "due": due_document(due),
    }
    return Answer(document, tables, heading, notes)
