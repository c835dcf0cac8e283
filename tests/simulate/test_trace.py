"""What a trace may look like, and what is said of one that can't be read."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from plimsoll.errors import Refused
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.health.model import from_microseconds
from plimsoll.quota.model import Kind, Tier
from plimsoll.simulate.model import SECOND_US, Trace
from plimsoll.simulate.trace import read_trace


def read(text: str) -> Trace:
    return read_trace(MemorySheet("trace.csv", [line.split(",") for line in text.strip().splitlines()]))


def test_phillys_columns_are_understood_as_they_are() -> None:
    trace = read(
        """
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,16,2951.0,6214e9
"""
    )
    first, second = trace.jobs
    assert from_microseconds(first.at) == datetime(2017, 10, 9, 6, 13, 3, tzinfo=UTC)
    assert (first.gpus, first.run_us, first.group) == (16, 2951 * SECOND_US, "6214e9")
    assert (second.gpus, second.run_us, second.tier, second.kind) == (1, 66 * SECOND_US, None, Kind.GANG)
    assert trace.notes == ["rows were not in the order of time: sorted"]


def test_the_same_under_other_names_and_with_more_to_say() -> None:
    trace = read(
        """
submit_time,gpus,duration,team,tier,rank,kind,min_gpus,island,hours
0,64,3600,cod,critical,2,gang,,yes,2
10,32,1800,eel,,,elastic,8,,
20,32,1800,eel,low,,,,no,
"""
    )
    gang, elastic, spread = trace.jobs
    assert (gang.tier, gang.rank, gang.kind, gang.hours) == (Tier.CRITICAL, 2, Kind.GANG, 2.0)
    assert (elastic.kind, elastic.gpus_min, elastic.tier, elastic.rank) == (Kind.ELASTIC, 8, None, 1)
    assert (spread.is_spread, gang.is_spread) == (True, False)
    assert [job.at - gang.at for job in trace.jobs] == [0, 10 * SECOND_US, 20 * SECOND_US]
    assert from_microseconds(gang.at).year == 2026, "seconds that count from the beginning of the trace get a year"


def test_seconds_are_never_taken_for_a_date() -> None:
    first, second = read("time,duration,gpus\n10101010,1,1\n20170101,1,1").jobs
    assert second.at - first.at == (20170101 - 10101010) * SECOND_US


class Bad(msgspec.Struct, frozen=True):
    """A row after the header time,duration,gpus,tier,kind,min_gpus,island."""

    row: str
    want: str


BAD = {
    "no time": Bad("soon,10,1,,,,", "trace.csv row 3 column time: 'soon', expected a time such as"),
    "a negative duration": Bad("0,-1,1,,,,", "row 3 column duration: '-1', expected seconds of running time"),
    "an endless duration": Bad("0,inf,1,,,,", "row 3 column duration: 'inf'"),
    "not a number at all": Bad("0,nan,1,,,,", "row 3 column duration: 'nan'"),
    "half a GPU": Bad("0,10,0.5,,,,", "row 3 column gpus: '0.5', expected a whole number of GPUs"),
    "an unknown tier": Bad("0,10,1,urgent,,,", "column tier: 'urgent', expected one of critical, high, mid, low"),
    "an unknown kind": Bad("0,10,1,,pair,,", "column kind: 'pair', expected one of gang, elastic"),
    "a least above the most": Bad("0,10,8,,elastic,16,", "column min_gpus: '16', expected at most the 8 GPUs"),
    "neither yes nor no": Bad("0,10,8,,,,maybe", "column island: 'maybe', expected yes"),
    "a row that ends early": Bad("0,10", "row 3: a value in column gpus: the row has 2 of 7 cells"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_a_bad_row_is_named(case: Bad) -> None:
    with pytest.raises(Refused) as error:
        read(f"time,duration,gpus,tier,kind,min_gpus,island\n0,10,1,,,,\n{case.row}")
    assert error.value.code == "bad_trace"
    assert error.value.message.startswith("trace.csv has 1 problem; nothing was replayed\n")
    assert case.want in error.value.message


def test_all_bad_rows_are_counted() -> None:
    rows = "\n".join("soon,10,1" for _ in range(70))
    with pytest.raises(Refused, match="70 problems"):
        read(f"time,duration,gpus\n{rows}")


def test_rows_that_run_nothing_are_left_out_and_told() -> None:
    trace = read("time,duration,gpus\n0,10,0\n1,0,8\n2,10,8")
    assert len(trace.jobs) == 1
    assert trace.notes == ["2 rows without GPUs or without duration: left out"]


@pytest.mark.parametrize("rows", ["", "\n0,10,0"], ids=["no rows", "no job that runs"])
def test_a_trace_without_jobs_is_refused(rows: str) -> None:
    with pytest.raises(Refused) as error:
        read(f"time,duration,gpus{rows}")
    assert error.value.code == "empty_trace"
    assert "there is nothing to replay" in error.value.message


def test_a_missing_column_is_named_with_what_was_probably_meant() -> None:
    with pytest.raises(Refused) as error:
        read("time,durations,gpus\n0,10,1")
    assert error.value.code == "missing_column"
    assert "did you mean durations?" in error.value.message
