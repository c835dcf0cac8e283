"""`plimsoll workload defrag`: the fewest moves that open a block of a size in one island."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, open_database
from plimsoll.commands.output import progress, show
from plimsoll.commands.quota.request import whole_number
from plimsoll.commands.workload.app import app
from plimsoll.commands.written import written
from plimsoll.quota.names import check_gpus, find_pools
from plimsoll.words import counted
from plimsoll.workloads.defrag import Opening, carry_out, find_opening, no_way
from plimsoll.workloads.service import take_turn
from plimsoll.workloads.turn import Turn


@app.command("defrag")
def defrag_command(
    context: typer.Context,
    size: Annotated[str, typer.Option("--for", metavar="GPUS", help="The block that is wanted, in one island.")],
    sku: Annotated[str, typer.Option("--sku", metavar="SKU", help="Of which SKU.")],
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Only in this cluster.", show_default=False)
    ] = "",
    area: Annotated[str, typer.Option("--area", metavar="AREA", help="Only in this area.", show_default=False)] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Make the moves; else they are only shown.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """The fewest moves of elastic replicas, and of flex work, that open a block of that size. Shows them only.

    Exact: fewest moves, then fewest GPUs disturbed. Nothing stops for it.
    """
    gpus, is_tried = whole_number(size), dry_run or not apply
    check_gpus(gpus)
    keeper = open_database(context, db)

    def decide(turn: Turn, grace: Any) -> Opening:
        opening, none = find_opening(turn, find_pools(turn.state, sku, cluster=cluster, area=area), gpus)
        if opening is None:
            raise no_way(none, gpus, sku)
        if opening.steps:
            carry_out(turn, opening, grace=grace)
        return opening

    with progress("searching"):
        opening, events = take_turn(keeper, decide, actor=current_actor(), reason=reason, is_dry_run=is_tried)
    show(_answer(opening, written(keeper, events, is_dry_run=is_tried)), output)


def _answer(opening: Opening, wrote: dict[str, Any]) -> Answer:
    is_applied = not wrote["dry_run"]
    where = f"{opening.island} of {opening.pool.cluster}"
    if not opening.steps:
        heading = f"nothing has to move: {where} has {opening.free_after:,} {opening.pool.sku} free"
    else:
        would = "open" if not is_applied else "opened"
        heading = (
            f"{counted(len(opening.steps), 'move')} {would} {opening.free_after:,} {opening.pool.sku}"
            f" in {where}; {opening.gpus_disturbed:,} GPUs are disturbed"
        )
    rows = [
        (step.workload, step.part, step.team, step.kind, step.gpus, step.from_island, step.to_island)
        for step in opening.steps
    ]
    proof = "no plan has fewer" if opening.is_proven else f"not proven: at least {opening.bound_moves} moves are needed"
    notes = [proof] if opening.steps else []
    if opening.steps and not is_applied:
        again = f"--for {opening.gpus} --sku {opening.pool.sku} --cluster {opening.pool.cluster}"
        notes.append(f"to do it: plimsoll workload defrag {again} --apply")
    document = {
        "applied": is_applied,
        **wrote,
        "cluster": opening.pool.cluster,
        "sku": opening.pool.sku,
        "island": opening.island,
        "gpus": opening.gpus,
        "free_after": opening.free_after,
        "moves": msgspec.to_builtins(opening.steps),
        "gpus_disturbed": opening.gpus_disturbed,
        "is_proven": opening.is_proven,
    }
    columns = ("workload", "part", "team", "kind", "gpus", "from_island", "to_island")
    return Answer(document, [Table(columns, rows)] if rows else [], heading, notes)
