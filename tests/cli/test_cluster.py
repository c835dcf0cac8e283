"""`plimsoll cluster …` as people type it: from an empty folder into production and out, and every way to be wrong."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from plimsoll.commands.cluster import run
from plimsoll.lifecycle.fold import Lives
from plimsoll.lifecycle.machines import STANDARD
from plimsoll.lifecycle.model import Life
from plimsoll.rooms import open_keeper
from tests.support.fleets import row, write_fleet
from tests.support.inside import Said, called

DSN = "sqlite:///plimsoll.db"
QUOTA = "subscription,region,family,limit,used\nsub-a,eastus,standardNDISRH200V5Family,900,0\n"
WIDTH_MAX = 130
"""Of everything that is no sentence: what fits on a terminal."""
QUICK = STANDARD.replace("version: 1", "version: 2").replace("steady_for: 5s", "steady_for: 0s")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_REHEARSAL", "seconds=0.01")
    monkeypatch.setattr(run, "WAIT_SECONDS", 0.05)


def cluster(*words: object) -> Said:
    return called("cluster", *words)


def typed(line: str) -> Said:
    """A command as it stands in a text."""
    words = shlex.split(line)
    assert words[0] == "plimsoll"
    return called(*words[1:])


def add(name: str = "lynx", *words: str) -> Said:
    usual = {"--region": "eastus", "--subscription": "sub-a", "--sku": "H200", "--nodes": "8"}
    given = [word for pair in usual.items() if pair[0] not in words for word in pair]
    return cluster("add", name, *given, *words)


def life(name: str = "lynx") -> Life:
    return open_keeper(DSN).state().of(Lives).lives[name]


def revision() -> int:
    return open_keeper(DSN).state().revision


def quota(text: str = QUOTA) -> None:
    Path("quota.csv").write_text(text, encoding="utf-8")


def in_production(name: str = "lynx", *words: str) -> None:
    """A cluster that went all the way, quickly."""
    quota()
    Path("quick.yaml").write_text(QUICK, encoding="utf-8")
    cluster("recipe", "apply", "quick.yaml")
    add(name, *words)
    cluster("checkin", name)
    assert "1 production" in cluster("run", name, "--wait").out


# Without anything.


READS = ("list", "show x", "log x", "quota", "times", "run", "checkin x", "retry x", "edit x --nodes 3", "retire x")


@pytest.mark.parametrize("words", READS)
def test_without_a_database_it_says_so_and_makes_none(words: str) -> None:
    said = cluster(*words.split())
    assert (said.code, said.out) == (1, "")
    assert "there is no database at plimsoll.db" in said.err
    assert not Path("plimsoll.db").exists()


def test_recipes_are_there_before_any_database() -> None:
    assert [line.split()[0] for line in cluster("recipe", "list").out.splitlines()[1:]] == [
        "azure",
        "standard",
        "zero-bootstrap",
    ]
    assert cluster("recipe", "show", "standard").out == STANDARD
    assert not Path("plimsoll.db").exists()


@pytest.mark.parametrize("words", ["list", "quota", "times", "recipe list"])
@pytest.mark.parametrize("form", ["json", "csv", "yaml", "table"])
def test_an_empty_database_has_empty_answers(words: str, form: str) -> None:
    open_keeper(DSN, create=True).close()
    said = cluster(*words.split(), "-o", form)
    assert (said.code, said.err) == (0, "")
    assert said.out.strip()
    assert "cluster add --help" in cluster("run").out


# Planning.


ADDS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no such SKU": (("--sku", "H300"), 1, "sku: 'H300', expected a SKU whose machines recipe standard knows: A100"),
    "no nodes": (("--nodes", "0"), 1, "nodes: '0', expected a whole number from 1 to 20,000"),
    "too many": (("--nodes", "99999999"), 1, "nodes: '99999999', expected a whole number from 1 to 20,000"),
    "a word for nodes": (("--nodes", "four"), 2, "Invalid value for '--nodes'"),
    "more islands than nodes": (("--islands", "9"), 1, "islands: '9', expected a whole number from 1 to the 8 nodes"),
    "too few islands": (
        ("--nodes", "4000"),
        1,
        "islands: '1', expected at least 4: one is a scale set of at most 1,000",
    ),
    "nowhere": (("--region", ""), 1, "region: '', expected a name, found nothing"),
    "a tab": (("--subscription", "a\tb"), 1, "subscription: 'a\\tb', expected a name of printable characters"),
    "no such area": (("--area", "mars"), 2, "'mars' is not one of 'us', 'eu', 'uk', 'other'"),
    "no day": (("--wanted", "tomorrow"), 2, "--wanted 'tomorrow' is not a day such as 2026-03-01"),
    "half a label": (("--label", "rack"), 2, "--label 'rack' is not NAME=VALUE"),
    "no such recipe": (
        ("--recipe", "standrd"),
        1,
        "no recipe 'standrd'; did you mean standard? (known: azure, standard",
    ),
}


@pytest.mark.parametrize("case", ADDS)
def test_a_cluster_that_can_not_be_made_is_not_planned(case: str) -> None:
    words, code, want = ADDS[case]
    said = add("lynx", *words)
    assert (said.code, said.out) == (code, "")
    assert want in said.err
    assert "next: " in said.err
    assert not Path("plimsoll.db").exists()


def test_a_name_is_taken_once() -> None:
    assert "2 to 40 small letters" in add("Lynx_1").err
    assert add().code == 0
    said = add()
    assert (said.code, "lynx is planned already" in said.err) == (1, True)
    assert "plimsoll cluster edit lynx" in said.err


def test_a_dry_run_of_everything_changes_nothing() -> None:
    assert add("lynx", "--dry-run").out == "lynx: would be planned\n\ndry run: nothing was kept\n"
    assert not Path("plimsoll.db").exists()
    add()
    Path("quick.yaml").write_text(QUICK, encoding="utf-8")
    before = revision()
    for words in (
        "edit lynx --nodes 6",
        "checkin lynx",
        "pause lynx",
        "resume lynx",
        "retire lynx",
        "migrate lynx --recipe zero-bootstrap",
        "recipe apply quick.yaml",
        "add moth --region r --subscription s --sku H200 --nodes 1",
    ):
        said = cluster(*words.split(), "--dry-run", "-o", "json")
        assert (said.code, said.json()["dry_run"], words) == (0, True, words)
        assert "dry run: nothing was kept" in cluster(*words.split(), "--dry-run").out or "recipe" in words
    assert revision() == before


def test_an_edit_is_picked_up_and_its_generation_seen() -> None:
    quota(QUOTA.replace("900", "0"))
    add("lynx", "--label", "rack=7", "--wanted", "2027-01-01", "--owner", "ann")
    cluster("run")
    said = cluster("edit", "lynx", "--nodes", "6", "--label", "rack=", "--wanted", "", "--owner", "", "-o", "json")
    assert said.json()["generation"] == 2
    lynx = life()
    assert (lynx.spec.nodes, lynx.spec.labels, lynx.spec.wanted, lynx.spec.owner) == (6, {}, None, "")
    assert {each.generation for each in lynx.conditions.values()} == {1}
    cluster("run")
    assert {each.generation for each in life().conditions.values()} == {2}
    assert "576 of 576 cores" in life().conditions["QuotaSufficient"].message
    before = revision()
    assert cluster("edit", "lynx", "--nodes", "6").out.startswith("lynx: nothing to change\n")
    assert revision() == before


EDITS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "nothing": (("lynx",), 2, "nothing to change was given"),
    "no nodes": (("lynx", "--nodes", "0"), 1, "nodes: '0', expected"),
    "no such cluster": (("lnyx", "--nodes", "1"), 1, "there is no cluster 'lnyx'; did you mean lynx?"),
    "no such recipe": (("lynx", "--recipe", "x"), 1, "there is no recipe 'x'"),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_that_can_not_be_meant_is_refused(case: str) -> None:
    words, code, want = EDITS[case]
    add()
    before = revision()
    said = cluster("edit", *words)
    assert (said.code, want in said.err, revision()) == (code, True, before)


# Into production.


def test_a_new_user_gets_a_cluster_into_production_by_typing_what_is_printed() -> None:
    said = add("lynx", "--islands", "2")
    commands = re.findall(r"(plimsoll cluster [^\n]+)", said.out)
    assert commands == ["plimsoll cluster run --every 30s", "plimsoll cluster checkin lynx"]
    said = cluster("run")
    assert "lynx has been planned for 0 s: the quota can't be read: quota.csv can't be read: No such file" in said.out
    assert "a person's move: write it (subscription,region,family,limit,used)" in said.out
    quota()
    said = cluster("run")
    assert "lynx: quota: 768 cores are promised to it, and to nobody else" in said.out
    found = re.search(r"a person's move: (plimsoll cluster checkin lynx)\)", said.out)
    assert found is not None
    assert typed(found[1]).out.startswith("lynx: checked in\n")
    before = revision()
    assert typed(found[1]).out.startswith("lynx: checked in already, by tester\n")
    assert revision() == before
    said = cluster("run", "--wait")
    assert "lynx: provisioned -> production" in said.out
    assert said.out.rstrip().endswith("1 cluster: 1 production")
    assert cluster("list").out.startswith("0 clusters being made, 1 in production\n")
    assert cluster("show", "lynx").out.startswith("lynx has been in production for ")
    document = cluster("show", "lynx", "-o", "json").json()
    assert document["estimate"] is None
    assert [step["attempt"] for step in document["steps"]] == [1] * 6
    assert [each["there"] for each in document["sets"]] == [4, 4]
    assert all(each["status"] == "True" for each in document["conditions"])
    times = cluster("times", "-o", "csv").out
    assert [line["step"] for line in csv.DictReader(io.StringIO(times))][:2] == ["bootstrap", "burn-in"]


@pytest.mark.parametrize("words", ["list", "show lynx", "log lynx", "quota", "quota lynx", "times", "recipe list"])
def test_what_is_shown_fits_a_terminal_and_comes_in_every_form(words: str) -> None:
    add()
    quota(QUOTA.replace("900", "5"))
    cluster("run")
    said = cluster(*words.split())
    assert (said.code, said.err) == (0, "")
    tables = [line for line in said.out.splitlines() if "  " in line]
    assert max(map(len, tables), default=0) <= WIDTH_MAX
    assert not re.search(r"\d\d:\d\d:\d\d\.\d", said.out), "nobody reads microseconds"
    msgspec.json.decode(cluster(*words.split(), "-o", "json").out)
    yaml.safe_load(cluster(*words.split(), "-o", "yaml").out)
    lines = list(csv.reader(io.StringIO(cluster(*words.split(), "-o", "csv").out)))
    assert len({len(line) for line in lines}) <= 1


def test_csv_and_json_have_the_whole_message() -> None:
    add()
    cluster("run")
    [line] = csv.DictReader(io.StringIO(cluster("list", "-o", "csv").out))
    [told] = cluster("list", "-o", "json").json()["clusters"]
    assert list(line) == list(told)
    assert (
        line["message"]
        == told["message"]
        == "the quota can't be read: quota.csv can't be read: No such file or directory"
    )
    conditions = list(csv.DictReader(io.StringIO(cluster("show", "lynx", "-o", "csv").out)))
    assert [each["condition"] for each in conditions] == list(life().conditions)
    assert conditions[1]["message"] == told["message"]


def test_the_list_is_filtered_and_says_when_nothing_is_meant() -> None:
    add()
    cluster("run")
    assert "lynx" in cluster("list", "--phase", "planned", "--move", "person").out
    assert "none of 1 cluster is meant by this" in cluster("list", "--phase", "production").out
    assert cluster("list", "--phase", "flying").code == 2


def test_the_past_is_answered_as_it_was() -> None:
    add()
    planned = revision()
    cluster("run")
    cluster("edit", "lynx", "--nodes", "6")
    said = cluster("show", "lynx", "--as-of", str(planned), "-o", "json").json()
    assert (said["spec"]["nodes"], said["conditions"], len(said["timeline"])) == (8, [], 1)
    assert cluster("list", "--as-of", str(planned), "-o", "json").json()["clusters"][0]["nodes"] == 8
    assert "nothing was recorded yet" in cluster("list", "--as-of", "2020-01-01").out
    assert cluster("show", "lynx", "--as-of", "2020-01-01").code == 1
    assert cluster("list", "--watch", "--as-of", "1").code == 2


# What people say on the way.


SAID: dict[str, tuple[str, int, str]] = {
    "retry of what has not failed": ("retry lynx", 1, "no step of lynx has failed"),
    "retry of what was not begun": (
        "retry lynx bootstrap",
        1,
        "bootstrap of lynx was not begun yet: it begins by itself",
    ),
    "retry of no step": ("retry lynx boot", 1, "recipe standard has no step 'boot'; did you mean bootstrap?"),
    "waive before it could begin": ("waive lynx bootstrap", 1, "planned and not checked in: bootstrap can't be taken"),
    "waive of the check-in": ("waive lynx checkin", 1, "next: plimsoll cluster checkin lynx"),
    "migrate to no version": ("migrate lynx --version 7", 1, "there is no version 7 of recipe standard"),
    "migrate to no recipe": ("migrate lynx --recipe x", 1, "there is no recipe 'x'"),
    "render of what has no scale sets": ("render lynx", 1, "makes no scale sets through the Azure Service Operator"),
    "run of no cluster": ("run moth", 1, "there is no cluster 'moth'"),
    "run every nothing": ("run --every 5", 2, "--every '5' is not a span"),
    "show of no cluster": ("show lnyx", 1, "there is no cluster 'lnyx'; did you mean lynx?"),
    "quota of no cluster": ("quota moth", 1, "there is no cluster 'moth'"),
    "log of no step": ("log lynx boot", 1, "recipe standard has no step 'boot'"),
    "a flag that there is not": ("retire lynx --force", 2, "No such option"),
    "a verb that there is not": ("remove lynx", 2, "No such command"),
    "no recipe to show": ("recipe show standrd", 1, "did you mean standard?"),
    "no version to show": (
        "recipe show standard --version 3",
        1,
        "there is no version 3 of recipe standard; the newest is 1",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_can_not_be_meant_is_refused_with_what_is(case: str) -> None:
    words, code, want = SAID[case]
    add()
    before = revision()
    said = cluster(*words.split())
    assert (said.code, said.out) == (code, "")
    assert want in said.err
    assert revision() == before


def test_pausing_twice_is_pausing_once() -> None:
    add()
    assert cluster("pause", "lynx", "--reason", "no power").out.startswith("lynx: paused\n")
    before = revision()
    assert cluster("pause", "lynx").out.startswith("lynx: paused already, by tester\n")
    assert revision() == before
    quota()
    cluster("run")
    assert life().claimed_at is None
    said = cluster("show", "lynx").out
    assert "paused" in said.splitlines()[0]
    assert "plimsoll cluster resume lynx" in said
    assert "paused (no power)" in said
    assert "planned (paused)" in cluster("list").out
    assert cluster("resume", "lynx").out.startswith("lynx: going on\n")
    assert cluster("resume", "lynx").out.startswith("lynx: not paused\n")
    cluster("run")
    assert life().claimed_at is not None


def test_a_step_that_failed_is_explained_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quota()
    text = QUICK.replace("within: 4h\n  - step: scale-sets", "within: 4h\n    retry: person\n  - step: scale-sets")
    assert text != QUICK
    Path("r.yaml").write_text(text, encoding="utf-8")
    cluster("recipe", "apply", "r.yaml")
    add()
    cluster("checkin", "lynx")
    monkeypatch.setenv("PLIMSOLL_REHEARSAL", "seconds=0.01 fail=bootstrap:Broken:never")
    said = cluster("run", "--wait").out
    assert "bootstrap failed (attempt 1)" in said
    found = re.search(r"a person's move: (plimsoll cluster retry lynx bootstrap)\)", said)
    assert found is not None
    shown = cluster("show", "lynx").out
    assert "its log: plimsoll cluster log lynx bootstrap" in shown
    assert cluster("log", "lynx").out.startswith("lynx bootstrap: attempt 1, stuck")
    assert "bootstrap" in cluster("log", "lynx", "-o", "json").json()["step"]
    monkeypatch.setenv("PLIMSOLL_REHEARSAL", "seconds=0.01")
    assert typed(found[1]).out.startswith("lynx: bootstrap is tried again\n")
    assert "1 production" in cluster("run", "--wait").out
    assert life().works["bootstrap"].attempt == 2


def test_a_waived_step_is_taken_for_done_and_says_by_whom() -> None:
    quota()
    add()
    cluster("checkin", "lynx")
    cluster("run")
    said = cluster("waive", "lynx", "services", "--reason", "done by hand")
    assert said.out.startswith("lynx: services is taken for done\n")
    assert life().works["services"].detail == "waived by tester: done by hand"
    assert "services of lynx is done" in cluster("waive", "lynx", "services").err


# Recipes.


def test_a_new_version_is_taken_by_what_is_planned_and_not_by_what_was_begun() -> None:
    quota()
    add()
    cluster("checkin", "lynx")
    cluster("run")
    add("moth")
    Path("quick.yaml").write_text(QUICK, encoding="utf-8")
    said = cluster("recipe", "apply", "quick.yaml")
    assert said.out == "recipe standard version 2 is there\n\n1 planned cluster take it: moth\n"
    assert (life("lynx").recipe_version, life("moth").recipe_version) == (1, 2)
    assert "recipe standard has a version 2: plimsoll cluster migrate lynx" in cluster("show", "lynx").out
    assert typed("plimsoll cluster migrate lynx").out.startswith("lynx: made by recipe standard version 2\n")
    assert life("lynx").recipe_version == 2
    before = revision()
    assert "was there already" in cluster("recipe", "apply", "quick.yaml").out
    assert "version 2 already" in cluster("migrate", "lynx").out
    assert revision() == before
    Path("quick.yaml").write_text(QUICK.replace("12h", "13h"), encoding="utf-8")
    said = cluster("recipe", "apply", "quick.yaml")
    assert (said.code, "has version 2 already, and versions do not change" in said.err) == (1, True)
    assert "next: write version: 3" in said.err


def test_a_recipe_that_comes_with_us_can_be_applied_as_it_is_shown() -> None:
    Path("r.yaml").write_text(cluster("recipe", "show", "standard").out, encoding="utf-8")
    assert cluster("recipe", "apply", "r.yaml").out == "recipe standard version 1 was there already\n"
    Path("r.yaml").write_text(STANDARD.replace("12h", "13h"), encoding="utf-8")
    assert "next: write version: 2" in cluster("recipe", "apply", "r.yaml").err


def test_a_version_that_can_not_make_what_is_planned_says_so() -> None:
    add()
    machines = "machines: {H100: {vm: x, family: f, cores: 96, gpus: 8}}\n"
    Path("r.yaml").write_text(QUICK + machines, encoding="utf-8")
    said = cluster("recipe", "apply", "r.yaml")
    assert "warning: it can't make lynx: sku: expected a SKU whose machines recipe standard knows: H100" in said.out
    cluster("run")
    assert life().conditions["SpecValid"].reason == "SpecWrong"


RECIPE_FILES: dict[str, tuple[bytes | None, str]] = {
    "nowhere": (None, "No such file or directory"),
    "not text": (b"\xff\xfe\x00", "not UTF-8 text"),
    "a circle": (
        STANDARD.replace("needs: [checkin]", "needs: [checkin, services]").encode(),
        "in a circle: bootstrap ->",
    ),
}


@pytest.mark.parametrize("verb", ["check", "apply"])
@pytest.mark.parametrize("case", RECIPE_FILES)
def test_a_recipe_that_can_not_be_read_leaves_nothing(case: str, verb: str) -> None:
    body, want = RECIPE_FILES[case]
    if body is not None:
        Path("r.yaml").write_bytes(body)
    said = cluster("recipe", verb, "r.yaml")
    assert (said.code, want in said.err) == (2, True)
    assert not Path("plimsoll.db").exists()


# The way out.


def test_a_planned_cluster_is_simply_not_wanted_any_more() -> None:
    quota(QUOTA.replace("900", "0"))
    add()
    assert cluster("retire", "lynx").out.startswith("lynx: on its way out\n")
    assert cluster("retire", "lynx").out.startswith("lynx: on its way out already, by tester\n")
    for words in ("checkin lynx", "edit lynx --owner x"):
        assert "lynx is retired, or on its way out" in cluster(*words.split()).err
    assert "lynx: planned -> retired" in cluster("run", "--wait").out
    assert cluster("retire", "lynx").out.startswith("lynx: retired already\n")
    assert "lynx" not in cluster("list").out.splitlines()[-1]
    assert "lynx     retired" in cluster("list", "--all").out
    assert cluster("show", "lynx").out.startswith("lynx has been retired for ")
    assert add().code == 1


def held() -> None:
    quotas = [row("quotas", cluster="lynx", team="moon", gpus="24")]
    called("fleet", "import", write_fleet(Path("more"), clusters=[], nodes=[], quotas=quotas), "--partial")


def test_a_cluster_of_which_quota_is_held_leaves_only_anyway() -> None:
    in_production()
    held()
    before = revision()
    said = cluster("retire", "lynx", "-o", "json")
    assert (said.code, said.error["code"]) == (1, "quota_promised")
    assert said.error["fields"]["held"] == {"moon": 24}
    assert "1 team hold quota for 24 GPUs of lynx, most of it moon (24)" in said.error["message"]
    assert revision() == before
    assert cluster("retire", "lynx", "--anyway").out.startswith("lynx: on its way out\n")
    assert "production -> retired" in cluster("run", "--wait").out
    rows = called("fleet", "nodes", "cluster=lynx", "-o", "json").json()
    assert {each["service"] for each in rows["nodes"]} <= {"retired"}


def test_a_cluster_that_is_being_made_leaves_by_its_steps_out() -> None:
    quota()
    add()
    cluster("checkin", "lynx")
    cluster("run")
    assert cluster("retire", "lynx", "--reason", "not needed").out.startswith("lynx: on its way out\n")
    cluster("run", "--wait")
    lynx = life()
    assert (lynx.gone_at is None, lynx.is_done("destroy")) == (False, True)
    assert "services" not in lynx.works


def test_a_cluster_with_work_drains_until_it_has_ended() -> None:
    in_production()
    held()
    work = [row("workloads", cluster="lynx", island="lynx-i1", team="moon", gpus="16")]
    said = called("fleet", "import", write_fleet(Path("work"), clusters=[], nodes=[], workloads=work), "--partial")
    assert (said.code, said.err) == (0, "")
    cluster("retire", "lynx", "--anyway")
    for _ in range(2):
        cluster("run")
    shown = cluster("show", "lynx").out
    assert "it leaves: " in shown.splitlines()[0]
    assert life().gone_at is None
    assert "destroy" not in life().works
    assert called("workload", "finish", "run-1").code == 0
    assert "production -> retired" in cluster("run", "--wait").out


ACTS: dict[str, Callable[[], Said]] = {
    "add": lambda: add("moth"),
    "checkin": lambda: cluster("checkin", "lynx"),
    "pause": lambda: cluster("pause", "lynx"),
}


@pytest.mark.parametrize("act", ACTS)
def test_what_is_said_is_in_the_log_with_who_and_why(act: str) -> None:
    add("lynx", "--reason", "the third one")
    ACTS[act]()
    log = called("audit", "log", "-o", "json").json()
    assert {event["actor"] for event in log["events"]} == {"tester"}
    assert "the third one" in {event["reason"] for event in log["events"]}
