"""How a whole number of nodes is dealt out by weight. Pure arithmetic, no randomness."""

from __future__ import annotations

from collections.abc import Sequence


def deal(total: int, weights: Sequence[float], caps: Sequence[int] | None = None) -> list[int]:
    """Deal `total` nodes by weight, nobody above its cap; what no cap has room for is not dealt.

    Each node goes to whoever has the highest weight per node held so far, ties to the earlier one.
    """
    shares = [0] * len(weights)
    open_to = [index for index, weight in enumerate(weights) if weight > 0]
    for _ in range(total):
        open_to = [index for index in open_to if caps is None or shares[index] < caps[index]]
        if not open_to:
            break
        shares[max(open_to, key=lambda index: weights[index] / (shares[index] + 0.5))] += 1
    return shares
