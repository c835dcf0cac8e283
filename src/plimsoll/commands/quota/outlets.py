"""`plimsoll quota render|push`: tell schedulers what is guaranteed."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, DryRun, Format, Reason, current_actor, open_database, state_as_of
from plimsoll.commands.output import progress, show, show_text
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.pushed import answer_of
from plimsoll.commands.quota.ways import (
    Target,
    Way,
    kueue_style,
    outlet_by_settings,
    outlet_of,
    slurm_outlet,
    slurm_target,
)
from plimsoll.errors import UsageError
from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.model import Outlet
from plimsoll.quota.outlets.push import OnDrift, promises_to_tell, push

__all__ = ["Target", "outlet_by_settings"]


class Rendering(enum.StrEnum):
    """For which scheduler to write."""

    SLURM = "slurm"
    KUEUE = "kueue"


Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster whose scheduler is told.")]
Namespace = Annotated[
    str,
    typer.Option("--namespace", metavar="TEXT", help="A team's namespace; else {team}.", show_default=False),
]
SkuLabel = Annotated[
    str,
    typer.Option(
        "--sku-label", metavar="KEY", help="The node label with the SKU; else plimsoll/sku.", show_default=False
    ),
]
IslandLabel = Annotated[
    str,
    typer.Option(
        "--island-label",
        metavar="KEY",
        help="The node label with the island; else plimsoll/island.",
        show_default=False,
    ),
]
GpuResource = Annotated[
    str,
    typer.Option(
        "--gpu-resource", metavar="NAME", help="The resource of a GPU; else nvidia.com/gpu.", show_default=False
    ),
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
SlurmCluster = Annotated[
    str,
    typer.Option("--slurm-cluster", metavar="NAME", help="As Slurm calls the cluster; else alike.", show_default=False),
]
GpuType = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-type", metavar="SKU=TYPE", help="As Slurm calls a SKU; else in small letters.", show_default=False
    ),
]
PutBack = Annotated[bool, typer.Option("--put-back", help="Overwrite what was changed by hand.")]
Adopt = Annotated[bool, typer.Option("--adopt", help="Take what was changed by hand into the book, where it fits.")]


@app.command("render")
def render_command(
    context: typer.Context,
    scheduler: Annotated[Rendering, typer.Argument(help="Whose form.")],
    cluster: Cluster,
    namespace: Namespace = "",
    sku_label: SkuLabel = "",
    island_label: IslandLabel = "",
    gpu_resource: GpuResource = "",
    slurm_cluster: SlurmCluster = "",
    gpu_type: GpuType = None,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """Print a scheduler's settings for what is guaranteed in a cluster; nothing is told to anybody.

    For Kueue YAML documents (JSON with -o json), for Slurm the commands. Kept in git, a change shows as one line.
    """
    with progress("reading the ledger"):
        told = promises_to_tell(state_as_of(open_database(context, db), as_of), cluster)
    way = Way(
        namespace=namespace,
        sku_label=sku_label,
        island_label=island_label,
        gpu_resource=gpu_resource,
        slurm_cluster=slurm_cluster,
        gpu_types=gpu_type or (),
    )
    text, document, table = _kueue(told, way) if scheduler is Rendering.KUEUE else _slurm(told, cluster, way)
    if output in (Output.TABLE, Output.YAML):
        show_text(text if text.endswith("\n") else f"{text}\n")
    else:
        show(Answer(document, [table]), output)


def _kueue(told: Sequence[PoolPromise], way: Way) -> tuple[str, Any, Table]:
    from plimsoll.quota.outlets.kueue import objects, render

    style = kueue_style(way)
    made = objects(told, style)
    rows = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in made]
    document = {"apiVersion": "v1", "kind": "List", "items": made}
    return render(told, style), document, Table(("kind", "namespace", "name"), rows)


def _slurm(told: Sequence[PoolPromise], cluster: str, way: Way) -> tuple[str, Any, Table]:
    from plimsoll.quota.outlets.slurm import wanted
    from plimsoll.quota.outlets.slurm_render import render

    target = slurm_target(cluster, way)
    settings = wanted(told, target)
    return render(told, target), settings, Table(("setting", "value"), list(settings.items()))


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
    namespace: Namespace = "",
    sku_label: SkuLabel = "",
    island_label: IslandLabel = "",
    gpu_resource: GpuResource = "",
    secret_file: SecretFile = "",
    slurm_conf: SlurmConf = "",
    slurm_cluster: SlurmCluster = "",
    gpu_type: GpuType = None,
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
    way = Way(
        url=url,
        ca_file=ca_file,
        token_file=token_file,
        kubeconfig=kubeconfig,
        context=kube_context,
        namespace=namespace,
        sku_label=sku_label,
        island_label=island_label,
        gpu_resource=gpu_resource,
        secret_file=secret_file,
        slurm_conf=slurm_conf,
        slurm_cluster=slurm_cluster,
        gpu_types=gpu_type or (),
    )
    slurm = slurm_outlet(cluster, way) if scheduler is Target.SLURM else None
    outlet: Outlet = slurm or outlet_of(scheduler, cluster, way)
    with progress(f"telling {scheduler}"):
        pushed = push(
            keeper, outlet, cluster, actor=current_actor(), reason=reason, on_drift=on_drift, is_dry_run=dry_run
        )
        findings = slurm.findings() if slurm else []
    show(answer_of(pushed, [f"{each.what}; next: {each.next_step}" for each in findings]), output)
    if not pushed.is_complete:
        raise typer.Exit(1)
