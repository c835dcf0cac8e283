"""The report of a correction as a page: HTML that needs nothing from outside, or Markdown with drawn bars. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from plimsoll.quota.report.story import Bar, Story, show_kept

BAR_CELLS = 24
FULL, LIGHT = "█", "▒"

STYLE = """
:root { color-scheme: light dark; --ink: #1d242c; --soft: #5b6673; --ground: #fff; --line: #d9dee4; --mark: #eef4fc; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaef; --soft: #a3adb8; --ground: #12161b; --line: #323a44; --mark: #1c2733; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 20px; max-width: 920px; background: var(--ground); color: var(--ink);
  font: 14px/1.45 Inter, Helvetica, Arial, sans-serif; }
h1 { font-size: 23px; line-height: 1.25; margin: 0 0 6px; }
h2 { font-size: 15px; margin: 18px 0 6px; }
p, ul, dl { margin: 0 0 8px; }
.stamp, .notes, caption { color: var(--soft); font-size: 12px; }
figure { margin: 14px 0; }
figure svg { max-width: 100%; height: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 12px 0; }
.tile { border-top: 3px solid var(--line); padding-top: 6px; }
.tile b { display: block; font-size: 24px; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 2px; }
th, td { text-align: right; padding: 2px 8px; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, td.words, th.words { text-align: left; }
th { font-weight: 600; }
tr.chosen td { background: var(--mark); font-weight: 600; }
.wide { overflow-x: auto; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 24px; }
ul { padding-left: 18px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 12px; }
dt { font-weight: 600; }
dd { margin: 0; }
code { font: 12px ui-monospace, Menlo, Consolas, monospace; }
@media (max-width: 640px) {
  .two { grid-template-columns: 1fr; }
  figure { overflow-x: auto; } figure svg { max-width: none; }
}
@page { size: A4; margin: 10mm; }
@media print {
  :root { --ink: #000; --soft: #444; --ground: #fff; --line: #ccc; --mark: #eee; }
  body { padding: 0; max-width: none; font-size: 8.6pt; line-height: 1.25; }
  h1 { font-size: 14pt; } h2 { margin: 6pt 0 2pt; font-size: 9.6pt; }
  p, ul, dl { margin-bottom: 3pt; } dl { gap: 1pt 8pt; } code { font-size: 7.6pt; }
  figure { margin: 3pt 0; } figure svg { max-height: 58mm; }
  .tiles { margin: 4pt 0; grid-template-columns: repeat(4, 1fr); } .tile b { font-size: 13pt; line-height: 1.1; }
  table { font-size: 7.8pt; line-height: 1.2; } th, td { padding: 1px 5px; } .notes, caption { font-size: 7.2pt; }
  .tile span, .stamp { font-size: 7.6pt; }
  .again { display: none; } /* the picture has these numbers */
  section, table, figure { break-inside: avoid; }
}
"""


def html_page(story: Story, svg: str) -> str:
    """One self-contained page; it follows the system's light or dark, and prints on one sheet."""
    parts = [
        f"<header><h1>{escape(story.headline)}</h1><p>{escape(story.lead)}</p>"
        f'<p class="stamp">{escape(story.stamp)}</p></header>',
        f'<figure role="img" aria-label="{escape(story.headline)}">{_inline(svg)}</figure>',
        _tiles(story),
        _policy_table(story.bars),
        _for_teams(story),
        _team_table(story),
        _stage_table(story),
        f'<section class="notes">{"".join(f"<p>{escape(note)}</p>" for note in story.notes)}</section>',
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(story.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _inline(svg: str) -> str:
    """The drawing without the prologue of a file of its own."""
    return re.sub(r"^\s*(?:<\?xml[^>]*\?>|<!DOCTYPE[^>]*>)\s*", "", svg)


def _tiles(story: Story) -> str:
    tiles = [
        f'<div class="tile"><b>{escape(tile.number)}</b><span>{escape(tile.what)}</span></div>' for tile in story.tiles
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>' if tiles else ""


def _row(cells: Sequence[object], *, tag: str = "td", name: str = "") -> str:
    inside = "".join(f"<{tag}>{escape(_text(cell))}</{tag}>" for cell in cells)
    return f'<tr class="{name}">{inside}</tr>' if name else f"<tr>{inside}</tr>"


def _table(caption: str, head: Sequence[str], rows: Sequence[str]) -> str:
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption><thead>{_row(head, tag="th")}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


POLICY_HEAD = ("policy", "over", "never there", "to flex", "running cut", "teams", "promise kept")


def _policy_cells(bar: Bar) -> tuple[object, ...]:
    if bar.over is None:
        return (bar.label, *(None,) * 5, show_kept(bar.kept_share))
    kept = show_kept(bar.kept_share)
    return bar.label, bar.over, bar.never_backed, bar.to_flex, bar.running, bar.teams, kept


def _policy_table(bars: Sequence[Bar]) -> str:
    rows = [_row(_policy_cells(bar), name="chosen" if bar.is_chosen else "") for bar in bars]
    table = _table("in GPUs", POLICY_HEAD, rows)
    return f'<section class="again"><h2>Every policy side by side</h2>{table}</section>'


TEAM_HEAD = ("team", "assigned", "guaranteed", "cut", "unscheduled", "idle", "running", "promise kept")


def _team_rows(story: Story) -> list[tuple[object, ...]]:
    return [
        (
            team.team, team.assigned, team.guaranteed, team.haircut.gpus, team.haircut.unscheduled, team.haircut.idle,
            team.haircut.running, show_kept(team.kept_share),
        )
        for team in story.teams
    ]  # fmt: skip


def _team_table(story: Story) -> str:
    if not story.teams:
        return ""
    rows = [_row(cells) for cells in _team_rows(story)]
    caption = f"in GPUs, over all clusters, who loses most first{_left(story)}"
    return f"<section><h2>Who loses what</h2>{_table(caption, TEAM_HEAD, rows)}</section>"


def _left(story: Story) -> str:
    return f"; {story.teams_left} more: plimsoll quota compare --by team" if story.teams_left else ""


def _for_teams(story: Story) -> str:
    if not story.changes:
        return ""
    changes = "".join(f"<li>{escape(line)}</li>" for line in story.changes)
    choices = "".join(f"<dt>{escape(word)}</dt><dd>{_commands(escape(text))}</dd>" for word, text in story.choices)
    return (
        f'<section class="two"><div><h2>If your quota falls: what changes</h2><ul>{changes}</ul></div>'
        f"<div><h2>What you may do</h2><dl>{choices}</dl></div></section>"
    )


def _commands(text: str) -> str:
    """What can be typed looks like it. Escaped text comes in."""
    return re.sub(r"plimsoll quota [a-z]+(?: --?[a-z]+| [A-Z]+)*", lambda found: f"<code>{found[0]}</code>", text)


def _stage_table(story: Story) -> str:
    if not story.stages:
        return ""
    rows = "".join(
        f'<tr><td>{stage}</td><td>{pools:,}</td><td class="words">{escape(what)}</td></tr>'
        for stage, pools, what in story.stages
    )
    head = '<tr><th>stage</th><th>pools</th><th class="words">what it takes</th></tr>'
    return (
        "<section><h2>In four stages, painless first</h2>"
        f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div></section>'
    )


def markdown_page(story: Story) -> str:
    """The same for a chat or a wiki: bars are letters, so that it needs no file beside it."""
    most = max((bar.over or 0 for bar in story.bars), default=0)
    lines = [f"# {_plain(story.headline)}", "", _plain(story.lead), "", f"*{_plain(story.stamp)}*", ""]
    lines += ["```text", *_bars(story.bars, most), "```", ""]
    lines += [f"- **{tile.number}** {_plain(tile.what)}" for tile in story.tiles]
    lines += ["", "## Every policy side by side (GPUs)", ""]
    lines += _markdown_table(POLICY_HEAD, [_policy_cells(bar) for bar in story.bars])
    if story.changes:
        lines += ["", "## If your quota falls", "", "What changes:", "", *(f"- {line}" for line in story.changes)]
        lines += ["", "What you may do:", "", *(f"- **{word}:** {_typed(text)}" for word, text in story.choices)]
    if story.teams:
        lines += ["", f"## Who loses what (GPUs, who loses most first{_left(story)})", ""]
        lines += _markdown_table(TEAM_HEAD, _team_rows(story))
    if story.stages:
        lines += ["", "## In four stages, painless first", ""]
        lines += _markdown_table(("stage", "pools", "what it takes"), story.stages, words=(2,))
    lines += ["", *(f"- {_plain(note)}" for note in story.notes)]
    return "\n".join(lines).rstrip() + "\n"


def _bars(bars: Sequence[Bar], most: int) -> list[str]:
    """To scale: what was never there is light, what goes to flex is full."""
    width = max((len(bar.label) for bar in bars), default=0)
    drawn = []
    for bar in bars:
        cells = round((bar.over or 0) / most * BAR_CELLS) if most else 0
        gone = round(bar.never_backed / most * BAR_CELLS) if most else 0
        text = LIGHT * min(gone, cells) + FULL * max(0, cells - gone)
        over = "no plan" if bar.over is None else f"{bar.over:,}"
        drawn.append(
            f"{'>' if bar.is_chosen else ' '} {bar.label:<{width}}  {text:<{BAR_CELLS}}  {over:>8}"
            f"  kept {show_kept(bar.kept_share)}"
        )
    return [*drawn, f"  {'':<{width}}  {LIGHT} never there   {FULL} to flex"]


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]], *, words: Sequence[int] = (0,)) -> list[str]:
    return [
        "| " + " | ".join(head) + " |",
        "|" + "|".join("---" if place in words else "--:" for place in range(len(head))) + "|",
        *("| " + " | ".join(_plain(_text(cell)) for cell in row) + " |" for row in rows),
    ]


def _plain(text: str) -> str:
    """Names are data: what Markdown or HTML would read as markup is taken as letters."""
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", text.replace("\n", " ")).replace("<", "&lt;").replace(">", "&gt;")


def _typed(text: str) -> str:
    return re.sub(r"plimsoll quota [a-z]+(?: --?[a-z]+| [A-Z]+)*", lambda found: f"`{found[0]}`", text)
