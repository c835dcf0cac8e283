"""`plimsoll cluster add|import|edit|render`: what is wanted."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.cluster.app import Name, app, say_first
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, open_database
from plimsoll.commands.output import progress, show, show_text
from plimsoll.commands.written import DRY_RUN
from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.disk import check_file, reading
from plimsoll.fleet.folder import CsvSheet, is_workbook
from plimsoll.fleet.model import Area, Purpose
from plimsoll.fleet.sheet import RawSheet, SheetPlan, What
from plimsoll.fleet.workbook import read_workbook
from plimsoll.ledger.model import Draft
from plimsoll.lifecycle import desk
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Life, Said, Spec
from plimsoll.lifecycle.phases import phase_of
from plimsoll.lifecycle.service import say
from plimsoll.lifecycle.sheet import NAME, parse_wanted, plan_rows, uid_of
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.words import counted

DIFFERENCES_SHOWN = 30
Region = Annotated[str, typer.Option("--region", help="Where, as the provider calls it.", show_default=False)]
AreaName = Annotated[Area | None, typer.Option("--area", help="The group of regions.", show_default=False)]
Subscription = Annotated[
    str, typer.Option("--subscription", help="The account at the provider that has the quota.", show_default=False)
]
SkuName = Annotated[str, typer.Option("--sku", help="The GPU model, such as H200.", show_default=False)]
Nodes = Annotated[int | None, typer.Option("--nodes", help="How many nodes.", show_default=False)]
Islands = Annotated[
    int | None, typer.Option("--islands", help="Over how many islands, each one scale set.", show_default=False)
]
Colo = Annotated[str | None, typer.Option("--colo", help="The building.", show_default=False)]
ProviderName = Annotated[str | None, typer.Option("--provider", help="Who runs the machines.", show_default=False)]
PurposeName = Annotated[
    Purpose | None, typer.Option("--purpose", help="What it is for: research or applied.", show_default=False)
]
RecipeName = Annotated[str | None, typer.Option("--recipe", help="How it is made.", show_default=False)]
OwnerName = Annotated[str | None, typer.Option("--owner", help="Whom to ask about it.", show_default=False)]
Wanted = Annotated[
    str | None, typer.Option("--wanted", metavar="DAY", help="When it is needed: first come first.", show_default=False)
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME=VALUE", help="A label; may be repeated.", show_default=False),
]


@app.command("add")
def add_command(
    context: typer.Context,
    name: Name,
    region: Region,
    subscription: Subscription,
    sku: SkuName,
    nodes: Annotated[int, typer.Option("--nodes", help="How many nodes.", show_default=False)],
    area: AreaName = None,
    islands: Islands = None,
    colo: Colo = None,
    provider: ProviderName = None,
    purpose: PurposeName = None,
    recipe: RecipeName = None,
    owner: OwnerName = None,
    wanted: Wanted = None,
    label: Labels = None,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Plan a cluster. It waits for quota, then for its check-in, and then goes into production by itself."""
    spec = Spec(
        name=name,
        region=region,
        area=area or Area.OTHER,
        colo=colo or "",
        provider=provider or "",
        purpose=purpose or Purpose.RESEARCH,
        subscription=subscription,
        sku=sku,
        nodes=nodes,
        islands=1 if islands is None else islands,
        recipe=recipe or "standard",
        owner=owner or "",
        wanted=_wanted(wanted) if wanted else None,
        labels=_labels(label or ()),
    )
    seed = secrets.token_hex(8)

    def decide(state: State, now: datetime) -> tuple[None, Sequence[Draft]]:
        return None, desk.plan(state, spec, uid_of(name, seed), Said(current_actor(), now, reason))

    keeper, _, _ = say_first(context, db, decide, reason, dry_run)
    _tell(keeper, name, "would be planned" if dry_run else "planned", output, is_dry_run=dry_run)


