"""A plan as a short post: which number, when, how much at once, who is hit next, what changed. Pure.

One `Post` is written twice: as Markdown, and as the message of a Slack-compatible webhook, whose marks are others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

import msgspec

from plimsoll.campaigns.model import Batch
from plimsoll.campaigns.publish.changes import Changes, UnitChange, by_unit, counts_text, move_text
from plimsoll.campaigns.publish.curve import Curve, cap_on
from plimsoll.campaigns.publish.model import Published
from plimsoll.campaigns.publish.text import clock_text, day_text, moment_text, proof_text, what_text, when_text
from plimsoll.words import counted

WEEK = timedelta(days=7)
CLUSTERS_SHOWN_MAX, TEAMS_SHOWN_MAX, CHANGES_SHOWN_MAX = 4, 6, 8
HEADER_CHARS_MAX, SECTION_CHARS_MAX, TEXT_CHARS_MAX = 150, 3_000, 3_000
"""What Slack takes in one block; longer ones refuse the whole message."""
_MARKS = "\\`*_[]<>|~"
Spec = dict[str, Any]


class Part(msgspec.Struct, frozen=True):
    """A heading and lines under it."""

    heading: str
    lines: tuple[str, ...]


class Post(msgspec.Struct, frozen=True):
    """What is said, without any marks. `facts` stand under the headline."""

    headline: str
    facts: tuple[str, ...]
    parts: tuple[Part, ...]
    url: str = ""


def make_post(published: Published, curve: Curve, found: Changes) -> Post:
    headline = f"{published.name}: plan {published.number}"
    if found.before is not None:
        headline += f", replaces plan {found.before}"
    parts = [part for part in (_next(published), _changed(published, found)) if part is not None]
    return Post(headline, tuple(_facts(published, curve)), tuple(parts), published.url)


def _facts(published: Published, curve: Curve) -> list[str]:
    if not published.batches:
        return [f"{what_text(published)}: nothing is planned any more"]
    nodes = sum(batch.nodes for batch in published.batches)
    clusters = {published.cluster_of(batch.unit) for batch in published.batches}
    first, last = published.batches[0], max(published.batches, key=lambda batch: batch.end)
    when = (
        f"{moment_text(published, first.start)} to {moment_text(published, last.end)} ({published.campaign.window.tz})"
    )
    lines = [f"{what_text(published)} on {counted(nodes, 'node')} in {counted(len(clusters), 'cluster')}, {when}"]
    peak = curve.peak
    if peak is not None:
        cap = cap_on(published, published.local(peak.at).date())
        most = f"{peak.total:,} of at most {cap:,.0f}" if cap else f"{peak.total:,}"
        lines.append(f"Peak: {most} nodes out, {moment_text(published, peak.at)}; {proof_text(published.plan)}")
    return lines


def _next(published: Published) -> Part | None:
    """The seven days from now; before the campaign begins, its first seven."""
    ahead = [batch for batch in published.batches if batch.end > published.generated_at]
    if not ahead:
        return None
    first = max(published.local(published.generated_at).date(), published.day(ahead[0]))
    begin = datetime.combine(first, time(), published.zone)
    batches = [batch for batch in ahead if batch.start < begin + WEEK]
    days = f"{day_text(first)} to {day_text(first + WEEK - timedelta(days=1))}"
    units = list(dict.fromkeys(batch.unit for batch in batches))
    nodes = sum(batch.nodes for batch in batches)
    lines = [f"{counted(len(units), 'cluster')}, {counted(nodes, 'node')}"]
    lines += _by_day(published, batches)
    if hit := _hit(published, units):
        lines.append(f"Teams hit most: {_some(hit, TEAMS_SHOWN_MAX)}")
    return Part(f"Out next, {days}", tuple(lines))


def _hit(published: Published, units: Sequence[str]) -> list[str]:
    """Teams, and what they hold where something goes out; those with the most first."""
    pools = {
        (unit.cluster.id, sku) for name in units if (unit := published.unit_by_name.get(name)) for sku in unit.skus
    }
    gpus: Counter[str] = Counter()
    for holder in published.holders:
        if (holder.cluster, holder.sku) in pools:
            gpus[holder.team] += holder.gpus
    return [f"{team} ({count:,} GPUs)" for team, count in sorted(gpus.items(), key=lambda pair: (-pair[1], pair[0]))]


def _by_day(published: Published, batches: Sequence[Batch]) -> list[str]:
    days: dict[date, dict[str, list[Batch]]] = {}
    for batch in batches:
        start = clock_text(published.local(batch.start))
        days.setdefault(published.day(batch), {}).setdefault(start, []).append(batch)
    lines = []
    for day, starts in days.items():
        hours = []
        for start, listed in starts.items():
            names = [batch.unit for batch in sorted(listed, key=lambda batch: (-batch.nodes, batch.unit))]
            hours.append(f"{start} {_some(names, CLUSTERS_SHOWN_MAX)}")
        lines.append(f"{day_text(day)}: {'; '.join(hours)}")
    return lines


def _some(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _changed(published: Published, found: Changes) -> Part | None:
    if found.before is None:
        return None
    heading = f"Changed since plan {found.before}: {counts_text(found)}"
    units = sorted(by_unit(found.changes), key=lambda unit: -unit.nodes)
    lines = [_change_line(published, unit) for unit in units[:CHANGES_SHOWN_MAX]]
    if len(units) > CHANGES_SHOWN_MAX:
        lines.append(f"and {len(units) - CHANGES_SHOWN_MAX:,} more")
    return Part(heading, tuple(lines))


def _change_line(published: Published, unit: UnitChange) -> str:
    first = unit.batches[0]
    words = f"{unit.unit}: {move_text(unit)}"
    if first.before and first.after and first.before.start != first.after.start:
        return f"{words}, {when_text(published, first.before)} → {when_text(published, first.after)}"
    batch = first.after or first.before
    assert batch is not None, "it is in one of the plans"
    return f"{words}, {when_text(published, batch)}"


def markdown(post: Post) -> str:
    """The post as Markdown."""
    lines = [f"**{_escaped(post.headline)}**", "", *(f"- {_escaped(fact)}" for fact in post.facts)]
    for part in post.parts:
        lines += ["", f"**{_escaped(part.heading)}**", "", *(f"- {_escaped(line)}" for line in part.lines)]
    if post.url:
        lines += ["", f"[Calendar, picture and table](<{post.url}>)"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return "".join(f"\\{sign}" if sign in _MARKS else sign for sign in text.replace("\n", " "))


def slack_message(post: Post) -> Spec:
    """The post as a webhook takes it: `text` is what is shown where blocks are not."""
    blocks: list[Spec] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(post.headline, HEADER_CHARS_MAX)}},
        _block("\n".join(_slack(fact) for fact in post.facts)),
    ]
    for part in post.parts:
        lines = [f"*{_slack(part.heading)}*", *(f"• {_slack(line)}" for line in part.lines)]
        blocks.append(_block("\n".join(lines)))
    if post.url:
        blocks.append(_block(f"<{_slack(post.url)}|Calendar, picture and table>"))
    text = "\n".join([post.headline, *post.facts, *(part.heading for part in post.parts)])
    return {"text": _cut(_slack(text), TEXT_CHARS_MAX), "blocks": blocks}


def _block(text: str) -> Spec:
    return {"type": "section", "text": {"type": "mrkdwn", "text": _cut(text, SECTION_CHARS_MAX)}}


def _slack(text: str) -> str:
    """Three signs have a meaning for Slack whatever stands around them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, most: int) -> str:
    """Whole lines, where there is more than one."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    return (cut.rpartition("\n")[0] or cut) + "…"
