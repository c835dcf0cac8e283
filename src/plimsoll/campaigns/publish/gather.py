"""What has to be known to tell a plan, out of the fleet and the quota book. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from plimsoll.campaigns.model import Campaign, LimitKind, Plan
from plimsoll.campaigns.publish.model import Cap, Holder, Published
from plimsoll.campaigns.units import Roll, ceiling
from plimsoll.errors import UsageError
from plimsoll.fleet.fold import Fleet
from plimsoll.quota.fold import QuotaBook


def gather(
    campaign: Campaign,
    plan: Plan,
    roll: Roll,
    fleet: Fleet,
    book: QuotaBook,
    *,
    generated_at: datetime,
    previous: Plan | None = None,
    names: Mapping[str, tuple[str, ...]] | None = None,
    done: frozenset[str] = frozenset(),
    called_off: frozenset[str] = frozenset(),
    url: str = "",
) -> Published:
    """A plan with all that goes with it. `url` is where the page will be, for links to it."""
    if url and not (url.startswith(("http://", "https://")) and url.isascii() and url.isprintable() and _is_bare(url)):
        raise UsageError(
            "bad_url",
            f"{url[:100]!r} is not the URL of a page",
            next_step="write https://HOST/PATH, where the folder can be read",
        )
    caps = tuple(
        Cap(limit, ceiling(limit, campaign, fleet)) for limit in campaign.limits if limit.kind is LimitKind.OUT_AT_ONCE
    )
    return Published(
        campaign=campaign,
        plan=plan,
        units=roll.units,
        generated_at=generated_at,
        previous=previous,
        names=names or {},
        holders=holders(book),
        caps=caps,
        a100e={sku: weight for sku in sorted({pool.sku for pool in fleet.pools}) if (weight := fleet.a100e(sku))},
        impactless=dict(roll.impactless),
        done=done,
        called_off=called_off,
        url=url,
    )


def _is_bare(url: str) -> bool:
    return not set(url) & set(" <>\"'|\\")


def holders(book: QuotaBook) -> tuple[Holder, ...]:
    """Who holds quota where: the larger of what is assigned and what is guaranteed."""
    keys = sorted({*book.quotas, *book.guaranteed})
    found = (Holder(*key, max(book.assigned_to(key), book.guaranteed.get(key, 0))) for key in keys)
    return tuple(holder for holder in found if holder.gpus > 0)
