"""The correction as a roll-out: four stages over the fleet, painless first, and the notice to each team. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import NoticeEnded, NoticeGiven
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.hull import Hull
from plimsoll.quota.hurt import lost_by
from plimsoll.quota.model import Answer, Haircut, Notice, QuotaKey
from plimsoll.quota.plan import STAGES, Plan
from plimsoll.state.state import State
from plimsoll.words import counted

MEANING = {
    1: "nobody loses anything; what nobody holds becomes flex",
    2: "only quota that nothing runs on",
    3: "idle GPUs as well",
    4: "running work becomes flex; needs its owner's agreement",
}

UNASKED = "You need not answer. An objection is recorded, and an RPM reads it; by itself it does not move the day."


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
                Haircut.total(team.haircut for team in cut),
                sum(hull.never_backed for hull in hulls),
                sum(hull.to_flex for hull in hulls),
                sum(hull.flex_standing for hull in hulls),
            )
        )
    return stages


def announce(
    state: State, plan: Plan, *, start: date, every: timedelta, now: datetime
) -> tuple[list[Notice], list[Draft]]:
    """Tell every team that loses something, with the day of its pool's stage; nobody is told the same twice.

    Who was told before and loses nothing by this plan is told so: the notice ends.
    """
    given = state.of(QuotaBook).notices
    # By whom they are for: a team that was renamed since is not told the same once more.
    known = {notice.key: notice for _, notice in sorted(given.items())}
    notices = []
    for each in plan.pools:
        due = datetime.combine(start + (each.hull.stage - 1) * every, time(), UTC)
        for team, haircut in lost_by(each).items():
            key, guaranteed = QuotaKey(team, *each.key), each.alignment.guaranteed[team]
            old = known.get(key)
            name = "/".join(key) if old is None else old.id
            notice = Notice(name, *key, guaranteed + haircut.gpus, guaranteed, haircut, now, due, is_announced=True)
            notices.append(old if old is not None and _is_same(old, notice) else notice)
    fresh = [Draft(NoticeGiven(notice)) for notice in notices if known.get(notice.key) is not notice]
    pools, meant = {each.key for each in plan.pools}, {notice.id for notice in notices}
    over = [name for name, old in sorted(given.items()) if old.key.pool in pools and name not in meant]
    return notices, [*fresh, *(Draft(NoticeEnded(name, "no longer meant")) for name in over)]


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
    own = next((each for each in hull.teams if each.team == notice.team), None) if hull is not None else None
    # By another policy, or after health has moved, today's plan is not the one that this notice was made of.
    is_same = own is not None and own.guaranteed == notice.guaranteed
    if hull is not None:
        lines += _why(place, hull, is_same=is_same)
    whole = ""
    if is_same and own is not None and own.flex_used > haircut.idle + haircut.running:
        # More than was cut: a gang that does not fit the guarantee any more is flex as a whole.
        whole = (
            f" In all {_gpus(own.flex_used)} of your work are flex from then on: what does not fit, a gang as a whole."
        )
    if haircut.running:
        lines.append(
            "Nothing that runs is stopped on that day: it goes on as flex, and may be asked to give way when a"
            f" guarantee needs the GPUs.{whole}"
        )
        lines.append("This needs your agreement. Without it an RPM decides; silence is not taken for agreement.")
    elif haircut.idle:
        lines.append(
            "Nothing that runs is stopped on that day: the work that holds those idle GPUs goes on as flex, and may be"
            f" asked to give way when a guarantee needs the GPUs.{whole}"
        )
        if own is not None and own.allocated - haircut.idle <= notice.guaranteed:
            lines.append(
                f"Give the {_gpus(haircut.idle)} back before then, and all of your work stays inside the guarantee."
            )
        lines.append(UNASKED)
    else:
        lines.append(f"None of your running work is touched. {UNASKED}")
    # Names are people's, and this is to be pasted into a shell.
    team, cluster, sku = map(shlex.quote, notice.key)
    where = f"{team} --cluster {cluster} --sku {sku}"
    again = f"plimsoll quota request {team} {haircut.gpus} --sku {sku} --cluster {cluster}"
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


def _why(place: str, hull: Hull, *, is_same: bool) -> list[str]:
    """Why it must be, in numbers of the whole pool; and what stays for everybody, where that is known."""
    why = f"Why: teams hold {_gpus(hull.assigned)} of {place} on paper, and {hull.healthy:,} work."
    if hull.never_backed:
        why += f" No working machine stands behind {hull.never_backed:,} of them: no job can use those."
    if not is_same:
        return [why]
    if hull.to_flex:
        also = " more" if hull.never_backed else ""
        why += f" Nodes fail, so the policy promises at most {hull.line:,}: {hull.to_flex:,}{also} are shared as flex."
    stays = "What stays: no healthy GPU is left over as flex for now."
    if hull.flex_standing:
        stays = (
            f"What stays: {hull.flex_standing:,} GPUs of {place} are healthy and promised to nobody."
            " They are flex: your work beyond the guarantee runs there as long as there is room."
        )
    return [why, stays]
