"""What of a problem no plan can use, and leaving it out. Pure.

Every step keeps at least one best plan: an option goes only if no valid plan has it, or if another one is at least as
good in every plan; a row goes only if nothing can fill it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plimsoll.campaigns.solve.problem import (
    LAST_BITS,
    Flags,
    Floats,
    Ints,
    Order,
    PlanProblem,
    Shares,
    Table,
    entries_of,
    sums_by,
    used,
)

PASSES_MAX = 20
"""How often options are held against each other; each pass is right by itself, so that stopping early is safe."""


def tidy(problem: PlanProblem, is_frozen: Flags) -> PlanProblem:
    """The problem without what can't be used. `is_frozen` is by block."""
    kept = np.ones(problem.columns, dtype=bool)
    impossible = ""
    for _ in range(PASSES_MAX):
        count = int(kept.sum())
        _drop_out_of_order(problem, kept)
        impossible = _drop_too_big(problem, kept, is_frozen) or _without_option(problem, kept)
        if impossible or int(kept.sum()) == count:
            break
    if impossible:
        return replace(problem, impossible=impossible)
    for order in problem.orders:
        _fix_canary(problem, kept, order)
    return _without_kept_orders(_without_full_rows(_compact(problem, kept)))


def _without_option(problem: PlanProblem, kept: Flags) -> str:
    left = np.bincount(problem.block[kept], minlength=len(problem.blocks))
    empty = np.nonzero(left == 0)[0]
    if not len(empty):
        return ""
    names = ", ".join(problem.names[unit] for unit in problem.blocks[int(empty[0])])
    return f"{names} has no time at which it can start"


def _drop_out_of_order(problem: PlanProblem, kept: Flags) -> None:
    for order in problem.orders:
        before, after = np.isin(problem.block, order.before), np.isin(problem.block, order.after)
        kept[before & after] = False  # it would have to end before it begins
        blocks = len(problem.blocks)
        earliest, latest = np.full(blocks, np.iinfo(np.int64).max), np.full(blocks, np.iinfo(np.int64).min)
        np.minimum.at(earliest, problem.block[kept & before], problem.ends[kept & before])
        np.maximum.at(latest, problem.block[kept & after], problem.begins[kept & after])
        soonest, last = earliest[list(order.before)].max(), latest[list(order.after)].min()
        if soonest == np.iinfo(np.int64).max or last == np.iinfo(np.int64).min:
            continue  # a block without an option, which is said elsewhere
        kept[after & (problem.begins < soonest + order.lag)] = False
        kept[before & (problem.ends + order.lag > last)] = False


def _least_and_most(problem: PlanProblem, kept: Flags) -> tuple[Ints, Ints, Floats, Floats]:
    """For each row and block that meet: both, the least that the block adds to the row, and the most."""
    column = np.repeat(np.arange(problem.columns), np.diff(problem.rows.first))
    is_in = kept[column]
    blocks = len(problem.blocks)
    key = problem.rows.row[is_in] * blocks + problem.block[column[is_in]]
    order = np.argsort(key, kind="stable")
    key, value = key[order], problem.rows.value[is_in][order]
    if not len(key):
        none = np.zeros(0, dtype=np.int64)
        return none, none, np.zeros(0), np.zeros(0)
    places = np.nonzero(np.concatenate([[True], np.diff(key) != 0]))[0]
    row, block = key[places] // blocks, key[places] % blocks
    entries = np.diff(np.concatenate([places, [len(key)]]))
    options = np.bincount(problem.block[kept], minlength=blocks)
    least = np.where(entries == options[block], np.minimum.reduceat(value, places), 0.0)
    return row, block, least, np.maximum.reduceat(value, places)


def _slack_bits(ceilings: Floats) -> Floats:
    return LAST_BITS * np.maximum(1.0, np.abs(ceilings))


def _drop_too_big(problem: PlanProblem, kept: Flags, is_frozen: Flags) -> str:
    """Options that break a limit even if all others use as little of it as they can."""
    row, block, least, _ = _least_and_most(problem, kept)
    count = len(problem.ceilings)
    sums = np.bincount(row, least, minlength=count)
    allowed = problem.ceilings + _slack_bits(problem.ceilings)
    over = np.nonzero(sums > allowed)[0]
    if len(over):
        first = int(over[0])
        place = int(problem.limits[first])
        return f"limits[{place}] allows {problem.ceilings[first]:g}, and at least {sums[first]:g} are needed"
    column = np.repeat(np.arange(problem.columns), np.diff(problem.rows.first))
    blocks = len(problem.blocks)
    own = np.zeros(len(column))
    keys = row * blocks + block
    if len(keys):
        asked = problem.rows.row * blocks + problem.block[column]
        places = np.clip(np.searchsorted(keys, asked), 0, len(keys) - 1)
        own = np.where(keys[places] == asked, least[places], 0.0)
    too_big = problem.rows.value + sums[problem.rows.row] - own > allowed[problem.rows.row]
    dropped = np.unique(column[too_big])
    kept[dropped[~is_frozen[problem.block[dropped]]]] = False
    return ""


