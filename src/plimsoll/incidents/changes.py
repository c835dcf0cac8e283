"""What can happen to incidents, to what owners are told, and to posts, as events."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from plimsoll.incidents.model import Numbers
from plimsoll.incidents.reasons import Course, Fate, Kind, What
from plimsoll.ledger.model import Change


class IncidentChange(Change, frozen=True):
    """Something happened to an incident."""

    incident: str

    @property
    def subject(self) -> str:
        return f"incident/{self.incident}"


class IncidentOpened(IncidentChange, frozen=True):
    """Something is going on, and this is where to look. `trouble` and `about`: of what kind, and what it is about."""

    kind: ClassVar[str] = "incident.opened"

    title: str
    roster: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    campaign: str = ""
    trouble: Kind = Kind.PERSON
    about: str = ""
    amount: int = 0
    unit: str = ""
    teams: tuple[str, ...] = ()
    next_step: str = ""
    detail: str = ""


class IncidentNoted(IncidentChange, frozen=True):
    """What somebody found, or did, about an incident. With a `course` its trouble changed, went, or came back, which
    opens it again where it was closed.
    """

    kind: ClassVar[str] = "incident.noted"

    note: str
    course: Course | None = None
    amount: int = 0
    teams: tuple[str, ...] = ()


class IncidentClosed(IncidentChange, frozen=True):
    """It is over. `numbers` is what it came to."""

    kind: ClassVar[str] = "incident.closed"

    numbers: Numbers | None = None


class OwnerTold(Change, frozen=True):
    """The owner of running work was told what happened to it, what was done about that, and what is left to do."""

    kind: ClassVar[str] = "owner.told"

    workload: str
    team: str
    owner: str
    at: datetime
    what: What
    by: str
    happened: str
    done: str
    left: str
    gpus: int = 0
    nodes: tuple[str, ...] = ()
    """All of them, where what lasts is about more than the one that it is told `by`."""

    @property
    def subject(self) -> str:
        return f"notice/{self.workload}"


class PostIntended(Change, frozen=True):
    """A message is about to be posted to the chat. Recorded before that is tried, so that none is posted twice."""

    kind: ClassVar[str] = "post.intended"

    post: str
    host: str = ""

    @property
    def subject(self) -> str:
        return f"post/{self.post}"


class PostEnded(Change, frozen=True):
    """What became of a message that was to be posted; `waiting` where it surely was not, and is tried again."""

    kind: ClassVar[str] = "post.ended"

    post: str
    fate: Fate
    detail: str = ""

    @property
    def subject(self) -> str:
        return f"post/{self.post}"
