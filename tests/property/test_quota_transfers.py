"""Never over the line, never a guarantee from nowhere, never a third party in between: whoever moves or races."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import PlimsollError, Stale
from plimsoll.ledger.model import Event, EventFilter
from plimsoll.ledger.verify import verify
from plimsoll.quota.changes import QuotaAssigned, QuotaTransferred
from plimsoll.quota.fill import inside
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import Quota, QuotaKey
from plimsoll.quota.plan import make_plan
from plimsoll.quota.policy import parse_word
from plimsoll.quota.requests import desk, moves
from plimsoll.quota.requests.clerk import carry_out
from plimsoll.quota.requests.desk import Asked
from plimsoll.quota.requests.options import Code
from plimsoll.quota.service import apply_plan
from plimsoll.rooms import KINDS, open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from tests.support.chance import new_chance
from tests.support.children import Child
from tests.support.imports import NOW
from tests.support.office import TIGER, Office, floor_of, work

TEAMS = ("audio", "vision", "voice")
START = {"audio": 16, "vision": 32, "voice": 16}
ROUNDS = 12


def assert_rules(book: QuotaBook) -> None:
    """What holds after every single event."""
    guaranteed = book.guaranteed_in(TIGER)
    assert sum(guaranteed.values()) <= book.line_of(TIGER), "rule 1: never over the line in force"
    assert all(gpus > 0 for gpus in guaranteed.values()), "never less than nothing"
    for team, gpus in guaranteed.items():
        assert gpus <= book.assigned_to(QuotaKey(team, *TIGER)), "never more guaranteed than assigned"
        assert gpus % 8 == 0, "whole nodes"
    assert book.assigned.get(TIGER, 0) == sum(quota.gpus for quota in book.quotas.values())
    for grant in book.grants.values():
        borrowed = sum(each.gpus for each in book.grants.values() if each.key == grant.key)
        assert borrowed <= book.assigned_to(grant.key), "what goes back is there"


def steps(keeper: Keeper) -> Iterator[tuple[Event, dict[str, int], dict[str, int]]]:
    """Every event, with what was guaranteed of tiger before and after it."""
    state = State(KINDS)
    for event in keeper.ledger.store.events():
        before = state.of(QuotaBook).guaranteed_in(TIGER)
        state.apply(event)
        yield event, before, state.of(QuotaBook).guaranteed_in(TIGER)
        if TIGER in state.of(QuotaBook).lines:
            assert_rules(state.of(QuotaBook))


def assert_history(keeper: Keeper) -> int:
    """The rules after every event; a transfer is one event in which one loses what the other gets, and nobody else
    moves. Returns how many there were.
    """
    transfers = 0
    for event, before, after in steps(keeper):
        if event.kind != QuotaTransferred.kind:
            continue
        transfers += 1
        change = KINDS.read(event)
        assert isinstance(change, QuotaTransferred)
        moved = {team: after.get(team, 0) - before.get(team, 0) for team in {*before, *after}}
        want = {change.giver: -change.gpus, change.taker: change.gpus}
        assert {team: gpus for team, gpus in moved.items() if gpus} == {t: g for t, g in want.items() if g}
    assert verify(keeper.ledger.store).is_whole
    return transfers


Act = Callable[[Office, random.Random], Any]


def a_transfer(office: Office, chance: random.Random) -> None:
    giver, taker = chance.sample(TEAMS, 2)
    office.transfer(giver, taker, 8 * chance.randint(1, 4), is_new_taker=True)


def a_loan(office: Office, chance: random.Random) -> None:
    giver, taker = chance.sample(TEAMS, 2)
    office.transfer(giver, taker, 8 * chance.randint(1, 3), days=chance.randint(1, 9), is_new_taker=True)


def a_grant(office: Office, chance: random.Random) -> None:
    starts = office.now + timedelta(days=chance.randint(1, 3)) if chance.random() < 0.3 else None
    ends = (starts or office.now) + timedelta(days=chance.randint(1, 9)) if chance.random() < 0.6 else None
    answer = office.ask(chance.choice(TEAMS), 8 * chance.randint(1, 3), starts=starts, ends=ends, is_new_team=True)
    office.approve(answer.request.id, chance.choice(["", "1", "2", "transfer:tiger"]))


def a_correction(office: Office, chance: random.Random) -> None:
    plan = make_plan(office.state, parse_word(f"fixed:{chance.choice(['0', '0.3', '0.6'])}"), now=office.now)
    drafts = [draft for pool in plan.pools for draft in pool.drafts("test")]
    office.keeper.commit(drafts, actor="controller", read_at=office.state.revision)


def an_import(office: Office, chance: random.Random) -> None:
    quota = Quota(chance.choice(TEAMS), "tiger", "H200", 8 * chance.randint(0, 6))
    office.commit(QuotaAssigned(quota))


def a_rename(office: Office, chance: random.Random) -> None:
    team = chance.choice(TEAMS)
    office.rename(team, f"{team}-2")
    office.rename(f"{team}-2", team)


def days_pass(office: Office, chance: random.Random) -> None:
    office.wait(days=chance.randint(-1, 5))
    office.settle()


ACTS: tuple[Act, ...] = (a_transfer, a_loan, a_grant, a_correction, an_import, a_rename, days_pass)


@given(seed=st.integers(0, 10**9), acts=st.lists(st.sampled_from(ACTS), max_size=10))
def test_whatever_people_do_the_rules_hold_after_every_event(seed: int, acts: list[Act]) -> None:
    chance = random.Random(seed)
    with Office(START) as office:
        for act in acts:
            try:
                act(office, chance)
            except PlimsollError:
                continue  # refused: that is an answer, and the rules below say whether it was kept out
        assert_history(office.keeper)
        office.wait(days=30)
        office.settle()
        assert not office.book.grants, "temporary grants end by themselves"
        assert_rules(office.book)
        loaded = State(KINDS)
        loaded.load(office.state.dump())
        assert loaded.dump() == office.state.dump()


@given(seed=st.integers(0, 10**9))
def test_calling_flex_back_never_takes_anything_inside_a_guarantee(seed: int) -> None:
    chance = random.Random(seed)
    guaranteed = {team: 8 * chance.randint(0, 4) for team in TEAMS}
    works, left = [], 80
    for number in range(chance.randint(0, 8)):
        gpus = min(left, 4 * chance.randint(1, 6))
        if gpus:
            kind, tier = chance.choice(["gang", "elastic"]), chance.choice(["critical", "high", "mid", "low"])
            works.append(work(f"w{number}", chance.choice(TEAMS), gpus, kind=kind, tier=tier, rank=str(number + 1)))
        left -= gpus
    with Office({team: gpus for team, gpus in guaranteed.items() if gpus}, line=96, works=works) as office:
        book = office.book
        claims = {team: book.claims.get(QuotaKey(team, *TIGER), ()) for team in TEAMS}
        within = {team: inside(claims[team], guaranteed[team]) for team in TEAMS}
        held = {team: sum(claim.gpus for claim in claims[team]) - within[team] for team in TEAMS}
        caller = chance.choice(TEAMS)
        unused = (guaranteed[caller] - within[caller]) // 8 * 8
        if not unused:
            return
        called = office.call_back(caller, unused)
        for team in TEAMS:
            taken = sum(victim.gpus for victim in called.victims if victim.team == team)
            assert taken <= held[team], "rule 3: only flex is called back"
        if sum(guaranteed.values()) <= 80:
            assert called.short == 0, "a guarantee can always call back flex, as long as enough is healthy"
            assert called.free + called.called >= unused


@given(seed=st.integers(0, 10**9))
def test_a_transfer_that_is_offered_never_takes_running_work_a_pin_or_a_part_of_a_block(seed: int) -> None:
    chance = random.Random(seed)
    guaranteed = {team: 8 * chance.randint(1, 4) for team in ("audio", "sonar", "voice")}
    pins = {team: 8 * chance.randint(1, gpus // 8) for team, gpus in guaranteed.items() if chance.random() < 0.3}
    blocks = {team: 8 * chance.randint(1, gpus // 8) for team, gpus in guaranteed.items() if chance.random() < 0.3}
    works = []
    for number, (team, gpus) in enumerate(guaranteed.items()):
        used = 4 * chance.randint(0, gpus // 4)
        idle = 4 * chance.randint(0, used // 4)
        if used:
            works.append(work(f"w{number}", team, used, kind=chance.choice(["gang", "elastic"]), idle_gpus=str(idle)))
    with Office(
        guaranteed,
        rows=12,
        works=works,
        pins=", ".join(floor_of(team, gpus) for team, gpus in pins.items()),
        blocks=", ".join(floor_of(team, gpus) for team, gpus in blocks.items()),
    ) as office:
        busy = {
            team: sum(claim.gpus - claim.idle_gpus for claim in office.book.claims.get(QuotaKey(team, *TIGER), ()))
            for team in guaranteed
        }
        answer = office.ask("vision", 8 * chance.randint(1, 9), is_new_team=True)
        offered = next((option for option in answer.options if option.code is Code.TRANSFER), None)
        if offered is None:
            return
        assert 0 < offered.gpus <= answer.request.gpus
        office.approve("q1", offered.key)
        after = office.guaranteed()
        assert after["vision"] == offered.gpus
        for team, before in guaranteed.items():
            left = after.get(team, 0)
            assert left >= min(busy[team], before), "never what works"
            assert left >= pins.get(team, 0), "never a pin"
            assert left >= blocks.get(team, 0), "never a part of a block"
            assert left % 8 == 0


# Races, with processes and threads of their own that share nothing but the database.


def _race(dsn: str, name: str, seed: int, rounds: int) -> list[str]:
    """Transfers, loans, grants and corrections, as quick as can be; what became of each."""
    chance, outcomes = random.Random(seed), []
    with open_keeper(dsn) as keeper:
        for _ in range(rounds):
            try:
                _one_move(keeper, chance, name)
                outcomes.append("done")
            except Stale:
                outcomes.append("stale")
            except PlimsollError as error:
                outcomes.append(error.code)
    return outcomes


def _one_move(keeper: Keeper, chance: random.Random, name: str) -> None:
    giver, taker = chance.sample(TEAMS, 2)
    kind, gpus = chance.random(), 8 * chance.randint(1, 2)
    if kind < 0.6:
        carry_out(
            keeper,
            lambda state, now: moves.transfer(
                state,
                giver=giver,
                taker=taker,
                cluster="tiger",
                sku="H200",
                gpus=gpus,
                until=now + timedelta(milliseconds=1) if kind < 0.2 else None,
                is_new_taker=True,
                now=now,
            ),
            actor=name,
            teams=[giver, taker],
            reads=[TIGER.stream],
        )
    elif kind < 0.9:
        asked = Asked(taker, "H200", gpus, is_new_team=True)
        answer, _, _ = carry_out(
            keeper, lambda state, now: desk.ask(state, asked, by=name, now=now, returns={}), actor=name, teams=[taker]
        )
        request = answer.request.id
        carry_out(
            keeper,
            lambda state, now: desk.approve(state, request, now=now, returns={}),
            actor=name,
            teams=[taker],
            requests=[request],
        )
    else:
        policy = parse_word(chance.choice(["fixed:0", "fixed:0.2"]))
        now = keeper.ledger.clock()
        apply_plan(keeper, lambda state: make_plan(state, policy, now=now), actor=name, needs_notice=False)


def race_in_a_process(tell: Callable[[Any], None], dsn: str, name: str, seed: int) -> None:
    tell("ready")
    tell(_race(dsn, name, seed, ROUNDS))


@pytest.mark.parametrize("where", ["threads", "processes"])
def test_a_transfer_that_races_with_third_parties_is_atomic(dsn: str, where: str) -> None:
    chance = new_chance()
    seeds = {name: chance.randrange(10**9) for name in ("one", "two", "three")}
    Office(START, dsn=dsn).keeper.close()
    outcomes: list[str] = []
    if where == "threads":
        with ThreadPoolExecutor(len(seeds)) as pool:
            for each in [pool.submit(_race, dsn, name, seed, ROUNDS) for name, seed in seeds.items()]:
                outcomes += each.result()
    else:
        with ExitStack() as stack:
            children = [stack.enter_context(Child(race_in_a_process, dsn, *pair)) for pair in seeds.items()]
            assert {child.hear() for child in children} == {"ready"}
            for child in children:
                outcomes += child.hear()
                child.finish()
    with open_keeper(dsn) as keeper:
        assert assert_history(keeper) >= 1
        assert "done" in outcomes
        assert set(outcomes) <= {"done", "stale", "over_guarantee", "borrowed", "nothing_to_approve", "not_aligned"}
        requests = keeper.state().of(QuotaBook).requests
        assert sorted(requests) == sorted(f"q{number}" for number in range(1, len(requests) + 1))


def test_a_third_team_that_grabs_all_it_can_never_gets_what_is_being_given(dsn: str) -> None:
    """All is promised. Audio asks again and again for whatever is free, while vision gives voice all it has, node
    by node: nothing is free at any moment, so audio gets nothing.
    """
    full = {"audio": 8, "vision": 64, "voice": 8}
    Office(full, dsn=dsn).keeper.close()

    def give() -> None:
        with open_keeper(dsn) as keeper:
            while keeper.state().of(QuotaBook).guaranteed_in(TIGER).get("vision", 0):
                try:
                    carry_out(
                        keeper,
                        lambda state, now: moves.transfer(
                            state, giver="vision", taker="voice", cluster="tiger", sku="H200", gpus=8, now=now
                        ),
                        actor="giver",
                        reads=[TIGER.stream],
                    )
                except Stale:
                    continue

    def grab() -> set[str]:
        seen = set()
        with open_keeper(dsn) as keeper:
            for _ in range(ROUNDS):
                state = keeper.state()
                asked = Asked("audio", "H200", 8)
                answer, _ = desk.ask(state, asked, by="audio", now=NOW, returns={})
                seen |= {str(option.code) for option in answer.options}
        return seen

    with ThreadPoolExecutor(3) as pool:
        giving, grabbing = pool.submit(give), [pool.submit(grab) for _ in range(2)]
        giving.result()
        for each in grabbing:
            assert "guaranteed_now" not in each.result()
    with open_keeper(dsn) as keeper:
        assert assert_history(keeper) == 8
        assert keeper.state().of(QuotaBook).guaranteed_in(TIGER) == {"audio": 8, "voice": 72}
        actors = {event.actor for event in keeper.ledger.store.events(where=EventFilter(kind=QuotaTransferred.kind))}
        assert actors == {"giver"}
