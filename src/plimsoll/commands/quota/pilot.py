"""`plimsoll quota pilot`: is a cluster ready to be the first whose quota follows its health?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import Db, Format, current_actor, open_database
from plimsoll.commands.output import progress, show
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.ways import Target, outlet_by_settings
from plimsoll.commands.quota.words import PolicyWord, policy_meant
from plimsoll.errors import PlimsollError
from plimsoll.health.service import feeds_heard
from plimsoll.quota.control import modes
from plimsoll.quota.fold import QuotaBook
from plimsoll.quota.names import check_cluster
from plimsoll.quota.outlets.model import Cause, Step
from plimsoll.quota.outlets.push import push
from plimsoll.quota.pilot import Check, Finding, pilot
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import utc_now
from plimsoll.workloads.fold_tables import Workloads

OWNER_LABEL = "owner"


@app.command("pilot")
def pilot_command(
    context: typer.Context,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The cluster to begin with.")],
    outlet: Annotated[
        Target | None,
        typer.Option("--outlet", help="Ask its scheduler for drift, by the settings PLIMSOLL_….", show_default=False),
    ] = None,
    policy: PolicyWord = "",
    db: Db = "",
    output: Format = Output.TABLE,
) -> None:
    """Say whether a cluster is ready for mode `enforce`, and what is missing. Exit 1 where something is."""
    with progress("looking"):
        keeper = open_database(context, db)
        state = keeper.state()
        check_cluster(state, cluster)
        unowned, count = _unowned(state, cluster)
        drift, problem = _drift(keeper, outlet, cluster) if outlet else (None, "")
        findings = pilot(
            state,
            cluster,
            policy_meant(state, policy),
            now=utc_now(),
            heard=feeds_heard(keeper.ledger.store),
            unowned=unowned,
            work_count=count,
            drift=drift,
        )
    if problem:
        findings = [*findings[:-1], Finding(Check.DRIFT, False, problem, f"plimsoll quota push {outlet} {cluster}")]
    missing = [finding for finding in findings if not finding.is_met]
    heading = (
        f"{cluster} is ready" if not missing else f"{cluster} is not ready: {len(missing)} of {len(findings)} missing"
    )
    rows = [(str(each.check), each.is_met, each.found, each.next_step) for each in findings]
    notes = [] if missing else [f"next: plimsoll quota mode {cluster} enforce"]
    document = {
        "cluster": cluster,
        "ready": not missing,
        "mode": modes(state)[cluster],
        "checks": [msgspec.to_builtins(each) for each in findings],
    }
    show(Answer(document, [Table(("need", "met", "found", "next"), rows)], heading, notes), output)
    if missing:
        raise typer.Exit(1)


def _unowned(state: State, cluster: str) -> tuple[list[str], int]:
    """Running work of a cluster that names no owner, by its own label or its quota's; and how much there is."""
    book = state.of(QuotaBook)
    owned_teams = {key.team for key, quota in book.quotas.items() if quota.labels.get(OWNER_LABEL)}
    work = [each for _, each in sorted(state.of(Workloads).workloads.items()) if each.cluster == cluster]
    unowned = [
        each.id
        for each in work
        if each.team not in owned_teams and not any(part.labels.get(OWNER_LABEL) for part in each.parts)
    ]
    return unowned, len(work)


def _drift(keeper: Keeper, outlet: Target, cluster: str) -> tuple[Sequence[Step] | None, str]:
    """What was changed by hand in the scheduler; or why it could not be asked."""
    try:
        told = outlet_by_settings(outlet, cluster)
        if not any(key.cluster == cluster for key in keeper.state().of(QuotaBook).lines):
            told.read()  # nothing was ever told, so nothing can have been changed; but it must answer
            return [], ""
        pushed = push(keeper, told, cluster, actor=current_actor(), is_dry_run=True)
    except PlimsollError as error:
        return None, f"{outlet} could not be asked: {error.message}"
    return [each.step for each in pushed.outcomes if each.step.cause is Cause.DRIFT], ""
