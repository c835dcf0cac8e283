"""`plimsoll health policy show|check|apply`: what signals lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.health.app import app
from plimsoll.commands.options import (
    AsOf,
    Db,
    DryRun,
    Format,
    Reason,
    current_actor,
    open_database,
    read_text,
    state_as_of,
)
from plimsoll.commands.output import show
from plimsoll.commands.written import DRY_RUN
from plimsoll.errors import NotFound
from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.health.fold import Health
from plimsoll.health.policy import Policy, parse_policy
from plimsoll.health.service import put_policy_in_force

policy_app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="What signals lead to: show the policy, check a file, put it in force.",
)
app.add_typer(policy_app, name="policy")

File = Annotated[Path, typer.Argument(metavar="FILE", help="A policy file; begin with a copy of the one in force.")]


@policy_app.command("show")
def show_command(context: typer.Context, db: Db = "", output: Format = Output.TABLE, as_of: AsOf = "") -> None:
    """Print the policy in force, as a file to copy and change."""
    try:
        text = state_as_of(open_database(context, db), as_of).of(Health).policies.get("policy")
    except NotFound:
        text = None  # no database yet: the default would be in force
    is_default = text is None
    policy = parse_policy(text or DEFAULT_POLICY, source="the policy in force")
    document = {
        "policy": policy.name,
        "is_default": is_default,
        "xid_profile": policy.xid_profile,
        "text": text or DEFAULT_POLICY,
    }
    show(Answer(document, [_rules(policy)] if output is Output.CSV else [], (text or DEFAULT_POLICY).rstrip()), output)


def _rules(policy: Policy) -> Table:
    rows = [
        (rule.kind, rule.name, rule.at_least, rule.count, rule.within, rule.lasting, rule.action, rule.owner)
        for rule in policy.rules
    ]
    return Table(("signal", "name", "at_least", "count", "within", "lasting", "do", "owner"), rows)


@policy_app.command("check")
def check_command(path: File, output: Format = Output.TABLE) -> None:
    """Say whether a policy file is good, and if not, where."""
    policy = parse_policy(read_text(path, noun="health"), source=str(path))
    document = {"policy": policy.name, "xid_profile": policy.xid_profile, "rules": len(policy.rules)}
    heading = f"{path}: good; {len(policy.rules)} rules, XID profile {policy.xid_profile}"
    show(Answer(document, [_rules(policy)], heading, [f"next: plimsoll health policy apply {path}"]), output)


@policy_app.command("apply")
def apply_command(
    context: typer.Context,
    path: File,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Put a policy in force from now on. All of its text goes into the log."""
    keeper = open_database(context, db)
    policy, revision = put_policy_in_force(
        keeper,
        read_text(path, noun="health"),
        source=str(path),
        actor=current_actor(),
        reason=reason,
        is_dry_run=dry_run,
    )
    document = {"policy": policy.name, "xid_profile": policy.xid_profile, "dry_run": dry_run, "revision": revision}
    heading = f"{policy.name} would be in force" if dry_run else f"{policy.name} is in force"
    notes = [DRY_RUN] if dry_run else [f"revision {revision}"]
    show(Answer(document, [], heading, notes), output)
