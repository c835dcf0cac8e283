"""The gate: whether a batch may begin now. Pure.

It is asked with the live state, not with the plan: nodes that are really out, crews that are really at work, the canary
as it really ended. Every no has a code, the numbers, and whose move it is; the one that lasts longest stands first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Batch, Campaign, Canary, Counts, Limit, LimitKind, Measure
from plimsoll.campaigns.run.census import Census
from plimsoll.campaigns.run.progress import Phase, Progress, Run, hold_id, lost_hold_id
from plimsoll.campaigns.units import Lot, Unit, amount, matches, matches_node, weights
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Service
from plimsoll.health.fold import Health
from plimsoll.incidents.fold import Incidents
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted

ON_TIME = timedelta(minutes=10)
"""A pass comes every minute or so: a batch that fills its window and begins this much late is on time."""


class Code(enum.StrEnum):
    """Why a batch may not begin, from lasting to passing."""

    NOT_RUNNING = "not_running"
    NEWER_PLAN = "newer_plan"
    NODES_GONE = "nodes_gone"
    TOO_LATE_TODAY = "too_late_today"
    NO_FLY = "no_fly"
    INCIDENT = "incident"
    STRICT_ORDER = "strict_order"
    CANARY = "canary"
    NODE_LEASED = "node_leased"
    LIMIT = "limit"
    NOT_DUE = "not_due"


class No(NamedTuple):
    """One reason why not. `until` is when it is expected to pass, where that is known."""

    code: Code
    text: str
    move: str
    until: datetime | None = None


_OUTSIDE = {
    Code.INCIDENT: "an incident is open",
    Code.NODE_LEASED: "somebody else works on one of its nodes",
}
_OWN_MOVES = ("plimsoll ", "ask ", "look at them")


def told_outside(no: No) -> No:
    """What the provider is told: nothing that our people wrote of something else, and no command that it can't type."""
    move = "the operators'" if no.move.startswith(_OWN_MOVES) else no.move
    return no._replace(text=_OUTSIDE.get(no.code, no.text), move=move)


