"""`plimsoll fleet`: what exists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.desk import here
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Filters,
    Format,
    Reason,
    Watch,
    answer_keeper,
    answer_state,
    current_actor,
    open_database,
    state_as_of,
)
from plimsoll.commands.output import progress, show
from plimsoll.commands.written import DRY_RUN
from plimsoll.errors import NotFound
from plimsoll.filter import parse_filter
from plimsoll.fleet.decide import ImportPlan
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Phase
from plimsoll.fleet.service import Source, export_fleet, import_fleet
from plimsoll.fleet.sheet import ImportContext
from plimsoll.fleet.view import (
    NODE_FIELDS,
    By,
    ClusterRow,
    Group,
    count_all,
    count_cells,
    count_groups,
    find_clusters,
    find_nodes,
)
from plimsoll.health.decide import policy_in_force
from plimsoll.health.fold import Health
from plimsoll.health.service import feeds_heard
from plimsoll.health.silence import fallen_silent
from plimsoll.lifecycle.phases import own_phases
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time, utc_now
from plimsoll.words import counted
from plimsoll.workloads.map import MAP_COLUMNS, FleetMap, fleet_map, map_rows

DIFFERENCES_SHOWN = 20
NODES_SHOWN = 50

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="What exists: areas, clusters, islands, nodes, SKUs.",
)

Place = Annotated[
    Path, typer.Argument(metavar="DIR|FILE.xlsx", help="A fleet folder, or a workbook with the same sheets.")
]


@app.command("import")
def import_command(
    context: typer.Context,
    path: Place,
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
    reason: Reason = "",
    partial: Annotated[
        bool, typer.Option("--partial", help="The files hold a part of the fleet: what is not in them stays.")
    ] = False,
    local_islands: Annotated[
        bool,
        typer.Option("--local-islands", help="Island names are unique in their cluster only: store CLUSTER/ISLAND."),
    ] = False,
    allow_removals: Annotated[
        bool, typer.Option("--allow-removals", help="Retire nodes even when most of the fleet is not in the files.")
    ] = False,
) -> None:
    """Make the fleet what the files say; all or nothing. A second import is a diff.

    Files: clusters.csv and nodes.csv; optional quotas.csv, workloads.csv, versions.csv, history.csv, skus.csv. What is
    no longer in them is retired (quotas and workloads: ended); history is only ever added to.
    """
    source = Source.of_path(path, SHEETS)
    if here() is not None:  # the folder is gone afterwards, and says nothing to anybody
        source = Source("files that were sent", source.digest, source.raws, source.warnings)
    with progress(f"importing {source.name}") as line:
        watched = source.watched(lambda name, rows: line(rows, f"{name}: rows read"))

        def run(keeper: Keeper, *, is_dry_run: bool) -> tuple[ImportPlan, int]:
            return import_fleet(
                keeper,
                watched,
                SHEETS,
                actor=current_actor(),
                reason=reason,
                is_partial=partial,
                has_local_islands=local_islands,
                is_removal_allowed=allow_removals,
                is_dry_run=is_dry_run,
                phases=own_phases,
            )

        try:
            plan, revision = run(open_database(context, db), is_dry_run=dry_run)
        except NotFound:
            # Judged in memory first: files that are refused leave no empty database behind.
            plan, revision = run(open_keeper("sqlite:///:memory:", create=True), is_dry_run=True)
            if not dry_run:
                plan, revision = run(open_database(context, db, create=True), is_dry_run=False)
    show(_import_answer(plan, revision, source.warnings, is_dry_run=dry_run), output)


def _import_answer(plan: ImportPlan, revision: int, warnings: list[str], *, is_dry_run: bool) -> Answer:
    counts = plan.counts()
    rows = [(name, *count.values()) for name, count in counts.items()]
    columns = ("sheet", "added", "changed", "removed", "same")
    differences = [
        {"sheet": sheet.name, "what": str(each.what), "key": each.key, "was": dict(each.was)}
        for sheet in plan.sheets
        for each in sheet.differences
    ]
    changed = [each for each in differences if each["what"] != "added"] or differences
    shown = [(each["sheet"], each["what"], each["key"], _was_text(each["was"])) for each in changed[:DIFFERENCES_SHOWN]]
    verb = "would change" if is_dry_run else "changed"
    total = sum(sum(count.values()) - count["same"] for count in counts.values())
    heading = f"{plan.source}: nothing to change" if not total else f"{plan.source}: {verb} {total:,} rows"
    warnings = [*warnings, *plan.warnings]
    notes = [f"warning: {warning}" for warning in warnings]
    if len(changed) > len(shown):
        notes.append(f"… {len(changed) - len(shown):,} more differences: -o json lists them all")
    notes.append(DRY_RUN if is_dry_run else f"revision {revision}; next: plimsoll fleet show")
    document = {
        "source": plan.source,
        "digest": plan.digest,
        "dry_run": is_dry_run,
        "revision": revision,
        "counts": counts,
        "differences": differences,
        "warnings": warnings,
    }
    tables = [Table(columns, rows)]
    if shown and any(each["what"] != "added" for each in differences):
        tables.append(Table(("sheet", "what", "row", "was"), shown))
    return Answer(document, tables, heading, notes)


def _was_text(was: Any) -> str:
    return ", ".join(f"{field} {value if value is not None else '(none)'}" for field, value in was.items())


@app.command("export")
def export_command(
    context: typer.Context,
    path: Place,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """Write the fleet as a folder of CSV files, or as one workbook where the name ends in .xlsx."""
    with progress(f"writing {path}"):
        state = state_as_of(open_database(context, db), as_of)
        counts = export_fleet(state, path, SHEETS, ImportContext(now=utc_now(), source=""))
    document = {"path": str(path), "revision": state.revision, "rows": counts}
    show(Answer(document, [Table(("sheet", "rows"), list(counts.items()))], f"{path}: written"), output)


@app.command("show")
def show_command(
    context: typer.Context,
    filters: Filters = None,
    by: Annotated[By | None, typer.Option("--by", help="Count by one thing only.", show_default=False)] = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Count the fleet: nodes, GPUs installed (total) and healthy, A100-equivalents."""
    where = parse_filter(filters or [], now=utc_now())

    def answer(state: State) -> Answer:
        fleet = state.of(Fleet)
        nodes = list(find_nodes(fleet, where))
        return overview(state, fleet, nodes, [by] if by else [By.AREA, By.SKU], is_filtered=bool(where.terms))

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def overview(state: State, fleet: Fleet, nodes: list[Node], bys: list[By], *, is_filtered: bool) -> Answer:
    """The fleet counted by each of the given things."""
    cells = count_cells(nodes)
    total = count_all(fleet, cells)
    groups = {by: count_groups(fleet, cells, by) for by in bys}
    nodeless = [
        cluster.id
        for _, cluster in sorted(fleet.clusters.items())
        if cluster.phase is not Phase.RETIRED and not any(key.cluster == cluster.id for key in fleet.pools)
    ]
    notes = []
    if nodeless and not is_filtered:
        notes.append(f"without nodes yet: {', '.join(nodeless)}")
    if not fleet.clusters:
        notes.append("the fleet is empty; next: plimsoll demo, or plimsoll fleet import DIR")
    if unweighed := sorted({cell.sku for cell in cells if fleet.a100e(cell.sku) is None}):
        notes.append(
            f"no A100e weight is known for {', '.join(unweighed)}, so they count 0: import a skus.csv (sku,a100e)"
        )
    if fleet.clusters and By.CLUSTER not in bys:
        notes.append("next: plimsoll fleet show --by cluster, plimsoll fleet nodes service!=in_service")
    document = {
        "as_of": state.recorded_at or None,
        "revision": state.revision,
        "totals": total,
        "groups": {by.value: found for by, found in groups.items()},
        "clusters_without_nodes": nodeless,
    }
    share = "" if total.healthy_share is None else f" ({total.healthy_share:.1%})"
    heading = (
        f"{total.clusters} clusters, {total.islands} islands, {total.nodes:,} nodes;"
        f" {total.total:,} GPUs in production, {total.healthy:,} healthy{share}; {total.total_a100e:,.0f} A100e"
    )
    tables = [
        Table((by.value, *_GROUP_COLUMNS[1:]), [msgspec.structs.astuple(group) for group in found])
        for by, found in groups.items()
    ]
    return Answer(document, tables, heading, notes)


