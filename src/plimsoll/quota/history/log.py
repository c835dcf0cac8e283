"""Everything that happened to one team's quota, as lines that people read: what, how many, who, why. Pure.

Reads events as they were written and decides nothing. What happened under an earlier name of the team is its own, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from plimsoll.times import parse_time

Payload = Mapping[str, Any]


class Happened(NamedTuple):
    """An event, its payload read."""

    revision: int
    recorded_at: str
    actor: str
    kind: str
    reason: str
    payload: Payload


class Line(msgspec.Struct, frozen=True):
    """One change. `assigned` and `guaranteed` are what the team has of the pool after it, where it says so."""

    revision: int
    at: str
    actor: str
    kind: str
    cluster: str
    sku: str
    says: str
    reason: str
    assigned: int | None = None
    guaranteed: int | None = None
    about: str = ""
    """The request that it is about."""


class _Said(NamedTuple):
    says: str
    cluster: str = ""
    sku: str = ""
    assigned: int | None = None
    guaranteed: int | None = None
    about: str = ""


def team_lines(team: str, events: Sequence[Happened]) -> list[Line]:
    """The team's lines, the newest first. `events` are those of quota, the oldest first."""
    owners = _owners(events)
    found, name = [], team
    for event in reversed(events):
        if event.kind == "quota.team_renamed":
            if event.payload["name"] == name:
                found.append(_line(event, _Said(f"is called {name} now; before, {event.payload['team']}")))
                name = event.payload["team"]
            continue
        tell = _TELL.get(event.kind)
        said = tell(name, event.payload, owners) if tell is not None else None
        if said is not None:
            found.append(_line(event, said))
    return found


def _line(event: Happened, said: _Said) -> Line:
    return Line(
        revision=event.revision,
        at=event.recorded_at,
        actor=event.actor,
        kind=event.kind,
        cluster=said.cluster,
        sku=said.sku,
        says=said.says,
        reason=event.reason,
        assigned=said.assigned,
        guaranteed=said.guaranteed,
        about=said.about,
    )


def _owners(events: Sequence[Happened]) -> dict[str, str]:
    """Whose a request or a notice is: what is said to it later names only its id."""
    named = ("request", "notice")
    given = [event.payload[noun] for event in events for noun in named if isinstance(event.payload.get(noun), dict)]
    return {each["id"]: each["team"] for each in given}


def _assigned(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    quota = payload["quota"]
    if quota["team"] != team:
        return None
    says = f"{quota['gpus']:,} are assigned" if quota["gpus"] else "nothing is assigned any more"
    return _Said(says, quota["cluster"], quota["sku"], assigned=quota["gpus"])


def _aligned(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    was, now = payload.get("was", {}), payload["guaranteed"].get(team, 0)
    if team not in was:
        return None
    says = f"{now:,} are guaranteed, {was[team]:,} were: the line is {payload['line']:,}"
    return _Said(says, payload["cluster"], payload["sku"], guaranteed=now)


def _transferred(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    if team not in (payload["giver"], payload["taker"]):
        return None
    gave = team == payload["giver"]
    says = (
        f"{payload['gpus']:,} given to {payload['taker']}" if gave else f"{payload['gpus']:,} from {payload['giver']}"
    )
    back = ", as they were only lent" if payload.get("grant") else ""
    return _Said(says + back, payload["cluster"], payload["sku"])


def _granted(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    if payload["team"] != team:
        return None
    says = f"{payload['gpus']:,} more, assigned and guaranteed"
    return _Said(says, payload["cluster"], payload["sku"], about=payload.get("request", ""))


def _grant_opened(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    grant = payload["grant"]
    if grant["team"] != team:
        return None
    until, giver = parse_time(grant["until"]).date(), grant.get("giver") or "flex"
    return _Said(f"{grant['gpus']:,} of it go back to {giver} on {until}", grant["cluster"], grant["sku"])


def _grant_ended(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    if payload["team"] != team:
        return None
    return _Said(f"{payload['gpus']:,} went back: the time was over", payload["cluster"], payload["sku"])


def _requested(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    request = payload["request"]
    if request["team"] != team:
        return None
    says = f"asked for {request['gpus']:,} more"
    return _Said(says, request.get("cluster", ""), request["sku"], about=request["id"])


def _answered(team: str, payload: Payload, owners: Mapping[str, str]) -> _Said | None:
    if owners.get(payload["request"]) != team:
        return None
    words = f": {payload['answer']}" if payload.get("answer") else ""
    return _Said(f"request {payload['request']} {payload['state']}{words}", about=payload["request"])


def _reserved(team: str, payload: Payload, owners: Mapping[str, str]) -> _Said | None:
    if owners.get(payload["request"]) != team:
        return None
    says = f"{payload['approved']['gpus']:,} kept until request {payload['request']} begins"
    return _Said(says, payload["cluster"], payload["sku"], about=payload["request"])


def _notice(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    notice = payload["notice"]
    if notice["team"] != team:
        return None
    due = parse_time(notice["due"]).date()
    return _Said(f"told: from {notice['was']:,} to {notice['guaranteed']:,} on {due}", notice["cluster"], notice["sku"])


def _notice_answered(team: str, payload: Payload, owners: Mapping[str, str]) -> _Said | None:
    if owners.get(payload["notice"]) != team:
        return None
    comment = f": {payload['comment']}" if payload.get("comment") else ""
    return _Said(f"{payload['answer']} to the notice{comment}", *_pool_of(payload["notice"]))


def _notice_ended(team: str, payload: Payload, owners: Mapping[str, str]) -> _Said | None:
    if owners.get(payload["notice"]) != team:
        return None
    return _Said(f"the notice is over: {payload['cause']}", *_pool_of(payload["notice"]))


def _pool_of(notice: str) -> tuple[str, str]:
    """A notice is named TEAM/CLUSTER/SKU; a team's name may have strokes of its own."""
    rest, _, sku = notice.rpartition("/")
    return rest.rpartition("/")[2], sku


def _called_back(team: str, payload: Payload, _: Mapping[str, str]) -> _Said | None:
    pool = payload["cluster"], payload["sku"]
    if payload["team"] == team:
        return _Said(f"{payload['gpus']:,} that were lent are called back", *pool)
    lost = sum(gpus for owner, _, gpus in payload["victims"] if owner == team)
    return _Said(f"{lost:,} of flex given back, to {payload['team']}", *pool) if lost else None


_TELL: Mapping[str, Callable[[str, Payload, Mapping[str, str]], _Said | None]] = {
    "quota.assigned": _assigned,
    "quota.aligned": _aligned,
    "quota.transferred": _transferred,
    "quota.granted": _granted,
    "quota.grant_opened": _grant_opened,
    "quota.grant_ended": _grant_ended,
    "quota.requested": _requested,
    "quota.request_answered": _answered,
    "quota.reserved": _reserved,
    "quota.notice_given": _notice,
    "quota.notice_answered": _notice_answered,
    "quota.notice_ended": _notice_ended,
    "quota.flex_called_back": _called_back,
}
