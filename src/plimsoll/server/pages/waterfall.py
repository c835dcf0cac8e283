"""A team's way from assigned over guaranteed to startable as a picture: bars and steps down, in percent. Pure.

The steps of all pools with one cause are one step; the numbers are those of `why TEAM`, and always add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

POOLS_NAMED = 3


class Bar(msgspec.Struct, frozen=True):
    """One row. `kind` is a level (assigned, guaranteed, startable) or `step`; x and width are percents."""

    kind: str
    label: str
    gpus: int
    x: str
    width: str
    move: str = ""
    until: str = ""
    is_told: bool = False
    where: Sequence[tuple[str, str, int]] = ()
    """Cluster, SKU, GPUs: the largest first."""
    says: str = ""

    @property
    def named(self) -> Sequence[tuple[str, str, int]]:
        return self.where[:POOLS_NAMED]


def waterfall(pools: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """The rows from the top: nothing where nothing is assigned, guaranteed or can be started."""
    levels = {level: sum(pool[level] for pool in pools) for level in ("assigned", "guaranteed", "startable")}
    most = max(levels.values(), default=0)
    if not most:
        return []
    steps = list(_steps(pools))
    found = [Bar("assigned", "assigned", levels["assigned"], "0%", _percent(levels["assigned"], most))]
    for level, begins in (("guaranteed", "assigned"), ("startable", "guaranteed")):
        left = levels[begins]
        for step in steps:
            if step.kind == begins:
                left -= step.gpus
                x, width = _percent(max(left, 0), most), _percent(step.gpus, most)
                found.append(msgspec.structs.replace(step, kind="step", x=x, width=width))
        found.append(Bar(level, level, levels[level], "0%", _percent(levels[level], most)))
    return found


def _steps(pools: Sequence[Mapping[str, Any]]) -> Iterator[Bar]:
    """One for each cause after each level, in the order in which pools have them: from lasting to passing."""
    groups: dict[tuple[str, str], list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for pool in pools:
        for step in pool["steps"]:
            groups.setdefault((step["after"], step["cause"]), []).append((pool, step))
    for (after, cause), parts in groups.items():
        parts = sorted(parts, key=lambda part: -part[1]["gpus"])
        untils = [step["until"] for _, step in parts if step["until"]]
        yield Bar(
            kind=after,
            label=cause,
            gpus=sum(step["gpus"] for _, step in parts),
            x="",
            width="",
            move=parts[0][1]["move"],
            until=max(untils, default=""),
            is_told=bool(untils) and all(step["is_told"] for _, step in parts if step["until"]),
            where=[(pool["cluster"], pool["sku"], step["gpus"]) for pool, step in parts],
            says=parts[0][1]["says"] if len(parts) == 1 else "",
        )


def _percent(part: int, whole: int) -> str:
    return f"{part / whole * 100:.4g}%"