_GROUP_COLUMNS = Group.__struct_fields__


@app.command("nodes")
def nodes_command(
    context: typer.Context,
    filters: Filters = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="At most so many, 0 for all.", show_default="50 in a table, else all"),
    ] = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """List nodes. Retired ones are listed only where the filter speaks of service."""
    where = parse_filter(filters or [], now=utc_now())
    most = limit if limit is not None else NODES_SHOWN if output is Output.TABLE else 0

    def answer(state: State) -> Answer:
        found = list(find_nodes(state.of(Fleet), where))
        shown = found[:most] if most else found
        rows = [(n.id, n.cluster, n.island, n.sku, n.gpus, n.service, n.since, n.reason) for n in shown]
        documents = [
            dict(zip(NODE_FIELDS, row, strict=True)) | {"labels": n.labels} for row, n in zip(rows, shown, strict=True)
        ]
        # As in nodes.csv: labels are columns of their own. A table for people would be too wide.
        labels = sorted({name for n in shown for name in n.labels}) if output is Output.CSV else []
        table = Table(
            (*NODE_FIELDS, *labels),
            [(*row, *(n.labels.get(name) for name in labels)) for row, n in zip(rows, shown, strict=True)],
        )
        document = {
            "as_of": state.recorded_at or None,
            "revision": state.revision,
            "count": len(found),
            "nodes": documents,
        }
        notes = [f"{len(found):,} nodes"]
        if len(shown) < len(found):
            notes = [f"{len(shown):,} of {len(found):,} nodes; --limit 0 for all, or a narrower filter"]
        return Answer(document, [table], notes=notes)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


