"""What sacctmgr does to accounts, limits and QOS, as far as it was seen to on the real thing, without a daemon.

tests/real/test_quota_slurm.py shows that the real one does the same; this one is quick enough for any cut of any push.
"""

from __future__ import annotations

import msgspec

from plimsoll.connect.slurm_limits import SlurmAssociation, SlurmCount, SlurmPartition, SlurmQos
from plimsoll.errors import Refused, Unavailable
from plimsoll.quota.outlets.slurm_render import config_lines


class SlurmModel:
    """A slurmdbd with one cluster. After `calls_left` changes it is gone."""

    def __init__(self) -> None:
        self.qos_by_name = {"normal": SlurmQos("normal")}
        self.accounts = {"root": SlurmAssociation("root")}
        self.users: list[SlurmAssociation] = []
        self.calls_left = 10_000

    def config(self) -> dict[str, str]:
        lines = dict(line.split("=", 1) for line in config_lines(["h100", "h200"]))
        return {"ClusterName": "tiger", **lines}

    def clusters(self) -> dict[str, str]:
        return {"tiger": "10.0.0.1"}

    def counts(self) -> dict[str, SlurmCount]:
        return {name: SlurmCount(row.grp_tres) for name, row in self.accounts.items()}

    def partitions(self) -> list[SlurmPartition]:
        return []

    def qos(self) -> list[SlurmQos]:
        return list(self.qos_by_name.values())

    def associations(self, cluster: str) -> list[SlurmAssociation]:
        assert cluster == "tiger"
        return [*self.accounts.values(), *self.users]

    def change(self, *words: str) -> bool:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise Unavailable("slurm_unavailable", "Connection refused", next_step="look whether slurmdbd runs")
        verb, entity, *rest = words
        where = rest[1 : rest.index("set")] if verb == "modify" else rest
        conditions = dict(word.partition("=")[::2] for word in where)
        change = rest[rest.index("set") + 1 :] if verb == "modify" else rest[1:]
        change = [word for word in change if not word.startswith("Cluster=")]
        name = conditions["Name"] if verb == "modify" else rest[0]
        rows = self.qos_by_name if entity == "qos" else self.accounts
        if (verb == "add") == (name in rows):
            return False
        if entity == "qos":
            self.qos_by_name[name] = self._changed_qos(self.qos_by_name.get(name, SlurmQos(name)), change)
            return True
        before = self.accounts.get(name, SlurmAssociation(name, parent="root", qos=("normal",)))
        if verb == "modify" and f"Parent={before.parent}" in change:
            return False  # and nothing else of the command is done
        self.accounts[name] = self._changed_account(before, change)
        return True

    def _changed_qos(self, row: SlurmQos, words: list[str]) -> SlurmQos:
        for key, value in (word.split("=", 1) for word in words):
            match key:
                case "Priority":
                    row = msgspec.structs.replace(row, priority=int(value))
                case "PreemptMode":
                    row = msgspec.structs.replace(row, preempt_mode=value)
                case "GraceTime":
                    row = msgspec.structs.replace(row, grace_seconds=int(value))
                case "MinTRESPerJob":
                    row = msgspec.structs.replace(row, min_tres=_with(row.min_tres, value))
                case "GrpTRES":
                    row = msgspec.structs.replace(row, grp_tres=_with(row.grp_tres, value))
                case "Preempt":
                    names = tuple(value.split(","))
                    if not set(names) <= set(self.qos_by_name):
                        raise Refused("slurm_not_done", f"You gave a bad qos {value!r}", next_step="")
                    row = msgspec.structs.replace(row, preempt=names)
                case _:
                    raise AssertionError(key)
        return row

    def _changed_account(self, row: SlurmAssociation, words: list[str]) -> SlurmAssociation:
        for key, value in (word.split("=", 1) for word in words):
            match key:
                case "Parent":
                    assert value in self.accounts, f"no account {value} to be a parent"
                    row = msgspec.structs.replace(row, parent=value)
                case "QOS":
                    assert set(value.split(",")) <= set(self.qos_by_name), value
                    row = msgspec.structs.replace(row, qos=tuple(sorted(value.split(","))))
                case "DefaultQOS":
                    assert value in row.qos
                    row = msgspec.structs.replace(row, default_qos=value)
                case "Fairshare":
                    row = msgspec.structs.replace(row, fairshare=value)
                case "GrpJobs":
                    row = msgspec.structs.replace(row, grp_jobs=None if value == "-1" else int(value))
                case "GrpSubmitJobs":
                    row = msgspec.structs.replace(row, grp_submit=None if value == "-1" else int(value))
                case "GrpTRES":
                    row = msgspec.structs.replace(row, grp_tres=_with(row.grp_tres, value))
                case "MaxTRES":
                    row = msgspec.structs.replace(row, max_tres=_with(row.max_tres, value))
                case _:
                    raise AssertionError(key)
        return row


def _with(before: object, change: str) -> dict[str, str]:
    assert isinstance(before, dict)
    values = {**before, **dict(part.rsplit("=", 1) for part in change.split(","))}
    return {name: value for name, value in sorted(values.items()) if value != "-1"}
