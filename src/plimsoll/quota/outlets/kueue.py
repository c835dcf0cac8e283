"""A cluster's promises as Kueue v1beta2 objects. Pure.

One cohort and one queue per team for each pool, because flex is shared per pool while Kueue weighs a queue as a whole:

- ClusterQueue: `nominalQuota` is the guarantee, all of it may be lent (`lendingLimit`). `reclaimWithinCohort: Any`
  calls it back from whoever borrows, whatever their priority; Kueue takes candidates only from queues that are above
  their nominal quota, so work inside a guarantee is never one. `borrowWithinCohort: Never`: priority does not count
  between teams. Inside the team a higher tier goes first (`withinClusterQueue: LowerPriority`).
- Cohort: `nominalQuota` is the standing flex, which belongs to no queue. Who borrows of it and of lent quota goes by
  `fairSharing.weight`, the guarantee: the least flex held / guaranteed first. 0 comes last.
- A team without a guarantee has a queue with 0: Kueue lets only those borrow that list the flavor.

Must never let `lendingLimit` be above `nominalQuota` (Kueue refuses that, so both change in one object), give two teams
one name, or let another namespace use a team's queue.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from plimsoll.errors import Refused, UsageError
from plimsoll.quota.model import PoolPromise, Tier
from plimsoll.quota.outlets.model import Limit

API_VERSION = "kueue.x-k8s.io/v1beta2"
MANAGER = "plimsoll"
MANAGED_BY = "app.kubernetes.io/managed-by"
CLUSTER_LABEL = "plimsoll/cluster"
TEAM_NOTE = "plimsoll/team"
SKU_NOTE = "plimsoll/sku"
HOSTNAME_LABEL = "kubernetes.io/hostname"
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
TOPOLOGY = "islands"
NAME_CHARS_MAX = 50
NAMESPACE_CHARS_MAX = 63
HASH_CHARS = 8
LINE_CHARS_MAX = 100_000
"""A long value stays on its line, so that a change of it is one line, too."""
TIER_STEP = 1000
"""Room between two tiers for `kueue.x-k8s.io/priority-boost`, by which a team ranks its own work."""

KINDS = ("Topology", "ResourceFlavor", "WorkloadPriorityClass", "Cohort", "ClusterQueue", "LocalQueue")
"""In the order in which they refer to each other."""

_OWNED: dict[str, dict[str, Any]] = {
    "Topology": {"spec": {"levels": None}},
    "ResourceFlavor": {"spec": {"nodeLabels": None, "topologyName": None}},
    "WorkloadPriorityClass": {"value": None},
    "Cohort": {"spec": {"resourceGroups": None}},
    "ClusterQueue": {
        "spec": {
            "cohortName": None,
            "fairSharing": {"weight": None},
            "namespaceSelector": None,
            "preemption": {"reclaimWithinCohort": None, "withinClusterQueue": None, "borrowWithinCohort": None},
            "queueingStrategy": None,
            "resourceGroups": None,
            "stopPolicy": None,
        }
    },
    "LocalQueue": {"spec": {"clusterQueue": None, "stopPolicy": None}},
}
"""What of an object is ours. The server fills in more; what it says there is not our business."""

_PLAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HASHED = re.compile(rf".*-[0-9a-f]{{{HASH_CHARS}}}")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"([0-9]+)(k|M|G|T|)")
_THOUSANDS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class KueueStyle(msgspec.Struct, frozen=True):
    """What a site may have otherwise: the resource that is a GPU, the labels on nodes, a team's namespace."""

    resource: str = "nvidia.com/gpu"
    sku_label: str = "plimsoll/sku"
    island_label: str = "plimsoll/island"
    namespace: str = "{team}"

    def check(self) -> None:
        """Raises UsageError for a style that Kubernetes would not take."""
        for what, label in (
            ("resource", self.resource),
            ("SKU label", self.sku_label),
            ("island label", self.island_label),
        ):
            if not _QUALIFIED.fullmatch(label):
                raise UsageError(
                    "kueue_bad_style",
                    f"{label[:80]!r} is not a {what} that Kubernetes takes",
                    next_step="write DOMAIN/NAME, such as nvidia.com/gpu",
                )
        longest = self.namespace.replace("{team}", "x" * NAME_CHARS_MAX)
        if not _PLAIN.fullmatch(longest) or len(longest) > NAMESPACE_CHARS_MAX or "{team}" not in self.namespace:
            raise UsageError(
                "kueue_bad_style",
                f"{self.namespace[:80]!r} does not make a namespace of its own for every team",
                next_step="write small letters, digits and dashes around {team}, at most"
                f" {NAMESPACE_CHARS_MAX - NAME_CHARS_MAX} of them, such as team-{{team}}",
            )


