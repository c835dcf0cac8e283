"""Never over the line in force, never running work without an agreed notice that is due, never a flap: the controller
in mode `enforce` over random lives of a pool.

One random machine does what machines, teams, people and the clock do; around every round the rules are checked
against what the state said before, with sums and fills of the test's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from plimsoll.ledger.verify import verify
from plimsoll.quota.align import Stake
from plimsoll.quota.changes import PoolAligned
from plimsoll.quota.hull import look
from plimsoll.quota.lines import lines_now
from plimsoll.quota.model import Answer, Claim, Kind, Notice
from plimsoll.quota.plan import policy_in_force
from plimsoll.quota.policy import day_of
from plimsoll.rooms import KINDS
from tests.support.harbour import DAY, SIZE, TIGER, WEEK, Harbour, Work, policy_text
from tests.support.ledgers import events_of, fold_of

NODES = 40
TEAMS = ["a", "b", "c"]
DEAD_BAND = 10
"""In percent."""

_teams = st.sampled_from(TEAMS)
_nodes = st.integers(0, NODES)
_steps = st.sampled_from([timedelta(hours=1), timedelta(hours=23), DAY, 2 * DAY, 3 * DAY, WEEK, 8 * DAY])


class Before(NamedTuple):
    """What stood before a round, in GPUs."""

    guaranteed: Mapping[str, int]
    stakes: Sequence[Stake]
    notices: Mapping[str, Notice]
    healthy: int
    line: int

    @property
    def promised(self) -> int:
        return sum(self.guaranteed.values())


def _gangs_inside(claims: Sequence[Claim], guaranteed: int) -> set[str]:
    """The gangs that a guarantee holds whole, filled in the order of service."""
    left, held = guaranteed, set()
    for claim in claims:
        if claim.kind is Kind.GANG:
            if claim.gpus <= left:
                held.add(claim.work)
                left -= claim.gpus
        else:
            left -= min(left, claim.gpus)
    return held


def _busy(stake: Stake, guaranteed: int) -> int:
    """GPUs of a guarantee under work that does something; idle ones are charged to what is above it first."""
    used = sum(claim.gpus for claim in stake.claims)
    idle = sum(claim.idle_gpus for claim in stake.claims)
    beyond = max(0, used - guaranteed)
    return min(used, guaranteed) - max(0, idle - beyond)


class Lives(RuleBasedStateMachine):
    """One pool, three teams, a controller that may act."""

    def __init__(self) -> None:
        super().__init__()
        self.harbour = Harbour(NODES)
        self.harbour.mode()
        self.real = timedelta(0)
        """How much time has really passed, whatever the clock says."""
        self.changed: timedelta | None = None
        self.seen = 0

    def teardown(self) -> None:
        ledger = self.harbour.keeper.ledger
        assert verify(ledger.store).is_whole
        assert fold_of(events_of(ledger), KINDS).dump() == self.harbour.state.dump()
        self.harbour.keeper.close()

    @initialize(
        quotas=st.tuples(_nodes, _nodes, st.integers(0, 8)),
        policy=st.sampled_from([("0", "total"), ("0.15", "total"), ("0.1", "healthy")]),
        pin=st.sampled_from([0, 0, 5]),
        healthy=st.integers(25, NODES),
    )
    def _start(self, quotas: tuple[int, int, int], policy: tuple[str, str], pin: int, healthy: int) -> None:
        pins = {"a": pin} if pin else {}
        text = policy_text(buffer=policy[0], of=policy[1], dead_band=f"0.{DEAD_BAND}", pins=pins)
        self.harbour.rule(text)
        self.harbour.assign(**dict(zip(TEAMS, quotas, strict=True)))
        self.harbour.work_only(healthy, since=self.harbour.now - 30 * DAY)
        self.harbour.apply()
        self.changed = self.real
        self.seen = self.harbour.state.revision

    # What happens.

    @rule(healthy=_nodes)
    def health_moves(self, healthy: int) -> None:
        self.harbour.work_only(healthy)

    @rule(by=st.integers(-2, 2))
    def health_blinks(self, by: int) -> None:
        self.harbour.work_only(min(NODES, max(0, self.harbour.hull().healthy // SIZE + by)))

    @rule(
        team=_teams, gpus=st.integers(1, 20), idle=st.integers(0, 5), kind=st.sampled_from(Kind), run=st.integers(1, 2)
    )
    def work_starts(self, team: str, gpus: int, idle: int, kind: Kind, run: int) -> None:
        self.harbour.run(Work(team, gpus, min(idle, gpus), kind, name=f"{team}-{run}", rank=run))

    @rule(team=_teams, run=st.integers(1, 2))
    def work_ends(self, team: str, run: int) -> None:
        self.harbour.run(Work(team, 0, name=f"{team}-{run}"))

    @rule(team=_teams, nodes=_nodes)
    def book_changes(self, team: str, nodes: int) -> None:
        self.harbour.assign(**{team: nodes})

    @rule(step=_steps)
    def time_passes(self, step: timedelta) -> None:
        self.harbour.wait(step)
        self.real += step

    @rule(back=st.sampled_from([timedelta(minutes=1), timedelta(hours=5)]))
    def clock_goes_back(self, back: timedelta) -> None:
        self.harbour.now -= back

    @rule(team=_teams, answer=st.sampled_from([Answer.AGREED, Answer.AGREED, Answer.OBJECTED]))
    def team_answers(self, team: str, answer: Answer) -> None:
        if self.harbour.notice(team) is not None:
            self.harbour.agree(team, answer)

    @rule()
    def controller(self) -> None:
        before = self._before()
        self.harbour.control()
        after = self.harbour.book.guaranteed_in(TIGER)
        self._never_running_work_unasked(before, after)
        self._never_for_a_small_move(before, after)
        self._never_twice_a_week(before)
        head = self.harbour.state.revision
        self.harbour.control()
        assert self.harbour.state.revision == head, f"a second round wrote {self.harbour.kinds(head)}"

    @rule(nodes=st.integers(1, 4))
    def small_dip(self, nodes: int) -> None:
        """All fits, and a few nodes go out; the controller looks: within the band nothing moves."""
        before = self._before()
        if before.line < before.promised:
            return
        self.harbour.work_only(max(0, before.healthy // SIZE - nodes))
        dipped = self._before()
        if 0 < dipped.promised - dipped.line <= self._band(dipped):
            self.controller()
            assert self.harbour.book.guaranteed_in(TIGER) == before.guaranteed

    def _before(self) -> Before:
        state, now = self.harbour.state, self.harbour.now
        policy = policy_in_force(state)
        (pool,) = look(state, [TIGER], policy, day_of(now))
        line = lines_now(state, policy, now=now, pools=[TIGER])[TIGER].gpus
        return Before(dict(pool.guaranteed), pool.stakes, dict(self.harbour.book.notices), pool.healthy, line)

    def _never_running_work_unasked(self, before: Before, after: Mapping[str, int]) -> None:
        for stake in before.stakes:
            was, now = before.guaranteed.get(stake.team, 0), after.get(stake.team, 0)
            notice = before.notices.get("/".join((stake.team, *TIGER)))
            is_agreed = (
                notice is not None
                and notice.answer is Answer.AGREED
                and notice.due <= self.harbour.now
                and notice.guaranteed <= now
            )
            if now < was and not is_agreed:
                assert now >= _busy(stake, was), f"{stake.team} lost running capacity"
                assert _gangs_inside(stake.claims, was) <= _gangs_inside(stake.claims, now), f"{stake.team} lost a gang"

    def _band(self, before: Before) -> int:
        return before.promised // SIZE * DEAD_BAND // 100 * SIZE

    def _never_for_a_small_move(self, before: Before, after: Mapping[str, int]) -> None:
        band = self._band(before)
        moved = sum(after.values()) - before.promised
        if before.healthy >= before.promised and 0 < before.promised - before.line <= band:
            assert dict(after) == before.guaranteed
        is_whole = all(after.get(stake.team, 0) == stake.assigned for stake in before.stakes)
        assert moved <= 0 or moved > band or is_whole

    def _never_twice_a_week(self, before: Before) -> None:
        events = list(self.harbour.keeper.ledger.store.events(after=self.seen))
        self.seen = self.harbour.state.revision
        if not any(event.kind == PoolAligned.kind for event in events):
            return
        if self.changed is not None and self.real - self.changed < WEEK:
            assert before.healthy < before.promised, "twice within a week, though the promise held"
        self.changed = self.real

    # What always holds.

    @invariant()
    def never_over_the_line_in_force(self) -> None:
        book = self.harbour.book
        assert sum(book.guaranteed_in(TIGER).values()) <= book.line_of(TIGER)

    @invariant()
    def never_more_than_assigned_and_never_half_a_node(self) -> None:
        for key, gpus in self.harbour.book.guaranteed.items():
            assert 0 < gpus <= self.harbour.book.assigned_to(key)
            assert gpus % SIZE == 0

    @invariant()
    def never_a_hidden_shortfall(self) -> None:
        hull = self.harbour.hull()
        assert hull.shortfall == max(0, sum(self.harbour.book.guaranteed_in(TIGER).values()) - hull.healthy)


TestLives = Lives.TestCase
TestLives.settings = settings(stateful_step_count=25, report_multiple_bugs=False)
