"""`plimsoll quota render|push`: tell schedulers what is guaranteed."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from plimsoll.cli.options import AsOf, Db, DryRun, Format, Reason, current_actor, open_database, state_as_of
from plimsoll.cli.output import Answer, Output, Table, progress, show
from plimsoll.cli.quota.app import app
from plimsoll.errors import UsageError
from plimsoll.quota.outlets.model import Cause, Outlet, Step
from plimsoll.quota.push import OnDrift, Outcome, Pushed, Result, promises_to_tell, push

if TYPE_CHECKING:
    from plimsoll.quota.model import PoolPromise
    from plimsoll.quota.outlets.kueue import KueueStyle

VALUE_CHARS_MAX = 60


class Rendering(enum.StrEnum):
    """For which scheduler to write."""

    SLURM = "slurm"
    KUEUE = "kueue"


class Target(enum.StrEnum):
    """Which scheduler to tell."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    HTTP = "http"


Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster whose scheduler is told.")]
KUEUE_PANEL = "Kueue"
Namespace = Annotated[
    str,
    typer.Option("--namespace", metavar="TEXT", help="A team's namespace.", rich_help_panel=KUEUE_PANEL),
]
SkuLabel = Annotated[
    str, typer.Option("--sku-label", metavar="KEY", help="The node label with the SKU.", rich_help_panel=KUEUE_PANEL)
]
IslandLabel = Annotated[
    str,
    typer.Option("--island-label", metavar="KEY", help="The node label with the island.", rich_help_panel=KUEUE_PANEL),
]
GpuResource = Annotated[
    str, typer.Option("--gpu-resource", metavar="NAME", help="The resource of a GPU.", rich_help_panel=KUEUE_PANEL)
]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        help="The API server, or the quota service; {cluster} stands for the cluster's name.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    str,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A bearer token for Kubernetes; else PLIMSOLL_KUBERNETES_TOKEN.",
        show_default=False,
    ),
]
CaFile = Annotated[
    str, typer.Option("--ca-file", metavar="FILE", help="Whom to trust for https, in PEM form.", show_default=False)
]
Kubeconfig = Annotated[
    str, typer.Option("--kubeconfig", metavar="FILE", help="Instead of --url; else KUBECONFIG.", show_default=False)
]
Context = Annotated[
    str,
    typer.Option(
        "--context", metavar="NAME", help="In the kubeconfig; else the one with the cluster's name.", show_default=False
    ),
]
SecretFile = Annotated[
    str,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help="What signs requests to the quota service; else PLIMSOLL_HTTP_SECRET.",
        show_default=False,
    ),
]
SlurmConf = Annotated[
    str,
    typer.Option("--slurm-conf", metavar="FILE", help="Slurm's configuration; else Slurm's own.", show_default=False),
]
PutBack = Annotated[bool, typer.Option("--put-back", help="Overwrite what was changed by hand.")]
Adopt = Annotated[bool, typer.Option("--adopt", help="Take what was changed by hand into the book, where it fits.")]


@app.command("render")
def render_command(
    context: typer.Context,
    scheduler: Annotated[Rendering, typer.Argument(help="Whose form.")],
    cluster: Cluster,
    namespace: Namespace = "{team}",
    sku_label: SkuLabel = "plimsoll/sku",
    island_label: IslandLabel = "plimsoll/island",
    gpu_resource: GpuResource = "nvidia.com/gpu",
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """Print a scheduler's settings for what is guaranteed in a cluster; nothing is told to anybody.

    For Kueue YAML documents (JSON with -o json), for Slurm the commands. Kept in git, a change shows as one line.
    """
    with progress("reading the ledger"):
        told = promises_to_tell(state_as_of(open_database(context, db), as_of), cluster)
    if scheduler is Rendering.KUEUE:
        from plimsoll.quota.outlets.kueue import objects, render

        style = _style(gpu_resource, sku_label, island_label, namespace)
        made = objects(told, style)
        document = {"apiVersion": "v1", "kind": "List", "items": made}
        rows = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in made]
        table = Table(("kind", "namespace", "name"), rows)
        text = render(told, style)
    else:
        text, document, table = _render_slurm(told)
    if output in (Output.TABLE, Output.YAML):
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        show(Answer(document, [table]), output)


def _style(resource: str, sku_label: str, island_label: str, namespace: str) -> KueueStyle:
    from plimsoll.quota.outlets.kueue import KueueStyle

    style = KueueStyle(resource, sku_label, island_label, namespace)
    style.check()
    return style


