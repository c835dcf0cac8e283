"""The map of all nodes: the whole fleet, or an area, a SKU, a purpose of it. The map itself is fetched by the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plimsoll.server.visit import Visit

FIELDS = ("area", "sku", "purpose")


async def nodes(visit: Visit) -> dict[str, object]:
    """What the page shows."""
    clusters = (await visit.ask("fleet clusters"))["clusters"]
    wanted = {field: visit.query.get(field, "") for field in FIELDS}
    choices = {
        "area": sorted({row["area"] for row in clusters}),
        "sku": sorted({sku for row in clusters for sku in row["skus"]}),
        "purpose": sorted({row["purpose"] for row in clusters}),
    }
    filters = [f'{field}="{value}"' for field, value in wanted.items() if value in choices[field]]
    return {
        "wanted": wanted,
        "choices": choices,
        "node_count": sum(row["nodes"] for row in clusters),
        "cluster_count": len(clusters),
        "filters": filters,
        "map_url": visit.api_url("fleet map", {"filters": filters}),
    }
