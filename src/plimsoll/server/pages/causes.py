"""Codes as people read them on a page: causes, whose move it is, how work stands. Pure words, nothing decided.

A code without words here is shown as itself: a page never fails for a new one.
"""

from __future__ import annotations

from plimsoll.server.pages.prose import prose

CAUSES = {
    "no_such_room": "no such room anywhere",
    "never_backed": "never there",
    "to_flex": "too uncertain to promise",
    "not_aligned": "not aligned yet",
    "no_guarantee": "no guarantee",
    "over_guarantee": "beyond the guarantee",
    "team_held": "kept for somebody",
    "over_promised": "promised, no machine behind it",
    "nodes_unhealthy": "nodes out of service",
    "planned_work": "planned work",
    "planned_ahead": "planned work ahead",
    "in_use": "in use by its own work",
    "in_use_by_others": "in use by others",
    "island_fragmented": "scattered over islands",
    "flex_taken": "flex is taken",
    "reserved": "kept for a run that waits",
    "lent_draining": "lent, on its way back",
    "preempted": "gave way",
    "node_lost": "a node was lost",
}
MOVES = {
    "owner": "the owner",
    "team": "the team",
    "rpm": "an RPM",
    "hardware": "hardware",
    "planned_work": "planned work",
    "scheduler": "Plimsoll",
    "wait": "time",
}
HARMS = {
    "nobody": "hurts nobody",
    "moved": "moves replicas",
    "own_work": "costs own work",
    "others_flex": "takes others’ flex",
    "waiting": "waiting",
}
STANDINGS = {
    "running": "good",
    "startable": "good",
    "starting": "info",
    "partly": "warn",
    "waiting": "bad",
    "over": "",
    "ended": "",
}
"""The tone of each standing."""
REQUESTS = {"open": "info", "approved": "good", "waiting": "good", "denied": "bad", "withdrawn": "", "expired": "warn"}
"""The tone of each state of a request."""


def cause(code: str | None) -> str:
    """A cause in words."""
    return CAUSES.get(code or "", (code or "").replace("_", " "))


def move(code: str | None) -> str:
    """Whose move it is, in words."""
    return MOVES.get(code or "", (code or "").replace("_", " "))


def harm(code: str) -> str:
    """What an action costs, in words."""
    return HARMS.get(code, code.replace("_", " "))


WORDS = {
    "cause_words": cause, "move_words": move, "harm_words": harm, "tone_of": STANDINGS, "request_tone": REQUESTS,
    "prose": prose,
}  # fmt: skip
"""What a template of these pages is given."""
