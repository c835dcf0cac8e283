"""The house is built as docs/explain/architecture.md says: who may import whom, and what must stay pure."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "plimsoll"
CAPABILITIES = ["access", "fleet", "health", "quota", "workloads", "incidents", "campaigns", "lifecycle"]
BASICS = {"answers", "errors", "times", "words", "filter", "memory", "documents", "charts"}
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

PURE = {
    "account",
    "act",
    "actions",
    "acts",
    "adopt",
    "ahead",
    "align",
    "apply",
    "ask",
    "attention",
    "behind",
    "blocked",
    "bookings",
    "breakers",
    "calendar",
    "canaries",
    "changes",
    "chat",
    "choice",
    "combinations",
    "compare",
    "control",
    "courses",
    "curve",
    "decide",
    "default_policy",
    "defrag",
    "desk",
    "facts",
    "file",
    "fill",
    "fixes",
    "fleet",
    "flex",
    "fold",
    "fold_floor",
    "fold_rename",
    "fold_tables",
    "gather",
    "givers",
    "grid",
    "growth",
    "headroom",
    "http",
    "hull",
    "hurt",
    "ics",
    "intake",
    "judge",
    "kueue",
    "lines",
    "losses",
    "markup",
    "measure",
    "measures",
    "model",
    "moves",
    "near",
    "node",
    "notice",
    "offers",
    "open_block",
    "outages",
    "outcome",
    "outs",
    "outside",
    "page",
    "page_calendar",
    "past",
    "past_text",
    "picture",
    "pilot",
    "plan",
    "policy",
    "preempt",
    "present",
    "promise",
    "queue",
    "reasons",
    "refusal",
    "repair",
    "replay",
    "requests",
    "rewind",
    "right",
    "rights",
    "rollout",
    "rooms",
    "running",
    "selector",
    "shape",
    "sheet",
    "sheets",
    "signals",
    "silence",
    "silences",
    "slo",
    "slurm_names",
    "solve",
    "space",
    "stop_text",
    "stopped",
    "stops",
    "style",
    "sweep",
    "table",
    "team",
    "text",
    "trace",
    "unusable",
    "victims",
    "view",
    "waited",
    "waiting",
    "waits",
    "workload",
}
"""Modules of a capability that touch no clock, chance, file, database or log."""

IMPURE = {
    "asyncio", "datetime.datetime.now", "io", "logging", "os", "pathlib", "psycopg", "random", "secrets", "shutil",
    "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "zipfile",
}  # fmt: skip

EVERYTHING = BASICS | set(CAPABILITIES) | {
    "ledger", "state", "connect", "simulate", "rooms", "commands", "server", "cli", "__version__",
}  # fmt: skip
PAGES_MAY_IMPORT = {"access", "errors", "times", "words", "server", "charts"}
"""Pages have no other way to the state than the API's answers."""

MAY_IMPORT = {
    "ledger": BASICS,
    "state": BASICS | {"ledger"},
    "connect": BASICS,
    "simulate": BASICS | {"ledger", "state", "fleet", "health", "quota", "workloads"},
    "commands": EVERYTHING - {"server", "cli"},
    "server": EVERYTHING - {"cli"},
    "cli": None,
    "rooms": None,
}
"""None: anything. Capabilities may import the basics, ledger, state and the capabilities before them."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def allowed_rooms(room: str) -> set[str] | None:
    if room in CAPABILITIES:
        return BASICS | {"ledger", "state", "connect", *CAPABILITIES[: CAPABILITIES.index(room)]}
    return MAY_IMPORT.get(room, BASICS)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    room = room_of(path)
    allowed = allowed_rooms(room)
    if allowed is None:
        return
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("plimsoll.") and name.count(".")}
    wrong = ours - allowed - {room, "__version__"}
    assert not wrong, f"{room} must not import {sorted(wrong)}"


@pytest.mark.parametrize("path", sorted((SOURCE / "server" / "pages").glob("*.py")), ids=lambda path: path.stem)
def test_pages_use_only_what_the_api_answers(path: Path) -> None:
    if path.stem == "serve":  # it is no page: it serves them
        return
    ours = {name.split(".")[1] for name in imported(path) if name.startswith("plimsoll.") and name.count(".")}
    assert not ours - PAGES_MAY_IMPORT - {"__version__"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_decisions_are_pure(path: Path) -> None:
    if room_of(path) not in CAPABILITIES or "demo" in path.parts:
        return
    text = path.read_text(encoding="utf-8")
    if path.stem not in PURE and "Pure" not in (ast.get_docstring(ast.parse(text)) or ""):
        return  # one that says that it is pure is held to it, whatever its name
    names = imported(path)
    impure = {name for name in names if name in IMPURE or name.split(".")[0] in IMPURE}
    assert not impure, f"a pure module imports {sorted(impure)}"
    assert "plimsoll.times.utc_now" not in names, "a pure module gets the time as an argument"
    assert ".now(" not in text, "a pure module gets the time as an argument"
    assert not re.search(r"\bopen\(", text), "a pure module opens nothing"


def test_tables_change_only_in_folds() -> None:
    for path in modules():
        if path.stem.startswith("fold") or path.stem == "table":
            continue
        calls = [
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
        assert not {"put", "drop"} & set(calls), f"{path.name} changes a table; only folds do"


def test_rooms_never_import_each_other() -> None:
    edges = {
        (room_of(path), name.split(".")[1])
        for path in modules()
        for name in imported(path)
        if name.startswith("plimsoll.") and name.count(".") > 1
    }
    assert not {(a, b) for a, b in edges if a != b and (b, a) in edges}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_is_and_fits_a_sitting(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module opens with what it decides"
    assert text.count("\n") <= MODULE_LINES_MAX
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"
