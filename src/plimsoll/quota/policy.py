"""The policy of the lines: which rule says where a pool's line is, who is pinned, and how calm corrections are.

`parse_policy` and `parse_word` are the only ways in. A mistake is named with file, line and what is allowed.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import combinations, pairwise

import msgspec

from plimsoll.documents import Field, read_document
from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Cluster
from plimsoll.fleet.selector import Scope, check_scope, read_scope
from plimsoll.quota.model import QuotaKey

RULES_MAX = 500
GPUS_MAX = 10_000_000
SHARE_MAX = 0.999999
SHARE_FORM = "a share from 0 up to, not including, 1"
POLICY_FORMS = "a policy file, fixed:0.15, fixed-healthy:0.15, tiered, forecast or forecast:0.99"


class LineBy(enum.StrEnum):
    """How a rule finds the line."""

    FIXED = "fixed"
    TIERED = "tiered"
    FORECAST = "forecast"


class HealthTier(msgspec.Struct, frozen=True):
    """A pool that was in service for at least this share of its past gets this buffer."""

    healthy_share: Fraction
    buffer: Fraction


TIERS_DEFAULT = (
    HealthTier(Fraction("0.98"), Fraction("0.05")),
    HealthTier(Fraction("0.95"), Fraction("0.10")),
    HealthTier(Fraction(0), Fraction("0.15")),
)


class Rule(msgspec.Struct, frozen=True):
    """Where the line of the pools in a scope is. `line` is where the rule stands in its file."""

    by: LineBy
    scope: Scope = Scope()
    buffer: Fraction = Fraction("0.15")
    is_of_healthy: bool = False
    tiers: tuple[HealthTier, ...] = TIERS_DEFAULT
    window: timedelta = timedelta(days=90)
    target: Fraction = Fraction("0.99")
    horizon: timedelta = timedelta(days=7)
    starts: date = date.min
    ends: date = date.max
    line: int = 0

    def is_in_force(self, day: date) -> bool:
        return self.starts <= day <= self.ends

    @property
    def word(self) -> str:
        """As it is written on the command line, and in the ledger."""
        if self.by is LineBy.FIXED:
            return f"fixed{'-healthy' if self.is_of_healthy else ''}:{_number(self.buffer)}"
        return "tiered" if self.by is LineBy.TIERED else f"forecast:{_number(self.target)}"


def _number(share: Fraction) -> str:
    return f"{float(share):.10g}"


class Floor(msgspec.Struct, frozen=True):
    """GPUs of a team's quota that a correction must leave: a pin always, a block whole or not at all."""

    key: QuotaKey
    gpus: int
    why: str
    ends: date = date.max


class Stability(msgspec.Struct, frozen=True):
    """How calm the controller is (rule 10)."""

    dead_band: Fraction = Fraction("0.02")
    change_every: timedelta = timedelta(days=7)
    notice: timedelta = timedelta(days=3)
    grow_after: timedelta = timedelta(days=1)
    ride_out: timedelta = timedelta(days=1)
    """Planned work that is shorter than this moves no quota: what is out comes back."""


class Policy(msgspec.Struct, frozen=True):
    """Everything that a correction depends on besides the state."""

    name: str
    rules: tuple[Rule, ...]
    pins: tuple[Floor, ...] = ()
    blocks: tuple[Floor, ...] = ()
    stability: Stability = Stability()
    flex_grace: timedelta = timedelta(minutes=15)
    request_expiry: timedelta = timedelta(days=14)

    def rules_for(self, cluster: Cluster, sku: str, day: date) -> list[Rule]:
        """The rules that match a pool on a day; the one for everything counts only where no other does."""
        active = [rule for rule in self.rules if rule.is_in_force(day)]
        named = [rule for rule in active if not rule.scope.is_everything and rule.scope.matches(cluster, sku)]
        return named or [rule for rule in active if rule.scope.is_everything] or [DEFAULT_RULE]

    def pins_on(self, day: date) -> dict[QuotaKey, int]:
        return {pin.key: pin.gpus for pin in self.pins if day <= pin.ends}

    def blocks_on(self, day: date) -> dict[QuotaKey, int]:
        return {block.key: block.gpus for block in self.blocks if day <= block.ends}


DEFAULT_RULE = Rule(LineBy.FIXED)
DEFAULT_POLICY = Policy("fixed:0.15", (DEFAULT_RULE,))
DEFAULT_TEXT = """\
# Where the load lines are. A pool takes the rule that matches it; the one with scope {} is for all others.
policy: default
lines:
  - {scope: {}, by: fixed, buffer: 0.15}            # line = min(healthy, 85 % of total), in whole nodes
  # - {scope: {purpose: applied}, by: forecast, target: 0.99, horizon: 7d, from: 2026-01-05}
  # - scope: {cluster: [tiger]}
  #   by: tiered                                    # a smaller buffer for pools that have been healthier
  #   window: 90d
  #   tiers: [{healthy_share: 0.98, buffer: 0.05}, {healthy_share: 0.95, buffer: 0.1}, {healthy_share: 0, buffer: 0.15}]
pins: []                                            # never cut below:
  # - {team: vision, cluster: tiger, sku: H200, gpus: 352, until: 2026-03-01, why: "launch"}
blocks: []                                          # of use only whole: this much or nothing
  # - {team: vision, cluster: tiger, sku: H200, gpus: 352, why: "one run"}
stability: {dead_band: 0.02, change_every: 7d, notice: 3d, grow_after: 1d, ride_out: 1d}
flex: {grace: 15m}
requests: {expire: 14d}
"""


