"""Slurm as an outlet: asks whether it is set up, reads what it has of ours, and changes one setting at a time.

Must never change anything while something stands in the way of a promise: `read` refuses first, with all of it.

One sacctmgr takes a third to half a second however quick the machine, because each of its questions waits for TCP's
delayed acknowledgement (measured: 88 ms each). So what was read is remembered, an account that is missing is made whole
by one command, and a setting that this command has set already is not set again.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.connect.slurm_accounts import SlurmAccounts
from plimsoll.connect.slurm_limits import SlurmAssociation
from plimsoll.errors import Refused
from plimsoll.quota.model import PoolPromise
from plimsoll.quota.outlets.model import Limit, Settings, Step
from plimsoll.quota.outlets.slurm import GPUS, Change, Target, account_words, change_of, found, limit, wanted
from plimsoll.quota.outlets.slurm_check import (
    Finding,
    check_access,
    check_clusters,
    check_config,
    check_counts,
    check_order,
    check_partitions,
)
from plimsoll.quota.outlets.slurm_names import is_flex

FINDINGS_SHOWN_MAX = 5


class SlurmOutlet:
    """The Slurm of one cluster. Call `wanted` first: it says which types of GPU have to be told apart."""

    name = "slurm"

    def __init__(self, slurm: SlurmAccounts, target: Target) -> None:
        self._slurm = slurm
        self._target = target
        self._promises: Sequence[PoolPromise] = ()
        self._wanted: Settings = {}
        self._accounts: dict[str, SlurmAssociation] = {}
        self._qos_names: set[str] = set()
        self._made_with: dict[str, str] = {}

    def wanted(self, promises: Sequence[PoolPromise]) -> Settings:
        self._promises = tuple(promises)
        self._wanted = wanted(promises, self._target)
        return self._wanted

    def read(self) -> Settings:
        """What Slurm has of ours. Raises Refused `slurm_half_configured` where it could not keep a promise."""
        self._refuse(check_config(self._slurm.config(), self._target, self._gpu_types))
        self._refuse(check_clusters(self._slurm.clusters(), self._target))
        qos, associations = self._slurm.qos(), self._slurm.associations(self._target.cluster)
        self._qos_names = {row.name for row in qos}
        self._accounts = {row.account: row for row in associations if not row.user}
        self._made_with = {}
        return found(qos, associations, self._target.cluster)

    def write(self, step: Step) -> None:
        change = change_of(step)
        if change.entity == "qos" and step.wanted is None:
            return  # other clusters may use it, and a slurm.conf that names a QOS which is gone stops its controller
        if step.wanted is not None and self._made_with.get(step.name) == step.wanted:
            return
        if step.wanted is not None and not self._is_there(change) and self._add(change):
            return
        if self._modify(change) or step.wanted is None:
            return  # what is to be taken away need not be there
        raise Refused(
            "slurm_not_done",
            f"{step.name} could not be set to {step.wanted}: {change.entity} {change.name} is gone since it was read",
            next_step="push again; it will be added",
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
        unregistered = check_clusters(self._slurm.clusters(), self._target)
        if unregistered:
            return unregistered
        associations = self._slurm.associations(self._target.cluster)
        return [
            *check_counts(associations, self._slurm.counts()),
            *check_access(associations),
            *check_order(config, self._slurm.qos()),
            *check_partitions(self._slurm.partitions(), self._gpu_types),
        ]

    @property
    def _gpu_types(self) -> list[str]:
        return sorted(set(self._target.gpu_types(self._promises).values()))

    def _is_there(self, change: Change) -> bool:
        """Whether it was when we last looked. Unknown counts as not: adding what is there does nothing."""
        return change.name in (self._qos_names if change.entity == "qos" else self._accounts)

    def _add(self, change: Change) -> bool:
        """Whether it is now as the setting says. What a team's account lacks, it lacks closed."""
        cluster = self._target.cluster
        whole = account_words(change.name, self._wanted, cluster) if change.entity == "account" else []
        if not self._slurm.change("add", change.entity, change.name, *self._place(change), *(whole or change.create)):
            return False
        if change.entity == "qos":
            self._qos_names.add(change.name)
        else:
            self._accounts[change.name] = SlurmAssociation(change.name, parent=change.create[0].partition("=")[2])
        if whole:
            prefix = f"team/{cluster}/{change.name} "
            self._made_with |= {name: value for name, value in self._wanted.items() if name.startswith(prefix)}
        return bool(whole) or change.is_made_whole

    def _modify(self, change: Change) -> bool:
        place = self._place(change)
        where = ["modify", change.entity, "where", f"Name={change.name}", *place, "set"]
        known = self._accounts.get(change.name)
        if change.parent and (known is None or known.parent != change.parent):
            self._slurm.change(*where, f"Parent={change.parent}")  # nothing to do where it is so already
        if not self._slurm.change(*where, *change.change, *self._outdated(change)):
            return False
        if change.clears_users:
            self._slurm.change("modify", "user", "where", f"Account={change.name}", *place, "set", "QOS=")
        return True

    def _outdated(self, change: Change) -> list[str]:
        """Limits by type that a closed account has from a time when types were told apart: it opens without them."""
        known = self._accounts.get(change.name)
        if known is None or not change.parent or known.grp_jobs != 0 or is_flex(change.name):
            return []
        prefix = f"team/{self._target.cluster}/{change.name} GrpTRES"
        names = [name for name in known.grp_tres if name.startswith(f"{GPUS}:")]
        cleared = [f"{name}=-1" for name in names if f"{prefix} {name}" not in self._wanted]
        return [f"GrpTRES={','.join(cleared)}"] if cleared else []

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
