"""The alignment: turns what teams were assigned of a pool into what they are guaranteed under its line. Pure.

If the sum fits, nobody changes. Otherwise the overload is taken first from what is unscheduled, then idle, then
running; per kind in proportion to what each team has of it, in whole nodes. Before that order come, from the strongest:
the line, pins, minimum blocks, gang blocks. It never leaves more than the line, and never cuts a pin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from plimsoll.quota.fill import Claims, fill, gang_end
from plimsoll.quota.model import Haircut, Kind

GANGS_TRIED_MAX = 40
"""Where more gangs than this must break, it is not tried whether fewer would do: the search grows with their number."""
LEVELS_TRIED_MAX = 64
"""How many ways of one team to lose gangs are looked at."""


class Stake(msgspec.Struct, frozen=True, dict=True):
    """What a team has in a pool, in GPUs. `pin`: never below; `block`: this much or nothing, where it has as much."""

    team: str
    assigned: int
    claims: Claims = ()
    pin: int = 0
    block: int = 0

    @cached_property
    def allocated(self) -> int:
        return sum(claim.gpus for claim in self.claims)

    @cached_property
    def idle(self) -> int:
        return sum(claim.idle_gpus for claim in self.claims)


class Unpinned(Exception):
    """The pins of a pool alone are above its line."""

    def __init__(self, pinned: int, line: int) -> None:
        super().__init__(f"pins of {pinned} GPUs are above the line of {line}")
        self.pinned = pinned
        self.line = line


class Alignment(msgspec.Struct, frozen=True):
    """What each team is guaranteed, and what it loses of what it was assigned."""

    guaranteed: Mapping[str, int]
    haircuts: Mapping[str, Haircut]
    broken_gangs: int = 0
    dropped_blocks: tuple[str, ...] = ()

    @property
    def stage(self) -> int:
        return max((haircut.stage for haircut in self.haircuts.values()), default=1)


class _Team:
    """A team's nodes from the top of its quota down: unscheduled, idle, running; and how far down a cut may go."""

    __slots__ = ("cut", "ends", "floor", "gangs", "kept_gangs", "nodes", "pinned", "size", "stake", "weights")

    def __init__(self, stake: Stake, size: int) -> None:
        self.stake, self.size = stake, size
        self.cut = 0
        assigned = stake.assigned
        unscheduled, idle = max(0, assigned - stake.allocated), idle_inside(stake)
        self.nodes = assigned // size
        self.weights = unscheduled, idle, assigned - unscheduled - idle
        """What the team has of each kind, in GPUs."""
        self.ends = unscheduled // size, (unscheduled + idle) // size, self.nodes
        """How many nodes can go before the next kind is hurt. A node that is partly of it counts as of it."""
        self.gangs = self.nodes - _up(gang_end(stake.claims, assigned), size) if stake.claims else self.nodes
        """The most nodes that can go without breaking a gang."""
        self.kept_gangs = self.gangs
        """The same, once it is decided which gangs break."""
        self.pinned = min(self.nodes, _up(stake.pin, size))
        block = _up(stake.block, size) if stake.block <= assigned else 0
        self.floor = self.nodes - max(self.pinned, block)
        """The most nodes that can go at all, as long as pin and block stay."""

    def room(self, end: int) -> int:
        """How many more nodes can be cut down to there."""
        return max(0, min(end, self.floor) - self.cut)

    def drop_block(self) -> None:
        """A block is of use only whole: where it can't stay, nothing of it does but what is pinned."""
        self.cut = self.floor = self.nodes - self.pinned

    def broken(self) -> int:
        """How many gangs the cut has broken."""
        return _broken(self.stake, (self.nodes - self.cut) * self.size) if self.cut > self.gangs else 0

    def hurt(self, nodes: int) -> tuple[int, int]:
        """Running and idle GPUs among the next so many nodes that go."""
        unscheduled, idle, _ = self.weights
        before, after = self.cut * self.size, (self.cut + nodes) * self.size
        harmless = unscheduled + idle
        running = max(0, after - harmless) - max(0, before - harmless)
        idle_hurt = max(0, min(after, harmless) - unscheduled) - max(0, min(before, harmless) - unscheduled)
        return running, idle_hurt


