"""`plimsoll quota compare|report`: policies side by side, and the page that says what a correction is."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.commands.options import AsOf, Db, Format, answer_state, open_database, state_as_of
from plimsoll.commands.output import progress, show_text
from plimsoll.commands.pictures import put, refuse_terminal
from plimsoll.commands.quota.app import app
from plimsoll.commands.quota.words import PolicyWord, moment_of, policy_meant
from plimsoll.errors import Refused
from plimsoll.quota.history.compare import (
    BUFFERS_DEFAULT,
    Comparison,
    Kept,
    PolicyRow,
    check_days,
    compare,
    parse_policies,
)
from plimsoll.quota.policy import Policy
from plimsoll.quota.report.story import quiet_note
from plimsoll.quota.service import pools_of
from plimsoll.state.state import State
from plimsoll.times import show_time

ROWS_SHOWN = 40


class By(enum.StrEnum):
    """What a row of the table stands for."""

    POLICY = "policy"
    CLUSTER = "cluster"
    TEAM = "team"


class Page(enum.StrEnum):
    """What `-o` of a report takes."""

    MARKDOWN = "md"
    HTML = "html"
    PNG = "png"


Buffers = Annotated[
    str,
    typer.Option(
        "--buffers",
        metavar="LIST",
        help="Percent of total, or policies: 0,5,10,15,tiered,forecast,fixed-healthy:0.1,forecast:0.95.",
    ),
]
Days = Annotated[int, typer.Option("--days", metavar="N", help="How many days of the past each is tried on.")]
ClusterNames = Annotated[
    list[str] | None,
    typer.Option("--cluster", metavar="NAME", help="Only this cluster; may be given again.", show_default=False),
]


@app.command("compare")
def compare_command(
    context: typer.Context,
    buffers: Buffers = BUFFERS_DEFAULT,
    days: Days = 90,
    cluster: ClusterNames = None,
    by: Annotated[By, typer.Option("--by", help="What a row of the table is; JSON has all of them.")] = By.POLICY,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
) -> None:
    """Policies side by side: what each would cut, how much of that was never there, and how often its promise would
    have been kept over the past days.

    Each is replayed on the recorded health with what was known then, one decision a week, and today's book.
    """
    policies = parse_policies(buffers)
    check_days(days)

    def answer(state: State) -> Answer:
        now = moment_of(state, as_of)
        found = compare(state, policies, now=now, days=days, pools=pools_of(state, cluster or [], []))
        return _answer(found, by, output)

    answer_state(context, db, as_of, output, watch=False, answer=answer)


def _answer(found: Comparison, by: By, output: Output) -> Answer:
    if by is By.POLICY:
        tables = [_policy_table(found, POLICY_COLUMNS if output is Output.CSV else POLICY_HEADINGS)]
    elif output is Output.CSV:
        tables = [_long_table(found, by)]
    else:
        tables = [_side_by_side(found, by)]
    notes = [f"{', '.join(names)}: {reason}" for reason, names in found.reasons.items()]
    notes += [f"warning: {quiet}"] if (quiet := quiet_note(found)) else []
    if len(tables[0].rows) > ROWS_SHOWN and output is Output.TABLE:
        notes.append(f"… {len(tables[0].rows) - ROWS_SHOWN} more rows: -o csv or -o json lists them all")
        tables = [msgspec.structs.replace(tables[0], rows=tables[0].rows[:ROWS_SHOWN])]
    notes.append(_next(found, by))
    return Answer(_document(found), tables, _heading(found), notes)


def _heading(found: Comparison) -> str:
    first = next((row.summary for row in found.policies if row.summary), None)
    if first is None or not first.pools:
        return "there is no pool to compare policies on"
    heading = (
        f"{first.assigned:,} GPUs are assigned in {first.pools} {'pool' if first.pools == 1 else 'pools'},"
        f" {first.healthy:,} work:"
        f" {first.never_backed:,} of what is assigned was never there"
    )
    if found.judged_from is None or found.judged_until is None:
        return heading
    days = f"{found.judged_days:.0f} days"
    if found.judged_days < found.days - 1:  # the history, or a policy that must learn first, does not reach further
        days = f"{found.judged_days:.0f} of the {found.days} days asked for"
    span = f"{found.judged_from:%Y-%m-%d} to {found.judged_until:%Y-%m-%d}"
    heading += f"\npromise kept: replayed over {days}, {span}, one decision a week"
    if found.today is not None and found.today.kept_share is not None:
        heading += f"\nas it is assigned today it would have been kept in {found.today.kept_share:.1%} of team-hours"
    return heading


def _next(found: Comparison, by: By) -> str:
    judged = [row for row in found.policies if row.summary is not None]
    policy = judged[-1].policy if judged else "fixed:0.15"
    if by is By.POLICY:
        return (
            f"next: plimsoll quota compare --by team|cluster; plimsoll quota plan --policy {policy};"
            f" plimsoll quota report --policy {policy} -o html --out report.html"
        )
    return f"next: plimsoll quota plan --policy {policy}"


POLICY_COLUMNS = (
    "policy", "clusters_over", "pools_over", "over", "never_backed", "to_flex", "cut_unscheduled", "cut_idle",
    "cut_running", "teams_touched", "flex_created", "kept_share", "flex_mean", "flex_hours_share",
)  # fmt: skip
POLICY_HEADINGS = (
    "policy", "clusters", "pools", "over", "never_backed", "to_flex", "unscheduled", "idle", "running", "teams",
    "flex_created", "kept_share", "flex_mean", "flex_share",
)  # fmt: skip
"""The same in fewer letters, so that a terminal has room."""


def _policy_table(found: Comparison, columns: Sequence[str]) -> Table:
    rows = []
    for row in found.policies:
        now: tuple[object, ...] = (None,) * 10
        if (summary := row.summary) is not None:
            cut = summary.haircut
            now = (
                summary.clusters_over, summary.pools_over, summary.over, summary.never_backed, summary.to_flex,
                cut.unscheduled, cut.idle, cut.running, summary.teams_touched, row.flex_created,
            )  # fmt: skip
        kept = row.kept
        past = (kept.kept_share, round(kept.flex_mean), kept.flex_hours_share) if kept else (None, None, None)
        rows.append((row.policy, *now, *past))
    return Table(columns, rows)


def _side_by_side(found: Comparison, by: By) -> Table:
    """One row for each team or pool, one column for each policy: GPUs cut. Who loses most comes first."""
    planned = [row for row in found.policies if row.summary is not None]
    cuts: dict[tuple[str, ...], list[int]] = {}
    fixed: dict[tuple[str, ...], tuple[object, ...]] = {}
    for place, row in enumerate(planned):
        for key, facts, cut in _cuts(row, by):
            fixed[key] = facts
            cuts.setdefault(key, [0] * len(planned))[place] = cut
    names = ("team", "assigned") if by is By.TEAM else ("cluster", "sku", "assigned", "healthy", "never_backed")
    order = sorted(cuts, key=lambda key: (-max(cuts[key], default=0), key))
    rows = [(*key, *fixed[key], *cuts[key]) for key in order]
    return Table((*names, *(row.policy for row in planned)), rows, "GPUs cut")


def _cuts(row: PolicyRow, by: By) -> list[tuple[tuple[str, ...], tuple[object, ...], int]]:
    if by is By.TEAM:
        return [((team.team,), (team.assigned,), team.haircut.gpus) for team in row.teams]
    return [
        ((pool.cluster, pool.sku), (pool.assigned, pool.healthy, pool.never_backed), pool.haircut.gpus)
        for pool in row.pools
    ]


def _long_table(found: Comparison, by: By) -> Table:
    """All numbers, one row for each policy and team or pool: for a spreadsheet."""
    documents = [_flat(each) for row in found.policies for each in (row.teams if by is By.TEAM else row.pools)]
    columns = tuple(documents[0]) if documents else ("policy", str(by))
    return Table(columns, [tuple(document.values()) for document in documents])


def _flat(row: Any) -> dict[str, object]:
    document: dict[str, object] = msgspec.structs.asdict(row)
    haircut = document.pop("haircut")
    return document | {f"cut_{kind}": getattr(haircut, kind) for kind in ("unscheduled", "idle", "running")}


def _document(found: Comparison) -> dict[str, Any]:
    return {
        "as_of": show_time(found.as_of),
        "days": found.days,
        "judged_days": round(found.judged_days, 3),
        "judged_from": _time(found.judged_from),
        "judged_until": _time(found.judged_until),
        "quiet_days": round(found.quiet_days, 3),
        "today": _kept(found.today),
        "policies": [_policy_document(row) for row in found.policies],
        "clusters": [msgspec.to_builtins(pool) for row in found.policies for pool in row.pools],
        "teams": [msgspec.to_builtins(team) for row in found.policies for team in row.teams],
    }


def _policy_document(row: PolicyRow) -> dict[str, Any]:
    """Numbers that can't be told are null, and `reason` says why."""
    summary = row.summary
    names = (
        "clusters_over", "pools_over", "over", "never_backed", "to_flex", "teams_touched", "line", "assigned",
        "healthy", "guaranteed", "flex_standing", "unallocated",
    )  # fmt: skip
    return {
        "policy": row.policy,
        **{name: getattr(summary, name) if summary else None for name in names},
        "haircut": msgspec.to_builtins(summary.haircut) if summary else None,
        "stages": dict(summary.stages) if summary else None,
        "flex_created": row.flex_created if summary else None,
        "kept_share": row.kept.kept_share if row.kept else None,
        "past": _kept(row.kept),
        "reason": row.reason or None,
    }


