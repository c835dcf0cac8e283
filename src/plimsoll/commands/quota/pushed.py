"""How a push is shown: what differs by its field, what became of it, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plimsoll.answers import Answer, Table
from plimsoll.quota.outlets.push import Outcome, Pushed, Result

VALUE_CHARS_MAX = 60

Path = tuple[str, ...]


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
                "gpus_found": each.gpus_found,
                "gpus_wanted": each.gpus_wanted,
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
        return f"{where}: {_settings(would)} would change, {pushed.same:,} as they should be"
    return f"{where}: {_settings(done)} changed, {pushed.same:,} as they should be"


def _settings(count: int) -> str:
    return f"{count:,} setting{'' if count == 1 else 's'}"


def _notes(pushed: Pushed) -> list[str]:
    notes = []
    again = f"plimsoll quota push {pushed.outlet} {pushed.cluster}"
    if left := pushed.with_result(Result.LEFT):
        owners = sorted({each.owner for each in left if each.owner})
        by = f" (by {', '.join(owners)})" if owners else ""
        notes.append(f"{_settings(len(left))} changed by hand{by} and left so")
        if not pushed.same and all(each.step.found is None for each in left):
            notes.append("nothing of what was set there is left: was it made anew, or is it another one?")
        adopt = "" if pushed.adoptions else ", or --adopt to take it into the book"
        notes.append(f"next: {again} --put-back{adopt}")
    notes += [f"{each.step.name}: {each.problem}" for each in pushed.with_result(Result.REFUSED)]
    if pushed.completed:
        notes.append(f"{_settings(len(pushed.completed))} had been set by a push that was cut short")
    if pushed.has_moved:
        notes.append(f"the book moved meanwhile; next: {again}")
    if pushed.is_dry_run:
        notes.append("dry run: nothing was told to anybody")
    return notes


def _rows(outcome: Outcome) -> Iterator[tuple[str, str, str | None, str | None, str, str]]:
    """A line for each value that differs; an object that is new or goes is one line."""
    step = outcome.step
    held = "was held" if outcome.result is Result.DONE else "held"
    result = str(outcome.result).replace("_", " ") + (f" ({held} by {outcome.owner})" if outcome.owner else "")
    cause = str(step.cause).replace("_", " ")
    for field, found, wanted in differences(outcome):
        yield step.name, field, found, wanted, cause, result


def differences(outcome: Outcome) -> list[tuple[str, str | None, str | None]]:
    """What differs between found and wanted: by field where both are JSON objects, else as a whole."""
    step = outcome.step
    found, wanted = _leaves(step.found), _leaves(step.wanted)
    if found is None or wanted is None:
        return [("", _short(step.found, outcome.gpus_found), _short(step.wanted, outcome.gpus_wanted))]
    everywhere = [*{**found, **wanted}]
    paths = [path for path in everywhere if found.get(path) != wanted.get(path)]
    if not paths:
        return [("", "held by another", "ours")]
    return [(_field(path, everywhere), found.get(path), wanted.get(path)) for path in sorted(paths)]


def _short(value: str | None, gpus: int | None) -> str | None:
    """A plain value as it is; of an object that is new or goes only how many GPUs it means."""
    if value is None:
        return None
    if _leaves(value) is not None:
        return "an object" if gpus is None else f"{gpus:,} GPUs"
    return value if len(value) <= VALUE_CHARS_MAX else f"{value[:VALUE_CHARS_MAX]}…"


def _field(path: Path, everywhere: Sequence[Path]) -> str:
    """The end of a path, as much of it as tells it from the others."""
    for length in range(1, len(path)):
        if sum(other[-length:] == path[-length:] for other in everywhere) == 1:
            return ".".join(path[-length:])
    return ".".join(path)


def _leaves(value: str | None) -> dict[Path, str] | None:
    """The values of a JSON object by their paths; None where it is none. An item of a list goes by its name."""
    if value is None or not value.startswith("{"):
        return None
    leaves: dict[Path, str] = {}

    def walk(content: Any, path: Path) -> None:
        if isinstance(content, dict):
            for key, inner in content.items():
                walk(inner, (*path, key))
        elif isinstance(content, list):
            for number, inner in enumerate(content):
                name = inner.get("name", number) if isinstance(inner, dict) else number
                walk(inner, (*path, str(name)))
        else:
            leaves[path] = str(content)

    try:
        walk(msgspec.json.decode(value), ())
    except (msgspec.MsgspecError, RecursionError):
        return None
    return leaves
