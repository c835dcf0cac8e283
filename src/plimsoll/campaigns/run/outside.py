"""What carries a campaign out, and what it says that it did."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from plimsoll.campaigns.marks.model import Marker, NoMarks
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
