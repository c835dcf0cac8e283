"""Notices: who must be told before running capacity is taken, and when it may be (rule 10). Pure."""

from __future__ import annotations

from datetime import datetime

from plimsoll.quota.model import Answer, Haircut, Notice, QuotaKey
from plimsoll.quota.policy import Stability


def may_take(notice: Notice | None, guaranteed: int, now: datetime) -> bool:
    """Whether a team was told in time that it would fall this far, and agreed."""
    is_covered = notice is not None and notice.guaranteed <= guaranteed
    return is_covered and notice is not None and notice.answer is Answer.AGREED and notice.due <= now


def is_unheard(notice: Notice | None, guaranteed: int) -> bool:
    """Whether a team must be told anew: not yet, or of less."""
    return notice is None or notice.guaranteed > guaranteed


def notice_for(
    key: QuotaKey,
    was: int,
    guaranteed: int,
    haircut: Haircut,
    now: datetime,
    calm: Stability,
    old: Notice | None = None,
) -> Notice:
    """What a team is told. Its id names the pool and the team: a newer notice takes the place of an older one, also
    where the team had another name then, and never comes to an earlier day.
    """
    due = now + calm.notice
    if old is None:
        return Notice("/".join(key), *key, was, guaranteed, haircut, now, due)
    return Notice(old.id, *key, was, guaranteed, haircut, now, max(due, old.due))


def is_stale(notice: Notice, now: datetime, calm: Stability) -> bool:
    """Whether a notice may end when all promises fit: one of the controller's own may.

    The day of a roll-out is a person's, who may mean another policy than the one in force: it ends when long over.
    """
    return not notice.is_announced or notice.due + calm.change_every <= now
