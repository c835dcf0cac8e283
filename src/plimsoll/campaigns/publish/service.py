"""Plans told to the outside: files, a chat, silences. The only module of publishing with effects.

What a plan looks like is decided elsewhere. Here: a reader never sees half a file, and asked again after a crash
nothing is there twice. What calendars were told is numbered by a `FeedState`, which has to be in the ledger *before*
files are written: a number that was published and forgotten would be given to something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from plimsoll.campaigns.publish.calendar import advance, feeds
from plimsoll.campaigns.publish.changes import what_changed
from plimsoll.campaigns.publish.chat import make_post, markdown, slack_message
from plimsoll.campaigns.publish.curve import out_curve
from plimsoll.campaigns.publish.grid import make_grid
from plimsoll.campaigns.publish.model import FeedState, Published
from plimsoll.campaigns.publish.page import CHAT_FILE, PAGE_FILE, PICTURE_FILE, TABLE_FILE, page
from plimsoll.campaigns.publish.picture import picture
from plimsoll.campaigns.publish.silences import CREATOR, Silencing, Steps, Wanted, decide, start_of, wanted
from plimsoll.campaigns.publish.table import table
from plimsoll.charts import render
from plimsoll.connect.alertmanager import GONE, Matcher, Silence
from plimsoll.errors import PlimsollError, Refused, Unavailable, UsageError
from plimsoll.times import utc_now

ROUNDS_MAX = 4
"""How often silences are looked at before somebody else is asked to."""


class Chat(Protocol):
    """What is asked of a webhook."""

    def post(self, message: Mapping[str, object]) -> None: ...


class Silencer(Protocol):
    """What is asked of an Alertmanager."""

    @property
    def where(self) -> str: ...

    def silences(self) -> list[Silence]: ...

    def save(
        self,
        *,
        matchers: tuple[Matcher, ...],
        starts_at: datetime,
        ends_at: datetime,
        created_by: str,
        comment: str,
        silence_id: str = "",
    ) -> str: ...

    def expire(self, silence_id: str) -> None: ...


class Silenced(msgspec.Struct, frozen=True):
    """What was done to silences, and how many were right as they were."""

    kept: int
    created: int
    replaced: int
    expired: int


def render_files(published: Published, feed: FeedState) -> dict[str, bytes]:
    """Every file of a plan by its name; the page comes last, because it leads to the others.

    `feed` is what `advance` gave for this plan, and the ledger holds.
    """
    curve = out_curve(published)
    found = what_changed(published)
    grid = make_grid(published, found)
    files = feeds(published, feed)
    files[TABLE_FILE] = table(published, found).encode()
    files[CHAT_FILE] = markdown(make_post(published, curve, found)).encode()
    files[PICTURE_FILE] = render(picture(published, curve, grid, found), "png")
    files[PAGE_FILE] = page(published, curve, grid, found).encode()
    return files


def publish_files(published: Published, feed: FeedState, folder: Path) -> list[Path]:
    """Write all files of a plan into a folder of its own; returns them in the order in which they were written."""
    assert advance(feed, published) == feed, "the feed is that of this plan, and in the ledger already"
    files = render_files(published, feed)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(folder / name, body) for name, body in files.items()]
    except OSError as error:
        raise UsageError(
            "bad_folder",
            f"{error.filename or folder} can't be written: {error.strerror}",
            next_step="name a folder that you may write to, with room in it",
        ) from None


def _write(path: Path, body: bytes) -> Path:
    """The whole file or the one that was there before, whatever happens meanwhile."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with draft.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def post_chat(published: Published, chat: Chat) -> None:
    """Post a plan into a chat."""
    found = what_changed(published)
    chat.post(slack_message(make_post(published, out_curve(published), found)))


def sync_silences(
    published: Published,
    server: Silencer,
    *,
    silencing: Silencing | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> Silenced:
    """Make the silences of a campaign those of this plan. What fails is looked at again before anything is repeated."""
    asked = wanted(published, silencing or Silencing())
    first: Steps | None = None
    failed: PlimsollError | None = None
    for _ in range(ROUNDS_MAX):
        now = clock()
        steps = decide(asked, server.silences(), campaign=published.name, now=now)
        first = first or steps
        if steps.is_nothing:
            return Silenced(len(first.keep), len(first.create), len(first.replace), len(first.expire))
        try:
            _carry_out(steps, server, now)
        except (Unavailable, Refused) as error:
            if isinstance(error, Refused) and error.code != GONE:
                raise
            failed = error  # it may have been done nevertheless: look, and do only what is missing
    if failed is not None:
        raise failed
    raise Unavailable(
        "silences_do_not_settle",
        f"{server.where} had something to put right each of {ROUNDS_MAX} times: somebody else changes these silences",
        next_step="look who publishes this campaign as well, then publish again",
    )


def _carry_out(steps: Steps, server: Silencer, now: datetime) -> None:
    """What is new comes first: stopped halfway, too much is silent and not too little."""
    for asked in steps.create:
        _save(server, asked, None, now)
    for silence, asked in steps.replace:
        _save(server, asked, silence, now)
    for silence in steps.expire:
        server.expire(silence.id)


def _save(server: Silencer, asked: Wanted, silence: Silence | None, now: datetime) -> None:
    server.save(
        matchers=asked.matchers,
        starts_at=start_of(silence, asked, now),
        ends_at=asked.ends_at,
        created_by=CREATOR,
        comment=asked.comment,
        silence_id=silence.id if silence else "",
    )


def cancel_silences(published: Published, server: Silencer, *, clock: Callable[[], datetime] = utc_now) -> Silenced:
    """End all silences of a campaign."""
    gone = msgspec.structs.replace(published, called_off=frozenset(batch.id for batch in published.plan.batches))
    return sync_silences(gone, server, clock=clock)
