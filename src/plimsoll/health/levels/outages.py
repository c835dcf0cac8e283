"""What the timelines say of the past: which nodes counted when, and every outage, stretch by stretch.

Pure: timelines in, columns out. Nothing later than the moment asked for is looked at, so an outage that is open then is
open here, however it went on. A fleet has millions of transitions, so these are NumPy columns: one row per stretch and
per outage. The definitions are those of docs/reference/service-levels.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plimsoll.fleet.model import Node, Service
from plimsoll.health.fold import Health
from plimsoll.health.model import EMPTY_TIMELINE, Mark, is_planned, to_microseconds

Whole = NDArray[np.int64]
Fact = NDArray[np.bool_]

MINUTE = 60 * 1_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
"""In microseconds, as all moments and lengths here."""

STORM_GAP = 10 * MINUTE
"""A node that is back for less than this and fails again was not repaired: it is the same outage."""

ALWAYS, FOREVER = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)

_SERVICES = list(Service)
_IN_SERVICE, _RETIRED = _SERVICES.index(Service.IN_SERVICE), _SERVICES.index(Service.RETIRED)
_GOES_ON = [service in (Service.VALIDATING, Service.DRAINING, Service.JOINING) for service in _SERVICES]
"""Services that are a step of something: they belong to the stretch before them, whatever they say themselves."""

_DETAILS = re.compile(r":\s.*|:$", re.DOTALL)


class Period(NamedTuple):
    """From one moment until another, in microseconds. A node that leaves service at `end` does so after the period;
    one that returns at `end` has returned in it.
    """

    begin: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.begin

    @property
    def before(self) -> Period:
        """The one before, of the same length."""
        return Period(self.begin - self.length, self.begin)


class End(enum.IntEnum):
    """How an outage ended."""

    OPEN = 0
    IN_SERVICE = 1
    RETIRED = 2


class Counted(NamedTuple):
    """From when until when nodes count, in service or not. A node may have several rows, or none."""

    node: Whole
    begin: Whole
    end: Whole


class Stretches(NamedTuple):
    """The parts of outages: a node out of service for one reason. An open one ends, so far, where we stop looking."""

    node: Whole
    begin: Whole
    end: Whole
    service: Whole
    is_planned: Fact
    reason: Whole
    outage: Whole


class Outages(NamedTuple):
    """By node, then by time. `began` and `ended` of an error storm are those of the whole; its hours are those of its
    stretches.
    """

    node: Whole
    began: Whole
    ended: Whole
    end: Whole
    is_planned: Fact
    is_assumed: Fact
    first_stretch: Whole


class Past(NamedTuple):
    """What is known at `until` of some nodes. Numbers of nodes, reasons and outages are places in these lists."""

    until: int
    nodes: Sequence[Node]
    gpus: Whole
    counted: Counted
    stretches: Stretches
    outages: Outages
    reasons: Sequence[str]
    contradicted: Sequence[str]
    """Nodes whose timeline ends in another service than they are in now, and nobody said since when."""


class _Entries(NamedTuple):
    """Transitions by node, then by time."""

    node: Whole
    moment: Whole
    mark: Whole


class _Marks(NamedTuple):
    """What the numbers of marks mean."""

    service: Whole
    is_planned: Fact
    is_assumed: Fact
    reason: Whole
    reasons: list[str]


def read_past(health: Health, nodes: Sequence[Node], *, until: int) -> Past:
    """The outages of these nodes as far as they are known at `until`."""
    marks = _read_marks([health.marks[number] for number in range(len(health.marks))])
    entries, marks, contradicted = _with_present(nodes, _read_entries(health, nodes), marks)
    # Whether a node came later than the fleet is no forecast, so this alone may look beyond `until`.
    is_first = changes(entries.node)
    joins = np.zeros(len(nodes), np.bool_)
    joins[entries.node[is_first]] = marks.service[entries.mark[is_first]] == _SERVICES.index(Service.JOINING)
    entries = _only(entries, entries.moment <= until)
    # Of several transitions of one instant only the last lasts.
    entries = _only(entries, lasts(entries.node) | lasts(entries.moment))
    is_counted = _count(entries, marks, joins)
    stretches, outages = _merge_storms(*_find_outages(entries, marks, is_counted, until))
    return Past(
        until=until,
        nodes=nodes,
        gpus=np.array([node.gpus for node in nodes], np.int64),
        counted=_counted_rows(entries, joins, is_counted),
        stretches=stretches,
        outages=outages,
        reasons=marks.reasons,
        contradicted=contradicted,
    )


def history_begin(health: Health) -> int | None:
    """The first transition that anybody told: before it every node counts as in service."""
    return min((timeline.moments()[0] for timeline in health.timelines.values() if timeline), default=None)


class OpenOutage(NamedTuple):
    """An outage that has not ended: whether it is one that was planned, and what its last stretch is."""

    began: int
    is_planned: bool
    service: Service
    is_planned_now: bool
    reason: str


def open_outages(past: Past) -> dict[str, OpenOutage]:
    """Every outage that is open where we stop looking, by node."""
    outages, stretches = past.outages, past.stretches
    last = _follower(outages.first_stretch, len(stretches.node)) - 1
    found = {}
    for at in np.flatnonzero(outages.end == End.OPEN).tolist():
        end = int(last[at])
        found[past.nodes[outages.node[at]].id] = OpenOutage(
            began=int(outages.began[at]),
            is_planned=bool(outages.is_planned[at]),
            service=_SERVICES[stretches.service[end]],
            is_planned_now=bool(stretches.is_planned[end]),
            reason=past.reasons[stretches.reason[end]],
        )
    return found


def normal_reason(reason: str) -> str:
    """A reason without its details, so that alike ones are counted together: `XID 79: GPU 3` is `xid 79`.

    What follows `planned:` or `provider:` is the reason itself.
    """
    words = " ".join(reason.casefold().split())
    kind, colon, rest = words.partition(":")
    if colon and kind in ("planned", "provider"):
        return f"{kind}: {_DETAILS.sub('', rest.strip())}".rstrip()
    return _DETAILS.sub("", words)


def _read_marks(marks: Sequence[Mark]) -> _Marks:
    numbers: dict[str, int] = {"": 0}
    reasons = [numbers.setdefault(normal_reason(mark.reason), len(numbers)) for mark in marks]
    return _Marks(
        service=np.array([_SERVICES.index(mark.service) for mark in marks], np.int64),
        is_planned=np.array([is_planned(mark) for mark in marks], np.bool_),
        is_assumed=np.array([mark.is_assumed for mark in marks], np.bool_),
        reason=np.array(reasons, np.int64),
        reasons=list(numbers),
    )


def _read_entries(health: Health, nodes: Sequence[Node]) -> _Entries:
    timelines = [health.timelines.get(node.id, EMPTY_TIMELINE) for node in nodes]
    packed = np.frombuffer(b"".join(timeline.packed for timeline in timelines), np.int64).reshape(-1, 2)
    lengths = np.array([len(timeline) for timeline in timelines], np.int64)
    return _Entries(np.repeat(np.arange(len(nodes)), lengths), packed[:, 0], packed[:, 1])


def _with_present(nodes: Sequence[Node], entries: _Entries, marks: _Marks) -> tuple[_Entries, _Marks, list[str]]:
    """A node that says since when it is in another service than its timeline ends in has made one more transition.

    `history.csv` may lag behind `nodes.csv`: without this, a node that is back would be out for ever.
    """
    is_last = lasts(entries.node)
    last_service = np.full(len(nodes), _IN_SERVICE)
    last_service[entries.node[is_last]] = marks.service[entries.mark[is_last]]
    last_moment = np.full(len(nodes), ALWAYS)
    last_moment[entries.node[is_last]] = entries.moment[is_last]
    present = np.array([_SERVICES.index(node.service) for node in nodes], np.int64)
    added: list[tuple[int, int, Mark]] = []
    contradicted = []
    for place in np.flatnonzero(present != last_service).tolist():
        now = nodes[place]
        since = None if now.since is None else to_microseconds(now.since)
        if since is None or since <= last_moment[place]:
            contradicted.append(now.id)
        else:
            added.append((place, since, Mark(now.service, now.reason)))
    if not added:
        return entries, marks, contradicted
    more = _read_marks([mark for *_, mark in added])
    names = {name: number for number, name in enumerate(marks.reasons)}
    renumbered = np.array([names.setdefault(name, len(names)) for name in more.reasons], np.int64)
    merged = _Marks(
        service=np.append(marks.service, more.service),
        is_planned=np.append(marks.is_planned, more.is_planned),
        is_assumed=np.append(marks.is_assumed, more.is_assumed),
        reason=np.append(marks.reason, renumbered[more.reason]),
        reasons=list(names),
    )
    node = np.append(entries.node, [place for place, *_ in added])
    moment = np.append(entries.moment, [since for _, since, _ in added])
    mark = np.append(entries.mark, len(marks.service) + np.arange(len(added)))
    order = np.argsort(node, kind="stable")  # each is later than all of its node
    return _Entries(node[order], moment[order], mark[order]), merged, contradicted


def _only(entries: _Entries, is_wanted: Fact) -> _Entries:
    return _Entries(*(column[is_wanted] for column in entries))


def changes(values: Whole | Fact) -> Fact:
    """Where a value differs from the one before it; the first one does."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def lasts(values: Whole) -> Fact:
    """Where a value differs from the one after it; the last one does."""
    return np.append(values[1:] != values[:-1], True)[: len(values)]


