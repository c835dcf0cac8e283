"""The correction as a roll-out: four stages over the fleet, painless first, and the notice to each team. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import NoticeEnded, NoticeGiven
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Hull, TeamHull
from plimsoll.quota.hurt import taken
from plimsoll.quota.model import Answer, Haircut, Notice, QuotaKey
from plimsoll.quota.plan import STAGES, Plan, PoolPlan
from plimsoll.state.state import State
from plimsoll.words import counted

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
    """Tell every team that loses something, with the day of its pool's stage; nobody is told the same twice.

    Who was told before and loses nothing by this plan is told so: the notice ends.
    """
    known = state.of(QuotaBook).notices
    notices = []
    for each in plan.pools:
        due = datetime.combine(start + (each.hull.stage - 1) * every, time(), UTC)
        for team, haircut in _losses(each).items():
            key, guaranteed = QuotaKey(team, *each.key), each.alignment.guaranteed[team]
            notice = Notice(
                "/".join(key), *key, guaranteed + haircut.gpus, guaranteed, haircut, now, due, is_announced=True
            )
            old = known.get(notice.id)
            notices.append(old if old is not None and _is_same(old, notice) else notice)
    fresh = [Draft(NoticeGiven(notice)) for notice in notices if known.get(notice.id) is not notice]
    pools, meant = {each.key for each in plan.pools}, {notice.id for notice in notices}
    over = [name for name, old in sorted(known.items()) if old.key.pool in pools and name not in meant]
    return notices, [*fresh, *(Draft(NoticeEnded(name, "no longer meant")) for name in over)]


def _losses(each: PoolPlan) -> Mapping[str, Haircut]:
    """What teams lose that they have not lost already: a pool that was aligned is compared with what is in force."""
    if each.pool.is_aligned:
        return taken(each.pool, each.alignment.guaranteed)
    return {team.team: team.haircut for team in each.hull.teams if team.haircut.gpus}


def _is_same(old: Notice, new: Notice) -> bool:
    return (old.was, old.guaranteed, old.haircut, old.due) == (new.was, new.guaranteed, new.haircut, new.due)


def notice_text(notice: Notice, hull: Hull | None, *, is_first: bool = True) -> str:
    """What a team reads: what changes, why, what stays, and what it may do.

    `is_first`: nothing of the pool is guaranteed yet, so what the team holds is on paper.
    """
    place = f"{notice.sku} in {notice.cluster}"
    haircut = notice.haircut
    held = "you hold {:,} GPUs on paper" if is_first else "you are guaranteed {:,} GPUs"
    kinds = [
        (haircut.unscheduled, "that nothing of yours runs on"),
        (haircut.idle, "that your work holds and does not use"),
        (haircut.running, "under your running work"),
    ]
    lines = [
        f"To {notice.team}: your quota of {place} changes on {notice.due:%Y-%m-%d} at {notice.due:%H:%M} UTC",
        "",
        f"What changes: today {held.format(notice.was)}. From then on {_are(notice.guaranteed)} guaranteed.",
        f"The {_gpus(haircut.gpus)} that go: " + ", ".join(f"{gpus:,} {what}" for gpus, what in kinds if gpus) + ".",
    ]
    if hull is not None:
        lines += _why(place, hull)
    if haircut.running:
        lines.append(
            "Nothing that runs is stopped on that day: it goes on as flex, and may be asked to give way when a"
            " guarantee needs the GPUs."
        )
        lines.append("This needs your agreement. Without it a person decides; silence is not taken for agreement.")
    else:
        lines.append("None of your running work is touched. You need not answer.")
    where = f"{notice.team} --cluster {notice.cluster} --sku {notice.sku}"
    again = f"plimsoll quota request {notice.team} {haircut.gpus} --sku {notice.sku} --cluster {notice.cluster}"
    lines += [
        "What you may do:",
        f"  agree                    plimsoll quota agree {where}",
        f"  object                   plimsoll quota object {where} --reason WHY",
        f"  see who could give some  {again} --dry-run",
    ]
    if notice.answer is not Answer.NONE:
        said = f": {notice.comment}" if notice.comment else ""
        lines.append(f"Your answer: {notice.answer}, by {notice.answered_by}{said}")
    return "\n".join(lines)


def _gpus(gpus: int) -> str:
    return counted(gpus, "GPU")


def _are(gpus: int) -> str:
    if not gpus:
        return "none of them is"
    return "1 GPU is" if gpus == 1 else f"{gpus:,} GPUs are"


def _why(place: str, hull: Hull) -> list[str]:
    """Why it must be, in numbers of the whole pool; and what stays for everybody."""
    why = f"Why: teams hold {_gpus(hull.assigned)} of {place} on paper, and {hull.healthy:,} work."
    if hull.never_backed:
        why += f" {hull.never_backed:,} were never there: no job could have used them."
    if hull.to_flex:
        also = " more" if hull.never_backed else ""
        why += f" The policy keeps {hull.to_flex:,}{also} back, as nodes fail: they are shared as flex, not promised."
    stays = "What stays: no healthy GPU is left over as flex for now."
    if hull.flex_standing:
        stays = (
            f"What stays: {hull.flex_standing:,} GPUs of {place} are healthy and promised to nobody."
            " They are flex: your work beyond the guarantee runs there as long as there is room."
        )
    return [why, stays]
