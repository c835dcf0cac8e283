"""Rules 7 and 8 of the ledger as "never": never a change unnoticed, never a commit lost or halved by a crash."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from plimsoll.errors import Stale
from plimsoll.ledger import Ledger, open_ledger
from plimsoll.ledger.model import Event
from plimsoll.ledger.verify import verify
from tests.support.ledgers import events_of, filled, note, raw, write

_pages = st.sampled_from("abcd")


@st.composite
def _attempts(draw: st.DrawFn) -> list[tuple[list[str], list[str], int | None]]:
    """Commits to try: the pages written, the pages read, and how many revisions ago (None: decided from nothing)."""
    one = st.tuples(
        st.lists(_pages, min_size=1, max_size=3), st.lists(_pages, max_size=2), st.none() | st.integers(0, 6)
    )
    return draw(st.lists(one, max_size=25))


@given(_attempts())
def test_never_a_stale_writer_let_through_nor_another_held_up(
    attempts: list[tuple[list[str], list[str], int | None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder, open_ledger(f"{folder}/x.db", create=True) as ledger:
        written: list[str] = []
        for pages, reads, age in attempts:
            read_at = None if age is None else max(0, len(written) - age)
            want_stale = read_at is not None and bool({*pages, *reads} & set(written[read_at:]))
            try:
                ledger.commit(
                    [note(page) for page in pages],
                    actor="tester",
                    read_at=read_at,
                    reads=[f"page/{page}" for page in reads],
                )
                was_stale = False
                written += pages
            except Stale:
                was_stale = True
            assert was_stale == want_stale
        assert [event.subject for event in events_of(ledger)] == [f"page/{page}" for page in written]
        assert verify(ledger.store).is_whole


_COLUMNS = Event._fields[1:]


@given(st.integers(1, 5), st.sampled_from(_COLUMNS), st.text(max_size=80))
def test_never_a_changed_field_unnoticed(revision: int, column: str, text: str) -> None:
    with _copied() as (dsn, events):
        assume(getattr(events[revision - 1], column) != text)
        with raw(dsn) as run:
            run(f"UPDATE events SET {column} = ? WHERE revision = ?", text, revision)
        with open_ledger(dsn) as ledger:
            assert revision in {finding.revision for finding in verify(ledger.store).findings}


@given(st.permutations(range(1, 6)), st.sets(st.integers(1, 5)))
def test_never_a_moved_or_missing_row_unnoticed(order: list[int], removed: set[int]) -> None:
    assume(order != [1, 2, 3, 4, 5] or removed)
    with _copied() as (dsn, _):
        with raw(dsn) as run:
            run("UPDATE events SET revision = -revision")
            for place, revision in enumerate(order, 1):
                run("UPDATE events SET revision = ? WHERE revision = ?", place, -revision)
            for place in removed:
                run("DELETE FROM events WHERE revision = ?", place)
        with open_ledger(dsn) as ledger:
            assert not verify(ledger.store).is_whole


_template: list[tuple[bytes, list[Event]]] = []


@contextmanager
def _copied() -> Iterator[tuple[str, list[Event]]]:
    """A ledger of five events of its own, quickly."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        if not _template:
            with filled(f"sqlite:///{path}", 5) as ledger:
                events = events_of(ledger)
            _template.append((path.read_bytes(), events))
        content, events = _template[0]
        path.write_bytes(content)
        yield f"sqlite:///{path}", events


def _write_commits(ledger: Ledger, path: Path, sizes: list[int]) -> list[tuple[int, int]]:
    """The bytes of the log and the revision when each commit was acknowledged."""
    acknowledged = []
    for size in sizes:
        head = write(ledger, *["a"] * size)[-1]
        acknowledged.append((Path(f"{path}-wal").stat().st_size, head.revision))
    return acknowledged


def _reopen_cut(path: Path, folder: Path, cut: int, noise: bytes) -> int:
    """What a power cut leaves: the log up to some byte, then whatever stood on the disk. Returns the revision found."""
    folder.mkdir()
    shutil.copy(path, folder / "x.db")
    (folder / "x.db-wal").write_bytes(Path(f"{path}-wal").read_bytes()[:cut] + noise)
    with open_ledger(f"{folder}/x.db", create=True) as ledger:
        verdict = verify(ledger.store)
        assert verdict.findings == ()
        write(ledger, "life goes on")
        assert verify(ledger.store).events == verdict.events + 1
        return verdict.head.revision


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    cuts=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    noise=st.binary(max_size=600).map(lambda noise: noise * 10),
)
def test_never_a_commit_lost_or_halved_by_a_power_cut(sizes: list[int], cuts: list[float], noise: bytes) -> None:
    """Wherever the writing of the log is cut: all that was acknowledged is there, and only whole commits."""
    with tempfile.TemporaryDirectory() as folder, open_ledger(f"{folder}/x.db", create=True) as ledger:
        path = Path(folder) / "x.db"
        acknowledged = _write_commits(ledger, path, sizes)
        boundaries = {0, *itertools.accumulate(sizes)}
        for number, share in enumerate(cuts):
            cut = round(share * acknowledged[-1][0])
            found = _reopen_cut(path, Path(folder) / f"cut-{number}", cut, noise)
            assert found in boundaries
            assert found >= max((revision for length, revision in acknowledged if length <= cut), default=0)
