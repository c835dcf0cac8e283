"""What Slurm's accounts and QOS are called, and how a job says which it wants. Pure.

Everything of ours begins with `plimsoll`, and nothing else is ever touched. Slurm makes names lower case and can't take
every character, so a team's name is written with small letters, digits, `-` and `_`, and each byte of anything else as
`.` and two hex digits: two teams never share an account, and the team can be read back.
"""

from __future__ import annotations

import re

from plimsoll.errors import Refused
from plimsoll.quota.model import Tier

PREFIX = "plimsoll"
GUARANTEED_PARENT = PREFIX
FLEX_PARENT = f"{PREFIX}.flex"
FLEX_QOS = f"{PREFIX}_flex"
FLEX_SUFFIX = ".flex"
"""No team's name ends so: a dot is always followed by two hex digits, and `fl` are none."""
NAME_CHARS_MAX = 200
RANK_STEP = 1_000
"""What one rank costs in `--nice`. All that is not tier or rank has to weigh less than this."""
RANK_MAX = 10_000

_TEAM_PREFIX = f"{PREFIX}_"
_PLAIN = re.compile(r"[a-z0-9_-]")
_ESCAPE = re.compile(r"\.([0-9a-f]{2})")
_ENCODED = re.compile(r"(?:[a-z0-9_-]|\.[0-9a-f]{2})+")
_CLUSTER = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_GPU_TYPE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def tier_qos(tier: Tier) -> str:
    """The QOS of a tier inside a guarantee."""
    return f"{PREFIX}_{tier.value}"


TIER_QOS = tuple(sorted(tier_qos(tier) for tier in Tier))
DEFAULT_QOS = tier_qos(Tier.MID)


def only_qos(gpu_type: str) -> str:
    """The QOS of a partition whose jobs have to name this type of GPU."""
    return f"{PREFIX}_only_{gpu_type}"


def guaranteed_account(team: str) -> str:
    """The account of work inside a team's guarantee."""
    encoded = "".join(
        sign if _PLAIN.fullmatch(sign) else "".join(f".{byte:02x}" for byte in sign.encode()) for sign in team
    )
    if not team or len(encoded) > NAME_CHARS_MAX:
        raise Refused(
            "slurm_bad_team",
            f"the team {team[:80]!r} needs an account name of {len(encoded):,} characters, not 1 to {NAME_CHARS_MAX}",
            next_step="give the team a shorter name in the book",
            team=team[:200],
        )
    return f"{_TEAM_PREFIX}{encoded}"


def flex_account(team: str) -> str:
    """The account of a team's work beyond its guarantee."""
    return guaranteed_account(team) + FLEX_SUFFIX


def is_flex(account: str) -> bool:
    """Whether an account is for flex."""
    return account.endswith(FLEX_SUFFIX)


def team_of(account: str) -> str | None:
    """The team whose account this is; None where it is not one of ours."""
    encoded = account.removesuffix(FLEX_SUFFIX).removeprefix(_TEAM_PREFIX)
    if not account.startswith(_TEAM_PREFIX) or not _ENCODED.fullmatch(encoded):
        return None
    signs = [
        bytes([int(escape[1], 16)]) if (escape := _ESCAPE.fullmatch(part)) else part.encode()
        for part in re.findall(r"\.[0-9a-f]{2}|.", encoded)
    ]
    try:
        team = b"".join(signs).decode()
    except UnicodeDecodeError:
        return None
    return team if guaranteed_account(team) == f"{_TEAM_PREFIX}{encoded}" else None


def slurm_cluster(name: str) -> str:
    """What a cluster is called in Slurm: its name in small letters, where that is a name there."""
    lower = name.lower()
    if not _CLUSTER.fullmatch(lower):
        raise Refused(
            "slurm_bad_cluster",
            f"{name[:80]!r} can't be the name of a Slurm cluster, which has 1 to 40 letters, digits, - and _",
            next_step="say what it is called there: the ClusterName of its slurm.conf",
            cluster=name[:80],
        )
    return lower


def gpu_type(name: str) -> str:
    """The type of a GPU in Slurm, by default the SKU in small letters."""
    lower = name.lower()
    if not _GPU_TYPE.fullmatch(lower):
        raise Refused(
            "slurm_bad_gpu_type",
            f"{name[:80]!r} can't be a type of GPU in Slurm",
            next_step="say what it is called there: the Type of its gres.conf",
            gpu_type=name[:80],
        )
    return lower


def submit_options(team: str, *, tier: Tier = Tier.MID, rank: int = 1, as_flex: bool = False) -> tuple[str, ...]:
    """What to give `sbatch` so that a job counts as this team's part: tier and rank hold inside the guarantee."""
    if not 1 <= rank <= RANK_MAX:
        raise Refused(
            "slurm_bad_rank",
            f"rank {rank:,} is not between 1 and {RANK_MAX:,}",
            next_step="number the parts from 1",
            rank=rank,
        )
    nice = f"--nice={(rank - 1) * RANK_STEP}"
    if as_flex:
        return f"--account={flex_account(team)}", f"--qos={FLEX_QOS}", "--requeue", nice
    return f"--account={guaranteed_account(team)}", f"--qos={tier_qos(tier)}", nice
