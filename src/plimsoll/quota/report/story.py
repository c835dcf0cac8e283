"""The report of a correction in words and numbers, for whoever decides it and for whoever loses quota. Pure.

Every sentence follows from the numbers beside it: none says "most" where it is less than half.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plimsoll.quota.history.compare import Comparison, PolicyRow, TeamRow
from plimsoll.quota.plan import STAGES, Summary
from plimsoll.quota.policy import LineBy, Policy
from plimsoll.quota.rollout import MEANING

TEAMS_SHOWN = 10
QUIET_DAYS = 1.0
"""A fleet of any size has a transition a day."""
FINE_SHARE = 0.99
ROUNDING = 1e-6


class Tile(msgspec.Struct, frozen=True):
    """One number with what it is."""

    number: str
    what: str


class Bar(msgspec.Struct, frozen=True):
    """A policy as one bar of the picture, in GPUs; None where it can't be told."""

    label: str
    is_chosen: bool
    over: int | None
    never_backed: int
    to_flex: int
    running: int
    teams: int
    kept_share: float | None
    reason: str


class Story(msgspec.Struct, frozen=True):
    """What the report says, whatever it is printed on."""

    title: str
    headline: str
    lead: str
    stamp: str
    summary: Summary | None
    tiles: Sequence[Tile]
    bars: Sequence[Bar]
    stages: Sequence[tuple[int, int, str]]
    """Number, pools, what it takes."""
    teams: Sequence[TeamRow]
    teams_left: int
    changes: Sequence[str]
    """What changes for a team that loses quota."""
    choices: Sequence[tuple[str, str]]
    """What such a team may do: a word, and a sentence with what to type."""
    notes: Sequence[str]


def label_of(policy: Policy) -> str:
    """A policy in a word or two that needs no manual."""
    if len(policy.rules) != 1 or not policy.rules[0].scope.is_everything or policy.pins or policy.blocks:
        return policy.name
    (rule,) = policy.rules
    if rule.by is LineBy.FIXED:
        return f"{float(rule.buffer) * 100:g} % buffer" + (" of healthy" if rule.is_of_healthy else "")
    return "tiered" if rule.by is LineBy.TIERED else f"forecast {float(rule.target):g}"


def labels_of(policies: Sequence[Policy]) -> list[str]:
    """The same for several, each another: bars of one label would be drawn as one."""
    labels: list[str] = []
    for policy in policies:
        label, number = label_of(policy), 2
        while label in labels:
            label, number = f"{label_of(policy)} ({number})", number + 1
        labels.append(label)
    return labels


def tell(found: Comparison, policies: Sequence[Policy], chosen: Policy) -> Story:
    """The story of the chosen policy among the others; `found` has one row for each of `policies`."""
    place = policies.index(chosen)
    row = found.policies[place]
    bars = [
        _bar(each, label, is_chosen=policy is chosen)
        for each, label, policy in zip(found.policies, labels_of(policies), policies, strict=True)
    ]
    touched = sorted((team for team in row.teams if team.haircut.gpus), key=lambda t: (-t.haircut.gpus, t.team))
    summary = row.summary
    return Story(
        title=f"Quota that holds: what the correction by {label_of(chosen)} takes",
        headline=_headline(row),
        lead=_lead(row),
        stamp=_stamp(found, chosen),
        summary=summary,
        tiles=_tiles(found, row),
        bars=bars,
        stages=[(stage, summary.stages[str(stage)], MEANING[stage]) for stage in STAGES] if summary else [],
        teams=touched[:TEAMS_SHOWN],
        teams_left=max(0, len(touched) - TEAMS_SHOWN),
        changes=_changes(found, row),
        choices=CHOICES,
        notes=_notes(found, row),
    )


def _bar(row: PolicyRow, label: str, *, is_chosen: bool) -> Bar:
    kept = row.kept.kept_share if row.kept else None
    if (summary := row.summary) is None:
        return Bar(label, is_chosen, None, 0, 0, 0, 0, kept, row.reason)
    return Bar(
        label,
        is_chosen,
        summary.over,
        summary.never_backed,
        summary.to_flex,
        summary.haircut.running,
        summary.teams_touched,
        kept,
        row.reason,
    )


def _headline(row: PolicyRow) -> str:
    summary = row.summary
    if summary is None:
        return f"No plan can be made: {row.reason}"
    if not summary.over:
        return f"Every promise fits: {summary.assigned:,} GPUs are assigned, and nobody loses anything"
    over, gone = summary.over, summary.never_backed
    if gone == over:
        return f"All {over:,} GPUs that the correction takes were never there"
    if 2 * gone > over:
        return f"Most of the cut was never there: {gone:,} of {over:,} GPUs; the rest goes to flex, not away"
    if gone:
        return (
            f"{gone:,} of the {over:,} GPUs over the line were never there; the other {summary.to_flex:,} become flex"
        )
    return f"All {over:,} GPUs over the line stay in use, as flex"


