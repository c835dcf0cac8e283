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
from plimsoll.campaigns.model import Batch, Campaign, Counts, Limit, LimitKind, Measure
from plimsoll.campaigns.progress import Phase, Progress, Run, hold_id, lost_hold_id
from plimsoll.campaigns.units import Lot, Unit, amount, ceiling, make_units, matched, matches, weights
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.fold import Health
from plimsoll.state.state import State
from plimsoll.times import show_time
from plimsoll.words import counted


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


class Out(NamedTuple):
    """Nodes that are out for a campaign now."""

    unit: Unit
    lots: tuple[Lot, ...]


class Gatekeeper:
    """What is the same for all batches of a campaign that ask at one moment."""

    def __init__(self, state: State, run: Run, now: datetime) -> None:
        self._state, self.run, self.now = state, run, now
        self._fleet, self._health = state.of(Fleet), state.of(Health)
        self.campaign: Campaign = run.campaign
        self.units = {unit.name: unit for unit in make_units(run.campaign, self._fleet).units}
        self._zone = ZoneInfo(run.campaign.window.tz)
        self._out = self._all_out()
        self._ceilings: dict[int, float] = {}

    # What is out.

    def _all_out(self) -> dict[str, Node]:
        """Every node that planned work of a campaign has out now, and every one that did not come back from it."""
        found: dict[str, Node] = {}
        prefix = "campaign:"
        for name, holds in self._health.holds.items():
            if any(hold.id.startswith(prefix) for hold in holds):
                found[name] = self._fleet.nodes[name]
        return found

    def _lots_out(self, limit: Limit, but: Sequence[str]) -> float:
        """What of a limit's unit is out, without these nodes."""
        skipped = set(but)
        names = set(self._out)
        if limit.counts is Counts.ALL:
            names |= {
                node.id
                for node in self._fleet.nodes.values()
                if node.service not in (Service.IN_SERVICE, Service.RETIRED)
            }
        lots = [
            Lot(node.sku, node.gpus, 1)
            for name in names - skipped
            if self._is_in(limit, node := self._fleet.nodes[name])
        ]
        return self._amount(limit, lots)

    def _is_in(self, limit: Limit, node: Node) -> bool:
        cluster = self._fleet.clusters[node.cluster]
        values = {**cluster.labels, **node.labels, "cluster": cluster.id}
        values |= {
            key: str(getattr(cluster, key)) for key in ("region", "area", "colo", "provider", "purpose", "phase")
        }
        unit = next((each for each in self.units.values() if each.cluster.id == node.cluster), None)
        if unit is not None and (size := unit.value_of("size")) is not None:
            values["size"] = size
        return matches(limit.scope, values.get, (node.sku,))

    def _amount(self, limit: Limit, lots: Iterable[Lot]) -> float:
        listed = tuple(lots)
        a100e = weights(self._fleet, {lot.sku for lot in listed}) if limit.unit is Measure.A100E else {}
        return amount(listed, limit.unit, a100e)

    # What may be asked.

    def ask(self, batch: Batch, number: int | None = None) -> list[No]:
        """Every reason why a batch may not begin now; none means yes. `number` is the plan that whoever asks has."""
        unit = self.units.get(batch.unit)
        nos = [*self._ask_campaign(number), *self._ask_nodes(batch, unit)]
        if unit is not None:
            nos += [*self._ask_time(batch, unit), *self._ask_incident(unit), *self._ask_order(unit)]
            if self.now >= batch.start:  # what is out now says nothing about a batch that is not due
                nos += self._ask_limits(batch, unit)
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
        if gone or unit is None:
            some = f" ({', '.join(gone[:3])}{', …' if len(gone) > 3 else ''})" if gone else ""
            nos.append(No(Code.NODES_GONE, f"{len(gone)} of its {len(names)} nodes are gone from scope{some}", replan))
        own = hold_id(self.run.name, batch.id)
        for name in names:
            lease = next((hold for hold in self._health.holds.get(name, ()) if hold.is_exclusive), None)
            if lease is not None and lease.id != own and not lease.is_expired(self.now):
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
        closes = datetime.combine(batch.start.astimezone(self._zone).date(), datetime.min.time(), self._zone)
        closes += timedelta(minutes=window.closes)
        ends = self.now + (batch.end - batch.start)
        if ends > closes.astimezone(ends.tzinfo) + timedelta(minutes=self.campaign.slot_minutes):
            text = f"it would end at {show_time(ends)}, and its window closes at {show_time(closes)}"
            nos.append(No(Code.TOO_LATE_TODAY, text, f"plimsoll campaign replan {self.run.name}"))
        return nos

    def _ask_incident(self, unit: Unit) -> list[No]:
        found = []
        for incident in self._state.of(Campaigns).incidents.values():
            if incident.closed_at or incident.campaign:
                continue
            if not incident.clusters or unit.cluster.id in incident.clusters:
                text = f"incident {incident.id} is open since {show_time(incident.opened_at)}: {incident.title}"
                found.append(No(Code.INCIDENT, text, f"plimsoll campaign incident close {incident.id}"))
        return found[:1]

    def _progress_of(self, unit: str) -> list[Progress]:
        return [each for each in self.run.progress.values() if each.batch.unit == unit]

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
        nos = []
        canary = self.campaign.canary
        if canary is not None and not unit.is_canary:
            canaries = [each for each in self.units.values() if each.is_canary]
            waiting, last = self._ended(canaries)
            if waiting:
                nos.append(No(Code.CANARY, f"canary {', '.join(waiting[:3])} has not ended", "wait"))
            elif last is not None and self.now < (soaked := last + timedelta(minutes=canary.soak_minutes)):
                soak = counted(round(canary.soak_minutes / 60), "hour")
                text = f"the canary ended at {show_time(last)} and soaks for {soak}"
                nos.append(No(Code.CANARY, text, "wait", soaked))
            lost = sum(
                len(each.lost) for each in self.run.progress.values() if each.batch.unit in {u.name for u in canaries}
            )
            whole = sum(each.nodes for each in canaries)
            expected = sum(sum(each.stays) for each in canaries)
            if not waiting and lost > max(1, 2 * expected):
                text = f"{lost} of the canary's {whole} nodes did not come back; {expected} were expected"
                move = f"look at them, then plimsoll campaign replan {self.run.name} or cancel"
                nos.append(No(Code.CANARY, text, move))
        if unit.group is not None and self.campaign.order[unit.group].is_strict:
            earlier = [each for each in self.units.values() if each.group is not None and each.group < unit.group]
            waiting, _ = self._ended(earlier)
            if waiting:
                text = f"{counted(len(waiting), 'cluster')} of earlier groups not done: {', '.join(waiting[:3])}"
                nos.append(No(Code.STRICT_ORDER, text, "wait"))
        return nos

    def _ask_limits(self, batch: Batch, unit: Unit) -> list[No]:
        today = self.now.astimezone(self._zone).date()
        lots = unit.lots[min(batch.number, len(unit.lots)) - 1]
        names = self.run.names.get(batch.id, ())
        nos = []
        for number, limit in enumerate(self.campaign.limits):
            if not limit.holds_on(today) or limit.kind is LimitKind.AVERAGE_LOSS:
                continue
            more = matched(limit.scope, unit, lots)
            if not more:
                continue
            most = self._ceiling(number)
            if limit.kind is LimitKind.OUT_AT_ONCE:
                has, adds = self._lots_out(limit, names), self._amount(limit, more)
                what = f"{limit.unit} out at once"
            elif limit.kind is LimitKind.CREWS:
                others = {each.batch.unit for each in self.run.batches_under_way()} - {unit.name}
                has, adds, what = len(self._matching(limit, others)), 1, "clusters worked on at once"
            elif limit.kind is LimitKind.STARTS_PER_DAY:
                if batch.number != 1:
                    continue
                begun = {each.batch.unit for each in self._begun_on(today) if each.batch.number == 1} - {unit.name}
                has, adds, what = len(self._matching(limit, begun)), 1, "clusters begun today"
            else:
                begun_lots = [self._lots_of(limit, each) for each in self._begun_on(today)]
                has, adds = sum(begun_lots), self._amount(limit, more)
                what = f"{limit.unit} taken out today"
            if has + adds > most * (1 + 1e-9):
                scope = "" if limit.scope.is_everything else f" of {{{limit.scope}}}"
                text = f"limits[{number}]: {has:,.0f} {what}{scope}, {adds:,.0f} more would be over {most:,.0f}"
                nos.append(No(Code.LIMIT, text, "wait until others are back"))
        return nos

    def _ceiling(self, number: int) -> float:
        found = self._ceilings.get(number)
        if found is None:
            limit = self.campaign.limits[number]
            found = self._ceilings[number] = ceiling(limit, self.campaign, self._fleet)
        return found

    def _matching(self, limit: Limit, names: Iterable[str]) -> list[str]:
        units = [self.units[name] for name in names if name in self.units]
        return [each.name for each in units if matches(limit.scope, each.value_of, each.skus)]

    def _begun_on(self, day: object) -> list[Progress]:
        return [
            each
            for each in self.run.progress.values()
            if each.started is not None and each.started.astimezone(self._zone).date() == day
        ]

    def _lots_of(self, limit: Limit, progress: Progress) -> float:
        nodes = [self._fleet.nodes[name] for name in progress.nodes if name in self._fleet.nodes]
        return self._amount(limit, [Lot(node.sku, node.gpus, 1) for node in nodes if self._is_in(limit, node)])


def nodes_lost(state: State, campaign: str) -> list[str]:
    """Nodes that did not come back from a campaign and still are out."""
    own = lost_hold_id(campaign)
    return sorted(name for name, holds in state.of(Health).holds.items() if any(hold.id == own for hold in holds))