def _up(gpus: int, size: int) -> int:
    return -(-gpus // size)


def idle_inside(stake: Stake) -> int:
    """Idle GPUs that count as the team's quota: those above it are charged first."""
    return max(0, stake.idle - max(0, stake.allocated - stake.assigned))


def align(stakes: Sequence[Stake], line: int, size: int) -> Alignment:
    """Guarantees under a line; `size` is the GPUs of a node. Raises `Unpinned` where pins alone are above it."""
    if sum(stake.assigned for stake in stakes) <= line:
        return Alignment({stake.team: stake.assigned for stake in stakes}, {})
    dropped: set[str] = set()
    while True:
        teams, over = _fresh(stakes, dropped, line, size)
        in_gangs = _cut(teams, over)
        left = _break_gangs(teams, in_gangs)
        if left <= 0:
            break
        dropped.add(_next_block(teams, left, dropped, line=line))
    broken = sum(team.broken() for team in teams if team.stake.team not in dropped)
    if 1 < broken <= GANGS_TRIED_MAX:
        others, over = _fresh(stakes, dropped, line, size)
        if _break_fewer([team for team in others if not team.cut], over, in_gangs, broken - 1):
            return _alignment(others, dropped)
    return _alignment(teams, dropped)


def _fresh(stakes: Sequence[Stake], dropped: Collection[str], line: int, size: int) -> tuple[list[_Team], int]:
    """Nobody is cut yet but for the blocks that fell; and the nodes that are over the line."""
    teams = [_Team(stake, size) for stake in stakes]
    for team in teams:
        if team.stake.team in dropped:
            team.drop_block()
    return teams, sum(team.nodes - team.cut for team in teams) - line // size


def _cut(teams: Sequence[_Team], left: int) -> int:
    """Cut kind by kind, as far as no gang breaks; returns what could not be cut."""
    for kind in range(3):
        if left > 0:
            rooms = [team.room(min(team.ends[kind], team.kept_gangs)) for team in teams]
            left -= _share_out(teams, rooms, kind, left)
    return left


def _share_out(teams: Sequence[_Team], rooms: Sequence[int], kind: int, wanted: int) -> int:
    """Cut in proportion to what each team has of a kind, largest remainder; returns how much was cut.

    A team gives no more than it has room for; what it can't give is shared by the others in the same way.
    """
    total = sum(rooms)
    if total <= wanted:
        for team, room in zip(teams, rooms, strict=True):
            team.cut += room
        return total
    sharing, left = [each for each in zip(teams, rooms, strict=True) if each[1]], wanted
    while True:
        weight = sum(team.weights[kind] for team, _ in sharing)
        full = [each for each in sharing if left * each[0].weights[kind] > each[1] * weight]
        if not full:
            break
        for team, room in full:
            team.cut += room
            left -= room
        sharing = [each for each in sharing if each not in full]
    remainders = []
    rest = left
    for team, _ in sharing:
        share, remainder = divmod(left * team.weights[kind], weight)
        team.cut += share
        rest -= share
        if remainder:
            remainders.append((-remainder, *_tie(team), team))
    for *_, team in sorted(remainders, key=lambda each: each[:3])[:rest]:
        team.cut += 1
    return wanted


def _break_gangs(teams: Sequence[_Team], left: int) -> int:
    """Break one gang that is enough, else the one that gives most, and go on. Returns what is left to cut.

    Of several that are enough the one goes that hurts the least running, then the least idle work.
    """
    slices = {team: room for team in teams if (room := _next_slice(team))} if left > 0 else {}
    while left > 0 and slices:
        needed = left
        if enough := [team for team, room in slices.items() if room >= needed]:
            team = min(enough, key=lambda team: (*team.hurt(needed), slices[team], *_tie(team)))
        else:
            largest = max(slices.values())
            team = min(
                (team for team, room in slices.items() if room == largest),
                key=lambda team: (*team.hurt(largest), *_tie(team)),
            )
        taken = min(slices.pop(team), left)
        team.cut += taken
        left -= taken
        if room := _next_slice(team):
            slices[team] = room
    return left


def _tie(team: _Team) -> tuple[int, str]:
    """Where nothing else decides: the larger assigned, then the name."""
    return -team.stake.assigned, team.stake.team


def _next_slice(team: _Team) -> int:
    """The nodes that can go when the gang that would break next is broken."""
    room = team.room(team.nodes)
    if not room:
        return 0
    kept = team.nodes - team.cut
    end = _up(gang_end(team.stake.claims, (kept - 1) * team.size), team.size)
    return min(room, kept - end)


def _break_fewer(teams: Sequence[_Team], over: int, in_gangs: int, broken_max: int) -> bool:
    """Whether the cut can be made with at most so many gangs broken, of which `in_gangs` nodes must come; makes it.

    Taking the largest gangs first is not always best: a team that gives up one of its first gangs may keep many small
    ones. For each number of broken gangs the choice that gives most is kept, team by team.
    """
    best: dict[int, tuple[int, tuple[tuple[_Team, int, int], ...]]] = {0: (0, ())}
    for team in teams:
        options = [each for each in _losses_of_gangs(team) if each[0] <= broken_max]
        for before, (gain, chosen) in sorted(best.items(), reverse=True):
            for broken, least, most in options:
                now, more = before + broken, gain + most - team.gangs
                if now <= broken_max and more > best.get(now, (0,))[0]:
                    best[now] = more, (*chosen, (team, least, most))
    for _, (gain, chosen) in sorted(best.items()):
        if gain >= in_gangs and sum(least for _, least, _ in chosen) <= over:
            for team, least, most in chosen:
                team.cut, team.kept_gangs = least, most
            return _cut(teams, over - sum(least for _, least, _ in chosen)) <= 0
    return False


def _losses_of_gangs(team: _Team) -> Iterator[tuple[int, int, int]]:
    """The ways for a team to lose gangs: how many are broken when at least and at most so many nodes go."""
    claims, least = team.stake.claims, team.gangs + 1
    for _ in range(LEVELS_TRIED_MAX):
        if least > team.floor:
            return
        kept = (team.nodes - least) * team.size
        most = team.nodes - _up(gang_end(claims, kept), team.size)
        yield _broken(team.stake, kept), least, min(most, team.floor)
        least = most + 1


def _next_block(teams: Sequence[_Team], left: int, dropped: set[str], *, line: int) -> str:
    """The block to give up: one that is enough and hurts least, else the largest. Pins stay."""
    blocks = [
        (team, gain)
        for team in teams
        if team.stake.team not in dropped and (gain := team.nodes - team.pinned - team.cut) > 0
    ]
    if not blocks:
        raise Unpinned(sum(team.pinned for team in teams) * teams[0].size, line)
    enough = [each for each in blocks if each[1] >= left]
    if enough:
        team, _ = min(enough, key=lambda each: (*each[0].hurt(each[1]), each[1], *_tie(each[0])))
    else:
        team, _ = min(blocks, key=lambda each: (-each[1], *each[0].hurt(each[1]), *_tie(each[0])))
    return team.stake.team


def _alignment(teams: Sequence[_Team], dropped: set[str]) -> Alignment:
    guaranteed, haircuts, broken = {}, {}, 0
    for team in teams:
        name = team.stake.team
        guaranteed[name] = (team.nodes - team.cut) * team.size
        if haircut := haircut_of(team.stake, guaranteed[name]):
            haircuts[name] = haircut
        broken += team.broken()
    return Alignment(guaranteed, haircuts, broken, tuple(sorted(dropped)))


def _broken(stake: Stake, guaranteed: int) -> int:
    """Gangs that what was assigned held whole, and that what is guaranteed does not."""
    before, after = fill(stake.claims, stake.assigned), fill(stake.claims, guaranteed)
    return sum(
        claim.kind is Kind.GANG and was > now for claim, was, now in zip(stake.claims, before, after, strict=True)
    )


def haircut_of(stake: Stake, guaranteed: int) -> Haircut | None:
    """What a team loses when it is guaranteed less than it was assigned; None where it loses nothing."""
    cut = stake.assigned - guaranteed
    if cut <= 0:
        return None
    unscheduled = min(cut, max(0, stake.assigned - stake.allocated))
    idle = min(cut - unscheduled, idle_inside(stake))
    return Haircut(unscheduled, idle, cut - unscheduled - idle)
