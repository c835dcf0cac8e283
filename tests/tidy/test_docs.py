"""The documentation is true: its examples run, its links lead somewhere, and nothing public is missing from it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import plimsoll
from tests.support.inside import called

PROJECT = Path(__file__).resolve().parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])
EXAMPLES = [page for page in PAGES if "```console" in page.read_text(encoding="utf-8")]
SHELL = frozenset("|<>;&$`*?[]~(){}")
"""What only a shell understands."""


def page_id(page: Path) -> str:
    return str(page.relative_to(PROJECT))


@pytest.fixture(scope="module")
def demo_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "plimsoll.db"
    ran = plimsoll("demo", db=f"sqlite:///{path}")
    assert ran.code == 0, ran.err
    return path


@pytest.mark.parametrize("page", EXAMPLES, ids=page_id)
def test_examples_run_and_print_what_is_shown(
    page: Path, demo_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(demo_database, tmp_path / "plimsoll.db")
    for name in [name for name in os.environ if name.startswith("PLIMSOLL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PLIMSOLL_ACTOR", "root")
    monkeypatch.chdir(tmp_path)
    for command, want_output in examples(page):
        want_code = int(found[1]) if (found := re.search(r"# exit (\d)", command)) else 0
        code, said = _typed(command)
        assert code == want_code, f"{command}\n{said}"
        if want_output:
            assert re.fullmatch(pattern_of(want_output), said), f"{command}\n{said}"


def _typed(command: str) -> tuple[int, str]:
    """What a command typed here comes to. Where no shell is needed it is called inside, which is much quicker."""
    if command.startswith("plimsoll ") and not SHELL & set(command):
        ran = called(*shlex.split(command, comments=True)[1:])
        return ran.code, ran.out + ran.err
    process = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return process.returncode, process.stdout + process.stderr


def examples(page: Path) -> list[tuple[str, str]]:
    """The commands of a page's console blocks, each with the output shown for it."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], ""))
            else:
                found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def pattern_of(shown: str) -> str:
    """`…` alone on a line stands for any lines, inside a line for any text."""
    lines = [
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"[ ]*\n" for line in shown.splitlines()
    ]
    return "".join(re.sub(r"(?:\\ )+", r"[ ]+", line) for line in lines)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_reference_is_what_the_code_says() -> None:
    ran = subprocess.run(
        [sys.executable, PROJECT / "scripts" / "reference", "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


NOT_OURS = {"plimsoll_critical", "plimsoll_flex", "plimsoll_vision"}
"""Names that Slurm gets, put together from parts."""


def test_every_word_of_the_code_that_a_page_names_is_there() -> None:
    """Codes, fields and parameters in back ticks: one that was renamed or dropped is found here."""
    sources = [path for path in PROJECT.glob("src/**/*") if path.suffix in (".py", ".yaml", ".html")]
    known = {word for path in sources for word in re.findall(r"[a-z]\w+", path.read_text(encoding="utf-8"))}
    pages = [page for page in PAGES if page.name not in ("THREAT_MODEL.md", "CHANGELOG.md", "metrics.md")]
    for page in pages:
        named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page.read_text(encoding="utf-8")))
        assert named <= known | NOT_OURS, (page.name, named - known - NOT_OURS)


def test_no_lock_of_a_database_is_in_the_tree() -> None:
    """Such as a test leaves that leads where it stands."""
    assert [path.name for path in PROJECT.glob("*.leader")] == []


def test_every_setting_is_documented() -> None:
    settings = (PROJECT / "docs/reference/settings.md").read_text(encoding="utf-8")
    sources = [*PROJECT.glob("src/**/*.py"), *PROJECT.glob("tests/**/*.py")]
    named = {name for path in sources for name in re.findall(r'"(PLIMSOLL_[A-Z_]+)"', path.read_text(encoding="utf-8"))}
    assert named, "the pattern finds settings"
    assert not {name for name in named if f"`{name}" not in settings}


def test_every_decision_has_context_choice_and_price() -> None:
    for page in PROJECT.glob("docs/explain/decisions/*.md"):
        text = page.read_text(encoding="utf-8")
        assert all(f"**{word}" in text for word in ("Context.", "Choice.", "What we gave up.")), page.name


def test_requirements_are_hashed_and_name_no_host() -> None:
    for path in PROJECT.glob("requirements/*.txt"):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text, path.name
        pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert pinned, path.name
        assert all("==" in line and line.endswith("\\") for line in pinned), path.name


def test_no_path_of_a_machine_is_in_the_tree() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"/(?:home|root|Users|work)/\w")
    for name in filter(None, listed.stdout.split("\0")):
        text = (PROJECT / name).read_text(encoding="utf-8", errors="ignore") if (PROJECT / name).is_file() else ""
        assert not pattern.search(text), name
