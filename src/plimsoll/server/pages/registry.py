"""Every page: its path, who may see it, and the function that gathers what it shows."""

from __future__ import annotations

import msgspec

from plimsoll.access.model import Permission

SEE, SEE_WAVES, OPERATE = Permission.SEE, Permission.SEE_WAVES, Permission.OPERATE


class Page(msgspec.Struct, frozen=True):
    """One page. `gather` is `module:function` under `plimsoll.server.pages`."""

    path: str
    gather: str
    template: str
    permission: Permission
    is_now: bool = False
    """It tells what is so now, whatever the past is: it is never shown as the past."""


PAGES = (
    Page("/", "fleet:fleet", "fleet.html", SEE),
    Page("/map", "map:nodes", "map.html", SEE),
    Page("/changes", "changes:changes", "changes.html", SEE),
    Page("/clusters/{cluster}", "cluster:cluster", "cluster.html", SEE),
    Page("/clusters/{cluster}/forecast", "cluster:forecast", "cluster_forecast.html", SEE),
    Page("/teams", "teams:teams", "teams.html", SEE),
    Page("/teams/{team}", "team:team", "team.html", SEE),
    Page("/teams/{team}/flex", "team:flex", "team_flex.html", SEE),
    Page("/teams/{team}/coming", "team:coming", "team_coming.html", SEE),
    Page("/teams/{team}/history", "team:history", "team_history.html", SEE),
    Page("/workloads", "workloads:workloads", "workloads.html", SEE),
    Page("/workloads/{workload}", "workload:workload", "workload.html", SEE),
    Page("/why", "why:why", "why.html", SEE),
    Page("/quota", "quota:quota", "quota.html", SEE),
    Page("/quota/compare", "quota:compare", "quota_compare.html", SEE),
    Page("/requests/{request_id}", "requests:request", "request.html", SEE),
    Page("/campaigns", "campaigns:campaigns", "campaigns.html", SEE_WAVES),
    Page("/campaigns/{campaign}", "campaign:campaign", "campaign.html", SEE_WAVES),
    Page("/campaigns/{campaign}/gates", "campaign:gates", "campaign_gates.html", SEE_WAVES, is_now=True),
    Page("/campaigns/{campaign}/compare", "campaign:compare", "campaign_compare.html", SEE_WAVES, is_now=True),
    Page("/lifecycle", "lifecycle:lifecycle", "lifecycle.html", SEE),
    Page("/lifecycle/{cluster}", "lifecycle:one", "lifecycle_cluster.html", SEE),
    Page("/lifecycle/{cluster}/log/{step}", "lifecycle:log", "lifecycle_log.html", OPERATE, is_now=True),
    Page("/health", "health:health", "health.html", SEE),
    Page("/health/levels", "health:levels", "health_levels.html", SEE),
    Page("/health/lemons", "health:lemons", "health_lemons.html", SEE),
    Page("/nodes/{node}", "node:node", "node.html", SEE),
    Page("/incidents", "incidents:incidents", "incidents.html", SEE),
    Page("/on-call", "incidents:day", "incidents_day.html", SEE),
    Page("/incidents/{incident}", "incidents:incident", "incident.html", SEE),
    Page("/audit", "audit:audit", "audit.html", SEE),
    Page("/account", "account:account", "account.html", SEE_WAVES, is_now=True),
)
