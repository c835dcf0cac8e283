"""`plimsoll campaign compare`: two plans, or two files, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.compare import Compared, Figures, Moved, Part, Side, compare
from plimsoll.campaigns.file import parse_campaign, read_campaign
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Plan
from plimsoll.campaigns.units import make_units
from plimsoll.commands.campaign.app import app
from plimsoll.commands.campaign.plan import Gap, Seconds, Seed, read_file, watching
from plimsoll.commands.desk import here
from plimsoll.commands.options import Db, Format, open_database
from plimsoll.commands.output import show
from plimsoll.errors import NotFound, Refused
from plimsoll.fleet.fold import Fleet
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import show_time

MOVES_SHOWN = 15
What = Annotated[
    str,
    typer.Argument(
        metavar="FILE|CAMPAIGN[:NUMBER]|FILE=PLAN",
        help="A recorded plan; at a database also a campaign file, which is planned, or a file with a plan as JSON.",
    ),
]


@app.command("compare")
def compare_command(
    context: typer.Context,
    left: What,
    right: What,
    seconds: Seconds = 20.0,
    gap: Gap = 0.01,
    seed: Seed = 1,
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Hold two plans side by side: days, peak, loss in A100e, exposure, by area and purpose, and what moves.

    Each side is a campaign file (it is planned first, nothing is recorded), a recorded plan such as nic-firmware:3, or
    a file with a plan of somebody's, such as nic.yaml=plan.json.
    """
    keeper = open_database(context, db)
    state = keeper.state()

    def side(word: str) -> Side:
        return _recorded(keeper, state, word) or _given(state, word) or _planned(state, word, seconds, gap, seed)

    show(_answer(compare(side(left), side(right), state.of(Fleet))), output)


def _recorded(keeper: Keeper, state: State, word: str) -> Side | None:
    """A plan that the ledger has, by the campaign's name and the plan's number."""
    name, _, number = word.partition(":")
    run = state.of(Campaigns).runs.get(name)
    if run is None and here() is not None:  # files of this machine are not for others to name
        raise _only_recorded(state, name)
    if run is None or (here() is None and Path(word).exists()):
        return None
    campaign, plan = run.campaign, run.plan
    if number and str(plan.number) != number:
        campaign, plan = older_plan(keeper, name, number)
    return Side(word, campaign, make_units(campaign, state.of(Fleet)), plan.batches)


def _only_recorded(state: State, name: str) -> NotFound:
    """Elsewhere no file is planned for a comparison: what somebody would compare is planned there, and has a number."""
    return NotFound(
        "no_such_campaign",
        f"there is no campaign {name[:100]!r} among {len(state.of(Campaigns).runs)}: a server compares recorded plans,"
        " and no files",
        next_step="plimsoll campaign plan FILE, then plimsoll campaign compare CAMPAIGN:1 CAMPAIGN:2",
        campaign=name[:100],
    )


def older_plan(keeper: Keeper, name: str, number: str) -> tuple[Any, Plan]:
    """A plan that is no longer in force."""
    from plimsoll.campaigns.changes import CampaignPlanned
    from plimsoll.ledger.model import EventFilter

    where = EventFilter(subject=f"campaign/{name}", kind=CampaignPlanned.kind)
    last = 0
    for event in keeper.ledger.store.events(where=where):
        change = keeper.kinds.read(event)
        if isinstance(change, CampaignPlanned):
            last = change.plan.number
            if str(last) == number:
                return change.file, change.plan
    raise Refused(
        "no_such_plan",
        f"{name} has no plan {number}: its last one is {last}",
        next_step=f"plimsoll campaign compare {name}:{max(1, last - 1)} {name}:{last}",
    )


def _given(state: State, word: str) -> Side | None:
    """A file and a plan of somebody's."""
    from plimsoll.campaigns.plan_file import read_plan
    from plimsoll.commands.campaign.plan import plan_text

    file, equals, plan = word.partition("=")
    if not equals:
        return None
    text, document = read_file(Path(file))
    campaign = parse_campaign(text, source=file)
    made = read_plan(plan_text(Path(plan)), plan)
    return Side(plan, campaign, make_units(campaign, state.of(Fleet), document), made.batches)


def _planned(state: State, word: str, seconds: float, gap: float, seed: int) -> Side:
    """A file that is planned now."""
    from plimsoll.campaigns.planning import Search, plan_campaign

    _, document = read_file(Path(word))
    campaign = read_campaign(document)
    with watching() as watch:
        search = Search(seconds, gap, seed, watch, watch.is_stopped.is_set)
        planned = plan_campaign(state, campaign, number=0, search=search, document=document, explains=False)
    if planned.plan.score is None:
        raise Refused(
            "no_plan", f"{word}: no plan was found ({planned.plan.status})", next_step=f"plimsoll campaign plan {word}"
        )
    return Side(word, campaign, planned.roll, planned.plan.batches)


def _answer(found: Compared) -> Answer:
    left, right = found.left, found.right
    figures = [(name, one, other) for name, one, other in zip(_NAMES, _row(left), _row(right), strict=True)]
    names = (left.name, right.name if right.name != left.name else f"{right.name} (2)")
    tables = [Table(("figure", *names), figures, name="figures")]
    parts = {(key, value): part for key, value, part in left.parts}
    others = {(key, value): part for key, value, part in right.parts}
    rows = [(*key, *_part_row(parts.get(key)), *_part_row(others.get(key))) for key in sorted({*parts, *others})]
    figures_of = ("nodes", "last_day", "most_out", "lost_a100e_hours")
    columns = ("key", "value", *figures_of, *(f"{name}_2" for name in figures_of))
    tables.append(Table(columns, rows, "By area and purpose", "parts"))
    if found.moved:
        moved = [_moved_row(each) for each in found.moved]
        title = f"{len(found.moved)} batches differ, {found.same} are the same"
        tables.append(Table(("batch", names[0], names[1], "hours_later"), moved, title, "moves", MOVES_SHOWN))
    notes = []
    if len(found.moved) > MOVES_SHOWN:
        notes.append(f"{len(found.moved) - MOVES_SHOWN} more differ: -o json has them all")
    notes += [
        f"{side.name} breaks its file {side.problems} times: plimsoll campaign check FILE PLAN"
        for side in (left, right)
        if side.problems
    ]
    return Answer(msgspec.to_builtins(found), tables, "", notes)


_NAMES = (
    "nodes",
    "batches",
    "days used",
    "first day",
    "last day",
    "most nodes out",
    "average loss, A100e",
    "average loss, share",
    "exposure",
    "imbalance",
    "total",
)


def _row(side: Figures) -> tuple[object, ...]:
    share = None if side.average_loss_share is None else f"{side.average_loss_share:.2%}"
    return (
        side.nodes,
        side.batches,
        side.days_used,
        side.first_day,
        side.last_day,
        int(side.peak),
        None if side.average_loss is None else round(side.average_loss, 1),
        share,
        round(side.score.exposure, 1),
        round(side.score.imbalance, 4),
        round(side.score.total, 1),
    )


def _part_row(part: Part | None) -> tuple[object, ...]:
    if part is None:
        return 0, None, None, None
    return part.nodes, part.last_day, int(part.peak), None if part.lost is None else round(part.lost)


def _moved_row(each: Moved) -> tuple[object, ...]:
    texts = [show_time(batch.start) if batch else "-" for batch in (each.left, each.right)]
    return f"{each.unit}#{each.number}", *texts, each.hours
