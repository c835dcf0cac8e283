"""Which path is which command, and the permission that it needs: the whole API in one table.

`plimsoll quota show` is `GET /api/v1/quota`. A command that is in no line here, and not named under `LOCAL` with its
reason, fails a test: what the terminal can do, the API can.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from plimsoll.access.model import Permission

API = "/api/v1"
SEE, USE, OPERATE = Permission.SEE, Permission.USE, Permission.OPERATE
DECIDE, ADMINISTER, WAVES, TICK = (
    Permission.DECIDE_QUOTA,
    Permission.ADMINISTER,
    Permission.SEE_WAVES,
    Permission.TICK_WAVES,
)


class Sent(enum.Enum):
    """How something that is a file in a terminal is sent in a request. For the text of a file may stand an object that
    has it under the file's name: then it is called so in what is said of it."""

    TEXT = "text"
    """The file's text."""
    TEXTS = "texts"
    """Several files' texts."""
    FOLDER = "folder"
    """An object: a text for each file's name; of a workbook its bytes, in base64."""
    BYTES = "bytes"
    """The file's bytes, in base64."""
    WORD = "word"
    """A word; where it names a file in a terminal, the file's text."""
    MADE = "made"
    """Made by the command: the answer has it under `files`, a text for each file's name."""


class Route(msgspec.Struct, frozen=True):
    """One line of the API."""

    method: str
    path: str
    words: str
    permission: Permission
    team: str = ""
    """Which parameter says whose team it is about: `team`, or `workload:name`, `request:id`, … to look it up; `files`
    where only the command can tell, and asks itself."""
    items: str = ""
    """The list of the document that is given page by page; any word where the document is that list."""
    is_log: bool = False
    """The list is the newest of a log: the next page has what came right before it."""
    sent: Mapping[str, Sent] = {}
    same_as: Mapping[str, str] = {}
    """Names in the path that are called otherwise by the command."""
    is_one: bool = False
    """The path names one thing, where the command itself could answer for many."""
    hidden: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    """What is hidden elsewhere, and here is no loop and no folder."""
    least: Mapping[str, float] = {}
    most: Mapping[str, float] = {}
    is_slow: bool = False
    """Takes a good part of a second: done beside the others, on a state of its own."""
    is_long: bool = False
    """Takes many seconds: done beside those, too."""
    also: Permission | None = None
    """What else lets one in."""
    content: str = ""
    """What kind of text it is, where it is one."""
    cut: str = ""
    """A flag that is set for whoever sees planned work and nothing else: it leaves out what is not theirs."""
    is_personal: bool = False
    """Says something else to everybody: one's answer is never given to another."""
    is_secret: bool = False
    """The answer holds a secret: it is told once, and kept nowhere."""
    own: str = ""
    """Which parameter names a person, who may do it for themselves when signed in: `owner`, or `token:token`."""

    @property
    def name(self) -> str:
        """How OpenAPI and logs call it."""
        return f"{self.words.replace(' ', '_').replace('-', '_')}{'_' + _tail(self) if self.is_one else ''}"

    @property
    def asks_itself(self) -> bool:
        return self.team == "files"

    @property
    def has_files(self) -> bool:
        """It is sent files, or makes some."""
        return bool(set(self.sent.values()) - {Sent.WORD})

    @property
    def is_read(self) -> bool:
        return self.method == "GET"


def _tail(route: Route) -> str:
    return route.path.rstrip("}").rpartition("/")[2].replace("{", "").replace("-", "_")


HIDDEN = frozenset({"every", "errands", "file", "out", "push", "wait", "prometheus"})
"""What only makes sense at the machine itself: loops, its folders, addresses that it would ask."""


def get(path: str, words: str, permission: Permission = SEE, **more: object) -> Route:
    return msgspec.convert({"method": "GET", "path": path, "words": words, "permission": permission, **more}, Route)


def post(path: str, words: str, permission: Permission, **more: object) -> Route:
    return msgspec.convert({"method": "POST", "path": path, "words": words, "permission": permission, **more}, Route)


CALENDAR_TYPE = "text/calendar; charset=utf-8"
_PLANNING = {"seconds": 60.0}
_BY_POLICY = {"policy": Sent.WORD}

