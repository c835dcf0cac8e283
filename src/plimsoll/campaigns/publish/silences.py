"""Which alerts are to be silent while a batch is out, and what has to be done to what is there already. Pure.

A silence is known by the tag at the end of its comment: campaign, batch and part. `decide` never asks for a second one
with the same tag, whatever it finds: what is equal is kept, what differs is replaced, what nobody plans any more is
ended, and of two that are alike one is ended. Silences of others, and of other campaigns, are not its business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from plimsoll.campaigns.publish.model import Published
from plimsoll.connect.alertmanager import Matcher, Silence
from plimsoll.errors import UsageError

CREATOR = "plimsoll"
LABEL = "node"
NODES_MAX, VALUE_CHARS_MAX = 250, 8_000
"""Of one silence: every alert is tried against every expression, and people read them."""
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TAG = re.compile(r"\[plimsoll (?P<campaign>\S+) (?P<batch>.+) (?P<part>[0-9]+)\]\s*$", re.DOTALL)
_SPECIAL = set("\\.+*?()|[]{}^$")


class Silencing(msgspec.Struct, frozen=True):
    """How alerts are told to be a node's: by the value of a label, which may have a port behind it.

    `more` are matchers that every silence has besides. Silences begin `before` a batch and end `after` it.
    """

    label: str = LABEL
    has_port: bool = False
    more: tuple[tuple[str, str], ...] = ()
    before: timedelta = timedelta(0)
    after: timedelta = timedelta(0)


class Tag(NamedTuple):
    """What a silence is for."""

    campaign: str
    batch: str
    part: int

    def __str__(self) -> str:
        return f"[plimsoll {self.campaign} {self.batch} {self.part}]"


class Wanted(msgspec.Struct, frozen=True):
    """A silence that should be there."""

    tag: Tag
    matchers: tuple[Matcher, ...]
    starts_at: datetime
    ends_at: datetime
    comment: str


class Steps(msgspec.Struct, frozen=True):
    """What has to be done. `replace` says which silence becomes which."""

    keep: tuple[Silence, ...]
    create: tuple[Wanted, ...]
    replace: tuple[tuple[Silence, Wanted], ...]
    expire: tuple[Silence, ...]

    @property
    def is_nothing(self) -> bool:
        return not (self.create or self.replace or self.expire)


def make_silencing(
    label: str = LABEL,
    *,
    more: Iterable[tuple[str, str]] = (),
    before: timedelta = timedelta(0),
    after: timedelta = timedelta(0),
) -> Silencing:
    """Settings that a person gave. Values of `instance` have a port."""
    listed = tuple(more)
    for name in (label, *(name for name, _ in listed)):
        if not _LABEL.fullmatch(name):
            raise UsageError(
                "bad_label",
                f"{name[:80]!r} is not the name of a label",
                next_step="name a label of your alerts, such as node or instance",
            )
    return Silencing(label, label == "instance", listed, before, after)


def wanted(published: Published, silencing: Silencing) -> list[Wanted]:
    """The silences of a plan, in the order of time; batches that are over need none."""
    found = []
    for batch in published.batches:
        names = published.nodes_of(batch)
        if batch.id in published.done or not names:
            continue
        parts = split(sorted(names))
        for part, listed in enumerate(parts, start=1):
            tag = Tag(published.name, batch.id, part)
            share = f", part {part} of {len(parts)}" if len(parts) > 1 else ""
            words = f"Planned work: {published.name}, plan {published.number}, batch {batch.id}{share}"
            found.append(
                Wanted(
                    tag,
                    (_nodes(listed, silencing), *(Matcher(name, value) for name, value in silencing.more)),
                    (batch.start - silencing.before).astimezone(UTC),
                    (batch.end + silencing.after).astimezone(UTC),
                    f"{words} {tag}",
                )
            )
    return found


def split(names: Sequence[str]) -> list[list[str]]:
    """Names in parts that fit into one expression."""
    parts: list[list[str]] = []
    chars = 0
    for name in names:
        size = len(_literal(name)) + 1
        if not parts or len(parts[-1]) >= NODES_MAX or chars + size > VALUE_CHARS_MAX:
            parts.append([])
            chars = 0
        parts[-1].append(name)
        chars += size
    return parts


def _literal(name: str) -> str:
    """A name in an expression of RE2, where it stands for itself."""
    return "".join(f"\\{sign}" if sign in _SPECIAL else sign for sign in name)


def _nodes(names: Sequence[str], silencing: Silencing) -> Matcher:
    """Expressions match the whole value: Alertmanager puts them between ^(?: and )$."""
    if len(names) == 1 and not silencing.has_port:
        return Matcher(silencing.label, names[0])
    any_of = "|".join(_literal(name) for name in names)
    value = f"(?:{any_of})(?::[0-9]+)?" if silencing.has_port else any_of
    return Matcher(silencing.label, value, is_regex=True)


def read_tag(silence: Silence) -> Tag | None:
    """What a silence of ours is for; None for those of others."""
    found = _TAG.search(silence.comment) if silence.created_by == CREATOR else None
    return Tag(found["campaign"], found["batch"], int(found["part"])) if found else None


def decide(asked: Sequence[Wanted], found: Iterable[Silence], *, campaign: str, now: datetime) -> Steps:
    """What brings what is there to what is asked for."""
    there: dict[Tag, list[Silence]] = {}
    for silence in found:
        tag = read_tag(silence)
        if tag is not None and tag.campaign == campaign and not silence.is_expired:
            there.setdefault(tag, []).append(silence)
    keep: list[Silence] = []
    create: list[Wanted] = []
    replace: list[tuple[Silence, Wanted]] = []
    expire: list[Silence] = []
    for each in asked:
        known = there.pop(each.tag, [])
        if each.ends_at <= now:
            expire += known  # what is over must not stay silent
            continue
        equal = next((silence for silence in known if _is_equal(silence, each, now)), None)
        chosen = equal or next(iter(known), None)
        if equal is not None:
            keep.append(equal)
        elif chosen is not None:
            replace.append((chosen, each))
        else:
            create.append(each)
        expire += [silence for silence in known if silence is not chosen]
    expire += [silence for listed in there.values() for silence in listed]
    return Steps(tuple(keep), tuple(create), tuple(replace), tuple(expire))


def _is_equal(silence: Silence, asked: Wanted, now: datetime) -> bool:
    """Alertmanager begins nothing in the past: of what should have begun already, when it really did is no matter."""
    has_begun = asked.starts_at <= now and silence.starts_at <= now
    return (
        set(silence.matchers) == set(asked.matchers)
        and silence.comment == asked.comment
        and _is_same_time(silence.ends_at, asked.ends_at)
        and (has_begun or _is_same_time(silence.starts_at, asked.starts_at))
    )


def _is_same_time(one: datetime, other: datetime) -> bool:
    return abs(one - other) < timedelta(seconds=1)


def start_of(silence: Silence | None, asked: Wanted, now: datetime) -> datetime:
    """When a silence is to begin. One that is active keeps its start: with another one it would be a new silence."""
    if silence is not None and silence.starts_at <= now and asked.starts_at <= now:
        return silence.starts_at
    return max(asked.starts_at, now)
