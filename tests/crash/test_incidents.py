"""`kill -9` while a message is posted: it is known that it may have been, and nobody posts it again."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

from plimsoll.incidents.courier import INTENT_LASTS, Courier
from plimsoll.incidents.desk import open_incident
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.service import say
from plimsoll.ledger.verify import verify
from plimsoll.rooms import open_keeper
from tests.support.children import Child
from tests.support.ledgers import wait_until_alone
from tests.support.watch import START, LastWords, post_and_die


def test_a_message_over_which_somebody_was_killed_is_not_posted_again(dsn: str, tmp_path: Path) -> None:
    heard, now = tmp_path / "heard", START
    with open_keeper(dsn, create=True, clock=lambda: now) as keeper:
        drafts = open_incident(keeper.state(), "fire", "fire", clusters=(), roster=())
        say(keeper, lambda _state, _now: (None, drafts), actor="alice")
    with Child(post_and_die, dsn, str(heard)) as child:
        assert child.hear() == "ready"
        assert child.end() == -signal.SIGKILL
    wait_until_alone(dsn)
    assert heard.read_text().startswith("Open: fire")
    with open_keeper(dsn, clock=lambda: now) as keeper:
        assert verify(keeper.ledger.store).is_whole
        (post,) = keeper.state().of(Incidents).posts.values()
        assert str(post.fate) == "intended"
        now = START + INTENT_LASTS + timedelta(seconds=1)
        courier = Courier(keeper, LastWords(str(heard), is_deadly=False))
        (post,) = courier.deliver()
        assert str(post.fate) == "maybe"
        assert courier.deliver() == []
    assert heard.read_text().count("Open: fire") == 1
