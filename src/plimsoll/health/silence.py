"""Which feeds have fallen silent, and what that makes of their nodes. Pure.

Silence is a matter of time alone, so it is judged whenever somebody looks: the process that should have noticed it may
be the one that died.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from plimsoll.fleet.model import Node
from plimsoll.health.facts import Facts, HealthFact
from plimsoll.health.fold import Health


def fallen_silent(
    health: Health, heard: Mapping[str, datetime], *, silence: timedelta, now: datetime
) -> dict[str, datetime]:
    """Feeds that have said nothing for too long and are not recorded as silent yet, with when they were last heard.

    One that speaks now and then of single nodes covers none, and can't fall silent.
    """
    overdue = {
        name: heard[name]
        for name, feed in sorted(health.feeds.items())
        if name in heard and not feed.is_silent and now - heard[name] > silence
    }
    if not overdue:
        return {}
    covering = {name for feeds in health.covers.values() for name in feeds}
    return {name: at for name, at in overdue.items() if name in covering}


def facts_seen(health: Health, node: Node, fallen: Collection[str]) -> Facts:
    """The facts of a node, but for what a feed that has fallen silent can't vouch for any more: that it is healthy.

    What is known to be wrong stays known.
    """
    facts = health.facts_of(node)
    if not fallen or facts.health is not HealthFact.HEALTHY:
        return facts
    silent = [feed for feed in health.covers.get(node.id, ()) if feed in fallen]
    if not silent:
        return facts
    return Facts(
        health=HealthFact.UNKNOWN,
        owner=facts.owner,
        why=f"feed {silent[0]} is silent",
        source=silent[0],
        expected_return=facts.expected_return,
    )
