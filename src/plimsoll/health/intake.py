"""What comes in: signals are sifted (unknown node, wrong clock), and gathered into what is to be remembered. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.judge import readings
from plimsoll.health.model import to_microseconds
from plimsoll.health.policy import Policy
from plimsoll.health.signals import RETENTION, Memory, Signal, SignalKey, SignalKind, compact, point
from plimsoll.times import CLOCK_SKEW_MAX, show_time

NAME_MAX = 200
LINES_MAX = 5_000_000
LINE_BYTES_MAX = 100_000
VALUE_MAX = 1e300

Gathered = dict[str, dict[SignalKey, Memory]]


class Rejection(msgspec.Struct, frozen=True):
    """A signal that can't be taken, with the number of it and of its like."""

    code: str
    node: str
    message: str
    count: int = 1


class Sifted(NamedTuple):
    """Signals that can be judged, and those that can't."""

    signals: list[Signal]
    rejections: list[Rejection]


def sift(signals: Iterable[Signal], fleet: Fleet, now: datetime) -> Sifted:
    """Tell signals that can be judged from those that can't, one rejection for each node and cause."""
    latest, oldest = now + CLOCK_SKEW_MAX, now - RETENTION
    good: list[Signal] = []
    bad: dict[tuple[str, str], tuple[str, int]] = {}
    for signal in signals:
        node = fleet.nodes.get(signal.node)
        if node is None:
            code, message = "unknown_node", f"there is no node {signal.node[:NAME_MAX]!r}"
        elif node.service is Service.RETIRED:
            code, message = "node_retired", f"{signal.node} is retired"
        elif signal.at > latest:
            ahead = f"{(signal.at - now).total_seconds():,.0f} s ahead of our clock ({show_time(now)})"
            code, message = "signal_from_future", f"{signal.node}: {show_time(signal.at)} is {ahead}"
        elif signal.at < oldest:
            age = f"{(now - signal.at).days:,} days ago; signals are taken for {RETENTION.days} days"
            code = "signal_too_old"
            message = f"{signal.node}: {show_time(signal.at)} is {age}, history.csv is for what was before"
        else:
            good.append(signal)
            continue
        known, count = bad.get((code, signal.node), (message, 0))
        bad[code, signal.node] = known, count + 1
    rejections = [Rejection(code, node, message, count) for (code, node), (message, count) in bad.items()]
    return Sifted(good, rejections)


def near_nodes(name: str, fleet: Fleet) -> list[str]:
    """Nodes that were probably meant."""
    return difflib.get_close_matches(name, fleet.nodes, n=1)


def gather(signals: Iterable[Signal], policy: Policy, *, source: str) -> tuple[Gathered, int]:
    """What is to be remembered of these signals, and how many the policy has no use for."""
    points: dict[tuple[str, SignalKey], set[int]] = {}
    latest: dict[tuple[str, SignalKey], Signal] = {}
    ignored = 0
    for signal in signals:
        found = readings(signal, policy)
        ignored += not found
        for key, _, is_ok in found:
            place = signal.node, key
            known = points.get(place)
            if known is None:
                known = points[place] = set()
            known.add(point(signal.at, is_ok=is_ok))
            if not is_ok and (place not in latest or _newness(latest[place]) < _newness(signal)):
                latest[place] = signal
    gathered: Gathered = {}
    for (node, key), found_points in points.items():
        last = latest.get((node, key))
        memory = Memory(compact(found_points)) if last is None else _remember(last, found_points, source)
        gathered.setdefault(node, {})[key] = memory
    return gathered, ignored


def _newness(signal: Signal) -> tuple[datetime, float, str]:
    """Which of two signals is told of: the later one, and the same one in whatever order they come."""
    return signal.at, signal.value or 0.0, signal.detail


def _remember(last: Signal, points: set[int], source: str) -> Memory:
    return Memory(compact(points), last.value, last.detail, source)


def is_good_only(memory: Memory) -> bool:
    return all(each & 1 for each in memory.points)


def forget_old(memory: Memory, now: datetime) -> Memory:
    """Without what is too old to say anything."""
    oldest = to_microseconds(now - RETENTION) << 1
    if not memory.points or memory.points[0] >= oldest:
        return memory
    return msgspec.structs.replace(memory, points=tuple(each for each in memory.points if each >= oldest))


