"""`plimsoll health signal` and `health observe …`: how what is seen outside comes in."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from plimsoll.answers import Output
from plimsoll.commands.health.act import Every, seconds_between
from plimsoll.commands.health.app import app
from plimsoll.commands.health.report import fed_answer
from plimsoll.commands.options import Db, DryRun, Format, current_actor, open_database
from plimsoll.commands.output import show, show_error
from plimsoll.connect.kubernetes import DOCUMENT_BYTES_MAX, parse_nodes
from plimsoll.connect.prometheus import TIMEOUT_SECONDS, Prometheus
from plimsoll.connect.slurm import Slurm
from plimsoll.errors import NotFound, PlimsollError, Refused, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.health.feeds import Fed, observe_kubernetes, observe_prometheus, observe_slurm, steer_slurm
from plimsoll.health.intake import make_signal, near_nodes, read_lines
from plimsoll.health.service import observe, sweep_now
from plimsoll.health.signals import SignalKind
from plimsoll.state.keeper import Keeper
from plimsoll.times import parse_moment, utc_now

observe_app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Take in what others see: Prometheus, Slurm, Kubernetes, or signals as JSON lines.",
)
app.add_typer(observe_app, name="observe")

Feed = Annotated[str, typer.Option("--feed", metavar="NAME", help="What to call this feed; one name a source.")]
At = Annotated[str, typer.Option("--at", metavar="TIME", help="When it was seen; else now.", show_default=False)]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, max=600.0, help="Seconds before it is given up.")]


_NEXT_STEPS = {
    "signal_from_future": "look at the clock of whoever saw it",
    "signal_too_old": "write it into history.csv: plimsoll fleet import DIR",
}


@app.command("signal")
def signal_command(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that it was seen on.")],
    kind: Annotated[SignalKind, typer.Argument(metavar="KIND", help=", ".join(SignalKind))],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The XID code, the check, the provider's event.")] = "",
    ok: Annotated[bool, typer.Option("--ok", help="A good signal: it passed, it is there, it is over.")] = False,
    value: Annotated[float | None, typer.Option("--value", help="A reading.", show_default=False)] = None,
    detail: Annotated[str, typer.Option("--detail", metavar="TEXT", help="More, in words.", show_default=False)] = "",
    at: At = "",
    feed: Feed = "cli",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Report one signal about a node, and see what it leads to: plimsoll health signal tiger-0001 xid 79"""
    now = utc_now()
    keeper = open_database(context, db)
    fleet = keeper.state().of(Fleet)
    if node not in fleet.nodes:
        near = near_nodes(node, fleet)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFound("unknown_node", f"there is no node {node[:200]!r}{hint}", next_step="plimsoll fleet nodes")
    try:
        moment = parse_moment(at, now=now) if at else now
        signal = make_signal(node, kind, name, moment, value=value, is_ok=ok, detail=detail)
    except ValueError as error:
        raise UsageError("bad_signal", str(error), next_step="plimsoll health signal --help") from None
    observed = observe(keeper, [signal], feed=feed, actor=current_actor(), is_dry_run=dry_run)
    if observed.rejections:
        rejection = observed.rejections[0]
        next_step = _NEXT_STEPS.get(rejection.code, f"plimsoll health show {node}")
        raise Refused(rejection.code, rejection.message, next_step=next_step, node=node)
    notes = []
    if observed.ignored:
        notes.append(f"the policy has no use for {kind} {name}: plimsoll health policy show")
    show(fed_answer(Fed(observed, notes), output, is_dry_run=dry_run), output)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A file, or standard input for `-`."""
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError("unreadable", f"{path}: {error.strerror}", next_step="give a file, or - for a pipe") from None


@observe_app.command("signals")
def signals_command(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="FILE|-", help="One JSON object a line.")],
    feed: Feed = "signals",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Take signals in: {"node": "tiger-0001", "kind": "xid", "name": "79", "at": "2026-01-05T11:00Z"}

    Also: "ok": true for a good one, "value" for a reading, "detail" for words. Without "at" it is now.
    """
    with _opened(path) as file:
        signals = read_lines(file, source="standard input" if path == "-" else path, now=utc_now())
    keeper = open_database(context, db)
    observed = observe(keeper, signals, feed=feed, actor=current_actor(), is_dry_run=dry_run)
    show(fed_answer(Fed(observed, []), output, is_dry_run=dry_run), output)