FLEET = (
    get("/fleet", "fleet show"),
    get("/fleet/map", "fleet map"),
    get("/fleet/clusters", "fleet clusters", items="clusters"),
    get("/nodes", "fleet nodes", items="nodes"),
    post("/fleet/import", "fleet import", ADMINISTER, sent={"path": Sent.FOLDER}, is_long=True),
    get("/fleet/export", "fleet export", sent={"path": Sent.MADE}, is_long=True),
)

HEALTH = (
    get("/health", "health show"),
    get("/nodes/{node}", "health show", same_as={"node": "filter"}, is_one=True),
    get("/health/levels", "health slo", items="groups", is_slow=True),
    get("/health/outages", "health outages", items="outages", is_slow=True),
    get("/health/forecast", "health forecast", items="pools", is_slow=True),
    post("/health/backtest", "health backtest", SEE, sent={"path": Sent.FOLDER}, is_long=True),
    post("/health/signal", "health signal", Permission.SIGNAL, also=OPERATE),
    post("/health/sweep", "health sweep", OPERATE),
    post("/health/set", "health set", OPERATE),
    get("/holds", "health holds", items="holds"),
    post("/holds", "health hold", OPERATE),
    post("/holds/{hold_id}/release", "health release", OPERATE),
    post("/health/tick", "health tick", OPERATE),
    post("/health/breaker", "health breaker", OPERATE),
    get("/health/announced", "health announced", items="ahead"),
    post("/health/announced", "health announce", OPERATE),
    post("/health/announced/{work_id}/withdraw", "health withdraw", OPERATE),
    get("/health/policy", "health policy show"),
    post("/health/policy/check", "health policy check", SEE, sent={"path": Sent.TEXT}),
    post("/health/policy", "health policy apply", ADMINISTER, sent={"path": Sent.TEXT}),
)

QUOTA = (
    get("/quota", "quota show", items="teams", sent=_BY_POLICY),
    get("/quota/plan", "quota plan", sent=_BY_POLICY),
    post("/quota/apply", "quota apply", DECIDE, sent=_BY_POLICY),
    get("/quota/compare", "quota compare", is_long=True),
    get("/quota/report", "quota report", sent=_BY_POLICY, is_long=True),
    get("/quota/rollout", "quota rollout", hidden={"announce", "reason", "dry_run"}, shown={"every"}, sent=_BY_POLICY),
    post("/quota/rollout", "quota rollout", DECIDE, hidden={"as_of"}, shown={"every"}, sent=_BY_POLICY),
    get("/quota/notices", "quota notices", items="notices", sent=_BY_POLICY),
    post("/quota/notices/{team}/agree", "quota agree", USE, team="team", also=DECIDE),
    post("/quota/notices/{team}/object", "quota object", USE, team="team", also=DECIDE),
    get("/quota/modes", "quota mode", items="modes", hidden={"mode", "reason", "cluster", "dry_run"}),
    post("/quota/modes/{cluster}", "quota mode", DECIDE, hidden={"as_of"}),
    get("/quota/pilot/{cluster}", "quota pilot", hidden={"outlet"}, sent=_BY_POLICY, is_slow=True),
    post("/quota/control", "quota control", DECIDE),
    get("/quota/flex", "quota flex", items="pools", is_slow=True),
    post("/quota/callback", "quota callback", USE, team="team", also=DECIDE),
    get("/quota/promise", "quota promise", items="spells"),
    get("/quota/history", "quota history", items="pools"),
    get("/teams/{team}/changes", "quota changes", items="changes", is_slow=True),
    get("/requests", "quota requests", items="requests", hidden={"request_id"}),
    get("/requests/{request_id}", "quota requests", hidden={"team", "all"}, is_one=True, is_slow=True),
    post("/requests", "quota request", USE, team="team", also=DECIDE),
    post("/requests/{request_id}/approve", "quota approve", DECIDE, team="request:request_id"),
    post("/requests/{request_id}/deny", "quota deny", DECIDE, team="request:request_id"),
    post("/requests/{request_id}/withdraw", "quota withdraw", USE, team="request:request_id", also=DECIDE),
    post("/transfers", "quota transfer", DECIDE, team="giver"),
    get("/grants", "quota grants", items="grants"),
    post("/grants/{grant_id}/end", "quota end-grant", DECIDE, team="grant:grant_id"),
    post("/quota/settle", "quota settle", DECIDE),
    post("/teams/{old}/rename", "quota rename", ADMINISTER),
    get("/quota/render/{scheduler}/{cluster}", "quota render"),
    get("/quota/policy", "quota policy show"),
    post("/quota/policy/check", "quota policy check", SEE, sent={"path": Sent.TEXT}),
    post("/quota/policy", "quota policy apply", ADMINISTER, sent={"path": Sent.TEXT}),
)

