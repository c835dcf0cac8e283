"""Which silences are asked for, and what is done to those that are there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.campaigns.publish.model import Published
from plimsoll.campaigns.publish.service import cancel_silences, sync_silences
from plimsoll.campaigns.publish.silences import (
    NODES_MAX,
    VALUE_CHARS_MAX,
    Silencing,
    decide,
    make_silencing,
    read_tag,
    split,
    wanted,
)
from plimsoll.connect.alertmanager import GONE, Matcher, Silence
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError
from tests.campaigns.publish.plans import MONDAY, NOW, batch, publish, unit


class Double:
    """Alertmanager's rules for silences, as its 0.25 has them; tests/real asks the real one the same.

    `faults`: for each call of `save` or `expire`, whether it fails and whether it is carried out nevertheless.
    """

    where = "http://double"

    def __init__(self, clock: Callable[[], datetime] = lambda: NOW) -> None:
        self.clock = clock
        self.found: dict[str, Silence] = {}
        self.faults: list[str] = []
        self.calls = 0

    def silences(self) -> list[Silence]:
        return [self._now(silence) for silence in self.found.values()]

    def living(self) -> list[Silence]:
        return [silence for silence in self.silences() if not silence.is_expired]

    def _now(self, silence: Silence) -> Silence:
        now = self.clock()
        state = "expired" if silence.ends_at <= now else "pending" if silence.starts_at > now else "active"
        return Silence(
            silence.id, silence.matchers, silence.starts_at, silence.ends_at, silence.created_by, silence.comment, state
        )

    def save(
        self,
        *,
        matchers: tuple[Matcher, ...],
        starts_at: datetime,
        ends_at: datetime,
        created_by: str,
        comment: str,
        silence_id: str = "",
    ) -> str:
        fault = self._fault()
        now = self.clock()
        assert starts_at < ends_at
        if ends_at <= now:
            raise Refused("alertmanager_refused", "end time can't be in the past")
        name = silence_id
        if silence_id:
            if silence_id not in self.found:
                raise Refused(GONE, "silence not found")
            known = self._now(self.found[silence_id])
            is_pending = known.state == "pending" and starts_at >= now
            is_same = set(known.matchers) == set(matchers) and (
                is_pending or (known.state == "active" and known.starts_at == starts_at)
            )
            if not is_same:
                self._end(silence_id)
                name = ""
        if not name:
            name, starts_at = f"id-{len(self.found)}", max(starts_at, now)
        self.found[name] = Silence(name, matchers, starts_at, ends_at, created_by, comment, "")
        self._fail(fault)
        return name

    def expire(self, silence_id: str) -> None:
        fault = self._fault()
        self._end(silence_id)
        self._fail(fault)

    def _end(self, silence_id: str) -> None:
        known = self.found[silence_id]
        self.found[silence_id] = Silence(
            silence_id, known.matchers, known.starts_at, self.clock(), known.created_by, known.comment, ""
        )

    def _fault(self) -> str:
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise Unavailable("alertmanager_unavailable", "not now")
        if fault == "killed before":
            raise KeyboardInterrupt
        return fault

    def _fail(self, fault: str) -> None:
        if fault == "after":
            raise Unavailable("alertmanager_unavailable", "no whole answer")
        if fault == "killed after":
            raise KeyboardInterrupt


def at(moment: datetime) -> Callable[[], datetime]:
    return lambda: moment


def sync(published: Published, server: Double, **more: object) -> tuple[int, int, int, int]:
    done = sync_silences(published, server, clock=server.clock, **more)  # type: ignore[arg-type]
    return done.kept, done.created, done.replaced, done.expired


def test_a_silence_matches_the_nodes_of_its_batch_and_says_what_it_is() -> None:
    (asked,) = wanted(publish([batch()], number=3), Silencing())
    value = "tiger-1-000|tiger-1-001|tiger-1-002|tiger-1-003"
    assert asked.matchers == (Matcher("node", value, is_regex=True),)
    assert (asked.starts_at, asked.ends_at) == (MONDAY, MONDAY + timedelta(hours=4))
    assert asked.comment == "Planned work: nic-firmware, plan 3, batch tiger#1 [plimsoll nic-firmware tiger#1 1]"


def test_labels_ports_and_time_around_can_be_set() -> None:
    silencing = make_silencing("instance", more=[("cluster", "tiger")], before=timedelta(minutes=30))
    (asked,) = wanted(publish([batch()], names={"tiger#1": ("n1.example", "n-2")}), silencing)
    nodes, cluster = asked.matchers
    assert cluster == Matcher("cluster", "tiger")
    matches = [name for name in ("n1.example:9400", "n-2", "n1xexample", "n-22", "n-2:x") if fits(nodes, name)]
    assert matches == ["n1.example:9400", "n-2"]
    assert asked.starts_at == MONDAY - timedelta(minutes=30)
    with pytest.raises(UsageError) as caught:
        make_silencing("no-de")
    assert caught.value.code == "bad_label"


def fits(matcher: Matcher, value: str) -> bool:
    return bool(re.fullmatch(matcher.value, value)) if matcher.is_regex else matcher.value == value


@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1), min_size=1, unique=True))
def test_exactly_the_named_nodes_are_silent(names: list[str]) -> None:
    asked = wanted(publish([batch()], names={"tiger#1": tuple(names)}), Silencing())
    for name in [*names, "other", f"{names[0]}x", names[0][:-1]]:
        hits = sum(fits(each.matchers[0], name) for each in asked)
        assert hits == (1 if name in names else 0), name


def test_many_nodes_are_split() -> None:
    parts = split([f"n{number:05}" for number in range(2 * NODES_MAX + 1)])
    assert [len(part) for part in parts] == [NODES_MAX, NODES_MAX, 1]
    long = split(["x" * 3_000 + str(number) for number in range(5)])
    assert [len(part) for part in long] == [2, 2, 1]
    assert all(sum(len(name) + 1 for name in part) <= VALUE_CHARS_MAX for part in long)
    published = publish([batch(nodes=600)], units=[unit(nodes=600)])
    assert [each.tag.part for each in wanted(published, Silencing())] == [1, 2, 3]


def test_what_is_done_or_called_off_needs_no_silence() -> None:
    batches = [batch(), batch("lion"), batch("bear")]
    published = publish(batches, done=frozenset({"tiger#1"}), called_off=frozenset({"lion#1"}))
    assert [each.tag.batch for each in wanted(published, Silencing())] == ["bear#1"]


def test_published_twice_nothing_is_there_twice() -> None:
    server = Double()
    published = publish([batch(), batch("lion")])
    assert sync(published, server) == (0, 2, 0, 0)
    assert sync(published, server) == (2, 0, 0, 0)
    assert server.calls == 2


def test_a_new_plan_replaces_the_silences_of_the_old_one() -> None:
    server = Double()
    first = publish([batch(), batch("lion"), batch("wolf")])
    sync(first, server)
    second = publish([batch(day=2), batch("lion"), batch("bear")], number=2)
    assert sync(second, server) == (0, 1, 2, 1)
    found = {read_tag(silence).batch: silence for silence in server.living()}  # type: ignore[union-attr]
    assert {name: silence.starts_at - MONDAY for name, silence in found.items()} == {
        "tiger#1": timedelta(days=2),
        "lion#1": timedelta(0),
        "bear#1": timedelta(0),
    }
    assert all("plan 2," in silence.comment for silence in found.values())


def test_a_silence_that_is_active_is_changed_in_place() -> None:
    """Only its number is new: with another start it would be ended, and alerts would be loud for a moment."""
    server = Double()
    sync(publish([batch()]), server)
    server.clock = at(MONDAY + timedelta(hours=1))
    assert sync(publish([batch()], number=2), server) == (0, 0, 1, 0)
    assert list(server.found) == ["id-0"]
    assert sync(publish([batch()], number=2), server) == (1, 0, 0, 0)


def test_a_batch_that_has_begun_is_silent_from_now() -> None:
    server = Double(at(MONDAY + timedelta(hours=1)))
    published = publish([batch(), batch("lion", day=-1)])
    assert sync(published, server) == (0, 1, 0, 0)
    (silence,) = server.living()
    assert (silence.starts_at, silence.state) == (MONDAY + timedelta(hours=1), "active")
    server.clock = at(MONDAY + timedelta(hours=2))
    assert sync(published, server) == (1, 0, 0, 0)


def test_silences_of_others_are_left_alone() -> None:
    server = Double()
    end, node = MONDAY + timedelta(hours=4), (Matcher("node", "tiger-1-000"),)
    tag = "[plimsoll nic-firmware tiger#1 1]"
    for who, comment in (("ada", f"my own {tag}"), ("plimsoll", "[plimsoll other tiger#1 1]"), ("plimsoll", "by hand")):
        server.save(matchers=node, starts_at=MONDAY, ends_at=end, created_by=who, comment=comment)
    published = publish([batch()])
    assert sync(published, server) == (0, 1, 0, 0)
    done = cancel_silences(published, server, clock=server.clock)
    assert (done.expired, len(server.living())) == (1, 3)


def test_of_two_that_are_alike_one_is_ended() -> None:
    server = Double()
    published = publish([batch()])
    sync(published, server)
    (silence,) = server.living()
    server.save(
        matchers=silence.matchers,
        starts_at=silence.starts_at,
        ends_at=silence.ends_at,
        created_by=silence.created_by,
        comment=silence.comment,
    )
    assert sync(published, server) == (1, 0, 0, 1)
    assert len(server.living()) == 1


def test_what_somebody_removed_meanwhile_is_made_anew() -> None:
    server = Double()
    sync(publish([batch()]), server)
    silences, listed = server.silences, server.silences()
    calls = iter([listed])
    server.silences = lambda: next(calls, None) or silences()  # type: ignore[method-assign]
    server.found.clear()
    sync(publish([batch(day=1)], number=2), server)
    assert [silence.starts_at for silence in server.living()] == [MONDAY + timedelta(days=1)]


def test_a_server_that_stays_down_is_said_to_be() -> None:
    server = Double()
    server.faults = ["before"] * 20
    with pytest.raises(PlimsollError) as caught:
        sync(publish([batch()]), server)
    assert caught.value.code == "alertmanager_unavailable"
    assert server.calls <= 8


FAULTS = st.lists(st.sampled_from(["", "", "before", "after", "killed before", "killed after"]), max_size=12)
PLANS = st.lists(
    st.dictionaries(st.sampled_from(["tiger", "lion", "bear"]), st.integers(0, 2), max_size=3), min_size=1, max_size=4
)


@given(PLANS, FAULTS)
def test_never_two_for_one_batch_and_never_one_too_many(plans: list[dict[str, int]], faults: list[str]) -> None:
    server = Double()
    server.faults = list(faults)
    for number, chosen in enumerate(plans, start=1):
        published = publish([batch(name, day=day) for name, day in chosen.items()], number=number)
        for _ in range(20):
            try:
                sync(published, server)
            except (KeyboardInterrupt, Unavailable):
                assert_no_doubles(server)  # whatever happened, no batch has two
            else:
                break
        assert_no_doubles(server)
        assert {(read_tag(each).batch, each.starts_at) for each in server.living()} == {  # type: ignore[union-attr]
            (f"{name}#1", MONDAY + timedelta(days=day)) for name, day in chosen.items()
        }
        asked = wanted(published, Silencing())
        assert decide(asked, server.silences(), campaign="nic-firmware", now=NOW).is_nothing


def assert_no_doubles(server: Double) -> None:
    tags = [read_tag(each) for each in server.living()]
    assert len(tags) == len(set(tags))
