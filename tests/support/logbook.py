"""A small fleet with a week behind it, every number of which is worked out here by hand.

All nodes have 8 H200. The line keeps 15 % back, in whole nodes.

tiger has 12 nodes (96 GPUs), a line of 10 (80), and 112 assigned: 48 to `posttraining` that runs 16 (8 of them idle),
64 to `pretraining` that runs 48 (16 idle). So 4 nodes are over, all found in unscheduled quota: 4 nodes of the one, 2
of the other, so 4 x 4/6 = 2.67 and 1.33: 3 and 1. Guaranteed are 24 and 56. One node is out for 60 hours, and two more
were for the first 42 of them: 9 nodes worked (72) where 80 are guaranteed. Now 11 work.

lion has 4 nodes (32), a line of 3 (24), and 16 assigned to `posttraining` and guaranteed. Three nodes are out for
longer than a week: 8 GPUs work, and `pretraining` runs on them without any guarantee.

Three nodes of tiger were out for six hours before the last week began: nobody counts that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.fleet.changes import NodeRecorded
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.ledger.model import Draft
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.times import show_time, utc_now
from tests.support.fleets import nodes, row, write_fleet
from tests.support.served import OTHER, TEAM

HOUR = timedelta(hours=1)


class Logbook:
    """The fleet's database, and a clock that is moved from event to event up to now."""

    def __init__(self, dsn: str) -> None:
        self.hour = utc_now().replace(minute=0, second=0, microsecond=0)
        """The hour that it is: what is told in hours before it is whole hours by the clock."""
        self.dsn, self.now = dsn, self.hour
        self.keeper = open_keeper(dsn, create=True, clock=lambda: self.now)

    def at(self, hours_before: float) -> Logbook:
        self.now = self.hour - hours_before * HOUR
        return self

    def done(self, words: str, *, who: str = "tester", **values: Any) -> None:
        """Do what a command does."""
        with at(Desk(self.keeper, who)):
            command(words).done(**values)

    def out(self, *names: str, service: Service = Service.REPAIR, reason: str = "xid 79") -> None:
        """Nodes go out of service, or come back."""
        fleet, drafts = self.keeper.state().of(Fleet), []
        for name in names:
            node = fleet.nodes[name]
            was: dict[str, str | None] = {
                "service": str(node.service),
                "since": show_time(node.since),
                "reason": node.reason,
            }
            changed = msgspec.structs.replace(node, service=service, since=self.now, reason=reason)
            drafts.append(Draft(NodeRecorded(changed, was)))
        self.keeper.commit(drafts, actor="tester", read_at=None)

    def back(self, *names: str) -> None:
        self.out(*names, service=Service.IN_SERVICE, reason="")


def kept_week(folder: Path) -> str:
    """The database of that week."""
    dsn = f"sqlite:///{folder}/plimsoll.db"
    fleet = write_fleet(
        folder / "fleet",
        clusters=[row("clusters"), row("clusters", cluster="lion", area="eu")],
        nodes=[*nodes(12, prefix="t"), *nodes(4, prefix="l", cluster="lion", island="lion-a")],
        quotas=[
            row("quotas", team=TEAM, gpus="48"),
            row("quotas", team=OTHER, gpus="64"),
            row("quotas", team=TEAM, cluster="lion", gpus="16"),
        ],
        workloads=[
            row("workloads", workload="run-1", team=TEAM, gpus="16", idle_gpus="8"),
            row("workloads", workload="run-2", team=OTHER, gpus="48", idle_gpus="16"),
            row("workloads", workload="run-3", team=OTHER, cluster="lion", island="lion-a", gpus="8"),
        ],
    )
    with logbook(dsn) as book:
        book.at(8 * 24)
        import_fleet(book.keeper, Source.of_path(fleet, SHEETS), SHEETS, actor="tester")
        book.done("quota apply", reason="the first alignment")
        book.at(7 * 24 + 20).out("l2", "l3", "l4")
        book.at(7 * 24 + 12).out("t9", "t10", "t11")
        book.at(7 * 24 + 6).back("t9", "t10", "t11")
        book.at(60).out("t10", "t11", "t12")
        book.at(18).back("t10", "t11")
    return dsn


@contextmanager
def logbook(dsn: str) -> Iterator[Logbook]:
    book = Logbook(dsn)
    try:
        yield book
    finally:
        book.keeper.close()
