"""A pool as a hull on a page: where each part of it begins and how wide it is, in percent. Pure.

Two loads lie in the hull: what was promised (upper) and what runs (lower), on the same scale as the machines. The line
stands across both, and what is promised beyond it is red. No number is made here: they are those of `quota show`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

SUMS = (
    "total", "healthy", "line", "line_in_force", "assigned", "guaranteed", "allocated", "idle", "over", "never_backed",
    "to_flex", "unallocated", "flex_standing", "flex_lent", "flex_used", "shortfall",
)  # fmt: skip
LABEL_SHARE = 0.09
"""A part at least this wide has room for its number."""


class Part(msgspec.Struct, frozen=True):
    """A piece of a bar: its kind (a CSS class and a word of the legend), its GPUs, and where it lies in percent."""

    kind: str
    gpus: int
    x: str
    width: str
    middle: str
    has_room: bool


class HullPicture(msgspec.Struct, frozen=True):
    """All that the macro draws. Ends are in percent of the picture's width."""

    installed: str
    healthy: str
    line: str
    guaranteed: str
    line_is_right: bool
    """True where the line stands so far to the right that its label has to go to its left."""
    promised: Sequence[Part]
    running: Sequence[Part]
    says: str


def add_up(pools: Sequence[Mapping[str, Any]], **more: object) -> dict[str, Any]:
    """Several pools as one: sums of what can be added. What is idle is charged to the flex of its own pool only."""
    sums = {name: sum(int(pool.get(name, 0)) for pool in pools) for name in SUMS}
    return {**sums, "flex_busy": sum(_busy_flex(pool) for pool in pools), **more}


def _busy_flex(pool: Mapping[str, Any]) -> int:
    """GPUs of flex that do something; of several pools the sum of theirs."""
    return int(pool["flex_busy"]) if "flex_busy" in pool else max(0, int(pool["flex_used"]) - int(pool.get("idle", 0)))


def hull_picture(pool: Mapping[str, Any]) -> HullPicture:
    """Where everything is."""
    total, healthy, line = int(pool["total"]), int(pool["healthy"]), int(pool["line"])
    assigned, allocated = int(pool["assigned"]), int(pool["allocated"])
    guaranteed, over, never = int(pool["guaranteed"]), int(pool["over"]), int(pool["never_backed"])
    flex, idle = int(pool["flex_used"]), min(int(pool.get("idle", 0)), allocated)
    most = max(total, assigned, allocated, guaranteed, 1)
    # Before the first alignment all work is flex by definition; the picture then tells only busy from idle.
    is_aligned = int(pool.get("line_in_force", 0)) > 0 or guaranteed > 0
    busy_flex = min(_busy_flex(pool), allocated - idle) if is_aligned else 0
    inside = max(0, allocated - idle - busy_flex)
    within = max(0, assigned - over)
    kept = min(guaranteed, line)
    promised = [
        ("guaranteed", kept), ("assigned", max(0, within - kept)), ("to-flex", max(0, over - never)), ("never", never),
    ]  # fmt: skip
    # Flex that nobody uses lies behind what runs, as far as there are machines for it.
    free = int(pool.get("flex_standing", 0)) + int(pool.get("flex_lent", 0)) - flex if is_aligned else 0
    running = [
        ("inside", inside), ("flex", busy_flex), ("idle", idle), ("flex-free", min(free, healthy - allocated)),
    ]  # fmt: skip
    return HullPicture(
        installed=_percent(total / most),
        healthy=_percent(healthy / most),
        line=_percent(line / most),
        guaranteed=_percent(guaranteed / most),
        line_is_right=line / most > 0.5,
        promised=_laid(promised, most),
        running=_laid(running, most),
        says=_says(pool, is_aligned=is_aligned),
    )


def _laid(parts: Sequence[tuple[str, int]], most: int) -> list[Part]:
    laid, begins = [], 0
    for kind, gpus in parts:
        if gpus > 0:
            middle = (begins + gpus / 2) / most
            has_room = gpus >= LABEL_SHARE * most
            laid.append(Part(kind, gpus, _percent(begins / most), _percent(gpus / most), _percent(middle), has_room))
            begins += gpus
    return laid


def _percent(share: float) -> str:
    return f"{share * 100:.4g}%"


def _says(pool: Mapping[str, Any], *, is_aligned: bool) -> str:
    """The picture in a sentence, for who can't see it."""
    promised = f"{pool['guaranteed']:,} guaranteed" if is_aligned else "nothing guaranteed yet"
    over = f", {pool['over']:,} of it over the line ({pool['never_backed']:,} never backed)" if pool["over"] else ""
    standing, lent = int(pool.get("flex_standing", 0)), int(pool.get("flex_lent", 0))
    flex = f"; flex: {standing:,} standing, {lent:,} lent, {int(pool['flex_used']):,} in use" if is_aligned else ""
    short = f"; {pool['shortfall']:,} short of what is guaranteed" if pool.get("shortfall") else ""
    return (
        f"{pool['total']:,} GPUs installed, {pool['healthy']:,} healthy, the line at {pool['line']:,};"
        f" {pool['assigned']:,} assigned{over}, {promised}; {pool['allocated']:,} allocated,"
        f" {pool.get('idle', 0):,} of them idle{flex}{short}"
    )