@app.command("push")
def push_command(
    context: typer.Context,
    scheduler: Annotated[Target, typer.Argument(help="Which scheduler.")],
    cluster: Cluster,
    put_back: PutBack = False,
    adopt: Adopt = False,
    url: Url = "",
    token_file: TokenFile = "",
    ca_file: CaFile = "",
    kubeconfig: Kubeconfig = "",
    kube_context: Context = "",
    namespace: Namespace = "{team}",
    sku_label: SkuLabel = "plimsoll/sku",
    island_label: IslandLabel = "plimsoll/island",
    gpu_resource: GpuResource = "nvidia.com/gpu",
    secret_file: SecretFile = "",
    slurm_conf: SlurmConf = "",
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Tell a cluster's scheduler what is guaranteed. A second push changes nothing.

    What somebody changed there by hand is shown and left alone (exit 1), unless --put-back or --adopt says otherwise.
    """
    if put_back and adopt:
        raise UsageError("put_back_or_adopt", "--put-back and --adopt exclude each other", next_step="leave out one")
    on_drift = OnDrift.PUT_BACK if put_back else OnDrift.ADOPT if adopt else OnDrift.SHOW
    with progress("reading the ledger"):
        keeper = open_database(context, db)
        promises_to_tell(keeper.state(), cluster)
    outlet: Outlet
    if scheduler is Target.KUBERNETES:
        style = _style(gpu_resource, sku_label, island_label, namespace)
        outlet = _kubernetes(cluster, style, url, token_file, ca_file, kubeconfig, kube_context)
    elif scheduler is Target.HTTP:
        outlet = _http(cluster, url, secret_file, ca_file)
    else:
        outlet = _slurm(cluster, slurm_conf)
    with progress(f"telling {scheduler}"):
        pushed = push(
            keeper, outlet, cluster, actor=current_actor(), reason=reason, on_drift=on_drift, is_dry_run=dry_run
        )
    show(_answer(pushed), output)
    if not pushed.is_complete:
        raise typer.Exit(1)


def _kubernetes(
    cluster: str, style: KueueStyle, url: str, token_file: str, ca_file: str, kubeconfig: str, kube_context: str
) -> Outlet:
    from plimsoll.connect.kubeconfig import access, read_kubeconfig, read_secret
    from plimsoll.connect.kueue import KueueApi
    from plimsoll.quota.outlets.kueue_outlet import KueueOutlet

    token = read_secret(token_file) if token_file else os.environ.get("PLIMSOLL_KUBERNETES_TOKEN", "")
    url = url or os.environ.get("PLIMSOLL_KUBERNETES_URL", "")
    if url and not kubeconfig:
        way = access(url=_fill(url, cluster), token=token, ca_file=ca_file)
    elif path := kubeconfig or os.environ.get("KUBECONFIG", ""):
        way = read_kubeconfig(path, context=kube_context or cluster, token=token)
    else:
        raise UsageError(
            "kubernetes_bad_setting",
            f"nothing says where the Kubernetes of {cluster} is",
            next_step="--kubeconfig FILE [--context NAME], or --url URL [--token-file FILE] [--ca-file FILE]",
        )
    return KueueOutlet(KueueApi(way), cluster=cluster, style=style)


def _http(cluster: str, url: str, secret_file: str, ca_file: str) -> Outlet:
    from plimsoll.connect.kubeconfig import read_secret
    from plimsoll.connect.quota_service import QuotaService
    from plimsoll.quota.outlets.http import HttpOutlet

    url = url or os.environ.get("PLIMSOLL_HTTP_URL", "")
    secret = read_secret(secret_file) if secret_file else os.environ.get("PLIMSOLL_HTTP_SECRET", "")
    if not url or not secret:
        raise UsageError(
            "quota_service_bad_setting",
            f"nothing says {'where the quota service is' if not url else 'what signs the requests'}",
            next_step="--url https://HOST/clusters/{cluster} (or PLIMSOLL_HTTP_URL) and --secret-file FILE (or"
            " PLIMSOLL_HTTP_SECRET)",
        )
    return HttpOutlet(QuotaService(_fill(url, cluster), secret=secret, ca_file=ca_file), cluster=cluster)


def _slurm(cluster: str, slurm_conf: str) -> Outlet:
    raise _no_slurm(cluster)


def _render_slurm(told: Sequence[PoolPromise]) -> tuple[str, Any, Table]:
    raise _no_slurm(told[0].pool.cluster)


def _no_slurm(cluster: str) -> UsageError:
    return UsageError("no_slurm", f"Slurm of {cluster} can't be told yet", next_step="push kubernetes or http")


def _fill(url: str, cluster: str) -> str:
    from urllib.parse import quote

    return url.replace("{cluster}", quote(cluster, safe=""))


def _answer(pushed: Pushed) -> Answer:
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
    return Answer(document, tables, _heading(pushed), _notes(pushed))


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
