"""The objective of a plan, worked out anew for the checker: exposure, imbalance, peak. Pure; shares no code with the
modules that search for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date

from plimsoll.campaigns.check.due import Due, fits
from plimsoll.campaigns.check.found import Placed
from plimsoll.campaigns.check.limits import sweep
from plimsoll.campaigns.model import Campaign, Score, Spread


def score_plan(campaign: Campaign, due: Mapping[str, Due], placed: Sequence[Placed]) -> Score:
    exposure = sum(each.due.weight * each.nodes * (each.day - campaign.start).days for each in placed)
    imbalance = _imbalance(campaign.spread, due, placed) if campaign.spread else 0.0
    peak = 0.0
    if placed:
        _, sums = sweep(placed, [each.nodes for each in placed], [each.stays for each in placed])
        peak = float(sums.max())
    aims = campaign.aims
    total = aims.exposure * exposure + aims.imbalance * imbalance + aims.peak * peak
    return Score(total=total, exposure=float(exposure), imbalance=imbalance, peak=peak)


def _imbalance(spread: Spread, due: Mapping[str, Due], placed: Sequence[Placed]) -> float:
    """Each day's largest less its smallest share of a value's nodes that go out that day. A value without a start that
    day has a share of 0."""
    there: defaultdict[str, int] = defaultdict(int)
    for unit in due.values():
        nodes = sum(count for kind, count in unit.lots if fits(spread.scope, unit.values, (kind.sku,)))
        if nodes and (value := unit.values.get(spread.over)) is not None:
            there[value] += nodes
    going: defaultdict[date, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for each in placed:
        nodes = sum(count for kind, count in each.lots if fits(spread.scope, each.due.values, (kind.sku,)))
        if nodes and (value := each.due.values.get(spread.over)) is not None:
            going[each.day][value] += nodes
    total = 0.0
    for counts in going.values():
        shares = [counts.get(value, 0) / nodes for value, nodes in there.items()]
        total += max(shares, default=0.0) - min(shares, default=0.0)
    return total