@app.command("clusters")
def clusters_command(
    context: typer.Context,
    filters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIELD=VALUE", help="A filter, such as: area=us purpose=applied phase!=retired sku=H200"
        ),
    ] = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """List clusters: where they are, what for, and what is in them. Retired ones only where the filter says phase."""
    where = parse_filter(filters or [], now=utc_now())

    def answer(state: State) -> Answer:
        found = find_clusters(state.of(Fleet), where)
        rows = [(*msgspec.structs.astuple(each)[:-2], ",".join(each.skus)) for each in found]
        document = {"as_of": state.recorded_at or None, "revision": state.revision, "clusters": found}
        notes = [counted(len(found), "cluster"), "next: plimsoll quota show CLUSTER, plimsoll cluster show CLUSTER"]
        return Answer(document, [Table((*ClusterRow.__struct_fields__[:-2], "skus"), rows)], notes=notes)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


@app.command("map")
def map_command(
    context: typer.Context,
    filters: Filters = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Every node in its island, in columns, to be drawn: service, health, reason, since, expected back, who runs there.

    JSON is in columns with lists of words beside them; -o csv is one row a node; a table counts by island.
    """
    where = parse_filter(filters or [], now=utc_now())

    def answer(keeper: Keeper, state: State) -> Answer:
        now = parse_time(state.recorded_at) if as_of and state.recorded_at else utc_now()
        heard = {} if as_of else feeds_heard(keeper.ledger.store)
        silent = fallen_silent(state.of(Health), heard, silence=policy_in_force(state).silence, now=now)
        found = fleet_map(state, find_nodes(state.of(Fleet), where), silent=silent)
        stamp = {"as_of": state.recorded_at or None, "revision": state.revision}
        document = stamp | {name: getattr(found, name) for name in found.__struct_fields__}
        return Answer(document, [_map_table(found, output)], notes=[f"{len(found.nodes.node):,} nodes"])

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _map_table(found: FleetMap, output: Output) -> Table:
    if output is Output.CSV:
        return Table(MAP_COLUMNS, map_rows(found))
    columns = ("island", "cluster", "nodes", "gpus", "gpus_in_service", "workloads")
    rows = [(i.island, i.cluster, i.nodes, i.gpus, i.gpus_in_service, len(i.work)) for i in found.islands]
    return Table(columns, rows)
