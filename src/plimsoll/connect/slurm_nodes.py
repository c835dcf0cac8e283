"""What `scontrol --oneliner show node` says, as nouns.

Decides what a line means, and whether Slurm would give a node new work. Must never guess: a line that is not a node's
is an error with its number. `scontrol`'s text is read and not JSON, because Slurm 22.05's scontrol prints none, and
that of `sinfo` needs a plugin that is not everywhere and changes its form with the version. The text is the same in
22.05 and in later sources, and all that people write freely stands at its end, in a fixed order.
"""

from __future__ import annotations

import enum
import re
from datetime import UTC, datetime

import msgspec

NODES_MAX = 100_000
FREE_TEXT = re.compile(r" (Reason|Comment|Extra|InstanceId|InstanceType|ReservationName)=")

_KEYS = ("NodeName", "NodeAddr", "State", "Gres", "Partitions")
_FIELD = re.compile(rf"(?:^| )({'|'.join(_KEYS)})=(\S*)")
_STAMP = re.compile(
    r" \[([^\s\[\]]+)@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown)\]"
    r"(?=$| {8}| (?:Comment|Extra|InstanceId|InstanceType|ReservationName)=)"
)
"""Who set a reason and when. After the first line of a reason with several, the others follow behind eight spaces."""
_INDENT = re.compile(r" {8}")
_BRACKETS = re.compile(r"\([^)]*\)")

_SIGNS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
"""Older versions put a sign behind a state instead of a flag."""
_ALIASES = {"MAINT": "MAINTENANCE", "REBOOT": "REBOOT_REQUESTED", "NO_RESPOND": "NOT_RESPONDING"}
_BASES_UP = {"IDLE", "ALLOCATED", "MIXED", "COMPLETING"}
_OFF = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"}


class SlurmNode(msgspec.Struct, frozen=True):
    """A node as Slurm sees it. `states` holds the base state and the flags: IDLE, DRAIN, DOWN, NOT_RESPONDING, …"""

    name: str
    address: str
    states: frozenset[str]
    reason: str
    reason_by: str
    reason_at: datetime | None
    gpus: int
    partitions: tuple[str, ...]

    @property
    def has_work(self) -> bool:
        """Whether jobs run there, or are still being cleaned up."""
        return not self.states.isdisjoint({"ALLOCATED", "MIXED", "COMPLETING"})

    @property
    def is_drained(self) -> bool:
        """Whether it is kept from new work by hand, by a check, or because it is expected to fail."""
        return not self.states.isdisjoint({"DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING"})


class Availability(enum.Enum):
    """Whether Slurm would give a node new work, and if not, why: the lasting reason before the passing one."""

    MAINTENANCE = "maintenance"
    DOWN = "down"
    DRAINING = "draining"
    DRAINED = "drained"
    POWERED_DOWN = "powered_down"
    NOT_RESPONDING = "not_responding"
    UP = "up"
    UNKNOWN = "unknown"


def availability(node: SlurmNode) -> Availability:
    """What a node's states come to.

    A maintenance reservation comes before DOWN, since planned work takes nodes down. A node that was just resumed is
    NOT_RESPONDING until the controller's next ping, and gets no work until then.
    """
    states = node.states
    if not states.isdisjoint({"MAINTENANCE", "REBOOT_ISSUED"}):
        return Availability.MAINTENANCE
    if not states.isdisjoint({"DOWN", "ERROR", "INVALID_REG"}):
        return Availability.DOWN
    if node.is_drained:
        return Availability.DRAINING if node.has_work else Availability.DRAINED
    if not states.isdisjoint(_OFF):
        return Availability.POWERED_DOWN
    if states.isdisjoint(_BASES_UP):
        return Availability.UNKNOWN
    return Availability.NOT_RESPONDING if "NOT_RESPONDING" in states else Availability.UP


def parse_nodes(text: str) -> list[SlurmNode]:
    """The nodes of an output, a line each. Raises ValueError with the number of a line that is not a node's."""
    if text.strip() == "No nodes in the system":
        return []
    # Not `splitlines`: a reason may hold signs that it takes for the end of a line.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > NODES_MAX:
        raise ValueError(f"it has {len(lines):,} nodes, at most {NODES_MAX:,} are taken")
    nodes = [_parse_line(number, line) for number, line in lines]
    if len({node.name for node in nodes}) < len(nodes):
        raise ValueError("it names a node twice")
    return nodes


def _parse_line(number: int, line: str) -> SlurmNode:
    free = FREE_TEXT.search(line)
    fields = dict(_FIELD.findall(line[: free.start()] if free else line))
    if not line.startswith("NodeName=") or not fields["NodeName"] or not fields.get("State"):
        shown = "".join(sign if sign.isprintable() else "?" for sign in line[:60])
        raise ValueError(f"line {number} is not a node's (NodeName=… State=…): {shown}")
    reason, reason_by, reason_at = "", "", None
    if free and free[1] == "Reason":
        reason, reason_by, reason_at = parse_reason(line[free.end() :])
    return SlurmNode(
        name=fields["NodeName"],
        address=fields.get("NodeAddr", ""),
        states=parse_states(fields["State"]),
        reason=reason,
        reason_by=reason_by,
        reason_at=reason_at,
        gpus=count_gpus(fields.get("Gres", "")),
        partitions=tuple(filter(None, fields.get("Partitions", "").split(","))),
    )


def parse_states(text: str) -> frozenset[str]:
    """`MIXED+DRAIN`, or in older versions `DOWN*+DRAIN`, as one set with one name for each state."""
    states: set[str] = set()
    for word in text.upper().split("+"):
        bare = word.rstrip("".join(_SIGNS))
        states |= {_SIGNS[sign] for sign in word[len(bare) :]}
        states.add(_ALIASES.get(bare, bare))
    return frozenset(states - {""})


def parse_reason(text: str) -> tuple[str, str, datetime | None]:
    """What follows `Reason=`: the reason, who set it, and when. The times are UTC, because we asked for that."""
    stamp = _STAMP.search(text)
    if stamp is None:
        after = FREE_TEXT.search(text)
        return (text[: after.start()] if after else text), "", None
    reason = text[: stamp.start()]
    rest = text[stamp.end() :]
    if rest.startswith(" " * 8):  # a reason with several lines
        after = FREE_TEXT.search(rest)
        reason += _INDENT.sub("\n", rest[: after.start()] if after else rest)
    try:
        moment = datetime.fromisoformat(stamp[2]).replace(tzinfo=UTC)
    except ValueError:  # Unknown, or no day of the calendar
        moment = None
    return reason, stamp[1], moment


def count_gpus(gres: str) -> int:
    """The GPUs in `gpu:h100:8(S:0-1),nic:4`; slices (MIG as `gpu:1g.10gb:7`) count as what Slurm counts."""
    count = 0
    for entry in _BRACKETS.sub("", gres).split(","):
        kind, *rest = entry.split(":")
        if kind == "gpu":
            count += int(rest[-1]) if rest and rest[-1].isdecimal() else 1
    return count
