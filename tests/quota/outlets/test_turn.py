"""One push at a time, whoever has the turn and whatever the clocks do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from plimsoll.errors import Refused
from plimsoll.quota.outlets import turn as module
from plimsoll.quota.outlets.turn import TURN_SECONDS, Turn
from plimsoll.rooms import open_keeper
from tests.support.imports import IN_MEMORY, NOW

LATER = {
    "it has just begun": (0, False),
    "it has stood still for as long as a turn lasts": (TURN_SECONDS, True),
    "our clock is a little behind the one it was taken by": (-200, False),
    "the clock went back by a day since": (-86_400, True),
}


@pytest.mark.parametrize("sentence", LATER)
def test_whose_turn_it_is(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody on another machine, of whom we can't know whether they live, has taken the turn."""
    seconds, is_free = LATER[sentence]
    monkeypatch.setattr(module, "WAIT_SECONDS_MAX", 0.0)
    monkeypatch.setattr(module, "_is_gone", lambda _holder: False)
    with (
        open_keeper(IN_MEMORY, create=True) as keeper,
        Turn(keeper.ledger.store, lambda: NOW, "slurm/tiger", actor="bob"),
    ):
        mine = Turn(keeper.ledger.store, lambda: NOW + timedelta(seconds=seconds), "slurm/tiger", actor="ada")
        if is_free:
            with mine:
                mine.remember([], lambda _found: {})
            return
        with pytest.raises(Refused, match="bob pushes to slurm/tiger already"):
            mine.__enter__()
