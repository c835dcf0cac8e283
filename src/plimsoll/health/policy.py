"""The policy: what signals lead to. A file that users edit, read here into rules; nothing about it is a constant.

`parse_policy` is the only way in. A mistake is named with file, line and what is allowed, and no policy is half taken.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from datetime import timedelta
from fnmatch import fnmatchcase

import msgspec

from plimsoll.documents import Field, read_document
from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.health.facts import Owner
from plimsoll.health.signals import RETENTION, SignalKey, SignalKind

COUNT_MAX = 10
"""The most repeats a rule may wait for: what is remembered of one problem must be enough to see them."""
RULES_MAX = 500
QUERIES_MAX = 100
CODE_MAX = 100_000


class Action(enum.StrEnum):
    """What a signal leads to, the mildest first."""

    NOTHING = "nothing"
    DEGRADE = "degrade"
    DRAIN = "drain"
    QUARANTINE = "quarantine"
    REPAIR = "repair"

    @property
    def severity(self) -> int:
        return _SEVERITY[self]

    @property
    def takes_out(self) -> bool:
        """Whether the node leaves service."""
        return self.severity >= _SEVERITY[Action.DRAIN]


_SEVERITY = {action: place for place, action in enumerate(Action)}


class Rule(msgspec.Struct, frozen=True):
    """What one kind of signal leads to. `line` is where it stands in its file."""

    kind: SignalKind
    name: str
    action: Action
    line: int
    at_least: float | None = None
    count: int = 1
    within: timedelta = timedelta(0)
    lasting: timedelta = timedelta(0)
    owner: Owner = Owner.OURS
    returns_in: timedelta | None = None
    is_planned: bool = False

    def key(self, name: str) -> SignalKey:
        """What the repeats of a signal of this name have in common under this rule."""
        return SignalKey(self.kind, name if self.at_least is None else f"{name}>={_exact(self.at_least)}")


def _exact(number: float) -> str:
    """As a person writes it, and never the same for two numbers."""
    return repr(number).removesuffix(".0")


class Repeats(msgspec.Struct, frozen=True):
    """So many times within so long lead to something."""

    times: int
    within: timedelta
    action: Action


class Breaker(msgspec.Struct, frozen=True):
    """How much automation may take out before it asks a person."""

    share: float
    at_least: int
    within: timedelta

    def limit(self, nodes: int) -> int:
        return max(self.at_least, int(self.share * nodes))


class CheckBy(enum.StrEnum):
    """How a check of the validation is answered."""

    QUIET = "quiet"
    MANUAL = "manual"
    COMMAND = "command"
    PROMETHEUS = "prometheus"


class Check(msgspec.Struct, frozen=True):
    """One thing that must hold before a node returns."""

    name: str
    by: CheckBy
    quiet_for: timedelta = timedelta(0)
    run: tuple[str, ...] = ()
    timeout: timedelta = timedelta(minutes=10)
    query: str = ""
    at_least: float = 1.0


class Query(msgspec.Struct, frozen=True):
    """What to ask Prometheus, and which signal the answer is."""

    kind: SignalKind
    name: str
    query: str
    node_label: str


class Policy(msgspec.Struct, frozen=True):
    """Everything that the judgement of signals depends on."""

    name: str
    xid_profile: str
    rules: tuple[Rule, ...]
    flapping: Repeats
    lemon: Repeats
    degraded_for: timedelta
    settle: timedelta
    drain_at_most: timedelta
    silence: timedelta
    cluster_breaker: Breaker
    fleet_breaker: Breaker
    validation: tuple[Check, ...]
    queries: tuple[Query, ...]

    def rules_for(self, kind: SignalKind, name: str) -> Sequence[Rule]:
        """The rules that decide about a signal: the first that matches, and its like with other thresholds."""
        matching = [rule for rule in self.rules if rule.kind is kind and fnmatchcase(name, rule.name)]
        if not matching or matching[0].at_least is None:
            return matching[:1]
        pattern = matching[0].name
        return [rule for rule in matching if rule.name == pattern and rule.at_least is not None]


_KEYS = (
    "policy",
    "xid_profile",
    "xid_profiles",
    "rules",
    "flapping",
    "lemon",
    "degraded_for",
    "settle",
    "drain_at_most",
    "silence",
    "breakers",
    "validation",
    "prometheus",
)


@functools.lru_cache(maxsize=32)
def parse_policy(text: str, *, source: str) -> Policy:
    """A policy file's text; `BadDocument` when something in it is not as it must be."""
    root = read_document(text, source=source)
    with root.mapping(_KEYS):
        profile, xid_rules = _xid_rules(root)
        rules = [_rule(item) for item in _bounded(root.need("rules"), RULES_MAX)]
        with root.need("breakers").mapping() as breakers:
            cluster, fleet = _breaker(breakers.need("cluster")), _breaker(breakers.need("fleet"))
        queries = root.get("prometheus")
        validation = tuple(_check(item) for item in root.need("validation").items())
        if not validation:
            raise root.need("validation").bad("at least one check is needed: a node returns only through validation")
        if len({check.name for check in validation}) < len(validation):
            raise root.need("validation").bad("each check needs a name of its own")
        return Policy(
            name=root.need("policy").text(),
            xid_profile=profile,
            rules=(*xid_rules, *rules),
            flapping=_repeats(root.need("flapping"), "times"),
            lemon=_repeats(root.need("lemon"), "exits"),
            degraded_for=_span(root.need("degraded_for")),
            settle=_span(root.need("settle")),
            drain_at_most=_span(root.need("drain_at_most")),
            silence=_some_span(root.need("silence")),
            cluster_breaker=cluster,
            fleet_breaker=fleet,
            validation=validation,
            queries=() if queries is None else tuple(_query(item) for item in _bounded(queries, QUERIES_MAX)),
        )


