"""What `why` says would help: cheapest first, and true. Each is carried out for real here, and the work must start."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import msgspec
import pytest

from plimsoll.errors import PlimsollError
from plimsoll.fleet.model import Service
from plimsoll.health.changes import HoldPlaced, WorkAnnounced
from plimsoll.health.facts import Hold
from plimsoll.health.model import Ahead
from plimsoll.quota.changes import PoolAligned, QuotaGranted, QuotaTransferred
from plimsoll.quota.model import Tier
from plimsoll.quota.plan import policy_in_force
from plimsoll.workloads import desk
from plimsoll.workloads.changes import TeamHoldPlaced
from plimsoll.workloads.model import RunsAs, Spec, TeamHold
from plimsoll.workloads.shape import missing_parts
from plimsoll.workloads.why.actions import TRIES_MAX
from plimsoll.workloads.why.model import Action, WorkWhy
from plimsoll.workloads.why.workload import explain_workload
from tests.property.test_why_sums import random_yard
from tests.support.yard import Yard, elastic, gang, spec
from tests.workloads.why.test_workload import two_graders

GRACE = timedelta(minutes=15)


def why(yard: Yard, name: str) -> WorkWhy:
    return explain_workload(yard.state, name, now=yard.now, grace=yard.grace, policy=policy_in_force(yard.state))


def hold(yard: Yard, gpus: int, keeper: str = "ana", hold_id: str = "h1") -> None:
    until = yard.now + timedelta(days=1)
    yard.do(TeamHoldPlaced(TeamHold(hold_id, "red", "tiger", "H200", gpus, keeper, until)))


def kept_for_ana() -> Yard:
    """Red keeps 8 of its 16 for ana: a gang of 16 is flex, and blue holds no more of that for its guarantee than red
    would. 8 are free; once it is inside the guarantee, 8 of blue's flex go.
    """
    yard = Yard({"tiger": {"a": 8}}, {"tiger": {"red": 16, "blue": 48}})
    hold(yard, 8)
    yard.submit(spec("b1", "blue", gang(8)), spec("b2", "blue", elastic(0, 6), runs_as=RunsAs.FLEX))
    yard.submit(spec("mine", "red", gang(16)))
    return yard


def broken_node() -> Yard:
    """All 4 nodes are needed, one is out until told."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.set_service(["tiger-a-3"], Service.REPAIR, "xid 79")
    back = yard.now + timedelta(hours=3)
    yard.do(HoldPlaced("tiger-a-3", Hold("h", "crew", Service.REPAIR, "xid 79", yard.now, expected_return=back)))
    yard.submit(spec("mine", "red", gang(32)))
    return yard


def own_work_first() -> Yard:
    """Red's 24 are used by a gang of 8 and one of 16, both before a gang of 16; blue has the other 8."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 24, "blue": 8}})
    yard.submit(spec("b1", "blue", gang(8)))
    yard.submit(spec("small", "red", gang(8, tier=Tier.CRITICAL)), spec("large", "red", gang(16, tier=Tier.CRITICAL)))
    yard.submit(spec("mine", "red", gang(16, tier=Tier.LOW)))
    return yard


def own_replicas() -> Yard:
    """Red's 32 are all used by four replicas, of which one must stay, before a gang of 16."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.submit(spec("graders", "red", elastic(1, 4, tier=Tier.CRITICAL)))
    yard.submit(spec("mine", "red", gang(16, tier=Tier.LOW)))
    return yard


def unused_by_blue() -> Yard:
    """Blue is guaranteed 24 and uses none; green's flex fills all. Red has nothing in tiger and needs 16."""
    yard = Yard({"tiger": {"a": 4}, "lion": {"a": 1}}, {"tiger": {"blue": 24, "green": 8}, "lion": {"red": 8}})
    yard.submit(spec("g1", "green", elastic(0, 4), runs_as=RunsAs.FLEX, cluster="tiger"))
    yard.submit(spec("mine", "red", gang(16), cluster="tiger"))
    return yard


def under_the_line() -> Yard:
    """The line is 32 and 16 are promised: 16 could be granted. Green's flex fills what blue leaves."""
    yard = Yard({"tiger": {"a": 4}, "lion": {"a": 1}}, {"tiger": {"blue": 8, "green": 8}, "lion": {"red": 8}})
    yard.do(PoolAligned("tiger", "H200", 32, "fixed:0", {"blue": 8, "green": 8}))
    yard.submit(spec("b1", "blue", gang(8), cluster="tiger"), spec("g1", "green", gang(8), cluster="tiger"))
    yard.submit(spec("g2", "green", elastic(0, 2), runs_as=RunsAs.FLEX, cluster="tiger"))
    yard.submit(spec("mine", "red", gang(16), cluster="tiger"))
    return yard