def _follower(values: Whole, last: int) -> Whole:
    """The value after each."""
    return np.append(values[1:], last)[: len(values)]


def _carried(is_own: Fact) -> Whole:
    """For each place the last one, up to it, that has something of its own. The first one must."""
    return np.maximum.accumulate(np.where(is_own, np.arange(len(is_own)), 0))


def _count(entries: _Entries, marks: _Marks, joins: Fact) -> Fact:
    """Whether a node counts after each transition: a retired or joining one does again when it enters service."""
    service, is_first = marks.service[entries.mark], changes(entries.node)
    opens = (service == _IN_SERVICE) | (is_first & ~joins[entries.node] & (service != _RETIRED))
    is_own = opens | is_first | (service == _RETIRED)
    counted: Fact = opens[_carried(is_own)]
    return counted


def _counted_rows(entries: _Entries, joins: Fact, is_counted: Fact) -> Counted:
    """From each change of whether a node counts until the next."""
    node_count = len(joins)
    node = np.append(np.arange(node_count), entries.node)
    begin = np.append(np.full(node_count, ALWAYS), entries.moment)
    counts = np.append(~joins, is_counted)
    order = np.argsort(node, kind="stable")
    node, begin, counts = node[order], begin[order], counts[order]
    is_change = changes(node) | changes(counts)
    node, begin, counts = node[is_change], begin[is_change], counts[is_change]
    end = np.where(lasts(node), FOREVER, _follower(begin, FOREVER))
    return Counted(node[counts], begin[counts], end[counts])


