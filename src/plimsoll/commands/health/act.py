"""`plimsoll health set|hold|release|tick|breaker|sweep`: what people do to nodes."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

from plimsoll.answers import Answer, Output
from plimsoll.commands.health.app import app
from plimsoll.commands.health.report import outcome_answer, swept_answer
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, open_database, parse_span
from plimsoll.commands.output import show
from plimsoll.connect.prometheus import Prometheus
from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Node, Service
from plimsoll.health.acts import (
    Acting,
    Decision,
    Setting,
    holders,
    place_hold,
    release_hold,
    reset_breaker,
    set_service,
    tick_check,
)
from plimsoll.health.checks import run_checks
from plimsoll.health.facts import AUTOMATION, HELD_SERVICES, Hold, Owner
from plimsoll.health.fold import Health
from plimsoll.health.service import act, find_targets, sweep_now
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_moment, utc_now

HOLD_ID_MAX = 100
EVERY_MIN, EVERY_MAX = timedelta(seconds=1), timedelta(days=1)
NEXT_TIME = "give a span from now such as 4h, or a later time such as 2026-01-05T11:00Z"

Decide = Callable[[State, Acting], Decision]

Targets = Annotated[
    list[str],
    typer.Argument(metavar="NODE|FIELD=VALUE", help="Nodes by name, or a filter: cluster=tiger, island=x, colo=y."),
]
Until = Annotated[
    str,
    typer.Option("--until", metavar="SPAN|TIME", help="When the hold expires: 4h, or a time.", show_default=False),
]
Expected = Annotated[
    str,
    typer.Option("--expected", metavar="SPAN|TIME", help="When the nodes are expected back.", show_default=False),
]
Every = Annotated[
    str,
    typer.Option("--every", metavar="SPAN", help="Again and again until Ctrl-C, so long apart.", show_default=False),
]


def moment_ahead(text: str, now: datetime) -> datetime | None:
    """A moment in the future, where one is given."""
    if not text:
        return None
    moment = moment_from_now(text, now)
    if moment <= now:
        raise UsageError("bad_time", f"{text!r} is not in the future", next_step=NEXT_TIME)
    return moment


def moment_from_now(text: str, now: datetime) -> datetime:
    """A span from now, or a time."""
    try:
        return now + span if (span := parse_span(text)) is not None else parse_moment(text, now=now)
    except (UsageError, OverflowError):
        raise UsageError("bad_time", f"{text[:100]!r} is not a time", next_step=NEXT_TIME, value=text[:100]) from None


def needs_reason(reason: str) -> None:
    """Refuse what concerns others without a word why."""
    if not reason.strip():
        message = "say why: whoever misses these nodes will ask"
        raise UsageError("reason_missing", message, next_step="--reason TEXT")


def seconds_between(text: str) -> float:
    """How long to wait between two runs."""
    span = parse_span(text)
    if span is None or not EVERY_MIN <= span <= EVERY_MAX:
        raise UsageError("bad_usage", f"--every {text[:40]!r} is not a span of 1s to 1d", next_step="--every 60s")
    return span.total_seconds()


class _Act:
    """One act on some nodes: carried out on them as they are when it is committed."""

    def __init__(
        self, keeper: Keeper, names: Collection[str], reason: str, output: Output, *, is_dry_run: bool
    ) -> None:
        self._keeper, self._names, self._reason = keeper, names, reason
        self._output, self._is_dry_run = output, is_dry_run

    def run(self, decide: Decide, *, verb: str) -> None:
        outcome, revision = act(
            self._keeper,
            decide,
            actor=current_actor(),
            reason=self._reason,
            names=self._names,
            is_dry_run=self._is_dry_run,
        )
        count = len(self._names)
        answer = outcome_answer(outcome, revision, self._output, verb=verb, count=count, is_dry_run=self._is_dry_run)
        show(answer, self._output)

    def nodes(self, state: State) -> list[Node]:
        return [state.of(Fleet).nodes[name] for name in self._names]


def _act_on(keeper: Keeper, targets: Sequence[str], reason: str, output: Output, *, is_dry_run: bool) -> _Act:
    names = [node.id for node in find_targets(keeper.state(), targets, now=utc_now())]
    return _Act(keeper, names, reason, output, is_dry_run=is_dry_run)


def _scope(words: Sequence[str]) -> str:
    return " ".join(words)[:200]


@app.command("set")
def set_command(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="NODE|FIELD=VALUE… SERVICE", help="Which nodes, and the service they go to."),
    ],
    reason: Reason = "",
    owner: Annotated[Owner | None, typer.Option("--owner", help="Whose move it is then.", show_default=False)] = None,
    expected: Expected = "",
    until: Until = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Move nodes: quarantined, draining, maintenance, repair; then validating, and in_service when the checks passed.

    Out of service is a hold of yours; `validating` ends it. Whole clusters, islands or colos go in one act:
    plimsoll health set cluster=tiger quarantined --reason "cooling fails"
    """
    services = [word for word in words if word in list(Service)]
    targets = [word for word in words if word not in services]
    if len(services) != 1 or not targets:
        raise _bad_words(services, targets)
    service, now = Service(services[0]), utc_now()
    if service in (*HELD_SERVICES, Service.RETIRED):
        needs_reason(reason)
    given = [option for option, value in (("--owner", owner), ("--expected", expected), ("--until", until)) if value]
    if given and service not in HELD_SERVICES:
        message = f"{', '.join(given)}: only nodes that are held out of service have that, not {service} ones"
        raise UsageError("bad_usage", message, next_step="leave it out")
    setting = Setting(service, owner, moment_ahead(expected, now), moment_ahead(until, now), _scope(targets))
    doing = _act_on(open_database(context, db), targets, reason, output, is_dry_run=dry_run)
    doing.run(lambda state, acting: set_service(state, doing.nodes(state), setting, acting), verb=f"set to {service}")


