"""The policy file: the default is valid, every mistake is named with its line, and nothing is half taken."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest

from plimsoll.documents import BadDocument
from plimsoll.errors import Refused
from plimsoll.health.default_policy import DEFAULT_POLICY
from plimsoll.health.policy import Action, CheckBy, default_policy, parse_policy
from plimsoll.health.service import put_policy_in_force
from plimsoll.health.signals import SignalKind
from tests.support.health import POLICY, Ward


class Typo(NamedTuple):
    """A text of the test's policy, what stands there instead, and what is said: line and beginning."""

    old: str
    new: str
    want: str


CHECK_RULE = "{signal: check, do: quarantine, after: {count: 2, within: 30m}}"

TYPOS = {
    "a key misspelt at the top": Typo(
        "settle: 10m", "setle: 10m", "line 22: key 'setle' is not known; did you mean 'settle'?"
    ),
    "a key too many": Typo("settle: 10m", "settle: 10m\nmood: good", "line 23: key 'mood' is not known"),
    "a key missing": Typo("settle: 10m\n", "", "line 1: 'settle' is missing"),
    "a key twice": Typo(
        "settle: 10m", "settle: 10m\nsettle: 5m", "line 23: 'settle' stands here twice; first on line 22"
    ),
    "a profile that is not there": Typo(
        "xid_profile: few", "xid_profile: fwe", "line 2: xid_profile: the word 'fwe' is not known; did you mean 'few'?"
    ),
    "an action in a profile": Typo(
        "    drain: [48]", "    drian: [48]", "line 7: xid_profiles.few.drian: 'drian' is no action"
    ),
    "no else in a profile": Typo("    else: nothing\n", "", "line 5: xid_profiles.few: 'else' is missing"),
    "else with a wrong word": Typo(
        "else: nothing", "else: none", "line 9: xid_profiles.few.else: the word 'none' is not known"
    ),
    "an XID twice": Typo(
        "repair: [64]", "repair: [64, 79]", "line 8: xid_profiles.few.repair[1]: XID 79 stands in this profile twice"
    ),
    "an XID that is no number": Typo(
        "[79]", "[7g]", "line 5: xid_profiles.few.quarantine[0]: expected a number from 1 to 100000"
    ),
    "an XID below one": Typo("[79]", "[0]", "line 5: xid_profiles.few.quarantine[0]: expected a number from 1"),
    "XIDs that are no list": Typo("[79]", "79", "line 5: xid_profiles.few.quarantine: expected a list, found '79'"),
    "an XID among the rules": Typo(
        "signal: heartbeat", "signal: xid", "line 11: rules[0]: XID codes belong into xid_profiles"
    ),
    "a signal misspelt": Typo(
        "signal: heartbeat",
        "signal: hartbeat",
        "line 11: rules[0].signal: the word 'hartbeat' is not known; did you mean 'heartbeat'?",
    ),
    "an action misspelt": Typo(
        "heartbeat, do: quarantine",
        "heartbeat, do: quarantaine",
        "line 11: rules[0].do: the word 'quarantaine' is not known; did you mean 'quarantine'?",
    ),
    "a rule without an action": Typo(
        "heartbeat, do: quarantine, ", "heartbeat, ", "line 11: rules[0]: 'do' is missing"
    ),
    "a key of a rule misspelt": Typo(
        "lasting: 5m", "lastin: 5m", "line 11: rules[0]: key 'lastin' is not known; did you mean 'lasting'?"
    ),
    "a count of zero": Typo(
        "{count: 2, within: 30m}",
        "{count: 0, within: 30m}",
        "line 13: rules[2].after.count: expected a number from 1 to 10",
    ),
    "more repeats than are remembered": Typo(
        "{count: 2, within: 30m}",
        "{count: 11, within: 30m}",
        "line 13: rules[2].after.count: expected a number from 1 to 10, found '11'",
    ),
    "repeats without a time": Typo(
        "{count: 2, within: 30m}", "{count: 2}", "line 13: rules[2].after: 'within' is missing"
    ),
    "repeats and a duration": Typo(
        CHECK_RULE,
        CHECK_RULE[:-1] + ", lasting: 5m}",
        "line 13: rules[2].after: 'after' and 'lasting' exclude each other",
    ),
    "an event that should last": Typo(
        "{signal: provider, do: repair",
        "{signal: provider, lasting: 1h, do: repair",
        "line 17: rules[6].lasting: a provider signal just happens",
    ),
    "a time without a unit": Typo(
        "settle: 10m",
        "settle: 10",
        "line 22: settle: expected a length of time such as 30s, 10m, 36h or 7d, found '10'",
    ),
    "a time longer than signals are kept": Typo(
        "settle: 10m", "settle: 31d", "line 22: settle: expected at most 30d, found '31d'"
    ),
    "a silence of nothing": Typo("silence: 15m", "silence: 0s", "line 24: silence: expected a length of time above 0"),
    "a breaker that never counts": Typo(
        "within: 1h}\n  fleet",
        "within: 0h}\n  fleet",
        "line 26: breakers.cluster.within: expected a length of time above 0",
    ),
    "a share above all": Typo(
        "cluster: {share: 1,",
        "cluster: {share: 10,",
        "line 26: breakers.cluster.share: expected a number from 0 to 1, found '10'",
    ),
    "a breaker that is missing": Typo(
        "  fleet: {share: 1, at_least: 1000, within: 1h}\n", "", "line 26: breakers: 'fleet' is missing"
    ),
    "flapping once": Typo("times: 3", "times: 1", "line 19: flapping.times: expected a number from 2 to 10"),
    "a lemon counted in times": Typo("lemon: {exits: 3", "lemon: {times: 3", "line 20: lemon: 'exits' is missing"),
    "a threshold that is no number": Typo(
        "at_least: 100,", "at_least: hot,", "line 14: rules[3].at_least: expected a number"
    ),
    "an owner we do not know": Typo(
        "ecc, do: repair, owner: provider",
        "ecc, do: repair, owner: them",
        "line 16: rules[5].owner: the word 'them' is not known",
    ),
    "no way back": Typo(
        "  - {check: quiet, for: 10m}\n  - {check: accepted, by: manual}\n",
        "  []\n",
        "line 29: validation: at least one check is needed",
    ),
    "two checks of one name": Typo(
        "{check: accepted,", "{check: quiet,", "line 29: validation: each check needs a name of its own"
    ),
    "a check by nothing": Typo(
        "{check: accepted, by: manual}", "{check: accepted}", "line 30: validation[1]: a check has one of"
    ),
    "a check by two": Typo(
        "{check: accepted, by: manual}",
        "{check: accepted, by: manual, for: 5m}",
        "line 30: validation[1]: a check has one of",
    ),
    "a quiet check without a time": Typo(
        "{check: quiet, for: 10m}", "{check: quiet, by: quiet}", "line 29: validation[0]: a quiet check needs for"
    ),
    "a command without a command": Typo(
        "{check: accepted, by: manual}",
        "{check: accepted, run: []}",
        "line 30: validation[1].run: expected a command and its arguments",
    ),
    "a command that is not given": Typo(
        "{check: accepted, by: manual}",
        "{check: accepted, by: command}",
        "line 30: validation[1]: a command check needs run",
    ),
    "a query without a node": Typo(
        "validation:",
        "prometheus: [{signal: ecc, query: up}]\nvalidation:",
        "line 28: prometheus[0]: 'node_label' is missing",
    ),
    "rules that are no list": Typo(
        "rules:\n", "rules: none\nprometheus:\n", "line 10: rules: expected a list, found 'none'"
    ),
    "a name of spaces": Typo("policy: test", "policy: '  '", "line 1: policy: expected one line of printable text"),
}