def _find_outages(entries: _Entries, marks: _Marks, is_counted: Fact, until: int) -> tuple[Stretches, Outages]:
    """Every run of stretches without service, however soon the next one follows."""
    service = marks.service[entries.mark]
    is_last = lasts(entries.node)
    end = np.where(is_last, until, _follower(entries.moment, until))
    is_out = is_counted & (service != _IN_SERVICE) & (end > entries.moment)
    out = np.flatnonzero(is_out)
    begins = (changes(entries.node) | changes(is_out))[out]
    is_planned, reason = _explain(marks, entries.mark[out], service[out], begins)

    first = np.flatnonzero(begins)
    head, tail = out[first], out[_follower(first, len(out)) - 1]
    after = np.minimum(tail + 1, len(service) - 1)
    is_back, is_retired = service[after] == _IN_SERVICE, service[after] == _RETIRED
    is_open = is_last[tail] | ~(is_back | is_retired)
    is_assumed = marks.is_assumed[entries.mark]
    stretches = Stretches(
        node=entries.node[out],
        begin=entries.moment[out],
        end=end[out],
        service=service[out],
        is_planned=is_planned,
        reason=reason,
        outage=np.cumsum(begins) - 1,
    )
    outages = Outages(
        node=entries.node[head],
        began=entries.moment[head],
        ended=end[tail],
        end=np.where(is_open, int(End.OPEN), np.where(is_retired, int(End.RETIRED), int(End.IN_SERVICE))),
        is_planned=is_planned[first],
        is_assumed=is_assumed[head] | (is_assumed[after] & ~is_open),
        first_stretch=first,
    )
    return stretches, outages


def _merge_storms(stretches: Stretches, outages: Outages) -> tuple[Stretches, Outages]:
    """An error storm is one outage. But a fault soon after planned work is one of its own, and the other way round."""
    follows = ~changes(outages.node) & ~changes(outages.is_planned)
    is_back = outages.end == End.IN_SERVICE
    is_soon = np.append(False, outages.began[1:] - outages.ended[:-1] < STORM_GAP)[: len(follows)]
    goes_on = follows & is_soon & np.append(False, is_back[:-1])[: len(follows)]
    number = np.cumsum(~goes_on) - 1
    head = np.flatnonzero(~goes_on)
    tail = _follower(head, len(goes_on)) - 1
    is_assumed = np.zeros(len(head), np.bool_)
    is_assumed[number[outages.is_assumed]] = True
    merged = Outages(
        node=outages.node[head],
        began=outages.began[head],
        ended=outages.ended[tail],
        end=outages.end[tail],
        is_planned=outages.is_planned[head],
        is_assumed=is_assumed,
        first_stretch=outages.first_stretch[head],
    )
    return stretches._replace(outage=number[stretches.outage]), merged


def _explain(marks: _Marks, mark: Whole, service: Whole, begins: Fact) -> tuple[Fact, Whole]:
    """Whether each stretch is planned, and why it is: one that is a step, or gives no reason, goes on with the one
    before it.

    Validation after planned work is part of that work, also where it says "every hold has ended". Repair or quarantine
    without a reason is a fault all the same, also after planned work.
    """
    is_step = np.array(_GOES_ON)[service] & ~begins
    says_nothing = (marks.reason[mark] == 0) & ~begins
    own: Fact = marks.is_planned[mark]
    planned: Fact = own[_carried(~is_step)]
    is_alike = ~changes(planned)
    reason: Whole = marks.reason[mark][_carried(~(is_step | (says_nothing & is_alike)))]
    return planned, reason
