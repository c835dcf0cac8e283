"""Keep nodes of a Slurm cluster for planned work: a MAINT reservation over exactly these nodes, made, moved, deleted.

Decides only whether Slurm did what was asked, by reading back. Must never touch a reservation of another name, and
never make a second one for the same work: it looks before it makes, so that asking again changes nothing.

What Slurm 22.05 does, measured: one unknown node refuses the whole list, and `Nodes+=` is refused for reservations; so
a list that no command line can hold becomes several reservations. Somebody has to be named who may use it. A start more
than ten minutes ago is refused at the making, any start is refused once it has begun, and an end must lie ahead. It is
gone by itself when its end has passed. With MAINT and IGNORE_JOBS it may lie over work that runs and over other
reservations; a job that runs in it (--reservation) keeps it from being deleted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from plimsoll.connect.slurm import HOSTLIST_BYTES_MAX, NAMES_SHOWN_MAX, _checked_names
from plimsoll.connect.slurm_hostlist import expand, shorten
from plimsoll.connect.slurm_jobs import SlurmJobs
from plimsoll.errors import Refused, Unavailable, UsageError

FLAGS = "MAINT,IGNORE_JOBS"
RESERVATIONS_MAX = 50_000
OVERRUN = timedelta(hours=2)
"""How much longer a reservation lasts whose end has passed while the work goes on."""
END_AHEAD_MIN = timedelta(minutes=5)
"""An end nearer than this could pass between our looking and Slurm's."""
NAME_CHARS_MAX = 40

_KEYS = ("ReservationName", "StartTime", "EndTime", "Nodes", "Flags", "Users", "State")
_FIELD = re.compile(rf"(?:^| )({'|'.join(_KEYS)})=(\S*)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_UNWANTED = re.compile(r"[^A-Za-z0-9-]+")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")
_NONE = "No reservations in the system"


class Reservation(msgspec.Struct, frozen=True):
    """A reservation as Slurm has it. Slurm counts in whole seconds."""

    name: str
    starts: datetime
    ends: datetime
    nodes: frozenset[str]
    flags: frozenset[str]

    @property
    def is_for_work(self) -> bool:
        """Whether it keeps its nodes from all jobs as maintenance."""
        return "MAINT" in self.flags


class Span(msgspec.Struct, frozen=True):
    """From when until when nodes are to be kept, as far as Slurm can still be told: see `span_from`."""

    starts: datetime
    ends: datetime


def reservation_name(*parts: str) -> str:
    """A name for planned work that Slurm takes, that people can read, and that no other work gets.

    The parts are shortened to signs that need no quoting; what tells them apart then is a hash of them as they were.
    """
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:10]
    words = [_UNWANTED.sub("-", part).strip("-")[:NAME_CHARS_MAX] or "x" for part in parts]
    return "_".join(["plimsoll", *words, digest])


