"""Carries posts to a chat, beside the passes: it may wait for the chat, and nobody waits for it.

That a message is about to be posted is on the ledger before it is. So after a crash it is known which one may have been
posted; that one is not posted again. What surely was not posted is tried again, a few times, for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import msgspec

from plimsoll.connect.slack import Webhook
from plimsoll.errors import PlimsollError, Stale
from plimsoll.incidents.changes import PostEnded, PostIntended
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.message import Message, message_of
from plimsoll.incidents.model import Post
from plimsoll.incidents.reasons import Fate
from plimsoll.ledger.model import Draft
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State

D = TypeVar("D")
WEBHOOK_SETTING = "PLIMSOLL_WEBHOOK"
URL_SETTING = "PLIMSOLL_PUBLIC_URL"
ACTOR = "plimsoll"
FRESH = timedelta(hours=1)
"""What is older is not news any more: it is not posted when somebody sets the webhook a week later."""
TOO_OLD = f"it waited for longer than {FRESH // timedelta(minutes=1)} minutes"
INTENT_LASTS = timedelta(minutes=5)
"""Longer than any post can take: whoever intended one that long ago did not live to say what became of it."""
ATTEMPTS_MAX = 5
RETRY_AFTER = timedelta(minutes=1)
POSTS_MAX = 50
"""In one go."""


class Chat(Protocol):
    """Where messages are posted."""

    @property
    def where(self) -> str:
        """The host alone."""

    def post(self, message: Mapping[str, object]) -> None: ...


class Courier:
    """Posts what waits. `epoch` is asked for anew with each post: who leads no more does not post."""

    def __init__(
        self,
        keeper: Keeper,
        chat: Chat,
        *,
        url: str = "",
        actor: str = ACTOR,
        epoch: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._keeper, self._chat, self._url, self._actor, self._epoch = keeper, chat, url, actor, epoch
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._mistake: Exception | None = None

    def wake(self) -> None:
        """Let what waits be posted in the background; at once back. Raises what nobody had foreseen the time before,
        so that whoever wakes tells of it as of a mistake of its own."""
        mistake, self._mistake = self._mistake, None
        if mistake is not None:
            raise mistake
        if (self._thread is not None and self._thread.is_alive()) or not self._read(_waiting):
            return
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.deliver()
        except PlimsollError:
            return  # the database, or another who leads: what waits is looked at again at the next wake
        except Exception as error:
            self._mistake = error

    def wait(self, seconds: float) -> bool:
        """Wait for what is being posted; whether it is done."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def deliver(self) -> list[Post]:
        """Post what waits, one after the other; returns what became of each. A mistake over one does not keep the
        others waiting: it is raised when they are done."""
        mistake: Exception | None = None
        with self._lock:
            ended = self._give_up_old()
            now = self._keeper.ledger.clock()
            due = [post for post in self._read(_waiting) if _is_due(post, now)]
            for post in due[:POSTS_MAX]:
                try:
                    if (fate := self._settle(post, self._keeper.ledger.clock())) is not None:
                        ended.append(self._end(post, *fate))
                except PlimsollError:
                    raise
                except Exception as error:
                    mistake = mistake or error
        if mistake is not None:
            raise mistake
        return ended

    def _give_up_old(self) -> list[Post]:
        """What is no news any more, all at once: what is new must not wait behind it."""
        now = self._keeper.ledger.clock()

        def decide(state: State) -> tuple[list[Post], list[Draft]]:
            old = [post for post in _waiting(state) if post.fate is Fate.WAITING and now - post.queued_at > FRESH]
            ended = [msgspec.structs.replace(post, fate=Fate.GIVEN_UP, detail=TOO_OLD) for post in old]
            return ended, [Draft(PostEnded(post.id, post.fate, post.detail)) for post in ended]

        return self._keeper.decide_and_commit(decide, actor=self._actor)[0]

    def _read(self, look: Callable[[State], D]) -> D:
        """Look at the state while nobody changes it: this is another thread than that of the passes."""
        return self._keeper.decide_and_commit(lambda state: (look(state), ()), actor=self._actor)[0]

    def _settle(self, post: Post, now: datetime) -> tuple[Fate, str] | None:
        """What becomes of one that is due; None where another has it."""
        if post.fate is Fate.INTENDED:
            return Fate.MAYBE, "whoever posted it was stopped over it"
        if now - post.queued_at > FRESH:
            return Fate.GIVEN_UP, TOO_OLD
        if post.attempts >= ATTEMPTS_MAX:
            return Fate.GIVEN_UP, f"tried {post.attempts} times; {post.detail}"
        message = self._read(lambda state: message_of(state, post, url=self._url, now=now))
        if message is None:
            return Fate.GIVEN_UP, "what it is about is forgotten"
        return self._post(post.id, message)

    def _post(self, name: str, message: Message) -> tuple[Fate, str] | None:
        try:
            if not self._intend(name):
                return None  # another has it
        except Stale as stale:
            if stale.code != "stale":
                raise  # another leads: it is the one that posts
            return None
        try:
            self._chat.post(message)
        except PlimsollError as error:
            if error.fields.get("is_posted") == "maybe":
                return Fate.MAYBE, error.message
            is_wanted = error.code == "webhook_unavailable"
            return (Fate.WAITING if is_wanted else Fate.REFUSED), error.message
        return Fate.POSTED, ""

    def _intend(self, name: str) -> bool:
        """Write down that it is about to be posted; whether it is ours to post."""

        def decide(state: State) -> tuple[bool, list[Draft]]:
            post = state.of(Incidents).posts.get(name)
            is_ours = post is not None and post.fate is Fate.WAITING
            return is_ours, [Draft(PostIntended(name, self._chat.where))] if is_ours else []

        return self._keeper.decide_and_commit(decide, actor=self._actor, epoch=self._epoch())[0]

    def _end(self, post: Post, fate: Fate, detail: str) -> Post:
        """Write down what became of it. Also where another leads now, or it is forgotten: it is what happened."""

        def decide(state: State) -> tuple[Post, list[Draft]]:
            known = state.of(Incidents).posts.get(post.id, post)
            if known.fate.is_over:
                return known, []
            return msgspec.structs.replace(known, fate=fate, detail=detail), [Draft(PostEnded(post.id, fate, detail))]

        return self._keeper.decide_and_commit(decide, actor=self._actor)[0]


