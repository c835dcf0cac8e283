"""`plimsoll audit`: the memory, read and proved."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table, csv_text
from plimsoll.commands.desk import here
from plimsoll.commands.options import AsOf, Db, Format, Watch, database_url, parse_as_of, watching_the_past
from plimsoll.commands.output import progress, show
from plimsoll.errors import NotFound
from plimsoll.ledger import Ledger, open_ledger
from plimsoll.ledger.model import Event, EventFilter
from plimsoll.ledger.verify import Verdict, parse_head, verify
from plimsoll.times import format_time, parse_moment, utc_now

EVENTS_SHOWN = 50
PAYLOAD_WIDTH = 100

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="The memory: who did what, when, why; and that it is whole.",
)

_COLUMNS = ("revision", "recorded_at", "effective_at", "actor", "kind", "subject", "reason", "payload")


@app.command("log")
def log_command(
    context: typer.Context,
    subject: Annotated[
        str, typer.Option(metavar="SUBJECT", help="Such as node/tiger-0001, or node/tiger-*", show_default=False)
    ] = "",
    actor: Annotated[str, typer.Option(metavar="ACTOR", help="Who did it.", show_default=False)] = "",
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="Such as quota.assigned, or node.*", show_default=False)
    ] = "",
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Recorded at or after.", show_default=False)
    ] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="Recorded at or before.", show_default=False)
    ] = "",
    after: Annotated[
        int, typer.Option(min=0, metavar="REVISION", help="Only what came after.", show_default=False)
    ] = 0,
    limit: Annotated[int, typer.Option(min=0, help="The newest so many, 0 for all.")] = EVENTS_SHOWN,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Print events, oldest first. With --watch go on with new ones as they come (JSON: one object a line)."""
    if watch and as_of:
        raise watching_the_past()
    now = utc_now()
    where = EventFilter(
        subject=subject,
        actor=actor,
        kind=kind,
        recorded_from=format_time(parse_moment(since, now=now)) if since else "",
        recorded_until=format_time(parse_moment(until, now=now)) if until else "",
    )
    ledger = _ledger(context, db)
    end = _end_revision(ledger, as_of)
    if limit and end - after > limit:
        events = [event for event in ledger.store.last_events(limit, until=end, where=where) if event.revision > after]
    else:  # no more can have come than there are revisions
        events = list(ledger.store.events(after=after, until=end, where=where))
    answer = _log_answer(events, limit, output)
    if not watch:
        show(answer, output)
        return
    print_lines(answer, output, is_first=True)
    for event in ledger.follow(end):
        if _is_wanted(event, where):
            print_lines(_log_answer([event], limit, output), output)


def _ledger(context: typer.Context, db: str) -> Ledger:
    """The log needs no state: it can be read where the state can't be made."""
    desk = here()
    return open_ledger(database_url(context, db)) if desk is None else desk.keeper.ledger


def _end_revision(ledger: Ledger, as_of: str) -> int:
    if not as_of:
        return ledger.head().revision
    when = parse_as_of(as_of)
    if not isinstance(when, int):
        return ledger.revision_at(format_time(when))
    if when > (head := ledger.head().revision):
        raise NotFound(
            "no_such_revision",
            f"the ledger ends at revision {head}; there is no revision {when}",
            next_step="plimsoll audit head",
            revision=when,
            head=head,
        )
    return when


def _is_wanted(event: Event, where: EventFilter) -> bool:
    for column in ("subject", "actor", "kind"):
        wanted, found = getattr(where, column), getattr(event, column)
        if wanted.endswith("*"):
            if not found.startswith(wanted[:-1]):
                return False
        elif wanted and found != wanted:
            return False
    is_too_late = where.recorded_until and event.recorded_at > where.recorded_until
    return event.recorded_at >= where.recorded_from and not is_too_late


def _event_document(event: Event) -> dict[str, Any]:
    document = event._asdict()
    with suppress(msgspec.DecodeError):  # a tampered payload is shown as the text it is
        document["payload"] = msgspec.json.decode(event.payload)
    return document


def _row(event: Event, *, is_cut: bool) -> tuple[object, ...]:
    times = event.recorded_at.replace(".000000Z", "Z"), event.effective_at.replace(".000000Z", "Z")
    payload = event.payload
    if is_cut and len(payload) > PAYLOAD_WIDTH:
        payload = payload[: PAYLOAD_WIDTH - 1] + "…"
    return event.revision, *times, event.actor, event.kind, event.subject, event.reason, payload


