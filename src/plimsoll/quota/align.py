"""The alignment: turns what teams were assigned of a pool into what they are guaranteed under its line. Pure.

If the sum fits, nobody changes. Otherwise the overload is taken first from what is unscheduled, then idle, then running;
per kind in proportion to what each team has of it, in whole nodes. Before that order come, from the strongest: the line,
pins, minimum blocks, gang blocks. It never leaves more than the line, and never cuts a pin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from plimsoll.quota.fill import Claims, gang_end
from plimsoll.quota.model import Haircut


class Stake(msgspec.Struct, frozen=True):
    """What a team has in a pool, in GPUs. `pin`: never below; `block`: this much or nothing."""

    team: str
    assigned: int
    claims: Claims = ()
    pin: int = 0
    block: int = 0

    @property
    def allocated(self) -> int:
        return sum(claim.gpus for claim in self.claims)

    @property
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
    """A team's nodes from the top of its quota down: unscheduled, idle, running outside gangs, gangs."""

    __slots__ = ("cut", "floor", "gangs", "idle_end", "nodes", "stake", "unscheduled_end")

    def __init__(self, stake: Stake, size: int) -> None:
        self.stake = stake
        self.cut = 0
        assigned, allocated = stake.assigned, stake.allocated
        unscheduled = max(0, assigned - allocated)
        self.nodes = assigned // size
        self.unscheduled_end = unscheduled // size
        self.idle_end = (unscheduled + idle_inside(stake)) // size
        self.gangs = self.nodes - _up(gang_end(stake.claims, assigned), size)
        """The most nodes that can go without breaking a gang."""
        block = stake.block if stake.block <= assigned else 0
        self.floor = self.nodes - min(self.nodes, _up(max(stake.pin, block), size))
        """The most nodes that can go at all, as long as pin and block stay."""

    def room(self, end: int) -> int:
        """How many more nodes can be cut down to there."""
        return max(0, min(end, self.floor) - self.cut)


def _up(gpus: int, size: int) -> int:
    return -(-gpus // size)


def idle_inside(stake: Stake) -> int:
    """Idle GPUs that count as the team's quota: those above it are charged first."""
    return max(0, min(stake.idle, stake.assigned) - max(0, stake.allocated - stake.assigned))


def align(stakes: Sequence[Stake], line: int, size: int) -> Alignment:
    """Guarantees under a line; `size` is the GPUs of a node. Raises `Unpinned` where pins alone are above it."""
    over = _up(max(0, sum(stake.assigned for stake in stakes) - line), size)
    if not over:
        return Alignment({stake.team: stake.assigned for stake in stakes}, {})
    dropped: set[str] = set()
    while True:
        teams = [_Team(stake, size) for stake in stakes]
        for team in teams:
            if team.stake.team in dropped:
                team.cut = team.nodes
        left, broken = _cut(teams, over - sum(team.cut for team in teams))
        if left <= 0:
            return _alignment(teams, size, broken, dropped)
        dropped.add(_next_block(teams, left, dropped, line=line, size=size))


def _cut(teams: Sequence[_Team], left: int) -> tuple[int, int]:
    """Cut kind by kind; returns what could not be cut, and how many gangs were broken."""
    for end in ("unscheduled_end", "idle_end", "gangs"):
        if left <= 0:
            return left, 0
        rooms = [team.room(min(getattr(team, end), team.gangs)) for team in teams]
        left -= _share_out(teams, rooms, left)
    return _break_gangs(teams, left)


def _share_out(teams: Sequence[_Team], rooms: Sequence[int], wanted: int) -> int:
    """Cut in proportion to the room that each team has, largest remainder; returns how much was cut."""
    total = sum(rooms)
    if total <= wanted:
        for team, room in zip(teams, rooms, strict=True):
            team.cut += room
        return total
    rest = wanted
    remainders = []
    for team, room in zip(teams, rooms, strict=True):
        share, remainder = divmod(wanted * room, total)
        team.cut += share
        rest -= share
        if remainder:
            remainders.append((-remainder, -team.stake.assigned, team.stake.team, team))
    remainders.sort(key=lambda each: each[:3])
    for *_, team in remainders[:rest]:
        team.cut += 1
    return wanted


def _break_gangs(teams: Sequence[_Team], left: int) -> tuple[int, int]:
    """Break as few gangs as can be: the smallest that is enough, else the one that gives most."""
    broken = 0
    while left > 0:
        slices = [(team, _next_slice(team)) for team in teams]
        slices = [(team, room) for team, room in slices if room]
        if not slices:
            break
        enough = [each for each in slices if each[1] >= left]
        if enough:
            team, room = min(enough, key=lambda each: (each[1], -each[0].stake.assigned, each[0].stake.team))
        else:
            team, room = min(slices, key=lambda each: (-each[1], -each[0].stake.assigned, each[0].stake.team))
        taken = min(room, left)
        team.cut += taken
        left -= taken
        broken += 1
    return left, broken


def _next_slice(team: _Team) -> int:
    """The nodes that can go when the gang that would break next is broken."""
    size_left = team.nodes - team.cut
    if team.room(team.nodes) == 0:
        return 0
    size = team.stake.assigned // team.nodes
    end = _up(gang_end(team.stake.claims, (size_left - 1) * size), size)
    return min(team.room(team.nodes), size_left - end)


def _next_block(teams: Sequence[_Team], left: int, dropped: set[str], *, line: int, size: int) -> str:
    """The block to give up whole: the smallest that is enough, else the largest. Pins stay."""
    blocks = [
        (team.nodes - team.cut, -team.stake.assigned, team.stake.team)
        for team in teams
        if team.stake.block and not team.stake.pin and team.stake.team not in dropped and team.cut < team.nodes
    ]
    if not blocks:
        raise Unpinned(sum((team.nodes - team.floor) * size for team in teams if team.stake.pin), line)
    enough = [each for each in blocks if each[0] >= left]
    return min(enough)[2] if enough else max(blocks, key=lambda each: (each[0], -each[1], each[2]))[2]


def _alignment(teams: Sequence[_Team], size: int, broken: int, dropped: set[str]) -> Alignment:
    guaranteed, haircuts = {}, {}
    for team in teams:
        name = team.stake.team
        guaranteed[name] = (team.nodes - team.cut) * size
        if haircut := haircut_of(team.stake, guaranteed[name]):
            haircuts[name] = haircut
    return Alignment(guaranteed, haircuts, broken, tuple(sorted(dropped)))


def haircut_of(stake: Stake, guaranteed: int) -> Haircut | None:
    """What a team loses when it is guaranteed less than it was assigned; None where it loses nothing."""
    cut = stake.assigned - guaranteed
    if cut <= 0:
        return None
    unscheduled = min(cut, max(0, stake.assigned - stake.allocated))
    idle = min(cut - unscheduled, idle_inside(stake))
    return Haircut(unscheduled, idle, cut - unscheduled - idle)
