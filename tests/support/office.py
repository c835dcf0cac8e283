"""A small fleet with guarantees in force, a clock that tests move, and everything people do with quota in one line."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import PlimsollError
from plimsoll.fleet.model import PoolKey, Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.health.changes import NodeHistory
from plimsoll.ledger.model import Draft, Event
from plimsoll.quota.changes import LinePolicyApplied, PoolAligned
from plimsoll.quota.flex import CalledBack, call_back
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import QuotaKey
from plimsoll.quota.plan import policy_in_force
from plimsoll.quota.requests import desk, moves
from plimsoll.quota.requests.clerk import Decide, carry_out, settle_now
from plimsoll.quota.requests.desk import Answered, Asked, Due
from plimsoll.quota.requests.moves import Transferred
from plimsoll.quota.requests.options import Answer
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.state.state import State
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import IN_MEMORY, NOW

TIGER = PoolKey("tiger", "H200")
POLICY = """\
policy: test
lines:
  - {{scope: {{}}, by: fixed, buffer: {buffer}}}
pins: [{pins}]
blocks: [{blocks}]
flex: {{grace: 15m}}
requests: {{expire: 14d}}
"""


def floor_of(team: str, gpus: int, **cells: str) -> str:
    """A pin or a block, as a policy file writes it."""
    where = {"team": team, "cluster": "tiger", "sku": "H200", "gpus": str(gpus), "why": "launch"} | cells
    return "{" + ", ".join(f"{key}: {value}" for key, value in where.items()) + "}"


def work(name: str, team: str, gpus: int, **cells: str) -> dict[str, str]:
    """Running work: elastic, unless said otherwise."""
    fields = {"workload": name, "team": team, "gpus": str(gpus), "kind": "elastic", "tier": "mid"} | cells
    return row("workloads", **fields)


class Office:
    """Tiger with ten nodes of eight H200, where not said otherwise; `guaranteed` is in force under `line`."""

    def __init__(
        self,
        guaranteed: Mapping[str, int] | None = None,
        *,
        line: int | None = None,
        rows: Sequence[dict[str, str]] | int = 10,
        clusters: Sequence[dict[str, str]] | None = None,
        assigned: Mapping[str, int] | None = None,
        works: Sequence[dict[str, str]] = (),
        history: Sequence[dict[str, str]] = (),
        buffer: str = "0",
        pins: str = "",
        blocks: str = "",
        is_aligned: bool = True,
        dsn: str = IN_MEMORY,
    ) -> None:
        self.now, self.dsn = NOW, dsn
        self.keeper = open_keeper(dsn, create=True, clock=lambda: self.now)
        guaranteed = {"vision": 32, "voice": 24} if guaranteed is None else guaranteed
        listed = nodes(rows) if isinstance(rows, int) else list(rows)
        quotas = [row("quotas", team=team, gpus=str(gpus)) for team, gpus in (assigned or guaranteed).items()]
        with tempfile.TemporaryDirectory() as folder:
            write_fleet(
                Path(folder),
                clusters=clusters or [row("clusters")],
                nodes=listed,
                quotas=quotas,
                workloads=works,
                history=history,
            )
            import_fleet(self.keeper, Source.of_path(Path(folder), SHEETS), SHEETS, actor="importer")
        text = POLICY.format(buffer=buffer, pins=pins, blocks=blocks)
        self.commit(LinePolicyApplied("test", text))
        if is_aligned:
            self.align(guaranteed, line=line if line is not None else sum(int(each["gpus"]) for each in listed))

    def __enter__(self) -> Office:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.keeper.close()

    def __del__(self) -> None:
        self.keeper.close()

    def commit(self, *changes: Any) -> list[Event]:
        return self.keeper.commit([Draft(change) for change in changes], actor="tester", read_at=None)

    def beside(self, *drafts: Draft) -> None:
        """Somebody else, in another process, commits this."""
        with open_keeper(self.dsn, clock=lambda: self.now) as other:
            other.commit(drafts, actor="bob", read_at=None)

    def align(
        self, guaranteed: Mapping[str, int], *, line: int, pool: PoolKey = TIGER, policy: str = "fixed:0"
    ) -> None:
        self.commit(PoolAligned(*pool, line, policy, dict(guaranteed)))

    # What is known.

    @property
    def state(self) -> State:
        return self.keeper.state()

    @property
    def book(self) -> QuotaBook:
        return self.state.of(QuotaBook)

    def guaranteed(self, pool: PoolKey = TIGER) -> dict[str, int]:
        return self.book.guaranteed_in(pool)

    def assigned(self, pool: PoolKey = TIGER) -> dict[str, int]:
        return {key.team: quota.gpus for key, quota in sorted(self.book.quotas.items()) if key.pool == pool}

    def holding(self, team: str) -> tuple[int, int]:
        """What a team is assigned and guaranteed of tiger."""
        key = QuotaKey(team, *TIGER)
        return self.book.assigned_to(key), self.book.guaranteed.get(key, 0)

    # What happens.

    def tell(self, service: str, *names: str, at: datetime, reason: str = "xid 79") -> None:
        """Nodes went to a service at a moment."""
        drafts = [Draft(NodeHistory(name, Service(service), reason), "", at) for name in names]
        self.keeper.commit(drafts, actor="importer", read_at=None)

    def wait(self, **span: float) -> None:
        self.now += timedelta(**span)

    def act(self, decide: Decide[Any], **options: Any) -> Any:
        outcome, _, _ = carry_out(self.keeper, decide, actor="ada", **options)
        return outcome

    def ask(self, team: str = "vision", gpus: int = 16, **fields: Any) -> Answer:
        asked = Asked(team, fields.pop("sku", "H200"), gpus, **fields)
        answer: Answer = self.act(lambda state, now: desk.ask(state, asked, by="ada", now=now, returns={}))
        return answer

    def options(self, team: str = "vision", gpus: int = 16, **fields: Any) -> list[tuple[str, int, bool]]:
        """The options' keys, GPUs, and whether they are all of it."""
        return [(option.key, option.gpus, option.is_whole) for option in self.ask(team, gpus, **fields).options]

    def approve(self, request: str, option: str = "", **options: Any) -> Answered:
        outcome: Answered = self.act(
            lambda state, now: desk.approve(state, request, option, now=now, returns={}), requests=[request], **options
        )
        return outcome

    def deny(self, request: str, why: str = "no room") -> Answered:
        outcome: Answered = self.act(lambda state, _now: desk.deny(state, request, why=why))
        return outcome

    def transfer(
        self, giver: str = "vision", taker: str = "voice", gpus: int = 8, *, days: float | None = None, **fields: Any
    ) -> Transferred:
        place = {"cluster": "tiger", "sku": "H200"} | fields

        def decide(state: State, now: datetime) -> tuple[Transferred, list[Draft]]:
            until = None if days is None else now + timedelta(days=days)
            return moves.transfer(state, giver=giver, taker=taker, gpus=gpus, until=until, now=now, **place)

        outcome: Transferred = self.act(decide, teams=[giver, taker], reads=[TIGER.stream])
        return outcome

    def rename(self, team: str, name: str) -> moves.Renamed:
        outcome: moves.Renamed = self.act(lambda state, _now: moves.rename_team(state, team, name), teams=[team, name])
        return outcome

    def call_back(self, team: str = "vision", gpus: int = 8) -> CalledBack:
        outcome: CalledBack = self.act(
            lambda state, now: call_back(state, TIGER, team, gpus, policy_in_force(state), now=now)
        )
        return outcome

    def settle(self) -> Due:
        return settle_now(self.keeper, actor="plimsoll")[0]

    def refused(self, act: Any) -> PlimsollError:
        """What is said to something that must not be done; nothing of it may be kept."""
        head, state = self.keeper.ledger.head(), self.state.dump()
        with pytest.raises(PlimsollError) as caught:
            act(self)
        assert self.keeper.ledger.head() == head
        assert self.state.dump() == state
        assert caught.value.next_step, "an error names the next thing to do"
        return caught.value
