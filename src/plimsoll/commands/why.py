"""`plimsoll why`: why can't I start, why is it not all mine, what happened, what can I do now?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, Format, Watch, answer_state, parse_as_of
from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.names import known_teams
from plimsoll.quota.plan import policy_in_force
from plimsoll.state.state import State
from plimsoll.times import parse_moment, parse_time, show_time, utc_now
from plimsoll.words import counted
from plimsoll.workloads.fold_tables import Workloads, floor_of
from plimsoll.workloads.reasons import Cause
from plimsoll.workloads.why.ask import EXAMPLE, explain_if, parse_if, spec_of
from plimsoll.workloads.why.model import Action, Near, PoolWhy, Step, TeamWhy, WorkWhy
from plimsoll.workloads.why.team import explain_team
from plimsoll.workloads.why.workload import explain_workload, unknown

FLEET_DAYS = 30
NAMES_SHOWN = 4
NOTES_SHOWN = 8

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def why(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD|TEAM|NODE", help="Whom it is about; with --if the terms, with --fleet clusters."
        ),
    ] = None,
    is_if: Annotated[
        bool,
        typer.Option("--if", help="Something not submitted yet: gpus=352 sku=H200 [island] [cluster=|area=] [team=]."),
    ] = False,
    is_fleet: Annotated[bool, typer.Option("--fleet", help="GPU-hours promised but unusable, by cause.")] = False,
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="With --fleet: when the period begins.", show_default="30d")
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="With --fleet: when it ends.", show_default="now")
    ] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Why can't I use my quota, why does my work wait, why did it stop; and what can be done about it now.

    plimsoll why posttrain-42 · why TEAM · why NODE · why --if gpus=352 sku=H200 island · why --fleet
    """
    terms = list(words or [])
    _check_words(terms, is_if=is_if, is_fleet=is_fleet, has_period=bool(begin or end))
    asked = parse_if(terms) if is_if else {}

    def answer(state: State) -> Answer:
        found = explain(state)
        return _with_row(found) if output is Output.CSV and not found.tables else found

    def explain(state: State) -> Answer:
        now = _moment(state, as_of)
        if is_fleet:
            return _fleet(state, terms, begin, end, now)
        floor_of(state)  # made once, outside any what-if, so that it stays
        policy = policy_in_force(state)
        if is_if:
            found = explain_if(state, spec_of(state, asked), now=now, grace=policy.flex_grace, policy=policy)
            return _work_answer(state, found, "if", now)
        return _named(state, terms[0], now)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def _moment(state: State, as_of: str) -> datetime:
    """What `now` means: with `--as-of` nothing later is known."""
    then = parse_as_of(as_of) if as_of else utc_now()
    if isinstance(then, datetime):
        return min(then, utc_now())
    return parse_time(state.recorded_at) if state.recorded_at else utc_now()


def _check_words(words: Sequence[str], *, is_if: bool, is_fleet: bool, has_period: bool) -> None:
    if is_if and is_fleet:
        raise UsageError("bad_usage", "--if and --fleet exclude each other", next_step="leave out one of them")
    if has_period and not is_fleet:
        raise UsageError("bad_usage", "--from and --to are for --fleet", next_step="plimsoll why --fleet --from 30d")
    if is_if and not words:
        raise UsageError("bad_if", "--if says nothing", next_step=EXAMPLE)
    if not is_if and not is_fleet and len(words) != 1:
        what = "nothing is named" if not words else f"{len(words)} things are named, and why answers for one"
        raise UsageError(
            "bad_usage", what, next_step=f"plimsoll why WORKLOAD|TEAM|NODE, {EXAMPLE}, or plimsoll why --fleet"
        )


def _fleet(state: State, clusters: Sequence[str], begin: str, end: str, now: datetime) -> Answer:
    from plimsoll.commands.why_past import answer_fleet

    until = parse_moment(end, now=now) if end else now
    since = parse_moment(begin, now=now) if begin else until - timedelta(days=FLEET_DAYS)
    return answer_fleet(state, since, until, now, clusters=clusters)


