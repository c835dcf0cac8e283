"""How events become incidents, losses that an owner must be told of, notices, and posts that wait. Decides nothing.

Losses are taken from the placements themselves, so that none is missed however seldom somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from plimsoll.fleet.fold import Fleet
from plimsoll.health.changes import BreakerReset
from plimsoll.health.model import Mark, is_planned
from plimsoll.incidents.changes import IncidentClosed, IncidentNoted, IncidentOpened, OwnerTold, PostEnded, PostIntended
from plimsoll.incidents.model import TOLD, Incident, Loss, OwnerNotice, Post
from plimsoll.incidents.reasons import Course, Fate, What
from plimsoll.ledger.model import Event
from plimsoll.quota.changes import TeamRenamed
from plimsoll.state.state import Room, State, Tables
from plimsoll.state.table import Journal, Table
from plimsoll.workloads.changes import WorkloadPlaced
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Because

NOTES_KEPT = 500
COURSE_KEPT = 2_000
CLOSED_KEPT = 5_000
"""So many automatic incidents that are over are remembered; all are in the ledger. So it is with the others here."""
LOSSES_KEPT = 1_000
NOTICES_KEPT = 20
"""Of each workload."""
TOLD_KEPT = 5_000
"""Workloads with notices."""
POSTS_KEPT = 500
"""Those that are over. One that waits is never forgotten."""
POSTS_WAIT_MAX = 2_000
"""So many posts wait at most, as where no chat is set; the oldest beyond that is given up, and says so."""
OWNERS = "owners"
"""The subject of a post about notices."""

GOES_ON_WITH = "; goes on with "
"""How a placement says what a gang took instead of what it lost."""

ANSWERS = {
    False: "go on, and take out what was held back",
    True: "let what was held back be",
}
"""What a person has said to a breaker that had tripped, by whether they dismissed what it held back."""

LossKey = tuple[str, str, datetime]
replace = msgspec.structs.replace
_MICROSECOND = timedelta(microseconds=1)
_ALWAYS = (Because.NODE_LOST, Because.PLANNED_WORK, Because.REPAIRED)
_IF_A_NODE = {Because.SCALED: What.SPARE_LOST, Because.MOVED: What.MOVED_OFF}
"""These are losses only where a node is the reason; else somebody asked for it."""


class _Dump(msgspec.Struct):
    incidents: list[Incident]
    losses: list[Loss]
    notices: list[tuple[str, tuple[OwnerNotice, ...]]]
    posts: list[Post]
    opened: int


class Incidents(Tables):
    """Every incident; what owners must be told and were told; what was posted and is to be."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.incidents: Table[str, Incident] = Table(journal)
        self.losses: Table[LossKey, Loss] = Table(journal)
        self.notices: Table[str, tuple[OwnerNotice, ...]] = Table(journal)
        self.posts: Table[str, Post] = Table(journal)
        self.counts: Table[str, int] = Table(journal)
        # Derived: the newest incident about each thing, the automatic ones that are open, those that hold campaigns
        # back, the posts that wait.
        self.newest: Table[str, str] = Table(journal)
        self.open_found: Table[str, bool] = Table(journal)
        self.holding: Table[str, bool] = Table(journal)
        self.waiting: Table[str, bool] = Table(journal)

    @property
    def opened(self) -> int:
        """How many incidents there ever were: an id is not given again when its incident is forgotten."""
        return self.counts.get("opened", 0)

    def put_incident(self, incident: Incident) -> None:
        self.incidents.put(incident.id, incident)
        _mark(self.holding, incident.id, incident.holds_campaigns)
        if not incident.kind.is_automatic:
            return
        before = self.incidents.get(self.newest.get(incident.about, ""))
        if before is None or (before.opened_at, before.id) <= (incident.opened_at, incident.id):
            self.newest.put(incident.about, incident.id)
        _mark(self.open_found, incident.id, incident.closed_at is None)

    def forget_oldest(self) -> None:
        """One automatic incident that is over, where there are too many."""
        over = [each for each in self.incidents.values() if each.kind.is_automatic and each.closed_at is not None]
        if len(over) > CLOSED_KEPT:
            oldest = min(over, key=lambda each: (each.closed_at or each.opened_at, each.id))
            self.incidents.drop(oldest.id)
            if self.newest.get(oldest.about) == oldest.id:
                self.newest.drop(oldest.about)

    def put_post(self, post: Post) -> None:
        self.posts.put(post.id, post)
        _mark(self.waiting, post.id, not post.fate.is_over)
        if len(self.posts) - len(self.waiting) > POSTS_KEPT:
            self.posts.drop(_oldest(each for each in self.posts.values() if each.fate.is_over).id)
        if len(self.waiting) > POSTS_WAIT_MAX:
            waiting = [self.posts[name] for name in self.waiting]
            # One that is being posted is not touched: what became of it is told by whoever posts it.
            if idle := [each for each in waiting if each.fate is Fate.WAITING]:
                detail = f"more than {POSTS_WAIT_MAX:,} waited"
                at = post.changed_at or post.queued_at
                self.put_post(replace(_oldest(idle), fate=Fate.GIVEN_UP, changed_at=at, detail=detail))

    def put_notice(self, notice: OwnerNotice) -> None:
        """The newest of a kind knows of all nodes: those before it need not."""
        before = (
            replace(each, nodes=()) if each.what is notice.what and each.nodes else each
            for each in self.notices.get(notice.workload, ())
        )
        self.notices.put(notice.workload, (*before, notice)[-NOTICES_KEPT:])
        if len(self.notices) > TOLD_KEPT:
            self.notices.drop(min(self.notices, key=lambda name: (self.notices[name][-1].told_at, name)))

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(
            _Dump(
                [each for _, each in sorted(self.incidents.items())],
                [each for _, each in sorted(self.losses.items())],
                sorted(self.notices.items(), key=lambda pair: pair[0]),
                [each for _, each in sorted(self.posts.items())],
                self.opened,
            ),
            order="sorted",
        )

    def load(self, body: bytes) -> None:
        dump = msgspec.msgpack.decode(body, type=_Dump)
        for incident in dump.incidents:
            self.put_incident(incident)
        for loss in dump.losses:
            self.losses.put((loss.workload, loss.by, loss.at), loss)
        for name, notices in dump.notices:
            self.notices.put(name, notices)
        for post in dump.posts:
            self.put_post(post)
        if dump.opened:
            self.counts.put("opened", dump.opened)


