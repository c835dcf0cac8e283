"""The quota page: the correction as a roll-out, for the RPM who decides it.

Decides which policy the URL means, how a plan is added up by team and by stage, and where a line is in force already.
The numbers are those of `quota plan`, `quota rollout` and `quota show`; nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from plimsoll.server.pages.hull import add_up
from plimsoll.words import counted

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

BUFFER_MAX = 30
POLICY_CHARS_MAX = 60
CLUSTER_CHARS_MAX = 100
COMPARED = "0,5,10,15,20,25,30,tiered,forecast"
OPTIONS_ASKED_MAX = 8
"""So many open requests are shown with their options; the others have a page of their own."""
Pools = AbstractSet[tuple[str, str]]
"""Pools by cluster and SKU."""
KINDS = ("unscheduled", "idle", "running")
MODES = ("observe", "propose", "enforce")


async def quota(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    chosen, cluster = policy_asked(visit.query), cluster_asked(visit.query)
    plan = await visit.ask("quota plan", policy=chosen, clusters=[cluster] if cluster else [])
    now = await visit.ask("quota show")
    rollout = await visit.ask("quota rollout", policy=chosen)
    notices = (await visit.ask("quota notices", policy=chosen))["notices"]
    notices = [notice for notice in notices if cluster in ("", notice["cluster"])]
    requests = (await visit.ask("quota requests"))["requests"]
    grants = (await visit.ask("quota grants"))["grants"]
    modes = (await visit.ask("quota mode"))["modes"]
    aligned = {(pool["cluster"], pool["sku"]) for pool in now["clusters"] if pool["is_aligned"]}
    return {
        "in_force": now["policy"],
        "policy": chosen,
        "cluster": cluster,
        "policy_name": plan["policy"],
        "compared": compared_with(chosen),
        "buffer": buffer_of(plan["policy"]),
        "choices": choices(now["policy"], chosen),
        "plan": plan,
        "summary": plan["summary"],
        "fleet": add_up(plan["clusters"]),
        "stages": stages(plan, aligned, rollout["stages"]),
        "is_all_applied": len(pools_as_planned(plan, now, aligned)) == len(plan["clusters"]),
        "cut_bar_all": bar({kind: plan["summary"]["haircut"][kind] for kind in KINDS}, plan["summary"]["over"]),
        "team_rows": by_team(plan["teams"]),
        "held_by": sorted({row["team"] for row in now["teams"]}),
        "skus": sorted({pool["sku"] for pool in now["clusters"]}),
        "clusters": sorted({pool["cluster"] for pool in now["clusters"]}),
        "notices": notices,
        "answers": count_answers(notices),
        "requests": [await _with_options(visit, each, place) for place, each in enumerate(requests)],
        "grants": sorted(grants, key=lambda grant: str(grant["until"])),
        "modes": {mode: [row["cluster"] for row in modes if row["mode"] == mode] for mode in MODES},
        "may_decide": visit.may("decide_quota"),
    }


async def compare(visit: Visit) -> dict[str, object]:
    """Policies side by side: slow, so that the quota page fetches it when it is there itself."""
    chosen = policy_asked(visit.query)
    buffers, cluster = compared_with(chosen), cluster_asked(visit.query)
    found = await visit.ask("quota compare", buffers=buffers, cluster=[cluster] if cluster else [])
    rows = [row | {"is_chosen": row["policy"] == chosen} for row in found["policies"]]
    spec = compare_chart(rows)
    return {
        "compared": found,
        "judged": days_judged(found["judged_days"], found["days"]),
        "rows": rows,
        "spec": spec,
        "policy": chosen,
        "buffers": buffers,
        "cluster": cluster,
    }


def days_judged(judged: float, asked: int) -> str:
    """`77 of the 90 days asked for`: the history, or a policy that must learn first, may not reach further."""
    return counted(asked, "day") if judged >= asked - 1 else f"{judged:.0f} of the {counted(asked, 'day')} asked for"


def compared_with(chosen: str) -> str:
    """The policies that stand side by side: those that always do, and the chosen one."""
    words, buffer = COMPARED.split(","), buffer_of(chosen)
    is_there = not chosen or chosen in words or (buffer is not None and str(buffer) in words)
    return COMPARED if is_there else f"{COMPARED},{chosen}"


async def _with_options(visit: Visit, request: Mapping[str, Any], place: int) -> dict[str, Any]:
    """A request; while it is open, with its ranked options as they are now."""
    found: dict[str, Any] = {"request": request, "options": [], "past": "", "best": ""}
    if request["state"] == "open" and place < OPTIONS_ASKED_MAX:
        answer = await visit.ask("quota requests", request_id=request["id"])
        usable = [option for option in answer["options"] if option["number"] is not None]
        best = next((option["key"] for option in usable if option["is_whole"]), usable[0]["key"] if usable else "")
        found |= {"options": answer["options"], "past": answer["past"], "best": best}
    return found


def policy_asked(query: Mapping[str, str]) -> str:
    """`policy` of the URL; or `buffer` in percent, as a slider without scripts sends it; "" is the one in force."""
    text = query.get("buffer", "")
    if text.isascii() and text.isdigit() and len(text) <= 2 and int(text) <= BUFFER_MAX:
        return f"fixed:{int(text) / 100:g}"
    return query.get("policy", "")[:POLICY_CHARS_MAX]


def cluster_asked(query: Mapping[str, str]) -> str:
    """The one cluster that the correction is looked at for; "" is the whole fleet."""
    return query.get("cluster", "")[:CLUSTER_CHARS_MAX]


def buffer_of(policy: str) -> int | None:
    """The buffer of a fixed policy in whole percent."""
    word, _, number = policy.partition(":")
    try:
        return round(float(number or "0.15") * 100) if word == "fixed" else None
    except ValueError:
        return None


def choices(in_force: str, chosen: str) -> list[tuple[str, str, bool]]:
    """Links to other policies: address, words, and whether it is the one that is shown."""
    listed = [("", f"in force: {in_force}")]
    listed += [(f"fixed:{percent / 100:g}", f"{percent} %") for percent in (0, 5, 10, 15, 20, 25, 30)]
    listed += [("tiered", "tiered"), ("forecast:0.99", "forecast 99 %")]
    return [(policy, words, policy == chosen) for policy, words in listed]


def pools_as_planned(plan: Mapping[str, Any], now: Mapping[str, Any], aligned: Pools) -> Pools:
    """The pools whose guarantees are those of the plan already."""
    holds = {(row["cluster"], row["sku"], row["team"]): row["guaranteed"] for row in now["teams"]}
    other = {
        (row["cluster"], row["sku"])
        for row in plan["teams"]
        if holds.get((row["cluster"], row["sku"], row["team"]), 0) != row["guaranteed"]
    }
    return aligned - other


def stages(plan: Mapping[str, Any], aligned: Pools, told: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each stage would do, and in how many of its pools a line is in force. `told` has its words and its day."""
    found = []
    for stage in told:
        pools = [pool for pool in plan["clusters"] if pool["stage"] == stage["stage"]]
        keys = {(pool["cluster"], pool["sku"]) for pool in pools}
        cut = [row for row in plan["teams"] if (row["cluster"], row["sku"]) in keys and any(row["haircut"].values())]
        haircut = {kind: sum(row["haircut"][kind] for row in cut) for kind in KINDS}
        found.append(
            {
                "stage": stage["stage"],
                "meaning": stage["meaning"],
                "day": stage["day"],
                "pools": len(pools),
                "clusters": sorted({pool["cluster"] for pool in pools}),
                "teams": sorted({row["team"] for row in cut}),
                "haircut": haircut,
                "cut": sum(haircut.values()),
                "bar": bar(haircut, plan["summary"]["over"]),
                "never_backed": sum(pool["never_backed"] for pool in pools),
                "flex_standing": sum(pool["flex_standing"] for pool in pools),
                "aligned": len(keys & aligned),
            }
        )
    return found