def another_cluster() -> Yard:
    """Tiger is full, lion is empty."""
    yard = Yard({"tiger": {"a": 2}, "lion": {"a": 2}}, {"tiger": {"blue": 16}, "lion": {"red": 8}})
    yard.submit(spec("b1", "blue", gang(16), cluster="tiger"))
    yard.submit(spec("mine", "red", gang(16), cluster="tiger"))
    return yard


def planned_ahead() -> Yard:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    starts = yard.now + timedelta(hours=5)
    yard.do(WorkAnnounced(Ahead("fw", "crew", ("tiger-a-1",), starts, starts + timedelta(hours=4), "firmware")))
    yard.submit(spec("mine", "red", gang(16), hours=24))
    return yard


def work_that_ends() -> Yard:
    """A run that said to need 6 hours has all of the island, since two hours."""
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    yard.submit(spec("first", "red", gang(16), hours=6))
    yard.wait(hours=2)
    yard.submit(spec("mine", "red", gang(16, tier=Tier.LOW)))
    return yard


def insists() -> Yard:
    """It insists on a guarantee of 16 and has one of 8; all is free."""
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 8, "blue": 8}})
    yard.submit(spec("mine", "red", gang(16), runs_as=RunsAs.GUARANTEED))
    return yard


def lent_by_a_teammate() -> Yard:
    """Red's 16 are used by a run that came first with the same rank; 16 more are free, for flex alone."""
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 16}})
    yard.submit(spec("first", "red", gang(16, tier=Tier.CRITICAL)))
    yard.submit(spec("mine", "red", gang(16, tier=Tier.CRITICAL), runs_as=RunsAs.GUARANTEED))
    return yard


class Case(NamedTuple):
    make: Callable[[], Yard]
    name: str
    want: dict[str, tuple[str, int, int, int]]
    """By kind: harm, and the GPUs moved, of own work, of others' flex."""


