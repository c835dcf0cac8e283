"""`plimsoll campaign versions|tested|want`: what is on the nodes, what was tested together, what is wanted."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.versions.decide import record_relevant, record_tested, record_wanted, scope_text
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.campaigns.versions.model import Combination, Result, combination_text, in_order, read_pairs
from plimsoll.campaigns.versions.service import import_versions, open_versions, record
from plimsoll.commands.campaign.app import app
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Filters,
    Format,
    Reason,
    Watch,
    answer_state,
    current_actor,
    open_database,
)
from plimsoll.commands.output import progress, show
from plimsoll.commands.written import DRY_RUN
from plimsoll.errors import UsageError
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node
from plimsoll.fleet.selector import Scope
from plimsoll.fleet.sheet import What
from plimsoll.fleet.view import find_nodes
from plimsoll.state.state import State
from plimsoll.times import parse_moment, utc_now
from plimsoll.words import counted

DIFFERENCES_SHOWN = 20
COMPONENTS_SHOWN = 8

versions_app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="What is on the nodes: import, show, relevant.",
)
app.add_typer(versions_app, name="versions")

Pairs = Annotated[
    list[str], typer.Argument(metavar="COMPONENT=VERSION...", help="Such as nic-firmware=28.43 driver=560.35")
]


class By(enum.StrEnum):
    """What `versions show` counts by."""

    COMBINATION = "combination"
    CLUSTER = "cluster"
    NODE = "node"


@versions_app.command("import")
def import_command(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Columns node,component,version.")],
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
    reason: Reason = "",
) -> None:
    """Record which versions were seen on nodes; all or nothing, and a second import is a diff.

    Nodes and components that are not in the file stay as they are. An empty version: the component is not there.
    """
    keeper, raw = open_database(context, db), open_versions(path)
    with progress(f"importing {raw.source}"):
        plan, revision = import_versions(keeper, raw, actor=current_actor(), reason=reason, is_dry_run=dry_run)
    counts = plan.counts()
    changed = sum(counts.values()) - counts[What.SAME]
    verb = "would change" if dry_run else "changed"
    heading = f"{raw.source}: {verb} {counted(changed, 'version')}" if changed else f"{raw.source}: nothing to change"
    rows = [(each.key, str(each.what), each.was.get("version")) for each in plan.differences]
    notes = [f"warning: {warning}" for warning in plan.warnings]
    if len(rows) > DIFFERENCES_SHOWN:
        notes.append(f"… {len(rows) - DIFFERENCES_SHOWN:,} more differences: -o json lists them all")
    closing = f"revision {revision}; next: plimsoll campaign versions show, plimsoll campaign combinations"
    notes.append(DRY_RUN if dry_run else closing)
    document = {
        "source": raw.source,
        "dry_run": dry_run,
        "revision": revision,
        "counts": counts,
        "differences": plan.differences,
        "warnings": plan.warnings,
    }
    tables = [Table(tuple(counts), [tuple(counts.values())])]
    if rows:
        tables.append(Table(("row", "what", "was"), rows[:DIFFERENCES_SHOWN]))
    show(Answer(document, tables, heading, notes), output)


@versions_app.command("show")
def show_command(
    context: typer.Context,
    filters: Filters = None,
    by: Annotated[By, typer.Option("--by", help="One line for each.")] = By.COMBINATION,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Which versions are where: each combination with its nodes; with a filter, on such nodes only."""
    where = parse_filter(filters or [], now=utc_now())

    def answer(state: State) -> Answer:
        nodes = list(find_nodes(state.of(Fleet), where))
        return _versions_answer(state, nodes, by)

    answer_state(context, db, as_of, output, watch=watch, answer=answer)


def _versions_answer(state: State, nodes: Sequence[Node], by: By) -> Answer:
    versions = state.of(Versions)
    counts: Counter[tuple[str, Combination]] = Counter()
    clusters: dict[Combination, set[str]] = {}
    for node in nodes:
        combination = versions.combination_of(node.id)
        place = node.id if by is By.NODE else node.cluster if by is By.CLUSTER else ""
        counts[place, combination] += 1
        clusters.setdefault(combination, set()).add(node.cluster)
    components = sorted({component for _, combination in counts for component, _ in combination})
    listed = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    rows, documents = [], []
    for (place, combination), count in listed:
        here = dict(combination)
        cells = [here.get(component) for component in components]
        if by is By.COMBINATION:
            rows.append((*cells, count, len(clusters[combination])))
            documents.append({"versions": here, "nodes": count, "clusters": sorted(clusters[combination])})
        else:
            rows.append((place, *cells, *([count] if by is By.CLUSTER else [])))
            documents.append({str(by): place, "versions": here} | ({"nodes": count} if by is By.CLUSTER else {}))
    columns = {By.COMBINATION: (*components, "nodes", "clusters"), By.CLUSTER: ("cluster", *components, "nodes")}
    table = Table(columns.get(by, ("node", *components)), rows)
    known = len(nodes) - sum(count for (_, combination), count in counts.items() if not combination)
    document = {
        "as_of": state.recorded_at or None,
        "revision": state.revision,
        "relevant": versions.relevant,
        "nodes": len(nodes),
        "nodes_known": known,
        "components": {component: _spread(component, counts) for component in components},
        "by": documents,
    }
    heading = f"{counted(len(clusters), 'combination')} on {known:,} of {counted(len(nodes), 'node')}"
    notes = [] if known else ["next: plimsoll campaign versions import FILE.csv   # node,component,version"]
    if versions.relevant:
        notes.append(f"combinations are told apart by {', '.join(versions.relevant)}, and by what plans change")
    return Answer(
        document, [table], heading, [*notes, "next: plimsoll campaign combinations, plimsoll campaign behind"]
    )


