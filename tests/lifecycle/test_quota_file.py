"""The file that says how much quota there is: a bad row is named, and nothing of it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.errors import Refused
from plimsoll.lifecycle.providers.quota import FILE_BYTES_MAX, read_quota_file

HEADER = "subscription,region,family,limit,used\n"
ROW = "sub-a,eastus,famH200,900,12\n"
BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "q.csv row 1: the header is empty, expected subscription,region,family,limit,used"),
    "another header": (b"a,b\n", "q.csv row 1: the header is a,b, expected"),
    "semicolons": (HEADER.replace(",", ";").encode(), "q.csv row 1: the header is subscription;region"),
    "a word": (f"{HEADER}sub-a,eastus,fam,many,0\n".encode(), "q.csv row 2: limit is 'many', expected a whole number"),
    "less than nothing": (f"{HEADER}sub-a,eastus,fam,1,-1\n".encode(), "q.csv row 2: used is '-1'"),
    "a fraction": (f"{HEADER}sub-a,eastus,fam,1.5,0\n".encode(), "q.csv row 2: limit is '1.5'"),
    "huge": (f"{HEADER}sub-a,eastus,fam,{'9' * 5000},0\n".encode(), "q.csv row 2: limit is '9999"),
    "other digits": (f"{HEADER}sub-a,eastus,fam,²,0\n".encode(), "q.csv row 2: limit is '²'"),
    "cells missing": (f"{HEADER}sub-a,eastus\n".encode(), "q.csv row 2: 2 cells, expected 5"),
    "twice": (f"{HEADER}{ROW}{ROW}".encode(), "q.csv row 3: sub-a eastus famH200 stands there twice; first in row 2"),
    "no name": (f"{HEADER},eastus,fam,1,0\n".encode(), "q.csv row 2: subscription is empty"),
    "UTF-16": (f"{HEADER}{ROW}".encode("utf-16"), "q.csv can't be read"),
    "a quote that stays open": (f'{HEADER}"sub-a,eastus\n'.encode(), "q.csv can't be read"),
    "too long": (HEADER.encode() + b" " * FILE_BYTES_MAX, "q.csv: over 4,194,304 bytes"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_its_row(case: str, tmp_path: Path) -> None:
    body, want = BAD[case]
    path = tmp_path / "q.csv"
    path.write_bytes(body)
    with pytest.raises(Refused) as caught:
        read_quota_file(path)
    assert want in caught.value.message
    assert len(caught.value.message) < 300
    assert caught.value.next_step


def test_no_file_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"q\.csv can't be read: No such file") as caught:
        read_quota_file(tmp_path / "q.csv")
    assert "subscription,region,family,limit,used" in caught.value.next_step


@pytest.mark.parametrize(
    "body", [HEADER + ROW, f"\ufeff{HEADER}{ROW}", f"{HEADER}\n sub-a , eastus ,famH200, 900,12 \n"]
)
def test_a_good_file_is_read(body: str, tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text(body, encoding="utf-8")
    [row] = read_quota_file(path)
    assert (str(row.key), row.limit, row.used) == ("sub-a eastus famH200", 900, 12)


def test_the_row_that_is_named_is_the_one_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text(f"{HEADER}{ROW}\n\n{ROW}", encoding="utf-8")
    with pytest.raises(Refused, match=r"row 5: .* first in row 2"):
        read_quota_file(path)
