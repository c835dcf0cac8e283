"""What is recorded of versions: seen, updated by a campaign, wanted, tested together. Pure: drafts only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import VersionChange
from plimsoll.campaigns.versions.changes import CombinationTested, ComponentsRelevant, VersionsRecorded, VersionWanted
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.campaigns.versions.model import Combination, Result
from plimsoll.errors import NotFound, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Cluster, Node, Service
from plimsoll.fleet.selector import CLUSTER_KEYS, SKU_KEY, Scope
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.words import counted, near

NOTE_MAX = 2_000


def record_versions(
    changes: Iterable[tuple[str, str, Mapping[str, str]]],
    *,
    campaign: str = "",
    reason: str = "",
    at: datetime | None = None,
) -> list[Draft]:
    """Nodes with their cluster and what changed on them, in as few events as possible."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    alike: dict[int, tuple[Mapping[str, str], tuple[tuple[str, str], ...]]] = {}  # many nodes share one mapping
    for node, cluster, versions in changes:
        known = alike.get(id(versions))
        if known is None:
            known = alike[id(versions)] = versions, tuple(sorted(versions.items()))
        groups.setdefault((cluster, known[1]), []).append(node)
    return [
        Draft(VersionsRecorded(cluster, dict(versions), sorted(nodes), campaign), reason, at)
        for (cluster, versions), nodes in sorted(groups.items())
    ]


def record_update(
    state: State,
    nodes: Iterable[str],
    changes: Sequence[VersionChange],
    *,
    campaign: str,
    reason: str = "",
    at: datetime | None = None,
) -> list[Draft]:
    """Nodes came back with a campaign's versions. One that has them already, or has left the fleet, is passed over."""
    versions, known = state.of(Versions), state.of(Fleet).nodes
    wanted = {change.component: change.version for change in changes}
    found = []
    for name in sorted(set(nodes)):
        node = known.get(name)
        if node is None or node.service is Service.RETIRED:
            continue
        here = dict(versions.combination_of(name))
        differing = {component: version for component, version in wanted.items() if here.get(component) != version}
        if differing:
            found.append((name, node.cluster, differing))
    return record_versions(found, campaign=campaign, reason=reason, at=at)


def record_tested(
    state: State,
    combination: Combination,
    result: Result,
    *,
    where: str = "",
    note: str = "",
    at: datetime | None = None,
) -> list[Draft]:
    """A test of versions together. `where` is a cluster; whoever names a component that nobody has is asked again."""
    fleet = state.of(Fleet)
    if where and where not in fleet.clusters:
        raise NotFound(
            "unknown_cluster",
            f"there is no cluster {where[:100]!r} among {len(fleet.clusters)}{near(where, fleet.clusters)}",
            next_step="plimsoll fleet show --by cluster",
            cluster=where[:100],
        )
    if len(note) > NOTE_MAX or not note.isprintable():
        message = f"a note is one line of at most {NOTE_MAX:,} characters, found {len(note):,}"
        raise UsageError("bad_usage", message, next_step="--note 'burn-in over night'")
    _check_components(state, (component for component, _ in combination))
    return [Draft(CombinationTested(combination, result, where, note), note, at)]


def record_wanted(state: State, combination: Combination, scope: Scope, *, is_withdrawn: bool = False) -> list[Draft]:
    """Versions that components are to have where a scope matches. What is wanted so already changes nothing."""
    versions, fleet = state.of(Versions), state.of(Fleet)
    if not scope.is_everything and not any(matches_node(scope, node, fleet) for node in live_nodes(fleet)):
        raise Refused(
            "matches_nothing",
            f"no node of {len(fleet.nodes):,} matches {scope}",
            next_step="plimsoll fleet nodes   # shows which values there are",
            scope=str(scope),
        )
    drafts = []
    for component, version in combination:
        known = versions.wanted.get((component, scope))
        if is_withdrawn and known is None:
            raise NotFound(
                "not_wanted",
                f"nobody has said which {component} is wanted on {scope_text(scope)};"
                f" {counted(len(versions.wanted), 'version')} are wanted somewhere",
                next_step="plimsoll campaign behind",
                component=component,
            )
        if is_withdrawn:
            drafts.append(Draft(VersionWanted(component, "", scope)))
        elif known is None or known.version != version:
            drafts.append(Draft(VersionWanted(component, version, scope)))
    return drafts


def record_relevant(state: State, components: Iterable[str]) -> list[Draft]:
    """The components by which combinations are told apart from now on; all where none is named."""
    versions = state.of(Versions)
    named = sorted(set(components))
    _check_components(state, named)
    if tuple(named) == (versions.relevant or ()):
        return []
    return [Draft(ComponentsRelevant(named))]


def _check_components(state: State, components: Iterable[str]) -> None:
    """A slip in a name would make a record that answers nothing. Where nothing is known yet, anything may be named."""
    campaigns = (run.campaign for run in state.of(Campaigns).runs.values())
    known = {*state.of(Versions).releases, *(change.component for each in campaigns for change in each.changes)}
    for component in components:
        if known and component not in known:
            raise NotFound(
                "unknown_component",
                f"no node has a component {component[:100]!r}; {len(known)} are known: {', '.join(sorted(known)[:10])}"
                f"{near(component, known)}",
                next_step="plimsoll campaign versions show",
                component=component[:100],
            )


def live_nodes(fleet: Fleet) -> list[Node]:
    return [node for node in fleet.nodes.values() if node.service is not Service.RETIRED]


def matches_node(scope: Scope, node: Node, fleet: Fleet) -> bool:
    """Whether a scope means a node: by its SKU, its labels, or what its cluster says of itself."""
    cluster = fleet.clusters[node.cluster]
    return all(_value_of(key, node, cluster) in values for key, values in scope.terms)


def _value_of(key: str, node: Node, cluster: Cluster) -> str | None:
    if key == SKU_KEY:
        return node.sku
    if key == "cluster":
        return cluster.id
    if key in CLUSTER_KEYS:
        return str(getattr(cluster, key))
    return node.labels.get(key) or cluster.labels.get(key)


def scope_text(scope: Scope) -> str:
    return "everywhere" if scope.is_everything else str(scope)
