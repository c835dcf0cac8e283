"""Quota that moves: transfers, temporary grants and their end, and a team with another name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from plimsoll.errors import NotFound, Refused
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import PoolAligned, QuotaAssigned, QuotaTransferred
from plimsoll.quota.model import Kind, Quota, QuotaKey, Tier
from plimsoll.quota.requests.desk import settle
from plimsoll.quota.requests.moves import end_grant, rename_team, transfer
from plimsoll.rooms import KINDS
from plimsoll.state.state import State
from plimsoll.workloads.changes import WorkloadGone, WorkloadObserved
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Block, Part, Workload
from tests.support.fleets import nodes, row
from tests.support.imports import NOW
from tests.support.office import TIGER, Office, floor_of, work


def test_a_transfer_moves_assigned_and_guaranteed() -> None:
    office = Office(assigned={"vision": 40, "voice": 24}, guaranteed={"vision": 32, "voice": 24})
    outcome = office.transfer(gpus=16)
    assert office.holding("vision") == (24, 16)
    assert office.holding("voice") == (40, 40)
    assert (outcome.giver.guaranteed_was, outcome.giver.guaranteed, outcome.grant) == (32, 16, "")
    assert office.book.assigned[TIGER] == 64


def test_all_of_a_guarantee_can_be_given() -> None:
    office = Office()
    office.transfer(gpus=32)
    assert office.guaranteed() == {"voice": 56}
    assert office.assigned() == {"voice": 56}


def test_a_new_team_can_take_if_that_is_said() -> None:
    office = Office()
    office.transfer(taker="brand-new", is_new_taker=True)
    assert office.guaranteed() == {"brand-new": 8, "vision": 24, "voice": 24}


def test_what_the_giver_runs_beyond_its_new_guarantee_goes_on_as_flex_and_is_said() -> None:
    works = [work("train", "vision", 16, kind="gang", tier="high"), work("grade", "vision", 16)]
    [note] = Office(works=works).transfer(gpus=24).notes
    # 8 are left: the gang of 16 does not fit, and of the grader 8 do.
    assert note == (
        "24 GPUs of vision's running work (2 parts, 1 of them gangs) go on as flex: others may call them back"
    )


def pinned(gpus: int) -> Callable[[], Office]:
    return lambda: Office(pins=floor_of("vision", gpus))


def blocked(gpus: int) -> Callable[[], Office]:
    return lambda: Office(blocks=floor_of("vision", gpus))


def retired() -> Office:
    clusters = [row("clusters"), row("clusters", cluster="lion", phase="retired")]
    rows = [*nodes(10), *nodes(2, prefix="l", cluster="lion", island="lion-a")]
    return Office(clusters=clusters, rows=rows)


REFUSED: dict[str, tuple[Callable[[], Office], dict[str, Any], str, str]] = {
    "the giver is guaranteed less": (Office, {"gpus": 40}, "over_guarantee", "guaranteed 32 GPUs of tiger H200"),
    "the giver is guaranteed nothing": (
        lambda: Office({"vision": 32}),
        {"giver": "voice", "taker": "vision"},
        "no_such_team",
        "no team 'voice' among 1",
    ),
    "nothing was aligned yet": (lambda: Office(is_aligned=False), {}, "not_aligned", "0 GPUs can be given"),
    "nothing": (Office, {"gpus": 0}, "bad_gpus", "0 GPUs can't be asked for or given"),
    "a negative number": (Office, {"gpus": -8}, "bad_gpus", "-8 GPUs"),
    "more than any fleet has": (Office, {"gpus": 10**9}, "bad_gpus", "1000000000 GPUs"),
    "half a node": (Office, {"gpus": 12}, "not_whole_nodes", "12 GPUs are no whole nodes: tiger H200 has 8 on each"),
    "to itself": (Office, {"taker": "vision"}, "same_team", "to itself"),
    "an unknown taker": (Office, {"taker": "voise"}, "no_such_team", "did you mean voice?"),
    "an unknown giver": (Office, {"giver": "visoin"}, "no_such_team", "did you mean vision?"),
    "an unknown SKU": (Office, {"sku": "h200"}, "no_such_sku", "did you mean H200?"),
    "an unknown cluster": (Office, {"cluster": "tigre"}, "no_such_cluster", "did you mean tiger?"),
    "a retired cluster": (retired, {"cluster": "lion"}, "not_in_production", "cluster lion is retired"),
    "an end that is now": (Office, {"days": 0}, "bad_time", "it would end at"),
    "an end before its start": (Office, {"days": -1}, "bad_time", "not after 2026-01-20T12:00:00Z"),
    "below a pin": (pinned(24), {"gpus": 16}, "pinned", "of 32 guaranteed it can give 8, not 16"),
    "into a block": (blocked(24), {"gpus": 16}, "block_broken", "needs 24 GPUs of tiger H200 whole or not at all"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_transfer_that_is_refused_changes_nothing(sentence: str) -> None:
    build, fields, want_code, want_words = REFUSED[sentence]
    error = build().refused(lambda office: office.transfer(**fields))
    assert (error.code, want_words in error.message) == (want_code, True), error.message


ALLOWED: dict[str, tuple[Callable[[], Office], int]] = {
    "down to the pin": (pinned(24), 8),
    "down to the block": (blocked(24), 8),
    "all of a block": (blocked(24), 32),
    "a block that is not whole anyway": (blocked(40), 16),
}


@pytest.mark.parametrize("sentence", ALLOWED)
def test_pins_and_blocks_leave_the_rest_to_give(sentence: str) -> None:
    build, gpus = ALLOWED[sentence]
    office = build()
    office.transfer(gpus=gpus)
    assert office.guaranteed().get("vision", 0) == 32 - gpus


def test_a_loan_goes_back_by_itself() -> None:
    office = Office()
    loan = office.transfer(gpus=16, days=14)
    assert office.guaranteed() == {"vision": 16, "voice": 40}
    office.wait(days=13, hours=23)
    assert office.settle().ended == []
    office.wait(hours=1)
    [ended] = office.settle().ended
    assert (ended.grant.id, ended.guaranteed) == (loan.grant, 16)
    assert office.guaranteed() == {"vision": 32, "voice": 24}
    assert office.assigned() == {"vision": 32, "voice": 24}
    assert not office.book.grants


def test_what_is_due_goes_back_before_anything_else_is_decided() -> None:
    """Voice gives what it has for good; the loan that is over is no longer its to give."""
    office = Office()
    office.transfer(gpus=16, days=1)
    office.wait(days=2)
    outcome = office.transfer("voice", "vision", 24)
    assert outcome.giver.guaranteed_was == 24
    assert office.guaranteed() == {"vision": 56}


def test_what_is_borrowed_can_not_be_given_on() -> None:
    office = Office()
    office.transfer(gpus=16, days=14)
    error = office.refused(lambda o: o.transfer("voice", "vision", 32))
    assert (error.code, error.fields["borrowed"]) == ("borrowed", 16)
    assert "it can give 24 at most, not 32" in error.message
    office.transfer("voice", "vision", 24)
    assert office.guaranteed() == {"vision": 40, "voice": 16}


def test_a_loan_ends_early_if_somebody_says_so() -> None:
    office = Office()
    loan = office.transfer(gpus=16, days=14)
    office.act(lambda state, _now: end_grant(state, loan.grant))
    assert office.guaranteed() == {"vision": 32, "voice": 24}
    error = office.refused(lambda o: o.act(lambda state, _now: end_grant(state, loan.grant)))
    assert error.code == "no_such_grant"


def test_a_correction_in_between_is_not_given_back_twice() -> None:
    """Of the 40 voice has, 16 borrowed, a correction leaves 8: those go back, and the book is whole again."""
    office = Office()
    office.transfer(gpus=16, days=14)
    office.align({"vision": 16, "voice": 8}, line=24)
    office.wait(days=14)
    office.settle()
    assert office.holding("vision") == (32, 24)
    assert office.holding("voice") == (24, 0)
    assert sum(office.guaranteed().values()) <= office.book.line_of(TIGER)


BOOKED = {
    "another import says what it said before the loan": (24, (24, 24), (16, 16)),
    "a trim strikes half of the loan out": (32, (24, 24), (24, 24)),
    "an import gives more": (48, (32, 24), (32, 32)),
    "nothing is left in the book": (0, (0, 0), (16, 16)),
}


@pytest.mark.parametrize("sentence", BOOKED)
def test_what_the_book_loses_it_loses_of_the_loan_first(sentence: str) -> None:
    """Voice has 24 and borrows 16 of vision. What is struck out of its 40 is not taken once more by the end."""
    gpus, want_voice, want_vision = BOOKED[sentence]
    office = Office()
    office.transfer(gpus=16, days=14)
    office.commit(QuotaAssigned(Quota("voice", "tiger", "H200", gpus)))
    office.wait(days=14)
    office.settle()
    assert (office.holding("voice"), office.holding("vision")) == (want_voice, want_vision)
    assert not office.book.grants


CLOCKS = {
    "a clock that went back ends nothing early": (timedelta(days=-30), 0),
    "a clock that stands still": (timedelta(0), 0),
    "a clock that jumped ahead ends it": (timedelta(days=400), 1),
}


@pytest.mark.parametrize("sentence", CLOCKS)
def test_a_clock_that_jumps(sentence: str) -> None:
    jump, want_ended = CLOCKS[sentence]
    office = Office()
    office.transfer(gpus=16, days=14)
    office.now += jump
    assert len(office.settle().ended) == want_ended
    office.transfer(gpus=8)  # and it still decides
    since = [promised.since for promised in office.book.promised[TIGER]]
    assert since == sorted(since)
    office.now = NOW + timedelta(days=15)
    office.settle()
    assert office.guaranteed() == {"vision": 24, "voice": 32}


def test_a_renamed_team_keeps_everything() -> None:
    office = Office(works=[work("train", "vision", 16)])
    office.transfer(gpus=8, days=14)
    office.ask("vision", 16)
    outcome = office.rename("vision", "sight")
    assert (outcome.pools, outcome.assigned, outcome.guaranteed) == (1, 24, 24)
    assert office.guaranteed() == {"sight": 24, "voice": 32}
    assert office.assigned() == {"sight": 24, "voice": 32}
    assert {workload.team for workload in office.state.of(Workloads).workloads.values()} == {"sight"}
    assert [request.team for request in office.book.requests.values()] == ["sight"]
    assert [sorted(promised.teams) for promised in office.book.promised[TIGER]] == [["sight", "voice"]]
    office.wait(days=14)
    office.settle()
    assert office.guaranteed() == {"sight": 32, "voice": 24}
    loaded = State(KINDS)
    loaded.load(office.state.dump())
    assert loaded.dump() == office.state.dump()


def test_a_giver_that_was_renamed_before_the_day_still_gives() -> None:
    """What was approved for later names its givers; they may have other names by then."""
    office = Office({"vision": 40, "voice": 40}, works=[work("a", "vision", 40), work("b", "voice", 24)])
    office.ask("vision", 16, starts=NOW + timedelta(days=3))
    office.approve("q1", "transfer:tiger")
    office.rename("voice", "sound")
    office.wait(days=3)
    assert office.settle().waiting == []
    assert office.guaranteed() == {"sound": 24, "vision": 56}


def test_work_that_was_observed_under_the_new_name_meanwhile_is_not_lost(sqlite_dsn: str) -> None:
    """Work is in streams of its own, so it does not make a rename decide again."""
    with Office(works=[work("train", "vision", 16)], dsn=sqlite_dsn) as office:
        part = Part(Kind.ELASTIC, Tier.MID, 1, "H200", (Block("tiger/a", 8),))
        seen = Draft(WorkloadObserved(Workload("grade", "sight", "tiger", (part,))))
        office.act(
            deciding(lambda state, _now: rename_team(state, "vision", "sight"), meanwhile=lambda _: office.beside(seen))
        )
        key = QuotaKey("sight", *TIGER)
        assert [claim.work for claim in office.book.claims[key]] == ["grade", "train"]
        assert office.guaranteed() == {"sight": 32, "voice": 24}
        office.commit(WorkloadGone("train"))
        assert [claim.work for claim in office.book.claims[key]] == ["grade"]


RENAMES = {
    "nobody of that name": (("visoin", "sight"), "no_such_team"),
    "to its own name": (("vision", "vision"), "same_team"),
    "to a name that another has": (("vision", "voice"), "team_exists"),
    "to nothing": (("vision", "  "), "bad_team"),
    "to something that can't be read": (("vision", "a\nb"), "bad_team"),
    "to a name that is a novel": (("vision", "x" * 101), "bad_team"),
}


@pytest.mark.parametrize("sentence", RENAMES)
def test_a_name_that_is_refused(sentence: str) -> None:
    (team, name), want_code = RENAMES[sentence]
    assert Office().refused(lambda office: office.rename(team, name)).code == want_code


def test_a_name_that_the_policy_still_knows_is_said() -> None:
    [note] = Office(pins=floor_of("vision", 8)).rename("vision", "sight").notes
    assert note == "the policy in force names vision in 1 pins and blocks: change them there as well"


def deciding(act: Callable[[State, Any], Any], *, meanwhile: Callable[[State], None]) -> Callable[[State, Any], Any]:
    """A decision during which somebody else does something, the first time."""
    times: list[State] = []

    def decide(state: State, now: Any) -> Any:
        decision = act(state, now)
        if not times:
            meanwhile(state)
        times.append(state)
        return decision

    return decide


def giving(gpus: int) -> Callable[[State, Any], Any]:
    return lambda state, now: transfer(
        state, giver="vision", taker="voice", cluster="tiger", sku="H200", gpus=gpus, now=now
    )


def test_whoever_decided_under_the_old_name_decides_again(sqlite_dsn: str) -> None:
    """Between reading and writing the giver gets another name: the transfer is made anew, and there is no such team."""
    office = Office(dsn=sqlite_dsn)
    decide = deciding(giving(8), meanwhile=lambda state: office.beside(*rename_team(state, "vision", "sight")[1]))
    with pytest.raises(NotFound, match="no team 'vision'"):
        office.act(decide)
    assert office.guaranteed() == {"sight": 32, "voice": 24}


def test_a_third_party_in_between_makes_it_decide_again(sqlite_dsn: str) -> None:
    """While 32 are being given, somebody else gets 8 of them: the transfer sees 24 and is refused, not negative."""
    office = Office({"vision": 32, "voice": 24, "audio": 8}, dsn=sqlite_dsn)
    third = Draft(QuotaTransferred("tiger", "H200", "vision", "audio", 8))
    decide = deciding(giving(32), meanwhile=lambda _state: office.beside(third))
    with pytest.raises(Refused, match="guaranteed 24 GPUs of tiger H200 and can't give 32"):
        office.act(decide)
    assert office.guaranteed() == {"audio": 16, "vision": 24, "voice": 24}


def test_two_pools_do_not_disturb_each_other(sqlite_dsn: str) -> None:
    office = Office(dsn=sqlite_dsn)
    other = Draft(PoolAligned("lion", "H200", 8, "fixed:0", {"vision": 8}))
    seen: list[int] = []

    def decide(state: State, now: Any) -> Any:
        seen.append(state.revision)
        office.beside(other)
        return giving(8)(state, now)

    office.act(decide, reads=[TIGER.stream])
    assert len(seen) == 1
    assert office.guaranteed() == {"vision": 24, "voice": 32}


def test_settling_twice_changes_nothing_more() -> None:
    office = Office()
    office.transfer(gpus=16, days=1)
    office.wait(days=1)
    office.settle()
    revision = office.state.revision
    assert settle(office.state, now=office.now)[1] == []
    office.settle()
    assert office.state.revision == revision
