from typing import Any


async def fleet(visit: Any) -> dict[str, object]:
    quota = await visit.ask("quota show")
    return {"quota": quota}