def _named(state: State, name: str, now: datetime) -> Answer:
    """A workload that runs or waits, one that is over, a team, a node: the first that has the name."""
    tables, policy = state.of(Workloads), policy_in_force(state)
    if name in tables.asked or name in tables.workloads:
        found = explain_workload(state, name, now=now, grace=policy.flex_grace, policy=policy)
        return _work_answer(state, found, "workload", now)
    if name in tables.past:
        from plimsoll.commands.why_past import answer_stopped

        return answer_stopped(state, name, now)
    if name in known_teams(state):
        return _team_answer(state, explain_team(state, name, now=now, grace=policy.flex_grace))
    if name in state.of(Fleet).nodes:
        from plimsoll.commands.why_past import answer_node

        return answer_node(state, name, now)
    raise unknown(state, name)


def _document(state: State, about: str, found: TeamWhy | WorkWhy) -> dict[str, Any]:
    """The same outside for every answer of why: what it is about, its fields, and what people read."""
    fields = msgspec.to_builtins(found)
    says = fields.pop("answer")
    return {"as_of": state.recorded_at or None, "revision": state.revision, "about": about, **fields, "says": says}


def _with_row(answer: Answer) -> Answer:
    """An answer without a table has its figures as one row, so that no CSV is empty."""
    figures = {key: value for key, value in answer.document.items() if not isinstance(value, list | dict)}
    return msgspec.structs.replace(answer, tables=[Table(tuple(figures), [tuple(figures.values())])])


# A team.


def _team_answer(state: State, found: TeamWhy) -> Answer:
    rows = [row for pool in found.pools for row in _chain(pool)]
    tables = [
        Table(
            ("cluster", "sku", "step", "gpus", "whose_move", "until", "why"),
            rows,
            "from assigned to startable, in GPUs",
        )
    ]
    notes = [f"{pool.cluster} {pool.sku}: {note}" for pool in found.pools for note in pool.notes]
    if len(notes) > NOTES_SHOWN:
        notes = [*notes[:NOTES_SHOWN], f"… and {counted(len(notes) - NOTES_SHOWN, 'more note')}: -o json has them all"]
    steps = [each for pool in found.pools for each in pool.steps if each.next and each.cause is not Cause.IN_USE]
    notes += _next(dict.fromkeys(each.next for each in sorted(steps, key=lambda each: -each.gpus)))
    if found.planned:
        notes = [*(each.text for each in found.planned[:NAMES_SHOWN]), *notes]
        if len(found.planned) > NAMES_SHOWN:
            notes.insert(NAMES_SHOWN, f"… and {len(found.planned) - NAMES_SHOWN} more planned: -o json has them all")
    if not state.of(QuotaBook).lines:
        notes.append("no alignment was applied yet: nothing is guaranteed to anybody")
    return Answer(_document(state, "team", found), tables if rows else [], "\n".join(found.answer), notes)


def _chain(pool: PoolWhy) -> Iterator[tuple[object, ...]]:
    """The numbers of a pool one under the other, as they add up."""
    where = pool.cluster, pool.sku
    yield (*where, "assigned", pool.assigned, "", None, "what the quota book says")
    yield from ((*where, *_step_cells(each)) for each in pool.steps if each.after == "assigned")
    yield (*where, "= guaranteed", pool.guaranteed, "", None, "what is really promised")
    yield from ((*where, *_step_cells(each)) for each in pool.steps if each.after == "guaranteed")
    block = f"largest block in one island: {pool.largest_block:,}" if pool.startable else ""
    yield (*where, "= startable", pool.startable, "", None, block)


def _step_cells(each: Step) -> tuple[object, ...]:
    return f"- {each.cause}", -each.gpus, each.move.value, _second(each.until), _with_names(each)


