"""How a scheduler is reached: what the options of a command say, else the settings `PLIMSOLL_…`, else a default."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from plimsoll.errors import PlimsollError, UsageError
from plimsoll.quota.outlets.model import Outlet

if TYPE_CHECKING:
    from plimsoll.quota.outlets.kueue import KueueStyle
    from plimsoll.quota.outlets.slurm import Target as SlurmTarget
    from plimsoll.quota.outlets.slurm_outlet import SlurmOutlet


class Target(enum.StrEnum):
    """Which scheduler to tell."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    HTTP = "http"


class Way(msgspec.Struct, frozen=True):
    """What was said on the command line; an empty text leaves it to the setting."""

    url: str = ""
    ca_file: str = ""
    token_file: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    sku_label: str = ""
    island_label: str = ""
    gpu_resource: str = ""
    secret_file: str = ""
    slurm_conf: str = ""
    slurm_cluster: str = ""
    gpu_types: Sequence[str] = ()


def outlet_by_settings(target: Target, cluster: str) -> Outlet:
    """The outlet of a cluster by the settings alone: for whoever asks without options."""
    return outlet_of(target, cluster, Way())


def outlet_of(target: Target, cluster: str, way: Way) -> Outlet:
    """The outlet that is meant. Asks nobody anything yet."""
    if target is Target.KUBERNETES:
        return _kubernetes(cluster, way)
    return _http(cluster, way) if target is Target.HTTP else slurm_outlet(cluster, way)


def kueue_style(way: Way) -> KueueStyle:
    from plimsoll.quota.outlets.kueue import KueueStyle

    default = KueueStyle()
    style = KueueStyle(
        resource=way.gpu_resource or os.environ.get("PLIMSOLL_KUEUE_GPU_RESOURCE", "") or default.resource,
        sku_label=way.sku_label or os.environ.get("PLIMSOLL_KUEUE_SKU_LABEL", "") or default.sku_label,
        island_label=way.island_label or os.environ.get("PLIMSOLL_KUEUE_ISLAND_LABEL", "") or default.island_label,
        namespace=way.namespace or os.environ.get("PLIMSOLL_KUEUE_NAMESPACE", "") or default.namespace,
    )
    style.check()
    return style


def _kubernetes(cluster: str, way: Way) -> Outlet:
    from plimsoll.connect.kubeconfig import access, read_kubeconfig, read_secret
    from plimsoll.connect.kueue import KueueApi
    from plimsoll.quota.outlets.kueue_outlet import KueueOutlet

    style = kueue_style(way)
    token = read_secret(way.token_file) if way.token_file else os.environ.get("PLIMSOLL_KUBERNETES_TOKEN", "")
    url = way.url or os.environ.get("PLIMSOLL_KUBERNETES_URL", "")
    ca_file = way.ca_file or os.environ.get("PLIMSOLL_KUBERNETES_CA_FILE", "")
    if url and not way.kubeconfig:
        found = access(url=_fill(url, cluster), token=token, ca_file=_fill(ca_file, cluster))
    elif path := way.kubeconfig or os.environ.get("KUBECONFIG", ""):
        found = read_kubeconfig(path, context=way.context or cluster, token=token)
    else:
        raise _unsaid(
            "kubernetes_bad_setting",
            f"where the Kubernetes of {cluster} is",
            "--kubeconfig FILE [--context NAME] (or KUBECONFIG), or --url URL [--token-file FILE] [--ca-file FILE]"
            " (or PLIMSOLL_KUBERNETES_URL)",
        )
    return KueueOutlet(KueueApi(found), cluster=cluster, style=style)


def _http(cluster: str, way: Way) -> Outlet:
    from plimsoll.connect.kubeconfig import read_secret
    from plimsoll.connect.quota_service import QuotaService
    from plimsoll.quota.outlets.http import HttpOutlet

    url = way.url or os.environ.get("PLIMSOLL_HTTP_URL", "")
    secret = read_secret(way.secret_file) if way.secret_file else os.environ.get("PLIMSOLL_HTTP_SECRET", "").strip()
    if not url or not secret:
        raise _unsaid(
            "quota_service_bad_setting",
            "what signs the requests" if url else f"where the quota service of {cluster} is",
            "--url https://HOST/clusters/{cluster} (or PLIMSOLL_HTTP_URL) and --secret-file FILE (or"
            " PLIMSOLL_HTTP_SECRET)",
        )
    service = QuotaService(_fill(url, cluster), secret=secret, ca_file=_fill(way.ca_file, cluster))
    return HttpOutlet(service, cluster=cluster)


def slurm_outlet(cluster: str, way: Way) -> SlurmOutlet:
    from plimsoll.connect.slurm_accounts import SlurmAccounts
    from plimsoll.quota.outlets.slurm_outlet import SlurmOutlet

    config = way.slurm_conf or os.environ.get("PLIMSOLL_SLURM_CONF", "")
    return SlurmOutlet(SlurmAccounts(config=_fill(config, cluster) or None), slurm_target(cluster, way))


def slurm_target(cluster: str, way: Way) -> SlurmTarget:
    from plimsoll.quota.outlets.slurm import Target as SlurmTarget

    types = dict(word.partition("=")[::2] for word in way.gpu_types)
    if not all([*types, *types.values()]):
        raise UsageError(
            "bad_gpu_type",
            f"{' '.join(way.gpu_types)[:80]!r} does not say which SKU has which type",
            next_step="write SKU=TYPE, such as --gpu-type H200=h200",
        )
    return SlurmTarget(way.slurm_cluster or cluster, types)


def _fill(text: str, cluster: str) -> str:
    """`{cluster}` is the cluster's name, so that one setting serves all clusters."""
    return text.replace("{cluster}", quote(cluster, safe=""))


def _unsaid(code: str, what: str, next_step: str) -> PlimsollError:
    return UsageError(code, f"nothing says {what}", next_step=next_step)
