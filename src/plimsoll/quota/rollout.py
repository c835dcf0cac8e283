"""The correction as a roll-out: four stages over the fleet, painless first, and the notice to each team. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import NoticeGiven
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Hull, TeamHull
from plimsoll.quota.model import Answer, Haircut, Notice
from plimsoll.quota.plan import STAGES, Plan
from plimsoll.state.state import State

MEANING = {
    1: "nobody loses anything; what nobody holds becomes flex",
    2: "only quota that nothing runs on",
    3: "idle GPUs as well",
    4: "running work becomes flex; needs its owner's agreement",
}


class Stage(msgspec.Struct, frozen=True):
    """One step of the roll-out: which pools, whose quota, how much of what, and when."""

    stage: int
    day: date
    meaning: str
    clusters: Sequence[str]
    pools: int
    teams: Sequence[str]
    haircut: Haircut
    never_backed: int
    to_flex: int
    flex_standing: int


def roll_out(plan: Plan, *, start: date, every: timedelta) -> list[Stage]:
    """The stages of a plan. A pool is corrected once, on the day of its own stage."""
    stages = []
    for stage in STAGES:
        hulls = [hull for hull in plan.hulls if hull.stage == stage]
        cut = [team for hull in hulls for team in hull.teams if team.haircut.gpus]
        stages.append(
            Stage(
                stage,
                start + (stage - 1) * every,
                MEANING[stage],
                sorted({hull.cluster for hull in hulls}),
                len(hulls),
                sorted({team.team for team in cut}),
                _sum(cut),
                sum(hull.never_backed for hull in hulls),
                sum(hull.to_flex for hull in hulls),
                sum(hull.flex_standing for hull in hulls),
            )
        )
    return stages


def _sum(teams: Sequence[TeamHull]) -> Haircut:
    return Haircut(
        sum(team.haircut.unscheduled for team in teams),
        sum(team.haircut.idle for team in teams),
        sum(team.haircut.running for team in teams),
    )


def announce(
    state: State, plan: Plan, *, start: date, every: timedelta, now: datetime
) -> tuple[list[Notice], list[Draft]]:
    """Tell every team that loses something, with the day of its pool's stage; nobody is told the same twice."""
    known = state.of(QuotaBook).notices
    notices = []
    for hull in plan.hulls:
        due = datetime.combine(start + (hull.stage - 1) * every, time(), UTC)
        for team in hull.teams:
            if not team.haircut.gpus:
                continue
            was = team.guaranteed + team.haircut.gpus
            notices.append(Notice("/".join(team.key), *team.key, was, team.guaranteed, team.haircut, now, due))
    fresh = [notice for notice in notices if not _is_same(known.get(notice.id), notice)]
    return notices, [Draft(NoticeGiven(notice)) for notice in fresh]


def _is_same(old: Notice | None, new: Notice) -> bool:
    return old is not None and (old.guaranteed, old.haircut, old.due) == (new.guaranteed, new.haircut, new.due)


def notice_text(notice: Notice, hull: Hull | None) -> str:
    """What a team reads: what changes, why, what stays, and what it may do."""
    place = f"{notice.sku} in {notice.cluster}"
    haircut = notice.haircut
    kinds = [
        (haircut.unscheduled, "that nothing of yours runs on"),
        (haircut.idle, "that are allocated and idle"),
        (haircut.running, "under running work"),
    ]
    lines = [
        f"To {notice.team}: your quota of {place} on {notice.due:%Y-%m-%d}",
        "",
        f"What changes: you hold {notice.was:,} GPUs on paper; from then on {notice.guaranteed:,} are guaranteed, and"
        " all of them can be used.",
        f"The {haircut.gpus:,} that go: " + ", ".join(f"{gpus:,} {what}" for gpus, what in kinds if gpus) + ".",
    ]
    if hull is not None:
        lines += [
            f"Why: {place} {hull.assigned:,} GPUs were assigned and {hull.healthy:,} work; {hull.never_backed:,} were"
            " never there, so no job could have used them.",
            f"What stays: {hull.flex_standing:,} healthy GPUs are flex for everybody; work beyond your guarantee runs"
            " there, and may be asked to give way.",
        ]
    if haircut.running:
        lines.append("Nothing that runs is stopped by this: it goes on as flex. It needs your agreement.")
    where = f"{notice.team} --cluster {notice.cluster} --sku {notice.sku}"
    lines += [
        "What you may do:",
        f"  agree             plimsoll quota agree {where}",
        f"  object            plimsoll quota object {where} --reason WHY",
        f"  see who could give some   plimsoll quota request {notice.team} {haircut.gpus} --sku {notice.sku}"
        f" --cluster {notice.cluster} --dry-run",
    ]
    if notice.answer is not Answer.NONE:
        said = f": {notice.comment}" if notice.comment else ""
        lines.append(f"Your answer: {notice.answer} by {notice.answered_by}{said}")
    return "\n".join(lines)