WORKLOADS = (
    get("/workloads", "workload list", items="workloads"),
    get("/workloads/example", "workload example"),
    get("/workloads/{name}", "workload show"),
    post("/workloads", "workload submit", USE, team="files", sent={"files": Sent.TEXTS}),
    post("/workloads/{name}/scale", "workload scale", USE, team="workload:name"),
    post("/workloads/{name}/rank", "workload rank", USE, team="workload:name"),
    post("/workloads/{name}/cancel", "workload cancel", USE, team="workload:name", also=OPERATE),
    post("/workloads/{name}/finish", "workload finish", USE, team="workload:name", also=OPERATE),
    get("/teams/{team}/usage", "workload usage"),
    get("/workload-holds", "workload holds", items="holds"),
    post("/workload-holds", "workload hold", USE, team="team"),
    post("/workload-holds/{hold}/release", "workload release", USE, team="hold:hold"),
    get("/uptime", "workload uptime", items="workloads"),
    get("/defrag", "workload defrag", hidden={"apply", "reason", "dry_run"}, is_long=True),
    post("/defrag", "workload defrag", OPERATE, is_long=True),
    post("/workloads/run", "workload run", OPERATE),
    get("/why", "why"),
)

CAMPAIGNS = (
    get("/campaigns", "campaign list", WAVES, items="campaigns"),
    get("/campaigns/example", "campaign example"),
    get("/calendar", "campaign feed", WAVES, content=CALENDAR_TYPE, cut="without_teams", is_slow=True),
    post(
        "/campaigns/plan", "campaign plan", OPERATE, sent={"file": Sent.TEXT}, most=_PLANNING, is_long=True
    ),
    post("/campaigns/check", "campaign check", SEE, sent={"file": Sent.TEXT, "plan_file": Sent.TEXT}, is_long=True),
    get("/campaigns/compare", "campaign compare", WAVES, items="moved", most=_PLANNING, is_slow=True),
    get("/campaigns/combinations", "campaign combinations", items="combinations", hidden={"plan"}),
    post("/campaigns/tested", "campaign tested", OPERATE),
    post("/campaigns/want", "campaign want", OPERATE),
    get("/campaigns/blocked", "campaign blocked", items="blocked"),
    get("/campaigns/behind", "campaign behind", items="behind", is_slow=True),
    get("/campaigns/versions", "campaign versions show", items="by"),
    post("/campaigns/versions", "campaign versions import", OPERATE, sent={"path": Sent.TEXT}),
    post("/campaigns/versions/relevant", "campaign versions relevant", OPERATE),
    get("/campaigns/{name}", "campaign status", WAVES, cut="without_notes", is_slow=True),
    get("/campaigns/{name}/calendar", "campaign calendar", WAVES, is_slow=True),
    post("/campaigns/{name}/publish", "campaign publish", OPERATE, sent={"folder": Sent.MADE},
         hidden={"alertmanager", "silence_label", "url"}, is_long=True),
    post("/campaigns/{name}/start", "campaign start", OPERATE),
    get("/campaigns/{name}/gate/{batch}", "campaign gate", WAVES, cut="without_notes", is_slow=True),
    post("/campaigns/{name}/tick/{batch}", "campaign tick", TICK, also=OPERATE),
    post("/campaigns/{name}/agree/{workload}", "campaign agree", USE, team="workload:workload", also=OPERATE),
    post("/campaigns/{name}/returned", "campaign returned", TICK, also=OPERATE),
    post("/campaigns/{name}/pause", "campaign pause", OPERATE),
    post("/campaigns/{name}/resume", "campaign resume", OPERATE),
    post("/campaigns/{name}/replan", "campaign replan", OPERATE, sent={"file": Sent.TEXT}, most=_PLANNING,
         is_long=True),
    post("/campaigns/{name}/cancel", "campaign cancel", OPERATE, is_slow=True),
)  # fmt: skip

