"""Campaign files: every field is read as it stands, and every mistake is named with its line."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from plimsoll.campaigns.days import make_days
from plimsoll.campaigns.file import _KEYS, _LIMIT_KEYS, parse_campaign, read_campaign
from plimsoll.campaigns.model import Base, Counts, Impact, LimitKind, Measure, Mode
from plimsoll.campaigns.units import make_units
from plimsoll.documents import read_document
from plimsoll.errors import PlimsollError
from plimsoll.fleet.fold import Fleet
from tests.support.dock import Dock
from tests.support.fleets import nodes, row, write_fleet
from tests.support.imports import Importer

SMALL = """\
campaign: nic
changes: [{component: nic, version: "2"}]
scope: {}
start: 2026-01-05
deadline: 2026-01-09
window: {hours: [11, 20]}
work:
  - {mode: whole, hours: 4}
"""

EXAMPLE = """\
campaign: nic-firmware
changes:
  - {component: nic-firmware, version: "28.43", impact: disruptive}
  - {component: agent, version: "7", impact: [{scope: {sku: GB200}, impact: impactless}, {impact: disruptive}]}
scope: {sku: [H100, H200, GB200]}
start: 2026-01-05
deadline: 2026-01-22
window: {hours: [11, 20], tz: Europe/Stockholm, days: [mon, sun]}
slot_minutes: 30
big: {nodes_over: 400}
work:
  - {scope: {size: big, purpose: applied}, mode: rolling, share_per_day: 0.10, hours: 6}
  - {scope: {}, mode: whole, hours: 4.5}
together: colo
limits:
  - {kind: out_at_once, unit: gpus, at_most: 1800, counts: all}
  - {kind: out_at_once, unit: nodes, at_most_share: 0.5, of: scope, scope: {serves: [api], area: us}}
  - {kind: average_loss, unit: a100e, at_most_share: 0.03, of: fleet}
  - {kind: starts_per_day, scope: {size: big}, at_most: 2, until: 2026-01-18, days: [sat, sun]}
expect: {non_return_share: 0.02, repair_days: 2}
canary: {clusters: [sweden-a], soak_hours: 24}
no_fly: [{scope: {cluster: [tiger]}, from: 2026-01-08, to: 2026-01-10, why: "training run"}]
order:
  - {scope: {size: small}, weight: 8, strict: true}
