"""One pass over a campaign: every batch is brought as far as it can go now. A service: it acts outside.

Each step is recorded before anything outside is touched, and all that is outside is asked how it is before it is
changed: a pass that was cut short is finished by the next. What each step is, and when, `stages` and `gate` decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

import msgspec

from plimsoll.campaigns.changes import BatchOpened, BatchStepped
from plimsoll.campaigns.marks.model import Marker
from plimsoll.campaigns.run.ahead import align_ahead
from plimsoll.campaigns.run.bookings import book_ahead
from plimsoll.campaigns.run.census import Census
from plimsoll.campaigns.run.desk import find_run
from plimsoll.campaigns.run.gate import Gatekeeper
from plimsoll.campaigns.run.impactless import do_impactless, still_old
from plimsoll.campaigns.run.outside import Did, Outside, errand_of, lost_nodes
from plimsoll.campaigns.run.progress import Phase, Progress, Run, Step, owner_of
from plimsoll.campaigns.run.stages import (
    UNTOUCHED,
    Act,
    Todo,
    begin,
    end_campaign,
    finish_work,
    give_back,
    hand_over,
    is_all_over,
    late_from,
    restore,
    still_out,
    tell_late,
    todo,
)
from plimsoll.campaigns.versions.decide import record_update
from plimsoll.connect.errands import Going, Result
from plimsoll.errors import Fenced, PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.acts import Acting, pass_checks
from plimsoll.health.service import load_memories
from plimsoll.ledger.model import Draft, Event
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.workloads.fold_tables import floor_of

VALIDATE_ATTEMPTS_MAX = 6
"""Up to this attempt, those at the work included, a validation that failed as a whole is tried again."""
STEPS_MAX = 12
"""Steps that one batch may go in one pass: from its begin to its end there are fewer."""


LOST_WORDS = "it was lost with the machine that ran it"


class Pass:
    """One pass over a campaign."""

    def __init__(self, keeper: Keeper, name: str, *, actor: str, outside: Outside, epoch: int | None = None) -> None:
        self._keeper, self._name, self._actor = keeper, name, actor
        self._outside, self._epoch = outside, epoch
        self.did: list[Did] = []
        self._census: Census | None = None

    def go(self) -> list[Did]:
        """Bring every batch as far as it can go now."""
        self._announce()
        self._book()
        tried: dict[str, int] = {}
        for _ in range(STEPS_MAX):
            moved = False
            for item in self._todo():
                if item.act is Act.WAIT or tried.get(item.batch.id, 0) >= STEPS_MAX:
                    continue
                tried[item.batch.id] = tried.get(item.batch.id, 0) + 1
                moved |= self._do(item)
            if not moved:
                break
        self._open_repaired()
        self.did += do_impactless(self._state(), self._run(), self._outside, self._commit, self._check_lead)
        self._end_if_over()
        return self.did

    def _state(self) -> State:
        return self._keeper.state()

    def _run(self) -> Run:
        return find_run(self._state(), self._name)

    def _todo(self) -> list[Todo]:
        state = self._state()
        floor_of(state)
        run = self._run()
        return todo(state, run, self._keeper.ledger.clock(), self._census_of(state, run))

    def _census_of(self, state: State, run: Run) -> Census:
        """Made once in a pass, and again only where the fleet or the file is another one."""
        fleet = state.of(Fleet)
        if self._census is None or not self._census.holds_for(run.campaign, fleet):
            self._census = Census(run.campaign, fleet)
        return self._census

    def _acting(self, names: Collection[str], reason: str = "") -> Acting:
        memories = load_memories(self._keeper.ledger.store, names)
        return Acting(owner_of(self._name), self._keeper.ledger.clock(), reason, memories)

    def _commit(
        self,
        decide: Callable[[State, Run], Sequence[Draft]],
        *,
        reason: str = "",
    ) -> list[Event]:
        """Commit what is decided on the campaign as it is; nothing where it is not as it was thought."""

        def both(state: State) -> tuple[None, Sequence[Draft]]:
            return None, decide(state, find_run(state, self._name))

        return self._keeper.decide_and_commit(
            both, actor=self._actor, reason=reason, reads=(f"campaign/{self._name}", "incident/*"), epoch=self._epoch
        )[1]

    def _announce(self) -> None:
        now = self._keeper.ledger.clock()
        events = self._commit(lambda state, run: align_ahead(state, run, now), reason="plan announced")
        if events:
            self.did.append(Did("", "announce", f"{len(events)} announcements made or taken back"))

    def _book(self) -> None:
        self.did += book_ahead(self._run(), self._marker_of, self._commit, now=self._keeper.ledger.clock())

    # One step of one batch.

    def _do(self, item: Todo) -> bool:
        """Do what a batch needs; whether it is a step further now."""
        acts = {
            Act.BEGIN: self._begin,
            Act.MARK: self._mark,
            Act.HAND_OVER: self._hand_over,
            Act.WORK: self._work,
            Act.VALIDATE: self._validate,
            Act.RETURN: self._return,
            Act.RESTORE: self._restore,
            Act.TELL_LATE: self._tell_late,
        }
        try:
            return acts[item.act](item)
        except Fenced:
            raise
        except PlimsollError as error:
            self.did.append(Did(item.batch.id, item.act, error.message, is_failed=True))
            return False

    def _known(self, state_run: Run, item: Todo, step: Step) -> Progress | None:
        known = state_run.progress.get(item.batch.id)
        return known if known is not None and known.step is step else None

    def _begin(self, item: Todo) -> bool:
        names = self._run().names.get(item.batch.id, ())
        acting = self._acting(names, f"{self._name} {item.batch.id}")

        def decide(state: State, run: Run) -> list[Draft]:
            # The gate is asked once more, on the very state that the commit is judged by.
            batch = next((each for each in run.plan.batches if each.id == item.batch.id), None)
            if batch is None or run.step_of(batch.id) is not Step.PLANNED:
                return []
            gate = Gatekeeper(state, run, acting.now, self._census_of(state, run))
            return [] if gate.ask(batch) else begin(state, run, batch, acting)

        return self._told(item, self._commit(decide, reason=acting.reason), f"{len(names)} nodes drain")

    def _told(self, item: Todo, events: Sequence[Event], text: str) -> bool:
        if events:
            self.did.append(Did(item.batch.id, item.act, text))
        return bool(events)

    def _check_lead(self) -> None:
        """Asked before anything outside is changed: another may lead by now, and has begun to act."""
        current, leader = self._keeper.ledger.store.leader()
        if self._epoch is not None and current != self._epoch:
            message = f"this process led in epoch {self._epoch}; in epoch {current} {leader} does"
            raise Fenced("fenced", message, next_step="nothing: the new leader carries on", epoch=self._epoch)

    def _marker(self, item: Todo) -> Marker:
        return self._marker_of(item.batch.unit)

    def _marker_of(self, unit: str) -> Marker:
        self._check_lead()
        return self._outside.marker(self._name, unit.partition("/")[0])

    def _in_service(self, names: Collection[str], service: Service = Service.IN_SERVICE) -> list[str]:
        nodes = self._state().of(Fleet).nodes
        return [name for name in names if name in nodes and nodes[name].service is service]

    def _mark(self, item: Todo) -> bool:
        known = self._run().progress[item.batch.id]
        assert known.started is not None, "a batch that is marked has begun"
        ends = known.started + (item.batch.end - item.batch.start)
        reason = f"{self._name} {item.batch.id}"
        acted = self._marker(item).mark(item.batch.id, known.nodes, starts=known.started, ends=ends, reason=reason)

        def decide(_state: State, run: Run) -> list[Draft]:
            if self._known(run, item, Step.MARKING) is None:
                return []
            text = f"{len(acted.done)} marked" + (f", {len(acted.missing)} unknown there" if acted.missing else "")
            return [Draft(BatchStepped(self._name, item.batch.id, Step.DRAINING), text)]

        return self._told(item, self._commit(decide), f"{len(acted.done)} nodes marked")

    def _hand_over(self, item: Todo) -> bool:
        known = self._run().progress[item.batch.id]
        marker = self._marker(item)
        drained = marker.drained(known.nodes)
        if drained.busy:
            assert known.started is not None, "a batch that drains has begun"
            grace = timedelta(minutes=self._run().campaign.running.grace_minutes)
            if self._keeper.ledger.clock() < known.started + grace:
                return False
            cleared = marker.clear(sorted(drained.busy))
            if cleared.waiting or marker.drained(known.nodes).busy:
                some = ", ".join(sorted(drained.busy)[:3])
                text = f"work still runs on {len(drained.busy)} nodes in {marker.where} ({some})"
                self.did.append(Did(item.batch.id, item.act, text, is_failed=True))
                return False
        acting = self._acting(known.nodes, f"{self._name} {item.batch.id}")

        def decide(state: State, run: Run) -> list[Draft]:
            now = self._known(run, item, Step.DRAINING)
            return [] if now is None or run.phase is Phase.CANCELLING else hand_over(state, run, now, acting)

        return self._told(item, self._commit(decide, reason=acting.reason), "handed over")

    def _errand(
        self, item: Todo, known: Progress, words: Sequence[str], names: Sequence[str], what: str
    ) -> tuple[Going, Result | None]:
        """How the command for this step of a batch is, and its result where it has ended. Begins it where it was not.

        That it is begun, and where, is recorded before: whoever goes on elsewhere knows that it can't know how it went.
        """
        name = errand_of(self._run(), item.batch.id, what, known.attempt)
        errands = self._outside.errands
        going, result = errands.look(name)
        if going is not Going.NOT_BEGUN:
            return going, result
        if known.place and known.place != errands.where:
            return Going.LOST, None
        if not known.place and not self._record_place(item, known, words):
            return Going.NOT_BEGUN, None
        environment = {
            "PLIMSOLL_CAMPAIGN": self._name,
            "PLIMSOLL_BATCH": item.batch.id,
            "PLIMSOLL_UNIT": item.batch.unit,
            "PLIMSOLL_OPERATION": f"{self._name}:{item.batch.id}:{what}",
            "PLIMSOLL_ATTEMPT": str(known.attempt),
        }
        self._check_lead()
        if errands.begin(name, words, environment=environment, lines=names):
            self.did.append(Did(item.batch.id, item.act, f"{words[0]} begun, attempt {known.attempt}"))
        return Going.RUNNING, None

    def _record_place(self, item: Todo, known: Progress, words: Sequence[str]) -> bool:
        """Say that a command is begun here; not where the batch is not as it was thought any more."""

        def decide(_state: State, run: Run) -> list[Draft]:
            if run.progress.get(item.batch.id) != known:
                return []
            begun = BatchStepped(self._name, item.batch.id, known.step, place=self._outside.errands.where)
            return [Draft(begun, f"{words[0]} begun, attempt {known.attempt}")]

        return bool(self._commit(decide))

    def _work(self, item: Todo) -> bool:
        run = self._run()
        known = self._known(run, item, Step.WORKING)
        if known is None:
            return False
        going, result = self._errand(item, known, run.campaign.running.work, known.nodes, "work")
        if going is Going.LOST:
            return self._try_again(item, known, LOST_WORDS)
        if result is None:
            return False
        lost = lost_nodes(result, known.nodes)
        if lost is None:
            return self._try_again(item, known, result.last_words[:200] or f"exit code {result.code}")
        acting = self._acting(known.nodes, f"{self._name} {item.batch.id}")

        def decide(state: State, now: Run) -> list[Draft]:
            found = self._known(now, item, Step.WORKING)
            return [] if found is None else finished(state, now, found, lost, acting, "the command ended")

        done = len(known.nodes) - len(lost)
        return self._told(
            item, self._commit(decide, reason=acting.reason), f"done on {done} of {len(known.nodes)} nodes"
        )

    def _try_again(self, item: Todo, known: Progress, said: str) -> bool:
        """Record that an attempt at a step failed as a whole; the next one has the next number."""

        def decide(_state: State, run: Run) -> list[Draft]:
            found = self._known(run, item, known.step)
            if found is None or found.attempt != known.attempt:
                return []
            step = BatchStepped(self._name, item.batch.id, known.step, attempt=known.attempt + 1)
            return [Draft(step, f"attempt {known.attempt} failed: {said}")]

        self._commit(decide)
        self.did.append(Did(item.batch.id, item.act, f"attempt {known.attempt} failed: {said}", is_failed=True))
        return False

    def _validate(self, item: Todo) -> bool:
        run = self._run()
        known = self._known(run, item, Step.VALIDATING)
        if known is None:
            return False
        names = still_out(self._state(), known)
        is_late = self._keeper.ledger.clock() >= late_from(run, known)
        going, result = self._errand(item, known, run.campaign.running.validate, names, "validate")
        if going is Going.LOST:
            return self._return(item) if is_late else self._try_again(item, known, LOST_WORDS)
        if result is None:
            return False
        failed = lost_nodes(result, names)
        if failed is None and not is_late and known.attempt <= VALIDATE_ATTEMPTS_MAX:
            # It failed as a whole: that says nothing about the nodes.
            return self._try_again(item, known, result.last_words[:200] or f"exit code {result.code}")
        lost = set(names if failed is None else failed)
        acting = self._acting(names, f"validated by {self._name}")

        def decide(state: State, now: Run) -> list[Draft]:
            found = self._known(now, item, Step.VALIDATING)
            if found is None:
                return []
            passed = pass_checks(state, set(still_out(state, found)) - lost, acting)
            if not lost - set(found.lost):
                return passed
            more = msgspec.structs.replace(found, lost=tuple(sorted({*found.lost, *lost})))
            return [*passed, *finish_work(state, now, more, (), acting, f"{len(lost)} failed validation")]

        events = self._commit(decide, reason=acting.reason)
        if not events and is_late:  # they passed, and their signals keep them out all the same
            return self._return(item)
        return self._told(item, events, f"{len(names) - len(lost)} of {len(names)} nodes passed")

    def _return(self, item: Todo) -> bool:
        known = self._run().progress[item.batch.id]
        acting = self._acting(known.nodes, f"{self._name} {item.batch.id}")

        def decide(state: State, run: Run) -> list[Draft]:
            now = self._known(run, item, Step.VALIDATING)
            return [] if now is None else give_back(state, run, now, acting, opened=opened)

        # Only what is in service: a node that did not come back stays closed in its scheduler, too.
        opened = self._in_service(known.nodes)
        self._marker(item).unmark(item.batch.id, opened)
        events = self._commit(decide, reason=acting.reason)
        return self._told(item, events, "returned")

    def _open_repaired(self) -> None:
        """Nodes that had not come back and are in service now are opened in their scheduler, too."""
        closed = self._run().closed
        for batch in sorted(set(closed.values())):
            names = [name for name, by in closed.items() if by == batch]
            back, gone = self._in_service(names), self._in_service(names, Service.RETIRED)
            if not back and not gone:
                continue
            try:
                if back:
                    self._marker_of(batch.rpartition("#")[0]).unmark(batch, back)
                opened = BatchOpened(self._name, batch, (*back, *gone))
                self._commit(lambda _state, _run, opened=opened: [Draft(opened, "repaired")])  # type: ignore[misc]
                self.did.append(Did(batch, "open", f"{len(back)} repaired nodes"))
            except Fenced:
                raise
            except PlimsollError as error:
                self.did.append(Did(batch, "open", error.message, is_failed=True))

    def _tell_late(self, item: Todo) -> bool:
        def decide(_state: State, run: Run) -> list[Draft]:
            known = run.progress[item.batch.id]
            return tell_late(run, known) if known.late_told is None else []

        return self._told(item, self._commit(decide), "late: those who stand by are told")

    # The end.

    def _restore(self, item: Todo) -> bool:
        """Of a cancelled campaign, give back what nobody has worked on yet."""
        known = self._run().progress[item.batch.id]
        acting = self._acting(known.nodes, f"{self._name} was cancelled")

        def decide(state: State, run: Run) -> list[Draft]:
            now = run.progress[item.batch.id]
            return restore(state, run, now, acting) if now.step in UNTOUCHED else []

        self._marker(item).unmark(item.batch.id, known.nodes)
        events = self._commit(decide, reason=acting.reason)
        return self._told(item, events, f"{len(known.nodes)} nodes are what they were")

    def _end_if_over(self) -> None:
        def decide(state: State, run: Run) -> list[Draft]:
            is_over = is_all_over(run) and (run.phase is Phase.CANCELLING or not still_old(state, run))
            return end_campaign(state, run) if is_over else []

        if self._commit(decide, reason="all batches are over"):
            self.did.append(Did("", "end", f"{self._name} is over"))


def finished(
    state: State, run: Run, known: Progress, lost: Collection[str], acting: Acting, detail: str
) -> list[Draft]:
    """The work on a batch is done, and what it changed on its nodes is known from now on."""
    good = set(known.nodes) - {*known.lost, *lost}
    updated = record_update(state, good, run.campaign.changes, campaign=run.name, reason=detail)
    return [*finish_work(state, run, known, sorted(lost), acting, detail), *updated]
