"""Days, hours and limits as people read them. Pure."""

from __future__ import annotations

from datetime import date, datetime

from plimsoll.campaigns.model import Batch, Limit, Measure, Plan, Status
from plimsoll.campaigns.publish.model import Published

UNIT_WORDS = {Measure.NODES: "nodes", Measure.GPUS: "GPUs", Measure.A100E: "A100e"}


def day_text(day: date) -> str:
    """`Mon 5 Jan`."""
    return f"{day:%a} {day.day} {day:%b}"


def batches_text(count: int) -> str:
    """`1 batch`, `2 batches`."""
    return f"{count:,} {'batch' if count == 1 else 'batches'}"


def clock_text(moment: datetime) -> str:
    """`11:00`."""
    return f"{moment:%H:%M}"


def hour_text(moment: datetime) -> str:
    """`11h`, `11:30`: where there is little room."""
    return clock_text(moment) if moment.minute else f"{moment.hour}h"


def when_text(published: Published, batch: Batch) -> str:
    """`Tue 6 Jan 11:00–19:00`, as the clocks of the window show it."""
    start, end = published.local(batch.start), published.local(batch.end)
    return f"{day_text(start.date())} {clock_text(start)}–{clock_text(end)}"


def moment_text(published: Published, moment: datetime) -> str:
    local = published.local(moment)
    return f"{day_text(local.date())} {clock_text(local)}"


def number_text(value: float) -> str:
    """With commas, and without a fraction that is none."""
    return f"{value:,.0f}" if abs(value - round(value)) < 1e-6 else f"{value:,.1f}"


def limit_text(limit: Limit) -> str:
    """`nodes out at once (purpose: applied, area: eu), until 2026-01-18`."""
    words = f"{UNIT_WORDS[limit.unit]} out at once"
    if not limit.scope.is_everything:
        words += f" ({limit.scope})"
    if limit.from_day:
        words += f", from {limit.from_day}"
    if limit.until_day:
        words += f", until {limit.until_day}"
    if limit.weekdays:
        names = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
        words += f", {' '.join(names[number] for number in limit.weekdays)}"
    return words


def proof_text(plan: Plan) -> str:
    """How good a plan is known to be. What was proved of a replan is about the total with what its moves weigh: it may
    be the best of that, and a plan that moved more be better without."""
    if plan.score is None:
        return "there is no plan"
    if plan.gap is None and plan.status is Status.OPTIMAL:
        return "no plan can be better, with what its moves weigh: proved"
    if plan.gap is None:
        return "how much better a plan could be is not known; of a replan, not without what its moves weigh"
    if plan.gap <= 0:
        return "no plan can be better: proved"
    return f"no plan can be more than {plan.gap:.1%} better: proved"


def what_text(published: Published) -> str:
    """`nic-firmware 28.43, bmc 1.9`."""
    return ", ".join(f"{change.component} {change.version}" for change in published.campaign.changes)
