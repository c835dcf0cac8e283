"""`plimsoll campaign combinations|blocked|behind`: what plans mix, what no-fly zones hold back, who lags."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.answers import Answer, Output, Table
from plimsoll.campaigns.file import read_campaign
from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.plan_file import read_plan
from plimsoll.campaigns.units import make_units
from plimsoll.campaigns.versions.behind import Cause, Lag, Reason, lags
from plimsoll.campaigns.versions.blocked import HeldBack, ZoneState, held_back
from plimsoll.campaigns.versions.canaries import Cover
from plimsoll.campaigns.versions.combinations import Listed, Listing, list_combinations
from plimsoll.campaigns.versions.courses import Course, course_of_plan, courses_of
from plimsoll.campaigns.versions.fold import Versions
from plimsoll.campaigns.versions.model import Trial, Verdict, combination_text
from plimsoll.commands.campaign.app import app
from plimsoll.commands.options import AsOf, Db, Filters, Format, Watch, answer_keeper
from plimsoll.documents import read_document
from plimsoll.errors import Refused, UsageError
from plimsoll.filter import parse_filter
from plimsoll.fleet.fold import Fleet
from plimsoll.fleet.view import find_nodes
from plimsoll.state.keeper import Keeper
from plimsoll.state.state import State
from plimsoll.times import parse_time
from plimsoll.words import counted

LINES_SHOWN = 50
CLUSTERS_NAMED = 3
CANARIES_NAMED = 10


def _now(keeper: Keeper, state: State, as_of: str) -> datetime:
    return parse_time(state.recorded_at) if as_of and state.recorded_at else keeper.ledger.clock()


def _named(names: Sequence[str], most: int = CLUSTERS_NAMED) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@app.command("combinations")
def combinations_command(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Also this campaign, which is not planned here yet.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="PLAN.json", help="And its plan: campaign plan FILE -o json.")
    ] = None,
    among: Annotated[
        str, typer.Option("--among", metavar="COMPONENT,…", help="Told apart by these only.", show_default=False)
    ] = "",
    untested: Annotated[bool, typer.Option("--untested", help="Only what was never tested, or failed.")] = False,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """Which combinations of versions exist, and which will while plans run; was each tested together?

    Then the clusters to do first, so that every untested combination that a plan makes is seen there.
    """
    if (file is None) is not (plan is None):
        message = "--file and --plan go together: a campaign file, and the plan made of it"
        raise UsageError("bad_usage", message, next_step="plimsoll campaign plan FILE -o json > PLAN.json")
    relevant = [each.strip() for each in among.split(",") if each.strip()] or None

    def answer(keeper: Keeper, state: State) -> Answer:
        fleet, versions = state.of(Fleet), state.of(Versions)
        courses = courses_of(state.of(Campaigns).runs.values(), fleet)
        if file is not None and plan is not None:
            mine = _read(file, plan, fleet, _now(keeper, state, as_of))
            courses = [*(each for each in courses if each.campaign.name != mine.campaign.name), mine]
        known = {*versions.releases, *(component for course in courses for component in course.versions)}
        for component in relevant or ():
            if component not in known:
                message = f"no node has a component {component[:100]!r}, and no campaign changes it"
                raise Refused("unknown_component", message, next_step="plimsoll campaign versions show")
        listing = list_combinations(fleet, versions, courses, relevant=relevant)
        return _combinations_answer(state, listing, courses, is_short=untested)

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _read(file: Path, plan: Path, fleet: Fleet, since: datetime) -> Course:
    """A plan that is only in files."""
    document = read_document(_text(file), source=file.name)
    campaign = read_campaign(document)
    made = read_plan(_text(plan), plan.name)
    roll = make_units(campaign, fleet, document)
    sizes = {unit.name: [len(batch) for batch in unit.batches] for unit in roll.units}
    for batch in made.batches:
        here = sizes.get(batch.unit, [])
        if not 1 <= batch.number <= len(here) or here[batch.number - 1] != batch.nodes:
            raise Refused(
                "plan_does_not_fit",
                f"{plan.name}: batch {batch.id} has {counted(batch.nodes, 'node')}, which the fleet does not make of"
                f" {file.name}",
                next_step=f"plimsoll campaign plan {file.name} -o json > {plan.name}",
                batch=batch.id,
            )
    return course_of_plan(campaign, made, roll, since=since)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        message = f"{str(path)[:200]!r}: {why}"
        raise UsageError("unreadable", message, next_step="give a file that can be read") from None


def _combinations_answer(state: State, listing: Listing, courses: Sequence[Course], *, is_short: bool) -> Answer:
    listed = [each for each in listing.combinations if not is_short or each.verdict is not Verdict.PASSED]
    components = sorted({component for each in listed for component, _ in each.combination})
    columns = (
        "tested", *components, "now", "most", "after", "since", "until", "clusters", "made_by", "kept_by_no_fly",
    )  # fmt: skip
    rows = [_combination_row(each, components) for each in listed]
    counts = {verdict: [each for each in listing.combinations if each.verdict is verdict] for verdict in Verdict}
    made = [each for each in listing.combinations if each.is_made]
    heading = (
        f"{counted(len(listing.combinations), 'combination')}, {len(made)} of them made by plans:"
        f" {len(counts[Verdict.PASSED])} passed, {len(counts[Verdict.FAILED])} failed,"
        f" {len(counts[Verdict.UNTESTED])} never tested together"
    )
    running = [course.campaign.name for course in courses if not course.is_over]
    document = {
        "as_of": state.recorded_at or None,
        "revision": state.revision,
        "campaigns": running,
        "relevant": listing.relevant,
        "combinations": [_combination_json(each) for each in listed],
        "canaries": _canaries_json(listing.canaries),
    }
    notes = _combination_notes(listing, running, counts[Verdict.UNKNOWN])
    return Answer(document, [Table(columns, rows)], heading, notes)


def _combination_row(each: Listed, components: Sequence[str]) -> tuple[object, ...]:
    here = dict(each.combination)
    return (
        str(each.verdict),
        *(here.get(component) for component in components),
        each.nodes_now,
        each.nodes_most,
        each.nodes_after,
        _minute(each.since),
        _minute(each.until),
        _named([place.cluster for place in each.clusters]),
        ", ".join(each.made_by),
        ", ".join(each.held_by),
    )


def _minute(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(second=0, microsecond=0)


def _combination_notes(listing: Listing, running: Sequence[str], unknown: Sequence[Listed]) -> list[str]:
    notes = []
    if unknown:
        nodes = sum(each.nodes_now for each in unknown)
        notes.append(f"of {counted(nodes, 'node')} nobody has said what is on them: campaign versions import FILE.csv")
    if listing.relevant is not None:
        notes.append(f"told apart by {', '.join(listing.relevant)}; --among, or campaign versions relevant, changes it")
    if not running:
        notes.append("no campaign is planned: these are the combinations of now; next: plimsoll campaign plan FILE")
    chosen = listing.canaries.clusters
    if chosen:
        names = _named([f"{each.cluster} ({counted(each.nodes, 'node')})" for each in chosen], CANARIES_NAMED)
        least = "" if listing.canaries.is_least else ", if not the fewest"
        covered = sum(len(each.covers) for each in chosen)
        notes.append(
            f"canaries that show all {covered} untested ones that plans make{least}: {names}\n"
            f"  in the file: canary: {{clusters: [{', '.join(each.cluster for each in chosen)}], soak_hours: 24}}"
        )
    never = [each for each in listing.combinations if each.verdict is Verdict.UNTESTED]
    first = next((each for each in never if each.is_made), never[0] if never else None)
    if first is not None:
        notes.append(f"next: plimsoll campaign tested {combination_text(first.combination)} --result passed")
    return notes


def _combination_json(each: Listed) -> dict[str, Any]:
    return {
        "versions": dict(each.combination),
        "verdict": str(each.verdict),
        "tested": _trial_json(each.tested),
        "nodes_now": each.nodes_now,
        "nodes_most": each.nodes_most,
        "nodes_after": each.nodes_after,
        "since": each.since,
        "until": each.until,
        "is_made": each.is_made,
        "made_by": each.made_by,
        "held_by": each.held_by,
        "clusters": each.clusters,
    }


def _trial_json(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "versions": dict(trial.combination),
        "result": str(trial.result),
        "at": trial.at,
        "by": trial.by,
        "where": trial.where,
        "note": trial.note,
    }


def _canaries_json(cover: Cover) -> dict[str, Any]:
    clusters = [
        {"cluster": each.cluster, "nodes": each.nodes, "covers": [dict(found) for found in each.covers]}
        for each in cover.clusters
    ]
    return {"clusters": clusters, "is_least": cover.is_least}


@app.command("blocked")
def blocked_command(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Also zones that are over.")] = False,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """What each no-fly zone is holding back: which changes, on how many nodes, since when, until when."""

    def answer(keeper: Keeper, state: State) -> Answer:
        fleet = state.of(Fleet)
        courses = courses_of(state.of(Campaigns).runs.values(), fleet)
        found = held_back(fleet, state.of(Versions), courses, now=_now(keeper, state, as_of))
        return _blocked_answer(state, [each for each in found if every or each.state is not ZoneState.OVER])

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _blocked_answer(state: State, found: Sequence[HeldBack]) -> Answer:
    columns = (
        "campaign", "zone", "why", "holds", "nodes", "clusters", "changes", "since", "until", "days", "planned",
    )  # fmt: skip
    rows = [
        (
            each.campaign,
            each.zone,
            each.why,
            str(each.state),
            each.nodes,
            _named(each.clusters),
            " ".join(each.changes),
            each.since,
            each.to_day,
            each.days,
            each.planned_first,
        )
        for each in found
    ]
    now = [each for each in found if each.state is ZoneState.NOW]
    nodes = sum(each.nodes for each in now)
    heading = f"{counted(len(now), 'no-fly zone')} {'holds' if len(now) == 1 else 'hold'} back {counted(nodes, 'node')}"
    notes = (
        ["next: plimsoll campaign behind, plimsoll campaign combinations"] if found else ["no zone bites a campaign"]
    )
    document = {"as_of": state.recorded_at or None, "revision": state.revision, "blocked": found}
    return Answer(document, [Table(columns, rows)], f"{heading} now", notes)


@app.command("behind")
def behind_command(
    context: typer.Context,
    filters: Filters = None,
    every: Annotated[bool, typer.Option("--all", help="Also clusters that are where they should be.")] = False,
    db: Db = "",
    output: Format = Output.TABLE,
    as_of: AsOf = "",
    watch: Watch = False,
) -> None:
    """How far each cluster is behind the wanted versions, and why; with a filter, such nodes only.

    Wanted is what was said last: by a campaign for its nodes, or by `campaign want`.
    """

    def answer(keeper: Keeper, state: State) -> Answer:
        fleet, versions, now = state.of(Fleet), state.of(Versions), _now(keeper, state, as_of)
        names = None
        if filters:
            names = {node.id for node in find_nodes(fleet, parse_filter(filters, now=now))}
        courses = courses_of(state.of(Campaigns).runs.values(), fleet)
        found = lags(fleet, versions, courses, now=now, is_all=every, names=names)
        return _behind_answer(state, found, is_cut=output is Output.TABLE)

    answer_keeper(context, db, as_of, output, watch=watch, answer=answer)


def _behind_answer(state: State, found: Sequence[Lag], *, is_cut: bool) -> Answer:
    columns = ("cluster", "component", "wanted", "nodes", "behind", "oldest", "releases", "days", "why")
    shown = found[:LINES_SHOWN] if is_cut else found
    rows = [
        (
            lag.cluster,
            lag.component,
            lag.wanted,
            lag.nodes,
            lag.behind,
            lag.oldest or None,
            lag.releases,
            lag.days,
            "; ".join(map(_cause_text, lag.causes)),
        )
        for lag in shown
    ]
    lagging = [lag for lag in found if lag.behind]
    clusters = {lag.cluster for lag in lagging}
    behind: dict[str, int] = {}
    for lag in lagging:
        behind[lag.component] = behind.get(lag.component, 0) + lag.behind
    parts = ", ".join(f"{component} on {counted(nodes, 'node')}" for component, nodes in sorted(behind.items()))
    heading = f"{counted(len(clusters), 'cluster')} behind" + (f": {parts}" if parts else "")
    notes = []
    if len(shown) < len(found):
        notes.append(f"… {len(found) - len(shown)} more: -o json or csv lists all")
    if not found:
        notes.append("next: plimsoll campaign want COMPONENT=VERSION, or plimsoll campaign plan FILE")
    elif any(cause.reason is Reason.NO_CAMPAIGN for lag in lagging for cause in lag.causes):
        notes.append("no_campaign: nobody has planned it; next: plimsoll campaign plan FILE")
    document = {"as_of": state.recorded_at or None, "revision": state.revision, "behind": found}
    return Answer(document, [Table(columns, rows)], heading, notes)


def _cause_text(cause: Cause) -> str:
    words = {
        Reason.NO_CAMPAIGN: "no campaign",
        Reason.DID_NOT_RETURN: "did not return",
        Reason.LATE: f"late, was due {cause.on}",
        Reason.NO_FLY: f"no-fly until {cause.on}",
        Reason.PLANNED: f"planned on {cause.on}",
        Reason.UNDER_WAY: "under way",
    }
    why = f" ({cause.why})" if cause.why and cause.reason is not Reason.LATE else ""
    return f"{cause.nodes:,} {words[cause.reason]}{why}"
