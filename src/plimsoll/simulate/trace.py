"""Reads a trace: one job a row. Pure; the file is opened by whoever calls.

Philly's columns are understood as they are, and the same things under other names. A bad cell is named with file, row,
column and what was expected. Rows may come in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from plimsoll.errors import Refused
from plimsoll.fleet.sheet import Problem, Problems, RawSheet
from plimsoll.health.model import to_microseconds
from plimsoll.quota.model import Kind, Tier
from plimsoll.simulate.model import SECOND_US, Job, Trace
from plimsoll.times import parse_time
from plimsoll.words import near

COLUMNS = {
    "time": ("timestamp", "time", "submit_time", "submitted"),
    "duration": ("duration", "duration_seconds", "seconds"),
    "gpus": ("num_gpus", "gpus", "gpu_num"),
    "group": ("team", "vc", "group", "cluster", "user"),
    "tier": ("tier", "priority"),
    "rank": ("rank",),
    "kind": ("kind",),
    "min_gpus": ("min_gpus",),
    "island": ("island",),
    "hours": ("hours",),
}
"""What a replay needs to know of a job, and the columns it may stand in, the first that is there."""
NEEDED = ("time", "duration", "gpus")

SECONDS_MAX = 10 * 366 * 86_400
GPUS_MAX = 1_000_000
RANK_MAX = 1_000_000
GROUP_LENGTH_MAX = 200
RELATIVE_BELOW = 10**8
"""A time that is a number is seconds since 1970; a small one counts from the beginning of the trace."""
RELATIVE_BASE = to_microseconds(datetime(2026, 1, 1, tzinfo=UTC))
ANSWERS = {"yes": True, "true": True, "1": True, "": True, "no": False, "false": False, "0": False}


def read_trace(raw: RawSheet, *, tell: Callable[[int], None] = lambda _rows: None) -> Trace:
    """The jobs of a trace by their submit; refuses the file with all that is wrong in it."""
    places = _places(raw)
    problems = Problems()
    jobs: list[Job] = []
    skipped = count = 0
    order = 0
    is_sorted = True
    for row, cells in raw.rows(problems):
        count += 1
        if count % 10_000 == 0:
            tell(count)
        job = _job(raw, row, cells, places, problems)
        if job is None:
            continue
        if not job.gpus or not job.run_us:
            skipped += 1
            continue
        is_sorted = is_sorted and job.at >= order
        order = job.at
        jobs.append(job)
    if problems.count:
        raise _bad_trace(raw.source, problems)
    if not jobs:
        raise Refused(
            "empty_trace",
            f"{raw.source} has {count:,} rows and no job that runs: there is nothing to replay",
            next_step="give a trace with rows of time,duration,gpus; plimsoll simulate generate OUT.csv makes one",
            rows=count,
        )
    notes = []
    if not is_sorted:
        jobs.sort(key=lambda job: job.at)
        notes.append("rows were not in the order of time: sorted")
    if skipped:
        notes.append(f"{skipped:,} rows without GPUs or without duration: left out")
    return Trace(raw.source, jobs, notes)


def _places(raw: RawSheet) -> dict[str, int]:
    header = [name.strip().lower() for name in raw.header]
    found: dict[str, int] = {}
    for what, names in COLUMNS.items():
        place = next((header.index(name) for name in names if name in header), None)
        if place is not None:
            found[what] = place
        elif what in NEEDED:
            meant = next((hint for name in names if (hint := near(name, header))), "")
            raise Refused(
                "missing_column",
                f"{raw.source} row 1: no column {' or '.join(names)} among {', '.join(header)[:300]}{meant}",
                next_step="name the columns time,duration,gpus (duration in seconds)",
                column=names[0],
            )
    return found


def _job(raw: RawSheet, row: int, cells: Sequence[str], places: Mapping[str, int], problems: Problems) -> Job | None:
    values: dict[str, Any] = {}
    for what, place in places.items():
        if place >= len(cells):
            expected = f"a value in column {raw.header[place]}: the row has {len(cells)} of {len(raw.header)} cells"
            problems.add(Problem(raw.source, row, "", "", expected))
            return None
        text = cells[place].strip()
        try:
            values[what] = _PARSERS[what](text)
        except ValueError as error:
            problems.add(Problem(raw.source, row, raw.header[place], text[:100], str(error)))
            return None
    kind = values.get("kind", Kind.GANG)
    least = values.get("min_gpus", 0)
    if least > values["gpus"]:
        expected = f"at most the {values['gpus']} GPUs of the job"
        problems.add(Problem(raw.source, row, raw.header[places["min_gpus"]], str(least), expected))
        return None
    return Job(
        values["time"],
        values["duration"],
        values["gpus"],
        values.get("group", ""),
        values.get("tier"),
        values.get("rank", 1),
        kind,
        least if kind is Kind.ELASTIC else 0,
        not values.get("island", True) and kind is Kind.GANG,
        values.get("hours", 0.0),
    )


def _number(text: str, *, expected: str, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if not (math.isfinite(number) and 0 <= number <= most):
        raise ValueError(expected)
    return number


def _time(text: str) -> int:
    """Digits alone are seconds, whatever date they could be read as."""
    expected = "a time such as 2026-01-05 11:00:00, or seconds"
    if not text[:5].replace(".", "").isdigit():
        try:
            return to_microseconds(parse_time(text))
        except ValueError:
            raise ValueError(expected) from None
    number = round(_number(text, expected=expected, most=10**11) * SECOND_US)
    return number + RELATIVE_BASE if number < RELATIVE_BELOW * SECOND_US else number


def _duration(text: str) -> int:
    expected = f"seconds of running time, 0 to {SECONDS_MAX:,}"
    return round(_number(text, expected=expected, most=SECONDS_MAX) * SECOND_US)


def _gpus(text: str) -> int:
    expected = f"a whole number of GPUs, 0 to {GPUS_MAX:,}"
    number = _number(text, expected=expected, most=GPUS_MAX)
    if number != int(number):
        raise ValueError(expected)
    return int(number)


def _group(text: str) -> str:
    if len(text) > GROUP_LENGTH_MAX:
        raise ValueError(f"a name of at most {GROUP_LENGTH_MAX} letters")
    return text


def _tier(text: str) -> Tier | None:
    try:
        return Tier(text.lower()) if text else None
    except ValueError:
        raise ValueError(f"one of {', '.join(Tier)}, or nothing") from None


def _rank(text: str) -> int:
    expected = f"a whole number from 1 (first) to {RANK_MAX:,}, or nothing"
    number = _number(text or "1", expected=expected, most=RANK_MAX)
    if number < 1 or number != int(number):
        raise ValueError(expected)
    return int(number)


def _kind(text: str) -> Kind:
    try:
        return Kind(text.lower()) if text else Kind.GANG
    except ValueError:
        raise ValueError(f"one of {', '.join(Kind)}, or nothing") from None


def _min_gpus(text: str) -> int:
    return _gpus(text or "0")


def _island(text: str) -> bool:
    if text.lower() not in ANSWERS:
        raise ValueError("yes (in one island) or no")
    return ANSWERS[text.lower()]


def _hours(text: str) -> float:
    return _number(text or "0", expected="the expected hours of running, or nothing", most=SECONDS_MAX / 3600)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "time": _time,
    "duration": _duration,
    "gpus": _gpus,
    "group": _group,
    "tier": _tier,
    "rank": _rank,
    "kind": _kind,
    "min_gpus": _min_gpus,
    "island": _island,
    "hours": _hours,
}


def _bad_trace(source: str, problems: Problems) -> Refused:
    lines = [f"  {problem}" for problem in problems.listed]
    if problems.count > len(lines):
        lines.append(f"  … and {problems.count - len(lines):,} more")
    noun = "problem" if problems.count == 1 else "problems"
    return Refused(
        "bad_trace",
        f"{source} has {problems.count:,} {noun}; nothing was replayed\n" + "\n".join(lines),
        next_step="correct the rows and replay again",
        problem_count=problems.count,
        problems=[msgspec.structs.asdict(problem) for problem in problems.listed],
    )