def _with_names(each: Step) -> str:
    if not each.of:
        return each.says
    named = ", ".join(f"{one.name} {one.gpus:,}" for one in each.of[:NAMES_SHOWN])
    more = f" and {len(each.of) - NAMES_SHOWN} more" if len(each.of) > NAMES_SHOWN else ""
    return f"{each.says}: {named}{more}"


def _second(moment: datetime | None) -> datetime | None:
    return moment.replace(microsecond=0) if moment is not None else None


def _next(commands: Sequence[str] | dict[str, None]) -> list[str]:
    shown = [each for each in commands if each][:3]
    return (
        ["\n".join(f"{'next:' if not place else '     '} {each}" for place, each in enumerate(shown))] if shown else []
    )


# A workload.


def _work_answer(state: State, found: WorkWhy, about: str, now: datetime) -> Answer:
    tables = []
    if found.near and found.missing:
        tables.append(_near_table(found.near))
        tables.append(_way_table(found.near[0]))
    if found.threats:
        rows = [(each.cause.value, each.gpus, _second(each.at), each.says) for each in found.threats]
        tables.append(Table(("cause", "gpus", "at", "what"), rows, "what may happen to it"))
    notes = list(found.notes)
    if found.interruptions:
        notes.append("interruptions, the newest first:\n" + "\n".join(f"  {each}" for each in found.interruptions))
    if found.checks:
        cut = (
            "; the search for combinations ended at its bound, there may be cheaper ones" if found.is_search_cut else ""
        )
        notes.append(f"{found.checks} things were tried on a what-if; only those after which it started are shown{cut}")
    if any(not action.queue_checked for action in found.actions):
        notes.append("more waits than was tried along: somebody before it in the queue may take the room first")
    if about == "if" and found.standing == "startable":
        notes += _next(["plimsoll workload example > FILE", "plimsoll workload submit FILE"])
    pieces = ["\n".join(found.answer), *([_action_lines(found.actions, now)] if found.actions else [])]
    return Answer(_document(state, about, found), tables, "\n\n".join(pieces), notes)


def _near_table(near: Sequence[Near]) -> Table:
    rows = [
        (
            each.cluster,
            each.sku,
            each.island or "(all)",
            each.runs_as,
            each.gpus,
            each.free,
            each.callable,
            each.missing,
        )
        for each in near
    ]
    columns = ("cluster", "sku", "island", "as", "needs", "free", "callable", "missing")
    return Table(columns, rows, "where it comes closest, in GPUs")


def _way_table(near: Near) -> Table:
    where = near.island or f"{near.sku} of {near.cluster}"
    rows: list[tuple[object, ...]] = [("installed", near.installed, "", None, f"in {where}")]
    rows += (_step_cells(each) for each in near.steps)
    rows.append(("= to be had", near.free + near.callable, "", None, f"it needs {near.gpus:,}: {near.missing:,} short"))
    return Table(("step", "gpus", "whose_move", "until", "why"), rows, f"what stands in the way in {where}")


def _action_lines(actions: Sequence[Action], now: datetime) -> str:
    """What would help, cheapest first: what, what it costs whom, when it starts then, what to type."""
    lines = ["What would let it start, cheapest first (each was tried on a what-if):"]
    for number, action in enumerate(actions, 1):
        costs = [(action.moved, "moved"), (action.own, "of the team's own"), (action.others, "of others' flex")]
        cost = ", ".join(f"{gpus:,} GPUs {what}" for gpus, what in costs if gpus) or "hurts nobody"
        starts = "at once" if action.starts <= now else show_time(action.starts.replace(microsecond=0))
        starts += " (an estimate)" if action.is_estimate else ""
        says = "; then ".join(act.says for act in action.acts)
        lines.append(f"  {number}. {says}")
        lines.append(f"     costs: {cost}; starts: {starts}, as {action.runs_as} in {action.cluster}")
        lines += (f"     type:  {act.command}" for act in action.acts if act.command)
    return "\n".join(lines)
