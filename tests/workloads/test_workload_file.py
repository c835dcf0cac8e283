"""A workload file: every mistake is refused with its line, and what could never run with where it comes closest."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from plimsoll.documents import BadDocument
from plimsoll.errors import NotFound, PlimsollError, Refused
from plimsoll.quota.model import Kind, Tier
from plimsoll.workloads.file import check_workload, parse_workload
from plimsoll.workloads.model import PartSpec, RunsAs
from tests.support.yard import Yard, elastic, gang, spec

GOOD = """\
workload: posttrain-42
team: x
where: {sku: H200, area: us}
owner: a-person
checkpoint_minutes: 30
restart_minutes: 15
parts:
  - {name: train, kind: gang, gpus: 352, tier: critical, rank: 1, spare_nodes: 1}
  - {name: graders, kind: elastic, replicas: {min: 4, max: 20, gpus: 8}, tier: critical, rank: 2}
"""
TRAIN, GRADERS = GOOD.splitlines()[7:9]


def test_the_file_of_the_design_is_read() -> None:
    read = parse_workload(GOOD, source="w.yaml")
    assert (read.name, read.team, read.owner, read.runs_as) == ("posttrain-42", "x", "a-person", RunsAs.ANY)
    assert (read.checkpoint_minutes, read.restart_minutes, read.hours) == (30, 15, 0)
    assert read.parts == (
        PartSpec("train", Kind.GANG, Tier.CRITICAL, 1, 352, spare_nodes=1),
        PartSpec("graders", Kind.ELASTIC, Tier.CRITICAL, 2, 8, least=4, most=20),
    )
    assert read.gpus_least == 352 + 32


class Bad(NamedTuple):
    """What is replaced in the good file, by what, the line of the mistake, and words of the message."""

    old: str
    new: str
    want_line: int
    want: str


BAD = {
    "a rank twice": Bad("rank: 2", "rank: 1", 9, "rank 1 stands here twice; first on line 8"),
    "a name twice": Bad("name: graders", "name: train", 9, "name train stands here twice; first on line 8"),
    "zero replicas at most": Bad("max: 20", "max: 0", 9, "max"),
    "fewer than no replicas": Bad("min: 4", "min: -1", 9, "min"),
    "at least more than at most": Bad("min: 4, max: 20", "min: 21, max: 20", 9, "min is 21 and max is 20"),
    "a replica of no GPUs": Bad("max: 20, gpus: 8", "max: 20, gpus: 0", 9, "gpus"),
    "a gang of no GPUs": Bad("gpus: 352", "gpus: 0", 8, "gpus"),
    "a gang of half a GPU": Bad("gpus: 352", "gpus: 0.5", 8, "gpus"),
    "a gang with replicas": Bad("gpus: 352", "replicas: {min: 1, max: 2, gpus: 8}", 8, "a gang has no replicas"),
    "a gang that does not say its GPUs": Bad("gpus: 352, ", "", 8, "gpus"),
    "an elastic part with GPUs of its own": Bad("kind: elastic,", "kind: elastic, gpus: 8,", 9, "by replica"),
    "an elastic part with spares": Bad("kind: elastic,", "kind: elastic, spare_nodes: 1,", 9, "needs no spares"),
    "an elastic part without replicas": Bad("replicas: {min: 4, max: 20, gpus: 8}, ", "", 9, "replicas"),
    "a tier that is none": Bad("tier: critical, rank: 1", "tier: urgent, rank: 1", 8, "critical"),
    "a kind that is none": Bad("kind: gang", "kind: group", 8, "gang"),
    "a rank of 0": Bad("rank: 1", "rank: 0", 8, "rank"),
    "spares below none": Bad("spare_nodes: 1", "spare_nodes: -1", 8, "spare_nodes"),
    "no parts": Bad(f"parts:\n{TRAIN}\n{GRADERS}\n", "parts: []\n", 7, "0 parts"),
    "no team": Bad("team: x\n", "", 1, "team"),
    "nowhere in particular": Bad("{sku: H200, area: us}", "{area: us}", 3, "neither cluster nor sku"),
    "a name with a slash": Bad("posttrain-42", "post/train", 1, "letters, digits"),
    "a name that is too long": Bad("posttrain-42", "p" * 101, 1, "at most 100"),
    "a key that nobody knows": Bad("owner: a-person", "onwer: a-person", 4, "onwer"),
    "hours below none": Bad("owner: a-person", "hours: -1", 4, "hours"),
    "something else to run as": Bad("owner: a-person", "as: spot", 4, "flex"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_mistake_is_refused_with_its_line(sentence: str) -> None:
    case = BAD[sentence]
    assert case.old in GOOD
    with pytest.raises(BadDocument) as caught:
        parse_workload(GOOD.replace(case.old, case.new, 1), source="w.yaml")
    assert f"w.yaml:{case.want_line}" in str(caught.value) or f"line {case.want_line}" in str(caught.value)
    assert case.want in str(caught.value)


YARD = Yard({"tiger": {"a": 4, "b": 2}, "lion": {"a": 4}}, {"tiger": {"x": 48}, "lion": {"x": 32}})


class Never(NamedTuple):
    """A workload that could never run: the kind of error, its code, and words of the message."""

    asked: object
    want: type[PlimsollError]
    want_code: str
    want_words: tuple[str, ...]


NEVER = {
    "a gang larger than any island names the largest and its clusters": Never(
        spec("w", "x", gang(40)), Refused, "larger_than_any_island", ("40", "32", "tiger-a", "lion-a", "lion", "tiger")
    ),
    "one replica larger than any island": Never(
        spec("w", "x", elastic(1, 1, 40)), Refused, "larger_than_any_island", ("replica", "40", "32")
    ),
    "parts that are together larger than any cluster": Never(
        spec("w", "x", gang(32, "p"), gang(24, "q", rank=2)), Refused, "larger_than_any_pool", ("56", "48", "tiger")
    ),
    "an unknown team": Never(spec("w", "nobody", gang(8)), NotFound, "no_such_team", ("nobody",)),
    "a SKU that nobody has": Never(spec("w", "x", gang(8), sku="B300"), Refused, "nowhere", ("B300",)),
}


@pytest.mark.parametrize("sentence", NEVER)
def test_what_could_never_run_is_refused(sentence: str) -> None:
    case = NEVER[sentence]
    with pytest.raises(case.want) as caught:
        check_workload(YARD.state, case.asked)  # type: ignore[arg-type]
    assert caught.value.code == case.want_code
    for word in case.want_words:
        assert word in str(caught.value), (word, str(caught.value))
    assert caught.value.next_step
