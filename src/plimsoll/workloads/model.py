"""The nouns of who runs where: a workload, its parts, and the blocks of islands they hold."""

from __future__ import annotations

import msgspec

from plimsoll.quota.model import Claim, Kind, QuotaKey, Tier


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

    def claims(self) -> dict[QuotaKey, list[Claim]]:
        """What it holds of its team's quotas."""
        found: dict[QuotaKey, list[Claim]] = {}
        for part in self.parts:
            claims = found.setdefault(QuotaKey(self.team, self.cluster, part.sku), [])
            claims += (
                Claim(self.id, block.island, part.kind, part.tier, part.rank, block.gpus, block.idle_gpus)
                for block in part.blocks
            )
        return found
