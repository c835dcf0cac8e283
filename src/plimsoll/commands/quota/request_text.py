"""How requests, their options, what was answered and what was due look: for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from plimsoll.answers import Table
from plimsoll.ledger.model import Event
from plimsoll.quota.model import Grant, Request, RequestState
from plimsoll.quota.requests.desk import Due
from plimsoll.quota.requests.options import Answer, Cause, Code, Option, PoolAnswer
from plimsoll.times import parse_time, show_time
from plimsoll.words import counted

POOLS_SHOWN = 10
GIVEN = (RequestState.APPROVED, RequestState.WAITING)
"""Where a request stands that was given something."""


def describe(request: Request) -> str:
    """A request in one line."""
    where = request.cluster or (f"area {request.area}" if request.area else "anywhere")
    words = [f"{request.team} asks for {request.gpus:,} {request.sku}, {where}"]
    words += ["in one island"] if request.is_one_island else []
    words += [f"from {show_time(request.starts.replace(microsecond=0))}"] if request.starts else []
    words += [f"until {show_time(request.ends.replace(microsecond=0))}"] if request.ends else []
    return ", ".join(words)


def state_text(request: Request, now: datetime) -> str:
    """Where a request stands, also if nobody has settled yet what time did to it."""
    is_late = request.state is RequestState.OPEN and request.expires <= now
    return str(RequestState.EXPIRED if is_late else request.state)


def answer_document(found: Answer) -> dict[str, Any]:
    return {
        "request": full_row(found.request),
        "options": [option_row(number, option) for number, option in _numbered(found.options)],
        "pools": [_pool_row(each) for each in found.pools],
        "past": found.past,
    }


def _numbered(options: Sequence[Option]) -> list[tuple[int | None, Option]]:
    """Options by the number that `approve` takes; what is refused has none."""
    return [(None if each.code is Code.REFUSED else number, each) for number, each in enumerate(options, start=1)]


def option_row(number: int | None, option: Option) -> dict[str, Any]:
    fields = msgspec.to_builtins(option)
    return {"number": number, "key": option.key, **fields}


def _pool_row(each: PoolAnswer) -> dict[str, Any]:
    row = msgspec.to_builtins(each)
    return {**row.pop("room"), **row, "move": each.cause.move}


def answer_tables(found: Answer) -> list[Table]:
    columns = ("option", "what", "cluster", "gpus", "all_of_it", "from", "island", "past_share", "why")
    rows = [
        (
            number,
            str(option.code),
            option.cluster or None,
            option.gpus,
            option.is_whole,
            option.starts.replace(microsecond=0) if option.starts else None,
            option.island or None,
            option.share,
            f"{option.why}; move: {option.move}" if option.move else option.why,
        )
        for number, option in _numbered(found.options)
    ]
    tables = [Table(columns, rows, name="options")]
    blocked = [each for each in found.pools if each.cause is not Cause.NONE]
    if found.pools:
        # All of them are in a file: those that have room as well.
        order = sorted(found.pools, key=lambda each: (each.cause is Cause.NONE, -each.room.headroom, each.room.cluster))
        more = f" ({POOLS_SHOWN} of {len(blocked)} pools)" if len(blocked) > POOLS_SHOWN else ""
        why = [
            (each.room.cluster, each.room.line, each.room.line_in_force, each.room.guaranteed, each.room.headroom,
             str(each.cause), each.why, each.cause.move)
            for each in order
        ]  # fmt: skip
        names = ("cluster", "line_now", "line_in_force", "guaranteed", "headroom", "cause", "why", "whose_move")
        shown = min(POOLS_SHOWN, len(blocked))
        tables.append(Table(names, why, f"why not all of it guaranteed now{more}", "pools", shown))
    return tables


def answer_row(event: Event) -> dict[str, Any]:
    """What was said to a request: when, by whom, and why. An approval names the option that was chosen."""
    payload = msgspec.json.decode(event.payload)
    said, is_given = payload.get("answer", ""), payload["state"] in GIVEN
    return {
        "at": event.recorded_at,
        "state": payload["state"],
        "by": event.actor,
        "option": said if is_given else "",
        "why": event.reason if is_given else said,
    }


def answers_table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ("at", "state", "by", "option", "why")
    cells = [({**each, "at": seconds(parse_time(each["at"]))}) for each in rows]
    return Table(columns, [[each[column] or None for column in columns] for each in cells], name="answers")


def came_of(request: Request) -> str:
    """What came of a request that is not open any more."""
    approved = request.approved
    if approved is None or request.state not in GIVEN:
        return "nothing was given"
    what = f"approved: {approved.gpus:,} {approved.sku} of {approved.cluster}"
    if approved.option.partition(":")[0] == Code.FLEX:
        return f"{what}, as flex: nothing is guaranteed by it, and it may be called back"
    how = "reserved, and handed over on" if request.state is RequestState.WAITING else "guaranteed from"
    until = f", until {show_time(request.ends.replace(microsecond=0))}" if request.ends else ""
    givers = "".join(f", {gpus:,} from {giver}" for giver, gpus in approved.givers)
    return f"{what}, {how} {show_time(approved.starts.replace(microsecond=0))}{until}{givers}"


def full_row(value: Request | Grant) -> dict[str, Any]:
    """All fields, those that have their default as well: a reader of JSON need not know them."""
    row: dict[str, Any] = msgspec.to_builtins(msgspec.structs.asdict(value))
    return row


def due_document(due: Due) -> dict[str, Any]:
    """What time brought about before the command did anything."""
    return {
        "ended": [{**full_row(each.grant), "guaranteed": each.guaranteed} for each in due.ended],
        "begun": [request.id for request in due.begun],
        "expired": [request.id for request in due.expired],
        "waiting": [{"request": request.id, "why": why} for request, why in due.waiting],
    }


def due_notes(due: Due, *, is_dry_run: bool) -> list[str]:
    """A sentence for each thing that time brought about; of a dry run, would bring about."""
    went, ended = ("would go", "would end") if is_dry_run else ("went", "ended")
    begins, expired = ("would begin", "would expire") if is_dry_run else ("begins", "expired")
    notes = [
        f"{each.grant.gpus:,} {each.grant.sku} of {each.grant.cluster} {went} back from {each.grant.team} to"
        f" {each.grant.giver or 'flex'}: grant {each.grant.id} {ended}"
        for each in due.ended
    ]
    notes += [f"{request.id} {begins}: {describe(request)}" for request in due.begun]
    notes += [f"{request.id} {expired}: {describe(request)}" for request in due.expired]
    notes += [f"{request.id} is approved for now and waits: {why}" for request, why in due.waiting]
    return notes


def due_counts(due: Due, *, is_dry_run: bool) -> str:
    """The same in numbers."""
    grants, requests = counted(len(due.ended), "grant"), counted(len(due.begun), "request")
    if is_dry_run:
        return f"would be settled: {grants} to end, {requests} to begin, {len(due.expired):,} to expire"
    return f"settled: {grants} ended, {requests} begun, {len(due.expired):,} expired"


def seconds(moment: datetime | None) -> datetime | None:
    return moment.replace(microsecond=0) if moment else None
