"""Service levels the slow way: minute by minute, node by node, with plain loops and no arithmetic on spans.

Written from docs/reference/service-levels.md; it shares nothing with the code it checks. Times are whole minutes.
"""

from __future__ import annotations

from typing import NamedTuple


class Told(NamedTuple):
    """A transition, as in a history file."""

    minute: int
    service: str
    reason: str


class Outage:
    """What was seen of one outage."""

    def __init__(self, node: str, began: int, *, is_planned: bool) -> None:
        self.node = node
        self.began = began
        self.is_planned = is_planned
        self.ended: int | None = None
        self.ended_by = ""


class Checker:
    """Walks over all minutes up to `end`; what it counts are those from `begin` on."""

    def __init__(self, stories: dict[str, list[Told]], begin: int, end: int) -> None:
        self.stories, self.begin, self.end = stories, begin, end
        self.counted = self.in_service = self.out_planned = self.out_unplanned = 0
        self.by_reason: dict[tuple[str, bool], int] = {}
        self.outages: list[Outage] = []
        self.first = min([begin, *(told.minute for story in stories.values() for told in story)])
        self.here: dict[int, int] = {}
        self.up: dict[int, int] = {}
        for node, story in stories.items():
            self._walk(node, story)

    def _walk(self, node: str, story: list[Told]) -> None:
        is_here = not story or story[0].service != "joining"
        outage: Outage | None = None
        planned, reason, was_up = False, "", True
        seen: Told | None = None
        for minute in range(self.first, self.end + 1):
            now = last_before(story, minute)
            if now is not seen and now is not None:
                is_known_out = seen is not None and outage is not None
                planned, reason = explain(now, planned if is_known_out else None, reason)
                seen = now
            service = "in_service" if now is None else now.service
            if service == "in_service" and now is not None:
                is_here = True
            if service == "retired":
                is_here = False
            is_out = is_here and service != "in_service"
            if outage is not None and not is_out:
                outage.ended, outage.ended_by, outage = minute, service, None
            if minute == self.end:
                # Who returns at the end has returned in the period; who leaves at the end has left after it.
                self.here[minute] = self.here.get(minute, 0) + is_here
                self.up[minute] = self.up.get(minute, 0) + (is_here and (not is_out or was_up))
                return
            was_up = not is_out
            if is_out and outage is None:
                outage = self._begin(node, minute, planned)
            if is_here:
                self.here[minute] = self.here.get(minute, 0) + 1
                self.up[minute] = self.up.get(minute, 0) + (not is_out)
            if is_here and minute >= self.begin:
                self.counted += 1
                self.in_service += not is_out
                self.out_planned += is_out and planned
                self.out_unplanned += is_out and not planned
                if is_out:
                    self.by_reason[reason, planned] = self.by_reason.get((reason, planned), 0) + 1

    def _begin(self, node: str, minute: int, planned: bool) -> Outage:
        """A new outage, or the last one again if it was back for less than ten minutes."""
        if self.outages:
            last = self.outages[-1]
            is_same = last.node == node and last.is_planned == planned and last.ended_by == "in_service"
            if is_same and last.ended is not None and minute - last.ended < 10:
                last.ended, last.ended_by = None, ""
                return last
        outage = Outage(node, minute, is_planned=planned)
        self.outages.append(outage)
        return outage

    def interruptions(self, *, is_planned: bool) -> int:
        return len([o for o in self.outages if o.is_planned == is_planned and self.begin <= o.began < self.end])

    def repair_minutes(self) -> list[int]:
        return sorted(
            o.ended - o.began
            for o in self.outages
            if not o.is_planned and o.ended is not None and o.ended_by == "in_service" and o.ended > self.begin
        )

    def open_ages(self, *, is_planned: bool) -> list[int]:
        return [self.end - o.began for o in self.outages if o.ended is None and o.is_planned == is_planned]

    def retired_count(self) -> int:
        return len(
            [o for o in self.outages if o.ended_by == "retired" and o.ended is not None and o.ended > self.begin]
        )

    def recoveries(self) -> tuple[list[int], int | None]:
        """How many minutes each spell below 19 of 20 lasted that ended in the period, and the age of an open one."""
        spells, spell = [], 0
        for minute in range(self.first, self.end + 1):
            if 20 * self.up.get(minute, 0) < 19 * self.here.get(minute, 0):
                spell += minute < self.end
                continue
            if spell and minute > self.begin:
                spells.append(spell)
            spell = 0
        return spells, spell or None


def last_before(story: list[Told], minute: int) -> Told | None:
    """What a node was in: the last that is told of it."""
    found = None
    for told in story:
        if told.minute <= minute:
            found = told
    return found


def explain(told: Told, planned_before: bool | None, reason_before: str) -> tuple[bool, str]:
    """Whether it is planned, and its plain reason. `planned_before` is None where no outage goes on."""
    if planned_before is not None and told.service in ("validating", "draining", "joining"):
        return planned_before, reason_before
    plain = told.reason.lower()
    if plain.startswith("xid 79"):
        plain = "xid 79"
    if plain:
        is_planned = plain.startswith(("planned:", "provider:")) or told.service == "maintenance"
        return is_planned, plain
    if planned_before is None:
        return told.service == "maintenance", ""
    is_planned = told.service == "maintenance"
    return is_planned, reason_before if is_planned == planned_before else ""
