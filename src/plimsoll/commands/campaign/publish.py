"""`plimsoll campaign publish`: tell a plan to those whom it is about."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.changes import CampaignPublished
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.model import Plan
from plimsoll.campaigns.publish.calendar import advance, told_plan
from plimsoll.campaigns.publish.gather import gather
from plimsoll.campaigns.publish.model import FeedState, Published
from plimsoll.campaigns.run.ahead import align_ahead
from plimsoll.campaigns.run.desk import find_run
from plimsoll.campaigns.run.progress import Phase, Run, Step
from plimsoll.campaigns.service import say
from plimsoll.campaigns.units import Roll, make_units
from plimsoll.commands.campaign.app import app
from plimsoll.commands.campaign.run import Name
from plimsoll.commands.options import Db, DryRun, Format, Reason, current_actor, open_database
from plimsoll.commands.output import progress, show
from plimsoll.errors import PlimsollError, UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.ledger.model import Draft, EventFilter
from plimsoll.quota.fold import QuotaBook
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.words import counted

if TYPE_CHECKING:
    from plimsoll.campaigns.publish.service import Chat, Silenced


class Told(NamedTuple):
    """What is told: the plan, what calendars are given, and whether the chat gets it as well."""

    published: Published
    feed: FeedState
    is_posted: bool


def published_plan(
    state: State, run: Run, previous: Plan | None, *, now: datetime, url: str = "", roll: Roll | None = None
) -> Published:
    """The plan in force of a campaign, with all that is told of it; what changed is said against `previous`."""
    done = frozenset(name for name, each in run.progress.items() if each.step is Step.RETURNED)
    off = frozenset(name for name, each in run.progress.items() if each.step is Step.CANCELLED)
    if run.phase in (Phase.CANCELLING, Phase.CANCELLED):
        off |= {batch.id for batch in run.plan.batches if run.step_of(batch.id) is Step.PLANNED}
    fleet = state.of(Fleet)
    return gather(
        run.campaign,
        run.plan,
        make_units(run.campaign, fleet) if roll is None else roll,
        fleet,
        state.of(QuotaBook),
        generated_at=now,
        previous=previous,
        names=run.names,
        done=done,
        called_off=off,
        url=url,
    )


def _known_plan(keeper: Keeper, state: State, run: Run) -> Plan | None:
    """The plan that people know: the last one published, or the one published before where the same is told again."""
    if run.published != run.plan.number:
        return told_plan(read_feed(state, run.name), run.name)
    before = FeedState()
    where = EventFilter(subject=f"campaign/{run.name}", kind=CampaignPublished.kind)
    for event in keeper.ledger.store.events(until=state.revision, where=where):
        change = keeper.kinds.read(event)
        if isinstance(change, CampaignPublished) and change.number != run.plan.number:
            before = msgspec.json.decode(change.feed, type=FeedState)
    return told_plan(before, run.name)


def read_feed(state: State, name: str) -> FeedState:
    """What calendars were told of a campaign."""
    text = state.of(Campaigns).feeds.get(name)
    return msgspec.json.decode(text, type=FeedState) if text else FeedState()


@app.command("publish")
def publish_command(
    context: typer.Context,
    name: Name,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go: feeds, page, picture, CSV, post.")],
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="Where DIR can be read, for links to it.", show_default=False)
    ] = "",
    webhook: Annotated[
        bool, typer.Option("--chat", help="Post it to the Slack-compatible webhook of PLIMSOLL_WEBHOOK.")
    ] = False,
    silence: Annotated[
        str,
        typer.Option("--alertmanager", metavar="URL", help="Silence each batch's nodes there.", show_default=False),
    ] = "",
    label: Annotated[
        str, typer.Option("--silence-label", metavar="LABEL", help="The label that names a node in alerts.")
    ] = "node",
    again: Annotated[bool, typer.Option("--again", help="Post to the chat although this number was posted.")] = False,
    reason: Reason = "",
    db: Db = "",
    output: Format = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Tell the plan in force: calendars, a page, a chat, Alertmanager; and announce it, so that the line and why know.

    Published again, calendars are told only what changed, silences are replaced and not piled up, and batches that are
    no longer planned are cancelled.
    """
    from plimsoll.campaigns.publish.service import publish_files, render_files, sync_silences
    from plimsoll.campaigns.publish.silences import make_silencing
    from plimsoll.connect.alertmanager import Alertmanager
    from plimsoll.connect.slack import Webhook

    keeper = open_database(context, db)
    address = os.environ.get("PLIMSOLL_WEBHOOK", "")
    if webhook and not address:
        message = "--chat posts to the webhook of PLIMSOLL_WEBHOOK, which is not set"
        raise UsageError("webhook_bad_setting", message, next_step="export PLIMSOLL_WEBHOOK=https://HOST/PATH")
    chat = Webhook(address) if webhook else None
    token = os.environ.get("PLIMSOLL_ALERTMANAGER_TOKEN")
    server = Alertmanager(silence, bearer_token=token) if silence else None
    silencing = make_silencing(label)

    with progress("publishing"):
        # The ledger knows what calendars are told before they are: a number is never given twice.
        tell = _tell(keeper, name, url, posts=webhook, again=again)
        told, _ = say(keeper, tell, actor=current_actor(), reason=reason or "publish", is_dry_run=dry_run)
        published, feed, is_posted = told
        if dry_run:
            files = [folder / file for file in render_files(published, feed)]
        else:
            files = publish_files(published, feed, folder)
    did: list[tuple[str, str]] = []
    if chat is not None and not dry_run:
        if is_posted:
            _post(keeper, told, chat)
        did.append(("chat", _posted(published.plan.number, is_new=is_posted)))
    if server is not None and not dry_run:
        done = sync_silences(published, server, silencing=silencing, clock=keeper.ledger.clock)
        did.append(("silences", _silenced(done)))
    show(_answer(name, published, files, did, is_dry_run=dry_run), output)