def parse_word(word: str) -> Policy:
    """A policy named on the command line: one rule for the whole fleet."""
    name, _, number = word.partition(":")
    if name == "tiered" and not number:
        return Policy(word, (Rule(LineBy.TIERED),))
    if name == "forecast":
        target = _share(number or "0.99", word)
        if target <= 0:
            raise _bad_word(word, "a target lies between 0 and 1")
        return Policy(word, (Rule(LineBy.FORECAST, target=target),))
    if name in ("fixed", "fixed-healthy"):
        rule = Rule(LineBy.FIXED, buffer=_share(number or "0.15", word), is_of_healthy=name == "fixed-healthy")
        return Policy(rule.word, (rule,))
    raise _bad_word(word, "it is neither a file nor a policy's name")


def _share(text: str, word: str) -> Fraction:
    try:
        share = float(text)
    except ValueError:
        raise _bad_word(word, f"{text[:40]!r} is not a number") from None
    if not 0 <= share <= SHARE_MAX:
        raise _bad_word(word, f"{text[:40]} is not {SHARE_FORM}{_percent_hint(share)}")
    return exact(share)


def exact(share: float) -> Fraction:
    """The number as it was written. It counts whole nodes: 0.9 of 10 is 9, and no hair less."""
    return Fraction(repr(share))


def _percent_hint(share: float) -> str:
    return f"; for {share:g} % write {share / 100:g}" if 1 <= share < 100 else ""


def _bad_word(word: str, why: str) -> UsageError:
    return UsageError("bad_policy", f"--policy {word[:60]}: {why}", next_step=f"give {POLICY_FORMS}", value=word[:60])


@functools.lru_cache(maxsize=8)
def parse_policy(text: str, *, source: str) -> Policy:
    """Read a policy file. What can only be judged with a fleet is judged by `check_policy`."""
    root = read_document(text, source=source)
    with root.mapping() as file:
        # What may be missing is asked for first, so that it is not taken for a misspelt name of what must be there.
        floors = file.get("pins"), file.get("blocks")
        calm, flex, requests = file.get("stability"), file.get("flex"), file.get("requests")
        name = file.need("policy").text()
        rules = tuple(_rule(field) for field in _listed(file.need("lines")))
        pins, blocks = (tuple(_floor(field) for field in _listed(each)) for each in floors)
        stability = _stability(calm)
        grace, expiry = _one_span(flex, "grace"), _one_span(requests, "expire")
    if not rules:
        raise root.need("lines").expected("at least one rule")
    for first, second in combinations([rule for rule in rules if rule.scope.is_everything], 2):
        if _overlap(first, second):
            raise root.bad(f"the rules on lines {first.line} and {second.line} are both for everything")
    _refuse_twice(root, pins, "pinned")
    _refuse_twice(root, blocks, "given a block")
    policy = Policy(name, rules, pins, blocks, stability)
    return msgspec.structs.replace(
        policy, flex_grace=grace or policy.flex_grace, request_expiry=expiry or policy.request_expiry
    )


def _listed(field: Field | None) -> Sequence[Field]:
    found = field.items() if field is not None else []
    if field is not None and len(found) > RULES_MAX:
        raise field.expected(f"at most {RULES_MAX} entries")
    return found


def _rule(field: Field) -> Rule:
    with field.mapping() as entry:
        scope = read_scope(entry.need("scope"))
        by = LineBy(entry.need("by").one_of([str(each) for each in LineBy]))
        starts, ends = _day(entry.get("from"), date.min), _day(entry.get("until"), date.max)
        if ends < starts:
            raise entry.bad(f"it ends on {ends} before it starts on {starts}")
        rule = Rule(by, scope, starts=starts, ends=ends, line=field.line)
        if by is LineBy.FIXED:
            buffer, of = entry.get("buffer"), entry.get("of")
            return msgspec.structs.replace(
                rule,
                buffer=_field_share(buffer) if buffer else rule.buffer,
                is_of_healthy=of is not None and of.one_of(("total", "healthy")) == "healthy",
            )
        if by is LineBy.TIERED:
            tiers, window = entry.get("tiers"), entry.get("window")
            return msgspec.structs.replace(
                rule,
                tiers=_tiers(tiers) if tiers else rule.tiers,
                window=_positive(window) if window else rule.window,
            )
        target, horizon = entry.get("target"), entry.get("horizon")
        if target and not _field_share(target):
            raise target.expected("a probability above 0")
        return msgspec.structs.replace(
            rule,
            target=_field_share(target) if target else rule.target,
            horizon=_hours(horizon) if horizon else rule.horizon,
        )


