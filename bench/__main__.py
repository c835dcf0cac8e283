"""Runs the benches: all of them, or those named."""

from __future__ import annotations

import importlib
import sys

from bench.figures import show

BENCHES = (
    "startup",
    "demo",
    "append",
    "importing",
    "opening",
    "health",
    "forecasting",
    "quota_plan",
    "quota_history",
    "placement",
    "replay",
    "incidents",
    "campaign_plan",
    "lifecycle",
    "serving",
    "pages",
)


def main(names: list[str]) -> int:
    """Exit 1 when a figure is missed."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"there is no bench {unknown[0]!r}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    do_hold = [show(importlib.import_module(f"bench.{name}").measure()) for name in names or BENCHES]
    return 0 if all(do_hold) else 1


sys.exit(main(sys.argv[1:]))
