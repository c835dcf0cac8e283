"""Tell a scheduler what is guaranteed: read what it has, compare with what we want and what we set last, write.

What is about to be written is remembered first, what was confirmed is remembered next, and the event is committed
before the first of these is forgotten. So a push that is cut at any instant is completed by the next one, which knows
what of it was ours. Must never overwrite what somebody set by hand unless told to, and never push a cluster without a
line in force: 0 for everybody would stop everybody.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec

from plimsoll.errors import PlimsollError, Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.ledger.model import Draft
from plimsoll.quota.changes import LimitsPushed
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import PoolPromise, QuotaKey
from plimsoll.quota.names import check_cluster
from plimsoll.quota.outlets.adopt import Adoption, adopt
from plimsoll.quota.outlets.model import (
    Cause,
    Limit,
    NamesOwner,
    Outlet,
    Settings,
    Step,
    Tries,
    WritesTogether,
    compare,
    in_order,
)
from plimsoll.quota.outlets.turn import Cursors, Turn, Written
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

FIELD_TAKEN = "field_taken"
_TAKEN_AWAY = "-"


class OnDrift(enum.StrEnum):
    """What to do about a setting that somebody changed by hand."""

    SHOW = "show"
    PUT_BACK = "put_back"
    ADOPT = "adopt"


class Result(enum.StrEnum):
    """What became of a step."""

    DONE = "done"
    WOULD_BE_DONE = "would_be_done"
    LEFT = "left"
    """It drifted, and stays as it is."""
    REFUSED = "refused"
    """The scheduler did not take it."""


class Outcome(msgspec.Struct, frozen=True):
    """A step and what became of it. `owner` is who changed it, where the scheduler knows; GPUs where it is a limit."""

    step: Step
    result: Result
    owner: str = ""
    problem: str = ""
    gpus_found: int | None = None
    gpus_wanted: int | None = None


class Pushed(msgspec.Struct, frozen=True):
    """What a push did. `completed` are settings of an earlier push that was cut short and had set them."""

    outlet: str
    cluster: str
    outcomes: list[Outcome]
    adoptions: list[Adoption]
    completed: list[str]
    same: int
    is_dry_run: bool
    revision: int
    has_moved: bool = False
    """The book moved while it was pushed: push again."""

    def with_result(self, result: Result) -> list[Outcome]:
        return [each for each in self.outcomes if each.result is result]

    @property
    def is_complete(self) -> bool:
        """Whether the scheduler has (or would have) all that is wanted."""
        is_refused = any(each.problem for each in self.adoptions)
        return not (self.with_result(Result.LEFT) or self.with_result(Result.REFUSED) or is_refused or self.has_moved)


def _promises(state: State, cluster: str) -> list[PoolPromise]:
    """What the schedulers of a cluster are to be told."""
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    return [
        PoolPromise(pool, count.gpus_per_node, count.gpus_in_service, book.line_of(pool), book.guaranteed_in(pool))
        for pool, count in sorted(each for each in fleet.pools.items() if each[0].cluster == cluster)
    ]


def promises_to_tell(state: State, cluster: str) -> list[PoolPromise]:
    """The promises of a cluster, with 0 for teams that hold or use something there: they may still use flex."""
    check_cluster(state, cluster)
    book, found = state.of(QuotaBook), _promises(state, cluster)
    if not found:
        raise Refused(
            "no_pools", f"{cluster} has no nodes, so nothing is promised there", next_step="plimsoll fleet show"
        )
    for promise in found:
        if promise.pool not in book.lines:
            raise Refused(
                "not_aligned",
                f"{cluster} has no line in force for {promise.pool.sku}: nobody is guaranteed anything there yet, and"
                " pushing that would stop everybody",
                next_step=f"plimsoll quota plan, then plimsoll quota apply; then push {cluster}",
                cluster=cluster,
                sku=promise.pool.sku,
            )
    return [_with_all_teams(book, promise) for promise in found]


def _with_all_teams(book: QuotaBook, promise: PoolPromise) -> PoolPromise:
    teams = book.pool_teams.get(promise.pool, ())
    guaranteed = {team: book.guaranteed.get(QuotaKey(team, *promise.pool), 0) for team in teams}
    return msgspec.structs.replace(promise, guaranteed=guaranteed)


def push(
    keeper: Keeper,
    outlet: Outlet,
    cluster: str,
    *,
    actor: str,
    reason: str = "",
    on_drift: OnDrift = OnDrift.SHOW,
    is_dry_run: bool = False,
    epoch: int | None = None,
) -> Pushed:
    """Bring a scheduler to what the book promises. Raises Unavailable where the scheduler can't be asked."""
    promises_to_tell(keeper.state(), cluster)  # refused before anybody is asked anything
    work = _Work(keeper, outlet, cluster, actor=actor, reason=reason, on_drift=on_drift, epoch=epoch)
    if is_dry_run:
        return work.look()
    with Turn(keeper.ledger.store, keeper.ledger.clock, f"{outlet.name}/{cluster}", actor=actor) as turn:
        return work.do(turn)