class SlurmReservations(SlurmJobs):
    """The reservations of a cluster, as `scontrol` with this configuration sees them."""

    def reservations(self) -> list[Reservation]:
        """All reservations, in one call."""
        ran = self._run("--all", "--oneliner", "show", "reservation")
        if ran.code != 0:
            raise self._failed(ran)
        try:
            return parse_reservations(ran.out.decode(errors="replace"))
        except ValueError as error:
            raise Unavailable(
                "slurm_bad_answer",
                f"what {self.where} printed can't be used: {error}",
                next_step="run scontrol --oneliner show reservation by hand, and look at the first lines",
                bytes=len(ran.out),
            ) from error

    def reserved(self, name: str) -> list[Reservation]:
        """The reservations that one name stands for: none, one, or several where the nodes needed them."""
        return [each for each in self.reservations() if _is_part(each.name, name)]

    def reserve(
        self, name: str, nodes: Sequence[str], *, starts: datetime, ends: datetime, now: datetime, user: str = "root"
    ) -> list[Reservation]:
        """Keep exactly these nodes from all jobs from `starts` to `ends`, and return what is there then.

        What is there under this name is changed where it differs, and left alone where it does not. An end that has
        passed is put off, so that work which is late stays covered; a start that has passed is now. `user` may use it.
        Raises Refused `slurm_not_done` with Slurm's words.
        """
        _check(name, user)
        wanted = _checked_names(nodes)
        if not wanted or ends <= starts:
            raise UsageError(
                "slurm_bad_reservation",
                f"{name} would keep {len(wanted):,} nodes from {starts:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M}",
                next_step="name at least one node, and an end after the start",
            )
        parts = _parts(name, wanted)
        there = {each.name: each for each in self.reserved(name)}
        complaints = []
        for part, words in parts.items():
            span = span_from(there.get(part), starts=starts, ends=ends, now=now)
            complaints.append(self._put(part, words, span, there.get(part), now=now, user=user))
        complaints += [self._drop(part) for part in there if part not in parts]
        return self._as_asked(name, wanted, ends=ends, now=now, said="; ".join(filter(None, complaints)))

    def release(self, name: str) -> bool:
        """Delete what this name stands for; whether there was anything. Raises Refused `slurm_not_done`."""
        _check(name)
        there = [each.name for each in self.reserved(name)]
        said = "; ".join(filter(None, [self._drop(part) for part in there]))
        left = [each.name for each in self.reserved(name)] if there else []
        if left:
            raise Refused(
                "slurm_not_done",
                f"{len(left)} of {len(there)} reservations were not deleted: {', '.join(left[:NAMES_SHOWN_MAX])}"
                f"{f' (Slurm said: {said})' if said else ''}",
                next_step=f"look which jobs run in it: squeue --reservation={left[0]}",
                left=left,
                said=said,
            )
        return bool(there)

    def bring_back(self, names: Sequence[str], *, drained_for: str) -> list[str]:
        """End the drain of nodes that went DOWN while they were drained for this reason and that respond again.

        Slurm brings back by itself only what is DOWN for no other reason than that it did not respond, and `resume`
        leaves a node DOWN. Returns those that were asked for; what is DOWN for another reason is not touched.
        """
        wanted = set(_checked_names(names))
        found = [
            node.name
            for node in self.nodes()
            if node.name in wanted and node.reason == drained_for
            if "DOWN" in node.states and node.is_drained and "NOT_RESPONDING" not in node.states
        ]
        self._update(found, "State=RESUME")
        return found

    def _put(self, name: str, nodes: str, span: Span, known: Reservation | None, *, now: datetime, user: str) -> str:
        """Make or change one reservation; what Slurm complained of."""
        starts, ends = f"StartTime={_moment(span.starts)}", f"EndTime={_moment(span.ends)}"
        if known is None or not known.is_for_work:
            said = self._drop(name) if known is not None else ""
            starts = starts if span.starts > now else "StartTime=now"
            words = ["create", "reservation", f"ReservationName={name}", starts, ends, f"Nodes={nodes}"]
            return said or self._change(*words, f"Flags={FLAGS}", f"Users={user}")
        changes = [] if known.nodes == set(expand(nodes)) else [f"Nodes={nodes}"]
        changes += [] if known.starts == span.starts else [starts]
        changes += [] if known.ends == span.ends else [ends]
        return self._change("update", f"ReservationName={name}", *changes) if changes else ""

    def _drop(self, name: str) -> str:
        return self._change("delete", f"ReservationName={name}")

    def _change(self, *words: str) -> str:
        ran = self._run(*words)
        return "" if ran.code == 0 else ran.last_words or f"exit code {ran.code}"

    def _as_asked(
        self, name: str, nodes: Sequence[str], *, ends: datetime, now: datetime, said: str
    ) -> list[Reservation]:
        after = self.reserved(name)
        kept = frozenset().union(*(each.nodes for each in after if each.is_for_work))
        is_off = any(each.ends != _seconds(ends) for each in after) and ends > now + END_AHEAD_MIN
        if kept == set(nodes) and not is_off:
            return after
        missing, more = sorted(set(nodes) - kept), sorted(kept - set(nodes))
        what = [f"{len(missing):,} of {len(nodes):,} nodes are not in it: {_shown(missing)}"] if missing else []
        what += [f"{len(more):,} nodes are in it and should not be: {_shown(more)}"] if more else []
        what += ["it ends at another time"] if is_off else []
        raise Refused(
            "slurm_not_done",
            f"reservation {name} is not as asked: {'; '.join(what)}{f' (Slurm said: {said})' if said else ''}",
            next_step="look at it with scontrol show reservation; reserving needs the rights of Slurm's operator",
            missing=missing,
            more=more,
            said=said,
        )


