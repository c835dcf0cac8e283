"""Slurm's short lists of names, both ways."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.connect import slurm_hostlist
from plimsoll.connect.slurm_hostlist import expand, shorten

LISTS = {
    "": [],
    "(null)": [],
    "n1": ["n1"],
    "n[1-3]": ["n1", "n2", "n3"],
    "n[08-11,2],login": ["n08", "n09", "n10", "n11", "n2", "login"],
    "rack[1-2]node[3-4]x": ["rack1node3x", "rack1node4x", "rack2node3x", "rack2node4x"],
}


@pytest.mark.parametrize(("text", "want"), LISTS.items(), ids=[text or "empty" for text in LISTS])
def test_a_list_is_read(text: str, want: list[str]) -> None:
    assert expand(text) == want


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1[", "n[[1]]", "n[3-1]", "n[a]", "n[]", ",", "n1,,n2", "n[1-999999999]", "n[1-400]m[1-400]"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it |its "):
        expand(text)


def test_runs_share_a_word_and_widths_do_not() -> None:
    names = ["n001", "n003", "n002", "login", "n1", "n005", "7", "n001"]
    assert shorten(names) == ["login", "7", "n1", "n[001-003,005]"]


def test_a_long_list_is_cut_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_hostlist, "WORD_BYTES_MAX", 20)
    names = [f"n{number:03}" for number in range(0, 40, 2)]
    words = shorten(names)
    assert len(words) == 4
    assert expand(",".join(words)) == names


NAMES = st.text(st.sampled_from("ab0123456789-."), min_size=1, max_size=14).filter(lambda name: name[0] not in "-.")


@given(st.lists(NAMES, max_size=60))
def test_what_is_shortened_is_read_back_whole(names: list[str]) -> None:
    assert sorted(expand(",".join(shorten(names)))) == sorted(set(names))


@given(st.text(st.sampled_from("ab01[]-,"), max_size=30))
def test_no_text_makes_anything_but_names_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert all(expand(text))
