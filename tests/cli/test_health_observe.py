"""`plimsoll health observe`, `signal`, `listen` and `policy`: how what is seen comes in, and what it leads to."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from plimsoll.times import utc_now
from tests.support.command import PLIMSOLL, plimsoll
from tests.support.fleets import write_fleet
from tests.support.health import minutes
from tests.support.imports import Importer
from tests.support.inside import Said, called
from tests.support.kubernetes import kubernetes_list, kubernetes_node
from tests.support.terminal import terminal_environment


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One cluster with n1 to n4."""
    dsn = f"sqlite:///{tmp_path}/plimsoll.db"
    importer = Importer(dsn)
    importer.bring(write_fleet(tmp_path / "fleet"))
    importer.keeper.close()
    monkeypatch.setenv("PLIMSOLL_DB", dsn)
    return dsn


def health(*words: object) -> Said:
    return called("health", *words)


def head() -> str:
    return called("audit", "head").out


def service(node: str) -> str:
    found: dict[str, Any] = health("show", node, "-o", "json").json()
    return str(found["service"])


def write_nodes(*nodes: dict[str, Any]) -> Path:
    path = Path("nodes.json")
    path.write_text(kubernetes_list(*nodes))
    return path


def cluster(**of_n1: Any) -> list[dict[str, Any]]:
    return [kubernetes_node(name, **(of_n1 if name == "n1" else {})) for name in ("n1", "n2", "n3", "n4")]


def test_what_kubectl_prints_is_taken_in(db: str) -> None:
    path = write_nodes(*cluster(ready="False", since=utc_now() - minutes(25)), kubernetes_node("login-1"))
    before = head()
    would = health("observe", "kubernetes", path, "--dry-run")
    assert would.out.splitlines()[-1] == "dry run: nothing was kept"
    assert head() == before
    said = health("observe", "kubernetes", path)
    assert said.code == 0
    assert said.out.splitlines()[0] == (
        "kubernetes: 25 signals taken, 0 that the policy has no use for, 0 refused; 1 node changed"
    )
    assert "n1    in_service  quarantined  unhealthy  scheduler not-ready: KubeletNotReady" in said.out
    assert "1 name is no node of the fleet: login-1" in said.out


def test_a_pipe_is_read_and_a_cordon_comes_and_goes(db: str) -> None:
    for is_cordoned, want in ((True, "draining"), (False, "validating")):
        ran = subprocess.run(
            [PLIMSOLL, "health", "observe", "kubernetes", "-", "--db", db],
            input=kubernetes_list(*cluster(is_cordoned=is_cordoned)),
            capture_output=True, text=True, env=terminal_environment(), check=True, timeout=60,
        )  # fmt: skip
        assert ran.stderr == ""
        assert service("n1") == want
    log = called("audit", "log", "--subject", "node/n1", "-o", "json").json()["events"]
    assert "cordoned in Kubernetes" in {event["reason"] for event in log}


BAD_LISTS = {
    "nothing": ("", "nothing came"),
    "half a list": (kubernetes_list(kubernetes_node())[:-20], "it breaks off after"),
    "pods": ('{"kind": "List", "items": [{"kind": "Pod"}]}', "items[0].kind is 'Pod', expected Node"),
}


@pytest.mark.parametrize("sentence", BAD_LISTS)
def test_a_list_that_is_none_is_refused_as_a_whole(sentence: str, db: str) -> None:
    text, want = BAD_LISTS[sentence]
    Path("nodes.json").write_text(text)
    before = head()
    said = health("observe", "kubernetes", "nodes.json")
    assert (said.code, said.out) == (2, "")
    assert f"nodes.json: {want}" in said.err
    assert head() == before


