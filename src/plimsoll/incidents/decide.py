"""Which incidents open, go on and close, from the troubles that there are now. Pure, and level-triggered.

One trouble has one open incident. It opens at once, and closes when the trouble has been gone for a while; one that
comes back soon after goes on with the incident it had. So a pool that flaps has one incident and many notes. It never
opens one without trouble, and never closes a person's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from plimsoll.incidents.changes import IncidentClosed, IncidentNoted, IncidentOpened
from plimsoll.incidents.fold import Incidents
from plimsoll.incidents.model import Did, Incident, Numbers, Trouble
from plimsoll.incidents.reasons import Course
from plimsoll.ledger.model import Draft
from plimsoll.state.state import State
from plimsoll.words import counted, rough_span

CLOSE_AFTER = timedelta(minutes=5)
"""A trouble must be gone for this long."""
REOPEN_WITHIN = timedelta(minutes=30)
"""A trouble that comes back so soon after it was gone goes on with its incident."""
OPEN_MAX = 1_000
"""So many automatic incidents are open at most: with more something else is wrong, and nobody could read them."""
UNITS = {"gpus": "GPU", "nodes": "node", "a100e": "A100e"}


def decide(state: State, troubles: Iterable[Trouble], now: datetime) -> tuple[list[Did], list[Draft]]:
    """What has to be recorded of the troubles that there are now, and what that is in words."""
    tables = state.of(Incidents)
    found = {trouble.about: trouble for trouble in troubles}
    did: list[Did] = []
    drafts: list[Draft] = []
    for incident in sorted((tables.incidents[name] for name in tables.open_found), key=lambda each: each.id):
        if incident.about not in found:
            _without_trouble(incident, now, did, drafts)
    is_taken, count = set(tables.incidents), tables.opened
    room = OPEN_MAX - len(tables.open_found)
    for about, trouble in sorted(found.items()):
        known = tables.incidents.get(tables.newest.get(about, ""))
        if known is not None and _goes_on_with(known, now):
            _with_trouble(known, trouble, now, did, drafts)
        elif room > 0:
            room, count = room - 1, count + 1
            name = free_id(f"incident-{count}", is_taken)
            is_taken.add(name)
            _open(name, known, trouble, now, did, drafts)
    return did, drafts


def free_id(name: str, is_taken: Iterable[str]) -> str:
    """This id, or one like it that nobody has given to an incident."""
    taken, found, number = set(is_taken), name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


def _goes_on_with(known: Incident, now: datetime) -> bool:
    return known.closed_at is None or now - (known.gone_at or known.closed_at) <= REOPEN_WITHIN


def _open(
    name: str, before: Incident | None, trouble: Trouble, now: datetime, did: list[Did], drafts: list[Draft]
) -> None:
    since = min(trouble.since, now)
    if before is not None and before.closed_at is not None:
        since = max(since, min(before.closed_at, now))
    opened = IncidentOpened(
        name,
        trouble.title,
        clusters=trouble.clusters,
        trouble=trouble.kind,
        about=trouble.about,
        amount=trouble.amount,
        unit=trouble.unit,
        teams=trouble.teams,
        next_step=trouble.next_step,
        detail=_sentence(trouble),
    )
    drafts.append(Draft(opened, trouble.detail, since))
    did.append(Did("opened", name, f"{trouble.title}: {_sentence(trouble)}"))


def _with_trouble(known: Incident, trouble: Trouble, now: datetime, did: list[Did], drafts: list[Draft]) -> None:
    """There is trouble, and an incident about it: a note where it is not as it was."""
    text = _sentence(trouble)
    if known.closed_at is not None or not known.is_on:
        course, text = Course.BACK, f"back: {text}"
    elif trouble.amount != known.amount or not set(trouble.teams) <= set(known.teams):
        course, text = Course.CHANGED, f"{text} (was {known.amount:,})"
    else:
        return
    drafts.append(Draft(IncidentNoted(known.id, text, course, trouble.amount, trouble.teams), "", now))
    did.append(Did("noted", known.id, text))


def _without_trouble(known: Incident, now: datetime, did: list[Did], drafts: list[Draft]) -> None:
    """An open incident whose trouble is not there: a note, and after a while the end."""
    if known.is_on:
        text = f"gone; closes in {rough_span(CLOSE_AFTER)} if it stays so"
        drafts.append(Draft(IncidentNoted(known.id, text, Course.GONE), "", now))
        did.append(Did("noted", known.id, text))
    elif known.gone_at is not None and now - known.gone_at >= CLOSE_AFTER:
        numbers = known.numbers_at(now)
        drafts.append(Draft(IncidentClosed(known.id, numbers), numbers_text(numbers), now))
        did.append(Did("closed", known.id, f"{known.title}: {numbers_text(numbers)}"))


def _sentence(trouble: Trouble) -> str:
    words = f"{amount_text(trouble.amount, trouble.unit)} {trouble.kind.measure}"
    return f"{words}: {trouble.detail}" if trouble.detail else words


def amount_text(amount: int, unit: str) -> str:
    """`64 GPUs`, `3 nodes`."""
    return counted(amount, UNITS.get(unit, unit or "thing"))


def numbers_text(numbers: Numbers) -> str:
    """What an incident came to, in a line: `1 h 10 min, at most 64 GPUs, 75 GPU-hours, 3 teams hurt`."""
    words = [rough_span(timedelta(seconds=numbers.seconds))]
    if numbers.unit:
        words.append(f"at most {amount_text(numbers.most, numbers.unit)}")
        words.append(f"{numbers.unit_hours:,.1f} {UNITS.get(numbers.unit, numbers.unit)}-hours")
    if numbers.teams:
        words.append(f"{counted(len(numbers.teams), 'team')} hurt: {', '.join(numbers.teams[:5])}")
        if len(numbers.teams) > 5:
            words[-1] += f" and {len(numbers.teams) - 5} more"
    return ", ".join(words)