def _oldest(posts: Iterable[Post]) -> Post:
    return min(posts, key=lambda each: (each.queued_at, each.id))


def _mark(table: Table[str, bool], name: str, is_so: bool) -> None:
    if is_so:
        table.put(name, True)
    elif name in table:
        table.drop(name)


ROOM = Room("incidents", version=4, tables=Incidents)


# Incidents.


@ROOM.folds_change(IncidentOpened)
def _fold_opened(state: State, change: IncidentOpened, event: Event) -> None:
    tables, at = state.of(Incidents), event.effective_time
    incident = Incident(change.incident, change.title, at, event.actor, change.roster, change.clusters, change.campaign)
    if change.trouble.is_automatic:
        incident = replace(
            incident,
            kind=change.trouble,
            about=change.about,
            teams=change.teams,
            unit=change.unit,
            amount=change.amount,
            most=change.amount,
            is_on=True,
            as_of=at,
            course=((at, change.amount),),
            next_step=change.next_step,
            noticed_at=event.recorded_time,
            notes=((at, event.actor, change.detail),) if change.detail else (),
        )
    tables.put_incident(incident)
    tables.counts.put("opened", tables.opened + 1)
    if not change.campaign:
        _queue(tables, change.incident, "opened", event)


def breaker_about(scope: str) -> str:
    """What an incident about the breaker of a scope is about."""
    return f"breaker/{scope}"


@ROOM.folds_change(BreakerReset)
def _fold_answered(state: State, change: BreakerReset, event: Event) -> None:
    """A person's answer to a breaker is a line of the incident about it: else that would only say that it is gone."""
    tables = state.of(Incidents)
    known = tables.incidents.get(tables.newest.get(breaker_about(change.scope), ""))
    if known is not None and known.closed_at is None:
        tables.put_incident(_with_note(known, f"{ANSWERS[change.is_dismissed]}: {event.reason}", event))


def _with_note(incident: Incident, note: str, event: Event) -> Incident:
    return replace(incident, notes=(*incident.notes, (event.effective_time, event.actor, note))[-NOTES_KEPT:])


@ROOM.folds_change(IncidentNoted)
def _fold_noted(state: State, change: IncidentNoted, event: Event) -> None:
    tables, at = state.of(Incidents), event.effective_time
    known = tables.incidents[change.incident]
    noted = _with_note(known, change.note, event)
    if change.course is None:
        tables.put_incident(noted)
        return
    is_on = change.course is not Course.GONE
    amount = change.amount if is_on else 0
    noted = replace(
        summed(noted, at),
        is_on=is_on,
        amount=amount,
        most=max(known.most, amount),
        teams=tuple(sorted({*known.teams, *change.teams})),
        gone_at=None if is_on else at,
        course=(*known.course, (at, amount))[-COURSE_KEPT:],
        closed_at=None,
        closed_by="",
        numbers=None,
    )
    tables.put_incident(noted)
    if known.closed_at is not None:
        _queue(tables, change.incident, "back", event)


def summed(incident: Incident, at: datetime) -> Incident:
    """With the time up to a moment counted."""
    if incident.as_of is None or at <= incident.as_of:
        return incident
    if not incident.is_on:
        return replace(incident, as_of=at)
    passed = (at - incident.as_of) // _MICROSECOND
    on_us, amount_us = incident.on_us + passed, incident.amount_us + passed * incident.amount
    return replace(incident, as_of=at, on_us=on_us, amount_us=amount_us)


