"""A campaign file to begin with, fit for the fleet that is there. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta

from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.model import Phase, Purpose, Service

DAYS = 17
OUT_SHARE = 0.1
CREWS = 8
BIG_NODES = 400
COMMENT_COLUMN = 46

TEXT = """\
# Planned work over many clusters. Plan it: plimsoll campaign plan FILE
campaign: {name}
changes:  # all done in one outage
  - {{component: {name}, version: "28.43", impact: disruptive}}  # or impactless
scope: {scope}  # sku, area, region, colo, cluster, purpose, size, or any label
start: {start}
deadline: {deadline}  # the last day on which work may happen
window: {{hours: [11, 20], tz: UTC, days: [mon, tue, wed, thu, fri, sat, sun]}}
slot_minutes: 60
big: {{nodes_over: {big}}}  # makes size: big | small
work:  # how a cluster is done; the first match wins
  - {{scope: {{size: big, purpose: applied}}, mode: rolling, share_per_day: 0.10, hours: 6}}
  - {{scope: {{size: big}}, mode: whole, hours: 8}}
  - {{scope: {{}}, mode: whole, hours: 4}}
limits:  # each may have scope, from, until, days
  - {{kind: out_at_once, unit: nodes, at_most: {out}}}
  - {{kind: starts_per_day, scope: {{size: big}}, at_most: 2}}
  - {{kind: crews, at_most: {crews}}}  # clusters being worked on at once
expect: {{non_return_share: 0.02, repair_days: 2}}
canary: {{clusters: [{canary}], soak_hours: 24}}
no_fly: []  # - {{scope: {{cluster: [NAME]}}, from: DATE, to: DATE, why: "training run"}}
order:  # earlier groups weigh more; strict: true makes it a rule
  - {{scope: {{size: small, purpose: research}}, weight: 8}}
  - {{scope: {{size: small, purpose: applied}}, weight: 4}}
  - {{scope: {{size: big, purpose: research}}, weight: 2}}
  - {{scope: {{size: big, purpose: applied}}, weight: 1}}
spread: {{scope: {{purpose: applied}}, over: area}}
objective: {{exposure: 1, imbalance: 20000, peak: 1}}
replan: {{freeze_hours: 24}}  # what starts sooner does not move
run: {{grace_minutes: 60, late_minutes: 120}}  # work: [PROGRAM, …] does it; else somebody ticks it off
roster: [on-call]
"""


def example_file(fleet: Fleet, name: str, *, start: date, areas: Sequence[str]) -> str:
    """A file that can be planned on this fleet, or on some of its areas."""
    counts: Counter[str] = Counter()
    for node in fleet.nodes.values():
        cluster = fleet.clusters[node.cluster]
        if node.service is not Service.RETIRED and (not areas or cluster.area in areas):
            counts[node.cluster] += 1
    live = [each for each in counts if fleet.clusters[each].phase is Phase.PRODUCTION] or list(counts)
    research = [each for each in live if fleet.clusters[each].purpose is Purpose.RESEARCH] or live
    canary = min(research, key=lambda each: (counts[each], each), default="NAME")
    largest = max((counts[each] for each in counts if counts[each] <= BIG_NODES), default=0)
    whole = max((counts[each] for each in counts if fleet.clusters[each].purpose is Purpose.RESEARCH), default=0)
    out = max(round(sum(counts.values()) * OUT_SHARE, -1), round(1.1 * max(largest, whole) + 5, -1))
    scope = f"{{area: [{', '.join(areas)}]}}" if areas else "{}"
    deadline = start + timedelta(days=DAYS)
    text = TEXT.format(
        name=name,
        scope=scope,
        start=start,
        deadline=deadline,
        big=BIG_NODES,
        out=int(out),
        crews=CREWS,
        canary=canary,
    )
    return _aligned(text)


def _aligned(text: str) -> str:
    """Comments one under the other, where what they explain leaves room for that."""
    lines = []
    for line in text.splitlines():
        words, mark, comment = line.partition("  # ")
        lines.append(f"{words:<{COMMENT_COLUMN}}# {comment}" if mark and len(words) < COMMENT_COLUMN else line)
    return "".join(f"{line}\n" for line in lines)


def next_monday(today: date) -> date:
    return today + timedelta(days=7 - today.weekday())