spread: {scope: {purpose: applied}, over: area}
objective: {imbalance: 20000}
replan: {freeze_hours: 48, move_weight: 7}
run: {work: [fix, --all], validate: [check], grace_minutes: 5, late_minutes: 9, confirms: ops}
roster: [bob]
"""


def test_every_field_is_read_as_it_stands() -> None:
    campaign = parse_campaign(EXAMPLE, source="nic.yaml")
    assert campaign.start == date(2026, 1, 5)
    assert (campaign.window.opens, campaign.window.closes, campaign.window.days) == (660, 1200, (0, 6))
    assert [rule.impact for rule in campaign.changes[1].impacts] == [Impact.IMPACTLESS, Impact.DISRUPTIVE]
    assert (campaign.work[0].mode, campaign.work[0].share_per_day, campaign.work[1].minutes) == (Mode.ROLLING, 0.1, 270)
    first, second, third, fourth = campaign.limits
    assert (first.unit, first.counts, first.at_most) == (Measure.GPUS, Counts.ALL, 1800)
    assert (second.of, second.at_most_share, second.at_most) == (Base.SCOPE, 0.5, None)
    assert (third.kind, third.of) == (LimitKind.AVERAGE_LOSS, Base.FLEET)
    assert not fourth.holds_on(date(2026, 1, 5)), "a Monday"
    assert fourth.holds_on(date(2026, 1, 17))
    assert not fourth.holds_on(date(2026, 1, 24)), "after its last day"
    assert campaign.is_together
    assert campaign.order[0].is_strict
    assert (campaign.aims.exposure, campaign.aims.imbalance) == (0, 20000), "a missing term counts 0"
    assert campaign.canary is not None
    assert campaign.canary.soak_minutes == 24 * 60
    assert campaign.running.work == ("fix", "--all")
    assert campaign.replanning.freeze_minutes == 48 * 60


def test_without_an_objective_exposure_counts_once() -> None:
    aims = parse_campaign(SMALL, source="x").aims
    assert (aims.exposure, aims.imbalance, aims.peak) == (1, 0, 0)


MISTAKES = {
    "an unknown key": ("work:", "wrok:", 7, "did you mean 'work'"),
    "an unknown key inside": ("hours: 4}", "hours: 4, huors: 3}", 8, "'huors' is not known"),
    "a date that does not exist": ("2026-01-09", "2026-02-30", 5, "a date that exists"),
    "a deadline before the start": ("deadline: 2026-01-09", "deadline: 2026-01-04", 5, "before the start"),
    "a start at the end of the calendar": ("start: 2026-01-05", "start: 9999-12-31", 4, "9990-12-31 at the latest"),
    "a window that closes before it opens": ("[11, 20]", "[20, 11]", 6, "not after it opens"),
    "a zone that is none": ("[11, 20]}", "[11, 20], tz: Mars/Base}", 6, "a time zone such as"),
    "work longer than the window": ("hours: 4}", "hours: 10}", 8, "do not fit into a window of 9 hours"),
    "a share for whole clusters": ("hours: 4}", "hours: 4, share_per_day: 0.1}", 8, "goes with mode: rolling"),
    "a size that nobody defined": ("{mode", "{scope: {size: big}, mode", 1, "nodes_over"),
    "two versions of one component": ('version: "2"}', 'version: "2"}, {component: nic, version: "3"}', 2, "twice"),
    "too many days": ("2026-01-09", "2029-01-09", 5, "at most 370"),
    "a limit with a number and a share": (
        "work:",
        "limits: [{kind: out_at_once, at_most: 3, at_most_share: 0.1}]\nwork:",
        7,
        "not both",
    ),
    "a limit of a kind that has no unit": (
        "work:",
        "limits: [{kind: crews, at_most: 3, unit: gpus}]\nwork:",
        7,
        "crews",
    ),
    "a limit that never holds": (
        "work:",
        "limits: [{kind: crews, at_most: 3, from: 2026-01-08, until: 2026-01-07}]\nwork:",
        7,
        "would never hold",
    ),
    "no-fly dates the wrong way round": (
        "work:",
        "no_fly: [{scope: {}, from: 2026-01-08, to: 2026-01-07}]\nwork:",
        7,
        "is before from",
    ),
    "a command as one text": ("work:", "run: {work: fix --all}\nwork:", 7, "expected a list"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_where_it_stands(name: str) -> None:
    old, new, want_line, want_words = MISTAKES[name]
    assert old in SMALL
    with pytest.raises(PlimsollError) as refused:
        parse_campaign(SMALL.replace(old, new, 1), source="nic.yaml")
    assert refused.value.message.startswith(f"nic.yaml, line {want_line}:"), refused.value.message
    assert want_words in refused.value.message


UNFIT = {
    "a canary that does not exist": ("canary: {clusters: [tigre]}", "there is no cluster 'tigre'; did you mean tiger?"),
    "a canary without nodes in scope": ("canary: {clusters: [empty]}", "empty has no node in scope"),
    "a cluster that is not there": ("no_fly: [{scope: {cluster: [nope]}, from: 2026-01-06, to: 2026-01-06}]", "nope"),
    "a key that nothing has": ("limits: [{kind: crews, at_most: 1, scope: {serve: [api]}}]", "did you mean serves"),
    "an area that is no area": ("limits: [{kind: crews, at_most: 1, scope: {area: [asia]}}]", "no area 'asia'"),
    "a spread over nothing": ("spread: {scope: {}, over: planet}", "no cluster or node has the key 'planet'"),
}


def fleet_of(tmp_path: Path) -> Fleet:
    folder = write_fleet(
        tmp_path / "fleet",
        clusters=[row("clusters", serves="api"), row("clusters", cluster="empty", serves="")],
        nodes=[
            *nodes(3, prefix="a", role="chat"),
            *nodes(2, prefix="b", role=""),
            row("nodes", node="c1", role="api", service="retired"),
        ],
    )
    importer = Importer()
    importer.bring(folder)
    return importer.keeper.state().fork().of(Fleet)


@pytest.mark.parametrize("name", UNFIT)
def test_what_the_fleet_makes_impossible_is_named_where_it_stands(name: str, tmp_path: Path) -> None:
    line, want_words = UNFIT[name]
    document = read_document(SMALL + line + "\n", source="nic.yaml")
    with pytest.raises(PlimsollError) as refused:
        make_units(read_campaign(document), fleet_of(tmp_path), document)
    assert refused.value.message.startswith("nic.yaml, line 9:"), refused.value.message
    assert want_words in refused.value.message


def test_a_cluster_that_no_rule_matches_is_named(tmp_path: Path) -> None:
    text = SMALL.replace("{mode: whole", "{scope: {purpose: applied}, mode: whole")
    with pytest.raises(PlimsollError, match="no rule matches tiger"):
        make_units(parse_campaign(text, source="x"), fleet_of(tmp_path))


def test_a_node_label_splits_a_cluster_and_retired_nodes_are_left_out(tmp_path: Path) -> None:
    text = SMALL + "order: [{scope: {role: [chat]}, weight: 3}]\n"
    roll = make_units(parse_campaign(text, source="x"), fleet_of(tmp_path))
    found = {unit.name: (unit.nodes, unit.weight) for unit in roll.units}
    assert found == {"tiger": (2, 1.0), "tiger/chat": (3, 3.0)}


def test_what_takes_nothing_out_of_service_is_no_unit(tmp_path: Path) -> None:
    text = SMALL.replace('version: "2"', 'version: "2", impact: impactless')
    roll = make_units(parse_campaign(text, source="x"), fleet_of(tmp_path))
    assert roll.units == ()
    assert {name: len(names) for name, names in roll.impactless.items()} == {"tiger": 5}


def test_a_canary_on_which_nothing_is_taken_out_is_no_mistake(tmp_path: Path) -> None:
    text = SMALL.replace('version: "2"', 'version: "2", impact: impactless') + "canary: {clusters: [tiger]}\n"
    roll = make_units(parse_campaign(text, source="x"), fleet_of(tmp_path))
    assert (roll.units, list(roll.impactless)) == ((), ["tiger"])


def test_a_value_that_matches_nothing_is_noted(tmp_path: Path) -> None:
    text = SMALL + "limits: [{kind: crews, at_most: 1, scope: {colo: [nowhere]}}]\n"
    roll = make_units(parse_campaign(text, source="x"), fleet_of(tmp_path))
    assert roll.notes == ("limits: the fleet has no colo 'nowhere'; what asks for it matches nothing",)


def test_rolling_batches_are_rounded_up_and_the_last_is_smaller() -> None:
    dock = Dock({"tiger": 7})
    text = SMALL.replace("mode: whole", "mode: rolling, share_per_day: 0.3")
    text += "expect: {non_return_share: 0.34, repair_days: 1}\n"
    unit = make_units(parse_campaign(text, source="x"), dock.state.of(Fleet)).units[0]
    assert [len(batch) for batch in unit.batches] == [3, 3, 1]
    assert unit.stays == (2, 2, 1), "1.02 is more than one"


def test_a_day_on_which_the_clock_changes_is_as_long_as_it_is() -> None:
    text = SMALL.replace("[11, 20]}", "[1, 5], tz: Europe/Stockholm}")
    text = text.replace("2026-01-05", "2026-03-28").replace("2026-01-09", "2026-03-30")
    days = make_days(parse_campaign(text, source="x"))
    before, changed, after = days.days
    assert before.slots == (60, 120, 180, 240)
    assert changed.slots == (24 * 60 + 60, None, 24 * 60 + 120, 24 * 60 + 180), "02:00 is skipped"
    assert changed.closes == 24 * 60 + 240
    assert after.midnight == 47 * 60
    assert days.moment(changed.slots[0] or 0).isoformat() == "2026-03-29T01:00:00+01:00"


def test_every_key_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "campaign-file.md").read_text()
    inner = (
        "share_per_day",
        "soak_hours",
        "freeze_hours",
        "move_weight",
        "grace_minutes",
        "notice_hours",
        "late_minutes",
    )
    for key in (*_KEYS, *_LIMIT_KEYS, *inner, "validate", "confirms", *LimitKind):
        assert key in page, f"{key} is not explained"
