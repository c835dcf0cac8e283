"""Whether more is out than a running campaign may have out. Pure.

The gate lets no batch begin that would do this; but nodes that do not come back, other campaigns, and a fleet that
shrinks can still bring it about, and then whoever runs the campaign has to know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import LimitKind
from plimsoll.campaigns.run.census import Census
from plimsoll.campaigns.run.gate import Gatekeeper
from plimsoll.campaigns.run.progress import Phase, Run
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.incidents.model import Look, Trouble
from plimsoll.incidents.reasons import Kind
from plimsoll.state.state import State

GOING_ON = (Phase.RUNNING, Phase.PAUSED, Phase.CANCELLING)


class ExceededCaps:
    """A finder that remembers what it found as long as nothing has changed: to count takes a look at every node."""

    def __init__(self) -> None:
        self._censuses: dict[str, Census] = {}
        self._known: tuple[tuple[State, int, object], list[Trouble]] | None = None

    def __call__(self, look: Look) -> Iterator[Trouble]:
        runs = [run for _, run in sorted(look.state.of(Campaigns).runs.items()) if run.phase in GOING_ON]
        for name in set(self._censuses) - {run.name for run in runs}:
            del self._censuses[name]
        if not runs:
            self._known = None
            return
        days = tuple(look.now.astimezone(ZoneInfo(run.campaign.window.tz)).date() for run in runs)
        key = (look.state, look.state.revision, days)
        if self._known is None or self._known[0] != key:
            self._known = key, [trouble for run in runs for trouble in self._exceeded(look, run)]
        yield from self._known[1]

    def _exceeded(self, look: Look, run: Run) -> Iterator[Trouble]:
        limits = run.campaign.limits
        caps = [number for number, limit in enumerate(limits) if limit.kind is LimitKind.OUT_AT_ONCE]
        if not caps:
            return
        gate = Gatekeeper(look.state, run, look.now, self._census(run, look.state.of(Fleet)))
        today = look.now.astimezone(ZoneInfo(run.campaign.window.tz)).date()
        for number in caps:
            limit = limits[number]
            if not limit.holds_on(today):
                continue
            try:
                out, most = gate.out_of_limit(number)
            except PlimsollError:  # a SKU that nobody has weighed: the gate says so of every batch
                continue
            over = math.ceil(out - most * (1 + 1e-9))
            if over > 0:
                scope = "" if limit.scope.is_everything else f" of {{{limit.scope}}}"
                yield Trouble(
                    Kind.CAP,
                    f"campaign/{run.name}/limits[{number}]",
                    f"{run.name}: more is out than limits[{number}] allows",
                    look.now,
                    over,
                    str(limit.unit),
                    f"{out:,.0f} {limit.unit} out at once{scope}, at most {most:,.0f} may be",
                    next_step=f"plimsoll campaign status {run.name}",
                )

    def _census(self, run: Run, fleet: Fleet) -> Census:
        known = self._censuses.get(run.name)
        if known is None or not known.holds_for(run.campaign, fleet):
            known = self._censuses[run.name] = Census(run.campaign, fleet)
        return known