def _kept(kept: Kept | None) -> dict[str, Any] | None:
    return None if kept is None else msgspec.structs.asdict(kept)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else show_time(moment)


@app.command("report")
def report_command(
    context: typer.Context,
    policy: PolicyWord = "",
    buffers: Buffers = BUFFERS_DEFAULT,
    days: Days = 90,
    cluster: ClusterNames = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where it goes.", show_default="stdout")
    ] = None,
    db: Db = "",
    output: Annotated[Page, typer.Option("-o", "--output", help="What to make of it.")] = Page.MARKDOWN,
    as_of: AsOf = "",
) -> None:
    """One page on a correction, with a picture: for who decides it, and for who loses quota."""
    others = parse_policies(buffers)
    check_days(days)
    if output is Page.PNG and out is None:
        refuse_terminal(output, next_step="--out report.png")
    with progress("replaying the past"):
        keeper = open_database(context, db)
        state = state_as_of(keeper, as_of)
        chosen, policies = _among(policy_meant(state, policy), others)
        pools = pools_of(state, cluster or [], [])
        found = compare(state, policies, now=moment_of(state, as_of), days=days, pools=pools)
        body = _page(found, policies, chosen, output)
    if out is None and output is not Page.PNG:
        show_text(body.decode())
        return
    put(body, out, next_step=f"--out report.{output}")


def _among(meant: Policy, others: Sequence[Policy]) -> tuple[Policy, list[Policy]]:
    """The policy that the report is about, and all policies; it stands among the others if it is one of them."""
    same = next((each for each in others if each.rules == meant.rules and not (meant.pins or meant.blocks)), None)
    return (same, list(others)) if same is not None else (meant, [*others, meant])


def _page(found: Comparison, policies: Sequence[Policy], chosen: Policy, output: Page) -> bytes:
    from plimsoll.charts import render
    from plimsoll.quota.report.page import html_page, markdown_page
    from plimsoll.quota.report.picture import picture
    from plimsoll.quota.report.story import tell

    if not any(row.pools for row in found.policies):
        raise Refused(
            "nothing_to_report",
            "there are 0 pools to report on",
            next_step="plimsoll demo, or plimsoll fleet import DIR",
        )
    story = tell(found, policies, chosen)
    if output is Page.MARKDOWN:
        return markdown_page(story).encode()
    if output is Page.PNG:
        return render(picture(story), "png")
    return html_page(story, render(picture(story, is_titled=False), "svg").decode()).encode()
