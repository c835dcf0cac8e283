"""Slurm as an outlet: asks whether it is set up, reads what it has of ours, and changes one setting at a time.

Must never change anything while something stands in the way of a promise: `read` refuses first, with all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.connect.slurm_accounts import SlurmAccounts
from plimsoll.errors import Refused
from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.model import Limit, Settings, Step
from plimsoll.quota.outlets.slurm import Change, Target, change_of, found, limit, wanted
from plimsoll.quota.outlets.slurm_check import (
    Finding,
    SlurmFacts,
    check_clusters,
    check_config,
    check_order,
    check_partitions,
)

FINDINGS_SHOWN_MAX = 5


class SlurmOutlet:
    """The Slurm of one cluster. Call `wanted` first: it says which types of GPU have to be told apart."""

    name = "slurm"

    def __init__(self, slurm: SlurmAccounts, target: Target) -> None:
        self._slurm = slurm
        self._target = target
        self._promises: Sequence[PoolPromise] = ()

    def wanted(self, promises: Sequence[PoolPromise]) -> Settings:
        self._promises = tuple(promises)
        return wanted(promises, self._target)

    def read(self) -> Settings:
        """What Slurm has of ours. Raises Refused `slurm_half_configured` where it could not keep a promise."""
        self._refuse(check_config(self._slurm.config(), self._target, self._gpu_types))
        self._refuse(check_clusters(self._slurm.clusters(), self._target))
        cluster = self._target.cluster
        return found(self._slurm.qos(), self._slurm.associations(cluster), cluster)

    def write(self, step: Step) -> None:
        change = change_of(step)
        for _ in range(2):
            if self._modify(change) or step.wanted is None:
                return  # what is to be taken away need not be there
            self._add(change)
        raise Refused(
            "slurm_not_done",
            f"{step.name} could not be set to {step.wanted or 'nothing'}: {change.entity} {change.name} "
            "is neither there nor can it be added",
            next_step=f"look at it with sacctmgr show {change.entity} {change.name} WithAssoc, and push again",
            setting=step.name,
        )

    def limit(self, name: str, value: str) -> Limit | None:
        return limit(name, value, self._promises, self._target)

    def findings(self) -> list[Finding]:
        """All that breaks or bends a promise in this Slurm, what breaks it first. Changes nothing."""
        config = self._slurm.config()
        blocking = check_config(config, self._target, self._gpu_types)
        if blocking:
            return blocking  # without accounting, slurmdbd can't be asked
        clusters, qos, partitions = self._slurm.clusters(), self._slurm.qos(), self._slurm.partitions()
        facts = SlurmFacts(config, clusters, qos, partitions)
        return [
            *check_clusters(clusters, self._target),
            *check_order(facts),
            *check_partitions(partitions, self._gpu_types),
        ]

    @property
    def _gpu_types(self) -> list[str]:
        return sorted(set(self._target.gpu_types(self._promises).values()))

    def _modify(self, change: Change) -> bool:
        place = self._place(change)
        if not self._slurm.change(
            "modify", change.entity, "where", f"Name={change.name}", *place, "set", *change.change
        ):
            return False
        if change.clears_users:
            self._slurm.change("modify", "user", "where", f"Account={change.name}", *place, "set", "QOS=")
        return True

    def _add(self, change: Change) -> None:
        self._slurm.change("add", change.entity, change.name, *self._place(change), *change.create)

    def _place(self, change: Change) -> list[str]:
        """An account is changed in our cluster only; a QOS has none."""
        return [f"Cluster={self._target.cluster}"] if change.entity == "account" else []

    def _refuse(self, findings: Sequence[Finding]) -> None:
        blocking = [finding for finding in findings if finding.is_blocking]
        if not blocking:
            return
        shown = "; ".join(finding.what for finding in blocking[:FINDINGS_SHOWN_MAX])
        more = len(blocking) - FINDINGS_SHOWN_MAX
        raise Refused(
            "slurm_half_configured",
            f"{len(blocking)} things keep Slurm cluster {self._target.cluster} from keeping a promise, and nothing was "
            f"changed: {shown}{f'; and {more} more' if more > 0 else ''}",
            next_step="; ".join(finding.next_step for finding in blocking[:FINDINGS_SHOWN_MAX]),
            findings=[{"code": each.code, "what": each.what, "next_step": each.next_step} for each in blocking],
        )
