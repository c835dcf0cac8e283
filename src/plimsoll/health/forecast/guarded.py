"""Methods that learn from how their own promises turned out. Pure.

A model is wrong in ways it can't see: clusters that keep missing their target must hold back more, whatever the model
says. The guard keeps an account of hours: each horizon allows some violated hours, those that happened are taken off.
What is left is spent, and what is owed is paid back, evenly over the next half year. So the rate of violations over a
long time is the allowed one for any sequence of failures, as far as a buffer can make it so.
"""

from __future__ import annotations

from functools import partial

from plimsoll.health.forecast.arrivals import Arrivals, Outlook, outlook, own_survival, promise_at
from plimsoll.health.forecast.history import FloatArray
from plimsoll.health.forecast.method import Ask, Method, Presence, Promise, Records, View
from plimsoll.health.forecast.survival import REPAIRS_MIN, Survival

AIM, CAUTIOUS_AIM = 0.9, 0.7
"""The share of the allowed violations that a guard aims at: the rest is for what it can't steer."""
PAYBACK_HORIZONS = 26
RISK_LEAST, RISK_MOST = 0.1, 2.0
"""The risk taken in one horizon stays between these multiples of the allowed one: no debt makes a promise worthless,
and no credit makes it a gamble."""
FLEET_WEIGHT = 0.75
"""How much of the account is the fleet's: one burst says little of one cluster and more of all of them together."""
BORROWED_HOURS = 90 * 24.0
"""The fleet's bursts count as much as so many hours of a cluster's own past."""


def guarded_risk(ask: Ask, records: Records, *, aim: float, fleet_weight: float) -> float:
    """The risk to take in this horizon, given the account."""
    credit = records.credit(aim * ask.risk, fleet_weight=fleet_weight)
    risk = aim * ask.risk + credit / PAYBACK_HORIZONS
    return min(max(risk, RISK_LEAST * ask.risk), RISK_MOST * ask.risk)


class Guarded(Arrivals):
    """Arrivals, with a guard on the cluster's own record."""

    name = "guarded"
    says = "arrivals; holds back more after misses and less after a long clean record"
    aim = AIM
    fleet_weight = 0.0

    def promise(self, view: View, ask: Ask, records: Records) -> Promise:
        risk = guarded_risk(ask, records, aim=self.aim, fleet_weight=self.fleet_weight)
        return promise_at(view, self.expect(view, ask), 1 - risk, horizons_judged=float(records.own.horizons))


class Pooled(Guarded):
    """The same, borrowing from the fleet what a single cluster sees too rarely: bursts, repair times, the record."""

    name = "pooled"
    says = "guarded, with bursts and record shared over the fleet"
    fleet_weight = FLEET_WEIGHT

    def expect(self, view: View, ask: Ask) -> Outlook:
        key = ("shared", ask.horizon, tuple(ask.takings))
        if key not in view.memo:
            view.memo[key] = outlook(view, ask, partial(shared_presence, view), shared_survival(view))
        expected: Outlook = view.memo[key]
        return expected


class Cautious(Pooled):
    """The same, with more to spare: for fleets that change faster than an account can follow."""

    name = "cautious"
    says = "pooled, aiming at fewer violations than are allowed"
    aim = CAUTIOUS_AIM


def floored(method: Method, view: View, ask: Ask, records: Records) -> Promise:
    """What the method says; but one that does not look at who is out now never less than that alone asks for.

    A quiet window says nothing of nodes that broke yesterday and stay out: a promise on it would have no margin.
    """
    if method.sees_present:
        return method.promise(view, ask, records)
    # Such a method looks at the window and at nothing else, so its answer serves whoever asks this view again.
    key = ("floored", method.name, ask.horizon, ask.target, tuple(ask.takings))
    if key not in view.memo:
        view.memo[key] = _floored(method.promise(view, ask, records), view, ask)
    found: Promise = view.memo[key]
    return found


def _floored(promise: Promise, view: View, ask: Ask) -> Promise:
    key = ("floor", ask.horizon, ask.target, tuple(ask.takings))
    if key not in view.memo:
        view.memo[key] = promise_at(view, Pooled().expect(view, ask), ask.target)
    least: Promise = view.memo[key]
    why = dict(promise.why) | {"method_nodes": float(promise.buffer), "floor_nodes": float(least.buffer)}
    if least.buffer <= promise.buffer:
        return Promise(promise.buffer, why)
    return Promise(least.buffer, dict(least.why) | why)


def shared_presence(view: View, hours: FloatArray) -> Presence:
    """The cluster's own bursts, and the fleet's in proportion to its size as a prior that fades with time."""
    seen = view.hour + BORROWED_HOURS
    own = view.bursts.presence(hours, seen_hours=seen)
    if view.fleet is None:
        return own
    return own.with_more(view.fleet.presence(hours).times(view.total, BORROWED_HOURS / seen))


def shared_survival(view: View) -> Survival:
    """The cluster's own repair times, or the fleet's where its own are few."""
    _, own_lasted, _ = view.singles(view.hour)
    if view.fleet is None or len(own_lasted) >= REPAIRS_MIN:
        return own_survival(view)
    return Survival.of(*view.fleet.lasted(view.window))