@ROOM.folds_change(IncidentClosed)
def _fold_closed(state: State, change: IncidentClosed, event: Event) -> None:
    tables, at = state.of(Incidents), event.effective_time
    known = tables.incidents[change.incident]
    closed = replace(summed(known, at), is_on=False, amount=0, closed_at=at, closed_by=event.actor)
    tables.put_incident(replace(closed, numbers=change.numbers))
    if known.kind.is_automatic and len(tables.incidents) > CLOSED_KEPT:
        tables.forget_oldest()
    if not known.campaign:
        _queue(tables, change.incident, "closed", event)


@ROOM.folds_change(TeamRenamed)
def _fold_renamed(state: State, change: TeamRenamed, _event: Event) -> None:
    """What is told to a team from now on has its new name; what was told keeps the name that it had then."""
    tables = state.of(Incidents)
    for key, loss in [(key, loss) for key, loss in tables.losses.items() if loss.team == change.team]:
        tables.losses.put(key, replace(loss, team=change.name))


# Owners.


@ROOM.folds_change(WorkloadPlaced)
def _fold_placed(state: State, change: WorkloadPlaced, event: Event) -> None:
    """A placement that was not wanted is a loss; what follows from it at once is a part of the same one."""
    because = change.because
    if because not in _ALWAYS and because not in _IF_A_NODE:
        return
    node = state.of(Fleet).nodes.get(change.by)
    if because in _IF_A_NODE and node is None:
        return
    asked = state.of(Workloads).asked.get(change.workload)
    tables, at = state.of(Incidents), event.effective_time
    key = (change.workload, change.by, at)
    if asked is None:
        return
    detail, _, how = change.detail.partition(GOES_ON_WITH)
    parts = tuple(each.part for each in change.parts)
    known = tables.losses.get(key)
    if known is None:
        what = _what(because, is_fault=node is not None and not is_planned(Mark(node.service, node.reason)))
        spec = asked.spec
        known = Loss(change.workload, spec.team, spec.owner, (), at, what, change.by, detail)
    hows = {**known.hows, **dict.fromkeys(parts, how)} if how else known.hows
    tables.losses.put(key, replace(known, parts=tuple(dict.fromkeys((*known.parts, *parts))), hows=hows))
    if len(tables.losses) > LOSSES_KEPT:
        tables.losses.drop(min(tables.losses, key=lambda each: (each[2], each)))


def _what(because: Because, *, is_fault: bool) -> What:
    if because in _IF_A_NODE:
        return _IF_A_NODE[because]
    is_lost = because is Because.NODE_LOST or (because is Because.REPAIRED and is_fault)
    return What.NODE_LOST if is_lost else What.PLANNED_WORK


@ROOM.folds_change(OwnerTold)
def _fold_told(state: State, change: OwnerTold, event: Event) -> None:
    tables = state.of(Incidents)
    key = (change.workload, change.by, change.at)
    if key in tables.losses:
        tables.losses.drop(key)
    post = _post_of(tables, event)
    tables.put_notice(
        OwnerNotice(
            change.workload,
            change.team,
            change.owner,
            change.at,
            change.what,
            change.by,
            change.happened,
            change.done,
            change.left,
            event.recorded_time,
            change.gpus,
            change.nodes,
            post,
        )
    )
    if post not in tables.posts:
        tables.put_post(Post(post, OWNERS, TOLD, event.recorded_time))


def _post_of(tables: Incidents, event: Event) -> str:
    """Notices of one moment go to the chat together, unless those before have gone: a clock that was set back gives the
    same moment again and again."""
    first = name = f"{OWNERS}-{event.recorded_at}"
    number = 1
    while (known := tables.posts.get(name)) is not None and known.fate is not Fate.WAITING:
        number += 1
        name = f"{first}-{number}"
    return name


# Posts.


def _queue(tables: Incidents, incident: str, what: str, event: Event) -> None:
    tables.put_post(Post(f"{incident}-{event.revision}", incident, what, event.recorded_time))


@ROOM.folds_change(PostIntended)
def _fold_intended(state: State, change: PostIntended, event: Event) -> None:
    tables = state.of(Incidents)
    if (known := tables.posts.get(change.post)) is not None:
        at, count = event.recorded_time, known.attempts + 1
        tables.put_post(replace(known, fate=Fate.INTENDED, attempts=count, changed_at=at))


@ROOM.folds_change(PostEnded)
def _fold_post_ended(state: State, change: PostEnded, event: Event) -> None:
    tables = state.of(Incidents)
    if (known := tables.posts.get(change.post)) is not None:
        tables.put_post(replace(known, fate=change.fate, changed_at=event.recorded_time, detail=change.detail))
