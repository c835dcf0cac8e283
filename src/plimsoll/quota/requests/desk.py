"""The desk where requests are answered: asking, approving, denying, withdrawing, and what time does to them. Pure.

An approval looks at the options anew, on the state it is committed to. What begins later is reserved from the moment of
the approval and handed over when its time comes, if there is room for it then, or its givers still have it; else it
waits, and says for what.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import PoolAligned, QuotaRequested, QuotaReserved, RequestAnswered
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Pool, look
from plimsoll.quota.lines import LineNow, lines_now
from plimsoll.quota.model import Approved, Request, RequestState
from plimsoll.quota.names import NAME_LENGTH_MAX, check_gpus, check_team, check_whole_nodes, find_pools
from plimsoll.quota.plan import NO_LINE, policy_in_force
from plimsoll.quota.policy import day_of
from plimsoll.quota.requests.headroom import Returns, room_in
from plimsoll.quota.requests.moves import Ended, check_gift, end_due_grants, grant_drafts, grant_id, transfer_drafts
from plimsoll.quota.requests.options import Answer, Code, Option, answer_request
from plimsoll.state.state import State
from plimsoll.times import format_time, show_time
from plimsoll.words import near


class Asked(msgspec.Struct, frozen=True):
    """What somebody asks for, before it has a number."""

    team: str
    sku: str
    gpus: int
    cluster: str = ""
    area: str = ""
    is_one_island: bool = False
    starts: datetime | None = None
    ends: datetime | None = None
    reason: str = ""
    is_new_team: bool = False


class Answered(msgspec.Struct, frozen=True):
    """What became of a request."""

    request: Request
    state: RequestState
    answer: str
    option: Option | None = None


class Due(msgspec.Struct, frozen=True):
    """What time alone has brought about."""

    ended: Sequence[Ended]
    begun: Sequence[Request]
    expired: Sequence[Request]
    waiting: Sequence[tuple[Request, str]]
    """Approved for now, and there is no room yet: why."""


def ask(
    state: State, asked: Asked, *, by: str, now: datetime, returns: Returns | None = None
) -> tuple[Answer, list[Draft]]:
    """Put a request on the desk; the answer has its options."""
    check_team(state, asked.team, may_be_new=asked.is_new_team)
    _check_size(state, asked)
    if asked.ends is not None and asked.ends <= (asked.starts or now):
        begins = show_time((asked.starts or now).replace(microsecond=0))
        message = f"it would end at {show_time(asked.ends)}, before it begins at {begins}"
        raise UsageError("bad_time", message, next_step="a later end, such as --for 14d")
    expires = now + policy_in_force(state).request_expiry
    if asked.ends is not None:
        expires = min(expires, asked.ends)
    request = Request(
        id=f"q{len(state.of(QuotaBook).requests) + 1}",
        team=asked.team,
        sku=asked.sku,
        gpus=asked.gpus,
        asked_at=now,
        expires=expires,
        cluster=asked.cluster,
        area=asked.area,
        is_one_island=asked.is_one_island,
        starts=asked.starts if asked.starts is not None and asked.starts > now else None,
        ends=asked.ends,
        reason=asked.reason,
        by=by,
    )
    return answer_request(state, request, now=now, returns=returns), [Draft(QuotaRequested(request))]


def _check_size(state: State, asked: Asked) -> None:
    check_gpus(asked.gpus)
    pools = find_pools(state, asked.sku, cluster=asked.cluster, area=asked.area)
    sizes = {state.of(Fleet).pools[pool].gpus_per_node for pool in pools}
    if all(asked.gpus % size for size in sizes):
        check_whole_nodes(asked.gpus, min(sizes), asked.cluster or asked.sku)


def find_request(state: State, request_id: str) -> Request:
    """Raises `NotFound`."""
    requests = state.of(QuotaBook).requests
    if request_id not in requests:
        raise NotFound(
            "no_such_request",
            f"there is no request {request_id[:NAME_LENGTH_MAX]!r} among {len(requests)}{near(request_id, requests)}",
            next_step="plimsoll quota requests",
            request=request_id[:NAME_LENGTH_MAX],
        )
    return requests[request_id]


def _open_request(state: State, request_id: str, *, also: Iterable[RequestState] = ()) -> Request:
    request = find_request(state, request_id)
    if request.state not in (RequestState.OPEN, *also):
        said = f": {request.answer}" if request.answer else ""
        raise Refused(
            "already_answered",
            f"{request.id} ({request.team}, {request.gpus} {request.sku}) is {request.state}{said}",
            next_step=f"a new one: plimsoll quota request {request.team} {request.gpus} --sku {request.sku}",
            request=request.id,
            state=str(request.state),
        )
    return request


def approve(
    state: State, request_id: str, choice: str = "", *, now: datetime, returns: Returns | None = None
) -> tuple[Answered, list[Draft]]:
    """Give a request one of its options: by its number now, by its key, or the best that gives all of it."""
    request = _open_request(state, request_id)
    found = answer_request(state, request, now=now, returns=returns)
    option = _choose(found, choice)
    begins = option.starts if option.starts is not None and option.starts > now else None
    givers = tuple((giver.team, giver.gpus) for giver in option.givers)
    approved = Approved(option.key, option.cluster, option.sku, option.gpus, begins or now, givers)
    if begins is not None:
        return Answered(request, RequestState.WAITING, option.key, option), [
            # It stands in the pool's stream as well, so that two approvals can't reserve the same GPUs.
            Draft(QuotaReserved(*approved.pool, request.id, approved)),
            Draft(RequestAnswered(request.id, RequestState.WAITING, option.key)),
        ]
    drafts = [] if option.code is Code.FLEX else _hand_over(state, request, approved)
    answered = Draft(RequestAnswered(request.id, RequestState.APPROVED, option.key, approved))
    return Answered(request, RequestState.APPROVED, option.key, option), [*drafts, answered]


def _hand_over(state: State, request: Request, approved: Approved) -> list[Draft]:
    """The events that give a team what was approved, out of what nobody is promised or from those who give it."""
    pool, until = approved.pool, request.ends
    if not approved.givers:
        grant = grant_id(state, pool)
        return list(grant_drafts(pool, request.team, approved.gpus, request=request.id, grant=grant, until=until))
    return [
        draft
        for place, (giver, gpus) in enumerate(approved.givers)
        for draft in transfer_drafts(pool, giver, request.team, gpus, grant=grant_id(state, pool, place), until=until)
    ]


def _choose(found: Answer, choice: str) -> Option:
    options = [each for each in found.options if each.code is not Code.REFUSED]
    request, next_step = found.request, f"plimsoll quota requests {found.request.id}"
    if not choice:
        best = found.best()
        if best is not None:
            return best
        refused = next((each for each in found.options if each.code is Code.REFUSED), None)
        why = refused.why if refused else "only another team's quota, or flex, gives all of it"
        raise Refused(
            "nothing_to_approve",
            f"{request.id}: {request.gpus} {request.sku} can't be guaranteed by itself: {why}",
            next_step=f"{next_step}, then plimsoll quota approve {request.id} --option NUMBER",
            request=request.id,
        )
    if choice.isascii() and choice.isdigit():
        if 1 <= int(choice[:9]) <= len(options):
            return options[int(choice[:9]) - 1]
    elif (named := next((each for each in options if each.key == choice), None)) is not None:
        return named
    raise Refused(
        "no_such_option",
        f"{request.id} has {len(options)} options now, and {choice[:60]!r} is none of them",
        next_step=next_step,
        options=[each.key for each in options],
    )


def deny(state: State, request_id: str, *, why: str) -> tuple[Answered, list[Draft]]:
    """Refuse a request, with a reason."""
    request = _open_request(state, request_id, also=[RequestState.WAITING])
    if not why.strip():
        message = f"say why {request.team} does not get {request.gpus} {request.sku}: they will ask"
        raise UsageError("reason_missing", message, next_step=f"plimsoll quota deny {request.id} --reason TEXT")
    return Answered(request, RequestState.DENIED, why), [
        Draft(RequestAnswered(request.id, RequestState.DENIED, why), why)
    ]


def withdraw(state: State, request_id: str, *, why: str = "") -> tuple[Answered, list[Draft]]:
    """Whoever asked does not need it any more."""
    request = _open_request(state, request_id, also=[RequestState.WAITING])
    return Answered(request, RequestState.WITHDRAWN, why), [
        Draft(RequestAnswered(request.id, RequestState.WITHDRAWN, why))
    ]


def settle(state: State, *, now: datetime) -> tuple[Due, list[Draft]]:
    """Everything whose time has come: grants end, approved requests begin, unanswered ones expire."""
    ended, drafts = end_due_grants(state, now=now)
    requests = [request for _, request in sorted(state.of(QuotaBook).requests.items())]
    late = [each for each in requests if _is_over(each, now)]
    for request in late:
        answer = f"nobody answered until {show_time(request.expires)}"
        if request.state is RequestState.WAITING:
            answer = f"it was to end at {show_time(request.ends)}, and there was no room before"
        drafts.append(Draft(RequestAnswered(request.id, RequestState.EXPIRED, answer)))
    due = sorted(
        (each.approved.starts, each.id)
        for each in requests
        if each.state is RequestState.WAITING
        and each.approved is not None
        and each.approved.starts <= now
        and each not in late
    )
    begun: list[Request] = []
    waiting: list[tuple[Request, str]] = []
    if not due:
        return Due(ended, begun, late, waiting), drafts
    with state.what_if():
        recorded_at = format_time(now)
        state.assume(drafts, recorded_at=recorded_at)
        for _, request_id in due:
            request = state.of(QuotaBook).requests[request_id]
            why, more = _begin(state, request, now=now)
            drafts += more
            state.assume(more, recorded_at=recorded_at)
            begun += [request] if more else []
            waiting += [] if more else [(request, why)]
    return Due(ended, begun, late, waiting), drafts


def _is_over(request: Request, now: datetime) -> bool:
    if request.state is RequestState.OPEN:
        return request.expires <= now
    return request.state is RequestState.WAITING and request.ends is not None and request.ends <= now


def _begin(state: State, request: Request, *, now: datetime) -> tuple[str, list[Draft]]:
    """Hand over what was approved for now, if there is room or its givers have it; else why not."""
    approved = request.approved
    assert approved is not None, f"{request.id} waits for nothing"
    policy = policy_in_force(state)
    [pool] = look(state, [approved.pool], policy, day_of(now))
    first: list[Draft] = []
    try:
        if approved.givers:
            for giver, gpus in approved.givers:
                check_gift(state, pool, giver, gpus)
        else:
            line = lines_now(state, policy, now=now, pools=[approved.pool]).get(approved.pool, NO_LINE)
            first = _make_room(state, pool, line, request)
    except Refused as refused:  # what can't begin must not keep everything else from being settled
        return refused.message, []
    answered = RequestAnswered(request.id, RequestState.APPROVED, approved.option)
    return "", [*first, *_hand_over(state, request, approved), Draft(answered, f"{request.id} begins")]


def _make_room(state: State, pool: Pool, line: LineNow, request: Request) -> list[Draft]:
    """What has to happen first: the line in force follows the nodes that have returned, if that was what it waited for.

    Nobody's guarantee changes by that. Raises `Refused` where there is no room.
    """
    approved = request.approved
    assert approved is not None, f"{request.id} waits for nothing"
    waited_for_line = approved.option.startswith(f"{Code.GUARANTEED_FROM}:")
    raised = max(line.gpus, pool.line_in_force) if waited_for_line and pool.is_aligned else pool.line_in_force
    room = room_in(state, msgspec.structs.replace(pool, line_in_force=raised), line, request.team, but=request.id)
    if room.headroom < approved.gpus:
        lower = min(room.line, room.line_in_force)
        raise Refused(
            "no_room",
            f"{room.headroom:,} of {approved.gpus:,} can be promised of {approved.cluster}: line {lower:,}",
            next_step="plimsoll quota settle when nodes are back, or plimsoll quota withdraw REQUEST",
            headroom=room.headroom,
        )
    if room.guaranteed + approved.gpus <= pool.line_in_force:
        return []
    why = f"nodes are back, {request.id} begins"
    return [Draft(PoolAligned(*pool.key, line.gpus, line.policy, dict(pool.guaranteed), cause=why), why)]