def _bad_words(services: Sequence[str], targets: Sequence[str]) -> UsageError:
    if not services and targets:
        near = difflib.get_close_matches(targets[-1], [service.value for service in Service], n=1, cutoff=0.7)
        message = f"{targets[-1]!r} is no service" + (f"; did you mean {near[0]!r}?" if near else "")
    elif not targets:
        message = "say which nodes: by name, or by a filter such as cluster=tiger"
    else:
        message = f"nodes go to one service, not to {len(services)}: {', '.join(services)}"
    return UsageError("bad_usage", message, next_step=f"plimsoll health set NODE {'|'.join(Service)}")


@app.command("hold")
def hold_command(
    context: typer.Context,
    targets: Targets,
    hold_id: Annotated[str, typer.Option("--id", metavar="HOLD", help="Its name; the same again changes it.")],
    reason: Reason = "",
    service: Annotated[
        Service, typer.Option("--service", help="draining, quarantined, maintenance or repair.")
    ] = Service.QUARANTINED,
    until: Until = "",
    expected: Expected = "",
    exclusive: Annotated[bool, typer.Option("--exclusive", help="You work on them; nobody else may.")] = False,
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Hold nodes out of service. Holds stack; a node returns when its last one ends, through validation."""
    needs_reason(reason)
    now = utc_now()
    if service not in HELD_SERVICES:
        next_step = f"--service {'|'.join(HELD_SERVICES)}"
        raise UsageError("bad_usage", f"no hold keeps a node {service}", next_step=next_step)
    is_good = len(hold_id.strip()) > 0 and len(hold_id) <= HOLD_ID_MAX and hold_id.isprintable()
    if not is_good or hold_id.startswith(f"{AUTOMATION}:"):
        message = f"{hold_id[:HOLD_ID_MAX]!r} can't name a hold"
        raise UsageError("bad_usage", message, next_step="--id rack-12-recabling")
    hold = Hold(
        id=hold_id,
        owner=current_actor(),
        service=service,
        reason=reason,
        placed_at=now,
        expires_at=moment_ahead(until, now),
        is_exclusive=exclusive,
        scope=_scope(targets),
        expected_return=moment_ahead(expected, now),
    )
    doing = _act_on(open_database(context, db), targets, reason, output, is_dry_run=dry_run)
    doing.run(lambda state, acting: place_hold(state, doing.nodes(state), hold, acting), verb=f"held by {hold_id!r}")


@app.command("release")
def release_command(
    context: typer.Context,
    hold_id: Annotated[str, typer.Argument(metavar="HOLD", help="The id of the hold.")],
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="NODE|FIELD=VALUE", help="Only on these nodes; else on all it is on.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also a hold that is not yours; say why.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """End a hold, on all nodes that it is on. Others' holds stay; a node without any begins to validate."""
    if force:
        needs_reason(reason)
    keeper = open_database(context, db)
    state = keeper.state()
    names = [node.id for node in find_targets(state, targets, now=utc_now())] if targets else None
    affected = [node.id for node in holders(state, hold_id, names)]

    def decide(current: State, acting: Acting) -> Decision:
        return release_hold(current, hold_id, acting, names=names, at=acting.now, is_forced=force)

    why = reason or f"released by {current_actor()}"
    _Act(keeper, affected, why, output, is_dry_run=dry_run).run(decide, verb=f"released from {hold_id!r}")


@app.command("tick")
def tick_command(
    context: typer.Context,
    check: Annotated[str, typer.Argument(metavar="CHECK", help="The name of the check in the policy.")],
    targets: Targets,
    failed: Annotated[bool, typer.Option("--failed", help="It did not pass: the node is quarantined again.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also one that no person answers; say why.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Answer a check for nodes that validate. The last one that was missing lets a node back into service."""
    if force:
        needs_reason(reason)
    doing = _act_on(open_database(context, db), targets, reason, output, is_dry_run=dry_run)

    def decide(state: State, acting: Acting) -> Decision:
        detail = f"by hand: {reason}" if force else reason
        nodes = doing.nodes(state)
        return tick_check(state, nodes, check, acting, is_passed=not failed, detail=detail, may_pass=force)

    doing.run(decide, verb=f"checked: {check} {'failed' if failed else 'passed'}")


@app.command("breaker")
def breaker_command(
    context: typer.Context,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="fleet, or cluster/NAME.")],
    go_on: Annotated[bool, typer.Option("--go-on", help="Do what was held back.")] = False,
    dismiss: Annotated[bool, typer.Option("--dismiss", help="Let it be: the signals asked for nothing.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Answer a breaker that has tripped, and let automation go on."""
    if go_on is dismiss:
        raise UsageError("bad_usage", "say what becomes of the nodes held back", next_step="--go-on or --dismiss")
    needs_reason(reason)
    keeper = open_database(context, db)
    tripped = keeper.state().of(Health).breakers.get(scope)
    doing = _Act(keeper, tripped.nodes if tripped else (), reason, output, is_dry_run=dry_run)
    doing.run(
        lambda state, acting: reset_breaker(state, scope, acting, is_dismissed=dismiss),
        verb="let be" if dismiss else "taken out that the breaker had held back",
    )


@app.command("sweep")
def sweep_command(
    context: typer.Context,
    prometheus: Annotated[
        str, typer.Option("--prometheus", metavar="URL", help="Where checks of the validation ask.", show_default=False)
    ] = "",
    every: Every = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Let time do its work: silent feeds, expired holds, problems and announced work that are over, validation."""
    seconds = seconds_between(every) if every else 0.0
    server = Prometheus(prometheus) if prometheus else None
    keeper = open_database(context, db)
    while True:
        show(_sweep(keeper, server, output, is_dry_run=dry_run), output)
        if not every:
            return
        time.sleep(seconds)


def _sweep(keeper: Keeper, prometheus: Prometheus | None, output: Output, *, is_dry_run: bool) -> Answer:
    answers = [] if is_dry_run else run_checks(keeper, actor=current_actor(), prometheus=prometheus)
    swept = sweep_now(keeper, actor=current_actor(), is_dry_run=is_dry_run)
    return swept_answer(swept, answers, keeper.state().revision, output, is_dry_run=is_dry_run)
