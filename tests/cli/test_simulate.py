"""`plimsoll simulate replay|generate`: what is printed, what is said to bad input, and that it can be stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import PLIMSOLL, plimsoll
from tests.support.fleets import nodes, row, write_fleet
from tests.support.inside import Said, called


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Two islands of eight nodes, and two teams that hold six nodes each."""
    return write_fleet(
        tmp_path / "fleet",
        nodes=[*nodes(8, prefix="a"), *nodes(8, prefix="b", island="tiger-b")],
        quotas=[row("quotas", team="cod", gpus="48"), row("quotas", team="eel", gpus="48")],
        workloads=[row("workloads", team="cod")],
    )


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    made = called(
        "simulate", "generate", path, "--jobs", 300, "--days", 2, "--seed", 3, "--gangs", "32,64", "--busy-gpus", 100
    )
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith(f"{path}: 300 jobs over 2 days\n")
    return path


def replayed(trace: Path, fleet: Path, *words: object) -> Any:
    said = called("simulate", "replay", trace, "--fleet", fleet, *words, "-o", "json")
    assert (said.code, said.err) == (0, "")
    return said.json()


def refused(*words: object) -> Said:
    said = called("simulate", *words, "-o", "json")
    assert said.out == ""
    return said


def test_json_has_every_number(trace: Path, fleet: Path) -> None:
    document = replayed(trace, fleet, "--failures", "50,6", "--seed", 2)
    assert list(document) == [
        "trace", "fleet", "settings", "assumed", "refused", "waits", "utilisation_share", "largest_block",
        "preemptions", "interruptions", "uptime_share", "goodput_share", "lost_gpu_hours", "gpu_hours_run",
        "broken_promises", "events", "unfinished_jobs", "never_started_jobs", "speed",
    ]  # fmt: skip
    assert document["trace"]["jobs"] == 300
    assert document["fleet"] == {
        "pools": 1, "islands": 2, "nodes": 16, "gpus": 128, "healthy": 128, "guaranteed": 96, "largest_island": 64,
        "teams": 2,
    }  # fmt: skip
    assert document["settings"]["failures_per_1000_node_days"] == 50.0
    assert document["settings"]["grace_minutes"] == 15.0
    assert document["events"]["submits"] == 300
    assert document["events"]["ends"] == 300
    assert document["events"]["node_failures"] > 0
    assert 0 < document["utilisation_share"] <= 1
    assert 0 < document["goodput_share"] <= document["uptime_share"] <= 1
    assert document["speed"]["job_events_per_second"] > 0


def test_people_see_the_numbers_first_and_then_the_table(trace: Path, fleet: Path) -> None:
    said = called("simulate", "replay", trace, "--fleet", fleet)
    assert said.out.startswith("300 jobs of trace.csv (2026-01-05 to 2026-01-0")
    for words in ("wait: mean", "utilisation", "largest block kept", "broken promises", "a second", "assumed: "):
        assert words in said.out
    assert "aligned by fixed:0.15: 96 GPUs are guaranteed" in said.out


def test_the_same_seed_gives_the_same_document_in_another_process(trace: Path, fleet: Path) -> None:
    documents = []
    for hash_seed in ("1", "2"):
        ran = plimsoll(
            "simulate", "replay", trace, "--fleet", fleet, "--failures", "50,6", "-o", "json", PYTHONHASHSEED=hash_seed
        )
        assert ran.code == 0, ran.err
        documents.append({name: value for name, value in ran.json().items() if name != "speed"})
    assert documents[0] == documents[1]


BAD_WORDS = {
    "one number": ("--failures", "6.5", "not two numbers"),
    "not numbers": ("--failures", "a,b", "not two numbers"),
    "no repair": ("--failures", "6.5,0", "a repair takes"),
    "negative minutes": ("--checkpoint-minutes", "-1", "--checkpoint-minutes -1 can't be"),
    "no such policy": ("--policy", "loose", "loose"),
}


@pytest.mark.parametrize(("option", "value", "want"), BAD_WORDS.values(), ids=BAD_WORDS.keys())
def test_wrong_words_are_usage_errors(trace: Path, fleet: Path, option: str, value: str, want: str) -> None:
    said = refused("replay", trace, "--fleet", fleet, option, value)
    assert said.code == 2
    assert want in said.error["message"]


def test_a_bad_trace_names_file_row_and_column(fleet: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("time,duration,gpus\n0,10,1\n0,ten,1\n", encoding="utf-8")
    said = refused("replay", path, "--fleet", fleet)
    assert said.code == 1
    assert "bad.csv row 3 column duration: 'ten', expected seconds of running time" in said.error["message"]


@pytest.mark.parametrize("text", ["", "time,duration,gpus\n"], ids=["an empty file", "a header alone"])
def test_an_empty_trace_ends_with_a_clear_error(fleet: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(text, encoding="utf-8")
    said = refused("replay", path, "--fleet", fleet)
    assert said.code == 1
    assert "empty" in said.error["code"]
    assert said.error["next_step"]


def test_a_missing_trace_and_a_missing_fleet_are_told(trace: Path, fleet: Path, tmp_path: Path) -> None:
    for words in ((tmp_path / "none.csv", "--fleet", fleet), (trace, "--fleet", tmp_path / "none")):
        said = refused("replay", *words)
        assert said.code == 1
        assert "none" in said.error["message"]


def test_a_trace_is_not_written_over(trace: Path) -> None:
    said = called("simulate", "generate", trace, "--jobs", 5)
    assert said.code == 1
    assert "is there already" in said.err
    assert called("simulate", "generate", trace, "--jobs", 5, "--replace").code == 0
    assert trace.read_text(encoding="utf-8").count("\n") == 6


BAD_TRACES = {
    "no jobs": ("--jobs", "0"),
    "no days": ("--days", "0"),
    "gangs without a number": ("--gangs", "big"),
    "a share above one": ("--gang-share", "2"),
}


@pytest.mark.parametrize(("option", "value"), BAD_TRACES.values(), ids=BAD_TRACES.keys())
def test_a_trace_that_can_not_be_is_a_usage_error(tmp_path: Path, option: str, value: str) -> None:
    said = called("simulate", "generate", tmp_path / "out.csv", option, value)
    assert said.code == 2
    assert not (tmp_path / "out.csv").exists()


def test_ctrl_c_ends_it_cleanly(fleet: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    assert called("simulate", "generate", path, "--jobs", 200_000, "--days", 100, "--busy-gpus", 60).code == 0
    process = subprocess.Popen(
        [PLIMSOLL, "simulate", "replay", path, "--fleet", fleet],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert "stopped by Ctrl-C" in err
    assert "Traceback" not in err
