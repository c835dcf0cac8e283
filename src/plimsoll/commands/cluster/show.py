"""`plimsoll cluster show|log`: one cluster: its conditions, its steps, what happened, and when it should be done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.cluster.app import Name, app
from plimsoll.commands.errands import ErrandFolder, errand_folder
from plimsoll.commands.options import AsOf, Db, Format, Watch, answer_keeper, database_url, open_database
from plimsoll.commands.output import show
from plimsoll.connect.errands import Errands
from plimsoll.connect.step_output import read_output
from plimsoll.fleet.model import Phase
from plimsoll.ledger.model import Event, EventFilter
from plimsoll.lifecycle.decide import CONTROLLER
from plimsoll.lifecycle.desk import find_life, step_to_tell
from plimsoll.lifecycle.estimate import estimate, step_time
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Condition, ConditionType, Going, Life, Move
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.reasons import Reason
from plimsoll.lifecycle.recipe import Recipe, Step
from plimsoll.lifecycle.timeline import happened
from plimsoll.lifecycle.view import row_of, sentence
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time, show_second, show_time, utc_now
from plimsoll.words import rough_span

TIMELINE_SHOWN = 15
TIMELINE_MAX = 2_000
EVENTS_EACH = 4
"""Of so many events about one is worth a line."""
WAITS = (Reason.WAITING.code, Reason.WAITING_FOR_QUOTA.code, Reason.WAITING_FOR_STEP.code)
"""Conditions that only wait for one before them: that one says why."""
LOG_BYTES = 1 << 20

Told = Sequence[tuple[Event, str]]


@app.command("show")
def show_command(
    context: typer.Context,
    name: Name,
    timeline: Annotated[
        int, typer.Option("--timeline", min=0, max=TIMELINE_MAX, help="How many of the last happenings to show.")
    ] = TIMELINE_SHOWN,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Why a cluster is where it is: one sentence, its conditions, its steps with attempts, and what happened."""

    def answer(keeper: Keeper, state: State) -> Answer:
        now = parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()
        life = find_life(state, name)
        where = EventFilter(subject=life.stream)
        events = keeper.ledger.store.last_events(timeline * EVENTS_EACH, until=state.revision, where=where)
        told = [(event, text) for event in events if (text := happened(state.kinds.read(event), event.effective_time))]
        return _answer(state, life, told[-timeline:] if timeline else [], now, output)

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _answer(state: State, life: Life, told: Told, now: datetime, output: Output) -> Answer:
    lives = state.of(Lives)
    recipe = lives.recipe_of(life)
    tables = [*_conditions_tables(life, output), _steps_table(life, recipe, lives, now)]
    if life.sets:
        rows = [(each.name, each.island, each.there, each.wanted, each.detail) for each in life.sets.values()]
        tables.append(Table(("scale_set", "island", "there", "wanted", "detail"), rows, "scale sets"))
    if told:
        rows_told = [(show_second(event.effective_time), event.actor, text + _reason_of(event)) for event, text in told]
        tables.append(Table(("time", "who", "what"), rows_told, "what happened"))
    notes = _notes(life, recipe, lives, now)
    return Answer(_document(life, recipe, lives, told, now), tables, sentence(life, now), notes)


def _conditions_tables(life: Life, output: Output) -> list[Table]:
    """Short lines first, then the sentences of what does not hold and does not only wait for what is before it."""
    conditions = [life.conditions[kind] for kind in ConditionType if kind in life.conditions]
    if output is Output.CSV:
        columns = ("condition", "status", "reason", "message", "whose_move", "since", "next_step")
        rows = [
            (str(each.type), str(each.status), each.reason, each.message, str(each.move), each.since, each.next_step)
            for each in conditions
        ]
        return [Table(columns, rows)]
    head = ("condition", "status", "reason", "since", "whose_move")
    tables = [Table(head, [_short(each) for each in conditions], "conditions")]
    told = [each for each in conditions if not each.is_true and each.reason not in WAITS]
    if told:
        tables.append(Table(("condition", "why"), [(str(each.type), each.message) for each in told], "why not"))
    return tables


def _reason_of(event: Event) -> str:
    """What a person gave; the controller's are in the conditions."""
    return f" ({event.reason})" if event.reason and event.actor != CONTROLLER else ""


def _short(each: Condition) -> tuple[object, ...]:
    move = "" if each.move is Move.NOBODY else str(each.move)
    return str(each.type), str(each.status), each.reason, show_second(each.since), move


def _steps_table(life: Life, recipe: Recipe, lives: Lives, now: datetime) -> Table:
    steps = recipe.steps + (recipe.out if life.leaving else ())
    rows = [_step_row(life, recipe, step, lives, now) for step in steps]
    columns = ("step", "how", "is", "attempt", "for", "usually", "again_at", "detail")
    return Table(columns, rows, f"steps of recipe {recipe.name}, version {recipe.version}")