def kube_name(name: str) -> str:
    """A name that Kubernetes takes, other for every other name. It depends on nothing else, so that it never changes.

    A name that is fit stays as it is. Any other gets a hash of itself at its end, and so does one that looks as if it
    had such an end already.
    """
    if _PLAIN.fullmatch(name) and len(name) <= NAME_CHARS_MAX and not _HASHED.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_CHARS]
    words = re.sub(r"[^a-z0-9]+", "-", name.lower())[: NAME_CHARS_MAX - HASH_CHARS - 1].strip("-")
    return f"{words or 'x'}-{digest}"


def quantity(count: int) -> str:
    """A count as Kubernetes itself writes it (`512`, `10k`).

    Kueue's own webhooks write objects back in this form; another one would look as if Kueue had changed our field.
    """
    for suffix, unit in reversed(_THOUSANDS.items()):
        if count and count % unit == 0:
            return f"{count // unit}{suffix}"
    return "0"


def read_quantity(text: object) -> int | None:
    """The whole number in a quantity; None where it is none that we would write."""
    found = _QUANTITY.fullmatch(str(text))
    return int(found[1]) * _THOUSANDS[found[2]] if found else None


def objects(promises: Sequence[PoolPromise], style: KueueStyle) -> list[dict[str, Any]]:
    """All objects of a cluster, in the order in which to make them. The same promises give the same objects."""
    if not promises:
        return []
    cluster = promises[0].pool.cluster
    teams = sorted({team for promise in promises for team in promise.guaranteed})
    made = [_topology(cluster, style)]
    made += [_flavor(promise, style) for promise in promises]
    made += [_priority_class(cluster, tier) for tier in Tier]
    made += [_cohort(promise, style) for promise in promises]
    made += [_cluster_queue(promise, team, style) for promise in promises for team in teams]
    made += [_local_queue(promise, team, style) for promise in promises for team in teams]
    _check_names(made)
    return made


def _object(kind: str, name: str, cluster: str, **content: Any) -> dict[str, Any]:
    """`notes` are annotations: they keep the names as people know them."""
    metadata: dict[str, Any] = {"name": name}
    if namespace := content.pop("namespace", ""):
        metadata["namespace"] = namespace
    metadata["labels"] = {MANAGED_BY: MANAGER, CLUSTER_LABEL: kube_name(cluster)}
    if notes := content.pop("notes", None):
        metadata["annotations"] = notes
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **content}


def _topology(cluster: str, style: KueueStyle) -> dict[str, Any]:
    levels = [{"nodeLabel": style.island_label}, {"nodeLabel": HOSTNAME_LABEL}]
    return _object("Topology", TOPOLOGY, cluster, spec={"levels": levels})


def _flavor(promise: PoolPromise, style: KueueStyle) -> dict[str, Any]:
    sku = promise.pool.sku
    value = sku if _LABEL_VALUE.fullmatch(sku) else kube_name(sku)
    spec = {"nodeLabels": {style.sku_label: value}, "topologyName": TOPOLOGY}
    return _object("ResourceFlavor", _flavor_name(sku), promise.pool.cluster, notes={SKU_NOTE: sku}, spec=spec)


def _flavor_name(sku: str) -> str:
    """SKUs are written in capitals; `h200` is what people expect. A second SKU that differs in case only is refused."""
    return sku.lower() if _PLAIN.fullmatch(sku.lower()) and len(sku) <= NAME_CHARS_MAX else kube_name(sku)


def _priority_class(cluster: str, tier: Tier) -> dict[str, Any]:
    value = TIER_STEP * (len(Tier) - tier.place)
    words = f"Tier {tier} of a team's own work. Between teams it does not count."
    return _object("WorkloadPriorityClass", str(tier), cluster, value=value, description=words)


def _groups(promise: PoolPromise, style: KueueStyle, **quota: str) -> list[dict[str, Any]]:
    flavor = {"name": _flavor_name(promise.pool.sku), "resources": [{"name": style.resource, **quota}]}
    return [{"coveredResources": [style.resource], "flavors": [flavor]}]


def _cohort(promise: PoolPromise, style: KueueStyle) -> dict[str, Any]:
    groups = _groups(promise, style, nominalQuota=quantity(promise.flex_standing))
    name, sku = _flavor_name(promise.pool.sku), promise.pool.sku
    return _object("Cohort", name, promise.pool.cluster, notes={SKU_NOTE: sku}, spec={"resourceGroups": groups})