def test_signals_come_as_lines(db: str) -> None:
    lines = [{"node": "n1", "kind": "xid", "name": "79"}, {"node": "n2", "kind": "xid", "name": 31}]
    lines += [{"node": "n9", "kind": "xid", "name": "79"}]
    Path("s.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    said = health("observe", "signals", "s.jsonl", "--feed", "dcgm")
    assert said.out.splitlines()[0] == (
        "dcgm: 1 signal taken, 1 that the policy has no use for, 1 refused; 1 node changed"
    )
    assert "refused: there is no node 'n9' (1 signal)" in said.out
    assert service("n1") == "quarantined"


def test_one_bad_line_and_none_is_taken(db: str) -> None:
    Path("s.jsonl").write_text('{"node": "n1", "kind": "xid", "name": "79"}\n{"node": "n1", "knd": "xid"}\n')
    before = head()
    said = health("observe", "signals", "s.jsonl")
    assert said.code == 2
    assert "s.jsonl, line 2: " in said.err
    assert (head(), service("n1")) == (before, "in_service")
    assert health("observe", "signals", "gone.jsonl").err.startswith("plimsoll: gone.jsonl: No such file or directory")


def test_a_signal_without_use_says_so(db: str) -> None:
    said = health("signal", "n1", "xid", "31")
    assert said.code == 0
    assert "the policy has no use for xid 31: plimsoll health policy show" in said.out


def test_a_retired_node_is_not_a_matter_of_clocks(db: str) -> None:
    health("set", "n1", "retired", "--reason", "sold")
    said = health("signal", "n1", "xid", "79")
    assert (said.code, said.err) == (1, "plimsoll: n1 is retired\n  next: plimsoll health show n1\n")


WRONG_SIGNALS = {
    "a value out of range": (
        ("ecc", "--value", "1e300"), 2, "the value 1e+300 is not a number between -1e+300 and 1e+300",
    ),
    "a signal of long ago": (("xid", "79", "--at", "90d"), 1, "is 90 days ago; signals are taken for 30 days"),
    "the past has its own file": (("xid", "79", "--at", "90d"), 1, "next: write it into history.csv"),
    "a kind that there is not": (("zid", "79"), 2, "heartbeat"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", WRONG_SIGNALS)
def test_a_wrong_signal_says_what_would_be_right(sentence: str, db: str) -> None:
    words, want_code, want = WRONG_SIGNALS[sentence]
    said = health("signal", "n1", *words)
    assert (said.code, said.out) == (want_code, "")
    assert want in said.err


def test_a_feed_that_fails_again_and_again_is_said_and_tried_again(db: str) -> None:
    words = [str(PLIMSOLL), "health", "observe", "prometheus", "http://127.0.0.1:1", "--every", "1s", "--db", db]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=terminal_environment()) as process:
        assert process.stderr is not None
        heard = [process.stderr.readline() for _ in range(4)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert [line.startswith("plimsoll: http://127.0.0.1:1 did not answer") for line in heard] == [True, False] * 2
    assert "Traceback" not in err


def test_listening_takes_signals_until_ctrl_c(db: str) -> None:
    words = [str(PLIMSOLL), "health", "listen", "--port", "0", "--db", db]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=terminal_environment()) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        body = b'{"node": "n1", "kind": "xid", "name": "79"}'
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=20) as answer:  # noqa: S310
            assert json.load(answer)["taken"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert service("n1") == "quarantined"


def test_others_are_not_listened_to_without_a_token(db: str) -> None:
    ran = plimsoll("health", "listen", "--host", "0.0.0.0", "--port", "0", db=db)  # noqa: S104
    assert (ran.code, ran.out) == (1, "")
    assert "  next: set PLIMSOLL_SIGNALS_TOKEN, or listen on 127.0.0.1" in ran.err


class TestPolicy:
    def test_the_default_is_shown_also_without_a_database(self) -> None:
        said = health("policy", "show", "-o", "json")
        assert (said.code, said.json()["is_default"], said.json()["policy"]) == (0, True, "default")
        assert health("policy", "show").out.startswith("# What signals lead to.")

    def test_what_is_shown_can_be_checked_and_applied(self, db: str) -> None:
        text = (
            health("policy", "show")
            .out.replace("policy: default", "policy: ours")
            .replace("xid_profile: fail-listed", "xid_profile: fail-unless-listed")
        )
        Path("ours.yaml").write_text(text)
        before = head()
        checked = health("policy", "check", "ours.yaml")
        assert checked.out.splitlines()[0].startswith("ours.yaml: good; ")
        assert "next: plimsoll health policy apply ours.yaml" in checked.out
        assert head() == before
        applied = health("policy", "apply", "ours.yaml", "--reason", "stricter", "-o", "json").json()
        assert (applied["policy"], applied["xid_profile"]) == ("ours", "fail-unless-listed")
        shown = health("policy", "show", "-o", "json").json()
        assert (shown["text"], shown["is_default"]) == (text, False)
        assert health("policy", "show", "--as-of", before.partition(":")[0], "-o", "json").json()["is_default"] is True
        health("signal", "n1", "xid", "99")
        assert service("n1") == "quarantined"
        again = health("policy", "apply", "ours.yaml")
        assert (again.code, again.err.splitlines()[0]) == (1, "plimsoll: ours.yaml is in force already")

    TYPOS = {
        "a field that is none": ("silence: 15m", "silense: 15m", "silense"),
        "an action that is none": ("do: degrade}", "do: degrad}", "degrad"),
        "a span that is none": ("settle: 10m", "settle: soon", "soon"),
        "a profile that is none": ("xid_profile: fail-listed", "xid_profile: fail-all", "fail-all"),
    }

    @pytest.mark.parametrize("sentence", TYPOS)
    @pytest.mark.parametrize("verb", ["check", "apply"])
    def test_a_slip_is_named_with_its_file_and_line(self, sentence: str, verb: str, db: str) -> None:
        old, new, want = self.TYPOS[sentence]
        text = health("policy", "show").out
        assert old in text
        Path("ours.yaml").write_text(text.replace(old, new, 1))
        line = next(number for number, each in enumerate(text.splitlines(), 1) if old in each)
        before = head()
        said = health("policy", verb, "ours.yaml")
        assert (said.code, said.out) == (2, "")
        assert want in said.err
        assert "ours.yaml, line " in said.err
        if sentence != "a field that is none":
            assert f"ours.yaml, line {line}: " in said.err
        assert head() == before

    def test_a_file_that_is_not_there_is_said(self) -> None:
        assert health("policy", "check", "gone.yaml").err.startswith("plimsoll: 'gone.yaml': No such file or directory")
        Path("bad.yaml").write_bytes(b"\xff\xfe")
        assert health("policy", "check", "bad.yaml").err.startswith("plimsoll: bad.yaml is not UTF-8 text")