def _fix_canary(problem: PlanProblem, kept: Flags, order: Order) -> None:
    """Fix the blocks for which all others wait at their earliest options, where no plan can be better for waiting.

    Nobody else is out before they have ended, so earlier ends only free what others use. That holds if they wait for
    nobody, their first options are their cheapest and lowest, use least of what is summed up over the campaign, fit
    beside each other below a peak that is reached anyway, and share no day's sum of the spread with others.
    """
    if len(order.before) + len(order.after) != len(problem.blocks):
        return
    if any(block in other.after for other in problem.orders for block in order.before):
        return
    firsts = []
    for block in order.before:
        columns = np.array([column for column in problem.columns_of(block) if kept[column]], dtype=np.int64)
        first = columns[np.argmin(problem.ends[columns])]
        if problem.cost[first] > problem.cost[columns].min() or problem.begins[first] > problem.begins[columns].min():
            return
        has_shares = problem.shares.first[first + 1] > problem.shares.first[first]
        if has_shares and (len(order.before) > 1 or _shares_a_day(problem, columns, order, kept)):
            return
        if not _uses_least(problem, first, columns):
            return
        firsts.append(first)
    if len(firsts) > 1 and not _fit_together(problem, np.array(firsts), kept):
        return
    kept[np.isin(problem.block, order.before)] = False
    kept[firsts] = True


def _fit_together(problem: PlanProblem, columns: Ints, kept: Flags) -> bool:
    """Whether they keep all limits by themselves, and no plan has a lower peak than theirs."""
    if (used(problem, columns) > problem.ceilings + _slack_bits(problem.ceilings)).any():
        return False
    if not problem.peak:
        return True
    places = entries_of(problem.out.first, columns)
    together = np.bincount(problem.out.row[places], problem.out.value[places], minlength=1).max()
    filled = np.diff(problem.out.first) > 0
    own = np.zeros(problem.columns)
    own[filled] = np.maximum.reduceat(problem.out.value, problem.out.first[:-1][filled])
    least = np.full(len(problem.blocks), np.inf)
    np.minimum.at(least, problem.block[kept], own[kept])
    return bool(together <= least.max())


def _shares_a_day(problem: PlanProblem, columns: Ints, order: Order, kept: Flags) -> bool:
    """Whether another block can begin on a day on which the canary does."""
    shares = problem.shares
    mine = shares.day[entries_of(shares.first, columns)]
    others = np.nonzero(kept & np.isin(problem.block, order.after))[0]
    theirs = shares.day[entries_of(shares.first, others)]
    return len(mine) > 0 and len(theirs) > 0 and int(theirs.min()) <= int(mine.max())


def _uses_least(problem: PlanProblem, first: np.int64, columns: Ints) -> bool:
    """Whether no option uses less of what is summed up over the campaign, or has a lower peak of its own."""

    def sums(column: np.int64) -> Floats:
        mine = problem.rows.of(int(column))
        found = sums_by(problem.rows.row[mine], problem.rows.value[mine], len(problem.ceilings))
        return found[problem.is_sum]

    def peak(column: np.int64) -> float:
        return float(problem.out.value[problem.out.of(int(column))].max(initial=0.0))

    least, lowest = sums(first), peak(first)
    return all((least <= sums(each) + LAST_BITS).all() and lowest <= peak(each) for each in columns)


def _compact(problem: PlanProblem, kept: Flags) -> PlanProblem:
    columns = np.nonzero(kept)[0]
    counts = np.bincount(problem.block[columns], minlength=len(problem.blocks))
    starts = tuple(
        lines[kept[problem.first[block] : problem.first[block + 1]]] for block, lines in enumerate(problem.starts)
    )
    shares = problem.shares
    places = entries_of(shares.first, columns)
    first = np.concatenate([[0], np.cumsum(shares.first[columns + 1] - shares.first[columns])])
    return replace(
        problem,
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        block=problem.block[columns],
        starts=starts,
        begins=problem.begins[columns],
        ends=problem.ends[columns],
        cost=problem.cost[columns],
        rows=_compact_table(problem.rows, columns),
        out=_compact_table(problem.out, columns),
        shares=Shares(
            first, shares.day[places], shares.value[places], shares.amount[places], shares.days, shares.values
        ),
    )


def _compact_table(table: Table, columns: Ints) -> Table:
    places = entries_of(table.first, columns)
    first = np.concatenate([[0], np.cumsum(table.first[columns + 1] - table.first[columns])])
    return Table(first, table.row[places], table.value[places])


def _without_full_rows(problem: PlanProblem) -> PlanProblem:
    """Without the rows that no choice can fill beyond their ceiling."""
    row, _, _, most = _least_and_most(problem, np.ones(problem.columns, dtype=bool))
    sums = np.bincount(row, most, minlength=len(problem.ceilings))
    binds = sums > problem.ceilings + _slack_bits(problem.ceilings)
    numbers = np.cumsum(binds) - 1
    kept = binds[problem.rows.row]
    column = np.repeat(np.arange(problem.columns), np.diff(problem.rows.first))[kept]
    rows = Table(
        np.searchsorted(column, np.arange(problem.columns + 1)),
        numbers[problem.rows.row[kept]],
        problem.rows.value[kept],
    )
    return replace(
        problem, rows=rows, ceilings=problem.ceilings[binds], limits=problem.limits[binds], is_sum=problem.is_sum[binds]
    )


def _without_kept_orders(problem: PlanProblem) -> PlanProblem:
    """Without the orders that every choice keeps."""
    orders = []
    for order in problem.orders:
        before, after = np.isin(problem.block, order.before), np.isin(problem.block, order.after)
        if problem.ends[before].max() + order.lag > problem.begins[after].min():
            orders.append(order)
    return replace(problem, orders=tuple(orders))