@observe_app.command("kubernetes")
def kubernetes_command(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="FILE|-", help="What kubectl get nodes -o json prints.")],
    feed: Feed = "kubernetes",
    at: At = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Take a list of Kubernetes' nodes in: kubectl get nodes -o json | plimsoll health observe kubernetes -"""
    with _opened(path) as file:
        text = file.read(DOCUMENT_BYTES_MAX + 1)
    nodes = parse_nodes(text, source="standard input" if path == "-" else path)
    keeper = open_database(context, db)
    moment = parse_moment(at, now=utc_now()) if at else None
    fed = observe_kubernetes(keeper, nodes, feed=feed, actor=current_actor(), at=moment, is_dry_run=dry_run)
    show(fed_answer(fed, output, is_dry_run=dry_run), output)


@observe_app.command("prometheus")
def prometheus_command(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="http://HOST:9090; a token in PLIMSOLL_PROMETHEUS_TOKEN.")],
    feed: Annotated[
        str,
        typer.Option("--feed", metavar="NAME", help="What to call this feed.", show_default="prometheus and its URL"),
    ] = "",
    timeout: Timeout = TIMEOUT_SECONDS,
    every: Every = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Ask a Prometheus server the queries of the policy (`plimsoll health policy show`) and judge the answers."""
    token = os.environ.get("PLIMSOLL_PROMETHEUS_TOKEN") or None
    server = Prometheus(url, timeout_seconds=timeout, bearer_token=token)
    name = feed or f"prometheus {server.where}"
    keeper = open_database(context, db)

    def once() -> Fed:
        return observe_prometheus(keeper, server, feed=name, actor=current_actor(), is_dry_run=dry_run)

    _again_and_again(keeper, once, every, output, is_dry_run=dry_run)


@observe_app.command("slurm")
def slurm_command(
    context: typer.Context,
    config: Annotated[
        str, typer.Option("--config", metavar="FILE", help="slurm.conf, if not the usual one.", show_default=False)
    ] = "",
    push: Annotated[
        bool, typer.Option("--push", help="Also drain there what is out of service here, and resume what is back.")
    ] = False,
    feed: Feed = "slurm",
    timeout: Timeout = TIMEOUT_SECONDS,
    every: Every = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Take Slurm's node states in, operators' drains as their holds; with --push steer it, too."""
    slurm = Slurm(config=config or None, timeout_seconds=timeout)
    keeper = open_database(context, db)

    def once() -> Fed:
        fed = observe_slurm(keeper, slurm, feed=feed, actor=current_actor(), is_dry_run=dry_run)
        if not push:
            return fed
        steered = steer_slurm(keeper, slurm, feed=feed, actor=current_actor(), is_dry_run=dry_run)
        return msgspec.structs.replace(fed, steered=steered)

    _again_and_again(keeper, once, every, output, is_dry_run=dry_run)


def _again_and_again(keeper: Keeper, once: Callable[[], Fed], every: str, output: Output, *, is_dry_run: bool) -> None:
    """Once, or until Ctrl-C: then a feed that fails is said and tried again, and time does its work in between."""
    if not every:
        show(fed_answer(once(), output, is_dry_run=is_dry_run), output)
        return
    seconds = seconds_between(every)
    while True:
        _go_on(lambda: show(fed_answer(once(), output, is_dry_run=is_dry_run), output))
        if not is_dry_run:
            _go_on(lambda: sweep_now(keeper, actor=current_actor()))
        time.sleep(seconds)


def _go_on(step: Callable[[], object]) -> None:
    """Do something, or say why it could not be done now. Wrong words would be wrong the next time, too."""
    try:
        step()
    except UsageError:
        raise
    except PlimsollError as error:
        show_error(error, [])


@app.command("listen")
def listen_command(
    context: typer.Context,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any that is free.")] = 9105,
    db: Db = "",
) -> None:
    """Take signals over HTTP until Ctrl-C: curl --data-binary @signals.jsonl http://127.0.0.1:9105/api/v1/signals

    Others than this machine need the token in PLIMSOLL_SIGNALS_TOKEN (Authorization: Bearer TOKEN).
    """
    from plimsoll.commands.health.listener import PATH, SignalServer

    keeper = open_database(context, db)
    token = os.environ.get("PLIMSOLL_SIGNALS_TOKEN", "")
    with SignalServer(keeper, host=host, port=port, token=token) as server:
        address, number = server.server_address[:2]
        typer.echo(f"listening: POST http://{address!s}:{number}{PATH}")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
