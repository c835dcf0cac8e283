"""Who is signed in: their roles and what those let them do, and their own tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll.access.decide import ACTS
from plimsoll.access.model import OF_A_TEAM, SCOPES, Kind, Permission

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

NAME_CHARS_MAX = 100


async def account(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    principal = visit.visitor.principal
    assert principal is not None, "the page asks for a permission, and so for somebody"
    may = []
    for permission in SCOPES:
        teams = sorted(team for team in visit.principal.teams if visit.may(permission, team))
        is_everywhere = visit.may(permission)
        may.append(
            {
                "permission": str(permission),
                "says": "acting with work and quota" if permission is Permission.USE else ACTS[permission],
                "is_allowed": is_everywhere or bool(teams),
                "where": "everywhere" if is_everywhere else ", ".join(teams) if permission in OF_A_TEAM else "",
            }
        )
    # A token is no person: only who signed in themselves may make tokens, and see them.
    has_tokens = visit.visitor.by == "session" and principal.kind is Kind.PERSON
    tokens = (await visit.ask("access token list", owner=principal.name))["tokens"] if has_tokens else []
    return {
        "who": principal.name,
        "kind": str(principal.kind),
        "bindings": [{"role": str(each.role), "team": each.team} for each in sorted(principal.bindings)],
        "may": may,
        "has_tokens": has_tokens,
        "tokens": tokens,
        "addresses": addresses(visit),
        "scopes": [row for row in may if row["is_allowed"]],
    }


def addresses(visit: Visit) -> list[tuple[str, str]]:
    """What a calendar program can follow, the one that somebody came for first: words and address of each."""
    asked = [(name, visit.query[name][:NAME_CHARS_MAX]) for name in ("team", "name") if visit.query.get(name)]
    own = [("team", team) for team in visit.principal.teams]
    words = {"team": "what hits {}", "name": "the campaign {}"}
    found = [
        (words[what].format(name), visit.calendar_address({what: name})) for what, name in dict.fromkeys(asked + own)
    ]
    return [*found, ("all planned work", visit.calendar_address())]
