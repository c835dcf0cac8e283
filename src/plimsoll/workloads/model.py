"""The nouns of who runs where: a workload, its parts, and the blocks of islands they hold."""

from __future__ import annotations

import enum

import msgspec


class Kind(enum.StrEnum):
    """How a part bears a loss: a gang not at all, an elastic part by having less."""

    GANG = "gang"
    ELASTIC = "elastic"


class Tier(enum.StrEnum):
    """What a team finds more important among its own work, most important first."""

    CRITICAL = "critical"
    HIGH = "high"
    MID = "mid"
    LOW = "low"


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPUs that a part holds in one island."""

    island: str
    gpus: int
    idle_gpus: int = 0


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a workload. A gang has exactly one block. `is_assumed`: the import had to place it itself."""

    kind: Kind
    tier: Tier
    rank: int
    sku: str
    blocks: tuple[Block, ...]
    is_assumed: bool = False
    labels: dict[str, str] = {}

    @property
    def gpus(self) -> int:
        return sum(block.gpus for block in self.blocks)

    @property
    def idle_gpus(self) -> int:
        return sum(block.idle_gpus for block in self.blocks)


class Workload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A team's running work; all its parts are in one cluster."""

    id: str
    team: str
    cluster: str
    parts: tuple[Part, ...]