def _field_share(field: Field) -> Fraction:
    """1 is refused: nothing would be left."""
    try:
        share = float(field.text())
    except ValueError:
        share = -1.0
    if not 0 <= share <= SHARE_MAX:
        raise field.expected(f"{SHARE_FORM}{_percent_hint(share)}")
    return exact(share)


def _tiers(field: Field) -> tuple[HealthTier, ...]:
    steps = []
    for each in field.items():
        with each.mapping() as entry:
            steps.append(HealthTier(_field_share(entry.need("healthy_share")), _field_share(entry.need("buffer"))))
    if not steps or steps[-1].healthy_share != 0:
        raise field.expected("a last tier with healthy_share 0, for all others")
    shares = [step.healthy_share for step in steps]
    if sorted(shares, reverse=True) != shares or len(set(shares)) < len(shares):
        raise field.expected("tiers in falling order of healthy_share")
    if any(first.buffer > second.buffer for first, second in pairwise(steps)):
        raise field.expected("a smaller buffer for the healthier")
    return tuple(steps)


def _floor(field: Field) -> Floor:
    with field.mapping() as entry:
        key = QuotaKey(*(entry.need(name).text() for name in ("team", "cluster", "sku")))
        gpus = entry.need("gpus").whole_number(least=1, most=GPUS_MAX)
        return Floor(key, gpus, entry.need("why").text(), _day(entry.get("until"), date.max))


def _stability(field: Field | None) -> Stability:
    calm = Stability()
    if field is None:
        return calm
    with field.mapping() as entry:
        band = entry.get("dead_band")
        spans = {
            name: found.span()
            for name in ("change_every", "notice", "grow_after", "ride_out")
            if (found := entry.get(name))
        }
        if band:
            calm = msgspec.structs.replace(calm, dead_band=exact(band.number(least=0, most=0.5)))
        return msgspec.structs.replace(calm, **spans)


def _one_span(field: Field | None, name: str) -> timedelta | None:
    if field is None:
        return None
    with field.mapping() as entry:
        return _positive(entry.need(name))


def _positive(field: Field) -> timedelta:
    span = field.span()
    if not span:
        raise field.expected("a length of time above 0")
    return span


def _hours(field: Field) -> timedelta:
    span = _positive(field)
    if span % timedelta(hours=1):
        raise field.expected("whole hours, such as 24h or 7d")
    return span


def _day(field: Field | None, default: date) -> date:
    if field is None:
        return default
    try:
        return date.fromisoformat(field.text())
    except ValueError:
        raise field.expected("a date such as 2026-01-05") from None


def _overlap(first: Rule, second: Rule) -> bool:
    return first.starts <= second.ends and second.starts <= first.ends


def _refuse_twice(root: Field, floors: Sequence[Floor], what: str) -> None:
    seen: set[QuotaKey] = set()
    for floor in floors:
        if floor.key in seen:
            raise root.bad(f"{' '.join(floor.key)} is {what} twice")
        seen.add(floor.key)


def check_policy(text: str, fleet: Fleet, *, source: str) -> Policy:
    """Read a policy file and judge it on a fleet: names that exist, and one rule for every pool on every day."""
    policy = parse_policy(text, source=source)
    fields = read_document(text, source=source).need("lines").items()
    for rule, field in zip(policy.rules, fields, strict=True):
        check_scope(rule.scope, fleet, field)
    _refuse_overlaps(policy, fields, fleet)
    root = read_document(text, source=source)
    for name, floors in (("pins", policy.pins), ("blocks", policy.blocks)):
        for floor, field in zip(floors, _listed(root.get(name)), strict=True):
            check_scope(Scope((("cluster", (floor.key.cluster,)),)), fleet, field)
            count = fleet.pools.get(floor.key.pool)
            if count is None:
                raise field.bad(f"cluster {floor.key.cluster} has no {floor.key.sku}")
            if floor.gpus % count.gpus_per_node:
                raise field.bad(f"{floor.gpus} GPUs are no whole nodes of {count.gpus_per_node}")
    return policy


def _refuse_overlaps(policy: Policy, fields: Sequence[Field], fleet: Fleet) -> None:
    """Two rules that match one pool on one day; that of the whole fleet stands back by itself."""
    named = [each for each in zip(policy.rules, fields, strict=True) if not each[0].scope.is_everything]
    for pool in sorted(fleet.pools):
        cluster = fleet.clusters[pool.cluster]
        matching = [each for each in named if each[0].scope.matches(cluster, pool.sku)]
        for (first, _), (second, field) in combinations(matching, 2):
            if _overlap(first, second):
                raise field.bad(f"the rule on line {first.line} matches {' '.join(pool)} as well; make one narrower")


def day_of(now: datetime) -> date:
    """The day that dates of a policy mean, in UTC."""
    return now.date()
