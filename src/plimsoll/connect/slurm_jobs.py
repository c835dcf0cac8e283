"""What runs on the nodes of a Slurm cluster, and how it is asked to go: `squeue`, `scontrol requeue`, `scancel`.

Decides only what Slurm's words mean. Must never end a job that the caller did not name, and never take a job for gone
because a command said so: what still runs is seen by looking again.

What Slurm 22.05 does, measured: `requeue` and `scancel` take many numbers and go on after one that they can't do; a job
that was submitted with --no-requeue is refused; a job that has ended meanwhile is an error for the one and none for the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from plimsoll.connect.slurm import Slurm
from plimsoll.connect.slurm_hostlist import expand
from plimsoll.errors import Unavailable

JOBS_MAX = 1_000_000
JOBS_AT_ONCE_MAX = 500
"""How many numbers go on one command line."""

_STATES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,RESIZING,SIGNALING,STAGE_OUT,STOPPED"
_FORMAT = "%A|%T|%u|%N"
_Command = Callable[[list[str]], tuple[str, list[str]]]
"""The program and its words for some jobs."""


class SlurmJob(msgspec.Struct, frozen=True):
    """A job that has nodes. Each task of an array is one."""

    number: int
    state: str
    user: str
    nodes: tuple[str, ...]

    @property
    def is_ending(self) -> bool:
        """Whether it has ended, and its nodes are being cleaned up."""
        return self.state == "COMPLETING"


class SlurmJobs(Slurm):
    """The jobs of a cluster, as `squeue` with this configuration sees them."""

    def jobs(self, nodes: Collection[str]) -> list[SlurmJob]:
        """The jobs that have one of these nodes."""
        ran = self._run("--noheader", "--all", f"--states={_STATES}", f"--format={_FORMAT}", program="squeue")
        if ran.code != 0:
            raise self._failed(ran, "squeue")
        wanted = set(nodes)
        try:
            return [job for job in parse_jobs(ran.out.decode(errors="replace")) if not wanted.isdisjoint(job.nodes)]
        except ValueError as error:
            raise Unavailable(
                "slurm_bad_answer",
                f"what {self._where('squeue')} printed can't be used: {error}",
                next_step=f"run squeue --noheader --format='{_FORMAT}' by hand, and look at the first lines",
                bytes=len(ran.out),
            ) from error

    def requeue(self, numbers: Sequence[int]) -> str:
        """Put jobs back into the queue; what Slurm complained of. They run elsewhere when they can."""
        return self._ask_to_go(numbers, lambda batch: ("scontrol", ["requeue", ",".join(batch)]))

    def cancel(self, numbers: Sequence[int]) -> str:
        """End jobs; what Slurm complained of."""
        return self._ask_to_go(numbers, lambda batch: ("scancel", batch))

    def _ask_to_go(self, numbers: Sequence[int], command: _Command) -> str:
        complaints: list[str] = []
        for batch in _parts(sorted(set(numbers))):
            program, words = command([str(number) for number in batch])
            ran = self._run(*words, program=program)
            if ran.code != 0:
                complaints.append(ran.last_words or f"exit code {ran.code}")
        return "; ".join(dict.fromkeys(complaints))


def parse_jobs(text: str) -> list[SlurmJob]:
    """The jobs of an output, a line each. Raises ValueError with the number of a line that is not a job's."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > JOBS_MAX:
        raise ValueError(f"it has {len(lines):,} jobs, at most {JOBS_MAX:,} are taken")
    jobs = []
    for place, line in lines:
        words = line.strip().split("|")
        if len(words) != 4 or not words[0].isdecimal() or not words[1]:
            shown = "".join(sign if sign.isprintable() else "?" for sign in line[:60])
            raise ValueError(f"line {place} is not a job's (NUMBER|STATE|USER|NODES): {shown}")
        jobs.append(SlurmJob(int(words[0]), words[1], words[2], tuple(expand(words[3]))))
    return jobs


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), JOBS_AT_ONCE_MAX):
        yield numbers[start : start + JOBS_AT_ONCE_MAX]
