"""The three facts on a node, the moves of its service that are legal, and the holds that keep it out of service.

`health` says what the signals say, `service` whether it may carry work, `owner` whose move it is. They are separate:
a node can be healthy and in maintenance, or unhealthy and still in service because a breaker held automation back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

import msgspec

from plimsoll.errors import Refused
from plimsoll.fleet.model import Node, Service


class HealthFact(enum.StrEnum):
    """What the signals say of a node. Silence is `unknown`, never `healthy`."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


class Owner(enum.StrEnum):
    """Whose move it is."""

    OURS = "ours"
    PROVIDER = "provider"


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a node beside its service. `source` is the feed or person that brought it about."""

    health: HealthFact = HealthFact.HEALTHY
    owner: Owner = Owner.OURS
    why: str = ""
    source: str = ""
    expected_return: datetime | None = None


_PRESUMED_HEALTH = {
    Service.IN_SERVICE: HealthFact.HEALTHY,
    Service.QUARANTINED: HealthFact.UNHEALTHY,
    Service.REPAIR: HealthFact.UNHEALTHY,
}


def presumed_facts(node: Node) -> Facts:
    """What an import tells of a node whose health nobody has observed: it brings the service and a reason only."""
    return _presumed(node.service, node.reason)


@lru_cache(4096)
def _presumed(service: Service, reason: str) -> Facts:
    """Nodes by the thousand are in service for no reason at all."""
    is_theirs = service is Service.REPAIR or reason.startswith("provider:")
    return Facts(
        health=_PRESUMED_HEALTH.get(service, HealthFact.UNKNOWN),
        owner=Owner.PROVIDER if is_theirs else Owner.OURS,
        why=reason,
        source="import",
    )


LEGAL_MOVES: dict[Service, tuple[Service, ...]] = {
    Service.IN_SERVICE: (
        Service.DRAINING,
        Service.QUARANTINED,
        Service.MAINTENANCE,
        Service.REPAIR,
        Service.RETIRED,
    ),
    Service.DRAINING: (
        Service.QUARANTINED,
        Service.MAINTENANCE,
        Service.REPAIR,
        Service.VALIDATING,
        Service.RETIRED,
    ),
    Service.QUARANTINED: (Service.MAINTENANCE, Service.REPAIR, Service.VALIDATING, Service.RETIRED),
    Service.MAINTENANCE: (Service.QUARANTINED, Service.REPAIR, Service.VALIDATING, Service.RETIRED),
    Service.REPAIR: (Service.QUARANTINED, Service.MAINTENANCE, Service.VALIDATING, Service.RETIRED),
    Service.VALIDATING: (
        Service.IN_SERVICE,
        Service.QUARANTINED,
        Service.MAINTENANCE,
        Service.REPAIR,
        Service.RETIRED,
    ),
    Service.JOINING: (
        Service.VALIDATING,
        Service.QUARANTINED,
        Service.MAINTENANCE,
        Service.REPAIR,
        Service.RETIRED,
    ),
    Service.RETIRED: (Service.JOINING,),
}
"""From each service, where a node may go. Into service there is one way only: `validating`. What imports and
history tell is observed, not moved, and is not judged by this table."""


def check_move(node: str, was: Service, service: Service) -> None:
    """Refuse an illegal move and say which ones are legal."""
    legal = LEGAL_MOVES[was]
    if service in legal:
        return
    names = ", ".join(legal)
    step = _way_in(was) if service is Service.IN_SERVICE else legal[0]
    raise Refused(
        "illegal_move",
        f"{node} is {was} and can't go to {service} from there; legal moves: {names}",
        next_step=f"plimsoll health set {node} {step} --reason WHY",
        node=node,
        was=str(was),
        service=str(service),
        legal=[str(each) for each in legal],
    )


def _way_in(was: Service) -> Service:
    """The next step on the way into service."""
    return Service.VALIDATING if Service.VALIDATING in LEGAL_MOVES[was] else LEGAL_MOVES[was][0]


HELD_SERVICES = (Service.DRAINING, Service.QUARANTINED, Service.MAINTENANCE, Service.REPAIR)
"""What a hold may keep a node in, the weakest first: of several holds the strongest is the node's service."""

AUTOMATION = "plimsoll"
"""The owner of the holds that our own judgement places."""

WITHDRAWN = "withdrawn"
"""Why a hold ended that would never have been placed, had we known then what we know now."""


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody keeps a node out of service. Holds stack: the node returns when the last one ends.

    The same id on many nodes is one act (`scope` says on what). `signal` is what an automated hold answers. Where
    `drains_until` is set, the node drains until then, or until its scheduler says that it is empty, before it goes to
    `service`. `is_exclusive`: somebody works on the node and nobody else may at the same time.
    """

    id: str
    owner: str
    service: Service
    reason: str
    placed_at: datetime
    expires_at: datetime | None = None
    is_exclusive: bool = False
    scope: str = ""
    signal: str = ""
    drains_until: datetime | None = None
    expected_return: datetime | None = None
    whose_move: Owner = Owner.OURS

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def service_at(self, now: datetime) -> Service:
        """What this hold alone would have the node in."""
        return Service.DRAINING if self.drains_until is not None and self.drains_until > now else self.service


def held_service(holds: Iterable[Hold], was: Service, now: datetime) -> Service:
    """What a node with these holds should be in; there must be one. Only a node in service can drain."""
    strongest = max(HELD_SERVICES.index(hold.service_at(now)) for hold in holds)
    service = HELD_SERVICES[strongest]
    if service is Service.DRAINING and was not in (Service.IN_SERVICE, Service.DRAINING):
        return Service.QUARANTINED
    return service