def by_team(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each team would lose, over all pools; who loses most stands first."""
    teams: dict[str, dict[str, Any]] = {}
    for row in rows:
        found = teams.setdefault(
            row["team"],
            {"team": row["team"], "assigned": 0, "guaranteed": 0, "allocated": 0, "stage": 1, "clusters": set(),
             **dict.fromkeys(KINDS, 0)},
        )  # fmt: skip
        for name in ("assigned", "guaranteed", "allocated"):
            found[name] += row[name]
        for kind in KINDS:
            found[kind] += row["haircut"][kind]
        if any(row["haircut"].values()):
            found["clusters"].add(row["cluster"])
            found["stage"] = max(found["stage"], row["stage"])
    for found in teams.values():
        found["cut"] = sum(found[kind] for kind in KINDS)
        found["clusters"] = len(found["clusters"])
    most = max((found["cut"] for found in teams.values()), default=0)
    for found in teams.values():
        found["bar"] = bar({kind: found[kind] for kind in KINDS}, most)
    return sorted(teams.values(), key=lambda found: (-found["cut"], found["team"]))


def bar(parts: Mapping[str, int], whole: int) -> list[tuple[str, int, str, str]]:
    """Parts beside each other: kind, GPUs, where it begins and how wide it is, in percent of `whole`."""
    found, begins = [], 0
    for kind in KINDS:
        if gpus := parts[kind]:
            found.append((kind, gpus, _percent(begins, whole), _percent(gpus, whole)))
            begins += gpus
    return found


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.4g}%"


def count_answers(notices: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many teams' notices were agreed to, objected to, or not answered."""
    said = [notice.get("answer") or "" for notice in notices]
    agreed, objected = said.count("agreed"), said.count("objected")
    return {"agreed": agreed, "objected": objected, "open": len(said) - agreed - objected}


def compare_chart(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What each policy cuts, by what it hurts, and how often its promise would have been kept."""
    shown = [row for row in rows if row["haircut"] is not None]
    values = [
        {"policy": row["policy"], "kind": kind, "GPUs": row["haircut"][kind], "place": place}
        for row in shown
        for place, kind in enumerate(KINDS)
    ]
    kept = [{"policy": row["policy"], "kept": row["kept_share"]} for row in shown if row["kept_share"] is not None]
    order = [row["policy"] for row in shown]
    x = {"field": "policy", "type": "nominal", "sort": order, "axis": {"title": None, "labelAngle": 0}}
    return {
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar"},
                "encoding": {
                    "x": x,
                    "y": {"field": "GPUs", "type": "quantitative", "title": "GPUs cut"},
                    "order": {"field": "place"},
                    "color": {
                        "field": "kind",
                        "type": "nominal",
                        "scale": {"domain": list(KINDS), "range": ["@assigned", "@idle", "@over"]},
                    },
                    "tooltip": [{"field": "policy"}, {"field": "kind"}, {"field": "GPUs", "format": ","}],
                },
            },
            {
                "data": {"values": kept},
                "mark": {"type": "line", "point": {"color": "@flex", "size": 40}, "color": "@flex"},
                "encoding": {
                    "x": x,
                    "y": {
                        "field": "kept",
                        "type": "quantitative",
                        "title": "promise kept in the past",
                        "scale": {"domain": [0, 1]},
                        "axis": {"format": ".0%", "orient": "right", "grid": False},
                    },
                    "tooltip": [{"field": "policy"}, {"field": "kept", "format": ".1%"}],
                },
            },
        ],
        "resolve": {"scale": {"y": "independent"}},
    }