def _step_row(life: Life, recipe: Recipe, step: Step, lives: Lives, now: datetime) -> tuple[object, ...]:
    work = life.work(step.name)
    times = step_time(recipe.name, step.name, lives.took.get((recipe.name, step.name), ()))
    usually = "-" if times.median is None else _seconds(times.median)
    head = (step.name, step.kind)
    if work is None:
        return (*head, "not begun", 0, "-", usually, "-", f"after {', '.join(step.needs)}" if step.needs else "")
    end = work.ended if work.going is Going.DONE and work.ended else now
    return (
        *head,
        str(work.going),
        work.attempt,
        rough_span(end - work.begun),
        usually,
        show_second(work.next_attempt_at) or "-",
        " ".join(filter(None, (work.detail, work.handle))),
    )


def _seconds(seconds: float) -> str:
    return rough_span(timedelta(seconds=seconds))


def _notes(life: Life, recipe: Recipe, lives: Lives, now: datetime) -> list[str]:
    notes = []
    if phase_of(life) not in (Phase.PRODUCTION, Phase.RETIRED) and life.leaving is None:
        about = estimate(life, recipe, lives.took, now)
        if about.unknown:
            notes.append(f"no estimate: nobody has done {', '.join(about.unknown)} with this recipe yet")
        else:
            notes.append(
                f"if nothing has to be waited for: in production at {show_second(about.usual)},"
                f" nine of ten by {show_second(about.late)}"
            )
    newest = lives.newest.get(recipe.name, recipe.version)
    if newest > recipe.version and life.gone_at is None:
        notes.append(f"recipe {recipe.name} has a version {newest}: plimsoll cluster migrate {life.name}")
    failed = [work for work in life.works.values() if work.going in (Going.STUCK, Going.RETRYING)]
    row = row_of(life)
    if row.next_step and row.move is not Move.PERSON:  # a person's is in the sentence
        notes.append(f"next: {row.next_step}")
    notes += [f"its log: plimsoll cluster log {life.name} {work.step}" for work in failed[:1]]
    return notes


def _document(life: Life, recipe: Recipe, lives: Lives, told: Told, now: datetime) -> dict[str, Any]:
    about = estimate(life, recipe, lives.took, now)
    return {
        "cluster": life.name,
        "sentence": sentence(life, now),
        "phase": str(phase_of(life)),
        "spec": msgspec.to_builtins(life.spec),
        "generation": life.generation,
        "recipe": {"name": recipe.name, "version": recipe.version},
        "paused": None if life.paused is None else msgspec.to_builtins(life.paused),
        "checked_in": None if life.checked_in is None else msgspec.to_builtins(life.checked_in),
        "leaving": None if life.leaving is None else msgspec.to_builtins(life.leaving),
        "conditions": [msgspec.to_builtins(life.conditions[kind]) for kind in ConditionType if kind in life.conditions],
        "steps": [_step_document(life, step) for step in recipe.steps + (recipe.out if life.leaving else ())],
        "sets": [msgspec.to_builtins(each) for each in life.sets.values()],
        "estimate": None
        if about.unknown or phase_of(life) in (Phase.PRODUCTION, Phase.RETIRED) or life.leaving is not None
        else {"usual": show_time(about.usual), "late": show_time(about.late)},
        "timeline": [
            {"time": show_time(event.effective_time), "who": event.actor, "what": text, "why": event.reason}
            for event, text in told
        ],
    }


def _step_document(life: Life, step: Step) -> dict[str, Any]:
    work = life.work(step.name)
    document: dict[str, Any] = {"step": step.name, "sets": str(step.sets or ""), "how": step.kind}
    if work is None:
        return {**document, "is": "not begun", "attempt": 0}
    return {
        **document,
        "is": str(work.going),
        "attempt": work.attempt,
        "operation": work.operation,
        "begun": show_time(work.begun),
        "ended": show_time(work.ended),
        "next_attempt_at": show_time(work.next_attempt_at),
        "reason": work.reason,
        "detail": work.detail,
        "handle": work.handle,
    }


@app.command("log")
def log_command(
    context: typer.Context,
    name: Name,
    step: Annotated[str, typer.Argument(metavar="[STEP]", help="The step; else the one that failed, or runs.")] = "",
    errands: ErrandFolder = None,
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """What a step printed: while it runs, as far as this machine sees it; of one that failed, its last lines."""
    keeper = open_database(context, db)
    state = keeper.state()
    life = find_life(state, name)
    recipe = state.of(Lives).recipe_of(life)
    found = step_to_tell(recipe, life, step)
    work = life.work(found.name)
    text, where = "", ""
    if work is not None:
        text, where = work.log, "the ledger"
        live = Errands(errand_folder(errands, database_url(context, db))).peek(work.operation, LOG_BYTES)
        if live:
            text, where = live, "this machine"
    heading = f"{name} {found.name}: " + (
        "not begun yet"
        if work is None
        else f"attempt {work.attempt}, {work.going}" + (f" ({work.handle})" if work.handle else "")
    )
    document = {"cluster": name, "step": found.name, "from": where, "log": text}
    lines = read_output(text, is_ended=True).log if where == "this machine" else text.splitlines()
    table = Table(("line",), [(line,) for line in lines])
    if output is not Output.TABLE:
        show(Answer(document, [table], heading), output)
        return
    show(Answer(document, [], heading, ["\n".join(lines).rstrip() or "(nothing)"]), output)
