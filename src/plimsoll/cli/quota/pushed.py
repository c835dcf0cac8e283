"""How a push is shown: what differs by its field, what became of it, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.cli.output import Answer, Table
from plimsoll.quota.outlets.model import Cause, Step
from plimsoll.quota.push import Outcome, Pushed, Result

VALUE_CHARS_MAX = 60


def answer_of(pushed: Pushed, warnings: Sequence[str]) -> Answer:
    """A push in every form."""
    document = {
        "outlet": pushed.outlet,
        "cluster": pushed.cluster,
        "dry_run": pushed.is_dry_run,
        "complete": pushed.is_complete,
        "same": pushed.same,
        "steps": [
            {
                "name": each.step.name,
                "cause": str(each.step.cause),
                "result": str(each.result),
                "found": each.step.found,
                "wanted": each.step.wanted,
                "owner": each.owner,
                "problem": each.problem,
            }
            for each in pushed.outcomes
        ],
        "adopted": [
            {
                "team": each.key.team,
                "sku": each.key.sku,
                "was": each.was,
                "found": each.found,
                "problem": each.problem,
            }
            for each in pushed.adoptions
        ],
        "completed": pushed.completed,
        "warnings": list(warnings),
        "revision": pushed.revision,
    }
    rows = [row for each in pushed.outcomes for row in _rows(each)]
    tables = [Table(("setting", "field", "found", "wanted", "cause", "result"), rows)] if rows else []
    if pushed.adoptions:
        adopted = [
            (each.key.team or "flex", each.key.sku, each.was, each.found, each.problem or "taken into the book")
            for each in pushed.adoptions
        ]
        tables.append(Table(("team", "sku", "guaranteed", "found", "what"), adopted, title="set by hand"))
    return Answer(document, tables, _heading(pushed), [*_notes(pushed), *warnings])


def _heading(pushed: Pushed) -> str:
    done = len(pushed.with_result(Result.DONE)) + len(pushed.completed)
    would = len(pushed.with_result(Result.WOULD_BE_DONE))
    where = f"{pushed.outlet} of {pushed.cluster}"
    if pushed.is_dry_run:
        return f"{where}: {would} settings would change, {pushed.same} are as they should be"
    return f"{where}: {done} settings changed, {pushed.same} were as they should be"


def _notes(pushed: Pushed) -> list[str]:
    notes = []
    again = f"plimsoll quota push {pushed.outlet} {pushed.cluster}"
    if left := pushed.with_result(Result.LEFT):
        owners = sorted({each.owner for each in left if each.owner})
        by = f" (by {', '.join(owners)})" if owners else ""
        notes.append(f"{len(left)} settings were changed by hand{by} and left as they are")
        notes.append(f"next: {again} --put-back, or --adopt to take them into the book")
    notes += [f"{each.step.name}: {each.problem}" for each in pushed.with_result(Result.REFUSED)]
    if pushed.completed:
        notes.append(f"{len(pushed.completed)} of them were set by an earlier push that was cut short")
    if pushed.has_moved:
        notes.append(f"the book moved meanwhile; next: {again}")
    if pushed.is_dry_run:
        notes.append("dry run: nothing was told to anybody")
    return notes


def _rows(outcome: Outcome) -> Iterator[tuple[str, str, str | None, str | None, str, str]]:
    """A line for each value that differs; an object that is new or goes is one line."""
    step = outcome.step
    result = str(outcome.result).replace("_", " ") + (f" (held by {outcome.owner})" if outcome.owner else "")
    cause = str(step.cause).replace("_", " ")
    for field, found, wanted in differences(step):
        yield step.name, field, found, wanted, cause, result


def differences(step: Step) -> list[tuple[str, str | None, str | None]]:
    """What differs between found and wanted: by path where both are JSON objects, else as a whole."""
    found, wanted = _leaves(step.found), _leaves(step.wanted)
    if found is None or wanted is None:
        return [("", *(_short(step.found, step), _short(step.wanted, step)))]
    fields = [field for field in {**found, **wanted} if found.get(field) != wanted.get(field)]
    return [(field, found.get(field), wanted.get(field)) for field in sorted(fields)] or [("", "held", "ours")]


def _short(value: str | None, step: Step) -> str | None:
    """A plain value as it is; of an object that is new or goes only that it is one."""
    if value is None or _leaves(value) is None:
        return value if value is None or len(value) <= VALUE_CHARS_MAX else value[:VALUE_CHARS_MAX] + "…"
    return "an object" if step.cause is not Cause.DRIFT else "an object of ours"


def _leaves(value: str | None) -> dict[str, str] | None:
    """The values of a JSON object by their paths; None where it is none. An item of a list goes by its name."""
    if value is None or not value.startswith("{"):
        return None
    leaves: dict[str, str] = {}

    def walk(content: Any, path: str) -> None:
        if isinstance(content, dict):
            for key, inner in content.items():
                walk(inner, f"{path}.{key}" if path else key)
        elif isinstance(content, list):
            for number, inner in enumerate(content):
                name = inner.get("name", number) if isinstance(inner, dict) else number
                walk(inner, f"{path}[{name}]")
        else:
            leaves[path] = str(content)

    try:
        walk(msgspec.json.decode(value), "")
    except (msgspec.MsgspecError, RecursionError):
        return None
    return leaves