def _log_answer(events: list[Event], limit: int, output: Output) -> Answer:
    rows = [_row(event, is_cut=output is Output.TABLE) for event in events]
    document = {"events": [_event_document(event) for event in events]}
    return Answer(document, [Table(_COLUMNS, rows)], notes=log_notes(len(events), limit))


def log_notes(count: int, limit: int) -> list[str]:
    return [f"the newest {limit}; --limit 0 for all"] if limit and count == limit else []


def print_lines(answer: Answer, output: Output, *, is_first: bool = False) -> None:
    """Events as they come, one a line. (`echo` flushes.)"""
    (table,), events = answer.tables, answer.document["events"]
    if output is Output.CSV and is_first:
        typer.echo(csv_text([table.columns]))
    for row, event in zip(table.rows, events, strict=True):
        if output is Output.JSON:
            typer.echo(msgspec.json.encode(event).decode())
        elif output is Output.YAML:
            show(Answer([event]), output)
        elif output is Output.CSV:
            typer.echo(csv_text([row]))
        else:
            revision, recorded_at, _, *words = row
            typer.echo("  ".join(map(str, (revision, recorded_at, *words))))


@app.command("head")
def head_command(context: typer.Context, db: Db = "", output: Format = Output.TABLE) -> None:
    """Print REVISION:HASH, the end of the chain. Keep it elsewhere: it proves later that nothing was cut off."""
    head = _ledger(context, db).head()
    document = {
        "head": str(head),
        "revision": head.revision,
        "hash": head.hash,
        "recorded_at": head.recorded_at or None,
    }
    show(
        Answer(
            document,
            [Table(("revision", "hash"), [(head.revision, head.hash)])] if output is Output.CSV else [],
            str(head),
        ),
        output,
    )


@app.command("verify")
def verify_command(
    context: typer.Context,
    head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REVISION:HASH", help="A head published earlier; may be given several times.", show_default=False
        ),
    ] = None,
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Prove the ledger whole: every row and link, the snapshots, heads published earlier. Exit 1 if it is not."""
    published = [parse_head(text) for text in head or []]
    ledger = _ledger(context, db)
    with progress("verifying", total=ledger.head().revision) as line:
        verdict = verify(ledger.store, published=published, progress=line)
    if verdict.is_whole:
        verdict = _with_snapshots(ledger, verdict)
    show(_verdict_answer(verdict, len(published)), output)
    if not verdict.is_whole:
        raise typer.Exit(1)


def _with_snapshots(ledger: Ledger, verdict: Verdict) -> Verdict:
    """The rows are whole: so a snapshot that is not their fold is wrong itself."""
    from plimsoll.rooms import KINDS
    from plimsoll.state.keeper import verify_snapshots

    with progress("folding anew", total=verdict.head.revision) as line:
        findings = tuple(verify_snapshots(ledger, KINDS, line))
    return msgspec.structs.replace(verdict, findings=findings)


def _verdict_answer(verdict: Verdict, published: int) -> Answer:
    document = {
        "whole": verdict.is_whole,
        "events": verdict.events,
        "head": str(verdict.head),
        "findings": list(verdict.findings),
        "unlisted": verdict.unlisted,
    }
    rows = [(finding.what, finding.revision, finding.message) for finding in verdict.findings]
    table = Table(("what", "revision", "message"), rows)
    if not verdict.is_whole:
        noun = "finding" if len(rows) == 1 else "findings"
        heading = f"NOT WHOLE: {len(rows) + verdict.unlisted:,} {noun} in {verdict.events:,} events"
        more = [f"… and {verdict.unlisted:,} more rows"] if verdict.unlisted else []
        return Answer(document, [table], heading, [*more, "next: compare with a copy or with heads published earlier"])
    against = f", and continues {published} published head{'s' if published > 1 else ''}" if published else ""
    heading = f"whole: {verdict.events:,} events, each sealed to the one before{against}; head {verdict.head}"
    notes = [] if published else ["next: keep this head elsewhere; --head checks against it that no tail was cut off"]
    return Answer(document, [table] if verdict.findings else [], heading, notes)
