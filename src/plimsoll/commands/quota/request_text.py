"""How requests, their options and what was due look: for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from plimsoll.answers import Table
from plimsoll.quota.model import Grant, Request, RequestState
from plimsoll.quota.requests.desk import Due
from plimsoll.quota.requests.options import Answer, Cause, Code, Option, PoolAnswer
from plimsoll.times import show_time

POOLS_SHOWN = 10


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


def due_notes(due: Due) -> list[str]:
    notes = [
        f"{each.grant.gpus:,} {each.grant.sku} of {each.grant.cluster} went back from {each.grant.team} to"
        f" {each.grant.giver or 'flex'}: grant {each.grant.id} ended"
        for each in due.ended
    ]
    notes += [f"{request.id} begins: {describe(request)}" for request in due.begun]
    notes += [f"{request.id} expired: {describe(request)}" for request in due.expired]
    notes += [f"{request.id} is approved for now and waits: {why}" for request, why in due.waiting]
    return notes


def seconds(moment: datetime | None) -> datetime | None:
    return moment.replace(microsecond=0) if moment else None
