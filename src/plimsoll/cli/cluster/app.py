"""The noun `cluster`; its commands are in the modules beside this one."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Clusters being made: plan, check in, watch, retry, retire.",
)
Name = Annotated[str, typer.Argument(metavar="CLUSTER", help="Its name.")]
StepName = Annotated[str, typer.Argument(metavar="[STEP]", help="The step; else the one that failed.")]
