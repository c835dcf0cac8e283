"""What a Slurm cluster is told: which accounts, limits and QOS keep the promises of its pools. Pure.

Each team has two accounts. In `plimsoll_TEAM` it runs what it was guaranteed: at most that many GPUs, nothing stops it,
and its QOS (one per tier) may call back flex and nothing else. In `plimsoll_TEAM.flex` it runs whatever is free, and is
requeued when a guarantee needs the GPUs; who has least flex for its guarantee goes first, by fair share.

Decides the settings, what Slurm's answers come to as settings, and the words that change one. Must never name an
account or a QOS that is not ours, leave an account open whose limit is not set yet, or delete anything: an account that
is not promised anything any more is closed, so that its users and its history stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from plimsoll.connect.slurm_limits import SlurmAssociation, SlurmQos
from plimsoll.errors import Refused
from plimsoll.quota.model import PoolPromise, Tier
from plimsoll.quota.outlets.model import Cause, Limit, Settings, Step
from plimsoll.quota.outlets.slurm_names import (
    DEFAULT_QOS,
    FLEX_PARENT,
    FLEX_QOS,
    GUARANTEED_PARENT,
    TIER_QOS,
    flex_account,
    gpu_type,
    guaranteed_account,
    is_flex,
    only_qos,
    slurm_cluster,
    team_of,
    tier_qos,
)

GPUS = "gres/gpu"
UNLIMITED = "unlimited"
FLEX_PRIORITY = 200_000
TIER_PRIORITY = {Tier.CRITICAL: 1_000_000, Tier.HIGH: 800_000, Tier.MID: 600_000, Tier.LOW: 400_000}
PARENTS = (GUARANTEED_PARENT, FLEX_PARENT)

_OPEN = ("GrpJobs=-1", "GrpSubmitJobs=-1")
_CLOSED = ("GrpJobs=0", "GrpSubmitJobs=0", f"GrpTRES={GPUS}=0")
_QOS_DEFAULTS = {
    "Priority": "0",
    "Preempt": "",
    "PreemptMode": "cluster",
    "GraceTime": "0",
    "MinTRES": "",
    "GrpTRES": "",
}
_QOS_KEYS = {"MinTRES": "MinTRESPerJob"}
"""What `sacctmgr show qos` calls otherwise than `modify qos`."""


class Target(msgspec.Struct, frozen=True):
    """A cluster as Slurm calls it, its ClusterName. SKUs that are not named have theirs in small letters as type.

    `flex_grace_seconds` is how long work on flex may go on after it was called back, in all clusters of a slurmdbd.
    """

    name: str
    gpu_type_by_sku: Mapping[str, str] = {}
    flex_grace_seconds: int = 0

    @property
    def cluster(self) -> str:
        return slurm_cluster(self.name)

    def gpu_types(self, promises: Sequence[PoolPromise]) -> dict[str, str]:
        """The types by SKU that have to be told apart: none where the cluster has only one SKU."""
        skus = sorted({promise.pool.sku for promise in promises})
        if len(skus) < 2:
            return {}
        types = {sku: gpu_type(self.gpu_type_by_sku.get(sku, sku)) for sku in skus}
        count = len(set(types.values()))
        if count < len(skus):
            raise Refused(
                "slurm_bad_gpu_type",
                f"the {len(skus)} SKUs {', '.join(skus)} of one cluster have only {count} types in Slurm",
                next_step="say what each is called there: the Type of its gres.conf",
            )
        return types


class Guarantee(msgspec.Struct, frozen=True):
    """A team's guarantee in one cluster, in GPUs: all, and by type where types are told apart."""

    team: str
    gpus: int
    by_type: Mapping[str, int]

    @property
    def tres(self) -> dict[str, int]:
        return {GPUS: self.gpus, **{f"{GPUS}:{name}": gpus for name, gpus in sorted(self.by_type.items())}}


