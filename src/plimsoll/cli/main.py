"""The `plimsoll` command. Nouns are loaded when they are asked for, so that `--help` is quick."""

from __future__ import annotations

import difflib
import importlib
import io
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from plimsoll import __version__
from plimsoll.errors import PlimsollError, UsageError

NOUNS = {
    "demo": "Load the demo fleet and show it.",
    "fleet": "What exists: import, export, show, nodes, clusters, map.",
    "health": "What works: now, over time, and next week.",
    "quota": "What is promised: the load line, guarantees, flex, requests.",
    "workload": "Who runs where: submit, see, change, stop; who of a team uses what.",
    "why": "Why can't I use my quota? For a team, a workload, a node, the fleet.",
    "incident": "What is wrong, what it came to, and what owners were told.",
    "campaign": "Planned work over many clusters: plan, prove, publish, run, replan.",
    "cluster": "Clusters being made: plan, check in, watch, retry, retire.",
    "simulate": "The same decisions on a virtual clock: replay a trace.",
    "access": "Who may do what: roles, tokens, and why somebody may not.",
    "audit": "The memory: read the log, publish its head, prove it whole.",
    "serve": "The pages and the API, for everybody, at one address.",
}
"""Each is the module `plimsoll.commands.NAME` with a Typer `app`. The texts stand here: help loads none of them."""
OF_A_TERMINAL = ("demo", "serve")
"""Nouns that only a terminal has; they are modules of this room."""


class _Nouns(TyperGroup):
    """A group whose commands are imported on demand."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(NOUNS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in NOUNS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], NOUNS, n=1)
            ctx.fail(f"there is no command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in NOUNS:
            return None
        room = "cli" if cmd_name in OF_A_TERMINAL else "commands"
        module = importlib.import_module(f"plimsoll.{room}.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        top = ctx.find_root()
        if (url := top.params.get("_server")) and not ctx.resilient_parsing:
            source = top.get_parameter_source("_server")
            _send(command, cmd_name, url, is_typed=source is None or source.name != "ENVIRONMENT")
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(NOUNS.items()))


root = typer.Typer(
    cls=_Nouns,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 refused or not possible, 2 wrong usage. First steps: plimsoll demo",
)


def _send(command: Any, words: str, url: str, *, is_typed: bool) -> None:
    """Every command below is sent to the server instead of being done here. A database that is typed counts more than a
    server that the environment names."""
    inner = getattr(command, "commands", None)
    for verb, leaf in (inner or {}).items():
        _send(leaf, f"{words} {verb}", url, is_typed=is_typed)
    if inner is None:
        done_here = command.callback

        def callback(**values: Any) -> None:
            from plimsoll.cli.remote import call, server_of

            if values.get("db") and not is_typed:
                done_here(**values)
                return
            if values.get("db"):
                raise UsageError("bad_usage", "--server and --db exclude each other", next_step="leave out one of them")
            call(server_of(url), words, values)

        command.callback = callback


def _to_front(words: list[str]) -> list[str]:
    """`--server URL` may stand anywhere before a bare `--`."""
    end = words.index("--") if "--" in words else len(words)
    for place, word in enumerate(words[:end]):
        if word == "--server" and place + 1 < end:
            return [*words[place : place + 2], *words[:place], *words[place + 2 :]]
        if word.startswith("--server="):
            return [word, *words[:place], *words[place + 1 :]]
    return words


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"plimsoll {__version__}")
        raise typer.Exit


@root.callback()
def _root(
    context: typer.Context,
    db: Annotated[
        str, typer.Option("--db", metavar="URL", envvar="PLIMSOLL_DB", help="The database, for any command.")
    ] = "",
    _server: Annotated[
        str,
        typer.Option(
            "--server",
            metavar="URL",
            envvar="PLIMSOLL_SERVER",
            help="A server to send the command to, with PLIMSOLL_TOKEN; for any command.",
        ),
    ] = "",
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The load line for a GPU fleet: promise only what the healthy nodes can carry."""
    context.obj = db


def main(arguments: list[str] | None = None) -> None:
    """The entry point: runs, and turns errors into words and exit codes."""
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no reason to fail
    try:
        code = typer.main.get_command(root).main(_to_front(words), prog_name="plimsoll", standalone_mode=False)
    except PlimsollError as error:
        _fail(error, words)
    except Exception as error:
        # What Typer says of wrong words has no public class in all of its versions; anything else is unexpected.
        if hasattr(error, "format_message"):
            _fail(_usage_error(error), words)
        if sys.flags.dev_mode:
            raise
        _fail(_unexpected(error), words)
    sys.exit(code)


def _fail(error: PlimsollError, words: list[str]) -> NoReturn:
    from plimsoll.commands.output import show_error

    show_error(error, words)
    sys.exit(error.exit_code)


def _unexpected(error: Exception) -> PlimsollError:
    """A bug, or a ledger that was changed by hand and now says what can't be. `python -X dev` shows all of it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
    return PlimsollError(
        "unexpected",
        f"unexpected {type(error).__name__} in {place}: {str(error)[:200]}",
        next_step="plimsoll audit verify; if the ledger is whole, this is a bug: please report it with this line",
    )


def _usage_error(error: Any) -> UsageError:
    message: str = error.format_message()
    if message.startswith("Usage:"):  # a noun without its verb: its help
        return UsageError("bad_usage", f"a command is missing\n\n{message.strip()}")
    command = error.ctx.command_path if getattr(error, "ctx", None) else "plimsoll"
    return UsageError("bad_usage", message.rstrip("."), next_step=f"{command} --help")
