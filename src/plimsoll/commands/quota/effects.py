"""What an application makes of every team's quota, before and after, and what a cut hurts: shown before it is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from plimsoll.answers import Table
from plimsoll.quota.hurt import lost_by
from plimsoll.quota.model import Haircut
from plimsoll.quota.plan import PoolPlan

KINDS = ("cut_unscheduled", "cut_idle", "cut_running")
_COLUMNS = ("assigned", "guaranteed_was", "guaranteed", *KINDS)
_NO_CUT = Haircut()


class Effect(msgspec.Struct, frozen=True):
    """What an application makes of one team's quota in a pool, in GPUs."""

    team: str
    cluster: str
    sku: str
    assigned: int
    guaranteed_was: int
    guaranteed: int
    haircut: Haircut

    @property
    def numbers(self) -> tuple[int, ...]:
        cut = self.haircut
        return self.assigned, self.guaranteed_was, self.guaranteed, cut.unscheduled, cut.idle, cut.running


def effects_of(changed: Iterable[PoolPlan]) -> list[Effect]:
    """Of everybody whose guarantee moves, or is less than was held; who loses most stands first.

    What is cut is told as in a notice: of what was guaranteed; where nothing was yet, of what was assigned.
    """
    found = []
    for each in changed:
        lost = lost_by(each)
        for team in each.hull.teams:
            was, haircut = each.pool.guaranteed.get(team.team, 0), lost.get(team.team, _NO_CUT)
            if team.guaranteed != was or haircut.gpus:
                found.append(Effect(*team.key, team.assigned, was, team.guaranteed, haircut))
    return sorted(found, key=lambda each: (-each.haircut.gpus, each.team, each.cluster, each.sku))


def effect_tables(effects: Sequence[Effect], shown: int) -> list[Table]:
    """A row for each team; where that is more than one pool of somebody's, one for each of its pools as well."""
    rows = [(each.team, each.cluster, each.sku, *each.numbers) for each in effects]
    if not rows:
        return []
    pools = Table(("team", "cluster", "sku", *_COLUMNS), rows, "what it does to each team (GPUs)", "effects", shown)
    teams: dict[str, list[Effect]] = {}
    for each in effects:
        teams.setdefault(each.team, []).append(each)
    if len(teams) == len(effects):
        return [pools]
    sums = [
        (team, len(own), *(sum(column) for column in zip(*(each.numbers for each in own), strict=True)))
        for team, own in teams.items()
    ]
    sums.sort(key=lambda row: (-sum(row[-len(KINDS) :]), row[0]))
    title = "what it does to each team, over all pools that change (GPUs)"
    whole = Table(("team", "pools", *_COLUMNS), sums, title, "teams", shown)
    return [whole, msgspec.structs.replace(pools, title="in each pool (GPUs)")]
