"""What became of signals, acts and sweeps, as answers for people and machines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.written import DRY_RUN
from plimsoll.health.checks import Answered
from plimsoll.health.decide import Outcome
from plimsoll.health.feeds import Fed
from plimsoll.health.sweep import Swept
from plimsoll.times import show_time
from plimsoll.words import counted

ROWS_SHOWN = 20


def _tables(outcome: Outcome, output: Output) -> tuple[list[Table], list[str]]:
    """What changed and what was held back. As CSV it is always what changed, all of it."""
    moved = [
        (each.node, each.was, each.service, each.health, each.why)
        for each in sorted(outcome.moved, key=lambda each: (each.was == each.service, each.node))
    ]
    tables, notes = [], []
    if moved or output is Output.CSV:
        rows = moved if output is Output.CSV else moved[:ROWS_SHOWN]
        tables.append(Table(("node", "was", "service", "health", "why"), rows))
    if len(moved) > ROWS_SHOWN:
        notes.append(f"… {counted(len(moved) - ROWS_SHOWN, 'more node')}: -o json lists them all")
    if outcome.held_back:
        held = [(each.node, each.scope, each.action, each.why) for each in outcome.held_back[:ROWS_SHOWN]]
        tables.append(Table(("node", "breaker", "action", "why"), held, "held back"))
        notes.append(
            f"{counted(len(outcome.held_back), 'node')} held back: {', '.join(outcome.tripped[:5])} tripped."
            f" A person decides: plimsoll health breaker {outcome.tripped[0]} --go-on|--dismiss --reason WHY"
        )
    return tables, notes


def _closing(revision: int, *, is_dry_run: bool) -> str:
    return DRY_RUN if is_dry_run else f"revision {revision}; next: plimsoll health show"


def outcome_answer(
    outcome: Outcome, revision: int, output: Output, *, verb: str, count: int, is_dry_run: bool
) -> Answer:
    """After an act of a person."""
    tables, notes = _tables(outcome, output)
    heading = f"{counted(count, 'node')} {'would be ' if is_dry_run else ''}{verb}"
    document = {"dry_run": is_dry_run, "revision": revision, "count": count, "outcome": outcome}
    return Answer(document, tables, heading, [*notes, _closing(revision, is_dry_run=is_dry_run)])


def fed_answer(fed: Fed, output: Output, *, is_dry_run: bool) -> Answer:
    """After signals were taken in."""
    observed = fed.observed
    tables, notes = _tables(observed.outcome, output)
    rejected = sum(each.count for each in observed.rejections)
    heading = (
        f"{observed.feed}: {counted(observed.taken, 'signal')} taken, {observed.ignored:,} that the policy has no use"
        f" for, {rejected:,} refused; {counted(len(observed.outcome.moved), 'node')} changed"
    )
    if fed.steered:
        rows = [(steer.node, steer.act, steer.reason) for steer in fed.steered[:ROWS_SHOWN]]
        verb = "to do in" if is_dry_run else "done in"
        title = f"{verb} {observed.feed}: {counted(len(fed.steered), 'node')}"
        tables.append(Table(("node", "act", "reason"), rows, title))
    notes = [
        *fed.notes,
        *(f"refused: {each.message} ({counted(each.count, 'signal')})" for each in observed.rejections[:ROWS_SHOWN]),
        *notes,
    ]
    document = {"dry_run": is_dry_run, "observed": observed, "notes": fed.notes, "steered": _steers(fed)}
    return Answer(document, tables, heading, [*notes, _closing(observed.revision, is_dry_run=is_dry_run)])


def _steers(fed: Fed) -> list[dict[str, str]]:
    return [{"node": steer.node, "act": steer.act, "reason": steer.reason} for steer in fed.steered]


def swept_answer(
    swept: Swept, answers: Sequence[Answered], revision: int, output: Output, *, is_dry_run: bool
) -> Answer:
    """After a sweep."""
    tables, notes = _tables(swept.outcome, output)
    expired = [(name, hold.id, hold.owner, hold.expires_at, hold.reason) for name, hold in swept.expired]
    if expired:
        tables.append(Table(("node", "hold", "owner", "expired", "reason"), expired[:ROWS_SHOWN], "holds that expired"))
    if answers:
        rows = [(each.node, each.check, each.is_passed, each.detail) for each in answers[:ROWS_SHOWN]]
        tables.append(Table(("node", "check", "passed", "detail"), rows, "checks that were run"))
    notes += [f"feed {feed} has fallen silent: its nodes are unknown" for feed in swept.silent]
    notes += [
        f"work {work.id!r} of {work.owner} is over since {show_time(work.ends)}" for work in swept.over[:ROWS_SHOWN]
    ]
    heading = (
        f"swept: {counted(len(swept.outcome.moved), 'node')} changed, {counted(len(expired), 'hold')} expired,"
        f" {counted(len(swept.silent), 'feed')} fell silent, {counted(len(answers), 'check')} run"
    )
    document = {
        "dry_run": is_dry_run,
        "revision": revision,
        "outcome": swept.outcome,
        "silent": swept.silent,
        "expired": [{"node": name, "hold": msgspec.to_builtins(hold)} for name, hold in swept.expired],
        "checks": [each._asdict() for each in answers],
        "over": swept.over,
    }
    return Answer(document, tables, heading, [*notes, _closing(revision, is_dry_run=is_dry_run)])