def default_policy() -> Policy:
    return parse_policy(DEFAULT_POLICY, source="the default policy")


def _bounded(field: Field, most: int) -> list[Field]:
    items = field.items()
    if len(items) > most:
        raise field.bad(f"at most {most} entries are taken, found {len(items)}")
    return items


def _span(field: Field) -> timedelta:
    span = field.span()
    if span > RETENTION:
        raise field.expected(f"at most {RETENTION.days}d")
    return span


def _some_span(field: Field) -> timedelta:
    """A length of time that must not be nothing: else what it limits would be switched off without a word."""
    if not (span := _span(field)):
        raise field.expected("a length of time above 0")
    return span


def _action(field: Field) -> Action:
    return Action(field.one_of([action.value for action in Action]))


def _xid_rules(root: Field) -> tuple[str, list[Rule]]:
    """The rules of the XID profile that is in force. Every profile is checked, also one that is not."""
    profiles = {name: _profile(field) for name, field in root.need("xid_profiles").pairs()}
    chosen = root.need("xid_profile").one_of(profiles)
    return chosen, profiles[chosen]


def _profile(field: Field) -> list[Rule]:
    rules, seen, rest = [], set(), None
    for name, entry in field.pairs():
        if name == "else":
            rest = Rule(SignalKind.XID, "*", _action(entry), entry.line)
            continue
        if name not in list(Action):
            raise entry.bad(f"{name!r} is no action (allowed: {', '.join(Action)}, else)")
        for code in entry.items():
            number = code.whole_number(least=1, most=CODE_MAX)
            if number in seen:
                raise code.bad(f"XID {number} stands in this profile twice")
            seen.add(number)
            rules.append(Rule(SignalKind.XID, str(number), Action(name), code.line))
    if rest is None:
        raise field.bad("'else' is missing: what an XID leads to that is not listed")
    return [*rules, rest]


def _rule(field: Field) -> Rule:
    with field.mapping():
        kind = SignalKind(field.need("signal").one_of([kind.value for kind in SignalKind]))
        if kind is SignalKind.XID:
            raise field.bad("XID codes belong into xid_profiles")
        name, after, lasting = field.get("name"), field.get("after"), field.get("lasting")
        at_least, owner, returns_in, planned = map(field.get, ("at_least", "owner", "returns_in", "planned"))
        count, within = 1, timedelta(0)
        if after is not None:
            if lasting is not None:
                raise after.bad("'after' and 'lasting' exclude each other")
            with after.mapping():
                count = after.need("count").whole_number(least=1, most=COUNT_MAX)
                within = _span(after.need("within"))
        if lasting is not None and not kind.is_lasting:
            raise lasting.bad(f"a {kind} signal just happens; 'lasting' is for signals that go on")
        return Rule(
            kind=kind,
            name=name.text() if name else "*",
            action=_action(field.need("do")),
            line=field.line,
            at_least=at_least.number(least=-1e12, most=1e12) if at_least else None,
            count=count,
            within=within,
            lasting=_span(lasting) if lasting else timedelta(0),
            owner=Owner(owner.one_of([each.value for each in Owner])) if owner else Owner.OURS,
            returns_in=_span(returns_in) if returns_in else None,
            is_planned=planned.yes_or_no() if planned else False,
        )


def _repeats(field: Field, count: str) -> Repeats:
    with field.mapping():
        times = field.need(count).whole_number(least=2, most=COUNT_MAX)
        return Repeats(times, _some_span(field.need("within")), _action(field.need("do")))


def _breaker(field: Field) -> Breaker:
    with field.mapping():
        return Breaker(
            share=field.need("share").number(least=0, most=1),
            at_least=field.need("at_least").whole_number(least=0, most=1_000_000),
            within=_some_span(field.need("within")),
        )


def _check(field: Field) -> Check:
    """`by` may be left out where another key says it."""
    with field.mapping():
        name = field.need("check").text()
        run, query, quiet, timeout, by = map(field.get, ("run", "query", "for", "timeout", "by"))
        at_least = field.get("at_least")
        given = [
            kind for kind, found in zip(("command", "prometheus", "quiet"), (run, query, quiet), strict=True) if found
        ]
        if by is not None:
            given.append(by.one_of([each.value for each in CheckBy]))
        if len(set(given)) != 1:
            raise field.bad("a check has one of: for (quiet), run (command), query (prometheus), by: manual")
        kind = CheckBy(given[0])
        if (kind is CheckBy.COMMAND and run is None) or (kind is CheckBy.PROMETHEUS and query is None):
            raise field.bad(f"a {kind} check needs {'run' if kind is CheckBy.COMMAND else 'query'}")
        if run is not None and not run.items():
            raise run.expected("a command and its arguments")
        if kind is CheckBy.QUIET and quiet is None:
            raise field.bad("a quiet check needs for: how long")
        return Check(
            name=name,
            by=kind,
            quiet_for=_span(quiet) if quiet else timedelta(0),
            run=tuple(item.text() for item in run.items()) if run else (),
            timeout=_span(timeout) if timeout else timedelta(minutes=10),
            query=query.text() if query else "",
            at_least=at_least.number(least=-1e12, most=1e12) if at_least else 1.0,
        )


def _query(field: Field) -> Query:
    with field.mapping():
        name = field.get("name")
        return Query(
            kind=SignalKind(field.need("signal").one_of([kind.value for kind in SignalKind])),
            name=name.text() if name else "",
            query=field.need("query").text(),
            node_label=field.need("node_label").text(),
        )
