"""A plan as one page that needs nothing else: numbers, picture, calendar, what changed, and the tables behind. Pure.

Must never carry a script, fetch anything, or put a name from the fleet into the page unescaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from html import escape

from plimsoll.campaigns.publish.calendar import CAMPAIGN_FILE
from plimsoll.campaigns.publish.changes import Changes, UnitChange, by_unit, counts_text, move_text
from plimsoll.campaigns.publish.curve import CapUse, Curve, DayCount, cap_on, cap_uses, day_counts
from plimsoll.campaigns.publish.grid import Grid
from plimsoll.campaigns.publish.markup import chart_svg, list_table, meter, scroll, section
from plimsoll.campaigns.publish.model import Published, feed_file
from plimsoll.campaigns.publish.page_calendar import calendar_section
from plimsoll.campaigns.publish.picture import curve_picture, progress_picture
from plimsoll.campaigns.publish.style import STYLE
from plimsoll.campaigns.publish.text import (
    UNIT_WORDS,
    batches_text,
    clock_text,
    day_text,
    limit_text,
    moment_text,
    number_text,
    what_text,
    when_text,
)
from plimsoll.words import counted

PAGE_FILE, PICTURE_FILE, TABLE_FILE, CHAT_FILE = "index.html", "campaign.png", "campaign.csv", "campaign.md"
CHANGES_OPEN_MAX, CHANGES_SHOWN_MAX, BATCHES_SHOWN_MAX, TEAMS_SHOWN_MAX = 12, 400, 2_000, 400
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(published: Published, curve: Curve, grid: Grid, found: Changes) -> str:
    """The whole page."""
    title = f"{published.name}: plan {published.number}"
    counts = day_counts(published, curve)
    body = [
        _header(published),
        _tiles(published, curve, found),
        _changes(published, found),
        _chart_section(published, curve),
        calendar_section(published, grid, counts),
        _areas(published, curve),
        _limits(published),
        _teams(published),
        _days(published, counts),
        _batches(published),
        _footer(published),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<style>{STYLE}</style></head>\n<body><main>\n{chr(10).join(filter(None, body))}\n</main></body></html>\n"
    )


def _header(published: Published) -> str:
    window = published.campaign.window
    hours = f"{window.opens // 60:02}:{window.opens % 60:02}–{window.closes // 60:02}:{window.closes % 60:02}"
    made = published.local(published.generated_at)
    links = ((CAMPAIGN_FILE, "Subscribe (.ics)"), (TABLE_FILE, "Table (.csv)"), (PICTURE_FILE, "Picture (.png)"))
    listed = "".join(f'<a href="{name}">{text}</a>' for name, text in links)
    return (
        f'<header><div><h1>{escape(published.name)}<span class="badge">plan {published.number}</span></h1>'
        f'<p class="soft">{escape(what_text(published))} · work from {hours} {escape(window.tz)} ·'
        f" as of {day_text(made.date())} {made.year} {clock_text(made)}</p></div>"
        f"<nav>{listed}</nav></header>"
    )


def _tile(value: str, words: str, *, more: str = "") -> str:
    return f'<div class="tile"><b>{value}</b>{more}<span>{words}</span></div>'


def _tiles(published: Published, curve: Curve, found: Changes) -> str:
    nodes = sum(batch.nodes for batch in published.batches)
    clusters = {published.cluster_of(batch.unit) for batch in published.batches}
    done = sum(batch.nodes for batch in published.batches if batch.id in published.done)
    tiles = [
        _tile(
            f"{nodes:,} <small>nodes</small>",
            f"in {counted(len(clusters), 'cluster')}" + (f"; {done:,} done" if done else ""),
            more=meter(done / nodes) if done else "",
        )
    ]
    if published.batches:
        first = published.day(published.batches[0])
        last = max(published.local(batch.end).date() for batch in published.batches)
        spare = (published.campaign.deadline - last).days
        words = f"{counted(spare, 'day')} before the deadline" if spare > 0 else "the last day is the deadline"
        if spare < 0:
            words = f"{counted(-spare, 'day')} after the deadline"
        tiles.append(_tile(f"{first.day} {first:%b} – {last.day} {last:%b}", words))
    if (peak := curve.peak) is not None:
        cap = cap_on(published, published.local(peak.at).date())
        value = f"{peak.total:,}" + (f" <small>of {cap:,.0f} nodes out</small>" if cap else " <small>nodes out</small>")
        more = meter(peak.total / cap) if cap else ""
        tiles.append(_tile(value, f"at the peak, {moment_text(published, peak.at)}", more=more))
    tiles.append(_proof(published))
    if found.before is not None:
        tiles.append(_tile(f"{len({each.unit for each in found.changes})} <small>changed</small>", _since(found)))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _since(found: Changes) -> str:
    return f'<a href="#changes">since plan {found.before}</a>: {counts_text(found)}'


def _proof(published: Published) -> str:
    plan = published.plan
    if plan.score is None or plan.bound is None or plan.gap is None:
        return _tile("no proof", "how much better a plan could be is not known")
    words = f"total {number_text(plan.score.total)}; proved: no plan is below {number_text(plan.bound)}"
    if plan.greedy is not None and plan.greedy.total:
        words += f"; first fit is {plan.greedy.total / max(1.0, plan.score.total) - 1:+.0%}"
    if plan.gap <= 0:
        return _tile("best <small>possible</small>", words)
    return _tile(f"{plan.gap:.1%} <small>gap to the best</small>", words)


def _chart_section(published: Published, curve: Curve) -> str:
    if not curve.points:
        return ""
    words = "Planned work, and the nodes that are expected not to come back until they are repaired, by area."
    chart = scroll(chart_svg(curve_picture(published, curve)), kind="chart", label="nodes out over time")
    return section("out", "Nodes out", f'<p class="soft small">{words}</p>', chart)


def _changes(published: Published, found: Changes) -> str:
    if found.before is None:
        return ""
    title = f"What changed since plan {found.before}"
    same = f"{batches_text(found.same)} as before"
    if not found.changes:
        return section("changes", title, f'<p class="soft">Nothing: {same}.</p>')
    units = by_unit(found.changes)
    rows = [_change_row(published, unit) for unit in units[:CHANGES_SHOWN_MAX]]
    head = ("cluster", "what", "nodes", f"plan {found.before}", f"plan {found.after}", "teams")
    table = scroll(list_table(head, rows, numbers=(2,)), label=title)
    words = f'<p class="soft small">{counts_text(found).capitalize()}; {same}.</p>'
    if len(units) > CHANGES_OPEN_MAX:
        table = f"<details><summary>{counted(len(units), 'change')}</summary>{table}</details>"
    return section("changes", title, words, table)


def _change_row(published: Published, unit: UnitChange) -> list[str]:
    first = unit.batches[0]
    name = escape(unit.unit)
    before = escape(when_text(published, first.before)) if first.before else "–"
    after = escape(when_text(published, first.after)) if first.after else "–"
    teams = published.teams_of(unit.unit)
    listed = ", ".join(teams[:6]) + (f" and {len(teams) - 6} more" if len(teams) > 6 else "")
    what = f'<span class="{unit.kind}">{escape(move_text(unit))}</span>'
    dot = f'<span class="dot {escape(published.area_of(unit.unit))}"></span>'
    return [f"{dot}<b>{name}</b>", what, f"{unit.nodes:,}", before, after, escape(listed)]


def _areas(published: Published, curve: Curve) -> str:
    if not curve.points:
        return ""
    rows = []
    for place, area in enumerate(curve.areas):
        batches = [batch for batch in published.batches if published.area_of(batch.unit) == area]
        days = [published.day(batch) for batch in batches]
        rows.append(
            [
                f'<span class="dot {escape(area)}"></span>{escape(area)}',
                f"{len({published.cluster_of(batch.unit) for batch in batches}):,}",
                f"{sum(batch.nodes for batch in batches):,}",
                f"{max(point.out[place] for point in curve.points):,}",
                day_text(min(days)),
                day_text(max(days)),
            ]
        )
    head = ("area", "clusters", "nodes", "most out at once", "first day", "last day")
    table = scroll(list_table(head, rows, numbers=(1, 2, 3)), label="by area")
    chart = f'<div class="chart slim">{chart_svg(progress_picture(published, curve))}</div>'
    return section("areas", "By area", f'<div class="two"><div>{table}</div>{chart}</div>')


def _limits(published: Published) -> str:
    uses = cap_uses(published)
    if not uses:
        return ""
    rows = [_limit_row(published, use) for use in uses]
    head = ("limit", "at most", "planned", "share", "when", "")
    return section(
        "limits", "Limits on what is out at once", scroll(list_table(head, rows, numbers=(1, 2, 3)), label="limits")
    )


def _limit_row(published: Published, use: CapUse) -> list[str]:
    unit = UNIT_WORDS[use.cap.limit.unit]
    return [
        escape(limit_text(use.cap.limit)),
        f"{number_text(use.cap.most)} {unit}",
        number_text(use.most),
        f"{use.share:.0%}",
        moment_text(published, use.at) if use.at else "–",
        f'<div style="min-width:120px">{meter(use.share)}</div>',
    ]


def _teams(published: Published) -> str:
    hit: dict[str, tuple[set[str], int]] = {}
    for batch in published.batches:
        for team in published.teams_of(batch.unit):
            clusters, batches = hit.get(team, (set(), 0))
            hit[team] = (clusters | {published.cluster_of(batch.unit)}, batches + 1)
    if not hit:
        return ""
    chips = "".join(
        f'<a href="{feed_file("team", team)}">{escape(team)} <small>{counted(len(clusters), "cluster")}</small></a>'
        for team, (clusters, _) in sorted(hit.items())[:TEAMS_SHOWN_MAX]
    )
    words = "Teams that hold quota where something goes out. Subscribe to yours: it moves when the plan does."
    return section("teams", "Teams", f'<p class="soft small">{words}</p><div class="chips">{chips}</div>')


def _days(published: Published, counts: Sequence[DayCount]) -> str:
    rows = []
    for count in counts:
        cap = cap_on(published, count.day)
        most = f"{count.peak:,}" + (f" of {cap:,.0f}" if cap else "")
        day = day_text(count.day) + ("" if count.is_open else " (closed)")
        rows.append([day, f"{count.units:,}", f"{count.batches:,}", f"{count.nodes:,}", most])
    head = ("day", "clusters that begin", "batches", "nodes going out", "most nodes out at once")
    table = scroll(list_table(head, rows, numbers=(1, 2, 3, 4)), label="by day")
    return section("days", "Day by day", f"<details><summary>{counted(len(rows), 'day')}</summary>{table}</details>")


def _batches(published: Published) -> str:
    rows = []
    for batch in published.batches[:BATCHES_SHOWN_MAX]:
        parts = published.batch_counts.get(batch.unit, 1)
        dot = f'<span class="dot {escape(published.area_of(batch.unit))}"></span>'
        rows.append(
            [
                escape(when_text(published, batch)),
                f"{dot}{escape(batch.unit)}",
                f"{batch.mode}" + (f" {batch.number}/{parts}" if parts > 1 else ""),
                f"{batch.nodes:,}",
                escape(" ".join(lot.sku for lot in published.lots_of(batch))),
                escape(", ".join(published.teams_of(batch.unit))),
            ]
        )
    left = len(published.batches) - len(rows)
    more = f'<p class="soft small">{left:,} more are in <a href="{TABLE_FILE}">the table</a>.</p>' if left else ""
    table = scroll(list_table(("when", "cluster", "how", "nodes", "SKU", "teams"), rows, numbers=(3,)), label="batches")
    words = batches_text(len(published.batches))
    return section("batches", "Every batch", f"<details><summary>{words}</summary>{table}{more}</details>")


def _footer(published: Published) -> str:
    impactless = sum(len(nodes) for nodes in published.impactless.values())
    words = f"Campaign {escape(published.name)}, plan {published.number}."
    if impactless:
        words += f" {counted(impactless, 'node')} more get it without going out."
    if published.campaign.roster:
        words += f" Standing by: {escape(', '.join(published.campaign.roster))}."
    return f"<footer>{words} Published {published.generated_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC.</footer>"