class Change(msgspec.Struct, frozen=True):
    """How one setting is changed: `sacctmgr modify`, and where there is nothing to modify `add` first.

    `parent` is set by a command of its own: Slurm does nothing at all where one of the words names the parent that the
    account has already.
    """

    entity: str
    name: str
    create: tuple[str, ...]
    change: tuple[str, ...]
    parent: str = ""
    is_made_whole: bool = False
    """Whether what was just added needs no change any more."""
    clears_users: bool = False


def guarantees(promises: Sequence[PoolPromise], target: Target) -> list[Guarantee]:
    """What each team is promised in this cluster, by name of the team."""
    assert len({promise.pool.cluster for promise in promises}) <= 1, "an outlet tells one cluster"
    types = target.gpu_types(promises)
    teams = sorted({team for promise in promises for team in promise.guaranteed})
    return [
        Guarantee(
            team,
            sum(promise.guaranteed.get(team, 0) for promise in promises),
            {types[promise.pool.sku]: promise.guaranteed.get(team, 0) for promise in promises if types},
        )
        for team in teams
    ]


def wanted(promises: Sequence[PoolPromise], target: Target) -> dict[str, str]:
    """The settings that keep these promises."""
    settings = {f"parent/{target.cluster}/{name}": "Parent=root" for name in PARENTS}
    settings |= {qos_setting(name): text for name, text in wanted_qos(promises, target).items()}
    for guarantee in guarantees(promises, target):
        inside = f"team/{target.cluster}/{guaranteed_account(guarantee.team)}"
        beyond = f"team/{target.cluster}/{flex_account(guarantee.team)}"
        settings |= {f"{inside} GrpTRES {name}": str(gpus) for name, gpus in guarantee.tres.items()}
        settings[f"{inside} access"] = _access(is_for_flex=False)
        settings[f"{beyond} Fairshare"] = str(guarantee.gpus)
        settings[f"{beyond} access"] = _access(is_for_flex=True)
    return dict(sorted(settings.items()))


def wanted_qos(promises: Sequence[PoolPromise], target: Target) -> dict[str, str]:
    """The QOS, flex first: the others name it. A job inside a guarantee has to ask for GPUs, else it would hold a node
    and count nothing."""
    grace = {"GraceTime": str(target.flex_grace_seconds)}
    qos = {FLEX_QOS: _qos_text({"Priority": str(FLEX_PRIORITY), "PreemptMode": "requeue", **grace})}
    for tier in Tier:
        inside = {"Priority": str(TIER_PRIORITY[tier]), "Preempt": FLEX_QOS, "MinTRES": f"{GPUS}=1"}
        qos[tier_qos(tier)] = _qos_text(inside)
    for name in sorted(set(target.gpu_types(promises).values())):
        qos[only_qos(name)] = _qos_text({"MinTRES": f"{GPUS}:{name}=1"})
    return qos


def qos_setting(name: str) -> str:
    """What the setting of a QOS is called, so that what others name is set before them; empty where it is not ours."""
    if name == FLEX_QOS:
        return f"qos/beyond {name}"
    if name in TIER_QOS:
        return f"qos/inside {name}"
    return f"qos/only {name}" if name.startswith(only_qos("")) else ""


def found(qos: Iterable[SlurmQos], associations: Sequence[SlurmAssociation], cluster: str) -> Settings:
    """What Slurm has of ours. An account that is closed and a QOS that does nothing count as not there."""
    settings = {}
    for row in qos:
        if (name := qos_setting(row.name)) and (text := _qos_row_text(row)):
            settings[name] = text
    users: dict[str, list[SlurmAssociation]] = {}
    for association in associations:
        if association.user:
            users.setdefault(association.account, []).append(association)
    for association in associations:
        name = association.account
        if association.user:
            continue
        if name in PARENTS:
            settings[f"parent/{cluster}/{name}"] = _words("Parent=" + association.parent, *_limits(association))
        elif team_of(name) is not None and not (association.grp_jobs == 0 and association.grp_submit == 0):
            settings |= _found_team(association, users.get(name, []), f"team/{cluster}/{name}")
    return dict(sorted(settings.items()))


