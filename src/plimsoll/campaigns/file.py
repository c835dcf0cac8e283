"""A campaign file: what is to be done, by when, within which limits. Pure; a mistake is named with its line.

`read_campaign` takes the words and refuses what can't be meant whatever the fleet. What depends on the fleet (a canary
that does not exist, a cluster that no rule of `work` matches) is refused in `units`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from plimsoll.campaigns.model import (
    MINUTES_A_DAY,
    Aims,
    Base,
    Campaign,
    Canary,
    Counts,
    Expect,
    Group,
    Impact,
    ImpactRule,
    Limit,
    LimitKind,
    Measure,
    Mode,
    NoFly,
    Replanning,
    Running,
    Spread,
    VersionChange,
    Window,
    Work,
)
from plimsoll.documents import Field, read_document
from plimsoll.fleet.selector import Scope, read_scope
from plimsoll.words import counted

T = TypeVar("T")

DAYS_MAX = 370
START_MAX = date(9990, 12, 31)
"""What is planned is looked at for some years after its start too, and the calendar ends with the year 9999."""
ITEMS_MAX = 1_000
COUNT_MAX = 10_000_000
WEIGHT_MAX = 1e9
HOURS_MAX = 24
SOAK_HOURS_MAX = 24 * 365
REPAIR_DAYS_MAX = 365
MINUTES_MAX = 60 * 24 * 30
SLOT_MINUTES_LEAST = 5
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_KEYS = (
    "campaign",
    "changes",
    "scope",
    "start",
    "deadline",
    "window",
    "slot_minutes",
    "big",
    "work",
    "together",
    "limits",
    "expect",
    "canary",
    "no_fly",
    "order",
    "spread",
    "objective",
    "replan",
    "run",
    "roster",
)
_LIMIT_KEYS = ("kind", "unit", "at_most", "at_most_share", "of", "scope", "from", "until", "days", "counts")


def parse_campaign(text: str, *, source: str) -> Campaign:
    """The campaign that a file describes."""
    return read_campaign(read_document(text, source=source))


def read_campaign(document: Field) -> Campaign:
    with document.mapping(_KEYS) as top:
        start, deadline = _date(top.need("start")), _date(top.need("deadline"))
        if start > START_MAX:
            raise top.need("start").bad(f"{start} is too late: a campaign starts on {START_MAX} at the latest")
        if deadline < start:
            raise top.need("deadline").bad(f"{deadline} is before the start, {start}")
        if (deadline - start).days >= DAYS_MAX:
            days = counted((deadline - start).days + 1, "day")
            raise top.need("deadline").bad(f"from {start} to {deadline} are {days}; at most {DAYS_MAX} can be planned")
        window = _window(top.need("window"))
        slot = top.get("slot_minutes")
        minutes = slot.whole_number(least=SLOT_MINUTES_LEAST, most=MINUTES_A_DAY) if slot else 60
        sizes = top.get("big")
        together, spread, canary = top.get("together"), top.get("spread"), top.get("canary")
        if together is not None:
            together.one_of(("colo",))
        work = _listed(top.need("work"), _work)
        _check_work(top.need("work"), work, window)
        campaign = Campaign(
            name=read_name(top.need("campaign")),
            changes=_listed(top.need("changes"), _change),
            scope=_scope(top),
            start=start,
            deadline=deadline,
            window=window,
            slot_minutes=minutes,
            work=work,
            big_over=_big(sizes) if sizes else None,
            is_together=together is not None,
            limits=_maybe(top, "limits", _limit),
            expect=_expect(top),
            canary=_canary(canary) if canary else None,
            no_fly=_maybe(top, "no_fly", _no_fly),
            order=_maybe(top, "order", _group),
            spread=_spread(spread) if spread else None,
            aims=_aims(top),
            replanning=_replanning(top),
            running=_running(top),
            roster=tuple(each.text() for each in field.items()) if (field := top.get("roster")) else (),
        )
    _check_sizes(document, campaign)
    _check_twice(document, campaign)
    return campaign


def read_name(field: Field) -> str:
    text = field.text()
    if not _NAME.fullmatch(text):
        raise field.expected("a name of at most 100 letters, digits, dots, dashes and underscores")
    return text


def _listed(field: Field, read: Callable[[Field], T]) -> tuple[T, ...]:
    items = field.items()
    if not 1 <= len(items) <= ITEMS_MAX:
        raise field.bad(f"has {len(items)} entries; expected 1 to {ITEMS_MAX:,}")
    return tuple(read(item) for item in items)


def _maybe(top: Field, key: str, read: Callable[[Field], T]) -> tuple[T, ...]:
    field = top.get(key)
    if field is None or (field.is_list and not field.items()):
        return ()
    return _listed(field, read)


def _date(field: Field) -> date:
    try:
        return date.fromisoformat(field.text())
    except ValueError:
        raise field.expected("a date that exists, such as 2026-01-05") from None


def _maybe_date(field: Field | None) -> date | None:
    return None if field is None else _date(field)


def _scope(field: Field) -> Scope:
    found = field.get("scope")
    return Scope() if found is None else read_scope(found)


def _weekdays(field: Field) -> tuple[int, ...]:
    found = sorted({WEEKDAYS.index(each.one_of(WEEKDAYS)) for each in field.items()})
    if not found:
        raise field.expected("at least one day")
    return tuple(found)


def _minutes(field: Field, *, most: float, least: float = 0.0) -> int:
    """Hours, in whole minutes."""
    minutes = field.number(least=least, most=most) * 60
    if abs(minutes - round(minutes)) > 1e-6:
        raise field.expected("hours that are whole minutes")
    return round(minutes)


def _window(field: Field) -> Window:
    with field.mapping(("hours", "tz", "days")) as window:
        hours, zone, days = window.need("hours"), window.get("tz"), window.get("days")
        ends = hours.items()
        if len(ends) != 2:
            raise hours.bad(f"has {counted(len(ends), 'number')}; expected when it opens and when it closes: [11, 20]")
        opens, closes = (_minutes(end, most=24) for end in ends)
        if closes <= opens:
            raise hours.bad(
                f"closes at {closes / 60:g}, not after it opens at {opens / 60:g}; a window lies in one day"
            )
        name = "UTC" if zone is None else zone.text()
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            assert zone is not None, "UTC is always known"
            raise zone.expected("a time zone such as UTC or Europe/Stockholm") from None
        return Window(opens, closes, name, tuple(range(7)) if days is None else _weekdays(days))


def _change(field: Field) -> VersionChange:
    with field.mapping(("component", "version", "impact")) as change:
        impact = change.get("impact")
        if impact is None:
            rules: tuple[ImpactRule, ...] = (ImpactRule(Scope(), Impact.DISRUPTIVE),)
        elif impact.is_list:
            rules = _listed(impact, _impact_rule)
        else:
            rules = (ImpactRule(Scope(), Impact(impact.one_of(list(Impact)))),)
        return VersionChange(change.need("component").text(), change.need("version").text(), rules)


def _impact_rule(field: Field) -> ImpactRule:
    with field.mapping(("scope", "impact")) as rule:
        return ImpactRule(_scope(rule), Impact(rule.need("impact").one_of(list(Impact))))


def _big(field: Field) -> int:
    with field.mapping(("nodes_over",)) as big:
        return big.need("nodes_over").whole_number(least=0, most=COUNT_MAX)


def _work(field: Field) -> Work:
    with field.mapping(("scope", "mode", "share_per_day", "hours")) as work:
        mode = Mode(work.need("mode").one_of(list(Mode)))
        minutes = _minutes(work.need("hours"), least=1 / 60, most=HOURS_MAX)
        share = work.get("share_per_day")
        if mode is Mode.WHOLE:
            if share is not None:
                raise share.bad("whole takes all nodes at once; share_per_day goes with mode: rolling")
            return Work(_scope(work), mode, minutes)
        value = work.need("share_per_day").number(least=0.0001, most=1)
        return Work(_scope(work), mode, minutes, value)


def _check_work(field: Field, works: Sequence[Work], window: Window) -> None:
    for item, work in zip(field.items(), works, strict=True):
        if work.minutes > window.closes - window.opens:
            place = item.need("hours")
            span = (window.closes - window.opens) / 60
            raise place.bad(f"{work.minutes / 60:g} hours of work do not fit into a window of {span:g} hours")


def _limit(field: Field) -> Limit:
    with field.mapping(_LIMIT_KEYS) as limit:
        kind = LimitKind(limit.need("kind").one_of(list(LimitKind)))
        measures = kind in (LimitKind.OUT_AT_ONCE, LimitKind.OUT_PER_DAY, LimitKind.AVERAGE_LOSS)
        at_most, share, of = limit.get("at_most"), limit.get("at_most_share"), limit.get("of")
        unit, counts, days = limit.get("unit"), limit.get("counts"), limit.get("days")
        if (at_most is None) == (share is None):
            raise field.bad("say either at_most or at_most_share" + (", not both" if share else ""))
        if share is None and of is not None:
            raise of.bad("goes with at_most_share: of what the share is taken")
        for value, name in ((share, "at_most_share"), (unit, "unit")):
            if value is not None and not measures:
                raise value.bad(f"{kind} counts clusters: {name} does not go with it; use at_most")
        if at_most is not None and kind is LimitKind.AVERAGE_LOSS:
            raise at_most.bad("average_loss is a share: use at_most_share, and of: fleet or scope")
        if counts is not None and kind is not LimitKind.OUT_AT_ONCE:
            raise counts.bad(f"goes with out_at_once only, not with {kind}")
        made = Limit(
            kind,
            _scope(limit),
            at_most=None if at_most is None else at_most.number(least=0, most=COUNT_MAX),
            at_most_share=None if share is None else share.number(least=0, most=1),
            of=Base(of.one_of(list(Base))) if of else Base.SCOPE,
            unit=Measure(unit.one_of(list(Measure))) if unit else Measure.NODES,
            counts=Counts(counts.one_of(list(Counts))) if counts else Counts.PLANNED,
            from_day=_maybe_date(limit.get("from")),
            until_day=_maybe_date(limit.get("until")),
            weekdays=_weekdays(days) if days else (),
        )
        if made.from_day and made.until_day and made.until_day < made.from_day:
            raise limit.need("until").bad(f"{made.until_day} is before from, {made.from_day}: it would never hold")
        return made


def _expect(top: Field) -> tuple[Expect, ...]:
    field = top.get("expect")
    if field is not None and field.is_mapping:
        return (_expectation(field),)
    return _maybe(top, "expect", _expectation)


def _expectation(field: Field) -> Expect:
    with field.mapping(("scope", "non_return_share", "repair_days")) as expect:
        share = expect.need("non_return_share").number(least=0, most=1)
        return Expect(_scope(expect), share, expect.need("repair_days").number(least=0, most=REPAIR_DAYS_MAX))


def _canary(field: Field) -> Canary:
    with field.mapping(("clusters", "soak_hours")) as canary:
        named = canary.need("clusters")
        names = tuple(dict.fromkeys(each.text() for each in named.items()))
        if not names:
            raise named.expected("at least one cluster")
        soak = canary.get("soak_hours")
        return Canary(names, _minutes(soak, most=SOAK_HOURS_MAX) if soak else 0)


def _no_fly(field: Field) -> NoFly:
    with field.mapping(("scope", "from", "to", "why")) as zone:
        first, last, why = _date(zone.need("from")), _date(zone.need("to")), zone.get("why")
        if last < first:
            raise zone.need("to").bad(f"{last} is before from, {first}")
        return NoFly(_scope(zone), first, last, why.text() if why else "")


def _group(field: Field) -> Group:
    with field.mapping(("scope", "weight", "strict")) as group:
        weight, strict = group.get("weight"), group.get("strict")
        return Group(
            _scope(group),
            weight.number(least=0, most=WEIGHT_MAX) if weight else 1.0,
            strict.yes_or_no() if strict else False,
        )


def _spread(field: Field) -> Spread:
    with field.mapping(("scope", "over")) as spread:
        return Spread(_scope(spread), spread.need("over").text())


def _aims(top: Field) -> Aims:
    field = top.get("objective")
    if field is None:
        return Aims()
    with field.mapping(("exposure", "imbalance", "peak")) as aims:
        found = {key: aims.get(key) for key in ("exposure", "imbalance", "peak")}
        weights = {key: each.number(least=0, most=WEIGHT_MAX) if each else 0.0 for key, each in found.items()}
        return Aims(**weights)


def _replanning(top: Field) -> Replanning:
    field = top.get("replan")
    if field is None:
        return Replanning()
    with field.mapping(("freeze_hours", "move_weight")) as replan:
        freeze, weight, default = replan.get("freeze_hours"), replan.get("move_weight"), Replanning()
        return Replanning(
            _minutes(freeze, most=SOAK_HOURS_MAX) if freeze else default.freeze_minutes,
            weight.number(least=0, most=WEIGHT_MAX) if weight else default.move_weight,
        )


def _running(top: Field) -> Running:
    field = top.get("run")
    if field is None:
        return Running()
    with field.mapping(("work", "validate", "grace_minutes", "notice_hours", "late_minutes", "confirms")) as run:
        default = Running()
        grace, notice = run.get("grace_minutes"), run.get("notice_hours")
        late, confirms = run.get("late_minutes"), run.get("confirms")
        return Running(
            work=_command(run.get("work")),
            validate=_command(run.get("validate")),
            grace_minutes=grace.whole_number(least=0, most=MINUTES_MAX) if grace else default.grace_minutes,
            notice_minutes=_minutes(notice, most=SOAK_HOURS_MAX) if notice else default.notice_minutes,
            late_minutes=late.whole_number(least=1, most=MINUTES_MAX) if late else default.late_minutes,
            confirms=confirms.text() if confirms else default.confirms,
        )


def _command(field: Field | None) -> tuple[str, ...]:
    """A program and its words; never a line for a shell."""
    if field is None:
        return ()
    words = tuple(each.text() for each in field.items())
    if not words:
        raise field.expected("a program and its words, such as [update-nic, --batch]")
    return words


def _check_sizes(document: Field, campaign: Campaign) -> None:
    if campaign.big_over is None and any(key == "size" for scope in campaign.scopes for key, _ in scope.terms):
        raise document.bad("a scope asks for size, and nothing says what is big; add big: {nodes_over: 400}")


def _check_twice(document: Field, campaign: Campaign) -> None:
    seen: set[str] = set()
    for field, change in zip(document.need("changes").items(), campaign.changes, strict=True):
        if change.component in seen:
            raise field.bad(f"component {change.component!r} stands here twice; a node can have one version of it")
        seen.add(change.component)