def _tell(
    keeper: Keeper, name: str, url: str, *, posts: bool, again: bool
) -> Callable[[State, datetime], tuple[Told, Sequence[Draft]]]:
    """What is told, and what the ledger has to know of it: the feeds' numbers, and the work that is announced."""

    def decide(state: State, now: datetime) -> tuple[Told, Sequence[Draft]]:
        run = find_run(state, name)
        number = run.plan.number
        is_posted = posts and (run.posted != number or again)
        published = published_plan(state, run, _known_plan(keeper, state, run), now=now, url=url)
        known = read_feed(state, name)
        feed = advance(known, published)
        drafts = align_ahead(state, msgspec.structs.replace(run, published=number), now)
        if feed != known or run.published != number or is_posted:
            text = msgspec.json.encode(feed).decode()
            drafts.append(Draft(CampaignPublished(name, number, text, number if is_posted else None)))
        return Told(published, feed, is_posted), drafts

    return decide


def _post(keeper: Keeper, told: Told, chat: Chat) -> None:
    """Post to the chat. The ledger says so before it is done; where it fails somebody is told, and may try again."""
    from plimsoll.campaigns.publish.service import post_chat

    try:
        post_chat(told.published, chat)
    except PlimsollError:
        name, text = told.published.name, msgspec.json.encode(told.feed).decode()
        failed = Draft(CampaignPublished(name, told.published.plan.number, text, 0))
        say(keeper, lambda _state, _now: (None, [failed]), actor=current_actor(), reason="the chat did not take it")
        raise


def _posted(number: int, *, is_new: bool) -> str:
    return f"plan {number} posted" if is_new else f"plan {number} was posted before; --again posts it once more"


def _silenced(done: Silenced) -> str:
    return f"{done.created} made, {done.replaced} replaced, {done.expired} ended, {done.kept} as they were"


def _answer(
    name: str, published: Published, files: Sequence[Path], did: Sequence[tuple[str, str]], *, is_dry_run: bool
) -> Answer:
    feeds = [file for file in files if file.suffix == ".ics"]
    others = [file for file in files if file.suffix != ".ics"]
    verb = "would be told" if is_dry_run else "is told"
    heading = f"plan {published.plan.number} of {name} {verb} in {counted(len(files), 'file')}"
    rows = [*((file.name, "") for file in others), (f"{len(feeds)} calendar feeds", "campaign, teams, clusters"), *did]
    document = {
        "campaign": name,
        "number": published.plan.number,
        "files": [str(file) for file in files],
        "did": dict(did),
        "dry_run": is_dry_run,
    }
    page = next((file for file in others if file.suffix == ".html"), None)
    notes = [f"next: open {page}" if page else "", f"      plimsoll campaign start {name}"]
    return Answer(document, [Table(("what", "detail"), rows)], heading, [] if is_dry_run else notes)