def _tell(keeper: Keeper, name: str, verb: str, output: Output, *, is_dry_run: bool) -> None:
    state = keeper.state()
    document: dict[str, Any] = {"cluster": name, "did": verb, "dry_run": is_dry_run, "revision": state.revision}
    life = state.of(Lives).lives.get(name)
    if life is not None:
        document["phase"] = str(phase_of(life))
        document["generation"] = life.generation
    notes = ["next: plimsoll cluster run --every 30s"]
    if life is not None and life.checked_in is None:
        notes.append(f"      plimsoll cluster checkin {name}")
    show(Answer(document, [], f"{name}: {verb}", [DRY_RUN] if is_dry_run else notes), output)


def _wanted(text: str) -> datetime:
    try:
        found = parse_wanted(text)
        assert found is not None
        return found
    except ValueError as error:
        raise UsageError(
            "bad_usage", f"--wanted {text[:40]!r} is not {error}", next_step="--wanted 2026-03-01"
        ) from None


def _labels(texts: Sequence[str]) -> dict[str, str]:
    labels = {}
    for text in texts:
        key, is_pair, value = text.partition("=")
        if not is_pair or not key.isprintable() or not key.strip() or not value.isprintable():
            raise UsageError("bad_usage", f"--label {text[:60]!r} is not NAME=VALUE", next_step="--label rack=b12")
        labels[key.strip()] = value.strip()
    return labels


@app.command("edit")
def edit_command(
    context: typer.Context,
    name: Name,
    region: Annotated[str | None, typer.Option("--region", help="Where.", show_default=False)] = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", help="The account at the provider.", show_default=False)
    ] = None,
    sku: Annotated[str | None, typer.Option("--sku", help="The GPU model.", show_default=False)] = None,
    nodes: Nodes = None,
    area: AreaName = None,
    islands: Islands = None,
    colo: Colo = None,
    provider: ProviderName = None,
    purpose: PurposeName = None,
    recipe: RecipeName = None,
    owner: OwnerName = None,
    wanted: Wanted = None,
    label: Labels = None,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Change what is wanted. The controller picks it up; what was begun with can't be changed any more."""
    given: dict[str, object] = {
        "region": region,
        "subscription": subscription,
        "sku": sku,
        "nodes": nodes,
        "area": area,
        "islands": islands,
        "colo": colo,
        "provider": provider,
        "purpose": purpose,
        "recipe": recipe,
        "owner": owner,
        "wanted": _wanted(wanted) if wanted else None,
    }
    changes = {field: value for field, value in given.items() if value is not None}
    if wanted == "":
        changes["wanted"] = None
    changes |= {f"labels.{key}": value for key, value in _labels(label or ()).items()}
    if not changes:
        raise UsageError("bad_usage", "nothing to change was given", next_step="plimsoll cluster edit --help")
    keeper = open_database(context, db)

    def decide(state: State, _now: datetime) -> tuple[dict[str, str | None], Sequence[Draft]]:
        life = desk.find_life(state, name)
        return desk.respecify(state, life, desk.spec_with(life.spec, changes))

    was, _ = say(keeper, decide, actor=current_actor(), reason=reason, is_dry_run=dry_run)
    told = ", ".join(f"{field} was {before or 'nothing'}" for field, before in was.items())
    verb = f"{'would be changed' if dry_run else 'changed'} ({told})" if was else "nothing to change"
    _tell(keeper, name, verb, output, is_dry_run=dry_run)


