"""`plimsoll campaign feed`: what calendars were told, as one feed: of a campaign, a team, a cluster, or all."""

from __future__ import annotations

from typing import Annotated

import typer

from plimsoll.campaigns.fold import Campaigns
from plimsoll.campaigns.publish.calendar import CAMPAIGN_FILE, PRODUCT, feeds
from plimsoll.campaigns.publish.ics import document, text_line
from plimsoll.campaigns.publish.model import feed_file
from plimsoll.campaigns.run.desk import find_run
from plimsoll.commands.campaign.app import app
from plimsoll.commands.campaign.publish import published_plan, read_feed
from plimsoll.commands.options import AsOf, Db, open_database, state_as_of
from plimsoll.commands.output import show_text
from plimsoll.errors import UsageError
from plimsoll.quota.names import check_cluster, check_team
from plimsoll.state.state import State
from plimsoll.times import parse_time, utc_now

_BEGIN, _END = b"BEGIN:VEVENT\r\n", b"END:VEVENT\r\n"
_ZONE_BEGIN, _ZONE_END = b"BEGIN:VTIMEZONE\r\n", b"END:VTIMEZONE\r\n"


@app.command("feed")
def feed_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="Only this one.", show_default="all")] = "",
    team: Annotated[
        str, typer.Option("--team", metavar="TEAM", help="Only what hits this team.", show_default=False)
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="CLUSTER", help="Only this cluster.", show_default=False)
    ] = "",
    without_teams: Annotated[
        bool, typer.Option("--without-teams", help="Name no team: for somebody outside, such as the provider.")
    ] = False,
    db: Db = "",
    as_of: AsOf = "",
) -> None:
    """Print planned work that was published, as an iCalendar feed. A server gives it at /api/v1/calendar."""
    if team and cluster:
        raise UsageError("bad_usage", "--team and --cluster exclude each other", next_step="leave out one of them")
    state = state_as_of(open_database(context, db), as_of)
    # Whoever follows a feed of a name that is none would never see anything, and never know.
    if team:
        check_team(state, team)
    if cluster:
        check_cluster(state, cluster)
    show_text(feed_text(state, name, team, cluster, names_teams=not without_teams))


def feed_text(state: State, name: str, team: str, cluster: str, *, names_teams: bool = True) -> str:
    """One feed of all that is asked for; a feed without anything planned is a valid one."""
    names = [name] if name else sorted(state.of(Campaigns).runs)
    file = feed_file("team", team) if team else feed_file("cluster", cluster) if cluster else CAMPAIGN_FILE
    now = parse_time(state.recorded_at) if state.recorded_at else utc_now()
    zones: dict[bytes, None] = {}
    events: list[bytes] = []
    for each in names:
        run, told = find_run(state, each), read_feed(state, each)
        if not told.events:
            continue
        body = feeds(published_plan(state, run, None, now=now), told, names_teams=names_teams).get(file, b"")
        zones |= dict.fromkeys(_pieces(body, _ZONE_BEGIN, _ZONE_END))
        events += _pieces(body, _BEGIN, _END)
    title = f"Planned work: {team or cluster or name or 'the fleet'}"
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:{PRODUCT}", "CALSCALE:GREGORIAN", "METHOD:PUBLISH"]
    lines += [text_line("X-WR-CALNAME", title), text_line("NAME", title)]
    return b"".join([document(lines), *zones, *events, document(["END:VCALENDAR"])]).decode()


def _pieces(body: bytes, begin: bytes, end: bytes) -> list[bytes]:
    return [begin + piece.partition(end)[0] + end for piece in body.split(begin)[1:]]
