"""The marker of a cluster by its label and the settings that `quota push` has as well: so it is said once.

Decides only which scheduler is meant and where it is. Must never guess: a cluster without the label has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from plimsoll.campaigns.marks.kubernetes import KubernetesMarks
from plimsoll.campaigns.marks.model import SCHEDULER_LABEL, AtDeadline, Marker, NoMarks, Scheduler, read_scheduler
from plimsoll.campaigns.marks.slurm import SlurmMarks
from plimsoll.connect.kubeconfig import Access, access, read_kubeconfig
from plimsoll.connect.kubernetes_pods import KubernetesPods
from plimsoll.connect.slurm_reservations import SlurmReservations
from plimsoll.errors import UsageError
from plimsoll.fleet.model import Cluster
from plimsoll.times import Clock


def marker_for(
    campaign: str,
    cluster: Cluster,
    settings: Mapping[str, str],
    *,
    clock: Clock,
    at_deadline: AtDeadline = AtDeadline.REQUEUE,
    grace_seconds: int | None = None,
) -> Marker:
    """What marks this cluster's nodes for this campaign. Asks nobody anything yet."""
    text = cluster.labels.get(SCHEDULER_LABEL, "")
    scheduler = read_scheduler(text, source=f"label {SCHEDULER_LABEL} of cluster {cluster.id}")
    if scheduler is Scheduler.SLURM:
        config = _fill(settings.get("PLIMSOLL_SLURM_CONF", ""), cluster.id) or None
        return SlurmMarks(SlurmReservations(config=config), campaign=campaign, clock=clock, at_deadline=at_deadline)
    if scheduler is Scheduler.KUBERNETES:
        api = KubernetesPods(_kubernetes(cluster.id, settings))
        return KubernetesMarks(api, campaign=campaign, grace_seconds=grace_seconds)
    return NoMarks()


def _kubernetes(cluster: str, settings: Mapping[str, str]) -> Access:
    token = settings.get("PLIMSOLL_KUBERNETES_TOKEN", "")
    if url := settings.get("PLIMSOLL_KUBERNETES_URL", ""):
        ca_file = settings.get("PLIMSOLL_KUBERNETES_CA_FILE", "")
        return access(url=_fill(url, cluster), token=token, ca_file=_fill(ca_file, cluster))
    if path := settings.get("KUBECONFIG", ""):
        return read_kubeconfig(path, context=cluster, token=token)
    raise UsageError(
        "kubernetes_bad_setting",
        f"nothing says where the Kubernetes of {cluster} is",
        next_step=f"set KUBECONFIG, with a context named {cluster}, or PLIMSOLL_KUBERNETES_URL",
    )


def _fill(text: str, cluster: str) -> str:
    """`{cluster}` is the cluster's name, so that one setting serves all clusters."""
    return text.replace("{cluster}", quote(cluster, safe=""))