# Signals as JSON lines, from a file, a pipe or a request.


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    node: str
    kind: SignalKind
    name: str | int = ""
    at: datetime | None = None
    value: float | None = None
    ok: bool = False
    detail: str = ""


_LINE = msgspec.json.Decoder(_Line)


def read_lines(lines: Iterable[bytes], *, source: str, now: datetime) -> list[Signal]:
    """Signals of a file with one JSON object a line. One bad line and none is taken."""
    signals: list[Signal] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if number > LINES_MAX or len(text) > LINE_BYTES_MAX:
            what = f"over {LINES_MAX:,} lines" if number > LINES_MAX else f"over {LINE_BYTES_MAX:,} bytes in a line"
            raise _bad_line(source, number, what)
        try:
            signals.append(_signal(_LINE.decode(text), now))
        except (msgspec.MsgspecError, ValueError) as error:
            raise _bad_line(source, number, _with_kinds(str(error))) from None
    return signals


def _with_kinds(message: str) -> str:
    """What is wrong with a line; where it is its kind, the kinds that there are."""
    is_kind = message.endswith(("at `$.kind`", "field `kind`"))
    return f"{message}; kinds are {', '.join(SignalKind)}" if is_kind else message


def _signal(line: _Line, now: datetime) -> Signal:
    at = now if line.at is None else line.at if line.at.tzinfo else line.at.replace(tzinfo=UTC)
    return make_signal(line.node, line.kind, str(line.name), at, value=line.value, is_ok=line.ok, detail=line.detail)


def make_signal(
    node: str,
    kind: SignalKind,
    name: str,
    at: datetime,
    *,
    value: float | None = None,
    is_ok: bool = False,
    detail: str = "",
) -> Signal:
    """A signal whose words are fit for the log. Raises ValueError with what is wrong."""
    for what, text in (("node", node), ("name", name), ("detail", detail)):
        if len(text) > NAME_MAX and what != "detail":
            raise ValueError(f"{what} has {len(text)} characters, at most {NAME_MAX} are taken")
        if not text.isprintable():
            raise ValueError(f"{what} is not one line of printable text")
    if kind is SignalKind.XID and not (name.isascii() and name.isdigit() and int(name[:9]) > 0 and len(name) < 9):
        raise ValueError(f"an xid's name is its code, a whole number from 1; found {name!r}")
    name = str(int(name)) if kind is SignalKind.XID else name
    if value is not None and not -VALUE_MAX < value < VALUE_MAX:
        raise ValueError(f"the value {value:g} is not a number between {-VALUE_MAX:g} and {VALUE_MAX:g}")
    if not 1971 <= at.year < 9999:
        raise ValueError(f"{at.isoformat()} is no time at which there are nodes")
    return Signal(node, kind, at.astimezone(UTC), name, value, is_ok, detail[:NAME_MAX])


def _bad_line(source: str, number: int, message: str) -> UsageError:
    return UsageError(
        "bad_signal",
        f"{source}, line {number}: {message}; nothing was taken",
        next_step='write one JSON object a line, such as {"node": "tiger-0001", "kind": "xid", "name": "79"}',
        source=source,
        line=number,
    )


def merge_into(
    stored: Mapping[SignalKey, Memory], fresh: Mapping[SignalKey, Memory], *, is_sweep: bool, now: datetime
) -> dict[SignalKey, Memory]:
    """The memories of one node that change. A sweep speaks of all nodes each time: what stays good is not news."""
    changed = {}
    for key, memory in fresh.items():
        known = stored.get(key)
        if is_sweep and is_good_only(memory) and (known is None or known.is_good_at(memory.points[0])):
            continue
        merged = forget_old(memory if known is None else known.merged(memory), now)
        if known != merged:
            changed[key] = merged
    return changed


def with_later_sweep(
    fresh: Mapping[SignalKey, Memory], stored: Mapping[SignalKey, Memory], swept_at: datetime
) -> dict[SignalKey, Memory]:
    """Signals of a sweep that comes late: where a newer one said nothing bad, it said that all was good."""
    good = to_microseconds(swept_at)
    late = {}
    for key, memory in fresh.items():
        known = stored.get(key)
        if known is None or known.latest < good:
            memory = msgspec.structs.replace(memory, points=compact({*memory.points, good << 1 | 1}))
        late[key] = memory
    return late
