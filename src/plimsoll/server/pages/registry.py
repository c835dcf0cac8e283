"""Every page: its path, who may see it, and the function that gathers what it shows."""

from __future__ import annotations

import msgspec

from plimsoll.access.model import Permission


class Page(msgspec.Struct, frozen=True):
    """One page. `gather` is `module:function` under `plimsoll.server.pages`."""

    path: str
    gather: str
    template: str
    permission: Permission = Permission.SEE
    is_now: bool = False
    """It tells what is so now, whatever the past is: it is never shown as the past."""


PAGES = (
    Page("/", "fleet:fleet", "fleet.html"),
    Page("/map", "map:nodes", "map.html"),
    Page("/changes", "changes:changes", "changes.html"),
    Page("/clusters/{cluster}", "cluster:cluster", "cluster.html"),
    Page("/clusters/{cluster}/forecast", "cluster:forecast", "cluster_forecast.html"),
    Page("/teams", "teams:teams", "teams.html"),
    Page("/teams/{team}", "team:team", "team.html"),
    Page("/teams/{team}/flex", "team:flex", "team_flex.html"),
    Page("/teams/{team}/coming", "team:coming", "team_coming.html"),
    Page("/teams/{team}/history", "team:history", "team_history.html"),
    Page("/workloads", "workloads:workloads", "workloads.html"),
    Page("/workloads/{workload}", "workload:workload", "workload.html"),
    Page("/why", "why:why", "why.html"),
    Page("/quota", "quota:quota", "quota.html"),
    Page("/quota/compare", "quota:compare", "quota_compare.html"),
    Page("/requests/{request_id}", "requests:request", "request.html"),
    Page("/campaigns", "campaigns:campaigns", "campaigns.html", Permission.SEE_WAVES),
    Page("/campaigns/{campaign}", "campaign:campaign", "campaign.html", Permission.SEE_WAVES),
    Page("/campaigns/{campaign}/gates", "campaign:gates", "campaign_gates.html", Permission.SEE_WAVES, is_now=True),
    Page(
        "/campaigns/{campaign}/compare", "campaign:compare", "campaign_compare.html", Permission.SEE_WAVES, is_now=True
    ),
    Page("/lifecycle", "lifecycle:lifecycle", "lifecycle.html"),
    Page("/lifecycle/{cluster}", "lifecycle:one", "lifecycle_cluster.html"),
    Page("/lifecycle/{cluster}/log/{step}", "lifecycle:log", "lifecycle_log.html", Permission.OPERATE, is_now=True),
    Page("/health", "health:health", "health.html"),
    Page("/health/levels", "health:levels", "health_levels.html"),
    Page("/health/lemons", "health:lemons", "health_lemons.html"),
    Page("/nodes/{node}", "node:node", "node.html"),
    Page("/incidents", "incidents:incidents", "incidents.html"),
    Page("/on-call", "incidents:day", "incidents_day.html"),
    Page("/incidents/{incident}", "incidents:incident", "incident.html"),
    Page("/audit", "audit:audit", "audit.html"),
    Page("/account", "account:account", "account.html", Permission.SEE_WAVES, is_now=True),
)
