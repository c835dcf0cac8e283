"""All methods by name, simple ones first."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from plimsoll.errors import UsageError
from plimsoll.health.forecast.arrivals import Arrivals
from plimsoll.health.forecast.guarded import Cautious, Guarded, Pooled
from plimsoll.health.forecast.method import Method
from plimsoll.health.forecast.simple import Independent, NegativeBinomial, Trailing, Worst
from plimsoll.health.forecast.thrifty import Thrifty

HINDSIGHT = "hindsight"
"""The oracle: the smallest constant buffer that would have held. It knows the future, so only the back-test has it."""

METHODS: tuple[Method, ...] = (
    Independent(),
    Trailing(),
    NegativeBinomial(),
    Arrivals(),
    Guarded(),
    Pooled(),
    Cautious(),
    Thrifty(),
    Worst(),
)


def methods_named(names: Sequence[str]) -> tuple[Method, ...]:
    """The methods of these names, in their usual order; all of them where none is named."""
    known = {method.name: method for method in METHODS}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                "bad_method",
                f"there is no method {name[:100]!r} to choose{hint}",
                next_step=f"--method {'|'.join(known)}",
                value=name[:100],
                allowed=list(known),
            )
    return tuple(method for method in METHODS if not names or method.name in names)
