"""What is wrong is found: short pools, work that waits, breakers, feeds, caps; and what is right is not."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from plimsoll.campaigns.run.caps import ExceededCaps
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.changes import BreakerReset, BreakerTripped, FeedChanged
from plimsoll.incidents.finders import late_waits, short_pools, silent_feeds, tripped_breakers
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Look
from plimsoll.incidents.reasons import Kind
from plimsoll.incidents.service import run_pass
from plimsoll.rooms import FINDERS
from tests.support.dock import FILE, Dock, with_lines
from tests.support.harbour import Harbour, Work
from tests.support.yard import Yard, gang, spec

HOUR = timedelta(hours=1)


def test_a_pool_is_short_when_fewer_work_than_are_guaranteed() -> None:
    with Harbour(10, {"a": 6, "b": 4}) as harbour:
        harbour.apply()
        assert list(short_pools(Look(harbour.state, harbour.now))) == []
        began = harbour.now + HOUR
        harbour.wait(HOUR)
        harbour.work_only(8)
        harbour.wait(HOUR)
        harbour.work_only(7)
        (found,) = short_pools(Look(harbour.state, harbour.now))
        assert (found.kind, found.about, found.amount, found.unit) == (
            Kind.BROKEN_PROMISE,
            "pool/tiger/H200",
            3 * 8,
            "gpus",
        )
        assert found.since == began, "when the first of the missing nodes left"
        assert found.teams == ("a", "b")
        assert "80 guaranteed, 56 healthy; 3 nodes out, 0 of them planned" in found.detail


def test_a_pool_is_short_since_the_node_that_made_it_so() -> None:
    with Harbour(12, {"a": 10}) as harbour:
        harbour.apply()
        for healthy in (11, 10, 9):
            harbour.wait(HOUR)
            harbour.work_only(healthy)
        (found,) = short_pools(Look(harbour.state, harbour.now + HOUR))
        assert (found.amount, found.since) == (8, harbour.now)


def test_a_pass_opens_notes_tells_and_closes_and_two_at_once_open_one() -> None:
    with Harbour(10, {"a": 10}, [Work("a", 10)]) as harbour:
        harbour.apply()
        harbour.work_only(8)
        assert [each.what for each in run_pass(harbour.keeper, FINDERS, harbour.now, "x")] == ["opened", "told"]
        assert run_pass(harbour.keeper, FINDERS, harbour.now, "y") == []
        harbour.wait(HOUR)
        harbour.work_only(10)
        assert [each.what for each in run_pass(harbour.keeper, FINDERS, harbour.now, "x")] == ["noted", "told"]
        harbour.wait(HOUR)
        assert [each.what for each in run_pass(harbour.keeper, FINDERS, harbour.now, "x")] == ["closed"]
        (incident,) = harbour.state.of(Incidents).incidents.values()
        assert incident.numbers is not None
        assert (incident.numbers.seconds, incident.numbers.most, incident.numbers.unit_hours) == (3600, 16, 16.0)
        lost, back = harbour.state.of(Incidents).notices["run-a"]
        assert (lost.gpus, str(lost.what), str(back.what)) == (16, "gpus_lost", "gpus_back")


def test_work_that_fits_its_guarantee_and_waits_beyond_its_grace() -> None:
    # 56 of 64 GPUs are promised and 56 work: the pool is not short, but red's island is.
    yard = Yard({"tiger": {"a": 4, "b": 4}}, {"tiger": {"red": 32, "blue": 24}})
    yard.observe("b1", "blue", "tiger", "b", 24)
    yard.lose("tiger-a-1")
    yard.submit(spec("r1", "red", gang(32)))
    assert list(late_waits(Look(yard.state, yard.now + timedelta(minutes=15)))) == [], "within its grace"
    (found,) = late_waits(Look(yard.state, yard.now + HOUR))
    assert (found.kind, found.about, found.amount) == (Kind.BROKEN_PROMISE, "team/red/tiger/H200", 32)
    assert (found.since, found.teams) == (yard.now + timedelta(minutes=15), ("red",))
    assert list(short_pools(Look(yard.state, yard.now + HOUR))) == []
    yard.lose("tiger-b-1")
    assert list(late_waits(Look(yard.state, yard.now + HOUR))) == [], "the pool is short: that is told already"
    assert [each.amount for each in short_pools(Look(yard.state, yard.now + HOUR))] == [8]


def test_work_that_waits_only_for_one_island_breaks_no_promise() -> None:
    yard = Yard({"tiger": {"a": 2, "b": 2}}, {"tiger": {"red": 16, "blue": 16}})
    yard.observe("b1", "blue", "tiger", "a", 8)
    yard.observe("b2", "blue", "tiger", "b", 8)
    yard.submit(spec("r1", "red", gang(16)))
    assert yard.cause("r1") == "island_fragmented"
    assert list(late_waits(Look(yard.state, yard.now + HOUR))) == []


def test_work_beyond_its_guarantee_that_waits_breaks_no_promise() -> None:
    yard = Yard({"tiger": {"a": 2}}, {"tiger": {"red": 16}})
    yard.submit(spec("r1", "red", gang(16)), spec("r2", "red", gang(16)))
    yard.wait(hours=2)
    assert "r2" in yard.work.waits
    assert list(late_waits(Look(yard.state, yard.now))) == []


def test_a_breaker_is_open_until_it_is_reset() -> None:
    with Harbour(4) as harbour:
        harbour.commit(BreakerTripped("cluster/tiger", 1, 3600.0, 1, ["n001", "n002"]))
        (found,) = tripped_breakers(Look(harbour.state, harbour.now))
        assert (found.kind, found.amount, found.clusters) == (Kind.BREAKER, 2, ("tiger",))
        assert found.detail == "1 node was taken out, at most 1 may be; 2 bad ones are held back in service"
        harbour.commit(BreakerReset("cluster/tiger"))
        assert list(tripped_breakers(Look(harbour.state, harbour.now))) == []


def test_a_feed_that_says_nothing_is_silent_also_before_anybody_recorded_it() -> None:
    with Harbour(4) as harbour:
        harbour.commit(FeedChanged("slurm", False, harbour.now, joined=["n000", "n001", "n002"]))
        harbour.commit(FeedChanged("chatter", False, harbour.now))
        heard = {"slurm": harbour.now, "chatter": harbour.now}
        assert list(silent_feeds(Look(harbour.state, harbour.now, heard))) == []
        later = harbour.now + timedelta(days=1)
        (found,) = silent_feeds(Look(harbour.state, later, heard))
        assert (found.about, found.amount, found.unit) == ("feed/slurm", 3, "nodes")
        assert harbour.now < found.since < later
        harbour.commit(FeedChanged("slurm", True, harbour.now))
        (found,) = silent_feeds(Look(harbour.state, later, {}))
        assert (found.amount, found.clusters) == (3, ("tiger",))
        harbour.commit(FeedChanged("slurm", False, later))
        assert list(silent_feeds(Look(harbour.state, later, {"slurm": later}))) == []


def test_more_is_out_than_a_cap_allows() -> None:
    limits = "limits: [{kind: out_at_once, at_most: 4, counts: all}, {kind: crews, at_most: 9}]"
    dock = Dock({"tiger": 4, "whale": 4}, with_lines(FILE, limits))
    dock.plan(tiger="05T11:00", whale="06T16:00")
    finder = ExceededCaps()
    assert list(finder(Look(dock.state, dock.now))) == [], "nothing runs"
    dock.start()
    dock.go("05T11:00")
    assert dock.services("tiger") == {"maintenance"}
    assert list(finder(Look(dock.state, dock.now))) == [], "4 of 4 may be out"
    broken = msgspec.structs.replace(dock.state.of(Fleet).nodes["whale-1"], service=Service.REPAIR)
    dock.commit(NodeRecorded(broken))
    (found,) = finder(Look(dock.state, dock.now))
    assert (found.kind, found.about, found.amount) == (Kind.CAP, "campaign/nic/limits[0]", 1)
    assert found.detail == "5 nodes out at once, at most 4 may be"
    assert list(finder(Look(dock.state, dock.now))) == [found]