def _cluster_queue(promise: PoolPromise, team: str, style: KueueStyle) -> dict[str, Any]:
    gpus = quantity(promise.guaranteed.get(team, 0))
    spec = {
        "cohortName": _flavor_name(promise.pool.sku),
        "fairSharing": {"weight": gpus},
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: _namespace(team, style)}},
        "preemption": {
            "borrowWithinCohort": {"policy": "Never"},
            "reclaimWithinCohort": "Any",
            "withinClusterQueue": "LowerPriority",
        },
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": _groups(promise, style, nominalQuota=gpus, lendingLimit=gpus),
        "stopPolicy": "None",
    }
    return _object(
        "ClusterQueue", _queue_name(promise, team), promise.pool.cluster, notes=_notes(promise, team), spec=spec
    )


def _local_queue(promise: PoolPromise, team: str, style: KueueStyle) -> dict[str, Any]:
    return _object(
        "LocalQueue",
        _flavor_name(promise.pool.sku),
        promise.pool.cluster,
        namespace=_namespace(team, style),
        notes=_notes(promise, team),
        spec={"clusterQueue": _queue_name(promise, team), "stopPolicy": "None"},
    )


def _queue_name(promise: PoolPromise, team: str) -> str:
    """A dot is in neither part, so two queues never get one name."""
    return f"{kube_name(team)}.{_flavor_name(promise.pool.sku)}"


def _namespace(team: str, style: KueueStyle) -> str:
    return style.namespace.replace("{team}", kube_name(team))


def _notes(promise: PoolPromise, team: str) -> dict[str, str]:
    return {SKU_NOTE: promise.pool.sku, TEAM_NOTE: team}


def _check_names(made: Sequence[Mapping[str, Any]]) -> None:
    seen: dict[str, Mapping[str, Any]] = {}
    for each in made:
        name = setting_name(each)
        if name in seen:
            raise Refused(
                "kueue_same_name",
                f"two of the cluster's objects would both be {name}",
                next_step="rename a SKU, or give every team a namespace of its own: --namespace 'team-{team}'",
                name=name,
            )
        seen[name] = each


def setting_name(content: Mapping[str, Any]) -> str:
    """`ClusterQueue/vision.h200`, `LocalQueue/vision/h200`."""
    metadata = content["metadata"]
    place = [metadata["namespace"]] if "namespace" in metadata else []
    return "/".join([content["kind"], *place, metadata["name"]])


def setting_value(content: Mapping[str, Any]) -> str:
    """What of an object is ours, and whose it is, as one text: equal texts mean equal settings."""
    kept = _pick(content, _OWNED[content["kind"]])
    notes = content["metadata"].get("annotations") or {}
    kept["notes"] = {key: notes[key] for key in (SKU_NOTE, TEAM_NOTE) if key in notes}
    return msgspec.json.encode(_plain(kept), order="sorted").decode()


def _pick(content: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    picked: dict[str, Any] = {}
    for key, inner in shape.items():
        value = content.get(key)
        if value is None:
            continue
        picked[key] = _pick(value, inner) if inner is not None and isinstance(value, Mapping) else value
    return picked


_QUANTITIES = ("nominalQuota", "lendingLimit", "borrowingLimit", "weight")


def _plain(value: Any, key: str = "") -> Any:
    """Quantities in one form: the server keeps 256, "256" and "0.256k" as they were written."""
    if isinstance(value, Mapping):
        return {name: _plain(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if key in _QUANTITIES and (count := read_quantity(value)) is not None:
        return quantity(count)
    return str(value) if key in _QUANTITIES else value


def settings(promises: Sequence[PoolPromise], style: KueueStyle) -> dict[str, str]:
    """What to set, by name."""
    return {setting_name(each): setting_value(each) for each in objects(promises, style)}


def limit(name: str, value: str) -> Limit | None:
    """The guarantee in a ClusterQueue, or the flex in a Cohort."""
    kind = name.partition("/")[0]
    if kind not in ("ClusterQueue", "Cohort"):
        return None
    try:
        content = msgspec.json.decode(value)
        notes = content["notes"]
        (group,) = content["spec"]["resourceGroups"]
        (flavor,) = group["flavors"]
        (resource,) = flavor["resources"]
        gpus = read_quantity(resource["nominalQuota"])
        sku, team = str(notes[SKU_NOTE]), str(notes[TEAM_NOTE]) if kind == "ClusterQueue" else ""
        # A note can be changed by hand; the name can't. Nobody is to get a guarantee because a note says so.
        is_named_so = name == f"{kind}/{f'{kube_name(team)}.' if team else ''}{_flavor_name(sku)}"
        return Limit(sku, team, gpus) if is_named_so and gpus is not None else None
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return None  # somebody gave it another shape: then it is no limit of ours


def render(promises: Sequence[PoolPromise], style: KueueStyle) -> str:
    """All objects as YAML documents: block style, a line for each value, so that a change shows as one line in git."""
    import yaml

    made = objects(promises, style)
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": LINE_CHARS_MAX}
    return "".join(f"---\n{yaml.dump(each, Dumper=yaml.CSafeDumper, **options)}" for each in made)