class _Work:
    """One push."""

    def __init__(
        self,
        keeper: Keeper,
        outlet: Outlet,
        cluster: str,
        *,
        actor: str,
        reason: str,
        on_drift: OnDrift,
        epoch: int | None,
    ) -> None:
        self._keeper, self._outlet, self._cluster = keeper, outlet, cluster
        self._actor, self._reason, self._on_drift, self._epoch = actor, reason, on_drift, epoch
        self._pushed, self._pushing = f"pushed/{outlet.name}/{cluster}", f"pushing/{outlet.name}/{cluster}"
        self._adoptions: list[Adoption] = []
        self._adopted: set[str] = set()
        self._done: list[Outcome] = []
        self._begun: set[str] = set()
        self._last: Settings = {}
        self._tried: Tries = {}
        self._found: Settings = {}

    def look(self) -> Pushed:
        """What `do` would do."""
        told, wanted, steps = self._compare(is_dry_run=True)
        steps = [step for step in steps if step.name not in self._adopted]
        may, left = self._sort_out(steps)
        outcomes = [self._outcome(step, Result.WOULD_BE_DONE, self._owner(step)) for step in may]
        same = len(wanted) - sum(step.wanted is not None for step in steps)
        return self._answer([*outcomes, *left], [], same=same, told=told, is_dry_run=True)

    def do(self, turn: Turn) -> Pushed:
        told, wanted, steps = self._compare(is_dry_run=False)
        may, left = self._sort_out(steps)
        completed = self._prepare(turn, wanted, steps, may)
        try:
            self._write_all(turn, may)
        except BaseException:
            with suppress(PlimsollError):  # what was done is on record even so; the error that ended it is the news
                self._conclude(turn, wanted, completed)
            raise
        self._conclude(turn, wanted, completed)
        same = len(wanted) - sum(step.wanted is not None for step in steps)
        return self._answer([*self._done, *left], completed, same=same, told=told, is_dry_run=False)

    def _answer(
        self, outcomes: list[Outcome], completed: list[str], *, same: int, told: list[PoolPromise], is_dry_run: bool
    ) -> Pushed:
        state = self._keeper.state()
        has_moved = not is_dry_run and promises_to_tell(state, self._cluster) != told
        return Pushed(
            self._outlet.name,
            self._cluster,
            outcomes,
            self._adoptions,
            completed,
            same,
            is_dry_run,
            state.revision,
            has_moved,
        )

    # What differs.

    def _compare(self, *, is_dry_run: bool) -> tuple[list[PoolPromise], Settings, list[Step]]:
        told = promises_to_tell(self._keeper.state(), self._cluster)
        wanted, found = self._outlet.wanted(told), self._outlet.read()
        last, tried = self._remembered()
        steps = compare(wanted, found, last, tried)
        if self._on_drift is OnDrift.ADOPT and self._adopt(steps, is_dry_run=is_dry_run):
            told = promises_to_tell(self._keeper.state(), self._cluster)
            wanted = self._outlet.wanted(told)
            steps = compare(wanted, found, last, tried)
        self._last, self._tried, self._found = last, tried, found
        return told, wanted, steps

    def _remembered(self) -> tuple[Settings, Tries]:
        cursors = self._keeper.ledger.store.cursors([self._pushed, self._pushing])
        last = {name: value for (scope, name), value in cursors.items() if scope == self._pushed}
        tried = {name: _read_try(value) for (scope, name), value in cursors.items() if scope == self._pushing}
        return last, tried

    def _adopt(self, steps: Sequence[Step], *, is_dry_run: bool) -> bool:
        """Take what was found into the book, lower ones first: they make room. Whether the book changed."""
        limits = [
            (step, limit)
            for step in steps
            if step.cause is Cause.DRIFT and step.found is not None
            if (limit := self._outlet.limit(step.name, step.found)) is not None
        ]
        has_changed = False
        for step, limit in sorted(limits, key=lambda each: (self._was(each[0]) <= each[1].gpus, each[0].name)):
            adoption = self._adopt_one(limit, is_dry_run=is_dry_run)
            self._adoptions.append(adoption)
            if not adoption.problem:
                self._adopted.add(step.name)
                has_changed = has_changed or not is_dry_run
        return has_changed

    def _was(self, step: Step) -> int:
        return self._gpus(step.name, step.wanted) or 0

    def _adopt_one(self, limit: Limit, *, is_dry_run: bool) -> Adoption:
        def decide(state: State) -> tuple[Adoption, list[Draft]]:
            adoption = adopt(state, self._cluster, limit, outlet=self._outlet.name)
            return adoption, [Draft(change) for change in adoption.changes]

        if is_dry_run:
            return decide(self._keeper.state())[0]
        reason = self._reason or f"set by hand in {self._outlet.name} and adopted"
        adoption, _ = self._keeper.decide_and_commit(decide, actor=self._actor, reason=reason, epoch=self._epoch)
        return adoption

    def _sort_out(self, steps: Sequence[Step]) -> tuple[list[Step], list[Outcome]]:
        """What may be written, in order, and what stays as it is. The rest of an adopted object is put right."""
        may, left = [], []
        for step in steps:
            is_drift = step.cause is Cause.DRIFT
            if not is_drift or self._on_drift is OnDrift.PUT_BACK or step.name in self._adopted:
                may.append(step)
            else:
                left.append(self._outcome(step, Result.LEFT, self._owner(step)))
        return in_order(may, self._outlet.limit), left

    def _outcome(self, step: Step, result: Result, owner: str, problem: str = "") -> Outcome:
        found, wanted = (self._gpus(step.name, value) for value in (step.found, step.wanted))
        return Outcome(step, result, owner, problem, found, wanted)

    def _gpus(self, name: str, value: str | None) -> int | None:
        limit = None if value is None else self._outlet.limit(name, value)
        return None if limit is None else limit.gpus

    def _owner(self, step: Step) -> str:
        if step.cause is Cause.DRIFT and isinstance(self._outlet, NamesOwner):
            return self._outlet.owner(step.name)
        return ""

    # Writing and remembering.

    def _prepare(self, turn: Turn, wanted: Settings, steps: Sequence[Step], may: Sequence[Step]) -> list[str]:
        """Remember what is about to be written, and what an earlier push had written before it was cut."""
        differing = {step.name for step in steps}
        same = {name: value for name, value in wanted.items() if name not in differing}
        gone = [name for name in self._last if name not in wanted and name not in self._found]
        completed = [
            name
            for name, value in sorted(self._tried.items())
            if name not in differing and value == self._found.get(name)
        ]

        # What an earlier push began is confirmed before another intent takes the place of that one.
        begun_before = {step.name: step.found for step in may if step.name in self._tried}
        confirmed = {name: value for name, value in begun_before.items() if value == self._tried[name]}

        def change(_found: Cursors) -> Written:
            kept = {name: value for name, value in same.items() if self._last.get(name) != value}
            begun = {(self._pushing, step.name): _write_try(step.wanted) for step in may}
            last = {**dict.fromkeys(gone), **kept, **confirmed}
            self._begun = {step.name for step in may}
            return {**{(self._pushed, name): value for name, value in last.items()}, **begun}

        turn.remember([], change)
        return completed

    def _write_all(self, turn: Turn, may: Sequence[Step]) -> None:
        if isinstance(self._outlet, WritesTogether):
            if may:
                self._try(turn, may, self._outlet.write_together)
            return
        for step in may:
            self._try(turn, [step], lambda steps: self._outlet.write(steps[0]))

    def _try(self, turn: Turn, steps: Sequence[Step], write: Callable[[Sequence[Step]], None]) -> None:
        """Write some steps. What the scheduler refuses is noted and the next is tried; anything else ends the push."""
        owner, problem, result = self._owner(steps[0]), "", Result.DONE
        try:
            try:
                write(steps)
            except Refused as refused:
                if refused.code != FIELD_TAKEN:
                    raise
                steps = [msgspec.structs.replace(step, cause=Cause.DRIFT) for step in steps]
                if self._on_drift is not OnDrift.PUT_BACK:
                    raise
                write(steps)
        except Refused as refused:
            if refused.code == FIELD_TAKEN:
                owners = refused.fields.get("owners")
                owner = ", ".join(map(str, owners)) if isinstance(owners, list) else owner
                result, problem = Result.LEFT, refused.message
            else:
                result, problem = Result.REFUSED, f"{refused.message}; next: {refused.next_step}"
        if result is Result.DONE:
            turn.remember([], lambda _found: {(self._pushed, step.name): step.wanted for step in steps})
        else:
            turn.remember([], lambda _found: {(self._pushing, step.name): None for step in steps})
        self._done += [self._outcome(step, result, owner, problem) for step in steps]

    def _conclude(self, turn: Turn, wanted: Settings, completed: Iterable[str]) -> None:
        """Commit one event for all that changed, and only then forget that it was begun."""
        changed = sorted({*completed, *(each.step.name for each in self._done if each.result is Result.DONE)})
        if changed:
            event = LimitsPushed(self._cluster, self._outlet.name, digest(wanted), changed)
            self._keeper.commit([Draft(event)], actor=self._actor, reason=self._reason, read_at=None, epoch=self._epoch)
        concluded = {each.step.name for each in self._done}
        names = {*changed, *self._tried, *concluded} - (self._begun - concluded)
        with suppress(PlimsollError):  # forgetting later is as good
            turn.remember([], lambda _found: {(self._pushing, name): None for name in names})


def digest(settings: Settings) -> str:
    """A short proof of what a scheduler was told."""
    return hashlib.sha256(msgspec.json.encode(dict(settings), order="sorted")).hexdigest()


def _write_try(value: str | None) -> str:
    return _TAKEN_AWAY if value is None else f"={value}"


def _read_try(text: str) -> str | None:
    return None if text == _TAKEN_AWAY else text[1:]