@pytest.mark.parametrize("sentence", TYPOS)
def test_a_mistake_is_named_where_it_stands(sentence: str) -> None:
    old, new, want = TYPOS[sentence]
    assert POLICY.count(old) == 1, "the text to be changed is there once"
    with pytest.raises(BadDocument) as caught:
        parse_policy(POLICY.replace(old, new), source="my.yaml")
    assert caught.value.message.startswith(f"my.yaml, {want}")
    assert f"line {caught.value.fields['line']}:" in caught.value.message


def test_the_default_policy_is_valid_and_says_what_the_issue_asks() -> None:
    policy = default_policy()
    assert policy.name == "default"
    assert policy.xid_profile == "fail-listed"
    assert (policy.cluster_breaker.share, policy.cluster_breaker.within) == (0.1, timedelta(hours=1))
    assert policy.lemon.within == timedelta(days=30)
    assert [(check.name, check.by) for check in policy.validation] == [
        ("quiet", CheckBy.QUIET), ("accepted", CheckBy.MANUAL)
    ]  # fmt: skip
    listed = {rule.name: rule.action for rule in policy.rules_for(SignalKind.XID, "79")}
    assert listed == {"79": Action.QUARANTINE}


def test_the_two_profiles_disagree_as_their_operators_do() -> None:
    other = parse_policy(DEFAULT_POLICY.replace("profile: fail-listed", "profile: fail-unless-listed"), source="x")
    wants = {"79": ["quarantine"] * 2, "63": ["quarantine", "nothing"], "140": ["nothing", "quarantine"]}
    for code, want in wants.items():
        found = [str(policy.rules_for(SignalKind.XID, code)[0].action) for policy in (default_policy(), other)]
        assert found == want, code


def test_every_profile_is_checked_not_only_the_one_in_force() -> None:
    text = POLICY.replace("xid_profiles:\n", "xid_profiles:\n  spare: {quarantine: [79], els: nothing}\n")
    with pytest.raises(BadDocument, match=r"line 4: xid_profiles\.spare\.els: 'els' is no action"):
        parse_policy(text, source="my.yaml")


def test_the_first_rule_that_matches_decides_and_thresholds_are_lines_of_their_own() -> None:
    policy = parse_policy(POLICY, source="x")
    assert [str(rule.action) for rule in policy.rules_for(SignalKind.CHECK, "mild-fan")] == ["degrade"]
    assert [str(rule.action) for rule in policy.rules_for(SignalKind.CHECK, "nccl")] == ["quarantine"]
    assert [rule.at_least for rule in policy.rules_for(SignalKind.THERMAL, "gpu")] == [100, 90]
    assert [str(rule.key("gpu")) for rule in policy.rules_for(SignalKind.THERMAL, "gpu")] == [
        "thermal gpu>=100", "thermal gpu>=90"
    ]  # fmt: skip


def test_a_policy_in_force_is_on_the_ledger_whole_and_not_twice() -> None:
    with Ward(1, policy="") as ward:
        put_policy_in_force(ward.keeper, POLICY, source="my.yaml", actor="ada", reason="ours")
        assert ward.health.policies["policy"] == POLICY
        head = ward.keeper.ledger.head()
        with pytest.raises(Refused) as caught:
            put_policy_in_force(ward.keeper, POLICY, source="my.yaml", actor="ada", reason="ours")
        assert caught.value.code == "policy_unchanged"
        with pytest.raises(BadDocument):
            put_policy_in_force(ward.keeper, POLICY + "x", source="my.yaml", actor="ada", reason="ours")
        assert ward.keeper.ledger.head() == head
