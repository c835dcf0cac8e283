"""`plimsoll cluster import`: sheets as people have them, good and bad; a second import is a diff."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.model import Spec
from plimsoll.rooms import open_keeper
from plimsoll.times import show_time
from tests.support.inside import Said, called

HEADER = "cluster,region,area,colo,provider,purpose,subscription,sku,nodes,islands,recipe,owner,wanted"
NEEDED = "cluster,region,area,colo,provider,purpose,subscription,sku,nodes"
LYNX = "lynx,eastus,us,b1,azure,research,sub-a,H200,8,2,standard,ann,2027-01-01"
MOTH = "moth,eastus,us,b1,azure,applied,sub-a,H100,4,1,,,"
QUOTA = "subscription,region,family,limit,used\nsub-a,eastus,standardNDISRH200V5Family,900,0\n"
ROWS_MANY = 5_000
SECONDS_MAX = 10.0  # about one on a quiet machine


def sheet(*rows: str, header: str = HEADER, name: str = "s.csv", encoding: str = "utf-8") -> Path:
    path = Path(name)
    path.write_text("".join(f"{line}\n" for line in (header, *rows)), encoding=encoding)
    return path


def workbook(sheets: dict[str, Sequence[Sequence[Any]]], name: str = "s.xlsx") -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        page = book.create_sheet(title)
        for cells in rows:
            page.append(list(cells))
    book.save(name)
    return Path(name)


def bring(path: Path | str, *words: str) -> Said:
    return called("cluster", "import", path, *words)


def revision() -> int:
    return open_keeper("sqlite:///plimsoll.db").state().revision


def spec_of(name: str) -> Spec:
    return open_keeper("sqlite:///plimsoll.db").state().of(Lives).lives[name].spec


def with_cell(row: str, column: str, value: str) -> str:
    cells = row.split(",")
    cells[HEADER.split(",").index(column)] = value
    return ",".join(cells)


CELLS: dict[str, tuple[str, str, str]] = {
    "a large letter": ("cluster", "Lynx", "a name of 2 to 40 small letters"),
    "a stream's mark": ("cluster", "a/b", "a name without '/'"),
    "a region that is nothing": ("region", "", "a name, found nothing"),
    "no such area": ("area", "mars", "one of us, eu, uk, other"),
    "no such purpose": ("purpose", "fun", "one of research, applied"),
    "no subscription": ("subscription", " ", "a name, found nothing"),
    "no such SKU": ("sku", "H300", "a SKU whose machines recipe standard knows: A100, GB200, H100, H200"),
    "fewer than none": ("nodes", "-8", "a whole number from 1 to 20000"),
    "none": ("nodes", "0", "a whole number from 1 to 20000"),
    "huge": ("nodes", "9" * 60, "a whole number from 1 to 20000"),
    "a fraction": ("nodes", "4.5", "a whole number from 1 to 20000"),
    "more islands than nodes": ("islands", "9", "a whole number from 1 to the 8 nodes"),
    "no such recipe": (
        "recipe",
        "standrd",
        "a recipe that there is: there is no recipe 'standrd'; did you mean standard?",
    ),
    "no day": ("wanted", "someday", "a day such as 2026-03-01, or nothing"),
    "a day that no month has": ("wanted", "2026-02-30", "a day such as 2026-03-01, or nothing"),
}


@pytest.mark.parametrize("case", CELLS)
def test_a_bad_cell_is_named_with_row_and_column_and_nothing_is_kept(case: str) -> None:
    column, value, want = CELLS[case]
    said = bring(sheet(MOTH, with_cell(LYNX, column, value)), "-o", "json")
    assert said.code == 1
    problem = said.error["fields"]["problems"][0]
    assert (problem["source"], problem["row"], problem["column"]) == ("s.csv", 3, column)
    assert want in problem["expected"]
    assert said.error["fields"]["problem_count"] == 1
    assert not Path("plimsoll.db").exists()


FILES: dict[str, tuple[bytes | None, str]] = {
    "nowhere": (None, "there is no s.csv"),
    "empty": (b"", "s.csv is empty, expected a header in row 1"),
    "UTF-16": (f"{HEADER}\n{LYNX}\n".encode("utf-16"), "the file is UTF-16, expected UTF-8"),
    "another encoding": (f"{HEADER}\n{LYNX}\n".replace("ann", "änn").encode("latin-1"), "row 2: not UTF-8 near"),
    "semicolons": (f"{HEADER}\n{LYNX}\n".replace(",", ";").encode(), "expected columns separated by commas, found ';'"),
    "columns missing": (b"cluster,region\nlynx,eastus\n", "column area: '', expected this column; the header needs"),
    "a column twice": (f"{HEADER},sku\n{LYNX},x\n".encode(), "column sku: 'sku', expected each column once"),
    "a column twice in other letters": (f"{HEADER},SKU\n{LYNX},x\n".encode(), "expected each column once"),
    "a short row": (f"{HEADER}\n{LYNX}\nmoth,eastus\n".encode(), "row 3: expected 13 cells as in the header, found 2"),
    "a quote that stays open": (f'{HEADER}\n"{LYNX}\n'.encode(), "a quote that is opened in this row is never closed"),
    "a name twice": (
        f"{HEADER}\n{LYNX}\n{MOTH}\n{LYNX}\n".encode(),
        "row 4 column cluster: 'lynx', expected each only once; row 2",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_can_not_be_taken_says_why_and_leaves_nothing(case: str) -> None:
    body, want = FILES[case]
    if body is not None:
        Path("s.csv").write_bytes(body)
    said = bring("s.csv")
    assert said.code == 1
    assert want in said.err
    assert "next: " in said.err
    assert not Path("plimsoll.db").exists()


def test_a_folder_and_what_only_looks_like_a_workbook_are_refused() -> None:
    assert "is a folder" in bring(".").err
    Path("s.xlsx").write_text("hello", encoding="utf-8")
    assert "s.xlsx is not a whole XLSX workbook" in bring("s.xlsx").err


def test_rows_become_planned_clusters_and_other_columns_their_labels() -> None:
    said = bring(sheet(f"{LYNX},r7,", f"{MOTH},,x", header=f"{HEADER},rack,note", encoding="utf-8-sig"))
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("s.csv: 2 added\n")
    lynx, moth = spec_of("lynx"), spec_of("moth")
    assert (lynx.nodes, lynx.islands, lynx.owner, show_time(lynx.wanted)) == (8, 2, "ann", "2027-01-01T00:00:00Z")
    assert (moth.nodes, moth.islands, moth.recipe, moth.wanted) == (4, 1, "standard", None)
    assert (lynx.labels, moth.labels) == ({"rack": "r7"}, {"note": "x"})


def test_columns_may_stand_anywhere_in_large_letters_and_the_last_may_be_missing() -> None:
    names, cells = NEEDED.split(","), LYNX.split(",")[:9]
    header = ",".join(name.upper() for name in reversed(names))
    assert bring(sheet(",".join(reversed(cells)), header=header)).code == 0
    assert (spec_of("lynx").sku, spec_of("lynx").islands) == ("H200", 1)


def test_the_same_sheet_again_changes_nothing() -> None:
    path = sheet(LYNX, MOTH)
    bring(path)
    before = revision()
    said = bring(path)
    assert said.out == "s.csv: nothing to change (2 rows)\n"
    assert revision() == before
    assert bring(path, "-o", "json").json()["counts"] == {"added": 0, "changed": 0, "removed": 0, "same": 2}
    assert bring(path, "-o", "csv").out == "what,cluster,was\n"


def test_a_second_import_is_a_diff() -> None:
    bring(sheet(LYNX, MOTH))
    said = bring(sheet(with_cell(LYNX, "nodes", "6"), with_cell(MOTH, "cluster", "newt")))
    assert said.out.startswith("s.csv: 1 added, 1 changed\n")
    assert "changed  lynx     nodes 8" in said.out
    assert "warning: 1 planned cluster not in s.csv, and stay: moth (--whole if" in said.out
    assert spec_of("lynx").nodes == 6


def test_a_column_that_is_not_there_says_nothing_and_an_empty_cell_takes_away() -> None:
    bring(sheet(f"{LYNX},r7", header=f"{HEADER},rack"))
    assert "nothing to change" in bring(sheet(",".join(LYNX.split(",")[:9]), header=NEEDED)).out
    assert (spec_of("lynx").islands, spec_of("lynx").labels) == (2, {"rack": "r7"})
    bring(sheet(f"{with_cell(with_cell(LYNX, 'owner', ''), 'wanted', '')},", header=f"{HEADER},rack"))
    lynx = spec_of("lynx")
    assert (lynx.owner, lynx.wanted, lynx.labels) == ("", None, {})


def test_a_dry_run_keeps_nothing_not_even_a_database() -> None:
    path = sheet(LYNX)
    said = bring(path, "--dry-run")
    assert (said.code, "dry run: nothing was kept" in said.out) == (0, True)
    assert not Path("plimsoll.db").exists()
    bring(path)
    before = revision()
    assert bring(sheet(with_cell(LYNX, "nodes", "6")), "--dry-run").out.startswith("s.csv: 1 changed\n")
    assert (revision(), spec_of("lynx").nodes) == (before, 8)


def test_a_whole_sheet_ends_what_is_not_in_it_but_never_all_by_being_empty() -> None:
    bring(sheet(LYNX, MOTH))
    said = bring(sheet(), "--whole")
    assert (said.code, "expected rows; with --whole" in said.err) == (1, True)
    assert bring(sheet(LYNX), "--whole").out.startswith("s.csv: 1 removed, 1 same\n")
    called("cluster", "run")
    rows = called("cluster", "list", "--all", "-o", "json").json()["clusters"]
    assert {row["cluster"]: row["phase"] for row in rows} == {"lynx": "planned", "moth": "retired"}
    again = bring(sheet(LYNX, MOTH))
    assert "warning: moth (row 3) is retired, or on its way out: it stays so" in again.out
    changed = bring(sheet(LYNX, with_cell(MOTH, "nodes", "9")))
    assert "row 3 column cluster: 'moth', expected moth is retired, or on its way out" in changed.err


def test_a_changed_row_of_a_cluster_that_was_begun_is_refused_with_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_REHEARSAL", "seconds=0.01")
    Path("quota.csv").write_text(QUOTA, encoding="utf-8")
    bring(sheet(LYNX, MOTH))
    called("cluster", "checkin", "lynx")
    called("cluster", "run", "lynx")
    before = revision()
    changed = with_cell(with_cell(LYNX, "nodes", "9"), "region", "westus")
    said = bring(sheet(changed, with_cell(MOTH, "nodes", "5")))
    assert said.code == 1
    assert "s.csv row 2 column region: 'westus', expected eastus: lynx is provisioning, and made with it" in said.err
    assert "s.csv row 2 column nodes: '9', expected 8: lynx is provisioning, and made with it" in said.err
    assert revision() == before
    assert bring(sheet(with_cell(LYNX, "owner", "bob"), MOTH)).out.startswith("s.csv: 1 changed, 1 same\n")


BOOK_ROWS: list[list[Any]] = [HEADER.split(","), [*LYNX.split(",")[:8], 8, 2, "standard", "ann", date(2027, 1, 1)]]
BOOKS: dict[str, tuple[dict[str, Sequence[Sequence[Any]]], str]] = {
    "the only sheet": ({"whatever": BOOK_ROWS}, "s.xlsx[whatever]: 1 added"),
    "the one with the name": ({"notes": [["x"]], "planned": BOOK_ROWS}, "s.xlsx[planned]: 1 added"),
    "two without the name": ({"a": BOOK_ROWS, "b": []}, "s.xlsx has 2 sheets, and none is called 'planned': a, b"),
    "an empty one": ({"planned": []}, "s.xlsx[planned]"),
    "a formula that nobody has worked out": (
        {"planned": [BOOK_ROWS[0], [*LYNX.split(",")[:8], "=4+4", 2, "", "", date(2027, 1, 1)]]},
        "s.xlsx[planned] row 2 column nodes: '', expected a whole number",
    ),
}


@pytest.mark.parametrize("case", BOOKS)
def test_a_workbook_is_read_where_it_is_clear_which_sheet_is_meant(case: str) -> None:
    sheets, want = BOOKS[case]
    said = bring(workbook(sheets))
    assert want in said.out + said.err
    assert (said.code == 0) == ("added" in want)
    if said.code == 0:
        assert show_time(spec_of("lynx").wanted) == "2027-01-01T00:00:00Z"


def test_thousands_of_rows_take_seconds_and_few_lines() -> None:
    rows = (with_cell(with_cell(LYNX, "cluster", f"c{n}"), "subscription", f"sub-{n % 7}") for n in range(ROWS_MANY))
    path = sheet(*rows)
    began = time.monotonic()
    said = bring(path)
    again = bring(path)
    assert time.monotonic() - began < SECONDS_MAX
    assert said.out.startswith("s.csv: 5,000 added\n")
    assert "… 4,970 more differences: -o csv lists them all" in said.out
    assert len(said.out.splitlines()) < 40
    assert again.out == "s.csv: nothing to change (5,000 rows)\n"
