"""Why an incident is open and what an owner is told, as codes. Public: add, never rename."""

from __future__ import annotations

import enum


class Kind(enum.StrEnum):
    """What an incident is about. Only a person's holds campaigns back: planned work itself makes pools short."""

    PERSON = "person"
    BROKEN_PROMISE = "broken_promise"
    BREAKER = "breaker"
    SILENT_FEED = "silent_feed"
    CAP = "cap"

    @property
    def is_automatic(self) -> bool:
        """Whether it was found by looking, and so closes by itself."""
        return self is not Kind.PERSON

    @property
    def move(self) -> str:
        """Whose move it is."""
        return _MOVES[self]

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]

    @property
    def measure(self) -> str:
        """What the amount of such a trouble counts: so many GPUs `short`."""
        return _MEASURES[self]


_MOVES = {
    Kind.PERSON: "whoever opened it, and those on call",
    Kind.BROKEN_PROMISE: "hardware: repair; RPM: lower what is promised",
    Kind.BREAKER: "on-call: look at the nodes held back, then reset the breaker",
    Kind.SILENT_FEED: "on-call: bring the feed back; until then the health of its nodes is unknown",
    Kind.CAP: "whoever runs the campaign: bring nodes back before more go out",
}
_MEANINGS = {
    Kind.PERSON: "somebody says that something is going on",
    Kind.BROKEN_PROMISE: "fewer GPUs work than are guaranteed, or work inside a guarantee waits beyond its grace",
    Kind.BREAKER: "automation wanted to take out more nodes than it may, and stopped",
    Kind.SILENT_FEED: "a feed of signals has said nothing for too long",
    Kind.CAP: "more is out at once than a limit of a running campaign allows",
}

_MEASURES = {
    Kind.PERSON: "",
    Kind.BROKEN_PROMISE: "short",
    Kind.BREAKER: "held back",
    Kind.SILENT_FEED: "not seen",
    Kind.CAP: "over the cap",
}


class Course(enum.StrEnum):
    """What a note of the course of a trouble says."""

    CHANGED = "changed"
    GONE = "gone"
    BACK = "back"


class What(enum.StrEnum):
    """What happened to running work."""

    NODE_LOST = "node_lost"
    """A node under it went bad."""
    PLANNED_WORK = "planned_work"
    """A node under it was taken out by planned work."""
    SPARE_LOST = "spare_lost"
    """Its spare is gone; it runs on."""
    MOVED_OFF = "moved_off"
    """It left a node that drains."""
    DRAINS = "drains"
    """A node under it drains; it has not left it."""
    HELD_BACK = "held_back"
    """A node under it is bad, and a breaker keeps automation from taking it out."""
    GPUS_LOST = "gpus_lost"
    """Fewer GPUs work than run work, and by the order of loss this work, which was only observed, gives up some."""
    GPUS_BACK = "gpus_back"
    """It has all of them again."""


class Fate(enum.StrEnum):
    """What became of a post to the chat."""

    WAITING = "waiting"
    INTENDED = "intended"
    """It is being posted, or whoever did so died over it."""
    POSTED = "posted"
    MAYBE = "maybe"
    """It may have been posted: nobody knows, so it is not posted again."""
    REFUSED = "refused"
    """The chat does not want it."""
    GIVEN_UP = "given_up"
    """It was surely not posted, and not tried any more."""

    @property
    def is_over(self) -> bool:
        return self not in (Fate.WAITING, Fate.INTENDED)
