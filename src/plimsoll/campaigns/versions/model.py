"""Component versions on nodes: what stands where, what is wanted, what was tested together. Nouns, and pure helpers.

A *combination* is every component of a node with its version. Tens of thousands of nodes share a few dozen of them, so
everything here is counted by combination. Nothing here knows of plans: `combinations` does.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

import msgspec

from plimsoll.errors import UsageError
from plimsoll.fleet.selector import Scope

Combination = tuple[tuple[str, str], ...]
"""Component and version, in the order of the components' names. Empty: nothing is known of the node."""

COMPONENTS_MAX = 100
NAME_MAX = 200
_PIECE = re.compile(r"\d+|[^\W\d_]+")
_BEFORE_RELEASE = frozenset({"alpha", "a", "beta", "b", "dev", "pre", "preview", "rc", "snapshot"})


class Installed(NamedTuple):
    """A combination in a cluster: what is counted."""

    cluster: str
    combination: Combination


class Presence(msgspec.Struct, frozen=True):
    """How many nodes have a combination, and since when the first of them has it."""

    nodes: int
    since: datetime


class Wanted(msgspec.Struct, frozen=True):
    """The version that a component is to have where a scope matches."""

    component: str
    version: str
    scope: Scope
    since: datetime
    by: str = ""
    why: str = ""


class Result(enum.StrEnum):
    """How a test of versions together ended."""

    PASSED = "passed"
    FAILED = "failed"


class Trial(msgspec.Struct, frozen=True):
    """A test of versions together: of all that are named, and of nothing else."""

    combination: Combination
    result: Result
    at: datetime
    by: str = ""
    where: str = ""
    note: str = ""


class Verdict(enum.StrEnum):
    """What is known of a combination."""

    FAILED = "failed"
    UNTESTED = "untested"
    PASSED = "passed"
    UNKNOWN = "unknown"
    """Nobody has said what is on the nodes."""


def make_combination(versions: Mapping[str, str] | Iterable[tuple[str, str]]) -> Combination:
    """Components with their versions; one without a version is not there."""
    return tuple(sorted((component, version) for component, version in dict(versions).items() if version))


def with_versions(combination: Combination, versions: Mapping[str, str]) -> Combination:
    """The combination after these components got these versions; an empty one takes the component away."""
    return make_combination(dict(combination) | dict(versions))


def seen_through(combination: Combination, relevant: Collection[str] | None) -> Combination:
    """The part of a combination that matters; all of it where nobody has said what does."""
    if relevant is None:
        return combination
    return tuple(pair for pair in combination if pair[0] in relevant)


def combination_text(combination: Combination) -> str:
    return " ".join(f"{component}={version}" for component, version in combination) or "(not known)"


def read_pairs(words: Sequence[str]) -> Combination:
    """`COMPONENT=VERSION …` as typed."""
    found: dict[str, str] = {}
    for word in words:
        component, equals, version = (part.strip() for part in word.partition("="))
        if (
            not (component and equals and version and word.isprintable())
            or max(len(component), len(version)) > NAME_MAX
        ):
            raise UsageError(
                "bad_version",
                f"{word[:100]!r} is not COMPONENT=VERSION",
                next_step="write nic-firmware=28.43",
                value=word[:100],
            )
        if found.setdefault(component, version) != version:
            raise UsageError(
                "bad_version",
                f"{component} is named twice, with {found[component]} and {version}; a node has one version of it",
                next_step=f"leave one of them out: {component}={version}",
                value=word[:100],
            )
    if not 1 <= len(found) <= COMPONENTS_MAX:
        message = f"{len(found)} components are named; expected 1 to {COMPONENTS_MAX}"
        raise UsageError("bad_version", message, next_step="write nic-firmware=28.43 driver=560.35")
    return make_combination(found)


@lru_cache(maxsize=10_000)
def version_order(version: str) -> tuple[tuple[int, str, int], ...]:
    """What versions are sorted by: numbers as numbers, and `28.43-rc1` before `28.43` before `28.43.1`."""
    pieces = []
    for piece in _PIECE.findall(version):
        if piece.isdigit():
            pieces.append((3, "", int(piece)))
        else:
            word = piece.lower()
            pieces.append((0 if word in _BEFORE_RELEASE else 2, word, 0))
    return (*pieces, (1, "", 0))


def in_order(versions: Iterable[str]) -> list[str]:
    """Versions, the oldest first. Those that differ in writing only keep the order of their texts."""
    return sorted(set(versions), key=lambda version: (version_order(version), version))


def judge(
    combination: Combination, results: Iterable[Trial], relevant: Collection[str] | None = None
) -> tuple[Verdict, Trial | None]:
    """Whether a combination, seen through the relevant components, was tested together; and the test that says so.

    A test that passed answers for exactly what it names, a test that failed for everything that contains what it names.
    The newest answer counts.
    """
    if not combination:
        return Verdict.UNKNOWN, None
    found: Trial | None = None
    here = set(combination)
    for tested in results:
        named = seen_through(tested.combination, relevant)
        answers = named == combination if tested.result is Result.PASSED else bool(named) and here.issuperset(named)
        if answers and (found is None or tested.at >= found.at):
            found = tested
    if found is None:
        return Verdict.UNTESTED, None
    return Verdict(found.result.value), found
