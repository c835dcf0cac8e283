"""The noun `quota`; its commands are in the modules beside this one."""

from __future__ import annotations

import typer

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="What is promised: the load line, guarantees, flex, requests.",
)
