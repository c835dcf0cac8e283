"""A cluster whose pools have lines in force, and a scheduler that is a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plimsoll.errors import Refused
from plimsoll.ledger.model import Draft, Event
from plimsoll.quota.changes import LimitsPushed, PoolAligned
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.model import PoolPromise, QuotaKey
from plimsoll.quota.outlets.model import Cause, Limit, Settings, Step
from plimsoll.quota.outlets.push import OnDrift, Pushed, push
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import IN_MEMORY, Importer

SKU = "H200"


def aligned_fleet(
    folder: Path,
    guaranteed: Mapping[str, int],
    *,
    dsn: str = IN_MEMORY,
    node_count: int = 10,
    assigned: Mapping[str, int] | None = None,
    line: int | None = None,
) -> Importer:
    """Cluster tiger with nodes of 8 H200 and these guarantees in force; teams are assigned as much where not said."""
    quotas = [row("quotas", team=team, gpus=str(gpus)) for team, gpus in (assigned or guaranteed).items() if gpus]
    importer = Importer(dsn)
    importer.bring(write_fleet(folder / "fleet", nodes=nodes(node_count), quotas=quotas))
    align(importer, guaranteed, line=8 * node_count if line is None else line)
    return importer


def align(importer: Importer, guaranteed: Mapping[str, int], *, line: int = 80) -> None:
    """What `quota apply` would commit."""
    change = PoolAligned("tiger", SKU, line, "test", {team: gpus for team, gpus in guaranteed.items() if gpus})
    importer.keeper.commit([Draft(change)], actor="tester", read_at=None)


def guaranteed(importer: Importer) -> dict[str, int]:
    book = importer.of(QuotaBook)
    return {key.team: gpus for key, gpus in sorted(book.guaranteed.items())}


def assigned(importer: Importer, team: str) -> int:
    return importer.of(QuotaBook).assigned_to(QuotaKey(team, "tiger", SKU))


def pushes(importer: Importer) -> list[Event]:
    """The events of pushes, oldest first."""
    return [event for event in importer.keeper.ledger.store.events() if event.kind == LimitsPushed.kind]


class Cut(BaseException):
    """The process dies here: nothing catches it."""


class FakeScheduler:
    """An outlet whose scheduler is `settings`: a limit for each team, and one thing that is no limit."""

    name = "fake"

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.writes: list[str] = []
        self.most = 0
        self.taken: dict[str, str] = {}
        self.before_write: Callable[[Step], None] = lambda _step: None
        self.after_write: Callable[[Step], None] = lambda _step: None

    def wanted(self, promises: Sequence[PoolPromise]) -> Settings:
        wanted = {"flags": "limits,preemption"}
        for promise in promises:
            wanted |= {f"limit/{team}": str(gpus) for team, gpus in promise.guaranteed.items()}
            wanted |= {f"team/{team}": "here" for team in promise.guaranteed}
        return wanted

    def read(self) -> Settings:
        return dict(self.settings)

    def write(self, step: Step) -> None:
        self.before_write(step)
        if step.name in self.taken and step.cause is not Cause.DRIFT:
            raise Refused(
                "field_taken", f"{step.name} is held by {self.taken[step.name]}", owners=[self.taken[step.name]]
            )
        self.writes.append(step.name)
        if step.wanted is None:
            self.settings.pop(step.name, None)
        else:
            self.settings[step.name] = step.wanted
        self.most = max(self.most, sum(int(gpus) for name, gpus in self.settings.items() if name.startswith("limit/")))
        self.after_write(step)

    def limit(self, name: str, value: str) -> Limit | None:
        what, _, team = name.partition("/")
        return Limit(SKU, team, int(value)) if what == "limit" else None


def tell(
    importer: Importer, outlet: FakeScheduler, *, on_drift: OnDrift = OnDrift.SHOW, is_dry_run: bool = False
) -> Pushed:
    return push(importer.keeper, outlet, "tiger", actor="tester", on_drift=on_drift, is_dry_run=is_dry_run)