def span_from(known: Reservation | None, *, starts: datetime, ends: datetime, now: datetime) -> Span:
    """From when until when to ask for, so that Slurm takes it and asking again changes nothing."""
    starts, ends = _seconds(starts), _seconds(ends)
    if known is not None and (known.starts <= now or starts <= now):
        # It has begun, or is to begin now: Slurm moves a start that lies ahead, and no other.
        starts = known.starts if known.starts <= now else _seconds(now)
    if ends <= now + END_AHEAD_MIN:
        is_covered = known is not None and known.ends > now + END_AHEAD_MIN
        ends = known.ends if known is not None and is_covered else _seconds(now + OVERRUN)
    return Span(starts, ends)


def parse_reservations(text: str) -> list[Reservation]:
    """The reservations of an output, a line each. Raises ValueError with the number of a line that is not one's."""
    if text.strip() == _NONE:
        return []
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > RESERVATIONS_MAX:
        raise ValueError(f"it has {len(lines):,} reservations, at most {RESERVATIONS_MAX:,} are taken")
    return [_parse_line(number, line) for number, line in lines]


def _parse_line(number: int, line: str) -> Reservation:
    fields: Mapping[str, str] = dict(reversed(_FIELD.findall(line)))  # the first of a key is the true one
    try:
        if not line.startswith("ReservationName="):
            raise ValueError("it has no name")
        return Reservation(
            name=fields["ReservationName"],
            starts=datetime.fromisoformat(fields["StartTime"]).replace(tzinfo=UTC),
            ends=datetime.fromisoformat(fields["EndTime"]).replace(tzinfo=UTC),
            nodes=frozenset(expand(fields["Nodes"])),
            flags=frozenset(fields.get("Flags", "").split(",")),
        )
    except (ValueError, KeyError) as error:
        shown = "".join(sign if sign.isprintable() else "?" for sign in line[:60])
        raise ValueError(f"line {number} is not a reservation's ({error}): {shown}") from None


def _parts(name: str, nodes: Iterable[str]) -> dict[str, str]:
    """The lists of nodes that fit on a command line, each with the name of its reservation."""
    parts: dict[str, str] = {}
    batch: list[str] = []
    size = 0
    for word in shorten(nodes):
        if batch and size + len(word) + 1 > HOSTLIST_BYTES_MAX:
            parts[_part_name(name, len(parts))] = ",".join(batch)
            batch, size = [], 0
        batch.append(word)
        size += len(word) + 1
    parts[_part_name(name, len(parts))] = ",".join(batch)
    return parts


def _part_name(name: str, number: int) -> str:
    return f"{name}.{number + 1}" if number else name


def _is_part(found: str, name: str) -> bool:
    return found == name or (found.startswith(f"{name}.") and found[len(name) + 1 :].isdecimal())


def _check(name: str, user: str = "root") -> None:
    if not _NAME.fullmatch(name) or not _USER.fullmatch(user):
        raise UsageError(
            "slurm_bad_name",
            f"{name[:80]!r} is not the name of a reservation, or {user[:40]!r} not that of a user",
            next_step="letters, digits, dots, dashes and underscores",
            name=name[:80],
        )


def _moment(moment: datetime) -> str:
    """As scontrol reads it; its clock is set to UTC for us."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _seconds(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)


def _shown(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more:,} more" if more > 0 else "")
