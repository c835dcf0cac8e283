"""Read and change a Slurm cluster's accounts, limits and QOS through its own `sacctmgr`.

Decides only what Slurm's words mean, and whether a change was made. Must never pass a name through a shell, and never
take silence for success: an answer that can't be read is an error.

What Slurm 22.05 does, measured: `add` of something that is there and `modify` of something that is not exit with 1 and
"Nothing …" on stdout, every other refusal speaks on stderr. Names become lower case. An account is known to all
clusters of a slurmdbd, its limits and its parent are those of one cluster. A user's QOS are shown as inherited from the
account, unless somebody gave the user others. slurmdbd tells the controller before it answers us.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from plimsoll.connect.slurm import Slurm
from plimsoll.connect.slurm_limits import (
    ASSOCIATION_COLUMNS,
    QOS_COLUMNS,
    SlurmAssociation,
    SlurmCount,
    SlurmPartition,
    SlurmQos,
    parse_association,
    parse_config,
    parse_counts,
    parse_partitions,
    parse_qos,
)
from plimsoll.errors import PlimsollError, Refused, Unavailable

Row = TypeVar("Row")

ROWS_MAX = 200_000

_NOTHING = ("Nothing modified", "Nothing new added")
_LOST = re.compile(
    r"onnection|persist|[Uu]nable to contact|authentication error|[Tt]imed out|not responding|Unspecified"
)
"""How Slurm's commands say that the daemon behind them did not answer, other than that it refused."""


class SlurmAccounts(Slurm):
    """The accounting of a cluster, as `sacctmgr` and `scontrol` with this configuration see it."""

    def config(self) -> dict[str, str]:
        """slurm.conf as the controller has it in force; a value that is not set is empty."""
        ran = self._run("show", "config")
        if ran.code != 0:
            raise self._failed(ran)
        config = parse_config(ran.out.decode(errors="replace"))
        if "ClusterName" not in config:
            raise self._bad_answer("scontrol show config", "names no cluster")
        return config

    def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        ran = self._run("--all", "--oneliner", "show", "partition")
        if ran.code != 0:
            raise self._failed(ran)
        return parse_partitions(ran.out.decode(errors="replace"))

    def counts(self) -> dict[str, SlurmCount]:
        """What the controller enforces and counts for each account: what it has heard from slurmdbd."""
        ran = self._run("--oneliner", "show", "assoc_mgr", "flags=assoc")
        if ran.code != 0:
            raise self._failed(ran)
        return parse_counts(ran.out.decode(errors="replace"))

    def clusters(self) -> dict[str, str]:
        """The clusters that slurmdbd knows, each with the address of its controller, empty while none is connected."""
        return dict(self._show("cluster", ("Cluster", "ControlHost"), lambda row: (row[0], row[1])))

    def tres(self) -> set[str]:
        """What slurmdbd counts, such as `cpu` and `gres/gpu`."""
        return set(self._show("tres", ("Type", "Name"), lambda row: "/".join(filter(None, row))))

    def qos(self) -> list[SlurmQos]:
        """All QOS."""
        return self._show("qos", QOS_COLUMNS, parse_qos)

    def associations(self, cluster: str) -> list[SlurmAssociation]:
        """All accounts of a cluster and the users in them."""
        return self._show("assoc", ASSOCIATION_COLUMNS, parse_association, f"Cluster={cluster}")

    def change(self, *words: str) -> bool:
        """Do one change at once; False where there was nothing to add or to modify.

        Raises Unavailable where slurmdbd can't be asked, and Refused `slurm_not_done` where it said no.
        """
        ran = self._run("-i", *words, program="sacctmgr")
        if ran.code == 0:
            return True
        if any(sign in ran.out.decode(errors="replace") for sign in _NOTHING):
            return False
        if _LOST.search(ran.last_words) or not ran.last_words:
            raise self._failed(ran, "sacctmgr")
        raise Refused(
            "slurm_not_done",
            f"sacctmgr {' '.join(words)[:300]} was refused: {ran.last_words}",
            next_step="changing accounts needs the rights of Slurm's administrator: sacctmgr show user WithAssoc",
            said=ran.last_words,
        )

    def _show(self, what: str, columns: Sequence[str], make: Callable[[list[str]], Row], *conditions: str) -> list[Row]:
        ran = self._run("-nP", "show", what, *conditions, f"format={','.join(columns)}", program="sacctmgr")
        if ran.code != 0:
            raise self._failed(ran, "sacctmgr")
        rows = [line.split("|") for line in ran.out.decode(errors="replace").splitlines() if line]
        wrong = next((row for row in rows if len(row) != len(columns)), None)
        if wrong or len(rows) > ROWS_MAX:
            problem = f"has {len(wrong)} columns and not {len(columns)}" if wrong else f"has {len(rows):,} rows"
            raise self._bad_answer(f"sacctmgr show {what}", problem)
        try:
            return [make(row) for row in rows]
        except ValueError as error:
            raise self._bad_answer(f"sacctmgr show {what}", f"has a number that is none: {error}") from error

    def _bad_answer(self, command: str, what: str) -> PlimsollError:
        return Unavailable(
            "slurm_bad_answer",
            f"what {command} printed can't be used: it {what}",
            next_step=f"run {command} by hand, and look at the first lines",
        )
