"""What the loops of a serving process do: the passes that the commands make, with the settings of the commands.

Decides nothing: each pass is its capability's own. Campaigns and clusters keep the roles that their commands have, so
that a command and a server never carry out the same thing at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.marks.model import AtDeadline
from plimsoll.campaigns.run.outside import errands_over
from plimsoll.campaigns.service import run_passes, running_campaigns
from plimsoll.commands.campaign.run import outside as campaign_outside
from plimsoll.commands.desk import Desk, at
from plimsoll.commands.errands import beside, errand_folder
from plimsoll.commands.quota.tell import tell
from plimsoll.commands.quota.ways import Target
from plimsoll.connect.errands import Errands
from plimsoll.connect.prometheus import Prometheus
from plimsoll.errors import PlimsollError, Unavailable
from plimsoll.health.checks import run_checks
from plimsoll.health.service import sweep_now
from plimsoll.incidents.courier import Courier, chat_from, courier_from
from plimsoll.incidents.service import run_pass as run_incidents
from plimsoll.lifecycle.outside import Outside
from plimsoll.lifecycle.providers.settings import outside_of
from plimsoll.lifecycle.service import ROLE as LIFECYCLE_ROLE
from plimsoll.lifecycle.service import operations_over
from plimsoll.lifecycle.service import run_pass as run_lifecycle
from plimsoll.quota.service import run_controller
from plimsoll.rooms import FINDERS
from plimsoll.server.alive import ROLE as DEMO_ROLE
from plimsoll.server.alive import Alive
from plimsoll.server.loops_role import Loop, Turn
from plimsoll.simulate.happenings import EVERY_SECONDS as DEMO_EVERY_SECONDS
from plimsoll.state.keeper import Keeper
from plimsoll.workloads.service import settle_work

ACTOR = "plimsoll"
CAMPAIGN_ROLE = ""
CONTROL_ROLE = "control"
"""In what the loops lead that call nobody outside: they never wait, so that they may wait for each other."""

EVERY_SECONDS: Mapping[str, float] = {
    "health": 10.0,
    "checks": 15.0,
    "quota": 30.0,
    "schedulers": 60.0,
    "workloads": 5.0,
    "campaigns": 5.0,
    "lifecycle": 5.0,
    "incidents": 5.0,
    "papers": 300.0,
    "errands": 3600.0,
    "demo": DEMO_EVERY_SECONDS,
}
ERRANDS_KEPT = timedelta(days=14)
"""So long the output of a command that is over can be read."""


class PassSettings(msgspec.Struct, frozen=True):
    """What the options of the commands say, once for all loops. `every`: another span for some loops, in seconds;
    `leave_out`: loops that this process does not have."""

    dsn: str
    errands: Path
    folder: Path
    """Where a quota file is found."""
    environment: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))
    at_deadline: AtDeadline = AtDeadline.REQUEUE
    push_to: Target | None = None
    prometheus: str = ""
    demo_seed: int | None = None
    """Where the database holds the demo fleet, and is to look alive."""
    every: Mapping[str, float] = {}
    leave_out: Sequence[str] = ()
    errands_kept: timedelta = ERRANDS_KEPT


def settings_of(
    dsn: str, *, errands: Path | None = None, environment: Mapping[str, str] | None = None, **more: Any
) -> PassSettings:
    """The settings that a command with these options would have."""
    known = dict(os.environ) if environment is None else environment
    return PassSettings(dsn, errand_folder(errands, dsn), beside(dsn), known, **more)


def loops_of(settings: PassSettings) -> list[Loop]:
    """All loops, those left out aside."""
    passes: list[tuple[str, str, Callable[[Turn], PlimsollError | None]]] = [
        ("health", CONTROL_ROLE, run_health),
        ("quota", CONTROL_ROLE, run_quota),
        ("workloads", CONTROL_ROLE, run_workloads),
        ("checks", "checks", Checks(settings).run),
        ("campaigns", CAMPAIGN_ROLE, CampaignsRun(settings).run),
        ("lifecycle", LIFECYCLE_ROLE, Lifecycle(settings).run),
        ("incidents", "incidents", Incidents(settings).run),
        ("papers", CONTROL_ROLE, drop_papers),
        ("errands", CONTROL_ROLE, OldErrands(settings).run),
    ]
    if settings.push_to is not None:
        passes.append(("schedulers", "schedulers", Schedulers(settings.push_to).run))
    if settings.demo_seed is not None:
        passes.append(("demo", DEMO_ROLE, Alive(settings.demo_seed).run))
    every = {**EVERY_SECONDS, **settings.every}
    return [Loop(name, role, every[name], run) for name, role, run in passes if name not in settings.leave_out]


def run_health(turn: Turn) -> PlimsollError | None:
    """Feeds fall silent, holds expire, validation completes."""
    sweep_now(turn.keeper, actor=ACTOR, epoch=turn.lead.epoch)
    return None


def run_quota(turn: Turn) -> PlimsollError | None:
    """Grants begin and end, and the controller does what each cluster's mode lets it do."""
    run_controller(turn.keeper, actor=ACTOR, epoch=turn.lead.epoch)
    return None


