"""What carries a campaign out, and what it says that it did."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from plimsoll.campaigns.marks.model import Marker, NoMarks
from plimsoll.campaigns.run.progress import Run
from plimsoll.connect.errands import Errands, Result


class Outside(NamedTuple):
    """The schedulers of the clusters, and where commands are run."""

    errands: Errands
    marker: Callable[[str, str], Marker] = lambda _campaign, _cluster: NoMarks()
    """By campaign and cluster: two campaigns may have a batch of the same id."""


class Did(NamedTuple):
    """One thing that a pass did, or could not do."""

    batch: str
    act: str
    text: str
    is_failed: bool = False


def errand_of(run: Run, batch: str, what: str, attempt: int) -> str:
    """The name of the command for one step of a batch, the same whenever it is asked for."""
    return f"{run.name} {run.started_at} {batch} {what} {attempt}"


def impactless_errand(run: Run, unit: str) -> str:
    """The name of the command that changes a unit without an outage."""
    return f"{run.name} {run.started_at} {unit} impactless"


def errands_over(run: Run) -> list[str]:
    """The commands of batches whose end is recorded: nobody asks for their results any more."""
    over = [known for known in run.progress.values() if known.step.is_over]
    names = [
        errand_of(run, known.batch.id, what, attempt)
        for known in over
        for what in ("work", "validate")
        for attempt in range(known.attempt + 1)
    ]
    return [*names, *(impactless_errand(run, unit) for unit in run.impactless)] if run.phase.is_over else names


def lost_nodes(result: Result, names: Collection[str]) -> set[str] | None:
    """The nodes that a command says it failed on; None where it failed as a whole.

    A line such as {"node": "tiger-0001", "ok": false} speaks of one node; of those that no line speaks of the exit code
    does, if any line spoke at all.
    """
    told: dict[str, bool] = {}
    for line in result.out.splitlines():
        if not line.startswith("{"):
            continue
        try:
            found = msgspec.json.decode(line, type=_Told)
        except msgspec.DecodeError:
            continue
        told[found.node] = found.ok
    if result.code != 0 and not told:
        return None
    return {name for name in names if not told.get(name, result.code == 0)}


class _Told(msgspec.Struct):
    node: str
    ok: bool