def _is_due(post: Post, now: datetime) -> bool:
    """Whether something becomes of it now. What is tried again later keeps nothing new from being posted."""
    since = now - (post.changed_at or post.queued_at)
    if post.fate is Fate.INTENDED:
        return since >= INTENT_LASTS
    return not post.attempts or post.attempts >= ATTEMPTS_MAX or since >= RETRY_AFTER * 2 ** (post.attempts - 1)


def _waiting(state: State) -> list[Post]:
    """The oldest first."""
    tables = state.of(Incidents)
    return sorted((tables.posts[name] for name in tables.waiting), key=lambda post: (post.queued_at, post.id))


def chat_from(environment: Mapping[str, str]) -> Chat | None:
    """The chat that the settings name; None where they name none. A name that is none is refused."""
    address = environment.get(WEBHOOK_SETTING, "")
    return Webhook(address) if address else None


def courier_from(
    environment: Mapping[str, str],
    keeper: Keeper,
    *,
    chat: Chat | None = None,
    actor: str = ACTOR,
    epoch: Callable[[], int | None] = lambda: None,
) -> Courier | None:
    """A courier to the chat that the settings name; None where they name none."""
    found = chat or chat_from(environment)
    if found is None:
        return None
    return Courier(keeper, found, url=environment.get(URL_SETTING, ""), actor=actor, epoch=epoch)
