"""Teams on a private Slurm: what they are promised is pushed, and their jobs are submitted as their own users.

`push` does what `plimsoll quota push slurm` does, so that a test can move a promise and look at what the jobs do.
"""

from __future__ import annotations

import pwd
from collections.abc import Mapping, Sequence

import msgspec

from plimsoll.connect.slurm_accounts import SlurmAccounts
from plimsoll.connect.slurm_limits import SlurmCount
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.model import PoolPromise, Tier
from plimsoll.quota.outlets.model import Step, compare, in_order
from plimsoll.quota.outlets.slurm import Target
from plimsoll.quota.outlets.slurm_names import flex_account, guaranteed_account, submit_options
from plimsoll.quota.outlets.slurm_outlet import SlurmOutlet
from tests.support.parts import missing_part
from tests.support.slurm import NODE_GPUS
from tests.support.slurm_accounting import AccountedSlurm
from tests.support.waiting import wait_until

USERS = ("games", "news", "mail", "backup")
"""Every Debian has them, and nobody logs in as them."""


def promise(guaranteed: Mapping[str, int], *, healthy: int = 256, sku: str = "H100") -> PoolPromise:
    """What is promised of the private cluster, whose line is all that is healthy."""
    return PoolPromise(PoolKey("tiger", sku), NODE_GPUS, healthy, healthy, guaranteed)


class Job(msgspec.Struct, frozen=True):
    """A job as Slurm sees it. `reason` says why it waits, `restarts` how often it was requeued."""

    number: int
    state: str
    reason: str
    restarts: int

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"


class Teams:
    """Teams, each with a user of its own, on a cluster."""

    def __init__(self, cluster: AccountedSlurm, names: Sequence[str], *, target: Target | None = None) -> None:
        self.cluster = cluster
        known = {entry.pw_name for entry in pwd.getpwall()}
        if not cluster.is_root or not known.issuperset(USERS[: len(names)]):
            missing_part("root, which alone can submit as somebody else,")
        self.user_by_team = dict(zip(names, USERS, strict=False))
        self.outlet = self.new_outlet(target)
        self.last: dict[str, str] = {}

    def new_outlet(self, target: Target | None = None) -> SlurmOutlet:
        accounts = SlurmAccounts(config=str(self.cluster.config), timeout_seconds=20)
        return SlurmOutlet(accounts, target or Target("tiger"))

    def steps(self, *promises: PoolPromise) -> list[Step]:
        """What a push would do."""
        wanted = self.outlet.wanted(promises)
        return in_order(compare(wanted, self.outlet.read(), self.last), self.outlet.limit)

    def push(self, *promises: PoolPromise) -> list[Step]:
        """Tell Slurm; what was done."""
        steps = self.steps(*promises)
        for step in steps:
            self.do(step)
        return steps

    def do(self, step: Step) -> None:
        """Do one step, and remember that we did."""
        self.outlet.write(step)
        self.last.pop(step.name, None)
        if step.wanted is not None:
            self.last[step.name] = step.wanted

    def add_users(self) -> None:
        """Let each team's user into its accounts, as a site does it once."""
        for team, user in self.user_by_team.items():
            accounts = f"{guaranteed_account(team)},{flex_account(team)}"
            self.cluster.run("sacctmgr", "-i", "add", "user", user, f"Account={accounts}", "Fairshare=parent")

    def try_submit(self, team: str, gpus: int, *words: str, user: str = "", seconds: int = 600) -> str:
        """What sbatch says. Whole nodes are asked for as nodes, less than one as GPUs."""
        nodes, rest = divmod(gpus, NODE_GPUS)
        assert not (nodes and rest), "whole nodes, or less than one"
        size = [f"--nodes={nodes or 1}", f"--gres=gpu:{NODE_GPUS if nodes else rest}"] if gpus else ["--nodes=1"]
        where = [f"--uid={user or self.user_by_team[team]}", "--chdir=/", "--output=/dev/null", "--parsable"]
        return self.cluster.run("sbatch", *where, *size, *words, f"--wrap=exec sleep {seconds}", check=False).strip()

    def submit(self, team: str, gpus: int, *, tier: Tier = Tier.MID, rank: int = 1, words: Sequence[str] = ()) -> int:
        """A job inside the guarantee; its number."""
        return int(self.try_submit(team, gpus, *submit_options(team, tier=tier, rank=rank), *words))

    def submit_flex(self, team: str, gpus: int) -> int:
        """A job beyond the guarantee; its number."""
        return int(self.try_submit(team, gpus, *submit_options(team, as_flex=True)))

    def jobs(self) -> dict[int, Job]:
        """All jobs that run or wait."""
        said = self.cluster.run("squeue", "--noheader", "--format=%A|%T|%r").split()
        restarts = {}
        for line in self.cluster.run("scontrol", "--oneliner", "show", "job").splitlines():
            fields = dict(word.partition("=")[::2] for word in line.split())
            if "JobId" in fields:
                restarts[int(fields["JobId"])] = int(fields["Restarts"])
        rows = (line.split("|") for line in said)
        return {int(row[0]): Job(int(row[0]), row[1], row[2], restarts.get(int(row[0]), 0)) for row in rows}

    def wait_running(self, *numbers: int) -> None:
        def is_so() -> bool:
            jobs = self.jobs()
            return all(number in jobs and jobs[number].is_running for number in numbers)

        wait_until(is_so, what=f"jobs {numbers} run")

    def wait_reason(self, number: int, *reasons: str) -> None:
        """Wait until a job waits for one of these reasons."""
        wait_until(lambda: self.jobs()[number].reason in reasons, what=f"job {number} waits for {reasons}")

    def cancel(self, *numbers: int) -> None:
        self.cluster.run("scancel", *(str(number) for number in numbers))

    def cancel_all(self) -> None:
        for user in self.user_by_team.values():
            self.cluster.run("scancel", f"--user={user}")
        self.cluster.reset()

    def count(self, account: str) -> SlurmCount:
        """What the controller enforces and counts for an account."""
        return SlurmAccounts(config=str(self.cluster.config)).counts()[account]

    def limit_in_force(self, account: str) -> str:
        """The GPUs that the controller lets an account have."""
        return self.count(account).limits.get("gres/gpu", "")