class Gatekeeper:
    """What is the same for all batches of a campaign that ask at one moment."""

    def __init__(self, state: State, run: Run, now: datetime, census: Census | None = None) -> None:
        self._state, self.run, self.now = state, run, now
        self._fleet, self._health = state.of(Fleet), state.of(Health)
        self.campaign: Campaign = run.campaign
        self._census = census or Census(run.campaign, self._fleet)
        self.units = self._census.units
        self._zone = ZoneInfo(run.campaign.window.tz)
        self._taken = self._all_taken()
        self._out = self._all_out()
        self._spent: dict[int, dict[str, float]] = {}
        self._canary_nos: list[No] | None = None
        self._order_nos: dict[int, list[No]] = {}

    # What is out.

    def _all_taken(self) -> dict[str, tuple[str, Progress]]:
        """The nodes of every batch that is under way, of any campaign: which campaign, and how far the batch is."""
        return {
            name: (run.name, each)
            for run in self._state.of(Campaigns).runs.values()
            for each in run.batches_under_way()
            for name in each.nodes
        }

    def _all_out(self) -> set[str]:
        """Every node that planned work of a campaign has out now, and every one that did not come back from it.

        A node that validates has no hold any more, and is out for its batch all the same.
        """
        nodes = self._fleet.nodes
        held = {
            name for name, holds in self._health.holds.items() if any(hold.id.startswith("campaign:") for hold in holds)
        }
        taken = {name for name in self._taken if nodes[name].service is not Service.IN_SERVICE}
        return {name for name in held | taken if nodes[name].service is not Service.RETIRED}

    def _out_of(self, number: int, but: Sequence[str]) -> float:
        """What is out of a limit's unit, without these nodes."""
        spent = self._spent.get(number)
        if spent is None:
            limit, names = self.campaign.limits[number], self._out
            if limit.counts is Counts.ALL:
                out = (Service.IN_SERVICE, Service.RETIRED)
                names = names | {node.id for node in self._fleet.nodes.values() if node.service not in out}
            spent = self._spent[number] = {name: self._amount(limit, [name]) for name in names}
        skipped = set(but)
        return sum(size for name, size in spent.items() if name not in skipped)

    def out_of_limit(self, number: int) -> tuple[float, float]:
        """What is out of a limit's unit now, and the most that it allows."""
        return self._out_of(number, ()), self._census.ceiling(number)

    def _amount(self, limit: Limit, names: Iterable[str]) -> float:
        """These nodes in a limit's unit: those that its scope matches and that are not retired."""
        known = self._census.labelled
        found = [known[name] for name in names if name in known]
        lots = [Lot(each.node.sku, each.node.gpus, 1) for each in found if matches_node(limit.scope, each)]
        a100e = weights(self._fleet, {lot.sku for lot in lots}) if limit.unit is Measure.A100E else {}
        return amount(lots, limit.unit, a100e)

    # What may be asked.

    def ask(self, batch: Batch, number: int | None = None) -> list[No]:
        """Every reason why a batch may not begin now; none means yes. `number` is the plan that whoever asks has."""
        unit = self.units.get(batch.unit)
        nos = [*self._ask_campaign(number), *self._ask_nodes(batch, unit)]
        if unit is not None:
            nos += [*self._ask_time(batch, unit), *self._ask_incident(unit), *self._ask_order(unit)]
            if self.now >= batch.start:  # what is out now says nothing about a batch that is not due
                try:
                    nos += self._ask_limits(batch, unit)
                except PlimsollError as error:  # a SKU that nobody has weighed: what can't be counted is not allowed
                    nos.append(No(Code.LIMIT, error.message, error.next_step))
        order = list(Code)
        return sorted(nos, key=lambda no: order.index(no.code))

    def _ask_campaign(self, number: int | None) -> list[No]:
        if number is not None and number != self.run.plan.number:
            text = f"plan {self.run.plan.number} is in force, not {number}"
            return [No(Code.NEWER_PLAN, text, f"plimsoll campaign status {self.run.name}")]
        if self.run.phase is Phase.RUNNING:
            return []
        why = f": {self.run.why}" if self.run.why else ""
        moves = {
            Phase.PLANNED: f"plimsoll campaign start {self.run.name}",
            Phase.PAUSED: f"plimsoll campaign resume {self.run.name}",
        }
        return [No(Code.NOT_RUNNING, f"the campaign is {self.run.phase}{why}", moves.get(self.run.phase, "nobody's"))]

    def _ask_nodes(self, batch: Batch, unit: Unit | None) -> list[No]:
        names = self.run.names.get(batch.id, ())
        nodes = self._fleet.nodes
        gone = [name for name in names if name not in nodes or nodes[name].service is Service.RETIRED]
        nos = []
        replan = f"plimsoll campaign replan {self.run.name}"
        if gone:
            some = f" ({', '.join(gone[:3])}{', …' if len(gone) > 3 else ''})"
            nos.append(No(Code.NODES_GONE, f"{len(gone)} of its {len(names)} nodes are gone from scope{some}", replan))
        elif unit is None:
            text = f"the fleet is another one now: {self._census.unfit or f'{batch.unit} is not in scope any more'}"
            nos.append(No(Code.NODES_GONE, text, replan))
        own = hold_id(self.run.name, batch.id)
        for name in names:
            campaign, known = self._taken.get(name, (self.run.name, None))
            if known is not None and (campaign, known.batch.id) != (self.run.name, batch.id):
                text = f"{name} is in batch {known.batch.id} of {campaign}, which is {known.step}"
                return [*nos, No(Code.NODE_LEASED, text, f"plimsoll campaign status {campaign}")]
        for name in names:
            others = (hold for hold in self._health.holds.get(name, ()) if hold.is_exclusive and hold.id != own)
            lease = next((hold for hold in others if not hold.is_expired(self.now)), None)
            if lease is not None:
                text = f"{lease.owner} works on {name}: {lease.reason}"
                nos.append(No(Code.NODE_LEASED, text, f"ask {lease.owner}", lease.expires_at))
                break
        return nos

    def _ask_time(self, batch: Batch, unit: Unit) -> list[No]:
        now = self.now.astimezone(self._zone)
        window = self.campaign.window
        nos = []
        if self.now < batch.start:
            nos.append(No(Code.NOT_DUE, f"it begins at {show_time(batch.start)}", "wait", batch.start))
            return nos
        zones = [zone for zone in unit.no_fly if zone.from_day <= now.date() <= zone.to_day]
        if zones:
            why = f": {zones[0].why}" if zones[0].why else ""
            text = f"no-fly zone from {zones[0].from_day} to {zones[0].to_day}{why}"
            nos.append(No(Code.NO_FLY, text, "whoever asked for the zone"))
        midnight = datetime.combine(batch.start.astimezone(self._zone).date(), datetime.min.time(), self._zone)
        opens, closes = midnight + timedelta(minutes=window.opens), midnight + timedelta(minutes=window.closes)
        if self.now < opens:  # a batch that a newer file left where it was
            nos.append(No(Code.NOT_DUE, f"its window opens at {show_time(opens)}", "wait", opens))
        ends = self.now + (batch.end - batch.start)
        if ends > closes + ON_TIME:
            text = f"it would end at {show_time(ends)}, and its window closes at {show_time(closes)}"
            nos.append(No(Code.TOO_LATE_TODAY, text, f"plimsoll campaign replan {self.run.name}"))
        return nos

    def _ask_incident(self, unit: Unit) -> list[No]:
        found = []
        tables = self._state.of(Incidents)
        for incident in (tables.incidents[name] for name in sorted(tables.holding)):
            if not incident.clusters or unit.cluster.id in incident.clusters:
                text = f"incident {incident.id} is open since {show_time(incident.opened_at)}: {incident.title}"
                found.append(No(Code.INCIDENT, text, f"plimsoll incident close {incident.id}"))
        return found[:1]

    def _ended(self, units: Iterable[Unit]) -> tuple[list[str], datetime | None]:
        """Of these units those that are not done yet, and when the last that is done ended."""
        waiting, last = [], None
        batches: dict[str, list[Batch]] = {}
        for batch in self.run.plan.batches:
            batches.setdefault(batch.unit, []).append(batch)
        for unit in units:
            mine = [self.run.progress.get(batch.id) for batch in batches.get(unit.name, ())]
            ends = [each.ended for each in mine if each is not None and each.ended is not None]
            if len(ends) < len(mine):
                waiting.append(unit.name)
            elif ends:
                last = max(ends) if last is None else max(last, *ends)
        return waiting, last

    def _ask_order(self, unit: Unit) -> list[No]:
        """The canary and the groups before say the same to all who ask: they are looked at once."""
        nos: list[No] = []
        if self.campaign.canary is not None and not unit.is_canary:
            if self._canary_nos is None:
                self._canary_nos = self._ask_canary(self.campaign.canary)
            nos += self._canary_nos
        if unit.group is not None and self.campaign.order[unit.group].is_strict:
            if unit.group not in self._order_nos:
                self._order_nos[unit.group] = self._ask_earlier(unit.group)
            nos += self._order_nos[unit.group]
        return nos

    def _ask_canary(self, canary: Canary) -> list[No]:
        nos = []
        canaries = {name: each for name, each in self.units.items() if each.is_canary}
        waiting, last = self._ended(canaries.values())
        if waiting:
            nos.append(No(Code.CANARY, f"canary {', '.join(waiting[:3])} has not ended", "wait"))
        elif last is not None and self.now < (soaked := last + timedelta(minutes=canary.soak_minutes)):
            soak = counted(round(canary.soak_minutes / 60), "hour")
            text = f"the canary ended at {show_time(last)} and soaks for {soak}"
            nos.append(No(Code.CANARY, text, "wait", soaked))
        lost = sum(len(each.lost) for each in self.run.progress.values() if each.batch.unit in canaries)
        whole = sum(each.nodes for each in canaries.values())
        expected = sum(sum(each.stays) for each in canaries.values())
        if not waiting and lost > max(1, 2 * expected):
            text = f"{lost} of the canary's {whole} nodes did not come back; {expected} were expected"
            move = f"look at them, then plimsoll campaign replan {self.run.name} or cancel"
            nos.append(No(Code.CANARY, text, move))
        return nos

    def _ask_earlier(self, group: int) -> list[No]:
        earlier = [each for each in self.units.values() if each.group is not None and each.group < group]
        waiting, _ = self._ended(earlier)
        if not waiting:
            return []
        text = f"{counted(len(waiting), 'cluster')} of earlier groups not done: {', '.join(waiting[:3])}"
        return [No(Code.STRICT_ORDER, text, "wait")]

    def _ask_limits(self, batch: Batch, unit: Unit) -> list[No]:
        today = self.now.astimezone(self._zone).date()
        names = self.run.names.get(batch.id, ())
        nos = []
        for number, limit in enumerate(self.campaign.limits):
            if not limit.holds_on(today) or limit.kind is LimitKind.AVERAGE_LOSS:
                continue
            most = self._census.ceiling(number)
            has: float
            if limit.kind is LimitKind.CREWS:
                others = {each.batch.unit for each in self.run.batches_under_way()} - {unit.name}
                has, adds = len(self._matching(limit, others)), float(len(self._matching(limit, [unit.name])))
                what = "clusters worked on at once"
            elif limit.kind is LimitKind.STARTS_PER_DAY:
                begun = {each.batch.unit for each in self._begun_on(today) if each.batch.number == 1} - {unit.name}
                is_first = batch.number == 1 and bool(self._matching(limit, [unit.name]))
                has, adds, what = len(self._matching(limit, begun)), float(is_first), "clusters begun today"
            elif limit.kind is LimitKind.OUT_AT_ONCE:
                has, adds, what = self._out_of(number, names), self._amount(limit, names), f"{limit.unit} out at once"
            else:
                has = sum(self._amount(limit, each.nodes) for each in self._begun_on(today))
                adds, what = self._amount(limit, names), f"{limit.unit} taken out today"
            if adds and has + adds > most * (1 + 1e-9):
                scope = "" if limit.scope.is_everything else f" of {{{limit.scope}}}"
                text = f"limits[{number}]: {has:,.0f} {what}{scope}, {adds:,.0f} more would be over {most:,.0f}"
                nos.append(No(Code.LIMIT, text, "wait until others are back"))
        return nos

    def _matching(self, limit: Limit, names: Iterable[str]) -> list[str]:
        units = [self.units[name] for name in names if name in self.units]
        return [each.name for each in units if matches(limit.scope, each.value_of, each.skus)]

    def _begun_on(self, day: object) -> list[Progress]:
        return [
            each
            for each in self.run.progress.values()
            if each.started is not None and each.started.astimezone(self._zone).date() == day
        ]


def nodes_lost(state: State, campaign: str) -> list[str]:
    """Nodes that did not come back from a campaign and still are out."""
    own = lost_hold_id(campaign)
    return sorted(name for name, holds in state.of(Health).holds.items() if any(hold.id == own for hold in holds))