def _lead(row: PolicyRow) -> str:
    summary = row.summary
    if summary is None or not summary.over:
        return "Quotas and working machines agree. What nobody holds is flex, for everyone."
    cut = summary.haircut
    unused = cut.unscheduled / cut.gpus if cut.gpus else 0.0
    short = sum(pool.never_backed > 0 for pool in row.pools)
    sentences = [f"{summary.assigned:,} GPUs are promised on paper and {summary.healthy:,} work."]
    if short:
        sentences.append(
            f"In {short} of {summary.pools} pools more is promised than works there, so somebody's job does not start."
        )
    sentences.append(f"{_percent(unused, 0)} of the cut is quota that nothing runs on.")
    if cut.running:
        sentences.append(
            f"{cut.running:,} GPUs in use would count as flex instead of guaranteed: the roll-out takes them last,"
            " after notice and with their owners' agreement."
        )
    elif cut.idle:
        sentences.append("No GPU in use is taken; work that holds idle GPUs may count as flex.")
    else:
        sentences.append("No running work is touched.")
    return " ".join(sentences)


def _tiles(found: Comparison, row: PolicyRow) -> list[Tile]:
    summary = row.summary
    if summary is None:
        return []
    tiles = [
        Tile(f"{summary.never_backed:,}", "GPUs promised that were never there"),
        Tile(f"{summary.to_flex:,}", "GPUs that work, and move from promised to flex"),
        Tile(f"{summary.haircut.running:,}", f"GPUs of running work, of {summary.allocated:,} that run"),
    ]
    if row.kept is not None and row.kept.kept_share is not None:
        before = found.today.kept_share if found.today is not None else None
        was = f", {_share(before)} as it is assigned today" if before is not None else ""
        tiles.append(Tile(_share(row.kept.kept_share), f"of team-hours with the promise kept{was}"))
    return tiles


def _share(share: float) -> str:
    """Rounded down, as 99.996 % kept is not all kept; near all of it the second digit is what tells policies apart."""
    digits = 2 if share >= FINE_SHARE else 1
    scale = 10 ** (digits + 2)
    return f"{int(share * scale + ROUNDING) / scale * 100:.{digits}f} %"


def show_kept(share: float | None) -> str:
    """The share of team-hours, as reports print it."""
    return "-" if share is None else _share(share)


def _stamp(found: Comparison, chosen: Policy) -> str:
    return f"policy {chosen.name}, as of {found.as_of:%Y-%m-%d %H:%M} UTC"


def _changes(found: Comparison, row: PolicyRow) -> list[str]:
    summary = row.summary
    if summary is None or not summary.over:
        return []
    first = "Your number in the book becomes one that you can rely on"
    kept, today = (each.kept_share if each is not None else None for each in (row.kept, found.today))
    if kept is not None and today is not None and kept > today:
        first += f": replayed on the past, all of it could be used in {_share(kept)} of hours; of what is assigned now,"
        first += f" in {_share(today)}"
    lines = [
        f"{first}.",
        "First goes quota that you run nothing on, then idle GPUs. Everybody in a pool loses in proportion, in whole"
        " nodes, and a training run is not broken up while another choice exists.",
        "None of it is given to another team. What of it works becomes flex, and you can run on it today: there will be"
        f" {summary.flex_standing:,} GPUs of flex in all. It is called back when a guarantee needs it.",
    ]
    if summary.haircut.running or summary.haircut.idle:
        lines.append(
            "Running work goes on. Work that holds idle GPUs may count as flex from its day on"
            + ("; before GPUs in use do, you get notice, and you are asked." if summary.haircut.running else ".")
        )
    return lines


CHOICES = (
    ("See it", "plimsoll quota notices TEAM shows what changes for you, cluster by cluster, and from when on."),
    ("Agree", "plimsoll quota agree TEAM to all of it, plimsoll quota agree TEAM --cluster NAME to a part."),
    ("Object", "plimsoll quota object TEAM --reason WHY: GPUs in use then stay as they are until an RPM has decided."),
    ("Use flex", "submit above your guarantee; such work runs as flex, is counted as such, and may be called back."),
    ("Ask", "plimsoll quota request for more, or for a transfer from a team that does not use its quota."),
)


def _notes(found: Comparison, chosen: PolicyRow) -> list[str]:
    notes = []
    if found.judged_from is not None and found.judged_until is not None:
        notes.append(
            f"Promise kept: replayed on the recorded health from {found.judged_from:%Y-%m-%d} to"
            f" {found.judged_until:%Y-%m-%d} ({found.judged_days:.0f} days), one decision a week with what was known"
            " then, today's book. An hour is broken for every team of a pool if fewer GPUs work than are guaranteed."
        )
    if (kept := chosen.kept) is not None and kept.broken_hours:
        notes.append(
            f"Broken: {kept.broken_hours:,} of {kept.pool_hours:,} pool-hours, {kept.planned_hours:,} of them by"
            " planned work alone."
        )
    if quiet := quiet_note(found):
        notes.append(f"{quiet}.")
    notes += [f"{', '.join(names)}: {reason}." for reason, names in found.reasons.items()]
    return notes


def quiet_note(found: Comparison) -> str:
    """A warning where the history stopped some time ago."""
    if found.quiet_days < QUIET_DAYS:
        return ""
    return (
        f"nothing was told of any node in the last {found.quiet_days:.1f} days, which count as if nothing had happened"
    )


def _percent(share: float, digits: int = 1) -> str:
    return f"{share:.{digits}%}".replace("%", " %")
