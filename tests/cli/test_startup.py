"""Before a command does anything: help that is quick and complete, and completion."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import typer

from plimsoll.cli.main import NOUNS, root
from tests.support.command import PLIMSOLL, plimsoll
from tests.support.inside import called

HEAVY = {"msgspec", "openpyxl", "psycopg", "yaml", "rich", "sqlite3", "pydantic", "plimsoll.state", "plimsoll.fleet"}
QUICK = [["--help"], ["-h"], ["--version"]]


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from plimsoll.cli.main import main\n"
        "try:\n"
        f"    main({words!r})\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "print('LOADED', *sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.rpartition("LOADED")[2].split())
    assert "plimsoll.cli.main" in loaded
    assert not loaded & HEAVY


def commands() -> dict[str, Any]:
    """Every command by its words."""
    group: Any = typer.main.get_command(root)
    context = group.make_context("plimsoll", [], resilient_parsing=True)
    found: dict[str, Any] = {}

    def add(words: str, command: Any) -> None:
        inner = getattr(command, "commands", {})
        for verb, leaf in inner.items():
            add(f"{words} {verb}", leaf)
        if not inner:
            found[words] = command

    for noun in NOUNS:
        add(noun, group.get_command(context, noun))
    return found


COMMANDS = commands()
WANT_COMMANDS = [
    "demo",
    "fleet import",
    "fleet export",
    "fleet show",
    "fleet nodes",
    "fleet clusters",
    "fleet map",
    "health show",
    "health slo",
    "health outages",
    "health forecast",
    "health backtest",
    "health signal",
    "health listen",
    "health sweep",
    "health set",
    "health hold",
    "health release",
    "health holds",
    "health tick",
    "health breaker",
    "health announce",
    "health announced",
    "health withdraw",
    "health observe signals",
    "health observe kubernetes",
    "health observe prometheus",
    "health observe slurm",
    "health policy show",
    "health policy check",
    "health policy apply",
    "quota show",
    "quota plan",
    "quota apply",
    "quota compare",
    "quota report",
    "quota rollout",
    "quota notices",
    "quota agree",
    "quota object",
    "quota pilot",
    "quota mode",
    "quota control",
    "quota flex",
    "quota callback",
    "quota promise",
    "quota history",
    "quota changes",
    "quota request",
    "quota requests",
    "quota approve",
    "quota deny",
    "quota withdraw",
    "quota transfer",
    "quota grants",
    "quota end-grant",
    "quota settle",
    "quota rename",
    "quota render",
    "quota push",
    "quota policy show",
    "quota policy check",
    "quota policy apply",
    "workload example",
    "workload submit",
    "workload list",
    "workload show",
    "workload scale",
    "workload rank",
    "workload cancel",
    "workload finish",
    "workload usage",
    "workload hold",
    "workload holds",
    "workload release",
    "workload uptime",
    "workload defrag",
    "workload run",
    "why",
    "incident list",
    "incident show",
    "incident open",
    "incident note",
    "incident close",
    "incident notices",
    "incident run",
    "campaign example",
    "campaign plan",
    "campaign check",
    "campaign compare",
    "campaign publish",
    "campaign feed",
    "campaign start",
    "campaign run",
    "campaign status",
    "campaign calendar",
    "campaign list",
    "campaign gate",
    "campaign tick",
    "campaign agree",
    "campaign returned",
    "campaign pause",
    "campaign resume",
    "campaign replan",
    "campaign cancel",
    "campaign combinations",
    "campaign tested",
    "campaign want",
    "campaign blocked",
    "campaign behind",
    "campaign incident open",
    "campaign incident note",
    "campaign incident close",
    "campaign incident list",
    "campaign versions import",
    "campaign versions show",
    "campaign versions relevant",
    "cluster add",
    "cluster import",
    "cluster edit",
    "cluster list",
    "cluster show",
    "cluster log",
    "cluster checkin",
    "cluster run",
    "cluster retry",
    "cluster waive",
    "cluster pause",
    "cluster resume",
    "cluster retire",
    "cluster quota",
    "cluster times",
    "cluster migrate",
    "cluster render",
    "cluster recipe list",
    "cluster recipe show",
    "cluster recipe check",
    "cluster recipe apply",
    "simulate replay",
    "simulate generate",
    "access list",
    "access grant",
    "access revoke",
    "access check",
    "access whoami",
    "access link",
    "access token issue",
    "access token list",
    "access token revoke",
    "access session end",
    "audit log",
    "audit head",
    "audit verify",
    "serve",
]


WITHOUT_OUTPUT = {
    "campaign feed",
    "serve",
    "health listen",
    "workload example",
    "campaign example",
    "cluster render",
    "cluster recipe show",
    "simulate generate",
}
WITHOUT_DATABASE = {
    "health backtest",
    "health policy check",
    "workload example",
    "cluster recipe check",
    "simulate replay",
    "simulate generate",
}


def test_the_commands_are_those_of_the_design() -> None:
    assert list(COMMANDS) == WANT_COMMANDS


@pytest.mark.parametrize("command", WANT_COMMANDS)
def test_the_help_of_a_command_says_each_option_in_words(command: str) -> None:
    said = called(*command.split(), "--help")
    assert (said.code, said.err) == (0, "")
    text = re.sub(r"\s+", " ", said.out)
    assert text.startswith(f"Usage: plimsoll {command}")
    for parameter in COMMANDS[command].params:
        if parameter.param_type_name == "option":
            assert parameter.opts[-1] in text
        assert parameter.help, f"{parameter.name} says nothing"
        assert parameter.help.split()[0] in text
    assert ("-o, --output" in text) is (command not in WITHOUT_OUTPUT)
    assert ("--db URL" in text) is (command not in WITHOUT_DATABASE)


def test_the_first_help_names_every_noun_and_the_first_step() -> None:
    text = called("--help").out
    assert all(f"  {noun} " in text for noun in NOUNS)
    assert "Exit codes: 0 done, 1 refused or not possible, 2 wrong usage" in text
    assert "plimsoll demo" in re.sub(r"\s+", " ", text)


def complete(words: str) -> list[str]:
    """What bash offers after these words."""
    count = len(words.split(" ")) - 1
    environment = {"_PLIMSOLL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    ran = subprocess.run([PLIMSOLL], capture_output=True, text=True, check=False, env=environment)
    assert ran.stderr == ""
    return ran.stdout.split()


COMPLETIONS = {
    "plimsoll ": [
        "demo",
        "fleet",
        "health",
        "quota",
        "workload",
        "why",
        "incident",
        "campaign",
        "cluster",
        "simulate",
        "access",
        "audit",
        "serve",
    ],
    "plimsoll fl": ["fleet"],
    "plimsoll fleet ": ["import", "export", "show", "nodes", "clusters", "map"],
    "plimsoll health observe ": ["signals", "kubernetes", "prometheus", "slurm"],
    "plimsoll workload ca": ["cancel"],
    "plimsoll workload rank x --tier ": ["critical", "high", "mid", "low"],
    "plimsoll why --": ["--if", "--fleet", "--from", "--to", "--db", "--output", "--as-of", "--watch", "--help"],
    "plimsoll campaign re": ["returned", "resume", "replan"],
    "plimsoll simulate ": ["replay", "generate"],
    "plimsoll audit ve": ["verify"],
    "plimsoll fleet nodes --": ["--limit", "--db", "--output", "--as-of", "--watch", "--help"],
    "plimsoll fleet import --d": ["--db", "--dry-run"],
    "plimsoll fleet nodes -o ": ["table", "json", "csv", "yaml"],
    "plimsoll fleet show --by c": ["colo", "cluster"],
}


@pytest.mark.parametrize("words", COMPLETIONS)
def test_the_shell_completes_commands_options_and_their_values(words: str) -> None:
    assert complete(words) == COMPLETIONS[words]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_completion(shell: str) -> None:
    ran = plimsoll(_PLIMSOLL_COMPLETE=f"source_{shell}")
    assert ran.code == 0
    assert "_PLIMSOLL_COMPLETE" in ran.out