def change_of(step: Step) -> Change:
    """The words that do a step."""
    kind, _, rest = step.name.partition("/")
    if kind == "qos":
        return _change_of_qos(rest.partition(" ")[2], step)
    account, _, attribute = rest.partition("/")[2].partition(" ")
    found_words = _pairs(step.found)
    if kind == "parent":
        clearing = (*_clearing(found_words, "GrpTRES"), *_clearing(found_words, "MaxTRES"))
        return Change("account", account, ("Parent=root",), (*_OPEN, *clearing), parent="root", is_made_whole=True)
    parent, *qos = _access(is_for_flex=is_flex(account)).split(" ")
    create = (parent, *qos, *_CLOSED)
    tres = attribute.removeprefix("GrpTRES ")
    if step.wanted is None and tres.startswith(f"{GPUS}:"):
        return Change("account", account, create, (f"GrpTRES={tres}=-1",))
    if step.wanted is None:
        return Change("account", account, create, _CLOSED)
    if attribute == "Fairshare":
        return Change("account", account, create, (f"Fairshare={step.wanted}",))
    if tres != attribute:
        return Change("account", account, create, (f"GrpTRES={tres}={_number(step.wanted)}",))
    assert attribute == "access", step.name
    clearing = (*_clearing(found_words, "MaxTRES"), *_clearing(found_words, "GrpTRES", always=is_flex(account)))
    has_users = any(key.startswith("user:") for key in found_words)
    return Change(
        "account", account, create, (*qos, *_OPEN, *clearing), parent=parent.partition("=")[2], clears_users=has_users
    )


def account_words(account: str, settings: Settings, cluster: str) -> list[str]:
    """A team's account made whole by one command: parent first, limits of several types in one word.

    Empty where the settings don't have all of it: an account is made open only with its limits.
    """
    prefix = f"team/{cluster}/{account} "
    steps = [Step(name, None, value, Cause.MISSING) for name, value in settings.items() if name.startswith(prefix)]
    if f"{prefix}access" not in settings or (not is_flex(account) and f"{prefix}GrpTRES {GPUS}" not in settings):
        return []
    words: dict[str, str] = {"Parent": change_of(steps[0]).create[0].partition("=")[2]}
    for step in steps:
        for word in change_of(step).change:
            key, _, content = word.partition("=")
            words[key] = f"{words[key]},{content}" if key == "GrpTRES" and key in words else content
    return [f"{key}={content}" for key, content in words.items()]


def limit(name: str, value: str, promises: Sequence[PoolPromise], target: Target) -> Limit | None:
    """The guarantee that a setting with this value means. The total over several SKUs is none: each has its own."""
    account, _, attribute = name.removeprefix(f"team/{target.cluster}/").partition(" ")
    tres = attribute.removeprefix("GrpTRES ")
    team = team_of(account)
    if team is None or is_flex(account) or tres == attribute or not value.isdecimal():
        return None
    types = target.gpu_types(promises)
    by_tres = {f"{GPUS}:{kind}": sku for sku, kind in types.items()} if types else {GPUS: _only_sku(promises)}
    sku = by_tres.get(tres, "")
    return Limit(sku=sku, team=team, gpus=int(value)) if sku else None


def _only_sku(promises: Sequence[PoolPromise]) -> str:
    return promises[0].pool.sku if promises else ""


def _access(*, is_for_flex: bool) -> str:
    """Where an account stands and which QOS it may use. What else restricts its jobs is listed behind, when found."""
    parent, qos, default = (
        (FLEX_PARENT, (FLEX_QOS,), FLEX_QOS) if is_for_flex else (GUARANTEED_PARENT, TIER_QOS, DEFAULT_QOS)
    )
    return _words(f"Parent={parent}", f"QOS={','.join(qos)}", f"DefaultQOS={default}")


