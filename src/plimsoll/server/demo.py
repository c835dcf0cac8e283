"""The scene of a served demo: its people and their roles, a correction half rolled out, a campaign, a run that waits.

Everything is done through the commands that anybody would type. Nothing here is anybody real.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from plimsoll.access.fold import Access
from plimsoll.access.model import Binding, Role
from plimsoll.access.service import grant
from plimsoll.campaigns.fold import Campaigns
from plimsoll.commands.catalog import command
from plimsoll.commands.desk import Desk, at
from plimsoll.errors import PlimsollError
from plimsoll.quota.fold import QuotaBook
from plimsoll.state.keeper import Keeper
from plimsoll.workloads.fold_tables import Workloads

REASON = "the demo"
ACTOR = "demo"
TEAM = "posttraining"
CAMPAIGN = "nic-firmware"
PLAN_SECONDS = 2.0
ROLES = {
    "ada@example.org": (Binding(Role.MEMBER, TEAM),),
    "ines@example.org": (Binding(Role.RPM),),
    "omar@example.org": (Binding(Role.OPERATOR),),
    "noor@example.org": (Binding(Role.OPERATOR),),
    "pia@example.com": (Binding(Role.PARTNER),),
    "root@example.org": (Binding(Role.ADMIN),),
}
WORKLOAD = f"""\
workload: posttrain-42
team: {TEAM}
owner: ada@example.org
where: {{sku: H200, cluster: tiger}}
checkpoint_minutes: 30
restart_minutes: 15
parts:
  - {{name: train, kind: gang, gpus: 352, tier: critical, rank: 1, spare_nodes: 1}}
  - {{name: graders, kind: elastic, replicas: {{min: 4, max: 20, gpus: 8}}, tier: critical, rank: 2}}
"""


def set_scene(keeper: Keeper) -> None:
    """Whatever is not there yet; a demo that was served before is left as it is."""
    for name, bindings in ROLES.items():
        for binding in bindings:
            if binding not in keeper.state().of(Access).bindings_of(name):
                grant(keeper, name, binding, actor=ACTOR, reason=REASON)
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        # A step that is refused leaves the demo without it, and no less useful.
        for step in (_correct, _plan, _submit, _ask):
            with suppress(PlimsollError):
                step(keeper, Path(folder))


def _do(keeper: Keeper, actor: str, words: str, **values: Any) -> Desk:
    desk = Desk(keeper, actor)
    with at(desk):
        command(words).done(**values)
    return desk


def _correct(keeper: Keeper, _folder: Path) -> None:
    """The two painless stages are in force; the two that hurt are still to be decided."""
    if not keeper.state().of(QuotaBook).lines:
        for stage in (1, 2):
            _do(keeper, "ines@example.org", "quota apply", stage=stage, reason=f"{REASON}: stage {stage}")


def _plan(keeper: Keeper, folder: Path) -> None:
    """A campaign from tomorrow on, planned, published and started."""
    if CAMPAIGN in keeper.state().of(Campaigns).runs:
        return
    tomorrow = (keeper.ledger.clock() + timedelta(days=1)).date().isoformat()
    text = _do(keeper, ACTOR, "campaign example", name=CAMPAIGN, start=tomorrow).text
    file = folder / "campaign.yaml"
    file.write_text(text or "", encoding="utf-8")
    _do(keeper, "omar@example.org", "campaign plan", file=file, seconds=PLAN_SECONDS, reason=REASON)
    _do(keeper, "omar@example.org", "campaign publish", name=CAMPAIGN, folder=folder / "published", reason=REASON)
    _do(keeper, "omar@example.org", "campaign start", name=CAMPAIGN, anyway=True, reason=REASON)


def _submit(keeper: Keeper, folder: Path) -> None:
    """The run that everybody asks about."""
    tables = keeper.state().of(Workloads)
    if "posttrain-42" in tables.asked or "posttrain-42" in tables.past:
        return
    file = folder / "workload.yaml"
    file.write_text(WORKLOAD, encoding="utf-8")
    _do(keeper, "ada@example.org", "workload submit", files=[str(file)], reason=REASON)


def _ask(keeper: Keeper, _folder: Path) -> None:
    """A request that waits for the RPM."""
    if not keeper.state().of(QuotaBook).requests:
        values = {"team": TEAM, "gpus": "128", "sku": "H200", "one_island": True, "lasts": "14d"}
        _do(keeper, "ada@example.org", "quota request", **values, reason="the next long run")
