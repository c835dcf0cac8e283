"""Files on disk: all of them, whole or as before, and every link leads to one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from plimsoll.campaigns.publish.model import FeedState
from plimsoll.campaigns.publish.service import publish_files, render_files
from plimsoll.errors import PlimsollError, UsageError
from tests.campaigns.publish.plans import batch, publish, tell, unit


def test_every_link_of_the_page_leads_to_a_file(tmp_path: Path) -> None:
    published = publish([batch(), batch("a/b")], teams={"tiger": ("evals & co",)}, units=[unit(), unit("a/b")])
    paths = publish_files(published, tell(published), tmp_path / "new" / "folder")
    assert paths[-1].name == "index.html", "it comes last: what it leads to is there already"
    names = {path.name for path in paths}
    assert {"campaign.ics", "campaign.csv", "campaign.md", "campaign.png", "team-evals~20~26~20co.ics"} <= names
    assert sorted(names) == sorted(os.listdir(tmp_path / "new" / "folder")), "no drafts are left"
    page = paths[-1].read_text()
    links = set(re.findall(r'href="([^"#]+)"', page))
    assert links
    assert links <= names


def test_everything_carries_the_number_of_the_plan() -> None:
    published = publish([batch()], number=41, teams={"tiger": ("evals",)})
    for name, body in render_files(published, tell(published)).items():
        if name.endswith(".csv"):
            assert b"nic-firmware,41," in body
        elif not name.endswith(".png"):
            assert b"plan 41" in body.lower(), name


def test_the_same_plan_gives_the_same_files() -> None:
    published = publish([batch(), batch("lion")], teams={"tiger": ("evals",)})
    assert render_files(published, tell(published)) == render_files(published, tell(published))


def test_a_feed_that_the_ledger_does_not_have_is_our_own_mistake(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        publish_files(publish([batch()]), FeedState(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_who_reads_meanwhile_reads_the_old_file_to_its_end(tmp_path: Path) -> None:
    first, second = publish([batch()]), publish([batch(day=3)], number=2)
    publish_files(first, tell(first), tmp_path)
    before = (tmp_path / "index.html").read_bytes()
    with (tmp_path / "index.html").open("rb") as reader:
        publish_files(second, tell(first, second), tmp_path)
        assert reader.read() == before
    assert (tmp_path / "index.html").read_bytes() != before


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = publish([batch()])
    publish_files(first, tell(first), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    second = publish([batch(day=3)], number=2)
    with pytest.raises(PlimsollError) as caught:
        publish_files(second, tell(first, second), tmp_path)
    assert caught.value.code == "bad_folder"
    assert "No space left" in caught.value.message
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site").write_text("here first")
    published = publish([batch()])
    with pytest.raises(UsageError) as caught:
        publish_files(published, tell(published), tmp_path / "site")
    assert caught.value.code == "bad_folder"
    assert (tmp_path / "site").read_text() == "here first"