def run_workloads(turn: Turn) -> PlimsollError | None:
    """What was called back leaves, broken gangs are repaired, what waits starts."""
    settle_work(turn.keeper, actor=ACTOR, epoch=turn.lead.epoch)
    return None


class CampaignsRun:
    """Every campaign that was started is brought as far as it can go."""

    def __init__(self, settings: PassSettings) -> None:
        self._settings = settings

    def run(self, turn: Turn) -> PlimsollError | None:
        names = running_campaigns(turn.keeper.state())
        if not names:
            return None
        known = self._settings
        # Made anew: a cluster's label may have changed since the pass before.
        outside = campaign_outside(turn.keeper, known.dsn, known.errands, known.at_deadline)
        _, troubles = run_passes(turn.keeper, names, actor=ACTOR, outside=outside, epoch=turn.lead.epoch)
        return troubles[0] if troubles else None


class Lifecycle:
    """Every cluster that is being made is brought as far as it can go."""

    def __init__(self, settings: PassSettings) -> None:
        self._settings = settings
        self._outside: Outside | None = None

    def run(self, turn: Turn) -> PlimsollError | None:
        if self._outside is None:  # kept: it knows how many requests were made in this minute
            known = self._settings
            self._outside = outside_of(known.environment, errands=known.errands, folder=known.folder)
        did = run_lifecycle(turn.keeper, self._outside, lead=turn.lead)
        failed = next((each for each in did if each.is_failed), None)
        return None if failed is None else Unavailable("cluster_failed", f"{failed.cluster}: {failed.what}")


class Checks:
    """Nodes that validate are checked by the policy's commands and queries, which may take minutes."""

    def __init__(self, settings: PassSettings) -> None:
        token = settings.environment.get("PLIMSOLL_PROMETHEUS_TOKEN") or None
        self._prometheus = Prometheus(settings.prometheus, bearer_token=token) if settings.prometheus else None

    def run(self, turn: Turn) -> PlimsollError | None:
        run_checks(turn.keeper, actor=ACTOR, prometheus=self._prometheus, epoch=turn.lead.epoch)
        return None


class Schedulers:
    """The schedulers of clusters in mode `enforce` are told what their teams are promised."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def run(self, turn: Turn) -> PlimsollError | None:
        with at(Desk(turn.keeper, ACTOR)):
            told = tell(turn.keeper, self._target, (), is_dry_run=False, epoch=turn.lead.epoch)
        failed = [each for each in told if each.problem]
        if not failed:
            return None
        return Unavailable("scheduler_not_told", f"{failed[0].cluster}: {failed[0].problem}", clusters=len(failed))


class Incidents:
    """What is wrong becomes an incident and ends with its numbers; owners are told, and a chat."""

    def __init__(self, settings: PassSettings) -> None:
        self._environment = settings.environment
        self._chat = chat_from(settings.environment)
        self._keeper: Keeper | None = None
        self._courier: Courier | None = None
        self._epoch: int | None = None

    def run(self, turn: Turn) -> PlimsollError | None:
        self._epoch = turn.lead.epoch
        run_incidents(turn.keeper, FINDERS, turn.now, ACTOR, epoch=turn.lead.epoch)
        if self._keeper is not turn.keeper:
            self._courier = courier_from(
                self._environment, turn.keeper, chat=self._chat, actor=ACTOR, epoch=lambda: self._epoch
            )
            self._keeper = turn.keeper
        if self._courier is not None:
            self._courier.wake()
        return None


def drop_papers(turn: Turn) -> PlimsollError | None:
    """Sessions, links and receipts whose time is over are dropped."""
    turn.keeper.ledger.store.drop_expired(turn.now)
    return None


class OldErrands:
    """What commands left behind that ended long ago is removed, where the ledger knows how they ended."""

    def __init__(self, settings: PassSettings) -> None:
        self._errands, self._kept = Errands(settings.errands), settings.errands_kept

    def run(self, turn: Turn) -> PlimsollError | None:
        state = turn.keeper.state()
        campaigns = [name for run in state.of(Campaigns).runs.values() for name in errands_over(run)]
        before = time.time() - self._kept.total_seconds()
        self._errands.forget_old([*campaigns, *operations_over(state)], before=before)
        return None