CASES = {
    "replicas in the way move to another island": Case(
        two_graders,
        "posttrain-42",
        {"move_replicas": ("moved", 20, 0, 0), "smaller": ("own_work", 0, 16, 0)},
    ),
    "what the team keeps for somebody is released": Case(
        kept_for_ana, "mine", {"release_hold": ("others_flex", 0, 0, 8)}
    ),
    "a node comes back when it was told": Case(
        broken_node, "mine", {"smaller": ("own_work", 0, 8, 0), "wait_nodes": ("waiting", 0, 0, 0)}
    ),
    "own work that comes before it is cancelled, or put after it": Case(
        own_work_first, "mine", {"stop_own": ("own_work", 0, 16, 0), "lower_own": ("own_work", 0, 16, 0)}
    ),
    "own work is put after it and runs on as flex": Case(
        lent_by_a_teammate, "mine", {"lower_own": ("nobody", 0, 0, 0)}
    ),
    "own replicas are scaled down, or it is put before them": Case(
        own_replicas, "mine", {"stop_own": ("own_work", 0, 16, 0), "rank": ("own_work", 0, 16, 0)}
    ),
    "guarantee that nobody uses is taken over": Case(
        unused_by_blue,
        "mine",
        {"transfer": ("others_flex", 0, 0, 16)},
    ),
    "what lies under the line is asked for": Case(
        under_the_line,
        "mine",
        {"request": ("others_flex", 0, 0, 16)},
    ),
    "it starts in another cluster": Case(another_cluster, "mine", {"elsewhere": ("nobody", 0, 0, 0)}),
    "planned work ahead is waited for, or it is shorter": Case(
        planned_ahead,
        "mine",
        {"shorter": ("nobody", 0, 0, 0), "smaller": ("own_work", 0, 8, 0), "wait_planned": ("waiting", 0, 0, 0)},
    ),
    "work that said how long it takes is waited for": Case(
        work_that_ends, "mine", {"stop_own": ("own_work", 0, 16, 0), "wait_work": ("waiting", 0, 0, 0)}
    ),
    "a guarantee is not insisted on": Case(
        insists,
        "mine",
        {"as_flex": ("nobody", 0, 0, 0), "transfer": ("nobody", 0, 0, 0), "smaller": ("own_work", 0, 8, 0)},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_helps_and_what_it_costs(case: Case) -> None:
    yard = case.make()
    assert case.name not in yard.work.workloads
    found = why(yard, case.name)
    told = {each.acts[0].kind.value: (each.harm.value, each.moved, each.own, each.others) for each in found.actions}
    assert {kind: told.get(kind) for kind in case.want} == case.want
    assert [each.cost for each in found.actions] == sorted(each.cost for each in found.actions)
    assert all(each.checked for each in found.actions)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_action_is_true(case: Case) -> None:
    """Carried out by the commands that it names, each lets the work start when it says."""
    for number in range(len(why(case.make(), case.name).actions)):
        yard = case.make()
        action = why(yard, case.name).actions[number]
        carry_out(yard, action, case.name)
        yard.now = max(yard.now, action.starts)
        yard.round()
        assert has_started(yard, case.name), action.acts


def has_started(yard: Yard, name: str) -> bool:
    return not missing_parts(yard.work.asked[name].spec, yard.work.workloads.get(name))


def carry_out(yard: Yard, action: Action, name: str) -> None:
    """What a person would do, by the words of the action alone."""
    file = yard.work.asked[name].spec
    for act in action.acts:
        for command in act.command.partition("#")[0].split("; "):
            _type(yard, act.kind.value, act.says, command.split(), file, act.command.partition("#")[2])


def _type(yard: Yard, kind: str, says: str, words: list[str], file: Spec, change: str) -> None:
    turn = yard.turn()
    option = {word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}
    match words[1:3]:
        case ["workload", "release"]:
            desk.release_quota(turn, words[3], grace=yard.grace)
        case ["workload", "cancel"]:
            desk.cancel(turn, words[3], how="cancelled", grace=yard.grace)
        case ["workload", "scale"]:
            desk.scale(turn, words[3], option["--part"], least=None, most=int(option["--max"]), grace=yard.grace)
        case ["workload", "rank"]:
            tier, rank = Tier(option["--tier"]), int(option["--rank"])
            desk.rank(turn, words[3], option["--part"], tier=tier, rank_now=rank, grace=yard.grace)
        case ["quota", "transfer"]:
            yard.do(QuotaTransferred(option["--cluster"], option["--sku"], words[3], words[4], int(words[5])))
        case ["quota", "request"]:
            yard.do(QuotaGranted(option["--cluster"], option["--sku"], words[3], int(words[4])))
        case ["workload", "submit"]:
            yard.submit(_changed(file, kind, change))
        case ["workload", "defrag"]:
            _move(yard, says)
        case ["workload", "show"]:
            for each in re.findall(r"until ([\w, -]+) should", says)[0].split(", "):
                desk.cancel(turn, each, how="finished", grace=yard.grace)
        case ["why", _]:
            yard.set_service(re.findall(r"until ([\w, -]+) (?:is|are) back", says)[0].split(", "), Service.IN_SERVICE)
        case ["health", "announced"] | ["workload", "run"]:
            pass
        case other:
            raise AssertionError(other)


def _changed(old: Spec, kind: str, change: str) -> Spec:
    """A workload's file with what the advice says, as a person would read it."""
    if kind == "smaller":
        [(what, size, name)] = re.findall(r"^ with (gpus|min): (\d+) for ([\w-]+)$", change)
        fields = {"gpus" if what == "gpus" else "least": int(size)}
        parts = tuple(
            msgspec.structs.replace(part, **fields) if part.name == name else part for part in old.parts
        )  # fmt: skip
        return msgspec.structs.replace(old, parts=parts)
    if kind in ("elsewhere", "other_sku"):
        where = spec("x", "y", cluster=re.findall(r"cluster: ([\w-]+)", change)[0]).where
        return msgspec.structs.replace(old, where=where)
    if kind == "shorter":
        return msgspec.structs.replace(old, hours=float(change.rpartition(" ")[2]))
    assert change == " with as: any"
    return msgspec.structs.replace(old, runs_as=RunsAs.ANY)


def _move(yard: Yard, says: str) -> None:
    """Replicas are moved by stopping them in one island and starting them in another."""
    from plimsoll.fleet.model import PoolKey
    from plimsoll.workloads.model import Place
    from plimsoll.workloads.repair import move_replicas
    from plimsoll.workloads.rights import held_in, part_spec

    pattern = r"([\d,]+) replicas? of ([\w-]+)/([\w-]+) from ([\w-]+) to ([\w-]+(?:, [\w-]+)*)"
    for count, work, part, island, targets in re.findall(pattern, says):
        turn = yard.turn()
        cluster = yard.work.workloads[work].cluster
        pool = PoolKey(cluster, "H200")
        [held] = [each for each in held_in(turn, pool) if (each.work, each.part, each.is_spare) == (work, part, False)]
        unit, left, places = part_spec(turn, held).gpus, int(count), []
        for target in targets.split(", "):
            fits = min(left, yard.free(cluster, target.partition("-")[2]) // unit)
            left -= fits
            places.append(Place(part, target, fits * unit))
        assert not left, says
        move_replicas(turn, held, pool, island, [each for each in places if each.gpus], by="test")


def test_only_together() -> None:
    """It insists on its guarantee of 40: the hold of 8 must go for the right, and blue's replica for the room."""
    yard = Yard({"tiger": {"a": 1, "b": 5}}, {"tiger": {"red": 40, "blue": 8}})
    yard.submit(spec("filler", "red", gang(8)))
    yard.submit(spec("eval", "blue", elastic(0, 1)))
    yard.cancel("filler")
    assert yard.islands("eval") == {"b": 8}
    hold(yard, 8)
    yard.submit(spec("mine", "red", gang(40), runs_as=RunsAs.GUARANTEED))
    best = why(yard, "mine").actions[0]
    assert [act.kind for act in best.acts] == ["release_hold", "move_replicas"]
    assert (best.harm, best.moved, best.own, best.others) == ("moved", 8, 0, 0)
    carry_out(yard, best, "mine")
    yard.round()
    assert yard.islands("mine") == {"b": 40}


def test_two_nodes_are_waited_for_until_the_second_is_back() -> None:
    yard = Yard({"tiger": {"a": 4}}, {"tiger": {"red": 32}})
    yard.set_service(["tiger-a-1", "tiger-a-2"], Service.REPAIR, "xid 79")
    for node, hours in (("tiger-a-1", 5), ("tiger-a-2", 3)):
        back = yard.now + timedelta(hours=hours)
        yard.do(HoldPlaced(node, Hold("h", "crew", Service.REPAIR, "xid 79", yard.now, expected_return=back)))
    yard.submit(spec("mine", "red", gang(32)))
    [action] = [each for each in why(yard, "mine").actions if each.harm == "waiting"]
    assert (action.starts, action.is_estimate) == (yard.now + timedelta(hours=5), False)


def test_flex_that_must_leave_has_its_time_of_grace() -> None:
    """Whoever calls flex back starts when that is over; whoever needs nobody to leave starts at once."""
    yard = kept_for_ana()
    yard.grace = GRACE
    starts = {each.acts[0].kind.value: each.starts - yard.now for each in why(yard, "mine").actions}
    assert (starts["release_hold"], starts["smaller"]) == (GRACE, timedelta(0))


def test_somebody_before_it_in_the_queue_takes_the_room_first() -> None:
    """Two gangs of 32 wait for the node that is out; it comes back for the first of them only."""
    yard = broken_node()
    yard.submit(spec("second", "red", gang(32)))
    assert "wait_nodes" in {each.acts[0].kind.value for each in why(yard, "mine").actions}
    assert "wait_nodes" not in {each.acts[0].kind.value for each in why(yard, "second").actions}


def test_work_that_nothing_hinders_is_said_to_start() -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    yard.set_service(["tiger-a-1"], Service.REPAIR)
    yard.submit(spec("mine", "red", gang(16)))
    yard.set_service(["tiger-a-1"], Service.IN_SERVICE)
    found = why(yard, "mine")
    assert (found.standing, found.cause, found.missing) == ("startable", None, 0)
    assert found.answer[0] == "Yes: mine can start now in H200 of tiger, as guaranteed."


def test_the_search_has_a_bound_and_says_when_it_met_it() -> None:
    yard = Yard({"tiger": {"a": 2, "b": 2}}, {"tiger": {"red": 16, "blue": 16}})
    for number in range(3):
        hold(yard, 4, keeper=f"p{number}", hold_id=f"h{number}")
    yard.submit(spec("b1", "blue", gang(16)), spec("b2", "blue", gang(8)))
    yard.submit(spec("r1", "red", gang(4)))
    yard.submit(spec("mine", "red", gang(16)))
    found = why(yard, "mine")
    assert found.checks <= TRIES_MAX + 20


@pytest.mark.parametrize("seed", range(120))
def test_no_action_is_ever_untrue(seed: int) -> None:
    """In whatever state: the cheapest action, carried out, lets the work start."""
    yard = random_yard(seed)
    names = sorted(name for name in yard.work.asked if not has_started(yard, name) and name not in yard.work.bookings)
    if not names:
        return
    name = random.Random(seed).choice(names)
    found = why(yard, name)
    if not found.actions or not found.actions[0].queue_checked:
        return
    action = found.actions[0]
    try:
        carry_out(yard, action, name)
    except PlimsollError as error:
        raise AssertionError(f"{action.acts}: {error.message}") from error
    yard.now = max(yard.now, action.starts)
    yard.round()
    if name in yard.work.bookings:
        yard.now = max(yard.now, yard.work.bookings[name].due)
        yard.round()
    assert has_started(yard, name), action.acts
