"""The policy of the lines: the default is valid, every mistake is named with its line, and nothing is half taken."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.documents import BadDocument
from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.quota.model import QuotaKey
from plimsoll.quota.policy import (
    DEFAULT_POLICY,
    DEFAULT_RULE,
    DEFAULT_TEXT,
    LineBy,
    Policy,
    Rule,
    check_policy,
    parse_policy,
    parse_word,
)
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer

GOOD = """\
policy: careful
lines:
  - {scope: {}, by: fixed, buffer: 0.15}
  - {scope: {cluster: lynx}, by: tiered, window: 30d, tiers: TIERS}
  - {scope: {sku: H200, purpose: research}, by: forecast, target: 0.95, horizon: 48h, DATES}
pins:
  - {team: vision, cluster: tiger, sku: H200, gpus: 16, until: 2026-03-01, why: launch}
blocks:
  - {team: voice, cluster: tiger, sku: H200, gpus: 24, why: one run}
stability: {dead_band: 0.05, change_every: 14d, notice: 5d, grow_after: 12h}
flex: {grace: 30m}
requests: {expire: 7d}
"""
GOOD = GOOD.replace("TIERS", "[{healthy_share: 0.9, buffer: 0.1}, {healthy_share: 0, buffer: 0.2}]")
GOOD = GOOD.replace("DATES", "from: 2026-01-05, until: 2026-03-01")

FIXED_RULE = "{scope: {}, by: fixed, buffer: 0.15}"
PIN = "{team: vision, cluster: tiger, sku: H200, gpus: 16, until: 2026-03-01, why: launch}"


def test_everything_in_a_file_is_read() -> None:
    policy = parse_policy(GOOD, source="p.yaml")
    fixed, tiered, forecast = policy.rules
    assert (policy.name, fixed.by, fixed.buffer, fixed.line) == ("careful", LineBy.FIXED, Fraction(3, 20), 3)
    assert [(tier.healthy_share, tier.buffer) for tier in tiered.tiers] == [
        (Fraction(9, 10), Fraction(1, 10)),
        (Fraction(0), Fraction(1, 5)),
    ]
    assert (tiered.window, str(tiered.scope)) == (timedelta(days=30), "cluster: lynx")
    assert (forecast.target, forecast.horizon) == (Fraction(19, 20), timedelta(hours=48))
    assert (forecast.starts, forecast.ends) == (date(2026, 1, 5), date(2026, 3, 1))
    assert policy.stability.dead_band == Fraction(1, 20)
    assert (policy.stability.change_every, policy.stability.notice) == (timedelta(days=14), timedelta(days=5))
    assert policy.stability.grow_after == timedelta(hours=12)
    assert (policy.flex_grace, policy.request_expiry) == (timedelta(minutes=30), timedelta(days=7))


def test_a_pin_counts_up_to_its_last_day_and_a_block_without_one_for_ever() -> None:
    policy = parse_policy(GOOD, source="p.yaml")
    pinned, blocked = {QuotaKey("vision", "tiger", "H200"): 16}, {QuotaKey("voice", "tiger", "H200"): 24}
    assert policy.pins_on(date(2026, 3, 1)) == pinned
    assert policy.pins_on(date(2026, 3, 2)) == {}
    assert policy.blocks_on(date(2099, 1, 1)) == blocked


def test_the_default_text_is_the_default_policy() -> None:
    policy = parse_policy(DEFAULT_TEXT, source="default")
    (rule,) = policy.rules
    assert (rule.by, rule.buffer, rule.scope) == (DEFAULT_RULE.by, DEFAULT_RULE.buffer, DEFAULT_RULE.scope)
    without = Policy(DEFAULT_POLICY.name, DEFAULT_POLICY.rules)
    assert (policy.stability, policy.flex_grace, policy.request_expiry, policy.pins, policy.blocks) == (
        without.stability,
        without.flex_grace,
        without.request_expiry,
        (),
        (),
    )


class Typo(NamedTuple):
    """A text of the good file, what stands there instead, and what is said."""

    old: str
    new: str
    want: str


SHARE = "expected a share from 0 up to, not including, 1"

TYPOS = {
    "a buffer of all": Typo("0.15}", "1}", f"line 3: lines[0].buffer: {SHARE}; for 1 % write 0.01, found '1'"),
    "a buffer of 100 %": Typo("0.15}", "100 %}", f"line 3: lines[0].buffer: {SHARE}, found '100 %'"),
    "a buffer of a hundred": Typo("0.15}", "100}", f"line 3: lines[0].buffer: {SHARE}, found '100'"),
    "a buffer below nothing": Typo("0.15}", "-0.1}", f"line 3: lines[0].buffer: {SHARE}, found '-0.1'"),
    "a buffer in per cent": Typo(
        "0.15}", '"15"}', f"line 3: lines[0].buffer: {SHARE}; for 15 % write 0.15, found '15'"
    ),
    "a buffer that is no number": Typo("0.15}", "some}", f"line 3: lines[0].buffer: {SHARE}, found 'some'"),
    "a buffer that is not a number to a computer": Typo("0.15}", ".nan}", f"line 3: lines[0].buffer: {SHARE}"),
    "a buffer without an end": Typo("0.15}", "inf}", f"line 3: lines[0].buffer: {SHARE}, found 'inf'"),
    "a buffer as a list": Typo("0.15}", "[0.15]}", "line 3: lines[0].buffer: expected a text, found a list"),
    "a buffer without a value": Typo("buffer: 0.15}", "bufer: 0.15}", "line 3: lines[0]: key 'bufer' is not known"),
    "a field of another policy": Typo(
        "by: fixed, buffer: 0.15", "by: fixed, target: 0.99", "line 3: lines[0]: key 'target' is not known"
    ),
    "a field that nobody knows": Typo("flex: {grace: 30m}", "flexx: 1", "line 11: key 'flexx' is not known"),
    "no name": Typo("policy: careful\n", "", "line 1: 'policy' is missing"),
    "no rule": Typo(GOOD[GOOD.index("lines:") : GOOD.index("pins:")], "lines: []\n", "expected at least one rule"),
    "no rules at all": Typo(GOOD[GOOD.index("lines:") : GOOD.index("pins:")], "", "'lines' is missing"),
    "a mapping where the list of rules belongs": Typo(
        GOOD[GOOD.index("lines:") : GOOD.index("pins:")], "lines: {a: b}\n", "lines: expected a list, found a mapping"
    ),
    "a list where a rule belongs": Typo(FIXED_RULE, "[1, 2]", "line 3: lines[0]: expected a mapping"),
    "a word where a rule belongs": Typo(FIXED_RULE, "fixed", "line 3: lines[0]: expected a mapping"),
    "a list where a scope belongs": Typo("scope: {}", "scope: [a]", "line 3: lines[0].scope: expected a mapping"),
    "a rule without a scope": Typo("scope: {}, ", "", "line 3: lines[0]: 'scope' is missing"),
    "a scope without a value": Typo("{cluster: lynx}", "{cluster: []}", "expected at least one value, found a list"),
    "a rule by nothing": Typo("by: fixed, ", "", "line 3: lines[0]: 'by' is missing"),
    "a policy misspelt": Typo("by: fixed", "by: fixt", "the word 'fixt' is not known; did you mean 'fixed'?"),
    "counted of something else": Typo("buffer: 0.15}", "of: spare}", "lines[0].of: the word 'spare' is not known"),
    "two rules for everything": Typo(
        FIXED_RULE,
        f"{FIXED_RULE}\n  - {{scope: {{}}, by: tiered}}",
        "the rules on lines 3 and 4 are both for everything",
    ),
    "dates reversed": Typo(
        "from: 2026-01-05, until: 2026-03-01",
        "from: 2026-03-01, until: 2026-01-05",
        "line 5: lines[2]: it ends on 2026-01-05 before it starts on 2026-03-01",
    ),
    "no date": Typo(
        "from: 2026-01-05", "from: soon", "lines[2].from: expected a date such as 2026-01-05, found 'soon'"
    ),
    "a day that is not in the calendar": Typo("from: 2026-01-05", "from: 2026-02-30", "expected a date such as"),
    "a target of certainty": Typo("target: 0.95", "target: 1", f"lines[2].target: {SHARE}"),
    "a target of nothing": Typo("target: 0.95", "target: 0", "expected a probability above 0, found '0'"),
    "a horizon of nothing": Typo("horizon: 48h", "horizon: 0h", "expected a length of time above 0"),
    "a horizon in parts of an hour": Typo("horizon: 48h", "horizon: 90m", "expected whole hours, such as 24h or 7d"),
    "a horizon without a unit": Typo("horizon: 48h", "horizon: 48", "lines[2].horizon: expected a length of time"),
    "a window of nothing": Typo("window: 30d", "window: 0d", "expected a length of time above 0"),
    "tiers without an end": Typo("{healthy_share: 0, ", "{healthy_share: 0.5, ", "a last tier with healthy_share 0"),
    "no tiers": Typo(GOOD[GOOD.index("[{healthy") : GOOD.index("}]}") + 2], "[]", "a last tier with healthy_share 0"),
    "tiers in rising order": Typo(
        "[{healthy_share: 0.9,",
        "[{healthy_share: 0.8, buffer: 0.1}, {healthy_share: 0.9,",
        "expected tiers in falling order of healthy_share",
    ),
    "a tier twice": Typo(
        "[{healthy_share: 0.9,",
        "[{healthy_share: 0.9, buffer: 0.1}, {healthy_share: 0.90,",
        "expected tiers in falling order of healthy_share",
    ),
    "a larger buffer for the healthier": Typo("buffer: 0.2}", "buffer: 0.05}", "expected a smaller buffer for the"),
    "a pin without a reason": Typo(", why: launch", "", "line 7: pins[0]: 'why' is missing"),
    "a pin of nothing": Typo("gpus: 16", "gpus: 0", "line 7: pins[0].gpus: expected a number from 1 to 1"),
    "a pin of half a GPU": Typo("gpus: 16", "gpus: 8.5", "line 7: pins[0].gpus: expected a whole number"),
    "a pin of all and more": Typo("gpus: 16", "gpus: 1e99", "line 7: pins[0].gpus: expected a number from 1 to 1"),
    "a team pinned twice": Typo(PIN, f"{PIN}\n  - {PIN}", "vision tiger H200 is pinned twice"),
    "a mapping where pins belong": Typo(f"\n  - {PIN}", " {team: vision}", "pins: expected a list, found a mapping"),
    "a dead band of all": Typo(
        "dead_band: 0.05", "dead_band: 1", "stability.dead_band: expected a number from 0 to 0.5"
    ),
    "no grace": Typo("grace: 30m", "grace: 0s", "line 11: flex.grace: expected a length of time above 0"),
    "a list where flex belongs": Typo("flex: {grace: 30m}", "flex: [30m]", "line 11: flex: expected a mapping"),
    "a key twice": Typo("flex: {grace: 30m}", "policy: again", "line 11: 'policy' stands here twice; first on line 1"),
}


@pytest.mark.parametrize("sentence", TYPOS)
def test_a_mistake_is_named_with_its_place(sentence: str) -> None:
    old, new, want = TYPOS[sentence]
    assert old in GOOD
    with pytest.raises(BadDocument) as caught:
        parse_policy(GOOD.replace(old, new, 1), source="p.yaml")
    assert caught.value.message.startswith("p.yaml, line ")
    assert want in caught.value.message


NO_FILES = {
    "an empty file": ("", "line 1: the file is empty"),
    "only a comment": ("# later\n", "line 1: the file is empty"),
    "a list": ("- a\n", "line 1: expected a mapping"),
    "a word": ("fixed", "line 1: expected a mapping"),
    "not YAML": ("policy: [", "not YAML"),
}


@pytest.mark.parametrize("sentence", NO_FILES)
def test_what_is_no_policy_file(sentence: str) -> None:
    text, want = NO_FILES[sentence]
    with pytest.raises(BadDocument) as caught:
        parse_policy(text, source="p.yaml")
    assert want in caught.value.message


def test_a_number_that_would_take_for_ever_is_none() -> None:
    with pytest.raises(BadDocument):
        parse_policy(GOOD.replace("0.15}", "1e999999999}", 1), source="p.yaml")
    tiny = parse_policy(GOOD.replace("0.15}", "1e-999999999}", 1), source="p.yaml")
    assert tiny.rules[0].buffer == 0
    with pytest.raises(UsageError):
        parse_word("fixed:1e999999999")
    assert parse_word("fixed:1e-999999999").rules[0].buffer == 0


def test_rules_for_everything_that_take_turns_are_fine() -> None:
    rules = ["{scope: {}, by: fixed, until: 2026-01-31}", "{scope: {}, by: tiered, from: 2026-02-01}"]
    text = f"policy: p\nlines: [{', '.join(rules)}]"
    first, second = parse_policy(text, source="p.yaml").rules
    assert (first.by, second.by) == (LineBy.FIXED, LineBy.TIERED)
    with pytest.raises(BadDocument, match="both for everything"):
        parse_policy(text.replace("2026-02-01", "2026-01-31"), source="p.yaml")


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    importer = Importer()
    clusters = [row("clusters", rack="r1"), row("clusters", cluster="lynx", area="eu", purpose="applied")]
    importer.bring(
        write_fleet(
            tmp_path,
            clusters=clusters,
            nodes=[*nodes(4), *nodes(4, prefix="l", cluster="lynx", island="lynx-a", sku="GB200", gpus="4")],
        )
    )
    return importer.of(Fleet)


def test_a_good_file_is_good_for_its_fleet(fleet: Fleet) -> None:
    assert check_policy(GOOD, fleet, source="p.yaml") == parse_policy(GOOD, source="p.yaml")
    assert check_policy(GOOD.replace("{cluster: lynx}", "{rack: r1, sku: GB200}"), fleet, source="p.yaml").rules


ON_A_FLEET = {
    "a cluster misspelt": Typo(
        "{cluster: lynx}", "{cluster: lnyx}", "line 4: lines[1]: the fleet has no cluster 'lnyx'; did you mean lynx?"
    ),
    "one of several misspelt": Typo("{cluster: lynx}", "{cluster: [lynx, tigr]}", "did you mean tiger?"),
    "a key misspelt": Typo("{cluster: lynx}", "{clustr: lynx}", "the fleet has no key 'clustr'; did you mean cluster?"),
    "a label that no cluster has": Typo("{cluster: lynx}", "{mood: good}", "the fleet has no key 'mood'"),
    "a label's value misspelt": Typo("{cluster: lynx}", "{rack: r2}", "the fleet has no rack 'r2' (1 are known)"),
    "an SKU that is not there": Typo("sku: H200, purpose", "sku: A100, purpose", "the fleet has no sku 'A100'"),
    "two rules for one pool": Typo(
        "{cluster: lynx}",
        "{cluster: [lynx, tiger]}",
        "line 5: lines[2]: the rule on line 4 matches tiger H200 as well; make one narrower",
    ),
    "a pin in a cluster misspelt": Typo(
        "vision, cluster: tiger",
        "vision, cluster: tigre",
        "line 7: pins[0]: the fleet has no cluster 'tigre'; did you mean tiger?",
    ),
    "a pin of an SKU that the cluster has not": Typo(
        "vision, cluster: tiger", "vision, cluster: lynx", "line 7: pins[0]: cluster lynx has no H200"
    ),
    "a pin of a part of a node": Typo("gpus: 16", "gpus: 12", "line 7: pins[0]: 12 GPUs are no whole nodes of 8"),
    "a block of a part of a node": Typo("gpus: 24", "gpus: 20", "line 9: blocks[0]: 20 GPUs are no whole nodes of 8"),
}


@pytest.mark.parametrize("sentence", ON_A_FLEET)
def test_a_mistake_that_only_the_fleet_shows(sentence: str, fleet: Fleet) -> None:
    old, new, want = ON_A_FLEET[sentence]
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    parse_policy(text, source="p.yaml")
    with pytest.raises(BadDocument) as caught:
        check_policy(text, fleet, source="p.yaml")
    assert want in caught.value.message


def test_two_rules_for_one_pool_at_different_times_are_fine(fleet: Fleet) -> None:
    text = GOOD.replace("{cluster: lynx}", "{cluster: tiger}").replace("window: 30d", "window: 30d, from: 2026-03-02")
    assert len(check_policy(text, fleet, source="p.yaml").rules) == 3
    with pytest.raises(BadDocument, match="matches tiger H200 as well"):
        check_policy(text.replace("2026-03-02", "2026-03-01"), fleet, source="p.yaml")


WORDS = {
    "fixed": ("fixed:0.15", Rule(LineBy.FIXED)),
    "fixed:0.15": ("fixed:0.15", Rule(LineBy.FIXED)),
    "fixed:0": ("fixed:0", Rule(LineBy.FIXED, buffer=Fraction(0))),
    "fixed:.05": ("fixed:0.05", Rule(LineBy.FIXED, buffer=Fraction(1, 20))),
    "fixed-healthy:0.1": ("fixed-healthy:0.1", Rule(LineBy.FIXED, buffer=Fraction(1, 10), is_of_healthy=True)),
    "fixed-healthy": ("fixed-healthy:0.15", Rule(LineBy.FIXED, is_of_healthy=True)),
    "tiered": ("tiered", Rule(LineBy.TIERED)),
    "forecast": ("forecast", Rule(LineBy.FORECAST)),
    "forecast:0.999": ("forecast:0.999", Rule(LineBy.FORECAST, target=Fraction(999, 1000))),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_policy_on_the_command_line(word: str) -> None:
    want_name, want_rule = WORDS[word]
    assert parse_word(word) == Policy(want_name, (want_rule,))


BAD_WORDS = {
    "fixed:1": "1 is not a share from 0 up to, not including, 1; for 1 % write 0.01",
    "fixed:15": "15 is not a share from 0 up to, not including, 1; for 15 % write 0.15",
    "fixed:100": "100 is not a share",
    "fixed:-0.1": "-0.1 is not a share",
    "fixed:15%": "'15%' is not a number",
    "fixed:nan": "nan is not a share",
    "fixed:inf": "inf is not a share",
    "fixed:ten": "'ten' is not a number",
    "fixed:1/0": "'1/0' is not a number",
    "forecast:0": "a target lies between 0 and 1",
    "forecast:1": "1 is not a share",
    "tiered:0.1": "it is neither a file nor a policy's name",
    "fix": "it is neither a file nor a policy's name",
    "": "it is neither a file nor a policy's name",
    "fixed:" + "9" * 500: "is not a share",
}


@pytest.mark.parametrize("word", BAD_WORDS, ids=lambda word: word[:20])
def test_a_word_that_is_no_policy(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_word(word)
    assert BAD_WORDS[word] in caught.value.message
    assert (caught.value.code, caught.value.exit_code) == ("bad_policy", 2)
    assert "fixed:0.15" in caught.value.next_step
    assert len(caught.value.message) < 250