def _found_team(association: SlurmAssociation, users: Sequence[SlurmAssociation], name: str) -> dict[str, str]:
    beyond = is_flex(association.account)
    limits = {key: value for key, value in association.grp_tres.items() if _is_gpu(key)}
    extra = [
        f"user:{user.user}={','.join(user.qos)}"
        for user in sorted(users, key=lambda user: (user.user, user.partition))
        if not set(user.qos) <= set(association.qos)
    ]
    access = _words(
        f"Parent={association.parent}",
        f"QOS={','.join(association.qos)}",
        f"DefaultQOS={association.default_qos}",
        *_limits(association, has_gpu_limit=not beyond),
        *dict.fromkeys(extra),
    )
    if beyond:
        return {f"{name} Fairshare": association.fairshare, f"{name} access": access}
    gpus = {f"{name} GrpTRES {key}": value for key, value in {GPUS: UNLIMITED, **limits}.items()}
    return {**gpus, f"{name} access": access}


def _limits(association: SlurmAssociation, *, has_gpu_limit: bool = False) -> list[str]:
    """Limits on jobs and GPUs that we did not ask for."""
    words = []
    if association.grp_jobs is not None:
        words.append(f"GrpJobs={association.grp_jobs}")
    if association.grp_submit is not None:
        words.append(f"GrpSubmitJobs={association.grp_submit}")
    for key, tres in (("GrpTRES", {} if has_gpu_limit else association.grp_tres), ("MaxTRES", association.max_tres)):
        if gpus := [f"{name}={value}" for name, value in sorted(tres.items()) if _is_gpu(name)]:
            words.append(f"{key}={','.join(gpus)}")
    return words


def _is_gpu(tres: str) -> bool:
    return tres == GPUS or tres.startswith(f"{GPUS}:")


def _change_of_qos(name: str, step: Step) -> Change:
    values = {**_QOS_DEFAULTS, **_pairs(step.wanted)}
    before = _pairs(step.found)
    for key in ("MinTRES", "GrpTRES"):
        kept = {part.rpartition("=")[0] for part in values[key].split(",")}
        lost = [tres for tres in _tres_names(before.get(key, "")) if tres not in kept]
        values[key] = ",".join(filter(None, [values[key], *(f"{tres}=-1" for tres in lost)]))
    words = [f"{_QOS_KEYS.get(key, key)}={value}" for key, value in values.items() if value]
    # An empty Preempt= makes Slurm store a QOS without a name, and then refuse whatever names this one.
    gone = [f"Preempt-={before['Preempt']}"] if not values["Preempt"] and before.get("Preempt") else []
    return Change("qos", name, tuple(words), (*words, *gone), is_made_whole=True)


def _qos_row_text(row: SlurmQos) -> str:
    return _qos_text(
        {
            "Priority": str(row.priority),
            "Preempt": ",".join(row.preempt),
            "PreemptMode": row.preempt_mode,
            "GraceTime": str(row.grace_seconds),
            "MinTRES": ",".join(f"{name}={value}" for name, value in sorted(row.min_tres.items())),
            "GrpTRES": ",".join(f"{name}={value}" for name, value in sorted(row.grp_tres.items())),
        }
    )


def _qos_text(values: Mapping[str, str]) -> str:
    """A QOS as what differs from a new one."""
    return _words(
        *(f"{key}={values[key]}" for key, default in _QOS_DEFAULTS.items() if values.get(key, default) != default)
    )


def _words(*words: str) -> str:
    return " ".join(words)


def _pairs(text: str | None) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in (text or "").split(" ") if word)


def _clearing(found_words: Mapping[str, str], key: str, *, always: bool = False) -> list[str]:
    """The word that takes away the limits of a key that were found."""
    names = _tres_names(found_words.get(key, "")) or ([GPUS] if always else [])
    return [f"{key}={','.join(f'{name}=-1' for name in names)}"] if names else []


def _tres_names(text: str) -> list[str]:
    return [part.rpartition("=")[0] for part in text.split(",") if part]


def _number(value: str) -> str:
    return "-1" if value == UNLIMITED else value
