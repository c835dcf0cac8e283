"""The noun `workload`; its commands are in the modules beside this one."""

from __future__ import annotations

import typer

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Who runs where: submit, see, change, stop; who of a team uses what.",
)