@app.command("import")
def import_command(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(metavar="FILE.csv|FILE.xlsx", help="One row for each cluster that is wanted.")
    ],
    whole: Annotated[
        bool,
        typer.Option("--whole", help="The sheet is all that is planned: what is not in it is not wanted any more."),
    ] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Plan the clusters of a sheet; all or nothing. A second import is a diff.

    Columns: cluster,region,area,colo,provider,purpose,subscription,sku,nodes; if you like islands,recipe,owner,wanted.
    Every other column becomes a label. A column that is not there says nothing: what is known stays. In a workbook the
    sheet is called `planned`, or is the only one.
    """
    raw = read_sheet(path)
    seed = secrets.token_hex(8)

    def decide(state: State, now: datetime) -> tuple[SheetPlan, Sequence[Draft]]:
        said = Said(current_actor(), now, reason)
        return plan_rows(state, raw, said=said, seed=seed, is_whole=whole)

    words = reason or f"import of {raw.source}"
    with progress(f"importing {raw.source}"):
        _, plan, _ = say_first(context, db, decide, words, dry_run)
    show(_import_answer(raw.source, plan, output, is_dry_run=dry_run), output)


def read_sheet(path: Path) -> RawSheet:
    """A CSV file, or the sheet of a workbook that holds the planned clusters."""
    with reading(path):
        if not path.exists():
            raise NotFound("no_such_file", f"there is no {path}", next_step="give a .csv or .xlsx file")
        if path.is_dir():
            raise Refused("not_a_file", f"{path} is a folder", next_step="give the .csv or .xlsx file itself")
        check_file(path)
        if not is_workbook(path):
            return CsvSheet(path)
        sheets = read_workbook(path, [NAME])
        if NAME in sheets:
            return sheets[NAME]
        from plimsoll.fleet.workbook import sheet_names

        names = sheet_names(path)
        if len(names) == 1:
            return read_workbook(path, names)[names[0]]
        raise Refused(
            "no_such_sheet",
            f"{path.name} has {len(names)} sheets, and none is called {NAME!r}: {', '.join(names[:5])}",
            next_step=f"call the one with the clusters {NAME!r}",
        )


def _import_answer(source: str, plan: SheetPlan, output: Output, *, is_dry_run: bool) -> Answer:
    counts = plan.counts()
    shown = plan.differences if output is Output.CSV else plan.differences[:DIFFERENCES_SHOWN]
    rows = [(str(each.what), each.key, _was(each.was)) for each in shown]
    total = sum(counts.values()) - counts[What.SAME]
    told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    heading = f"{source}: {told}" if total else f"{source}: nothing to change ({counted(counts[What.SAME], 'row')})"
    notes = [f"warning: {warning}" for warning in plan.warnings[:DIFFERENCES_SHOWN]]
    if len(plan.differences) > len(shown):
        notes.append(f"… {len(plan.differences) - len(shown):,} more differences: -o csv lists them all")
    if total:
        notes.append(DRY_RUN if is_dry_run else "next: plimsoll cluster list")
    document = {
        "source": source,
        "counts": counts,
        "changes": [{"what": str(each.what), "cluster": each.key, "was": dict(each.was)} for each in plan.differences],
        "warnings": plan.warnings,
        "dry_run": is_dry_run,
    }
    return Answer(
        document, [Table(("what", "cluster", "was"), rows)] if rows or output is Output.CSV else [], heading, notes
    )


def _was(was: Any) -> str:
    return ", ".join(f"{field} {before or 'nothing'}" for field, before in was.items())


@app.command("render")
def render_command(
    context: typer.Context,
    name: Name,
    db: Db = "",
) -> None:
    """The scale sets of a cluster as objects of the Azure Service Operator, as YAML: what its step would apply."""
    from plimsoll.connect.azure_operator import yaml_text
    from plimsoll.lifecycle.outside import Order, set_wishes
    from plimsoll.lifecycle.providers.scale_sets import objects_of

    state = open_database(context, db).state()
    life: Life = desk.find_life(state, name)
    recipe = state.of(Lives).recipe_of(life)
    step = next((step for step in recipe.steps if step.scale_sets is not None), None)
    if step is None:
        raise Refused(
            "no_scale_sets",
            f"recipe {recipe.name} of {name} makes no scale sets through the Azure Service Operator",
            next_step=f"plimsoll cluster recipe show {recipe.name}",
        )
    order = Order(life, recipe, step, "", 1, "", "", set_wishes(life))
    show_text(yaml_text(objects_of(order)))
