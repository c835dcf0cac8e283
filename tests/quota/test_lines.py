"""Where the line is: whole nodes, exact shares, borders of tiers, and the rule that counts."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest

from plimsoll.errors import Refused
from plimsoll.fleet.model import PoolKey
from plimsoll.quota.lines import fixed_nodes, lines_now, shares_in_service, tier_buffer
from plimsoll.quota.plan import NO_LINE, make_plan
from plimsoll.quota.policy import DEFAULT_POLICY, LineBy, Policy, Rule, parse_policy, parse_word
from plimsoll.times import show_time
from tests.support.fleets import Rows, nodes, row, write_fleet
from tests.support.imports import NOW, Importer

TIGER = PoolKey("tiger", "H200")


class Fixed(NamedTuple):
    """Nodes installed and in service, the buffer as it is written; the line in nodes."""

    total: int
    healthy: int
    word: str
    want: int


FIXED = {
    "a tenth of ten is exactly one, not a hair more": Fixed(10, 10, "fixed:0.1", 9),
    "three tenths of ten": Fixed(10, 10, "fixed:0.3", 7),
    "seven tenths of ten": Fixed(10, 10, "fixed:0.7", 3),
    "seven hundredths of a hundred": Fixed(100, 100, "fixed:0.07", 93),
    "29 hundredths of a hundred": Fixed(100, 100, "fixed:0.29", 71),
    "a share with an exponent": Fixed(1000, 1000, "fixed:1e-3", 999),
    "a third that is no third": Fixed(3, 3, "fixed:0.3333333333", 2),
    "whole nodes, rounded down": Fixed(361, 361, "fixed:0.15", 306),
    "no buffer": Fixed(10, 9, "fixed:0", 9),
    "the default": Fixed(20, 20, "fixed", 17),
    "never above what is healthy": Fixed(10, 4, "fixed:0.1", 4),
    "just as many are healthy as the buffer leaves": Fixed(10, 9, "fixed:0.1", 9),
    "of what is healthy instead": Fixed(20, 10, "fixed-healthy:0.1", 9),
    "of what is healthy, rounded down": Fixed(20, 9, "fixed-healthy:0.1", 8),
    "a single node with a buffer is none": Fixed(1, 1, "fixed:0.01", 0),
    "nothing is healthy": Fixed(10, 0, "fixed:0.15", 0),
    "nothing is there": Fixed(0, 0, "fixed:0", 0),
    "nearly everything held back": Fixed(1_000_000, 1_000_000, "fixed:0.999999", 1),
}


@pytest.mark.parametrize("sentence", FIXED)
def test_fixed(sentence: str) -> None:
    total, healthy, word, want = FIXED[sentence]
    (rule,) = parse_word(word).rules
    line = fixed_nodes(total=total, healthy=healthy, buffer=rule.buffer, is_of_healthy=rule.is_of_healthy)
    assert line == want


SHARES = {
    "just at the first border": (0.98, "0.05"),
    "the border as a sum of floats": (1 - 0.02, "0.05"),
    "a hair below it": (0.97999, "0.10"),
    "at the second": (0.95, "0.10"),
    "1 - 0.05, which is 0.95 on paper": (1 - 48.0 / 960, "0.10"),
    "below it": (0.9499, "0.15"),
    "always in service": (1.0, "0.05"),
    "never in service": (0.0, "0.15"),
}


@pytest.mark.parametrize("sentence", SHARES)
def test_tier(sentence: str) -> None:
    share, want = SHARES[sentence]
    assert tier_buffer(Rule(LineBy.TIERED), share) == Fraction(want)


def _past(*marks: tuple[float, str, str]) -> Rows:
    """Hours ago, node, service."""
    return [
        row("history", time=show_time(NOW - timedelta(hours=ago)), node=node, service=service, reason="")
        for ago, node, service in marks
    ]


class Past(NamedTuple):
    """What twenty nodes of 8 GPUs went through; the share in service and the line in GPUs."""

    history: Rows
    want_share: float | None
    want_line: int


PASTS = {
    "nobody told anything: the largest buffer": Past([], None, 136),
    "one of twenty out for all ten days: 5 %": Past(_past((240, "n1", "repair"), (0, "n1", "in_service")), 0.95, 144),
    "one of twenty out for two fifths of it: 2 %": Past(
        _past((240, "n1", "repair"), (144, "n1", "in_service")), 0.98, 152
    ),
    "an hour more": Past(_past((240, "n1", "repair"), (143, "n1", "in_service")), 1 - 97 / 4800, 144),
    "two of twenty out for all of it: 10 %": Past(
        _past((240, "n1", "repair"), (240, "n2", "repair"), (0, "n1", "in_service"), (0, "n2", "in_service")), 0.9, 136
    ),
    "what lies before the window does not count": Past(
        _past((2400, "n1", "repair"), (2300, "n1", "in_service")), 1.0, 152
    ),
}


@pytest.mark.parametrize("sentence", PASTS)
def test_tiered(sentence: str, tmp_path: Path) -> None:
    history, want_share, want_line = PASTS[sentence]
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=nodes(20), history=history))
    shares = shares_in_service(importer.state, [TIGER], window=timedelta(days=90), now=NOW)
    assert shares.get(TIGER) == (None if want_share is None else pytest.approx(want_share))
    assert lines_now(importer.state, parse_word("tiered"), now=NOW)[TIGER].gpus == want_line


def _two_clusters(folder: Path) -> Importer:
    """Ten nodes each: `tiger` in production, `lynx` not yet."""
    importer = Importer()
    clusters = [row("clusters"), row("clusters", cluster="lynx", phase="provisioned", purpose="applied")]
    importer.bring(
        write_fleet(
            folder,
            clusters=clusters,
            nodes=[*nodes(10), *nodes(10, prefix="l", cluster="lynx", island="lynx-a")],
            quotas=[row("quotas"), row("quotas", cluster="lynx")],
        )
    )
    return importer


def test_what_is_not_in_production_has_no_line(tmp_path: Path) -> None:
    state = _two_clusters(tmp_path).state
    assert {pool.cluster for pool in lines_now(state, DEFAULT_POLICY, now=NOW)} == {"tiger"}
    lynx = next(each for each in make_plan(state, DEFAULT_POLICY, now=NOW).pools if each.key.cluster == "lynx")
    assert (lynx.line, lynx.hull.total, lynx.hull.healthy, lynx.hull.guaranteed) == (NO_LINE, 0, 0, 0)


def test_only_the_lines_that_were_asked_for(tmp_path: Path) -> None:
    state = _two_clusters(tmp_path).state
    unknown = PoolKey("tigre", "H200")
    assert set(lines_now(state, DEFAULT_POLICY, now=NOW, pools=[TIGER, unknown])) == {TIGER}
    assert lines_now(state, DEFAULT_POLICY, now=NOW, pools=[]) == {}


class Which(NamedTuple):
    """The rules of a policy file, a day, and the line of `tiger` with its ten nodes, in nodes."""

    lines: str
    day: str
    want: int
    want_policy: str
    want_warning: str = ""


EVERYTHING = "{scope: {}, by: fixed, buffer: 0.2}"
RULES = {
    "the one rule for everything": Which(EVERYTHING, "2026-01-20", 8, "fixed:0.2"),
    "a rule that names the pool comes before the one for everything": Which(
        f"{EVERYTHING}, {{scope: {{cluster: tiger}}, by: fixed, buffer: 0.1}}", "2026-01-20", 9, "fixed:0.1"
    ),
    "a rule for another cluster does not count": Which(
        f"{EVERYTHING}, {{scope: {{cluster: [lynx]}}, by: fixed, buffer: 0.1}}", "2026-01-20", 8, "fixed:0.2"
    ),
    "keys are ANDed": Which(
        f"{EVERYTHING}, {{scope: {{cluster: tiger, purpose: applied}}, by: fixed, buffer: 0.1}}",
        "2026-01-20",
        8,
        "fixed:0.2",
    ),
    "values are ORed": Which(
        f"{EVERYTHING}, {{scope: {{sku: [H100, H200]}}, by: fixed, buffer: 0.1}}", "2026-01-20", 9, "fixed:0.1"
    ),
    "a rule of healthy": Which(
        "{scope: {}, by: fixed, buffer: 0.5, of: healthy}", "2026-01-20", 5, "fixed-healthy:0.5"
    ),
    "before its first day a rule does not count": Which(
        f"{EVERYTHING}, {{scope: {{sku: H200}}, by: fixed, buffer: 0.1, from: 2026-01-21}}",
        "2026-01-20",
        8,
        "fixed:0.2",
    ),
    "on its first day it does": Which(
        f"{EVERYTHING}, {{scope: {{sku: H200}}, by: fixed, buffer: 0.1, from: 2026-01-20}}",
        "2026-01-20",
        9,
        "fixed:0.1",
    ),
    "on its last day it does": Which(
        f"{EVERYTHING}, {{scope: {{sku: H200}}, by: fixed, buffer: 0.1, until: 2026-01-20}}",
        "2026-01-20",
        9,
        "fixed:0.1",
    ),
    "after it it does not": Which(
        f"{EVERYTHING}, {{scope: {{sku: H200}}, by: fixed, buffer: 0.1, until: 2026-01-19}}",
        "2026-01-20",
        8,
        "fixed:0.2",
    ),
    "where no rule matches the default does": Which(
        "{scope: {cluster: lynx}, by: fixed, buffer: 0.5}", "2026-01-20", 8, "fixed:0.15"
    ),
    "of two that match since the fleet changed the lowest line counts, and it is said": Which(
        "{scope: {sku: H200}, by: fixed, buffer: 0.1}, {scope: {cluster: tiger}, by: fixed, buffer: 0.4}",
        "2026-01-20",
        6,
        "fixed:0.4",
        "2 rules match (fixed:0.1, fixed:0.4): the lowest line counts",
    ),
}


@pytest.mark.parametrize("sentence", RULES)
def test_which_rule_counts(sentence: str, tmp_path: Path) -> None:
    lines, day, want, want_policy, want_warning = RULES[sentence]
    policy = parse_policy(f"policy: test\nlines: [{lines}]", source="p.yaml")
    now = datetime.combine(date.fromisoformat(day), NOW.timetz())
    line = lines_now(_two_clusters(tmp_path).state, policy, now=now)[TIGER]
    assert (line.gpus, line.policy, line.warning) == (want * 8, want_policy, want_warning)


WHY = {
    "fixed:0.1": "buffer 0.1 of total",
    "fixed-healthy:0.1": "buffer 0.1 of healthy",
    "tiered": "no history: the largest buffer",
}


@pytest.mark.parametrize("word", WHY)
def test_a_line_says_why_it_is_there(word: str, tmp_path: Path) -> None:
    assert lines_now(_two_clusters(tmp_path).state, parse_word(word), now=NOW)[TIGER].why == WHY[word]


def test_a_line_says_that_no_more_is_healthy(tmp_path: Path) -> None:
    importer = Importer()
    broken = [*nodes(10)][:8] + [row("nodes", node=f"n{number}", service="repair") for number in (9, 10)]
    importer.bring(write_fleet(tmp_path, nodes=broken))
    line = lines_now(importer.state, parse_word("fixed:0.1"), now=NOW)[TIGER]
    assert (line.gpus, line.why) == (64, "buffer 0.1 of total; no more is healthy")


def test_a_forecast_is_never_above_what_is_healthy(tmp_path: Path) -> None:
    importer = Importer()
    history = _past((900, "n1", "repair"), (880, "n1", "in_service"), (5, "n2", "repair"), (0, "n2", "in_service"))
    importer.bring(write_fleet(tmp_path, nodes=nodes(20), history=history))
    policy = Policy("test", (Rule(LineBy.FORECAST, target=Fraction("0.99")),))
    line = lines_now(importer.state, policy, now=NOW)[TIGER]
    assert line.gpus % 8 == 0
    assert 0 < line.gpus <= 160
    assert line.policy == "forecast:0.99"
    assert "nodes hold for 7 days with 0.99" in line.why


def test_a_policy_in_force_gives_a_line_before_there_is_a_history(tmp_path: Path) -> None:
    """Who asks for the forecast itself is told why there is none."""
    importer = Importer()
    importer.bring(write_fleet(tmp_path, nodes=nodes(20)))
    state = importer.state
    text = "policy: ahead\nlines: [{scope: {}, by: forecast}]\n"
    line = lines_now(state, parse_policy(text, source="a test"), now=NOW)[TIGER]
    assert (line.gpus, line.policy) == (17 * 8, "fixed:0.15")
    assert "the history runs over 0.0 days" in line.warning
    with pytest.raises(Refused) as refused:
        lines_now(state, parse_word("forecast:0.99"), now=NOW)
    assert refused.value.code == "history_too_short"