def _spread(component: str, counts: Counter[tuple[str, Combination]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (_, combination), count in counts.items():
        for name, version in combination:
            if name == component:
                found[version] += count
    return {version: found[version] for version in in_order(found)}


@versions_app.command("relevant")
def relevant_command(
    context: typer.Context,
    components: Annotated[
        list[str] | None, typer.Argument(metavar="COMPONENT...", help="The components that count.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All components count again.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Say which components combinations are told apart by; what a campaign changes always counts as well.

    A test that passed answers for a combination if it names every component that counts.
    """
    if bool(components) is every:
        message = "say either which components count, or --all"
        raise UsageError("bad_usage", message, next_step="plimsoll campaign versions relevant driver nic-firmware")
    named = components or []
    keeper = open_database(context, db)
    is_new, revision = record(
        keeper,
        lambda state: record_relevant(state, named),
        actor=current_actor(),
        reason=reason,
        is_dry_run=dry_run,
    )
    what = ", ".join(sorted(set(named))) or "all components"
    heading = f"combinations are told apart by {what}"
    _show_recorded({"relevant": sorted(set(named)) or None}, heading, output, is_new, revision, is_dry_run=dry_run)


@app.command("tested")
def record_command(
    context: typer.Context,
    pairs: Pairs,
    result: Annotated[Result, typer.Option("--result", help="How it went.")],
    where: Annotated[str, typer.Option("--where", metavar="CLUSTER", help="Where it ran.", show_default=False)] = "",
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What was found.", show_default=False)] = "",
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="When it was.", show_default="now")] = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Record that versions were tested together.

    A test that passed answers for exactly the versions it names, a test that failed for every combination that contains
    them; the newest answer counts.
    """
    combination = read_pairs(pairs)
    moment = parse_moment(at, now=utc_now()) if at else None
    if moment is not None and moment > utc_now():
        raise UsageError("bad_time", f"--at {at} is in the future", next_step="give a time in the past, or none")
    is_new, revision = record(
        open_database(context, db),
        lambda state: record_tested(state, combination, result, where=where, note=note, at=moment),
        actor=current_actor(),
        is_dry_run=dry_run,
    )
    document = {"versions": dict(combination), "result": str(result), "where": where, "note": note}
    heading = f"{combination_text(combination)}: {result}{f' in {where}' if where else ''}"
    _show_recorded(document, heading, output, is_new, revision, is_dry_run=dry_run)


@app.command("want")
def want_command(
    context: typer.Context,
    pairs: Pairs,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="KEY=VALUE[,VALUE]", help="Only there, such as sku=H100,H200; repeatable."),
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Nobody wants it any more.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Say which version of a component is wanted, everywhere or in a scope; what was said last counts.

    A campaign wants its own versions on its own nodes without this.
    """
    combination, meant = read_pairs(pairs), _read_scope(scope or [])
    is_new, revision = record(
        open_database(context, db),
        lambda state: record_wanted(state, combination, meant, is_withdrawn=withdraw),
        actor=current_actor(),
        reason=reason,
        is_dry_run=dry_run,
    )
    verb = "not wanted any more" if withdraw else "wanted"
    document = {"versions": dict(combination), "scope": dict(meant.terms), "is_withdrawn": withdraw}
    heading = f"{combination_text(combination)} {verb}, {scope_text(meant)}"
    _show_recorded(document, heading, output, is_new, revision, is_dry_run=dry_run)


def _read_scope(words: Iterable[str]) -> Scope:
    terms: dict[str, tuple[str, ...]] = {}
    for word in words:
        key, _, values = word.partition("=")
        found = tuple(value.strip() for value in values.split(",") if value.strip())
        if not (key.strip() and found) or key.strip() in terms:
            message = f"--scope {word[:100]!r} is not KEY=VALUE, each key once"
            raise UsageError("bad_scope", message, next_step="--scope sku=H100,H200 --scope area=eu")
        terms[key.strip()] = found
    return Scope(tuple(sorted(terms.items())))


def _show_recorded(
    document: dict[str, Any], heading: str, output: Output, is_new: bool, revision: int, *, is_dry_run: bool
) -> None:
    notes = [DRY_RUN if is_dry_run else f"revision {revision}; next: plimsoll campaign combinations"]
    if not is_new:
        heading += " (known already)"
    document = {"dry_run": is_dry_run, "revision": revision, "is_new": is_new} | document
    table = Table(tuple(document), [tuple(_flat(value) for value in document.values())])
    show(Answer(document, [table] if output is Output.CSV else [], heading, notes), output)


def _flat(value: object) -> object:
    return value if isinstance(value, bool | int | str | None) else str(value)
