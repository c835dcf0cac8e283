"""A database with a yard in it, and a process that goes on placing work there until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from plimsoll.ledger.model import Draft
from plimsoll.rooms import open_keeper
from plimsoll.workloads import desk
from plimsoll.workloads.fold_tables import Workloads
from plimsoll.workloads.model import Spec
from plimsoll.workloads.service import take_turn
from plimsoll.workloads.turn import Turn
from tests.support.yard import Yard, elastic, gang, spec

RUNNING_MAX = 20


def yard_in(dsn: str) -> None:
    """24 nodes in three islands, all of them guaranteed to one team."""
    yard = Yard({"tiger": {"a": 12, "b": 8, "c": 4}}, {"tiger": {"red": 192}})
    with open_keeper(dsn, create=True) as keeper:
        keeper.commit([Draft(change) for change in yard.setup], actor="test", read_at=None)


def submit(wanted: Spec, turn: Turn, grace: timedelta) -> None:
    desk.submit(turn, [wanted], grace=grace)


def cancel(name: str, turn: Turn, grace: timedelta) -> None:
    desk.cancel(turn, name, how="cancelled", grace=grace)


def place_for_ever(say: Callable[[object], None], dsn: str) -> None:
    """Says `ready`, then the revision of each submit. Names go on where an earlier process ended."""
    with open_keeper(dsn) as keeper:
        say("ready")
        number = len(keeper.state().of(Workloads).past)
        while True:
            number += 1
            parts = (gang(16, spare_nodes=1), elastic(1, 3)) if number % 2 else (gang(8),)
            wanted = spec(f"w{number}", "red", *parts)
            _, events = take_turn(keeper, partial(submit, wanted), actor="test")
            say(events[-1].revision if events else keeper.state().revision)
            asked = sorted(keeper.state().of(Workloads).asked)
            if len(asked) > RUNNING_MAX:
                take_turn(keeper, partial(cancel, asked[0]), actor="test")