CLUSTERS = (
    get("/clusters", "cluster list", items="clusters"),
    post("/clusters", "cluster add", OPERATE),
    post("/clusters/import", "cluster import", OPERATE, sent={"path": Sent.BYTES}),
    get("/clusters/quota", "cluster quota", items="quota"),
    get("/clusters/times", "cluster times", items="steps"),
    get("/clusters/{name}", "cluster show"),
    post("/clusters/{name}/edit", "cluster edit", OPERATE),
    get("/clusters/{name}/log", "cluster log", OPERATE),
    get("/clusters/{name}/objects", "cluster render"),
    post("/clusters/{name}/checkin", "cluster checkin", OPERATE),
    post("/clusters/{name}/retry", "cluster retry", OPERATE),
    post("/clusters/{name}/waive", "cluster waive", OPERATE),
    post("/clusters/{name}/pause", "cluster pause", OPERATE),
    post("/clusters/{name}/resume", "cluster resume", OPERATE),
    post("/clusters/{name}/retire", "cluster retire", OPERATE),
    post("/clusters/{name}/migrate", "cluster migrate", OPERATE),
    get("/recipes", "cluster recipe list", items="recipes"),
    get("/recipes/{name}", "cluster recipe show"),
    post("/recipes/check", "cluster recipe check", SEE, sent={"path": Sent.TEXT}),
    post("/recipes", "cluster recipe apply", ADMINISTER, sent={"path": Sent.TEXT}),
)

INCIDENTS = (
    get("/incidents", "incident list", items="incidents"),
    get("/incidents/{name}", "incident show"),
    post("/incidents", "incident open", OPERATE),
    post("/incidents/{name}/note", "incident note", OPERATE),
    post("/incidents/{name}/close", "incident close", OPERATE),
    get("/notices", "incident notices", items="notices"),
)

ACCESS = (
    get("/access", "access list", ADMINISTER, items="grants"),
    post("/access/grant", "access grant", ADMINISTER),
    post("/access/revoke", "access revoke", ADMINISTER),
    get("/access/check", "access check", is_personal=True),
    get("/whoami", "access whoami", Permission.NOBODY_NEEDED, is_personal=True),
    get("/access/tokens", "access token list", ADMINISTER, items="tokens", own="owner"),
    post("/access/tokens", "access token issue", ADMINISTER, own="owner", is_secret=True),
    post("/access/tokens/{token}/revoke", "access token revoke", ADMINISTER, own="token:token"),
    post("/access/sessions/end", "access session end", ADMINISTER, own="who"),
)

AUDIT = (
    get("/events", "audit log", items="events", is_log=True, least={"limit": 1}, most={"limit": 1_000}),
    get("/audit/head", "audit head"),
    get("/audit/verify", "audit verify", is_long=True),
)

ROUTES: tuple[Route, ...] = FLEET + HEALTH + QUOTA + WORKLOADS + CAMPAIGNS + CLUSTERS + INCIDENTS + ACCESS + AUDIT

LOCAL: Mapping[str, str] = {
    "incident run": "the server looks for what is wrong itself",
    "campaign incident open": "the same as incident open",
    "campaign incident note": "the same as incident note",
    "campaign incident close": "the same as incident close",
    "campaign incident list": "the same as incident list",
    "access link": "lets one be anybody: it is for who has the machine",
    "health listen": "the server takes signals itself: POST /api/v1/signals",
    "health observe signals": "POST /api/v1/signals",
    "health observe kubernetes": "reads what kubectl prints: send it as signals",
    "health observe prometheus": "asks an address: a stranger could have the server ask any",
    "health observe slurm": "runs this machine's Slurm commands",
    "quota push": "runs this machine's Slurm and Kubernetes clients with its secrets",
    "campaign run": "the server runs campaigns itself",
    "cluster run": "the server makes clusters itself",
    "simulate replay": "a long calculation on files: it needs no database",
    "simulate generate": "makes a file: it needs no database",
}
"""Commands that are not in the API, and why."""
