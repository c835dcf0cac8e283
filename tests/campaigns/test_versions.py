"""Versions on nodes: read from files, counted by combination, judged by what was tested."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.campaigns.model import Impact, ImpactRule, VersionChange
from plimsoll.campaigns.versions.changes import VersionsRecorded
from plimsoll.campaigns.versions.decide import record_relevant, record_tested, record_update, record_wanted
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.campaigns.versions.model import (
    Combination,
    Installed,
    Result,
    Trial,
    Verdict,
    in_order,
    judge,
    read_pairs,
    version_order,
)
from plimsoll.campaigns.versions.service import import_versions, open_versions
from plimsoll.errors import PlimsollError
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.model import Service
from plimsoll.fleet.selector import Scope
from plimsoll.health.changes import NodeMoved
from plimsoll.health.facts import presumed_facts
from plimsoll.state.state import State
from tests.support.fleets import nodes, row, write_csv, write_fleet
from tests.support.imports import Importer, contents
from tests.support.versions import Yard, at, node, pairs

HEADER = ["node", "component", "version"]


def lines(*texts: str) -> list[dict[str, str]]:
    """`n1 driver 550` as rows; a missing last word is an empty version."""
    return [dict(zip(HEADER, (*text.split(" "), ""), strict=False)) for text in texts]


def write_versions(folder: Path, *texts: str) -> Path:
    write_csv(folder / "versions.csv", HEADER, lines(*texts))
    return folder


def on(importer: Importer) -> dict[str, dict[str, str]]:
    return {name: dict(held.combination) for name, held in importer.of(Versions).nodes.items()}


# The order of versions.

ORDERS = {
    "numbers are numbers": ["2.9", "2.10", "10.1"],
    "a release candidate comes before its release, a fix after it": ["28.43-rc1", "28.43-rc2", "28.43", "28.43.1"],
    "a letter after a number is later": ["1.0", "1.0c", "1.1"],
    "signs between them mean nothing": ["550.54.15", "550_90_07", "550-127", "560.35"],
    "words": ["alpha", "beta", "release"],
}


@pytest.mark.parametrize("name", ORDERS)
def test_versions_are_in_the_order_of_their_releases(name: str) -> None:
    want = ORDERS[name]
    assert in_order(reversed(want)) == want


@given(st.lists(st.text(alphabet="0129.-rca", max_size=6), min_size=3, max_size=3))
def test_the_order_is_one(texts: list[str]) -> None:
    low, middle, high = sorted(texts, key=version_order)
    assert version_order(low) <= version_order(middle) <= version_order(high)


BAD_PAIRS = {
    "no version": (["driver"], "'driver' is not COMPONENT=VERSION"),
    "an empty version": (["driver="], "'driver=' is not COMPONENT=VERSION"),
    "an empty component": (["=1"], "'=1' is not COMPONENT=VERSION"),
    "two versions of one": (["driver=1", "driver=2"], "driver is named twice, with 1 and 2"),
    "nothing": ([], "0 components are named"),
    "a line break": (["driver=1\n2"], "is not COMPONENT=VERSION"),
}


@pytest.mark.parametrize("name", BAD_PAIRS)
def test_pairs_that_can_not_be_meant(name: str) -> None:
    words, want_message = BAD_PAIRS[name]
    with pytest.raises(PlimsollError) as caught:
        read_pairs(words)
    assert want_message in caught.value.message
    assert caught.value.next_step


def test_pairs_as_typed() -> None:
    assert read_pairs(["nic=28.43", "driver=560=x", "nic=28.43"]) == (("driver", "560=x"), ("nic", "28.43"))


# What a test answers for.


class Judged(NamedTuple):
    results: list[Trial]
    want: Verdict
    combination: Combination = pairs(driver="560", nic="43")
    relevant: tuple[str, ...] | None = None


def trial(result: Result, day: int = 0, /, **versions: str) -> Trial:
    return Trial(pairs(**versions), result, at(day))


PASSED, FAILED = Result.PASSED, Result.FAILED
JUDGED = {
    "nobody has tried it": Judged([], Verdict.UNTESTED),
    "exactly this passed": Judged([trial(PASSED, driver="560", nic="43")], Verdict.PASSED),
    "a part of it passed": Judged([trial(PASSED, nic="43")], Verdict.UNTESTED),
    "more than it passed": Judged([trial(PASSED, driver="560", nic="43", bios="2")], Verdict.UNTESTED),
    "more passed, and the rest does not matter": Judged(
        [trial(PASSED, driver="560", nic="43", bios="2")], Verdict.PASSED, relevant=("driver", "nic")
    ),
    "a part of it failed": Judged([trial(FAILED, nic="43")], Verdict.FAILED),
    "another version failed": Judged([trial(FAILED, nic="42")], Verdict.UNTESTED),
    "something that does not matter failed": Judged(
        [trial(FAILED, bios="2")], Verdict.UNTESTED, relevant=("driver", "nic")
    ),
    "it failed, and passed later": Judged(
        [trial(FAILED, 0, driver="560", nic="43"), trial(PASSED, 1, driver="560", nic="43")], Verdict.PASSED
    ),
    "it passed, and a part failed later": Judged(
        [trial(FAILED, 2, nic="43"), trial(PASSED, 1, driver="560", nic="43")], Verdict.FAILED
    ),
    "a part failed, and all of it passed later": Judged(
        [trial(FAILED, 0, nic="43"), trial(PASSED, 1, driver="560", nic="43")], Verdict.PASSED
    ),
    "nobody knows what is there": Judged([trial(FAILED, nic="43")], Verdict.UNKNOWN, combination=()),
}


@pytest.mark.parametrize("name", JUDGED)
def test_what_a_test_answers_for(name: str) -> None:
    case = JUDGED[name]
    verdict, by = judge(case.combination, case.results, case.relevant)
    assert verdict is case.want
    assert (by is not None) is (case.want in (Verdict.PASSED, Verdict.FAILED))


# Files.


def test_a_fleet_folder_brings_versions_and_gives_them_back(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "in", nodes=nodes(3))
    write_versions(folder, "n1 driver 550", "n2 driver 550", "n2 nic 43", "n1 nic 43", "n3 nic 41")
    importer = Importer()
    plan = importer.bring(folder)
    assert plan.counts()["versions"] == {"added": 5, "changed": 0, "removed": 0, "same": 0}
    assert importer.of(Versions).presence.keys() == {
        Installed("tiger", pairs(driver="550", nic="43")),
        Installed("tiger", pairs(nic="41")),
    }
    kinds = [event.kind for event in importer.keeper.ledger.store.events()]
    assert kinds.count(VersionsRecorded.kind) == 2, "nodes that are alike are one event"
    written = contents(importer.export(tmp_path / "out"))["versions.csv"]
    assert written == "node,component,version\nn1,driver,550\nn1,nic,43\nn2,driver,550\nn2,nic,43\nn3,nic,41\n"
    head = importer.head
    assert importer.bring(tmp_path / "out").counts()["versions"]["same"] == 5
    assert importer.head == head, "the same again is no event"


def test_a_whole_import_takes_away_what_the_file_does_not_name(tmp_path: Path) -> None:
    folder = write_versions(write_fleet(tmp_path, nodes=nodes(3)), "n1 driver 550", "n1 nic 43", "n2 nic 43")
    importer = Importer()
    importer.bring(folder)
    write_versions(folder, "n1 nic 44", "n3 nic 43")
    found = importer.differences(folder)
    assert on(importer) == {"n1": {"nic": "44"}, "n3": {"nic": "43"}}
    assert found == {
        ("versions", "n1 driver"): ("removed", {"version": "550"}),
        ("versions", "n1 nic"): ("changed", {"version": "43"}),
        ("versions", "n2 nic"): ("removed", {"version": "43"}),
    }


def test_a_folder_without_the_file_leaves_versions_alone(tmp_path: Path) -> None:
    folder = write_versions(write_fleet(tmp_path, nodes=nodes(2)), "n1 nic 43")
    importer = Importer()
    importer.bring(folder)
    (folder / "versions.csv").unlink()
    head = importer.head
    importer.bring(folder)
    assert importer.head == head
    assert on(importer) == {"n1": {"nic": "43"}}


def brought(importer: Importer, folder: Path, *texts: str, is_dry_run: bool = False) -> dict[str, int]:
    """`campaign versions import` of these rows: what it counts."""
    raw = open_versions(write_versions(folder, *texts) / "versions.csv")
    plan, _ = import_versions(importer.keeper, raw, actor="tester", is_dry_run=is_dry_run)
    return plan.counts()


def test_what_was_seen_of_some_nodes_leaves_all_others_alone(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_versions(write_fleet(tmp_path, nodes=nodes(3)), "n1 driver 550", "n1 nic 43", "n2 nic 43"))
    assert brought(importer, tmp_path, "n1 nic 44", "n3 nic 43") == {"added": 1, "changed": 1, "removed": 0, "same": 0}
    assert on(importer) == {"n1": {"driver": "550", "nic": "44"}, "n2": {"nic": "43"}, "n3": {"nic": "43"}}
    assert brought(importer, tmp_path, "n1 driver")["removed"] == 1
    assert on(importer)["n1"] == {"nic": "44"}
    head = importer.head
    assert brought(importer, tmp_path, "n1 nic 44", "n1 driver")["same"] == 2
    brought(importer, tmp_path, "n1 nic 99", is_dry_run=True)
    assert importer.head == head


BAD_ROWS = {
    "a node that is not there": (["n1 nic 43", "n9 nic 43"], (3, "node", "n9")),
    "no component": (["n1  43"], (2, "component", "")),
    "a component with a sign that commands use": (["n1 a=b 43"], (2, "component", "a=b")),
    "the same twice": (["n1 nic 43", "n2 nic 43", "n1 nic 44"], (4, "component", "n1 nic")),
    "the same twice, in the same words": (["n1 nic 43", "n1 nic 43"], (3, "component", "n1 nic")),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_refused_and_nothing_is_kept(name: str, tmp_path: Path) -> None:
    texts, (want_row, want_column, want_value) = BAD_ROWS[name]
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=nodes(2)))
    head = importer.head
    with pytest.raises(PlimsollError) as caught:
        brought(importer, tmp_path, *texts)
    assert caught.value.code == "bad_import"
    problem: dict[str, object] = caught.value.fields["problems"][0]  # type: ignore[index]
    assert caught.value.fields["problem_count"] == 1
    assert (problem["source"], problem["row"]) == ("versions.csv", want_row)
    assert (problem["column"], problem["value"]) == (want_column, want_value)
    assert problem["expected"]
    assert importer.head == head
    assert importer.problems(write_versions(tmp_path, *texts)) == [problem | {"expected": expected_in_folder(problem)}]


def expected_in_folder(problem: dict[str, object]) -> object:
    return "a node of the nodes sheet" if problem["column"] == "node" else problem["expected"]


def test_a_row_that_says_the_same_twice_names_the_first(tmp_path: Path) -> None:
    importer = Importer()
    (problem,) = importer.problems(write_versions(write_fleet(tmp_path), "n2 nic 1", "n1 nic 1", "n1 nic 2"))
    assert problem["expected"] == "each only once; row 3 has it already"


def test_a_file_without_its_columns_is_refused(tmp_path: Path) -> None:
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=nodes(1)))
    write_csv(tmp_path / "odd.csv", ["node", "version"], [{"node": "n1", "version": "1"}])
    with pytest.raises(PlimsollError, match="the header needs node,component,version"):
        import_versions(importer.keeper, open_versions(tmp_path / "odd.csv"), actor="tester")
    with pytest.raises(PlimsollError, match="there is no"):
        open_versions(tmp_path / "missing.csv")


def test_a_node_that_somebody_retires_is_forgotten_as_well() -> None:
    yard = Yard({"tiger": 2})
    yard.put("tiger", ["tiger-1", "tiger-2"], nic_firmware="28.43")
    facts = presumed_facts(yard.fleet.nodes["tiger-1"])
    yard.do(NodeMoved("tiger-1", Service.RETIRED, facts, {"service": "in_service"}))
    assert set(yard.versions.nodes) == {"tiger-2"}
    assert [presence.nodes for presence in yard.versions.presence.values()] == [1]


def test_retired_nodes_are_passed_over_and_forgotten(tmp_path: Path) -> None:
    folder = write_versions(write_fleet(tmp_path, nodes=nodes(2)), "n1 nic 43", "n2 nic 43")
    importer = Importer()
    importer.bring(folder)
    write_fleet(folder, nodes=[row("nodes", node="n1"), row("nodes", node="n2", service="retired")])
    plan = importer.bring(folder)
    assert "1 node of versions.csv are retired: passed over" in plan.warnings
    assert on(importer) == {"n1": {"nic": "43"}}
    assert [presence.nodes for presence in importer.of(Versions).presence.values()] == [1]
    head = importer.head
    importer.bring(folder)
    assert importer.head == head, "what is said of a retired node is no event, however often"


# The counts.

Step = tuple[str, str, dict[str, str]]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[object, ...]]:
    """Events on six nodes of two clusters, in any order."""
    names = [f"{where}-{number}" for where in ("a", "b") for number in (1, 2, 3)]
    versions = st.dictionaries(st.sampled_from(("driver", "nic")), st.sampled_from(("", "1", "2")), min_size=1)
    update = st.tuples(st.just("update"), st.lists(st.sampled_from(names), min_size=1, unique=True), versions)
    place = st.tuples(st.just("place"), st.sampled_from(names), st.sampled_from(("a", "b")), st.booleans())
    return draw(st.lists(st.one_of(update, update, place), max_size=12))


def recount(versions: Versions) -> Counter[Installed]:
    return Counter(Installed(*held) for held in versions.nodes.values())


def play(yard: Yard, history: list[tuple[object, ...]]) -> dict[str, dict[str, str]]:
    """The history, told to the fold; and what is on each node, kept by hand."""
    by_hand: dict[str, dict[str, str]] = {}
    gone: set[str] = set()
    for day, step in enumerate(history):
        if step[0] == "update":
            _, names, versions = step
            yard.do(VersionsRecorded("a", versions, names), when=at(day))  # type: ignore[arg-type]
            for name in names:  # type: ignore[attr-defined]
                if name not in gone:
                    now = by_hand.get(name, {}) | versions  # type: ignore[operator]
                    by_hand[name] = {component: version for component, version in now.items() if version}
        else:
            _, name, where, is_retired = step
            assert isinstance(name, str)
            assert isinstance(where, str)
            service = Service.RETIRED if is_retired else Service.IN_SERVICE
            before = yard.fleet.nodes[name]
            was = {"cluster": before.cluster, "service": str(before.service)}
            yard.do(NodeRecorded(node(name, where, service=service), was), when=at(day))  # type: ignore[arg-type]
            if is_retired:
                by_hand.pop(name, None)
                gone.add(name)
            else:
                gone.discard(name)
    return {name: versions for name, versions in by_hand.items() if versions}


@given(histories())
def test_counts_are_what_a_recount_says(history: list[tuple[object, ...]]) -> None:
    yard = Yard({"a": 3, "b": 3})
    with yard.state.what_if() as state:
        before = state.dump()
        by_hand = play(yard, history)
        versions = yard.versions
        assert {name: dict(held.combination) for name, held in versions.nodes.items()} == by_hand
        assert all(held.cluster == yard.fleet.nodes[name].cluster for name, held in versions.nodes.items())
        assert {held: presence.nodes for held, presence in versions.presence.items()} == recount(versions)
        loaded = State(state.kinds)
        loaded.load(state.dump())
        assert loaded.dump() == state.dump()
        assert loaded.of(Versions).presence == versions.presence
        assert state.fork().dump() == state.dump()
    assert yard.state.dump() == before


def test_since_is_when_the_first_node_got_it() -> None:
    yard = Yard({"a": 3})
    yard.put("a", ["a-1"], at(1), nic="1")
    yard.put("a", ["a-2"], at(2), nic="1")
    yard.put("a", ["a-1"], at(3), nic="1")
    assert since(yard, "a", nic="1") == at(1)
    yard.put("a", ["a-1", "a-2"], at(4), nic="2")
    yard.put("a", ["a-3"], at(5), nic="1")
    assert since(yard, "a", nic="1") == at(5), "it was gone in between"


def since(yard: Yard, where: str, **versions: str) -> datetime:
    return yard.versions.presence[Installed(where, pairs(**versions))].since


def test_nodes_that_are_alike_share_what_they_have() -> None:
    yard = Yard({"a": 50})
    yard.put_all("a", nic="1", driver="2")
    assert len({id(held) for held in yard.versions.nodes.values()}) == 1


# What people and campaigns record.


def change(component: str, version: str) -> VersionChange:
    return VersionChange(component, version, (ImpactRule(Scope(), Impact.DISRUPTIVE),))


def test_an_update_records_what_changed_by_cluster() -> None:
    yard = Yard({"a": 2, "b": 2})
    yard.put_all("a", nic="1")
    yard.put("b", ["b-1"], nic="2")
    yard.do(NodeRecorded(node("b-2", "b", service=Service.RETIRED), {"service": "in_service"}))
    names = ["a-2", "a-1", "b-1", "b-2", "a-1", "gone"]
    drafts = record_update(yard.state, names, [change("nic", "2")], campaign="fix", at=at(3))
    assert [draft.change for draft in drafts] == [VersionsRecorded("a", {"nic": "2"}, ["a-1", "a-2"], "fix")]
    yard.take(drafts, when=at(4))
    assert since(yard, "a", nic="2") == at(3), "when it happened, not when it was recorded"
    assert record_update(yard.state, names, [change("nic", "2")], campaign="fix") == []


def test_what_is_wanted_is_said_once_and_can_be_taken_back() -> None:
    yard = Yard({"a": 1})
    scope = Scope((("cluster", ("a",)),))
    drafts = record_wanted(yard.state, pairs(nic="2"), scope)
    yard.take(drafts)
    assert len(drafts) == 1
    assert record_wanted(yard.state, pairs(nic="2"), scope) == []
    assert len(record_wanted(yard.state, pairs(nic="2"), Scope())) == 1, "another scope is another wish"
    yard.take(record_wanted(yard.state, pairs(nic="2"), scope, is_withdrawn=True))
    assert not yard.versions.wanted
    for bad, want_code in ((Scope((("cluster", ("x",)),)), "matches_nothing"), (Scope(), "not_wanted")):
        with pytest.raises(PlimsollError) as caught:
            record_wanted(yard.state, pairs(nic="2"), bad, is_withdrawn=True)
        assert caught.value.code == want_code


def test_a_slip_in_a_name_is_no_record() -> None:
    yard = Yard({"a": 1})
    yard.put_all("a", nic_firmware="1")
    with pytest.raises(PlimsollError, match="did you mean nic-firmware"):
        record_tested(yard.state, pairs(nic_firmwar="1"), Result.PASSED)
    with pytest.raises(PlimsollError, match="did you mean nic-firmware"):
        record_relevant(yard.state, ["nic-firmwar"])
    with pytest.raises(PlimsollError, match="there is no cluster 'b'"):
        record_tested(yard.state, pairs(nic_firmware="1"), Result.PASSED, where="b")


def test_tests_and_relevance_are_kept_through_a_snapshot() -> None:
    yard = Yard({"a": 1})
    yard.put_all("a", nic="1", driver="2")
    yard.take(record_tested(yard.state, pairs(nic="1"), Result.FAILED, where="a", note="no link"))
    yard.take(record_tested(yard.state, pairs(nic="1"), Result.PASSED), when=at(1))
    yard.take(record_relevant(yard.state, ["nic"]))
    yard.take(record_wanted(yard.state, pairs(nic="3"), Scope()))
    assert record_relevant(yard.state, ["nic"]) == []
    loaded = State(yard.state.kinds)
    loaded.load(yard.state.dump())
    versions = loaded.of(Versions)
    assert [(each.result, each.note, each.where) for each in versions.results] == [
        (Result.FAILED, "no link", "a"),
        (Result.PASSED, "", ""),
    ]
    assert versions.relevant == ("nic",)
    assert versions.releases["nic"] == ("1", "3")
    assert [wanted.version for wanted in versions.wanted.values()] == ["3"]
