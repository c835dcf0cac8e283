"""Read and drain the nodes of a Slurm cluster through its own `scontrol`.

Decides only whether Slurm did what was asked, by reading back. Must never pass a name or a reason through a shell, name
a node that the caller did not name, take away another's reason for a drain unasked, or bring back a node that is DOWN:
that stays a matter of Slurm and its people.

What Slurm 22.05 does, measured: RESUME makes a DOWN node IDLE, UNDRAIN only ends DRAIN and FAIL; so we say UNDRAIN.
Both leave the node NOT_RESPONDING until the controller's next ping, even one that was never drained; so we touch only
those that are. A list with a wrong name or state fails as a whole in words, but the others in it are changed; so the
state after is what counts. scontrol takes one quotation mark off each end of a reason; so we add one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from plimsoll.connect.commands import End, Ran, run_command
from plimsoll.connect.slurm_nodes import SlurmNode, parse_nodes, parse_reason
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError

TIMEOUT_SECONDS = 30.0
TIMEOUT_SECONDS_MAX = 600.0
OUTPUT_BYTES_MAX = 256 << 20
HOSTLIST_BYTES_MAX = 32_000
"""Well below what one word on a command line may have (128 KiB on Linux)."""
REASON_CHARS_MAX = 250
NAMES_SHOWN_MAX = 10

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,253}")
_STAMP = " [nobody@2026-01-05T11:00:00]"
_LOOK = "slurmctld and munged run: scontrol ping"
_NOT_FOUND_CODES = (126, 127)
"""How `env` says that it could not start a command."""


class Slurm:
    """A cluster, as `scontrol` with this configuration sees it.

    `command_prefix` goes before the command, as in `("docker", "exec", "login")`; it has to hand on its words
    unchanged, which ssh does not. `timeout_seconds` is the most that one `scontrol` may take.
    """

    def __init__(
        self,
        *,
        config: str | None = None,
        command_prefix: Sequence[str] = (),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        if not 0 < timeout_seconds <= TIMEOUT_SECONDS_MAX:
            raise UsageError(
                "slurm_bad_setting",
                f"a timeout of {timeout_seconds:g} s is not more than 0 and at most {TIMEOUT_SECONDS_MAX:g} s",
                next_step=f"leave it at {TIMEOUT_SECONDS:g} s",
            )
        self._config = config
        self._command_prefix = tuple(command_prefix)
        self._timeout_seconds = timeout_seconds

    @property
    def where(self) -> str:
        """The cluster in words."""
        return self._where("scontrol")

    def _where(self, program: str) -> str:
        """A command in words. Of a prefix only the first word is shown: the others may hold a secret."""
        more = ["…"] if len(self._command_prefix) > 1 else []
        words = " ".join([*self._command_prefix[:1], *more, program])
        return f"{words} with {self._config}" if self._config else words

    def nodes(self) -> list[SlurmNode]:
        """All nodes, in one call."""
        ran = self._run("--all", "--oneliner", "show", "node")
        if ran.code != 0:
            raise self._failed(ran)
        try:
            return parse_nodes(ran.out.decode(errors="replace"))
        except ValueError as error:
            raise Unavailable(
                "slurm_bad_answer",
                f"what {self.where} printed can't be used: {error}",
                next_step="run scontrol --oneliner show node by hand, and look at the first lines",
                bytes=len(ran.out),
            ) from error

    def drain(self, names: Sequence[str], *, reason: str, overwrites_reason: bool = False) -> list[SlurmNode]:
        """Keep nodes from new work, and return them as they are then. Work that runs there goes on.

        A node that is drained already stays so and keeps its reason, unless `overwrites_reason`: Slurm knows only one,
        and whoever set it still wants it. Raises Refused `slurm_not_done`, which says which were done and which not.
        """
        wanted = _checked_names(names)
        _check_reason(reason)
        known = self._known(wanted)
        todo = [name for name in wanted if name in known and (overwrites_reason or not known[name].is_drained)]
        said = self._update(todo, "State=DRAIN", f'Reason="{reason}"')
        written = set(todo)

        def problem(node: SlurmNode) -> str:
            if not node.is_drained:
                return f"is {'+'.join(sorted(node.states))}"
            is_other = node.name in written and node.reason != reason
            return f"is drained for another reason: {node.reason[:80]}" if is_other else ""

        return self._read_back(wanted, problem, said, verb="drained")

    def resume(self, names: Sequence[str], *, drained_for: str | None = None) -> list[SlurmNode]:
        """End the drain of nodes, and return them as they are then. Those that are not drained are left alone.

        With `drained_for` only nodes that still have this reason are resumed, so that nobody else's drain is ended. A
        node that is DOWN stays DOWN. Raises Refused `slurm_not_done`, which says which were done and which not.
        """
        wanted = _checked_names(names)
        known = self._known(wanted)
        todo = [
            name
            for name in wanted
            if name in known and known[name].is_drained and drained_for in (None, known[name].reason)
        ]
        said = self._update(todo, "State=UNDRAIN")

        def problem(node: SlurmNode) -> str:
            if not node.is_drained:
                return ""
            return f"is {'+'.join(sorted(node.states))}, for: {node.reason[:80] or 'no reason'}"

        return self._read_back(wanted, problem, said, verb="resumed")

    def _known(self, names: Sequence[str]) -> dict[str, SlurmNode]:
        wanted = set(names)
        return {node.name: node for node in self.nodes() if node.name in wanted} if wanted else {}

    def _update(self, names: Sequence[str], *changes: str) -> str:
        """Change nodes; what Slurm complained of. Whether it was done is seen only by reading back."""
        complaints: list[str] = []
        asked = 0
        for batch in _batches(names):
            try:
                ran = self._run("update", f"NodeName={','.join(batch)}", *changes)
            except PlimsollError as error:
                error.fields.update(
                    asked=list(names[:asked]), unknown=batch, not_asked=list(names[asked + len(batch) :])
                )
                raise
            asked += len(batch)
            if ran.code != 0:
                complaints.append(ran.last_words or f"exit code {ran.code}")
        return "; ".join(dict.fromkeys(complaints))

    def _read_back(
        self, names: Sequence[str], problem: Callable[[SlurmNode], str], said: str, *, verb: str
    ) -> list[SlurmNode]:
        after = self._known(names)
        problems = {name: problem(after[name]) if name in after else "is not known to Slurm" for name in names}
        not_done = {name: text for name, text in problems.items() if text}
        if not not_done:
            return [after[name] for name in names]
        shown = ", ".join(f"{name} {text}" for name, text in list(not_done.items())[:NAMES_SHOWN_MAX])
        more = len(not_done) - NAMES_SHOWN_MAX
        raise Refused(
            "slurm_not_done",
            f"{len(not_done):,} of {len(names):,} nodes were not {verb}: {shown}"
            f"{f' and {more:,} more' if more > 0 else ''}{f' (Slurm said: {said})' if said else ''}",
            next_step="look at them with scontrol show node; changing nodes needs the rights of Slurm's operator",
            not_done=not_done,
            done=[name for name in names if name not in not_done],
            said=said,
        )

    def _run(self, *arguments: str, program: str = "scontrol") -> Ran:
        if self._config and not self._command_prefix and not Path(self._config).is_file():
            # scontrol itself would wait a minute for the file to appear.
            raise Unavailable(
                "slurm_unavailable",
                f"Slurm's configuration {self._config} is not there",
                next_step="give the path of slurm.conf",
                config=self._config,
            )
        # `env`, so that the settings also reach the other end of a prefix. Times come in UTC: the machine's own zone
        # has an hour every year that means two moments. A SLURM_CLUSTERS of ours would send us to another cluster.
        settings = ["-u", "SLURM_CLUSTERS", "TZ=UTC0", "SLURM_TIME_FORMAT=standard"]
        settings += [f"SLURM_CONF={self._config}"] if self._config else []
        ran = run_command(
            [*self._command_prefix, "env", *settings, program, *arguments],
            environment={},
            timeout_seconds=self._timeout_seconds,
            out_bytes_max=OUTPUT_BYTES_MAX,
        )
        if ran.end is not End.EXITED or ran.code in _NOT_FOUND_CODES:
            raise self._failed(ran, program)
        return ran

    def _failed(self, ran: Ran, program: str = "scontrol") -> Unavailable:
        """What to say of a command that gave no answer."""
        words = f": {ran.last_words}" if ran.last_words else ""
        where = self._where(program)
        look = "slurmdbd and munged run: sacctmgr show cluster" if program == "sacctmgr" else _LOOK
        if ran.end is End.TOO_SLOW:
            what = f"{where} did not end within {self._timeout_seconds:g} s and was killed{words}"
            next_step = f"is it busy? Look whether {look}"
        elif ran.end is End.TOO_MUCH:
            what = f"{where} printed more than {OUTPUT_BYTES_MAX:,} bytes and was killed"
            next_step = "run it by hand, and look at the first lines"
        elif ran.end is End.NOT_FOUND or ran.code in _NOT_FOUND_CODES:
            what = f"{where} can't be started{words}"
            next_step = "install Slurm's commands (Debian: slurm-client), or name the command that reaches them"
        else:
            what = f"{where} failed with exit code {ran.code}{words}"
            next_step = f"look whether {look}"
        return Unavailable(
            "slurm_unavailable", what, next_step=next_step, end=ran.end.value, timeout_seconds=self._timeout_seconds
        )


def _checked_names(names: Sequence[str]) -> list[str]:
    """Names without repetition. Slurm would take `ALL` or `n[1-9]` for many nodes."""
    for name in names:
        if not _NAME.fullmatch(name) or name.upper() == "ALL":
            raise UsageError(
                "slurm_bad_name",
                f"{name[:80]!r} is not the name of one node",
                next_step="name each node: letters, digits, dots, dashes and underscores",
                name=name[:80],
            )
    return list(dict.fromkeys(names))


def _check_reason(reason: str) -> None:
    if not reason.strip() or len(reason) > REASON_CHARS_MAX or not reason.isprintable():
        raise UsageError(
            "slurm_bad_reason",
            f"a reason is one line of 1 to {REASON_CHARS_MAX} printable characters, this one has {len(reason):,}",
            next_step="shorten it, and leave out line breaks and tabs",
        )
    if parse_reason(reason + _STAMP)[0] != reason:
        raise UsageError(
            "slurm_bad_reason",
            "the reason holds what Slurm itself writes behind a reason, and could not be read back",
            next_step="leave out the [user@time] in it",
        )


def _batches(names: Sequence[str]) -> Iterator[list[str]]:
    """Names in parts that fit on a command line."""
    batch: list[str] = []
    size = 0
    for name in names:
        if batch and size + len(name) + 1 > HOSTLIST_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += len(name) + 1
    if batch:
        yield batch
