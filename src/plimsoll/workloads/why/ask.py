"""`why --if gpus=352 sku=H200 island`: something that nobody submitted yet, as a workload. Pure.

Without a team it is asked for capacity alone: as flex, of whoever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from plimsoll.errors import Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.selector import Scope
from plimsoll.quota.model import Kind, Tier
from plimsoll.quota.names import check_gpus, check_team, find_pools, known_teams
from plimsoll.quota.policy import Policy
from plimsoll.state.state import State
from plimsoll.words import near
from plimsoll.workloads.changes import WorkloadSubmitted
from plimsoll.workloads.file import HOURS_MAX, check_workload
from plimsoll.workloads.model import PartSpec, RunsAs, Spec
from plimsoll.workloads.turn import Turn
from plimsoll.workloads.why.model import WorkWhy
from plimsoll.workloads.why.waiting import explain_waiting

NAME = "it"
"""What a workload that does not exist is called; a workload of that name is put aside on the what-if."""
ISLAND = "island"
KEYS = ("gpus", "sku", "cluster", "area", "team", "tier", "hours", "owner")
EXAMPLE = "plimsoll why --if gpus=352 sku=H200 island"


def parse_if(words: Sequence[str]) -> dict[str, str]:
    """The terms by key; `island` alone stands for all in one island."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if word == ISLAND:
            key, value = ISLAND, "yes"
        elif key not in KEYS or not equals or not value:
            hint = near(key, [*KEYS, ISLAND])
            raise UsageError(
                "bad_if",
                f"{word[:60]!r} is no term of --if{hint}",
                next_step=f"{', '.join(KEYS)} or {ISLAND}: {EXAMPLE}",
            )
        if key in found:
            raise UsageError("bad_if", f"{key} is given twice", next_step=EXAMPLE)
        found[key] = value
    for key in ("gpus", "sku"):
        if key not in found:
            raise UsageError("bad_if", f"--if says no {key}", next_step=EXAMPLE)
    if "cluster" in found and "area" in found:
        raise UsageError("bad_if", "cluster and area exclude each other", next_step="leave out one of them")
    return found


def spec_of(state: State, terms: dict[str, str]) -> Spec:
    """The workload that is meant; refuses what no cluster could ever carry."""
    gpus = check_gpus(_number(terms["gpus"], "gpus"))
    sku, team = terms["sku"], terms.get("team", "")
    if team:
        check_team(state, team)
    pools = find_pools(state, sku, cluster=terms.get("cluster", ""), area=terms.get("area", ""))
    tier = terms.get("tier", Tier.MID.value)
    if tier not in list(Tier):
        raise UsageError(
            "bad_tier", f"there is no tier {tier[:40]!r}{near(tier, list(Tier))}", next_step=", ".join(Tier)
        )
    where = [("sku", (sku,)), *((key, (terms[key],)) for key in ("cluster", "area") if key in terms)]
    size = math.gcd(gpus, *(state.of(Fleet).pools[pool].gpus_per_node for pool in pools))
    if ISLAND in terms:
        part = PartSpec("gang", Kind.GANG, Tier(tier), 1, gpus)
    else:
        part = PartSpec("replicas", Kind.ELASTIC, Tier(tier), 1, size, least=gpus // size, most=gpus // size)
    spec = Spec(
        NAME,
        team,
        Scope(tuple(where)),
        (part,),
        owner=terms.get("owner", ""),
        runs_as=RunsAs.ANY if team else RunsAs.FLEX,
        hours=_hours(terms["hours"]) if "hours" in terms else 0.0,
    )
    teams = known_teams(state)
    if teams:  # whether it could ever fit is nothing that depends on the team
        try:
            check_workload(state, msgspec.structs.replace(spec, team=team or min(teams)))
        except Refused as error:  # it has parts with names only because a workload must
            says = error.message.replace(f"gang {part.name} needs", f"{NAME} needs")
            raise Refused(error.code, says, next_step=error.next_step, **error.fields) from error
    return spec


def _number(text: str, what: str) -> int:
    cleaned = text.replace(",", "").replace("_", "")
    if not cleaned.isascii() or not cleaned.isdigit() or len(cleaned) > 12:
        raise UsageError("bad_gpus", f"{what}={text[:40]} is no number of GPUs", next_step=EXAMPLE)
    return int(cleaned)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0.01 <= hours <= HOURS_MAX:
        raise UsageError("bad_hours", f"hours={text[:40]} is no duration", next_step=f"0.01 to {HOURS_MAX:,} hours")
    return hours


def explain_if(state: State, spec: Spec, *, now: datetime, grace: timedelta, policy: Policy) -> WorkWhy:
    """The answer for something that was not submitted. The state is left as it was."""
    with state.what_if():
        turn = Turn(state, now)
        name = spec.name
        while name in turn.work.asked or name in turn.work.workloads:
            name += "_"  # ends: there are only so many workloads
        named = msgspec.structs.replace(spec, name=name)
        turn.do(WorkloadSubmitted(named))
        return explain_waiting(state, name, now=now, grace=grace, policy=policy, is_hypothetical=True)
