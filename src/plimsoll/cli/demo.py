"""`plimsoll demo`: a believable fleet to try everything on."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table, csv_text
from plimsoll.commands.errands import beside
from plimsoll.commands.fleet import overview
from plimsoll.commands.options import Db, Format, current_actor, database_url, open_database
from plimsoll.commands.output import progress, show
from plimsoll.errors import Refused, UsageError
from plimsoll.filter import parse_filter
from plimsoll.fleet.changes import FleetImported
from plimsoll.fleet.demo import demo_fleet
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.fleet.sheet import MemorySheet
from plimsoll.fleet.view import By, find_nodes
from plimsoll.lifecycle.demo import demo_lives, demo_quota
from plimsoll.lifecycle.providers.quota import COLUMNS as QUOTA_COLUMNS
from plimsoll.lifecycle.service import say
from plimsoll.quota.fold import QuotaBook
from plimsoll.rooms import KINDS, SHEETS
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_moment, utc_now
from plimsoll.workloads.fold_tables import Workloads

POOLS_SHOWN = 12
PORT_DEFAULT = 8077

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def demo(
    context: typer.Context,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Another seed, another fleet.")] = 1,
    until: Annotated[
        str, typer.Option(metavar="TIME", help="When its 90 days of history end. Same seed and time, same fleet.")
    ] = "today",
    is_served: Annotated[
        bool, typer.Option("--serve", help="Then serve the pages on this machine, with the fleet alive.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="With --serve: the port.")] = PORT_DEFAULT,
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Load the demo fleet: 78 clusters, 19,000 nodes, 40 teams, 90 days of history; then show it.

    The database must be empty, or hold this demo already.
    """
    end = parse_moment(until, now=utc_now())
    if end > utc_now():
        raise UsageError("bad_time", f"--until {until} is in the future", next_step="give a time in the past, or none")
    keeper = open_database(context, db, create=True)
    name = f"demo fleet, seed {seed}"
    is_loaded = _is_loaded(keeper, name, database_url(context, db))
    if not is_loaded:
        with progress("making the demo fleet") as line:
            rows = demo_fleet(seed=seed, until=end)
            digest = hashlib.sha256(repr(rows).encode()).hexdigest()
            source = Source(name, digest, {sheet: MemorySheet(sheet, cells) for sheet, cells in rows.items()})
            import_fleet(
                keeper,
                source.watched(lambda sheet, count: line(count, f"{sheet}: rows")),
                SHEETS,
                actor=current_actor(),
            )
    say(keeper, lambda state, now: (None, demo_lives(state, now)), actor=current_actor(), reason="the demo")
    state = keeper.state()
    quota = _write_quota(state, beside(database_url(context, db)))
    answer = _answer(state, quota)
    if is_loaded:
        note = f"The {name}, was loaded before and is shown as it is now: revision {state.revision}."
        answer = msgspec.structs.replace(answer, notes=[note, *answer.notes])
    if not is_served:
        show(answer, output)
        return
    serve_demo(database_url(context, db), keeper, port)


def serve_demo(dsn: str, keeper: Keeper, port: int) -> None:
    """The pages of a demo: made lively, and opened by a link that works once."""
    from plimsoll.cli.serve import serve_now
    from plimsoll.server.demo import set_scene
    from plimsoll.server.settings import Settings

    with progress("setting the scene"):
        set_scene(keeper)
    keeper.close()
    serve_now(Settings(dsn=dsn, port=port, is_demo=True, log_form="none"), sign_in="root@example.org")


def _write_quota(state: State, folder: Path) -> str:
    """The quota that the two clusters being made are promised from; a file that is there is left as it is."""
    path = folder / "quota.csv"
    rows = [QUOTA_COLUMNS, *demo_quota(state)]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(csv_text(rows) + "\n")
    except FileExistsError:
        return f"{path.name} was there already"
    except OSError as error:
        return f"{path.name} can't be written: {error.strerror}"
    return f"{path.name} beside the database is their quota"


def _is_loaded(keeper: Keeper, name: str, url: str) -> bool:
    first = keeper.ledger.store.event_at(1)
    if first is None:
        return False
    if first.kind == FleetImported.kind:
        change = KINDS.read(first)
        if isinstance(change, FleetImported) and change.source == name:
            return True
    raise Refused(
        "database_not_empty",
        f"{url} holds {keeper.state().revision:,} events that are not the {name}; the demo takes an empty database",
        next_step="plimsoll demo --db sqlite:///demo.db",
    )


def _answer(state: State, quota: str) -> Answer:
    fleet = state.of(Fleet)
    nodes = list(find_nodes(fleet, parse_filter("", now=utc_now())))
    basis = overview(state, fleet, nodes, [By.AREA, By.SKU], is_filtered=False)
    promises = _promises(state)
    over = [row for row in promises if row[5] > 0]
    short = sum(row[5] for row in over)
    table = Table(
        ("cluster", "sku", "total", "healthy", "assigned", "over_healthy", "allocated"),
        sorted(over, key=lambda row: -row[5])[:POOLS_SHOWN],
        "most over-promised (GPUs)",
    )
    teams, running = state.of(QuotaBook).teams(), state.of(Workloads).workloads
    notes = [
        f"{len(teams)} teams, {len(running):,} workloads. In {len(over)} of {len(promises)} pools quotas add up to more"
        f" than is healthy: {short:,} GPUs are promised that are not there.",
        "next: plimsoll health show                    what works, and what needs a person\n"
        "      plimsoll quota show tiger               what is promised, and the line\n"
        "      plimsoll quota plan                     what would be honest, and whom it touches\n"
        "      plimsoll health forecast                how much of it can be relied on next week\n"
        "      plimsoll fleet show --by cluster        who has how much\n"
        "      plimsoll fleet nodes cluster=tiger service!=in_service\n"
        f"      plimsoll cluster list                   two clusters being made ({quota})\n"
        "      plimsoll audit log --limit 5            everything is an event\n"
        "      plimsoll audit verify                   and the chain is whole",
    ]
    return Answer(basis.document, [*basis.tables, table], basis.heading, notes)


def _promises(state: State) -> list[tuple[str, str, int, int, int, int, int]]:
    """Per pool in production: what is there, what is promised, what runs."""
    fleet, book = state.of(Fleet), state.of(QuotaBook)
    allocated: Counter[tuple[str, str]] = Counter()
    for workload in state.of(Workloads).workloads.values():
        for part in workload.parts:
            allocated[workload.cluster, part.sku] += part.gpus
    rows = []
    for pool, count in sorted(fleet.pools.items()):
        if fleet.clusters[pool.cluster].phase is Phase.PRODUCTION:
            healthy, assigned = count.gpus_in_service, book.assigned.get(pool, 0)
            rows.append((*pool, count.gpus, healthy, assigned, max(0, assigned - healthy), allocated[pool]))
    return rows
