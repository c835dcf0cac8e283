"""The audit page: who did what, when and why; each event with all that it holds; and the proof that nothing is missing.

Decides only how events are looked for and shown: newest first, page by page by revision, so that a link to a page of
the log shows the same for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from plimsoll.errors import UsageError

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

SHOWN = 50
FIELDS = ("subject", "actor", "kind", "from", "until")
PAYLOAD_CHARS_MAX = 20_000
KINDS = (
    "quota.*", "node.*", "hold.*", "breaker.*", "feed.*", "workload.*", "campaign.*", "batch.*", "cluster.*",
    "incident.*", "access.*", "fleet.*",
)  # fmt: skip
PAGES = {
    "node": "/nodes/{}",
    "cluster": "/clusters/{}",
    "pool": "/clusters/{}",
    "team": "/teams/{}",
    "workload": "/workloads/{}",
    "campaign": "/campaigns/{}",
    "incident": "/incidents/{}",
    "request": "/requests/{}",
}
"""Where what an event is about can be seen; of a pool its cluster."""


async def audit(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    wanted = {name: visit.query.get(name, "").strip() for name in FIELDS}
    before = visit.query.get("before", "")
    before = before if before.isascii() and before.isdigit() and 0 < len(before) <= 18 else ""
    asked: dict[str, object] = {name: wanted[name] for name in ("subject", "actor", "kind", "until")}
    asked |= {"since": wanted["from"], "limit": SHOWN + 1}
    if before:
        asked["as_of"] = str(max(0, int(before) - 1))
    refusal, events = None, []
    try:
        events = (await visit.ask("audit log", **asked))["events"]
    except UsageError as error:  # a time that is none: said beside the form, which keeps what was typed
        refusal = {"message": error.message, "next_step": error.next_step}
    newest = list(reversed(events))
    shown = newest[:SHOWN]
    return {
        "head": await visit.ask("audit head"),
        "events": [event_row(event) for event in shown],
        "wanted": wanted,
        "is_filtered": any(wanted.values()),
        "before": before,
        "older": shown[-1]["revision"] if len(newest) > SHOWN else None,
        "refusal": refusal,
        "kinds": KINDS,
        "csv_values": {key: value for key, value in asked.items() if key != "limit"} | {"limit": 1000},
    }


def event_row(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event, with where its subject can be seen and its payload as text."""
    payload = event["payload"]
    text = payload if isinstance(payload, str) else json.dumps(payload, indent=2, ensure_ascii=False)
    cut = len(text) > PAYLOAD_CHARS_MAX
    return {
        **event,
        "href": subject_href(event["subject"]),
        "text": text[:PAYLOAD_CHARS_MAX],
        "is_cut": cut,
        "is_late": event["effective_at"] != event["recorded_at"],
    }


def subject_href(subject: str) -> str:
    """`node/tiger-0001` is a page."""
    kind, _, name = subject.partition("/")
    if kind == "pool":
        name = name.partition("/")[0]
    return PAGES[kind].format(quote(name, safe="")) if kind in PAGES and name else ""
