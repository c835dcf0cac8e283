"""Slurm's short form of many names, both ways: `n[001-004,7],login` is six nodes. Pure.

Decides nothing about nodes. Must never guess: a text that is no such list is a ValueError, and so is one that stands
for more names than a bound, because `n[1-999999999]` is short.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

NAMES_MAX = 100_000
DIGITS_MAX = 9
"""Longer numbers are left as they are: Slurm reads them into a machine word."""
WORD_BYTES_MAX = 4_000

_NUMBERED = re.compile(rf"(.*?)(\d{{1,{DIGITS_MAX}}})")
_PART = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def shorten(names: Iterable[str]) -> list[str]:
    """Words that, joined by commas, stand for these names: names that differ in their last number share one.

    Numbers of different width never share a word: Slurm keeps `n01` and `n1` apart by that.
    """
    numbers: dict[tuple[str, int], set[int]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        found = _NUMBERED.fullmatch(name)
        if found is None or not found[1]:  # a name that is only a number would be a range without a name
            plain.append(name)
        else:
            numbers.setdefault((found[1], len(found[2])), set()).add(int(found[2]))
    words = list(plain)
    for (prefix, width), found_numbers in sorted(numbers.items()):
        words += _words(prefix, width, sorted(found_numbers))
    return words


def _words(prefix: str, width: int, numbers: list[int]) -> Iterator[str]:
    """`n[001-004,007]`, cut into several where it grows long, so that a list can be split between them."""
    ranges: list[str] = []
    size = 0
    for _, group in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        first, last = f"{run[0]:0{width}}", f"{run[-1]:0{width}}"
        ranges.append(first if first == last else f"{first}-{last}")
        size += len(ranges[-1]) + 1
        if size >= WORD_BYTES_MAX:
            yield _word(prefix, ranges)
            ranges, size = [], 0
    if ranges:
        yield _word(prefix, ranges)


def _word(prefix: str, ranges: list[str]) -> str:
    return f"{prefix}{ranges[0]}" if len(ranges) == 1 and "-" not in ranges[0] else f"{prefix}[{','.join(ranges)}]"


def expand(text: str) -> list[str]:
    """The names that a list stands for, in its order. Raises ValueError."""
    if text in ("", "(null)", "None"):
        return []
    names: list[str] = []
    for word in _split(text):
        names += _expand_word(word, NAMES_MAX - len(names))
    return names


def _split(text: str) -> Iterator[str]:
    """Cut at the commas that are not in brackets."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise ValueError(f"its brackets do not fit: {text[:80]}")
        if sign == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if depth:
        raise ValueError(f"its brackets do not fit: {text[:80]}")
    yield text[start:]


def _expand_word(word: str, count_max: int) -> list[str]:
    names = [""]
    place = 0
    while place < len(word):
        found = _PART.match(word, place)
        if found is None or found.end() == place:
            raise ValueError(f"it is no list of names: {word[:80]}")
        endings = [""] if found[2] is None else list(_numbers(found[2], count_max))
        if len(names) * len(endings) > count_max:
            raise ValueError(f"it stands for more than {NAMES_MAX:,} names: {word[:80]}")
        names = [f"{name}{found[1]}{ending}" for name in names for ending in endings]
        place = found.end()
    if names == [""] or not count_max:
        raise ValueError(f"it is no list of names: {word[:80]}")
    return names


def _numbers(ranges: str, count_max: int) -> Iterator[str]:
    count = 0
    for each in ranges.split(","):
        found = _RANGE.fullmatch(each)
        if found is None:
            raise ValueError(f"it is no range of numbers: {each[:80]}")
        first, last = int(found[1]), int(found[2] or found[1])
        count += last - first + 1
        if last < first or count > count_max:
            raise ValueError(f"it stands for no names, or for more than {NAMES_MAX:,}: {ranges[:80]}")
        yield from (f"{number:0{len(found[1])}}" for number in range(first, last + 1))
