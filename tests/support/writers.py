"""What child processes of the tests do. It imports little, so that a child starts at once."""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import plimsoll.ledger.postgres
import plimsoll.state.keeper
from plimsoll.errors import Stale, Unavailable
from plimsoll.fleet.service import Source, import_fleet
from plimsoll.ledger import Ledger, open_ledger, open_store
from plimsoll.ledger.model import Event, EventFilter
from plimsoll.ledger.schema import Migration
from plimsoll.rooms import SHEETS, open_keeper
from plimsoll.state.keeper import Keeper
from plimsoll.times import utc_now
from tests.support.ledgers import KINDS, note, open_with

RETRIES_MAX = 10_000
COMMIT_EVENTS_MAX = 5
SNAPSHOT_EVENTS = 40
"""Small, so that a killed writer may be in the middle of a snapshot too."""

T = TypeVar("T")
Tell = Callable[[Any], None]
"""What a child says to the test."""


def run_job(said: Connection, job: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Where a child begins."""
    try:
        job(lambda what: said.send((False, what)), *arguments)
    except BaseException:
        said.send((True, traceback.format_exc()))
        raise


def count_up(tell: Tell, dsn: str, name: str, rounds: int) -> None:
    """Each round adds one to a number that all writers share, and writes a page of its own; tells what was committed.

    The clocks of the writers disagree, as clocks do.
    """
    skew = timedelta(seconds=random.Random(name).uniform(-30, 30))
    with open_ledger(dsn, clock=lambda: utc_now() + skew) as ledger:
        tell("ready")
        for _ in range(rounds):
            tell([(event.revision, event.hash) for event in _add_one(ledger, name)])
    tell("done")


def _add_one(ledger: Ledger, name: str) -> list[Event]:
    for _ in range(RETRIES_MAX):
        read_at = ledger.head().revision
        last = ledger.store.last_events(1, until=read_at, where=EventFilter(subject="page/shared"))
        number = int(last[0].reason) + 1 if last else 1
        drafts = [note("shared", reason=str(number)), note(name, reason=str(number))]
        try:
            return ledger.commit(drafts, actor=name, read_at=read_at)
        except Stale:
            continue
    raise AssertionError(f"{name} was stale {RETRIES_MAX} times")


def follow(tell: Tell, dsn: str, until: int) -> None:
    """Tells every event up to a revision, as it comes."""
    with open_ledger(dsn) as ledger:
        tell("ready")
        for event in ledger.follow(0, seconds_max=60):
            tell((event.revision, event.hash))
            if event.revision >= until:
                return


def lead(tell: Tell, dsn: str, name: str) -> None:
    """Tells the epoch, or None where another leads, and stays."""
    with open_ledger(dsn) as ledger:
        leadership = ledger.store.lead(name)
        tell(leadership.epoch if leadership else None)
        time.sleep(600)


def create_at(tell: Tell, dsn: str, moment: float) -> None:
    """Makes the ledger at a moment of the monotonic clock, which processes have in common."""
    tell("ready")
    while time.monotonic() < moment:
        pass
    with closing(open_store(dsn, create=True)) as store:
        tell(store.schema_version())


def migrate(tell: Tell, dsn: str, migrations: Sequence[Migration]) -> None:
    tell("ready")
    open_with(dsn, migrations).close()


def hang_in_commit(tell: Tell, dsn: str, hung_seconds_max: int) -> None:
    """Takes the lock of the head and never goes on."""
    plimsoll.ledger.postgres.HUNG_SECONDS_MAX = hung_seconds_max
    with open_ledger(dsn) as ledger, ledger.store.transaction():
        ledger.store.locked_head()
        tell("locked")
        time.sleep(600)


def append_for_ever(tell: Tell, dsn: str, acknowledged: Path, seed: int) -> None:
    """Commits of one to five events, numbered through; what was acknowledged goes to a file, line by line.

    It goes on where the last run ended, and copes with a database that comes and goes.
    """
    plimsoll.state.keeper.SNAPSHOT_EVENTS = SNAPSHOT_EVENTS
    rng = random.Random(seed)
    name = f"writer-{seed}"
    tell("ready")
    with acknowledged.open("ab", buffering=0) as file, _patiently(partial(_open_notes, dsn)) as keeper:
        for number in itertools.count(1):
            size = rng.randint(1, COMMIT_EVENTS_MAX)
            drafts = [note(f"{name}-{part}", f"{number} {part} {size}") for part in range(1, size + 1)]
            events = _patiently(partial(keeper.commit, drafts, actor=name, read_at=None))
            file.write(b"".join(f"{event.revision} {event.hash}\n".encode() for event in events))


def _open_notes(dsn: str) -> Keeper:
    ledger = open_ledger(dsn, create=True)
    try:
        return Keeper(ledger, KINDS)
    except BaseException:
        ledger.close()
        raise


def _patiently(act: Callable[[], T]) -> T:
    for _ in range(RETRIES_MAX):
        try:
            return act()
        except Unavailable:
            time.sleep(0.02)
    raise AssertionError(f"unavailable {RETRIES_MAX} times")


def import_for_ever(tell: Tell, dsn: str, acknowledged: Path, folders: Sequence[Path]) -> None:
    """Takes in one fleet folder after the other, round and round; what was acknowledged goes to a file."""
    tell("ready")
    with acknowledged.open("ab", buffering=0) as file, open_keeper(dsn, create=True) as keeper:
        for folder in itertools.cycle(folders):
            _, revision = import_fleet(keeper, Source.of_path(folder, SHEETS), SHEETS, actor="importer")
            file.write(f"{revision} {keeper.ledger.head_at(revision).hash}\n".encode())


def read_then_write(tell: Tell, dsn: str) -> None:
    """Tells what can be read, then the code of what comes of writing and of leading."""
    with open_ledger(dsn) as ledger:
        tell(len(list(ledger.store.events())))
        for act in (
            partial(ledger.commit, [note()], actor="nobody", read_at=None),
            partial(ledger.store.lead, "nobody"),
        ):
            try:
                act()
                tell("done")
            except Unavailable as error:
                tell(error.code)


def write_in_little_room(tell: Tell, dsn: str, file_bytes_max: int) -> None:
    """Writes until the system lets no file grow any more; then tells the code, gets room, and goes on."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open_ledger(dsn) as ledger:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))
        for _ in range(RETRIES_MAX):
            try:
                ledger.commit([note("a", "x" * 50_000)], actor="nobody", read_at=None)
            except Unavailable as error:
                tell((error.code, ledger.head().revision))
                break
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        ledger.commit([note("after")], actor="nobody", read_at=None)
        tell(ledger.head().revision)


def as_nobody(tell: Tell, job: Callable[..., None], *arguments: Any) -> None:
    """A job without root's power to write what is read-only."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    job(tell, *arguments)
