"""The files that pages need: sent once, not again while they are the same, and anew as soon as they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.server import static
from tests.support.served import Served, serving, small_book


def tags(served: Served) -> dict[str, str]:
    return {
        name: served.ask(f"/static/{name}").headers["etag"]
        for name in sorted(path.name for path in static.FOLDER.iterdir() if path.suffix in static.TYPES)
    }


def test_each_file_is_the_one_of_its_name(served: Served) -> None:
    for path in static.FOLDER.iterdir():
        reply = served.ask(f"/static/{path.name}")
        assert (reply.status, reply.body) == (200, path.read_bytes()), path.name


def test_each_file_has_a_tag_of_its_own(served: Served) -> None:
    found = tags(served)
    assert len(found) > 5
    assert len(set(found.values())) == len(found)


def test_what_a_browser_has_is_not_sent_again(served: Served) -> None:
    first = served.ask("/static/app.js")
    again = served.ask("/static/app.js", If_None_Match=first.headers["etag"])
    other = served.ask("/static/app.css", If_None_Match=first.headers["etag"])
    assert [(each.status, bool(each.body)) for each in (first, again, other)] == [
        (200, True),
        (304, False),
        (200, True),
    ]
    assert again.headers["etag"] == first.headers["etag"]


def test_after_an_upgrade_a_browser_gets_the_new_script_and_keeps_what_is_still_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, folder = small_book(tmp_path), tmp_path / "static"
    folder.mkdir()
    monkeypatch.setattr(static, "FOLDER", folder)
    (folder / "same.css").write_text("body {}")
    (folder / "moved.js").write_text("export const line = 1;")
    with serving(dsn) as before:
        had = {name: before.ask(f"/static/{name}").headers["etag"] for name in ("same.css", "moved.js")}
    (folder / "moved.js").write_text("export const line = 2;")  # of the same length
    with serving(dsn) as after:
        replies = {name: after.ask(f"/static/{name}", If_None_Match=tag) for name, tag in had.items()}
    assert (replies["same.css"].status, replies["moved.js"].status) == (304, 200)
    assert replies["moved.js"].body == b"export const line = 2;"


def test_only_files_of_the_folder_are_sent(served: Served) -> None:
    for name in ("none.js", "", "../static.py", "%2e%2e/static.py", "..%2fstatic.py", "/etc/passwd", "app.js/"):
        assert served.ask(f"/static/{name}").error["code"] == "no_such_file", name
